#include "machine/import/matrix.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace spp::imports {
namespace {

constexpr std::array<std::string_view, 8> ways{"X",    "PIX", "PXB", "PHB",
                                               "NODE", "SYS", "SOC", "C2C"};
constexpr std::array<std::string_view, 9> statuses{"X",  "OK", "CNS", "GNS", "TNS",
                                                   "NS", "DR", "U",   "N/A"};

/// "GPU12" -> 12; -1 if it is no GPU.
int gpu_number(std::string_view word) {
  constexpr std::string_view gpu = "GPU";
  if (!word.starts_with(gpu)) {
    return -1;
  }
  const std::string_view digits = word.substr(gpu.size());
  const bool all =
      !digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  return all ? leading_int(digits) : -1;
}

/// "CPU Affinity  NUMA Affinity  GPU NUMA ID" -> the titles that are there.
std::vector<std::string> titles_of(const std::vector<std::string>& words, std::size_t from) {
  std::vector<std::string> titles;
  for (std::size_t i = from; i < words.size(); ++i) {
    if (words[i] == "ID" || words[i] == "Affinity" ||
        (words[i] == "NUMA" && i > from && words[i - 1] == "GPU")) {
      titles.back() += " " + words[i];
    } else {
      titles.push_back(words[i]);
    }
  }
  return titles;
}

/// The first word of the titles; at the end of a line also what a cut has left of "CPU".
bool begins_titles(const std::vector<std::string>& words, std::size_t i) {
  const bool last = i + 1 == words.size();
  return words[i] == "CPU" || words[i] == "NUMA" || (words[i] == "GPU" && !last) ||
         (last && std::string_view("CPU").starts_with(words[i]));
}

/// The table that begins with this line, without rows; nothing if none does.
std::optional<Matrix> header_of(const std::vector<std::string>& words, Place place) {
  Matrix m;
  m.place = std::move(place);
  std::size_t i = 0;
  while (i < words.size() && gpu_number(words[i]) == static_cast<int>(i)) {
    ++i;
  }
  m.gpus = static_cast<int>(i);
  if (m.gpus == 0) {
    return std::nullopt;
  }
  while (i < words.size() && !begins_titles(words, i)) {
    if (is_way(words[i]) || is_peer_status(words[i])) {
      return std::nullopt;  // a row, or the rest of one
    }
    ++i;
  }
  m.devices.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
  m.columns = m.devices.size();
  if (i < words.size()) {
    m.titles = titles_of(words, i);
  }
  return m;
}

void expect_few(const Matrix& m, std::size_t tables) {
  if (m.devices.size() > std::size_t{2} * most_gpus_of_host || tables == most_layouts) {
    throw InputError(to_string(m.place),
                     fmt::format("{} devices, in table {}: no host has more than {} GPUs, no "
                                 "report more than {} tables",
                                 m.devices.size(), tables + 1, most_gpus_of_host, most_layouts));
  }
}

/// Whether the last column is no device, but the start of the name of one that a cut went through.
bool last_is_unread(const Matrix& m) {
  const std::string& last = m.devices.back();
  return m.titles.empty() && m.devices.size() == m.columns &&
         m.columns > static_cast<std::size_t>(m.gpus) &&
         (std::ranges::find(m.devices, last) != m.devices.end() - 1 ||
          std::ranges::find(m.rows, last, &Matrix::Row::device) == m.rows.end());
}

/// What a cut may have left of a code.
bool is_start_of_code(std::string_view word) {
  const auto starts = [&](std::string_view code) { return code.starts_with(word); };
  return word == "NV" || std::ranges::any_of(ways, starts) || std::ranges::any_of(statuses, starts);
}
/// NV1, which may have been NV18.
bool may_go_on(std::string_view code) { return code.starts_with("NV") && code.size() == 3; }

using IsCode = bool (*)(std::string_view);

/// A device that only its row names, since the first line was cut off before it, is one from now
/// on. False if this is no such row: it begins with a code, and but for GPUs nothing else follows.
bool adopt_unlisted(Matrix& m, const std::vector<std::string>& words, IsCode is_code) {
  const std::string& name = words[0];
  const bool continues = last_is_unread(m) && name.starts_with(m.devices.back());
  const std::size_t listed = m.devices.size() - (continues ? 1 : 0);
  const int number = gpu_number(name);
  const bool next_gpu = number == m.gpus && listed == static_cast<std::size_t>(m.gpus);
  const bool adapter = number < 0 && std::all_of(
                                         words.begin() + 2, words.end(),
                                         [&](const std::string& word) {
                                           return is_code(word) || is_start_of_code(word);
                                         });
  if (!m.titles.empty() || !is_code(words[1]) || (!next_gpu && !adapter)) {
    return false;
  }
  m.devices.resize(listed);
  m.devices.push_back(name);
  m.gpus += next_gpu ? 1 : 0;
  return true;
}

/// A line with the codes of a device. `ended`: a blank is behind the last word, which is whole.
/// Nothing if the table is of another kind.
std::optional<Matrix::Row> row_of(const Matrix& m, const std::vector<std::string>& words,
                                  bool ended, const Place& place, IsCode is_code) {
  Matrix::Row row{.device = words[0], .codes = {}, .rest = {}, .cut = false, .place = place};
  std::size_t w = 1;
  while (w < words.size() && row.codes.size() < m.columns && is_code(words[w])) {
    row.codes.push_back(words[w++]);
  }
  row.cut = row.codes.size() < m.columns;
  const bool other_kind = w < words.size() && (is_way(words[w]) || is_peer_status(words[w]));
  if (row.cut && other_kind) {
    return std::nullopt;
  }
  if (row.cut && w + 1 == words.size() && !ended && is_start_of_code(words[w])) {
    return row;
  }
  if (row.codes.empty()) {
    return std::nullopt;
  }
  if (row.cut && w < words.size()) {
    throw InputError(to_string(place),
                     fmt::format("'{}' of {} and {} is no code of this table", words[w], row.device,
                                 m.devices[row.codes.size()]));
  }
  if (w == words.size() && !ended && may_go_on(row.codes.back()) &&
      (row.cut || !m.titles.empty())) {
    row.codes.pop_back();
  }
  if (words.size() - w == m.titles.size()) {
    row.rest.assign(words.begin() + static_cast<std::ptrdiff_t>(w), words.end());
  }
  return row;
}

/// Of a table whose rows are read.
void expect_whole_names(const Matrix& m) {
  const std::string& last = m.devices.back();
  if (last_is_unread(m) && (last.starts_with("GPU") || std::string_view("GPU").starts_with(last))) {
    throw InputError(to_string(m.place),
                     fmt::format("was cut off inside '{}', and no row below is of that GPU: how "
                                 "many there are is not known; paste the whole table",
                                 last));
  }
}

}  // namespace

bool is_way(std::string_view code) {
  constexpr std::string_view nvlink = "NV";
  return std::ranges::find(ways, code) != ways.end() ||
         (code.starts_with(nvlink) && leading_int(code.substr(nvlink.size())) > 0);
}

bool is_peer_status(std::string_view code) {
  return std::ranges::find(statuses, code) != statuses.end();
}

std::vector<Matrix> matrices_in(const Source& source, bool (*is_code)(std::string_view)) {
  std::vector<Matrix> found;
  std::optional<Matrix> open;
  const auto close = [&] {
    if (open && !open->rows.empty()) {
      expect_whole_names(*open);
      found.push_back(std::move(*open));
    }
    open.reset();
  };
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const std::string& line = source.lines[i];
    const std::vector<std::string> words = words_of_line(line);
    if (words.empty()) {
      continue;  // pasted with empty lines between
    }
    if (auto header = header_of(words, source.at(i))) {
      close();
      expect_few(*header, found.size());
      open = std::move(header);
      continue;
    }
    if (!open) {
      continue;
    }
    const bool listed = std::ranges::find(open->devices, words[0]) != open->devices.end();
    if (words.size() < 2 || (!listed && !adopt_unlisted(*open, words, is_code))) {
      close();
      continue;
    }
    expect_few(*open, found.size());
    const bool ended = line.back() == ' ' || line.back() == '\t';
    auto row = row_of(*open, words, ended, source.at(i), is_code);
    if (!row) {
      open.reset();
      continue;
    }
    if (!row->codes.empty()) {
      open->rows.push_back(std::move(*row));
    }
    if (!open->titles.empty() && open->rows.size() == open->devices.size()) {
      close();
    }
  }
  close();
  return found;
}

}  // namespace spp::imports
