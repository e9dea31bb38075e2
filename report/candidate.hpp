// What documents have in common: a plan and its name, a prediction and its parts, the request, what
// was assumed (docs/schema/).
#pragma once

#include "base/json.hpp"
#include "report/bars.hpp"
#include "report/sheet.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spp::report {

constexpr double most_seconds_read = 1e12;
constexpr double most_count_read = 1e18;

/// "TP4 PP2 usp U2xR4 zigzag".
std::string plan_name(const JsonView& plan);
/// "16 micro-batches of 1, ZeRO 3, selective recomputation"; "" if there is nothing to say.
std::string plan_around(const JsonView& plan);

struct Predicted {
  double step = 0, low = 0, high = 0;
  double exposed = 0, tokens_per_s = 0, tflops = 0, mfu = 0;
  double memory = 0;  // what has to fit: without the process's own
  bool fits = true;
  std::int64_t max_seq = 0;
  std::vector<BarPart> parts;
};

struct CandidateRead {
  std::string name, around, bound_by, why;
  bool simulated = true;
  Predicted predicted;
  JsonView plan;
  JsonView prediction;
};

CandidateRead read_candidate(const JsonView& candidate);

/// Half the interval, relative: "±12 %".
std::string spread_text(const Predicted& p);
std::string seconds_text(double seconds);
std::string bytes_text(double bytes);
std::string tokens_text(double tokens);

/// Its numbers at a glance.
void add_stats(Sheet& sheet, const CandidateRead& c);
/// A bar for each candidate, of its parts.
void add_candidates(Sheet& sheet, const std::vector<CandidateRead>& candidates,
                    std::string title = "Predicted step by candidate");
/// A bar for each stage, of its classes; `usable`: what one GPU offers, 0: not said.
void add_memory(Sheet& sheet, const CandidateRead& c, double usable);
/// Which ranks an axis joins; nothing where the document does not list them.
void add_groups(Sheet& sheet, const CandidateRead& c, const std::optional<JsonView>& request);
/// What each rank sends, and by which algorithm.
void add_traffic(Sheet& sheet, const CandidateRead& c, const JsonView& candidate);

/// "a; b (c; d); e" -> its sentences, those in parentheses whole.
std::vector<std::string> sentences(std::string_view text);

/// "llama-3.1-8b, train, 128K tokens, on 16 GPUs of dgx-h100".
std::string request_title(const std::optional<JsonView>& request);
void add_assumptions(Sheet& sheet, const JsonView& document);
void add_request(Sheet& sheet, const JsonView& document);

/// A value as a cell shows it.
std::string value_text(const Json& value);
/// The member's value; "" if there is none.
std::string text_at(const JsonView& view, std::string_view key);

}  // namespace spp::report
