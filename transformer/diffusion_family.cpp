#include "transformer/diffusion_family.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace spp {
namespace {

constexpr std::int64_t of_hidden = -1;

constexpr std::array families{
    DiffusionFamily{.name = "FLUX.1",
                    .words = {"flux", "", "", ""},
                    .text = TextPlace::streams,
                    .text_tokens = 512,
                    .parallel_mlp = true,
                    .modulation_width = of_hidden,
                    .modulation_vectors = 6,
                    .steps = 28,
                    .encoder = 4.9e9,
                    .source =
                        "black-forest-labs/flux 0130c27497 src/flux/modules/layers.py; diffusers "
                        "pipeline_flux.py: 28 steps, T5-XXL with 512 tokens and CLIP-L"},
    DiffusionFamily{.name = "FLUX.1-schnell",
                    .words = {"flux.1-schnell", "flux-schnell", "flux.1 schnell", "schnell"},
                    .text = TextPlace::streams,
                    .text_tokens = 256,
                    .parallel_mlp = true,
                    .modulation_width = of_hidden,
                    .modulation_vectors = 6,
                    .steps = 4,
                    .encoder = 4.9e9,
                    .source = "the same; 256 tokens of T5, 1 to 4 steps"},
    DiffusionFamily{.name = "FLUX.2",
                    .words = {"flux.2", "flux2", "flux-2", ""},
                    .text = TextPlace::streams,
                    .text_tokens = 512,
                    .parallel_mlp = true,
                    .gated_mlp = true,
                    .steps = 50,
                    .encoder = 24e9,
                    .source = "diffusers transformer_flux2.py: modulation of all blocks in common"},
    DiffusionFamily{.name = "HunyuanVideo",
                    .words = {"hunyuanvideo", "hunyuan-video", "hunyuan video", "hyvideo"},
                    .text = TextPlace::streams,
                    .text_tokens = 256,
                    .parallel_mlp = true,
                    .modulation_width = of_hidden,
                    .modulation_vectors = 6,
                    .steps = 50,
                    .pixels = 1024,
                    .encoder = 8e9,
                    .source = "Tencent-Hunyuan/HunyuanVideo fa14b001c1 hyvideo/modules/models.py; "
                              "guidance is an embedding"},
    DiffusionFamily{.name = "HunyuanDiT",
                    .words = {"hunyuandit", "hunyuan-dit", "hunyuan dit", ""},
                    .text = TextPlace::cross,
                    .text_tokens = 333,
                    .modulation_width = of_hidden,
                    .modulation_vectors = 1,
                    .long_skips = true,
                    .guided = true,
                    .encoder = 2e9,
                    .source = "diffusers hunyuan_transformer_2d.py: 77 + 256 text tokens"},
    DiffusionFamily{.name = "Wan",
                    .words = {"wan2", "wan 2", "wanmodel", "wantransformer"},
                    .text = TextPlace::cross,
                    .text_tokens = 512,
                    .guided = true,
                    .apart = true,
                    .pixels = 1024,
                    .encoder = 5.7e9,
                    .source = "Wan-Video/Wan2.1 aa843f59af wan/modules/model.py, "
                              "wan/text2video.py: two calls a step, 50 steps; umT5-XXL"},
    DiffusionFamily{.name = "CogVideoX",
                    .words = {"cogvideo", "consisid", "", ""},
                    .text = TextPlace::joint,
                    .text_tokens = 226,
                    .modulation_width = 512,
                    .modulation_vectors = 12,
                    .guided = true,
                    .pixels = 1024,
                    .encoder = 4.8e9,
                    .source = "diffusers cogvideox_transformer_3d.py: one stream, two norms "
                              "modulated from 512 each; 226 tokens of T5-XXL"},
    DiffusionFamily{.name = "Latte",
                    .words = {"latte", "", "", ""},
                    .text = TextPlace::cross,
                    .text_tokens = 120,
                    .rope = false,
                    .qk_norm = false,
                    .cross_norm = false,
                    .frames = 16,
                    .guided = true,
                    .encoder = 4.8e9,
                    .source = "diffusers latte_transformer_3d.py: num_layers spatial layers with "
                              "text, as many temporal ones without; 120 tokens of T5-XXL"},
    DiffusionFamily{.name = "PixArt-alpha",
                    .words = {"pixart", "pixart-alpha", "pixartalpha", ""},
                    .text = TextPlace::cross,
                    .text_tokens = 120,
                    .rope = false,
                    .qk_norm = false,
                    .cross_norm = false,
                    .guided = true,
                    .steps = 20,
                    .encoder = 4.8e9,
                    .source = "diffusers pixart_transformer_2d.py, pipeline_pixart_alpha.py: 20 "
                              "steps, 120 tokens of T5-XXL"},
    DiffusionFamily{.name = "PixArt-Sigma",
                    .words = {"pixart-sigma", "pixartsigma", "pixart sigma", ""},
                    .text = TextPlace::cross,
                    .text_tokens = 300,
                    .rope = false,
                    .qk_norm = false,
                    .cross_norm = false,
                    .guided = true,
                    .steps = 20,
                    .encoder = 4.8e9,
                    .source = "diffusers pipeline_pixart_sigma.py: 20 steps, 300 tokens"},
    DiffusionFamily{.name = "Stable Diffusion 3",
                    .words = {"stable-diffusion-3", "stable diffusion 3", "sd3", "sd-3"},
                    .text = TextPlace::streams,
                    .text_tokens = 333,
                    .rope = false,
                    .qk_norm = false,
                    .modulation_width = of_hidden,
                    .modulation_vectors = 6,
                    .guided = true,
                    .steps = 28,
                    .encoder = 5.6e9,
                    .source = "arXiv:2403.03206; diffusers pipeline_stable_diffusion_3.py: 28 "
                              "steps, 77 + 256 text tokens"},
    DiffusionFamily{.name = "Qwen-Image",
                    .words = {"qwen-image", "qwenimage", "qwen image", ""},
                    .text = TextPlace::streams,
                    .text_tokens = 256,
                    .modulation_width = of_hidden,
                    .modulation_vectors = 6,
                    .guided = true,
                    .apart = true,
                    .encoder = 8.3e9,
                    .source = "diffusers transformer_qwenimage.py, pipeline_qwenimage.py: 50 "
                              "steps, two calls each; text as long as the prompt (256 assumed)"},
    DiffusionFamily{.name = "Z-Image",
                    .words = {"z-image", "zimage", "z image", ""},
                    .text = TextPlace::joint,
                    .text_tokens = 512,
                    .gated_mlp = true,
                    .modulation_width = 256,
                    .modulation_vectors = 4,
                    .steps = 9,
                    .encoder = 4e9,
                    .source = "vllm-project/vllm-omni z_image_transformer.py; Turbo: 9 steps, no "
                              "guidance"},
    DiffusionFamily{.name = "Mochi",
                    .words = {"mochi", "", "", ""},
                    .text = TextPlace::streams,
                    .text_tokens = 256,
                    .gated_mlp = true,
                    .modulation_width = of_hidden,
                    .modulation_vectors = 4,
                    .guided = true,
                    .steps = 64,
                    .pixels = 1536,
                    .encoder = 4.8e9,
                    .source = "genmo mochi-1, diffusers transformer_mochi.py: its text stream is "
                              "narrower, which is not modelled; 64 steps"},
    DiffusionFamily{
        .name = "LTX-Video",
        .words = {"ltx", "", "", ""},
        .text = TextPlace::cross,
        .text_tokens = 128,
        .cross_norm = false,
        .guided = true,
        .pixels = 8192,
        .encoder = 4.8e9,
        .source = "diffusers transformer_ltx.py, pipeline_ltx.py: 50 steps, 128 tokens"},
    DiffusionFamily{.name = "Step-Video",
                    .words = {"step-video", "stepvideo", "step video", ""},
                    .text = TextPlace::cross,
                    .text_tokens = 320,
                    .guided = true,
                    .pixels = 2048,
                    .encoder = 9e9,
                    .source = "stepfun-ai/Step-Video-T2V: 30B, cross-attention, 50 steps"},
};

struct Match {
  const DiffusionFamily* family = nullptr;
  std::size_t word = 0;  // letters of the longest word found
};

Match matched(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  Match best;
  for (const DiffusionFamily& family : families) {
    for (const std::string_view word : family.words) {
      if (word.size() > best.word && lower.find(word) != std::string::npos) {
        best = {.family = &family, .word = word.size()};
      }
    }
  }
  return best;
}

}  // namespace

const DiffusionFamily* diffusion_family(std::string_view name) { return matched(name).family; }

const DiffusionFamily* diffusion_family(std::string_view class_name, std::string_view name) {
  const Match by_class = matched(class_name);
  const Match by_name = matched(name);
  if (by_class.family == nullptr || by_name.family == nullptr) {
    return by_class.family != nullptr ? by_class.family : by_name.family;
  }
  const auto maker = [](const DiffusionFamily& family) {
    return family.name.substr(0, family.name.find_first_of(".- "));
  };
  return maker(*by_class.family) == maker(*by_name.family) && by_name.word > by_class.word
             ? by_name.family
             : by_class.family;
}

void as_family(const DiffusionFamily& family, Model& model) {
  DiffusionBlocks& d = model.diffusion;
  d.family = &family;
  model.rope = family.rope;
  model.qk_norm = family.qk_norm;
  model.cross_tokens = family.text == TextPlace::cross ? family.text_tokens : 0;
  d.joint_tokens = family.text == TextPlace::cross ? 0 : family.text_tokens;
  d.parallel_mlp = family.parallel_mlp;
  d.cross_norm = family.cross_norm;
  d.modulation_width =
      family.modulation_width == of_hidden ? model.hidden : family.modulation_width;
  d.modulation_vectors = family.modulation_vectors;
  d.long_skips = family.long_skips;
  d.frames = family.frames;
}

}  // namespace spp
