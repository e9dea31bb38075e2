// Time of one pass through a list of layer ops on one rank: kernels and transfers one after the
// other, less what the stack hides behind kernels, and at least what the host takes to issue them.
#pragma once

#include "machine/kernel_cost.hpp"
#include "machine/step_practice.hpp"
#include "step/links.hpp"
#include "transformer/layer_kernels.hpp"

#include <array>
#include <span>
#include <string_view>

namespace spp {

/// Parts of a step: kernels; what the host makes them wait for; *exposed* transfers by the axis
/// that was waited for; waiting for other stages.
enum class StepPart : std::uint8_t {
  attention,
  gemm,
  elementwise,
  optimizer,
  launch,
  cp,
  tp,
  ep,
  dp,
  pp,
  bubble
};
constexpr std::size_t step_parts = 11;
std::string_view to_string(StepPart);

/// Seconds by part.
class StepSeconds {
 public:
  double& operator[](StepPart part) { return of_[static_cast<std::size_t>(part)]; }
  double operator[](StepPart part) const { return of_[static_cast<std::size_t>(part)]; }
  [[nodiscard]] double total() const;
  StepSeconds& operator+=(const StepSeconds& other);
  friend StepSeconds operator*(double times, StepSeconds s) {
    for (double& part : s.of_) {
      part *= times;
    }
    return s;
  }

 private:
  std::array<double, step_parts> of_{};
};

/// One attention call of a layer on this rank, its transfers included: what its schedule takes in
/// simulation; of linear attention and of picked keys what linear_attention.hpp and
/// sparse_attention.hpp say.
struct AttentionCost {
  struct Pass {
    Seconds kernels{}, small{}, exposed{}, hidden{};
    Seconds imbalance{};  // waiting for ranks that still compute
    sim::LinkSeconds links;
    Seconds issue{};  // that the host takes for its ops; it runs ahead of the kernels of a pass
    SentBytes sent;
  };
  Pass forward, backward;
  Bytes buffers{};  // beyond Q, K, V, the output and its gradients
  Bytes kept{};     // of these, a softmax's weights that the forward leaves for the backward
};
/// What it keeps in such a layer: nothing if the backward computes attention once more.
Bytes kept_of(const AttentionCost& attention, const TensorOps& ops, const Recomputation& recompute);

struct PassTime {
  StepSeconds parts;
  double weight_gradients = 0;  // of it: what a cut backward can put off
  double hidden = 0;            // transfers behind kernels
  sim::LinkSeconds links;       // of all transfers
  [[nodiscard]] double total() const { return parts.total(); }
  PassTime& operator+=(const PassTime& other);
  friend PassTime operator*(double times, PassTime pass);
};

/// A pass but for the attention over the sequence, in which plans differ that have the rest in
/// common.
struct PassAround {
  PassTime time;  // without what the host makes it wait for
  SentBytes sent;
  double host = 0;                  // seconds that it takes to issue it
  int forwards = 0, backwards = 0;  // attention calls
  /// `attention` of the layer; nullptr where it runs nowhere.
  [[nodiscard]] PassTime time_with(const AttentionCost* attention) const;
  [[nodiscard]] SentBytes sent_with(const AttentionCost* attention) const;
};

/// What passes have in common.
struct PassCosts {
  const KernelCost* kernels = nullptr;
  const StepPractice* practice = nullptr;
  const StepLinks* links = nullptr;
  DType dtype = DType::bf16;
  GemmFormat format = GemmFormat::plain;  // of all GEMMs but those that stay wide
  Seconds tensor_host{};  // that the host takes for a transfer of tensor ranks beside any other's
  int experts_per_token = 1;
  Seconds exchange{};  // that the host takes for a dispatch or combine of experts
  Seconds counts{};    // and that kernels stand meanwhile, until it knows how many tokens go where
  StepAxis counted = StepAxis::expert;  // along which they go
  double crowd = 1;                     // kernels that all ranks run at once take longer by this
};

/// That gradients of so many weights take which are added to what other micro-batches gave: read
/// and written.
Seconds adding_time(const KernelCost& kernels, const StepPractice& practice, DType dtype,
                    std::int64_t weights);
/// Of an update of so many weights, by a rank that holds so many gradients: their norm, Adam,
/// zeroes.
Seconds update_time(const KernelCost& kernels, const StepPractice& practice, std::int64_t updated,
                    std::int64_t gradients);

/// What the host takes for a transfer of so many tensor ranks beside what it takes for any.
Seconds tensor_host(const StepPractice& practice, const StepLinks& links, int ranks);
/// For which kernels of a training stand at a transfer to or from experts, until the host knows how
/// many tokens go where; 0 where devices count.
Seconds counts_host(const StepPractice& practice, const sim::Cluster& cluster);
/// How far layers that are computed again are.
Replay replay_of(const StepPractice& practice);

/// In which all CPUs of a node work on so many numbers of each of its ranks, of `world`.
Seconds time_on_host(const sim::Cluster& cluster, int world, double numbers, Seconds each);

PassAround pass_around(std::span<const LayerOp> ops, const PassCosts& costs);

}  // namespace spp
