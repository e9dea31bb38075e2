// The buffers of one rank in device memory, laid out as in host memory.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/memory.hpp"

namespace spp::runtime::cuda {

class DeviceMemory : public ProgramMemory {
 public:
  /// `program` must outlive this. BackendError if the current device has too little memory.
  explicit DeviceMemory(const StoredProgram& program)
      : ProgramMemory(program),
        storage_(static_cast<std::size_t>(memory_needed(program).value()), program.rank) {
    place(storage_.data(), MemoryPart::all);  // cudaMalloc aligns to 256 bytes, as arenas want
  }

 private:
  DeviceBuffer storage_;
};

/// Copies buffers of some roles of `program`; returns when done.
inline void copy_roles(const StoredProgram& program, bool (*chosen)(BufferRole),
                       const ProgramMemory& from, const ProgramMemory& to, const Stream& stream) {
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    if (chosen(program.buffers[i].role)) {
      const auto source = from.bytes(BufferId(i));
      copy(to.bytes(BufferId(i)).data(), source.data(), source.size(), stream.get());
    }
  }
  stream.synchronize();
}

}  // namespace spp::runtime::cuda
