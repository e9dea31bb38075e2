// sp-plan stack: the software that may run a plan, as far as sp-plan knows what it costs.
#include "machine/stack.hpp"

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "planner/framework.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace spp::cli::commands {
namespace {

Json sourced(const std::optional<Sourced<Seconds>>& time) {
  return time ? Json{{"value_s", time->value.count()},
                     {"spread", time->spread},
                     {"source", time->source}}
              : Json();
}
Json sourced(const std::optional<Sourced<double>>& factor) {
  return factor ? Json{{"factor", factor->value},
                       {"spread", factor->spread},
                       {"source", factor->source}}
                : Json();
}

/// Its own list, or what its framework runs.
std::vector<std::string> strategies_of(const StackSpec& s) {
  std::vector<std::string> names = s.strategies;
  if (!s.framework.empty()) {
    for (const Way& way : frameworks::by_name(s.framework, "framework").ways) {
      if (std::ranges::find(names, way.strategy) == names.end()) {
        names.emplace_back(way.strategy);
      }
    }
  }
  return names;
}

Json to_json(const StackSpec& s) {
  Json layouts = Json::object();
  for (const auto& [layout, cost] : s.layouts) {
    layouts[std::string(to_string(layout))] = {{"attention", cost.attention.value},
                                               {"merge", cost.merge.value},
                                               {"host_forward", cost.host_forward.value},
                                               {"host_backward", cost.host_backward.value},
                                               {"source", cost.attention.source}};
  }
  return {{"name", s.name},
          {"aliases", s.aliases},
          {"title", s.title},
          {"like", s.like.empty() ? Json() : Json(s.like)},
          {"framework", s.framework.empty() ? Json() : Json(s.framework)},
          {"strategies", strategies_of(s)},
          {"attention_kernels", s.attention},
          {"ring_gradients", s.gradient ? Json(to_string(*s.gradient)) : Json("input")},
          {"zigzag_sections", s.zigzag_sections},
          {"host",
           {{"call", sourced(s.host.call)},
            {"attention_forward", sourced(s.host.attention_forward)},
            {"attention_backward", sourced(s.host.attention_backward)},
            {"elementwise", sourced(s.host.elementwise)},
            {"copy", sourced(s.host.copy)},
            {"send_recv", sourced(s.host.send_recv)},
            {"collective", sourced(s.host.collective)}}},
          {"layouts", std::move(layouts)},
          {"network_beside_kernels",
           s.network_beside_kernels
               ? Json{{"after_s", s.network_beside_kernels->after.value.count()},
                      {"speed_forward", s.network_beside_kernels->speed_forward.value},
                      {"speed_backward", s.network_beside_kernels->speed_backward.value},
                      {"source", s.network_beside_kernels->speed_forward.source}}
               : Json()},
          {"unexplained_spread", sourced(s.unexplained)},
          {"traffic",
           {{"merge", sourced(s.traffic.merge)},
            {"accumulate", sourced(s.traffic.accumulate)},
            {"copy", sourced(s.traffic.copy)}}}};
}

std::string kernels_of(const StackSpec& s) {
  std::string kernels;
  for (const auto& [generation, kernel] : s.attention) {
    kernels += fmt::format("{}{}: {}", kernels.empty() ? "" : ", ", generation, kernel);
  }
  return kernels;
}

void list_stacks(Output& output) {
  const Catalog& catalog = topologies();
  Json doc = document("stack-list");
  Json stacks = Json::array();
  Table table;
  table.rows.push_back({"stack", "what it is", "attention", "ring gradients"});
  for (const std::string& name : catalog.stack_names()) {
    const StackSpec s = catalog.stack(name, "stack");
    stacks.push_back(to_json(s));
    const std::string kernels = kernels_of(s);
    table.rows.push_back({name, s.title, kernels.empty() ? "the GPU's default" : kernels,
                          s.gradient ? std::string(to_string(*s.gradient)) : "as the inputs"});
  }
  doc["stacks"] = std::move(stacks);
  output.result(doc, [&](const Style& style) { return headed(table, style); });
}

void show_stack(const std::string& name, Output& output) {
  const StackSpec s = topologies().stack(name, "stack");
  Json doc = document("stack-card");
  doc.update(to_json(s));
  output.result(doc, [&](const Style& style) {
    std::string text = style.bold(s.name) + "  " + s.title + "\n";
    if (!s.like.empty()) {
      text += fmt::format("what is not its own is that of {}\n", s.like);
    }
    const auto line = [&](std::string_view what, const std::string& value) {
      if (!value.empty()) {
        text += wrapped(fmt::format("{}: {}", what, value), 0, style.width);
      }
    };
    line("plans by the rules of framework", s.framework);
    line("attention kernels", kernels_of(s));
    line("strategies", fmt::format("{}", fmt::join(s.strategies, ", ")));
    text += fmt::format("zigzag steps compute {}\n",
                        s.zigzag_sections ? "the parts of a block that the mask needs"
                                          : "whole blocks under the mask");
    Table table;
    std::vector<std::string> sources;  // each once, below the numbers
    const auto note_of = [&](const std::string& source) {
      const auto at = std::ranges::find(sources, source);
      const auto place = at - sources.begin();
      if (at == sources.end()) {
        sources.push_back(source);
      }
      return fmt::format("[{}]", place + 1);
    };
    for (const auto& [part, values] : doc.items()) {
      if (part != "host" && part != "traffic") {
        continue;
      }
      for (const auto& [key, value] : values.items()) {
        if (!value.is_null()) {
          const std::string number = value.contains("value_s")
                                         ? human(Seconds(value["value_s"].get<double>()))
                                         : fmt::format("{:.3g} x", value["factor"].get<double>());
          table.rows.push_back({fmt::format("{} {}", part, key), number,
                                note_of(value["source"].get<std::string>())});
        }
      }
    }
    for (const std::string& row : table.lines()) {
      text += row + "\n";
    }
    for (std::size_t i = 0; i < sources.size(); ++i) {
      text += wrapped(fmt::format("[{}] {}", i + 1, sources[i]), 0, style.width);
    }
    return text;
  });
}

void stack_command(const Arguments& arguments, Output& output) {
  const auto& words = arguments.positionals();
  if (words.size() == 1 && words[0] == "list") {
    list_stacks(output);
  } else if (words.size() == 2 && words[0] == "show") {
    show_stack(words[1], output);
  } else {
    throw InputError("stack", "write 'sp-plan stack list' or 'sp-plan stack show NAME'");
  }
}

}  // namespace

extern const Command stack{
    .name = "stack",
    .summary = "the software that may run a plan, and what it costs",
    .description =
        "Lists the stacks that predictions can be made for (--stack), with the attention "
        "kernels they run, the host time of their ops and the traffic of the kernels "
        "around attention.",
    .arguments = "list | show NAME",
    .groups = {},
    .options = {},
    .examples = "sp-plan stack list\nsp-plan stack show ring-flash-attn",
    .run = stack_command,
};

}  // namespace spp::cli::commands
