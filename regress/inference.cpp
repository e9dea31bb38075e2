#include "regress/inference.hpp"

#include "base/error.hpp"
#include "machine/gemm_cost.hpp"
#include "planner/step.hpp"
#include "regress/point_model.hpp"
#include "transformer/diffusion_family.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace spp::regress {
namespace {

bool is_diffusion(const Point& p) {
  return p.mask == PointMask::full || !p.blocks.empty() || diffusion_family(p.model) != nullptr;
}

std::string why_not_inference(const Point& p) {
  if (p.pipefusion > 1) {
    return "PipeFusion, whose patches attend to activations of the step before, is not modelled";
  }
  if (p.beyond) {
    return "not a plan of Ulysses x ring (beyond)";
  }
  if (!p.seq) {
    return "the length is not stated";
  }
  if ((!p.ulysses || !p.ring) && !p.cp && p.world != p.tp * p.pp * p.dp * p.cfg) {
    return "degrees of Ulysses and ring are not stated";
  }
  if (!p.layers || !p.hidden || !p.q_heads || !p.head_dim) {
    return "the model's layers or widths are not stated";
  }
  if (contains(p.task, "decode") || contains(p.call, "decode")) {
    return "decoding is not modelled";
  }
  if (p.pp > 1 && is_diffusion(p)) {
    return "a pipeline of denoising steps is not modelled";
  }
  if (p.packs()) {
    return "packed documents whose lengths are not given";
  }
  if (p.metric != Metric::time && p.metric != Metric::memory && p.metric != Metric::tokens_per_s) {
    return fmt::format("{} of an inference is not predicted", to_string(p.metric));
  }
  return "";
}

class InferenceReader {
 public:
  InferenceReader(const Point& point, const Request& request) : p_(point), request_(request) {}

  InferencePoint read() {
    result_.refused = why_not_inference(p_);
    if (!result_.refused.empty()) {
      return std::move(result_);
    }
    result_.model = stated_model(p_, request_.problem.mask, result_.assumed);
    result_.seq = *p_.seq;
    result_.compiled = says_compiled(p_);
    plan();
    if (is_diffusion(p_)) {
      diffusion();
    } else {
      prefill();
    }
    return std::move(result_);
  }

 private:
  void assume(std::string what, std::string value, std::string source = "default") {
    result_.assumed.push_back(
        {.what = std::move(what), .value = std::move(value), .source = std::move(source)});
  }

  void plan() {
    StepPlan& plan = result_.plan;
    plan.tensor = p_.tp;
    plan.pipeline = p_.pp;  // one batch, from stage to stage
    plan.data = p_.dp * p_.cfg;
    plan.expert = p_.ep.value_or(1);
    plan.expert_tensor = p_.etp.value_or(1);
    plan.to_experts = dispatchers_of(request_).front();
    // Engines of inference all-reduce; what GPUs hold between GEMMs is short.
    plan.tensor_sequence = p_.tp_sequence_parallel.value_or(false);
    plan.zero = p_.zero.value_or(0);
    plan.zero_group = p_.zero_group.value_or(0);
    plan.micro_batch = std::max<std::int64_t>(1, p_.batch.value_or(1) / p_.dp);
    const std::string_view said = p_.dtype;
    if (contains(said, "fp8")) {
      plan.format = GemmFormat::fp8;
      plan.wide_attention = contains(said, "bf16 attention") || contains(said, "fp16 attention");
    }
  }

  /// The sequence is what is new.
  void prefill() {
    const std::int64_t fresh = p_.new_tokens.value_or(*p_.seq);
    if (fresh > *p_.seq) {
      result_.refused = fmt::format("{} new tokens of {}", fresh, *p_.seq);
      return;
    }
    result_.seq = fresh;
    result_.cached = *p_.seq - fresh;
  }

  /// "19 double + 38 single": the first number.
  [[nodiscard]] std::optional<std::int64_t> stated_streams() const {
    std::int64_t number = 0;
    const char* const first = p_.blocks.data();
    const auto [end, error] = std::from_chars(first, first + p_.blocks.size(), number);
    const bool there =
        error == std::errc{} && contains(p_.blocks, "double") && number <= *p_.layers;
    return there ? std::optional(number) : std::nullopt;
  }

  void diffusion() {
    Model& m = result_.model;
    const DiffusionFamily* family = diffusion_family(p_.model);
    m.kind = ModelKind::dit;
    m.vocab = 0;
    m.mask = {.kind = MaskKind::full};
    m.attention_bias = m.output_bias = m.mlp_bias = true;
    m.gated_mlp = p_.gated.value_or(family != nullptr && family->gated_mlp);
    if (family != nullptr) {
      as_family(*family, m);
      assume("model", fmt::format("as {}", family->name), std::string(family->source));
    } else {
      m.qk_norm = true;
      m.diffusion.modulation_width = m.hidden;
      m.diffusion.modulation_vectors = 6;
      assume("model", "one stream, adaLN-Zero, no text", "arXiv:2212.09748");
    }
    if (const auto two = stated_streams()) {
      m.diffusion.two_streams = *two;
      m.diffusion.parallel_mlp = true;
    } else if (family != nullptr && family->text == TextPlace::streams) {
      m.diffusion.two_streams = family->parallel_mlp ? m.layers / 3 : m.layers;
    }
    if (m.diffusion.frames > 0) {
      m.layers *= 2;  // named are those of one kind
    }
    result_.seq += m.diffusion.joint_tokens;
    passes(family);
  }

  /// Wan's models that begin from an image.
  [[nodiscard]] bool of_image(const DiffusionFamily& family) const {
    return family.name == "Wan" && contains(p_.task, "I2V");
  }

  void passes(const DiffusionFamily* family) {
    const bool guided = p_.cfg > 1 || (family != nullptr && family->guided);
    const int sequences = guided ? std::max(1, 2 / p_.cfg) : 1;
    const bool apart = family != nullptr && family->apart;
    result_.passes = apart ? sequences : 1;
    result_.plan.micro_batch *= apart ? 1 : sequences;
    if (guided) {
      assume("guidance", apart ? "two passes a step" : "a batch of two");
    }
    if (family != nullptr) {
      result_.encoder = family->encoder;
      result_.text_tokens = static_cast<double>(family->text_tokens * (guided ? 2 : 1));
      result_.encoder_part = result_.plan.zero == 3 ? 1.0 / p_.world : 1.0;
      if (of_image(*family)) {
        // model.py WanI2VCrossAttention: k_img and v_img; clip.py: XLM-RoBERTa large, ViT-H/14.
        const Model& m = result_.model;
        result_.image = 2.0 * static_cast<double>(m.hidden * m.hidden * m.layers);
        result_.image_encoder = 1.19e9;
      }
    }
    if (p_.call == "step" || p_.call.empty()) {
      return;
    }
    std::int64_t steps = family != nullptr ? family->steps : 50;
    if (p_.steps) {
      steps = *p_.steps;
    } else {
      if (family != nullptr && of_image(*family)) {
        steps = 40;  // wan/image2video.py
      }
      assume("steps", fmt::format("{}", steps));
    }
    result_.passes *= static_cast<double>(steps);
    result_.whole_call = !contains(p_.variant, "forward only");
    result_.pixels = static_cast<double>(*p_.seq * p_.batch.value_or(1)) *
                     (family != nullptr ? family->pixels : 256);
  }

  const Point& p_;
  const Request& request_;
  InferencePoint result_;
};

}  // namespace

InferencePoint inference_point(const Point& point, const Request& request) {
  return InferenceReader(point, request).read();
}

bool says_compiled(const Point& point) {
  for (const std::string* said : {&point.variant, &point.features, &point.system}) {
    if (contains(*said, "compile")) {
      return true;
    }
  }
  return false;
}

Bytes outside_bytes(const InferencePoint& point) {
  constexpr double bytes_a_weight = 2;
  // Wan2.1's table: what is left of peaks of 14B at 77 and 1.3B at 34 million pixels on many GPUs.
  constexpr double bytes_a_pixel = 260;
  const double split = (point.encoder + point.image) * point.encoder_part;
  return Bytes(
      std::llround(bytes_a_weight * (split + point.image_encoder) + bytes_a_pixel * point.pixels));
}

Seconds outside_passes(const InferencePoint& point, const GpuSpec& gpu,
                       const StepPractice& practice, DType dtype) {
  if (!point.whole_call) {
    return Seconds(0);
  }
  constexpr double encoder_part = 0.5;  // of the matrix rate: a few hundred rows
  constexpr double million = 1e6;
  const FlopRate rate = matrix_rate(gpu, GemmFormat::plain, dtype, gpu.name);
  return practice.host_call.value + practice.decode.value * (point.pixels / million) +
         FlopCount(2 * point.encoder * point.text_tokens) / (rate * encoder_part);
}

}  // namespace spp::regress
