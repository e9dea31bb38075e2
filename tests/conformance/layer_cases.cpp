#include "tests/conformance/layer_cases.hpp"

namespace spp::test {

Model LayerCase::model(std::int64_t layers) const {
  const int ranks = tensor * attention.plan.ranks();
  Model model;
  model.layers = layers;
  model.vocab = 8 * ranks;
  model.hidden = 4 * ranks;  // gradients divide over all ranks that sum them up
  model.q_heads = attention.problem.q_heads;
  model.kv_heads = attention.problem.kv_heads;
  model.head_dim = attention.problem.head_dim;
  model.ffn = 6 * ranks;
  model.gated_mlp = gated;
  model.norm_bias = !gated;
  model.attention_bias = !gated;
  model.output_bias = !gated;
  model.mlp_bias = !gated;
  model.mask = attention.problem.mask;
  return model;
}

std::string LayerCase::text() const {
  return fmt::format("{} | tensor {} {}", attention.text(), tensor, gated ? "gated" : "plain");
}

LayerCase small_layer(DType dtype) {
  return {.attention = {.problem = {.seq = 15,
                                    .q_heads = 8,
                                    .kv_heads = 4,
                                    .head_dim = 16,
                                    .mask = {.kind = MaskKind::causal},
                                    .dtype = dtype},
                        .plan = {.strategy = "zigzag-ring", .ring = 2, .layout = Layout::zigzag},
                        .phase = Phase::forward,
                        .options = {}},
          .tensor = 2};
}

std::vector<LayerCase> layer_cases(int sequence, int tensor, std::size_t most) {
  std::vector<LayerCase> result;
  for (Case& c : cases(sequence, most)) {
    // Heads of one tensor rank were dealt out; all of them are as many more.
    c.problem.q_heads *= tensor;
    c.problem.kv_heads *= tensor;
    // What was divided stays divided, what was replicated stays so.
    const LayerCase layer{.attention = c, .tensor = tensor, .gated = result.size() % 3 != 0};
    if (c.strategy().backward && why_not_layer(layer.graph(), c.problem, layer.plan()).empty()) {
      result.push_back(layer);
    }
  }
  return result;
}

LayerPlan StepCase::plan() const {
  LayerPlan plan = layer.plan();
  plan.zero = zero;
  plan.replicas = replicas;
  return plan;
}

std::string StepCase::text() const {
  return fmt::format("{} | step, {} replicas, ZeRO {}{}", layer.text(), replicas, zero,
                     updates ? "" : ", no updates");
}

std::vector<StepCase> step_cases(int sequence, int tensor, std::size_t most) {
  std::vector<StepCase> result;
  int i = 0;
  for (const LayerCase& layer : layer_cases(sequence, tensor, most)) {
    const StepCase step{.layer = layer,
                        .zero = i % 3 == 2 ? 3 : i % 3,
                        .replicas = 1 + i % 2,
                        .updates = i % 5 != 3};
    ++i;
    if (why_not_step(step.graph(), layer.attention.problem, step.plan(), layer.attention.options)
            .empty()) {
      result.push_back(step);
    }
  }
  return result;
}

}  // namespace spp::test
