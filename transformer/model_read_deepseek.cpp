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

Sight sight_of_ratio(const JsonView& ratio) {
  const std::int64_t tokens = ratio.integer(0, 128);
  if (tokens != 0 && tokens != 4 && tokens != 128) {
    ratio.fail(fmt::format("{} is not 0, 4 or 128", tokens));
  }
  return tokens == 0   ? Sight::window
         : tokens == 4 ? Sight::compressed_sparse
                       : Sight::heavily_compressed;
}

/// By layer, and behind them of layers that predict, where a config says it: compress_ratios, of
/// older ones, does. A reason where a kind is not known.
std::optional<std::string> read_sights(const Published& p, std::vector<Sight>& sights) {
  if (const auto kinds = p.kinds()) {
    for (const std::string& kind : *kinds) {
      const auto sight = sight_of(kind);
      if (!sight) {
        return fmt::format("a mix of layers with {}", kind);
      }
      sights.push_back(*sight);
    }
    return std::nullopt;
  }
  const auto ratios = p.config.find("compress_ratios");
  if (!ratios) {
    p.assume("2 layers heavily compressed, then these and compressed sparse in turns");
    for (std::int64_t i = 0; i < p.model.layers; ++i) {
      sights.push_back(i >= 2 && i % 2 == 1 ? Sight::compressed_sparse : Sight::heavily_compressed);
    }
    return std::nullopt;
  }
  for (const JsonView& ratio : ratios->elements()) {
    sights.push_back(sight_of_ratio(ratio));
  }
  if (std::cmp_less(sights.size(), p.model.layers)) {
    ratios->fail(fmt::format("{} ratios for {} layers", sights.size(), p.model.layers));
  }
  return std::nullopt;
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

MetKeys keys_of(Sight sight, const Compression& tokens, std::int64_t window,
                const Indexer& indexer) {
  switch (sight) {
    case Sight::window:
      return {.window = window};
    case Sight::compressed_sparse:
      return {.window = window, .entry = tokens.sparse, .picked = indexer.keys};
    case Sight::heavily_compressed:
      return {.window = window, .entry = tokens.heavy};
  }
  throw InternalError("no such Sight");
}

/// Layers that predict are like the first whose attention is of their kind; else, or where nothing
/// says which that is, like the last.
void read_predicting(const Published& p, const std::vector<Sight>& sights) {
  Model& m = p.model;
  if (m.predict_layers == 0) {
    return;
  }
  const auto layers = sights.begin() + m.layers;
  const auto like = layers == sights.end() ? layers : std::find(sights.begin(), layers, *layers);
  if (like == layers) {
    m.assumed.emplace_back("layers that predict further tokens are like the last one");
  } else {
    m.predict_like = like - sights.begin();
  }
}

GroupedOutput grouped_output_of(const Published& p) {
  const GroupedOutput output{.groups = static_cast<int>(p.number("o_groups", 8, most_heads)),
                             .rank = p.number("o_lora_rank", 1024, most_width)};
  if (p.model.q_heads % output.groups != 0) {
    p.config.fail(fmt::format("o_groups: {} do not divide {} attention heads", output.groups,
                              p.model.q_heads));
  }
  return output;
}

}  // namespace

std::optional<std::string> read_compressed(const Published& p) {
  Model& m = p.model;
  const Indexer indexer = indexer_of(p, 512);
  std::vector<Sight> sights;
  if (auto reason = read_sights(p, sights)) {
    return reason;
  }
  if (m.kv_heads != 1) {
    return "compressed attention of several key heads";
  }
  const Compression tokens = compression_of(p);
  const std::int64_t window = p.number("sliding_window", 128, most_tokens);
  m.latent.q_rank = p.number("q_lora_rank", 1024, most_width);
  m.grouped_output = grouped_output_of(p);
  const std::vector<bool> by_table = routed_by_table(p);
  m.streams = static_cast<int>(p.number("hc_mult", 4, most_heads));
  m.indexer = indexer;
  for (std::size_t i = 0; i < by_table.size(); ++i) {
    m.blocks.push_back({.mixer = Mixer::compressed,
                        .feed = !m.experts.routes(static_cast<std::int64_t>(i)) ? Feed::mlp
                                : by_table[i]                                   ? Feed::tabled
                                                                                : Feed::experts,
                        .keys = keys_of(sights[i], tokens, window, indexer)});
  }
  read_predicting(p, sights);
  return std::nullopt;
}

}  // namespace spp::model_keys
