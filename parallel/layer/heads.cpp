// A pass's attention: heads are made of rows, attended to, and their gradients joined into rows.
#include "parallel/layer/pass.hpp"

namespace spp {

/// Room for heads that the forward writes.
BufferId LayerPass::result_heads(TensorRef ref, const std::string& called) {
  return is_step() ? inner_heads(ref, called)
                   : held_[ref] = b_.output(called, ref, home_, heads(ref.tensor));
}

BufferId LayerPass::inner_heads(TensorRef ref, const std::string& called) {
  return held_[ref] =
             b_.scratch(of_layer(ref) + called, ref, home_.count(), heads(ref.tensor).count());
}

/// The same of keys or values, behind the cached ones: within attention, where Ulysses ranks hold
/// these by heads.
BufferId LayerPass::result_keys(TensorRef ref, const std::string& called) {
  if (attention_.cached.empty()) {
    return result_heads(ref, called);
  }
  if (parts_.plan.attention.ulysses > 1) {
    return inner_heads(ref, called);
  }
  return held_[ref] = b_.input_with_room(called + "_cache", ref, attention_.cached,
                                         heads(ref.tensor), home_.count());
}

void LayerPass::attend(int label) {
  const TensorRef out{Tensor::out, label};
  result_heads(out, "attended");
  sit_at(label);
  place_.known = [&](const Buffer& buffer) {
    if (buffer.tensor == Tensor::param) {
      return weights_.parameter(index_.sink_of(label));
    }
    const bool is_cache = buffer.tokens > buffer.tile.count();
    const bool is_ours = buffer.role == BufferRole::input || buffer.tensor == Tensor::out;
    return is_ours && !is_cache ? held_.at({buffer.tensor, label}) : BufferId();
  };
  kept_of_attention_[label] =
      transplant(b_, programs(label).forward, place_, of_layer(out) + "attention_");
}

/// What attention's backward reads: its own in a step what the forward left.
BufferId LayerPass::known_backward(const Buffer& buffer, int label) {
  const TensorRef ref{buffer.tensor, label};
  if (buffer.tensor == Tensor::param) {
    return weights_.parameter(index_.sink_of(label));
  }
  if (buffer.role == BufferRole::output || buffer.tensor == Tensor::d_out) {
    return held_.at(ref);
  }
  if (is_step()) {
    const auto index = static_cast<std::size_t>(&buffer - programs(label).backward.buffers.data());
    const int kept = attention_parts(label).kept[at_.of_attention.index()][index];
    return kept_of_attention_.at(label)[static_cast<std::size_t>(kept)];
  }
  const bool is_whole = buffer.tensor == Tensor::out &&
                        buffer.tile.shifted(place_.tokens) == home_ &&
                        buffer.heads == q_heads_.count();
  return is_whole ? value(ref) : BufferId();
}

/// Room for the gradient of the tensor rank's sinks, of which attention gives the rank's own
/// heads'.
RankWeights::Room LayerPass::open_sinks(int label) {
  const RankWeights::Room room = weights_.open(label, false);
  if (parts_.plan.attention.ulysses > 1) {
    b_.op(streams_.compute, Fill{.buffer = room.buffer,
                                 .tokens = rows_of_heads(q_heads_),
                                 .heads = {.begin = 0, .end = 1}});
  }
  return room;
}

/// Through attention, and back into the row, or the rows, that q, k and v were split from.
void LayerPass::join(int number, const Definition& d) {
  const int label = d.writes[0].label;
  RowKernel op{.definition = number, .backward = true, .reads = {}, .writes = {}, .tokens = home_};
  for (const Tensor tensor : {Tensor::d_q, Tensor::d_k, Tensor::d_v}) {
    op.reads.push_back(inner_heads({tensor, label}, std::string(to_string(tensor))));
  }
  const bool has_sink = d.sink >= 0;
  const RankWeights::Room sinks = has_sink ? open_sinks(d.sink) : RankWeights::Room();
  sit_at(label);
  place_.known = [&](const Buffer& buffer) {
    return buffer.tensor == Tensor::d_param ? sinks.buffer : known_backward(buffer, label);
  };
  transplant(b_, programs(label).backward, place_,
             of_layer({Tensor::q, label}) + (is_step() ? "attention_back_" : "attention_"));
  if (has_sink) {
    weights_.close(d.sink, sinks);
  }
  if (d.joins_latents()) {
    return join_latents(op, d);
  }
  op.writes.push_back(new_gradient(d.reads[0]));
  if (d.param < 0) {
    b_.op(streams_.compute, op);
    return;
  }
  const RankWeights::Room gains = weights_.open(d.param, false);
  op.reads.push_back(value(d.reads[0]));
  op.reads.push_back(weights_.parameter(d.param));
  op.writes.push_back(gains.buffer);
  b_.op(streams_.compute, op);
  weights_.close(d.param, gains);
}

/// Each tensor rank has the sum over its own heads of what all heads of k have in common.
void LayerPass::join_latents(RowKernel op, const Definition& d) {
  const TensorRef position = d.reads[2];
  op.writes = {new_gradient(d.reads[0]), new_gradient(d.reads[1])};
  const BufferId sum = new_gradient(position);
  const BufferId partial = at_.tensor == 1 ? sum
                                           : b_.scratch(gradient_name(position) + "_partial",
                                                        gradient_ref(position), home_.count(), 1);
  op.writes.push_back(partial);
  b_.op(streams_.compute, op);
  if (at_.tensor > 1) {
    scatter(partial, sum);
  }
}

}  // namespace spp
