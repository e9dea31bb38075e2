// How a strategy writes a program: declares buffers, then appends stages. A stage is a loop whose
// body emits ops; everything it captures is captured by value, since the program outlives the
// builder.
#pragma once

#include "schedule/schedule.hpp"

#include <concepts>
#include <iterator>
#include <memory>
#include <utility>

namespace spp {

class ProgramBuilder {
 public:
  ProgramBuilder(Problem problem, Rank rank) : ProgramBuilder(std::move(problem), rank, none()) {}
  /// `graph`: of values and parameters; it outlives the builder.
  ProgramBuilder(Problem problem, Rank rank, const Graph& graph)
      : problem_(std::move(problem)), graph_(&graph), rank_(rank) {
    constexpr std::size_t of_an_attention_call = 16;
    program_.buffers.reserve(of_an_attention_call);
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Graph& graph() const { return *graph_; }
  [[nodiscard]] Rank rank() const { return rank_; }

  /// A buffer that holds `tile` x `heads` before the program starts.
  BufferId input(std::string name, TensorRef tensor, const TokenSet& tile, HeadRange heads) {
    return declare(std::move(name), tensor, BufferRole::input, natural_dtype(tensor), tile, heads);
  }
  /// The same with room behind it for so many tokens, which the program adds: a cache.
  BufferId input_with_room(std::string name, TensorRef tensor, const TokenSet& tile,
                           HeadRange heads, std::int64_t room) {
    const BufferId id = input(std::move(name), tensor, tile, heads);
    program_.buffers[id.index()].tokens += room;
    return id;
  }
  /// A buffer that must hold `tile` x `heads`, complete, when the program ends.
  BufferId output(std::string name, TensorRef tensor, const TokenSet& tile, HeadRange heads) {
    return declare(std::move(name), tensor, BufferRole::output, natural_dtype(tensor), tile, heads);
  }
  /// A buffer of what an optimizer replaces: before the program its old values, then the next.
  BufferId state(std::string name, TensorRef tensor, const TokenSet& tile, HeadRange heads) {
    return declare(std::move(name), tensor, BufferRole::state, natural_dtype(tensor), tile, heads);
  }
  /// Room for `tokens` x `heads` of a tensor.
  BufferId scratch(std::string name, TensorRef ref, std::int64_t tokens, int heads, DType dtype) {
    const BufferShape shape = shape_of(ref, problem_, *graph_);
    return push({.name = std::move(name),
                 .tensor = ref.tensor,
                 .role = BufferRole::scratch,
                 .dtype = dtype,
                 .tokens = tokens,
                 .heads = heads,
                 .width = shape.width,
                 .batch = shape.batch,
                 .label = ref.label,
                 .head_range = {},
                 .tile = {}});
  }
  /// Scratch in the tensor's natural dtype.
  BufferId scratch(std::string name, TensorRef tensor, std::int64_t tokens, int heads) {
    return scratch(std::move(name), tensor, tokens, heads, natural_dtype(tensor));
  }
  /// Like another of the program's, each token of its tile further by so many.
  BufferId push_like(BufferId other, std::string name, std::int64_t tokens) {
    const Buffer& like = buffer(other);
    return push({.name = std::move(name),
                 .tensor = like.tensor,
                 .role = like.role,
                 .dtype = like.dtype,
                 .tokens = like.tokens,
                 .heads = like.heads,
                 .width = like.width,
                 .batch = like.batch,
                 .label = like.label,
                 .head_range = like.head_range,
                 .tile = like.tile.empty() ? TokenSet() : like.tile.shifted(tokens)});
  }
  /// As it is, from another program.
  BufferId push(Buffer buffer) {
    program_.buffers.push_back(std::move(buffer));
    return BufferId(program_.buffers.size() - 1);
  }

  /// So many buffers will be declared, so that they are not moved as they grow.
  void reserve(std::size_t buffers) { program_.buffers.reserve(buffers); }
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return program_.buffers[id.index()]; }

  /// How far the program is: what follows begins a stage of its own.
  struct Place {
    std::size_t buffers = 0, loops = 0;
  };
  [[nodiscard]] Place place() {
    end_batch();
    return {.buffers = program_.buffers.size(), .loops = program_.loops.size()};
  }
  [[nodiscard]] const Loop& loop(std::size_t number) const { return program_.loops[number]; }

  /// `trips` iterations of body(i, OpList&); `like` as of a Loop.
  template <std::invocable<std::int64_t, OpList&> Body>
  void loop(std::int64_t trips, Body body, std::size_t like = Loop::none) {
    if (trips > 0) {
      end_batch();
      program_.loops.push_back({.trips = trips, .body = std::move(body), .like = like});
    }
  }
  /// A stage that runs once: body(OpList&).
  template <std::invocable<OpList&> Body>
  void once(Body body) {
    loop(1, [body = std::move(body)](std::int64_t, OpList& ops) { body(ops); });
  }
  /// A single op. Those that follow each other share a stage: a step has a million.
  void op(StreamId stream, OpBody body) {
    constexpr std::size_t most = 64;
    batch_.push_back({stream, std::move(body)});
    if (batch_.size() == most) {
      end_batch();
    }
  }

  [[nodiscard]] DType natural_dtype(TensorRef ref) const {
    return takes_fp32(ref, *graph_) ? DType::fp32 : problem_.dtype;
  }
  [[nodiscard]] Program finish() {
    end_batch();
    return std::move(program_);
  }

 private:
  static const Graph& none() {
    static const Graph graph;
    return graph;
  }
  void end_batch() {
    if (batch_.empty()) {
      return;
    }
    auto batch = std::make_shared<const OpList>(std::make_move_iterator(batch_.begin()),
                                                std::make_move_iterator(batch_.end()));
    program_.loops.push_back(
        {.trips = 1, .body = [batch = std::move(batch)](std::int64_t, OpList& ops) {
           ops.insert(ops.end(), batch->begin(), batch->end());
         }});
    batch_.clear();
  }
  BufferId declare(std::string name, TensorRef ref, BufferRole role, DType dtype,
                   const TokenSet& tile, HeadRange heads) {
    const BufferId id = scratch(std::move(name), ref, tile.count(), heads.count(), dtype);
    Buffer& buffer = program_.buffers[id.index()];
    buffer.role = role;
    buffer.tile = tile;
    buffer.head_range = heads;
    return id;
  }

  Problem problem_;
  const Graph* graph_;
  Rank rank_;
  Program program_;
  OpList batch_;  // single ops, not in the program yet
};

}  // namespace spp
