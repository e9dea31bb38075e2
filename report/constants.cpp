#include "report/constants.hpp"

#include "report/candidate.hpp"
#include "report/cluster.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

namespace spp::report {
namespace {

bool is_quantity(const Json& value) {
  return value.is_object() && value.contains("value") && value.contains("unit") &&
         value["unit"].is_string() && value["value"].is_number();
}

std::string member_text(const Json& value, const char* key) {
  const auto at = value.find(key);
  return at == value.end() || at->is_null() ? "" : value_text(*at);
}

void collect(const Json& value, const std::string& key, std::size_t most, Grid& grid) {
  if (grid.rows.size() >= most) {
    return;
  }
  if (is_quantity(value)) {
    const auto spread = value.find("spread");
    const bool spreads = spread != value.end() && spread->is_number();
    grid.rows.push_back(
        {key, fmt::format("{} {}", member_text(value, "value"), member_text(value, "unit")),
         spreads ? fmt::format("±{:.3g} %", 100 * spread->get<double>()) : "",
         member_text(value, "source")});
    return;
  }
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      collect(member, key.empty() ? name : key + "." + name, most, grid);
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size() && grid.rows.size() < most; ++i) {
      collect(value[i], fmt::format("{}[{}]", key, i), most, grid);
    }
  }
}

}  // namespace

Grid constants_of(const JsonView& view, std::size_t most) {
  Grid grid{.heading = {"constant", "value", "spread", "source"},
            .right = {false, true, true, false},
            .rows = {}};
  collect(view.value(), "", most, grid);
  return grid;
}

std::string quantity_text(const JsonView& view, std::string_view key) {
  const auto found = view.find(key);
  if (!found) {
    return "";
  }
  const Json& value = found->value();
  return is_quantity(value)
             ? fmt::format("{} {}", member_text(value, "value"), member_text(value, "unit"))
             : value_text(value);
}

std::int64_t counted_at(const JsonView& view, std::string_view key, std::int64_t otherwise) {
  constexpr std::int64_t most = 1 << 20;
  const auto found = view.find(key);
  if (!found) {
    return otherwise;
  }
  return found->value().is_object() ? found->at("value").integer(1, most) : found->integer(1, most);
}

std::string name_at(const JsonView& view, std::string_view key) {
  const auto found = view.find(key);
  if (!found) {
    return "";
  }
  return found->value().is_object() ? found->at("name").string() : found->string();
}

void add_machine(Sheet& sheet, const JsonView& machine) {
  const JsonView intra = machine.at("intra");
  NodeDrawing node{
      .title = fmt::format("A node of {}", machine.at("name").string()),
      .description = "GPUs above, what joins them below, then network cards and network.",
      .gpus = counted_at(machine, "gpus_per_node", 1),
      .sockets = counted_at(machine, "sockets", 1),
      .gpu = name_at(machine, "gpu"),
      .inside = name_at(intra, "transport")};
  const auto transport = intra.find("transport");
  const bool whole = transport && transport->value().is_object();
  const std::string own = quantity_text(intra, "rate");
  if (const std::string rate = own.empty() && whole ? quantity_text(*transport, "rate") : own;
      !rate.empty()) {
    node.inside += fmt::format(", {} a GPU and direction", rate);
  }
  if (text_at(intra, "medium") != "pcie") {
    node.sockets = 1;  // GPUs are joined past the sockets
  }
  for (const auto& [key, words] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"host_bridge", "of a socket"}, {"socket_link", "between sockets"}}) {
    if (const std::string rate = quantity_text(machine, key); !rate.empty()) {
      node.beside += fmt::format("{}{} {}", node.beside.empty() ? "" : ", ", words, rate);
    }
  }
  if (const auto inter = machine.find("inter")) {
    node.cards = counted_at(*inter, "nics", 1);
    node.network = fmt::format("{}, {} x {} a node", name_at(*inter, "transport"), node.cards,
                               quantity_text(*inter, "rate_per_nic"));
    node.fabric = fmt::format("GPUs of a card: {}", counted_at(*inter, "gpus_per_nic", 1));
    if (const auto fabric = machine.find("fabric")) {
      node.fabric += fmt::format("; {}, oversubscribed {}", text_at(*fabric, "kind"),
                                 quantity_text(*fabric, "oversubscription"));
    }
  }
  add(sheet, node);
}

}  // namespace spp::report
