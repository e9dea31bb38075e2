#include "cli/candidate_columns.hpp"

#include "cli/human.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace spp::cli {
namespace {

/// "±6%": half the interval.
std::string spread(const Prediction& p) {
  const double step = p.step.count();
  return step > 0 ? fmt::format("±{:.0f}%", 100 * (p.high - p.low).count() / 2 / step) : "";
}

/// "replicate"; "" where heads just divide.
std::string heads_of(const SequencePlan& plan) {
  return plan.heads == HeadPolicy::divide ? "" : std::string(to_string(plan.heads));
}

/// The name without its innermost axis and its head policy, which have columns of their own.
std::pair<std::string, std::string> name_and_inner(const SequencePlan& plan) {
  std::string name = short_name(plan);
  if (const std::string heads = fmt::format(" {} heads", heads_of(plan));
      name.find(heads) != std::string::npos) {
    name.erase(name.find(heads), heads.size());
  }
  constexpr std::string_view ending = " innermost)";
  const std::size_t begin = name.find(" (");
  const std::size_t end = name.find(ending);
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return {name, ""};
  }
  const std::string inner = name.substr(begin + 2, end - begin - 2);  // "ulysses"
  name.erase(begin, end + ending.size() - begin);
  return {name, inner};
}

/// "346K": rounded down, so that it fits.
std::string about_tokens(std::int64_t tokens) {
  constexpr std::int64_t k = 1024;
  constexpr std::int64_t many = 10 * k;
  return tokens < many ? human_count(tokens) : human_count(tokens / k) + "K";
}

std::string degree_text(std::int64_t degree) { return fmt::format("{}", degree); }

}  // namespace

std::vector<CandidateColumn> plan_columns(const Request& request) {
  std::vector<CandidateColumn> columns{
      {"tp", true, [](const Candidate& c) { return degree_text(c.plan.tensor); },
       [](const Candidate& c) { return c.plan.tensor > 1; }, "TP"},
      {"plan", false, [](const Candidate& c) { return name_and_inner(c.plan.attention).first; }},
      {"inner", false, [](const Candidate& c) { return name_and_inner(c.plan.attention).second; },
       [](const Candidate& c) { return !name_and_inner(c.plan.attention).second.empty(); },
       "innermost", 5, "inner: the axis of neighbouring ranks"},
      {"heads", false, [](const Candidate& c) { return heads_of(c.plan.attention); },
       [](const Candidate& c) { return !heads_of(c.plan.attention).empty(); }, "heads", 3,
       "heads: what is done with KV heads that do not divide"}};
  if (request.whole_step()) {
    columns.push_back({"pp", true,
                       [](const Candidate& c) {
                         return c.plan.virtual_stages > 1
                                    ? fmt::format("{}x{}", c.plan.pipeline, c.plan.virtual_stages)
                                    : degree_text(c.plan.pipeline);
                       },
                       [](const Candidate& c) { return c.plan.pipeline > 1; }, "PP", 0,
                       "pp: stages x virtual stages"});
    const bool guided = request.step.guidance != Guidance::none;
    columns.push_back({guided ? "cfg" : "dp", true,
                       [](const Candidate& c) { return degree_text(c.plan.data); },
                       [](const Candidate& c) { return c.plan.data > 1; }, guided ? "CFG" : "DP", 0,
                       guided ? "cfg: groups of GPUs for the branches of guidance" : ""});
    columns.push_back({"ep", true, [](const Candidate& c) { return degree_text(c.plan.expert); },
                       [](const Candidate& c) { return c.plan.expert > 1; }, "EP"});
    columns.push_back({"etp", true,
                       [](const Candidate& c) { return degree_text(c.plan.expert_tensor); },
                       [](const Candidate& c) { return c.plan.expert_tensor > 1; }, "ETP", 0,
                       "etp: ranks that each expert is cut over"});
    columns.push_back(
        {"to experts", true,
         [](const Candidate& c) {
           return c.plan.sends_to_experts() ? std::string(to_string(c.plan.to_experts)) : "-";
         },
         [](const Candidate& c) {
           return c.plan.sends_to_experts() && c.plan.to_experts != Dispatcher::all_to_all;
         },
         "dispatcher"});
    columns.push_back(
        {"batch", true,
         [](const Candidate& c) {
           return fmt::format("{}x{}", c.plan.micro_batches, c.plan.micro_batch);
         },
         [](const Candidate& c) { return c.plan.micro_batch > 1 || c.plan.micro_batches > 1; },
         "batch", 0, "batch: micro-batches x sequences in each"});
  }
  const bool train = request.phase == StepPhase::train;
  if (request.whole_step()) {
    bool (*any)(const Candidate&) = [](const Candidate&) { return true; };
    bool (*some)(const Candidate&) = [](const Candidate& c) { return c.plan.zero > 0; };
    columns.push_back({"ZeRO", true, [](const Candidate& c) { return degree_text(c.plan.zero); },
                       train ? any : some, "ZeRO"});
  }
  if (train) {
    columns.push_back(
        {"recompute", false,
         [](const Candidate& c) { return std::string(to_string(c.plan.recompute.kind)); },
         [](const Candidate&) { return true; }, "recomputation"});
  }
  return columns;
}

std::vector<CandidateColumn> time_columns() {
  return {{"step", true, [](const Candidate& c) {
             const Prediction& p = c.predicted;
             return c.simulated ? fmt::format("{} {:>4}", human(p.step), spread(p))
                                : fmt::format("> {}", human(p.step));
           }}};
}

std::vector<CandidateColumn> other_columns(const Request& request) {
  const int spare_memory = request.objective == Objective::memory ? 0 : 4;
  std::vector<CandidateColumn> columns{
      {"exposed", true,
       [](const Candidate& c) { return c.simulated ? human(c.predicted.exposed) : ""; },
       [](const Candidate&) { return true; }, "", 1, "exposed: communication that no kernel hides"},
      {"memory", true,
       [](const Candidate& c) {
         const Prediction& p = c.predicted;
         return human(p.memory.tensors()) + (p.fits ? "" : "!");
       },
       [](const Candidate&) { return true; }, "", spare_memory,
       "memory: of a GPU, ! where it has less"},
      {"longest", true, [](const Candidate& c) { return about_tokens(c.predicted.max_seq); },
       [](const Candidate&) { return true; }, "", 2, "longest: tokens of a sequence that fits"}};
  if (request.counts_replicas()) {
    columns.insert(columns.begin(),
                   {"tokens/s", true, [](const Candidate& c) {
                      return human_count(static_cast<std::int64_t>(c.predicted.tokens_per_s));
                    }});
  }
  return columns;
}

}  // namespace spp::cli
