// Which tensors there are. Those of attention have names of their own; those of the layers around
// it are values and parameters of the schedule's graph (graph.hpp), told apart by a label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spp {

/// Of a query and every key, [batch, tokens, heads, seq]: scores = q.k, weights = softmax of them,
/// and their gradients. Of keys or queries summed up, [batch, slots, KV heads, head_dim^2]: state =
/// sum of k (x) v, d_state = sum of q (x) d_out; a buffer of states counts its slots as tokens.
/// Of a graph, [batch, tokens, parts, width of a part]: a value and its gradient; [rows, parts,
/// width of a part], without a batch: a parameter, its gradient and what an optimizer keeps of it
/// (in fp32: itself, and the moving averages of its gradient and of that one's square), a row of it
/// counted as a token.
/// A schedule may hold several attentions, one a layer: their tensors have the label of theirs.
enum class Tensor : std::uint8_t {
  q,
  k,
  v,
  out,
  lse,
  d_out,
  d_q,
  d_k,
  d_v,
  delta,
  scores,
  weights,
  d_weights,
  d_scores,
  state,
  d_state,
  value,
  d_value,
  param,
  d_param,
  master,
  first_moment,
  second_moment
};
constexpr std::size_t tensor_count = 23;
constexpr bool is_of_pairs(Tensor t) {
  return t == Tensor::scores || t == Tensor::weights || t == Tensor::d_weights ||
         t == Tensor::d_scores;
}
constexpr bool is_state(Tensor t) { return t == Tensor::state || t == Tensor::d_state; }
constexpr bool is_value(Tensor t) { return t == Tensor::value || t == Tensor::d_value; }
constexpr bool is_param(Tensor t) { return t >= Tensor::param; }
constexpr bool is_gradient(Tensor t) {
  return t == Tensor::d_out || t == Tensor::d_q || t == Tensor::d_k || t == Tensor::d_v ||
         t == Tensor::d_value || t == Tensor::d_param;
}
/// What an optimizer replaces.
constexpr bool is_updated(Tensor t) { return is_param(t) && t != Tensor::d_param; }
constexpr bool is_of_graph(Tensor t) { return t >= Tensor::value; }
/// k, v, their gradients and states: cells of key tokens (or slots) and KV heads. All others: query
/// tokens and heads.
constexpr bool is_kv(Tensor t) {
  return t == Tensor::k || t == Tensor::v || t == Tensor::d_k || t == Tensor::d_v || is_state(t);
}
/// Remember query cells as contributions; all others that remember any: key atoms.
constexpr bool sums_queries(Tensor t) {
  return t == Tensor::d_k || t == Tensor::d_v || t == Tensor::d_state;
}
/// Rows of a head are as wide as values are; of q, k and their gradients as keys are.
constexpr bool has_values_width(Tensor t) {
  return t == Tensor::v || t == Tensor::out || t == Tensor::d_out || t == Tensor::d_v;
}
std::string_view to_string(Tensor);

/// A tensor; which: an index into the graph's values or parameters, or its attentions.
struct TensorRef {
  Tensor tensor = Tensor::q;
  int label = 0;
  constexpr TensorRef(Tensor t, int l = 0) : tensor(t), label(l) {}
  constexpr TensorRef() = default;
  friend constexpr auto operator<=>(const TensorRef&, const TensorRef&) = default;
};

}  // namespace spp
