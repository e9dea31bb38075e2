// Numbers of its own that a strategy takes beside its Ulysses and ring degrees: how it splits its
// ring further. Each is defined by the strategy that brings it; the plan holds their values, and
// options, JSON keys, names, enumeration and checks follow from what is said here.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

struct Parameter {
  std::string_view name;     // of the option, the JSON key and the rule: "team"
  std::string_view symbol;   // before its value in a plan's short name: "C"
  std::string_view letter;   // in the option's help: "C"
  std::string_view words;    // in messages: "team size"
  std::string_view help;     // of the option: "StarTrail team size; C*C divides R"
  bool squared = false;      // its square divides the ring degree, else it does
  int most_tried = 1 << 20;  // by a search; who asks for more gets it
  bool from_one = false;  // 1 is a choice like others; else with it the plan is another strategy's

  /// "" if `value` can split `n` ranks, else why not, with `what` those are: "3 does not divide the
  /// ring degree 8".
  [[nodiscard]] std::string why_not(int value, std::string_view what, std::int64_t n) const;
  /// Values below `ring` that can split a ring of so many ranks, as far as a search tries them.
  [[nodiscard]] std::vector<int> choices(int ring) const;
};

/// Values of parameters; 1, which is none, where not set.
class ParameterValues {
 public:
  struct Value {
    const Parameter* parameter = nullptr;
    int value = 1;
    friend auto operator<=>(const Value&, const Value&) = default;
  };

  ParameterValues() = default;
  ParameterValues(std::initializer_list<Value> values);

  [[nodiscard]] int operator[](const Parameter& parameter) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (values_[i].parameter == &parameter) {
        return values_[i].value;
      }
    }
    return 1;
  }
  void set(const Parameter& parameter, int value);
  /// Those that are not 1, by name.
  [[nodiscard]] std::span<const Value> values() const { return {values_.data(), count_}; }
  friend auto operator<=>(const ParameterValues&, const ParameterValues&) = default;

 private:
  static constexpr std::size_t most = 4;  // of one plan
  std::array<Value, most> values_{};
  std::size_t count_ = 0;
};

}  // namespace spp
