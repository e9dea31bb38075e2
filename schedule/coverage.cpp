// One walk through all programs at once, hence one class in one file.
#include "schedule/coverage.hpp"

#include "schedule/demand.hpp"
#include "schedule/leftovers.hpp"
#include "schedule/postcondition.hpp"

#include <deque>

namespace spp {
namespace {

/// A rank on its way through its program.
struct Walker {
  Walker(Rank r, Program program)
      : rank(r),
        leftovers(program),
        cursor(std::move(program)),
        contents(cursor.buffers().size()) {}

  Rank rank;
  Leftovers leftovers;
  ProgramCursor cursor;
  std::vector<Contents> contents;
  const Op* op = nullptr;  // the communication that it is in; nullptr: on its way, or at its end
  bool finished = false;
  bool sent = false;  // of an exchange
  bool received = false;

  [[nodiscard]] const Exchange* exchange(StreamId stream) const {
    return op != nullptr && op->stream == stream ? op_if<Exchange>(op->body) : nullptr;
  }
  [[nodiscard]] const Collective* collective(StreamId stream) const {
    return op != nullptr && op->stream == stream ? op_if<Collective>(op->body) : nullptr;
  }
  /// The op is done: forgets what no later one asks for. Else a proof would hold all that a rank
  /// has ever had.
  void forget_behind(const Op& done) {
    leftovers.behind(done, cursor.position(), [&](BufferId id) { contents[id.index()] = {}; });
  }
};

bool is_member(const RankGroup& group, Rank rank) {
  for (int i = 0; i < group.size; ++i) {
    if (group.rank(i) == rank) {
      return true;
    }
  }
  return false;
}

/// Two members call the same collective.
bool agree(const Collective& a, const Collective& b) {
  const bool same_result = a.to_tokens == b.to_tokens && a.to_heads == b.to_heads;
  return a.kind == b.kind && a.deal == b.deal &&
         (a.kind != CollectiveKind::all_reduce || same_result);
}

std::deque<Walker> walkers_of(const Schedule& schedule) {
  std::deque<Walker> walkers;
  for (int r = 0; r < schedule.mesh.size(); ++r) {
    Program program = schedule.program(Rank(r));
    program.buffers.shrink_to_fit();  // those of all ranks are what a proof takes
    walkers.emplace_back(Rank(r), std::move(program));
  }
  return walkers;
}

std::vector<std::span<const Buffer>> tiles_of(const std::deque<Walker>& walkers) {
  std::vector<std::span<const Buffer>> tiles;
  tiles.reserve(walkers.size());
  for (const Walker& w : walkers) {
    tiles.emplace_back(w.cursor.buffers());
  }
  return tiles;
}

class Walk {
 public:
  Walk(const Schedule& schedule, const Watch& watch)
      : schedule_(schedule),
        watch_(watch),
        walkers_(walkers_of(schedule)),
        ledger_(schedule, tiles_of(walkers_)) {}

  Proof prove();

 private:
  [[nodiscard]] Walker& at(Rank rank) { return walkers_[rank.index()]; }
  [[nodiscard]] bool exists(Rank rank) const {
    return rank.valid() && rank.index() < walkers_.size();
  }
  [[nodiscard]] std::string_view stream_name(const Op& op) const {
    return schedule_.streams[op.stream.index()];
  }
  /// Whose tensors the op works on: of the first that it names, and the others must be.
  [[nodiscard]] int attention_of(const Walker& w, const Op& op) const {
    if (ledger_.grid.index().attentions() <= 1) {
      return 0;
    }
    const Access access = access_of(op.body);
    const auto ids = access.reads().empty() ? access.writes() : access.reads();
    const auto& buffers = w.cursor.buffers();
    const bool known = !ids.empty() && ids[0].valid() && ids[0].index() < buffers.size();
    return known && !is_of_graph(buffers[ids[0].index()].tensor) ? buffers[ids[0].index()].label
                                                                 : 0;
  }
  [[nodiscard]] Site site(Walker& w, const Op& op) {
    return {.ledger = &ledger_,
            .rank = w.rank,
            .op = w.cursor.position() - 1,
            .op_name = name_of(op.body),
            .stream = stream_name(op),
            .attention = attention_of(w, op),
            .buffers = w.cursor.buffers(),
            .contents = w.contents};
  }
  [[nodiscard]] std::vector<Home> homes();

  void run();
  /// Tells who watches; nobody waits any more: stops.
  void tell();
  void advance(Walker& w);
  /// The op names streams, buffers and ranks that exist; else stops.
  bool well_formed(Walker& w, const Op& op);
  bool well_formed(const Site& s, const Exchange& op);
  bool well_formed(const Site& s, const Collective& op);

  // Each tries to complete the op that `w` is in, for `w` and for the partners that wait in it.
  void meet_partners(Walker& w, const Exchange& op);
  void meet_group(Walker& w, const Collective& op);
  void complete_if_done(Walker& w, const Exchange& op);
  void complete(Walker& w);

  /// Whom a waiting rank waits for, and what for.
  struct Wait {
    Rank whom;
    std::string text;
  };
  [[nodiscard]] Wait wait_of(Walker& w);
  void report_waits();

  const Schedule& schedule_;
  const Watch& watch_;
  std::deque<Walker> walkers_;  // by rank; they never move
  Ledger ledger_;
  std::deque<Rank> ready_;
  std::int64_t messages_ = 0;
  std::int64_t ops_ = 0;
  double expected_ops_ = 0;
  bool given_up_ = false;
};

std::vector<Home> Walk::homes() {
  std::vector<Home> result;
  result.reserve(walkers_.size());
  for (Walker& w : walkers_) {
    result.push_back({.rank = w.rank, .buffers = w.cursor.buffers(), .contents = w.contents});
  }
  return result;
}

Proof Walk::prove() {
  const std::vector<Home> ranks = homes();
  Findings& findings = ledger_.findings;
  if (!ledger_.grid.flaw().empty()) {
    return {.proven = false, .counter_example = ledger_.grid.flaw()};
  }
  check_buffers(ledger_, ranks);
  if (!findings.stopped()) {
    check_inputs(ledger_, schedule_.contract.phase, ranks);
    for (const Home& home : ranks) {
      load_inputs(ledger_, home);
    }
  }
  if (!findings.stopped()) {
    run();
  }
  if (given_up_) {
    return {.complete = false};
  }
  const bool walked = !findings.stopped();
  if (walked) {
    check_outputs(ledger_, schedule_.contract.phase, ranks);
  }
  std::string text = findings.first();
  std::int64_t pair_blocks = 0;
  const auto look_at = [&](const std::vector<Meetings>& of_phase) {
    for (const Meetings& meetings : of_phase) {
      pair_blocks += meetings.count();
      for (const std::string& more :
           {meetings.met_twice(), walked ? meetings.never_met() : std::string()}) {
        if (!more.empty()) {
          text += fmt::format("{}{}", text.empty() ? "" : text.back() == '.' ? " " : ". ", more);
        }
      }
    }
  };
  if (schedule_.contract.phase != Phase::backward) {
    look_at(ledger_.forward);
  }
  if (schedule_.contract.phase != Phase::forward) {
    look_at(ledger_.backward);
  }
  Proof proof{.proven = text.empty(),
              .counter_example = std::move(text),
              .pair_blocks = pair_blocks,
              .ops = 0,
              .messages = messages_};
  for (const Walker& w : walkers_) {
    proof.ops += w.cursor.position();
  }
  return proof;
}

void Walk::tell() {
  constexpr std::int64_t now_and_then = 4096;  // ops
  if (!watch_ || ++ops_ % now_and_then != 0) {
    return;
  }
  if (expected_ops_ == 0) {
    expected_ops_ = demand_of(schedule_).ops;
  }
  given_up_ = given_up_ || !watch_(static_cast<double>(ops_), expected_ops_);
}

void Walk::run() {
  for (const Walker& w : walkers_) {
    ready_.push_back(w.rank);
  }
  while (!ready_.empty() && !ledger_.findings.stopped() && !given_up_) {
    Walker& w = at(ready_.front());
    ready_.pop_front();
    advance(w);
  }
  if (!ledger_.findings.stopped() && !given_up_) {
    report_waits();
  }
}

void Walk::advance(Walker& w) {
  while (w.op == nullptr && !w.finished && !ledger_.findings.stopped() && !given_up_) {
    const Op* op = w.cursor.next();
    if (op == nullptr) {
      w.finished = true;
      return;
    }
    tell();
    if (!well_formed(w, *op)) {
      return;
    }
    if (const auto* kernel = std::get_if<Kernel>(&op->body)) {
      std::visit([&](const auto& o) { apply(site(w, *op), o); }, *kernel);
      w.forget_behind(*op);
      continue;
    }
    w.op = op;
    std::visit(Overloaded{[&](const Exchange& o) { meet_partners(w, o); },
                          [&](const Collective& o) { meet_group(w, o); }},
               std::get<Transfer>(op->body));
  }
}

bool Walk::well_formed(Walker& w, const Op& op) {
  if (!op.stream.valid() || op.stream.index() >= schedule_.streams.size()) {
    ledger_.findings.stop(fmt::format("rank {}, op {} {}: its stream {} does not exist",
                                      w.rank.value, w.cursor.position() - 1, name_of(op.body),
                                      op.stream.value));
    return false;
  }
  const Site s = site(w, op);
  const Access access = access_of(op.body);
  for (const auto ids : {access.reads(), access.writes()}) {
    for (const BufferId id : ids) {
      if (!id.valid() || id.index() >= w.contents.size()) {
        s.stop(fmt::format("buffer {} does not exist", id.value));
        return false;
      }
    }
  }
  if (const auto* collective = op_if<Collective>(op.body)) {
    return well_formed(s, *collective);
  }
  const auto* exchange = op_if<Exchange>(op.body);
  return exchange == nullptr || well_formed(s, *exchange);
}

bool Walk::well_formed(const Site& s, const Collective& op) {
  const RankGroup& group = op.group;
  const bool inside = group.size >= 1 && exists(group.rank(0)) &&
                      exists(group.rank(group.size - 1)) && is_member(group, s.rank);
  if (!inside) {
    s.stop(fmt::format("its group of {} ranks from rank {}, {} apart, does not exist or lacks it",
                       group.size, group.first, group.stride));
    return false;
  }
  if (std::holds_alternative<TokenDeal>(op.deal) == (op.kind == CollectiveKind::all_to_all)) {
    s.stop("an all_to_all deals heads or experts' slots, other collectives deal tokens");
    return false;
  }
  return true;
}

bool Walk::well_formed(const Site& s, const Exchange& op) {
  const auto known = [&](Rank peer, const BufferList& list, std::string_view verb) {
    if (peer.valid() == !list.empty() && (!peer.valid() || exists(peer))) {
      return true;
    }
    s.stop(fmt::format("{} {} buffers {} rank {}", verb, list.ids().size(),
                       verb == "sends" ? "to" : "from", peer.value));
    return false;
  };
  if (!known(op.to, op.send, "sends") || !known(op.from, op.receive, "receives")) {
    return false;
  }
  for (const BufferId out : op.send) {
    for (const BufferId in : op.receive) {
      if (out == in) {
        s.stop(fmt::format("sends and receives '{}' at the same time", s.buffer(in).name));
        return false;
      }
    }
  }
  return true;
}

void Walk::complete(Walker& w) {
  w.forget_behind(*w.op);
  w.op = nullptr;
  w.sent = false;
  w.received = false;
  ready_.push_back(w.rank);
}

void Walk::complete_if_done(Walker& w, const Exchange& op) {
  if ((w.sent || !op.to.valid()) && (w.received || !op.from.valid())) {
    complete(w);
  }
}

void Walk::meet_partners(Walker& w, const Exchange& op) {
  const StreamId stream = w.op->stream;
  const auto pass = [&](Walker& from, const Exchange& sent, Walker& to, const Exchange& received) {
    deliver(site(from, *from.op), sent, site(to, *to.op), received);
    from.sent = true;
    to.received = true;
    messages_ += from.rank == to.rank ? 0 : 1;
  };
  if (op.to.valid()) {
    Walker& target = at(op.to);
    const Exchange* theirs = target.exchange(stream);
    if (theirs != nullptr && theirs->from == w.rank && !target.received) {
      pass(w, op, target, *theirs);
      if (target.rank != w.rank) {
        complete_if_done(target, *theirs);
      }
    }
  }
  if (op.from.valid() && !w.received) {
    Walker& source = at(op.from);
    const Exchange* theirs = source.exchange(stream);
    if (theirs != nullptr && theirs->to == w.rank && !source.sent) {
      pass(source, *theirs, w, op);
      complete_if_done(source, *theirs);
    }
  }
  complete_if_done(w, op);
}

void Walk::meet_group(Walker& w, const Collective& op) {
  std::vector<const Collective*> ops;
  for (int i = 0; i < op.group.size; ++i) {
    Walker& member = at(op.group.rank(i));
    const Collective* theirs = member.collective(w.op->stream);
    if (theirs == nullptr || theirs->group != op.group) {
      return;  // it comes later, or never
    }
    if (!agree(op, *theirs)) {
      site(w, *w.op).stop(
          fmt::format("meets another call of its group: {}", site(member, *member.op).where()));
      return;
    }
    ops.push_back(theirs);
  }
  std::vector<Site> sites;
  for (int i = 0; i < op.group.size; ++i) {
    Walker& member = at(op.group.rank(i));
    sites.push_back(site(member, *member.op));
  }
  meet(sites, ops);
  messages_ += std::int64_t{op.group.size} * (op.group.size - 1);
  for (const Site& s : sites) {
    complete(at(s.rank));
  }
}

Walk::Wait Walk::wait_of(Walker& w) {
  const std::string place = site(w, *w.op).where();
  if (const auto* o = op_if<Exchange>(w.op->body)) {
    const bool sends = o->to.valid() && !w.sent;
    const bool receives = o->from.valid() && !w.received && !(sends && at(o->to).finished);
    const Rank whom = receives ? o->from : o->to;
    return {.whom = whom,
            .text = fmt::format("{} waits {} rank {}", place,
                                receives ? "for a message from" : "to send to", whom.value)};
  }
  const RankGroup& group = op_if<Collective>(w.op->body)->group;
  Rank whom = w.rank;
  for (int i = group.size - 1; i >= 0; --i) {
    const Walker& member = at(group.rank(i));
    const Collective* theirs = member.collective(w.op->stream);
    whom = theirs == nullptr || theirs->group != group ? member.rank : whom;
  }
  return {.whom = whom,
          .text = fmt::format("{} waits for rank {} to take part", place, whom.value)};
}

void Walk::report_waits() {
  std::vector<Rank> waiting;
  for (Walker& w : walkers_) {
    if (w.finished) {
      continue;
    }
    waiting.push_back(w.rank);
    const Wait wait = wait_of(w);
    if (at(wait.whom).finished) {
      ledger_.findings.stop(
          fmt::format("no partner: {}, which has finished its program", wait.text));
      return;
    }
  }
  if (waiting.empty()) {
    return;
  }
  // Nobody waits for a finished rank, so following the waits must come back to a rank.
  std::vector<bool> seen(walkers_.size());
  Rank start = waiting.front();
  while (!seen[start.index()]) {
    seen[start.index()] = true;
    start = wait_of(at(start)).whom;
  }
  std::string text;
  Rank rank = start;
  do {
    const Wait wait = wait_of(at(rank));
    text += fmt::format("{}{}", text.empty() ? "" : "; ", wait.text);
    rank = wait.whom;
  } while (rank != start);
  ledger_.findings.stop(fmt::format("deadlock: {}", text));
}

}  // namespace

Proof prove(const Schedule& schedule, const Watch& watch) { return Walk(schedule, watch).prove(); }

}  // namespace spp
