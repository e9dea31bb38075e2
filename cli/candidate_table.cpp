#include "cli/candidate_table.hpp"

#include "base/error.hpp"
#include "cli/candidate_columns.hpp"
#include "cli/human.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace spp::cli {
namespace {

struct PartWords {
  char letter;
  std::string_view brief, words;
  std::string_view colour;  // of a terminal's ground
};

/// By StepPart. Kernels are cold colours, waits are warm ones.
constexpr std::array<PartWords, step_parts> part_words{
    {{'A', "attention", "attention kernels", "44"},
     {'G', "GEMMs", "GEMMs", "46"},
     {'s', "small", "small kernels", "100"},
     {'o', "optimizer", "optimizer", "45"},
     {'h', "host", "waiting for the host", "100"},
     {'c', "sequence", "exposed: sequence parallelism", "41"},
     {'t', "tensor", "exposed: tensor", "101"},
     {'e', "experts", "exposed: experts", "43"},
     {'d', "weights", "exposed: weights, gradients", "103"},
     {'p', "stages", "exposed: between stages", "43"},
     {'b', "bubble", "bubble or imbalance", "47"}}};

const PartWords& of_part(std::size_t part) { return part_words.at(part); }

/// "-3.1 %", "+43 %".
std::string difference(const Prediction& reference, const Prediction& other) {
  const double more = 100 * (other.step.count() / std::max(reference.step.count(), 1e-30) - 1);
  return std::abs(more) < 9.95 ? fmt::format("{:+.1f} %", more) : fmt::format("{:+.0f} %", more);
}

/// Text of a column: a heading, and a text for each row.
struct Filled {
  std::vector<std::string> texts;
  bool right = false;
  int spare = 0;
  std::size_t least = 0;  // it may be shortened to so many characters; 0: not
  std::string_view words;
  [[nodiscard]] std::size_t width() const {
    std::size_t widest = 0;
    for (const std::string& text : texts) {
      widest = std::max(widest, width_of(text));
    }
    return widest;
  }
};

Filled filled(const CandidateColumn& column, const std::vector<TableRow>& rows) {
  Filled f{.texts = {std::string(column.title)},
           .right = column.right,
           .spare = column.spare,
           .words = column.words};
  f.least = column.title == "plan" ? 16 : 0;
  for (const TableRow& row : rows) {
    f.texts.push_back(row.candidate != nullptr ? column.of(*row.candidate)
                      : column.title == "plan" ? row.otherwise
                                               : "");
  }
  return f;
}

std::size_t total_width(const std::vector<Filled>& columns) {
  std::size_t sum = 0;
  for (const Filled& column : columns) {
    sum += column.width() + (sum > 0 ? 2 : 0);
  }
  return sum;
}

/// Keeps what alone tells two rows apart; `columns` are those of plans.
void keep_what_differs(std::vector<Filled>& columns) {
  for (Filled& column : columns) {
    std::map<std::vector<std::string>, std::string> seen;  // the others' texts -> this one's
    for (std::size_t row = 1; row < column.texts.size() && column.spare > 0; ++row) {
      std::vector<std::string> others;
      for (const Filled& c : columns) {
        if (&c != &column) {
          others.push_back(c.texts[row]);
        }
      }
      const auto [same, first] = seen.emplace(std::move(others), column.texts[row]);
      if (!first && same->second != column.texts[row]) {
        column.spare = 0;
      }
    }
  }
}

/// Leaves columns out, then shortens texts, until a line has room. Says whether it shortened any.
bool fit(std::vector<Filled>& columns, std::size_t width) {
  while (total_width(columns) > width) {
    auto spare = columns.end();
    for (auto it = columns.begin(); it != columns.end(); ++it) {
      if (it->spare > 0 && (spare == columns.end() || it->spare < spare->spare)) {
        spare = it;
      }
    }
    if (spare == columns.end()) {
      break;
    }
    columns.erase(spare);
  }
  const bool shortens = total_width(columns) > width;
  for (auto it = columns.begin(); it != columns.end() && total_width(columns) > width; ++it) {
    const std::size_t own = it->width();
    const std::size_t over = total_width(columns) - width;
    if (it->least > 0 && own > it->least) {
      const std::size_t room = std::max(it->least, own > over ? own - over : 0);
      for (std::string& text : it->texts) {
        text = shortened(text, room);
      }
    }
  }
  return shortens;
}

/// "AAAAAGGs": the parts of a step, `whole` seconds being `width` characters.
std::string bar_of(const Candidate* c, double whole, std::size_t width) {
  std::string bar;
  if (c == nullptr || !c->simulated) {
    return bar;
  }
  // Each part has the whole letters of its share; what is left over goes to the largest rests.
  const double letters = static_cast<double>(width) / whole;
  std::array<double, step_parts> rests{};
  std::array<std::size_t, step_parts> counts{};
  const auto all = static_cast<std::size_t>(std::lround(c->predicted.step.count() * letters));
  std::size_t used = 0;
  for (std::size_t i = 0; i < step_parts; ++i) {
    const double share = std::max(0.0, c->predicted.parts_s[static_cast<StepPart>(i)]) * letters;
    counts.at(i) = static_cast<std::size_t>(share);
    rests.at(i) = share - std::floor(share);
    used += counts.at(i);
  }
  for (; used < std::min(all, width); ++used) {
    const auto largest = std::ranges::max_element(rests) - rests.begin();
    ++counts.at(static_cast<std::size_t>(largest));
    rests.at(static_cast<std::size_t>(largest)) = -1;
  }
  for (std::size_t i = 0; i < step_parts; ++i) {
    bar.append(counts.at(i), of_part(i).letter);
  }
  return bar;
}

std::string coloured(const std::string& bar, const Style& style) {
  if (!style.color) {
    return bar;
  }
  std::string text;
  for (std::size_t i = 0; i < bar.size();) {
    const std::size_t end = std::min(bar.size(), bar.find_first_not_of(bar[i], i));
    const auto* const part = std::ranges::find(part_words, bar[i], &PartWords::letter);
    text += fmt::format("\x1b[30;{}m{}\x1b[0m", part->colour, bar.substr(i, end - i));
    i = end;
  }
  return text;
}

std::string letters_of(const std::vector<std::string>& bars) {
  std::string text;
  for (const PartWords& part : part_words) {
    if (std::ranges::any_of(bars, [&](const std::string& bar) {
          return bar.find(part.letter) != std::string::npos;
        })) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part.letter, part.words);
    }
  }
  return text;
}

/// "U Ulysses degree, R ring degree, C team size": what stands in the names of plans.
std::string words_of_plans(const std::vector<TableRow>& rows) {
  std::string text = "U Ulysses degree, R ring degree";
  std::set<std::string_view> said;
  for (const TableRow& row : rows) {
    if (row.candidate == nullptr) {
      continue;
    }
    for (const auto& [parameter, value] : row.candidate->plan.attention.own.values()) {
      if (said.insert(parameter->symbol).second) {
        text += fmt::format(", {} {}", parameter->symbol, parameter->words);
      }
    }
  }
  return text;
}

/// Takes away what all rows have in common, and says it.
std::string take_common(std::vector<CandidateColumn>& columns, const std::vector<TableRow>& rows) {
  std::string common;
  std::erase_if(columns, [&](const CandidateColumn& column) {
    if (column.shared.empty()) {
      return false;
    }
    const std::string first = column.of(*rows.front().candidate);
    const bool same = std::ranges::all_of(
        rows, [&](const TableRow& row) { return column.of(*row.candidate) == first; });
    if (same) {
      const bool word_first = column.shared != "innermost" && column.shared != "recomputation" &&
                              column.shared != "heads";
      const std::string value = first == "none" ? "no" : first;
      common += fmt::format("{}{} {}", common.empty() ? "" : ", ",
                            word_first ? std::string(column.shared) : value,
                            word_first ? value : std::string(column.shared));
    }
    return same;
  });
  return common;
}

}  // namespace

std::string_view words_of(StepPart part) { return of_part(static_cast<std::size_t>(part)).words; }

std::string decisive_part(const Prediction& reference, const Prediction& other) {
  const double sign = other.step >= reference.step ? 1 : -1;
  std::size_t decides = 0;
  const auto change = [&](std::size_t i) {
    const auto part = static_cast<StepPart>(i);
    return other.parts_s[part] - reference.parts_s[part];
  };
  for (std::size_t i = 1; i < step_parts; ++i) {
    if (sign * change(i) > sign * change(decides)) {
      decides = i;
    }
  }
  const double seconds = change(decides);
  return seconds == 0 ? ""
                      : fmt::format("{} {}{}", of_part(decides).brief, seconds > 0 ? "+" : "-",
                                    human(Seconds(std::abs(seconds))));
}

CandidateTable candidate_table(const std::vector<TableRow>& rows, const Request& request,
                               const TableWish& wish) {
  CandidateTable table;
  std::vector<CandidateColumn> columns = plan_columns(request);
  std::erase_if(columns, [&](const CandidateColumn& column) {
    return std::ranges::none_of(rows, [&](const TableRow& row) {
      return row.candidate == nullptr ? column.title == "plan" : column.shown(*row.candidate);
    });
  });
  const bool alike = wish.compare && !rows.empty() &&
                     std::ranges::all_of(rows, [](const TableRow& r) { return r.candidate; });
  if (alike && rows.size() > 1) {
    table.common = take_common(columns, rows);
  }
  std::vector<Filled> texts;
  const auto add = [&](const std::vector<CandidateColumn>& more) {
    for (const CandidateColumn& column : more) {
      texts.push_back(filled(column, rows));
    }
  };
  add(columns);
  if (wish.compare) {
    keep_what_differs(texts);
  }
  Filled labels{.texts = {std::string(wish.title)}, .right = true};
  for (const TableRow& row : rows) {
    labels.texts.push_back(row.label);
  }
  texts.insert(texts.begin(), std::move(labels));
  add(time_columns());
  const bool compares = alike && rows.size() > 1 && rows.front().candidate->simulated;
  if (compares) {
    Filled more{.texts = {fmt::format("than {}", rows.front().label), ""}, .right = true};
    constexpr int last_left_out = 1000;
    Filled part{.texts = {"most of that", ""}, .spare = last_left_out, .least = 14};
    const Prediction& first = rows.front().candidate->predicted;
    for (std::size_t i = 1; i < rows.size(); ++i) {
      const Candidate& c = *rows[i].candidate;
      more.texts.push_back(c.simulated ? difference(first, c.predicted) : "");
      part.texts.push_back(c.simulated ? decisive_part(first, c.predicted) : "");
    }
    texts.push_back(std::move(more));
    texts.push_back(std::move(part));
  }
  add(other_columns(request));

  constexpr std::size_t longest_bar = 24;
  constexpr std::size_t shortest_bar = 7;
  bool bars = alike && rows.front().candidate->simulated && wish.width > shortest_bar + 2;
  if (bars) {  // unless a name is cut for it
    std::vector<Filled> beside = texts;
    bars = !fit(beside, wish.width - shortest_bar - 2);
    if (bars) {
      texts = std::move(beside);
    }
  }
  fit(texts, wish.width);
  table.words = words_of_plans(rows);
  for (const Filled& column : texts) {
    table.words += column.words.empty() ? "" : fmt::format("; {}", column.words);
  }
  Table plain;
  for (std::size_t row = 0; row <= rows.size(); ++row) {
    plain.rows.emplace_back();
    for (const Filled& column : texts) {
      plain.rows.back().push_back(column.texts[row]);
    }
  }
  for (const Filled& column : texts) {
    plain.right.push_back(column.right);
  }
  table.lines = plain.lines();
  for (std::string& line : table.lines) {
    line = shortened(line, wish.width);
  }
  const std::size_t used = total_width(texts);
  if (!bars || used + 2 + shortest_bar > wish.width) {
    return table;
  }
  double whole = 1e-30;
  for (const TableRow& row : rows) {
    whole = std::max(whole, row.candidate->simulated ? row.candidate->predicted.step.count() : 0);
  }
  const std::size_t room = std::min(longest_bar, wish.width - used - 2);
  std::vector<std::string> drawn;
  for (std::size_t i = 0; i <= rows.size(); ++i) {
    drawn.push_back(i == 0 ? std::string() : bar_of(rows[i - 1].candidate, whole, room));
    const std::string ending = i == 0 ? "parts" : coloured(drawn.back(), wish.style);
    if (!ending.empty()) {
      table.lines[i] += std::string(used + 2 - cli::width_of(table.lines[i]), ' ') + ending;
    }
  }
  table.letters = letters_of(drawn);
  return table;
}

}  // namespace spp::cli
