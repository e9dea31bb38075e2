#include "cli/report_layouts.hpp"

#include "cli/human.hpp"

#include <fmt/format.h>

namespace spp::cli {
namespace {

std::string name_of(const LayoutWork& work) {
  return std::string(to_string(work.plan.attention.layout));
}

/// "document-zigzag wins, 8.3 % faster than zigzag (whose busiest rank has 11.2 % more than its
/// share), although it pads 1,234 tokens."
std::string winner(const std::vector<LayoutWork>& layouts) {
  const std::optional<double> gain = gain_of(layouts);
  if (!gain) {
    return "";
  }
  const LayoutWork& first = layouts[0];
  const LayoutWork& second = layouts[1];
  std::string text =
      fmt::format("{} wins, {:.1f} % faster than {}", name_of(first), *gain * 100, name_of(second));
  constexpr double told = 0.0005;  // else it reads 0.0 %
  if (second.imbalance > first.imbalance + told) {
    text += fmt::format(" (whose busiest rank has {:.1f} % more than its share)",
                        second.imbalance * 100);
  }
  if (first.padding_tokens > second.padding_tokens) {
    text += fmt::format(", although it pads {} tokens", human_count(first.padding_tokens));
  }
  return text + ".";
}

}  // namespace

Json layouts_json(const std::vector<LayoutWork>& layouts) {
  if (layouts.empty()) {
    return nullptr;
  }
  Json list = Json::array();
  for (const LayoutWork& work : layouts) {
    list.push_back({{"layout", name_of(work)},
                    {"name", short_name(work.plan)},
                    {"padding_tokens", work.padding_tokens},
                    {"pairs_per_rank", work.pairs},
                    {"imbalance", work.imbalance},
                    {"step_s", work.step ? Json(work.step->count()) : Json()}});
  }
  const std::optional<double> gain = gain_of(layouts);
  return {{"list", std::move(list)},
          {"best", gain ? Json(name_of(layouts[0])) : Json()},
          {"gain", gain ? Json(*gain) : Json()}};
}

std::string layouts_text(const std::vector<LayoutWork>& layouts, const Style& style) {
  if (layouts.empty()) {
    return "";
  }
  Table table;
  table.right = {false, true, true, true, false};
  table.rows.push_back({"  layout", "step", "busiest rank", "padding", "plan"});
  for (const LayoutWork& work : layouts) {
    table.rows.push_back({"  " + name_of(work), work.step ? human(*work.step) : "not simulated",
                          fmt::format("{:+.1f} %", work.imbalance * 100),
                          human_count(work.padding_tokens), short_name(work.plan)});
  }
  std::string text = "\n" + style.bold("Layouts of the documents") + "\n";
  for (const std::string& line : table.lines()) {
    text += shortened(line, style.width) + "\n";
  }
  const std::string words = winner(layouts);
  return words.empty() ? text : text + wrapped(words, 0, style.width);
}

}  // namespace spp::cli
