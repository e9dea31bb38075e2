#include "runtime/kernels/cudnn/sdpa.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#if defined(SPP_CUDNN)
#include "runtime/kernels/cudnn/plan_cache.hpp"
#include "runtime/kernels/cudnn/sdpa_graph.hpp"
#include "runtime/kernels/cudnn/versions.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
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
  const std::string dims = shape.v_dim() == shape.head_dim
                               ? fmt::format("{}", shape.head_dim)
                               : fmt::format("{}:{}", shape.head_dim, shape.v_dim());
  return fmt::format("{}x{} batch={} heads={}/{}x{} {} {}", shape.q_rows, shape.k_rows, shape.batch,
                     shape.q_heads, shape.kv_heads, dims, to_string(shape.mask),
                     to_string(shape.dtype));
}

std::string why_not(const SdpaShape& shape) {
  if (shape.dtype == DType::fp32) {
    return "cuDNN's attention takes bf16 and fp16, not fp32";
  }
  for (const int dim : {shape.head_dim, shape.v_dim()}) {
    if (dim % 8 != 0 || dim < 8 || dim > 256) {
      return fmt::format("cuDNN's attention takes head dimensions 8 to 256, multiples of 8, not {}",
                         dim);
    }
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

using cudnn::VariantPack;
namespace uid = cudnn::uid;

cudnn::PlanOptions plan_options(const SdpaOptions& options) {
  return {.deterministic = options.deterministic, .delta = options.delta, .sms = options.sms};
}

class CudnnSdpa final : public Sdpa {
 public:
  explicit CudnnSdpa(SdpaOptions options) : options_(std::move(options)) {
    try {
      make_handle();
    } catch (const BackendError& refused) {
      take_detour(refused);
    }
  }
  CudnnSdpa(const CudnnSdpa&) = delete;
  CudnnSdpa& operator=(const CudnnSdpa&) = delete;
  ~CudnnSdpa() override {
    try {
      const std::shared_ptr<const void> context = entered();
      handle_.reset();
    } catch (const BackendError&) {  // of a context that is gone with all that it held
      [[maybe_unused]] const auto left = handle_.release();
    }
  }

  Bytes workspace(const SdpaShape& shape, Phase phase) override {
    return entry(shape, phase).plan.workspace.bytes();
  }

  void forward(const SdpaShape& shape, const SdpaForward& t, std::byte* workspace,
               CudaStream stream) override {
    cudnn::PlanCache::Entry& e = entry(shape, Phase::forward);
    const Numbers numbers(shape);
    VariantPack pack = numbers.pack();
    pack.add(uid::q, t.q);
    pack.add(uid::k, t.k);
    pack.add(uid::v, t.v);
    pack.add(uid::out, t.out);
    pack.add(uid::lse, t.lse);
    execute(e, pack, workspace, stream);
  }

  void backward(const SdpaShape& shape, const SdpaBackward& t, std::byte* workspace,
                CudaStream stream) override {
    cudnn::PlanCache::Entry& e = entry(shape, Phase::backward);
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
    workspace += cudnn::aligned(e.plan.workspace.row_sum);
    if (e.plan.workspace.d_q_sum > 0) {
      pack.add(uid::d_q_sum, workspace);
      workspace += cudnn::aligned(e.plan.workspace.d_q_sum);
    }
    execute(e, pack, workspace, stream);
  }

  [[nodiscard]] std::set<int> plan_sms() const override {
    std::set<int> sms;
    for (const auto& [call, e] : used_) {
      sms.insert(e->plan.sms);
    }
    return sms;
  }
  [[nodiscard]] std::string refusal() const override { return refusal_; }

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

  cudnn::PlanCache::Entry& entry(const SdpaShape& shape, Phase phase) {
    const auto known = used_.find({shape, phase});
    if (known != used_.end()) {
      return *known->second;
    }
    cudnn::PlanCache::Entry& found =
        cudnn::plans_of_process().find(options_.device, shape, phase, plan_options(options_));
    used_.emplace(std::pair(shape, phase), &found);
    return found;
  }

  [[nodiscard]] std::shared_ptr<const void> entered() const {
    return options_.enter && refusal_.empty() ? options_.enter() : nullptr;
  }
  void make_handle() {
    const std::shared_ptr<const void> context = entered();
    handle_ = std::make_unique<cudnn::Handle>();
  }

  /// From now on, in the device's primary context. To be called where `refused` is caught: it goes
  /// on where there is no detour.
  void take_detour(const BackendError& refused) {
    if (!options_.detour || !refusal_.empty()) {
      throw;
    }
    {
      const std::shared_ptr<const void> context = entered();
      handle_.reset();
    }
    refusal_ = refused.what();
    make_handle();
  }

  void execute(cudnn::PlanCache::Entry& e, const VariantPack& pack, std::byte* workspace,
               CudaStream stream) {
    if (refusal_.empty()) {
      try {
        enqueue(e, pack, workspace, stream);
        return;
      } catch (const BackendError& refused) {
        take_detour(refused);
      }
    }
    options_.detour(stream, [&](CudaStream own) { enqueue(e, pack, workspace, own); });
  }

  void enqueue(cudnn::PlanCache::Entry& e, const VariantPack& pack, std::byte* workspace,
               CudaStream stream) {
    const std::shared_ptr<const void> context = entered();
    cudnn::check(cudnnSetStream(handle_->raw(), stream), "cudnnSetStream");
    const std::scoped_lock lock(e.executing);
    pack.execute(handle_->raw(), e.plan.compiled, workspace);
  }

  SdpaOptions options_;
  std::string refusal_;                    // "" until cuDNN refuses the streams' context
  std::unique_ptr<cudnn::Handle> handle_;  // made and destroyed in entered()
  std::map<std::pair<SdpaShape, Phase>, cudnn::PlanCache::Entry*> used_;
};

}  // namespace

std::unique_ptr<Sdpa> make_sdpa(const SdpaOptions& options) {
  return std::make_unique<CudnnSdpa>(options);
}

std::string sdpa_why_not() { return cudnn::version_why_not(cudnnGetVersion()); }
std::string sdpa_why_not(const SdpaShape& shape, Phase phase) {
  return cudnn::version_why_not(cudnnGetVersion(), shape, phase);
}
std::string sdpa_version() { return cudnn::version_text(cudnnGetVersion()); }
SdpaPlans sdpa_plans() { return cudnn::plans_of_process().plans(); }

SdpaSupport sdpa_support(const SdpaShape& shape, Phase phase, std::string_view device_json,
                         SdpaDepth depth, const SdpaOptions& options) {
  const cudnn::Descriptor properties = cudnn::device_properties(device_json);
  const cudnn::Target target{.properties = &properties};
  const cudnn::Proposal proposal = cudnn::propose(shape, phase, plan_options(options), target);
  SdpaSupport support{.engines = {},
                      .operations = static_cast<int>(proposal.graph.operations()),
                      .sms = proposal.sms};
  for (const cudnn::Descriptor& config : proposal.configs) {
    support.engines.push_back(cudnn::engine_of(config));
  }
  if (depth == SdpaDepth::plan) {
    const cudnn::Plan plan = cudnn::compile(shape, phase, plan_options(options), target);
    support.engine = cudnn::engine_of(plan.config);
    support.workspace = plan.workspace.bytes();
    support.sms = plan.sms;
  }
  return support;
}

#else

std::string sdpa_why_not() { return "not compiled in: cuDNN was not found"; }
std::string sdpa_why_not(const SdpaShape&, Phase) { return sdpa_why_not(); }
std::string sdpa_version() { return ""; }
SdpaPlans sdpa_plans() { return {}; }

std::unique_ptr<Sdpa> make_sdpa(const SdpaOptions&) {
  throw BackendError("cudnnCreate", sdpa_why_not(), -1);
}

SdpaSupport sdpa_support(const SdpaShape&, Phase, std::string_view, SdpaDepth, const SdpaOptions&) {
  throw BackendError("cudnnBackendFinalize", sdpa_why_not(), -1);
}

#endif

}  // namespace spp::runtime
