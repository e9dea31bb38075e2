#include "sim/demand.hpp"

#include "sim/rank_window.hpp"

#include <algorithm>

namespace spp::sim {

SimulationDemand demand_of(const Demand& all, int lookahead, const Folding& folding) {
  const auto ranks = static_cast<double>(folding.representatives().size());
  const double share = ranks / all.ranks;
  const double runs = folding.alike() ? 2 : 1;
  // A rank: its program, the slots of its window, its routes and channels.
  constexpr double program_bytes = 4000;
  constexpr double state_bytes = 3000;
  const double slots = lookahead + RankWindow::batch + 8.0;  // beside those that have started
  constexpr double slot_bytes = sizeof(Slot) + 96;           // one flow, in a small allocation
  constexpr double buffer_bytes = 280;
  const double of_rank =
      program_bytes + state_bytes + slots * slot_bytes + buffer_bytes * all.buffers / all.ranks;
  // A collective of many: flows wait in the slots of the window, then they are on their way.
  constexpr double collectives_at_once = 3;
  constexpr double flow_bytes = 400;
  const double at_once = std::max(all.most_at_once, 2);
  const double flows_at_once =
      std::min(ranks * at_once * collectives_at_once, share * all.messages);
  constexpr double most = 9e18;  // a Bytes holds it
  const double bytes = ranks * of_rank + flows_at_once * flow_bytes;
  return {.ops = runs * share * all.ops,
          .flows = runs * share * all.messages,
          .memory = Bytes(static_cast<std::int64_t>(std::min(most, bytes)))};
}

}  // namespace spp::sim
