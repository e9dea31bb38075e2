#include "runtime/memory.hpp"

#include "base/error.hpp"
#include "base/file.hpp"

#include <algorithm>

namespace spp::runtime {

Bytes memory_needed(const StoredProgram& program, MemoryPart part) {
  Bytes total = part == MemoryPart::all ? arena_aligned(program.arena.size) : Bytes(0);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != BufferRole::scratch) {
      total += arena_aligned(bytes_of(buffer));
    }
  }
  return total;
}

void ProgramMemory::place(std::byte* base, MemoryPart part) {
  const bool scratch = part == MemoryPart::all;
  buffers_.assign(program_->buffers.size(), {});
  std::int64_t next = scratch ? arena_aligned(program_->arena.size).value() : 0;
  for (std::size_t i = 0; i < program_->buffers.size(); ++i) {
    const Buffer& buffer = program_->buffers[i];
    const Bytes bytes = bytes_of(buffer);
    const auto count = static_cast<std::size_t>(bytes.value());
    if (buffer.role != BufferRole::scratch) {
      buffers_[i] = {base + next, count};
      next += arena_aligned(bytes).value();
    } else if (scratch && program_->arena.offsets[i] != Arena::outside) {
      buffers_[i] = {base + program_->arena.offsets[i].value(), count};
    }
  }
}

HostMemory::HostMemory(const StoredProgram& program, MemoryPart part)
    : ProgramMemory(program),
      storage_(static_cast<std::size_t>((memory_needed(program, part) + arena_alignment).value())) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
  const auto unit = static_cast<std::uintptr_t>(arena_alignment.value());
  place(storage_.data() + (unit - address % unit) % unit, part);
}

Rows ProgramMemory::rows(const RowSpan& span) const {
  const Buffer& b = buffer(span.buffer);
  const std::int64_t row = b.batch * b.heads * width(span.buffer) * size_of(b.dtype);
  const auto whole = buffers_[span.buffer.index()];
  ensure((span.begin + span.count) * row <= static_cast<std::int64_t>(whole.size()),
         "rows beyond the end of a buffer");
  return {.data = whole.data() + span.begin * row,
          .dtype = b.dtype,
          .count = span.count,
          .batch = b.batch,
          .heads = b.heads,
          .width = width(span.buffer)};
}

Rows ProgramMemory::all(BufferId id) const {
  return rows({.buffer = id, .begin = 0, .count = buffer(id).tokens});
}

std::span<std::byte> ProgramMemory::cells(BufferId id, const CellSpan& span) const {
  const std::int64_t cell = width(id) * size_of(buffer(id).dtype);
  return buffers_[id.index()].subspan(static_cast<std::size_t>(span.begin * cell),
                                      static_cast<std::size_t>(span.count * cell));
}

}  // namespace spp::runtime
