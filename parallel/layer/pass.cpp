#include "parallel/layer/pass.hpp"

#include "parallel/attention/attention_mesh.hpp"

#include <algorithm>

namespace spp {

AttentionPrograms::AttentionPrograms(const LayerParts& parts, const LayerRank& at) {
  for (const AttentionParts& attention : parts.attentions) {
    Both& programs = by_mask.emplace_back();
    if (attention.forward) {
      programs.forward = attention.forward->program(at.of_attention);
    }
    if (attention.backward) {
      programs.backward = attention.backward->program(at.of_attention);
    }
  }
  home = parts.attentions.front().forward
             ? home_of(by_mask.front().forward.buffers, Phase::forward)
             : home_of(by_mask.front().backward.buffers, Phase::backward);
  cached = AttentionMesh(parts.plan.attention, parts.problem)
               .cached_tokens(parts.problem, at.of_attention);
}

namespace {

void append(TokenSet& all, const TokenSet& more) {
  for (const TokenRange& range : more.ranges()) {
    all.append(range);
  }
}

}  // namespace

LayerPass::LayerPass(const LayerParts& parts, const LayerRank& at,
                     const AttentionPrograms& attention, RankWeights& weights,
                     ProgramBuilder& program, int number)
    : parts_(parts),
      graph_(parts.layer.graph),
      index_(parts.index),
      at_(at),
      attention_(attention),
      weights_(weights),
      b_(program),
      streams_(parts.streams),
      part_{.begin = at.index, .end = at.index + 1},
      q_heads_(at.mine(parts.problem.q_heads)),
      kv_heads_(at.mine(parts.problem.kv_heads)) {
  const int micro_batches = parts.plan.micro_batches();
  const std::int64_t before = (at.replica * micro_batches + number) * parts.problem.seq;
  prefix_ = prefix_of(parts.plan, number);
  home_ = attention.home.shifted(before);
  own_ = home_.part(at.index, at.tensor);
  place_ = {.first = at.rank.value - at.of_attention.value * at.tensor,
            .stride = at.tensor,
            .split = parts.split,
            .first_part = at.index * parts.plan.attention.ulysses,
            .q_heads = q_heads_.begin,
            .kv_heads = kv_heads_.begin,
            .tokens = before,
            .known = {},
            .inner = is_step()};
  if (!graph_.routing.empty()) {
    const Routing& routing = graph_.routing;
    slots_ = routing.slots_of(at.expert);
    for (int i = 0; i < at.expert_group.size; ++i) {
      const LayerRank other(parts, at.expert_group.rank(i));
      const std::int64_t first = (other.replica * micro_batches + number) * parts.problem.seq;
      const TokenSet own = parts.homes[other.of_attention.index()].part(other.index, other.tensor);
      const TokenSet brought = own.shifted(first);
      append(members_, brought);
      append(routed_, routing.routed(brought, at.expert));
    }
  }
  for (std::size_t i = 0; !is_step() && i < graph_.definitions.size(); ++i) {
    note_kept(graph_.definitions[i]);
  }
}

void LayerPass::forward(int definition) {
  const Definition& d = graph_.definition(definition);
  switch (d.function) {
    case LayerFunction::linear:
      return graph_.is_of_experts(d) ? multiply_slots(definition, d) : multiply(definition, d);
    case LayerFunction::route:
      return route(definition, d);
    case LayerFunction::dispatch:
      held_[d.writes[0]] = to_experts(d.writes[0], value(d.reads[0]), name(d.writes[0]));
      return;
    case LayerFunction::expert_swiglu:
      return activate_slots(definition, d);
    case LayerFunction::combine:
      return from_experts(d.reads[0], value(d.reads[0]), result(d.writes[0]));
    case LayerFunction::split_heads: {
      const int label = d.writes[0].label;
      row_kernel(definition, d,
                 {result_heads({Tensor::q, label}, "q"), result_keys({Tensor::k, label}, "k"),
                  result_keys({Tensor::v, label}, "v")});
      return attend(label);
    }
    case LayerFunction::embedding:
      return sum_parts({.definition = definition,
                        .reads = {value(d.reads[0]), weights_.parameter(d.param)},
                        .writes = {},
                        .tokens = {}},
                       d.writes[0]);
    case LayerFunction::word_sums:
      return sum_parts({.definition = definition,
                        .reads = {value(d.reads[0]), value(d.reads[1])},
                        .writes = {},
                        .tokens = {}},
                       d.writes[0]);
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
    case LayerFunction::swiglu:
    case LayerFunction::gelu:
    case LayerFunction::add:
    case LayerFunction::split:
    case LayerFunction::word_loss: {
      std::vector<BufferId> results;
      for (const TensorRef ref : d.writes) {
        results.push_back(result(ref));
      }
      return row_kernel(definition, d, results);
    }
    case LayerFunction::adam:
      return;  // at the end, of all micro-batches
  }
}

void LayerPass::forward_again(int definition) {
  const std::string names = prefix_;
  prefix_ += "again_";
  way_ = Way::again;
  const Definition& d = graph_.definition(definition);
  computed_again_.insert(d.writes.begin(), d.writes.end());
  const bool apart = parts_.plan.recompute.kind == Recompute::selective;
  if (apart && d.function == LayerFunction::split_heads) {  // its heads were kept
    attend(d.writes[0].label);
  } else {
    forward(definition);
  }
  prefix_ = names;
}

void LayerPass::backward(int definition, bool weights_later) {
  way_ = Way::back;
  puts_off_ = weights_later;
  const Definition& d = graph_.definition(definition);
  switch (d.function) {
    case LayerFunction::linear:
      return graph_.is_of_experts(d) ? multiply_slots_back(definition, d)
                                     : multiply_back(definition, d);
    case LayerFunction::route:
      return route_back(definition, d);
    case LayerFunction::dispatch:
      return from_experts(gradient_ref(d.writes[0]), gradient(d.writes[0]),
                          new_gradient(d.reads[0]));
    case LayerFunction::expert_swiglu:
      return activate_slots_back(definition, d);
    case LayerFunction::combine: {
      const TensorRef ref = gradient_ref(d.reads[0]);
      held_[ref] = to_experts(ref, gradient(d.writes[0]), gradient_name(d.reads[0]));
      return;
    }
    case LayerFunction::add:
      return remember(definition, d);
    case LayerFunction::split:
      return join_columns(definition, d);
    case LayerFunction::split_heads:
      return join(definition, d);
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
      return norm_back(definition, d);
    case LayerFunction::swiglu:
    case LayerFunction::gelu:
      return activation_back(definition, d);
    case LayerFunction::embedding:
      return look_up_back(definition, d);
    case LayerFunction::word_sums:
      return sum_words_back(definition, d);
    case LayerFunction::word_loss:  // its gradient is a constant
    case LayerFunction::adam:
      return;
  }
}

void LayerPass::give_weights() {
  for (const std::function<void()>& give : weights_later_) {
    give();
  }
  weights_later_.clear();
}

// ---- where things are

HeadRange LayerPass::columns(TensorRef ref) const {
  return is_wide(ref) ? part_ : HeadRange{.begin = 0, .end = graph_.value(ref.label).parts};
}

std::string LayerPass::of_layer(TensorRef ref) const {
  return prefix_ + (index_.attentions() > 1 ? fmt::format("l{}.", ref.label) : "");
}

/// Values that the backward of a layer by itself reads.
void LayerPass::note_kept(const Definition& d) {
  switch (d.function) {
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
      kept_.insert({d.reads[0], d.writes[1]});
      break;
    case LayerFunction::linear:
    case LayerFunction::swiglu:
    case LayerFunction::gelu:
      kept_.insert(d.reads.begin(), d.reads.end());
      break;
    case LayerFunction::expert_swiglu:
    case LayerFunction::route:
    case LayerFunction::dispatch:
    case LayerFunction::combine:  // of a step alone
    case LayerFunction::split:
    case LayerFunction::split_heads:
      if (d.param >= 0) {  // 1/rms of a head is computed again from it
        kept_.insert(d.reads[0]);
      }
      break;
    case LayerFunction::add:
    case LayerFunction::embedding:
    case LayerFunction::word_sums:
    case LayerFunction::word_loss:
    case LayerFunction::adam:
      break;
  }
}

/// A value of the forward on this rank: written before, or an input.
BufferId LayerPass::value(TensorRef ref) {
  const auto [at, is_new] = held_.try_emplace(ref);
  if (is_new) {
    at->second = ref.tensor == Tensor::out ? b_.input(prefix_ + "attended", ref, home_, q_heads_)
                                           : b_.input(name(ref), ref, tokens(ref), columns(ref));
  }
  return at->second;
}

/// Room for a value that the forward writes. A step keeps nothing but its ends.
BufferId LayerPass::result(TensorRef ref) {
  const bool ends = index_.uses_of(ref).empty();
  const bool stays = is_step()
                         ? ends && graph_.definition(index_.writer_of(ref)).writes.front() == ref
                         : ends || kept_.contains(ref);
  return held_[ref] = stays ? b_.output(name(ref), ref, tokens(ref), columns(ref))
                            : b_.scratch(name(ref), ref, tokens(ref).count(), columns(ref).count());
}

BufferId LayerPass::received(TensorRef ref) {
  const std::string called = ref.tensor == Tensor::d_value ? gradient_name(ref) : name(ref);
  return held_[ref] = b_.scratch(called, ref, tokens(ref).count(), columns(ref).count());
}

// ---- forward

void LayerPass::row_kernel(int number, const Definition& d, const std::vector<BufferId>& results) {
  RowKernel op{.definition = number, .reads = {}, .writes = {}, .tokens = tokens(d.reads[0])};
  for (const TensorRef ref : d.reads) {
    const bool is_part = cut(ref) == Cut::rows && op.tokens != own_;
    op.reads.push_back(is_part ? gathered(ref, value(ref)) : value(ref));
  }
  if (d.param >= 0) {
    op.reads.push_back(weights_.parameter(d.param));
  }
  for (const BufferId id : results) {
    op.writes.push_back(id);
  }
  b_.op(streams_.compute, op);
}

// ---- backward

/// The complete gradient of a value, computed before; of the layer's output: an input.
BufferId LayerPass::gradient(TensorRef x) {
  const TensorRef ref = gradient_ref(x);
  const auto [at, is_new] = held_.try_emplace(ref);
  if (is_new) {
    ensure(index_.uses_of({Tensor::value, ref.label}).empty(), "a gradient is read too early");
    at->second = b_.input(gradient_name(ref), ref, tokens(ref), columns(ref));
  }
  return at->second;
}

/// Room for a gradient that is computed here.
BufferId LayerPass::new_gradient(TensorRef x) {
  const TensorRef ref = gradient_ref(x);
  const bool leaves = index_.writer_of({Tensor::value, ref.label}) < 0;
  const auto [at, is_new] = held_.try_emplace(ref);
  ensure(is_new, "a gradient is computed twice");
  at->second = leaves
                   ? b_.output(gradient_name(ref), ref, tokens(ref), columns(ref))
                   : b_.scratch(gradient_name(ref), ref, tokens(ref).count(), columns(ref).count());
  return at->second;
}

/// A sum gives its gradient to both of its inputs: nothing to do for one that has no other; the
/// others get it when theirs is there.
void LayerPass::remember(int number, const Definition& d) {
  for (const TensorRef x : d.reads) {
    if (gradient_ref(x) != gradient_ref(d.writes[0])) {
      passed_on_[gradient_ref(x)].push_back(number);
    }
  }
}

void LayerPass::norm_back(int number, const Definition& d) {
  const TensorRef x = d.reads[0];
  const BufferId d_y = gradient(d.writes[0]);
  const BufferId d_x = new_gradient(x);
  const RankWeights::Room gain = weights_.open(d.param, false);
  b_.op(streams_.compute,
        RowKernel{.definition = number,
                  .backward = true,
                  .reads = {value(x), weights_.parameter(d.param), value(d.writes[1]), d_y},
                  .writes = {d_x, gain.buffer},
                  .tokens = own_});
  for (const int sum : passed_on_[gradient_ref(x)]) {
    b_.op(streams_.compute, RowKernel{.definition = sum,
                                      .backward = true,
                                      .reads = {gradient(graph_.definition(sum).writes[0]), d_x},
                                      .writes = {d_x},
                                      .tokens = own_});
  }
  weights_.close(d.param, gain);
}

void LayerPass::activation_back(int number, const Definition& d) {
  RowKernel op{.definition = number,
               .backward = true,
               .reads = {},
               .writes = {},
               .tokens = tokens(d.reads[0])};
  for (const TensorRef x : d.reads) {
    op.reads.push_back(value(x));
  }
  op.reads.push_back(gradient(d.writes[0]));
  for (const TensorRef x : d.reads) {
    op.writes.push_back(new_gradient(x));
  }
  b_.op(streams_.compute, op);
}

void LayerPass::join_columns(int number, const Definition& d) {
  RowKernel op{.definition = number, .backward = true, .reads = {}, .writes = {}, .tokens = own_};
  for (const TensorRef y : d.writes) {
    op.reads.push_back(gradient(y));
  }
  op.writes.push_back(new_gradient(d.reads[0]));
  b_.op(streams_.compute, op);
}

}  // namespace spp
