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
  while (i < words.size() && words[i] != "CPU" && words[i] != "NUMA" && words[i] != "GPU") {
    if (is_way(words[i]) || is_peer_status(words[i])) {
      return std::nullopt;  // a row, or the rest of one
    }
    ++i;
  }
  m.devices.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
  if (i < words.size()) {
    m.titles = titles_of(words, i);
  }
  return m;
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
      found.push_back(std::move(*open));
    }
    open.reset();
  };
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const std::vector<std::string> words = words_of_line(source.lines[i]);
    if (words.empty()) {
      continue;  // pasted with empty lines between
    }
    if (auto header = header_of(words, source.at(i))) {
      close();
      if (header->devices.size() > std::size_t{2} * most_gpus_of_host ||
          found.size() == most_layouts) {
        throw InputError(
            to_string(header->place),
            fmt::format("{} devices, in table {}: no host has more than {} GPUs, no "
                        "report more than {} tables",
                        header->devices.size(), found.size() + 1, most_gpus_of_host, most_layouts));
      }
      open = std::move(header);
      continue;
    }
    if (!open) {
      continue;
    }
    if (std::ranges::find(open->devices, words[0]) == open->devices.end() || words.size() < 2) {
      close();
      continue;
    }
    Matrix::Row row{.device = words[0], .codes = {}, .rest = {}, .place = source.at(i)};
    std::size_t w = 1;
    while (w < words.size() && row.codes.size() < open->devices.size() && is_code(words[w])) {
      row.codes.push_back(words[w++]);
    }
    const bool ended_early = row.codes.size() < open->devices.size() && w < words.size();
    if (row.codes.empty() || (ended_early && (is_way(words[w]) || is_peer_status(words[w])))) {
      open.reset();  // a table of another kind
      continue;
    }
    if (ended_early) {
      throw InputError(to_string(row.place),
                       fmt::format("'{}' of {} and {} is no code of this table", words[w],
                                   row.device, open->devices[row.codes.size()]));
    }
    if (words.size() - w == open->titles.size()) {
      row.rest.assign(words.begin() + static_cast<std::ptrdiff_t>(w), words.end());
    }
    open->rows.push_back(std::move(row));
    if (open->rows.size() == open->devices.size()) {
      close();
    }
  }
  close();
  return found;
}

}  // namespace spp::imports
