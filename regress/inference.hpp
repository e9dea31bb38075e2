// What a point of a whole model's inference asks the planner: a prefill of a decoder; or a call of
// a diffusion transformer: one denoising step, or all of them with what comes before and behind.
//
//   call = steps x passes + host_call + encoder + decoder
//
// A guided step (classifier-free guidance, arXiv:2207.12598) is two passes: a batch of two
// sequences, or one after the other, or on two groups of GPUs at once (`cfg` 2), which then are
// data-parallel replicas. The text encoder runs on every GPU, 2 FLOPs a weight and token. Pixels
// are decoded on one GPU.
#pragma once

#include "machine/machine.hpp"
#include "planner/plan.hpp"
#include "regress/corpus.hpp"
#include "step/plan.hpp"

#include <optional>
#include <string>
#include <vector>

namespace spp::regress {

struct InferencePoint {
  std::string refused;  // why it cannot be asked; else ""
  Model model;
  StepPlan plan;             // without attention's
  std::int64_t seq = 0;      // tokens of a sequence that are computed, joint text among them
  std::int64_t cached = 0;   // tokens in front of them, with keys and values
  double passes = 1;         // one after the other in a call
  bool whole_call = false;   // with what comes before and behind
  double pixels = 0;         // decoded
  double encoder = 0;        // weights of the text encoder
  double encoder_part = 1;   // of them on one GPU
  double image = 0;          // weights with which layers attend to an image, split alike
  double image_encoder = 0;  // weights of its encoder, whole on every GPU
  double text_tokens = 0;    // encoded
  bool compiled = false;     // by torch.compile
  std::vector<Assumption> assumed;
};

InferencePoint inference_point(const Point& point, const Request& request);

/// Whether the source says that torch.compile ran.
bool says_compiled(const Point& point);

/// What one GPU holds beside the model: encoders, and what decoding pixels takes.
Bytes outside_bytes(const InferencePoint& point);

/// What a whole call takes beside its passes.
Seconds outside_passes(const InferencePoint& point, const GpuSpec& gpu,
                       const StepPractice& practice, DType dtype);

}  // namespace spp::regress
