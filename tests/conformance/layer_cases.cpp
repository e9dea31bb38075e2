// One list of cases, hence one file.
#include "tests/conformance/layer_cases.hpp"

#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/double_ring_core.hpp"

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
  model.qk_norm = head_norms;
  model.attention_sinks = attention.problem.sinks;
  model.attention_bias = !gated || biased;
  model.output_bias = !gated || biased;
  model.mlp_bias = !gated;
  const Mask& mask = attention.problem.mask;
  model.mask = {.kind = mask.kind, .window = mask.window};
  if (latent) {
    const int turned = model.head_dim >= 16 ? 4 : 2;
    model.latent = {.q_rank = gated ? 2 * ranks : 0,
                    .kv_rank = 3 * ranks,
                    .nope_dim = model.head_dim - turned,
                    .rope_dim = turned,
                    .value_dim = attention.problem.v_dim()};
  }
  return model;
}

void make_latent(LayerCase& layer) {
  Problem& problem = layer.attention.problem;
  problem.kv_heads = problem.q_heads;
  problem.value_dim = problem.head_dim == 24 ? 16 : problem.head_dim / 2;
  layer.latent = true;
  layer.head_norms = false;
}

std::string LayerCase::text() const {
  return fmt::format("{} | tensor {} {}{}{}", attention.text(), tensor, gated ? "gated" : "plain",
                     latent       ? ", of latents"
                     : head_norms ? ", heads normed"
                                  : "",
                     attention.problem.sinks ? ", sinks" : "");
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
    c.problem.value_dim = 0;  // of layers as wide as keys
    // Heads of one tensor rank were dealt out; all of them are as many more.
    c.problem.q_heads *= tensor;
    c.problem.kv_heads *= tensor;
    // What was divided stays divided, what was replicated stays so.
    LayerCase layer{.attention = c, .tensor = tensor, .gated = result.size() % 3 != 0};
    if (!c.strategy().backward || !why_not_layer(layer.graph(), c.problem, layer.plan()).empty()) {
      continue;
    }
    // Not where their gains do not divide over all ranks.
    layer.head_norms = result.size() % 2 == 0;
    layer.head_norms =
        layer.head_norms && why_not_layer(layer.graph(), c.problem, layer.plan()).empty();
    if (result.size() % 4 == 3 && c.problem.head_dim > 2) {
      LayerCase of_latents = layer;
      make_latent(of_latents);
      const bool legal =
          why_not_layer(of_latents.graph(), of_latents.attention.problem, layer.plan()).empty();
      layer = legal ? of_latents : layer;
    }
    // Not where a sink a head does not divide over the ranks that have other tokens.
    Problem& problem = layer.attention.problem;
    problem.sinks = result.size() % 3 != 2;
    problem.sinks = problem.sinks && why_not_layer(layer.graph(), problem, layer.plan()).empty();
    result.push_back(layer);
  }
  return result;
}

std::vector<LayerCase> layers_behind_cache() {
  std::vector<LayerCase> result;
  for (const auto& [sequence, tensor] :
       {std::pair{1, 2}, {2, 1}, {2, 2}, {3, 1}, {4, 1}, {4, 2}, {6, 1}}) {
    for (Case& c : cached_cases(sequence, 2)) {
      c.problem.value_dim = 0;
      c.problem.q_heads *= tensor;
      c.problem.kv_heads *= tensor;
      LayerCase layer{.attention = c, .tensor = tensor, .gated = result.size() % 3 != 0};
      layer.head_norms = result.size() % 2 == 0;
      if (result.size() % 4 == 3 && c.plan.heads == HeadPolicy::divide) {
        make_latent(layer);
      }
      if (why_not_layer(layer.graph(), layer.attention.problem, layer.plan()).empty()) {
        result.push_back(layer);
      }
    }
  }
  return result;
}

void StepCase::look_through(std::int64_t window) {
  Problem& problem = layer.attention.problem;
  Mask mask = problem.mask;
  mask.kind = MaskKind::window;
  mask.window = window;
  problem.other_masks = {mask};
}

void StepCase::look_at_chunks(std::int64_t tokens) {
  Problem& problem = layer.attention.problem;
  Mask mask = problem.mask;
  for (std::int64_t end = tokens; end < problem.seq; end += tokens) {
    mask.document_ends.push_back(end);
  }
  mask.document_ends.push_back(problem.seq);
  problem.other_masks = {mask};
}

Model StepCase::model() const {
  Model model = layer.model(layers());
  if (const auto& others = layer.attention.problem.other_masks; !others.empty()) {
    const Mask& other = others.front();
    const bool chunks = other.kind != MaskKind::window;
    model.narrow_mask = {.kind = other.kind,
                         .window = other.window,
                         .chunk = chunks ? other.document_ends.front() : 0};
    for (int i = 0; i < layers(); ++i) {
      model.narrow_layers.push_back(i % 2 == 1);
    }
  }
  model.experts = experts;
  model.tied_embeddings = tied;
  if (replicas > 2) {  // over which gradients have to divide, too
    model.hidden *= replicas;
    model.ffn *= replicas;
    model.vocab *= replicas;
    model.latent.q_rank *= replicas;
    model.latent.kv_rank *= replicas;
  }
  return model;
}

LayerPlan StepCase::plan() const {
  LayerPlan plan = layer.plan();
  plan.zero = zero;
  plan.replicas = replicas;
  plan.zero_group = zero_group;
  plan.pipeline = pipeline;
  plan.order = order;
  plan.messages_overlap = messages_overlap;
  plan.recompute = recompute;
  plan.replay = replay;
  plan.gathered_kept = gathered_kept;
  plan.expert = expert_groups;
  plan.to_experts = to_experts;
  // Embedding and head beside the first and the last layer.
  const int stages = pipeline.virtual_stages();
  for (int s = 0; s < stages; ++s) {
    const int of_layers = (s + 1) * layers() / stages - s * layers() / stages;
    plan.units.push_back(of_layers + (s == 0 ? 1 : 0) + (s + 1 == stages ? 1 : 0));
  }
  return plan;
}

std::string StepCase::text() const {
  return fmt::format(
      "{} | step, {} replicas, ZeRO {}{}, {} p={} v={} m={}{}{}{}{}{}{}{}", layer.text(), replicas,
      zero, zero_group > 0 ? fmt::format(" over {}", zero_group) : "", order, pipeline.stages,
      pipeline.chunks, pipeline.micro_batches, messages_overlap ? ", messages overlap" : "",
      recompute.kind != Recompute::none ? fmt::format(", computes again {}{}", to_string(recompute),
                                                      replay == Replay::needed ? " as needed" : "")
                                        : "",
      gathered_kept ? ", keeps gathered rows" : "", updates ? "" : ", no updates",
      tied ? ", tied" : "",
      layer.attention.problem.masks() > 1
          ? ", every second by " + to_string(layer.attention.problem.mask_of(1))
          : "",
      experts.count > 0 ? fmt::format(", {} of {} experts in {} groups by {}", experts.per_token,
                                      experts.count, expert_groups, to_string(to_experts))
                        : "");
}

namespace {

struct Order {
  PipelineShape shape;
  std::string name = "1f1b";
};

/// Whole layers, or modules, in turns.
Recomputation recomputed(int number) {
  if (number % 5 == 2 || number % 7 == 1) {
    return {.kind = Recompute::full};
  }
  using enum RecomputeModule;
  return number % 3 == 0 ? Recomputation{.kind = Recompute::selective}
         : number % 4 == 3
             ? Recomputation{.kind = Recompute::selective, .modules = {core_attention}}
         : number % 5 == 4
             ? Recomputation{.kind = Recompute::selective, .modules = {mlp, norms, core_attention}}
             : Recomputation{};
}

/// In turns.
Order order_of(int number) {
  switch (number % 6) {
    case 1:
      return {.shape = {.micro_batches = 3}};
    case 2:
      return {.shape = {.stages = 2, .micro_batches = 3}};
    case 3:
      return {.shape = {.stages = 2, .micro_batches = 2}, .name = "gpipe"};
    case 4:
      return {.shape = {.stages = 3, .micro_batches = 4}, .name = "zero-bubble"};
    case 5:
      return {.shape = {.stages = 2, .chunks = 2, .micro_batches = 4}, .name = "interleaved"};
    default:
      return {};
  }
}

}  // namespace

std::vector<StepCase> step_cases(int sequence, int tensor, std::size_t most) {
  std::vector<StepCase> result;
  int i = 0;
  for (const LayerCase& layer : layer_cases(sequence, tensor, most)) {
    const Order order = order_of(i);
    StepCase step{.layer = layer,
                  .zero = i % 4,
                  .replicas = 1 + (i + i / 4) % 2,
                  .updates = i % 5 != 3,
                  .pipeline = order.shape,
                  .order = order.name,
                  .messages_overlap = i % 7 > 3,
                  .recompute = recomputed(i),
                  .replay = i % 3 == 0 ? Replay::needed : Replay::whole,
                  .gathered_kept = i % 5 > 2,
                  .tied = i % 3 != 1};
    Problem& problem = step.layer.attention.problem;
    if (step.replicas * order.shape.micro_batches > 1) {  // which may not be padded
      const std::int64_t unit = unit_of(layer.attention.plan) * tensor;
      problem.seq = (problem.seq + unit - 1) / unit * unit;
    }
    if (order.shape.virtual_stages() > 2) {  // as many layers, of few columns: they amplify errors
      problem.dtype = DType::fp32;
    }
    ++i;
    const auto gains = std::int64_t{2} * problem.head_dim;
    step.layer.head_norms = layer.head_norms && gains % step.plan().stage_ranks() == 0;
    const int others = step.plan().stage_ranks() / tensor;
    problem.sinks = problem.sinks && problem.q_heads / tensor % others == 0;
    const auto legal = [&](const StepCase& c) {
      return why_not_step(c.graph(), c.layer.attention.problem, c.plan(), layer.attention.options)
          .empty();
    };
    if (!legal(step)) {
      continue;
    }
    if (i % 3 == 1 && problem.mask.kind == MaskKind::causal) {
      StepCase in_turns = step;
      const std::int64_t third = std::max<std::int64_t>(1, problem.seq / 3);
      i % 2 == 0 ? in_turns.look_through(third) : in_turns.look_at_chunks(third);
      step = legal(in_turns) ? in_turns : step;
    }
    result.push_back(step);
  }
  return result;
}

std::vector<StepCase> hybrid_cases() {
  std::vector<StepCase> result;
  const auto add = [&](SequencePlan attention, int tensor, int replicas, int group,
                       int zero) -> StepCase& {
    StepCase step{
        .layer = small_layer(DType::fp32), .zero = zero, .replicas = replicas, .zero_group = group};
    step.layer.tensor = tensor;
    Problem& problem = step.layer.attention.problem;
    problem.q_heads = problem.kv_heads = 12;  // gradients divide over the ranks
    problem.head_dim = 4;
    problem.seq = 24;
    step.layer.attention.plan = std::move(attention);
    return result.emplace_back(std::move(step));
  };
  const SequencePlan zigzag{.strategy = "zigzag-ring", .ring = 2, .layout = Layout::zigzag};
  const SequencePlan ulysses{.strategy = "ulysses", .ulysses = 2};
  const SequencePlan usp{.strategy = "usp", .ulysses = 2, .ring = 2, .layout = Layout::contiguous};
  add(zigzag, 1, 4, 4, 3).pipeline.micro_batches = 2;
  add(ulysses, 2, 2, 2, 2).pipeline.micro_batches = 3;
  add(usp, 1, 1, 2, 1);
  add(usp, 1, 2, 2, 3).recompute.kind = Recompute::full;
  add({.strategy = "ring", .ring = 3}, 1, 2, 2, 3);
  add({.strategy = "ulysses"}, 1, 4, 2, 1).tied = true;
  add({.strategy = "ulysses"}, 2, 4, 1, 2);  // copies alone
  StepCase& staged = add(zigzag, 1, 2, 2, 3);
  staged.pipeline = {.stages = 2, .micro_batches = 2};
  staged.tied = true;
  StepCase& expert = add(zigzag, 1, 2, 2, 3);
  expert.experts = {.count = 4, .per_token = 2, .ffn = 6, .shared_ffn = 4, .dense_layers = 1};
  expert.expert_groups = 2;
  StepCase& across = add({.strategy = "ulysses", .ulysses = 3}, 2, 2, 2, 1);
  across.experts = {.count = 4, .per_token = 2, .ffn = 6};
  across.expert_groups = 2;
  return result;
}

std::vector<StepCase> expert_cases() {
  std::vector<StepCase> result;
  const auto add = [&](SequencePlan attention, int tensor, int groups,
                       Experts experts) -> StepCase& {
    StepCase step{.layer = small_layer(DType::fp32), .experts = experts, .expert_groups = groups};
    step.layer.tensor = tensor;
    const int heads = attention.ring == 3 ? 3 : 2;  // gradients divide over the ranks
    step.layer.attention.problem.q_heads = 2 * heads * tensor;
    step.layer.attention.problem.kv_heads = heads * tensor;
    step.layer.attention.problem.seq = 48;
    step.layer.attention.plan = std::move(attention);
    return result.emplace_back(std::move(step));
  };
  const SequencePlan zigzag{.strategy = "zigzag-ring", .ring = 2, .layout = Layout::zigzag};
  const SequencePlan ulysses{.strategy = "ulysses", .ulysses = 2};
  add(zigzag, 2, 4, {.count = 8, .per_token = 2, .ffn = 6}).zero = 1;
  add(zigzag, 1, 2, {.count = 4, .per_token = 2, .ffn = 6, .shared_ffn = 4, .dense_layers = 1});
  add(zigzag, 2, 1, {.count = 4, .per_token = 2, .ffn = 6, .shared_ffn = 4}).recompute.kind =
      Recompute::full;
  add(ulysses, 2, 8, {.count = 8, .per_token = 2, .ffn = 6}).zero = 3;
  add(ulysses, 1, 4, {.count = 8, .per_token = 1, .ffn = 6}).zero = 2;
  add(ulysses, 1, 2, {.count = 8, .per_token = 4, .ffn = 6}).updates = false;
  add({.strategy = "ring", .ring = 3}, 1, 3, {.count = 6, .per_token = 3, .ffn = 6});
  add(zigzag, 2, 4, {.count = 8, .per_token = 2, .ffn = 6, .shared_ffn = 4}).pipeline = {
      .stages = 2, .micro_batches = 2};
  add(zigzag, 2, 4, {.count = 8, .per_token = 2, .ffn = 6, .shared_ffn = 4, .dense_layers = 1});
  make_latent(result.back().layer);
  for (const std::size_t of_two : {0, 3, 4}) {
    result[of_two].replicas = 2;
  }
  for (const std::size_t with_biases : {0, 2, 3, 4, 5, 6, 7}) {
    result[with_biases].experts.bias = true;
  }
  result[4].pipeline.micro_batches = 3;
  using enum RecomputeModule;
  result[0].recompute = {.kind = Recompute::selective, .modules = {moe, norms}};
  result[1].recompute = {.kind = Recompute::selective, .modules = {activation, shared_experts}};
  result[7].recompute = {.kind = Recompute::selective, .modules = {moe, core_attention}};
  result[7].order = "zero-bubble";
  result[0].layer.attention.problem.batch = 2;
  // Chunks of a rank that lie apart, cut between groups of experts: of eight tokens, and of two.
  const SequencePlan cast{.strategy = "group-cast", .ring = 2, .layout = Layout::balanced};
  add(cast, 2, 4, {.count = 8, .per_token = 2, .ffn = 6}).layer.attention.problem.seq = 128;
  add(cast, 1, 4, {.count = 4, .per_token = 2, .ffn = 6}).layer.attention.problem.seq = 32;
  result.back().replicas = 2;
  for (const std::size_t gathered : {0, 1, 3, 4, 5, 6, 7, 8, 10}) {
    StepCase step = result[gathered];
    step.to_experts = Dispatcher::all_gather;
    result.push_back(std::move(step));
  }
  return result;
}

std::vector<StepCase> sink_cases() {
  std::vector<StepCase> result;
  const auto add = [&](SequencePlan attention, int tensor, bool windows) -> StepCase& {
    StepCase step{.layer = small_layer(DType::fp32)};
    step.layer.tensor = tensor;
    Problem& problem = step.layer.attention.problem;
    const int kv_heads = attention.ring == 3 ? 3 : 2;  // gradients divide over the ranks
    problem.q_heads = 2 * kv_heads * tensor;
    problem.kv_heads = kv_heads * tensor;
    problem.seq = 48;
    problem.sinks = true;
    step.layer.attention.plan = std::move(attention);
    if (windows) {
      step.look_through(11);
    }
    return result.emplace_back(std::move(step));
  };
  const SequencePlan team{.strategy = "startrail",
                          .ring = 4,
                          .own = {{&parameters::team, 2}},
                          .layout = Layout::zigzag};
  add({.strategy = "zigzag-ring", .ring = 2, .layout = Layout::zigzag}, 2, true).zero = 1;
  add({.strategy = "ulysses", .ulysses = 2}, 2, true).zero = 3;
  add({.strategy = "ring", .ring = 3}, 1, true).zero = 2;
  add({.strategy = "usp", .ulysses = 2, .ring = 2, .layout = Layout::striped}, 1, false);
  add(team, 1, false).zero = 2;
  add({.strategy = "all-gather", .ring = 2, .layout = Layout::zigzag}, 1, true).pipeline = {
      .stages = 2, .micro_batches = 2};
  add({.strategy = "group-cast", .ring = 2, .layout = Layout::zigzag}, 2, true).recompute.kind =
      Recompute::full;
  add({.strategy = "dist-flash-attn", .ring = 3}, 1, false).pipeline.micro_batches = 2;
  add({.strategy = "double-ring", .ring = 4, .own = {{&parameters::window, 2}}}, 1, false)
      .recompute = {.kind = Recompute::selective, .modules = {RecomputeModule::core_attention}};
  result[1].replicas = 2;
  result[2].layer.attention.problem.batch = 2;
  result[3].layer.gated = false;
  for (const std::size_t whole : {0, 1, 5}) {
    StepCase& step = result[whole];
    step.layer.biased = true;
    step.experts = {.count = 8, .per_token = 4, .ffn = 6, .router_bias = true, .bias = true};
    step.expert_groups = step.plan().stage_ranks() / 2;
  }
  return result;
}

}  // namespace spp::test
