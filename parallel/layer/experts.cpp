// Tokens on their way to experts, there, and back.
#include "parallel/layer/pass.hpp"

namespace spp {

/// Room for as many slots as the rank brings, and as it gets: rows of their own.
BufferId LayerPass::slots(TensorRef ref, const std::string& called) {
  return b_.scratch(called, ref, slot_rows(), 1);
}

/// Room for what all members of the group of experts have such of.
BufferId LayerPass::of_members(BufferId own, const std::string& called) {
  const Buffer& like = b_.buffer(own);
  return b_.scratch(called, like.ref(), members_.count(), like.heads, like.dtype);
}
HeadRange LayerPass::columns_of(BufferId id) const {
  return {.begin = 0, .end = b_.buffer(id).heads};
}

/// Each of the rank's tokens once for each of its experts, in their order, then to their ranks; or
/// each token to all ranks of a group, there once for each of the rank's experts.
BufferId LayerPass::to_experts(TensorRef ref, BufferId from, const std::string& called) {
  const bool travels = at_.expert_group.size > 1;
  if (travels && gathers_tokens()) {
    const BufferId all = of_members(from, called + "_gathered");
    b_.op(streams_.experts, Collective{.kind = CollectiveKind::all_gather,
                                       .group = at_.expert_group,
                                       .from = from,
                                       .to = all,
                                       .deal = TokenDeal{},
                                       .to_tokens = members_,
                                       .to_heads = columns_of(from)});
    const BufferId there = slots(ref, called + "_slots");
    b_.op(streams_.compute, Copy{.kind = CopyKind::dispatch,
                                 .from = all,
                                 .to = there,
                                 .tokens = members_,
                                 .of_group = true,
                                 .expert_group = at_.expert});
    return there;
  }
  const BufferId own = slots(ref, called + (travels ? "_sent" : "_slots"));
  b_.op(streams_.compute,
        Copy{.kind = CopyKind::dispatch, .from = from, .to = own, .tokens = own_});
  if (!travels) {
    return own;
  }
  const BufferId there = slots(ref, called + "_slots");
  b_.op(streams_.experts,
        Collective{.kind = CollectiveKind::all_to_all,
                   .group = at_.expert_group,
                   .from = own,
                   .to = there,
                   .deal = ExpertDeal{.back = false, .cells = slot_rows() / at_.expert_group.size},
                   .to_tokens = routed_,
                   .to_heads = slots_});
  return there;
}

/// The reverse: a token's slots are summed up in `to`, or, if it is of the same tensor, put there.
void LayerPass::from_experts(TensorRef ref, BufferId there, BufferId to) {
  BufferId own = there;
  if (at_.expert_group.size > 1 && gathers_tokens()) {
    const BufferId sums = of_members(to, b_.buffer(to).name + "_of_slots");
    b_.op(streams_.compute, Fill{.buffer = sums, .tokens = members_, .heads = columns_of(to)});
    b_.op(streams_.compute, Copy{.kind = CopyKind::combine,
                                 .from = there,
                                 .to = sums,
                                 .tokens = members_,
                                 .of_group = true,
                                 .expert_group = at_.expert});
    b_.op(streams_.experts, Collective{.kind = CollectiveKind::reduce_scatter,
                                       .group = at_.expert_group,
                                       .from = sums,
                                       .to = to,
                                       .deal = TokenDeal{},
                                       .to_tokens = own_,
                                       .to_heads = columns_of(to)});
    return;
  }
  if (at_.expert_group.size > 1) {
    own = slots(ref, (ref.tensor == Tensor::d_value ? gradient_name(ref) : name(ref)) + "_back");
    b_.op(streams_.experts,
          Collective{.kind = CollectiveKind::all_to_all,
                     .group = at_.expert_group,
                     .from = there,
                     .to = own,
                     .deal = ExpertDeal{.back = true, .cells = slot_rows() / at_.expert_group.size},
                     .to_tokens = own_,
                     .to_heads = {.begin = 0, .end = graph_.routing.chosen}});
  }
  b_.op(streams_.compute, Copy{.kind = CopyKind::combine, .from = own, .to = to, .tokens = own_});
}

Gemm LayerPass::product_of_slots(int number, BufferId a, BufferId b) const {
  return {.definition = number,
          .a = a,
          .b = b,
          .tokens = routed_,
          .experts = graph_.routing.of_group()};
}

void LayerPass::route(int number, const Definition& d) {
  const TensorRef weights = d.writes[0];
  row_kernel(number, d, {result(weights)});
  weights_there_[weights] = to_experts(weights, held_.at(weights), name(weights));
}

/// Softmax's gradient needs its results alone.
void LayerPass::route_back(int number, const Definition& d) {
  const TensorRef weights = d.writes[0];
  const TensorRef ref = gradient_ref(weights);
  const BufferId d_weights =
      b_.scratch(gradient_name(weights), ref, own_.count(), graph_.routing.chosen);
  from_experts(ref, weights_there_.at(ref), d_weights);
  b_.op(streams_.compute, RowKernel{.definition = number,
                                    .backward = true,
                                    .reads = {value(weights), d_weights},
                                    .writes = {new_gradient(d.reads[0])},
                                    .tokens = own_});
}

void LayerPass::multiply_slots(int number, const Definition& d) {
  const BufferId x = value(d.reads[0]);
  Gemm op = product_of_slots(number, x, weights_.parameter(d.param));
  op.kind = GemmKind::forward;
  if (d.bias >= 0) {
    op.bias = {weights_.parameter(d.bias)};
  }
  if (weighs_bias(d)) {
    op.bias_weights = {weights_there_.at(d.reads[1])};
  }
  op.c = held_[d.writes[0]] = slots(d.writes[0], name(d.writes[0]));
  b_.op(streams_.compute, op);
}

void LayerPass::multiply_slots_back(int number, const Definition& d) {
  const TensorRef x = d.reads[0];
  const BufferId d_y = gradient(d.writes[0]);
  const BufferId d_x = held_[gradient_ref(x)] = slots(gradient_ref(x), gradient_name(x));
  Gemm of_input = product_of_slots(number, d_y, weights_.parameter(d.param));
  Gemm of_weight = product_of_slots(number, BufferId(), d_y);
  if (weighs_bias(d)) {
    of_input.bias = {weights_.parameter(d.bias)};
    of_input.bias_weights = {gradient_there(d.reads[1])};
    of_weight.bias_weights = {weights_there_.at(d.reads[1])};
  }
  give_input(of_input, d_x);
  give_weight(d, of_weight, [own = value(x)] { return own; });
}

/// Where slots are, the gradient of their weights: of a weighted bias, then of an activation.
BufferId LayerPass::gradient_there(TensorRef weights) {
  const auto [at, is_new] = weights_there_.try_emplace(gradient_ref(weights));
  if (is_new) {
    at->second = slots(gradient_ref(weights), gradient_name(weights) + "_slots");
  }
  return at->second;
}

void LayerPass::activate_slots(int number, const Definition& d) {
  const BufferId a = held_[d.writes[0]] = slots(d.writes[0], name(d.writes[0]));
  b_.op(streams_.compute, RowKernel{.definition = number,
                                    .reads = {value(d.reads[0]), weights_there_.at(d.reads[1])},
                                    .writes = {a},
                                    .tokens = routed_,
                                    .slots = true});
}

void LayerPass::activate_slots_back(int number, const Definition& d) {
  const TensorRef gate_up = gradient_ref(d.reads[0]);
  const bool adds = weights_there_.contains(gradient_ref(d.reads[1]));
  const BufferId d_gate_up = held_[gate_up] = slots(gate_up, gradient_name(d.reads[0]));
  const BufferId d_weights = gradient_there(d.reads[1]);
  RowKernel op{.definition = number,
               .backward = true,
               .reads = {value(d.reads[0]), weights_there_.at(d.reads[1]), gradient(d.writes[0])},
               .writes = {d_gate_up, d_weights},
               .tokens = routed_,
               .slots = true};
  if (adds) {
    op.reads.push_back(d_weights);
  }
  b_.op(streams_.compute, op);
}

}  // namespace spp
