// Plans of whole steps by their choices: defaults, names, groups of ranks.
#include "base/error.hpp"
#include "parallel/attention/attention_mesh.hpp"
#include "planner/framework.hpp"
#include "planner/step.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace spp {

StepPlan bare_step(const Request& request, const SequencePlan& plan) {
  return {.attention = plan, .micro_batch = request.problem.batch};
}

namespace {

bool prompts_pass_stages(const Request& request, int pipeline) {
  return request.phase != StepPhase::train && request.model->kind == ModelKind::llm && pipeline > 1;
}

}  // namespace

std::int64_t prompts_at_once(const Request& request, int pipeline) {
  const std::int64_t all = request.step.micro_batch.value_or(1);
  if (!prompts_pass_stages(request, pipeline)) {
    return all;
  }
  if (request.step.prompts) {
    return *request.step.prompts;
  }
  constexpr std::int64_t budget = 8192;  // tokens
  std::int64_t prompts = std::clamp<std::int64_t>(budget / request.problem.seq, 1, all);
  while (all % prompts != 0) {
    --prompts;
  }
  return prompts;
}

namespace {

/// Who runs the plan: whose plans are asked for, or whose stack it is; nullptr: nobody is known.
const Framework* runs(const Request& request) {
  if (request.framework != nullptr || request.stack == nullptr ||
      request.stack->framework.empty()) {
    return request.framework;
  }
  return &frameworks::by_name(request.stack->framework, "stack");
}

}  // namespace

std::vector<std::int64_t> prompts_at_once_to_try(const Request& request, int pipeline) {
  const std::int64_t most = prompts_at_once(request, pipeline);
  const std::int64_t all = request.step.micro_batch.value_or(1);
  std::vector<std::int64_t> sizes{most};
  const bool may =
      prompts_pass_stages(request, pipeline) && runs(request) == nullptr && !request.step.prompts;
  for (std::int64_t fewer = most - 1; may && fewer > 0; --fewer) {
    if (all % fewer == 0) {
      sizes.push_back(fewer);
    }
  }
  return sizes;
}

namespace {

/// Over how many ranks each expert is split that nobody said: frameworks that split experts over
/// ranks of their choice leave what its experts do not take.
int usual_expert_tensor(const Request& request, const StepPlan& plan) {
  const Framework* f = runs(request);
  if (f == nullptr || !request.model || request.model->experts.count == 0) {
    return 1;
  }
  const int sequence = request.gpus / (plan.tensor * plan.pipeline * plan.data);
  return f->axes.parts_of_expert(plan.expert, plan.tensor, sequence, plan.data).front();
}

/// Degrees around attention that are not given are 1, of experts' parts as the framework has them.
StepPlan around(const Request& request) {
  const StepChoices& given = request.step;
  StepPlan plan;
  plan.tensor = given.tensor.value_or(1);
  plan.tensor_sequence = practice_of(request).tensor_sequence.value > 0;
  plan.pipeline = given.pipeline.value_or(1);
  plan.data = given.data.value_or(1);
  plan.expert = given.expert.value_or(1);
  plan.expert_tensor = given.expert_tensor.value_or(usual_expert_tensor(request, plan));
  plan.to_experts = dispatchers_of(request).front();
  plan.virtual_stages = given.virtual_stages.value_or(1);
  plan.order = given.order.value_or(std::string(pipelines::usual(plan.virtual_stages).name));
  plan.guided = given.guidance != Guidance::none;
  plan.micro_batch =
      plan.guided ? given.guided_batch(plan.data) : prompts_at_once(request, plan.pipeline);
  const bool train = request.phase == StepPhase::train;
  plan.zero = given.zero.value_or(train ? 1 : 0);
  plan.zero_group = given.zero_group.value_or(0);
  plan.recompute = recomputation_of(request, given.recompute.value_or(Recompute::none));
  plan.offload = given.offload.value_or(Offload::none);
  plan.format = given.format;
  return plan;
}

}  // namespace

StepPlan default_step(const Request& request) {
  if (!request.whole_step()) {
    return bare_step(request, default_plan(request));
  }
  StepPlan plan = around(request);
  const std::int64_t others = std::int64_t{plan.tensor} * plan.pipeline * plan.data;
  if (request.gpus % others != 0) {
    throw InputError("--gpus",
                     fmt::format("{} GPUs are not a multiple of tp {} x pp {} x dp {} = {}",
                                 request.gpus, plan.tensor, plan.pipeline, plan.data, others));
  }
  if (const auto batch = request.step.global_batch) {
    if (*batch % (plan.data * plan.micro_batch) != 0) {
      throw InputError("--global-batch",
                       fmt::format("{} sequences are not a multiple of dp {} x micro-batch {}",
                                   *batch, plan.data, plan.micro_batch));
    }
    plan.micro_batches = *batch / (plan.data * plan.micro_batch);
  } else {
    plan.micro_batches = request.step.micro_batch.value_or(1) / plan.micro_batch;
  }
  Request call = request;
  call.problem = attention_problem(request, plan, request.problem);
  call.traits = traits_of(request);
  call.gpus = static_cast<int>(request.gpus / others);
  plan.attention = default_plan(call);
  if (plan.sequence() != call.gpus) {
    throw InputError(
        "--ulysses",
        fmt::format("tp {} x ulysses {} x ring {} x dp {} x pp {} = {}, but there are {} GPUs (see "
                    "--gpus)",
                    plan.tensor, plan.attention.ulysses, plan.attention.ring, plan.data,
                    plan.pipeline, plan.world(), request.gpus));
  }
  return plan;
}

std::string degrees_of(const StepPlan& plan) {
  std::vector<std::string> degrees;
  const auto add = [&](std::string_view name, int degree) {
    if (degree > 1) {
      degrees.push_back(fmt::format("{}{}", name, degree));
    }
  };
  add("TP", plan.tensor);
  if (plan.pipeline > 1) {
    degrees.push_back(plan.virtual_stages > 1
                          ? fmt::format("PP{}x{}", plan.pipeline, plan.virtual_stages)
                          : fmt::format("PP{}", plan.pipeline));
  }
  add(plan.guided ? "CFG" : "DP", plan.data);
  add("EP", plan.expert);
  add("ETP", plan.expert_tensor);
  return fmt::format("{}", fmt::join(degrees, " "));
}

std::string short_name(const StepPlan& plan) {
  const std::string degrees = degrees_of(plan);
  if (degrees.empty()) {
    return short_name(plan.attention);
  }
  return plan.sequence() > 1 ? fmt::format("{} {}", degrees, short_name(plan.attention)) : degrees;
}

std::vector<std::vector<int>> groups_of(const StepPlan& plan, std::string_view axis) {
  struct Shape {
    int stride = 1, size = 1;
  };
  const Shape shape = axis == "tp" ? Shape{.stride = 1, .size = plan.tensor}
                      : axis == "dp" || axis == "cfg"
                          ? Shape{.stride = plan.tensor * plan.sequence(),
                                  .size = axis == "dp" ? plan.dp() : plan.cfg()}
                      : axis == "pp" ? Shape{.stride = plan.stage_ranks(), .size = plan.pipeline}
                                     : Shape{.stride = plan.expert_tensor, .size = plan.expert};
  std::vector<std::vector<int>> groups;
  for (int first = 0; shape.size > 1 && first < plan.world(); ++first) {
    if (first / shape.stride % shape.size == 0) {
      std::vector<int>& members = groups.emplace_back();
      for (int i = 0; i < shape.size; ++i) {
        members.push_back(first + i * shape.stride);
      }
    }
  }
  return groups;
}

std::vector<std::vector<int>> groups_of(const StepPlan& plan, Axis axis) {
  std::vector<std::vector<int>> one = groups_of(plan.attention, axis);
  if (plan.world() == plan.sequence()) {
    return one;
  }
  std::vector<std::vector<int>> groups;
  const int block = plan.tensor * plan.sequence();
  for (int first = 0; first < plan.world(); first += block) {
    for (int t = 0; t < plan.tensor; ++t) {
      for (const std::vector<int>& group : one) {
        std::vector<int>& members = groups.emplace_back();
        for (const int rank : group) {
          members.push_back(first + t + plan.tensor * rank);
        }
      }
    }
  }
  return groups;
}

}  // namespace spp
