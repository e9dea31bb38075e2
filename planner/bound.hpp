// A lower bound on the time of one attention call, from its closed form: nothing is built or
// simulated. The search orders and prunes by it.
//
// On CPU ranks (TransportSpec::cpu_share) kernels and messages also add up on the rank's core and
// on the cores that ranks share: all their seconds together, over the number of cores.
//
//   bound = max( kernels, kernels between collectives + max(all-to-alls, gathers and scatters with
//                StarTrail's exchange and return) ) + SMs taken,   or the ring messages if they
//                take longer
//
// All-to-alls, team or ring collectives and the exchange come before the first attention kernel or
// after the last one, so they add to it and to what merges its results; packing and casting may
// overlap with them, and they with each other (of StarTrail's collectives, the exchange overlaps
// with the gather of q and in the backward, as the return, with those of k and v). Ring messages
// may hide behind kernels, but their communication kernels take SMs meanwhile: a device that loses
// the share s for c seconds needs W + s*c for W seconds of kernels. Rates are the best the
// transport reaches at any size, and the link's whole capacity where several flows share it; only
// traffic that must cross nodes is counted as such. tests/conformance holds bound <= simulation.
#pragma once

#include "machine/kernel_cost.hpp"
#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/closed_form.hpp"
#include "sim/cluster.hpp"

#include <array>

namespace spp {

/// What the bound needs of a cluster, read once.
class BoundModel {
 public:
  BoundModel(const sim::Cluster& cluster, const Problem& problem, const KernelCost& kernels);

  /// Seconds; O(1), no allocation.
  [[nodiscard]] double attention_call(const ClosedForm& form, const SequencePlan& plan,
                                      Phase phase) const;
  /// What a walk over one rank's program finds, in seconds with everything to itself.
  struct Walk {
    double kernels = 0;
    double core = 0;      // kernels from the first attention to the last
    double exchange = 0;  // StarTrail's exchange and return
    double sms = 0;       // device time that communication kernels take between these attentions
    double cpu = 0;       // core time of what it sends
  };
  /// The same for that rank. A bound for it is one for all.
  [[nodiscard]] double attention_call(const ClosedForm& form, const SequencePlan& plan, Phase phase,
                                      const Walk& walk) const;

 private:
  struct Geometry {
    int local = 1;         // members of a group in one node, at most
    bool crosses = false;  // the group has members in several nodes
    bool even = true;      // equally many in each
  };
  /// Seconds that the cores need for everything; 0 for GPUs.
  [[nodiscard]] double all_cores(const ClosedForm& form, Phase phase) const;
  [[nodiscard]] Geometry geometry(const RankGroup& group, RankOrder order) const;
  struct TermTime {
    double seconds = 0;  // of its ops, one after the other
    double port = 0;     // of its bytes, on a GPU's port used to capacity
    double nic = 0;      // on a NIC
  };
  [[nodiscard]] TermTime term(const CommTerm& term, const SequencePlan& plan,
                              const AttentionMesh& mesh) const;

  struct Scoped {
    std::array<double, comm_kinds> rate{};     // bytes per second, best at any size
    std::array<double, comm_kinds> latency{};  // least at any size
    double capacity = 0;                       // of a link
    double cpu_share = 0;                      // of a core, by messages
  };
  Scoped intra_, inter_;
  int nodes_ = 1, per_node_ = 1, per_nic_ = 1, nics_ = 1;
  double heads_per_kv_ = 1;
  double cores_ = 0;                   // at most, for all ranks; 0: GPUs
  bool balanced_mask_ = false;         // full
  std::array<double, 2> flop_rate_{};  // by phase
  std::array<double, 2> startup_{};
};

}  // namespace spp
