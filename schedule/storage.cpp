#include "schedule/storage.hpp"

#include "base/error.hpp"
#include "schedule/demand.hpp"
#include "schedule/leftovers.hpp"
#include "schedule/storage_rank.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace spp {
namespace {

/// Which ops an op waits for.
class Dependencies {
 public:
  Dependencies(std::size_t buffers, std::size_t streams) : touches_(buffers), streams_(streams) {
    for (Touches& t : touches_) {
      t.last.assign(streams, -1);
      t.last_write.assign(streams, -1);
    }
  }

  /// Of op number `index`; the last op of every other stream that it waits for.
  std::vector<std::int32_t> of(const Op& op, std::int32_t index) {
    std::vector<std::int32_t> waits(streams_, -1);
    const auto wait = [&](const std::vector<std::int32_t>& ops) {
      for (std::size_t s = 0; s < streams_; ++s) {
        waits[s] = std::max(waits[s], ops[s]);
      }
    };
    const Access access = access_of(op.body);
    for (const BufferId id : access.reads()) {
      wait(touches_[id.index()].last_write);
    }
    for (const BufferId id : access.writes()) {
      wait(touches_[id.index()].last);
    }
    const std::size_t stream = op.stream.index();
    for (const BufferId id : access.reads()) {
      touches_[id.index()].last[stream] = index;
    }
    for (const BufferId id : access.writes()) {
      touches_[id.index()].last[stream] = index;
      touches_[id.index()].last_write[stream] = index;
    }
    waits[stream] = -1;  // its own stream runs in order
    std::erase(waits, -1);
    std::ranges::sort(waits);
    return waits;
  }

 private:
  /// By stream; an op of a stream ends before the next begins, so the last one is enough.
  struct Touches {
    std::vector<std::int32_t> last, last_write;
  };
  std::vector<Touches> touches_;
  std::size_t streams_;
};

struct CallKey {
  StreamId stream;
  int first = 0, stride = 1, size = 1;
  std::int64_t call = 0;  // how often the rank has called this group on this stream before
  friend auto operator<=>(const CallKey&, const CallKey&) = default;
};

struct Call {
  std::vector<Contribution> members;
  int arrived = 0, left = 0;
};

struct ChannelKey {
  Rank from, to;
  StreamId stream;
  friend auto operator<=>(const ChannelKey&, const ChannelKey&) = default;
};

struct RankWalk {
  RankWalk(const Schedule& schedule, Rank self, Program program, bool keeps)
      : rank(self),
        arena(keeps ? plan_arena(program) : Arena{}),
        leftovers(keeps ? Leftovers() : Leftovers(program)),
        cursor(std::move(program)),
        store(schedule, self, cursor.buffers()),
        dependencies(keeps ? cursor.buffers().size() : 0, schedule.streams.size()) {}

  Rank rank;
  Arena arena;
  Leftovers leftovers;  // where contents at the end are not asked for
  ProgramCursor cursor;
  RankStore store;
  Dependencies dependencies;
  std::vector<StoredOp> ops;
  const Op* op = nullptr;  // communication that it is in
  bool posted = false;
  CallKey call;
  std::map<CallKey, std::int64_t> calls;  // by key with call 0
  bool finished = false;
};

/// Sends are taken as soon as they are posted: a proven schedule has a receiver for each.
class Walk {
 public:
  /// `keeps`: ops, arenas and what buffers hold at the end, for programs().
  Walk(const Schedule& schedule, bool keeps, const Watch& watch) : keeps_(keeps), watch_(watch) {
    for (int r = 0; r < schedule.mesh.size(); ++r) {
      Program program = schedule.program(Rank(r));
      program.buffers.shrink_to_fit();  // those of all ranks are there at once
      ranks_.emplace_back(schedule, Rank(r), std::move(program), keeps);
    }
    if (watch_) {
      expected_ops_ = demand_of(schedule).ops;
    }
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (RankWalk& w : ranks_) {
        while (!w.finished && step(w)) {
          moved = true;
        }
      }
    }
    for (const RankWalk& w : ranks_) {
      ensure(w.finished, "a schedule that was not proven: ranks wait for each other");
    }
  }

  std::vector<StoredProgram> programs() {
    std::vector<StoredProgram> programs;
    for (RankWalk& w : ranks_) {
      StoredProgram& program = programs.emplace_back(StoredProgram{.rank = w.rank,
                                                                   .buffers = w.cursor.buffers(),
                                                                   .arena = std::move(w.arena),
                                                                   .ops = std::move(w.ops),
                                                                   .contents = {}});
      for (std::size_t b = 0; b < program.buffers.size(); ++b) {
        program.contents.push_back(w.store.content(BufferId(b)));
      }
    }
    return programs;
  }

 private:
  /// Takes one op further; false if the rank has to wait.
  bool step(RankWalk& w) {
    if (w.op == nullptr) {
      w.op = w.cursor.next();
      w.posted = false;
    }
    if (w.op == nullptr) {
      w.finished = true;
      return true;
    }
    StoredOp stored{.op = *w.op, .rows = {}, .moves = {}, .sends = {}, .receives = {}, .waits = {}};
    w.store.enter(*w.op);
    const bool done = std::visit(
        Overloaded{[&](const Kernel& kernel) {
                     std::visit([&](const auto& o) { w.store.apply(o, stored); }, kernel);
                     return true;
                   },
                   [&](const Transfer& transfer) {
                     return std::visit(
                         Overloaded{[&](const Exchange& o) { return exchange(w, o); },
                                    [&](const Collective& o) { return collective(w, o, stored); }},
                         transfer);
                   }},
        w.op->body);
    if (!done) {
      return false;
    }
    if (keeps_) {
      stored.waits = w.dependencies.of(*w.op, static_cast<std::int32_t>(w.ops.size()));
      w.ops.push_back(std::move(stored));
    }
    w.leftovers.behind(*w.op, w.cursor.position(), [&](BufferId id) { w.store.forget(id); });
    tell();
    w.op = nullptr;
    return true;
  }

  void tell() {
    constexpr std::int64_t now_and_then = 4096;  // ops
    if (watch_ && ++done_ % now_and_then == 0) {
      watch_(static_cast<double>(done_), expected_ops_);
    }
  }

  bool exchange(RankWalk& w, const Exchange& op) {
    const Rank self = w.rank;
    if (op.to.valid() && !w.posted) {
      std::vector<StoredContent> sent;
      for (const BufferId id : op.send) {
        sent.push_back(w.store.content(id));
      }
      channels_[{.from = self, .to = op.to, .stream = w.op->stream}].push_back(std::move(sent));
    }
    w.posted = true;
    if (!op.from.valid()) {
      return true;
    }
    auto& arriving = channels_[{.from = op.from, .to = self, .stream = w.op->stream}];
    if (arriving.empty()) {
      return false;
    }
    std::size_t i = 0;
    for (const BufferId id : op.receive) {
      w.store.receive(id, std::move(arriving.front().at(i++)));
    }
    arriving.pop_front();
    return true;
  }

  bool collective(RankWalk& w, const Collective& op, StoredOp& stored) {
    if (!w.posted) {
      w.call = {.stream = w.op->stream,
                .first = op.group.first,
                .stride = op.group.stride,
                .size = op.group.size,
                .call = 0};
      w.call.call = w.calls[w.call]++;
      Call& call = calls_[w.call];
      call.members.resize(static_cast<std::size_t>(op.group.size));
      call.members[static_cast<std::size_t>(op.group.index_of(w.rank))] = {
          .from = w.store.content(op.from), .to_tokens = TokenList(op.to_tokens)};
      ++call.arrived;
      w.posted = true;
    }
    Call& call = calls_[w.call];
    if (call.arrived < op.group.size) {
      return false;
    }
    w.store.apply(op, call.members, stored);
    if (++call.left == op.group.size) {
      calls_.erase(w.call);
    }
    return true;
  }

  bool keeps_;
  const Watch& watch_;
  std::int64_t done_ = 0;  // ops
  double expected_ops_ = 0;
  std::deque<RankWalk> ranks_;
  std::map<ChannelKey, std::deque<std::vector<StoredContent>>> channels_;
  std::map<CallKey, Call> calls_;
};

}  // namespace

const RowSpan& StoredOp::rows_of(BufferId id) const {
  const auto at = std::ranges::find(rows, id, &RowSpan::buffer);
  ensure(at != rows.end(), "a kernel has no rows of one of its buffers");
  return *at;
}

std::vector<StoredProgram> store(const Schedule& schedule) {
  const Watch nobody;
  Walk walk(schedule, true, nobody);
  try {
    walk.run();
  } catch (const Misplaced& e) {
    throw InternalError(e.what());
  }
  return walk.programs();
}

std::string misplaced(const Schedule& schedule, const Watch& watch) {
  try {
    Walk(schedule, false, watch).run();
  } catch (const Misplaced& e) {
    return e.what();
  }
  return "";
}

}  // namespace spp
