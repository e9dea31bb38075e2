// One point, in the order in which it is read: the work, what kind of layers, the plan, kernels;
// then what its scope cannot do without.
#include "regress/corpus_point.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "regress/corpus_keys.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <span>
#include <utility>

namespace spp::regress {
namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 40;
constexpr std::string_view letters_and_digits = "abcdefghijklmnopqrstuvwxyz0123456789";

/// Values of one point: its own keys, else its file's workload.
class Fields {
 public:
  Fields(JsonView point, JsonView workload)
      : point_(std::move(point)), workload_(std::move(workload)) {}

  [[nodiscard]] const JsonView& point() const { return point_; }
  [[nodiscard]] const JsonView& workload() const { return workload_; }
  [[nodiscard]] std::optional<JsonView> find(std::string_view key) const {
    auto own = point_.find(key);
    return own ? own : workload_.find(key);
  }
  [[nodiscard]] std::string text(std::string_view key) const {
    const auto view = find(key);
    return view ? view->string() : "";
  }
  [[nodiscard]] bool yes(std::string_view key) const {
    const auto view = find(key);
    return view && view->boolean();
  }
  template <class Int = int>
  [[nodiscard]] std::optional<Int> count(std::string_view key,
                                         std::int64_t max = most_count) const {
    const auto view = find(key);
    return view ? std::optional<Int>(static_cast<Int>(view->integer(1, max))) : std::nullopt;
  }
  [[nodiscard]] int degree(std::string_view key) const { return count(key).value_or(1); }
  /// Under the first of these keys that is there.
  [[nodiscard]] std::optional<int> count_of(std::initializer_list<std::string_view> keys) const {
    const auto* key = std::ranges::find_if(keys, [&](auto k) { return find(k).has_value(); });
    return key == keys.end() ? std::nullopt : count(*key);
  }

 private:
  JsonView point_, workload_;
};

template <class Value, std::size_t N>
Value one_of(const JsonView& view, const std::array<std::pair<std::string_view, Value>, N>& table) {
  const std::string word = view.string();
  std::vector<std::string> words;
  for (const auto& [name, value] : table) {
    if (name == word) {
      return value;
    }
    words.emplace_back(name);
  }
  view.fail(fmt::format("unknown '{}'{}", word, did_you_mean(word, words)));
}

constexpr std::array<std::pair<std::string_view, Scope>, 5> scopes{
    {{"attention", Scope::attention},
     {"model", Scope::model},
     {"kernel", Scope::kernel},
     {"collective", Scope::collective},
     {"memory", Scope::memory}}};
constexpr std::array<std::pair<std::string_view, Metric>, 5> metrics{
    {{"time_s", Metric::time},
     {"memory_bytes", Metric::memory},
     {"tflops_per_gpu", Metric::tflops_per_gpu},
     {"tokens_per_s", Metric::tokens_per_s},
     {"busbw_GBps", Metric::busbw}}};
constexpr std::array<std::pair<std::string_view, PointMask>, 4> masks{
    {{"causal", PointMask::causal},
     {"full", PointMask::full},
     {"varlen-causal", PointMask::varlen_causal},
     {"varlen-full", PointMask::varlen_full}}};
constexpr std::array<std::pair<std::string_view, RingKind>, 4> ring_kinds{
    {{"p2p", RingKind::p2p},
     {"allgather", RingKind::all_gather},
     {"pass-q", RingKind::pass_q},
     {"group-cast", RingKind::group_cast}}};
constexpr std::array<std::string_view, 5> phases{"fwd", "bwd", "fwd+bwd", "train", "inference"};
/// Of an attention call.
constexpr std::array<std::string_view, 3> call_phases{"fwd", "bwd", "fwd+bwd"};
constexpr std::array<std::string_view, 4> conventions{"causal-halved", "full", "model-6N",
                                                      "unknown"};
/// Begin what `recompute` and `ac` say; modules may follow ("selective: mlp, core_attn").
constexpr std::array<std::string_view, 6> recomputations{
    "none", "full", "selective", "selective-layer", "selective-op", "unknown"};
/// Words for number formats, with ours; a source adds words of its own ("fp8_block").
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> formats{
    {{"bf16", "bf16"},
     {"bfloat16", "bf16"},
     {"fp16", "fp16"},
     {"float16", "fp16"},
     {"half", "fp16"},
     {"fp32", "fp32"},
     {"float32", "fp32"},
     {"float", "fp32"},
     {"fp8", "fp8"},
     {"mxfp8", "mxfp8"},
     {"fp8-mx", "mxfp8"},
     {"fp8-cs", "fp8"},
     {"nvfp4", "nvfp4"}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> collectives{
    {{"all_to_all", "all_to_all"},
     {"all_gather", "all_gather"},
     {"all_reduce", "all_reduce"},
     {"reduce_scatter", "reduce_scatter"},
     {"sendrecv", "sendrecv"},
     {"p2p", "p2p"},
     {"ep_dispatch", "expert-parallel"},
     {"ep_combine", "expert-parallel"}}};
/// Kernels that are no attention call, each with its family.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kernel_ops{
    {{"gemm", "gemm"},
     {"moe", "moe"},
     {"mla_context", "mla"},
     {"mla_context_module", "mla"},
     {"gdn_chunk", "linear"},
     {"mamba2_scan", "linear"},
     {"causal_conv1d", "linear"}}};
constexpr std::array<std::string_view, 2> placements{"ulysses-inner", "ring-inner"};

/// The beginning of a value that is one of `words`.
std::string expect_word(const JsonView& view, std::string_view word,
                        std::span<const std::string_view> words) {
  if (std::ranges::find(words, word) == words.end()) {
    view.fail(fmt::format("unknown '{}'; it is one of {}", word, fmt::join(words, ", ")));
  }
  return view.string();
}

std::string word_in(const JsonView& view, std::span<const std::string_view> words) {
  return expect_word(view, view.string(), words);
}

/// A kind of recomputation, maybe with modules behind it.
std::string recomputation_in(const JsonView& view) {
  const std::string text = view.string();
  return expect_word(view, std::string_view(text).substr(0, text.find(':')), recomputations);
}

/// The format that a value names, by our word, or all of the value where it says more. A word that
/// looks like a format must be one.
std::string format_in(const JsonView& view) {
  std::string text = view.string();
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto known = [](std::string_view word) {
    return std::ranges::find(formats, word, &std::pair<std::string_view, std::string_view>::first);
  };
  if (const auto* const whole = known(text); whole != formats.end()) {
    return std::string(whole->second);
  }
  bool named = false;
  for (std::string_view rest = text; !rest.empty();) {
    rest.remove_prefix(std::min(rest.find_first_of(letters_and_digits), rest.size()));
    const std::string_view word = rest.substr(0, rest.find_first_not_of(letters_and_digits));
    rest.remove_prefix(word.size());
    const bool looks = contains(word, "fp") || contains(word, "bf");
    if (known(word) != formats.end()) {
      named = true;
    } else if (looks && word.find_first_of("0123456789") != std::string_view::npos) {
      view.fail(fmt::format("unknown number format '{}'", word));
    }
  }
  if (!named) {
    view.fail(fmt::format("'{}' names no number format, such as bf16, fp16 or fp8", text));
  }
  return text;
}

/// The word itself, which must be in the table.
template <std::size_t N>
std::string name_in(const JsonView& view,
                    const std::array<std::pair<std::string_view, std::string_view>, N>& table) {
  (void)one_of(view, table);
  return view.string();
}

std::optional<double> positive(const JsonView& object, std::string_view key) {
  const auto view = object.find(key);
  if (!view) {
    return std::nullopt;
  }
  constexpr double least = 1e-12;
  constexpr double most = 1e18;
  const double value = view->number();
  if (!(value >= least) || value > most) {
    view->fail(fmt::format("{} is no measurement ({} to {})", value, least, most));
  }
  return value;
}

/// Lengths of the documents of a few sequences, each adding up to `seq`, as ends.
std::vector<std::vector<std::int64_t>> packings_of(const JsonView& sequences, std::int64_t seq) {
  std::vector<std::vector<std::int64_t>> packings;
  for (const JsonView& sequence : sequences.elements()) {
    std::vector<std::int64_t>& ends = packings.emplace_back();
    for (const JsonView& length : sequence.elements()) {
      ends.push_back((ends.empty() ? 0 : ends.back()) + length.integer(1, seq));
    }
    if (ends.empty() || ends.back() != seq) {
      sequence.fail(fmt::format("documents of {} tokens in a sequence of {}",
                                ends.empty() ? 0 : ends.back(), seq));
    }
  }
  return packings;
}

/// `precision` says it where `dtype` does not; what a point says of itself goes first.
std::string read_format(const Fields& f) {
  for (const JsonView* keys : {&f.point(), &f.workload()}) {
    for (const std::string_view key : {"dtype", "precision"}) {
      if (const auto said = keys->find(key)) {
        return format_in(*said);
      }
    }
  }
  return "";
}

void read_work(const Fields& f, Point& p) {
  p.seq = f.count<std::int64_t>("seq", most_tokens);
  p.seq_kv = f.count<std::int64_t>("seq_kv", most_tokens);
  p.batch = f.count<std::int64_t>("batch");
  p.q_heads = f.count("q_heads");
  p.kv_heads = f.count("kv_heads");
  p.head_dim = f.count("head_dim");
  p.head_dim_v = f.count("head_dim_v");
  if (const auto mask = f.find("mask")) {
    p.mask = one_of(*mask, masks);
  }
  if (const auto documents = f.find("documents")) {
    if (!p.packs() || !p.seq) {
      documents->fail("documents of a sequence whose length and varlen mask are not stated");
    }
    p.packings = packings_of(*documents, *p.seq);
  }
  if (const auto phase = f.find("phase")) {
    p.phase = word_in(*phase, phases);
  }
  p.dtype = read_format(f);
  p.model = f.text("model");
  if (const auto convention = f.find("flops_convention")) {
    p.flops_convention = word_in(*convention, conventions);
  }
  if (const auto recompute = f.find("recompute")) {
    p.recompute = recomputation_in(*recompute);
  }
  p.call = f.text("call");
  p.layers = f.count<std::int64_t>("layers");
  p.hidden = f.count<std::int64_t>("hidden");
  p.ffn = f.count<std::int64_t>("ffn");
  p.vocab = f.count<std::int64_t>("vocab", most_tokens);
  p.steps = f.count<std::int64_t>("steps");
  p.micro_batch = f.count<std::int64_t>("micro_batch");
  p.new_tokens = f.count<std::int64_t>("new_tokens", most_tokens);
  p.blocks = f.text("blocks");
  p.task = f.text("task");
}

/// What kind of layers.
void read_architecture(const Fields& f, Point& p) {
  const auto yes_or_no = [&](std::string_view key) {
    const auto view = f.find(key);
    return view ? std::optional(view->boolean()) : std::nullopt;
  };
  const auto count_from_0 = [&](std::string_view key) {
    const auto view = f.find(key);
    return view ? std::optional(static_cast<int>(view->integer(0, most_count))) : std::nullopt;
  };
  p.gated = yes_or_no("gated");
  p.tied_embeddings = yes_or_no("tied_embeddings");
  p.mlp = f.text("mlp");
  p.experts = f.count("experts");
  p.experts_per_token = f.count("experts_per_token");
  p.shared_experts = count_from_0("shared_experts");
  p.dense_layers = count_from_0("dense_layers");
  p.moe_ffn = f.count<std::int64_t>("moe_ffn");
  p.shared_expert_ffn = f.count<std::int64_t>("shared_expert_ffn");
  if (p.experts && p.experts_per_token && *p.experts_per_token > *p.experts) {
    f.point().fail(
        fmt::format("{} experts for a token, but there are {}", *p.experts_per_token, *p.experts));
  }
  const auto mla = f.find("mla");
  const auto rank = [&](std::string_view key) {
    const auto view = f.find(key);
    const auto inside = view || !mla ? view : mla->find(key);
    return inside ? std::optional(inside->integer(1, most_count)) : std::nullopt;
  };
  p.q_lora_rank = rank("q_lora_rank");
  p.kv_lora_rank = rank("kv_lora_rank");
  p.qk_rope_head_dim = rank("qk_rope_head_dim");
  p.v_head_dim = rank("v_head_dim");
}

/// What lies in the host's memory: by name, or the part of the activations.
void read_offload(const JsonView& said, Point& p) {
  if (!said.value().is_number()) {
    p.offload = parse_offload(said.string(), said.where());
    return;
  }
  p.offloaded = said.number(0, 1);
  p.offload = p.offloaded > 0 ? Offload::activations : Offload::none;
}

/// What the degrees of a plan make, which is no larger than a world can be: products of them are
/// counted in 32 bits from here on.
std::int64_t product_of_degrees(const Fields& f, const Point& p) {
  std::int64_t product = 1;
  for (const int degree :
       {p.ulysses.value_or(1), p.ring.value_or(1), p.cp_of_open_kind().value_or(1), p.tp, p.dp,
        p.pp, p.cfg, p.pipefusion}) {
    product *= degree;
    if (product > most_count) {
      f.point().fail(fmt::format("the product of its degrees is above {}", most_count));
    }
  }
  return product;
}

/// World is the product of the degrees that the plan has; ep divides it. A training step's dp, if
/// not stated, is what the others leave. Where a source's own line
/// is wrong (suspect), it stays as it is.
void expect_world(const Fields& f, Point& p) {
  std::int64_t product = product_of_degrees(f, p);
  const bool of_kind = p.ulysses && p.ring;
  const int sequence = p.cp_of_open_kind().value_or(1);
  if (!p.suspect.empty() || (!of_kind && !p.cp)) {
    return;
  }
  if (!f.find("dp") && p.scope != Scope::attention && p.world % product == 0) {
    p.dp = static_cast<int>(p.world / product);
    product = p.world;
  }
  if (product != p.world) {
    const std::string of = of_kind ? fmt::format("ulysses {} x ring {}", *p.ulysses, *p.ring) : "";
    const std::string cp =
        sequence > 1 || !of_kind ? fmt::format("{}cp {}", of_kind ? " x " : "", sequence) : "";
    f.point().fail(
        fmt::format("{}{} x tp {} x dp {} x pp {} x cfg {} x pipefusion {} is {}, but "
                    "world is {}",
                    of, cp, p.tp, p.dp, p.pp, p.cfg, p.pipefusion, product, p.world));
  }
  if (p.ep && p.world % *p.ep != 0) {
    f.point().fail(fmt::format("ep {} does not divide world {}", *p.ep, p.world));
  }
}

/// How many GPUs took part: one for a kernel that does not say; no source's line without it can be
/// predicted.
int read_world(const Fields& f, const Point& p) {
  const auto world = f.point().find("world");
  if (!world && (p.scope == Scope::kernel || !p.suspect.empty())) {
    return 1;
  }
  return static_cast<int>(f.point().at("world").integer(1, most_count));
}

void read_plan(const Fields& f, Point& p) {
  p.world = read_world(f, p);
  p.ulysses = f.count("ulysses");
  p.ring = f.count("ring");
  p.cp = f.count("cp");
  p.team = f.degree("team");
  p.tp = f.degree("tp");
  p.dp = f.degree("dp");
  p.pp = f.degree("pp");
  p.vp = f.count("vp");
  p.ep = f.count("ep");
  p.etp = f.count("etp");
  p.grad_accum = f.count("grad_accum");
  p.cfg = f.degree("cfg");
  p.pipefusion = f.degree("pipefusion");
  if (const auto zero = f.find("zero")) {
    p.zero = static_cast<int>(zero->integer(0, 3));
  }
  p.zero_group = f.count("zero_group");
  p.schedule = f.text("schedule");
  if (const auto offload = f.find("offload")) {
    read_offload(*offload, p);
  }
  if (const auto ac = f.find("ac")) {
    p.ac = recomputation_in(*ac);
  }
  if (const auto sharded = f.find("tp_sequence_parallel")) {
    p.tp_sequence_parallel = sharded->boolean();
  }
  p.inner = f.count("inner");
  if (const auto layout = f.find("layout")) {
    p.layout = parse_layout(layout->string(), layout->where());
  }
  if (const auto kv = f.find("kv")) {
    p.ring_kind = one_of(*kv, ring_kinds);
  }
  p.double_ring = f.yes("double_ring");
  if (const auto placement = f.find("placement")) {
    p.placement = word_in(*placement, placements);
  }
  if (p.scope != Scope::kernel) {
    expect_world(f, p);
  }
  if (p.ring && *p.ring % (std::int64_t{p.team} * p.team) != 0) {
    f.point().fail(fmt::format("team {} squared does not divide ring {}", p.team, *p.ring));
  }
}

/// A kernel that nobody models passes, as its source names it; a slip of one that we know does not.
std::string kernel_op_in(const JsonView& view) {
  std::string word = view.string();
  const bool slip = std::ranges::any_of(
      kernel_ops, [&](const auto& known) { return edit_distance(word, known.first) <= 1; });
  return slip ? name_in(view, kernel_ops) : word;
}

void read_kernel(const Fields& f, Point& p) {
  if (const auto op = f.find("op")) {
    if (p.scope != Scope::kernel && p.scope != Scope::collective) {
      op->fail(fmt::format("is said of kernels and collectives; the point's scope is {}",
                           to_string(p.scope)));
    }
    p.op = p.scope == Scope::kernel ? kernel_op_in(*op) : name_in(*op, collectives);
  }
  if (const auto bytes = f.count<std::int64_t>("bytes", std::numeric_limits<std::int64_t>::max())) {
    p.bytes = Bytes(*bytes);
  }
  p.m = f.count<std::int64_t>("m", most_tokens);
  p.n = f.count<std::int64_t>("n", most_tokens);
  p.k = f.count<std::int64_t>("k", most_tokens);
  p.tokens = f.count<std::int64_t>("tokens", most_tokens);
  p.distribution = f.text("distribution");
  p.layer = f.text("layer");
  p.plugin = f.text("plugin");
  p.k_heads = f.count("k_heads");
  p.k_head_dim = f.count("k_head_dim");
  p.v_heads = f.count("v_heads");
  p.d_conv = f.count("d_conv");
  p.d_state = f.count("d_state");
  // Mamba2's own code has other words for these.
  p.linear_heads = f.count_of({"heads", "nheads", "n_heads"});
  p.linear_groups = f.count_of({"groups", "ngroups", "n_groups"});
  p.chunk = f.count_of({"chunk", "chunk_size"});
  p.channels = f.count<std::int64_t>("channels");
  p.mode = f.text("mode");
  p.sms = f.count("sms");
  p.peak = f.yes("peak");
  p.kernel = f.text("kernel");
  p.library = f.text("library");
  p.algo = f.text("algo");
}

/// What a scope cannot do without.
void expect_complete(const Fields& f, const Point& p) {
  const auto need = [&](bool there, std::string_view key) {
    if (!there) {
      f.point().fail(fmt::format("key '{}' is missing (scope {} needs it, here or in workload)",
                                 key, to_string(p.scope)));
    }
  };
  const std::string_view family = family_of_op(p.op);
  if (p.scope == Scope::collective) {
    need(!p.op.empty(), "op");
    if (family == "expert-parallel") {
      need(p.tokens.has_value(), "tokens");
      need(p.hidden.has_value(), "hidden");
      need(p.experts.has_value(), "experts");
      need(p.experts_per_token.has_value(), "experts_per_token");
    } else if (!p.bytes && !p.peak) {
      need(false, "bytes");
    }
    return;
  }
  if (family == "gemm") {
    need(p.m.has_value(), "m");
    need(p.n.has_value(), "n");
    need(p.k.has_value(), "k");
    return;
  }
  if (family == "moe") {
    need(p.tokens.has_value(), "tokens");
    need(p.hidden.has_value(), "hidden");
    need(p.moe_ffn.has_value(), "moe_ffn");
    need(p.experts.has_value(), "experts");
    need(p.experts_per_token.has_value(), "experts_per_token");
    return;
  }
  // A source's own line may be incomplete (suspect), and a kernel that nobody models is not judged.
  if (family.empty() && (!p.suspect.empty() || !p.op.empty())) {
    return;
  }
  need(p.seq.has_value(), "seq");
  if (family == "linear") {
    return;
  }
  if (p.scope == Scope::attention || p.scope == Scope::kernel) {
    need(!p.phase.empty(), "phase");
    (void)word_in(*f.find("phase"), call_phases);
    need(p.q_heads.has_value(), "q_heads");
    need(p.head_dim.has_value(), "head_dim");
    if (p.q_heads && p.kv_heads && *p.q_heads % *p.kv_heads != 0) {
      f.point().fail(
          fmt::format("{} query heads are no multiple of {} KV heads", *p.q_heads, *p.kv_heads));
    }
  }
}

}  // namespace

std::string_view to_string(Scope scope) { return scopes.at(static_cast<std::size_t>(scope)).first; }
std::string_view to_string(Metric metric) {
  return metrics.at(static_cast<std::size_t>(metric)).first;
}

std::string_view family_of_op(std::string_view op) {
  const auto kernel =
      std::ranges::find(kernel_ops, op, &std::pair<std::string_view, std::string_view>::first);
  if (kernel != kernel_ops.end()) {
    return kernel->second;
  }
  return op.starts_with("ep_") ? "expert-parallel" : "";
}

bool is_rate(Metric metric) {
  return metric == Metric::tflops_per_gpu || metric == Metric::tokens_per_s ||
         metric == Metric::busbw;
}

double cost(Metric metric, double value) { return is_rate(metric) ? 1 / value : value; }

Point read_point(const JsonView& view, const JsonView& workload, std::int64_t index, double noise,
                 const CorpusMachine& machine, std::set<std::string>& unread) {
  refuse_slips_of_point(view, unread);
  const Fields f(view, workload);
  Point p;
  p.index = index;
  p.machine = machine;
  const auto scope = f.find("scope");
  p.scope = scope ? one_of(*scope, scopes) : Scope::attention;
  p.metric = one_of(view.at("metric"), metrics);
  p.value = positive(view, "value");
  if (const auto oom = view.find("oom")) {
    p.oom = oom->boolean();
  }
  if (!p.value && !p.oom) {
    view.fail("neither 'value' nor 'oom'");
  }
  if (p.value && p.oom.value_or(false)) {
    view.fail("both 'value' and 'oom': what ran out of memory has no value");
  }
  p.choice = f.text("choice");
  p.suspect = f.text("suspect");
  p.relative = f.yes("relative");
  p.beyond = f.yes("beyond");
  p.per_gpu = f.yes("per_gpu");
  const auto own_noise = view.find("noise");
  p.noise = own_noise ? own_noise->number(0, 1) : noise;
  if (const auto gpu = view.find("gpu")) {
    p.machine.gpu = gpu->string();
  }
  if (const auto nodes = f.count("nodes")) {
    p.machine.nodes = nodes;
  }
  read_work(f, p);
  read_architecture(f, p);
  read_plan(f, p);
  read_kernel(f, p);
  p.system = f.text("system");
  p.variant = f.text("variant");
  p.features = f.text("features");
  p.dispatcher = f.text("dispatcher");
  expect_complete(f, p);
  return p;
}

}  // namespace spp::regress
