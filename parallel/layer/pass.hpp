// One micro-batch's way through a rank's layers, forward and back: where its values and their
// gradients are, and the kernels and transfers that make them.
#pragma once

#include "parallel/layer/weights.hpp"
#include "schedule/transplant.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace spp {

/// A rank's programs of attention; of a phase that there is not: empty.
struct AttentionPrograms {
  struct Both {
    Program forward, backward;
  };
  AttentionPrograms(const LayerParts& parts, const LayerRank& at);
  std::vector<Both> by_mask;
  TokenSet home;    // tokens of the rank's queries, within a micro-batch
  TokenSet cached;  // in front of the sequence, of which the rank has keys and values
};

class LayerPass {
 public:
  /// Micro-batch `number` of the rank's replica.
  LayerPass(const LayerParts& parts, const LayerRank& at, const AttentionPrograms& attention,
            RankWeights& weights, ProgramBuilder& program, int number);

  void forward(int definition);
  /// The backward reads what this gives instead.
  void forward_again(int definition);
  /// `weights_later`: what gives gradients of parameters and nothing else is left for
  /// give_weights().
  void backward(int definition, bool weights_later);
  void give_weights();

  /// A value, or the gradient of one, that another stage waits for.
  [[nodiscard]] BufferId sent(TensorRef ref) const { return held_.at(ref); }
  /// Room for one that comes from there.
  BufferId received(TensorRef ref);
  /// The gradient that is also this value's.
  [[nodiscard]] TensorRef gradient_ref(TensorRef x) const {
    return {Tensor::d_value, index_.gradient_of(x.label)};
  }

 private:
  enum class Way : std::uint8_t { there, again, back };

  // Where things are.
  [[nodiscard]] bool is_step() const { return parts_.is_step(); }
  [[nodiscard]] Cut cut(TensorRef ref) const {
    return parts_.layer.cuts[static_cast<std::size_t>(ref.label)];
  }
  [[nodiscard]] bool is_wide(TensorRef ref) const { return cut(ref) == Cut::width; }
  [[nodiscard]] bool is_wide_operand(TensorRef x) const {
    return x.tensor == Tensor::out || is_wide(x);
  }
  [[nodiscard]] const TokenSet& tokens(TensorRef ref) const {
    return cut(ref) == Cut::rows ? own_ : home_;
  }
  [[nodiscard]] HeadRange columns(TensorRef ref) const;
  [[nodiscard]] HeadRange heads(Tensor tensor) const {
    return is_kv(tensor) ? kv_heads_ : q_heads_;
  }
  [[nodiscard]] std::string name(TensorRef ref) const {
    return prefix_ + graph_.value(ref.label).name;
  }
  [[nodiscard]] std::string gradient_name(TensorRef ref) const {
    return prefix_ + "d_" + graph_.value(ref.label).name;
  }
  /// Names of one layer's tensors, where there are several.
  [[nodiscard]] std::string of_layer(TensorRef ref) const;
  void note_kept(const Definition& d);
  // Of attention `label`, by its mask.
  [[nodiscard]] const AttentionPrograms::Both& programs(int label) const {
    return attention_.by_mask[static_cast<std::size_t>(index_.mask_of(label))];
  }
  [[nodiscard]] const AttentionParts& attention_parts(int label) const {
    return parts_.attentions[static_cast<std::size_t>(index_.mask_of(label))];
  }
  void sit_at(int label) {
    place_.attention = label;
    place_.mask = index_.mask_of(label);
  }

  BufferId value(TensorRef ref);
  BufferId result(TensorRef ref);
  BufferId result_heads(TensorRef ref, const std::string& called);
  BufferId inner_heads(TensorRef ref, const std::string& called);
  BufferId result_keys(TensorRef ref, const std::string& called);
  BufferId gradient(TensorRef x);
  BufferId new_gradient(TensorRef x);
  BufferId gathered(TensorRef ref, BufferId own);
  [[nodiscard]] BufferId gathered_before(TensorRef ref) const;
  void scatter(BufferId partial, BufferId own);

  // Forward.
  void multiply(int number, const Definition& d);
  void sum_parts(RowKernel op, TensorRef y);
  void row_kernel(int number, const Definition& d, const std::vector<BufferId>& results);
  void attend(int label);

  // Backward.
  void multiply_back(int number, const Definition& d);
  void give_input(Gemm op, BufferId d_x);
  void give_weight(const Definition& d, Gemm op, const std::function<BufferId()>& input);
  void give_partial(int number, TensorRef x, BufferId d_y, BufferId weight);
  void remember(int number, const Definition& d);
  void norm_back(int number, const Definition& d);
  void activation_back(int number, const Definition& d);
  void join_columns(int number, const Definition& d);
  void look_up_back(int number, const Definition& d);
  void sum_words_back(int number, const Definition& d);
  [[nodiscard]] RankWeights::Room open_sinks(int label);
  void join(int number, const Definition& d);
  void join_latents(RowKernel op, const Definition& d);
  [[nodiscard]] BufferId known_backward(const Buffer& buffer, int label);

  // To experts and back (experts.cpp).
  [[nodiscard]] std::int64_t slot_rows() const { return own_.count() * graph_.routing.chosen; }
  BufferId slots(TensorRef ref, const std::string& called);
  [[nodiscard]] bool gathers_tokens() const {
    return parts_.plan.to_experts == Dispatcher::all_gather;
  }
  BufferId of_members(BufferId own, const std::string& called);
  [[nodiscard]] HeadRange columns_of(BufferId id) const;
  BufferId to_experts(TensorRef ref, BufferId from, const std::string& called);
  void from_experts(TensorRef ref, BufferId there, BufferId to);
  [[nodiscard]] Gemm product_of_slots(int number, BufferId a, BufferId b) const;
  void route(int number, const Definition& d);
  void route_back(int number, const Definition& d);
  void multiply_slots(int number, const Definition& d);
  void multiply_slots_back(int number, const Definition& d);
  void activate_slots(int number, const Definition& d);
  void activate_slots_back(int number, const Definition& d);
  [[nodiscard]] static bool weighs_bias(const Definition& d) { return d.reads.size() > 1; }
  BufferId gradient_there(TensorRef weights);

  const LayerParts& parts_;
  const Graph& graph_;
  const GraphIndex& index_;
  const LayerRank& at_;
  const AttentionPrograms& attention_;
  RankWeights& weights_;
  ProgramBuilder& b_;
  const LayerStreams& streams_;
  std::string prefix_;  // of names
  TokenSet home_, own_;
  HeadRange part_, q_heads_, kv_heads_;
  TokenSet members_;  // of all ranks of its group of experts, one after the other
  TokenSet routed_;   // of these, that come to the rank's experts
  HeadRange slots_;   // in which they do
  Transplant place_;
  std::set<TensorRef> kept_, ever_gathered_, computed_again_;
  std::map<int, std::vector<BufferId>> kept_of_attention_;  // by attention: its forward's buffers
  std::map<TensorRef, BufferId> held_, partial_;
  std::array<std::map<TensorRef, BufferId>, 3> gathered_;  // by way: not kept for the next
  std::map<TensorRef, BufferId> weights_there_;  // experts' weights and their gradients, with them
  std::map<TensorRef, std::vector<int>> passed_on_;  // sums, by what they give their gradient to
  std::vector<std::function<void()>> weights_later_;
  Way way_ = Way::there;
  bool puts_off_ = false;
};

}  // namespace spp
