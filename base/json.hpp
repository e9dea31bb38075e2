// Reading JSON so that every complaint names file, key, value and what would be right.
#pragma once

#include "base/units.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

using Json = nlohmann::ordered_json;

/// Parses text; a syntax error becomes an InputError with file, line and column.
Json parse_json(std::string_view text, std::string_view file);

/// Reads and parses a file; a missing or unreadable file is an InputError.
Json read_json(const std::filesystem::path& file);

/// Writes text whole or not at all: a temporary file beside it, then a rename. InputError if it
/// cannot.
void write_file_atomically(const std::filesystem::path& file, std::string_view text);

/// A place inside a JSON document: a value that knows its file and key path. Does not own the
/// value.
class JsonView {
 public:
  JsonView(const Json& value, std::string file, std::string key = "");

  [[nodiscard]] const Json& value() const { return *value_; }
  /// "topologies/x.json: intra.rate": how messages name this place.
  [[nodiscard]] std::string where() const;
  [[nodiscard]] bool is_null() const { return value_->is_null(); }

  /// Member of an object; missing is an error.
  [[nodiscard]] JsonView at(std::string_view key) const;
  /// Member of an object; nothing when it is missing or null.
  [[nodiscard]] std::optional<JsonView> find(std::string_view key) const;
  /// Elements of an array.
  [[nodiscard]] std::vector<JsonView> elements() const;
  /// Refuses keys that are not listed, with "did you mean".
  void allow_only(std::initializer_list<std::string_view> keys) const;

  [[nodiscard]] std::string string() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer(std::int64_t min, std::int64_t max) const;
  [[nodiscard]] double number() const;

  [[noreturn]] void fail(std::string_view message) const;

 private:
  const Json* value_;
  std::string file_;
  std::string key_;
};

/// A number of a data file: {"value": 450, "unit": "GB/s", "source": "…", "spread": 0.1}.
/// `spread` is the relative half width of the constant (0 = exact).
template <class T>
struct Sourced {
  T value{};
  double spread = 0;
  std::string source;
};

Sourced<Bandwidth> read_bandwidth(const JsonView& view);
Sourced<Bytes> read_bytes(const JsonView& view);
Sourced<Seconds> read_seconds(const JsonView& view);
Sourced<FlopRate> read_flop_rate(const JsonView& view);
/// Unit "fraction", in (0, max].
Sourced<double> read_fraction(const JsonView& view, double max = 1.0);
/// Units "count" or "rows", a whole number in [1, max].
Sourced<std::int64_t> read_count(const JsonView& view, std::int64_t max);

/// Checks "format" and the major part of "format_version" of a document of ours.
void expect_format(const JsonView& document, std::string_view format);

}  // namespace spp
