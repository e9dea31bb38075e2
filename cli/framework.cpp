#include "cli/framework.hpp"

#include "base/error.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"

#include <algorithm>

namespace spp::cli {
namespace {

/// "usp U8xR4 zigzag (ulysses innermost), ZeRO 1".
std::string name_of(const Candidate& c, bool train) {
  std::string text = short_name(c.plan);
  if (train) {
    text += fmt::format(", ZeRO {}", c.plan.zero);
    if (c.plan.shards() != c.plan.replicas()) {
      text += fmt::format(" over {}", c.plan.shards());
    }
    if (c.plan.recompute.kind != Recompute::none) {
      text += fmt::format(", {} recomputation", to_string(c.plan.recompute.kind));
    }
  }
  return text;
}

bool trains(const Exported& e) {
  return std::ranges::any_of(e.cannot, [](const Cannot& c) {
    return c.rule == "zero" || c.rule == "zero-group" || c.rule == "recompute";
  });
}

std::string loss_text(const std::optional<double>& loss) {
  return loss ? fmt::format(", {:+.1f} % time", *loss * 100) : "";
}

}  // namespace

const Framework* framework_of(const Arguments& arguments) {
  if (const auto name = arguments.find("framework")) {
    return &frameworks::by_name(*name, "--framework");
  }
  if (const auto name = arguments.find("stack")) {
    const StackSpec stack = topologies().stack(*name, "--stack");
    if (!stack.framework.empty()) {
      return &frameworks::by_name(stack.framework, fmt::format("stack {}: framework", stack.name));
    }
  }
  return nullptr;
}

std::vector<Assumption> adopt_framework(Arguments& arguments, const Framework& f) {
  std::vector<Assumption> assumed;
  const auto adopt = [&](std::string_view option, std::string_view value, std::string_view why) {
    if (!arguments.has(option)) {
      arguments.set_default(option, std::string(value));
      assumed.push_back({.what = std::string(option),
                         .value = std::string(value),
                         .source = fmt::format("{}: {}", f.name, why)});
    }
  };
  if (!f.stack.empty() && !arguments.has("profile")) {
    adopt("stack", f.stack, "the software that it costs as");
  }
  if (!f.trains) {
    adopt("phase", "inference", "it runs inference only");
  }
  if (!f.masks.has(MaskKind::causal) && !arguments.has("model")) {
    adopt("mask", "full", "the only mask that it has");
  }
  return assumed;
}

std::string cannot_text(const Exported& e, const Candidate& wanted) {
  std::string text = fmt::format("{} cannot run {}", e.framework->name, name_of(wanted, trains(e)));
  std::string_view before = ": ";
  for (const Cannot& c : e.cannot) {
    text += fmt::format("{}{}", before, c.what);
    before = "; ";
  }
  return text;
}

Json to_json(const Exported& e, const Candidate& wanted) {
  Json reasons = Json::array();
  for (const Cannot& c : e.cannot) {
    reasons.push_back({{"rule", c.rule}, {"what", c.what}, {"source", c.source}});
  }
  Json blocks = Json::array();
  for (const Block& b : e.snippet.blocks) {
    blocks.push_back({{"language", b.language},
                      {"file", b.file.empty() ? Json() : Json(b.file)},
                      {"text", b.text}});
  }
  Json environment = Json::array();
  for (const Variable& v : e.snippet.environment) {
    environment.push_back(
        {{"name", v.name}, {"value", v.value.empty() ? Json() : Json(v.value)}, {"why", v.why}});
  }
  return {{"framework", e.framework->name},
          {"checked", e.framework->checked},
          {"wanted", to_json(wanted.plan)},
          {"cannot", std::move(reasons)},
          {"plan", e.shown ? to_json(e.shown->plan) : Json()},
          {"loss", e.loss ? Json(*e.loss) : Json()},
          {"blocks", std::move(blocks)},
          {"environment", std::move(environment)},
          {"notes", e.snippet.notes}};
}

std::string export_text(const Exported& e, const Candidate& wanted, const Style& style) {
  const Framework& f = *e.framework;
  std::string text = style.bold(fmt::format("For {}", f.title)) + "\n";
  text += wrapped(fmt::format("Checked against {}.", f.checked), 0, style.width);
  if (!e.cannot.empty()) {
    text += wrapped(cannot_text(e, wanted) + ".", 0, style.width);
    for (const Cannot& c : e.cannot) {
      text += style.dim(fmt::format("  {}: {}", c.rule, c.source)) + "\n";
    }
    text += wrapped(e.shown ? fmt::format("The fastest that it can: {}{}.",
                                          name_of(*e.shown, trains(e)), loss_text(e.loss))
                            : "No plan of this request that it can run is known.",
                    0, style.width);
  }
  for (const Block& b : e.snippet.blocks) {
    text += "\n" + style.dim(b.file.empty() ? fmt::format("# {}", b.language)
                                            : fmt::format("# {}: {}", b.language, b.file));
    text += "\n" + b.text;
  }
  if (!e.snippet.notes.empty() || !e.snippet.environment.empty()) {
    text += "\n";
  }
  for (const Variable& v : e.snippet.environment) {
    text += wrapped(fmt::format("{}: {}.",
                                v.value.empty() ? fmt::format("{} unset", v.name)
                                                : fmt::format("{}={}", v.name, v.value),
                                v.why),
                    0, style.width);
  }
  for (const std::string& note : e.snippet.notes) {
    text += wrapped(note, 0, style.width);
  }
  return text;
}

}  // namespace spp::cli
