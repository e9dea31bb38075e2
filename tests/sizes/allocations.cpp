#include "tests/sizes/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> alive{0};
std::atomic<std::int64_t> most{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* at = alignment == 0
                 ? std::malloc(bytes == 0 ? 1 : bytes)
                 : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (at == nullptr) {
    throw std::bad_alloc();
  }
  const auto now = alive += static_cast<std::int64_t>(malloc_usable_size(at));
  auto seen = most.load();
  while (now > seen && !most.compare_exchange_weak(seen, now)) {
  }
  return at;
}

void release(void* at) noexcept {
  if (at != nullptr) {
    alive -= static_cast<std::int64_t>(malloc_usable_size(at));
    std::free(at);
  }
}

}  // namespace

// All of them: a sanitizer's own versions of those that are left out do not call these.
void* operator new(std::size_t bytes) { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 0); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t bytes, const std::nothrow_t& t) noexcept {
  return operator new(bytes, t);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* at) noexcept { release(at); }
void operator delete[](void* at) noexcept { release(at); }
void operator delete[](void* at, std::size_t) noexcept { release(at); }
void operator delete(void* at, std::size_t) noexcept { release(at); }
void operator delete(void* at, std::align_val_t) noexcept { release(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { release(at); }

namespace spp::test {

Allocations::Allocations() : before_(alive.load()) { most = before_; }
std::int64_t Allocations::peak() const { return most.load() - before_; }

}  // namespace spp::test
