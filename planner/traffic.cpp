#include "planner/traffic.hpp"

#include "base/error.hpp"
#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/compose.hpp"
#include "planner/step.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace spp {
namespace {

bool leads_out(sim::LinkKind kind) {
  switch (kind) {
    case sim::LinkKind::gpu_out:
    case sim::LinkKind::switch_out:
    case sim::LinkKind::bridge_out:
    case sim::LinkKind::socket_out:
    case sim::LinkKind::nic_out:
    case sim::LinkKind::leaf_out:
      return true;
    case sim::LinkKind::gpu_in:
    case sim::LinkKind::switch_in:
    case sim::LinkKind::bridge_in:
    case sim::LinkKind::socket_in:
    case sim::LinkKind::nic_in:
    case sim::LinkKind::leaf_in:
    case sim::LinkKind::cores:
    case sim::LinkKind::memory:
      return false;
  }
  throw InternalError("no such LinkKind");
}

/// GPUs whose traffic is led over the links: of a node, or of a leaf if leaves have links.
int senders_of(const sim::Cluster& cluster, const StepPlan& plan) {
  const LinkId leaf = cluster.link(sim::LinkKind::leaf_out, 0);
  int gpus = cluster.gpus_per_node();
  while (leaf.valid() && gpus < cluster.gpus() &&
         cluster.link(sim::LinkKind::leaf_out, gpus) == leaf) {
    gpus += cluster.gpus_per_node();
  }
  return std::min(gpus, plan.world());
}

/// What one rank of an attention call sends to another.
struct AttentionFlow {
  StepAxis axis = StepAxis::ring;
  CommKind kind = CommKind::send_recv;
  Rank to;
  double bytes = 0;
};

/// The flows of one attention call on one tensor rank of each place, forward and backward together.
class AttentionFlows {
 public:
  AttentionFlows(const Request& request, const Candidate& c)
      : question_(attention_question(request, c.plan, request.problem)),
        plan_(c.plan.attention),
        strategy_(*c.strategy),
        placement_(*question_.request.cluster, plan_.ranks(), plan_.rank_order) {
    for (int r = 0; r < plan_.ranks(); ++r) {
      rank_at_[placement_.gpu(Rank(r))] = Rank(r);
    }
  }

  /// A GPU among those of the call.
  [[nodiscard]] int gpu(Rank rank) const { return placement_.gpu(rank); }
  const std::vector<AttentionFlow>& from(int gpu) {
    const auto [at, fresh] = flows_.try_emplace(gpu);
    if (fresh) {
      const StepPhase phase = question_.request.phase;
      if (phase != StepPhase::backward) {
        walk(Phase::forward, rank_at_.at(gpu), at->second);
      }
      if (phase == StepPhase::backward || phase == StepPhase::forward_backward) {
        walk(Phase::backward, rank_at_.at(gpu), at->second);
      }
    }
    return at->second;
  }

 private:
  void walk(Phase phase, Rank rank, std::vector<AttentionFlow>& flows) const {
    const Request& call = question_.request;
    const Schedule schedule = strategy_.build(call.problem, plan_, phase, call.build);
    ProgramCursor cursor(schedule.program(rank));
    const Shapes shapes{
        .problem = &schedule.contract.attention, .buffers = cursor.buffers(), .rank = rank};
    std::map<std::tuple<StepAxis, CommKind, Rank>, double> sums;
    sim::LoweredComm lowered;
    while (const Op* op = cursor.next()) {
      if (const auto* transfer = std::get_if<Transfer>(&op->body)) {
        sim::lower(*transfer, shapes, placement_, lowered);
        for (const sim::Traffic& flow : lowered.flows) {
          sums[{step_axis(strategies::axis_of(op->stream)), comm_kind_of(*transfer), flow.to}] +=
              flow.bytes;
        }
      }
    }
    for (const auto& [key, bytes] : sums) {
      const auto& [axis, kind, to] = key;
      flows.push_back({.axis = axis, .kind = kind, .to = to, .bytes = bytes});
    }
  }

  AttentionQuestion question_;
  const SequencePlan& plan_;
  const Strategy& strategy_;
  sim::Placement placement_;
  std::map<int, Rank> rank_at_;
  std::map<int, std::vector<AttentionFlow>> flows_;  // by GPU of the call
};

class Router {
 public:
  Router(const Request& request, const Candidate& c)
      : request_(request),
        plan_(c.plan),
        sent_(c.predicted.sent),
        cluster_(*request.cluster),
        placement_(cluster_, plan_.world(), plan_.attention.rank_order),
        rank_at_(static_cast<std::size_t>(plan_.world())),
        attention_(request, c),
        stage_(c.predicted.stage) {
    const int senders = senders_of(cluster_, plan_);
    first_ = plan_.pipeline > 2 ? plan_.world() / 2 / senders * senders : 0;
    end_ = std::min(first_ + senders, plan_.world());
    for (int rank = 0; rank < plan_.world(); ++rank) {
      rank_at_[static_cast<std::size_t>(placement_.gpu(Rank(rank)))] = rank;
    }
  }

  Traffic run() {
    for (int gpu = first_; gpu < end_; ++gpu) {
      for (std::size_t i = 0; i < step_axes; ++i) {
        const auto axis = static_cast<StepAxis>(i);
        if (axis == StepAxis::stages) {
          add_messages(gpu);
        } else if (!is_of_attention(axis)) {
          add_collectives(axis, gpu);
        }
      }
    }
    add_attention();
    return result();
  }

 private:
  using ByAxis = std::array<double, step_axes>;

  void add(StepAxis axis, int from, int to, double bytes) {
    if (bytes == 0) {
      return;
    }
    const sim::Path path = cluster_.path(from, to);
    for (const LinkId link : path.links()) {
      if (leads_out(cluster_.links()[link.index()].kind)) {
        on_[link.index()][static_cast<std::size_t>(axis)] += bytes;
      }
    }
  }

  void add_collectives(StepAxis axis, int gpu) {
    RankGroup group = first_group(plan_, axis);
    if (group.size == 1) {
      return;
    }
    const int rank = rank_at_[static_cast<std::size_t>(gpu)];
    group.first = rank - rank / group.stride % group.size * group.stride;
    sim::LoweredComm lowered;
    for (std::size_t k = 0; k < comm_kinds; ++k) {
      if (const Bytes sent = sent_.along(axis)[k]; sent > Bytes(0)) {
        // An all-reduce moves along the edges of its rings.
        const auto kind = static_cast<CommKind>(k);
        sim::lower(kind == CommKind::all_reduce ? CommKind::reduce_scatter : kind, group,
                   Rank(rank), sent, placement_, lowered);
        for (const sim::Traffic& flow : lowered.flows) {
          add(axis, gpu, placement_.gpu(flow.to), flow.bytes);
        }
      }
    }
  }

  /// Activations to the next stage, gradients to the one before; the first and the last one sum
  /// what they both have of a table.
  void add_messages(int gpu) {
    const SentBytes::ByKind& sent = sent_.along(StepAxis::stages);
    const int rank = rank_at_[static_cast<std::size_t>(gpu)];
    const int stage = rank / plan_.stage_ranks();
    const int last = plan_.pipeline - 1;
    const auto send = [&](int to_stage, double bytes) {
      const int to = rank + (to_stage - stage) * plan_.stage_ranks();
      add(StepAxis::stages, gpu, placement_.gpu(Rank(to)), bytes);
    };
    const auto [activations, gradients] = messages_of(stage);
    const double messages = sent[static_cast<std::size_t>(CommKind::send_recv)].as_double();
    const double one = all_messages() > 0 ? messages / all_messages() : 0;
    send((stage + 1) % plan_.pipeline, activations * one);
    send((stage + last) % plan_.pipeline, gradients * one);
    if (stage == 0 || stage == last) {
      send(last - stage, sent[static_cast<std::size_t>(CommKind::all_reduce)].as_double());
    }
  }
  /// Of a micro-batch: with activations, and with gradients.
  [[nodiscard]] std::pair<double, double> messages_of(int stage) const {
    const int chunks = plan_.virtual_stages;
    const bool prefill = request_.phase == StepPhase::prefill;
    return {chunks - (stage == plan_.pipeline - 1 ? 1 : 0),
            prefill ? 0 : chunks - (stage == 0 ? 1 : 0)};
  }
  /// That the prediction counts; of a prefill every stage's alike.
  [[nodiscard]] double all_messages() const {
    const auto [activations, gradients] = messages_of(stage_);
    return request_.phase == StepPhase::prefill ? plan_.virtual_stages : activations + gradients;
  }

  void add_attention() {
    if (plan_.sequence() == 1) {
      return;
    }
    std::map<std::pair<StepAxis, CommKind>, double> all;  // of one call, by all senders
    for (int gpu = first_; gpu < end_; ++gpu) {
      for (const AttentionFlow& flow : attention_.from(place_in_call(gpu))) {
        all[{flow.axis, flow.kind}] += flow.bytes;
      }
    }
    for (int gpu = first_; gpu < end_; ++gpu) {
      const int place = place_in_call(gpu);
      for (const AttentionFlow& flow : attention_.from(place)) {
        const Bytes sent = sent_.along(flow.axis)[static_cast<std::size_t>(flow.kind)];
        const double share = (end_ - first_) * flow.bytes / all.at({flow.axis, flow.kind});
        add(flow.axis, gpu, gpu + (attention_.gpu(flow.to) - place) * plan_.tensor,
            share * sent.as_double());
      }
    }
  }
  [[nodiscard]] int place_in_call(int gpu) const { return gpu / plan_.tensor % plan_.sequence(); }

  [[nodiscard]] LinkTraffic link_of(std::size_t index, double bytes) const {
    const sim::Link& link = cluster_.links()[index];
    return {.link = link, .name = cluster_.name_of(link), .bytes = bytes};
  }

  static double total(const ByAxis& by_axis) {
    double sum = 0;
    for (const double bytes : by_axis) {
      sum += bytes;
    }
    return sum;
  }

  [[nodiscard]] Traffic result() const {
    std::map<sim::LinkKind, std::size_t> busiest;
    for (const auto& [index, by_axis] : on_) {
      const auto [at, first] = busiest.try_emplace(cluster_.links()[index].kind, index);
      // A hair more is rounding: of links that are alike, the first.
      if (!first && total(by_axis) > (1 + 1e-9) * total(on_.at(at->second))) {
        at->second = index;
      }
    }
    Traffic traffic;
    for (const auto& [kind, index] : busiest) {
      traffic.links.push_back(link_of(index, total(on_.at(index))));
    }
    std::ranges::stable_sort(traffic.links, std::ranges::greater(), &LinkTraffic::busy);
    for (std::size_t i = 0; i < step_axes; ++i) {
      const auto axis = static_cast<StepAxis>(i);
      const SentBytes::ByKind& sent = sent_.along(axis);
      if (std::ranges::any_of(sent, [](Bytes b) { return b > Bytes(0); })) {
        traffic.axes.push_back(axis_of(axis, busiest));
      }
    }
    return traffic;
  }

  /// Of rank 0's group. Along the ring of StarTrail all ranks with its heads: what starts there
  /// goes from team to team.
  [[nodiscard]] std::vector<int> first_gpus(StepAxis axis) const {
    std::vector<int> gpus;
    if (!is_of_attention(axis)) {
      const RankGroup group = first_group(plan_, axis);
      for (int i = 0; i < group.size; ++i) {
        gpus.push_back(placement_.gpu(group.rank(i)));
      }
      return gpus;
    }
    const AttentionMesh mesh(plan_.attention);
    const Coordinates home = mesh.at(Rank(0));
    for (int r = 0; r < mesh.size(); ++r) {
      const Coordinates at = mesh.at(Rank(r));
      const bool same_heads = at.ulysses == home.ulysses;
      const bool same_chunk = mesh.team_of(at) == mesh.team_of(home);
      if (axis == StepAxis::ring   ? same_heads
          : axis == StepAxis::team ? same_heads && same_chunk
                                   : same_chunk && at.member == home.member) {
        gpus.push_back(attention_.gpu(Rank(r)) * plan_.tensor);
      }
    }
    return gpus;
  }

  [[nodiscard]] AxisTraffic axis_of(StepAxis axis,
                                    const std::map<sim::LinkKind, std::size_t>& busiest) const {
    AxisTraffic one{.axis = axis,
                    .gpus = first_gpus(axis),
                    .groups = 1,
                    .sent = sent_.along(axis),
                    .links = {}};
    one.groups = plan_.world() / static_cast<int>(one.gpus.size());
    for (const auto& [kind, index] : busiest) {
      if (const double bytes = on_.at(index)[static_cast<std::size_t>(axis)]; bytes > 0) {
        one.links.push_back(link_of(index, bytes));
      }
    }
    const auto at = static_cast<std::size_t>(axis);
    for (const auto& [index, by_axis] : on_) {
      const sim::LinkKind kind = cluster_.links()[index].kind;
      const Reach reach = kind == sim::LinkKind::nic_out      ? Reach::nodes
                          : kind == sim::LinkKind::socket_out ? Reach::sockets
                                                              : Reach::node;
      one.reach = by_axis.at(at) > 0 ? std::max(one.reach, reach) : one.reach;
    }
    return one;
  }

  const Request& request_;
  const StepPlan& plan_;
  const SentBytes& sent_;
  const sim::Cluster& cluster_;
  sim::Placement placement_;
  std::vector<int> rank_at_;  // by GPU
  AttentionFlows attention_;
  int stage_;                         // whose rank sends `sent_`
  int first_ = 0, end_ = 0;           // GPUs whose links are looked at
  std::map<std::size_t, ByAxis> on_;  // bytes over each link out, by its index
};

}  // namespace

std::string_view to_string(Reach reach) {
  switch (reach) {
    case Reach::node:
      return "inside a node";
    case Reach::sockets:
      return "across sockets";
    case Reach::nodes:
      return "between nodes";
  }
  throw InternalError("no such Reach");
}

std::optional<Traffic> traffic_of(const Request& request, const Candidate& c) {
  constexpr std::int64_t most_pairs = 1 << 18;  // a second's work
  if (std::int64_t{senders_of(*request.cluster, c.plan)} * c.plan.sequence() > most_pairs) {
    return std::nullopt;
  }
  return Router(request, c).run();
}

}  // namespace spp
