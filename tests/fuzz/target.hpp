// A fuzz target: any bytes are either understood or refused with an InputError. Anything else that
// is thrown, a crash, a sanitizer's report or a hang is a bug.
#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace spp::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `act`; an InputError is an answer, too.
template <class Act>
void allow_refusal(Act&& act) {
  try {
    act();
  } catch (const InputError&) {  // NOLINT(bugprone-empty-catch): refused is what we want to see
  }
}

}  // namespace spp::fuzz
