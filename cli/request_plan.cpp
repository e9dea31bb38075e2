// The degrees of a request, and the one plan that they describe.
#include "base/error.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "cli/request_reader.hpp"
#include "machine/gemm_cost.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "planner/step.hpp"
#include "step/stages.hpp"
#include "transformer/diffusion_family.hpp"

#include <algorithm>
#include <array>

namespace spp::cli {

void Reader::degrees() {
  FixedChoices& f = request().fixed;
  if (const auto name = args_.find("strategy")) {
    f.strategy = std::string(strategies::by_name(*name, "--strategy").name);
  }
  f.ulysses = count("ulysses", most_ranks);
  f.ring = count("ring", most_ranks);
  for (const Parameter* parameter : strategies::parameters()) {
    if (const auto value = count(parameter->name, most_ranks)) {
      f.own[parameter] = *value;
    }
  }
  if (const auto v = args_.find("layout")) {
    f.layout = parse_layout(*v, "--layout");
    if (needs_documents(*f.layout) && request().problem.mask.document_ends.empty()) {
      throw InputError("--layout",
                       fmt::format("{} deals out packed documents; --documents says which",
                                   to_string(*f.layout)));
    }
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
  for (const Parameter* parameter : strategies::parameters()) {
    const auto given = f.own.find(parameter);
    resolve(parameter->name, given != f.own.end() ? Json(given->second) : Json());
  }
  resolve("layout", f.layout ? Json(to_string(*f.layout)) : Json());
  resolve("order", f.order ? Json(to_string(*f.order)) : Json());
  resolve("heads_policy", f.heads ? Json(to_string(*f.heads)) : Json());
  resolve("rank_order", f.rank_order ? Json(to_string(*f.rank_order)) : Json());
  step_degrees();
}

/// Degrees around attention: of one attention call there are none.
void Reader::step_degrees() {
  StepChoices& step = request().step;
  step.tensor = count("tp", most_ranks);
  step.data = count("dp", most_ranks);
  step.pipeline = count("pp", most_ranks);
  step.expert = count("ep", most_ranks);
  step.expert_tensor = count("etp", most_ranks);
  step.virtual_stages = count("virtual-stages", most_ranks);
  step.zero_group = count("zero-group", most_ranks);
  step.prompts = count("prompts", most_ranks);
  if (const auto v = args_.find("pipeline")) {
    step.order = std::string(pipelines::by_name(*v, "--pipeline").name);
  }
  if (const auto v = args_.find("zero")) {
    step.zero = static_cast<int>(parse_int(*v, "--zero", 0, 3));
  }
  if (const auto v = args_.find("recompute")) {
    step.recompute = parse_recompute(*v, "--recompute");
  }
  if (const auto v = args_.find("offload")) {
    step.offload = parse_offload(*v, "--offload");
  }
  if (const auto v = args_.find("dispatcher")) {
    step.to_experts = parse_dispatcher(*v, "--dispatcher");
  }
  if (const auto v = args_.find("gemm-format")) {
    step.format = parse_gemm_format(*v, "--gemm-format");
    if (step.format != GemmFormat::plain && request().problem.dtype == DType::fp32) {
      throw InputError("--gemm-format",
                       fmt::format("{} of activations in fp32: recipes of 8 and 4 bits go with "
                                   "--dtype bf16 or fp16",
                                   *v));
    }
    if (request().cluster != nullptr) {
      (void)matrix_rate(request().cluster->machine().gpu, step.format, request().problem.dtype,
                        "--gemm-format");
    }
  }
  if (step.global_batch && request().phase != StepPhase::train) {
    throw InputError("--global-batch", fmt::format("of a train step; --phase is {}, with --batch",
                                                   to_string(request().phase)));
  }
  guidance();
  imbalance();
  if (request().whole_step()) {
    check_step();
  } else {
    for (const auto& [option, degree] :
         std::vector<std::pair<std::string_view, std::optional<int>>>{
             {"tp", step.tensor},
             {"dp", step.data},
             {"pp", step.pipeline},
             {"ep", step.expert},
             {"etp", step.expert_tensor},
             {"virtual-stages", step.virtual_stages}}) {
      if (degree && *degree > 1) {
        throw InputError(fmt::format("--{}", option),
                         fmt::format("{} around one attention call; a whole step of a --model has "
                                     "such degrees: --phase train or prefill",
                                     *degree));
      }
    }
  }
  check_idle();
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  resolve("tp", or_null(step.tensor));
  const bool guided = step.guidance != Guidance::none;
  resolve("dp", guided ? Json(1) : or_null(step.data));
  resolve("cfg", guided ? or_null(step.data) : Json());
  resolve("pp", or_null(step.pipeline));
  resolve("ep", or_null(step.expert));
  resolve("etp", or_null(step.expert_tensor));
  resolve("dispatcher", step.to_experts ? Json(to_string(*step.to_experts)) : Json());
  resolve("virtual_stages", or_null(step.virtual_stages));
  resolve("pipeline", or_null(step.order));
  resolve("prompts", or_null(step.prompts));
  resolve("zero", or_null(step.zero));
  resolve("zero_group", or_null(step.zero_group));
  resolve("recompute", step.recompute ? Json(to_string(*step.recompute)) : Json());
  resolve("offload", step.offload ? Json(to_string(*step.offload)) : Json());
  if (moves_optimizer(step.offload.value_or(Offload::none))) {
    assume_host();
  } else if (moves_activations(step.offload.value_or(Offload::none))) {
    assume("host_memory", "enough for the activations of all GPUs of a node", "not checked");
  }
  resolve("gemm_format", to_string(step.format));
}

/// What an optimizer in the host's memory asks of the host.
void Reader::assume_host() {
  const Request& r = request();
  const StepPractice& practice = practice_of(r);
  const Sourced<Seconds>& update = practice.host_update;
  assume("host_update",
         fmt::format("{:.2g} ns a parameter, by all CPUs of a node together",
                     update.value.count() * 1e9),
         update.source);
  const double bytes = real_of(r.model->parameters()) * practice.state_optimizer.value;
  const int nodes = r.cluster != nullptr ? r.cluster->nodes() : 1;
  assume("host_memory",
         fmt::format("enough; the optimizer takes {:.0f} GB of each node's at least",
                     bytes / nodes / 1e9),
         "not checked");
}

/// What is asked for is done, or refused: an attention call has no step around, an inference no
/// backward.
void Reader::check_idle() {
  const Request& r = request();
  const StepChoices& step = r.step;
  const bool train = r.phase == StepPhase::train;
  const auto refuse = [&](bool idle, std::string_view option, std::string_view of) {
    if (idle) {
      throw InputError(fmt::format("--{}", option),
                       fmt::format("{}; --phase is {}", of, to_string(r.phase)));
    }
  };
  constexpr std::string_view whole = "of a whole step of a --model, train or prefill";
  constexpr std::string_view backward = "of a train step";
  refuse(!train && step.recompute.value_or(Recompute::none) != Recompute::none, "recompute",
         backward);
  refuse(!train && step.offload.value_or(Offload::none) != Offload::none, "offload", backward);
  refuse(!r.whole_step() && step.format != GemmFormat::plain, "gemm-format", whole);
  refuse(!r.whole_step() && step.order.has_value(), "pipeline", whole);
  refuse(!r.whole_step() && step.zero_group.has_value(), "zero-group", whole);
  refuse(!r.whole_step() && step.to_experts.has_value(), "dispatcher", whole);
  if (step.prompts) {
    refuse(!r.whole_step() || train, "prompts", "of a prefill");
    if (step.pipeline == 1) {
      throw InputError("--prompts", "they pass the stages of a pipeline; --pp is 1");
    }
    const std::int64_t all = step.micro_batch.value_or(1);
    const bool apart = r.model->kind == ModelKind::llm;
    if (apart ? all % *step.prompts != 0 : all != *step.prompts) {
      throw InputError("--prompts",
                       fmt::format("{} at once, but {} {} (see --batch)", *step.prompts,
                                   apart ? "they are to divide" : "such a model takes all", all));
    }
  }
  const int zero = step.zero.value_or(0);
  refuse(!train && zero > 0 && (!r.whole_step() || zero < 3), "zero",
         r.whole_step() ? "1 and 2 cut what only a train step has, 3 weights, too" : whole);
  if (step.order && step.pipeline == 1) {
    throw InputError("--pipeline",
                     fmt::format("{} orders the stages of a pipeline; --pp is 1", *step.order));
  }
}

/// Of one denoising step, and of how many an image or a video takes: as the model's pipeline has
/// it.
void Reader::guidance() {
  Request& r = request();
  const bool denoises = r.model && r.model->kind == ModelKind::dit && r.phase == StepPhase::prefill;
  for (const std::string_view option : {"guidance", "cfg", "denoising-steps"}) {
    if (!denoises && args_.has(option)) {
      throw InputError(fmt::format("--{}", option),
                       "of a denoising step, which a diffusion transformer has under --phase "
                       "inference");
    }
  }
  resolve("guidance", nullptr);
  resolve("denoising_steps", nullptr);
  if (!denoises) {
    return;
  }
  const DiffusionFamily* family = r.model->diffusion.family;
  const std::string source(family != nullptr ? family->source : "no pipeline of it is known");
  constexpr int most_steps = 100'000;
  job_.denoising_steps = args_.has("denoising-steps")
                             ? static_cast<int>(parse_int(args_.get("denoising-steps", ""),
                                                          "--denoising-steps", 1, most_steps))
                         : family != nullptr ? family->steps
                                             : 50;
  if (!args_.has("denoising-steps")) {
    assume("denoising_steps", fmt::format("{}", job_.denoising_steps), source);
  }
  resolve("denoising_steps", job_.denoising_steps);
  const bool usual = family != nullptr && family->guided;
  const auto told = args_.find("guidance");
  if (told && *told != "yes" && *told != "no") {
    throw InputError("--guidance", fmt::format("'{}' is neither yes nor no", *told));
  }
  const bool guided = told ? *told == "yes" : usual;
  const auto cfg = args_.find("cfg");
  const int branches_apart = cfg ? static_cast<int>(parse_int(*cfg, "--cfg", 1, 2)) : 1;
  if (branches_apart > 1 && !guided) {
    throw InputError("--cfg", fmt::format("{} is not guided{}", r.model->name,
                                          told ? " under --guidance no"
                                               : ", as far as is known: --guidance yes"));
  }
  if (!guided) {
    resolve("guidance", "no");
    return;
  }
  StepChoices& step = r.step;
  if (step.data.value_or(1) > 1) {
    throw InputError("--dp",
                     "beside guidance, whose branches --cfg puts on GPUs of their own; replicas "
                     "that compute other images are servers of their own");
  }
  step.data.reset();
  step.guidance = family != nullptr && family->apart ? Guidance::apart : Guidance::batched;
  step.global_batch = 2 * r.problem.batch;
  if (cfg) {
    step.data = branches_apart;
  }
  resolve("guidance", "yes");
  assume("guidance",
         step.guidance == Guidance::apart
             ? "two branches of each image; on the same GPUs (cfg 1) one after the other"
             : "two branches of each image; on the same GPUs (cfg 1) in one batch",
         told ? "--guidance" : source);
}

/// How unevenly tokens choose among experts, which no configuration says.
void Reader::imbalance() {
  StepChoices& step = request().step;
  const std::optional<Model>& model = request().model;
  const bool routes = model && model->experts.count > 0 && request().whole_step();
  const auto told = args_.find("expert-imbalance");
  resolve("expert_imbalance", nullptr);
  if (told && !routes) {
    throw InputError("--expert-imbalance", model && request().whole_step()
                                               ? fmt::format("{} has no experts", model->name)
                                               : "of the experts of a whole step of a --model");
  }
  if (!routes) {
    return;
  }
  if (told) {
    step.imbalance = parse_double(*told, "--expert-imbalance");
    const double most = most_imbalance(model->experts, step.expert.value_or(model->experts.count));
    if (step.imbalance < 1 || step.imbalance > most) {
      throw InputError(
          "--expert-imbalance",
          most > 1 ? fmt::format("{} is out of range: 1, where all ranks get as many tokens, to "
                                 "{:.4g}, where each token goes to the experts of one",
                                 *told, most)
                   : fmt::format("{} with --ep 1: each rank has all experts", *told));
    }
  } else if (step.expert.value_or(2) > 1 && request().gpus > 1) {
    assume("expert_imbalance", "1: as many tokens go to the experts of every rank",
           "default, as balanced routing in training aims at; see docs/cost-model.md");
  }
  resolve("expert_imbalance", step.imbalance);
}

/// What no step can meet.
void Reader::check_step() {
  const StepChoices& step = request().step;
  const FixedChoices& f = request().fixed;
  const int gpus = request().gpus;
  const bool guided = step.guidance != Guidance::none;
  const std::int64_t product = std::int64_t{step.tensor.value_or(1)} * f.ulysses.value_or(1) *
                               f.ring.value_or(1) * step.data.value_or(1) *
                               step.pipeline.value_or(1);
  const bool all = step.tensor && f.ulysses && f.ring && step.data && step.pipeline;
  if (all ? product != gpus : gpus % product != 0) {
    const std::string_view option = step.tensor           ? "--tp"
                                    : step.pipeline       ? "--pp"
                                    : step.data && guided ? "--cfg"
                                    : step.data           ? "--dp"
                                    : f.ulysses           ? "--ulysses"
                                                          : "--ring";
    throw InputError(
        option,
        fmt::format("tp {} x ulysses {} x ring {} x {} {} x pp {} = {}, which {} the {} GPUs (see "
                    "--gpus)",
                    step.tensor.value_or(1), f.ulysses.value_or(1), f.ring.value_or(1),
                    guided ? "cfg" : "dp", step.data.value_or(1), step.pipeline.value_or(1),
                    product, all ? "is not" : "does not divide", gpus));
  }
  if (step.global_batch && step.data && *step.global_batch % *step.data != 0) {
    throw InputError(
        "--global-batch",
        fmt::format("{} sequences do not divide over --dp {}{}", *step.global_batch, *step.data,
                    *step.global_batch < *step.data ? ": fewer than replicas" : ""));
  }
  const int experts = request().model->experts.count;
  if (step.expert && *step.expert > 1 && (experts == 0 || experts % *step.expert != 0)) {
    throw InputError(
        "--ep", experts == 0
                    ? fmt::format("{}, and {} has no experts", *step.expert, request().model->name)
                    : fmt::format("{} does not divide the {} experts", *step.expert, experts));
  }
  if (step.expert_tensor.value_or(1) > 1 && experts == 0) {
    throw InputError("--etp", fmt::format("{}, and {} has no experts", *step.expert_tensor,
                                          request().model->name));
  }
  if (step.to_experts && experts == 0) {
    throw InputError("--dispatcher",
                     fmt::format("{}, and {} has no experts", to_string(*step.to_experts),
                                 request().model->name));
  }
  if (step.to_experts && step.expert == 1 && step.expert_tensor.value_or(1) == 1) {
    throw InputError("--dispatcher", fmt::format("{} with --ep 1: no token leaves its rank",
                                                 to_string(*step.to_experts)));
  }
  if (experts > 0 && step.zero_group) {
    assume("zero_group", "of the other weights: experts' are cut over all ranks that have them",
           "as schedules cut them");
  }
  if (experts > 0 && step.expert.value_or(2) > 1 && request().gpus > 1) {
    const std::vector<Dispatcher> ways = dispatchers_of(request());
    if (std::ranges::find(ways, Dispatcher::all_gather) != ways.end()) {
      assume("dispatcher",
             "all-gather to experts as collectives of its size are timed: no published step says "
             "that it ran so",
             "docs/cost-model.md");
    }
  }
  check_layers();
}

void Reader::check_layers() {
  const StepChoices& step = request().step;
  const std::int64_t layers = request().model->layers;
  const std::int64_t stages =
      std::int64_t{step.pipeline.value_or(1)} * step.virtual_stages.value_or(1);
  const auto deals = [&](std::int64_t n) {
    return can_stage(*request().model, n, kind_of(request().phase));
  };
  if (stages <= 1 || deals(stages)) {
    return;
  }
  std::int64_t below = std::min(stages, layers);
  while (below > 1 && !deals(below)) {
    --below;
  }
  std::int64_t above = stages;
  while (above <= layers && !deals(above)) {
    ++above;
  }
  throw InputError(
      step.pipeline ? "--pp" : "--virtual-stages",
      fmt::format("{} layers do not divide into {} stages (nearest: {}{})", layers, stages, below,
                  above <= layers ? fmt::format(" and {}", above) : ""));
}

/// What no plan can meet, in words of the options.
void Reader::check_degrees() {
  const FixedChoices& f = request().fixed;
  if (request().whole_step()) {
    return;  // check_step
  }
  const int gpus = request().gpus;
  if (f.ulysses && f.ring && std::int64_t{*f.ulysses} * *f.ring != gpus) {
    throw InputError("--ulysses",
                     fmt::format("{} x --ring {} = {}, but there are {} GPUs (see --gpus)",
                                 *f.ulysses, *f.ring, std::int64_t{*f.ulysses} * *f.ring, gpus));
  }
  if (f.ulysses && gpus % *f.ulysses != 0) {
    throw InputError("--ulysses", fmt::format("{} does not divide the {}", *f.ulysses,
                                              human_count(gpus, "GPU")));
  }
  if (f.ring && gpus % *f.ring != 0) {
    throw InputError("--ring",
                     fmt::format("{} does not divide the {}", *f.ring, human_count(gpus, "GPU")));
  }
  const int ring = f.ring.value_or(f.ulysses ? gpus / *f.ulysses : gpus);
  const bool ring_known = f.ring || f.ulysses;
  for (const Parameter* parameter : strategies::parameters()) {
    const auto given = f.own.find(parameter);
    const std::string why =
        given == f.own.end()
            ? ""
            : parameter->why_not(given->second,
                                 ring_known ? "the ring degree" : "the number of GPUs,", ring);
    if (!why.empty()) {
      throw InputError(fmt::format("--{}", parameter->name), why);
    }
  }
  if (f.rank_order && request().cluster != nullptr) {
    if (const WhyNot reason = why_not(*f.rank_order, *request().cluster, gpus); !reason.legal()) {
      throw InputError("--rank-order", reason.detail);
    }
  }
}

namespace {

/// Our name of the option that a rule of why_not() is about.
std::string option_of(std::string_view rule) {
  for (const Parameter* parameter : strategies::parameters()) {
    if (rule == parameter->name) {
      return fmt::format("--{}", parameter->name);
    }
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> options{
      {{"heads", "--ulysses"},
       {"rank-order", "--rank-order"},
       {"layout", "--layout"},
       {"sequence", "--seq"},
       {"strategy", "--strategy"},
       {"tensor", "--tp"},
       {"pipeline", "--pipeline"},
       {"expert", "--ep"},
       {"expert-tensor", "--etp"},
       {"dispatcher", "--dispatcher"},
       {"zero", "--zero"},
       {"zero-group", "--zero-group"},
       {"cached", "--cached"},
       {"batch", "--global-batch"}}};
  const auto it =
      std::ranges::find(options, rule, &std::pair<std::string_view, std::string_view>::first);
  return std::string(it == options.end() ? "--strategy" : it->second);
}

void expect_legal(const Request& request, const StepPlan& plan) {
  const Strategy& strategy = strategies::by_name(plan.attention.strategy, "--strategy");
  if (request.whole_step()) {
    if (const WhyNot rule = why_not(*request.model, plan); !rule.legal()) {
      throw InputError(option_of(rule.rule), rule.detail);
    }
  }
  const auto expect = [&](const WhyNot& reason) {
    if (!reason.legal()) {
      throw InputError(
          option_of(reason.rule),
          fmt::format("{} is not legal: {}", short_name(plan.attention), reason.detail));
    }
  };
  expect(why_not(strategy, request.phase));
  expect(why_not(strategy, attention_problem(request, plan, request.problem), plan.attention));
  if (request.cluster != nullptr && plan.attention.rank_order != RankOrder::block) {
    const AttentionQuestion call = attention_question(request, plan, request.problem);
    expect(why_not(plan.attention.rank_order, *call.request.cluster, plan.sequence()));
  }
}

StepPlan legal_plan(Job& job) {
  Request& request = job.request;
  const FixedChoices& given = request.fixed;
  const StepPlan plan = default_step(request);
  const SequencePlan& attention = plan.attention;
  if (!request.whole_step() && attention.ranks() != request.gpus) {
    throw InputError(
        "--ulysses",
        fmt::format("{} x --ring {} = {}, but there are {} GPUs (see --gpus)", attention.ulysses,
                    attention.ring, attention.ranks(), request.gpus));
  }
  expect_legal(request, plan);
  if (request.step.order && plan.pipeline == 1) {
    throw InputError(
        "--pipeline",
        fmt::format("{} orders the stages of a pipeline; --pp says how many", *request.step.order));
  }
  const auto note = [&](bool was_given, std::string_view what, std::string value) {
    job.resolved[std::string(what)] = value;
    if (!was_given) {
      job.assumptions.push_back(
          {.what = std::string(what), .value = std::move(value), .source = "default"});
    }
  };
  note(given.strategy.has_value(), "strategy", attention.strategy);
  note(given.layout.has_value(), "layout", std::string(to_string(attention.layout)));
  note(given.order.has_value(), "order", to_string(attention.order));
  note(given.heads.has_value(), "heads_policy", std::string(to_string(attention.heads)));
  note(given.rank_order.has_value(), "rank_order", std::string(to_string(attention.rank_order)));
  StepChoices& step = request.step;
  if (request.phase == StepPhase::train) {
    note(step.zero.has_value(), "zero", fmt::format("{}", plan.zero));
    note(step.recompute.has_value(), "recompute", std::string(to_string(plan.recompute.kind)));
    step.zero = plan.zero;
    step.recompute = plan.recompute.kind;
    job.resolved["zero"] = plan.zero;
    if (plan.zero >= 2 && plan.pipeline > 1) {
      job.assumptions.push_back(
          {.what = "zero.pipeline",
           .value = fmt::format(
               "stage {} saves no more than stage 1: over a step's micro-batches a "
               "stage keeps {} whole",
               plan.zero, plan.zero == 3 ? "weights and sums of gradients" : "sums of gradients"),
           .source = "torchtitan parallelizes its stages so (reshard_after_forward is off under a "
                     "pipeline); DeepSpeed has no stages with ZeRO 2 or 3"});
    }
  }
  job.resolved["ulysses"] = attention.ulysses;
  job.resolved["ring"] = attention.ring;
  for (const Parameter* parameter : strategies::parameters()) {
    job.resolved[std::string(parameter->name)] = attention.own[*parameter];
  }
  job.resolved["tp"] = plan.tensor;
  job.resolved["dp"] = plan.dp();
  job.resolved["cfg"] = plan.guided ? Json(plan.cfg()) : Json();
  job.resolved["pp"] = plan.pipeline;
  job.resolved["ep"] = plan.expert;
  job.resolved["etp"] = plan.expert_tensor;
  job.resolved["dispatcher"] = dispatcher_json(plan);
  job.resolved["virtual_stages"] = plan.virtual_stages;
  job.resolved["pipeline"] = plan.pipeline > 1 ? Json(plan.order) : Json();
  job.resolved["batch"] =
      request.phase == StepPhase::train ? plan.micro_batch : request.problem.batch;
  return plan;
}

}  // namespace

StepPlan read_plan(Job& job) {
  return naming_origins(job.origins, [&] { return legal_plan(job); });
}

}  // namespace spp::cli
