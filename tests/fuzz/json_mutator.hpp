// Mutations of JSON documents for libFuzzer: bytes at random hardly get past a JSON parser, so
// values, keys, types and whole subtrees change instead; now and then bytes do, too.
#pragma once

#include "base/json.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

/// libFuzzer's own mutation of bytes; without libFuzzer that of replay.cpp.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace spp::fuzz {

class JsonMutator {
 public:
  JsonMutator(Json& document, unsigned seed) : document_(&document), random_(seed) {}

  void mutate() {
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      edit();
    }
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  static void collect(Json& value, std::vector<Json*>& all) {
    all.push_back(&value);
    if (value.is_structured()) {
      for (Json& inner : value) {
        collect(inner, all);
      }
    }
  }

  /// Any value of the document, each as likely.
  Json& any() {
    std::vector<Json*> all;
    collect(*document_, all);
    return *all[below(all.size())];
  }

  Json interesting() {
    switch (below(4)) {
      case 0: {
        constexpr std::array<std::int64_t, 12> whole{
            0,         1,         -1, 2, 3, 1024, 1 << 20, INT32_MAX, std::int64_t{INT32_MAX} + 1,
            INT64_MAX, INT64_MIN, 7};
        return whole[below(whole.size())];
      }
      case 1: {
        constexpr std::array broken{0.5, 1e-9, 1e-300, 1e-320, 1e18, 1e300, 1e308, -0.0, 1.0000001};
        return broken[below(broken.size())];
      }
      case 2: {
        constexpr std::array words{"",     "GB/s",     "Gb/s",    "GiB",      "us",
                                   "s",    "count",    "TFLOP/s", "fraction", "causal",
                                   "bf16", "\x1b[31m", "a\nb",    "\xc3\xa9"};
        return words[below(words.size())];
      }
      default:
        switch (below(5)) {
          case 0:
            return nullptr;
          case 1:
            return below(2) == 0;
          case 2:
            return Json::array();
          case 3:
            return Json::object();
          default:
            return UINT64_MAX;
        }
    }
  }

  void change_scalar(Json& value) {
    if (value.is_number()) {
      const double x = value.get<double>();
      switch (below(6)) {
        case 0:
          value = x * 2;
          return;
        case 1:
          value = -x;
          return;
        case 2:
          value = x / 10;
          return;
        case 3:
          value = x * 1e6;
          return;
        default:
          if (value.is_number_integer() && x < 1e15 && x > -1e15) {
            value = value.get<std::int64_t>() + (below(2) == 0 ? 1 : -1);
          }
          return;
      }
    }
    if (value.is_string()) {
      std::string text = value.get<std::string>();
      const std::size_t size = text.size();
      text.resize(size + 8);
      text.resize(
          LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size()));
      value = text;
      return;
    }
    value = interesting();
  }

  void edit() {
    Json& value = any();
    switch (below(8)) {
      case 0:
        value = interesting();
        return;
      case 1:
        value = Json(any());  // of another place, and of another type
        return;
      case 2:
        if (value.is_structured() && !value.empty()) {
          value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size()))));
          return;
        }
        break;
      case 3:
        if (value.is_array()) {
          value.push_back(value.empty() || below(4) == 0 ? Json(any())
                                                         : Json(value[below(value.size())]));
          return;
        }
        break;
      case 4:
        if (value.is_object()) {
          add_member(value);
          return;
        }
        break;
      case 5: {
        const Json copy = value;
        any() = copy;
        return;
      }
      default:
        break;
    }
    if (value.is_structured()) {
      if (value.is_object() && !value.empty()) {
        rename_member(value);
      }
      return;
    }
    change_scalar(value);
  }

  /// A key of anywhere else, with the value that it has there.
  void add_member(Json& object) {
    std::vector<Json*> all;
    collect(*document_, all);
    std::erase_if(all, [](const Json* v) { return !v->is_object() || v->empty(); });
    if (all.empty()) {
      object["key"] = interesting();
      return;
    }
    const Json from = *all[below(all.size())];
    const auto at = std::next(from.begin(), static_cast<std::ptrdiff_t>(below(from.size())));
    object[at.key()] = at.value();
  }

  void rename_member(Json& object) {
    const std::size_t chosen = below(object.size());
    Json renamed = Json::object();
    std::size_t i = 0;
    for (const auto& [key, value] : object.items()) {
      std::string name = key;
      if (i++ == chosen && !name.empty()) {
        name[below(name.size())] = static_cast<char>('a' + below(26));
      }
      renamed[name] = value;
    }
    object = renamed;
  }

  Json* document_;
  std::minstd_rand random_;
};

/// As LLVMFuzzerCustomMutator.
inline std::size_t mutate_json(std::uint8_t* data, std::size_t size, std::size_t most,
                               unsigned seed) {
  if (seed % 16 == 0) {
    return LLVMFuzzerMutate(data, size, most);
  }
  Json document = Json::parse(data, data + size, nullptr, false);
  if (document.is_discarded()) {
    return LLVMFuzzerMutate(data, size, most);
  }
  JsonMutator(document, seed).mutate();
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > most) {
    return LLVMFuzzerMutate(data, size, most);
  }
  std::ranges::copy(text, data);
  return text.size();
}

}  // namespace spp::fuzz
