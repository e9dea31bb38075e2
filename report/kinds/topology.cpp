// What 'topology show' and 'topology check' print: a machine or a GPU at a glance.
#include "base/human.hpp"
#include "report/candidate.hpp"
#include "report/cluster.hpp"
#include "report/kind.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

namespace spp::report::kinds {
namespace {

constexpr std::int64_t most_parts = 1 << 20;

std::string subject(const JsonView& document) {
  const auto machine = document.find("machine");
  return (machine ? *machine : document.at("gpu")).at("name").string();
}

std::string rate_at(const JsonView& view, std::string_view key) {
  return human(Bandwidth(view.at(key).number(0, most_count_read)));
}

NodeDrawing node_of(const JsonView& machine) {
  const JsonView intra = machine.at("intra");
  NodeDrawing node{
      .title = fmt::format("A node of {}", machine.at("name").string()),
      .description = "GPUs above, what joins them below, then network cards and network.",
      .gpus = machine.at("gpus_per_node").integer(1, most_parts),
      .gpu = machine.at("gpu").at("name").string(),
      .inside = fmt::format("{} ({}), {} a GPU and direction", intra.at("transport").string(),
                            intra.at("medium").string(), rate_at(intra, "bytes_per_s_per_gpu"))};
  if (intra.at("medium").string() == "pcie") {  // else GPUs are joined past the sockets
    const auto sockets = machine.find("sockets");
    node.sockets = sockets ? sockets->integer(1, most_parts) : 1;
    for (const auto& [key, words] : {std::pair{"host_bridge_bytes_per_s", "of a socket"},
                                     std::pair{"socket_link_bytes_per_s", "between sockets"}}) {
      if (machine.find(key)) {
        node.beside +=
            fmt::format("{}{} {}", node.beside.empty() ? "" : ", ", words, rate_at(machine, key));
      }
    }
  }
  if (const auto inter = machine.find("inter")) {
    node.cards = inter->at("nics").integer(1, most_parts);
    node.network = fmt::format("{}, {} x {} a node", inter->at("transport").string(), node.cards,
                               rate_at(*inter, "bytes_per_s_per_nic"));
    const JsonView fabric = machine.at("fabric");
    node.fabric =
        fmt::format("GPUs of a card: {}; {}, oversubscribed {}; rates are of one direction",
                    text_at(*inter, "gpus_per_nic"), fabric.at("kind").string(),
                    text_at(fabric, "oversubscription"));
  }
  return node;
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

extern const Kind topology{
    .format = "topology", .name = "Machine", .subject = subject, .add = add, .picture = picture};

}  // namespace spp::report::kinds
