// DeepSeek-V3.2 (arXiv:2512.02556) and GLM-5: the layers of V3, with an indexer that picks the keys
// of each query. DeepSeek-V4 (arXiv:2606.19348): queries see a window and, in most layers,
// compressed entries of the tokens before, all of them or those that an indexer picks; residual
// streams are several, mixed by hyper-connections.
#include "base/error.hpp"
#include "transformer/model_read.hpp"
#include "transformer/model_read_weights.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp::model_keys {
namespace {

Indexer indexer_of(const Published& p, std::int64_t keys) {
  return {.heads = static_cast<int>(p.number("index_n_heads", 64, most_heads)),
          .dim = static_cast<int>(p.number("index_head_dim", 128, most_head_dim)),
          .keys = p.number("index_topk", keys, most_tokens)};
}

}  // namespace

std::optional<std::string> read_indexer(const Published& p) {
  if (p.model.latent.q_rank == 0) {  // which the indexer reads
    return "sparse attention without q_lora_rank";
  }
  if (const auto kinds = p.config.find("indexer_types")) {
    for (const JsonView& kind : kinds->elements()) {
      if (kind.string() != "full") {
        return "sharing of indexers between layers";
      }
    }
  }
  p.model.indexer = indexer_of(p, 2048);
  return std::nullopt;
}

namespace {

enum class Sight : std::uint8_t { window, compressed_sparse, heavily_compressed };

struct Compression {
  std::int64_t sparse = 0, heavy = 0;  // tokens that make one entry
};

/// compress_rates, else the keys of older configs.
Compression compression_of(const Published& p) {
  const auto rates = p.config.find("compress_rates");
  const Published inner{.config = rates ? *rates : p.config,
                        .wrapper = p.wrapper,
                        .config_class = p.config_class,
                        .model = p.model};
  const auto rate = [&](std::string_view now, std::string_view before, std::int64_t otherwise) {
    return inner.number(rates ? now : before, otherwise, most_head_dim);
  };
  return {.sparse = rate("compressed_sparse_attention", "compress_rate_csa", 4),
          .heavy = rate("heavily_compressed_attention", "compress_rate_hca", 128)};
}

std::optional<Sight> sight_of(const std::string& kind) {
  return kind == "sliding_attention"              ? std::optional(Sight::window)
         : kind == "compressed_sparse_attention"  ? std::optional(Sight::compressed_sparse)
         : kind == "heavily_compressed_attention" ? std::optional(Sight::heavily_compressed)
                                                  : std::nullopt;
}

/// By layer; empty where one is not known. compress_ratios, of older configs, counts the layers
/// that predict as well.
std::vector<Sight> sights_of(const Published& p) {
  std::vector<Sight> sights;
  if (const auto kinds = p.kinds()) {
    for (const std::string& kind : *kinds) {
      const auto sight = sight_of(kind);
      if (!sight) {
        return {};
      }
      sights.push_back(*sight);
    }
    return sights;
  }
  const auto ratios = p.config.find("compress_ratios");
  if (!ratios) {
    p.assume("2 layers heavily compressed, then these and compressed sparse in turns");
    for (std::int64_t i = 0; i < p.model.layers; ++i) {
      sights.push_back(i >= 2 && i % 2 == 1 ? Sight::compressed_sparse : Sight::heavily_compressed);
    }
    return sights;
  }
  for (const JsonView& ratio : ratios->elements()) {
    const std::int64_t tokens = ratio.integer(0, 128);
    if (tokens != 0 && tokens != 4 && tokens != 128) {
      ratio.fail(fmt::format("{} is not 0, 4 or 128", tokens));
    }
    sights.push_back(tokens == 0   ? Sight::window
                     : tokens == 4 ? Sight::compressed_sparse
                                   : Sight::heavily_compressed);
  }
  if (std::cmp_less(sights.size(), p.model.layers)) {
    ratios->fail(fmt::format("{} ratios for {} layers", sights.size(), p.model.layers));
  }
  sights.resize(static_cast<std::size_t>(p.model.layers));
  return sights;
}

/// What makes compressed entries `width` wide, of so many series, from windows of `tokens`:
/// kv_proj, gate_proj, position_bias, kv_norm.
std::int64_t compressor(const Model& m, std::int64_t series, std::int64_t width,
                        std::int64_t tokens) {
  return 2 * m.hidden * series * width + tokens * series * width + width;
}

/// DeepseekV4Attention without its compressor, and both norms of the layer.
std::int64_t attention_on_window(const Published& p, std::int64_t q_rank) {
  const Model& m = p.model;
  const std::int64_t groups = p.number("o_groups", 8, most_heads);
  const std::int64_t o = groups * p.number("o_lora_rank", 1024, most_width);
  return m.hidden * q_rank + q_rank + q_rank * m.q_width()  // q_a_proj, q_a_norm, q_b_proj
         + m.hidden * m.head_dim + m.head_dim               // kv_proj, kv_norm
         + m.q_width() / groups * o + o * m.hidden          // o_a_proj, in groups; o_b_proj
         + m.q_heads                                        // sinks
         + 2 * m.hidden;
}

/// By layer, whether it routes by a table of token ids; the others correct their scores.
std::vector<bool> routed_by_table(const Published& p) {
  std::vector<bool> by_table;
  if (const auto kinds = p.config.find("mlp_layer_types")) {
    for (const JsonView& kind : kinds->elements()) {
      by_table.push_back(kind.string() == "hash_moe");
    }
  } else {
    const std::int64_t first = p.number("num_hash_layers", 3, most_layers, 0);
    by_table.assign(static_cast<std::size_t>(std::min(first, p.model.layers)), true);
  }
  by_table.resize(static_cast<std::size_t>(p.model.layers), false);
  return by_table;
}

}  // namespace

std::vector<LayerWeights> count_compressed(const Published& p) {
  Model& m = p.model;
  const Indexer indexer = indexer_of(p, 512);
  const std::vector<Sight> sights = sights_of(p);
  if (m.experts.count == 0 || sights.empty()) {
    return {};
  }
  const Compression tokens = compression_of(p);
  const std::int64_t window = p.number("sliding_window", 128, most_tokens);
  const std::int64_t q_rank = p.number("q_lora_rank", 1024, most_width);
  const std::vector<bool> by_table = routed_by_table(p);
  const std::int64_t streams = p.number("hc_mult", 4, most_heads);
  const std::int64_t mixes = (2 + streams) * streams;
  const std::int64_t around = attention_on_window(p, q_rank)                  //
                              + 2 * (mixes * (streams * m.hidden + 1) + 3);   // attn_hc, ffn_hc
  const std::int64_t sparse = compressor(m, 2, m.head_dim, tokens.sparse)     //
                              + compressor(m, 2, indexer.dim, tokens.sparse)  // of the indexer
                              + q_rank * indexer.heads * indexer.dim          // its q_b_proj
                              + m.hidden * indexer.heads;                     // its weights_proj
  const std::int64_t heavy = compressor(m, 1, m.head_dim, tokens.heavy);
  m.extra_parameters += streams * (streams * m.hidden + 1) + 1;  // hc_head
  const std::int64_t expert = 3 * m.hidden * m.experts.ffn;
  const std::int64_t moe = m.experts.count * (expert + m.hidden)  // experts, gate
                           + 3 * m.hidden * m.experts.shared_ffn;
  const std::int64_t idle = (m.experts.count - m.experts.per_token) * expert;
  std::vector<LayerWeights> kinds;
  for (std::size_t i = 0; i < sights.size(); ++i) {
    const Sight sight = sights[i];
    const std::int64_t correction = by_table[i] ? 0 : m.experts.count;
    const std::int64_t all = around + moe + correction +
                             (sight == Sight::compressed_sparse    ? sparse
                              : sight == Sight::heavily_compressed ? heavy
                                                                   : 0);
    std::string sees = fmt::format("window:{}", window);
    if (sight == Sight::compressed_sparse) {
      sees += fmt::format(" and {} entries of {} tokens", indexer.keys, tokens.sparse);
    } else if (sight == Sight::heavily_compressed) {
      sees += fmt::format(" and all entries of {} tokens", tokens.heavy);
    }
    add_layer(kinds, {.kind = sight == Sight::window              ? "sliding attention"
                              : sight == Sight::compressed_sparse ? "compressed sparse attention"
                                                                  : "heavily compressed attention",
                      .attention = std::string(heads_word(m.q_heads, m.kv_heads)),
                      .mask = sees,
                      .mlp = "experts",
                      .parameters = all,
                      .active = all - idle});
  }
  return kinds;
}

}  // namespace spp::model_keys
