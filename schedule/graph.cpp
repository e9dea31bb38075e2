// What a graph says of its tensors, and what is wrong with one: both go through the functions one
// by one, and share how a linear layer's parts lie.
#include "schedule/graph.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <span>

namespace spp {

std::string_view to_string(LayerFunction function) {
  constexpr std::array<std::string_view, layer_functions> names{
      "linear", "rms_norm", "layer_norm",    "split_heads", "swiglu",    "gelu",
      "add",    "split",    "embedding",     "word_sums",   "word_loss", "adam",
      "route",  "dispatch", "expert_swiglu", "combine"};
  return names.at(static_cast<std::size_t>(function));
}

std::string_view to_string(GemmKind kind) {
  constexpr std::array<std::string_view, 3> names{"forward", "input_gradient", "weight_gradient"};
  return names.at(static_cast<std::size_t>(kind));
}

std::string Graph::name(TensorRef ref) const {
  const std::string word(to_string(ref.tensor));
  if (is_value(ref.tensor)) {
    return word + "." + value(ref.label).name;
  }
  if (is_param(ref.tensor)) {
    return word + "." + param(ref.label).name;
  }
  return ref.label == 0 ? word : fmt::format("{}.{}", word, ref.label);
}

int Graph::attentions() const {
  const auto count =
      std::ranges::count(definitions, LayerFunction::split_heads, &Definition::function);
  return empty() ? 1 : static_cast<int>(count);
}

int Graph::update_of(int param) const {
  const auto at = std::ranges::find_if(definitions, [&](const Definition& d) {
    return d.function == LayerFunction::adam && d.param == param;
  });
  return at == definitions.end() ? -1 : static_cast<int>(at - definitions.begin());
}

int Graph::sum_parts(const Definition& d) const {
  switch (d.function) {
    case LayerFunction::linear:
      return is_of_experts(d) ? 0
             : d.transposed   ? param(d.param).column_parts
                              : param(d.param).row_parts;
    case LayerFunction::embedding:
      return param(d.param).row_parts;
    case LayerFunction::word_sums:
      return value(d.reads.front().label).parts;
    case LayerFunction::combine:
      return routing.chosen;
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
    case LayerFunction::split_heads:
    case LayerFunction::swiglu:
    case LayerFunction::gelu:
    case LayerFunction::add:
    case LayerFunction::split:
    case LayerFunction::word_loss:
    case LayerFunction::adam:
    case LayerFunction::route:
    case LayerFunction::dispatch:
    case LayerFunction::expert_swiglu:
      return 0;
  }
  throw InternalError("unknown function of a layer");
}

int Graph::writer_of(TensorRef ref) const {
  for (std::size_t i = 0; i < definitions.size(); ++i) {
    if (std::ranges::find(definitions[i].writes, ref) != definitions[i].writes.end()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

namespace {

/// Parts of what a linear layer writes.
int written_parts(const Graph& graph, const Definition& d) {
  const Param& w = graph.param(d.param);
  return d.transposed ? w.row_parts : w.column_parts;
}

/// What a definition gives the gradient of a value that it reads is a sum of so many.
int gradient_parts(const Graph& graph, const Definition& d, TensorRef ref) {
  if (d.function == LayerFunction::linear) {
    return written_parts(graph, d);
  }
  if (d.function == LayerFunction::dispatch) {
    return graph.routing.chosen;
  }
  return d.joins_latents() && ref == d.reads.back() ? graph.value(d.reads.front().label).parts : 1;
}

/// A definition reads a value that the others of `uses` read before it.
void add_use(std::vector<Use>& uses, const Graph& graph, int definition, TensorRef ref) {
  uses.push_back({.definition = definition,
                  .first = uses.empty() ? 0 : uses.back().first + uses.back().count,
                  .count = gradient_parts(graph, graph.definition(definition), ref)});
}

}  // namespace

std::vector<Use> Graph::uses_of(TensorRef ref) const {
  std::vector<Use> uses;
  for (int i = 0; i < std::ssize(definitions); ++i) {
    if (std::ranges::find(definition(i).reads, ref) != definition(i).reads.end()) {
      add_use(uses, *this, i, ref);
    }
  }
  return uses;
}

int Graph::gradient_of(int label) const {
  const std::vector<Use> uses = uses_of({Tensor::value, label});
  if (uses.size() != 1) {
    return label;
  }
  const Definition& use = definition(uses.front().definition);
  return use.function == LayerFunction::add ? gradient_of(use.writes.front().label) : label;
}

GraphIndex::GraphIndex(const Graph& graph)
    : values_(graph.values.size()), attentions_(graph.attentions()) {
  const auto known = [&](TensorRef ref) -> Known& {
    return ref.tensor == Tensor::value ? values_[static_cast<std::size_t>(ref.label)]
                                       : others_[ref];
  };
  gradients_.resize(graph.values.size());
  std::iota(gradients_.begin(), gradients_.end(), 0);
  updates_.resize(graph.params.size(), -1);
  uses_of_params_.resize(graph.params.size());
  const auto count = static_cast<int>(graph.definitions.size());
  for (int i = 0; i < count; ++i) {
    const Definition& d = graph.definition(i);
    for (const TensorRef ref : d.writes) {
      known(ref).writer = i;
    }
    if (d.function == LayerFunction::split_heads) {
      masks_.push_back(d.mask);
      sinks_.push_back(d.sink);
    }
    for (const TensorRef ref : d.reads) {
      std::vector<Use>& uses = known(ref).uses;
      if (uses.empty() || uses.back().definition != i) {  // once, if it reads it twice
        add_use(uses, graph, i, ref);
      }
    }
    if (d.function == LayerFunction::adam) {
      updates_[static_cast<std::size_t>(d.param)] = i;
      continue;
    }
    for (const int param : {d.param, d.bias, d.sink}) {
      if (param >= 0) {
        const bool of_heads = d.function == LayerFunction::split_heads && param != d.sink;
        std::vector<Use>& uses = uses_of_params_[static_cast<std::size_t>(param)];
        uses.push_back({.definition = i,
                        .first = uses.empty() ? 0 : uses.back().first + uses.back().count,
                        .count = of_heads ? graph.value(d.reads.front().label).parts : 1});
      }
    }
  }
  for (int i = count; i-- > 0;) {  // what reads a sum stands behind it
    const Definition& d = graph.definition(i);
    for (const TensorRef ref : d.reads) {
      if (d.function == LayerFunction::add && of(ref).uses.size() == 1) {
        gradients_[static_cast<std::size_t>(ref.label)] =
            gradients_[static_cast<std::size_t>(d.writes.front().label)];
      }
    }
  }
}

const GraphIndex::Known& GraphIndex::of(TensorRef ref) const {
  static const Known nobody;
  if (ref.tensor == Tensor::value) {
    return values_[static_cast<std::size_t>(ref.label)];
  }
  const auto at = others_.find(ref);
  return at == others_.end() ? nobody : at->second;
}

namespace {

/// How many tensors a definition reads (or so many at most) and writes, and whether it has a
/// parameter, or may have one.
struct Form {
  std::size_t reads = 1, writes = 1, most_reads = reads;
  bool param = false, may_have_param = param;
};

Form form_of(LayerFunction function) {
  switch (function) {
    case LayerFunction::linear:
      return {.most_reads = 2, .param = true};
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
      return {.writes = 2, .param = true};
    case LayerFunction::split_heads:
      return {.writes = 3, .most_reads = 3, .may_have_param = true};
    case LayerFunction::swiglu:
    case LayerFunction::add:
      return {.reads = 2};
    case LayerFunction::gelu:
      return {};
    case LayerFunction::split:
      return {.writes = 2};
    case LayerFunction::embedding:
      return {.param = true};
    case LayerFunction::word_sums:
      return {.reads = 2};
    case LayerFunction::word_loss:
      return {.reads = 2, .writes = 2};
    case LayerFunction::adam:
      return {.reads = 0, .writes = 0, .param = true};
    case LayerFunction::route:
    case LayerFunction::dispatch:
    case LayerFunction::combine:
      return {};
    case LayerFunction::expert_swiglu:
      return {.reads = 2};
  }
  throw InternalError("unknown function of a layer");
}

/// Shapes of a linear layer and its parameter.
bool linear_fits(const Graph& graph, const Definition& d, const AttentionRows& attention) {
  const Param& w = graph.param(d.param);
  const TensorRef x = d.reads.front();
  const TensorRef y = d.writes.front();
  const std::int64_t in = d.transposed ? w.columns : w.rows;
  const std::int64_t out = d.transposed ? w.rows : w.columns;
  const int in_parts = graph.sum_parts(d);
  const int out_parts = written_parts(graph, d);
  if (d.reads.size() > 1 || !is_value(y.tensor) || graph.value(y.label).parts != out_parts ||
      graph.value(y.label).width != out) {
    return false;
  }
  if (d.bias >= 0) {
    const Param& b = graph.param(d.bias);
    if (d.transposed || b.rows != out || b.columns != 1 || b.row_parts != out_parts ||
        b.column_parts != 1 || b.experts > 0) {
      return false;
    }
  }
  return is_value(x.tensor)
             ? graph.value(x.label).parts == in_parts && graph.value(x.label).width == in
             : x.tensor == Tensor::out && x.label >= 0 && x.label < graph.attentions() &&
                   attention.head_parts % in_parts == 0 && attention.out_width == in;
}

/// Of one q head, then of one k head.
bool are_gains(const Param& gains, const AttentionRows& attention) {
  return gains.rows == 2 * attention.head_dim && gains.columns == 1 && gains.row_parts == 1 &&
         gains.column_parts == 1;
}

/// q's row, the row of k's first columns and v, and k's last columns.
bool are_latents(const Graph& graph, const Definition& d, const AttentionRows& attention) {
  const Value& q = graph.value(d.reads[0].label);
  const Value& kv = graph.value(d.reads[1].label);
  const Value& position = graph.value(d.reads[2].label);
  const std::int64_t heads = attention.q_width / attention.head_dim;
  return attention.kv_width == attention.q_width && q.parts == kv.parts &&
         attention.head_parts % q.parts == 0 && q.width == attention.q_width &&
         position.parts == 1 && position.width % 2 == 0 && position.width < attention.head_dim &&
         kv.width == heads * (attention.head_dim - position.width + attention.value_dim);
}

/// One row of all of them.
bool is_row_of_heads(const Value& row, const AttentionRows& attention) {
  return attention.value_dim == attention.head_dim && attention.head_parts % row.parts == 0 &&
         row.width == attention.q_width + 2 * attention.kv_width;
}

/// A logit of each query head, cut as the row is.
bool are_sinks(const Param& sinks, const Value& row, const AttentionRows& attention) {
  return sinks.rows * attention.head_dim == attention.q_width && sinks.columns == 1 &&
         sinks.row_parts == row.parts && sinks.column_parts == 1;
}

bool split_fits(const Graph& graph, const Definition& d, const AttentionRows& attention) {
  const auto before = std::ranges::count_if(
      std::span(graph.definitions.data(), &d),
      [](const Definition& other) { return other.function == LayerFunction::split_heads; });
  const int label = static_cast<int>(before);
  const bool of_values =
      std::ranges::all_of(d.reads, [](TensorRef ref) { return ref.tensor == Tensor::value; });
  const bool fits =
      of_values && (d.joins_latents() ? d.param < 0 && are_latents(graph, d, attention)
                                      : is_row_of_heads(graph.value(d.reads[0].label), attention));
  return fits && (d.param < 0 || are_gains(graph.param(d.param), attention)) &&
         (d.sink < 0 || are_sinks(graph.param(d.sink), graph.value(d.reads[0].label), attention)) &&
         d.writes ==
             std::vector<TensorRef>{{Tensor::q, label}, {Tensor::k, label}, {Tensor::v, label}};
}

/// Whole rows, which two others are side by side.
bool parts_fit(const Graph& graph, const Definition& d) {
  const Value& x = graph.value(d.reads[0].label);
  const Value& a = graph.value(d.writes[0].label);
  const Value& b = graph.value(d.writes[1].label);
  return x.parts == 1 && a.parts == 1 && b.parts == 1 && x.width == a.width + b.width &&
         a.width > 0 && b.width > 0 && x.fp32 == a.fp32 && x.fp32 == b.fp32;
}

/// A row for every slot of a token, of so many elements.
bool is_of_slots(const Graph& graph, TensorRef ref, std::int64_t width) {
  return is_value(ref.tensor) && graph.value(ref.label).parts == graph.routing.chosen &&
         graph.value(ref.label).width == graph.routing.chosen * width;
}

/// The router's, one of each slot.
bool are_weights(const Graph& graph, TensorRef ref) {
  const int writer = graph.writer_of(ref);
  return writer >= 0 && graph.definition(writer).function == LayerFunction::route;
}

/// One of each expert, of so many numbers.
bool are_biases(const Graph& graph, const Param& biases, std::int64_t numbers) {
  const Routing& routing = graph.routing;
  return biases.experts == routing.experts && biases.rows == routing.experts * numbers &&
         biases.columns == 1 && biases.row_parts == routing.groups && biases.column_parts == 1;
}

/// The same of the experts' parameters; a bias has the weights that x has.
bool experts_fit(const Graph& graph, const Definition& d) {
  const Param& w = graph.param(d.param);
  const Routing& routing = graph.routing;
  const bool is_weighted = d.reads.size() > 1;
  return w.experts == routing.experts && w.rows % w.experts == 0 && w.column_parts == 1 &&
         w.row_parts == routing.groups && !d.transposed &&
         is_of_slots(graph, d.reads.front(), w.rows / w.experts) &&
         is_of_slots(graph, d.writes.front(), w.columns) &&
         (d.bias < 0 ? !is_weighted : are_biases(graph, graph.param(d.bias), w.columns)) &&
         (!is_weighted || are_weights(graph, d.reads.back()));
}

/// What is routed, and what becomes of it.
bool routed_fits(const Graph& graph, const Definition& d) {
  if (graph.routing.empty()) {
    return false;
  }
  const Value& x = graph.value(d.reads.front().label);
  const Value& y = graph.value(d.writes.front().label);
  switch (d.function) {
    case LayerFunction::route:
      return x.parts == 1 && x.width == graph.routing.experts && y.fp32 &&
             is_of_slots(graph, d.writes.front(), 1);
    case LayerFunction::dispatch:
      return x.parts == 1 && is_of_slots(graph, d.writes.front(), x.width);
    case LayerFunction::combine:
      return y.parts == 1 && is_of_slots(graph, d.reads.front(), y.width);
    case LayerFunction::expert_swiglu:
      return are_weights(graph, d.reads[1]) &&
             x.width % (2 * std::int64_t{graph.routing.chosen}) == 0 &&
             is_of_slots(graph, d.reads[0], x.part_width()) &&
             is_of_slots(graph, d.writes.front(), x.part_width() / 2);
    default:
      throw InternalError("a function that routes nothing");
  }
}

/// One number a row, whole.
bool is_number(const Value& value) { return value.width == 1 && value.parts == 1 && value.fp32; }

bool embedding_fits(const Graph& graph, const Definition& d) {
  const Value& words = graph.value(d.reads.front().label);
  const Value& x = graph.value(d.writes.front().label);
  const Param& table = graph.param(d.param);
  return is_number(words) && words.words == table.rows && table.column_parts == 1 && x.parts == 1 &&
         x.width == table.columns;
}

bool sums_fit(const Graph& graph, const Definition& d) {
  const Value& logits = graph.value(d.reads[0].label);
  const Value& targets = graph.value(d.reads[1].label);
  const Value& sums = graph.value(d.writes[0].label);
  return is_number(targets) && targets.words == logits.width && sums.parts == 1 && sums.fp32 &&
         sums.width == 3 * std::int64_t{logits.parts};
}

bool loss_fits(const Graph& graph, const Definition& d) {
  const Value& sums = graph.value(d.reads[0].label);
  const int writer = graph.writer_of(d.reads[0]);
  return sums.width % 3 == 0 && writer >= 0 &&
         graph.definition(writer).function == LayerFunction::word_sums &&
         graph.definition(writer).reads[1] == d.reads[1] &&
         is_number(graph.value(d.writes[0].label)) && is_number(graph.value(d.writes[1].label));
}

/// Rows of everything that it reads and writes are cut and as wide as those of the first; but
/// statistics are a number or two.
bool rows_fit(const Graph& graph, const Definition& d) {
  std::vector<TensorRef> all = d.reads;
  all.push_back(d.writes.front());
  const auto alike = [&](TensorRef ref) {
    return is_value(ref.tensor) &&
           graph.value(ref.label).parts == graph.value(all.front().label).parts &&
           graph.value(ref.label).width == graph.value(all.front().label).width;
  };
  if (!is_value(all.front().tensor) || !std::ranges::all_of(all, alike)) {
    return false;
  }
  if (d.param < 0) {
    return true;
  }
  const std::int64_t numbers = d.function == LayerFunction::layer_norm ? 2 : 1;
  const Value& row = graph.value(all.front().label);
  const Param& weights = graph.param(d.param);
  const TensorRef statistics = d.writes[1];
  return row.parts == 1 && weights.row_parts == 1 && weights.columns == 1 &&
         weights.rows == numbers * row.width && is_value(statistics.tensor) &&
         graph.value(statistics.label).width == numbers && graph.value(statistics.label).parts == 1;
}

bool is_a_value(TensorRef ref) { return ref.tensor == Tensor::value; }

std::string flaw_of_definition(const Graph& graph, const Definition& d,
                               const AttentionRows& attention) {
  const Form form = form_of(d.function);
  const auto known = [&](TensorRef ref) {
    return !is_of_graph(ref.tensor) ||
           (ref.tensor == Tensor::value && ref.label >= 0 && ref.label < std::ssize(graph.values));
  };
  const bool reads_fit = d.reads.size() == form.reads || d.reads.size() == form.most_reads;
  if (!reads_fit || d.writes.size() != form.writes ||
      (d.param >= 0 ? !form.may_have_param : form.param) || d.param >= std::ssize(graph.params) ||
      (d.transposed && d.function != LayerFunction::linear) || d.bias >= std::ssize(graph.params) ||
      (d.bias >= 0 && d.function != LayerFunction::linear) || d.sink >= std::ssize(graph.params) ||
      (d.sink >= 0 && d.function != LayerFunction::split_heads) || d.mask < 0 ||
      d.mask >= (d.function == LayerFunction::split_heads ? attention.masks : 1) ||
      !std::ranges::all_of(d.reads, known) || !std::ranges::all_of(d.writes, known)) {
    return "reads, writes or parameter are not those of its function";
  }
  const bool of_values =
      std::ranges::all_of(d.reads, is_a_value) && std::ranges::all_of(d.writes, is_a_value);
  switch (d.function) {
    case LayerFunction::linear:
      return (graph.is_of_experts(d) ? experts_fit(graph, d) : linear_fits(graph, d, attention))
                 ? ""
                 : "its parameter has another shape";
    case LayerFunction::route:
    case LayerFunction::dispatch:
    case LayerFunction::combine:
    case LayerFunction::expert_swiglu:
      return of_values && routed_fits(graph, d) ? ""
                                                : "tokens have other slots for experts than the "
                                                  "routing says, or weights are not its own";
    case LayerFunction::split_heads:
      if ((d.sink >= 0) != attention.sinks) {
        return attention.sinks ? "its attention lacks the sink that the problem's has"
                               : "its attention has a sink, and the problem's has none";
      }
      return split_fits(graph, d, attention)
                 ? ""
                 : "a row of values, or q's, k's and v's, and the last columns of all heads of k, "
                   "become all q, k and v of the next attention, normed by the gains of one q "
                   "head and of one k head if by any; a sink is a logit of each query head";
    case LayerFunction::split:
      return of_values && parts_fit(graph, d)
                 ? ""
                 : "it takes a whole row to two that it is side by side";
    case LayerFunction::embedding:
      return of_values && embedding_fits(graph, d)
                 ? ""
                 : "it takes words to rows of a table that is cut by words";
    case LayerFunction::word_sums:
      return of_values && sums_fit(graph, d)
                 ? ""
                 : "it takes logits and targets among as many words to three fp32 numbers a part";
    case LayerFunction::word_loss:
      return of_values && loss_fits(graph, d)
                 ? ""
                 : "it takes word_sums and their targets to two fp32 numbers";
    case LayerFunction::adam:
      return graph.update_of(d.param) == &d - graph.definitions.data()
                 ? ""
                 : "it updates a parameter a second time";
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
    case LayerFunction::swiglu:
    case LayerFunction::gelu:
    case LayerFunction::add:
      break;
  }
  return rows_fit(graph, d) ? "" : "rows of what it reads and writes are of different shapes";
}

}  // namespace

std::string flaw_of(const Graph& graph, const AttentionRows& attention, std::size_t first) {
  constexpr std::int64_t most_words = 1 << 24;  // whole numbers that fp32 tells apart
  for (const Value& value : graph.values) {
    if (value.words > most_words) {
      return fmt::format("value {} is one of {} words (at most {})", value.name, value.words,
                         most_words);
    }
  }
  std::set<TensorRef> written;
  for (std::size_t i = 0; i < graph.definitions.size(); ++i) {
    const Definition& d = graph.definitions[i];
    if (i < first) {
      written.insert(d.writes.begin(), d.writes.end());
      continue;
    }
    std::string flaw = flaw_of_definition(graph, d, attention);
    if (flaw.empty() && std::set(d.reads.begin(), d.reads.end()).size() != d.reads.size()) {
      flaw = "reads a value twice, of which its gradient would count one";
    }
    for (const TensorRef ref : flaw.empty() ? d.reads : std::vector<TensorRef>()) {
      const int writer = graph.writer_of(ref);
      if (writer >= static_cast<int>(i)) {
        flaw = fmt::format("reads {} before it is written", graph.name(ref));
      }
    }
    for (const TensorRef ref : flaw.empty() ? d.writes : std::vector<TensorRef>()) {
      if (!written.insert(ref).second) {
        flaw = fmt::format("writes {} a second time", graph.name(ref));
      }
    }
    if (!flaw.empty()) {
      return fmt::format("definition {} ({}): {}", i, to_string(d.function), flaw);
    }
  }
  return "";
}

}  // namespace spp
