#include "machine/stack.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp {
namespace {

constexpr double most_traffic = 20;

std::optional<Sourced<Seconds>> seconds(const JsonView& object, std::string_view key) {
  const auto view = object.find(key);
  return view ? std::optional(read_seconds(*view)) : std::nullopt;
}

std::optional<Sourced<double>> factor(const JsonView& object, std::string_view key) {
  const auto view = object.find(key);
  return view ? std::optional(read_fraction(*view, most_traffic)) : std::nullopt;
}

/// All that a stack says, and what those say that it is like. What a stack is and can, and what
/// only says how well its own data are known, is not inherited. `heirs`: those that ask.
Json inherited(const JsonView& like, const std::function<Json(const JsonView&)>& of_name,
               std::vector<std::string> heirs) {
  Json base = of_name(like);
  if (base.contains("like")) {
    if (std::ranges::find(heirs, like.string()) != heirs.end()) {
      like.fail(fmt::format("'{}' is like itself", like.string()));
    }
    heirs.push_back(like.string());
    Json whole = inherited(JsonView(base, like.where()).at("like"), of_name, std::move(heirs));
    whole.merge_patch(base);
    base = std::move(whole);
  }
  for (const std::string_view own :
       {"aliases", "known_by", "until", "framework", "strategies", "unexplained", "note"}) {
    base.erase(std::string(own));
  }
  return base;
}

StackSpec read_whole_stack(const JsonView& document) {
  StackSpec stack;
  if (const auto like = document.find("like")) {
    stack.like = like->string();
  }
  stack.name = document.at("name").string();
  stack.title = document.at("title").string();
  if (const auto list = document.find("aliases")) {
    for (const JsonView& alias : list->elements()) {
      stack.aliases.push_back(alias.string());
    }
  }
  if (const auto list = document.find("known_by")) {
    for (const JsonView& word : list->elements()) {
      stack.known_by.push_back(word.string());
    }
  }
  if (const auto until = document.find("until")) {
    stack.until = static_cast<int>(until->integer(1990, 2100));
  }
  if (const auto framework = document.find("framework")) {
    stack.framework = framework->string();
  }
  if (const auto strategies = document.find("strategies")) {
    if (!stack.framework.empty()) {
      strategies->fail(fmt::format("beside framework '{}', which says them", stack.framework));
    }
    strategies->allow_only({"names", "source"});
    for (const JsonView& name : strategies->at("names").elements()) {
      stack.strategies.push_back(name.string());
    }
  }
  if (const auto kernels = document.find("attention")) {
    for (const auto& [generation, kernel] : kernels->members()) {
      stack.attention.emplace(generation, kernel.at("kernel").string());
      kernel.allow_only({"kernel", "source"});
    }
  }
  if (const auto gradient = document.find("gradient")) {
    gradient->allow_only({"dtype", "source"});
    const JsonView dtype = gradient->at("dtype");
    if (dtype.string() != "input") {
      stack.gradient = parse_dtype(dtype.string(), dtype.where());
    }
  }
  if (const auto sections = document.find("sections")) {
    sections->allow_only({"zigzag", "source"});
    stack.zigzag_sections = sections->at("zigzag").boolean();
  }
  if (const auto host = document.find("host")) {
    host->allow_only({"call", "attention_forward", "attention_backward", "elementwise", "copy",
                      "send_recv", "collective"});
    stack.host = {.call = seconds(*host, "call"),
                  .attention_forward = seconds(*host, "attention_forward"),
                  .attention_backward = seconds(*host, "attention_backward"),
                  .elementwise = seconds(*host, "elementwise"),
                  .copy = seconds(*host, "copy"),
                  .send_recv = seconds(*host, "send_recv"),
                  .collective = seconds(*host, "collective")};
  }
  if (const auto beside = document.find("network_beside_kernels")) {
    beside->allow_only({"after", "speed_forward", "speed_backward"});
    stack.network_beside_kernels = {.after = read_seconds(beside->at("after")),
                                    .speed_forward = read_fraction(beside->at("speed_forward")),
                                    .speed_backward = read_fraction(beside->at("speed_backward"))};
  }
  if (const auto unexplained = document.find("unexplained")) {
    stack.unexplained = read_fraction(*unexplained);
  }
  if (const auto layouts = document.find("layouts")) {
    for (const auto& [name, view] : layouts->members()) {
      const JsonView& layout = view;  // a structured binding cannot be captured
      layout.allow_only({"attention", "merge", "host_forward", "host_backward"});
      const auto part = [&](std::string_view key) { return read_fraction(layout.at(key), 5); };
      const StackSpec::LayoutCost cost{.attention = part("attention"),
                                       .merge = part("merge"),
                                       .host_forward = part("host_forward"),
                                       .host_backward = part("host_backward")};
      if (cost.attention.value < 1) {
        layout.at("attention").fail(fmt::format("{} is below 1", cost.attention.value));
      }
      stack.layouts.emplace(parse_layout(name, layout.where()), cost);
    }
  }
  if (const auto traffic = document.find("traffic")) {
    traffic->allow_only({"merge", "accumulate", "copy"});
    stack.traffic = {.merge = factor(*traffic, "merge"),
                     .accumulate = factor(*traffic, "accumulate"),
                     .copy = factor(*traffic, "copy")};
  }
  if (const auto list = document.find("plain_dispatch")) {
    for (const JsonView& recipe : list->elements()) {
      recipe.allow_only({"model", "dtype", "source"});
      stack.plain_dispatch.push_back(
          {.model = recipe.at("model").string(), .dtype = recipe.at("dtype").string()});
    }
  }
  if (const auto flops = document.find("flops")) {
    flops->allow_only({"attention", "recomputed", "until", "source"});
    const JsonView attention = flops->at("attention");
    if (attention.string() != "whole" && attention.string() != "half") {
      attention.fail(fmt::format("'{}' is not whole or half", attention.string()));
    }
    const auto recomputed = flops->find("recomputed");
    const auto until = flops->find("until");
    stack.counting =
        StackSpec::Counting{.whole_attention = attention.string() == "whole",
                            .recomputed = recomputed && recomputed->boolean(),
                            .until = until ? static_cast<int>(until->integer(1990, 2100)) : 0};
  }
  if (const auto step = document.find("step")) {
    stack.step = read_step_practice(*step);
  }
  if (const auto exchange = document.find("expert_exchange")) {
    for (const auto& [generation, view] : exchange->members()) {
      stack.expert_exchange.emplace(generation, read_expert_exchange(view));
    }
  }
  return stack;
}

}  // namespace

StackSpec read_stack(const JsonView& document,
                     const std::function<Json(const JsonView& name)>& of_name) {
  expect_format(document, "sp-plan/stack");
  document.allow_only({"format",
                       "format_version",
                       "name",
                       "aliases",
                       "title",
                       "known_by",
                       "until",
                       "like",
                       "framework",
                       "strategies",
                       "attention",
                       "gradient",
                       "sections",
                       "host",
                       "traffic",
                       "step",
                       "network_beside_kernels",
                       "layouts",
                       "unexplained",
                       "expert_exchange",
                       "flops",
                       "plain_dispatch",
                       "note"});
  const auto like = document.find("like");
  if (!like) {
    return read_whole_stack(document);
  }
  Json whole = inherited(*like, of_name, {});
  whole.merge_patch(document.value());
  return read_whole_stack(JsonView(whole, document.where()));
}

StackSpec compiled(StackSpec stack) {
  const double part = stack.step.compiled_host.value;
  StackSpec::Host& h = stack.host;
  for (auto* time : {&h.call, &h.attention_forward, &h.attention_backward, &h.elementwise, &h.copy,
                     &h.send_recv, &h.collective}) {
    if (*time) {
      (*time)->value *= part;
    }
  }
  stack.step = compiled(stack.step);
  return stack;
}

bool StackSpec::dispatches_plainly(std::string_view model, std::string_view dtype) const {
  return std::ranges::any_of(plain_dispatch, [&](const Recipe& recipe) {
    return model.starts_with(recipe.model) && dtype == recipe.dtype;
  });
}

const StackSpec::LayoutCost* StackSpec::cost_of(Layout layout) const {
  auto own = layouts.find(layout);
  own = own == layouts.end() ? layouts.find(chunk_layout(layout)) : own;
  return own == layouts.end() ? nullptr : &own->second;
}

HostTimes host_times(const StackSpec& stack, const GenerationSpec& generation, Layout layout,
                     Phase phase) {
  const StackSpec::LayoutCost* own = stack.cost_of(layout);
  const double factor = own == nullptr            ? 1
                        : phase == Phase::forward ? own->host_forward.value
                                                  : own->host_backward.value;
  const auto time = [&](const std::optional<Sourced<Seconds>>& given) {
    return given ? given->value * factor : generation.launch.value;
  };
  const StackSpec::Host& h = stack.host;
  HostTimes times;
  times.fill(time(h.elementwise));
  const auto set = [&](OpKind kind, const std::optional<Sourced<Seconds>>& given) {
    times.at(static_cast<std::size_t>(kind)) = time(given);
  };
  set(OpKind::attention_fwd, h.attention_forward);
  set(OpKind::attention_bwd, h.attention_backward);
  set(OpKind::copy, h.copy);
  set(OpKind::exchange, h.send_recv);
  for (const OpKind collective :
       {OpKind::all_to_all, OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_reduce}) {
    set(collective, h.collective);
  }
  return times;
}

double traffic_factor(const StackSpec& stack, Layout layout, const Kernel& kernel) {
  const auto value = [](const std::optional<Sourced<double>>& given) {
    return given ? given->value : 1.0;
  };
  if (std::holds_alternative<Merge>(kernel) || std::holds_alternative<Rescale>(kernel)) {
    const StackSpec::LayoutCost* own = stack.cost_of(layout);
    return value(stack.traffic.merge) * (own == nullptr ? 1.0 : own->merge.value);
  }
  if (std::holds_alternative<Accumulate>(kernel)) {
    return value(stack.traffic.accumulate);
  }
  return std::holds_alternative<Copy>(kernel) ? value(stack.traffic.copy) : 1.0;
}

const AttentionKernelSpec& attention_of(const StackSpec& stack, const GenerationSpec& generation,
                                        int year) {
  const auto kernel = stack.attention.find(generation.name);
  const std::string& name =
      kernel == stack.attention.end() ? generation.attention.kernel : kernel->second;
  return attention_kernel(generation, name,
                          fmt::format("stack {}: attention.{}", stack.name, generation.name), year);
}

}  // namespace spp
