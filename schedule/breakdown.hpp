// Where the time of a schedule went: one account of a timeline, be it simulated or measured.
#pragma once

#include "schedule/storage.hpp"
#include "schedule/timeline.hpp"

#include <span>

namespace spp {

/// Of the rank that ends last. Kernels + exposed + imbalance + launch_bound = its end.
struct Breakdown {
  Seconds attention{};  // attention kernels
  Seconds gemm{};       // products of linear layers
  Seconds other_kernels{};
  Seconds exposed{};       // compute stream idle for communication
  Seconds imbalance{};     // compute stream idle for a rank that still computed
  Seconds hidden{};        // communication time behind kernels
  Seconds launch_bound{};  // compute stream idle though its next op could begin: for the host
  [[nodiscard]] Seconds total() const {
    return attention + gemm + other_kernels + exposed + imbalance + launch_bound;
  }
  /// Of one phase after another.
  Breakdown& operator+=(const Breakdown& other) {
    attention += other.attention;
    gemm += other.gemm;
    other_kernels += other.other_kernels;
    exposed += other.exposed;
    imbalance += other.imbalance;
    hidden += other.hidden;
    launch_bound += other.launch_bound;
    return *this;
  }
  friend bool operator==(const Breakdown&, const Breakdown&) = default;
};

/// `timeline`: one run of all ranks, from time 0; `programs`: theirs, by rank. A kernel waits until
/// what it reads is there. As far as a transfer before it waited for a rank that came later, right
/// behind one of its kernels, that is imbalance; a rank that came later because it waited for a
/// transfer itself makes others wait for that. So does it as far as it waits for ops before it:
/// whoever made the timeline holds at most `lookahead` ops of a rank that have not begun; 0: any
/// number.
Breakdown breakdown_of(const Timeline& timeline, std::span<const StoredProgram> programs,
                       int lookahead = 0);

}  // namespace spp
