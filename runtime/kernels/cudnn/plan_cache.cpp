#include "runtime/kernels/cudnn/plan_cache.hpp"

#if defined(SPP_CUDNN)

#include "runtime/kernels/cudnn/sdpa_graph.hpp"
#include "runtime/kernels/cudnn/versions.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace spp::runtime::cudnn {
namespace {

[[noreturn]] void refuse(const SdpaShape& shape, Phase phase, std::string_view why) {
  throw BackendError("cuDNN attention",
                     fmt::format("no {} plan for {}: {}", to_string(phase), to_string(shape), why),
                     -1);
}

Graph graph_of(const SdpaShape& shape, Phase phase, const PlanOptions& options) {
  if (const std::string why = why_not(shape); !why.empty()) {
    refuse(shape, phase, why);
  }
  if (const std::string why = version_why_not(cudnnGetVersion(), shape, phase); !why.empty()) {
    refuse(shape, phase, why);
  }
  return phase == Phase::forward ? forward_graph(shape)
                                 : backward_graph(shape, {.deterministic = options.deterministic,
                                                          .delta = options.delta});
}

Workspace workspace_for(const SdpaShape& shape, Phase phase, const PlanOptions& options) {
  if (phase == Phase::forward) {
    return {};
  }
  const std::int64_t rows = shape.batch * shape.q_heads * shape.q_rows;
  return {.row_sum = 4 * rows, .d_q_sum = options.deterministic ? 0 : 4 * rows * shape.head_dim};
}

/// Numbers of SMs to ask heuristics for, one after the other; 0: the whole device.
std::vector<int> attempts(int sms) {
  return sms > 0 ? std::vector<int>{sms, 0} : std::vector<int>{0};
}

/// An engine that does not know the target refuses; so the answer is none.
std::vector<Descriptor> configs_for(const Descriptor& graph, const Target& target, int sms) {
  try {
    return engine_configs(graph, target, sms);
  } catch (const BackendError&) {
    if (sms == 0) {
      throw;
    }
    return {};
  }
}

}  // namespace

std::int64_t aligned(std::int64_t bytes) {
  constexpr std::int64_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

Bytes Workspace::bytes() const { return Bytes(aligned(row_sum) + aligned(d_q_sum) + plan); }

Proposal propose(const SdpaShape& shape, Phase phase, const PlanOptions& options,
                 const Target& target) {
  Proposal proposal{.graph = graph_of(shape, phase, options), .configs = {}};
  const Descriptor& graph = proposal.graph.finalize(target);
  for (const int sms : attempts(options.sms)) {
    proposal.sms = sms;
    proposal.configs = configs_for(graph, target, sms);
    if (!proposal.configs.empty()) {
      break;
    }
  }
  return proposal;
}

Plan compile(const SdpaShape& shape, Phase phase, const PlanOptions& options,
             const Target& target) {
  Graph graph = graph_of(shape, phase, options);
  const Descriptor& finalized = graph.finalize(target);
  std::string last = "its heuristics know no engine";
  for (const int sms : attempts(options.sms)) {
    for (Descriptor& config : configs_for(finalized, target, sms)) {
      try {
        Descriptor compiled = make_plan(config, target);
        Workspace workspace = workspace_for(shape, phase, options);
        workspace.plan = workspace_of(compiled);
        return {.graph = std::move(graph),
                .config = std::move(config),
                .compiled = std::move(compiled),
                .workspace = workspace,
                .sms = sms};
      } catch (const BackendError& e) {
        last = e.what();
      }
    }
  }
  refuse(shape, phase, last);
}

PlanCache::Entry& PlanCache::find(int device, const SdpaShape& shape, Phase phase,
                                  const PlanOptions& options) {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<Entry>& entry =
      plans_[{.device = device, .shape = shape, .phase = phase, .options = options}];
  if (entry == nullptr) {
    std::unique_ptr<Handle>& handle = handles_[device];
    if (handle == nullptr) {
      handle = std::make_unique<Handle>();
    }
    const auto begin = std::chrono::steady_clock::now();
    entry = std::make_unique<Entry>(compile(shape, phase, options, {.handle = handle->raw()}));
    compiling_ += std::chrono::steady_clock::now() - begin;
  }
  return *entry;
}

SdpaPlans PlanCache::plans() const {
  const std::scoped_lock lock(mutex_);
  const auto compiled = std::ranges::count_if(
      plans_, [](const auto& keyed) { return keyed.second != nullptr; });  // null: cuDNN could not
  return {.compiled = static_cast<int>(compiled), .compiling = compiling_};
}

PlanCache& plans_of_process() {
  // Never destroyed: when static objects are, cuDNN and the driver may be gone.
  static auto* const cache = new PlanCache;
  return *cache;
}

}  // namespace spp::runtime::cudnn

#endif
