// How a strategy writes a program: declares buffers, then appends stages. A stage is a loop whose
// body emits ops; everything it captures is captured by value, since the program outlives the
// builder.
#pragma once

#include "base/error.hpp"
#include "schedule/schedule.hpp"

#include <concepts>
#include <utility>

namespace spp {

class ProgramBuilder {
 public:
  ProgramBuilder(Problem problem, Rank rank) : problem_(std::move(problem)), rank_(rank) {}

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] Rank rank() const { return rank_; }

  /// A buffer that holds `tile` x `heads` before the program starts.
  BufferId input(std::string name, Tensor tensor, const TokenSet& tile, HeadRange heads) {
    return declare(std::move(name), tensor, BufferRole::input, natural_dtype(tensor), tile, heads);
  }
  /// A buffer that must hold `tile` x `heads`, complete, when the program ends.
  BufferId output(std::string name, Tensor tensor, const TokenSet& tile, HeadRange heads) {
    return declare(std::move(name), tensor, BufferRole::output, natural_dtype(tensor), tile, heads);
  }
  /// Room for `tokens` x `heads` of a tensor.
  BufferId scratch(std::string name, Tensor tensor, std::int64_t tokens, int heads, DType dtype) {
    program_.buffers.push_back({.name = std::move(name),
                                .tensor = tensor,
                                .role = BufferRole::scratch,
                                .dtype = dtype,
                                .tokens = tokens,
                                .heads = heads,
                                .tile = {},
                                .head_range = {}});
    return BufferId(program_.buffers.size() - 1);
  }
  /// Scratch in the tensor's natural dtype: fp32 for lse, delta, states, and what a softmax is
  /// taken of; else the problem's.
  BufferId scratch(std::string name, Tensor tensor, std::int64_t tokens, int heads) {
    return scratch(std::move(name), tensor, tokens, heads, natural_dtype(tensor));
  }

  /// `trips` iterations of body(i, OpList&).
  template <std::invocable<std::int64_t, OpList&> Body>
  void loop(std::int64_t trips, Body body) {
    if (trips > 0) {
      program_.loops.push_back({.trips = trips, .body = std::move(body)});
    }
  }
  /// A stage that runs once: body(OpList&).
  template <std::invocable<OpList&> Body>
  void once(Body body) {
    loop(1, [body = std::move(body)](std::int64_t, OpList& ops) { body(ops); });
  }
  /// A single op.
  void op(StreamId stream, const OpBody& body) {
    once([op = Op{stream, body}](OpList& ops) { ops.push_back(op); });
  }

  [[nodiscard]] DType natural_dtype(Tensor tensor) const {
    switch (tensor) {
      case Tensor::lse:
      case Tensor::delta:
      case Tensor::scores:
      case Tensor::d_weights:
      case Tensor::state:
      case Tensor::d_state:
        return DType::fp32;
      case Tensor::q:
      case Tensor::k:
      case Tensor::v:
      case Tensor::out:
      case Tensor::d_out:
      case Tensor::d_q:
      case Tensor::d_k:
      case Tensor::d_v:
      case Tensor::weights:
      case Tensor::d_scores:
        return problem_.dtype;
    }
    throw InternalError("unknown tensor");
  }
  [[nodiscard]] Program finish() { return std::move(program_); }

 private:
  BufferId declare(std::string name, Tensor tensor, BufferRole role, DType dtype,
                   const TokenSet& tile, HeadRange heads) {
    program_.buffers.push_back({.name = std::move(name),
                                .tensor = tensor,
                                .role = role,
                                .dtype = dtype,
                                .tokens = tile.count(),
                                .heads = heads.count(),
                                .tile = tile,
                                .head_range = heads});
    return BufferId(program_.buffers.size() - 1);
  }

  Problem problem_;
  Rank rank_;
  Program program_;
};

}  // namespace spp
