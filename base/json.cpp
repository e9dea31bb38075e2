#include "base/json.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

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

/// Documents are walked recursively, also by the JSON library; a deeper one would end the stack.
void refuse_deep_nesting(std::string_view text, std::string_view file) {
  constexpr int deepest = 256;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest) {
        const LineColumn place = place_of(text, i + 1);
        throw InputError(fmt::format("{}:{}:{}", file, place.line, place.column),
                         fmt::format("nested more than {} levels deep", deepest));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
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
  if (const auto spread = view.find("spread")) {
    result.spread = spread->number();
    if (result.spread < 0 || result.spread > 2) {
      spread->fail(fmt::format("{} is not a relative spread (0 to 2)", result.spread));
    }
  }
  return result;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view file) {
  refuse_deep_nesting(text, file);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    const LineColumn place = place_of(text, e.byte);
    std::string what = e.what();
    if (const std::size_t at = what.find(": "); at != std::string::npos) {
      what = what.substr(at + 2);  // drop "[json.exception.…] parse error at line …"
    }
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw InputError(fmt::format("{}:{}:{}", file, place.line, place.column),
                     fmt::format("not JSON: {}", what));
  } catch (const nlohmann::json::exception& e) {
    throw InputError(file, fmt::format("not JSON: {}", e.what()));
  }
}

Json read_json(const std::filesystem::path& file) {
  std::error_code ec;
  if (std::filesystem::is_directory(file, ec)) {
    throw InputError(file.string(), "is a folder, not a JSON file");
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw InputError(file.string(), "cannot be read (no such file, or no permission)");
  }
  std::ostringstream text;
  text << in.rdbuf();
  return parse_json(text.str(), file.string());
}

void write_file_atomically(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::path temporary = file;
  temporary += fmt::format(".tmp{}", ::getpid());
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.flush();
    if (!out) {
      std::error_code ignored;
      std::filesystem::remove(temporary, ignored);
      throw InputError(file.string(),
                       "cannot be written (no such folder, no permission, or no space)");
    }
  }
  std::error_code ec;
  std::filesystem::rename(temporary, file, ec);
  if (ec) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw InputError(file.string(), fmt::format("cannot be written: {}", ec.message()));
  }
}

JsonView::JsonView(const Json& value, std::string file, std::string key)
    : value_(&value), file_(std::move(file)), key_(std::move(key)) {}

std::string JsonView::where() const {
  return key_.empty() ? file_ : fmt::format("{}: {}", file_, key_);
}

void JsonView::fail(std::string_view message) const { throw InputError(where(), message); }

JsonView JsonView::at(std::string_view key) const {
  if (!value_->is_object()) {
    fail(fmt::format("{} is not an object with key '{}'", shown(*value_), key));
  }
  const auto it = value_->find(key);
  if (it == value_->end()) {
    fail(fmt::format("key '{}' is missing", key));
  }
  return {*it, file_, key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key)};
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->is_object()) {
    fail(fmt::format("{} is not an object", shown(*value_)));
  }
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) {
    return std::nullopt;
  }
  return JsonView(*it, file_, key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key));
}

std::vector<JsonView> JsonView::elements() const {
  if (!value_->is_array()) {
    fail(fmt::format("{} is not an array", shown(*value_)));
  }
  std::vector<JsonView> views;
  views.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    views.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", key_, i));
  }
  return views;
}

void JsonView::allow_only(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) {
    fail(fmt::format("{} is not an object", shown(*value_)));
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

Sourced<double> read_fraction(const JsonView& view, double max) {
  return read_sourced<double>(
      view, [max](double value, std::string_view unit, std::string_view where) {
        if (unit != "fraction") {
          throw InputError(where, fmt::format("unit '{}' is not 'fraction'", unit));
        }
        if (!(value > 0) || value > max) {
          throw InputError(where, fmt::format("{} is not in (0, {}]", value, max));
        }
        return value;
      });
}

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
