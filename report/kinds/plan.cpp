// A plan: what is recommended and why, what it was chosen over, memory, groups, what is not legal.
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/links.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace spp::report::kinds::plan {
namespace {

std::string subject(const JsonView& document) { return request_title(document.find("request")); }

double usable_of(const JsonView& document) {
  const auto request = document.find("request");
  const auto usable = request ? request->find("usable_memory_bytes") : std::nullopt;
  return usable ? usable->number(0, most_count_read) : 0;
}

void add_rejected(Sheet& sheet, const JsonView& document) {
  struct Rule {
    std::int64_t count = 0;
    std::string first;
  };
  std::map<std::string, Rule> rules;
  for (const JsonView& rejected : document.at("rejected").elements()) {
    Rule& rule = rules[rejected.at("rule").string()];
    if (rule.count++ == 0) {
      const JsonView plan = rejected.at("plan");
      rule.first = fmt::format("{} U{}×R{}: {}", plan.at("strategy").string(),
                               value_text(plan.at("ulysses").value()),
                               value_text(plan.at("ring").value()), rejected.at("detail").string());
    }
  }
  Grid grid{.heading = {"rule", "splits", "the first of them"},
            .right = {false, true, false},
            .rows = {}};
  for (const auto& [name, rule] : rules) {
    grid.rows.push_back({name, fmt::format("{}", rule.count), rule.first});
  }
  if (!grid.rows.empty()) {
    sheet.heading("What is not legal, or does not fit");
    sheet.table(shortened(std::move(grid), 60));
  }
}

Grid candidate_grid(const std::vector<CandidateRead>& candidates) {
  Grid grid{.heading = {"#", "plan", "step", "interval", "exposed", "memory", "longest", "bound by",
                        "why"},
            .right = {true, false, true, true, true, true, true, false, false},
            .rows = {}};
  for (const CandidateRead& c : candidates) {
    const Predicted& p = c.predicted;
    grid.rows.push_back(
        {fmt::format("{}", grid.rows.size() + 1),
         c.name + (c.around.empty() ? "" : ", " + c.around),
         (c.simulated ? "" : "≥ ") + seconds_text(p.step),
         c.simulated ? fmt::format("{} to {}", seconds_text(p.low), seconds_text(p.high)) : "",
         c.simulated ? seconds_text(p.exposed) : "",
         bytes_text(p.memory) + (p.fits ? "" : " (does not fit)"),
         tokens_text(static_cast<double>(p.max_seq)), c.bound_by, c.why});
  }
  return shortened(std::move(grid), 100);
}

void add_recommendation(Sheet& sheet, const CandidateRead& best, const JsonView& candidate,
                        bool fits) {
  sheet.verdict(fits ? Tone::good : Tone::bad, fits ? "Recommended" : "Nothing fits; nearest",
                best.name + (best.around.empty() ? "" : ", " + best.around));
  add_stats(sheet, best);
  sheet.list(sentences(best.why));
  if (best.simulated && !best.bound_by.empty()) {
    sheet.paragraph(fmt::format("Bound by {}.", best.bound_by));
  }
  const double tokens =
      candidate.find("padding_tokens") ? candidate.at("padding_tokens").number() : 0;
  const double heads = candidate.find("padding_heads") ? candidate.at("padding_heads").number() : 0;
  if (tokens > 0 || heads > 0) {
    sheet.paragraph(fmt::format("Padding: {:.0f} tokens, {:.0f} heads.", tokens, heads));
  }
}

void add(const JsonView& document, Sheet& sheet) {
  const std::vector<JsonView> list = document.at("candidates").elements();
  std::vector<CandidateRead> candidates;
  for (const JsonView& c : list) {
    candidates.push_back(read_candidate(c));
  }
  const bool fits = document.find("best").has_value();
  if (candidates.empty()) {
    sheet.verdict(Tone::bad, "No legal plan", "Every split breaks a rule; they are listed below.");
  } else {
    add_recommendation(sheet, candidates.front(), list.front(), fits);
    const auto ties = document.find("ties");
    if (const double n = ties ? ties->number(0, most_count_read) : 1; n > 1) {
      sheet.paragraph(
          fmt::format("The model cannot tell {:.0f} plans from the best one: their intervals "
                      "differ by less than the constants' spreads.",
                      n),
          "quiet");
    }
    add_candidates(sheet, candidates);
    sheet.details("All candidates", candidate_grid(candidates));
    add_memory(sheet, candidates.front(), usable_of(document));
    add_groups(sheet, candidates.front(), document.find("request"));
    sheet.heading("What moves");
    add_links(sheet, document, candidates.front());
    add_traffic(sheet, candidates.front(), list.front());
  }
  sheet.paragraph(fmt::format("{} legal plans, {} simulated, {} left unsettled.",
                              value_text(document.at("searched").value()),
                              value_text(document.at("simulated").value()),
                              value_text(document.at("unsettled").value())),
                  "quiet");
  add_rejected(sheet, document);
  add_assumptions(sheet, document);
  add_request(sheet, document);
}

}  // namespace

extern const Kind entry{.format = "plan", .name = "Plan", .subject = subject, .add = add};

}  // namespace spp::report::kinds::plan
