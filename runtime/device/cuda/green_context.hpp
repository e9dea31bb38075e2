// Green contexts: fixed shares of one GPU's SMs, so that several ranks live on one GPU as if each
// had a small GPU of its own (all share the L2 cache and the memory). Kernels of the primary
// context run on all SMs, also on those of green contexts: give every rank one.
//
// Source: cuda.h of CUDA 13.0, "Green Contexts". From compute capability 9.0 on, shares are
// multiples of 8 SMs; 132 SMs make 8 x 16, 4 x 32 or 2 x 64 with 4 left over. Disjoint shares are
// "not guaranteed to run concurrently": streams need hardware queues (CUDA_DEVICE_MAX_CONNECTIONS).
//
// Kernels of ours are launched with the primary context current, which the driver allows on streams
// of green contexts. Libraries may ask for the stream's own (StreamSource::enter): cuDNN does not
// take a stream of another context than its handle's (CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH).
//
// The driver is reached through the runtime, so nothing links against libcuda.
#pragma once

#include "runtime/device/cuda/cuda.hpp"

#include <memory>
#include <vector>

namespace spp::runtime::cuda {

/// What shares of a GPU's SMs must be: multiples of `granularity`, at least `least`.
struct ShareRules {
  int least = 1;
  int granularity = 1;
  friend bool operator==(const ShareRules&, const ShareRules&) = default;
};
/// By the major number of the compute capability, as cuda.h's guideline has it. The driver rounds
/// other numbers up, and shares that were rounded up may be fewer than were wanted.
ShareRules share_rules(int major);
/// The stricter of both in everything: a driver before CUDA 13 does not say and leaves zeros.
ShareRules stricter(const ShareRules& a, const ShareRules& b);

/// SMs that each of `ranks` equal shares of `total` SMs gets, the most that the rules allow; 0 if
/// they allow none.
int share_of(int total, int ranks, const ShareRules& rules);

/// A share of a GPU's SMs. Its streams must be gone before it.
class GreenContext final : public StreamSource {
 public:
  struct Handles;  // the driver's

  explicit GreenContext(std::unique_ptr<Handles> handles);
  ~GreenContext() override;
  [[nodiscard]] cudaStream_t make_stream(int priority) const override;
  [[nodiscard]] int multiprocessors() const override;
  [[nodiscard]] std::shared_ptr<const void> enter() const override;

 private:
  std::unique_ptr<Handles> handles_;
};

/// `ranks` equal, disjoint shares of `device`. BackendError if the driver cannot (too old, too few
/// SMs).
std::vector<std::unique_ptr<GreenContext>> split_device(int device, int ranks);

}  // namespace spp::runtime::cuda
