#include "report/links.hpp"

#include "base/human.hpp"
#include "report/bars.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace spp::report {
namespace {

constexpr std::int64_t most_parts = 1 << 20;

struct AxisLook {
  std::string_view axis, key, label;
};
/// Exposed time of an axis has its colour where it has one of its own.
constexpr std::array<AxisLook, 10> axis_looks{
    {{"tp", "k-tp", "tp: tensor"},
     {"ulysses", "k-attention", "ulysses: heads"},
     {"team", "k-optimizer", "team of StarTrail"},
     {"ring", "k-cp", "ring: keys and values"},
     {"ep", "k-ep", "ep: tokens to experts"},
     {"etp", "m-activations", "etp: tensor of experts"},
     {"dp", "k-dp", "dp: weights, gradients"},
     {"dp_replicas", "m-logits", "dp_replicas: gradients of shards"},
     {"dp_experts", "k-gemm", "dp_experts: those of experts"},
     {"pp", "k-pp", "pp: between stages"}}};

AxisLook look_of(const JsonView& axis) {
  const std::string name = axis.string();
  const auto* at = std::ranges::find(axis_looks, std::string_view(name), &AxisLook::axis);
  if (at == axis_looks.end()) {
    axis.fail("is no axis of a plan");
  }
  return *at;
}

struct LinkRead {
  std::string kind, name;
  double rate = 0, bytes = 0, busy = 0;
};

LinkRead read_link(const JsonView& link) {
  return {.kind = link.at("kind").string(),
          .name = link.at("name").string(),
          .rate = link.at("bytes_per_s").number(0, most_count_read),
          .bytes = link.at("bytes").number(0, most_count_read),
          .busy = link.at("busy_s").number(0, most_seconds_read)};
}

struct AxisRead {
  AxisLook look;
  AxisOnCluster drawn;
  std::int64_t groups = 1;
  std::string reach;
  double sent = 0;  // by a rank
  std::vector<LinkRead> links;
};

AxisRead read_axis(const JsonView& view) {
  AxisRead axis{.look = look_of(view.at("axis")),
                .groups = view.at("groups").integer(1, most_parts),
                .reach = view.at("reach").string()};
  for (const auto& [kind, bytes] : view.at("bytes_per_rank").members()) {
    axis.sent += bytes.number(0, most_count_read);
  }
  for (const JsonView& link : view.at("links").elements()) {
    axis.links.push_back(read_link(link));
  }
  axis.drawn = {.key = axis.look.key,
                .name = std::string(axis.look.label),
                .label = {},
                .size = view.at("size").integer(1, most_parts),
                .gpus = {},
                .leaves = axis.reach == "between nodes"};
  axis.drawn.label = fmt::format("{} {}: {}, {}", axis.look.axis, axis.drawn.size, axis.reach,
                                 bytes_text(axis.sent));
  for (const JsonView& gpu : view.at("first_group").elements()) {
    axis.drawn.gpus.push_back(gpu.integer(0, most_parts));
  }
  if (axis.drawn.gpus.empty()) {
    view.at("first_group").fail("is a group of no GPUs");
  }
  return axis;
}

std::string link_text(const LinkRead& link) {
  return fmt::format("{} ({})", link.name, human(Bandwidth(link.rate)));
}

/// Of the step: "12.3 %"; "" if it takes no time.
std::string share_text(double busy, double step) { return step > 0 ? percent(busy / step) : ""; }

Grid numbers_of(const std::vector<AxisRead>& axes, const std::vector<LinkRead>& links,
                double step) {
  Grid grid{.heading = {"axis", "GPUs", "groups", "where", "sent by a GPU", "over", "bytes on it",
                        "busy", "of the step"},
            .right = {false, true, true, false, true, false, true, true, true},
            .rows = {}};
  const auto end = [&](const LinkRead& link) {
    return std::vector<std::string>{link_text(link), bytes_text(link.bytes),
                                    seconds_text(link.busy), share_text(link.busy, step)};
  };
  const auto row = [&](std::vector<std::string> begin, const LinkRead& link) {
    for (std::string& cell : end(link)) {
      begin.push_back(std::move(cell));
    }
    grid.rows.push_back(std::move(begin));
  };
  for (const AxisRead& axis : axes) {
    for (const LinkRead& link : axis.links) {
      row({std::string(axis.look.axis), fmt::format("{}", axis.drawn.size),
           fmt::format("{}", axis.groups), axis.reach, bytes_text(axis.sent)},
          link);
    }
  }
  for (const LinkRead& link : links) {
    row({"all", "", "", "", ""}, link);
  }
  return grid;
}

/// A bar for each kind of link, of the axes that take it.
BarChart busy_links(const std::vector<AxisRead>& axes, const std::vector<LinkRead>& links,
                    double step) {
  BarChart chart{
      .title = "How long the busiest links are busy",
      .description =
          "Of each kind of link the busiest one, one direction: seconds of a step in "
          "which it carries data at its rate, by the axis of the plan.",
      .note =
          "The prediction times each axis as if the others left its links alone. Where a "
          "bar comes near the step, axes that run at once take longer than it says.",
      .unit_heading = "seconds",
      .text = seconds_text,
      .bars = {},
      .marks = {{step, fmt::format("the step: {}", seconds_text(step))}}};
  for (const LinkRead& link : links) {
    Bar bar{.label = link_text(link),
            .value = fmt::format("{}, {}", seconds_text(link.busy), share_text(link.busy, step)),
            .parts = {},
            .interval = std::nullopt};
    for (const AxisRead& axis : axes) {
      for (const LinkRead& own : axis.links) {
        if (own.kind == link.kind) {
          bar.parts.push_back({axis.look.key, std::string(axis.look.label), own.busy});
        }
      }
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

/// What a text of the drawing says of the load on links of these kinds: "; busiest port 15 %". The
/// share is one word to its lines.
std::string busiest(
    const std::vector<LinkRead>& links, double step,
    std::initializer_list<std::pair<std::string_view, std::string_view>> kinds_and_words) {
  std::string text;
  for (const auto& [kind, word] : kinds_and_words) {
    for (const LinkRead& link : links) {
      if (link.kind == kind) {
        std::string share = share_text(link.busy, step);
        if (const std::size_t space = share.find(' '); space != std::string::npos) {
          share.replace(space, 1, "\u00a0");
        }
        text += fmt::format("; busiest {} {}", word, share);
      }
    }
  }
  return text;
}

/// "Most loaded: node 0 nic 0 out (46.0 GB/s), 40 % of the step: ring 25 %, dp 15 %."
std::string most_loaded(const std::vector<AxisRead>& axes, const LinkRead& link, double step) {
  std::string shares;
  for (const AxisRead& axis : axes) {
    for (const LinkRead& own : axis.links) {
      if (own.kind == link.kind) {
        shares += fmt::format("{}{} {}", shares.empty() ? "" : ", ", axis.look.axis,
                              share_text(own.busy, step));
      }
    }
  }
  return fmt::format("Most loaded: {}, busy for {} of the step: {}.", link_text(link),
                     share_text(link.busy, step), shares);
}

}  // namespace

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
    const auto below = machine.find("gpus_per_pcie_switch");
    node.gpus_of_switch = below ? below->integer(1, most_parts) : 1;
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

void add_links(Sheet& sheet, const JsonView& document, const CandidateRead& c) {
  const auto machine = document.find("machine");
  const auto traffic = document.find("traffic");
  if (!machine || !traffic) {
    return;
  }
  std::vector<AxisRead> axes;
  for (const JsonView& axis : traffic->at("axes").elements()) {
    axes.push_back(read_axis(axis));
  }
  std::vector<LinkRead> links;
  for (const JsonView& link : traffic->at("links").elements()) {
    links.push_back(read_link(link));
  }
  if (axes.empty() || links.empty()) {
    return;
  }
  const double step = c.predicted.step;
  ClusterDrawing chart{.title = "The machine, and where each axis of the plan sends",
                       .description =
                           "GPUs of the first node above, its links below, then the nodes. A line "
                           "for each axis with its first group: a dot on each GPU of it, an arrow "
                           "where it leaves the node, and what a GPU sends in a step; the other "
                           "groups lie alike.",
                       .note = most_loaded(axes, links.front(), step),
                       .node = node_of(*machine),
                       .nodes = 1,
                       .axes = {},
                       .numbers = numbers_of(axes, links, step)};
  const std::int64_t world = axes.front().groups * axes.front().drawn.size;
  chart.nodes = std::max<std::int64_t>(1, (world + chart.node.gpus - 1) / chart.node.gpus);
  for (const AxisRead& axis : axes) {
    chart.axes.push_back(axis.drawn);
  }
  NodeDrawing& node = chart.node;
  node.inside += busiest(links, step, {{"gpu_out", "port"}});
  node.beside += busiest(
      links, step,
      {{"switch_out", "switch"}, {"bridge_out", "socket"}, {"socket_out", "between sockets"}});
  node.network += busiest(links, step, {{"nic_out", "card"}});
  node.fabric += busiest(links, step, {{"leaf_out", "leaf"}});
  add(sheet, chart);
  add(sheet, busy_links(axes, links, step));
}

}  // namespace spp::report
