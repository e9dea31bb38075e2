// Bounds that the search prunes by, against what simulating every legal plan takes.
#include "parallel/attention/attention_mesh.hpp"
#include "planner/evaluator.hpp"
#include "planner/plan.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

#include <cstdint>
#include <string>

using namespace spp;
using Catch::Approx;
using spp::test::bare_request;
using spp::test::cluster_of;
using spp::test::cpu_cluster;
using spp::test::cpu_request;

namespace {

/// Of every plan that the request allows; there are some.
void check_bounds(const Request& request) {
  const Evaluator evaluator(request);
  const std::vector<SequencePlan> plans = legal_plans(request, nullptr);
  CHECK_FALSE(plans.empty());
  for (const SequencePlan& p : plans) {
    const Strategy& s = strategies::by_name(p.strategy, "test");
    const double step = evaluator.evaluate(p, s, {})->candidate.predicted.step.count();
    INFO(short_name(p));
    CHECK(evaluator.lower_bound(p, s) <= step * (1 + 1e-9));
    CHECK(evaluator.walked_bound(p, s) <= step * (1 + 1e-9));
  }
}

}  // namespace

TEST_CASE("no plan is faster than its bounds, and the walked bound is simulated from above") {
  struct World {
    std::string machine;
    int nodes;
    std::int64_t seq;
    MaskKind mask;
    AttentionFunction function = AttentionFunction::softmax;
  };
  const World world = GENERATE(
      World{"dgx-h100", 2, 131072, MaskKind::causal}, World{"dgx-h100", 2, 65536, MaskKind::full},
      World{"8xl20-pcie", 1, 65536, MaskKind::causal}, World{"p4d", 2, 65536, MaskKind::full},
      World{"cloud-a100-ethernet", 2, 65536, MaskKind::causal},
      World{"dgx-a100", 3, 98304, MaskKind::causal},
      World{"dgx-h100", 2, 4096, MaskKind::causal},  // whole rows of scores fit
      World{"dgx-h100", 2, 131072, MaskKind::causal, AttentionFunction::linear},
      World{"cloud-a100-ethernet", 2, 65536, MaskKind::full, AttentionFunction::linear});
  const sim::Cluster cluster = cluster_of(world.machine, world.nodes);
  Request request = bare_request(cluster, world.seq);
  request.problem.mask = {.kind = world.mask};
  request.problem.function = world.function;
  INFO(world.machine);
  check_bounds(request);
}

TEST_CASE("bounds hold of groups that nodes are no multiples of") {
  struct World {
    std::string machine;
    int nodes, gpus;
    MaskKind mask;
  };
  const World world = GENERATE(
      World{"dgx-h100", 3, 24, MaskKind::full},  // rings of 3, 6 and 12 ranks on nodes of 8
      World{"dgx-h100", 2, 12, MaskKind::full},  // the second node half used
      World{"dgx-h100", 6, 48, MaskKind::causal}, World{"p4d", 3, 24, MaskKind::full},
      World{"cloud-a100-ethernet", 3, 24, MaskKind::full},
      World{"dgx-h100", 4, 32, MaskKind::full});
  const sim::Cluster cluster = cluster_of(world.machine, world.nodes);
  Request request = bare_request(cluster, 16384 * 3);
  request.gpus = world.gpus;
  request.problem.mask = {.kind = world.mask};
  INFO(world.machine << ", " << world.gpus << " GPUs");
  check_bounds(request);
}

TEST_CASE("no plan behind cached keys is faster than its bounds") {
  const sim::Cluster cluster = cluster_of("dgx-h100", 2);
  Request request = bare_request(cluster, 16384);
  request.phase = StepPhase::forward;
  request.problem.mask = {.kind = GENERATE(MaskKind::causal, MaskKind::full)};
  request.problem.cached = 98304;
  check_bounds(request);
}

TEST_CASE("no plan of packed documents is faster than its bounds") {
  const sim::Cluster cluster = cluster_of("dgx-h100", 2);
  Request request = bare_request(cluster, 65536);
  request.problem.mask = {.kind = GENERATE(MaskKind::causal, MaskKind::full),
                          .document_ends = {300, 20000, 20001, 52000, 65536}};
  check_bounds(request);
}

TEST_CASE("no plan of many short documents over an odd number of ranks is faster than its bounds") {
  const sim::Cluster cluster = cluster_of("dgx-h100", 1);
  Request request = bare_request(cluster, 65536);
  request.gpus = GENERATE(3, 5);
  for (std::int64_t end = 1000; end < 65536; end += 1000) {
    request.problem.mask.document_ends.push_back(end);
  }
  check_bounds(request);
}

TEST_CASE("bounds hold on CPU ranks that share cores, with kernels measured or fitted") {
  const int nodes = GENERATE(1, 2, 4);
  const std::int64_t cores = GENERATE(1, 2);
  const int nodes_on_cores = GENERATE(0, 1, 2);
  const bool fitted = GENERATE(false, true);
  const MaskKind mask = GENERATE(MaskKind::causal, MaskKind::full);
  const sim::Cluster cluster = cpu_cluster(nodes, cores, nodes_on_cores, fitted);
  for (const std::int64_t seq : {512, 8192}) {
    const Request request = cpu_request(cluster, seq, mask);
    const Evaluator evaluator(request);
    for (const SequencePlan& p : legal_plans(request, nullptr)) {
      const Strategy& s = strategies::by_name(p.strategy, "test");
      const double step = evaluator.evaluate(p, s, {})->candidate.predicted.step.count();
      const double every_rank =
          evaluator.evaluate(p, s, {.fold = false})->candidate.predicted.step.count();
      INFO(nodes << " nodes, " << cores << " cores, " << seq << ": " << short_name(p));
      CHECK(evaluator.lower_bound(p, s) <= step * (1 + 1e-9));
      CHECK(evaluator.walked_bound(p, s) <= step * (1 + 1e-9));
      if (seq ==
          8192) {  // of 512, chunks are less than a tile: zigzag ranks differ by tiles joined
        CHECK(every_rank == Approx(step).epsilon(1e-9));
      }
    }
  }
}
