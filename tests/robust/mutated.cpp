#include "tests/robust/mutated.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace spp::test {

Json Mutator::extreme() {
  static const std::array<Json, 26> numbers{0,
                                            -0.0,
                                            -1,
                                            1,
                                            2,
                                            3,
                                            7,
                                            1023,
                                            65'536,
                                            2'147'483'647,
                                            2'147'483'648,
                                            std::numeric_limits<std::int64_t>::max(),
                                            std::numeric_limits<std::int64_t>::min(),
                                            std::numeric_limits<std::uint64_t>::max(),
                                            0.5,
                                            1e-320,
                                            1e-308,
                                            1e-15,
                                            1e-9,
                                            1e-3,
                                            1e6,
                                            1e9,
                                            1e15,
                                            1e18,
                                            1e300,
                                            1.7e308};
  return any_of(numbers);
}

void Mutator::replace(Json& value) {
  static const std::array<std::string_view, 12> words{
      "",      "us",     "GB/s",  "TFLOP/s",      "fraction", "count",
      "bytes", "nvlink", "0:8/2", "\x1b]0;x\x07", "none",     "../../../etc/passwd"};
  static const std::array<Json, 7> others{
      nullptr, true, "text", 17, Json::array(), Json::object(), {{"value", 1}, {"unit", "s"}}};
  if (value.is_number() && !one_in(6)) {
    constexpr std::array<double, 6> scales{1e-12, 1e-6, 1e-3, 1e3, 1e6, 1e12};
    value = one_in(2) ? extreme() : Json(value.get<double>() * any_of(scales));
  } else if (value.is_string() && !one_in(4)) {
    value = one_in(8) ? std::string(100'000, 'x') : std::string(any_of(words));
  } else {
    value = any_of(others);
  }
}

void Mutator::mutate_member(Json& parent, std::size_t at) {
  if (parent.is_array()) {
    auto& list = parent.get_ref<Json::array_t&>();
    const auto place = list.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(3)) {
      case 0:
        list.erase(place);
        return;
      case 1:
        list.insert(place, Json(*place));
        return;
      default:
        replace(*place);
        return;
    }
  }
  Json::object_t::Container& members = parent.get_ref<Json::object_t&>();
  Json::object_t::Container changed;
  const std::size_t how = below(6);
  for (std::size_t i = 0; i < members.size(); ++i) {
    auto& [key, value] = members[i];
    if (i != at) {
      changed.emplace_back(key, std::move(value));
    } else if (how == 0) {
      continue;  // dropped
    } else if (how == 1) {
      changed.emplace_back(key, value);
      changed.emplace_back(key, extreme());
    } else if (how == 2) {
      changed.emplace_back(one_in(2) ? key + "s" : members[below(members.size())].first,
                           std::move(value));
    } else {
      replace(value);
      changed.emplace_back(key, std::move(value));
    }
  }
  members.swap(changed);
}

void Mutator::mutate(Json& document) {
  // Down by a random member at each level: long lists get no more of it than single numbers.
  Json* parent = &document;
  for (;;) {
    if (!parent->is_structured() || parent->empty()) {
      replace(*parent);
      return;
    }
    const std::size_t at = below(parent->size());
    Json& child =
        parent->is_array()
            ? (*parent)[at]
            : parent->get_ref<Json::object_t&>().Json::object_t::Container::operator[](at).second;
    if (!child.is_structured() || child.empty() || one_in(8)) {
      mutate_member(*parent, at);
      return;
    }
    parent = &child;
  }
}

void Mutator::spoil(std::string& text) {
  if (one_in(2)) {
    text.resize(below(text.size() + 1));
    return;
  }
  for (std::size_t flips = 1 + below(8); flips > 0 && !text.empty(); --flips) {
    text[below(text.size())] = static_cast<char>(below(256));
  }
}

bool Mutator::scale(Json& document) {
  Json* at = &document;
  while (at->is_structured() && !at->empty()) {
    const std::size_t child = below(at->size());
    at = at->is_array()
             ? &(*at)[child]
             : &at->get_ref<Json::object_t&>().Json::object_t::Container::operator[](child).second;
  }
  if (!at->is_number()) {
    return false;
  }
  constexpr std::array<double, 8> scales{1e-6, 1e-3, 0.1, 0.5, 2, 10, 1e3, 1e6};
  const double scaled = at->get<double>() * any_of(scales);
  *at = at->is_number_integer() && std::abs(scaled) < 1e15 ? Json(std::llround(scaled))
                                                           : Json(scaled);
  return true;
}

std::string Mutator::text(Json document) {
  if (one_in(2)) {
    for (int tries = 0; tries < 1000 && !scale(document); ++tries) {
    }
    return document.dump();
  }
  for (std::size_t count = 1 + below(3); count > 0; --count) {
    mutate(document);
  }
  std::string text = document.dump(1, ' ', false, Json::error_handler_t::replace);
  if (one_in(8)) {
    spoil(text);
  }
  return text;
}

}  // namespace spp::test
