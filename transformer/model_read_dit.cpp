// Diffusion transformers. Their configs name the shape, their code the rest; what is here was taken
// from the published code of each family:
//   two streams (FLUX, HunyuanVideo, Qwen-Image, SD3): image and text tokens attend together, each
//     with weights of its own in "double" blocks (modulation 2 x 6 hidden^2), with common ones in
//     "single" blocks (3 hidden^2), whose attention and MLP run side by side.
//   cross-attention (Wan, LTX): each layer attends to the text besides; one modulation for all
//   layers. one stream (CogVideoX): text and video share the weights; two modulations of 6 hidden a
//   layer
//     from a time embedding.
//   Z-Image: one stream, SwiGLU 8/3 hidden wide, modulation of 4 hidden from 256, refiner layers.
//   others: adaLN-Zero of DiT (arXiv:2212.09748), 6 hidden^2 a layer.
#include "base/error.hpp"
#include "transformer/diffusion_family.hpp"
#include "transformer/model_read.hpp"

#include <cmath>

namespace spp::model_keys {
namespace {

constexpr std::int64_t usual_text_tokens = 512;  // T5 in Wan and LTX
constexpr std::int64_t time_embedding = 512;     // CogVideoX: time_embed_dim unless told
constexpr std::int64_t z_image_embedding = 256;  // ADALN_EMBED_DIM

void read_heads(const JsonView& config, Model& model) {
  const JsonView heads =
      need_any(config, {"num_attention_heads", "heads_num", "n_heads", "num_heads"});
  model.q_heads = static_cast<int>(heads.integer(1, most_heads));
  model.kv_heads = model.q_heads;
  if (const auto kv = find_any(config, {"num_key_value_heads", "n_kv_heads", "num_kv_heads"})) {
    model.kv_heads = static_cast<int>(kv->integer(1, most_heads));
    if (model.q_heads % model.kv_heads != 0) {
      kv->fail(fmt::format("{} key/value heads do not divide {} attention heads", model.kv_heads,
                           model.q_heads));
    }
  }
  const auto dim = find_any(config, {"attention_head_dim", "head_dim"});
  if (dim) {
    model.head_dim = static_cast<int>(dim->integer(1, most_head_dim));
  }
  if (const auto hidden = find_any(config, {"hidden_size", "dim", "inner_dim"})) {
    model.hidden = hidden->integer(1, most_width);
    if (!dim && model.hidden % model.q_heads != 0) {
      heads.fail(
          fmt::format("{} heads do not divide the hidden size {}, and there is no "
                      "attention_head_dim",
                      model.q_heads, model.hidden));
    }
    if (!dim) {
      model.head_dim = static_cast<int>(model.hidden / model.q_heads);
    }
  } else if (dim) {
    model.hidden = model.q_width();
    if (model.hidden > most_width) {
      dim->fail(fmt::format("{} heads of {} are wider than {}", model.q_heads, model.head_dim,
                            most_width));
    }
  } else {
    (void)need_any(config, {"attention_head_dim", "head_dim"});
  }
}

bool is_mochi(std::string_view class_name) { return class_name.starts_with("Mochi"); }

struct Blocks {
  std::int64_t two_streams = 0;
  bool split = false;  // the config tells two-stream from one-stream layers
};

Blocks read_layers(const JsonView& config, Model& model) {
  const auto twice = find_any(config, {"mm_double_blocks_depth", "double_blocks"});
  const auto once =
      find_any(config, {"mm_single_blocks_depth", "single_blocks", "num_single_layers"});
  const auto all = find_any(config, {"num_layers", "n_layers", "depth"});
  if (twice && once) {  // num_layers, if given, is their sum
    const std::int64_t two = twice->integer(0, most_layers);
    model.layers = two + once->integer(0, most_layers);
    if (model.layers == 0) {
      twice->fail("no layers at all");
    }
    if (all && all->integer(1, 2 * most_layers) != model.layers) {
      all->fail(fmt::format("{} is not {} double + {} single layers",
                            all->integer(1, 2 * most_layers), two, model.layers - two));
    }
    return {.two_streams = two, .split = true};
  }
  const JsonView layers = need_any(config, {"num_layers", "n_layers", "depth"});
  const std::int64_t number = layers.integer(1, most_layers);
  model.layers = number + (once ? once->integer(0, most_layers) : 0);
  return {.two_streams = number, .split = once.has_value()};
}

void read_mlp(const JsonView& config, const std::string& class_name, bool z_image, Model& model) {
  const auto act = find_any(config, {"act_fn", "activation_fn"});
  model.gated_mlp =
      z_image || class_name.starts_with("Flux2") ||
      (act && act->value().is_string() && (act->string() == "swiglu" || act->string() == "geglu"));
  const bool two_thirds = is_mochi(class_name);  // of 4 x hidden, gated
  if (const auto ffn = find_any(config, {"ffn_dim", "intermediate_size", "ffn_hidden_size"})) {
    model.ffn = ffn->integer(1, most_ffn);
    return;
  }
  if (const auto ratio = find_any(config, {"mlp_ratio", "mlp_width_ratio"})) {
    constexpr double largest = 64;
    const double value = ratio->number();
    const double width = value * static_cast<double>(model.hidden);
    if (!(value > 0) || value > largest || width < 1 || width > static_cast<double>(most_ffn)) {
      ratio->fail(fmt::format("{} is not an MLP width in hidden sizes (above 0, at most {})", value,
                              largest));
    }
    model.ffn = std::llround(width);
    return;
  }
  const bool thirds = z_image || two_thirds;
  model.ffn = thirds ? model.hidden * 8 / 3 : 4 * model.hidden;
  model.assumed.push_back(
      fmt::format("MLP width {} x hidden (not in the config)", thirds ? "8/3" : "4"));
}

/// Text that the layers attend to besides: Wan, LTX.
std::int64_t cross_tokens(const JsonView& config, const std::string& class_name, Model& model) {
  const auto said = config.find("attention");
  const bool crosses =
      config.find("cross_attention_dim") || class_name.starts_with("Wan") ||
      (said && said->value().is_string() && said->string().find("cross") != std::string::npos);
  if (!crosses) {
    return 0;
  }
  if (const auto text = config.find("text_len")) {
    return text->integer(1, most_ffn);
  }
  model.assumed.push_back(
      fmt::format("{} text tokens in cross-attention (no text_len)", usual_text_tokens));
  return usual_text_tokens;
}

/// Text that stands in the sequence.
std::int64_t joint_tokens(const JsonView& config, const DiffusionFamily* family) {
  if (const auto text = find_any(config, {"text_len", "max_text_seq_length"})) {
    return text->integer(1, most_ffn);
  }
  return family != nullptr && family->text != TextPlace::cross ? family->text_tokens : 0;
}

/// A text stream narrower than the image's (Mochi: pooled_projection_dim, its MLP by as much)
/// weighs less than the list of operations, which has both alike.
void narrow_text_stream(const JsonView& config, Model& model) {
  const auto text = config.find("pooled_projection_dim");
  if (!text) {
    return;
  }
  const std::int64_t width = text->integer(1, most_width);
  const std::int64_t spared = std::max<std::int64_t>(0, model.hidden - width);
  const std::int64_t ffn = model.ffn * width / model.hidden;
  const std::int64_t of_layer = spared * model.hidden * (4 + model.diffusion.modulation_vectors) +
                                3 * (model.hidden * model.ffn - width * ffn);
  model.extra_parameters -= model.diffusion.two_streams * of_layer;
  model.assumed.push_back(fmt::format(
      "the text stream takes the time of one {} wide; it is {} wide", model.hidden, width));
}

}  // namespace

void read_diffusion(const JsonView& config, Model& model) {
  const auto class_key = config.find("_class_name");
  const std::string class_name = class_key ? class_key->string() : "";
  const auto refiners = config.find("n_refiner_layers");
  model.kind = ModelKind::dit;
  model.mask = {.kind = MaskKind::full};
  read_heads(config, model);
  const Blocks blocks = read_layers(config, model);
  read_mlp(config, class_name, refiners.has_value(), model);
  model.qk_norm = true;
  model.attention_bias = model.output_bias = model.mlp_bias = !refiners;

  const bool joint = blocks.split || config.find("joint_attention_dim").has_value();
  const DiffusionFamily* family = diffusion_family(class_name, model.name);
  model.diffusion.family = family;
  const bool streams_by_family =
      family != nullptr && family->text == TextPlace::streams && !refiners;
  model.cross_tokens =
      refiners || joint || streams_by_family ? 0 : cross_tokens(config, class_name, model);
  const std::int64_t square = model.hidden * model.hidden;
  DiffusionBlocks& d = model.diffusion;
  if (family != nullptr) {
    model.rope = family->rope;
    model.qk_norm = family->qk_norm;
    d.cross_norm = family->cross_norm;
  }
  if (refiners) {
    const std::int64_t number = refiners->integer(0, most_layers);  // noise and context each
    const std::int64_t modulation = z_image_embedding * 4 * model.hidden;
    model.extra_parameters = modulation * number + 2 * number * model.layer_parameters();
    model.assumed.push_back(fmt::format("{} refiner layers cost memory, no time", 2 * number));
    d.modulation_width = z_image_embedding;
    d.modulation_vectors = 4;
  } else if (joint || streams_by_family) {
    d.two_streams = blocks.two_streams;
    d.parallel_mlp = blocks.split && (family == nullptr || family->parallel_mlp);
    d.modulation_width = model.hidden;
    d.modulation_vectors = streams_by_family ? family->modulation_vectors : 6;
    if (d.modulation_vectors == 0) {  // of both streams, and of one, for all layers in common
      d.modulation_width = 0;
      model.extra_parameters = (2 * 6 + 3) * square;
    }
    if (is_mochi(class_name)) {
      narrow_text_stream(config, model);
    }
  } else if (model.cross_tokens > 0) {
    model.extra_parameters = 6 * square;
  } else if (config.find("text_embed_dim")) {
    const auto time = config.find("time_embed_dim");
    d.modulation_width = time ? time->integer(1, most_width) : time_embedding;
    d.modulation_vectors = 2 * 6;
  } else {
    d.modulation_width = model.hidden;
    d.modulation_vectors = 6;
  }
  if (model.cross_tokens == 0) {
    d.joint_tokens = joint_tokens(config, family);
  }

  std::vector<std::string> reasons;
  if (auto text = experts(config, model.layers)) {
    reasons.push_back(std::move(*text));
  }
  if (class_name.starts_with("Sana")) {
    reasons.push_back(fmt::format("linear attention ({})", class_name));
  }
  model.not_costed = not_costed_line(reasons);
}

}  // namespace spp::model_keys
