// `nvidia-smi topo -m`, of any version, alone or inside a report.
#include "base/error.hpp"
#include "machine/import/format.hpp"
#include "machine/import/matrix.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>

namespace spp::imports::formats::smi_topo {
namespace {

Between between_of(const std::string& code, Place place) {
  Between b{.way = Way::unknown, .nvlinks = 0, .place = std::move(place)};
  if (code.starts_with("NV")) {
    b.way = Way::nvlink;
    b.nvlinks = leading_int(std::string_view(code).substr(2));
  } else if (code == "PIX") {
    b.way = Way::pix;
  } else if (code == "PXB") {
    b.way = Way::pxb;
  } else if (code == "PHB") {
    b.way = Way::phb;
  } else if (code == "NODE") {
    b.way = Way::node;
  } else if (code == "SYS" || code == "SOC") {  // the latter until 2017
    b.way = Way::sys;
  }
  return b;
}

/// Of two cells that say the same.
void put(Between& cell, const Between& said, std::string_view a, std::string_view b) {
  if (said.way == Way::unknown) {
    return;
  }
  if (cell.way != Way::unknown && cell != said) {
    throw InputError(to_string(said.place),
                     fmt::format("{} to {} is {}, but {} at {}", a, b, to_string(said),
                                 to_string(cell), to_string(cell.place)));
  }
  cell = said;
}

/// "NIC0: mlx5_0" of a table's legend, which stands behind it, by the first word.
std::map<std::string, std::string> legend_of(std::span<const std::string> lines) {
  std::map<std::string, std::string> names;
  for (const std::string& line : lines) {
    const std::vector<std::string> words = words_of_line(line);
    if (words.size() == 2 && words[0].starts_with("NIC") && words[0].ends_with(':')) {
      names.emplace(words[0].substr(0, words[0].size() - 1), words[1]);
    }
  }
  return names;
}

/// NUMA node, or the cores, which say the same where there is no such column.
std::string numa_of(const Matrix& m, const Matrix::Row& row) {
  for (const std::string_view title : {"NUMA Affinity", "CPU Affinity"}) {
    const auto column = std::ranges::find(m.titles, title);
    if (column != m.titles.end() && !row.rest.empty()) {
      const std::string& text = row.rest[static_cast<std::size_t>(column - m.titles.begin())];
      return text == "N/A" || text.starts_with('-') ? "" : text;
    }
  }
  return "";
}

Layout layout_of(const Matrix& m, const std::map<std::string, std::string>& legend) {
  const auto gpus = static_cast<std::size_t>(m.gpus);
  Layout layout{.place = m.place,
                .origin = std::string(smi_topo_origin),
                .between = {},
                .numa = {},
                .cards = {}};
  layout.between.assign(gpus, std::vector<Between>(gpus));
  layout.numa.assign(gpus, "");
  for (std::size_t d = gpus; d < m.devices.size(); ++d) {
    const auto named = legend.find(m.devices[d]);
    layout.cards.push_back({.name = named == legend.end() ? m.devices[d] : named->second,
                            .to = std::vector<Between>(gpus)});
  }
  for (const Matrix::Row& row : m.rows) {
    const auto r =
        static_cast<std::size_t>(std::ranges::find(m.devices, row.device) - m.devices.begin());
    for (std::size_t c = 0; c < row.codes.size(); ++c) {
      if (r == c || (r >= gpus && c >= gpus)) {
        continue;
      }
      const Between said = between_of(row.codes[c], row.place);
      if (r < gpus && c < gpus) {
        put(layout.between[r][c], said, m.devices[r], m.devices[c]);
        put(layout.between[c][r], said, m.devices[r], m.devices[c]);
      } else {
        put(layout.cards[std::max(r, c) - gpus].to[std::min(r, c)], said, row.device, m.devices[c]);
      }
    }
    if (r < gpus) {
      layout.numa[r] = numa_of(m, row);
    }
  }
  return layout;
}

/// What a table that was cut off lacks, and where the same stands.
void note_cut_off(const Matrix& m, Facts& facts) {
  const auto gpus = m.devices.begin() + m.gpus;
  std::vector<std::string> said;
  std::vector<std::string> rows;
  std::copy_if(m.devices.begin(), gpus, std::back_inserter(rows), [&](const std::string& gpu) {
    const auto row = std::ranges::find(m.rows, gpu, &Matrix::Row::device);
    return row == m.rows.end() || row->codes.size() < std::min(m.columns, m.devices.size());
  });
  if (m.columns < static_cast<std::size_t>(m.gpus)) {
    const auto first = m.devices.begin() + static_cast<std::ptrdiff_t>(m.columns);
    said.push_back(
        fmt::format("the table lacks the columns of {}: their rows say the same; there "
                    "are as many GPUs as rows",
                    fmt::join(first, gpus, ", ")));
  } else if (m.titles.empty()) {
    said.emplace_back(
        "the table's first line ends before 'CPU Affinity': if it was cut off there, "
        "devices are missing");
  }
  if (!rows.empty()) {
    said.push_back(
        fmt::format("the table lacks (parts of) the rows of {}: the columns of the "
                    "others say the same",
                    fmt::join(rows, ", ")));
  }
  for (std::string& what : said) {
    facts.notes.push_back(
        {.what = "import.cut_off", .value = std::move(what), .source = to_string(m.place)});
  }
}

bool recognises(const Source& source) {
  return !source.xml && !matrices_in(source, is_way).empty();
}

void read(const Source& source, Facts& facts) {
  const std::vector<Matrix> matrices = matrices_in(source, is_way);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& m = matrices[i];
    const std::size_t end =
        i + 1 < matrices.size() ? matrices[i + 1].place.line - 1 : source.lines.size();
    const auto behind = std::span(source.lines).subspan(m.place.line, end - m.place.line);
    facts.layouts.push_back(layout_of(m, legend_of(behind)));
    facts.counts.push_back(
        {.gpus = m.gpus, .origin = std::string(smi_topo_origin), .place = m.place});
    note_cut_off(m, facts);
  }
}

}  // namespace

extern const Format entry{
    .name = "smi-topo", .title = smi_topo_origin, .recognises = recognises, .read = read};

}  // namespace spp::imports::formats::smi_topo
