// A decoder so small that its costs are added up by hand.
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

}  // namespace spp::test
