// What a schedule computes around attention: a transformer layer's values and parameters, and the
// functions between them, one definition each. The graph says what is computed, once and whole;
// which rank computes which part of it, and when, the programs say. The proof holds the programs
// against the graph (effects_gemm.cpp, effects_rows.cpp), and the oracle of a run evaluates it in
// fp64.
//
// A value is [batch, tokens, width], its row in `parts` equal parts that ranks may hold one by one;
// a parameter [rows, columns] in row_parts x column_parts equal blocks. Of y = x w
//
//   y     is the sum over the row parts of w          (row-parallel: several ranks have one each),
//         and of b, if there is one, added once    (of experts w and b are the slot's expert's)
//   d_x   is the sum over the column parts of w, and over all definitions that read x
//   d_w   is the sum over all tokens, as is d_b; of gains of heads (split_heads) over all tokens
//         and the parts of the row, each of which has some of the heads; of a head's sink over all
//         tokens
//
// Behind experts a value is the sum over its token's slots, as is what experts give the gradient of
// a value in front of them; ranks may have some of them each.
//
// so "every contribution exactly once" is proven of each as it is of keys under attention.
//
// A value that nothing but one sum reads has that sum's gradient: no op passes it on (gradient_of).
#pragma once

#include "base/units.hpp"
#include "schedule/routing.hpp"
#include "schedule/tensor.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// From `embedding` on: what a step has beside its layers.
enum class LayerFunction : std::uint8_t {
  linear,       // y = x w, or x w + b
  rms_norm,     // y = x / rms(x) * gain, and 1/rms      (Zhang and Sennrich, arXiv:1910.07467)
  layer_norm,   // y = (x - mean) / sigma * gain + bias, and mean, 1/sigma    (arXiv:1607.06450)
  split_heads,  // q, k, v = parts of a row [q | k | v]; q and k are rotated    (arXiv:2104.09864)
                // and may be normed before, head by head          (Qwen3, arXiv:2505.09388);
                // or parts of what latents were projected to      (DeepSeek-V2, arXiv:2405.04434)
  swiglu,       // a = silu(gate) * up                                       (arXiv:2002.05202)
  gelu,         // a = gelu(h), its tanh form                                (arXiv:1606.08415)
  add,          // z = x + y
  split,        // a, b = the first columns of a row, and the others
  embedding,    // x = table's row of each word; of none (-1): 0
  word_sums,    // of a part of the logits: maximum, sum of exp(logit - maximum), target's logit
  word_loss,    // from all parts: -log softmax(logits)[target], of no target (-1): 0; and log_sum
  adam,         // the parameter's next values     (arXiv:1412.6980, in the form of 1711.05101)
  // Of experts, which tokens are routed to (routing.hpp):
  route,          // weights = softmax over the scores of a token's own experts, a slot each
  dispatch,       // every slot of y = x
  expert_swiglu,  // of each slot: a = weight * silu(gate) * up, of its row [gate | up]
  combine         // y = sum over the slots of x
};
constexpr std::size_t layer_functions = 16;
std::string_view to_string(LayerFunction);

/// The three products of a linear layer y = x w.
enum class GemmKind : std::uint8_t {
  forward,         // y = x w
  input_gradient,  // d_x = d_y w^T
  weight_gradient  // d_w = x^T d_y
};
std::string_view to_string(GemmKind);

/// C[m,n] = A[m,k] B[k,n], whichever of them is read transposed.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  [[nodiscard]] FlopCount flops() const {
    return FlopCount(2.0 * static_cast<double>(m) * static_cast<double>(n) *
                     static_cast<double>(k));
  }
  friend bool operator==(const GemmShape&, const GemmShape&) = default;
};

struct Value {
  std::string name;
  std::int64_t width = 0;  // elements of a row
  int parts = 1;           // divides the width
  bool fp32 = false;       // else in the problem's type
  std::int64_t words = 0;  // numbers of so many words, -1 of padding, as fp32; 0: any numbers
  [[nodiscard]] std::int64_t part_width() const { return width / parts; }
  friend bool operator==(const Value&, const Value&) = default;
};

/// A norm's gain and bias stand one below the other in a single column, as do the gains of q's and
/// of k's heads, the sinks of all query heads, and the biases of all experts.
struct Param {
  std::string name;
  std::int64_t rows = 0, columns = 1;
  int row_parts = 1, column_parts = 1;  // divide them
  /// So many matrices one below the other, a token's slot times that of its expert; the row parts
  /// are the groups of experts. 0: one matrix, for all tokens.
  int experts = 0;
  [[nodiscard]] std::int64_t part_rows() const { return rows / row_parts; }
  [[nodiscard]] std::int64_t part_columns() const { return columns / column_parts; }
  friend bool operator==(const Param&, const Param&) = default;
};

/// route: {scores} -> {weights}; dispatch, combine: {x} -> {y}; expert_swiglu: {gate_up, weights}
/// -> {a}. What lies between dispatch and combine has a part for every slot of a token.
///
/// linear: {x} -> {y}, of experts also {x, weights} -> {y}; norms: {x} -> {y, statistics};
/// split_heads: {qkv} -> {q, k, v}; swiglu: {gate, up} -> {a}; gelu: {h} -> {a}; add: {x, y} ->
/// {z}; split: {x} -> {a, b}; embedding: {words} -> {x}; word_sums: {logits, targets} -> {sums};
/// word_loss: {sums, targets} -> {loss, log_sum}; adam: {} -> {}. Linear layers read values or
/// attention's out. The n-th split_heads is that of attention n.
///
/// split_heads of latent attention: {q, kv, position} -> {q, k, v}. Of each head q's row has all of
/// q, kv's row the first columns of k and then v; the last columns of k are `position`, the same
/// for all heads: its gradient is a sum over the parts of q's row. Just as many last columns of q
/// and of k are rotated.
///
/// With weights, which its x has been multiplied by (expert_swiglu), a bias of experts is, too: y =
/// x w + weight b, of each slot. d_weight is a sum over both.
///
/// An embedding is a product with rows of zeros and a one: x is a sum over the table's row parts.
/// So is `sums`: a row of three numbers for each part of the logits, of which a part knows its own.
struct Definition {
  LayerFunction function = LayerFunction::linear;
  std::vector<TensorRef> reads, writes;
  int param = -1;       // of linear layers, norms, embeddings and updates; of split_heads: gains
                        // of one q head and of one k head, where it norms them
  int bias = -1;        // of a linear layer that has one: [columns, 1], cut as the columns are; of
                        // experts so many numbers for each, in the row parts of their matrices
  int sink = -1;        // of split_heads, whose attention has one: a logit of each query head,
                        // [q_heads, 1], in as many row parts as the row has
  double constant = 0;  // epsilon of a norm; base of the rotation of split_heads, 0: none; rate of
                        // an update
  bool transposed = false;  // a linear layer's y = x w^T, without a bias
  int mask = 0;             // of split_heads: of the problem's, by which its attention sees
  double epsilon = 0;  // of split_heads that norms q and k: y = x / sqrt(mean(x^2) + epsilon) gain
  /// Latent attention's heads, of split_heads.
  [[nodiscard]] bool joins_latents() const {
    return function == LayerFunction::split_heads && reads.size() > 1;
  }
  friend bool operator==(const Definition&, const Definition&) = default;
};

/// A definition that reads a value or a parameter, and the numbers by which its gradient remembers
/// what it has of it: [first, first + count).
struct Use {
  int definition = 0;
  int first = 0;
  int count = 1;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Param> params;
  std::vector<Definition> definitions;
  Routing routing;

  [[nodiscard]] bool empty() const { return definitions.empty(); }
  /// One without a graph.
  [[nodiscard]] int attentions() const;
  [[nodiscard]] const Value& value(int label) const {
    return values[static_cast<std::size_t>(label)];
  }
  [[nodiscard]] const Param& param(int label) const {
    return params[static_cast<std::size_t>(label)];
  }
  [[nodiscard]] const Definition& definition(int number) const {
    return definitions[static_cast<std::size_t>(number)];
  }
  /// "value.x", "d_param.qkv"; "q", "q.1" of attention 1.
  [[nodiscard]] std::string name(TensorRef ref) const;

  /// The definition that writes a value; -1: it comes from outside.
  [[nodiscard]] int writer_of(TensorRef ref) const;
  /// All that read a value, in order.
  [[nodiscard]] std::vector<Use> uses_of(TensorRef ref) const;
  /// The value whose gradient is also that of `label`: itself, or the sum that alone reads it.
  [[nodiscard]] int gradient_of(int label) const;
  /// The update of a parameter; -1: it has none.
  [[nodiscard]] int update_of(int param) const;
  /// A product of each slot with its expert's matrix.
  [[nodiscard]] bool is_of_experts(const Definition& d) const {
    return d.param >= 0 && param(d.param).experts > 0 && d.function == LayerFunction::linear;
  }
  /// Row parts that what a definition writes is a sum over; 0: it is no sum.
  [[nodiscard]] int sum_parts(const Definition& d) const;
  /// All that is added up: row parts, then the bias.
  [[nodiscard]] int summands(const Definition& d) const {
    return sum_parts(d) + (d.bias >= 0 ? 1 : 0);
  }

  friend bool operator==(const Graph&, const Graph&) = default;
};

/// What a graph says of each of its tensors, looked up once: for those who ask for every op.
class GraphIndex {
 public:
  GraphIndex() = default;
  explicit GraphIndex(const Graph& graph);
  // As the graph's own.
  [[nodiscard]] int writer_of(TensorRef ref) const { return of(ref).writer; }
  [[nodiscard]] const std::vector<Use>& uses_of(TensorRef ref) const { return of(ref).uses; }
  [[nodiscard]] int gradient_of(int label) const {
    return gradients_[static_cast<std::size_t>(label)];
  }
  [[nodiscard]] int update_of(int param) const { return updates_[static_cast<std::size_t>(param)]; }
  /// All whose backward gives a parameter's gradient something, of each token: one number; of
  /// split_heads one for each part of its row.
  [[nodiscard]] const std::vector<Use>& uses_of_param(int param) const {
    return uses_of_params_[static_cast<std::size_t>(param)];
  }
  [[nodiscard]] int attentions() const { return attentions_; }
  /// The parameter that is an attention's sink; -1: it has none.
  [[nodiscard]] int sink_of(int attention) const {
    return sinks_.empty() ? -1 : sinks_[static_cast<std::size_t>(attention)];
  }
  /// Of the problem's, the mask by which an attention sees.
  [[nodiscard]] int mask_of(int attention) const {
    return masks_.empty() ? 0 : masks_[static_cast<std::size_t>(attention)];
  }

 private:
  struct Known {
    int writer = -1;
    std::vector<Use> uses;
  };
  [[nodiscard]] const Known& of(TensorRef ref) const;

  std::vector<Known> values_;          // by label
  std::map<TensorRef, Known> others_;  // attention's
  std::vector<int> gradients_, updates_;
  std::vector<std::vector<Use>> uses_of_params_;
  std::vector<int> masks_, sinks_;  // by attention of a graph
  int attentions_ = 1;
};

/// What a graph's definitions meet of attention: parts that heads are dealt out in, the width of
/// all query heads, of all KV heads and of all heads of out, and of one key or value; its masks,
/// and whether it has sinks.
struct AttentionRows {
  int head_parts = 1;
  std::int64_t q_width = 0, kv_width = 0, out_width = 0;
  std::int64_t head_dim = 0, value_dim = 0;
  int masks = 1;  // of the problem
  bool sinks = false;
};
/// "" if definitions name values and parameters that are there, in shapes that belong together,
/// each value is written once, and before it is read; else why not. Definitions before `first` are
/// known to be good.
std::string flaw_of(const Graph& graph, const AttentionRows& attention, std::size_t first = 0);

/// Constants of every update but its rate, as they are common (Llama 2, arXiv:2307.09288, section
/// 2.2): the bias corrections of the first steps are left out, since a schedule is of any step.
struct AdamConstants {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-5, decay = 0.1;
};

}  // namespace spp
