// Whole layers, run for real on threads: every kept value, gradient and gradient of a parameter is
// what one device computes in fp64, and the transport counts the bytes that the schedule says.
#include "runtime/kernels/layer.hpp"
#include "tests/conformance/layer_trials.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::test;

namespace {

runtime::TrialResult run(const LayerCase& c, const runtime::AttentionBackend& kernels) {
  runtime::TrialRequest request = trial_of(c);
  request.kernels = &kernels;
  return run_trial(request);
}

}  // namespace

TEST_CASE("layers compute what one device computes") {
  int count = 0;
  int normed = 0;
  int latent = 0;
  int with_sinks = 0;
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (const int tensor : {1, 2, 3}) {
      for (const int sequence : {1, 2, 3, 4}) {
        for (const LayerCase& c :
             layer_cases(sequence, tensor, kernels->name == "reference" ? 3 : 2)) {
          if (!kernels->why_not(c.attention.problem.dtype).empty()) {
            continue;
          }
          INFO(kernels->name << ", " << c.text());
          const runtime::TrialResult result = run(c, *kernels);
          REQUIRE(result.complete);
          CHECK(failures(result) == "");
          ++count;
          normed += c.head_norms ? 1 : 0;
          latent += c.latent ? 1 : 0;
          with_sinks += c.attention.problem.sinks ? 1 : 0;
        }
      }
    }
  }
  CHECK(count > 40);
  CHECK(normed > 15);
  CHECK(latent > 8);
  CHECK(with_sinks > 15);
}

TEST_CASE("layers behind cached keys compute what one device computes") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (const LayerCase& c : layers_behind_cache()) {
      if (!kernels->why_not(c.attention.problem.dtype).empty()) {
        continue;
      }
      INFO(kernels->name << ", " << c.text());
      const runtime::TrialResult result = run(c, *kernels);
      REQUIRE(result.complete);
      CHECK(failures(result) == "");
    }
  }
}

TEST_CASE("a wrong product is found") {
  struct Spoiled : runtime::AttentionKernels {
    std::unique_ptr<runtime::AttentionKernels> right =
        runtime::attention_kernels::by_name("reference", "test").make();
    void forward(const runtime::AttentionForwardArgs& args, const runtime::Poll& poll) override {
      right->forward(args, poll);
    }
    void backward(const runtime::AttentionBackwardArgs& args, const runtime::Poll& poll) override {
      right->backward(args, poll);
    }
    void gemm(const runtime::GemmArgs& args, const runtime::Poll& poll) override {
      runtime::GemmArgs other = args;
      // The weight's gradient of all rows but the last.
      if (args.kind == GemmKind::weight_gradient) {
        --other.a.count;
        --other.b.count;
      }
      right->gemm(other, poll);
    }
  };
  const runtime::AttentionBackend spoiled{
      .name = "spoiled",
      .title = "",
      .why_not = [](DType) { return std::string(); },
      .make = []() -> std::unique_ptr<runtime::AttentionKernels> {
        return std::make_unique<Spoiled>();
      }};
  const std::string wrong = failures(run(small_layer(DType::fp32), spoiled));
  CHECK(wrong.find("d_param") != std::string::npos);
}
