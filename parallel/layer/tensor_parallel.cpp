// Tensor parallelism with sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198, figure
// 5): rows are gathered in front of matrices that are cut by columns, and sums over those cut by
// rows scattered; a table of words and the loss behind it are cut by words. The members of
// LayerPass that do this: with one tensor rank nothing is gathered and nothing summed up.
#include "parallel/layer/pass.hpp"

#include <algorithm>

namespace spp {
namespace {

constexpr HeadRange whole_row{.begin = 0, .end = 1};

}  // namespace

/// All of the sequence rank's tokens of what each tensor rank has a part of; once.
BufferId LayerPass::gathered(TensorRef ref, BufferId own) {
  if (at_.tensor == 1) {
    return own;
  }
  if (const BufferId before = gathered_before(ref); before.valid()) {
    return before;
  }
  const auto [at, is_new] = gathered_[static_cast<std::size_t>(way_)].try_emplace(ref);
  if (is_new) {
    const std::string called = ref.tensor == Tensor::d_value ? gradient_name(ref) : name(ref);
    const bool again = is_step() && !ever_gathered_.insert(ref).second;
    at->second =
        b_.scratch(called + (again ? "_gathered_again" : "_gathered"), ref, home_.count(), 1);
    b_.op(streams_.tensor, Collective{.kind = CollectiveKind::all_gather,
                                      .group = at_.tensor_group,
                                      .from = own,
                                      .to = at->second,
                                      .deal = TokenDeal{},
                                      .to_tokens = home_,
                                      .to_heads = whole_row});
  }
  return at->second;
}

/// By an earlier way, whose rows stay; invalid: not so.
BufferId LayerPass::gathered_before(TensorRef ref) const {
  if (!parts_.plan.gathered_kept || !is_step() || way_ == Way::there) {
    return {};
  }
  const Way latest = computed_again_.contains(ref) ? Way::again : Way::there;
  const std::map<TensorRef, BufferId>& there = gathered_[static_cast<std::size_t>(latest)];
  const auto at = there.find(ref);
  return at == there.end() ? BufferId() : at->second;
}

/// Sums over the tensor ranks, to each its tokens.
void LayerPass::scatter(BufferId partial, BufferId own) {
  b_.op(streams_.tensor, Collective{.kind = CollectiveKind::reduce_scatter,
                                    .group = at_.tensor_group,
                                    .from = partial,
                                    .to = own,
                                    .deal = TokenDeal{},
                                    .to_tokens = own_,
                                    .to_heads = whole_row});
}

// ---- forward

void LayerPass::multiply(int number, const Definition& d) {
  const TensorRef x = d.reads[0];
  const TensorRef y = d.writes[0];
  const bool sums = graph_.sum_parts(d) > 1;
  const bool whole = is_whole(parts_.layer, d);
  const BufferId in = whole || is_wide_operand(x) ? value(x) : gathered(x, value(x));
  const BufferId weight = weights_.parameter(d.param);
  const BufferId to = result(y);
  const BufferId product = sums ? b_.scratch(name(y) + "_partial", y, home_.count(), 1) : to;
  Gemm op{.kind = GemmKind::forward,
          .definition = number,
          .a = in,
          .b = weight,
          .c = product,
          .tokens = whole ? own_ : home_};
  if (d.bias >= 0 && (!sums || at_.index == 0)) {  // once into a sum
    op.bias = {weights_.parameter(d.bias)};
  }
  b_.op(streams_.compute, op);
  if (sums) {
    scatter(product, to);
  }
}

/// Each rank of a table's, or of the logits', parts its sum; then the sum of these for each one's
/// tokens.
void LayerPass::sum_parts(RowKernel op, TensorRef y) {
  const BufferId to = result(y);
  const bool sums = at_.tensor > 1;
  const BufferId partial = sums ? b_.scratch(name(y) + "_partial", y, home_.count(), 1) : to;
  op.writes = {partial};
  op.tokens = home_;
  op.part = at_.index;
  b_.op(streams_.compute, op);
  if (sums) {
    scatter(partial, to);
  }
}

// ---- backward

void LayerPass::multiply_back(int number, const Definition& d) {
  const TensorRef x = d.reads[0];
  const TensorRef y = d.writes[0];
  const bool whole = is_whole(parts_.layer, d);
  const bool row_parallel = is_wide_operand(x);
  const BufferId d_y = row_parallel ? gathered(gradient_ref(y), gradient(y)) : gradient(y);
  const auto input = [this, x, own = value(x), gathers = !whole && !row_parallel] {
    return gathers ? gathered(x, own) : own;
  };
  if (!puts_off_) {  // beside the product for the input's gradient
    input();
  }
  const BufferId weight = weights_.parameter(d.param);
  if (whole) {
    const bool is_new = !held_.contains(gradient_ref(x));
    give_input({.definition = number, .a = d_y, .b = weight, .tokens = own_, .initial = is_new},
               is_new ? new_gradient(x) : gradient(x));
  } else if (row_parallel) {
    give_input({.definition = number, .a = d_y, .b = weight, .tokens = home_},
               x.tensor == Tensor::out ? inner_heads({Tensor::d_out, x.label}, "d_attended")
                                       : new_gradient(x));
  } else {
    give_partial(number, x, d_y, weight);
  }
  give_weight(d, {.definition = number, .b = d_y, .tokens = whole ? own_ : home_}, input);
}

/// Now, or with what is put off. Gemm: but for its kind, its input and its result.
void LayerPass::give_weight(const Definition& d, Gemm op, const std::function<BufferId()>& input) {
  op.kind = GemmKind::weight_gradient;
  const auto give = [this, op, input, param = d.param, bias = d.bias] {
    Gemm product = op;
    product.a = input();
    const RankWeights::Room room = weights_.open(param, true);
    product.c = room.buffer;
    product.initial = room.initial;
    RankWeights::Room of_bias;
    if (bias >= 0) {
      of_bias = weights_.open(bias, false);
      product.bias = {of_bias.buffer};
    }
    b_.op(streams_.compute, product);
    weights_.close(param, room);
    if (bias >= 0) {
      weights_.close(bias, of_bias);
    }
  };
  if (puts_off_) {
    weights_later_.emplace_back(give);
  } else {
    give();
  }
}

void LayerPass::give_input(Gemm op, BufferId d_x) {
  op.kind = GemmKind::input_gradient;
  op.c = d_x;
  b_.op(streams_.compute, op);
}

/// A part of the gradient of what column-parallel matrices read: summed over them, then over the
/// tensor ranks.
void LayerPass::give_partial(int number, TensorRef x, BufferId d_y, BufferId weight) {
  // Experts may have given theirs: they read the same rows.
  const auto known = held_.find(gradient_ref(x));
  const BufferId given = known == held_.end() ? BufferId() : known->second;
  const auto [at, is_new] = partial_.try_emplace(x);
  if (is_new) {
    at->second = at_.tensor > 1
                     ? b_.scratch(gradient_name(x) + "_partial", gradient_ref(x), home_.count(), 1)
                 : given.valid() ? given
                                 : new_gradient(x);
  }
  const bool initial = is_new && (at_.tensor > 1 || !given.valid());
  give_input({.definition = number, .a = d_y, .b = weight, .tokens = home_, .initial = initial},
             at->second);
  const auto uses = index_.uses_of(x);
  const auto first = std::ranges::find_if(uses, [&](const Use& use) {
    const Definition& d = graph_.definition(use.definition);
    return d.function == LayerFunction::linear && !is_whole(parts_.layer, d);
  });
  if (first->definition != number || at_.tensor == 1) {
    return;
  }
  if (!given.valid()) {
    scatter(at->second, new_gradient(x));
    return;
  }
  const BufferId part = b_.scratch(gradient_name(x) + "_part", gradient_ref(x), own_.count(), 1);
  scatter(at->second, part);
  b_.op(streams_.compute, Accumulate{.sum = given, .part = part, .tokens = own_});
}

void LayerPass::look_up_back(int number, const Definition& d) {
  const TensorRef x = d.writes[0];
  const RankWeights::Room table = weights_.open(d.param, false);
  b_.op(streams_.compute, RowKernel{.definition = number,
                                    .backward = true,
                                    .reads = {value(d.reads[0]), weights_.parameter(d.param),
                                              gathered(gradient_ref(x), gradient(x))},
                                    .writes = {table.buffer},
                                    .tokens = home_,
                                    .part = at_.index});
  weights_.close(d.param, table);
}

void LayerPass::sum_words_back(int number, const Definition& d) {
  const TensorRef sums = d.writes[0];
  const TensorRef log_sum = graph_.definition(index_.uses_of(sums).front().definition).writes[1];
  b_.op(streams_.compute, RowKernel{.definition = number,
                                    .backward = true,
                                    .reads = {value(d.reads[0]), value(d.reads[1]),
                                              gathered(log_sum, value(log_sum))},
                                    .writes = {new_gradient(d.reads[0])},
                                    .tokens = home_,
                                    .part = at_.index});
}

}  // namespace spp
