// Latent attention to the keys that an indexer picks (DeepSeek-V3.2, arXiv:2512.02556,
// section 2.1), as kernels for it run it, trained or not: in the latents' space, where all heads
// share a key and its value (appendix A; FlashMLA 066b5ba6, flash_mla_sparse_fwd). So K's part of
// the projection up is multiplied into q, head by head, and V's into what attention gives.
//
// On every tensor rank the indexer is whole and meets all rows, as in Megatron-LM (#2440) and in
// vLLM: which keys are picked is the same for all heads. Its inputs get no gradient.
#include "transformer/layer_writer.hpp"

namespace spp {

LayerTensorId index_queries(const Model& model, ListWriter& list, LayerTensorId q_latent) {
  const Indexer& indexer = *model.indexer;
  const std::int64_t width = std::int64_t{indexer.heads} * indexer.dim;
  return list.linear("index q", q_latent,
                     {.in = model.latent.q_rank, .out = width, .detached = true}, {}, indexer.dim);
}

LayerTensorId picked_keys(const Model& model, ListWriter& list, LayerTensorId y, LayerTensorId q,
                          const MetKeys& keys, LayerTensorId& index_k) {
  const Indexer& indexer = *model.indexer;
  const LayerTensorId weights =
      list.linear("index weights", y, {.in = model.hidden, .out = indexer.heads, .detached = true});
  const LayerTensorId q_placed = list.like("index rope", q);
  const LayerTensorId k_placed = list.like("index rope", index_k);
  list.add({.name = "index rope",
            .work = RowWise{.in_place = true},
            .reads = {q, index_k},
            .writes = {q_placed, k_placed}});
  index_k = k_placed;
  const LayerTensorId picked = list.tensor(
      {.name = "picked", .width = keys.picked, .cut = Cut::whole, .fp32 = true});  // 32 bits each
  list.add({.name = "pick",
            .work = PickCall{.indexer = indexer, .meets = keys},
            .reads = {q_placed, index_k, weights},
            .writes = {picked},
            .keeps = {q_placed, index_k, weights},
            .modules = {RecomputeModule::core_attention}});
  return picked;
}

LayerTensorId picked_attention(const Model& model, ListWriter& list, LayerTensorId x,
                               const MetKeys& met) {
  const Latent& latent = model.latent;
  const ModuleSet up{RecomputeModule::mla_up};
  const int n = model.q_heads;
  const auto rank = static_cast<int>(latent.kv_rank);
  const int width = rank + latent.rope_dim;
  const LayerTensorId y = list.norm("norm 1", x, model);
  const LayerTensorId q_latent = query_latent(model, list, y);
  const KeyLatents from = key_latents(model, list, y);
  const LayerTensorId content = list.tensor(heads_tensor("q content", n, latent.nope_dim));
  const LayerTensorId position = list.tensor(heads_tensor("q position", n, latent.rope_dim));
  list.add({.name = "q up",
            .work = Linear{.in = latent.q_rank, .out = model.q_width(), .shard = Shard::columns},
            .reads = {q_latent},
            .writes = {content, position},
            .keeps = {q_latent},
            .modules = up});
  const LayerTensorId absorbed = list.linear("q to latent", content,
                                             {.in = std::int64_t{n} * latent.nope_dim,
                                              .out = std::int64_t{n} * rank,
                                              .shard = Shard::heads,
                                              .heads = n},
                                             up, rank);
  const LayerTensorId q = list.tensor(heads_tensor("q", n, width));
  const LayerTensorId keys = list.tensor({.name = "keys", .width = width, .cut = Cut::whole});
  list.add({.name = "rope",
            .work = RowWise{.in_position = InPosition::turned},
            .reads = {absorbed, position, from.kv, from.position},
            .writes = {q, keys},
            .modules = up});
  const Indexer& indexer = *model.indexer;
  const LayerTensorId index_q = index_queries(model, list, q_latent);
  LayerTensorId index_k = list.norm(
      "index norm",
      list.linear("index k", y, {.in = model.hidden, .out = indexer.dim, .detached = true}),
      2 * std::int64_t{indexer.dim});
  const LayerTensorId picked = picked_keys(model, list, y, index_q, met, index_k);
  list.cache({keys, index_k});
  const LayerTensorId attended = list.attention(
      "attention",
      {.q_heads = n, .kv_heads = 1, .head_dim = width, .value_dim = rank, .meets = met},
      {q, keys, picked});
  const LayerTensorId values = list.linear("latent to v", attended,
                                           {.in = std::int64_t{n} * rank,
                                            .out = std::int64_t{n} * latent.value_dim,
                                            .shard = Shard::heads,
                                            .heads = n},
                                           {}, latent.value_dim);
  return list.residual("residual 1", x, attention_output(model, list, values));
}

}  // namespace spp
