// cuDNN's own code, without a GPU: engines and compiled plans for the calls that schedules make,
// for the properties of an H200. Compiling needs a libcuda: a dummy one (dummy_libcuda.cmake).
#include "parallel/attention/strategy.hpp"
#include "runtime/kernels/cudnn/attention.hpp"
#include "runtime/kernels/cudnn/backend.hpp"
#include "runtime/kernels/cudnn/device_properties.hpp"
#include "runtime/kernels/cudnn/versions.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/plans.hpp"
#include "tests/unit/runtime/sdpa_calls.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

using namespace spp;
using namespace spp::runtime;

namespace {

#ifdef SPP_CUDNN_PLANS  // "" or why they cannot be made here
// NOLINTNEXTLINE(readability-redundant-string-init)
constexpr std::string_view no_plans = SPP_CUDNN_PLANS;
#else
constexpr std::string_view no_plans = "cuDNN was not found";
#endif

struct Call {
  SdpaShape shape;
  Phase phase = Phase::forward;
  friend auto operator<=>(const Call&, const Call&) = default;
};

class Calls {
 public:
  void add(const Schedule& schedule) {
    for (int r = 0; r < schedule.mesh.size(); ++r) {
      const Program program = schedule.program(Rank(r));
      for (const Op& op : ops_of(program)) {
        if (const auto* f = op_if<AttentionForward>(op.body)) {
          expect_type(schedule, program, {f->q, f->k, f->v, f->out});
          add(schedule, *f, Phase::forward);
        } else if (const auto* b = op_if<AttentionBackward>(op.body)) {
          expect_type(schedule, program, {b->q, b->k, b->v, b->d_out, b->d_q, b->d_k, b->d_v});
          add(schedule, *b, Phase::backward);
        }
      }
    }
  }
  [[nodiscard]] std::vector<Call> list() const { return {calls_.begin(), calls_.end()}; }
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  [[nodiscard]] std::size_t most_of_a_block() const { return most_of_a_block_; }

 private:
  static void expect_type(const Schedule& schedule, const Program& program,
                          std::initializer_list<BufferId> buffers) {
    for (const BufferId id : buffers) {
      REQUIRE(program.buffers[id.index()].dtype == schedule.contract.attention.dtype);
    }
  }

  template <class Attention>
  void add(const Schedule& schedule, const Attention& op, Phase phase) {
    const Problem& problem = schedule.contract.attention;
    Rows q{.dtype = problem.dtype,
           .count = op.q_tokens.count(),
           .batch = problem.batch,
           .heads = op.heads.count(),
           .width = problem.head_dim};
    Rows k = q;
    k.count = op.k_tokens.count();
    k.heads = op.kv_heads.count();
    Rows v = k;
    v.width = problem.v_dim();
    const Sections cut = sections({.q_tokens = op.q_tokens,
                                   .k_tokens = op.k_tokens,
                                   .mask = problem.mask,
                                   .seq = schedule.contract.requested.seq});
    REQUIRE(cut.why_not.empty());
    std::size_t calls = 0;
    for (const Section& s : cut.list) {
      if (s.seen) {
        const SdpaShape shape = shape_of(s, {.q = q, .k = k, .v = v});
        REQUIRE(why_not(shape).empty());
        calls_.insert({.shape = shape, .phase = phase});
        ++calls;
      }
    }
    ++blocks_;
    most_of_a_block_ = std::max(most_of_a_block_, calls);
  }

  std::set<Call> calls_;
  std::size_t blocks_ = 0;
  std::size_t most_of_a_block_ = 0;
};

/// The calls of all strategies, layouts and head policies.
Calls calls_of_strategies() {
  Calls calls;
  for (const int ranks : {2, 3, 4, 8}) {
    for (const std::int64_t missing : {0, 5}) {  // padding when it does not divide
      for (const MaskKind mask : {MaskKind::full, MaskKind::causal}) {
        for (const int kv_heads : {8, 2}) {
          const Problem problem{.seq = std::int64_t{ranks} * 768 - missing,
                                .batch = missing == 0 ? 1 : 2,
                                .q_heads = 8,
                                .kv_heads = kv_heads,
                                .head_dim = kv_heads == 8 ? 64 : 128,
                                .mask = {.kind = mask},
                                .dtype = kv_heads == 8 ? DType::bf16 : DType::fp16};
          std::vector<SequencePlan> plans = test::legal_plans(ranks, problem);
          for (SequencePlan& plan : plans) {
            plan.order = SequencePlan{}.order;  // who is whose neighbour changes no call
          }
          const auto same = [](const SequencePlan& a, const SequencePlan& b) { return a == b; };
          plans.erase(std::unique(plans.begin(), plans.end(), same), plans.end());
          for (const SequencePlan& plan : plans) {
            const Strategy& strategy = strategies::by_name(plan.strategy, "test");
            if (strategy.for_sparse_masks) {
              continue;  // keys in the order of ranks: those of a query do not lie together
            }
            for (const Phase phase : {Phase::forward, Phase::backward}) {
              if (why_not(strategy, phase).legal()) {
                calls.add(strategy.build(problem, plan, phase, {}));
              }
            }
          }
        }
      }
    }
  }
  return calls;
}

/// What a call is admitted with, before there is a plan: of the block's workspace what is not
/// around the call (statistics, and the surrogate of out).
Bytes foreseen(const Call& call) {
  const SdpaShape& s = call.shape;
  const Rows q{.data = nullptr,
               .dtype = s.dtype,
               .count = s.q_rows,
               .batch = s.batch,
               .heads = s.q_heads,
               .width = s.head_dim};
  Rows k = q;
  k.count = s.k_rows;
  k.heads = s.kv_heads;
  Rows v = k;
  v.width = s.v_dim();
  Rows out = q;
  out.width = s.v_dim();
  Rows lse = q;
  lse.dtype = DType::fp32;
  lse.width = 1;
  const Bytes all =
      cudnn_own_workspace({.q = q, .k = k, .v = v}, test::visibility_of(s), call.phase);
  return all - Bytes(lse.bytes() + (call.phase == Phase::backward ? out.bytes() : 0));
}

std::string to_string(const Call& call) {
  return to_string(call.phase) == "fwd" ? "forward " + runtime::to_string(call.shape)
                                        : "backward " + runtime::to_string(call.shape);
}

}  // namespace

TEST_CASE("heuristics of cuDNN know engines for every call of every strategy") {
  const Calls calls = calls_of_strategies();
  CHECK(calls.most_of_a_block() <= 2);
  INFO(calls.blocks() << " blocks");
  if (!no_plans.empty()) {
    SPP_SKIP(std::string(no_plans));
  }
  std::vector<Call> list = calls.list();
  CHECK(list.size() > 100);
  std::shuffle(list.begin(), list.end(), std::mt19937(1));  // a sample when there are many
  list.resize(std::min<std::size_t>(list.size(), 400));
  const std::string device = to_json(h200());
  for (const Call& call : list) {
    INFO(to_string(call));
    for (const SdpaDelta delta : {SdpaDelta::from_out, SdpaDelta::given}) {
      const SdpaSupport support =
          sdpa_support(call.shape, call.phase, device, SdpaDepth::heuristics, {.delta = delta});
      REQUIRE_FALSE(support.engines.empty());
      if (call.phase == Phase::forward) {
        break;
      }
    }
  }
  WARN(calls.blocks() << " blocks make " << calls.list().size() << " different calls, "
                      << list.size() << " of them asked for");
}

#ifdef SPP_CUDNN_PLANS
TEST_CASE("cuDNN takes what a plan is to be executed on") {
  if (!no_plans.empty()) {
    SPP_SKIP(std::string(no_plans));
  }
  const std::array<float, 4> tensor{};
  std::array<std::byte, 16> workspace{};
  cudnn::VariantPack pack;
  pack.add(1, tensor.data());
  pack.add(2, tensor.data() + 1);
  CHECK(pack.descriptor(workspace.data()).raw() != nullptr);
}
#endif

TEST_CASE("plans of cuDNN compile for a sample of the calls") {
  if (!no_plans.empty()) {
    SPP_SKIP(std::string(no_plans));
  }
  std::vector<Call> list = calls_of_strategies().list();
  std::shuffle(list.begin(), list.end(), std::mt19937(2));
  // As many of each phase and mask.
  std::map<std::pair<Phase, SdpaMask>, int> taken;
  const std::string device = to_json(h200());
  for (const Call& call : list) {
    if (taken[{call.phase, call.shape.mask}]++ >= 2) {
      continue;
    }
    INFO(to_string(call));
    const SdpaSupport support = sdpa_support(call.shape, call.phase, device, SdpaDepth::plan);
    REQUIRE(support.engine >= 0);
    if (call.phase == Phase::backward) {
      // delta and the fp32 sum of d_q; for GQA also d_k and d_v of every query head.
      const std::int64_t rows = call.shape.batch * call.shape.q_heads * call.shape.q_rows;
      CHECK(support.workspace.value() >= 4 * rows * (1 + call.shape.head_dim));
    }
    CHECK(support.workspace <= foreseen(call) + Bytes(1024));
  }
  CHECK(taken.size() >= 5);
}

TEST_CASE("plans of cuDNN compile for what schedules rarely make") {
  if (!no_plans.empty()) {
    SPP_SKIP(std::string(no_plans));
  }
  const SdpaShape causal{.batch = 1,
                         .q_rows = 2048,
                         .k_rows = 2048,
                         .q_heads = 16,
                         .kv_heads = 4,
                         .head_dim = 128,
                         .mask = SdpaMask::top_left};
  const auto plan = [&](const SdpaShape& shape, Phase phase, int sms, const SdpaOptions& options) {
    INFO(runtime::to_string(shape) << " " << to_string(phase) << ", " << sms << " SMs");
    const SdpaSupport support =
        sdpa_support(shape, phase, to_json(h200(sms)), SdpaDepth::plan, options);
    REQUIRE(support.engine >= 0);
    return support.workspace;
  };
  SECTION("parts of the device") {
    plan(causal, Phase::forward, 16, {});
    plan(causal, Phase::backward, 64, {});
  }
  SECTION("deterministic: the scores' gradients are kept") {
    const std::int64_t scores = 16 * causal.q_rows * causal.k_rows;
    CHECK(plan(causal, Phase::backward, 132, {.deterministic = true}).value() >= 2 * scores);
    CHECK(plan(causal, Phase::backward, 132, {}).value() < 2 * scores);
  }
  SECTION("delta as an input costs nothing") {
    CHECK(plan(causal, Phase::backward, 132, {.delta = SdpaDelta::given}) ==
          plan(causal, Phase::backward, 132, {}));
  }
  SECTION("values narrower or wider than keys") {
    for (const auto& [keys, values] : {std::pair(192, 128), {96, 64}, {64, 128}}) {
      SdpaShape uneven = causal;
      uneven.head_dim = keys;
      uneven.value_dim = values;
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        CHECK(plan(uneven, phase, 132, {}) <=
              foreseen({.shape = uneven, .phase = phase}) + Bytes(1024));
      }
    }
  }
  SECTION("head dimensions, single rows, more queries than keys") {
    SdpaShape odd = causal;
    odd.head_dim = 256;
    plan(odd, Phase::backward, 132, {});
    odd.head_dim = 72;
    odd.q_rows = 33;
    odd.k_rows = 17;
    plan(odd, Phase::backward, 132, {});
    plan({.q_rows = 1, .k_rows = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 64}, Phase::forward,
         132, {});
  }
}

TEST_CASE("a plan for some of the SMs is one for all of them where cuDNN knows none") {
  if (!no_plans.empty()) {
    SPP_SKIP(std::string(no_plans));
  }
  const SdpaShape shape{
      .q_rows = 1024, .k_rows = 1024, .q_heads = 8, .kv_heads = 2, .head_dim = 128};
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const SdpaSupport support =
        sdpa_support(shape, phase, to_json(h200()), SdpaDepth::plan, {.sms = 16});
    CHECK(support.engine >= 0);
    CHECK((support.sms == 16 || support.sms == 0));
    WARN(to_string(phase) << ": for " << support.sms << " SMs (0: all)");
  }
}

TEST_CASE("versions of cuDNN are refused what they are known to do wrongly") {
  const SdpaShape whole{.q_rows = 256, .k_rows = 256};
  SdpaShape rest = whole;
  rest.k_rows = 200;
  const auto refused = [](std::size_t version, const SdpaShape& shape, Phase phase) {
    return !cudnn::version_why_not(version, shape, phase).empty();
  };
  CHECK(refused(91000, whole, Phase::forward));
  CHECK(refused(91001, whole, Phase::backward));
  CHECK_FALSE(refused(91002, whole, Phase::forward));
  CHECK(refused(90800, rest, Phase::backward));
  CHECK(refused(91500, rest, Phase::backward));
  CHECK_FALSE(refused(91500, rest, Phase::forward));
  CHECK_FALSE(refused(91500, whole, Phase::backward));
  CHECK_FALSE(refused(91501, rest, Phase::backward));
  SdpaShape single = whole;
  single.q_rows = 1;
  CHECK_FALSE(refused(90900, single, Phase::forward));
  single.mask = SdpaMask::bottom_right;
  CHECK(refused(90900, single, Phase::forward));
  SdpaShape latent = whole;
  latent.head_dim = 192;
  CHECK_FALSE(refused(91200, latent, Phase::backward));
  latent.value_dim = 128;
  CHECK(refused(91200, latent, Phase::backward));
  CHECK_FALSE(refused(91200, latent, Phase::forward));
  CHECK_FALSE(refused(91300, latent, Phase::backward));
  CHECK_FALSE(cudnn::version_why_not(90501, rest, Phase::backward).empty());
  CHECK(cudnn::version_why_not(91500, rest, Phase::backward) ==
        "cuDNN 9.15.0 gives wrong gradients for 200 keys, which are no multiple of 128 (9.15.1 "
        "mended that)");
}
