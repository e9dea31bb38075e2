#include "cli/report_explain.hpp"

#include "cli/candidate_table.hpp"
#include "cli/human.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace spp::cli {
namespace {

std::string heading(std::string_view text, const Style& style) {
  return "\n" + style.bold(text) + "\n";
}

std::string point(const std::string& text, const Style& style) {
  std::string lines = wrapped(text, 4, style.width);
  lines[2] = '-';
  return lines;
}

std::string decisions_text(const Candidate& best, const Style& style) {
  std::string text = heading("Why this plan", style);
  if (best.decisions.empty()) {
    return text + point(best.why, style);
  }
  for (const std::string& decision : best.decisions) {
    text += point(decision, style);
  }
  return text;
}

std::string place(std::size_t i) { return fmt::format("{}", i + 1); }

/// Parts down, candidates across; as many as a line has room for, then the next ones below.
std::string parts_text(const std::vector<Candidate>& all, const Style& style) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].simulated) {
      shown.push_back(i);
    }
  }
  std::string text = heading("Where the time of a step goes", style);
  constexpr std::size_t first_column = 32;
  constexpr std::size_t column = 10;
  const std::size_t across = std::max<std::size_t>(1, (style.width - first_column) / column);
  for (std::size_t begin = 0; begin < shown.size(); begin += across) {
    const std::size_t end = std::min(shown.size(), begin + across);
    Table table;
    table.rows.push_back({"  plan"});
    table.right = {false};
    for (std::size_t k = begin; k < end; ++k) {
      table.rows.back().push_back(place(shown[k]));
      table.right.push_back(true);
    }
    const auto row = [&](std::string_view name, const auto& value) {
      std::vector<std::string> texts{fmt::format("  {}", name)};
      bool some = false;
      for (std::size_t k = begin; k < end; ++k) {
        const double seconds = value(all[shown[k]].predicted);
        some = some || seconds > 0;
        texts.push_back(seconds > 0 ? human(Seconds(seconds)) : "");
      }
      if (some) {
        table.rows.push_back(std::move(texts));
      }
    };
    for (std::size_t i = 0; i < step_parts; ++i) {
      const auto part = static_cast<StepPart>(i);
      row(words_of(part), [&](const Prediction& p) { return p.parts_s[part]; });
    }
    row("step", [](const Prediction& p) { return p.step.count(); });
    row("(hidden communication)", [](const Prediction& p) { return p.hidden.count(); });
    for (const std::string& line : table.lines()) {
      text += line + "\n";
    }
  }
  return text;
}

std::string losers_text(const std::vector<Candidate>& all, const Style& style) {
  std::string text = heading("Why the others lose", style);
  const Candidate& best = all.front();
  for (std::size_t i = 1; i < all.size(); ++i) {
    const Candidate& c = all[i];
    std::string line = fmt::format("{}: {}: {}", place(i), short_name(c.plan), c.why);
    if (c.simulated && best.simulated) {
      const std::string part = decisive_part(best.predicted, c.predicted);
      line +=
          fmt::format("{}; bound by {}", part.empty() ? "" : fmt::format(", {}", part), c.bound_by);
    }
    text += point(line, style);
  }
  return text;
}

std::string rejected_text(const std::vector<Rejected>& rejected, const Style& style) {
  std::map<std::string, std::vector<const Rejected*>> by_rule;
  for (const Rejected& r : rejected) {
    by_rule[r.rule].push_back(&r);
  }
  std::string text;
  for (const auto& [rule, list] : by_rule) {
    text += heading(fmt::format("Rejected by rule '{}': {}", rule, list.size()), style);
    for (const Rejected* r : list) {
      text += point(fmt::format("{}: {}", short_name(r->plan), r->detail), style);
    }
  }
  return text;
}

}  // namespace

std::string explanation(const PlanResult& result, const Style& style) {
  std::string text;
  if (!result.candidates.empty() && result.any_fits) {
    text += decisions_text(result.candidates.front(), style);
    text += parts_text(result.candidates, style);
    if (result.candidates.size() > 1) {
      text += losers_text(result.candidates, style);
    }
  }
  return text + rejected_text(result.rejected, style);
}

}  // namespace spp::cli
