// Families of diffusion transformers: what their published code says of a model and of the pipeline
// around it, and configs and tables of measurements leave out. A family is recognised by words in a
// model's name or class.
#pragma once

#include "transformer/model.hpp"

#include <cstdint>
#include <string_view>

namespace spp {

/// Where text meets the tokens: as tokens of the sequence, as such with weights of their own, or
/// attended to from outside the sequence.
enum class TextPlace : std::uint8_t { joint, streams, cross };

struct DiffusionFamily {
  std::string_view name;
  std::string_view words[4];  // lower case; "" for none
  TextPlace text = TextPlace::joint;
  std::int64_t text_tokens = 0;
  bool parallel_mlp = false;  // of layers with one stream
  bool rope = true, qk_norm = true, cross_norm = true, gated_mlp = false;
  std::int64_t modulation_width = 0;  // -1: hidden; 0: a table's
  int modulation_vectors = 0;
  std::int64_t frames = 0;  // factorised attention
  bool long_skips = false;
  bool guided = false;  // a denoising step is two passes, of prompt and of none
  bool apart = false;   // one after the other, not as a batch of two
  int steps = 50;       // of the pipeline, unless told
  double pixels = 256;  // of the result, that a token stands for
  double encoder = 0;   // weights of its text encoders
  std::string_view source;
};

/// By words in `name`, the longest found; nullptr: none.
const DiffusionFamily* diffusion_family(std::string_view name);
/// By a model's class; a name may only tell which of a maker's families it is (FLUX.1-schnell has
/// the class of FLUX.1). Without a class that is known, by the name.
const DiffusionFamily* diffusion_family(std::string_view class_name, std::string_view name);

/// Gives the model what its family says. Set before: widths, heads, layers, and
/// diffusion.two_streams of models whose layers are told apart.
void as_family(const DiffusionFamily& family, Model& model);

}  // namespace spp
