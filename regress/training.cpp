#include "regress/training.hpp"

#include "base/error.hpp"
#include "planner/step.hpp"
#include "regress/point_model.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace spp::regress {
namespace {

/// Why a training step cannot be predicted; "" if it can.
std::string why_not_training(const Point& p) {
  if (p.phase != "train") {
    return fmt::format("a whole model's {} is not modelled", p.phase.empty() ? "call" : p.phase);
  }
  if (p.beyond) {
    return "not a plan of Ulysses x ring (beyond)";
  }
  if (!p.seq || (!p.batch && p.metric == Metric::time)) {
    return "length or batch are not stated";
  }
  if ((!p.ulysses || !p.ring) && !p.cp && p.world != p.tp * p.pp * p.dp) {
    return "degrees of Ulysses and ring are not stated";
  }
  if (p.cfg * p.pipefusion != 1) {
    return "guidance and PipeFusion are not modelled";
  }
  if (!p.layers || !p.hidden || !p.q_heads || !p.head_dim) {
    return "the model's layers or widths are not stated";
  }
  if (p.ring_kind == RingKind::pass_q) {
    return "pass-Q is not modelled";
  }
  if (contains(p.features, "weights offload") || contains(p.features, "parameter offload")) {
    return "weights in the host's memory (parameter offload) are not modelled";
  }
  if (contains(p.model, "lora")) {
    return "adapters (LoRA) are not modelled";
  }
  return "";
}

/// "selective: moe_act, layernorm": modules by Megatron-Core's names (transformer_config.py).
ModuleSet named_modules(std::string_view said) {
  struct Named {
    std::string_view name;
    RecomputeModule module;
  };
  constexpr std::array known{Named{"core_attn", RecomputeModule::core_attention},
                             Named{"layernorm", RecomputeModule::norms},
                             Named{"moe_act", RecomputeModule::activation},
                             Named{"mlp", RecomputeModule::mlp},
                             Named{"moe", RecomputeModule::moe},
                             Named{"mla_up_proj", RecomputeModule::mla_up},
                             Named{"shared_experts", RecomputeModule::shared_experts}};
  ModuleSet modules;
  const std::size_t colon = said.find(':');
  std::string_view rest = colon == std::string_view::npos ? "" : said.substr(colon + 1);
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" ,"), rest.size()));
    const std::string_view word = rest.substr(0, rest.find_first_of(" ,"));
    const auto named = std::ranges::find(known, word, &Named::name);
    if (named != known.end()) {
      modules.insert(named->module);
    }
    rest.remove_prefix(word.size());
  }
  return modules;
}

class PointReader {
 public:
  PointReader(const Point& point, const Request& request)
      : p_(point), request_(request), practice_(practice_of(request)) {}

  TrainingPoint read() {
    result_.refused = why_not_training(p_);
    if (result_.refused.empty()) {
      result_.model = stated_model(p_, request_.problem.mask, result_.assumed);
      plan();
      recompute();
    }
    return std::move(result_);
  }

 private:
  void assume(std::string what, std::string value) {
    result_.assumed.push_back(
        {.what = std::move(what), .value = std::move(value), .source = "default"});
  }

  void plan() {
    StepPlan& plan = result_.plan;
    plan.tensor = p_.tp;
    plan.pipeline = p_.pp;
    plan.data = p_.dp;
    plan.expert = p_.ep.value_or(1);
    plan.expert_tensor = p_.etp.value_or(1);
    plan.to_experts = contains(p_.dispatcher, "allgather") ? Dispatcher::all_gather
                                                           : dispatchers_of(request_).front();
    const bool said = contains(p_.features, "sequence parallelism");
    plan.tensor_sequence =
        p_.tp_sequence_parallel.value_or(said ? !contains(p_.features, "no sequence parallelism")
                                              : practice_.tensor_sequence.value > 0);
    zero();
    plan.zero_group = p_.zero_group.value_or(0);
    batches(plan);
    virtual_stages(plan);
    plan.format = format();
    plan.offload = offload();
    plan.offloaded = p_.offloaded;
    if (p_.packs()) {
      assume("documents", "one in a sequence");
    }
  }

  /// What the key says, else the source's words, else what the stack does.
  Offload offload() {
    if (p_.offload) {
      return *p_.offload;
    }
    if (contains(p_.features, "ALST")) {
      return Offload::all;
    }
    if (contains(p_.features, "optimizer offload")) {
      return Offload::optimizer;
    }
    if (contains(p_.features, "offload") || contains(p_.system, "offload")) {
      return Offload::activations;
    }
    if (!practice_.offload.empty()) {
      assume("offload", fmt::format("{}, the stack's default", practice_.offload));
      return parse_offload(practice_.offload, "stack");
    }
    return Offload::none;
  }

  /// Stage 1, as Megatron's distributed optimizer; who cannot hold weights whole shards them.
  void zero() {
    if (!p_.zero && practice_.zero) {
      result_.zero = {*practice_.zero};
      assume("zero", fmt::format("{}, the stack's default", *practice_.zero));
      return;
    }
    result_.zero = {p_.zero.value_or(p_.dp > 1 ? 1 : 0)};
    const bool replicated =
        p_.dp > 1 || p_.ulysses.value_or(1) * p_.ring.value_or(1) > 1 || p_.cp.value_or(1) > 1;
    if (!p_.zero && replicated) {
      result_.zero.push_back(3);
      assume("zero", fmt::format("{}, or 3 where that does not fit", result_.zero.front()));
    }
  }

  /// A micro-batch that is not stated: one long sequence, or a few short ones.
  void batches(StepPlan& plan) {
    constexpr std::int64_t enough = 4;  // micro-batches a stage: a bubble of a fifth
    const std::int64_t usual = p_.pp > 1 ? enough * p_.pp : 1;
    const std::int64_t replica = p_.batch ? std::max<std::int64_t>(1, *p_.batch / p_.dp)
                                          : usual * p_.micro_batch.value_or(1);
    if (!p_.batch) {
      assume("batch", fmt::format("{} a replica", replica));
    }
    constexpr std::int64_t is_long = 8192;
    constexpr std::int64_t few = 4;
    const std::int64_t parts = p_.grad_accum.value_or(p_.pp > 1 ? by_stages() : 0);
    plan.micro_batch =
        p_.micro_batch.value_or(parts > 0 ? std::max<std::int64_t>(1, replica / parts)
                                : *p_.seq >= is_long || p_.pp > 1 ? 1
                                                                  : std::min(few, replica));
    plan.micro_batches = std::max<std::int64_t>(1, replica / plan.micro_batch);
    if (!p_.micro_batch && !p_.grad_accum) {
      assume("micro_batch", fmt::format("{}", plan.micro_batch));
    }
  }

  /// Micro-batches that the stack cuts a batch into by the number of stages; 0: it does not.
  [[nodiscard]] std::int64_t by_stages() const {
    return static_cast<std::int64_t>(practice_.stage_micro_batches.value) * p_.pp *
           std::max(1, stated_virtual_stages());
  }
  /// 0: the source leaves them open.
  [[nodiscard]] int stated_virtual_stages() const {
    const bool interleaved = p_.pp > 1 && contains(p_.schedule, "interleaved");
    return p_.vp.value_or(interleaved ? static_cast<int>(practice_.virtual_stages.value) : 0);
  }

  /// Whoever runs deep pipelines interleaves them; how finely, sources often leave out: a layer
  /// each.
  void virtual_stages(StepPlan& plan) {
    const std::int64_t layers = result_.model.layers;
    const bool could = plan.pipeline > 2 && layers % plan.pipeline == 0 && layers > plan.pipeline &&
                       plan.micro_batches % plan.pipeline == 0;
    const int stated = stated_virtual_stages();
    plan.virtual_stages = stated > 0 ? stated
                          : could && practice_.interleaves.value > 0
                              ? static_cast<int>(layers / plan.pipeline)
                              : 1;
    plan.order = pipelines::usual(plan.virtual_stages).name;
    if (!p_.vp && plan.virtual_stages > 1) {
      assume("vp", stated > 0 ? fmt::format("{}, the stack's default", stated)
                              : "one layer a virtual stage");
    }
  }

  GemmFormat format() const {
    const std::string_view dtype = p_.dtype;
    // A scale a row: what is quantised along both axes, and slower kernels, take the gain (torchao
    // float8/README.md: a tenth where one scale a tensor gains a quarter).
    return contains(dtype, "rowwise") ? GemmFormat::plain
           : contains(dtype, "mxfp8") ? GemmFormat::mxfp8
           : contains(dtype, "nvfp4") ? GemmFormat::nvfp4
           : contains(dtype, "fp8")   ? GemmFormat::fp8
                                      : GemmFormat::plain;
  }

  void recompute() {
    const std::string_view said = !p_.ac.empty() ? p_.ac : p_.recompute;
    const auto of = [](Recompute kind) { return Recomputation{.kind = kind}; };
    const Recomputation selective = practice_.selective.empty()
                                        ? of(Recompute::selective)
                                        : parse_recomputation(joined(practice_.selective), "stack");
    const bool named = contains(p_.system, "activation checkpoint") || contains(p_.system, "AC +");
    if (said.empty() && named) {
      result_.recompute = {of(Recompute::full)};
    } else if (said == "none") {
      result_.recompute = {of(Recompute::none)};
    } else if (const ModuleSet modules = named_modules(said); !modules.empty()) {
      result_.recompute = {{.kind = Recompute::selective, .modules = modules}};
    } else if (said.starts_with("selective")) {
      result_.recompute = {selective};
    } else if (said.starts_with("full")) {
      result_.recompute = {of(Recompute::full)};
    } else if (practice_.recompute == "full" || practice_.recompute == "none") {
      result_.recompute = {of(practice_.recompute == "full" ? Recompute::full : Recompute::none)};
      assume("recompute", fmt::format("{}, the stack's default", practice_.recompute));
    } else {
      result_.recompute = {of(Recompute::none), selective, of(Recompute::full)};
      // Performance recipes tune it: Megatron-Core transformer_config.py, recompute_method block.
      result_.by_layers =
          request_.stack != nullptr && request_.stack->framework == "megatron-bridge";
      assume("recompute", result_.by_layers ? "of as few layers as fit" : "the least that fits");
    }
  }

  static std::string joined(const std::vector<std::string>& modules) {
    std::string text = "selective:";
    for (const std::string& module : modules) {
      text += (text.back() == ':' ? "" : ",") + module;
    }
    return text;
  }

  const Point& p_;
  const Request& request_;
  const StepPractice& practice_;
  TrainingPoint result_;
};

}  // namespace

TrainingPoint training_point(const Point& point, const Request& request) {
  return PointReader(point, request).read();
}

}  // namespace spp::regress
