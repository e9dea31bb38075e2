// What plain `nvidia-smi` prints: a box of three lines for each GPU.
//
//   |   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
//   | N/A   35C    P0             76W /  700W |       1MiB /  81559MiB |      0%      Default |
//   |                                         |                        |             Disabled |
#include "machine/import/format.hpp"

#include <algorithm>

namespace spp::imports::formats::smi_table {
namespace {

/// Between bars.
std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  line = trimmed(line);
  if (!line.starts_with('|') || !line.ends_with('|') || line.size() < 2) {
    return cells;
  }
  line = line.substr(1, line.size() - 2);
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('|', begin), line.size());
    cells.push_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return cells;
}

/// "00000000:18:00.0 Off"
bool is_bus_cell(std::string_view cell) {
  const std::vector<std::string> words = words_of_line(cell);
  return !words.empty() && std::ranges::count(words[0], ':') == 2 &&
         words[0].find('.') != std::string::npos;
}

/// The first line of a GPU; nothing if it is none.
std::optional<GpuFact> gpu_of(const std::vector<std::string_view>& cells) {
  if (cells.size() < 2 || !is_bus_cell(cells[1])) {
    return std::nullopt;
  }
  std::vector<std::string> words = words_of_line(cells[0]);
  const int index = words.empty() ? -1 : leading_int(words[0]);
  if (index < 0 || words.size() < 2) {
    return std::nullopt;
  }
  if (words.size() > 2 && (words.back() == "On" || words.back() == "Off" || words.back() == "N/A" ||
                           words.back() == "WDDM" || words.back() == "TCC")) {
    words.pop_back();  // persistence mode, driver model
  }
  GpuFact gpu;
  gpu.index = index;
  gpu.name = fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " "));
  return gpu;
}

/// "1MiB / 81559MiB" -> the latter.
std::optional<Bytes> memory_of(std::string_view cell) {
  const std::size_t slash = cell.find('/');
  const std::string_view total =
      slash == std::string_view::npos ? "" : trimmed(cell.substr(slash + 1));
  const int mib = total.ends_with("MiB") ? leading_int(total) : -1;
  return mib > 0 ? std::optional(Bytes(std::int64_t{mib} << 20)) : std::nullopt;
}

bool recognises(const Source& source) {
  return !source.xml && std::ranges::any_of(source.lines, [](const std::string& line) {
    return gpu_of(cells_of(line)).has_value();
  });
}

void read(const Source& source, Facts& facts) {
  int count = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    std::optional<GpuFact> gpu = gpu_of(cells_of(source.lines[i]));
    if (!gpu) {
      continue;
    }
    gpu->place = source.at(i);
    if (i + 1 < source.lines.size()) {
      const auto cells = cells_of(source.lines[i + 1]);
      gpu->memory = cells.size() > 1 ? memory_of(cells[1]) : std::nullopt;
    }
    if (i + 2 < source.lines.size()) {
      const auto cells = cells_of(source.lines[i + 2]);
      gpu->mig = cells.size() > 2 && cells[2] == "Enabled";
    }
    if (count++ == 0) {
      first = i;
    }
    facts.gpus.push_back(std::move(*gpu));
  }
  facts.counts.push_back({.gpus = count, .origin = "nvidia-smi", .place = source.at(first)});
}

}  // namespace

extern const Format entry{
    .name = "smi-table", .title = "nvidia-smi", .recognises = recognises, .read = read};

}  // namespace spp::imports::formats::smi_table
