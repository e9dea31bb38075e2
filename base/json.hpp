// Reading JSON so that every complaint names file, key, value and what would be right.
#pragma once

#include "base/units.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spp {

using Json = nlohmann::ordered_json;

/// What a document may hold. Objects are searched from their first key on, and nothing that we read
/// has more than a few dozen keys; published configurations have up to some 20,000 (labels).
struct JsonLimits {
  std::size_t keys = 32'768;       // of one object
  std::size_t values = 4'000'000;  // of the document
  std::size_t levels = 256;        // documents are walked recursively, also by the JSON library
};

/// Of a trace, whose lines are as many as most_lines_text has room for.
constexpr JsonLimits trace_limits{.values = 40'000'000};

/// Parses text; a syntax error becomes an InputError with file, line and column, and so does a key
/// that stands twice in an object: which of the two counts would be a guess.
Json parse_json(std::string_view text, std::string_view file, const JsonLimits& limits = {});

/// Reads (base/file.hpp) and parses a file.
Json read_json(const std::filesystem::path& file);

/// The same of what Python's json module wrote, as published configurations are: NaN, Infinity and
/// -Infinity, which are no JSON, become strings of these names, which no reader takes for numbers.
/// Behind one of them, columns in messages count its quotes.
Json parse_python_json(std::string_view text, std::string_view file);
Json read_python_json(const std::filesystem::path& file);

/// A place inside a JSON document: a value that knows its file and key path. Does not own the
/// value.
class JsonView {
 public:
  /// The document, or a part of it that is looked at alone.
  JsonView(const Json& value, std::string file, std::string key = "");

  [[nodiscard]] const Json& value() const { return *value_; }
  /// "topologies/x.json: intra.rate": how messages name this place.
  [[nodiscard]] std::string where() const;
  [[nodiscard]] bool is_null() const { return value_->is_null(); }

  /// Member of an object; missing is an error.
  [[nodiscard]] JsonView at(std::string_view key) const;
  /// Member of an object; nothing when it is missing or null.
  [[nodiscard]] std::optional<JsonView> find(std::string_view key) const;
  /// The same place, which notes in `asked` what at() and find() look for in it.
  [[nodiscard]] JsonView noting(std::set<std::string>& asked) const;
  /// Elements of an array.
  [[nodiscard]] std::vector<JsonView> elements() const;
  /// Members of an object by key.
  [[nodiscard]] std::vector<std::pair<std::string, JsonView>> members() const;
  /// Of a later minor version than this program writes: it may have keys that are not known here.
  [[nodiscard]] bool later() const { return later_; }
  /// Refuses keys that are not listed, with "did you mean"; not in a later version's document.
  void allow_only(std::span<const std::string_view> keys) const;
  void allow_only(std::initializer_list<std::string_view> keys) const {
    allow_only(std::span(keys.begin(), keys.size()));
  }

  [[nodiscard]] std::string string() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer(std::int64_t min, std::int64_t max) const;
  [[nodiscard]] double number() const;
  [[nodiscard]] double number(double min, double max) const;

  [[noreturn]] void fail(std::string_view message) const;

 private:
  [[nodiscard]] JsonView member(const Json& value, std::string_view key) const;
  void note(std::string_view key) const;

  const Json* value_;
  std::string file_;
  std::string key_;
  bool later_;
  std::set<std::string>* asked_ = nullptr;
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
/// Unit "fraction", in [1e-9, max]: less than a billionth of a rate is a slip.
Sourced<double> read_fraction(const JsonView& view, double max = 1.0);
/// The same with 0: a part of something that may be nothing of it.
Sourced<double> read_part(const JsonView& view, double max = 1.0);
/// Units "count" or "rows", a whole number in [1, max].
Sourced<std::int64_t> read_count(const JsonView& view, std::int64_t max);

/// Checks "format" and the major part of "format_version" of a document of ours.
void expect_format(const JsonView& document, std::string_view format);

}  // namespace spp
