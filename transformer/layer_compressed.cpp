// DeepSeek-V4's attention (arXiv:2606.19348, section 2.3): one key for all heads that is its own
// value; a query meets those of a window, and in most layers entries made of the tokens before it:
// of few tokens each, of which an indexer picks the best (compressed sparse attention), or of many,
// all of them (heavily compressed attention). Operations and weights as the official
// inference/model.py and transformers' DeepseekV4Attention have them, kernels as frameworks fuse
// them: heads of Q are normed, without gains, where positions are turned into them.
//
// Keys and entries are whole on every tensor rank, which shares the heads; an indexer is as in
// layer_sparse.cpp. Positions are turned out of the output's heads again, whose groups come down
// apart.
#include "transformer/layer_writer.hpp"

namespace spp {
namespace {

struct Compressor {
  std::string_view project, pool, norm;
  std::int64_t width = 0;
  bool detached = false;
};

/// What stands for `entry` tokens: their projections in fp32, pooled by a softmax of others,
/// channel by channel, with a bias of each place among them; normed. Entries that an indexer picks
/// overlap: each is made of as many tokens before its own, too, by projections of their own.
LayerTensorId entries_of(const Model& model, ListWriter& list, LayerTensorId y, const MetKeys& keys,
                         const Compressor& made) {
  const std::int64_t series = (keys.picked > 0 ? 2 : 1) * made.width;
  const Cut cut = made.detached ? Cut::whole : Cut::rows;
  const LayerTensorId projected =
      list.tensor({.name = made.project, .width = 2 * series, .cut = cut, .fp32 = true});
  list.add({.name = made.project,
            .work = Linear{.in = model.hidden,
                           .out = 2 * series,
                           .detached = made.detached,
                           .width = GemmWidth::wide},
            .reads = {y},
            .writes = {projected},
            .keeps = {y}});
  const LayerTensorId pooled =
      list.tensor({.name = made.pool, .width = made.width, .rows = Rows::entries, .cut = cut});
  list.add({.name = made.pool,
            .work = RowWise{.weights = keys.entry * series},
            .reads = {projected},
            .writes = {pooled},
            .keeps = {projected}});
  return list.rms_norm(made.norm, pooled);
}

struct Placed {
  LayerTensorId q, keys, entries;  // entries: none in a layer that sees its window alone
};

Placed queries_and_keys(const Model& model, ListWriter& list, LayerTensorId y,
                        LayerTensorId q_latent, const MetKeys& keys) {
  const ModuleSet up{RecomputeModule::mla_up};
  const std::int64_t dim = model.head_dim;
  const LayerTensorId q = list.linear(
      "q up", q_latent,
      {.in = model.latent.q_rank, .out = model.q_width(), .shard = Shard::columns}, up, dim);
  const LayerTensorId kv =
      list.rms_norm("kv norm", list.linear("kv", y, {.in = model.hidden, .out = dim}));
  Placed placed{.q = list.like("rope", q),
                .keys = list.tensor({.name = "keys", .width = dim, .cut = Cut::whole}),
                .entries = {}};
  TensorOp rope{.name = "rope",
                .work = RowWise{.in_place = true, .in_position = InPosition::turned},
                .reads = {q, kv},
                .writes = {placed.q, placed.keys},
                .keeps = {q},
                .modules = up};
  if (keys.entry > 0) {
    rope.reads.push_back(
        entries_of(model, list, y, keys,
                   {.project = "compress", .pool = "pool", .norm = "entry norm", .width = dim}));
    placed.entries =
        list.tensor({.name = "entries", .width = dim, .rows = Rows::entries, .cut = Cut::whole});
    rope.writes.push_back(placed.entries);
  }
  list.add(rope);
  return placed;
}

LayerTensorId grouped_output(const Model& model, ListWriter& list, LayerTensorId attended) {
  const GroupedOutput& grouped = *model.grouped_output;
  const LayerTensorId turned = list.like("rope out", attended);
  list.add({.name = "rope out",
            .work = RowWise{},
            .reads = {attended},
            .writes = {turned},
            .modules = {RecomputeModule::mla_up}});
  const LayerTensorId down = list.linear("out down", turned,
                                         {.in = model.q_width(),
                                          .out = grouped.groups * grouped.rank,
                                          .shard = Shard::heads,
                                          .heads = grouped.groups},
                                         {}, grouped.rank);
  return attention_output(model, list, down);
}

}  // namespace

LayerTensorId compressed_attention(const Model& model, ListWriter& list, LayerTensorId stream,
                                   const MetKeys& keys) {
  const Branch branch = branch_from(model, list, attention_branch, stream);
  const LayerTensorId y = list.norm("norm 1", branch.x, model);
  const LayerTensorId q_latent = query_latent(model, list, y);
  if (keys.entry > 0) {
    list.make_entries(keys.entry);
  }
  const Placed placed = queries_and_keys(model, list, y, q_latent, keys);
  LayerTensors reads{placed.q, placed.keys};
  LayerTensors cached{list.tensor({.name = "window",
                                   .width = keys.window * model.head_dim,
                                   .rows = Rows::sequence,
                                   .cut = Cut::whole})};
  if (placed.entries.valid()) {
    reads.push_back(placed.entries);
    cached.push_back(placed.entries);
  }
  if (keys.picked > 0) {
    const LayerTensorId index_q = index_queries(model, list, q_latent);
    LayerTensorId index_k = entries_of(model, list, y, keys,
                                       {.project = "index compress",
                                        .pool = "index pool",
                                        .norm = "index norm",
                                        .width = model.indexer->dim,
                                        .detached = true});
    reads.push_back(picked_keys(model, list, y, index_q, keys, index_k));
    cached.push_back(index_k);
  }
  list.cache(cached);
  AttentionCall call = attention_over(model, Rows::tokens);
  call.meets = keys;
  const LayerTensorId attended = list.attention("attention", call, reads);
  return merge(list, branch, grouped_output(model, list, attended));
}

}  // namespace spp
