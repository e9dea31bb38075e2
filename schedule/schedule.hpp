// The central object: a schedule is, for every rank, a program of ops on named streams.
//
// Programs are generated, not stored: `Schedule::program(rank)` gives the buffers and a list of
// loops; the body of a loop emits the few ops of one iteration. A ring over 4,096 ranks stays a
// loop of 4,095 iterations, whoever walks it (coverage, the simulator, the runtime) uses a
// ProgramCursor.
//
// Semantics (docs/schedule.md). A program has the meaning of its ops executed one after the other
// in program order. Executors may run ops of different streams at the same time as long as buffers
// keep that meaning: an op waits for the last writer of what it reads, and for the last writer and
// all readers of what it writes. Ops of one stream run in order. Dependencies are therefore never
// stated, they follow from the buffers.
#pragma once

#include "base/units.hpp"
#include "schedule/graph.hpp"
#include "schedule/mesh.hpp"
#include "schedule/op.hpp"

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace spp {

using OpList = std::vector<Op>;

/// `trips` iterations; `body(i, ops)` appends the ops of iteration i. Pure: the same i, the same
/// ops.
struct Loop {
  std::int64_t trips = 1;
  std::function<void(std::int64_t, OpList&)> body;
  /// An earlier loop of the program that emits the same, trip for trip, but for the buffers, which
  /// are other ones of the same sizes, and the tokens, which are further by whole micro-batches: so
  /// its ops take as long and move as much (repeat.hpp). none: nobody says so.
  std::size_t like = none;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Loop> loops;
};

/// How the coordinate of a symmetric axis may move. `alike`: by rotations under which ops, streams,
/// peers and messages stay, and an attention kernel its pairs but for one a query; what tokens it
/// holds, and so the shape of its tiles, may change. `equal`: by rotations under which kernels and
/// sizes stay; whose turn it is in rings through other axes, too, may change.
enum class AxisMoves : std::uint8_t { rotations, permutations, alike, equal };
std::string_view to_string(AxisMoves);

/// A mesh axis along which all ranks run the same program up to the names of their peers (or
/// nearly: `alike`, `equal`), so that one of them can stand for all (sim/folding). A claim of the
/// strategy, proven by its conformance test.
struct SymmetricAxis {
  std::string axis;
  AxisMoves under = AxisMoves::rotations;
  friend bool operator==(const SymmetricAxis&, const SymmetricAxis&) = default;
};

/// How finely a schedule cuts what it moves and computes as a whole (atoms.hpp).
struct Grain {
  /// Tokens are cut where the tiles that ranks declare begin and end, and at multiples of this; 0:
  /// nowhere else.
  std::int64_t tokens = 0;
  /// And before each of these, rising: where what is moved or computed begins or ends inside a
  /// tile.
  std::vector<std::int64_t> cuts = {};
  HeadSplit heads;
  /// Slots of states: slot s of `slots` is of the s-th of so many equal parts of the sequence. 0:
  /// no states.
  int slots = 0;
  friend bool operator==(const Grain&, const Grain&) = default;
};

/// What a schedule computes, once and whole, whichever rank computes which part of it and when:
/// what the proof (coverage.hpp) and the oracle of a run hold its programs against.
struct Contract {
  Problem attention;  // padded
  Problem requested;  // before padding
  Graph graph;        // around attention; empty: attention alone
  Phase phase = Phase::forward;
  bool recomputes = false;  // a step whose backward computes all attention's forward once more
};

struct Schedule;

/// How a step's programs go round: behind a beginning each rank does in every turn, on buffers and
/// tokens of its own, what it did in the turn before (its loops are like the others', Loop::like),
/// until it comes to an end. So what is known of few turns is known of many (sim/turns.hpp).
struct Turns {
  int count = 0;    // that all ops make, with the beginning and the end; 0: nobody says so
  int repeats = 1;  // how often a turn does each loop that others are like: its micro-batches
  std::function<Schedule(int)> of;  // the same schedule of so many turns
};

/// For every rank a program that does its part of the contract.
struct Schedule {
  Contract contract;
  Mesh mesh;
  Grain grain;
  std::vector<std::string> streams;  // names; stream 0 is "compute"
  std::vector<SymmetricAxis> symmetry;
  std::function<Program(Rank)> program;
  Turns turns;
};

/// What a buffer has of its own beside tokens and heads.
struct BufferShape {
  std::int64_t width = 1;
  std::int64_t batch = 1;
};
/// Of a tensor of attention.
BufferShape shape_of(Tensor tensor, const Problem& problem);
BufferShape shape_of(TensorRef ref, const Problem& problem, const Graph& graph);
/// Whether a tensor has elements of fp32 in problems of any type: lse, delta, states, what a
/// softmax is taken of, and gradients and moments of parameters; of a value as the graph says.
bool takes_fp32(TensorRef ref, const Graph& graph);
/// What a graph's definitions meet of this attention.
AttentionRows rows_of(const Problem& problem, int head_parts);
/// Size of so much of a buffer's tensor: batch * tokens * heads * width * element size.
inline Bytes bytes_of(const Buffer& buffer, std::int64_t tokens, int heads) {
  return Bytes(buffer.batch * tokens * heads * buffer.width * size_of(buffer.dtype));
}
/// Size of a buffer.
inline Bytes bytes_of(const Buffer& buffer) {
  return bytes_of(buffer, buffer.tokens, buffer.heads);
}

/// Walks a program op by op, holding one iteration at a time.
class ProgramCursor {
 public:
  explicit ProgramCursor(Program program) : program_(std::move(program)) {}

  /// The next op, or nullptr at the end. The op lives until the next call.
  const Op* next();
  /// Ops handed out so far.
  [[nodiscard]] std::int64_t position() const { return position_; }
  /// The loop that the last op was of.
  [[nodiscard]] std::size_t loop() const { return loop_; }
  /// The one that it is like (Loop::like); none.
  [[nodiscard]] std::size_t like() const { return program_.loops[loop_].like; }
  /// Ops of the loop before the last one.
  [[nodiscard]] std::int64_t before_in_loop() const { return in_loop_; }
  [[nodiscard]] const std::vector<Buffer>& buffers() const { return program_.buffers; }

 private:
  Program program_;
  OpList ops_;
  std::size_t op_ = 0;
  std::size_t loop_ = 0;
  std::int64_t trip_ = 0;
  std::int64_t position_ = 0;
  std::int64_t in_loop_ = -1;
};

/// All ops of one rank; for tests, small worlds and the text form.
OpList ops_of(const Program& program);
/// The first and the last op that touches a scratch buffer; positions count from 1, 0: no op does,
/// or it is no scratch.
struct Lifespan {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
/// By buffer.
std::vector<Lifespan> lifespans_of(const Program& program);
/// A program of so few buffers holds little: whoever follows it need not forget what no later op
/// asks for, nor know beforehand which that is.
constexpr std::size_t few_buffers = 1000;

}  // namespace spp
