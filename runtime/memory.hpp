// The buffers of one rank in one piece of memory: scratch in one arena, at the offsets that
// schedule/arena.hpp planned, then inputs and outputs, each on their own. Where that memory is
// (host, device) does not matter here.
#pragma once

#include "runtime/kernels/rows.hpp"
#include "schedule/storage.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace spp::runtime {

/// Which buffers of a program are there.
enum class MemoryPart : std::uint8_t {
  all,
  ends  // inputs and outputs: what goes in before a program and comes out after it
};

/// Bytes of memory that a program needs.
Bytes memory_needed(const StoredProgram& program, MemoryPart part = MemoryPart::all);

/// Views of a program's buffers.
class ProgramMemory {
 public:
  [[nodiscard]] Rows rows(const RowSpan& span) const;
  [[nodiscard]] Rows all(BufferId id) const;
  /// Consecutive cells of a buffer as bytes.
  [[nodiscard]] std::span<std::byte> cells(BufferId id, const CellSpan& span) const;
  [[nodiscard]] std::span<std::byte> bytes(BufferId id) const { return buffers_[id.index()]; }
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return program_->buffers[id.index()]; }
  /// Elements of one cell.
  [[nodiscard]] int width(BufferId id) const { return static_cast<int>(buffer(id).width); }

 protected:
  /// `program` must outlive this.
  explicit ProgramMemory(const StoredProgram& program) : program_(&program) {}
  /// `base`: memory_needed() bytes, aligned to arena_alignment.
  void place(std::byte* base, MemoryPart part);

 private:
  const StoredProgram* program_;
  std::vector<std::span<std::byte>> buffers_;  // by BufferId; empty if it is not there
};

class HostMemory : public ProgramMemory {
 public:
  /// Nothing is zeroed but inputs and outputs.
  explicit HostMemory(const StoredProgram& program, MemoryPart part = MemoryPart::all);

 private:
  std::vector<std::byte> storage_;
};

}  // namespace spp::runtime
