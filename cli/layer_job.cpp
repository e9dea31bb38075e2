#include "cli/layer_job.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"

namespace spp::cli {
namespace {

const sim::Simulation& simulation_of(const Evaluation& evaluation, Phase phase) {
  return phase == Phase::backward ? *evaluation.backward : *evaluation.forward;
}

}  // namespace

std::optional<LayerQuestion> asked_layer(const Arguments& arguments, const Job& job,
                                         const StepPlan& plan) {
  const std::string scope = arguments.get("scope", "attention");
  if (scope == "attention") {
    return std::nullopt;
  }
  if (scope != "layer" && scope != "step") {
    const std::vector<std::string> known{"attention", "layer", "step"};
    throw InputError("--scope",
                     fmt::format("unknown scope '{}'{}", scope, did_you_mean(scope, known)));
  }
  if (!job.request.model || !job.request.whole_step()) {
    throw InputError(
        "--scope", fmt::format("a {} is one of a model's: give --model, and --phase train{}", scope,
                               scope == "layer" ? " or prefill" : ""));
  }
  return scope == "layer" ? layer_question(job.request, plan) : step_question(job.request, plan);
}

void expect_scheduled_attention(const Request& request) {
  if (request.model && request.model->indexer) {
    throw InputError("--model",
                     fmt::format("attention of {} meets keys that an indexer picks, which no "
                                 "schedule holds: its steps and prefills are planned and costed "
                                 "(plan, simulate), not proven or executed",
                                 request.model->name));
  }
}

std::string layer_name(const StepPlan& plan, const LayerQuestion& question) {
  std::string name;
  if (question.plan.pipeline.stages > 1) {
    name += fmt::format("PP {} x ", question.plan.pipeline.stages);
  }
  if (question.plan.replicas > 1) {
    name += fmt::format("DP {} x ", question.plan.replicas);
  }
  if (plan.tensor > 1) {
    name += fmt::format("TP {} x ", plan.tensor);
  }
  return name + short_name(plan.attention);
}

Json layer_document(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                    const Evaluation& evaluation, Seconds elapsed) {
  Json doc = document("layer");
  doc["request"] = job.resolved;
  doc["assumptions"] = to_json(job.assumptions);
  doc["plan"] = to_json(plan);
  doc["scope"] = question.step ? "step" : "layer";
  doc["ranks"] = question.plan.ranks();
  const Prediction& p = evaluation.candidate.predicted;
  doc["predicted"] = {{"step_s", p.step.count()},
                      {"interval_s", {p.low.count(), p.high.count()}},
                      {"parts_s", to_json(p.parts)}};
  Json calls = Json::array();
  for (const Phase phase : question.phases) {
    calls.push_back(
        call_json(simulation_of(evaluation, phase), phase, question.schedule(phase).streams));
  }
  doc["phases"] = std::move(calls);
  doc["machine"] = to_json(job.request.cluster->machine());
  doc["elapsed_s"] = elapsed.count();
  return doc;
}

std::string layer_table(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                        const Evaluation& evaluation, const Style& style) {
  const Prediction& p = evaluation.candidate.predicted;
  std::string text = style.bold(fmt::format("{}: {}, {}", job.title, question.subject(),
                                            layer_name(plan, question))) +
                     "\n" +
                     fmt::format("{} ranks; {} ({} to {}), simulated op by op\n",
                                 question.plan.ranks(), human(p.step), human(p.low), human(p.high));
  for (const Phase phase : question.phases) {
    text += call_text(simulation_of(evaluation, phase), question.step ? "The step" : "One layer",
                      phase, style);
  }
  return text;
}

}  // namespace spp::cli
