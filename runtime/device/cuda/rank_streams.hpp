// The streams of one rank, shared by all phases, which never run at the same time. Only those that
// a program uses: every stream of a GPU wants a hardware queue, of which there are at most 32 for
// all ranks that share it, and streams that share one wait for each other.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "schedule/storage.hpp"

#include <deque>
#include <vector>

namespace spp::runtime::cuda {

class RankStreams {
 public:
  /// `source` outlives this; null: streams of the primary context.
  explicit RankStreams(const StreamSource* source)
      : source_(source), priorities_(cuda::priorities()) {
    streams_.emplace_back(priorities_.normal, source_);
  }

  [[nodiscard]] const StreamSource* source() const { return source_; }
  [[nodiscard]] const Stream& compute() const { return streams_.front(); }
  [[nodiscard]] std::size_t count() const { return streams_.size(); }

  /// By StreamId, of `streams` that the schedule has: those of ops of `program`, else null. Stream
  /// 0, which computes, is always there. What is returned stays.
  std::vector<const Stream*> of(const StoredProgram& program, std::size_t streams) {
    std::vector<bool> used(streams, false);
    for (const StoredOp& stored : program.ops) {
      used[stored.op.stream.index()] = true;
    }
    std::vector<const Stream*> all(streams, nullptr);
    std::size_t next = 1;
    for (std::size_t s = 1; s < streams; ++s) {
      all[s] = used[s] ? &message(next++) : nullptr;
    }
    all.front() = &compute();
    return all;
  }

 private:
  /// Messages that are late hold up others; kernels fill what is left.
  const Stream& message(std::size_t index) {
    while (streams_.size() <= index) {
      streams_.emplace_back(priorities_.urgent, source_);
    }
    return streams_[index];
  }

  const StreamSource* source_;
  Priorities priorities_;
  std::deque<Stream> streams_;  // the first computes
};

}  // namespace spp::runtime::cuda
