// Decoders so small that their costs are added up by hand.
#pragma once

#include "transformer/model.hpp"

namespace spp::test {

/// Q and O 8 wide, K and V 4, MLP 16, 2 layers, 10 words.
///   matrices of a layer: 8*(8 + 2*4) + 8*8 + 3*8*16 = 576; norms 16: 592 weights.
///   2 * 592 + embedding 80 + loss head 80 + final norm 8 = 1352 weights.
inline Model tiny_model() {
  Model model;
  model.name = "tiny";
  model.layers = 2;
  model.hidden = 8;
  model.q_heads = 4;
  model.kv_heads = 2;
  model.head_dim = 2;
  model.ffn = 16;
  model.vocab = 10;
  return model;
}

/// On 2 residual streams, 4 heads of 4 that share a key, Q from a latent of 6, outputs in 2 groups
/// of 3; a layer that sees a window of 2, one that picks 3 entries of 2 tokens besides, by 2 heads
/// of 4, and one with all entries of 4.
inline Model compressed_model() {
  Model model = tiny_model();
  model.layers = 3;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.latent.q_rank = 6;
  model.streams = 2;
  model.grouped_output = GroupedOutput{.groups = 2, .rank = 3};
  model.indexer = Indexer{.heads = 2, .dim = 4, .keys = 3};
  model.attention_sinks = true;
  for (const MetKeys& keys : {MetKeys{.window = 2}, MetKeys{.window = 2, .entry = 2, .picked = 3},
                              MetKeys{.window = 2, .entry = 4}}) {
    model.blocks.push_back({.mixer = Mixer::compressed, .keys = keys});
  }
  return model;
}

}  // namespace spp::test
