#include "schedule/demand.hpp"

#include "schedule/atoms.hpp"
#include "schedule/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

namespace spp {
namespace {

/// Calls `visit(i)` for at most `most` numbers below `count`, spread out, the first among them; not
/// evenly, since loops may have a period.
template <class Visit>
std::int64_t sample(std::int64_t count, std::int64_t most, Visit visit) {
  const std::int64_t samples = std::min(count, most);
  for (std::int64_t s = 0; s < samples; ++s) {
    constexpr double golden = 0.6180339887498949;
    const double place = static_cast<double>(s) + std::fmod(golden * static_cast<double>(s), 1.0);
    visit(count <= most ? s
                        : static_cast<std::int64_t>(place * static_cast<double>(count) /
                                                    static_cast<double>(samples)));
  }
  return samples;
}

/// Messages that one rank's op sends to other ranks.
double messages_of(const OpBody& body, Rank rank) {
  if (const auto* exchange = op_if<Exchange>(body)) {
    return exchange->to.valid() && exchange->to != rank ? 1 : 0;
  }
  const auto* collective = op_if<Collective>(body);
  return collective != nullptr ? collective->group.size - 1 : 0;
}

/// That a collective has on the way at once: an all-to-all to all of its group, rings to a
/// neighbour or two.
int at_once(const OpBody& body) {
  const auto* collective = op_if<Collective>(body);
  if (collective == nullptr) {
    return 1;
  }
  const bool rings = collective->kind != CollectiveKind::all_to_all;
  return rings ? std::min(collective->group.size, 2) : collective->group.size;
}

/// Ranks that may differ in how much they do. Those that differ along a symmetric axis alone do
/// not: however it moves, ops and messages stay (AxisMoves). Of a small schedule all.
class UnlikeRanks {
 public:
  explicit UnlikeRanks(const Schedule& schedule) {
    const Mesh& mesh = schedule.mesh;
    const bool small = mesh.size() <= sampled_ranks;
    for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis) {
      const MeshAxis& along = mesh.axes()[axis];
      const bool alike = std::ranges::find(schedule.symmetry, along.name, &SymmetricAxis::axis) !=
                         schedule.symmetry.end();
      if (small || !alike) {
        axes_.push_back({.stride = mesh.stride(axis), .size = along.size});
        count_ *= along.size;
      }
    }
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] Rank operator[](std::int64_t number) const {
    int rank = 0;
    for (const RankGroup& axis : axes_) {
      rank += axis.rank(static_cast<int>(number % axis.size)).value;
      number /= axis.size;
    }
    return Rank(rank);
  }

 private:
  std::vector<RankGroup> axes_;
  std::int64_t count_ = 1;
};

/// Adds what one rank does, by samples of its loops. `visit` sees every sampled op, of loops that
/// are like each other those of the first.
template <class Visit>
void add_rank(Demand& demand, const Program& program, Rank rank, Visit visit) {
  OpList ops;
  std::vector<Demand> of_loops;
  of_loops.reserve(program.loops.size());
  for (const Loop& loop : program.loops) {
    Demand& all = of_loops.emplace_back();
    if (loop.like != Loop::none) {
      all = of_loops[loop.like];
    } else {
      const std::int64_t samples = sample(loop.trips, sampled_trips, [&](std::int64_t trip) {
        ops.clear();
        loop.body(trip, ops);
        all.ops += static_cast<double>(ops.size());
        for (const Op& op : ops) {
          all.messages += messages_of(op.body, rank);
          demand.most_at_once = std::max(demand.most_at_once, at_once(op.body));
          visit(op);
        }
      });
      const double times =
          samples > 0 ? static_cast<double>(loop.trips) / static_cast<double>(samples) : 0;
      all.ops *= times;
      all.messages *= times;
    }
    demand.ops += all.ops;
    demand.messages += all.messages;
  }
  demand.buffers += static_cast<double>(program.buffers.size());
}

/// Atoms of the proof's grid (atoms.hpp).
struct Grid {
  double tokens = 1;    // token atoms
  double beside = 1;    // of one micro-batch
  double met = 1;       // from the first to the last that a query or a key meets, the sink included
  double of_atom = 1;   // tokens of one
  double q_heads = 1;   // query heads of one head atom
  double kv_heads = 1;  // KV heads of one
  int parts = 1, replicas = 1;

  explicit Grid(const Schedule& s)
      : parts(s.grain.heads.parts()), replicas(s.grain.heads.replicas()) {
    q_heads = static_cast<double>(s.contract.attention.q_heads) / parts;
    kv_heads = static_cast<double>(s.contract.attention.kv_heads) * replicas / parts;
    tokens = token_atoms(s);
    beside = std::max(1.0, tokens / s.contract.attention.micro_batches);
    met = s.contract.attention.sinks || replicas > 1 ? tokens : beside;
    of_atom = static_cast<double>(s.contract.attention.all_tokens()) / tokens;
  }

 private:
  static double token_atoms(const Schedule& s) {
    const int ranks = s.mesh.size();
    std::ptrdiff_t tiles = 1;  // of one tensor on one rank
    sample(ranks, sampled_ranks, [&](std::int64_t r) {
      std::map<TensorRef, std::ptrdiff_t> declared;
      for (const Buffer& buffer : s.program(Rank(static_cast<int>(r))).buffers) {
        if (!is_param(buffer.tensor)) {
          tiles = std::max(tiles, declared[buffer.ref()] += std::ssize(buffer.tile.ranges()));
        }
      }
    });
    const auto cuts = static_cast<double>(s.grain.cuts.size());
    if (tiles > 2) {
      return static_cast<double>(tiles) * ranks + cuts;
    }
    // A home is an atom; two, if the grain cuts it in its middle.
    const std::int64_t chunks =
        s.grain.tokens > 0
            ? std::max<std::int64_t>(1, s.contract.attention.all_tokens() / s.grain.tokens)
            : 1;
    return ranks + (ranks % chunks != 0 ? static_cast<double>(chunks) / 2 : 0.0) + cuts;
  }
};

constexpr double bytes_of_word = 8;
/// What an allocation takes beside its bytes, and at least.
constexpr double allocation = 16;
constexpr double smallest = 32;

/// An AtomSet of up to `atoms` atoms in a row; of a mask that hides half, three quarters on
/// average.
double set_bytes(double atoms) {
  return std::max(smallest, 0.75 * std::ceil(atoms / 64) * bytes_of_word + allocation);
}

/// Pieces of one buffer when it is full, with what they have met.
double content_bytes(const Buffer& buffer, const Grid& grid) {
  constexpr double piece = 56;    // a cell and two sets
  constexpr double growth = 1.5;  // of vectors that are filled one by one
  const double rows = static_cast<double>(buffer.tokens);
  const double of_atom = is_of_graph(buffer.tensor) ? 1
                         : is_kv(buffer.tensor)     ? grid.kv_heads
                                                    : grid.q_heads;
  const double pieces = std::max(1.0, is_param(buffer.tensor)   ? 1
                                      : is_state(buffer.tensor) ? rows
                                                                : rows / grid.of_atom) *
                        std::max(1.0, buffer.heads / of_atom);
  double sets = 0;
  switch (buffer.tensor) {
    case Tensor::out:
    case Tensor::weights:
      sets = 2 * set_bytes(grid.met);
      break;
    case Tensor::lse:
    case Tensor::d_q:
    case Tensor::scores:
    case Tensor::d_weights:
    case Tensor::d_scores:
    case Tensor::state:
      sets = set_bytes(grid.met);
      break;
    case Tensor::d_k:
    case Tensor::d_v:
    case Tensor::d_state:
      sets = set_bytes(grid.met * grid.replicas);
      break;
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
    case Tensor::d_out:
    case Tensor::delta:
    case Tensor::value:
    case Tensor::d_value:
    case Tensor::param:
    case Tensor::master:
    case Tensor::first_moment:
    case Tensor::second_moment:
      break;
    case Tensor::d_param:
      sets = set_bytes(grid.tokens);
      break;
  }
  return pieces * (growth * piece + sets);
}

/// The most that a rank's buffers hold at once: what no later op asks for is forgotten. Few buffers
/// are counted as if all of them were full.
double contents_bytes(const Program& program, const Grid& grid) {
  double always = 0;
  std::map<std::int64_t, double> change;  // by position
  const bool all = program.buffers.size() <= few_buffers;
  const std::vector<Lifespan> lifespans = all ? std::vector<Lifespan>() : lifespans_of(program);
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const double bytes = content_bytes(program.buffers[i], grid);
    if (all || program.buffers[i].role != BufferRole::scratch) {
      always += bytes;
    } else if (lifespans[i].first > 0) {
      change[lifespans[i].first] += bytes;
      change[lifespans[i].last + 1] -= bytes;
    }
  }
  double alive = 0;
  double most = 0;
  for (const auto& [position, bytes] : change) {
    alive += bytes;
    most = std::max(most, alive);
  }
  return always + most;
}

/// What a rank's place in the walk takes: a program, its loops and names, and where it is.
constexpr double buffer_bytes = 320;
constexpr double walker_bytes = 6000;

Demand demand_of_programs(const Schedule& schedule) {
  Demand demand{.ranks = schedule.mesh.size()};
  const UnlikeRanks unlike(schedule);
  const std::int64_t samples = sample(unlike.count(), sampled_ranks, [&](std::int64_t i) {
    const Rank rank = unlike[i];
    add_rank(demand, schedule.program(rank), rank, [](const Op&) {});
  });
  const double times = static_cast<double>(demand.ranks) / static_cast<double>(samples);
  demand.ops *= times;
  demand.messages *= times;
  demand.buffers *= times;
  return demand;
}

}  // namespace

Demand demand_of(const Schedule& schedule) {
  const Turns& turns = schedule.turns;
  // Behind the first micro-batches and before the last one, each turn asks for the same.
  constexpr int micro_batches = 5;
  const int few = (micro_batches + turns.repeats - 1) / turns.repeats;
  if (turns.count <= 2 * few + 1) {
    return demand_of_programs(schedule);
  }
  const Demand less = demand_of_programs(turns.of(few));
  Demand demand = demand_of_programs(turns.of(few + 1));
  const double more = turns.count - (few + 1);
  demand.ops += more * (demand.ops - less.ops);
  demand.messages += more * (demand.messages - less.messages);
  demand.buffers += more * (demand.buffers - less.buffers);
  return demand;
}

double token_atoms_of(const Schedule& schedule) { return Grid(schedule).tokens; }

Bytes proof_memory(const Schedule& schedule) {
  const Grid grid(schedule);
  const int ranks = schedule.mesh.size();
  double of_ranks = 0;
  const std::int64_t samples = sample(ranks, sampled_ranks, [&](std::int64_t r) {
    const Rank rank(static_cast<int>(r));
    const Program program = schedule.program(rank);
    of_ranks += walker_bytes + buffer_bytes * static_cast<double>(program.buffers.size()) +
                contents_bytes(program, grid);
    Demand unused;
    double widest = 0;  // set of tokens that ops name: the grid remembers the atoms of each
    add_rank(unused, program, rank, [&](const Op& op) {
      visit_op(
          [&](const auto& body) {
            if constexpr (requires { body.k_tokens; }) {
              widest = std::max(widest, static_cast<double>(body.k_tokens.count()));
            }
          },
          op.body);
    });
    of_ranks += 2 * sizeof(int) * widest / grid.of_atom;
  });
  of_ranks *= static_cast<double>(ranks) / static_cast<double>(samples);
  const double pairs = grid.tokens * grid.beside;
  const int attentions = std::max(1, schedule.contract.graph.attentions());
  const int times = schedule.contract.phase != Phase::step ? 1
                    : schedule.contract.recomputes         ? 3
                                                           : 2;
  const double meetings =
      static_cast<double>(sizeof(std::int32_t)) * grid.parts * pairs * attentions * times;
  const double masks = pairs / 8 * 2 + grid.tokens * (1 + grid.replicas) * set_bytes(grid.met);
  constexpr double most = 9e18;  // a Bytes holds it
  return Bytes(static_cast<std::int64_t>(std::min(most, meetings + masks + of_ranks)));
}

}  // namespace spp
