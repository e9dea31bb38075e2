#include "cli/request.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <string>

namespace spp::cli {
namespace {

constexpr std::int64_t most_heads = 4096;
constexpr std::int64_t most_head_dim = 2048;
constexpr std::int64_t most_batch = 65536;
constexpr std::int64_t most_ranks = sim::most_gpus;
/// Sizes of whole tensors stay far below 2^63 bytes, so that sums of them do, too.
constexpr double most_tensor_bytes = 1e17;

class Reader {
 public:
  Reader(const Arguments& arguments, Job& job) : args_(arguments), job_(job) {}

  void work();
  void machine(MachineNeed need);
  void degrees();
  void title();

 private:
  Request& request() { return job_.request; }
  void resolve(std::string_view key, Json value) { job_.resolved[std::string(key)] = std::move(value); }
  void assume(std::string what, std::string value, std::string source = "default") {
    job_.assumptions.push_back({.what = std::move(what), .value = std::move(value), .source = std::move(source)});
  }
  /// The option's text, or the default, which is then listed.
  std::string text_or(std::string_view option, std::string_view what, std::string_view otherwise) {
    if (const auto text = args_.find(option)) {
      return *text;
    }
    assume(std::string(what), std::string(otherwise));
    return std::string(otherwise);
  }
  int count(std::string_view option, std::string_view text, std::int64_t most) const {
    return static_cast<int>(parse_int(text, fmt::format("--{}", option), 1, most));
  }
  std::optional<int> count(std::string_view option, std::int64_t most) const {
    const auto text = args_.find(option);
    return text ? std::optional(count(option, *text, most)) : std::nullopt;
  }

  void attention_shape();
  void model(const std::string& name);
  void bare_shape();
  void mask_and_phase();
  void batch();
  sim::MachineSpec machine_spec();
  void memory(sim::MachineSpec& machine);
  void list_constants(const sim::MachineSpec& machine);
  void only_one(std::string_view option, std::string_view what);
  void check_degrees();

  const Arguments& args_;
  Job& job_;
  std::string machine_name_;
};

// ---- the work --------------------------------------------------------------------------------------

void Reader::work() {
  attention_shape();
  const auto seq = args_.find("seq");
  if (!seq) {
    throw InputError("--seq", "missing: tokens of one sequence over all GPUs, such as 32768, 128K or 1M");
  }
  request().problem.seq = parse_tokens(*seq, "--seq");
  batch();
  request().problem.dtype = parse_dtype(text_or("dtype", "dtype", "bf16"), "--dtype");
  mask_and_phase();
  if (args_.has("documents")) {
    not_available("--documents", "planning for packed documents");
  }
  const Problem& p = request().problem;
  const double bytes = 4.0 * static_cast<double>(p.seq) * static_cast<double>(p.batch) * p.q_heads * p.head_dim;
  if (bytes > most_tensor_bytes) {
    throw InputError("--batch", fmt::format("{} x {} tokens x {} heads x {} is too large: one tensor of {:.1g} bytes",
                                            p.batch, p.seq, p.q_heads, p.head_dim, bytes));
  }
  request().flops_convention =
      parse_flops_convention(args_.get("flops-convention", "causal-halved"), "--flops-convention");
  if (request().flops_convention == FlopsConvention::model_6n && !request().model) {
    throw InputError("--flops-convention", "model-6N needs a --model");
  }

  resolve("model", request().model ? Json(args_.get("model", "")) : Json());
  resolve("heads", p.q_heads);
  resolve("kv_heads", p.kv_heads);
  resolve("head_dim", p.head_dim);
  resolve("seq", p.seq);
  resolve("batch", p.batch);
  resolve("phase", to_string(request().phase));
  resolve("mask", to_string(p.mask));
  resolve("dtype", to_string(p.dtype));
  resolve("flops_convention", to_string(request().flops_convention));
}

void Reader::attention_shape() {
  const auto name = args_.find("model");
  if (!name) {
    bare_shape();
    return;
  }
  for (const std::string_view option : {"heads", "kv-heads", "head-dim"}) {
    if (args_.has(option)) {
      throw InputError(fmt::format("--{}", option), "given together with --model, which says it already");
    }
  }
  model(*name);
}

void Reader::model(const std::string& name) {
  const ModelLibrary library = models();
  Model m = library.load(name, "--model");
  if (!m.not_costed.empty()) {
    throw InputError("--model", fmt::format("'{}' is not available yet: {}", name, m.not_costed));
  }
  for (const std::string& line : m.assumed) {
    assume("model", line, shown_path(library.file_of(name, "--model")));
  }
  Problem& p = request().problem;
  p.q_heads = m.q_heads;
  p.kv_heads = m.kv_heads;
  p.head_dim = m.head_dim;
  p.mask = m.mask;
  request().model = std::move(m);
}

void Reader::bare_shape() {
  const auto heads = count("heads", most_heads);
  if (!heads) {
    throw InputError("--model", "missing: a name (see 'sp-plan model list'), a config.json, or a bare attention "
                                "shape with --heads, --kv-heads, --head-dim");
  }
  Problem& p = request().problem;
  p.q_heads = *heads;
  p.kv_heads = count("kv-heads", text_or("kv-heads", "kv_heads", fmt::format("{}", *heads)), most_heads);
  p.head_dim = count("head-dim", text_or("head-dim", "head_dim", "128"), most_head_dim);
  if (p.q_heads % p.kv_heads != 0) {
    throw InputError("--kv-heads", fmt::format("{} does not divide --heads {}", p.kv_heads, p.q_heads));
  }
}

void Reader::batch() {
  const int batch = count("batch", text_or("batch", "batch", "1"), most_batch);
  request().problem.batch = batch;
  if (const auto global = count("global-batch", most_batch); global && *global != batch) {
    not_available("--global-batch", fmt::format("{} sequences a step with --batch {} (gradient accumulation, data "
                                                "parallelism)",
                                                *global, batch));
  }
}

void Reader::mask_and_phase() {
  Request& r = request();
  if (const auto mask = args_.find("mask")) {
    r.problem.mask = parse_mask(*mask, "--mask");
  } else {
    assume("mask", to_string(r.problem.mask), r.model ? "the model's kind" : "default");
  }
  if (r.problem.mask.kind == MaskKind::window) {
    not_available("--mask", "planning for sliding windows");
  }
  r.phase = parse_step_phase(text_or("phase", "phase", r.model ? "train" : "fwd+bwd"), "--phase");
  const bool whole = r.phase == StepPhase::train || r.phase == StepPhase::prefill;
  if (whole && !r.model) {
    throw InputError("--phase", fmt::format("{} needs a --model; a bare shape has fwd, bwd or fwd+bwd",
                                            to_string(r.phase)));
  }
  if (whole && r.model->max_positions > 0 && r.problem.seq > r.model->max_positions) {
    assume("positions", fmt::format("{} tokens, beyond the {} that {} was made for", human_tokens(r.problem.seq),
                                    human_tokens(r.model->max_positions), r.model->name),
           "--seq");
  }
}

// ---- the machine -----------------------------------------------------------------------------------

void Reader::machine(MachineNeed need) {
  if (args_.has("profile")) {
    not_available("--profile", "calibration");
  }
  const std::string stack = text_or("stack", "stack", "sp-plan");
  if (stack != "sp-plan") {
    not_available("--stack", fmt::format("'{}' (only sp-plan)", stack));
  }
  resolve("stack", stack);
  if (need == MachineNeed::optional && !args_.has("topology") && !args_.has("gpu")) {
    for (const std::string_view option : {"gpus-per-node", "intra", "inter", "nodes", "memory"}) {
      if (args_.has(option)) {
        throw InputError(fmt::format("--{}", option), "needs a machine: --topology or --gpu");
      }
    }
    if (const auto gpus = count("gpus", most_ranks)) {
      request().gpus = *gpus;
    } else {
      const int ulysses = count("ulysses", most_ranks).value_or(1);
      const int ring = count("ring", most_ranks).value_or(1);
      if (std::int64_t{ulysses} * ring > most_ranks) {
        throw InputError("--ring", fmt::format("{} x {} is more than {} ranks", ulysses, ring, most_ranks));
      }
      request().gpus = ulysses * ring;
      assume("gpus", fmt::format("{}", request().gpus), "--ulysses x --ring");
    }
    resolve("gpus", request().gpus);
    return;
  }

  sim::MachineSpec spec = machine_spec();
  memory(spec);
  (void)matrix_rate(spec.gpu, request().problem.dtype, "--dtype");
  const auto per_node = static_cast<int>(spec.gpus_per_node.value);
  const auto gpus_given = count("gpus", most_ranks);
  const int needed = gpus_given ? (*gpus_given + per_node - 1) / per_node : 1;
  const int nodes = count("nodes", text_or("nodes", "nodes", fmt::format("{}", needed)), most_ranks);
  if (std::int64_t{nodes} * per_node > most_ranks) {
    throw InputError("--nodes", fmt::format("{} nodes of {} GPUs are more than {} GPUs", nodes, per_node, most_ranks));
  }
  const int all = nodes * per_node;
  if (gpus_given && *gpus_given > all) {
    throw InputError("--gpus", fmt::format("{} GPUs, but {} x {} has {}; give --nodes {}", *gpus_given, nodes, spec.name,
                                           all, needed));
  }
  if (!gpus_given) {
    assume("gpus", fmt::format("{}", all), "default: all");
  }
  const int gpus = gpus_given.value_or(all);
  if (gpus <= (nodes - 1) * per_node) {
    throw InputError("--nodes", fmt::format("{} nodes for {} GPUs of {} a node: {} are enough", nodes, gpus, per_node,
                                            needed));
  }
  if (nodes > 1 && !spec.inter) {
    throw InputError(args_.has("topology") ? "--topology" : "--inter",
                     fmt::format("{} nodes need a network, and {} has none; for example --inter ib:8x400Gb/s", nodes,
                                 spec.name));
  }
  list_constants(spec);
  request().gpus = gpus;
  job_.cluster = std::make_unique<sim::Cluster>(std::move(spec), nodes, gpus);
  request().cluster = job_.cluster.get();
  resolve("nodes", nodes);
  resolve("gpus", gpus);
}

sim::MachineSpec Reader::machine_spec() {
  const auto topology = args_.find("topology");
  const auto gpu = args_.find("gpu");
  for (const std::string_view option : {"gpu", "gpus-per-node", "intra", "inter"}) {
    if (topology && args_.has(option)) {
      throw InputError(fmt::format("--{}", option), "given together with --topology, which says it already");
    }
  }
  const sim::Catalog catalog = topologies();
  if (topology) {
    if (std::ifstream file(*topology, std::ios::binary); file && !topology->ends_with(".json")) {
      char first = ' ';
      file >> first;
      if (first == '<') {
        not_available("--topology", "reading NCCL topology XML");
      }
      if (first != '{') {
        not_available("--topology", fmt::format("reading '{}', which is not JSON (such as nvidia-smi topo -m)", *topology));
      }
    }
    machine_name_ = *topology;
    resolve("topology", *topology);
    return catalog.machine(*topology, "--topology");
  }
  if (!gpu) {
    throw InputError("--topology", "missing: a machine (see 'sp-plan topology list'), or --gpu with --gpus-per-node, "
                                   "--intra, --inter");
  }
  sim::ComposedMachine composed{.gpu = *gpu, .gpus_per_node = 8, .intra = args_.get("intra", ""), .inter = args_.get("inter", "")};
  composed.gpus_per_node =
      count("gpus-per-node", text_or("gpus-per-node", "gpus_per_node", "8"), sim::most_gpus_per_node);
  machine_name_ = *gpu;
  resolve("gpu", *gpu);
  resolve("gpus_per_node", composed.gpus_per_node);
  resolve("intra", args_.has("intra") ? Json(composed.intra) : Json());
  resolve("inter", args_.has("inter") ? Json(composed.inter) : Json());
  return catalog.compose(composed, job_.assumptions);
}

void Reader::memory(sim::MachineSpec& machine) {
  sim::GpuSpec& gpu = machine.gpu;
  if (const auto text = args_.find("memory")) {
    gpu.memory = {.value = parse_bytes(*text, "--memory"), .spread = 0, .source = "--memory"};
    if (gpu.memory.value < Bytes(1'000'000)) {
      throw InputError("--memory", fmt::format("'{}' is less than a GPU can have", *text));
    }
  } else {
    assume("memory", fmt::format("{} a GPU", human(gpu.memory.value)), gpu.memory.source);
  }
  const double usable = gpu.memory.value.as_double() * gpu.memory_usable.value;
  request().memory = Bytes(static_cast<std::int64_t>(std::llround(usable)));
  assume("memory.usable", fmt::format("{} of {} ({:.0f} %)", human(request().memory), human(gpu.memory.value),
                                      100 * gpu.memory_usable.value),
         gpu.memory_usable.source);
  resolve("memory_bytes", gpu.memory.value.value());
  resolve("usable_memory_bytes", request().memory.value());
}

void Reader::list_constants(const sim::MachineSpec& machine) {
  const sim::GenerationSpec& generation = machine.gpu.generation;
  const std::string& transport = machine.intra.rate ? machine.intra.rate->source : machine.intra.name;
  assume("intra.bandwidth", fmt::format("{}, {} per GPU and direction", machine.intra.name, human(machine.intra_rate)),
         transport);
  if (machine.inter) {
    const sim::InterSpec& inter = *machine.inter;
    assume("inter.bandwidth",
           fmt::format("{}, {} x {:.0f} Gb/s a node", inter.transport.name, inter.nics.value,
                       inter.rate_per_nic.value.value() * 8e-9),
           inter.rate_per_nic.source);
  }
  assume("kernels", fmt::format("{} on {}, no calibration of this machine", generation.attention.kernel, machine.gpu.name),
         fmt::format("topologies/generations/{}.json", generation.name));
}

// ---- the degrees -----------------------------------------------------------------------------------

void Reader::only_one(std::string_view option, std::string_view what) {
  if (const auto degree = count(option, most_ranks); degree && *degree > 1) {
    not_available(fmt::format("--{}", option), fmt::format("{} ({})", what, *degree));
  }
  resolve(option, 1);
}

void Reader::degrees() {
  FixedChoices& f = request().fixed;
  if (const auto name = args_.find("strategy")) {
    f.strategy = std::string(strategies::by_name(*name, "--strategy").name);
  }
  f.ulysses = count("ulysses", most_ranks);
  f.ring = count("ring", most_ranks);
  f.team = count("team", most_ranks);
  f.window = count("window", most_ranks);
  if (const auto v = args_.find("layout")) {
    f.layout = parse_layout(*v, "--layout");
  }
  if (const auto v = args_.find("order")) {
    f.order = parse_order(*v, "--order");
  }
  if (const auto v = args_.find("heads-policy")) {
    f.heads = parse_head_policy(*v, "--heads-policy");
  }
  if (const auto v = args_.find("rank-order")) {
    f.rank_order = parse_rank_order(*v, "--rank-order");
  }
  check_degrees();

  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  resolve("strategy", or_null(f.strategy));
  resolve("ulysses", or_null(f.ulysses));
  resolve("ring", or_null(f.ring));
  resolve("team", or_null(f.team));
  resolve("window", or_null(f.window));
  resolve("layout", f.layout ? Json(to_string(*f.layout)) : Json());
  resolve("order", f.order ? Json(to_string(*f.order)) : Json());
  resolve("heads_policy", f.heads ? Json(to_string(*f.heads)) : Json());
  resolve("rank_order", f.rank_order ? Json(to_string(*f.rank_order)) : Json());
  only_one("tp", "tensor parallelism");
  only_one("dp", "data parallelism");
  only_one("pp", "pipeline parallelism");

  if (const auto v = args_.find("zero")) {
    request().zero = static_cast<int>(parse_int(*v, "--zero", 0, 3));
  }
  if (const auto v = args_.find("recompute")) {
    request().recompute = parse_recompute(*v, "--recompute");
  }
  resolve("zero", or_null(request().zero));
  resolve("recompute", request().recompute ? Json(to_string(*request().recompute)) : Json());
}

/// What no plan can meet, in words of the options.
void Reader::check_degrees() {
  const FixedChoices& f = request().fixed;
  const int gpus = request().gpus;
  if (f.ulysses && f.ring && std::int64_t{*f.ulysses} * *f.ring != gpus) {
    throw InputError("--ulysses", fmt::format("{} x --ring {} = {}, but there are {} GPUs (see --gpus)", *f.ulysses,
                                              *f.ring, std::int64_t{*f.ulysses} * *f.ring, gpus));
  }
  if (f.ulysses && gpus % *f.ulysses != 0) {
    throw InputError("--ulysses", fmt::format("{} does not divide the {} GPUs", *f.ulysses, gpus));
  }
  if (f.ring && gpus % *f.ring != 0) {
    throw InputError("--ring", fmt::format("{} does not divide the {} GPUs", *f.ring, gpus));
  }
  const int ring = f.ring.value_or(f.ulysses ? gpus / *f.ulysses : gpus);
  const bool ring_known = f.ring || f.ulysses;
  if (f.team && (ring_known ? ring % (std::int64_t{*f.team} * *f.team) != 0
                            : gpus % (std::int64_t{*f.team} * *f.team) != 0)) {
    throw InputError("--team", fmt::format("{} squared is {}, which does not divide {} {}", *f.team,
                                           std::int64_t{*f.team} * *f.team,
                                           ring_known ? "the ring degree" : "the number of GPUs,", ring));
  }
  if (f.window && (ring_known ? ring : gpus) % *f.window != 0) {
    throw InputError("--window", fmt::format("{} does not divide {} {}", *f.window,
                                             ring_known ? "the ring degree" : "the number of GPUs,", ring));
  }
  if (f.rank_order == RankOrder::cyclic) {
    const sim::Cluster* cluster = request().cluster;
    if (cluster != nullptr && gpus != cluster->nodes() * cluster->gpus_per_node()) {
      throw InputError("--rank-order", fmt::format("cyclic needs whole nodes; {} GPUs are not {} nodes of {}", gpus,
                                                   cluster->nodes(), cluster->gpus_per_node()));
    }
  }
}

void Reader::title() {
  const Problem& p = request().problem;
  std::string text = request().model ? request().model->name
                                     : fmt::format("attention {}/{} heads of {}", p.q_heads, p.kv_heads, p.head_dim);
  text += fmt::format(", {}, {} tokens, batch {}, {}, {}", to_string(request().phase), human_tokens(p.seq), p.batch,
                      to_string(p.mask), to_string(p.dtype));
  if (job_.cluster) {
    text += fmt::format(", on {} GPUs of {} x {}", request().gpus, job_.cluster->nodes(), job_.cluster->machine().name);
  } else {
    text += fmt::format(", over {} ranks", request().gpus);
  }
  job_.title = std::move(text);
}

/// Our name of the option that a rule of why_not() is about.
std::string_view option_of(std::string_view rule) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> options{{{"heads", "--ulysses"},
                                                                                  {"team", "--team"},
                                                                                  {"window", "--window"},
                                                                                  {"layout", "--layout"},
                                                                                  {"sequence", "--seq"},
                                                                                  {"strategy", "--strategy"}}};
  const auto it = std::ranges::find(options, rule, &std::pair<std::string_view, std::string_view>::first);
  return it == options.end() ? "--strategy" : it->second;
}

}  // namespace

void not_available(std::string_view where, std::string_view what) {
  throw InputError(where, fmt::format("{} is not available yet", what));
}

std::vector<std::string_view> degree_options() {
  return {"strategy", "ulysses", "ring", "team", "window", "layout", "order", "heads-policy", "rank-order"};
}

Job read_job(const Arguments& arguments, MachineNeed need) {
  arguments.expect_no_positionals();
  Job job;
  job.resolved = Json::object();
  Reader reader(arguments, job);
  reader.work();
  reader.machine(need);
  reader.degrees();
  reader.title();
  return job;
}

SequencePlan read_plan(Job& job) {
  const FixedChoices& given = job.request.fixed;
  const SequencePlan plan = default_plan(job.request);
  const Strategy& strategy = strategies::by_name(plan.strategy, "--strategy");
  if (plan.ranks() != job.request.gpus) {
    throw InputError("--ulysses", fmt::format("{} x --ring {} = {}, but there are {} GPUs (see --gpus)", plan.ulysses,
                                              plan.ring, plan.ranks(), job.request.gpus));
  }
  if (const WhyNot reason = why_not(strategy, job.request.problem, plan); !reason.legal()) {
    throw InputError(option_of(reason.rule), fmt::format("{} is not legal: {}", short_name(plan), reason.detail));
  }
  const auto note = [&](bool was_given, std::string_view what, std::string value) {
    job.resolved[std::string(what)] = value;
    if (!was_given) {
      job.assumptions.push_back({.what = std::string(what), .value = std::move(value), .source = "default"});
    }
  };
  note(given.strategy.has_value(), "strategy", plan.strategy);
  note(given.layout.has_value(), "layout", std::string(to_string(plan.layout)));
  note(given.order.has_value(), "order", to_string(plan.order));
  note(given.heads.has_value(), "heads_policy", std::string(to_string(plan.heads)));
  note(given.rank_order.has_value(), "rank_order", std::string(to_string(plan.rank_order)));
  if (job.request.phase == StepPhase::train) {
    const bool zero_given = job.request.zero.has_value();
    const bool recompute_given = job.request.recompute.has_value();
    job.request.zero = job.request.zero.value_or(1);
    job.request.recompute = job.request.recompute.value_or(Recompute::none);
    note(zero_given, "zero", fmt::format("{}", *job.request.zero));
    note(recompute_given, "recompute", std::string(to_string(*job.request.recompute)));
    job.resolved["zero"] = *job.request.zero;
  }
  job.resolved["ulysses"] = plan.ulysses;
  job.resolved["ring"] = plan.ring;
  job.resolved["team"] = plan.team;
  job.resolved["window"] = plan.window;
  return plan;
}

}  // namespace spp::cli
