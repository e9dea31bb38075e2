// Reads the text form: a line becomes words, words become fields (text_reader.hpp, driven by
// text_fields.hpp), lines become programs (Parser). One parser, one file.
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "schedule/text.hpp"
#include "schedule/text_fields.hpp"
#include "schedule/text_reader.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace spp {
namespace {

using text::BufferIds;
using text::Context;
using text::FieldReader;
using text::in_quotes;
using text::pick;
using text::Word;

constexpr double most_bytes = 1.0e18;  // of one rank's buffers: below 2^63

/// What was read of one rank, shared by all programs that are made of it.
struct Stage {
  std::vector<Op> ops;
  std::vector<std::size_t> ends;  // of each iteration, in ops
};
struct RankProgram {
  std::vector<Buffer> buffers;
  std::vector<std::shared_ptr<const Stage>> stages;
};

Program program_of(const RankProgram& parsed) {
  Program program{.buffers = parsed.buffers, .loops = {}};
  for (const auto& stage : parsed.stages) {
    program.loops.push_back({.trips = static_cast<std::int64_t>(stage->ends.size()),
                             .body = [stage](std::int64_t i, OpList& ops) {
                               const auto at = static_cast<std::size_t>(i);
                               const std::size_t begin = at == 0 ? 0 : stage->ends[at - 1];
                               const auto first = stage->ops.begin();
                               ops.insert(ops.end(), first + static_cast<std::ptrdiff_t>(begin),
                                          first + static_cast<std::ptrdiff_t>(stage->ends[at]));
                             }});
  }
  return program;
}

/// Makes the op whose word is `name`, its fields read by `reader`. False if there is none.
bool read_body(std::string_view name, FieldReader& reader, OpBody& body) {
  const auto word = std::ranges::find(op_names(), name);
  if (word == op_names().end()) {
    return false;
  }
  body = blank_op(static_cast<OpKind>(word - op_names().begin()));
  std::visit([&](auto& either) { std::visit([&](auto& op) { text::fields(reader, op); }, either); },
             body);
  return true;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  Schedule parse() {
    header();
    most_rows_ = contract_.attention.all_tokens();
    while (next_line()) {
      if (!graph_line()) {
        program_line();
      }
    }
    finish_rank();
    schedule_.program =
        [programs = std::make_shared<const std::map<Rank, RankProgram>>(std::move(programs_)),
         file = std::string(file_)](Rank rank) {
          const auto it = programs->find(rank);
          if (it == programs->end()) {
            throw InputError(file, fmt::format("holds no program of rank {}", rank.value));
          }
          return program_of(it->second);
        };
    return std::move(schedule_);
  }

 private:
  // ---- lines and words ----

  /// The next line that is neither empty nor a comment, as words.
  bool next_line() {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      const std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      ++line_;
      split_words(line);
      if (!words_.empty() && !words_.front().starts_with('#')) {
        where_.clear();
        fmt::format_to(std::back_inserter(where_), "{}:{}", file_, line_);
        return true;
      }
    }
    return false;
  }

  void split_words(std::string_view line) {
    constexpr std::string_view space = " \t\r";
    words_.clear();
    for (std::size_t at = 0; (at = line.find_first_not_of(space, at)) != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(space, at), line.size());
      words_.push_back(line.substr(at, end - at));
      at = end;
    }
  }

  /// The words from `first` on as fields.
  std::vector<Word>& fields_from(std::size_t first) {
    fields_.clear();
    for (std::size_t i = first; i < words_.size(); ++i) {
      const std::string_view word = words_[i];
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos) {
        fields_.push_back({.key = word, .value = {}});
      } else {
        fields_.push_back(
            {.key = word.substr(0, equals), .value = word.substr(equals + 1), .is_field = true});
      }
    }
    return fields_;
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError(where_, fmt::format(format, std::forward<Args>(args)...));
  }

  void expect_words(std::size_t count, std::string_view form) const {
    if (words_.size() != count) {
      fail("expected '{}', not {} words", form, words_.size());
    }
  }

  std::int64_t number(std::size_t word, std::int64_t min, std::int64_t max) const {
    return parse_int(words_[word], where_, min, max);
  }

  // ---- header ----

  void header() {
    header_line("sp-plan/schedule");
    expect_words(2, "sp-plan/schedule 2.0");
    if (words_[1] != "2" && !words_[1].starts_with("2.")) {
      fail("version {} cannot be read, expected 2.x (write it again: simulate --dump-schedule)",
           in_quotes(words_[1]));
    }
    header_line("problem");
    header_fields(contract_.attention);
    header_line("requested");
    header_fields(contract_.requested);
    expect_padding();
    header_line("phase");
    contract_.recomputes = words_.size() > 2 && words_[2] == "recompute";
    expect_words(contract_.recomputes ? 3 : 2, "phase fwd|bwd|step [recompute]");
    contract_.phase = parse_phase(words_[1], where_);
    if (contract_.recomputes && contract_.phase != Phase::step) {
      fail("a step computes again, no {}", in_quotes(words_[1]));
    }
    if (contract_.attention.cached > 0 && contract_.phase != Phase::forward) {
      fail("cached={}: of one forward, of which keys are cached", contract_.attention.cached);
    }
    header_line("mesh");
    mesh();
    header_line("grain");
    grain();
    header_line("streams");
    streams();
    header_line("symmetry");
    symmetry();
  }

  void header_line(std::string_view word) {
    if (!next_line()) {
      throw InputError(file_, fmt::format("ends before the line '{} …'", word));
    }
    if (words_[0] != word) {
      fail("expected the line '{} …', not {}", word, in_quotes(words_[0]));
    }
  }

  template <class T>
  void header_fields(T& value) {
    const Context context{.problem = contract_.attention,
                          .most_rows = contract_.attention.all_tokens(),
                          .ranks = 0,
                          .rank = {},
                          .buffers = program_.buffers,
                          .ids = ids_};
    FieldReader reader(fields_from(1), where_, context);
    text::fields(reader, value);
    reader.finish();
    if constexpr (std::same_as<T, Problem>) {
      if (value.q_heads % value.kv_heads != 0) {
        fail("kv_heads={} does not divide q_heads={}", value.kv_heads, value.q_heads);
      }
      const double width = static_cast<double>(value.batch) * value.q_heads *
                           static_cast<double>(std::max(value.head_dim, value.v_dim()));
      if (width > text::most_width) {
        fail("batch * q_heads * head_dim or value_dim is too large (at most {})", text::most_width);
      }
      if (value.function == AttentionFunction::linear && value.v_dim() != value.head_dim) {
        fail("value_dim={} differs from head_dim={}, which linear attention cannot have",
             value.v_dim(), value.head_dim);
      }
      if (value.function == AttentionFunction::linear && value.sinks) {
        fail("sinks take their share of a softmax, which linear attention does not have");
      }
      if (value.cached > 0 && value.micro_batches > 1) {
        fail("cached={}: of one forward, of which keys are cached", value.cached);
      }
      if (value.all_tokens() > text::most_tokens) {
        fail("seq * micro_batches is too large (at most {})", text::most_tokens);
      }
      for (int number = 0; number < value.masks(); ++number) {
        const Mask& mask = value.mask_of(number);
        const std::int64_t packed =
            mask.document_ends.empty() ? 0 : mask.document_ends.back() * mask.pieces;
        if (packed > value.end()) {
          fail("mask={}: documents of {} tokens, more than the {} of the sequence", to_string(mask),
               packed, value.end());
        }
      }
    }
  }

  /// `requested` is the problem, or what padding of tokens and whole KV groups makes it of.
  void expect_padding() const {
    const Problem& problem = contract_.attention;
    const Problem& requested = contract_.requested;
    Problem padded = requested;
    padded.seq = problem.seq;
    padded.q_heads = problem.q_heads;
    padded.kv_heads = problem.kv_heads;
    if (padded != problem) {
      fail("requested differs from the problem in more than seq, q_heads and kv_heads");
    }
    if (requested.seq > problem.seq || requested.q_heads > problem.q_heads ||
        requested.group_size() != problem.group_size()) {
      fail("seq={} q_heads={} kv_heads={} cannot be padded to seq={} q_heads={} kv_heads={}",
           requested.seq, requested.q_heads, requested.kv_heads, problem.seq, problem.q_heads,
           problem.kv_heads);
    }
  }

  void mesh() {
    std::vector<MeshAxis> axes;
    std::int64_t ranks = 1;
    for (const Word& word : fields_from(1)) {
      const auto same = [&](const MeshAxis& axis) { return axis.name == word.key; };
      if (!word.is_field || !text::is_name(word.key) || std::ranges::any_of(axes, same)) {
        fail("{} is no axis=size, or stands twice", in_quotes(word.key));
      }
      axes.push_back(
          {.name = std::string(word.key),
           .size = static_cast<int>(parse_int(word.value, where_, 1, text::most_ranks))});
      ranks *= axes.back().size;
      if (ranks > text::most_ranks) {
        fail("the axes have more than {} ranks", text::most_ranks);
      }
    }
    schedule_.mesh = Mesh(std::move(axes));
  }

  void grain() {
    header_fields(schedule_.grain);
    const std::int64_t cut = schedule_.grain.tokens;
    const std::int64_t most = 2 * std::int64_t{schedule_.mesh.size()};  // two chunks a rank
    if (cut > 0 && (contract_.attention.seq + cut - 1) / cut > most) {
      fail("tokens={} cuts {} tokens into more parts than two a rank", cut,
           contract_.attention.seq);
    }
    const int slots = schedule_.grain.slots;
    if (slots > schedule_.mesh.size() || (slots > 0 && contract_.attention.seq % slots != 0)) {
      fail("slots={} are more than ranks, or do not divide {} tokens", slots,
           contract_.attention.seq);
    }
  }

  void streams() {
    if (words_.size() < 2 || words_.size() > text::most_streams + 1) {
      fail("expected 1 to {} names of streams", text::most_streams);
    }
    for (std::size_t i = 1; i < words_.size(); ++i) {
      const std::string name(words_[i]);
      if (!text::is_name(name) ||
          std::ranges::find(schedule_.streams, name) != schedule_.streams.end()) {
        fail("{} is no name for a stream, or stands twice", in_quotes(name));
      }
      schedule_.streams.push_back(name);
    }
  }

  void symmetry() {
    for (const Word& word : fields_from(1)) {
      using enum AxisMoves;
      if (!schedule_.mesh.find(word.key)) {
        fail("the mesh has no axis {}", in_quotes(word.key));
      }
      const auto same = [&](const SymmetricAxis& s) { return s.axis == word.key; };
      if (std::ranges::any_of(schedule_.symmetry, same)) {
        fail("{} stands twice", in_quotes(word.key));
      }
      schedule_.symmetry.push_back(
          {.axis = std::string(word.key),
           .under = pick(word.value, {rotations, permutations, alike, equal}, where_)});
    }
  }

  // ---- graph ----

  /// False if the line is none of a graph, which stands before the first rank.
  bool graph_line() {
    const std::string_view word = words_[0];
    const bool known = word == "value" || word == "param" || word == "define" || word == "routing";
    if (!known || rank_.valid()) {
      return false;
    }
    if (word == "routing") {
      routing();
      return true;
    }
    if (words_.size() < 3) {
      fail("expected '{} {} field=value …'", word, word == "define" ? "FUNCTION" : "NAME");
    }
    if (word == "define") {
      definition();
    } else if (word == "value") {
      Value value{.name = graph_name(contract_.graph.values)};
      graph_fields(value);
      if (value.width % value.parts != 0) {
        fail("parts={} do not divide width={}", value.parts, value.width);
      }
      contract_.graph.values.push_back(std::move(value));
    } else {
      Param param{.name = graph_name(contract_.graph.params)};
      graph_fields(param);
      if (param.rows % param.row_parts != 0 || param.columns % param.column_parts != 0 ||
          (param.experts > 0 && param.rows % param.experts != 0)) {
        fail("its parts or experts do not divide its rows or columns");
      }
      const Routing& routing = contract_.graph.routing;
      if (param.experts > 0 &&
          (param.experts != routing.experts || param.row_parts != routing.groups)) {
        fail("its experts and row parts are not the routing's {} and {}", routing.experts,
             routing.empty() ? 0 : routing.groups);
      }
      most_rows_ = std::max(most_rows_, param.rows);
      contract_.graph.params.push_back(std::move(param));
    }
    return true;
  }

  void routing() {
    Routing& r = contract_.graph.routing;
    if (!contract_.graph.values.empty() || !r.empty()) {
      fail("'routing' stands once, before values and parameters");
    }
    header_fields(r);
    if (r.experts % r.chosen != 0 || r.experts % r.groups != 0 ||
        (r.chosen % r.groups != 0 && r.groups % r.chosen != 0) || r.period % r.classes() != 0) {
      fail(
          "chosen and groups divide experts, one of them the other, and experts / chosen divides "
          "the period");
    }
  }

  template <class T>
  std::string graph_name(const std::vector<T>& others) const {
    std::string name(words_[1]);
    if (!text::is_name(name) || std::ranges::find(others, name, &T::name) != others.end()) {
      fail("{} is no name, or stands twice", in_quotes(name));
    }
    if (std::ssize(others) == text::most_definitions) {
      fail("more than {} of them", text::most_definitions);
    }
    return name;
  }

  template <class T>
  void graph_fields(T& value) {
    const Context context = this->context();
    FieldReader reader(fields_from(2), where_, context);
    text::fields(reader, value);
    reader.finish();
  }

  void definition() {
    Definition d;
    d.function = function(words_[1]);
    const Context context = this->context();
    FieldReader reader(fields_from(2), where_, context);
    d.reads = refs(reader.optional("reads"));
    d.writes = refs(reader.optional("writes"));
    if (const std::string_view name = reader.optional("param"); !name.empty()) {
      d.param = tensor("param." + std::string(name)).label;
    }
    if (const std::string_view name = reader.optional("bias"); !name.empty()) {
      d.bias = tensor("param." + std::string(name)).label;
    }
    if (const std::string_view name = reader.optional("sink"); !name.empty()) {
      d.sink = tensor("param." + std::string(name)).label;
    }
    reader("transposed", d.transposed);
    reader.unless_zero("mask", d.mask, text::most_masks);
    if (const std::string_view constant = reader.optional("constant"); !constant.empty()) {
      d.constant = parse_double(constant, where_);
    }
    if (const std::string_view epsilon = reader.optional("epsilon"); !epsilon.empty()) {
      d.epsilon = parse_double(epsilon, where_);
    }
    reader.finish();
    if (std::ssize(contract_.graph.definitions) == text::most_definitions) {
      fail("more than {} definitions", text::most_definitions);
    }
    contract_.graph.definitions.push_back(std::move(d));
    // Heads are dealt out as the grain says; what is wrong must not be met by those who walk it.
    const std::string flaw =
        flaw_of(contract_.graph, rows_of(contract_.attention, schedule_.grain.heads.parts()),
                contract_.graph.definitions.size() - 1);
    if (!flaw.empty()) {
      fail("{}", flaw);
    }
  }

  LayerFunction function(std::string_view name) const {
    using enum LayerFunction;
    return pick(name,
                {linear, rms_norm, layer_norm, split_heads, swiglu, gelu, add, split, embedding,
                 word_sums, word_loss, adam, route, dispatch, expert_swiglu, combine},
                where_);
  }

  std::vector<TensorRef> refs(std::string_view names) const {
    std::vector<TensorRef> result;
    for (const std::string_view name :
         names.empty() ? std::vector<std::string_view>() : split(names, ',')) {
      result.push_back(tensor(name));
    }
    return result;
  }

  // ---- programs ----

  void program_line() {
    const std::string_view word = words_[0];
    if (word == "rank") {
      begin_rank();
    } else if (!rank_.valid()) {
      fail("expected the line 'rank 0', not {}", in_quotes(word));
    } else if (word == "buffer") {
      buffer();
    } else if (word == "iteration") {
      iteration();
    } else if (word == "end") {
      end_loop();
    } else {
      op();
    }
  }

  void begin_rank() {
    finish_rank();
    expect_words(2, "rank R");
    rank_ = Rank(static_cast<std::int32_t>(number(1, 0, schedule_.mesh.size() - 1)));
    if (programs_.contains(rank_)) {
      fail("rank {} stands twice", rank_.value);
    }
  }

  void finish_rank() {
    if (trips_ > 0) {
      fail("the loop of rank {} stops at iteration {} of {}; 'end' is missing", rank_.value,
           stage_.ends.size() + 1, trips_);
    }
    finish_stage();
    if (rank_.valid()) {
      programs_.emplace(rank_, std::move(program_));
    }
    program_ = {};
    ids_.clear();
    bytes_ = 0;
  }

  void finish_stage() {
    if (trips_ == 0 && !stage_.ops.empty()) {
      stage_.ends.push_back(stage_.ops.size());
    }
    if (!stage_.ends.empty()) {
      program_.stages.push_back(std::make_shared<const Stage>(std::exchange(stage_, {})));
    }
  }

  void buffer() {
    if (!stage_.ops.empty() || !program_.stages.empty() || trips_ > 0) {
      fail("a buffer after the ops; all buffers of a rank stand first");
    }
    if (std::ssize(program_.buffers) == text::most_buffers) {
      fail("more than {} buffers", text::most_buffers);
    }
    if (words_.size() < 5) {
      fail("expected 'buffer NAME TENSOR ROLE DTYPE tokens=N heads=N', or 'tile=… heads=…'");
    }
    const TensorRef ref = tensor(words_[2]);
    const BufferShape shape = shape_of(ref, contract_.attention, contract_.graph);
    Buffer b = {.name = std::string(words_[1]),
                .tensor = ref.tensor,
                .role = role(words_[3]),
                .dtype = parse_dtype(words_[4], where_),
                .width = shape.width,
                .batch = shape.batch,
                .label = ref.label,
                .head_range = {},
                .tile = {}};
    const Context context = this->context();
    FieldReader reader(fields_from(5), where_, context);
    if (b.role == BufferRole::scratch) {
      reader("tokens", b.tokens, 0, text::most_tokens);
      reader("heads", b.heads, 0, text::most_heads);
    } else {
      reader("tile", b.tile);
      reader("heads", b.head_range);
      b.tokens = b.tile.count();
      b.heads = b.head_range.count();
      std::int64_t room = 0;
      reader.unless_zero("room", room, text::most_tokens);
      if (room > 0 && b.role != BufferRole::input) {
        fail("room={}: only an input has room behind its tile", room);
      }
      b.tokens += room;
    }
    reader.finish();
    declare(std::move(b));
  }

  void declare(Buffer b) {
    if (!text::is_name(b.name)) {
      fail("{} is no name for a buffer", in_quotes(b.name));
    }
    bytes_ += static_cast<double>(b.batch) * static_cast<double>(b.tokens) * b.heads *
              static_cast<double>(b.width) * static_cast<double>(size_of(b.dtype));
    if (bytes_ > most_bytes) {
      fail("buffers of {:.3g} bytes are too large (below {:.0g})", bytes_, most_bytes);
    }
    if (!ids_.emplace(words_[1], BufferId(program_.buffers.size())).second) {
      fail("buffer {} stands twice", in_quotes(words_[1]));
    }
    program_.buffers.push_back(std::move(b));
  }

  /// "q", "q.1" of attention 1, "value.NAME".
  TensorRef tensor(std::string_view name) const {
    using enum Tensor;
    const std::size_t dot = name.find('.');
    const std::string_view label = dot != std::string_view::npos ? name.substr(dot + 1) : "";
    const std::string_view kind = name.substr(0, dot);
    const Tensor tensor =
        pick(kind, {q,     k,       v,      out,     lse,       d_out,        d_q,          d_k,
                    d_v,   delta,   scores, weights, d_weights, d_scores,     state,        d_state,
                    value, d_value, param,  d_param, master,    first_moment, second_moment},
             where_);
    if (is_param(tensor)) {
      return {tensor, label_of(contract_.graph.params, label)};
    }
    if (is_value(tensor)) {
      return {tensor, label_of(contract_.graph.values, label)};
    }
    const std::int64_t most = text::most_definitions;
    return {tensor, dot == std::string_view::npos
                        ? 0
                        : static_cast<int>(parse_int(label, where_, 0, most))};
  }
  template <class T>
  int label_of(const std::vector<T>& named, std::string_view name) const {
    const auto at = std::ranges::find(named, name, &T::name);
    if (at == named.end()) {
      std::vector<std::string> known;
      for (const T& one : named) {
        known.push_back(one.name);
      }
      fail("the graph has no {}{}", in_quotes(name), did_you_mean(name, known));
    }
    return static_cast<int>(at - named.begin());
  }
  BufferRole role(std::string_view name) const {
    using enum BufferRole;
    return pick(name, {input, output, scratch, state}, where_);
  }

  void iteration() {
    expect_words(4, "iteration I of N");
    if (words_[2] != "of") {
      fail("expected 'iteration I of N', not {}", in_quotes(words_[2]));
    }
    const std::int64_t trips = number(3, 2, std::int64_t{1} << 40);
    if (trips_ == 0) {
      finish_stage();
      trips_ = trips;
    } else {
      stage_.ends.push_back(stage_.ops.size());
    }
    const std::int64_t expected = std::ssize(stage_.ends) + 1;
    if (trips != trips_ || number(1, 1, trips) != expected) {
      fail("expected 'iteration {} of {}'{}", expected, trips_,
           expected > trips_ ? " to be followed by 'end'" : "");
    }
  }

  void end_loop() {
    expect_words(1, "end");
    if (trips_ == 0) {
      fail("'end' without a loop");
    }
    stage_.ends.push_back(stage_.ops.size());
    if (std::ssize(stage_.ends) != trips_) {
      fail("'end' after {} of {} iterations", stage_.ends.size(), trips_);
    }
    finish_stage();
    trips_ = 0;
  }

  void op() {
    Op op;
    if (words_[0].ends_with(':')) {
      op.stream = stream(words_[0].substr(0, words_[0].size() - 1));
    } else {
      const std::vector<std::string> known{"rank", "buffer", "iteration", "end",
                                           schedule_.streams.front() + ":"};
      fail("unknown line {}{}", in_quotes(words_[0]), did_you_mean(words_[0], known));
    }
    if (words_.size() < 2) {
      fail("expected 'STREAM: OP field=value …'");
    }
    const Context context = this->context();
    FieldReader reader(fields_from(2), where_, context);
    if (!read_body(words_[1], reader, op.body)) {
      const std::vector<std::string> known(op_names().begin(), op_names().end());
      fail("unknown op {}{}", in_quotes(words_[1]), did_you_mean(words_[1], known));
    }
    reader.finish();
    const auto* gemm = op_if<Gemm>(op.body);
    const auto* row_kernel = op_if<RowKernel>(op.body);
    const int definition = gemm != nullptr         ? gemm->definition
                           : row_kernel != nullptr ? row_kernel->definition
                                                   : -1;
    if (definition >= std::ssize(contract_.graph.definitions)) {
      fail("definition={} is none of the graph's {}", definition,
           contract_.graph.definitions.size());
    }
    if (const int mask = visit_op([](const auto& o) { return mask_number(o); }, op.body);
        mask >= contract_.attention.masks()) {
      fail("mask={} is none of the problem's {}", mask, contract_.attention.masks());
    }
    stage_.ops.push_back(op);
  }

  [[nodiscard]] StreamId stream(std::string_view name) const {
    const auto it = std::ranges::find(schedule_.streams, name);
    if (it == schedule_.streams.end()) {
      fail("unknown stream {}{}", in_quotes(name), did_you_mean(name, schedule_.streams));
    }
    return StreamId(static_cast<std::size_t>(it - schedule_.streams.begin()));
  }

  [[nodiscard]] Context context() const {
    return {.problem = contract_.attention,
            .most_rows = most_rows_,
            .ranks = schedule_.mesh.size(),
            .rank = rank_,
            .buffers = program_.buffers,
            .ids = ids_};
  }

  std::string_view rest_;
  std::string_view file_;
  std::int64_t line_ = 0;
  std::string where_;
  std::vector<std::string_view> words_;
  std::vector<Word> fields_;
  std::int64_t most_rows_ = 0;

  Schedule schedule_;
  Contract& contract_ = schedule_.contract;
  std::map<Rank, RankProgram> programs_;
  Rank rank_;            // being read; invalid before the first
  RankProgram program_;  // of rank_
  BufferIds ids_;
  double bytes_ = 0;
  Stage stage_;             // being read
  std::int64_t trips_ = 0;  // of the loop being read; 0 outside
};

}  // namespace

Schedule parse_schedule(std::string_view text, std::string_view file) {
  return Parser(text, file).parse();
}

}  // namespace spp
