#include "cli/layer_job.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"

namespace spp::cli {

std::optional<LayerQuestion> asked_layer(const Arguments& arguments, const Job& job,
                                         const StepPlan& plan) {
  const std::string scope = arguments.get("scope", "attention");
  if (scope == "attention") {
    return std::nullopt;
  }
  if (scope != "layer") {
    const std::vector<std::string> known{"attention", "layer"};
    throw InputError("--scope",
                     fmt::format("unknown scope '{}'{}", scope, did_you_mean(scope, known)));
  }
  if (!job.request.model || !job.request.whole_step()) {
    throw InputError("--scope",
                     "a layer is one of a model's step: give --model, and --phase train "
                     "or prefill");
  }
  return layer_question(job.request, plan);
}

std::string layer_name(const StepPlan& plan) {
  return plan.tensor == 1 ? short_name(plan.attention)
                          : fmt::format("TP {} x {}", plan.tensor, short_name(plan.attention));
}

Json layer_document(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                    const Evaluation& evaluation, Seconds elapsed) {
  Json doc = document("layer");
  doc["request"] = job.resolved;
  doc["assumptions"] = to_json(job.assumptions);
  doc["plan"] = to_json(plan);
  doc["ranks"] = question.plan.ranks();
  const Prediction& p = evaluation.candidate.predicted;
  doc["predicted"] = {{"step_s", p.step.count()},
                      {"interval_s", {p.low.count(), p.high.count()}},
                      {"parts_s", to_json(p.parts)}};
  Json calls = Json::array();
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto& simulation = phase == Phase::forward ? evaluation.forward : evaluation.backward;
    if (simulation) {
      calls.push_back(call_json(*simulation, phase, question.schedule(phase).streams));
    }
  }
  doc["phases"] = std::move(calls);
  doc["machine"] = to_json(job.request.cluster->machine());
  doc["elapsed_s"] = elapsed.count();
  return doc;
}

std::string layer_table(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                        const Evaluation& evaluation, const Style& style) {
  const Prediction& p = evaluation.candidate.predicted;
  std::string text = style.bold(fmt::format("{}: one layer, {}", job.title, layer_name(plan))) +
                     "\n" +
                     fmt::format("{} ranks; {} ({} to {}), simulated op by op\n",
                                 question.plan.ranks(), human(p.step), human(p.low), human(p.high));
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto& simulation = phase == Phase::forward ? evaluation.forward : evaluation.backward;
    if (simulation) {
      text += call_text(*simulation, "One layer", phase, style);
    }
  }
  return text;
}

}  // namespace spp::cli
