#include "runtime/kernels/cudnn/sdpa.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#if defined(SPP_CUDNN)
#include "runtime/kernels/cudnn/device_properties.hpp"
#include "runtime/kernels/cudnn/sdpa_graph.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#endif

namespace spp::runtime {

std::string_view to_string(SdpaMask mask) {
  switch (mask) {
    case SdpaMask::none:
      return "none";
    case SdpaMask::top_left:
      return "top-left";
    case SdpaMask::bottom_right:
      return "bottom-right";
  }
  throw InternalError("unknown mask");
}

std::string to_string(const SdpaShape& shape) {
  return fmt::format("{}x{} batch={} heads={}/{}x{} {} {}", shape.q_rows, shape.k_rows, shape.batch,
                     shape.q_heads, shape.kv_heads, shape.head_dim, to_string(shape.mask),
                     to_string(shape.dtype));
}

std::string why_not(const SdpaShape& shape) {
  if (shape.dtype == DType::fp32) {
    return "cuDNN's attention takes bf16 and fp16, not fp32";
  }
  if (shape.head_dim % 8 != 0 || shape.head_dim < 8 || shape.head_dim > 256) {
    return fmt::format("cuDNN's attention takes head dimensions 8 to 256, multiples of 8, not {}",
                       shape.head_dim);
  }
  if (shape.kv_heads < 1 || shape.q_heads % shape.kv_heads != 0) {
    return fmt::format("{} query heads are no multiple of {} KV heads", shape.q_heads,
                       shape.kv_heads);
  }
  if (shape.batch < 1 || shape.q_rows < 1 || shape.k_rows < 1) {
    return "a call without rows";
  }
  if (shape.mask == SdpaMask::bottom_right && shape.q_rows > shape.k_rows) {
    return fmt::format("bottom-right masks need at least as many keys ({}) as queries ({})",
                       shape.k_rows, shape.q_rows);
  }
  return "";
}

#if defined(SPP_CUDNN)

namespace {

using cudnn::Descriptor;
using cudnn::Graph;
using cudnn::Target;
using cudnn::VariantPack;
namespace uid = cudnn::uid;

/// Sizes start at multiples of this, as cudaMalloc's do.
constexpr std::int64_t alignment = 256;
std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Workspace of a call: row_sum, d_q_sum, then the plan's own.
struct Workspace {
  std::int64_t row_sum = 0, d_q_sum = 0, plan = 0;  // bytes
  [[nodiscard]] Bytes bytes() const { return Bytes(aligned(row_sum) + aligned(d_q_sum) + plan); }
};

Workspace workspace_for(const SdpaShape& shape, Phase phase, const SdpaOptions& options) {
  if (phase == Phase::forward) {
    return {};
  }
  const std::int64_t rows = shape.batch * shape.q_heads * shape.q_rows;
  return {.row_sum = 4 * rows, .d_q_sum = options.deterministic ? 0 : 4 * rows * shape.head_dim};
}

Graph graph_of(const SdpaShape& shape, Phase phase, const SdpaOptions& options) {
  if (const std::string why = why_not(shape); !why.empty()) {
    throw BackendError("cuDNN attention", fmt::format("{}: {}", to_string(shape), why), -1);
  }
  return phase == Phase::forward ? cudnn::forward_graph(shape)
                                 : cudnn::backward_graph(shape, options);
}

struct Plan {
  Graph graph;  // kept, with `config`: cuDNN does not say what a plan still refers to
  Descriptor config;
  Descriptor compiled;
  Workspace workspace;
};

/// The first of the configurations that compiles.
Plan first_plan(Graph graph, std::vector<Descriptor> configs, const SdpaShape& shape, Phase phase,
                const SdpaOptions& options, const Target& target) {
  std::string last = "its heuristics know no engine";
  for (Descriptor& config : configs) {
    try {
      Descriptor compiled = cudnn::make_plan(config, target);
      Workspace workspace = workspace_for(shape, phase, options);
      workspace.plan = cudnn::workspace_of(compiled);
      return {.graph = std::move(graph),
              .config = std::move(config),
              .compiled = std::move(compiled),
              .workspace = workspace};
    } catch (const BackendError& e) {
      last = e.what();
    }
  }
  throw BackendError("cuDNN attention",
                     fmt::format("no {} plan for {}: {}", to_string(phase), to_string(shape), last),
                     -1);
}

struct Handle {
  cudnnHandle_t raw = nullptr;
  Handle() { cudnn::check(cudnnCreate(&raw), "cudnnCreate"); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cudnnDestroy(raw); }
};

class CudnnSdpa final : public Sdpa {
 public:
  explicit CudnnSdpa(const SdpaOptions& options) : options_(options) {
    if (options.sms > 0) {
      part_ =
          cudnn::device_properties(with_sms(cudnn::device_properties_of(handle_.raw), options.sms));
    }
  }

  Bytes workspace(const SdpaShape& shape, Phase phase) override {
    return plan(shape, phase).workspace.bytes();
  }

  void forward(const SdpaShape& shape, const SdpaForward& t, std::byte* workspace,
               CudaStream stream) override {
    const Plan& p = plan(shape, Phase::forward);
    const Numbers numbers(shape);
    VariantPack pack = numbers.pack();
    pack.add(uid::q, t.q);
    pack.add(uid::k, t.k);
    pack.add(uid::v, t.v);
    pack.add(uid::out, t.out);
    pack.add(uid::lse, t.lse);
    execute(p, pack, workspace, stream);
  }

  void backward(const SdpaShape& shape, const SdpaBackward& t, std::byte* workspace,
                CudaStream stream) override {
    const Plan& p = plan(shape, Phase::backward);
    const Numbers numbers(shape);
    VariantPack pack = numbers.pack();
    pack.add(uid::dropout, &numbers.one);
    if (options_.delta == SdpaDelta::from_out) {
      pack.add(uid::out, t.out);
    } else {
      pack.add(uid::delta, t.delta);
      pack.add(uid::one, &numbers.one);
    }
    pack.add(uid::q, t.q);
    pack.add(uid::k, t.k);
    pack.add(uid::v, t.v);
    pack.add(uid::d_out, t.d_out);
    pack.add(uid::lse, t.lse);
    pack.add(uid::d_q, t.d_q);
    pack.add(uid::d_k, t.d_k);
    pack.add(uid::d_v, t.d_v);
    pack.add(uid::row_sum, workspace);
    workspace += aligned(p.workspace.row_sum);
    if (p.workspace.d_q_sum > 0) {
      pack.add(uid::d_q_sum, workspace);
      workspace += aligned(p.workspace.d_q_sum);
    }
    execute(p, pack, workspace, stream);
  }

 private:
  /// Numbers that plans read from the host.
  struct Numbers {
    explicit Numbers(const SdpaShape& shape)
        : mask(shape.mask),
          scale(static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)))),
          diagonal(static_cast<std::int32_t>(shape.k_rows - shape.q_rows)) {}
    [[nodiscard]] VariantPack pack() const {
      VariantPack pack;
      pack.add(uid::scale, &scale);
      if (mask != SdpaMask::none) {
        pack.add(uid::minus_infinity, &minus_infinity);
      }
      if (mask == SdpaMask::bottom_right) {
        pack.add(uid::diagonal, &diagonal);
      }
      return pack;
    }
    SdpaMask mask;
    float scale;
    float one = 1;
    float minus_infinity = -std::numeric_limits<float>::infinity();
    std::int32_t diagonal;
  };

  const Plan& plan(const SdpaShape& shape, Phase phase) {
    const auto key = std::pair(shape, phase);
    const auto found = plans_.find(key);
    if (found != plans_.end()) {
      return found->second;
    }
    Graph graph = graph_of(shape, phase, options_);
    const Target target{.handle = handle_.raw, .properties = part_ ? &*part_ : nullptr};
    std::vector<Descriptor> configs = cudnn::engine_configs(graph.finalize(target), target);
    return plans_
        .emplace(key,
                 first_plan(std::move(graph), std::move(configs), shape, phase, options_, target))
        .first->second;
  }

  void execute(const Plan& p, const VariantPack& pack, std::byte* workspace, CudaStream stream) {
    cudnn::check(cudnnSetStream(handle_.raw, stream), "cudnnSetStream");
    pack.execute(handle_.raw, p.compiled, workspace);
  }

  SdpaOptions options_;
  Handle handle_;
  std::optional<Descriptor> part_;  // properties of the part of the device that plans are for
  std::map<std::pair<SdpaShape, Phase>, Plan> plans_;
};

}  // namespace

std::unique_ptr<Sdpa> make_sdpa(const SdpaOptions& options) {
  return std::make_unique<CudnnSdpa>(options);
}

std::string sdpa_why_not() { return ""; }
std::string sdpa_version() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

SdpaSupport sdpa_support(const SdpaShape& shape, Phase phase, std::string_view device_json,
                         SdpaDepth depth, const SdpaOptions& options) {
  const Descriptor properties = cudnn::device_properties(
      options.sms > 0 ? with_sms(device_json, options.sms) : std::string(device_json));
  const Target target{.properties = &properties};
  Graph graph = graph_of(shape, phase, options);
  std::vector<Descriptor> configs = cudnn::engine_configs(graph.finalize(target), target);
  SdpaSupport support{.operations = static_cast<int>(graph.operations())};
  for (const Descriptor& config : configs) {
    support.engines.push_back(cudnn::engine_of(config));
  }
  if (depth == SdpaDepth::plan) {
    const Plan plan =
        first_plan(std::move(graph), std::move(configs), shape, phase, options, target);
    support.engine = cudnn::engine_of(plan.config);
    support.workspace = plan.workspace.bytes();
  }
  return support;
}

#else

std::string sdpa_why_not() { return "not compiled in: cuDNN was not found"; }
std::string sdpa_version() { return ""; }

std::unique_ptr<Sdpa> make_sdpa(const SdpaOptions&) {
  throw BackendError("cudnnCreate", sdpa_why_not(), -1);
}

SdpaSupport sdpa_support(const SdpaShape&, Phase, std::string_view, SdpaDepth, const SdpaOptions&) {
  throw BackendError("cudnnBackendFinalize", sdpa_why_not(), -1);
}

#endif

}  // namespace spp::runtime
