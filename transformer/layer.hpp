// What a transformer layer is: the list of its tensor operations. This is the one description; what
// a step needs of a layer follows from it by small functions:
//
//   weights                                             weights_of, layer_weights     (here)
//   what of all this one rank has                       layer_split.hpp
//   kernels and transfers, forward, backward, again     layer_kernels.hpp
//   FLOPs, and the model's FLOPs by convention          layer_kernels.hpp, model_flops.hpp
//   bytes kept for the backward, and working sets       activations.hpp
//
// An operation reads and writes tensors [rows, width] and says which of them its backward reads
// (`keeps`). That is all these functions need:
//
//   a GEMM       Y = X W is three: forward, dX = dY W^T, dW = X^T dY; it keeps X.
//   a row-wise   operation (norm, RoPE, activation) is bound by memory: forward it touches what it
//                reads and writes; backward the gradients of both, and what it keeps.
//   a sum        passes its gradient on: no kernel.
//   a scan       of linear attention keeps what it reads, and of each chunk what its kernels need
//                again; states are computed again (flash-linear-attention, mamba_ssm).
//   attention    keeps Q, K, V, its output and the LSE (FlashAttention, arXiv:2205.14135); on the
//                sequence itself its kernels are a schedule's, on a text they are here.
//   picked keys  keep what their scores were made of; the gradient of these is another loss's
//                (arXiv:2512.02556, equation 4), so it ends at what the indexer reads (`detached`).
//   streams      of a model with several are read by a branch as a weighted sum and written as a
//                mix of all with its result; both weights are made from the streams themselves.
//   A tensor that n operations read has n gradients, which are added up by n - 1 kernels. So a
//   residual stream costs one such kernel a branch, and a gated MLP one for its two first GEMMs.
//   A tensor is kept once, however many operations keep it, and not at all when none does.
//
// For the layer of GPT (LayerNorm, GELU, f = 4h, as many heads for K and V) that gives 32 bytes x h
// a token in 16 bits: the 34 of Korthikanti et al. (arXiv:2205.05198, section 4.1) less the masks
// of two dropouts, and without its 5as/h of scores, which flash attention computes again.
//
// How tensor parallelism cuts a layer (Shoeybi et al., arXiv:1909.08053; with sequence parallelism
// Korthikanti et al., arXiv:2205.05198) is said by its tensors: `Cut`. An operation between tensors
// that are cut in different ways needs a transfer: all rows of an input are gathered before
// something that writes a part of the width, and what a row-parallel GEMM writes is a sum over the
// ranks. layer_split.hpp has the rules.
//
// Operations stand in the order in which they run; the backward runs in the reverse order.
#pragma once

#include "base/id.hpp"
#include "schedule/graph.hpp"
#include "transformer/model.hpp"
#include "transformer/recompute.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace spp {

/// A whole step of training, or a prefill (forward only, logits of the last token).
enum class StepKind : std::uint8_t { train, prefill };

/// What a tensor has a row for: each token of the rank; each token of the text (Model::cross_tokens
/// of every sequence, on every rank); the last token of every sequence; each expert that a token of
/// the rank is routed to; each token, of all ranks, that is routed to the rank's experts; each
/// token of the ranks that hold all experts; those of the rank's tokens that are the image's, and
/// the joint text's; each sequence, for what its denoising step is; each entry that so many tokens
/// of the rank make (TensorOps::entry_tokens).
enum class Rows : std::uint8_t {
  tokens,
  text,
  last,
  routed,
  received,
  gathered,
  image,
  joint,
  sequence,
  entries
};

/// How the ranks of a tensor-parallel group hold a tensor.
///  rows:  each a part of the rows, the region of sequence parallelism; without that, everything
///  width: each a part of every row
///  whole: each everything
/// Received rows are cut between the ranks that share their experts.
enum class Cut : std::uint8_t { rows, width, whole };

struct LayerTensor {
  std::string_view name;
  std::int64_t width = 0;  // elements of a row
  Rows rows = Rows::tokens;
  Cut cut = Cut::rows;
  std::int64_t unit = 1;  // elements that a cut of the width leaves together: a head
  bool fp32 = false;      // else in the step's type
  bool outside = false;   // held by somebody else: a table of weights, the text
};
using LayerTensorId = Id<struct LayerTensorTag>;

/// A few tensors, in order.
class LayerTensors {
 public:
  constexpr LayerTensors() = default;
  constexpr LayerTensors(std::initializer_list<LayerTensorId> ids) {
    for (const LayerTensorId id : ids) {
      push_back(id);
    }
  }
  constexpr void push_back(LayerTensorId id) { ids_.at(size_++) = id; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr const LayerTensorId* begin() const { return ids_.data(); }
  [[nodiscard]] constexpr const LayerTensorId* end() const { return ids_.data() + size_; }
  [[nodiscard]] constexpr LayerTensorId operator[](std::size_t i) const { return ids_[i]; }
  [[nodiscard]] constexpr LayerTensorId back() const { return ids_.at(size_ - 1U); }

 private:
  std::array<LayerTensorId, 6> ids_{};
  std::uint8_t size_ = 0;
};

/// Which part of a matrix each rank of a tensor-parallel group has: the whole; some of its columns
/// (column-parallel), some of its rows (row-parallel); of matrices side by side, those of its
/// heads.
enum class Shard : std::uint8_t { none, columns, rows, heads };

/// Y[rows, out] = X[rows, in] W[in, out], with a bias in the epilogue. `tied`: W is counted
/// elsewhere. `experts`: so many matrices, of which each row has one: a grouped GEMM.
/// Of a matrix where GEMMs multiply in fewer bits: it does, too; it multiplies in 16 whatever the
/// others do, as its results are too delicate; or where the projections around attention do
/// (LocalTokens::wide_attention).
enum class GemmWidth : std::uint8_t { narrow, wide, as_attention };

struct Linear {
  std::int64_t in = 0, out = 0;
  Shard shard = Shard::none;
  bool bias = false;
  bool tied = false;
  std::int64_t experts = 0;  // 0: one matrix for all rows
  /// So many matrices side by side, each from its part of X's row to its part of Y's; `alike`: they
  /// are one.
  std::int64_t heads = 1;
  bool alike = false;
  bool detached = false;  // X gets no gradient
  GemmWidth width = GemmWidth::narrow;
  [[nodiscard]] bool stays_wide(bool wide_attention) const {
    return width == GemmWidth::wide || (width == GemmWidth::as_attention && wide_attention);
  }
};

/// What becomes of the gradient in a row-wise operation: a kernel computes it, it is passed on to
/// all inputs as it is (a sum), or there is none (a maximum that is subtracted again).
enum class RowGradient : std::uint8_t { computed, passed_on, none };

/// Where a function has one kernel (graph.hpp), but operations are counted as frameworks have them:
/// this one is all that the kernel computes; the one that reads what the kernel reads; one inside.
enum class InKernel : std::uint8_t { whole, reads, inside };

/// Of what comes between the projections to heads and attention, which stacks have kernels of their
/// own for (StepPractice::position): heads turned by their position, or normed before.
enum class InPosition : std::uint8_t { no, turned, normed };

/// Row by row, bound by memory. `function`: what it computes, where a schedule can (graph.hpp); of
/// what turns positions into q and k, split_heads; of their norms, head by head, rms_norm; of the
/// loss from logits on, word_sums.
struct RowWise {
  std::optional<LayerFunction> function = std::nullopt;
  std::int64_t weights = 0;
  RowGradient gradient = RowGradient::computed;
  bool in_place = false;  // writes over what it reads, unless that is kept
  int reduced = 0;        // fp32 numbers a row summed over the tensor-parallel ranks, one by one
  InKernel in_kernel = InKernel::whole;
  InPosition in_position = InPosition::no;
};

/// Reads Q, K, V, writes the output (of two streams: a part of the rows each). To the tokens of the
/// sequence itself, or to the text; or among so many tokens that lie on one rank.
struct AttentionCall {
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  int value_dim = 0;  // of V and the output; 0: head_dim
  Rows keys = Rows::tokens;
  /// One learned logit a head that takes its share of the softmax, inside the kernel: a schedule
  /// has small ones of their own beside it (Sink in schedule/op.hpp), which this list does not.
  bool sinks = false;
  std::int64_t among = 0;  // 0: not so
  /// Of sparse attention, in place of all that a mask allows. Where keys are picked, the last
  /// tensor read says which: PickCall's.
  MetKeys meets{};
  [[nodiscard]] int v_dim() const { return value_dim > 0 ? value_dim : head_dim; }
  /// Over tokens that several ranks may hold, all that a mask allows: a schedule's.
  [[nodiscard]] bool over_sequence() const {
    return keys == Rows::tokens && among == 0 && !meets.any();
  }
};

/// An indexer's scores, and the best keys of each query: reads queries and keys of its heads and
/// what each head's scores weigh, writes numbers of tokens or entries. Over tokens that several
/// ranks may hold (step/sparse_attention.hpp).
struct PickCall {
  Indexer indexer;
  MetKeys meets{};  // of the attention behind it
};

/// A causal convolution of each channel over the last `kernel` tokens, and an activation; reads and
/// writes the same widths. Its backward computes the activation's input again.
struct ShortConvolution {
  int kernel = 4;
  bool bias = false;
};

/// Linear attention's way through the sequence: reads queries, keys, values and gates, writes the
/// output. Over tokens that several ranks may hold (step/linear_attention.hpp).
struct ScanCall {
  StateScan scan;
  std::int64_t weights = 0;  // of its gates and its skip connection
};

/// A row of a table [words, width] for each token. The gradients of the table are fp32. Of a table
/// cut by words each rank looks all tokens up, those of other ranks' words are 0.
struct Lookup {
  std::int64_t words = 0;
  bool tied = false;  // the table is counted elsewhere
};

/// How tokens come to the ranks of their experts and back.
///  all_to_all  each rank sends its rows once to every expert that they are routed to, and gets
///  them
///              back as often (GShard, arXiv:2006.16668)
///  all_gather  each gets the rows of all, works on those that are routed to its experts, and their
///              sums are reduce-scattered (Megatron-Core's allgather dispatcher, vLLM's
///              allgather_reducescatter)
enum class Dispatcher : std::uint8_t { all_to_all, all_gather };
constexpr std::size_t dispatchers = 2;
std::string_view to_string(Dispatcher);
Dispatcher parse_dispatcher(std::string_view, std::string_view where);

/// Rows to the ranks of their experts, or back. Each tensor that it reads becomes one that it
/// writes; where a rank has all experts they are the same.
enum class RouteDirection : std::uint8_t { dispatch, combine };
struct ExpertRoute {
  RouteDirection direction = RouteDirection::dispatch;
};

struct TensorOp {
  std::string_view name;
  std::variant<Linear, RowWise, AttentionCall, PickCall, ShortConvolution, ScanCall, Lookup,
               ExpertRoute>
      work;
  LayerTensors reads, writes, keeps;
  std::int64_t statistics = 0;  // fp32 numbers a row kept besides: 1/rms, LSE
  ModuleSet modules;            // that it is part of, for recomputation
};

/// Whether its backward gives what it reads a gradient.
bool gives_gradient(const TensorOp& op, LayerTensorId read);

struct TensorOps {
  std::vector<LayerTensor> tensors;  // by LayerTensorId
  std::vector<TensorOp> ops;
  LayerTensors results;      // read behind this list: their gradients come from there
  LayerTensors kept_behind;  // kept by what reads them there, which no list describes
  /// That later tokens read: attention K and V, or their latent; linear attention its state and the
  /// last tokens before its convolution.
  LayerTensors cached;
  std::int64_t text_tokens = 0;   // of a sequence
  std::int64_t entry_tokens = 1;  // that make an entry
  int experts_per_token = 0;

  [[nodiscard]] const LayerTensor& at(LayerTensorId id) const { return tensors[id.index()]; }
  [[nodiscard]] bool is_cached(LayerTensorId id) const {
    return std::ranges::find(cached, id) != cached.end();
  }
};

/// Layers of one kind. Of a model that is not_costed: nothing sensible.
struct LayerRun {
  TensorOps ops;
  std::int64_t layers = 0;
  LayerMask mask{};     // of the attention over the sequence
  KvHeads heads{};      // likewise
  bool attends = true;  // over the sequence, to all that the mask allows
  LayerBlocks blocks{};
};
/// The kinds of a model's layers, in the order in which the first of each comes: dense before
/// experts, sliding and full attention as they take turns.
std::vector<LayerRun> layer_runs(const Model& model, Dispatcher to_experts = {});
/// Which of the runs each layer belongs to.
std::vector<std::size_t> kinds_of_layers(const Model& model);
/// One of Model::layers, if all are of one kind; else InputError.
TensorOps layer_of(const Model& model, Dispatcher to_experts = {});
/// What a model has once, before its layers: the embedding; nothing without words.
TensorOps first_of(const Model& model);
/// Behind them: final norm, loss head and cross-entropy (fp32). A prefill computes logits of the
/// last token only, and no loss.
TensorOps last_of(const Model& model, StepKind step);
/// One of Model::predict_layers, which only training has: from the last layer's output and the next
/// token's embedding through a layer of its own to a loss (DeepSeek-V3, arXiv:2412.19437, section
/// 2.2); over several streams each stream joins the embedding. Table and loss head are the model's.
/// The matrices that join the two are taken to be whole on every rank. Not part of
/// Model::parameters().
TensorOps predict_of(const Model& model, Dispatcher to_experts = {});
/// How many of them a step has.
std::size_t further_predictions(const Model& model, StepKind step);
/// All lists of a step, made once for those who ask for many.
struct ModelLayers {
  ModelLayers(const Model& model, StepKind step, Dispatcher to_experts = {});
  std::vector<LayerRun> runs;
  std::vector<std::size_t> kind_of;  // layer: its run
  TensorOps first, last;
  TensorOps predict;             // empty without predictions
  std::size_t predict_kind = 0;  // the run of layers whose kind those are
  std::size_t predictions = 0;   // further ones
};
/// First and last in one list.
TensorOps ends_of(const Model& model, StepKind step);

/// Matrices, biases and norms; of one rank: layer_split.hpp.
std::int64_t weights_of(const TensorOp& op, const TensorOps& ops);
std::int64_t weights_of(const TensorOps& ops);
/// Of these, what a token meets: without the experts that it is not routed to.
std::int64_t active_weights_of(const TensorOps& ops);

/// What the layers weigh, kind by kind: of the runs above, or, of a model that is not_costed, what
/// its reader counted (Model::counted); empty where that is not known.
std::vector<LayerWeights> layer_weights(const Model& model);
/// "MHA", "GQA", "MQA": K and V of as many heads, of fewer, of one.
std::string_view heads_word(int q_heads, int kv_heads);

}  // namespace spp
