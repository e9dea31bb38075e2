// Drawings of machines share their boxes, wires and lanes, hence one file.
#include "report/cluster.hpp"

#include "report/bands.hpp"
#include "report/markup.hpp"
#include "report/style.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

namespace spp::report {
namespace {

constexpr std::int64_t most_drawn_gpus = 16;  // of a node
constexpr std::int64_t most_drawn_nodes = 4;

std::string rectangle(double x, double width, double y, double height, std::string_view key) {
  return fmt::format("<rect class=\"{}\" x=\"{}\" width=\"{}\" y=\"{}\" height=\"{}\" rx=\"4\"/>",
                     key, along(x), along(width), coordinate(y), coordinate(height));
}

std::string box(double x, double width, double y, double height, std::string_view key,
                std::string_view text) {
  return rectangle(x, width, y, height, key) +
         lines_svg({std::string(text)}, "in", along(x + width / 2), y + height / 2 + 4, "middle");
}

std::string wire(double x, double from, double to) {
  return fmt::format("<line class=\"wire\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/>", along(x),
                     coordinate(from), coordinate(to));
}

/// A drawing as it grows downwards.
struct Growing {
  std::string svg;
  double y = 0;

  /// Text over the whole width, in as many lines as a narrow page needs.
  void say(std::string_view text) {
    const auto lines = lines_within(text, narrowest_drawing, tick_letters);
    svg += lines_svg(lines, "tick", "0", y + 12, "start");
    y += line_height * static_cast<double>(lines.size()) + 1;
  }
  /// A box over the whole width, as high as its text.
  void wide_box(std::string_view key, std::string_view text, double least) {
    const auto lines = lines_within(text, narrowest_drawing - 8, box_letters);
    const double more = line_height * (static_cast<double>(lines.size()) - 1);
    svg += rectangle(0, 1, y, least + more, key);
    svg += lines_svg(lines, "in", "50%", y + least / 2 + 4, "middle");
    y += least + more;
  }
};

/// Boxes of one kind over the whole width, with wires to what lies under them.
std::string row_of_boxes(std::int64_t all, std::string_view key, std::string_view word, double y,
                         double height, double wires_to) {
  const std::int64_t drawn = std::min(all, most_drawn_gpus);
  const double width = 1 / static_cast<double>(drawn);
  const bool worded = !word.empty() && characters_within(0.88 * width * narrowest_drawing,
                                                         box_letters) > word.size() + 2;
  std::string svg;
  for (std::int64_t i = 0; i < drawn; ++i) {
    const double x = static_cast<double>(i) * width;
    const bool rest = i + 1 == drawn && all > drawn;
    svg += wire(x + width / 2, y + height, wires_to);
    svg += box(x + 0.06 * width, 0.88 * width, y, height, key,
               rest     ? std::string("…")
               : worded ? fmt::format("{} {}", word, i)
                        : fmt::format("{}", i));
  }
  return svg;
}

Grid numbers_of(const NodeDrawing& node) {
  Grid grid{.heading = {"", ""}, .right = {}, .rows = {}};
  grid.rows.push_back({"GPUs", fmt::format("{} x {}", node.gpus, node.gpu)});
  grid.rows.push_back({"inside a node", node.inside});
  for (const auto& [what, text] :
       {std::pair{"besides", node.beside},
        std::pair{"network cards", node.cards > 0 ? fmt::format("{}", node.cards) : std::string()},
        std::pair{"network", node.network.empty() ? std::string("none") : node.network},
        std::pair{"between nodes", node.fabric}}) {
    if (!text.empty()) {
      grid.rows.push_back({what, text});
    }
  }
  return grid;
}

}  // namespace

namespace {

/// Middles of the boxes of a row of `all` that stand for these, from the left.
std::vector<double> places_of(const std::set<std::int64_t>& boxes, std::int64_t all) {
  const std::int64_t drawn = std::min(all, most_drawn_gpus);
  std::vector<double> places;
  for (const std::int64_t box : boxes) {
    const auto slot = static_cast<double>(std::min(box, drawn - 1));  // the last one: all the rest
    const double place = (slot + 0.5) / static_cast<double>(drawn);
    if (places.empty() || places.back() < place) {
      places.push_back(place);
    }
  }
  return places;
}

/// A dot at each place, and a line that joins them.
std::string lane(std::string_view key, const std::vector<double>& places, double y) {
  std::string svg = fmt::format(
      "<rect class=\"{} lane\" x=\"{}\" width=\"{}\" y=\"{}\" height=\"5\"/>", key,
      along(places.front()), along(places.back() - places.front()), coordinate(y - 2.5));
  for (const double place : places) {
    svg += fmt::format("<circle class=\"{} lane\" cx=\"{}\" cy=\"{}\" r=\"6.5\"/>", key,
                       along(place), coordinate(y));
  }
  return svg;
}

/// From a lane down, so many pixels beside the place.
struct Arrow {
  std::string_view key;
  double place = 0, aside = 0, from = 0;
};

/// Along the lane, down to the head, and back on the other side.
std::string arrow_svg(const Arrow& arrow, double to) {
  constexpr double head = 9;
  const double down = to - arrow.from;
  const double outer = arrow.aside > 0 ? -2.5 : 2.5;  // the edge that turns on the outside
  return fmt::format(
      "<svg class=\"arrow\" x=\"{0}\" y=\"{1}\" width=\"1\" height=\"1\"><path class=\"{2} lane\" "
      "d=\"M0 {8}H{4}V{5}h4L{3} {6}L{7} {5}h4V{9}H0z\"/></svg>",
      along(arrow.place), coordinate(arrow.from), arrow.key, coordinate(arrow.aside),
      coordinate(arrow.aside + 2.5), coordinate(down - head), coordinate(down),
      coordinate(arrow.aside - 6.5), coordinate(outer), coordinate(-outer));
}

/// A node, on it the axes of a plan, and the other nodes of its cluster. Arrows go behind the boxes
/// that they pass.
class NodePicture {
 public:
  NodePicture(const NodeDrawing& node, std::span<const AxisOnCluster> axes, std::int64_t nodes)
      : node_(node), axes_(axes), nodes_(nodes) {}

  Growing draw() {
    d_.say(nodes_ > 1 ? fmt::format("{} x {} in each of {} nodes", node_.gpus, node_.gpu, nodes_)
                      : fmt::format("{} x {}", node_.gpus, node_.gpu));
    Growing rest{.svg = {}, .y = d_.y + high};
    add_lanes(rest);
    rest.y += wires;
    d_.svg += row_of_boxes(node_.gpus, "b-gpu", "", d_.y, high, rest.y);
    Growing boxes{.svg = {}, .y = rest.y};
    add_inside(boxes);
    const double network = add_network(boxes);
    for (const Arrow& arrow : arrows_) {
      d_.svg += arrow_svg(arrow, network);
    }
    d_.svg += rest.svg + boxes.svg;
    d_.y = boxes.y;
    return std::move(d_);
  }

 private:
  static constexpr double high = 30;  // boxes of GPUs, and what joins them
  static constexpr double low = 24;   // other boxes
  static constexpr double wires = 16;
  static constexpr double lane_height = 20;

  void add_lanes(Growing& rest) {
    for (const AxisOnCluster& axis : axes_) {
      std::set<std::int64_t> inside;
      for (const std::int64_t gpu : axis.gpus) {
        if (gpu < node_.gpus) {
          inside.insert(gpu);
        }
      }
      const std::vector<double> places = places_of(inside, node_.gpus);
      if (places.empty()) {
        continue;
      }
      rest.y += 5;
      rest.say(axis.label);
      const double y = rest.y + lane_height / 2;
      if (axis.leaves) {
        const auto same = std::ranges::count(arrows_, places.back(), &Arrow::place);
        const double inwards = places.back() < 0.5 ? 11 : -11;  // pixels
        arrows_.push_back({.key = axis.key,
                           .place = places.back(),
                           .aside = inwards * static_cast<double>(same),
                           .from = y});
      }
      rest.svg += lane(axis.key, places, y);
      rest.y += lane_height;
    }
  }

  /// What joins the GPUs of the node.
  void add_inside(Growing& d) const {
    if (node_.gpus_of_switch > 1) {
      const std::int64_t all = (node_.gpus + node_.gpus_of_switch - 1) / node_.gpus_of_switch;
      d.svg += row_of_boxes(all, "b-switch", "switch", d.y, low, d.y + low + wires);
      d.y += low + wires;
    }
    if (node_.sockets > 1) {
      const std::int64_t sockets = std::min<std::int64_t>(node_.sockets, 8);
      const double width = 1 / static_cast<double>(sockets);
      for (std::int64_t i = 0; i < sockets; ++i) {
        d.svg += box(static_cast<double>(i) * width + 0.005, width - 0.01, d.y, high, "b-switch",
                     sockets > 4 ? fmt::format("{}", i) : fmt::format("socket {}", i));
      }
      d.y += high;
      d.say(node_.inside);
    } else {
      d.wide_box("b-switch", node_.inside, high);
    }
    if (!node_.beside.empty()) {
      d.say(node_.beside);
    }
    d.y += 8;
  }

  /// Cards, network, the other nodes. Where the network begins.
  double add_network(Growing& d) const {
    if (node_.network.empty()) {
      d.say("no network: one node alone");
      return d.y;
    }
    const std::int64_t cards = std::max<std::int64_t>(1, node_.cards);
    d.say(cards == 1 ? "1 network card" : fmt::format("{} network cards", cards));
    d.svg += row_of_boxes(cards, "b-nic", "nic", d.y, low, d.y + low + wires);
    d.y += low + wires;
    const double network = d.y;
    d.wide_box("b-fabric", node_.network, low);
    Growing nodes{.svg = {}, .y = d.y};
    nodes.say(node_.fabric);
    if (nodes_ > 1) {
      add_nodes(nodes, d.y);
    }
    d.svg += nodes.svg;
    d.y = nodes.y;
    return network;
  }

  /// Wires go up to the network.
  void add_nodes(Growing& d, double network) const {
    d.say(fmt::format("{} nodes", nodes_));
    std::string lanes;
    for (const AxisOnCluster& axis : axes_) {
      std::set<std::int64_t> on;
      for (const std::int64_t gpu : axis.gpus) {
        on.insert(gpu / node_.gpus);
      }
      if (axis.leaves) {
        lanes += lane(axis.key, places_of(on, nodes_), d.y + lane_height / 2);
        d.y += lane_height;
      }
    }
    d.y += 4;
    d.svg = row_of_boxes(nodes_, "b-gpu", "node", d.y, low, network) + d.svg + lanes;
    d.y += low;
  }

  const NodeDrawing& node_;
  std::span<const AxisOnCluster> axes_;
  std::int64_t nodes_;
  Growing d_;
  std::vector<Arrow> arrows_;
};

std::string machine_html(Sheet& sheet, std::string_view title, std::string_view description,
                         const Growing& d) {
  return "<div class=\"machine\">" + drawing(sheet, title, description, d.y + 8, d.svg, "plot") +
         "</div>\n";
}

}  // namespace

void add(Sheet& sheet, const NodeDrawing& node) {
  const Growing d = NodePicture(node, {}, 1).draw();
  sheet.figure({.title = node.title,
                .description = node.description,
                .drawing = machine_html(sheet, node.title, node.description, d),
                .note = "",
                .numbers = numbers_of(node)});
}

void add(Sheet& sheet, const ClusterDrawing& cluster) {
  const Growing d = NodePicture(cluster.node, cluster.axes, cluster.nodes).draw();
  std::vector<Key> keys;
  for (const AxisOnCluster& axis : cluster.axes) {
    keys.push_back({.name = axis.key, .label = axis.name});
  }
  sheet.figure(
      {.title = cluster.title,
       .description = cluster.description,
       .drawing = legend(keys) + machine_html(sheet, cluster.title, cluster.description, d),
       .note = cluster.note,
       .numbers = cluster.numbers});
}

std::string svg_file(const NodeDrawing& node) {
  constexpr double width = 704;  // as on a wide page: .machine in the style sheet
  constexpr double edge = 16;
  const Growing d = NodePicture(node, {}, 1).draw();
  const double height = d.y + 8;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"title about\" "
      "width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\"><title id=\"title\">{2}</title><desc "
      "id=\"about\">{3}</desc><style>{4}</style><rect class=\"ground\" width=\"100%\" "
      "height=\"100%\"/><svg x=\"{5}\" y=\"{5}\" width=\"{6}\" height=\"{7}\" "
      "style=\"overflow:visible\">{8}</svg></svg>\n",
      coordinate(width), coordinate(height + 2 * edge), escaped(node.title),
      escaped(node.description), style_sheet(), coordinate(edge), coordinate(width - 2 * edge),
      coordinate(height), d.svg);
}

namespace {

struct Placed {
  std::int64_t ranks, nodes, per_node;
  bool cyclic;
  [[nodiscard]] std::int64_t node_of(std::int64_t rank) const {
    return cyclic ? rank % nodes : rank / per_node;
  }
  [[nodiscard]] std::int64_t place_of(std::int64_t rank) const {
    return cyclic ? rank / nodes : rank % per_node;
  }
};

std::string axis_svg(const AxisGroups& axis, const Placed& placed, std::int64_t shown_nodes,
                     std::int64_t shown_gpus) {
  constexpr double row = 30;
  const double width = 1 / static_cast<double>(shown_gpus);
  std::string svg;
  std::set<std::int64_t> drawn;
  for (std::size_t g = 0; g < axis.groups.size(); ++g) {
    for (const std::int64_t rank : axis.groups[g]) {
      const std::int64_t node = placed.node_of(rank);
      const std::int64_t place = placed.place_of(rank);
      if (node >= shown_nodes || place >= shown_gpus || !drawn.insert(rank).second) {
        continue;
      }
      const double x = static_cast<double>(place) * width;
      const double y = row * static_cast<double>(node);
      svg += fmt::format(
          "<rect class=\"c-{} cell\" x=\"{}\" width=\"{}\" y=\"{}\" height=\"24\" "
          "rx=\"3\"><title>rank {}, group {}</title></rect><text class=\"in\" x=\"{}\" y=\"{}\" "
          "text-anchor=\"middle\">{}</text>",
          g % 10, along(x + 0.05 * width), along(0.9 * width), coordinate(y), rank, g,
          along(x + width / 2), coordinate(y + 17), letter(static_cast<int>(g)));
    }
  }
  for (std::int64_t node = 0; node < shown_nodes; ++node) {
    svg += fmt::format("<text class=\"tick\" x=\"-8\" y=\"{}\" text-anchor=\"end\">node {}</text>",
                       coordinate(row * static_cast<double>(node) + 16), node);
  }
  return svg;
}

}  // namespace

void add(Sheet& sheet, const GroupDrawing& chart) {
  if (chart.ranks < 1 || chart.nodes < 1 || chart.nodes > chart.ranks) {
    return;
  }
  const Placed placed{.ranks = chart.ranks,
                      .nodes = chart.nodes,
                      .per_node = (chart.ranks + chart.nodes - 1) / chart.nodes,
                      .cyclic = chart.cyclic};
  const std::int64_t shown_nodes = std::min(chart.nodes, most_drawn_nodes);
  const std::int64_t shown_gpus = std::min<std::int64_t>(placed.per_node, most_drawn_gpus);
  std::string body;
  Grid numbers{.heading = {"axis", "groups", "ranks each", "where", "first group"},
               .right = {false, true, true, false, false},
               .rows = {}};
  for (const AxisGroups& axis : chart.axes) {
    if (axis.groups.empty()) {
      continue;
    }
    bool crosses = false;
    for (const std::vector<std::int64_t>& group : axis.groups) {
      for (const std::int64_t rank : group) {
        crosses = crosses || placed.node_of(rank) != placed.node_of(group.front());
      }
    }
    const std::size_t size = axis.groups.front().size();
    const std::string where = crosses ? "across nodes" : "inside a node";
    const std::string what =
        fmt::format("{}: {} groups of {} ranks, {}", axis.axis, axis.groups.size(), size, where);
    std::string first;
    for (std::size_t i = 0; i < std::min<std::size_t>(size, 16); ++i) {
      first += fmt::format("{}{}", i == 0 ? "" : " ", axis.groups.front()[i]);
    }
    numbers.rows.push_back({axis.axis, fmt::format("{}", axis.groups.size()),
                            fmt::format("{}", size), where, first + (size > 16 ? " …" : "")});
    body += fmt::format(
        "<div class=\"axis-of\"><h4>{}</h4><div class=\"rows\">{}</div></div>\n", escaped(what),
        drawing(sheet, what,
                "A box for each rank of the first nodes; ranks with the same letter "
                "exchange data along this axis.",
                30 * static_cast<double>(shown_nodes),
                axis_svg(axis, placed, shown_nodes, shown_gpus), "plot"));
  }
  if (body.empty()) {
    return;
  }
  std::string note;
  if (shown_nodes < chart.nodes || shown_gpus < placed.per_node) {
    note = fmt::format("Drawn: {} of {} nodes, {} of {} GPUs of each; the others go on alike.",
                       shown_nodes, chart.nodes, shown_gpus, placed.per_node);
  }
  sheet.figure(
      {.title = chart.title,
       .description = "Ranks with the same letter exchange data along an axis of the plan.",
       .drawing = "<div class=\"axes\">" + body + "</div>\n",
       .note = std::move(note),
       .numbers = std::move(numbers)});
}

}  // namespace spp::report
