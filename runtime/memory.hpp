// The buffers of one rank in host memory: inputs and outputs each on their own, scratch in one
// arena, at the offsets that schedule/arena.hpp planned.
#pragma once

#include "runtime/rows.hpp"
#include "schedule/storage.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace spp::runtime {

/// Bytes that HostMemory will allocate for a program.
Bytes memory_needed(const StoredProgram& program, const Problem& problem);
/// What the system, or the group of processes that we are in, can still give; 0 if it does not say.
Bytes memory_available();

class HostMemory {
 public:
  /// `program` must outlive this. Nothing is zeroed but inputs and outputs.
  HostMemory(const StoredProgram& program, const Problem& problem);

  [[nodiscard]] Rows rows(const RowSpan& span) const;
  [[nodiscard]] Rows all(BufferId id) const;
  /// Consecutive cells of a buffer as bytes.
  [[nodiscard]] std::span<std::byte> cells(BufferId id, const CellSpan& span) const;
  [[nodiscard]] std::span<std::byte> bytes(BufferId id) const { return buffers_[id.index()]; }
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return program_->buffers[id.index()]; }
  /// Elements of one cell: head_dim, or 1 for lse and delta.
  [[nodiscard]] int width(BufferId id) const;

 private:
  const StoredProgram* program_;
  Problem problem_;
  std::vector<std::byte> storage_;
  std::vector<std::span<std::byte>> buffers_;  // by BufferId; empty if no op touches it
};

}  // namespace spp::runtime
