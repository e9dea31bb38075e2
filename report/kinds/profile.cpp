// A calibration: what was measured of links, collectives and kernels, and the constants made of it.
#include "base/median.hpp"
#include "report/candidate.hpp"
#include "report/constants.hpp"
#include "report/kind.hpp"
#include "report/markup.hpp"
#include "report/points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace spp::report::kinds::profile {
namespace {

std::string subject(const JsonView& document) {
  return fmt::format("{}, measured {}", document.at("name").string(),
                     document.at("date").string().substr(0, 10));
}

double middle(const JsonView& seconds) {
  std::vector<double> values;
  for (const JsonView& s : seconds.elements()) {
    values.push_back(s.number(0, most_seconds_read));
  }
  if (values.empty()) {
    seconds.fail("is an empty series");
  }
  return median_of(std::move(values));
}

constexpr std::size_t most_pictures = 12;

/// Messages by size: one picture for each suite and scope, one shape for each kind of message.
void add_messages(Sheet& sheet, const std::vector<JsonView>& samples) {
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::vector<Point>>> pictures;
  for (const JsonView& s : samples) {
    const double bytes = s.at("bytes").number(0, most_count_read);
    const std::string scope = s.at("scope").string();
    if (bytes > 0 && !scope.empty() && s.at("what").string() != "cpu") {
      const double seconds = middle(s.at("seconds"));
      pictures[{s.at("suite").string(), scope}][s.at("what").string()].push_back(
          {bytes, seconds, fmt::format("{} ranks", text_at(s, "ranks"))});
    }
  }
  std::size_t drawn = 0;
  for (const auto& [names, kinds] : pictures) {
    if (++drawn > most_pictures) {
      sheet.paragraph(
          fmt::format("{} of {} kinds of measured messages are drawn; the document has "
                      "all.",
                      most_pictures, pictures.size()));
      break;
    }
    PointChart chart{.title = fmt::format("Measured {}: {}", names.first,
                                          names.second == "intra"   ? "inside a node"
                                          : names.second == "inter" ? "across nodes"
                                                                    : names.second),
                     .description =
                         "The median time of a message by its size, both axes logarithmic: flat "
                         "is latency, rising is bandwidth.",
                     .note = "",
                     .x = {.title = "bytes", .text = bytes_text},
                     .y = {.title = "seconds", .text = seconds_text},
                     .groups = {}};
    for (const auto& [what, points] : kinds) {
      chart.groups.push_back({.label = what, .points = points});
    }
    add(sheet, chart);
  }
}

/// Of keys, and of values where they have another.
std::string head_dims(const JsonView& block) {
  const std::string keys = text_at(block, "head_dim");
  return block.find("value_dim") ? fmt::format("{}:{}", keys, text_at(block, "value_dim")) : keys;
}

void add_blocks(Sheet& sheet, const JsonView& document) {
  const auto blocks = document.find("attention");
  if (!blocks || !blocks->value().is_array()) {
    return;
  }
  Grid grid{.heading = {"kernels", "phase", "heads", "head dim", "mask", "queries", "keys",
                        "median", "spread", "n"},
            .right = {false, false, true, true, false, true, true, true, true, true},
            .rows = {}};
  for (const JsonView& b : blocks->elements()) {
    grid.rows.push_back({text_at(b, "kernels"), text_at(b, "phase"),
                         fmt::format("{}/{}", text_at(b, "q_heads"), text_at(b, "kv_heads")),
                         head_dims(b), text_at(b, "mask"), text_at(b, "q_tokens"),
                         text_at(b, "k_tokens"),
                         seconds_text(b.at("median_s").number(0, most_seconds_read)),
                         percent(b.at("spread").number()), text_at(b, "n")});
  }
  const std::string summary =
      fmt::format("{} attention blocks that were measured", grid.rows.size());
  sheet.details(summary, shortened(std::move(grid), 200));
}

void add(const JsonView& document, Sheet& sheet) {
  const JsonView machine = document.at("machine");
  const Grid constants = constants_of(machine);
  std::size_t measured = 0;
  std::size_t assumed = 0;
  for (const std::vector<std::string>& row : constants.rows) {
    measured += row.back().starts_with("measured") || row.back().starts_with("fitted") ? 1U : 0U;
    assumed += row.back().starts_with("assumed") ? 1U : 0U;
  }
  sheet.stats({{"machine", machine.at("name").string(), ""},
               {"constants", fmt::format("{}", constants.rows.size()), ""},
               {"measured", fmt::format("{}", measured), ""},
               {"assumed", fmt::format("{}", assumed), ""}});
  add_machine(sheet, machine);
  if (const auto samples = document.find("samples")) {
    add_messages(sheet, samples->elements());
  }
  add_blocks(sheet, document);
  sheet.details("All constants", constants);
  Grid environment{.heading = {"environment", ""}, .right = {}, .rows = {}};
  if (const auto list = document.find("environment")) {
    for (const auto& [key, value] : list->members()) {
      environment.rows.push_back({key, value_text(value.value())});
    }
  }
  sheet.details("Where it was measured", shortened(std::move(environment), 100));
}

}  // namespace

extern const Kind entry{.format = "profile", .name = "Calibration", .subject = subject, .add = add};

}  // namespace spp::report::kinds::profile
