// Compiled plans of this process, shared by all ranks and engines: a plan takes about a second to
// compile (0.8 to 1.1 s of one core for cuDNN 9.19's plans for an H200, measured without the GPU;
// every run says what it took, sdpa_plans()), and ranks that share a GPU want the same ones at the
// same time.
//
// Plans are compiled over a handle of the cache's own, in the device's primary context, and live as
// long as the process does: cuDNN does not say what a plan still refers to. Whoever executes brings
// a handle of its own: "its functions can be called from multiple host threads, so long as the
// threads do not share the same cuDNN handle simultaneously" (cuDNN's developer guide, Thread
// Safety), and cudnnBackendExecute, like Graph::execute of cudnn-frontend, takes the handle beside
// the plan: a plan is one of a GPU ("an identical GPU", its notes on serialized plans), not of a
// handle. Plans themselves have "known thread-safety limitations" when threads share them (cuDNN's
// word in pytorch/pytorch pull request 103939, whose first remedy was a mutex), so ranks take turns
// with them (to enqueue, which takes microseconds). That a handle may be one of the context of a
// share of the device is an assumption; where cuDNN refuses it, SdpaOptions::detour brings the call
// to the primary context.
//
// SMs. A plan for part of a device (a green context) is asked for by heuristics' target count of
// SMs. cuDNN's documentation promises that for convolutions only; where it gives nothing that
// compiles, the plan is that of the whole device, which runs on any part of it, and says so.
#pragma once

#if defined(SPP_CUDNN)

#include "runtime/kernels/cudnn/backend.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace spp::runtime::cudnn {

/// A handle that owns itself; used by one thread at a time.
class Handle {
 public:
  Handle() { check(cudnnCreate(&raw_), "cudnnCreate"); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cudnnDestroy(raw_); }
  [[nodiscard]] cudnnHandle_t raw() const { return raw_; }

 private:
  cudnnHandle_t raw_ = nullptr;
};

/// Workspace of a call: row_sum, d_q_sum, then the plan's own.
struct Workspace {
  std::int64_t row_sum = 0, d_q_sum = 0, plan = 0;  // bytes
  [[nodiscard]] Bytes bytes() const;
};

/// Parts of a workspace begin at multiples of this, as what cudaMalloc gives does.
std::int64_t aligned(std::int64_t bytes);

struct Plan {
  Graph graph;  // kept, with `config`: cuDNN does not say what a plan still refers to
  Descriptor config;
  Descriptor compiled;
  Workspace workspace;
  int sms = 0;  // that it is made for; 0: the whole device
};

/// What a plan is for, beside the shape.
struct PlanOptions {
  bool deterministic = false;
  SdpaDelta delta = SdpaDelta::from_out;
  int sms = 0;  // wanted; 0: the whole device
  friend auto operator<=>(const PlanOptions&, const PlanOptions&) = default;
};

/// What heuristics propose, best first; none: nothing.
struct Proposal {
  Graph graph;
  std::vector<Descriptor> configs;
  int sms = 0;  // that they are for; 0: the whole device
};
/// BackendError if the shape is none for cuDNN, or for this version of it.
Proposal propose(const SdpaShape& shape, Phase phase, const PlanOptions& options,
                 const Target& target);
/// BackendError if none of them compiles.
Plan compile(const SdpaShape& shape, Phase phase, const PlanOptions& options, const Target& target);

class PlanCache {
 public:
  struct Entry {
    explicit Entry(Plan compiled) : plan(std::move(compiled)) {}
    Plan plan;
    std::mutex executing;
  };
  /// For the calling thread's current device, which is `device`, in its primary context. Compiles
  /// what is new; whoever asks meanwhile waits. Entries stay.
  Entry& find(int device, const SdpaShape& shape, Phase phase, const PlanOptions& options);
  /// That were compiled so far.
  [[nodiscard]] SdpaPlans plans() const;

 private:
  struct Key {
    int device = 0;
    SdpaShape shape;
    Phase phase = Phase::forward;
    PlanOptions options;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  mutable std::mutex mutex_;  // of all below, and of compiling: a handle is one thread's at a time
  std::map<int, std::unique_ptr<Handle>> handles_;  // by device
  std::map<Key, std::unique_ptr<Entry>> plans_;
  Seconds compiling_{};
};

/// The cache of this process.
PlanCache& plans_of_process();

}  // namespace spp::runtime::cudnn

#endif
