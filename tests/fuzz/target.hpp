// A fuzz target: any bytes are either understood or refused with an InputError. Anything else that
// is thrown, a crash, a sanitizer's report or a hang is a bug. What is understood is used, too.
// All targets are one program, since each alone takes as long to compile.
#pragma once

#include "base/error.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace spp::fuzz {

/// What mutations keep: a JSON document, now and then, or nothing.
enum class Form : std::uint8_t { bytes, json };

struct Target {
  std::string_view name;
  Form form = Form::bytes;
  void (*feed)(std::string_view text);
};

namespace targets {
/// In the order of CMakeLists.txt.
std::span<const Target* const> all();
}  // namespace targets
/// None: nullptr.
inline const Target* find(std::string_view name) {
  const auto known = targets::all();
  const auto it = std::ranges::find(known, name, &Target::name);
  return it != known.end() ? *it : nullptr;
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
