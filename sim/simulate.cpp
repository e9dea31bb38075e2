// The event loop: ranks (one per orbit, see folding.hpp) hold windows of their programs; kernels
// and messages are flows of one FlowNetwork. One class, hence one file: all its parts share the
// clock, the ranks and the network.
#include "sim/simulate.hpp"

#include "sim/flow_routes.hpp"
#include "sim/op_costs.hpp"
#include "sim/rank_account.hpp"
#include "sim/turns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace spp::sim {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

enum class TimerKind : std::uint8_t { host_issued, op_ends, flows_start, port_narrows };

struct Timer {
  TimerKind kind = TimerKind::host_issued;
  int rank = 0;
  SlotId op = 0;
  std::uint32_t first_flow = 0, flows = 0;  // flows_start: of the op's lowered flows
  int receiver = -1;                        // flows_start of an exchange
  SlotId receiver_op = -1;
  int collective = -1;
  double since = 0;  // port_narrows: when the kernel began
};
/// When a timer of the list fires.
struct Alarm {
  double at = 0;
  std::uint64_t sequence = 0;  // of those at one time: in order of creation
  std::uint32_t timer = 0;
};
bool is_later(const Alarm& a, const Alarm& b) {
  return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
}

/// A flow on its way.
struct Message {
  int sender = -1, receiver = -1;  // simulated ranks; receiver -1: part of a collective
  int collective = -1;
  SlotId sender_op = 0, receiver_op = 0;
  Rank to;
  double bytes = 0, begin = 0;
};

/// An op of a simulated rank.
struct OpOfRank {
  int rank = 0;
  SlotId op = 0;
};

/// The ranks in one call of a collective.
struct Meeting {
  std::vector<OpOfRank> arrived;
  std::int64_t outstanding = 0;  // flows
};

/// Which collective an op is part of: the groups of a stream differ in one of these.
struct CollectiveKey {
  StreamId stream;
  int lowest = 0;  // of the members' representatives
  int stride = 1, size = 1;
  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

/// Exchanges of one sender with one receiver on one stream, waiting for the other side. Ops of a
/// stream start one after the other, so one side waits with one op at most.
struct Channel {
  Rank from;
  StreamId stream;
  OpOfRank send;
  SlotId receive = -1;
  bool sending = false;
};

struct RankState {
  Rank rank;
  RankWindow window;
  RankAccount account;
  KnownOps known;
  Shapes shapes;
  std::vector<Channel> channels;
  SlotId running_kernel = -1;
  bool queued = false;
  double host = 0;      // when it is done issuing what was fetched
  double sm_taken = 0;  // by communication
  std::optional<TurnWatch> turns;
  [[nodiscard]] bool goes_round() const { return turns.has_value(); }

  RankState(Rank r, Program program, int lookahead, bool steps)
      : rank(r), window(std::move(program), lookahead), account(steps) {}
};

class Engine {
 public:
  /// `left_out`: turns of a schedule that goes round, of which this is one of fewer.
  Engine(const Schedule& schedule, const Placement& placement, const SimulationCosts& costs,
         const SimulationOptions& options, const Folding& folding, int left_out)
      : schedule_(schedule),
        placement_(placement),
        costs_(costs),
        options_(options),
        folding_(folding),
        network_({.rate_staleness = options.rate_staleness}),
        routes_(network_, placement, costs, folding, cached_of(placement)),
        costs_of_ops_(placement, costs, cached_of(placement), options.timeline),
        cpu_ranks_(placement.cluster().machine().intra.cpu_share.has_value()),
        left_out_(left_out) {}

  /// Nothing if it says nothing of turns that are left out.
  std::optional<Simulation> run() {
    set_up();
    if (left_out_ > 0 && !std::ranges::all_of(ranks_, &RankState::goes_round)) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      wake(static_cast<int>(i));
    }
    work();
    for (;;) {
      // Timers of this instant before rates are solved: once, for all that starts together.
      while (!alarms_.empty() && alarms_.front().at <= now_) {
        std::ranges::pop_heap(alarms_, is_later);
        const std::uint32_t due = alarms_.back().timer;
        alarms_.pop_back();
        free_timers_.push_back(due);
        fire(Timer(timers_[due]));
        work();
      }
      const double timer = alarms_.empty() ? never : alarms_.front().at;
      const double next = std::min(timer, network_.next_completion().count());
      if (next == never) {
        break;
      }
      now_ = std::max(now_, next);
      if (now_ > options_.stop_after.count() || given_up_) {
        return Simulation{.complete = false, .work = work_done()};
      }
      const auto ended = network_.advance_to(Seconds(now_));
      completions_.assign(ended.begin(), ended.end());
      for (const Completion& done : completions_) {
        completed(done.token);
        work();  // while the rank is in the cache
      }
    }
    if (left_out_ == 0) {
      return result({});
    }
    const std::optional<std::vector<Turn>> alike = turns();
    return alike ? std::optional(result(*alike)) : std::nullopt;
  }

  /// Rates are solved once an event, most of them of one route alone. Where flows of many ranks
  /// share links and each ends by itself, all of theirs are solved each time.
  [[nodiscard]] double work_done() const {
    constexpr double of_rate = 0.3;  // measured: 0.3 us beside 1 us of an op
    const auto events = static_cast<double>(ops_ + messages_);
    const auto rates = static_cast<double>(network_.statistics().filled_routes);
    return events + of_rate * std::max(0.0, rates - events);
  }

 private:
  static constexpr std::uint64_t kernel_token = std::uint64_t{1} << 63;

  /// Bytes that an op may touch without use of a memory that ranks share; never: none is.
  static double cached_of(const Placement& placement) {
    const auto& device = placement.cluster().machine().device;
    return device ? device->cached() : never;
  }

  void set_up() {
    ranks_.reserve(folding_.representatives().size());
    for (const Rank rank : folding_.representatives()) {
      Program program = schedule_.program(rank);
      const auto turns = left_out_ > 0 ? last_turns(program, schedule_.turns.repeats)
                                       : std::optional<TwoTurns<std::size_t>>();
      RankState& r = ranks_.emplace_back(rank, std::move(program),
                                         RankWindow::lookahead_of(schedule_), options_.steps);
      r.host = costs_.call.count();
      if (turns) {
        r.turns.emplace(*turns);
      }
    }
    for (RankState& r : ranks_) {
      r.shapes = {
          .problem = &schedule_.contract.attention, .buffers = r.window.buffers(), .rank = r.rank};
    }
  }

  void wake(int rank) {
    if (!ranks_[static_cast<std::size_t>(rank)].queued) {
      ranks_[static_cast<std::size_t>(rank)].queued = true;
      awake_.push_back(rank);
    }
  }

  void work() {
    for (std::size_t i = 0; i < awake_.size(); ++i) {  // NOLINT(modernize-loop-convert): it grows
      const int rank = awake_[i];
      ranks_[static_cast<std::size_t>(rank)].queued = false;
      advance(rank);
    }
    awake_.clear();
  }

  /// Issues what fits and starts what can start; what starts makes room for more.
  void advance(int index) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    issue(r);
    do {
      start_ready(index, r);
    } while (issue(r));
  }

  /// Says whether one of the ops that it issues is the first of its stream.
  bool issue(RankState& r) {
    bool first = false;
    while (r.window.has_room() && (r.window.issued() < r.window.fetched() || fetch(r))) {
      const Slot& slot = r.window.issue(now_);
      first = first || r.window.head(slot.stream.index()) == slot.id;
    }
    return first;
  }

  /// Says whether there was one more op.
  bool fetch(RankState& r) {
    const Op* op = nullptr;
    while (Slot* slot = r.window.fetch(op)) {
      prepare(r, *slot, *op);
    }
    return r.window.issued() < r.window.fetched();
  }

  void start_ready(int index, RankState& r) {
    for (std::size_t s = r.window.next_ready(0); s < r.window.streams();
         s = r.window.next_ready(s + 1)) {
      const SlotId head = r.window.head(s);
      Slot& slot = r.window.slot(head);
      if (slot.issued > now_) {
        if (!slot.host_timer) {
          slot.host_timer = true;
          set_timer(slot.issued, {.kind = TimerKind::host_issued, .rank = index, .op = head});
        }
      } else if (r.account.stands() <= now_) {
        start(index, slot);
      }
    }
  }

  void tell() {
    constexpr std::int64_t now_and_then = 1024;  // ops
    if (!options_.watch || ops_ % now_and_then != 0) {
      return;
    }
    given_up_ = given_up_ || !options_.watch(work_done());
  }

  /// An op enters the window: its time, or its flows, become known.
  void prepare(RankState& r, Slot& slot, const Op& op) {
    ++ops_;
    tell();
    if (r.turns && r.window.before_in_loop() == 0) {
      r.turns->fetched(r.window.loop(), slot.position, r.host);
    }
    const std::size_t like = r.window.like();
    if (like == Loop::none) {
      costs_of_ops_.fill(op, r.shapes, slot);
    } else if (!r.known.recall(like, r.window.before_in_loop(), slot)) {
      costs_of_ops_.fill(op, r.shapes, slot);
      r.known.remember(like, slot);
    }
    r.host += costs_.host_of ? slot.host : costs_.host[static_cast<std::size_t>(slot.kind)].count();
    slot.issued = r.host;
  }

  void start(int index, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    r.window.start(slot.id);
    if (options_.timeline) {
      slot.begin = now_;
    }
    if (r.turns) {
      begin_in_turn(index, slot.position);
    }
    if (is_kernel(slot.op_class)) {
      r.account.begin_kernel(slot, now_);
      if (slot.seconds > 0) {
        const RankLinks& own = routes_.of(index);
        network_.start({.route = slot.streams ? own.streaming : own.kernels,
                        .volume = slot.seconds,
                        .token = kernel_token | static_cast<std::uint64_t>(index)});
        r.running_kernel = slot.id;
        if (own.port.valid() && slot.seconds > costs_.beside_after.count()) {
          set_timer(now_ + costs_.beside_after.count(),
                    {.kind = TimerKind::port_narrows, .rank = index, .op = slot.id, .since = now_});
        }
      } else {
        set_timer(now_, {.kind = TimerKind::op_ends, .rank = index, .op = slot.id});
      }
      return;
    }
    r.account.begin_communication(slot, now_);
    take_sms(index, costs_.sm_share[static_cast<std::size_t>(slot.lowered.scope)]);
    if (slot.op_class == OpClass::exchange) {
      start_exchange(index, slot);
    } else {
      join_collective(index, slot);
    }
  }

  /// What a turn of one rank adds to links a turn of all does, whenever it begins.
  void begin_in_turn(int index, std::int64_t op) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    r.turns->begins(op, now_, r.account);
    if (index == 0 && (op == r.turns->begin() || op == r.turns->end())) {
      (op == r.turns->begin() ? volumes_.from : volumes_.to) = network_.volumes();
    }
  }

  void start_exchange(int index, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    const bool local = slot.to == r.rank;
    slot.parts = local ? 0 : (slot.to.valid() ? 1 : 0) + (slot.from.valid() ? 1 : 0);
    if (local && slot.seconds > 0 && cpu_ranks_) {  // the rank's own core copies
      network_.start(
          {.route = routes_.of(index).kernels,
           .volume = slot.seconds,
           .token = new_message(
               {.sender = index, .sender_op = slot.id, .to = r.rank, .bytes = 0, .begin = now_})});
      return;
    }
    if (slot.parts == 0) {
      set_timer(now_ + slot.seconds, {.kind = TimerKind::op_ends, .rank = index, .op = slot.id});
      return;
    }
    if (slot.to.valid()) {
      const int receiver = folding_.class_of(slot.to);
      Channel& channel = channel_of(receiver, folding_.image(r.rank, slot.to), slot.stream);
      if (channel.receive < 0) {
        channel.send = {.rank = index, .op = slot.id};
        channel.sending = true;
      } else {
        const OpOfRank here{.rank = index, .op = slot.id};
        meet(here, {.rank = receiver, .op = std::exchange(channel.receive, -1)}, here);
      }
    }
    if (slot.from.valid()) {
      Channel& channel = channel_of(index, slot.from, slot.stream);
      if (std::exchange(channel.sending, false)) {
        const OpOfRank here{.rank = index, .op = slot.id};
        meet(channel.send, here, here);
      } else {
        channel.receive = slot.id;
      }
    }
  }

  Channel& channel_of(int receiver, Rank from, StreamId stream) {
    auto& channels = ranks_[static_cast<std::size_t>(receiver)].channels;
    const auto it = std::ranges::find_if(
        channels, [&](const Channel& c) { return c.from == from && c.stream == stream; });
    return it != channels.end() ? *it
                                : channels.emplace_back(Channel{.from = from, .stream = stream});
  }

  /// Until when others waited for a rank that still computed: it comes now, right behind one of its
  /// kernels. Had it waited for a transfer itself, they waited for that.
  [[nodiscard]] double computed_until(int late) const {
    return ranks_[static_cast<std::size_t>(late)].account.compute_free() == now_ ? now_ : 0;
  }

  /// Both sides of a message are there; `late` came second.
  void meet(OpOfRank send, OpOfRank receive, OpOfRank late) {
    Slot& from = slot_of(send);
    Slot& to = slot_of(receive);
    to.last_peer = from.last_peer = ranks_[static_cast<std::size_t>(late.rank)].rank;
    const double until = computed_until(late.rank);
    from.met = std::max(from.met, until);
    to.met = std::max(to.met, until);
    ensure(!from.lowered.flows.empty(), "a message without a flow");
    const double latency = from.lowered.flows[0].latency;
    const Timer timer{.kind = TimerKind::flows_start,
                      .rank = send.rank,
                      .op = send.op,
                      .first_flow = 0,
                      .flows = 1,
                      .receiver = receive.rank,
                      .receiver_op = receive.op};
    if (latency > 0) {
      set_timer(now_ + latency, timer);
    } else {
      start_flows(timer);
    }
  }

  void join_collective(int index, Slot& slot) {
    // Members are translated with me (I am my own representative), so classes tell groups apart.
    int lowest = index;
    std::size_t members = 0;
    seen_.resize(ranks_.size(), 0);
    ++searches_;
    for (int i = 0; i < slot.group.size; ++i) {
      const int member = folding_.class_of(slot.group.rank(i));
      lowest = std::min(lowest, member);
      members +=
          std::exchange(seen_[static_cast<std::size_t>(member)], searches_) != searches_ ? 1 : 0;
    }
    const CollectiveKey key{.stream = slot.stream,
                            .lowest = lowest,
                            .stride = slot.group.stride,
                            .size = slot.group.size};
    const auto [found, fresh] =
        collective_ids_.try_emplace(key, static_cast<int>(collectives_.size()));
    if (fresh) {
      collectives_.emplace_back();
    }
    const int id = found->second;
    Meeting& c = collectives_[static_cast<std::size_t>(id)];
    c.arrived.push_back({.rank = index, .op = slot.id});
    if (c.arrived.size() < members) {
      return;
    }
    for (const OpOfRank& arrived : c.arrived) {
      Slot& member = slot_of(arrived);
      member.last_peer = ranks_[static_cast<std::size_t>(index)].rank;
      member.met = computed_until(index);
      c.outstanding += static_cast<std::int64_t>(member.lowered.flows.size());
    }
    if (c.outstanding == 0) {
      end_collective(id);
      return;
    }
    for (const OpOfRank& arrived : c.arrived) {
      launch_flows(arrived, id);
    }
  }

  /// One timer for each run of flows with equal latency.
  void launch_flows(OpOfRank sender, int collective) {
    const auto& flows = slot_of(sender).lowered.flows;
    for (std::uint32_t first = 0; first < flows.size();) {
      std::uint32_t end = first + 1;
      while (end < flows.size() && flows[end].latency == flows[first].latency) {
        ++end;
      }
      set_timer(now_ + flows[first].latency, {.kind = TimerKind::flows_start,
                                              .rank = sender.rank,
                                              .op = sender.op,
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
      network_.start({.route = routes_.route(t.rank, flow, t.collective < 0),
                      .volume = flow.cpu > 0 ? flow.bytes * flow.cpu : flow.bytes,
                      .token = token});
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

  void completed(std::uint64_t token) {
    if ((token & kernel_token) != 0) {
      const auto index = static_cast<int>(token & ~kernel_token);
      RankState& r = ranks_[static_cast<std::size_t>(index)];
      finish(index, r.window.slot(r.running_kernel));
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
    if (m.receiver < 0) {  // a copy of one's own
      finish(m.sender, slot);
      return;
    }
    Slot& receiver = ranks_[static_cast<std::size_t>(m.receiver)].window.slot(m.receiver_op);
    receiver.slow_from = slot.slow_from;
    receiver.slow_to = slot.slow_to;
    receiver.slow_rate = slot.slow_rate;
    if (--slot.parts == 0) {
      finish(m.sender, slot);
    }
    if (--receiver.parts == 0) {
      finish(m.receiver, receiver);
    }
  }

  void end_collective(int id) {
    const auto members = std::exchange(collectives_[static_cast<std::size_t>(id)].arrived, {});
    for (const OpOfRank& member : members) {
      Slot& slot = slot_of(member);
      slot.slow_from = last_message_.from;
      slot.slow_to = last_message_.to;
      slot.slow_rate = last_message_.rate;
      finish(member.rank, slot);
    }
  }

  void fire(const Timer& t) {
    switch (t.kind) {
      case TimerKind::host_issued:
        wake(t.rank);
        break;
      case TimerKind::port_narrows:
        narrow_port(t);
        break;
      case TimerKind::op_ends:
        finish(t.rank, slot_of({.rank = t.rank, .op = t.op}));
        break;
      case TimerKind::flows_start:
        start_flows(t);
        break;
    }
  }

  /// The slot may hold another op by now: it is the same kernel if it began then.
  void narrow_port(const Timer& t) {
    RankState& r = ranks_[static_cast<std::size_t>(t.rank)];
    if (r.running_kernel == t.op && r.account.kernel_begin() == t.since) {
      network_.set_capacity(routes_.of(t.rank).port, costs_.beside_kernels);
    }
  }

  void finish(int index, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    if (is_kernel(slot.op_class)) {
      r.account.end_kernel(slot, now_);
      r.running_kernel = -1;
      if (const LinkId port = routes_.of(index).port; port.valid()) {
        network_.set_capacity(port, FlowRoutes::idle_port);
      }
    } else {
      // An exchange may send inside a node and wait for a message from another one.
      const bool met = slot.op_class == OpClass::exchange && slot.slow_from.valid();
      r.account.end_communication(
          slot, met ? placement_.scope(slot.slow_from, slot.slow_to) : slot.lowered.scope, now_);
      take_sms(index, -costs_.sm_share[static_cast<std::size_t>(slot.lowered.scope)]);
    }
    if (options_.timeline) {
      timeline_.events.push_back({.rank = r.rank,
                                  .op = slot.position,
                                  .stream = slot.stream,
                                  .kind = slot.kind,
                                  .begin = Seconds(slot.begin),
                                  .end = Seconds(now_),
                                  .bytes = slot.bytes,
                                  .flops = slot.flops,
                                  .waited_for = slot.ready_by,
                                  .waited_for_rank = slot.last_peer});
    }
    if (costs_.host_of && slot.stand > 0) {
      r.account.stand(now_, now_ + slot.stand);
      set_timer(r.account.stands(), {.kind = TimerKind::host_issued, .rank = index});
    }
    r.window.finish(slot.id, now_);
    wake(index);
  }

  void take_sms(int index, double share) {
    if (share == 0) {
      return;
    }
    constexpr double most = 0.5;  // kernels keep at least half of the device
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    r.sm_taken = r.account.communicates() ? r.sm_taken + share : 0;
    network_.set_capacity(routes_.of(index).device, 1.0 - std::min(most, r.sm_taken));
  }

  /// The last turn of each rank; nothing if they were not all alike.
  [[nodiscard]] std::optional<std::vector<Turn>> turns() const {
    std::vector<Turn> turns;
    for (const RankState& r : ranks_) {
      std::optional<Turn> turn = r.turns ? r.turns->turn() : std::nullopt;
      if (!turn || !lasts_as_long(*turn, turns.empty() ? *turn : turns.front())) {
        return std::nullopt;
      }
      turns.push_back(std::move(*turn));
    }
    return turns;
  }

  /// `turns`: by rank, the one that all are like which are left out.
  Simulation result(const std::vector<Turn>& turns) {
    Simulation s;
    const RankState* busiest = nullptr;  // of those that send most, the first
    std::vector<double> volumes = network_.volumes();
    double end = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      RankState& r = ranks_[i];
      ensure(r.window.done(), fmt::format("the simulated schedule is stuck on rank {} after {} ops",
                                          r.rank.value, r.window.fetched()));
      r.account.close(r.window.fetched());
      if (left_out_ > 0) {
        r.account.repeat(turns[i], left_out_);
        r.host += left_out_ * turns[i].host;
      }
      s.rank_end.emplace_back(r.account.end());
      end = std::max(end, r.account.end());
      busiest =
          busiest == nullptr || r.account.all_sent() > busiest->account.all_sent() ? &r : busiest;
    }
    // Of those that end last, but for rounding, the first.
    constexpr double rounding = 1e-11;
    const auto critical = std::ranges::find_if(
        ranks_, [&](const RankState& r) { return r.account.end() >= (1 - rounding) * end; });
    for (std::size_t link = 0; link < volumes_.to.size(); ++link) {
      const double before = link < volumes_.from.size() ? volumes_.from[link] : 0.0;
      volumes[link] += left_out_ * (volumes_.to[link] - before);
    }
    const RankAccount& account = critical->account;
    s.makespan = Seconds(end);
    s.critical = critical->rank;
    s.breakdown = account.breakdown();
    s.issue = Seconds(critical->host);
    s.links = routes_.taken(volumes);
    s.sent = busiest->account.sent();
    s.sent_on = busiest->account.sent_on();
    s.bottlenecks = account.bottlenecks();
    s.waits = account.waits();
    s.representatives.assign(folding_.representatives().begin(), folding_.representatives().end());
    s.folded = folding_.size();
    s.turns_left_out = left_out_;
    s.ops = ops_;
    s.messages = messages_;
    s.work = work_done();
    timeline_.streams = schedule_.streams;
    s.timeline = std::move(timeline_);
    return s;
  }

  void set_timer(double at, const Timer& timer) {
    std::uint32_t place = 0;
    if (free_timers_.empty()) {
      place = static_cast<std::uint32_t>(timers_.size());
      timers_.push_back(timer);
    } else {
      place = free_timers_.back();
      free_timers_.pop_back();
      timers_[place] = timer;
    }
    alarms_.push_back({.at = at, .sequence = timers_set_++, .timer = place});
    std::ranges::push_heap(alarms_, is_later);
  }

  Slot& slot_of(OpOfRank op) {
    return ranks_[static_cast<std::size_t>(op.rank)].window.slot(op.op);
  }

  struct LastMessage {
    Rank from, to;
    double rate = 0;
  };
  /// That links had carried by the beginning of a turn, and by its end.
  struct Volumes {
    std::vector<double> from, to;
  };

  const Schedule& schedule_;
  const Placement& placement_;
  const SimulationCosts& costs_;
  const SimulationOptions& options_;
  const Folding& folding_;
  FlowNetwork network_;
  FlowRoutes routes_;
  OpCosts costs_of_ops_;
  bool cpu_ranks_;  // ranks are CPU cores: copying takes their time
  int left_out_;    // turns
  Volumes volumes_;
  double now_ = 0;
  std::vector<RankState> ranks_;
  std::vector<int> awake_;
  std::vector<Timer> timers_;
  std::vector<std::uint32_t> free_timers_;
  std::vector<Alarm> alarms_;  // a heap
  std::uint64_t timers_set_ = 0;
  std::vector<Completion> completions_;
  std::vector<Message> in_flight_;
  std::vector<std::uint64_t> free_messages_;
  std::map<CollectiveKey, int> collective_ids_;
  std::vector<Meeting> collectives_;
  std::vector<std::uint64_t> seen_;  // by rank: the last search that met it
  std::uint64_t searches_ = 0;
  LastMessage last_message_;
  std::int64_t ops_ = 0, messages_ = 0;
  bool given_up_ = false;
  Timeline timeline_;
};

/// How many turns are tried first, of which the last two must be alike: behind a beginning of two,
/// with a few micro-batches more in which some ops are left out and ranks come into step.
int fewest_turns(const Turns& all) {
  constexpr int micro_batches = 6;
  return 3 + (micro_batches + all.repeats - 1) / all.repeats;
}

/// Every turn, or few of a schedule that goes round.
Simulation run(const Schedule& schedule, const Placement& placement, const SimulationCosts& costs,
               const SimulationOptions& options, const Folding& folding) {
  double spent = 0;
  SimulationOptions behind = options;
  if (options.watch) {
    behind.watch = [&](double work) { return options.watch(spent + work); };
  }
  const Turns& all = schedule.turns;
  const bool tries =
      options.fold_turns && !options.timeline && std::isinf(options.stop_after.count());
  for (int few = fewest_turns(all); tries && 3 * few <= 2 * all.count; few *= 2) {
    const Schedule of_few = all.of(few);
    Engine engine(of_few, placement, costs, behind, folding, all.count - few);
    std::optional<Simulation> simulation = engine.run();
    spent += engine.work_done();
    if (simulation) {
      simulation->work = spent;
      return std::move(*simulation);
    }
  }
  Simulation simulation = *Engine(schedule, placement, costs, behind, folding, 0).run();
  simulation.work += spent;
  return simulation;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Placement& placement,
                    const SimulationCosts& costs, const SimulationOptions& options) {
  const Folding folding = options.folding != nullptr ? *options.folding
                          : options.fold             ? Folding::largest(schedule, placement)
                                                     : Folding::none(schedule, placement);
  Simulation first = run(schedule, placement, costs, options, folding);
  if (!folding.alike() || !first.complete) {
    return first;
  }
  const Folding end = folding.from_the_end();
  SimulationOptions behind = options;
  if (options.watch) {
    behind.watch = [&options, before = first.work](double work) {
      return options.watch(before + work);
    };
  }
  Simulation last = run(schedule, placement, costs, behind, end);
  const std::int64_t ops = first.ops + last.ops;
  const std::int64_t messages = first.messages + last.messages;
  const double work = first.work + last.work;
  Simulation slower =
      last.complete && last.makespan <= first.makespan ? std::move(first) : std::move(last);
  slower.ops = ops;
  slower.messages = messages;
  slower.work = work;
  return slower;
}

}  // namespace spp::sim
