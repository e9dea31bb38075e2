#include "runtime/memory.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace spp::runtime {
namespace {

Bytes aligned(Bytes size) {
  const std::int64_t unit = arena_alignment.value();
  return Bytes((size.value() + unit - 1) / unit * unit);
}

/// A number of bytes alone in a file; nothing if it is not there, or "max".
std::int64_t number_in(const char* file, std::int64_t otherwise) {
  std::ifstream in(file);
  std::int64_t value = 0;
  return in >> value ? value : otherwise;
}

}  // namespace

Bytes memory_needed(const StoredProgram& program, const Problem& problem) {
  Bytes total = aligned(program.arena.size) + arena_alignment;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != BufferRole::scratch) {
      total += aligned(bytes_of(buffer, problem));
    }
  }
  return total;
}

Bytes memory_available() {
  std::int64_t available = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("MemAvailable:")) {
      available = std::stoll(line.substr(line.find(':') + 1)) * 1024;
    }
  }
  // cgroup v2; v1 machines have only the system's figure.
  const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max", -1);
  if (limit >= 0) {
    const std::int64_t left = limit - number_in("/sys/fs/cgroup/memory.current", 0);
    available = std::min(available, std::max<std::int64_t>(left, 0));
  }
  return Bytes(available);
}

HostMemory::HostMemory(const StoredProgram& program, const Problem& problem)
    : program_(&program), problem_(problem), buffers_(program.buffers.size()) {
  const auto size = memory_needed(program, problem).value();
  storage_.resize(static_cast<std::size_t>(size));
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
  const auto unit = static_cast<std::uintptr_t>(arena_alignment.value());
  const std::span<std::byte> all =
      std::span(storage_).subspan(static_cast<std::size_t>((unit - address % unit) % unit));
  auto next = static_cast<std::size_t>(aligned(program.arena.size).value());
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const Bytes bytes = bytes_of(buffer, problem);
    const auto count = static_cast<std::size_t>(bytes.value());
    if (buffer.role != BufferRole::scratch) {
      buffers_[i] = all.subspan(next, count);
      next += static_cast<std::size_t>(aligned(bytes).value());
    } else if (program.arena.offsets[i] != Arena::outside) {
      buffers_[i] = all.subspan(static_cast<std::size_t>(program.arena.offsets[i].value()), count);
    }
  }
}

int HostMemory::width(BufferId id) const {
  const Tensor tensor = buffer(id).tensor;
  return tensor == Tensor::lse || tensor == Tensor::delta ? 1 : problem_.head_dim;
}

Rows HostMemory::rows(const RowSpan& span) const {
  const Buffer& b = buffer(span.buffer);
  const std::int64_t row = problem_.batch * b.heads * width(span.buffer) * size_of(b.dtype);
  const auto whole = buffers_[span.buffer.index()];
  ensure((span.begin + span.count) * row <= static_cast<std::int64_t>(whole.size()),
         "rows beyond the end of a buffer");
  return {.data = whole.data() + span.begin * row,
          .dtype = b.dtype,
          .count = span.count,
          .batch = problem_.batch,
          .heads = b.heads,
          .width = width(span.buffer)};
}

Rows HostMemory::all(BufferId id) const {
  return rows({.buffer = id, .begin = 0, .count = buffer(id).tokens});
}

std::span<std::byte> HostMemory::cells(BufferId id, const CellSpan& span) const {
  const std::int64_t cell = width(id) * size_of(buffer(id).dtype);
  return buffers_[id.index()].subspan(static_cast<std::size_t>(span.begin * cell),
                                      static_cast<std::size_t>(span.count * cell));
}

}  // namespace spp::runtime
