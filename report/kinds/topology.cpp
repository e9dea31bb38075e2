// What 'topology show' and 'topology check' print: a machine or a GPU at a glance.
#include "base/human.hpp"
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/links.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

namespace spp::report::kinds::topology {
namespace {

std::string subject(const JsonView& document) {
  const auto machine = document.find("machine");
  return (machine ? *machine : document.at("gpu")).at("name").string();
}

std::string picture(const JsonView& document) {
  const auto machine = document.find("machine");
  if (!machine) {
    document.fail("describes a GPU alone: a machine is drawn");
  }
  return svg_file(node_of(*machine));
}

void add(const JsonView& document, Sheet& sheet) {
  const JsonView gpu = document.at("gpu");
  std::vector<Stat> stats{
      {"GPU", gpu.at("name").string(), gpu.at("generation").string()},
      {"memory", bytes_text(gpu.at("memory_bytes").number(0, most_count_read)),
       fmt::format("{} usable", percent(gpu.at("memory_usable_fraction").number()))},
      {"memory bandwidth", rate_at(gpu, "memory_bytes_per_s"), ""}};
  for (const auto& [dtype, rate] : gpu.at("peak_tflops").members()) {
    stats.push_back({"peak, " + dtype, short_number(rate.number()), "TFLOP/s"});
  }
  sheet.stats(stats);
  if (const auto machine = document.find("machine")) {
    add(sheet, node_of(*machine));
  }
  if (const auto explanation = document.find("explanation")) {
    std::vector<std::string> lines;
    for (const JsonView& line : explanation->elements()) {
      lines.push_back(line.string());
    }
    sheet.list(lines);
  }
  if (const auto drawn = document.find("drawing")) {
    std::vector<std::string> lines;
    for (const JsonView& line : drawn->elements()) {
      lines.push_back(line.string());
    }
    sheet.preformatted("As a drawing in text", lines);
  }
  add_assumptions(sheet, document);
}

}  // namespace

extern const Kind entry{
    .format = "topology", .name = "Machine", .subject = subject, .add = add, .picture = picture};

}  // namespace spp::report::kinds::topology
