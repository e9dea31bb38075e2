// The work: one attention call over a long sequence, and how its tokens and heads are dealt out.
#pragma once

#include "schedule/tokens.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace spp {

enum class DType : std::uint8_t { bf16, fp16, fp32 };
/// Bytes of one element.
constexpr std::int64_t size_of(DType t) { return t == DType::fp32 ? 4 : 2; }

/// What attention computes of queries, keys and values, with s = q.k / sqrt(head_dim) where the
/// mask allows a pair:
///  softmax  out = sum of softmax(s) v
///  linear   out = sum of s v, without a normaliser (Katharopoulos et al., arXiv:2006.16236;
///  LASP-2,
///           arXiv:2502.07563, equation 2): a sum over keys is one state of head_dim x head_dim
enum class AttentionFunction : std::uint8_t { softmax, linear };

/// What a schedule does. Attention's, or a layer's, forward and backward are two schedules; a step
/// is one: both, and the update of the parameters where the graph has one.
enum class Phase : std::uint8_t { forward, backward, step };

/// One attention call, global. Tokens are numbered from the cached ones on: 0 to cached - 1, then
/// the sequence's. Queries and keys are [batch, seq, heads, head_dim], values and
/// outputs [batch, seq, heads, value_dim], narrower in multi-head latent attention (DeepSeek-V3,
/// arXiv:2412.19437, section 2.1.1); LSE is [batch, heads, seq], fp32.
struct Problem {
  std::int64_t seq = 0;  // tokens of one sequence, over all ranks of the group
  /// Tokens in front of the sequence, without queries: ranks hold their keys and values already,
  /// dealt out by the same layout (a prefill behind a cache, arXiv:2411.01783). Forward alone.
  std::int64_t cached = 0;
  std::int64_t batch = 1;  // sequences worked on at once
  int q_heads = 1;
  int kv_heads = 1;  // divides q_heads (GQA; 1 = MQA; q_heads = MHA)
  int head_dim = 128;
  int value_dim = 0;  // 0: head_dim
  Mask mask{};
  /// Of a layer's or a step's attentions that see otherwise: numbers 1 and on; `mask` is number 0.
  std::vector<Mask> other_masks{};
  DType dtype = DType::bf16;
  AttentionFunction function = AttentionFunction::softmax;
  /// Attention sinks (gpt-oss, arXiv:2508.10925): every query head has a learned logit, which takes
  /// its share of each softmax and brings no value. A parameter of the graph's (Definition::sink):
  /// attention by itself has none.
  bool sinks = false;
  /// Of a step, over all data-parallel replicas: each has sequences of its own. Tokens of
  /// micro-batch m are numbered from m * seq on; attention stays within one.
  int micro_batches = 1;

  /// Behind the last token of one sequence.
  [[nodiscard]] std::int64_t end() const { return cached + seq; }
  [[nodiscard]] std::int64_t all_tokens() const { return cached + seq * micro_batches; }
  /// They are tokens of one micro-batch, and so are the others.
  [[nodiscard]] bool in_one_micro_batch(const TokenSet& tokens, const TokenSet& others) const;
  /// Numbered within their micro-batch.
  [[nodiscard]] TokenSet local(const TokenSet& tokens) const;
  [[nodiscard]] int masks() const { return 1 + static_cast<int>(other_masks.size()); }
  [[nodiscard]] const Mask& mask_of(int number) const {
    return number == 0 ? mask : other_masks[static_cast<std::size_t>(number - 1)];
  }
  /// Width of a value's and of an output's head.
  [[nodiscard]] int v_dim() const { return value_dim > 0 ? value_dim : head_dim; }
  [[nodiscard]] int group_size() const { return q_heads / kv_heads; }
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Which tokens a ring rank (or StarTrail team) holds. `document_zigzag` and `document_contiguous`
/// are zigzag and contiguous over packed documents that are dealt out in pieces (Mask::pieces): of
/// every document its own two, or its own one. `balanced`: as many small chunks as others, so
/// chosen that all ranks have nearly the same work; `whole_documents`: packed documents, each on as
/// few ranks as have room for it, likewise (schedule/balanced.hpp).
enum class Layout : std::uint8_t {
  contiguous,
  zigzag,
  striped,
  document_zigzag,
  document_contiguous,
  balanced,
  whole_documents
};
/// How chunks of the sequence go to ranks: of documents dealt out, as of a sequence.
constexpr Layout chunk_layout(Layout layout) {
  return layout == Layout::document_zigzag       ? Layout::zigzag
         : layout == Layout::document_contiguous ? Layout::contiguous
                                                 : layout;
}
/// Every packed document is dealt out to all ranks alike.
constexpr bool deals_documents(Layout layout) { return chunk_layout(layout) != layout; }
/// The mask decides which tokens a rank holds.
constexpr bool by_work(Layout layout) {
  return layout == Layout::balanced || layout == Layout::whole_documents;
}
/// There are packed documents to deal out, or the layout is none.
constexpr bool needs_documents(Layout layout) {
  return deals_documents(layout) || layout == Layout::whole_documents;
}

/// Tokens of chunk `index` of `chunks` under a layout that is not by_work().
/// zigzag: chunks index and 2*chunks-1-index of 2*chunks equal ones; striped: every chunks-th
/// token. `seq` must divide.
TokenSet chunk_tokens(std::int64_t seq, Layout layout, int index, int chunks);
/// Those of a problem that have queries; those that are cached; and all, the cached ones first.
TokenSet chunk_of_queries(const Problem& problem, Layout layout, int index, int chunks);
TokenSet chunk_of_cached(const Problem& problem, Layout layout, int index, int chunks);
TokenSet chunk_of_keys(const Problem& problem, Layout layout, int index, int chunks);

/// How Ulysses deals heads out when they do not simply divide.
///  divide:    U divides the KV heads
///  replicate: KV heads divide U, each KV head is sent to U/kv_heads ranks (DeepSpeed ALST, verl)
///  pad:       whole KV groups of zero heads are added until U divides them (diffusers, vLLM-Omni)
///  uneven:    KV groups are dealt out unevenly, some ranks get one more
enum class HeadPolicy : std::uint8_t { divide, replicate, pad, uneven };

/// Which GPU is which rank: `block` fills a node before the next one, `cyclic` deals ranks out over
/// the nodes in turn (Slurm's --distribution=block|cyclic).
enum class RankOrder : std::uint8_t { block, cyclic };

std::string_view to_string(AttentionFunction);
std::string_view to_string(DType);
std::string_view to_string(Phase);
std::string_view to_string(Layout);
std::string_view to_string(HeadPolicy);
std::string_view to_string(RankOrder);
/// "full", "causal", "window:4096"; with the lengths of packed documents "causal@1024+512", of
/// their pieces where they are dealt out: "causal@128+64x8".
std::string to_string(const Mask&);

AttentionFunction parse_attention_function(std::string_view, std::string_view where);
DType parse_dtype(std::string_view, std::string_view where);
Phase parse_phase(std::string_view, std::string_view where);
Layout parse_layout(std::string_view, std::string_view where);
HeadPolicy parse_head_policy(std::string_view, std::string_view where);
RankOrder parse_rank_order(std::string_view, std::string_view where);
Mask parse_mask(std::string_view, std::string_view where);
/// Heads [begin, end).
struct HeadRange {
  int begin = 0;
  int end = 0;
  [[nodiscard]] int count() const { return end - begin; }
  friend constexpr auto operator<=>(const HeadRange&, const HeadRange&) = default;
};

/// Of a parameter that has a row for each query head.
inline TokenSet rows_of_heads(HeadRange heads) {
  return TokenSet({.begin = heads.begin, .count = heads.count()});
}

/// Deals the heads of one attention call out over `parts` Ulysses ranks.
/// Padded heads are counted in q_heads()/kv_heads() and hold zeros.
class HeadSplit {
 public:
  HeadSplit() = default;
  HeadSplit(const Problem& problem, int parts, HeadPolicy policy);

  /// "" if `policy` can deal these heads out over `parts`, else why not. (Heads that are padded
  /// already have nothing left to pad, yet can be split under HeadPolicy::pad.)
  static std::string why_not(const Problem& problem, int parts, HeadPolicy policy);

  [[nodiscard]] int parts() const { return parts_; }
  [[nodiscard]] int q_heads() const { return q_heads_; }    // after padding
  [[nodiscard]] int kv_heads() const { return kv_heads_; }  // after padding
  [[nodiscard]] HeadRange q(int part) const;
  [[nodiscard]] HeadRange kv(int part) const;
  /// Ranks that hold a copy of one KV head: 1 unless replicated.
  [[nodiscard]] int replicas() const { return parts_ > kv_heads_ ? parts_ / kv_heads_ : 1; }
  /// Every part gets the same number of heads.
  [[nodiscard]] bool even() const;
  friend bool operator==(const HeadSplit&, const HeadSplit&) = default;

 private:
  int parts_ = 1;
  int q_heads_ = 1;
  int kv_heads_ = 1;
};

}  // namespace spp
