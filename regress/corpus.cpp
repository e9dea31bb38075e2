// One format, one file: words, machines, work, plans and what a scope cannot do without are read in
// one pass over a point.
#include "regress/corpus.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace spp::regress {
namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 40;
constexpr std::int64_t most_count = 1 << 20;

/// Keys of a point, which a workload may give for all points, too.
const std::vector<std::string>& point_keys() {
  static const std::vector<std::string> keys{"choice",
                                             "metric",
                                             "value",
                                             "oom",
                                             "suspect",
                                             "relative",
                                             "beyond",
                                             "derived",
                                             "noise",
                                             "seq",
                                             "seq_kv",
                                             "world",
                                             "ulysses",
                                             "ring",
                                             "team",
                                             "layout",
                                             "tp",
                                             "dp",
                                             "pp",
                                             "cfg",
                                             "pipefusion",
                                             "cp",
                                             "zero",
                                             "zero_group",
                                             "kv",
                                             "double_ring",
                                             "inner",
                                             "balanced",
                                             "placement",
                                             "scope",
                                             "model",
                                             "layers",
                                             "hidden",
                                             "q_heads",
                                             "kv_heads",
                                             "head_dim",
                                             "ffn",
                                             "vocab",
                                             "batch",
                                             "mask",
                                             "dtype",
                                             "phase",
                                             "recompute",
                                             "call",
                                             "blocks",
                                             "steps",
                                             "kernel",
                                             "head_dim_v",
                                             "op",
                                             "bytes",
                                             "peak",
                                             "pairs",
                                             "nodes",
                                             "gpu",
                                             "per_gpu",
                                             "micro_batch",
                                             "new_tokens",
                                             "qkv_packed",
                                             "system",
                                             "variant",
                                             "features",
                                             "library",
                                             "plugin",
                                             "fabric",
                                             "algo",
                                             "api",
                                             "task",
                                             "resolution",
                                             "approx",
                                             "noise",
                                             "cached_tokens",
                                             "flops_convention"};
  return keys;
}

/// The known key that `key` is a slip of, else "". Strict: sources have words of their own, and
/// some resemble ours.
std::string slip_of(const std::string& key, const std::vector<std::string>& known) {
  const int most = key.size() < 8 ? 1 : 2;
  const auto near = std::ranges::find_if(
      known, [&](const std::string& k) { return edit_distance(key, k) <= most; });
  return near == known.end() ? "" : *near;
}

/// A key of a typing error is refused; what else a source says passes.
void refuse_slips(const JsonView& object, const std::vector<std::string>& known) {
  if (!object.value().is_object()) {
    object.fail("is no object");
  }
  for (const auto& [key, value] : object.value().items()) {
    if (std::ranges::find(known, key) != known.end()) {
      continue;
    }
    if (const std::string near = slip_of(key, known); !near.empty()) {
      object.fail(fmt::format("unknown key '{}' (did you mean '{}'?)", key, near));
    }
  }
}

/// The same for a point or a workload: words, yes and no may be the source's own, numbers are ours.
void refuse_strange_numbers(const JsonView& object) {
  const auto& known = point_keys();
  refuse_slips(object, known);
  for (const auto& [key, value] : object.value().items()) {
    if (!(value.is_string() || value.is_boolean() || value.is_null()) &&
        std::ranges::find(known, key) == known.end()) {
      object.fail(fmt::format("unknown key '{}'", key));
    }
  }
}

/// Values of one point: its own keys, else its file's workload.
class Fields {
 public:
  Fields(JsonView point, JsonView workload) : point_(point), workload_(workload) {}

  [[nodiscard]] const JsonView& point() const { return point_; }
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
constexpr std::array<std::pair<std::string_view, RingKind>, 3> ring_kinds{
    {{"p2p", RingKind::p2p}, {"allgather", RingKind::all_gather}, {"pass-q", RingKind::pass_q}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> phases{
    {{"fwd", "fwd"},
     {"bwd", "bwd"},
     {"fwd+bwd", "fwd+bwd"},
     {"train", "train"},
     {"inference", "inference"}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> ops{
    {{"all_to_all", "all_to_all"},
     {"all_gather", "all_gather"},
     {"all_reduce", "all_reduce"},
     {"reduce_scatter", "reduce_scatter"},
     {"sendrecv", "sendrecv"},
     {"p2p", "p2p"}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> placements{
    {{"ulysses-inner", "ulysses-inner"}, {"ring-inner", "ring-inner"}}};

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

/// A rate without its unit, which the key says.
std::optional<double> rate(const JsonView& object, std::string_view key, std::string_view unit) {
  const auto view = object.find(key);
  if (!view) {
    return std::nullopt;
  }
  const double value = view->number();
  (void)bandwidth_from(value, unit, view->where());
  return value;
}

CorpusMachine read_machine(const JsonView& view) {
  refuse_slips(view, {"gpu", "gpus_per_node", "nodes", "intra", "inter", "like", "notes"});
  CorpusMachine m;
  if (const auto gpu = view.find("gpu")) {
    m.gpu = gpu->string();
  }
  if (const auto like = view.find("like"); like && (m.gpu.empty() || m.gpu == "unknown")) {
    m.gpu = like->string();
  }
  if (const auto count = view.find("gpus_per_node")) {
    m.gpus_per_node = static_cast<int>(count->integer(1, 1024));
  }
  if (const auto nodes = view.find("nodes")) {
    m.nodes = static_cast<int>(nodes->integer(1, most_count));
  }
  if (const auto intra = view.find("intra")) {
    refuse_slips(*intra, {"kind", "per_gpu_GBps", "measured", "notes"});
    if (const auto kind = intra->find("kind")) {
      m.intra_kind = kind->string();
    }
    m.intra_GBps = rate(*intra, "per_gpu_GBps", "GB/s");
  }
  if (const auto inter = view.find("inter")) {
    refuse_slips(*inter, {"kind", "per_node_Gbps", "nics_per_node", "measured", "notes"});
    if (const auto kind = inter->find("kind")) {
      m.inter_kind = kind->string();
    }
    m.inter_Gbps = rate(*inter, "per_node_Gbps", "Gb/s");
    if (const auto nics = inter->find("nics_per_node")) {
      m.nics = static_cast<int>(nics->integer(1, 1024));
    }
    if (const auto measured = inter->find("measured")) {
      m.nic_GBps = rate(*measured, "p2p_8_pairs_GBps_each", "GB/s");
    }
  }
  return m;
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
  if (const auto phase = f.find("phase")) {
    p.phase = one_of(*phase, phases);
  }
  p.dtype = f.text("dtype");
  p.model = f.text("model");
  p.flops_convention = f.text("flops_convention");
  p.recompute = f.text("recompute");
  p.call = f.text("call");
  p.layers = f.count<std::int64_t>("layers");
  p.hidden = f.count<std::int64_t>("hidden");
  p.ffn = f.count<std::int64_t>("ffn");
  p.vocab = f.count<std::int64_t>("vocab", most_tokens);
  p.steps = f.count<std::int64_t>("steps");
  p.micro_batch = f.count<std::int64_t>("micro_batch");
  p.new_tokens = f.count<std::int64_t>("new_tokens", most_tokens);
}

void read_plan(const Fields& f, Point& p) {
  p.world = static_cast<int>(f.point().at("world").integer(1, most_count));
  p.ulysses = f.count("ulysses");
  p.ring = f.count("ring");
  p.cp = f.count("cp");
  p.team = f.degree("team");
  p.tp = f.degree("tp");
  p.dp = f.degree("dp");
  p.pp = f.degree("pp");
  p.cfg = f.degree("cfg");
  p.pipefusion = f.degree("pipefusion");
  if (const auto zero = f.find("zero")) {
    p.zero = static_cast<int>(zero->integer(0, 3));
  }
  p.zero_group = f.count("zero_group");
  p.inner = f.count("inner");
  if (const auto layout = f.find("layout")) {
    p.layout = parse_layout(layout->string(), layout->where());
  }
  if (const auto kv = f.find("kv")) {
    p.ring_kind = one_of(*kv, ring_kinds);
  }
  p.double_ring = f.yes("double_ring");
  p.balanced = f.yes("balanced");
  if (const auto placement = f.find("placement")) {
    p.placement = one_of(*placement, placements);
  }
  if (!p.ulysses || !p.ring) {
    return;
  }
  std::int64_t product = 1;
  for (const int degree : {*p.ulysses, *p.ring, p.tp, p.dp, p.pp, p.cfg, p.pipefusion}) {
    product *= degree;
  }
  if (product != p.world) {
    f.point().fail(
        fmt::format("ulysses {} x ring {} x tp {} x dp {} x pp {} x cfg {} x pipefusion "
                    "{} is {}, but world is {}",
                    *p.ulysses, *p.ring, p.tp, p.dp, p.pp, p.cfg, p.pipefusion, product, p.world));
  }
  if (*p.ring % (std::int64_t{p.team} * p.team) != 0) {
    f.point().fail(fmt::format("team {} squared does not divide ring {}", p.team, *p.ring));
  }
}

/// What a scope cannot do without.
void expect_complete(const Fields& f, const Point& p) {
  const auto need = [&](bool there, std::string_view key) {
    if (!there) {
      f.point().fail(fmt::format("key '{}' is missing (scope {} needs it, here or in workload)",
                                 key, to_string(p.scope)));
    }
  };
  if (p.scope == Scope::collective) {
    need(!p.op.empty(), "op");
    if (!p.bytes && !p.peak) {
      need(false, "bytes");
    }
    return;
  }
  need(p.seq.has_value(), "seq");
  if (p.scope == Scope::attention || p.scope == Scope::kernel) {
    need(!p.phase.empty(), "phase");
    need(p.q_heads.has_value(), "q_heads");
    need(p.head_dim.has_value(), "head_dim");
    if (p.q_heads && p.kv_heads && *p.q_heads % *p.kv_heads != 0) {
      f.point().fail(
          fmt::format("{} query heads are no multiple of {} KV heads", *p.q_heads, *p.kv_heads));
    }
  }
}

Point read_point(const JsonView& view, const JsonView& workload, std::int64_t index, double noise,
                 const CorpusMachine& machine) {
  refuse_strange_numbers(view);
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
  p.choice = f.text("choice");
  p.suspect = f.text("suspect");
  p.relative = f.yes("relative");
  p.beyond = f.yes("beyond");
  p.per_gpu = f.yes("per_gpu");
  const auto own_noise = view.find("noise");
  p.noise = own_noise ? own_noise->number() : noise;
  if (const auto gpu = view.find("gpu")) {
    p.machine.gpu = gpu->string();
  }
  if (const auto nodes = f.count("nodes")) {
    p.machine.nodes = nodes;
  }
  read_work(f, p);
  read_plan(f, p);
  if (const auto op = f.find("op")) {
    p.op = one_of(*op, ops);
  }
  if (const auto bytes = f.count<std::int64_t>("bytes", std::numeric_limits<std::int64_t>::max())) {
    p.bytes = Bytes(*bytes);
  }
  p.peak = f.yes("peak");
  p.kernel = f.text("kernel");
  p.fabric = f.text("fabric");
  p.algo = f.text("algo");
  p.system = f.text("system");
  p.variant = f.text("variant");
  p.features = f.text("features");
  expect_complete(f, p);
  return p;
}

}  // namespace

std::string_view to_string(Scope scope) { return scopes.at(static_cast<std::size_t>(scope)).first; }
std::string_view to_string(Metric metric) {
  return metrics.at(static_cast<std::size_t>(metric)).first;
}

Scope parse_scope(std::string_view text, std::string_view where) {
  const Json word = std::string(text);
  return one_of(JsonView(word, std::string(where)), scopes);
}

bool is_rate(Metric metric) {
  return metric == Metric::tflops_per_gpu || metric == Metric::tokens_per_s ||
         metric == Metric::busbw;
}

double cost(Metric metric, double value) { return is_rate(metric) ? 1 / value : value; }

CorpusFile read_corpus_file(const std::filesystem::path& path) {
  const Json document = read_json(path);
  const JsonView view(document, path.filename().string());
  expect_format(view, "sp-plan/corpus");
  refuse_slips(view, {"format", "format_version", "name", "source", "trust", "noise", "machine",
                      "stack", "workload", "points", "notes", "raw"});
  CorpusFile file;
  file.path = path;
  file.name = view.at("name").string();
  if (file.name != path.stem().string()) {
    view.at("name").fail(
        fmt::format("'{}' is not the file's name ('{}')", file.name, path.stem().string()));
  }
  file.stack = view.at("stack").string();
  file.trust = view.at("trust").string();
  file.title = view.at("source").at("title").string();
  const auto said = view.at("source").find("year");
  const int year = said && said->value().is_number_integer() ? said->value().get<int>() : 0;
  const auto noise = view.find("noise");
  const double usual_noise = noise ? noise->number() : 0;
  const CorpusMachine machine = read_machine(view.at("machine"));
  const JsonView workload = view.at("workload");
  refuse_strange_numbers(workload);
  std::int64_t index = 0;
  for (const JsonView& point : view.at("points").elements()) {
    file.points.push_back(read_point(point, workload, index++, usual_noise, machine));
    file.points.back().year = year;
  }
  if (file.points.empty()) {
    view.at("points").fail("is empty: a file of measurements has one at least");
  }
  return file;
}

std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder) {
  std::error_code ec;
  if (std::filesystem::is_directory(folder, ec)) {
    std::vector<std::filesystem::path> files = files_in(folder, ".json");
    if (!files.empty()) {
      return files;
    }
  }
  throw InputError(folder.string(), "holds no corpus files (*.json)");
}

}  // namespace spp::regress
