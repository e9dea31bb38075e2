// A fuzz target: any bytes are either understood or refused with an InputError. Anything else that
// is thrown, a crash, a sanitizer's report or a hang is a bug. What is understood is used, too.
#pragma once

#include "base/error.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace spp::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `act`; an InputError is an answer, too, if it says something that fits a terminal. What is
/// shown of it is made printable where it is printed.
template <class Act>
void allow_refusal(Act&& act) {
  constexpr std::size_t most = 64 * 1024;
  try {
    act();
  } catch (const InputError& e) {
    const std::string_view said = e.what();
    ensure(!said.empty() && said.size() < most, "a refusal that says nothing, or far too much");
  }
}

/// The input as a file, for readers that open it themselves.
class InputFile {
 public:
  InputFile()
      : path_(std::filesystem::temp_directory_path() /
              ("sp-plan-fuzz-" + std::to_string(::getpid()) + ".json")) {}
  ~InputFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& write(std::string_view text) {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out << text;
    ensure(out.good(), "the input file cannot be written");
    return path_;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace spp::fuzz
