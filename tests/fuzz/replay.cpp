// Drives a fuzz target without libFuzzer: every file of the folders given, and mutations of each.
//   fuzz TARGET [--mutations N] FOLDER|FILE…
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

void collect(const fs::path& path, std::vector<fs::path>& files) {
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) {
        files.push_back(entry.path());
      }
    }
  } else {
    files.push_back(path);
  }
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A few random edits: a byte replaced, a piece removed or doubled, a digit made a long number.
std::string mutated(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(below(16), text.size() - at);
    switch (below(4)) {
      case 0:
        if (at < text.size()) {
          text[at] = static_cast<char>(below(256));
        }
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.insert(at, below(2) == 0 ? "9223372036854775808" : "-1");
    }
  }
  return text;
}

/// The same as libFuzzer's interface has it.
std::size_t mutate(std::uint8_t* data, std::size_t size, std::size_t most, std::mt19937& random) {
  std::string text = mutated({reinterpret_cast<const char*>(data), size}, random);
  text.resize(std::min(text.size(), most));
  std::ranges::copy(text, data);
  return text.size();
}

std::string mutated_as_json(std::string text, std::mt19937& random) {
  constexpr std::size_t growth = 4096;
  const std::size_t size = text.size();
  text.resize(size + growth);
  text.resize(spp::fuzz::mutate_json(reinterpret_cast<std::uint8_t*>(text.data()), size,
                                     text.size(), static_cast<unsigned>(random())));
  return text;
}

void feed(const spp::fuzz::Target& target, const std::string& text) {
  // A copy of exactly this size, so that a sanitizer sees a read beyond its end.
  const std::vector<char> bytes(text.begin(), text.end());
  target.feed({bytes.data(), bytes.size()});
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most) {
  static std::mt19937 random(20240712);
  return mutate(data, size, most, random);
}

int main(int argc, char** argv) {
  const spp::fuzz::Target* target = argc > 1 ? spp::fuzz::find(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fputs("the first argument names none of the targets\n", stderr);
    return 2;
  }
  int mutations = 0;
  std::vector<fs::path> files;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--mutations" && i + 1 < argc) {
      const std::string_view count = argv[++i];
      std::from_chars(count.data(), count.data() + count.size(), mutations);
    } else {
      collect(word, files);
    }
  }
  std::sort(files.begin(), files.end());  // the same order everywhere, so that failures repeat
  std::mt19937 random(20240711);
  for (const fs::path& file : files) {
    std::string text = read(file);
    constexpr std::size_t usual = 8192;  // a longer file gets fewer mutations
    const auto count = static_cast<int>(static_cast<std::size_t>(mutations) * usual /
                                        std::max(usual, text.size()));
    for (int i = 0; i <= count; ++i) {
      const bool as_json = target->form == spp::fuzz::Form::json && i % 4 != 1;
      const std::string input = i == 0    ? text
                                : as_json ? mutated_as_json(text, random)
                                          : mutated(text, random);
      try {
        feed(*target, input);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s, mutation %d: %s\ninput: %s\n", file.c_str(), i, e.what(),
                     input.c_str());
        return 1;
      }
    }
  }
  std::printf("%zu files, at most %d mutations each\n", files.size(), mutations);
  return files.empty() ? 1 : 0;
}
