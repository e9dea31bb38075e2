#include "parallel/pipeline/walk.hpp"

#include "base/error.hpp"
#include "base/memo.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

namespace spp {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// When each virtual stage has ended what is waited for of each micro-batch, or when others have
/// it.
class Times {
 public:
  explicit Times(const PipelineShape& shape)
      : micro_batches_(static_cast<std::size_t>(shape.micro_batches)),
        ends_(2 * micro_batches_ * static_cast<std::size_t>(shape.virtual_stages()), never) {}

  enum class Part : std::uint8_t { forward, input_gradient };
  double& at(Part part, int stage, int micro_batch) {
    return ends_[(static_cast<std::size_t>(stage) * micro_batches_ +
                  static_cast<std::size_t>(micro_batch)) *
                     2 +
                 static_cast<std::size_t>(part)];
  }

 private:
  std::size_t micro_batches_;
  std::vector<double> ends_;
};

using Orders = std::vector<std::vector<StageOp>>;  // by rank

/// Plans that differ in times alone ask for the same.
std::shared_ptr<const Orders> orders_of(const Pipeline& pipeline, const PipelineShape& shape) {
  struct Shaped {
    decltype(Pipeline::order) order;
    PipelineShape shape;
    bool operator==(const Shaped&) const = default;
  };
  constexpr std::size_t most = 32;
  thread_local Memo<Shaped, Orders> known(most);
  return known.of({.order = pipeline.order, .shape = shape}, [](const Shaped& of) {
    Orders orders;
    for (int r = 0; r < of.shape.stages; ++r) {
      orders.push_back(of.order(of.shape, r));
    }
    return orders;
  });
}

class Walker {
 public:
  Walker(const Pipeline& pipeline, const PipelineShape& shape, const PipelineTimes& times)
      : shape_(shape),
        times_(times),
        done_(shape),
        arrived_(shape),
        known_orders_(orders_of(pipeline, shape)),
        orders_(*known_orders_),
        meets_others_(times.share_cards()) {
    next_.assign(orders_.size(), 0);
    free_.assign(orders_.size(), 0);
    const int cards = times_.cards.empty() ? shape_.stages : std::ranges::max(times_.cards) + 1;
    out_.assign(static_cast<std::size_t>(shape_.stages + cards), 0);
    in_.assign(static_cast<std::size_t>(shape_.stages + cards), 0);
    result_.ranks.resize(orders_.size());
    for (std::size_t r = 0; r < orders_.size(); ++r) {
      result_.ranks[r].ops.reserve(orders_[r].size());
    }
  }

  PipelineWalk run() {
    if (meets_others_) {
      in_time();
    } else {
      rank_by_rank();
    }
    for (int r = 0; r < shape_.stages && result_.stuck.empty(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (next_[i] < orders_[i].size()) {
        const StageOp& op = orders_[i][next_[i]];
        result_.stuck = fmt::format("rank {} waits for ever at {}: {}", r,
                                    to_string(op, shape_.chunks), missing(op, r));
      }
    }
    return std::move(result_);
  }

 private:
  using Part = Times::Part;

  /// Each rank as far as it comes: when others send does not matter to it.
  void rank_by_rank() {
    bool moved = true;
    while (moved) {  // down with the forwards, up with the gradients
      moved = false;
      for (int r = 0; r < shape_.stages; ++r) {
        moved |= advance(r);
      }
      for (int r = shape_.stages - 1; r-- > 0;) {
        moved |= advance(r);
      }
    }
  }

  /// Ops in the order in which they end, which is that of their messages: what an op makes possible
  /// ends behind it.
  void in_time() {
    std::vector<double> ends(orders_.size());  // of each rank's next op
    const auto look_at = [&](int rank) { ends[static_cast<std::size_t>(rank)] = next_end(rank); };
    for (int r = 0; r < shape_.stages; ++r) {
      look_at(r);
    }
    while (true) {
      int rank = 0;
      for (int r = 1; r < shape_.stages; ++r) {
        // Of those that end at once the first one, whatever sums are rounded to.
        constexpr double at_once = 1 - 1e-10;
        if (ends[static_cast<std::size_t>(r)] < at_once * ends[static_cast<std::size_t>(rank)]) {
          rank = r;
        }
      }
      if (!advance_once(rank)) {
        return;
      }
      look_at(rank);
      look_at((rank + 1) % shape_.stages);
      look_at((rank + shape_.stages - 1) % shape_.stages);
    }
  }

  /// Of a rank's next op; `never` if it has none, or waits for others.
  double next_end(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (next_[r] == orders_[r].size()) {
      return never;
    }
    const StageOp& op = orders_[r][next_[r]];
    return std::max(ready(op, rank), free_[r]) + takes(op, rank);
  }
  [[nodiscard]] double takes(const StageOp& op, int rank) const {
    const int stage = shape_.virtual_stage(rank, op.chunk);
    return times_.stages[static_cast<std::size_t>(stage)].of(op.work);
  }

  /// When what the op needs is there; `never` if it is not yet known.
  double ready(const StageOp& op, int rank) {
    const int stage = shape_.virtual_stage(rank, op.chunk);
    switch (op.work) {
      case StageWork::forward:
        return stage == 0 ? 0 : arrived_.at(Part::forward, stage - 1, op.micro_batch);
      case StageWork::backward:
      case StageWork::input_gradient: {
        const double own = done_.at(Part::forward, stage, op.micro_batch);
        const bool last = stage + 1 == shape_.virtual_stages();
        return last ? own
                    : std::max(own, arrived_.at(Part::input_gradient, stage + 1, op.micro_batch));
      }
      case StageWork::weight_gradient:
        return done_.at(Part::input_gradient, stage, op.micro_batch);
    }
    throw InternalError("no such StageWork");
  }

  /// When another rank has what an op gives that has ended at `end`.
  double arrival(const StageOp& op, int rank, double end) {
    if (!sends(shape_, op, rank)) {
      return end;
    }
    const double message = times_.message_of(shape_, op, rank);
    const bool across = times_.crosses(shape_, op, rank);
    double& out = out_[port_of(rank, across)];
    double& in = in_[port_of(receiver_of(shape_, op, rank), across)];
    out = std::max(out, end) + message;
    in = meets_others_ ? std::max(out, in + message) : out;  // passed on while it comes in
    return in;
  }
  /// Inside its node each rank has its own.
  [[nodiscard]] std::size_t port_of(int rank, bool across) const {
    const int card = times_.cards.empty() ? rank : times_.cards[static_cast<std::size_t>(rank)];
    return static_cast<std::size_t>(across ? shape_.stages + card : rank);
  }

  std::string missing(const StageOp& op, int rank) {
    const int stage = shape_.virtual_stage(rank, op.chunk);
    if (op.work == StageWork::forward) {
      return fmt::format("virtual stage {} never sends micro-batch {}", stage - 1, op.micro_batch);
    }
    if (op.work == StageWork::weight_gradient ||
        done_.at(Part::forward, stage, op.micro_batch) == never) {
      return "its own earlier part stands behind it";
    }
    return fmt::format("virtual stage {} never sends the gradient of micro-batch {}", stage + 1,
                       op.micro_batch);
  }

  /// As far as a rank comes; whether it came any further.
  bool advance(int rank) {
    bool moved = false;
    while (advance_once(rank)) {
      moved = true;
    }
    return moved;
  }

  /// Whether a rank's next op could be run.
  bool advance_once(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (next_[r] == orders_[r].size()) {
      return false;
    }
    const StageOp& op = orders_[r][next_[r]];
    const double from = ready(op, rank);
    if (from == never) {
      return false;
    }
    PipelineRank& result = result_.ranks[r];
    const int stage = shape_.virtual_stage(rank, op.chunk);
    const double work = takes(op, rank);
    const double begin = std::max(from, free_[r]);
    const double end = begin + work;
    const double arrives = arrival(op, rank, end);
    result.ops.push_back({.op = op, .begin = begin, .end = end, .arrives = arrives});
    result.busy += work;
    if (op.work != StageWork::weight_gradient) {
      const Part part = op.work == StageWork::forward ? Part::forward : Part::input_gradient;
      done_.at(part, stage, op.micro_batch) = end;
      arrived_.at(part, stage, op.micro_batch) = arrives;
    }
    free_[r] = end;
    if (!times_.overlap && sends(shape_, op, rank)) {
      free_[r] = arrives;
      result.sending += arrives - end;
    }
    ++next_[r];
    return true;
  }

  const PipelineShape& shape_;
  const PipelineTimes& times_;
  Times done_, arrived_;
  std::shared_ptr<const Orders> known_orders_;
  const Orders& orders_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  bool meets_others_;             // what a rank sends, on the cards that it shares with them
  std::vector<double> out_, in_;  // by port: when its last message has left, or come
  PipelineWalk result_;
};

std::size_t last_forward(const PipelineRank& rank) {
  std::size_t i = rank.ops.size();
  while (rank.ops[--i].op.work != StageWork::forward) {
  }
  return i;
}

/// Of p micro-batches.
std::size_t ops_of_period(const PipelineRank& rank, const PipelineShape& shape) {
  return rank.ops.size() / static_cast<std::size_t>(shape.micro_batches) *
         static_cast<std::size_t>(shape.stages);
}

/// How much later each rank does what it repeats for the next p micro-batches: if the last two
/// times before its last forward are those before, later by as much on all ranks. What follows then
/// is as much later for every time that is put in between, as no op waits for one further back.
std::optional<double> period_of(const PipelineWalk& walked, const PipelineShape& shape) {
  const double rounding = 1e-12 * walked.end();
  std::optional<double> period;
  for (const PipelineRank& rank : walked.ranks) {
    const std::size_t ops = ops_of_period(rank, shape);
    const std::size_t last = last_forward(rank);
    if (last + 1 < 3 * ops) {
      return std::nullopt;
    }
    for (std::size_t i = last + 1 - 2 * ops; i <= last; ++i) {
      const StageInterval& now = rank.ops[i];
      const StageInterval& before = rank.ops[i - ops];
      const double later = now.begin - before.begin;
      period = period.value_or(later);
      if (now.op.work != before.op.work || now.op.chunk != before.op.chunk ||
          std::abs(later - *period) > rounding ||
          std::abs(now.arrives - before.arrives - *period) > rounding) {
        return std::nullopt;
      }
    }
  }
  return period;
}

/// How often each part of each micro-batch stands in a rank's order; the first that is not once.
std::string not_once(const PipelineShape& shape, std::span<const StageOp> order, int rank) {
  const auto chunks = static_cast<std::size_t>(shape.chunks);
  std::vector<std::array<int, 3>> counts(static_cast<std::size_t>(shape.micro_batches) * chunks);
  for (const StageOp& op : order) {
    if (op.micro_batch < 0 || op.micro_batch >= shape.micro_batches || op.chunk < 0 ||
        op.chunk >= shape.chunks) {
      return fmt::format("rank {} works on {}, which there is not", rank,
                         to_string(op, shape.chunks));
    }
    auto& count = counts[static_cast<std::size_t>(op.micro_batch) * chunks +
                         static_cast<std::size_t>(op.chunk)];
    count[0] += op.work == StageWork::forward ? 1 : 0;
    count[1] += op.work == StageWork::backward || op.work == StageWork::input_gradient ? 1 : 0;
    count[2] += op.work == StageWork::backward || op.work == StageWork::weight_gradient ? 1 : 0;
  }
  constexpr std::array<std::string_view, 3> names{"forward", "input gradient", "weight gradient"};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::size_t part = 0; part < names.size(); ++part) {
      if (counts[i][part] != 1) {
        return fmt::format("rank {} runs the {} of micro-batch {} in chunk {} {} times", rank,
                           names[part], i / chunks, i % chunks, counts[i][part]);
      }
    }
  }
  return "";
}

}  // namespace

double PipelineWalk::end() const {
  double last = 0;
  for (const PipelineRank& rank : ranks) {
    last = std::max(last, rank.end());
  }
  return last;
}

namespace {

/// The rank before the link that an op's message takes.
std::size_t link_of(const PipelineShape& shape, const StageOp& op, int rank) {
  const int before = op.work == StageWork::forward ? rank : rank - 1;
  return static_cast<std::size_t>((before + shape.stages) % shape.stages);
}

}  // namespace

double PipelineTimes::message_of(const PipelineShape& shape, const StageOp& op, int rank) const {
  return messages[link_of(shape, op, rank)];
}

bool PipelineTimes::share_cards() const {
  std::vector<int> sorted = cards;
  std::ranges::sort(sorted);
  return std::ranges::find(across, true) != across.end() &&
         std::ranges::adjacent_find(sorted) != sorted.end();
}

bool PipelineTimes::crosses(const PipelineShape& shape, const StageOp& op, int rank) const {
  return !across.empty() && across[link_of(shape, op, rank)];
}

bool sends(const PipelineShape& shape, const StageOp& op, int rank) {
  const int stage = shape.virtual_stage(rank, op.chunk);
  return shape.stages > 1 && (op.work == StageWork::forward ? stage + 1 < shape.virtual_stages()
                              : op.work == StageWork::weight_gradient ? false
                                                                      : stage > 0);
}

int receiver_of(const PipelineShape& shape, const StageOp& op, int rank) {
  const int next = op.work == StageWork::forward ? rank + 1 : rank - 1;
  return (next + shape.stages) % shape.stages;
}

PipelineWalk walk(const Pipeline& pipeline, const PipelineShape& shape,
                  const PipelineTimes& times) {
  ensure(times.stages.size() == static_cast<std::size_t>(shape.virtual_stages()) &&
             times.messages.size() == static_cast<std::size_t>(shape.stages),
         "times for each virtual stage, and of messages for each rank");
  return Walker(pipeline, shape, times).run();
}

PipelineWalk walk_ends(const Pipeline& pipeline, const PipelineShape& shape,
                       const PipelineTimes& times) {
  constexpr int most_turns = 5;  // p micro-batches each, in which ranks come into step if they do
  const int skipped = pipeline.repeats ? shape.micro_batches / shape.stages - most_turns : 0;
  if (skipped < 2) {
    return walk(pipeline, shape, times);
  }
  PipelineShape shorter = shape;
  shorter.micro_batches -= skipped * shape.stages;
  PipelineWalk walked = walk(pipeline, shorter, times);
  const auto period = walked.stuck.empty() ? period_of(walked, shorter) : std::nullopt;
  if (!period) {
    return walk(pipeline, shape, times);
  }
  const double later = skipped * *period;
  for (int r = 0; r < shape.stages; ++r) {
    PipelineRank& rank = walked.ranks[static_cast<std::size_t>(r)];
    const std::size_t last = last_forward(rank);
    const std::size_t ops = ops_of_period(rank, shorter);
    for (std::size_t i = last + 1 - ops; i <= last; ++i) {
      const StageInterval& again = rank.ops[i];
      rank.busy += skipped * (again.end - again.begin);
      rank.sending += times.overlap ? 0 : skipped * (again.arrives - again.end);
    }
    rank.ops.erase(rank.ops.begin(), rank.ops.begin() + static_cast<std::ptrdiff_t>(last));
    for (StageInterval& interval : rank.ops) {
      interval.op.micro_batch += skipped * shape.stages;
      interval.begin += later;
      interval.end += later;
      interval.arrives += later;
    }
  }
  return walked;
}

std::string disproof(const Pipeline& pipeline, const PipelineShape& shape) {
  for (int r = 0; r < shape.stages; ++r) {
    if (std::string wrong = not_once(shape, pipeline.order(shape, r), r); !wrong.empty()) {
      return wrong;
    }
  }
  const PipelineTimes equal{
      .stages = std::vector<StageTimes>(static_cast<std::size_t>(shape.virtual_stages())),
      .messages = std::vector<double>(static_cast<std::size_t>(shape.stages))};
  return walk(pipeline, shape, equal).stuck;
}

double most_held(std::span<const StageOp> order, std::span<const HeldByChunk> held) {
  double now = 0;
  double most = 0;
  for (const StageOp& op : order) {
    const HeldByChunk& one = held[static_cast<std::size_t>(op.chunk)];
    switch (op.work) {
      case StageWork::forward:
        now += one.forward;
        break;
      case StageWork::backward:
        now -= one.forward;
        break;
      case StageWork::input_gradient:
        now += one.input_gradient - one.forward;
        break;
      case StageWork::weight_gradient:
        now -= one.input_gradient;
        break;
    }
    most = std::max(most, now);
  }
  return most;
}

double most_held(const Pipeline& pipeline, PipelineShape shape, int rank,
                 std::span<const HeldByChunk> held) {
  // The warm-up, a period in which as much is taken as let go, and what is left behind the last
  // forward.
  const int shown = 4 * shape.stages;
  if (pipeline.repeats && shape.micro_batches > shown) {
    shape.micro_batches = shown + shape.micro_batches % shape.stages;
  }
  return most_held(pipeline.order(shape, rank), held);
}

}  // namespace spp
