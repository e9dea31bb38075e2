// A lower bound on the time of one attention call, from its closed form: nothing is built or
// simulated. The search orders and prunes by it.
//
//   bound = max( all-to-alls + gathers and scatters + attention kernels,  ring messages )
//
// All-to-alls and team or ring collectives come before the first attention kernel or after the last
// one, so they add to it; ring messages may hide behind it. Rates are the best the transport reaches
// at any size; only traffic that must cross nodes is counted as such. tests hold bound <= simulation.
#pragma once

#include "planner/closed_form.hpp"
#include "sim/cluster.hpp"
#include "sim/kernel_cost.hpp"

#include <array>

namespace spp {

/// What the bound needs of a cluster, read once.
class BoundModel {
 public:
  BoundModel(const sim::Cluster& cluster, const Problem& problem);

  /// Seconds; O(1), no allocation.
  [[nodiscard]] double attention_call(const ClosedForm& form, const SequencePlan& plan, Phase phase) const;

 private:
  struct Geometry {
    int local = 1;         // members of a group in one node
    bool crosses = false;  // the group has members in several nodes
  };
  [[nodiscard]] Geometry geometry(const RankGroup& group, RankOrder order) const;
  [[nodiscard]] double term(const CommTerm& term, const SequencePlan& plan, const Mesh& mesh) const;

  struct Scoped {
    std::array<double, comm_kinds> rate{};     // bytes per second, best at any size
    std::array<double, comm_kinds> latency{};  // least at any size
  };
  Scoped intra_, inter_;
  int nodes_ = 1, per_node_ = 1, per_nic_ = 1, nics_ = 1;
  int q_heads_ = 1;
  std::array<double, 2> flop_rate_{};  // by phase
  std::array<double, 2> startup_{};
};

}  // namespace spp
