// One header in one file: parsing, views that name file and key, and what they read.
#include "base/json.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>

namespace spp {
namespace {

struct LineColumn {
  std::size_t line = 1;
  std::size_t column = 1;
};

LineColumn place_of(std::string_view text, std::size_t byte) {
  LineColumn place;
  for (const char c : text.substr(0, byte > 0 ? std::min(byte - 1, text.size()) : 0)) {
    if (c == '\n') {
      ++place.line;
      place.column = 1;
    } else {
      ++place.column;
    }
  }
  return place;
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t longest = 60;
  if (text.size() > longest) {
    std::size_t end = longest;
    while ((static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
      --end;  // not inside a UTF-8 character
    }
    text = text.substr(0, end) + "…";
  }
  return text;
}

/// Text for the parser, which tells how far it has read.
class Reached {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reached(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  Reached& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const Reached& other) const { return at_ == other.at_; }
  bool operator!=(const Reached& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// Builds the document as the parser meets it. The library's own builder looks every key up among
/// those before it, which takes hours for large objects, and keeps the last of equal ones.
class Builder {
 public:
  Builder(std::string_view text, std::string_view file, const JsonLimits& limits)
      : text_(text), file_(file), limits_(limits), reached_(text.data()) {}

  Json build() {
    const char* end = text_.data() + text_.size();
    Json::sax_parse(Reached(reached_, &reached_), Reached(end, &reached_), this);
    return std::move(root_);
  }

  // What the parser calls; its words.
  bool null() { return put(Json()); }
  bool boolean(bool value) { return put(Json(value)); }
  bool number_integer(std::int64_t value) { return put(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return put(Json(value)); }
  bool number_float(double value, const std::string& /*digits*/) { return put(Json(value)); }
  bool string(std::string& value) { return put(Json(std::move(value))); }
  [[noreturn]] bool binary(Json::binary_t& /*value*/) {
    throw InternalError("binary values in a text");
  }
  bool start_object(std::size_t /*size*/) { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) { return open(Json::array()); }
  bool key(std::string& name) {
    Members& members = open_.back()->get_ref<Json::object_t&>();
    if (members.size() == limits_.keys) {
      fail(place(), fmt::format("more than {} keys in one object", limits_.keys));
    }
    members.emplace_back(std::move(name), Json());
    key_ends_.back().push_back(place());
    return true;
  }
  bool end_object() {
    refuse_doubles(open_.back()->get_ref<const Json::object_t&>(), key_ends_.back());
    return end_array();
  }
  bool end_array() {
    open_.pop_back();
    key_ends_.pop_back();
    return true;
  }
  [[noreturn]] bool parse_error(std::size_t byte, const std::string& /*token*/,
                                const Json::exception& error) {
    std::string what = error.what();
    // Drop "[json.exception.…] parse error at line …"; a number that is too large has no such.
    for (const std::string_view end : {": ", "] "}) {
      if (const std::size_t at = what.find(end); at != std::string::npos) {
        what = what.substr(at + end.size());
        break;
      }
    }
    std::replace(what.begin(), what.end(), '\n', ' ');
    fail(byte, fmt::format("not JSON: {}", what));
  }

 private:
  using Members = Json::object_t::Container;

  [[noreturn]] void fail(std::size_t byte, std::string_view message) const {
    const LineColumn at = place_of(text_, byte);
    throw InputError(fmt::format("{}:{}:{}", file_, at.line, at.column), message);
  }
  /// Bytes read so far.
  [[nodiscard]] std::size_t place() const {
    return static_cast<std::size_t>(reached_ - text_.data());
  }

  /// Where the next value belongs.
  Json& put_value(Json value) {
    if (++values_ > limits_.values) {
      fail(place(), fmt::format("more than {} values", limits_.values));
    }
    if (open_.empty()) {
      return root_ = std::move(value);
    }
    if (open_.back()->is_array()) {
      return open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    }
    return open_.back()->get_ref<Json::object_t&>().back().second = std::move(value);
  }
  bool put(Json value) {
    put_value(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == limits_.levels) {
      fail(place(), fmt::format("nested more than {} levels deep", limits_.levels));
    }
    open_.push_back(&put_value(std::move(value)));
    key_ends_.emplace_back();
    return true;
  }

  void refuse_doubles(const Members& members, const std::vector<std::size_t>& ends) const {
    std::vector<std::size_t> order(members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto name = [&](std::size_t i) -> const std::string& { return members[i].first; };
    std::ranges::stable_sort(order, {}, name);
    std::size_t first = members.size();  // that has an equal one before it
    for (std::size_t i = 1; i < order.size(); ++i) {
      first = name(order[i - 1]) == name(order[i]) ? std::min(first, order[i]) : first;
    }
    if (first < members.size()) {
      fail(ends[first], fmt::format("key '{}' stands twice in one object", name(first)));
    }
  }

  std::string_view text_;
  std::string_view file_;
  JsonLimits limits_;
  const char* reached_;
  Json root_;
  std::size_t values_ = 0;
  std::vector<Json*> open_;  // objects and arrays that have not ended, which do not move
  std::vector<std::vector<std::size_t>> key_ends_;  // of each: where its keys end
};

/// With quotes around the numbers that Python writes and JSON does not have.
std::string with_quoted_names(std::string_view text) {
  constexpr std::array<std::string_view, 3> names{"NaN", "Infinity", "-Infinity"};
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  while (!text.empty()) {
    const auto name = std::ranges::find_if(names, [&](auto n) { return text.starts_with(n); });
    if (!in_string && name != names.end()) {
      result.append("\"").append(*name).append("\"");
      text.remove_prefix(name->size());
      continue;
    }
    const bool escaped = in_string && text.front() == '\\' && text.size() > 1;
    in_string = in_string != (text.front() == '"');
    result.append(text.substr(0, escaped ? 2 : 1));
    text.remove_prefix(escaped ? 2 : 1);
  }
  return result;
}

/// Reads the {"value", "unit", "source", "spread"} frame; `convert(value, unit, where)` gives the
/// quantity.
template <class T, class Convert>
Sourced<T> read_sourced(const JsonView& view, Convert convert) {
  if (!view.value().is_object()) {
    view.fail(fmt::format(
        "{} is a number without its unit; write {{\"value\": …, \"unit\": …, \"source\": …}}",
        shown(view.value())));
  }
  view.allow_only({"value", "unit", "source", "spread", "assumed", "note"});
  const JsonView value = view.at("value");
  Sourced<T> result;
  result.value = convert(value.number(), view.at("unit").string(), value.where());
  result.source = view.at("source").string();
  if (result.source.empty()) {
    view.at("source").fail("is empty: a number says where it comes from");
  }
  if (view.value().contains("assumed")) {
    (void)view.at("assumed").boolean();
  }
  if (const auto spread = view.find("spread")) {
    result.spread = spread->number();
    if (result.spread < 0 || result.spread > 2) {
      spread->fail(fmt::format("{} is not a relative spread (0 to 2)", result.spread));
    }
  }
  return result;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view file, const JsonLimits& limits) {
  return Builder(text, file, limits).build();
}

Json read_json(const std::filesystem::path& file) {
  return parse_json(read_text_file(file), file.string());
}

Json parse_python_json(std::string_view text, std::string_view file) {
  return parse_json(with_quoted_names(text), file);
}

Json read_python_json(const std::filesystem::path& file) {
  return parse_python_json(read_text_file(file), file.string());
}

namespace {

/// "1.1" and above: 1.0 is what this program writes (base/document.cpp).
bool later_minor(const Json& value) {
  if (!value.is_object()) {
    return false;
  }
  const auto version = value.find("format_version");
  if (version == value.end() || !version->is_string()) {
    return false;
  }
  const auto& text = version->get_ref<const std::string&>();
  return text.starts_with("1.") && text != "1.0";
}

}  // namespace

JsonView::JsonView(const Json& value, std::string file, std::string key)
    : value_(&value), file_(std::move(file)), key_(std::move(key)), later_(later_minor(value)) {}

std::string JsonView::where() const {
  return key_.empty() ? file_ : fmt::format("{}: {}", file_, key_);
}

void JsonView::fail(std::string_view message) const { throw InputError(where(), message); }

JsonView JsonView::at(std::string_view key) const {
  if (!value_->is_object()) {
    fail(fmt::format("{} is not an object with key '{}'", shown(*value_), key));
  }
  note(key);
  const auto it = value_->find(key);
  if (it == value_->end()) {
    fail(fmt::format("key '{}' is missing", key));
  }
  return member(*it, key);
}

JsonView JsonView::member(const Json& value, std::string_view key) const {
  JsonView view(value, file_, key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key));
  view.later_ = view.later_ || later_;
  return view;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  if (!value_->is_object()) {
    fail(fmt::format("{} is not an object", shown(*value_)));
  }
  std::vector<std::pair<std::string, JsonView>> views;
  views.reserve(value_->size());
  for (const auto& [key, value] : value_->items()) {
    views.emplace_back(key, member(value, key));
  }
  return views;
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->is_object()) {
    fail(fmt::format("{} is not an object", shown(*value_)));
  }
  note(key);
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) {
    return std::nullopt;
  }
  return member(*it, key);
}

JsonView JsonView::noting(std::set<std::string>& asked) const {
  JsonView view = *this;
  view.asked_ = &asked;
  return view;
}

void JsonView::note(std::string_view key) const {
  if (asked_ != nullptr) {
    asked_->emplace(key);
  }
}

std::vector<JsonView> JsonView::elements() const {
  if (!value_->is_array()) {
    fail(fmt::format("{} is not an array", shown(*value_)));
  }
  std::vector<JsonView> views;
  views.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    views.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", key_, i));
    views.back().later_ = views.back().later_ || later_;
  }
  return views;
}

void JsonView::allow_only(std::span<const std::string_view> keys) const {
  if (!value_->is_object()) {
    fail(fmt::format("{} is not an object", shown(*value_)));
  }
  if (later_) {
    return;
  }
  const std::vector<std::string> names(keys.begin(), keys.end());
  for (const auto& [key, ignored] : value_->items()) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      fail(fmt::format("unknown key '{}'{}", key, did_you_mean(key, names)));
    }
  }
}

std::string JsonView::string() const {
  if (!value_->is_string()) {
    fail(fmt::format("{} is not a string", shown(*value_)));
  }
  return value_->get<std::string>();
}

bool JsonView::boolean() const {
  if (!value_->is_boolean()) {
    fail(fmt::format("{} is not true or false", shown(*value_)));
  }
  return value_->get<bool>();
}

std::int64_t JsonView::integer(std::int64_t min, std::int64_t max) const {
  const bool too_large = value_->is_number_unsigned() &&
                         value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (!value_->is_number_integer()) {
    fail(fmt::format("{} is not a whole number ({} to {})", shown(*value_), min, max));
  }
  const std::int64_t v = too_large ? INT64_MAX : value_->get<std::int64_t>();
  if (too_large || v < min || v > max) {
    fail(fmt::format("{} is out of range ({} to {})", shown(*value_), min, max));
  }
  return v;
}

double JsonView::number() const {
  if (!value_->is_number()) {
    fail(fmt::format("{} is not a number", shown(*value_)));
  }
  const double v = value_->get<double>();
  if (!std::isfinite(v)) {
    fail(fmt::format("{} is not a finite number", shown(*value_)));
  }
  return v;
}

double JsonView::number(double min, double max) const {
  const double v = number();
  if (v < min || v > max) {
    fail(fmt::format("{} is out of range ({} to {})", v, min, max));
  }
  return v;
}

Sourced<Bandwidth> read_bandwidth(const JsonView& view) {
  return read_sourced<Bandwidth>(view, bandwidth_from);
}
Sourced<Bytes> read_bytes(const JsonView& view) { return read_sourced<Bytes>(view, bytes_from); }
Sourced<Seconds> read_seconds(const JsonView& view) {
  return read_sourced<Seconds>(view, seconds_from);
}
Sourced<FlopRate> read_flop_rate(const JsonView& view) {
  return read_sourced<FlopRate>(view, flop_rate_from);
}

namespace {

Sourced<double> fraction_of(const JsonView& view, double max, bool or_nothing) {
  return read_sourced<double>(
      view, [max, or_nothing](double value, std::string_view unit, std::string_view where) {
        if (unit != "fraction") {
          throw InputError(where, fmt::format("unit '{}' is not 'fraction'", unit));
        }
        constexpr double least = 1e-9;
        const bool enough = value >= least || (or_nothing && value == 0);
        if (!enough || value > max) {
          throw InputError(
              where,
              fmt::format(
                  "{} is not in {}0, {}]{}", value, or_nothing ? "[" : "(", max,
                  value > 0 && value < least ? fmt::format(": below {} it is a slip", least) : ""));
        }
        return value;
      });
}

}  // namespace

Sourced<double> read_fraction(const JsonView& view, double max) {
  return fraction_of(view, max, false);
}

Sourced<double> read_part(const JsonView& view, double max) { return fraction_of(view, max, true); }

Sourced<std::int64_t> read_count(const JsonView& view, std::int64_t max) {
  return read_sourced<std::int64_t>(
      view, [max](double value, std::string_view unit, std::string_view where) {
        if (unit != "count" && unit != "rows") {
          throw InputError(where, fmt::format("unit '{}' is not 'count' or 'rows'", unit));
        }
        if (value < 1 || value > static_cast<double>(max) || value != std::floor(value)) {
          throw InputError(where, fmt::format("{} is not a whole number from 1 to {}", value, max));
        }
        return static_cast<std::int64_t>(value);
      });
}

void expect_format(const JsonView& document, std::string_view format) {
  const JsonView name = document.at("format");
  if (name.string() != format) {
    name.fail(fmt::format("'{}' is not '{}'", name.string(), format));
  }
  const JsonView version = document.at("format_version");
  if (!version.string().starts_with("1.")) {
    version.fail(
        fmt::format("version '{}' is not understood (this program reads 1.x)", version.string()));
  }
}

}  // namespace spp
