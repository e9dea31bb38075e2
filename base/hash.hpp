// FNV-1a (Fowler, Noll, Vo): tells things apart by accident, not against intent.
#pragma once

#include <cstdint>
#include <string_view>

namespace spp {

class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      add(std::uint64_t{static_cast<unsigned char>(c)});
    }
  }
  /// One step, of a byte or of a whole word.
  void add(std::uint64_t word) { hash_ = (hash_ ^ word) * 0x100000001b3U; }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

}  // namespace spp
