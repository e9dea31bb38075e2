#include "cli/report_table.hpp"

#include "cli/human.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace spp::cli {
namespace {

constexpr std::size_t page = 100;

std::string percent(double fraction) { return fmt::format("{:.0f} %", 100 * fraction); }

/// "±6%": half the interval.
std::string spread(const Prediction& p) {
  const double step = p.step.count();
  return step > 0 ? fmt::format("±{:.0f}%", 100 * (p.high - p.low).count() / 2 / step) : "";
}

std::string title_text(const Job& job, const Style& style) {
  std::string text = wrapped(job.title, 0, page);
  text.pop_back();
  return style.bold(text) + "\n\n";
}

}  // namespace

std::string assumptions_text(const std::vector<Assumption>& assumptions, const Style& style) {
  if (assumptions.empty()) {
    return "";
  }
  std::string text = "\n" + style.bold("Assumed") + "\n";
  Table table;
  for (const Assumption& a : assumptions) {
    table.rows.push_back({"  " + a.what, shortened(a.value, 44), shortened(a.source, 32)});
  }
  for (const std::string& line : table.lines()) {
    text += style.dim(shortened(line, page)) + "\n";
  }
  return text;
}

namespace {

/// Degrees alone: the rest was not decided yet.
std::string rejected_name(const StepPlan& plan) {
  const SequencePlan& a = plan.attention;
  const std::string degrees = degrees_of(plan);
  const std::string attention = fmt::format("{} U{}xR{}{}", a.strategy, a.ulysses, a.ring,
                                            a.team > 1 ? fmt::format(" C{}", a.team) : "");
  return degrees.empty() ? attention : fmt::format("{} {}", degrees, attention);
}

/// One line a rule: how many splits it forbids and the first of them.
std::string rejected_text(const PlanResult& result, const Style& style) {
  if (result.rejected.empty()) {
    return "";
  }
  std::map<std::string, std::vector<const Rejected*>> by_rule;
  for (const Rejected& r : result.rejected) {
    by_rule[r.rule].push_back(&r);
  }
  std::string text = "\n" + style.bold("Rejected") + "\n";
  Table table;
  for (const auto& [rule, list] : by_rule) {
    const Rejected& first = *list.front();
    table.rows.push_back({"  " + rule, fmt::format("{}", list.size()),
                          fmt::format("{}: {}", rejected_name(first.plan), first.detail)});
  }
  table.right = {false, true, false};
  for (const std::string& line : table.lines()) {
    text += shortened(line, page) + "\n";
  }
  return text;
}

/// The name without its innermost axis, which has a column of its own.
std::pair<std::string, std::string> name_and_inner(const SequencePlan& plan) {
  std::string name = short_name(plan);
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

/// A column of the candidates, shown only where it says something.
struct Column {
  std::string_view title;
  bool right = true;
  std::string (*of)(const Candidate&);
  bool (*shown)(const Candidate&) = [](const Candidate&) { return true; };
};

std::string degree_text(std::int64_t degree) { return fmt::format("{}", degree); }

std::vector<Column> columns_of(const Request& request) {
  std::vector<Column> columns{
      {"tp", true, [](const Candidate& c) { return degree_text(c.plan.tensor); },
       [](const Candidate& c) { return c.plan.tensor > 1; }},
      {"plan", false,
       [](const Candidate& c) { return shortened(name_and_inner(c.plan.attention).first, 32); }},
      {"inner", false, [](const Candidate& c) { return name_and_inner(c.plan.attention).second; }},
      {"pp", true,
       [](const Candidate& c) {
         return c.plan.virtual_stages > 1
                    ? fmt::format("{}x{}", c.plan.pipeline, c.plan.virtual_stages)
                    : degree_text(c.plan.pipeline);
       },
       [](const Candidate& c) { return c.plan.pipeline > 1; }},
      {"dp", true, [](const Candidate& c) { return degree_text(c.plan.data); },
       [](const Candidate& c) { return c.plan.data > 1; }},
      {"ep", true, [](const Candidate& c) { return degree_text(c.plan.expert); },
       [](const Candidate& c) { return c.plan.expert > 1; }},
      {"batch", true,
       [](const Candidate& c) {
         return fmt::format("{}x{}", c.plan.micro_batches, c.plan.micro_batch);
       },
       [](const Candidate& c) { return c.plan.micro_batch > 1 || c.plan.micro_batches > 1; }}};
  if (!request.whole_step()) {
    columns.erase(columns.begin() + 3, columns.end());
  }
  if (request.phase == StepPhase::train) {
    columns.push_back({"ZeRO", false, [](const Candidate& c) {
                         return fmt::format("{} {}", c.plan.zero,
                                            to_string(c.plan.recompute.kind).substr(0, 4));
                       }});
  }
  columns.push_back({"step", true, [](const Candidate& c) {
                       const Prediction& p = c.predicted;
                       return c.simulated ? fmt::format("{} {:>4}", human(p.step), spread(p))
                                          : fmt::format("> {}", human(p.step));
                     }});
  columns.push_back({"exposed", true, [](const Candidate& c) {
                       return c.simulated ? human(c.predicted.exposed) : "";
                     }});
  columns.push_back({"memory", true, [](const Candidate& c) {
                       const Prediction& p = c.predicted;
                       return human(p.memory.tensors()) + (p.fits ? "" : "!");
                     }});
  columns.push_back(
      {"longest", true, [](const Candidate& c) { return about_tokens(c.predicted.max_seq); }});
  return columns;
}

}  // namespace

std::vector<std::string> candidate_lines(std::string_view title, const std::vector<TableRow>& rows,
                                         const Request& request) {
  std::vector<Column> columns = columns_of(request);
  std::erase_if(columns, [&](const Column& column) {
    return std::ranges::none_of(rows, [&](const TableRow& row) {
      return row.candidate == nullptr ? column.title == "plan" : column.shown(*row.candidate);
    });
  });
  Table table;
  table.rows.push_back({std::string(title)});
  table.right = {true};
  for (const Column& column : columns) {
    table.rows.back().emplace_back(column.title);
    table.right.push_back(column.right);
  }
  for (const TableRow& row : rows) {
    std::vector<std::string> texts{row.label};
    for (const Column& column : columns) {
      texts.push_back(row.candidate != nullptr ? column.of(*row.candidate)
                      : column.title == "plan" ? row.otherwise
                                               : "");
    }
    table.rows.push_back(std::move(texts));
  }
  return table.lines();
}

namespace {

std::string memory_text(const Prediction& p, Bytes usable) {
  const std::vector<std::pair<std::string_view, Bytes>> classes{
      {"parameters", p.memory.parameters},
      {"gradients", p.memory.gradients},
      {"optimizer", p.memory.optimizer},
      {"activations", p.memory.activations},
      {"attention buffers", p.memory.attention_buffers},
      {"communication", p.memory.communication},
      {"logits", p.memory.logits}};
  std::string parts;
  for (const auto& [name, bytes] : classes) {
    if (bytes > Bytes{}) {
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, human(bytes));
    }
  }
  const std::string verdict =
      p.fits ? fmt::format("fits in the usable {}", human(usable))
             : fmt::format("does not fit, by {}", human(p.memory.tensors() - usable));
  const std::string beside =
      p.memory.process > Bytes{}
          ? fmt::format(", beside {} of context, libraries and fragments", human(p.memory.process))
          : "";
  return fmt::format("Memory a GPU: {} ({}){}; {}; longest sequence {} tokens.",
                     human(p.memory.tensors()), parts, beside, verdict, human_count(p.max_seq));
}

std::string communication_text(const Prediction& p) {
  std::string parts;
  for (std::size_t k = 0; k < comm_kinds; ++k) {
    if (p.comm_bytes_per_rank[k] > Bytes{}) {
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ",
                           to_string(static_cast<CommKind>(k)), human(p.comm_bytes_per_rank[k]));
    }
  }
  return parts.empty() ? "No communication." : fmt::format("Sent by each rank: {}.", parts);
}

std::string speed_text(const Prediction& p) {
  const std::string rate = p.tflops_per_gpu < 1
                               ? fmt::format("{:.3g} GFLOP/s", p.tflops_per_gpu * 1e3)
                               : fmt::format("{:.0f} TFLOP/s", p.tflops_per_gpu);
  return fmt::format("{} a GPU, MFU {}, {} tokens/s.", rate, percent(p.mfu),
                     human_count(static_cast<std::int64_t>(p.tokens_per_s)));
}

std::string call_text(const sim::Simulation& s, Phase phase, const Style& style) {
  const sim::Breakdown& b = s.breakdown;
  const double total = std::max(s.makespan.count(), 1e-30);
  std::string text =
      "\n" +
      style.bold(fmt::format("One attention call, {}: {}", to_string(phase), human(s.makespan))) +
      fmt::format(" on rank {}, the last one\n", s.critical.value);
  Table table;
  table.right = {false, true, true};
  for (const auto& [name, seconds] :
       std::vector<std::pair<std::string_view, Seconds>>{{"attention kernels", b.attention},
                                                         {"other kernels", b.other_kernels},
                                                         {"exposed communication", b.exposed},
                                                         {"waiting for the host", b.launch_bound},
                                                         {"(hidden communication)", b.hidden}}) {
    table.rows.push_back(
        {fmt::format("  {}", name), human(seconds), percent(seconds.count() / total)});
  }
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  std::vector<sim::Wait> waits = s.waits;
  std::ranges::stable_sort(
      waits, [](const sim::Wait& x, const sim::Wait& y) { return x.seconds > y.seconds; });
  constexpr std::size_t most = 8;
  if (!waits.empty()) {
    text += fmt::format("  longest waits, of {}:\n", waits.size());
  }
  for (std::size_t i = 0; i < std::min(most, waits.size()); ++i) {
    text += fmt::format("    op {} waited {} for {} (op {})\n", waits[i].op,
                        human(waits[i].seconds), to_string(waits[i].kind), waits[i].waited_for);
  }
  return text;
}

/// ", ZeRO 1, full recomputation" of a train step.
std::string around_text(const Candidate& c, const Request& request) {
  if (request.phase != StepPhase::train) {
    return "";
  }
  const StepPlan& plan = c.plan;
  std::string text;
  if (plan.micro_batches > 1 || plan.micro_batch > 1) {
    text += fmt::format(", {} micro-batches of {}", plan.micro_batches, plan.micro_batch);
  }
  if (plan.pipeline > 1) {
    text += fmt::format(", {}", plan.order);
  }
  text += fmt::format(", ZeRO {}", plan.zero);
  if (plan.recompute.kind != Recompute::none) {
    text += fmt::format(", {} recomputation", to_string(plan.recompute.kind));
  }
  return text;
}

/// Where a step's seconds go: kernels, waits by axis, the bubble.
std::string parts_text(const Prediction& p) {
  Table table;
  table.right = {false, true, true};
  constexpr std::array<std::string_view, step_parts> names{"attention kernels",
                                                           "GEMMs",
                                                           "small kernels",
                                                           "optimizer",
                                                           "waiting for the host",
                                                           "exposed: sequence parallelism",
                                                           "exposed: tensor",
                                                           "exposed: experts",
                                                           "exposed: weights, gradients",
                                                           "exposed: between stages",
                                                           "pipeline bubble"};
  for (std::size_t i = 0; i < step_parts; ++i) {
    if (const double seconds = p.parts_s[static_cast<StepPart>(i)]; seconds > 0) {
      table.rows.push_back({fmt::format("  {}", names.at(i)), human(Seconds(seconds)),
                            percent(seconds / std::max(p.step.count(), 1e-30))});
    }
  }
  table.rows.push_back({"  (hidden communication)", human(p.hidden),
                        percent(p.hidden.count() / std::max(p.step.count(), 1e-30))});
  std::string text;
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string plan_table(const Job& job, const PlanResult& result, Seconds elapsed,
                       const Style& style) {
  std::string text = title_text(job, style);
  std::vector<TableRow> rows;
  for (const Candidate& c : result.candidates) {
    rows.push_back({.label = fmt::format("{}", rows.size() + 1), .candidate = &c});
  }
  const std::vector<std::string> lines = candidate_lines("#", rows, job.request);
  std::size_t widest = 0;
  for (const std::string& line : lines) {
    widest = std::max(widest, width_of(line));
  }
  for (std::size_t i = 0; i < lines.size() && !result.candidates.empty(); ++i) {
    const std::string bound = i == 0 ? "bound by" : result.candidates[i - 1].bound_by;
    const std::string gap(widest - width_of(lines[i]) + 2, ' ');
    const std::size_t room = widest + 2 < page ? page - widest - 2 : 1;
    const std::string line = lines[i] + gap + shortened(bound, room);
    text += (i < 2 ? style.bold(line) : line) + "\n";
  }

  if (!result.candidates.empty() && result.any_fits) {
    const Candidate& best = result.candidates[0];
    const Prediction& p = best.predicted;
    text += "\n" + wrapped(fmt::format("Recommended: {}{}: {}.", short_name(best.plan),
                                       around_text(best, job.request), best.why),
                           0, page);
    if (best.simulated) {
      text += wrapped(fmt::format("Bound by {}.", best.bound_by), 0, page);
      text += wrapped(speed_text(p), 0, page);
      text += wrapped(communication_text(p), 0, page);
    }
    text += wrapped(memory_text(p, job.request.memory), 0, page);
    if (best.padding_tokens > 0 || best.padding_heads > 0) {
      text += fmt::format("Padding: {} tokens, {} heads.\n", human_count(best.padding_tokens),
                          best.padding_heads);
    }
  }
  text += fmt::format("{} legal plans, {} simulated, in {}.\n", human_count(result.searched),
                      human_count(result.simulated), human(elapsed));
  if (result.unsettled > 0) {
    text += wrapped(
        fmt::format("{} plans that may be as good were not simulated: the search ended before "
                    "(--budget, this machine's memory, or Ctrl-C).",
                    human_count(result.unsettled)),
        0, page);
  }
  return text + rejected_text(result, style) + assumptions_text(job.assumptions, style);
}

std::string simulation_table(const Job& job, const Evaluation& evaluation, const Style& style) {
  const Candidate& c = evaluation.candidate;
  const Prediction& p = c.predicted;
  std::string text = title_text(job, style);
  text += wrapped(
      fmt::format("{}{}: step {} ({} to {})", short_name(c.plan), around_text(c, job.request),
                  style.bold(human(p.step)), human(p.low), human(p.high)),
      0, page);
  text += parts_text(p);
  text += wrapped(fmt::format("Bound by {}.", c.bound_by), 0, page);
  text += wrapped(speed_text(p), 0, page);
  text += wrapped(communication_text(p), 0, page);
  text += wrapped(memory_text(p, job.request.memory), 0, page);
  if (evaluation.forward) {
    text += call_text(*evaluation.forward, Phase::forward, style);
  }
  if (evaluation.backward) {
    text += call_text(*evaluation.backward, Phase::backward, style);
  }
  return text + assumptions_text(job.assumptions, style);
}

std::string verification_table(const Verification& verification, const Job* job,
                               const Style& style) {
  std::string text = style.bold(job != nullptr ? job->title : verification.subject) + "\n";
  if (job != nullptr) {
    text += verification.subject + "\n";
  }
  text += "\n";
  Table table;
  table.right = {false, false, true, true, true, true};
  table.rows.push_back({"phase", "verdict", "ops", "messages", "blocks", "peak memory"});
  for (const Verified& v : verification.schedules) {
    table.rows.push_back({v.phase, v.proof.proven ? "proven" : "REFUTED", human_count(v.proof.ops),
                          human_count(v.proof.messages), human_count(v.proof.pair_blocks),
                          human(v.peak_memory)});
  }
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  for (const Verified& v : verification.schedules) {
    if (!v.proof.proven) {
      text +=
          "\n" + wrapped(fmt::format("Counter-example ({}): {}", v.phase, v.proof.counter_example),
                         0, page);
    }
  }
  return job != nullptr ? text + assumptions_text(job->assumptions, style) : text;
}

}  // namespace spp::cli
