// The event loop. Ranks (one per orbit, see folding.hpp) hold windows of their programs; kernels
// and messages are flows of one FlowNetwork, where a rank's device is a link of its own. One class,
// hence one file: all its parts share the clock, the ranks and the network.
#include "sim/simulate.hpp"

#include "sim/flow_network.hpp"
#include "sim/rank_window.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace spp::sim {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

constexpr StreamId compute_stream{0};  // of all kernels

enum class TimerKind : std::uint8_t { host_issued, op_ends, flows_start, port_narrows };

struct Timer {
  double at = 0;
  std::uint64_t sequence = 0;  // of those at one time: in order of creation
  TimerKind kind = TimerKind::host_issued;
  int rank = 0;
  SlotId op = 0;
  std::uint32_t first_flow = 0, flows = 0;  // flows_start: of the op's lowered flows
  int receiver = -1;                        // flows_start of an exchange
  SlotId receiver_op = -1;
  int collective = -1;
  double since = 0;  // port_narrows: when the kernel began
};
bool is_later(const Timer& a, const Timer& b) {
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

struct KnownRoute {
  Traffic flow;
  bool message = false;
  bool cached = false;
  RouteId route;
};

/// What an op is in every loop that is like one (Loop::like).
struct KnownOp {
  OpClass op_class = OpClass::kernel;
  bool streams = false;
  CommKind comm = CommKind::send_recv;
  double seconds = 0, flops = 0;
  std::int64_t bytes = 0;
  Rank to, from;
  RankGroup group;
  LoweredComm lowered;

  explicit KnownOp(const Slot& slot)
      : op_class(slot.op_class),
        streams(slot.streams),
        comm(slot.comm),
        seconds(slot.seconds),
        flops(slot.flops),
        bytes(slot.bytes),
        to(slot.to),
        from(slot.from),
        group(slot.group) {
    if (!is_kernel(op_class)) {
      lowered = slot.lowered;
    }
  }
  void put_into(Slot& slot) const {
    slot.op_class = op_class;
    slot.streams = streams;
    slot.seconds = seconds;
    slot.flops = flops;
    slot.bytes = bytes;
    if (!is_kernel(op_class)) {
      slot.comm = comm;
      slot.to = to;
      slot.from = from;
      slot.group = group;
      slot.lowered = lowered;
    }
  }
};

struct RankState {
  Rank rank;
  RankWindow window;
  std::vector<std::vector<KnownOp>> known;  // by loop that others are like
  Shapes shapes;
  RouteId device_route;
  RouteId streaming_route;  // of kernels that read and write memory that ranks share
  LinkId device;
  LinkId port;  // how fast messages between nodes may move
  std::vector<Channel> channels;
  std::vector<KnownRoute> routes;  // recently used
  SlotId running_kernel = -1;
  bool queued = false;
  double host = 0;          // when it is done issuing what was fetched
  double compute_free = 0;  // when the compute stream's last kernel ended
  double transfer_end = 0;  // and the last transfer on it
  int communicating = 0;
  double communicating_since = 0, communicating_total = 0;
  double sm_taken = 0;
  double attention = 0, gemm = 0, other_kernels = 0, exposed = 0, imbalance = 0, launch_bound = 0;
  double end = 0;
  double busy_peers = 0;  // until when its communications so far had waited for them (Slot::met)
  std::vector<std::array<Bytes, comm_kinds>> sent;  // by stream
  std::vector<Exposed> exposed_by;
  std::vector<Wait> waits;
  Exposed last_comm;
  std::int64_t last_comm_op = -1;  // -1: none yet

  RankState(Rank r, Program program, int lookahead)
      : rank(r), window(std::move(program), lookahead) {}
};

class Engine {
 public:
  Engine(const Schedule& schedule, const Placement& placement, const SimulationCosts& costs,
         const SimulationOptions& options, const Folding& folding)
      : schedule_(schedule),
        placement_(placement),
        costs_(costs),
        options_(options),
        folding_(folding),
        network_({.rate_staleness = options.rate_staleness}),
        cpu_ranks_(placement.cluster().machine().intra.cpu_share.has_value()),
        cached_(placement.cluster().machine().device
                    ? placement.cluster().machine().device->cached()
                    : never) {}

  Simulation run() {
    set_up();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      wake(static_cast<int>(i));
    }
    work();
    for (;;) {
      // Timers of this instant before rates are solved: once, for all that starts together.
      while (!timers_.empty() && timers_.front().at <= now_) {
        std::ranges::pop_heap(timers_, is_later);
        const Timer due = timers_.back();
        timers_.pop_back();
        fire(due);
        work();
      }
      const double timer = timers_.empty() ? never : timers_.front().at;
      const double next = std::min(timer, network_.next_completion().count());
      if (next == never) {
        break;
      }
      now_ = std::max(now_, next);
      if (now_ > options_.stop_after.count() || given_up_) {
        return {.complete = false};
      }
      const auto ended = network_.advance_to(Seconds(now_));
      completions_.assign(ended.begin(), ended.end());
      for (const Completion& done : completions_) {
        completed(done.token);
        work();  // while the rank is in the cache
      }
    }
    return result();
  }

 private:
  /// More than the messages of a rank could use together, each at its own speed.
  static constexpr double idle_port = 1e3;
  static constexpr std::uint64_t kernel_token = std::uint64_t{1} << 63;

  void set_up() {
    link_ids_.assign(placement_.cluster().links().size(), LinkId());
    ranks_.reserve(folding_.representatives().size());
    for (const Rank rank : folding_.representatives()) {
      ranks_.emplace_back(rank, schedule_.program(rank), RankWindow::lookahead_of(schedule_));
      RankState& r = ranks_.back();
      r.device = network_.add_link(1.0);
      if (costs_.beside_kernels < 1) {
        r.port = network_.add_link(idle_port);
      }
      usages_ = {{.link = r.device}};
      use_cores(rank, 1.0);
      r.device_route = network_.add_route(usages_);
      if (cached_ < never) {
        use_memory(rank, costs_.local_copy.value());
        r.streaming_route = network_.add_route(usages_);
      }
      r.host = costs_.call.count();
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
    for (std::size_t i = 0; i < awake_.size(); ++i) {  // NOLINT(modernize-loop-convert): it grows
      const int rank = awake_[i];
      ranks_[static_cast<std::size_t>(rank)].queued = false;
      advance(rank);
    }
    awake_.clear();
  }

  /// Fetches what fits and starts what can start; what starts makes room for more.
  void advance(int index) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    fetch(r);
    do {
      start_ready(index, r);
    } while (fetch(r));
  }

  /// Says whether one of the new ops is the first of its stream.
  bool fetch(RankState& r) {
    bool first = false;
    const Op* op = nullptr;
    while (Slot* slot = r.window.fetch(op)) {
      prepare(r, *slot, *op);
      first = first || r.window.head(slot->stream.index()) == slot->id;
    }
    return first;
  }

  void start_ready(int index, RankState& r) {
    for (std::size_t s = r.window.next_ready(0); s < r.window.streams();
         s = r.window.next_ready(s + 1)) {
      const SlotId head = r.window.head(s);
      Slot& slot = r.window.slot(head);
      if (slot.issued <= now_) {
        start(index, slot);
      } else if (!slot.host_timer) {
        slot.host_timer = true;
        set_timer(slot.issued, {.kind = TimerKind::host_issued, .rank = index, .op = head});
      }
    }
  }

  void tell() {
    constexpr std::int64_t now_and_then = 4096;  // ops
    if (!options_.watch || ops_ % now_and_then != 0) {
      return;
    }
    given_up_ = given_up_ || !options_.watch(static_cast<double>(ops_));
  }

  /// An op enters the window: its time, or its flows, become known.
  void prepare(RankState& r, Slot& slot, const Op& op) {
    ++ops_;
    tell();
    r.host += costs_.host[static_cast<std::size_t>(slot.kind)].count();
    slot.issued = r.host;
    slot.fetched = now_;
    if (r.window.like() == Loop::none) {
      resolve(r, slot, op);
    } else {
      r.known.resize(std::max(r.known.size(), r.window.like() + 1));
      std::vector<KnownOp>& known = r.known[r.window.like()];
      const std::size_t i = r.window.before_in_loop();
      if (i < known.size()) {
        known[i].put_into(slot);
      } else {
        resolve(r, slot, op);
        known.emplace_back(slot);
      }
    }
    if (!is_kernel(slot.op_class)) {
      if (slot.stream.index() >= r.sent.size()) {
        r.sent.resize(slot.stream.index() + 1);
      }
      r.sent[slot.stream.index()][static_cast<std::size_t>(slot.comm)] += Bytes(slot.bytes);
    }
  }

  void resolve(const RankState& r, Slot& slot, const Op& op) const {
    std::visit(Overloaded{[&](const Kernel& kernel) { resolve(r, slot, kernel); },
                          [&](const Transfer& transfer) { resolve(r, slot, transfer); }},
               op.body);
  }

  void resolve(const RankState& r, Slot& slot, const Kernel& kernel) const {
    const bool attention = is_attention(slot.kind);
    slot.op_class = attention ? OpClass::attention : OpClass::kernel;
    slot.seconds = costs_.kernel(kernel, r.shapes).count();
    slot.streams = !attention && slot.kind != OpKind::gemm && cached_ < never &&
                   touched_bytes(kernel, r.shapes).as_double() > cached_;
    if (options_.timeline) {
      slot.flops = kernel_flops(kernel, r.shapes).value();
      slot.bytes = touched_bytes(kernel, r.shapes).value();
    }
  }

  void resolve(const RankState& r, Slot& slot, const Transfer& transfer) const {
    slot.comm = comm_kind_of(transfer);
    slot.bytes = sent_bytes(transfer, r.shapes).value();
    slot.flops = 0;
    lower(transfer, r.shapes, placement_, slot.lowered);
    if (const auto* exchange = std::get_if<Exchange>(&transfer)) {
      slot.op_class = OpClass::exchange;
      slot.to = exchange->to;
      slot.from = exchange->from;
      slot.seconds = exchange->to == r.rank ? local_copy_seconds(r, *exchange) : 0;
      return;
    }
    slot.op_class = OpClass::collective;
    slot.group = std::get<Collective>(transfer).group;
  }

  /// Reads and writes what it sends to itself.
  [[nodiscard]] double local_copy_seconds(const RankState& r, const Exchange& exchange) const {
    Bytes bytes{};
    for (const BufferId id : exchange.send) {
      bytes += bytes_of(r.shapes.buffers[id.index()]);
    }
    return costs_.local_copy.value() > 0 ? 2 * (bytes / costs_.local_copy).count() : 0;
  }

  void start(int index, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    r.window.start(slot.id);
    slot.begin = now_;
    if (is_kernel(slot.op_class)) {
      account_wait(r, slot);
      if (slot.seconds > 0) {
        network_.start({.route = slot.streams ? r.streaming_route : r.device_route,
                        .volume = slot.seconds,
                        .token = kernel_token | static_cast<std::uint64_t>(index)});
        r.running_kernel = slot.id;
        if (r.port.valid() && slot.seconds > costs_.beside_after.count()) {
          set_timer(now_ + costs_.beside_after.count(),
                    {.kind = TimerKind::port_narrows, .rank = index, .op = slot.id, .since = now_});
        }
      } else {
        set_timer(now_, {.kind = TimerKind::op_ends, .rank = index, .op = slot.id});
      }
      return;
    }
    begin_communication(r, slot);
    if (slot.op_class == OpClass::exchange) {
      start_exchange(index, slot);
    } else {
      join_collective(index, slot);
    }
  }

  void start_exchange(int index, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    const bool local = slot.to == r.rank;
    slot.parts = local ? 0 : (slot.to.valid() ? 1 : 0) + (slot.from.valid() ? 1 : 0);
    if (local && slot.seconds > 0 && cpu_ranks_) {  // the rank's own core copies
      network_.start(
          {.route = r.device_route,
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
    return ranks_[static_cast<std::size_t>(late)].compute_free == now_ ? now_ : 0;
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
      network_.start({.route = route_of(r, flow, t.collective < 0),
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

  /// `message`: point-to-point, not part of a collective.
  RouteId route_of(RankState& r, const Traffic& flow, bool message) {
    constexpr std::size_t remembered = 8;
    const bool cached = 2 * flow.bytes <= cached_;
    for (const KnownRoute& known : r.routes) {
      if (known.message == message && known.cached == cached && known.flow.to == flow.to &&
          known.flow.rate_cap == flow.rate_cap && known.flow.cpu == flow.cpu) {
        return known.route;
      }
    }
    usages_.clear();
    // A message of CPU ranks flows in seconds of cores, as kernels do, so that they share cores
    // max-min fairly; it takes 1/cpu bytes of its links for each.
    const double bytes = flow.cpu > 0 ? 1 / flow.cpu : 1;
    const Path path = placement_.path(r.rank, flow.to);
    for (const LinkId link : path.links()) {
      use(link, bytes);
    }
    if (flow.cpu > 0) {
      for (const Rank end : {r.rank, flow.to}) {
        const auto representative = static_cast<std::size_t>(folding_.class_of(end));
        usages_.push_back({.link = ranks_[representative].device, .coefficient = 0.5});
        use_cores(end, 0.5);
      }
    }
    if (!cached) {
      use_memory(r.rank, bytes);
      use_memory(flow.to, bytes);
    }
    if (message && costs_.beside_kernels < 1 && placement_.scope(r.rank, flow.to) == Scope::inter) {
      for (const Rank end : {r.rank, flow.to}) {
        const auto representative = static_cast<std::size_t>(folding_.class_of(end));
        usages_.push_back(
            {.link = ranks_[representative].port, .coefficient = bytes / flow.rate_cap});
      }
    }
    const RouteId route = network_.route_for(usages_, flow.rate_cap / bytes);
    if (r.routes.size() == remembered) {
      r.routes.erase(r.routes.begin());
    }
    r.routes.push_back({.flow = flow, .message = message, .cached = cached, .route = route});
    return route;
  }

  /// Adds a link of the cluster to `usages_`: its class, with what the whole orbit of the flow
  /// takes of each of its links.
  void use(LinkId link, double coefficient) {
    const LinkId link_class = folding_.link_class(link);
    LinkId& id = link_ids_[link_class.index()];
    if (!id.valid()) {
      id = network_.add_link(placement_.cluster().links()[link_class.index()].capacity.value());
    }
    usages_.push_back({.link = id,
                       .coefficient = coefficient * static_cast<double>(folding_.size()) /
                                      folding_.links_in_class(link_class)});
  }

  /// The cores that a rank shares with others, if it does.
  void use_cores(Rank rank, double share) {
    const LinkId cores = placement_.cluster().link(LinkKind::cores, placement_.gpu(rank));
    if (cores.valid()) {
      use(cores, share);
    }
  }

  /// The memory of the GPU that a rank shares with others, if it does.
  void use_memory(Rank rank, double bytes) {
    const LinkId memory = placement_.cluster().link(LinkKind::memory, placement_.gpu(rank));
    if (memory.valid()) {
      use(memory, bytes);
    }
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
    const Slot& slot = r.window.slot(t.op);
    if (r.running_kernel == t.op && slot.started && slot.begin == t.since) {
      network_.set_capacity(r.port, costs_.beside_kernels);
    }
  }

  void finish(int index, Slot& slot) {
    RankState& r = ranks_[static_cast<std::size_t>(index)];
    const double took = now_ - slot.begin;
    if (is_kernel(slot.op_class)) {
      (slot.op_class == OpClass::attention ? r.attention
       : slot.kind == OpKind::gemm         ? r.gemm
                                           : r.other_kernels) += took;
      r.compute_free = now_;
      r.running_kernel = -1;
      if (r.port.valid()) {
        network_.set_capacity(r.port, idle_port);
      }
    } else {
      end_communication(r, slot);
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
    r.end = now_;
    r.window.finish(slot.id, now_);
    wake(index);
  }

  // ---- accounting ----

  void begin_communication(RankState& r, const Slot& slot) {
    if (r.communicating++ == 0) {
      r.communicating_since = now_;
    }
    take_sms(r, costs_.sm_share[static_cast<std::size_t>(slot.lowered.scope)]);
  }

  void end_communication(RankState& r, const Slot& slot) {
    if (--r.communicating == 0) {
      r.communicating_total += now_ - r.communicating_since;
    }
    if (slot.stream == compute_stream) {
      r.transfer_end = now_;
    }
    take_sms(r, -costs_.sm_share[static_cast<std::size_t>(slot.lowered.scope)]);
    // An exchange may send inside a node and wait for a message from another one.
    const bool met = slot.op_class == OpClass::exchange && slot.slow_from.valid();
    r.last_comm = {
        .kind = slot.comm,
        .stream = slot.stream,
        .scope = met ? placement_.scope(slot.slow_from, slot.slow_to) : slot.lowered.scope,
        .from = slot.slow_from,
        .to = slot.slow_to,
        .rate = slot.slow_rate,
        .algorithm = slot.lowered.algorithm};
    r.last_comm_op = slot.position;
    r.busy_peers = std::max(r.busy_peers, slot.met);
  }

  void take_sms(RankState& r, double share) {
    if (share == 0) {
      return;
    }
    constexpr double most = 0.5;  // kernels keep at least half of the device
    r.sm_taken = r.communicating == 0 ? 0 : r.sm_taken + share;
    network_.set_capacity(r.device, 1.0 - std::min(most, r.sm_taken));
  }

  void account_wait(RankState& r, const Slot& slot) {
    if (now_ <= r.compute_free) {
      return;
    }
    // Behind a transfer on the kernels' own stream, one that gives what the kernel reads, or those
    // that filled the window; from then on for the host.
    const double ready = std::max({slot.ready, r.transfer_end, slot.fetched});
    const double until = std::clamp(ready, r.compute_free, now_);
    r.launch_bound += now_ - until;
    if (until <= r.compute_free) {
      return;
    }
    // The dependency's slot may have been reused; the last communication of the rank is that op.
    const double exposed = add_wait(r, until - r.compute_free);
    if (options_.steps) {
      r.waits.push_back({.op = slot.position,
                         .waited_for = slot.ready_by,
                         .kind = r.last_comm.kind,
                         .stream = r.last_comm.stream,
                         .seconds = Seconds(exposed)});
    }
  }

  /// Of the seconds since the last kernel, what was waited for a rank that still computed, and for
  /// communication; gives the latter.
  double add_wait(RankState& r, double wait) const {
    const double imbalance = std::clamp(r.busy_peers - r.compute_free, 0.0, wait);
    r.imbalance += imbalance;
    r.exposed += wait - imbalance;
    add_exposed(r, wait - imbalance);
    return wait - imbalance;
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
      const double exposed = add_wait(c, c.end - c.compute_free);
      if (options_.steps) {
        c.waits.push_back({.op = c.window.fetched(),
                           .waited_for = c.last_comm_op,
                           .kind = c.last_comm.kind,
                           .stream = c.last_comm.stream,
                           .seconds = Seconds(exposed)});
      }
    }
    s.makespan = Seconds(c.end);
    s.critical = c.rank;
    s.breakdown = {
        .attention = Seconds(c.attention),
        .gemm = Seconds(c.gemm),
        .other_kernels = Seconds(c.other_kernels),
        .exposed = Seconds(c.exposed),
        .imbalance = Seconds(c.imbalance),
        .hidden = Seconds(std::max(0.0, c.communicating_total - c.exposed - c.imbalance)),
        .launch_bound = Seconds(c.launch_bound)};
    s.issue = Seconds(c.host);
    for (const auto& stream : c.sent) {
      for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
        s.sent[kind] += stream[kind];
      }
    }
    s.sent_on = std::move(c.sent);
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

  void set_timer(double at, Timer timer) {
    timer.at = at;
    timer.sequence = timers_set_++;
    timers_.push_back(timer);
    std::ranges::push_heap(timers_, is_later);
  }

  Slot& slot_of(OpOfRank op) {
    return ranks_[static_cast<std::size_t>(op.rank)].window.slot(op.op);
  }

  struct LastMessage {
    Rank from, to;
    double rate = 0;
  };

  const Schedule& schedule_;
  const Placement& placement_;
  const SimulationCosts& costs_;
  const SimulationOptions& options_;
  const Folding& folding_;
  FlowNetwork network_;
  bool cpu_ranks_;  // ranks are CPU cores: copying takes their time
  double cached_;   // bytes that an op may touch without use of a shared memory; never: none is
  double now_ = 0;
  std::vector<RankState> ranks_;
  std::vector<LinkId> link_ids_;  // of link classes, in the network; added when first used
  std::vector<int> awake_;
  std::vector<Timer> timers_;  // a heap
  std::uint64_t timers_set_ = 0;
  std::vector<Completion> completions_;
  std::vector<Message> in_flight_;
  std::vector<std::uint64_t> free_messages_;
  std::map<CollectiveKey, int> collective_ids_;
  std::vector<Meeting> collectives_;
  std::vector<std::uint64_t> seen_;  // by rank: the last search that met it
  std::uint64_t searches_ = 0;
  std::vector<Usage> usages_;
  LastMessage last_message_;
  std::int64_t ops_ = 0, messages_ = 0;
  bool given_up_ = false;
  Timeline timeline_;
};

}  // namespace

Simulation simulate(const Schedule& schedule, const Placement& placement,
                    const SimulationCosts& costs, const SimulationOptions& options) {
  const Folding folding = options.folding != nullptr ? *options.folding
                          : options.fold             ? Folding::largest(schedule, placement)
                                                     : Folding::none(schedule, placement);
  Simulation first = Engine(schedule, placement, costs, options, folding).run();
  if (!folding.alike() || !first.complete) {
    return first;
  }
  const Folding end = folding.from_the_end();
  SimulationOptions behind = options;
  if (options.watch) {
    behind.watch = [&options, before = static_cast<double>(first.ops)](double ops) {
      return options.watch(before + ops);
    };
  }
  Simulation last = Engine(schedule, placement, costs, behind, end).run();
  const std::int64_t ops = first.ops + last.ops;
  const std::int64_t messages = first.messages + last.messages;
  Simulation slower =
      last.complete && last.makespan <= first.makespan ? std::move(first) : std::move(last);
  slower.ops = ops;
  slower.messages = messages;
  return slower;
}

}  // namespace spp::sim
