// The event loop. Ranks (one per orbit, see folding.hpp) hold windows of their programs; kernels
// and messages are flows of one FlowNetwork, where a rank's device is a link of its own.
#include "sim/simulate.hpp"

#include "sim/flow_network.hpp"
#include "sim/rank_window.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

namespace spp::sim {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

enum class TimerKind : std::uint8_t { host_issued, op_ends, flows_start };

struct Timer {
  double at = 0;
  std::uint64_t sequence = 0;
  TimerKind kind = TimerKind::host_issued;
  int rank = 0;
  std::int64_t op = 0;
  std::uint32_t first_flow = 0, flows = 0;  // flows_start: of the op's lowered flows
  int receiver = -1;                        // flows_start of an exchange
  std::int64_t receiver_op = -1;
  int collective = -1;

  friend bool operator>(const Timer& a, const Timer& b) {
    return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
  }
};

/// A flow on its way.
struct Message {
  int sender = -1, receiver = -1;  // simulated ranks; receiver -1: part of a collective
  int collective = -1;
  std::int64_t sender_op = 0, receiver_op = 0;
  Rank to;
  double bytes = 0, begin = 0;
};

struct Collective {
  std::vector<std::pair<int, std::int64_t>> arrived;  // rank, op
  std::int64_t outstanding = 0;                       // flows
};

/// Exchanges of one sender with one receiver on one stream, waiting for the other side.
struct Channel {
  Rank from;
  StreamId stream;
  std::vector<std::pair<int, std::int64_t>> sends;  // first come, first served
  std::vector<std::int64_t> receives;
};

/// Exposed time by kind of communication and stream, with the slowest message seen.
struct Exposed {
  CommKind kind = CommKind::send_recv;
  StreamId stream;
  Scope scope = Scope::self;
  Rank from, to;
  double rate = 0;
  std::string_view algorithm;
  double seconds = 0;
};

struct RankState {
  Rank rank;
  RankWindow window;
  Shapes shapes;
  RouteId device_route;
  LinkId device;
  std::vector<Channel> channels;
  std::vector<std::pair<Traffic, RouteId>> routes;  // recently used
  std::int64_t running_kernel = -1;
  bool queued = false;
  double host = 0;          // when it is done issuing what was fetched
  double compute_free = 0;  // when the compute stream's last kernel ended
  int communicating = 0;
  double communicating_since = 0, communicating_total = 0;
  double sm_taken = 0;
  double attention = 0, other_kernels = 0, exposed = 0, launch_bound = 0, end = 0;
  std::array<Bytes, comm_kinds> sent{};
  std::vector<Exposed> exposed_by;
  std::vector<Wait> waits;
  Exposed last_comm;
  std::int64_t last_comm_op = -1;  // -1: none yet

  explicit RankState(Rank r, Program program) : rank(r), window(std::move(program)) {}
};

class Engine {
 public:
  Engine(const Schedule& schedule, const Placement& placement, const SimulationCosts& costs,
         const SimulationOptions& options)
      : schedule_(schedule),
        placement_(placement),
        costs_(costs),
        options_(options),
        folding_(options.fold ? Folding::largest(schedule, placement)
                              : Folding::none(schedule, placement)),
        network_({.rate_staleness = options.rate_staleness}) {}

  Simulation run() {
    set_up();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      wake(static_cast<int>(i));
    }
    for (;;) {
      work();
      // Timers of this instant before rates are solved: once, for all that starts together.
      while (!timers_.empty() && timers_.top().at <= now_) {
        fire_next();
        work();
      }
      const double timer = timers_.empty() ? never : timers_.top().at;
      const double flow = network_.next_completion().count();
      const double next = std::min(timer, flow);
      if (next == never) {
        break;
      }
      now_ = std::max(now_, next);
      for (const Completion& done : network_.advance_to(Seconds(now_))) {
        completed(done.token);
      }
    }
    return result();
  }

 private:
  static constexpr std::uint64_t kernel_token = std::uint64_t{1} << 63;

  void set_up() {
    link_ids_.assign(placement_.cluster().links().size(), LinkId());
    ranks_.reserve(folding_.representatives().size());
    for (const Rank rank : folding_.representatives()) {
      ranks_.emplace_back(rank, schedule_.program(rank));
      RankState& r = ranks_.back();
      r.device = network_.add_link(1.0);
      const Usage use{.link = r.device};
      r.device_route = network_.add_route(std::span(&use, 1));
    }
    for (RankState& r : ranks_) {
      r.shapes = {.problem = &schedule_.problem, .buffers = r.window.buffers(), .rank = r.rank};
    }
  }

  void wake(int rank) {
    if (!ranks_[static_cast<std::size_t>(rank)].queued) {
      ranks_[static_cast<std::size_t>(rank)].queued = true;
      awake_.push_back(rank);
    }
  }

  void work() {
    for (std::size_t i = 0; i < awake_.size(); ++i) {
      const int rank = awake_[i];
      ranks_[static_cast<std::size_t>(rank)].queued = false;
      advance(rank);
    }
    awake_.clear();
  }

  /// Fetches what fits and starts what can start.
  void advance(int index) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    const Op* op = nullptr;
    while (Slot* slot = r.window.fetch(op)) {
      prepare(r, *slot, *op);
    }
    for (std::size_t s = 0; s < static_cast<std::size_t>(r.window.streams()); ++s) {
      const std::int64_t head = r.window.head(s);
      if (head < 0) {
        continue;
      }
      Slot& slot = r.window.slot(head);
      if (slot.started || slot.waits_for != 0) {
        continue;
      }
      if (slot.issued > now_) {
        if (!slot.host_timer) {
          slot.host_timer = true;
          set_timer({.at = slot.issued, .kind = TimerKind::host_issued, .rank = index, .op = head});
        }
        continue;
      }
      start(index, head, slot);
    }
  }

  /// Resolves an op when it enters the window: its time, or its flows.
  void prepare(RankState& r, Slot& slot, const Op& op) {
    ++ops_;
    r.host += costs_.launch.count();
    slot.issued = r.host;
    if (!is_communication(op.body)) {
      const bool attention = std::holds_alternative<AttentionForward>(op.body) ||
                             std::holds_alternative<AttentionBackward>(op.body);
      slot.op_class = attention ? OpClass::attention : OpClass::kernel;
      slot.seconds = costs_.kernel(op.body, r.shapes).count();
      if (options_.timeline) {
        slot.flops = attention_flops(op.body, schedule_.problem).value();
        slot.bytes = touched_bytes(op.body, r.shapes).value();
      }
      return;
    }
    slot.comm = comm_kind_of(op.body);
    const Bytes sent = sent_bytes(op.body, r.shapes);
    slot.bytes = sent.value();
    r.sent[static_cast<std::size_t>(slot.comm)] += sent;
    lower(op.body, r.shapes, placement_, slot.lowered);
    if (const auto* exchange = std::get_if<Exchange>(&op.body)) {
      slot.op_class = OpClass::exchange;
      slot.to = exchange->to;
      slot.from = exchange->from;
      slot.seconds = exchange->to == r.rank ? local_copy_seconds(r, *exchange) : 0;
      return;
    }
    slot.op_class = OpClass::collective;
    slot.group = std::visit(
        [](const auto& o) -> RankGroup {
          if constexpr (requires { o.group; }) {
            return o.group;
          } else {
            return {};
          }
        },
        op.body);
  }

  /// Reads and writes what it sends to itself.
  [[nodiscard]] double local_copy_seconds(const RankState& r, const Exchange& exchange) const {
    Bytes bytes{};
    for (const BufferId id : exchange.send) {
      bytes += bytes_of(r.shapes.buffers[id.index()], schedule_.problem);
    }
    return costs_.local_copy.value() > 0 ? 2 * (bytes / costs_.local_copy).count() : 0;
  }

  void start(int index, std::int64_t position, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    slot.started = true;
    slot.begin = now_;
    if (slot.op_class == OpClass::kernel || slot.op_class == OpClass::attention) {
      account_wait(r, position, slot);
      if (slot.seconds > 0) {
        network_.start({.route = r.device_route,
                        .volume = slot.seconds,
                        .token = kernel_token | static_cast<std::uint64_t>(index)});
        r.running_kernel = position;
      } else {
        ends_now(index, position);
      }
      return;
    }
    begin_communication(r, slot);
    if (slot.op_class == OpClass::exchange) {
      start_exchange(index, position, slot);
    } else {
      join_collective(index, position, slot);
    }
  }

  void start_exchange(int index, std::int64_t position, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    if (slot.to == r.rank) {
      ++slot.parts;
      set_timer(
          {.at = now_ + slot.seconds, .kind = TimerKind::op_ends, .rank = index, .op = position});
      return;
    }
    slot.parts = (slot.to.valid() ? 1 : 0) + (slot.from.valid() ? 1 : 0);
    if (slot.parts == 0) {
      ++slot.parts;
      ends_now(index, position);
      return;
    }
    if (slot.to.valid()) {
      const int receiver = folding_.class_of(slot.to);
      Channel& channel = channel_of(receiver, folding_.image(r.rank, slot.to), slot.stream);
      if (channel.receives.empty()) {
        channel.sends.emplace_back(index, position);
      } else {
        const std::int64_t receive = channel.receives.front();
        channel.receives.erase(channel.receives.begin());
        meet(index, position, receiver, receive, r.rank);
      }
    }
    if (slot.from.valid()) {
      Channel& channel = channel_of(index, slot.from, slot.stream);
      if (channel.sends.empty()) {
        channel.receives.push_back(position);
      } else {
        const auto [sender, send] = channel.sends.front();
        channel.sends.erase(channel.sends.begin());
        meet(sender, send, index, position, r.rank);
      }
    }
  }

  Channel& channel_of(int receiver, Rank from, StreamId stream) {
    auto& channels = ranks_[static_cast<std::size_t>(receiver)].channels;
    const auto it = std::ranges::find_if(
        channels, [&](const Channel& c) { return c.from == from && c.stream == stream; });
    return it != channels.end() ? *it
                                : channels.emplace_back(Channel{
                                      .from = from, .stream = stream, .sends = {}, .receives = {}});
  }

  /// Both sides of a message are there; `late` came second.
  void meet(int sender, std::int64_t send, int receiver, std::int64_t receive, Rank late) {
    Slot& from = ranks_[static_cast<std::size_t>(sender)].window.slot(send);
    Slot& to = ranks_[static_cast<std::size_t>(receiver)].window.slot(receive);
    from.last_peer = to.last_peer = late;
    ensure(!from.lowered.flows.empty(), "a message without a flow");
    const Timer timer{.at = now_ + from.lowered.flows[0].latency,
                      .kind = TimerKind::flows_start,
                      .rank = sender,
                      .op = send,
                      .first_flow = 0,
                      .flows = 1,
                      .receiver = receiver,
                      .receiver_op = receive};
    if (from.lowered.flows[0].latency > 0) {
      set_timer(timer);
    } else {
      start_flows(timer);
    }
  }

  void join_collective(int index, std::int64_t position, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    // Members are translated with me (I am my own representative), so classes tell groups apart.
    int lowest = index;
    int members = 0;
    seen_.resize(ranks_.size(), 0);
    ++searches_;
    for (int i = 0; i < slot.group.size; ++i) {
      const int member = folding_.class_of(slot.group.rank(i));
      lowest = std::min(lowest, member);
      members +=
          std::exchange(seen_[static_cast<std::size_t>(member)], searches_) != searches_ ? 1 : 0;
    }
    const std::uint64_t key =
        static_cast<std::uint64_t>(slot.stream.value) << 32 | static_cast<std::uint32_t>(lowest);
    const auto [found, fresh] =
        collective_ids_.try_emplace(key, static_cast<int>(collectives_.size()));
    if (fresh) {
      collectives_.emplace_back();
    }
    const int id = found->second;
    Collective& c = collectives_[static_cast<std::size_t>(id)];
    c.arrived.emplace_back(index, position);
    if (static_cast<int>(c.arrived.size()) < members) {
      return;
    }
    for (const auto& [rank, op] : c.arrived) {
      Slot& member = ranks_[static_cast<std::size_t>(rank)].window.slot(op);
      member.last_peer = r.rank;
      c.outstanding += static_cast<std::int64_t>(member.lowered.flows.size());
    }
    if (c.outstanding == 0) {
      end_collective(id);
      return;
    }
    const auto arrived = c.arrived;
    for (const auto& [rank, op] : arrived) {
      launch_flows(rank, op, id);
    }
  }

  /// One timer for each run of flows with equal latency.
  void launch_flows(int rank, std::int64_t op, int collective) {
    const auto& flows = ranks_[static_cast<std::size_t>(rank)].window.slot(op).lowered.flows;
    for (std::uint32_t first = 0; first < flows.size();) {
      std::uint32_t end = first + 1;
      while (end < flows.size() && flows[end].latency == flows[first].latency) {
        ++end;
      }
      set_timer({.at = now_ + flows[first].latency,
                 .kind = TimerKind::flows_start,
                 .rank = rank,
                 .op = op,
                 .first_flow = first,
                 .flows = end - first,
                 .collective = collective});
      first = end;
    }
  }

  void start_flows(const Timer& t) {
    RankState& r = ranks_[static_cast<std::size_t>(t.rank)];
    const Slot& slot = r.window.slot(t.op);
    for (std::uint32_t i = t.first_flow; i < t.first_flow + t.flows; ++i) {
      const Traffic& flow = slot.lowered.flows[i];
      const std::uint64_t token = new_message({.sender = t.rank,
                                               .receiver = t.receiver,
                                               .collective = t.collective,
                                               .sender_op = t.op,
                                               .receiver_op = t.receiver_op,
                                               .to = flow.to,
                                               .bytes = flow.bytes,
                                               .begin = now_});
      network_.start({.route = route_of(r, flow), .volume = flow.bytes, .token = token});
      ++messages_;
    }
  }

  std::uint64_t new_message(const Message& message) {
    if (free_messages_.empty()) {
      in_flight_.push_back(message);
      return in_flight_.size() - 1;
    }
    const std::uint64_t id = free_messages_.back();
    free_messages_.pop_back();
    in_flight_[id] = message;
    return id;
  }

  RouteId route_of(RankState& r, const Traffic& flow) {
    constexpr std::size_t remembered = 8;
    for (const auto& [known, route] : r.routes) {
      if (known.to == flow.to && known.rate_cap == flow.rate_cap) {
        return route;
      }
    }
    usages_.clear();
    const Path path = placement_.path(r.rank, flow.to);
    for (const LinkId link : path.links()) {
      const LinkId link_class = folding_.link_class(link);
      LinkId& id = link_ids_[link_class.index()];
      if (!id.valid()) {
        id = network_.add_link(placement_.cluster().links()[link_class.index()].capacity.value());
      }
      usages_.push_back({.link = id,
                         .coefficient = static_cast<double>(folding_.size()) /
                                        folding_.links_in_class(link_class)});
    }
    const RouteId route = network_.route_for(usages_, flow.rate_cap);
    if (r.routes.size() == remembered) {
      r.routes.erase(r.routes.begin());
    }
    r.routes.emplace_back(flow, route);
    return route;
  }

  void completed(std::uint64_t token) {
    if ((token & kernel_token) != 0) {
      const auto index = static_cast<int>(token & ~kernel_token);
      finish(index, ranks_[static_cast<std::size_t>(index)].running_kernel);
      return;
    }
    const Message m = in_flight_[token];
    free_messages_.push_back(token);
    RankState& sender = ranks_[static_cast<std::size_t>(m.sender)];
    Slot& slot = sender.window.slot(m.sender_op);
    slot.slow_from = sender.rank;
    slot.slow_to = m.to;
    slot.slow_rate = now_ > m.begin ? m.bytes / (now_ - m.begin) : 0;
    if (m.collective >= 0) {
      if (--collectives_[static_cast<std::size_t>(m.collective)].outstanding == 0) {
        last_message_ = {slot.slow_from, slot.slow_to, slot.slow_rate};
        end_collective(m.collective);
      }
      return;
    }
    Slot& receiver = ranks_[static_cast<std::size_t>(m.receiver)].window.slot(m.receiver_op);
    receiver.slow_from = slot.slow_from;
    receiver.slow_to = slot.slow_to;
    receiver.slow_rate = slot.slow_rate;
    part_ended(m.sender, m.sender_op);
    part_ended(m.receiver, m.receiver_op);
  }

  void part_ended(int index, std::int64_t op) {
    if (--ranks_[static_cast<std::size_t>(index)].window.slot(op).parts == 0) {
      finish(index, op);
    }
  }

  void end_collective(int id) {
    const auto members = std::exchange(collectives_[static_cast<std::size_t>(id)].arrived, {});
    for (const auto& [rank, op] : members) {
      Slot& slot = ranks_[static_cast<std::size_t>(rank)].window.slot(op);
      slot.slow_from = last_message_.from;
      slot.slow_to = last_message_.to;
      slot.slow_rate = last_message_.rate;
      finish(rank, op);
    }
  }

  void ends_now(int index, std::int64_t op) {
    set_timer({.at = now_, .kind = TimerKind::op_ends, .rank = index, .op = op});
  }

  void fire_next() {
    const Timer t = timers_.top();
    timers_.pop();
    switch (t.kind) {
      case TimerKind::host_issued:
        wake(t.rank);
        break;
      case TimerKind::op_ends: {
        Slot& slot = ranks_[static_cast<std::size_t>(t.rank)].window.slot(t.op);
        slot.parts = 0;
        finish(t.rank, t.op);
        break;
      }
      case TimerKind::flows_start:
        start_flows(t);
        break;
    }
  }

  void finish(int index, std::int64_t position) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    Slot& slot = r.window.slot(position);
    const double took = now_ - slot.begin;
    if (slot.op_class == OpClass::attention || slot.op_class == OpClass::kernel) {
      (slot.op_class == OpClass::attention ? r.attention : r.other_kernels) += took;
      r.compute_free = now_;
    } else {
      end_communication(r, slot, position);
    }
    if (options_.timeline) {
      timeline_.events.push_back({.rank = r.rank,
                                  .op = position,
                                  .stream = slot.stream,
                                  .kind = slot.kind,
                                  .begin = Seconds(slot.begin),
                                  .end = Seconds(now_),
                                  .bytes = slot.bytes,
                                  .flops = slot.flops,
                                  .waited_for = slot.ready_by,
                                  .waited_for_rank = slot.last_peer});
    }
    r.end = now_;
    r.window.finish(position, now_);
    wake(index);
  }

  // ---- accounting
  // --------------------------------------------------------------------------------

  void begin_communication(RankState& r, const Slot& slot) {
    if (r.communicating++ == 0) {
      r.communicating_since = now_;
    }
    take_sms(r, costs_.sm_share[static_cast<std::size_t>(slot.lowered.scope)]);
  }

  void end_communication(RankState& r, const Slot& slot, std::int64_t position) {
    if (--r.communicating == 0) {
      r.communicating_total += now_ - r.communicating_since;
    }
    take_sms(r, -costs_.sm_share[static_cast<std::size_t>(slot.lowered.scope)]);
    r.last_comm = {.kind = slot.comm,
                   .stream = slot.stream,
                   .scope = slot.lowered.scope,
                   .from = slot.slow_from,
                   .to = slot.slow_to,
                   .rate = slot.slow_rate,
                   .algorithm = slot.lowered.algorithm};
    r.last_comm_op = position;
  }

  void take_sms(RankState& r, double share) {
    if (share == 0) {
      return;
    }
    constexpr double most = 0.5;  // kernels keep at least half of the device
    r.sm_taken = r.communicating == 0 ? 0 : r.sm_taken + share;
    network_.set_capacity(r.device, 1.0 - std::min(most, r.sm_taken));
  }

  void account_wait(RankState& r, std::int64_t position, const Slot& slot) {
    const double wait = now_ - r.compute_free;
    if (wait <= 0) {
      return;
    }
    if (slot.ready_by < 0 || slot.issued >= slot.ready || slot.ready <= r.compute_free) {
      r.launch_bound += wait;
      return;
    }
    r.exposed += wait;
    // The dependency's slot may have been reused; the last communication of the rank is that op.
    add_exposed(r, wait);
    if (options_.steps) {
      r.waits.push_back({.op = position,
                         .waited_for = slot.ready_by,
                         .kind = r.last_comm.kind,
                         .stream = r.last_comm.stream,
                         .seconds = Seconds(wait)});
    }
  }

  static void add_exposed(RankState& r, double wait) {
    const Exposed& cause = r.last_comm;
    auto it = std::ranges::find_if(r.exposed_by, [&](const Exposed& e) {
      return e.kind == cause.kind && e.stream == cause.stream;
    });
    if (it == r.exposed_by.end()) {
      it = r.exposed_by.insert(r.exposed_by.end(), cause);
    } else if (cause.rate < it->rate) {
      const double so_far = it->seconds;
      *it = cause;
      it->seconds = so_far;
    }
    it->seconds += wait;
  }

  Simulation result() {
    Simulation s;
    RankState* critical = nullptr;
    for (RankState& r : ranks_) {
      ensure(r.window.done(), fmt::format("the simulated schedule is stuck on rank {} after {} ops",
                                          r.rank.value, r.window.fetched()));
      s.rank_end.emplace_back(r.end);
      critical = critical == nullptr || r.end > critical->end ? &r : critical;
    }
    RankState& c = *critical;
    if (c.end > c.compute_free && c.last_comm_op >= 0) {  // communication after the last kernel
      add_exposed(c, c.end - c.compute_free);
      c.exposed += c.end - c.compute_free;
      if (options_.steps) {
        c.waits.push_back({.op = c.window.fetched(),
                           .waited_for = c.last_comm_op,
                           .kind = c.last_comm.kind,
                           .stream = c.last_comm.stream,
                           .seconds = Seconds(c.end - c.compute_free)});
      }
    }
    s.makespan = Seconds(c.end);
    s.critical = c.rank;
    s.breakdown = {.attention = Seconds(c.attention),
                   .other_kernels = Seconds(c.other_kernels),
                   .exposed = Seconds(c.exposed),
                   .hidden = Seconds(std::max(0.0, c.communicating_total - c.exposed)),
                   .launch_bound = Seconds(c.launch_bound)};
    s.sent = c.sent;
    for (const Exposed& e : c.exposed_by) {
      s.bottlenecks.push_back({.kind = e.kind,
                               .stream = e.stream,
                               .scope = e.scope,
                               .exposed = Seconds(e.seconds),
                               .from = e.from,
                               .to = e.to,
                               .rate = Bandwidth(e.rate),
                               .algorithm = std::string(e.algorithm)});
    }
    std::ranges::stable_sort(s.bottlenecks, std::ranges::greater(), &Bottleneck::exposed);
    s.waits = std::move(c.waits);
    s.representatives.assign(folding_.representatives().begin(), folding_.representatives().end());
    s.folded = folding_.size();
    s.ops = ops_;
    s.messages = messages_;
    timeline_.streams = schedule_.streams;
    s.timeline = std::move(timeline_);
    return s;
  }

  void set_timer(Timer timer) {
    timer.sequence = timer_sequence_++;
    timers_.push(timer);
  }

  struct LastMessage {
    Rank from, to;
    double rate = 0;
  };

  const Schedule& schedule_;
  const Placement& placement_;
  const SimulationCosts& costs_;
  const SimulationOptions& options_;
  Folding folding_;
  FlowNetwork network_;
  double now_ = 0;
  std::vector<RankState> ranks_;
  std::vector<LinkId> link_ids_;  // of link classes, in the network; added when first used
  std::vector<int> awake_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::uint64_t timer_sequence_ = 0;
  std::vector<Message> in_flight_;
  std::vector<std::uint64_t> free_messages_;
  std::unordered_map<std::uint64_t, int> collective_ids_;  // by stream and lowest member
  std::vector<Collective> collectives_;
  std::vector<std::uint64_t> seen_;  // by rank: the last search that met it
  std::uint64_t searches_ = 0;
  std::vector<Usage> usages_;
  LastMessage last_message_;
  std::int64_t ops_ = 0, messages_ = 0;
  Timeline timeline_;
};

}  // namespace

Simulation simulate(const Schedule& schedule, const Placement& placement,
                    const SimulationCosts& costs, const SimulationOptions& options) {
  return Engine(schedule, placement, costs, options).run();
}

}  // namespace spp::sim
