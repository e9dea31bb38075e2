// A check sees what is wrong: numbers that are none, contributions that were lost, results that are
// 0, updates that never were. Right numbers are planted over with wrong ones between the execution
// and the check.
#include "runtime/host_engine.hpp"
#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/reference_attention.hpp"
#include "tests/conformance/layer_trials.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <limits>

using namespace spp;
using namespace spp::test;
using runtime::PhaseParts;

namespace {

/// Changes what a rank's phase left.
using Plant = std::function<void(const PhaseParts&)>;

class PlantingEngine final : public runtime::Engine {
 public:
  PlantingEngine(std::unique_ptr<runtime::Engine> engine, const runtime::EngineParts& parts,
                 const Plant& plant)
      : engine_(std::move(engine)), parts_(parts), plant_(plant) {}
  void load(Phase phase) override { engine_->load(phase); }
  runtime::Execution execute(Phase phase) override { return engine_->execute(phase); }
  void fetch(Phase phase) override {
    engine_->fetch(phase);
    plant_(phase == Phase::backward ? *parts_.backward : parts_.forward);
  }

 private:
  std::unique_ptr<runtime::Engine> engine_;
  const runtime::EngineParts& parts_;
  const Plant& plant_;
};

class PlantingEngines final : public runtime::EngineSource {
 public:
  PlantingEngines(const runtime::AttentionBackend& kernels, Plant plant)
      : engines_(&kernels), plant_(std::move(plant)) {}
  [[nodiscard]] runtime::MemoryPart host_part() const override { return engines_.host_part(); }
  [[nodiscard]] std::vector<runtime::MemoryDemand> demands(const runtime::Transport& transport,
                                                           Bytes needed) const override {
    return engines_.demands(transport, needed);
  }
  [[nodiscard]] std::string kernels() const override { return engines_.kernels(); }
  [[nodiscard]] std::string why_not(const Problem& problem, const TokenSet& q,
                                    const TokenSet& k) const override {
    return engines_.why_not(problem, q, k);
  }
  std::unique_ptr<runtime::Engine> make(const runtime::EngineParts& parts) override {
    return std::make_unique<PlantingEngine>(engines_.make(parts), parts, plant_);
  }

 private:
  runtime::HostEngines engines_;
  Plant plant_;
};

const runtime::AttentionBackend& reference() {
  return runtime::attention_kernels::by_name("reference", "test");
}

/// Whether a check finds the result right after `plant`.
bool passes(runtime::TrialRequest request, const Plant& plant,
            const runtime::AttentionBackend& kernels = reference()) {
  PlantingEngines engines(kernels, plant);
  request.kernels = &kernels;
  request.engines = &engines;
  const runtime::TrialResult result = run_trial(request);
  REQUIRE(result.complete);
  return result.passed();
}

/// The reference, but a window is a key too wide.
struct WideWindows final : runtime::AttentionKernels {
  std::unique_ptr<runtime::AttentionKernels> right = reference().make();
  void forward(const runtime::AttentionForwardArgs& args, const runtime::Poll& poll) override {
    runtime::AttentionForwardArgs wide = args;
    ++wide.visible.mask.window;
    right->forward(wide, poll);
  }
  void backward(const runtime::AttentionBackwardArgs& args, const runtime::Poll& poll) override {
    runtime::AttentionBackwardArgs wide = args;
    ++wide.visible.mask.window;
    right->backward(wide, poll);
  }
  void gemm(const runtime::GemmArgs& args, const runtime::Poll& poll) override {
    right->gemm(args, poll);
  }
};

void nothing(const PhaseParts& /*parts*/) {}

/// f(buffer, rows) of every result.
void each_result(const PhaseParts& parts,
                 const std::function<void(const Buffer&, const runtime::Rows&)>& f) {
  for (std::size_t i = 0; i < parts.program.buffers.size(); ++i) {
    if (const Buffer& buffer = parts.program.buffers[i]; is_result(buffer.role)) {
      f(buffer, parts.memory.all(BufferId(i)));
    }
  }
}

Case ring(DType dtype, std::int64_t seq, int ranks) {
  Case c;
  c.problem = {.seq = seq, .q_heads = 2, .kv_heads = 2, .head_dim = 32, .dtype = dtype};
  c.plan.strategy = "ring";
  c.plan.ring = ranks;
  return c;
}

}  // namespace

TEST_CASE("one number that is none is wrong, whichever rank has it") {
  const Case c = ring(DType::fp32, 64, 4);
  CHECK(passes(trial_of(c), nothing));
  for (const float number :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F}) {
    for (const Tensor tensor : {Tensor::out, Tensor::lse, Tensor::d_q, Tensor::d_v}) {
      for (int rank = 0; rank < 4; ++rank) {
        INFO(to_string(tensor) << " of rank " << rank << ": " << number);
        CHECK_FALSE(passes(trial_of(c), [&](const PhaseParts& parts) {
          each_result(parts, [&](const Buffer& buffer, const runtime::Rows& rows) {
            if (buffer.tensor == tensor && parts.program.rank == Rank(rank)) {
              runtime::store(rows.dtype, rows.data, 5, number);
            }
          });
        }));
      }
    }
  }
}

TEST_CASE("keys that a rank never met are missed in every type, late in the sequence, too") {
  constexpr int ranks = 8;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    const Case c = ring(dtype, 2048, ranks);
    const std::int64_t part = c.problem.seq / ranks;
    const TokenSet queries({.begin = (ranks - 1) * part, .count = part});
    const TokenSet met({.begin = 0, .count = 3 * part},
                       {.begin = 4 * part, .count = (ranks - 4) * part});
    const runtime::InputData data{.requested = c.problem, .seed = 1};
    const auto made = [&](Tensor tensor, const TokenSet& tokens, std::vector<std::byte>& storage) {
      runtime::Rows rows{.data = nullptr,
                         .dtype = dtype,
                         .count = tokens.count(),
                         .batch = 1,
                         .heads = c.problem.q_heads,
                         .width = c.problem.head_dim};
      storage.resize(static_cast<std::size_t>(rows.bytes()));
      rows.data = storage.data();
      data.fill(tensor, tokens, {.begin = 0, .end = c.problem.q_heads}, rows);
      return rows;
    };
    std::vector<std::byte> q;
    std::vector<std::byte> k;
    std::vector<std::byte> v;
    std::vector<double> lse(static_cast<std::size_t>(part * c.problem.q_heads));
    std::vector<double> out(lse.size() * static_cast<std::size_t>(c.problem.head_dim));
    runtime::reference_forward({.q = made(Tensor::q, queries, q),
                                .k = made(Tensor::k, met, k),
                                .v = made(Tensor::v, met, v),
                                .visible = {.q_tokens = queries,
                                            .k_tokens = met,
                                            .mask = c.problem.mask,
                                            .seq = c.problem.seq},
                                .out = out,
                                .lse = lse});
    runtime::TrialRequest request = trial_of(c);
    request.backward.reset();
    CHECK(passes(request, nothing));
    for (const Tensor tensor : {Tensor::out, Tensor::lse}) {
      INFO(to_string(dtype) << ", " << to_string(tensor));
      const std::vector<double>& wrong = tensor == Tensor::out ? out : lse;
      CHECK_FALSE(passes(request, [&](const PhaseParts& parts) {
        each_result(parts, [&](const Buffer& buffer, const runtime::Rows& rows) {
          for (std::size_t i = 0;
               buffer.tensor == tensor && parts.program.rank == Rank(ranks - 1) && i < wrong.size();
               ++i) {
            runtime::store(rows.dtype, rows.data, static_cast<std::int64_t>(i),
                           static_cast<float>(wrong[i]));
          }
        });
      }));
    }
  }
}

TEST_CASE("a step whose results are 0 or too large, or that updates nothing, is wrong") {
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    for (const int stages : {1, 7}) {
      StepCase c{.layer = small_layer(dtype)};
      if (stages > 1) {
        c.layer.tensor = 1;
        c.layer.attention.plan = {.strategy = "ulysses"};
        c.pipeline = {.stages = stages, .micro_batches = stages};
      }
      INFO(to_string(dtype) << ", " << c.text());
      const runtime::TrialRequest request = trial_of(c);
      const auto times = [](float factor) -> Plant {
        return [factor](const PhaseParts& parts) {
          each_result(parts, [&](const Buffer&, const runtime::Rows& rows) {
            for (std::int64_t i = 0; i < rows.elements(); ++i) {
              runtime::store(rows.dtype, rows.data, i,
                             factor * runtime::load(rows.dtype, rows.data, i));
            }
          });
        };
      };
      CHECK(passes(request, nothing));
      CHECK_FALSE(passes(request, times(0)));
      CHECK_FALSE(passes(request, times(1.4F)));
      const runtime::InputData data{.requested = request.forward->contract.requested,
                                    .seed = 1,
                                    .graph = request.forward->contract.graph};
      CHECK_FALSE(passes(request, [&](const PhaseParts& parts) {
        each_result(parts, [&](const Buffer& buffer, const runtime::Rows& rows) {
          if (buffer.tensor == Tensor::master) {
            data.fill_ref(buffer.ref(), buffer.tile, buffer.head_range, rows);
          }
        });
      }));
    }
  }
}

TEST_CASE("a step shows a gradient that never came, of whichever parameter") {
  constexpr AdamConstants adam;
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    StepCase c{.layer = small_layer(dtype)};
    c.layer.head_norms = true;
    const runtime::TrialRequest request = trial_of(c);
    const Graph& graph = request.forward->contract.graph;
    const runtime::InputData data{
        .requested = request.forward->contract.requested, .seed = 1, .graph = graph};
    CHECK(passes(request, nothing));
    for (int label = 0; label < std::ssize(graph.params); ++label) {
      for (const Tensor kept : {Tensor::first_moment, Tensor::second_moment}) {
        INFO(to_string(dtype) << ", " << graph.name({kept, label}));
        const double factor = kept == Tensor::first_moment ? adam.beta1 : adam.beta2;
        CHECK_FALSE(passes(request, [&](const PhaseParts& parts) {
          each_result(parts, [&](const Buffer& buffer, const runtime::Rows& rows) {
            if (buffer.ref() != TensorRef{kept, label}) {
              return;
            }
            data.fill_ref(buffer.ref(), buffer.tile, buffer.head_range, rows);
            for (std::int64_t i = 0; i < rows.elements(); ++i) {
              runtime::store(rows.dtype, rows.data, i,
                             static_cast<float>(factor * runtime::load(rows.dtype, rows.data, i)));
            }
          });
        }));
      }
    }
  }
}

TEST_CASE("a step shows windows that are a key too wide, in every type") {
  const runtime::AttentionBackend wide{.name = "wide windows",
                                       .title = "",
                                       .why_not = [](DType) { return std::string(); },
                                       .make = []() -> std::unique_ptr<runtime::AttentionKernels> {
                                         return std::make_unique<WideWindows>();
                                       }};
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    INFO(to_string(dtype));
    StepCase c{.layer = small_layer(dtype)};
    c.layer.attention.problem.seq = 128;
    c.look_through(16);
    CHECK(passes(trial_of(c), nothing));
    CHECK_FALSE(passes(trial_of(c), nothing, wide));
  }
}

TEST_CASE("a step in fp16 over many tokens is as right as its gradients, which underflow") {
  StepCase c{.layer = small_layer(DType::fp16)};
  c.layer.attention.problem.head_dim = 4;
  c.layer.attention.problem.seq = 64;
  c.layer.attention.problem.batch = 256;
  CHECK(passes(trial_of(c), nothing));
}
