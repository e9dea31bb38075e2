#include "cli/report_table.hpp"

#include "cli/human.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace spp::cli {
namespace {

std::string percent(double fraction) { return fmt::format("{:.0f} %", 100 * fraction); }

/// "  inter.bandwidth  ib, 8 x 400 Gb/s …": a word in a column of `widest`, text beside it in as
/// many lines as it takes.
std::string labelled(std::string_view label, std::size_t widest, std::string_view text,
                     std::size_t width) {
  const std::size_t indent = widest + 4;
  std::string lines = wrapped(text, indent, width);
  const std::string front = fmt::format("  {}", label);
  lines.replace(0, indent, front + std::string(indent - width_of(front), ' '));
  return lines;
}

std::string title_text(const Job& job, const Style& style) {
  std::string text = wrapped(job.title, 0, style.width);
  text.pop_back();
  return style.bold(text) + "\n\n";
}

}  // namespace

std::string call_text(const sim::Simulation& s, std::string_view what, Phase phase,
                      const Style& style) {
  const Breakdown& b = s.breakdown;
  const double total = std::max(s.makespan.count(), 1e-30);
  std::string text =
      "\n" +
      style.bold(fmt::format("{}{}: {}", what,
                             phase == Phase::step ? "" : fmt::format(", {}", to_string(phase)),
                             human(s.makespan))) +
      fmt::format(" on rank {}, the last one\n", s.critical.value);
  Table table;
  table.right = {false, true, true};
  for (const auto& [name, seconds] :
       std::vector<std::pair<std::string_view, Seconds>>{{"attention kernels", b.attention},
                                                         {"matrix products", b.gemm},
                                                         {"small kernels", b.other_kernels},
                                                         {"exposed communication", b.exposed},
                                                         {"waiting for busy ranks", b.imbalance},
                                                         {"waiting for the host", b.launch_bound},
                                                         {"(hidden communication)", b.hidden}}) {
    if (name != "matrix products" || seconds > Seconds(0)) {
      table.rows.push_back(
          {fmt::format("  {}", name), human(seconds), percent(seconds.count() / total)});
    }
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

std::string assumptions_text(const std::vector<Assumption>& assumptions, const Style& style) {
  if (assumptions.empty()) {
    return "";
  }
  std::string text = "\n" + style.bold("Assumed") + "\n";
  std::size_t widest = 0;
  for (const Assumption& a : assumptions) {
    widest = std::max(widest, width_of(a.what));
  }
  for (const Assumption& a : assumptions) {
    text += labelled(a.what, widest, fmt::format("{} ({})", a.value, a.source), style.width);
  }
  return text;
}

namespace {

/// Degrees alone: the rest was not decided yet.
std::string rejected_name(const StepPlan& plan) {
  const std::string degrees = degrees_of(plan);
  const std::string attention = degrees_name(plan.attention);
  return degrees.empty() ? attention : fmt::format("{} {}", degrees, attention);
}

/// A rule's detail without the address of who says so, which --explain and the document have.
std::string_view without_source(std::string_view detail) {
  return detail.substr(0, detail.find(" (https://"));
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
  std::size_t widest = 0;
  for (const auto& [rule, list] : by_rule) {
    widest = std::max(widest, rule.size());
  }
  for (const auto& [rule, list] : by_rule) {
    const Rejected& first = *list.front();
    text += labelled(
        rule, widest,
        fmt::format("{}{}: {}", list.size() > 1 ? fmt::format("{}, the first ", list.size()) : "",
                    rejected_name(first.plan), without_source(first.detail)),
        style.width);
  }
  return text;
}

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
  const SentBytes::ByKind sent = p.sent.by_kind();
  std::string parts;
  for (std::size_t k = 0; k < comm_kinds; ++k) {
    if (sent[k] > Bytes{}) {
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ",
                           to_string(static_cast<CommKind>(k)), human(sent[k]));
    }
  }
  return parts.empty() ? "No communication." : fmt::format("Sent by a rank: {}.", parts);
}

/// `steps`: of an image or a video, if this is one denoising step.
std::string speed_text(const Prediction& p, int steps) {
  const std::string rate = p.tflops_per_gpu < 1
                               ? fmt::format("{:.3g} GFLOP/s", p.tflops_per_gpu * 1e3)
                               : fmt::format("{:.0f} TFLOP/s", p.tflops_per_gpu);
  const std::string whole =
      steps > 1 ? fmt::format(" All {} denoising steps take {}.", steps, human(p.step * steps))
                : "";
  return fmt::format("{} a GPU, MFU {}, {} tokens/s.{}", rate, percent(p.mfu),
                     human_count(static_cast<std::int64_t>(p.tokens_per_s)), whole);
}

/// ", ZeRO 1, full recomputation" of a train step; of a prefill ZeRO alone, if there is any.
std::string around_text(const Candidate& c, const Request& request) {
  const StepPlan& plan = c.plan;
  if (request.phase != StepPhase::train) {
    return (plan.micro_batches > 1 && !plan.guided
                ? fmt::format(", {} of {} prompts at a time", plan.micro_batch,
                              plan.micro_batch * plan.micro_batches)
                : "") +
           (plan.zero > 0 ? fmt::format(", ZeRO {}", plan.zero) : "");
  }
  std::string text;
  if (plan.micro_batches > 1 || plan.micro_batch > 1) {
    text +=
        fmt::format(", {} of {}",
                    plan.micro_batches == 1 ? "one micro-batch"
                                            : fmt::format("{} micro-batches", plan.micro_batches),
                    plan.micro_batch);
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
  for (std::size_t i = 0; i < step_parts; ++i) {
    if (const double seconds = p.parts_s[static_cast<StepPart>(i)]; seconds > 0) {
      table.rows.push_back({fmt::format("  {}", words_of(static_cast<StepPart>(i))),
                            human(Seconds(seconds)),
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
  const CandidateTable table =
      candidate_table(rows, job.request, {.title = "#", .width = style.width, .style = style});
  if (!table.common.empty()) {
    text += wrapped(fmt::format("All have {}.", table.common), 0, style.width) + "\n";
  }
  for (std::size_t i = 0; i < table.lines.size() && !rows.empty(); ++i) {
    text += (i == 0 ? style.bold(table.lines[i]) : table.lines[i]) + "\n";
  }
  if (!rows.empty()) {
    text += style.dim(
        wrapped(fmt::format("{}.{}", table.words,
                            table.letters.empty() ? "" : fmt::format(" Parts: {}.", table.letters)),
                0, style.width));
  }

  if (!result.candidates.empty() && result.any_fits) {
    const Candidate& best = result.candidates[0];
    const Prediction& p = best.predicted;
    text += "\n" + wrapped(fmt::format("Recommended: {}{}: {}.", short_name(best.plan),
                                       around_text(best, job.request), best.why),
                           0, style.width);
    if (best.simulated) {
      text += wrapped(fmt::format("Bound by {}.", best.bound_by), 0, style.width);
      text += wrapped(speed_text(p, job.denoising_steps), 0, style.width);
      text += wrapped(communication_text(p), 0, style.width);
    }
    text += wrapped(memory_text(p, job.request.memory), 0, style.width);
    if (best.padding_tokens > 0 || best.padding_heads > 0) {
      text += fmt::format("Padding: {} tokens, {} heads.\n", human_count(best.padding_tokens),
                          best.padding_heads);
    }
  }
  text += fmt::format("{} legal {}{} simulated, in {}.\n", human_count(result.searched),
                      job.request.whole_step() ? "combinations of degrees, plans of " : "plans, ",
                      human_count(result.simulated), human(elapsed));
  if (result.unsettled > 0) {
    text += wrapped(fmt::format("{} plans that may be as good were not simulated: {}.",
                                human_count(result.unsettled), search_ended),
                    0, style.width);
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
      0, style.width);
  text += parts_text(p);
  text += wrapped(fmt::format("Bound by {}.", c.bound_by), 0, style.width);
  text += wrapped(speed_text(p, job.denoising_steps), 0, style.width);
  text += wrapped(communication_text(p), 0, style.width);
  text += wrapped(memory_text(p, job.request.memory), 0, style.width);
  if (evaluation.forward) {
    text += call_text(*evaluation.forward, "One attention call", Phase::forward, style);
  }
  if (evaluation.backward) {
    text += call_text(*evaluation.backward, "One attention call", Phase::backward, style);
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
                         0, style.width);
    }
  }
  return job != nullptr ? text + assumptions_text(job->assumptions, style) : text;
}

}  // namespace spp::cli
