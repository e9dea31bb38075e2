// Whole layers, attention of every strategy within tensor-parallel groups: proven, stored, written
// and read again; the same products and transfers as the layer's list of operations says.
#include "base/error.hpp"
#include "schedule/coverage.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/conformance/wrong.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "transformer/layer_kernels.hpp"

#include <algorithm>
#include <set>

namespace spp {
namespace {

using test::changed;
using test::LayerCase;
using test::refuted;
using test::small_layer;

constexpr std::array phases{Phase::forward, Phase::backward};

template <class F>
void for_each_layer(std::size_t most, F f) {
  for (const int tensor : {1, 2, 3, 4}) {
    for (const int sequence : {1, 2, 3, 4, 8}) {
      for (const LayerCase& c : test::layer_cases(sequence, tensor, most)) {
        for (const Phase phase : phases) {
          INFO(c.text() << " " << to_string(phase));
          f(c, phase);
        }
      }
    }
  }
}

TEST_CASE("layers are proven") {
  int proven = 0;
  int normed = 0;
  int latent = 0;
  int with_sinks = 0;
  for_each_layer(8, [&](const LayerCase& c, Phase phase) {
    REQUIRE_THAT(prove(c.build(phase)).counter_example, Catch::Matchers::Equals(""));
    ++proven;
    normed += c.head_norms ? 1 : 0;
    latent += c.latent ? 1 : 0;
    with_sinks += c.attention.problem.sinks ? 1 : 0;
  });
  CHECK(latent > 30);
  CHECK(proven > 100);
  CHECK(normed > 40);
  CHECK(with_sinks > 40);
}

TEST_CASE("layers behind cached keys are proven, and their text form is the layer") {
  std::set<std::string> strategies;
  for (const LayerCase& c : test::layers_behind_cache()) {
    INFO(c.text());
    const Schedule schedule = c.build(Phase::forward);
    REQUIRE_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
    REQUIRE(std::ssize(store(schedule)) == schedule.mesh.size());
    const std::string text = to_text(schedule);
    REQUIRE(to_text(parse_schedule(text, "layer.txt")) == text);
    strategies.insert(c.attention.plan.strategy);
  }
  CHECK(strategies.size() >= 6 / test::thinning);
}

TEST_CASE("a layer that computes what is cached, or lacks it, is refused") {
  LayerCase layer = small_layer();
  layer.attention.problem.seq = 16;
  layer.attention.problem.cached = 8;
  const std::string text = to_text(layer.build(Phase::forward));
  const auto refuted_with = [&](std::string_view piece, std::string_view by) {
    std::string wrong = text;
    const std::size_t at = wrong.find(piece);
    REQUIRE(at < wrong.size());
    return prove(parse_schedule(wrong.replace(at, piece.size(), by), "layer.txt")).counter_example;
  };
  using Catch::Matchers::Contains;
  REQUIRE(refuted_with("rank 0", "rank 0") == "");
  // Of one rank's cached tokens two are not there; a cache that has the sequence's own keys.
  CHECK_THAT(refuted_with("k_cache k input bf16 tile=0:2+6:2", "k_cache k input bf16 tile=0:2"),
             Contains("k"));
  CHECK_THAT(refuted_with("k_cache k input bf16 tile=0:2+6:2 heads=0:2 room=8",
                          "k_cache k input bf16 tile=0:2+6:4 heads=0:2 room=6"),
             Contains("k"));
}

TEST_CASE("layers can be stored") {
  for_each_layer(2, [](const LayerCase& c, Phase phase) {
    const Schedule schedule = c.build(phase);
    REQUIRE(std::ssize(store(schedule)) == schedule.mesh.size());
  });
}

TEST_CASE("the text form of a layer is the layer") {
  for_each_layer(1, [](const LayerCase& c, Phase phase) {
    const std::string text = to_text(c.build(phase));
    const Schedule again = parse_schedule(text, "layer.txt");
    REQUIRE(to_text(again) == text);
    REQUIRE_THAT(prove(again).counter_example, Catch::Matchers::Equals(""));
  });
}

TEST_CASE("a layer over 2 x 2 ranks is the schedule of its golden text") {
  const LayerCase layer{
      .attention = {.problem = {.seq = 15, .q_heads = 4, .kv_heads = 2, .head_dim = 8},
                    .plan = {.strategy = "zigzag-ring", .ring = 2, .layout = Layout::zigzag},
                    .phase = Phase::forward,
                    .options = {}},
      .tensor = 2};
  CHECK(to_text(layer.build(Phase::forward)) + to_text(layer.build(Phase::backward)) ==
        test::read_text(test::source_path("tests/golden/layer_of_four.txt")));
}

TEST_CASE("a graph whose definitions do not fit is refused, and so is its text") {
  using Catch::Matchers::Contains;
  LayerCase layer = small_layer();
  const auto flaw = [&](auto change) {
    Graph graph = layer.graph().graph;
    change(graph);
    const Problem& p = small_layer().attention.problem;
    return flaw_of(graph, rows_of(p, small_layer().build(Phase::forward).grain.heads.parts()));
  };
  CHECK(flaw([](Graph&) {}).empty());
  CHECK(flaw_of({}, {}).empty());
  CHECK_THAT(flaw([](Graph& g) { g.params[0].rows += 1; }), Contains("rms_norm"));
  CHECK_THAT(flaw([](Graph& g) { g.params[1].columns += 2; }), Contains("another shape"));
  CHECK_THAT(flaw([](Graph& g) { std::swap(g.definitions[0], g.definitions[1]); }),
             Contains("before it is written"));
  CHECK_THAT(flaw([](Graph& g) { g.definitions.push_back(g.definitions[0]); }),
             Contains("a second time"));
  CHECK_THAT(flaw([](Graph& g) { g.definitions[0].param = -1; }), Contains("not those of"));
  CHECK_THAT(flaw([](Graph& g) { g.definitions[0].transposed = true; }), Contains("not those of"));
  CHECK_THAT(flaw([](Graph& g) { g.definitions[1].transposed = true; }), Contains("another shape"));
  layer.head_norms = true;
  CHECK(flaw([](Graph&) {}).empty());
  const auto gains = [](Graph& g) -> Param& {
    return *std::ranges::find(g.params, "qk_norm", &Param::name);
  };
  CHECK_THAT(flaw([&](Graph& g) { gains(g).rows /= 2; }), Contains("gains of one q head"));
  CHECK_THAT(flaw([&](Graph& g) { gains(g).row_parts = 2; }), Contains("gains of one q head"));
  layer.head_norms = false;
  test::make_latent(layer);
  const auto flaw_of_latents = [&](auto change) {
    Graph graph = layer.graph().graph;
    change(graph);
    return flaw_of(
        graph, rows_of(layer.attention.problem, layer.build(Phase::forward).grain.heads.parts()));
  };
  const auto value = [](Graph& g, std::string_view name) -> Value& {
    return *std::ranges::find(g.values, name, &Value::name);
  };
  CHECK(flaw_of_latents([](Graph&) {}).empty());
  CHECK_THAT(flaw_of_latents([&](Graph& g) { value(g, "k_rope").width -= 2; }),
             Contains("two that it is side by side"));
  CHECK_THAT(flaw_of_latents([](Graph& g) {
               for (Definition& d : g.definitions) {
                 if (d.joins_latents()) {
                   std::swap(d.reads[0], d.reads[1]);
                 }
               }
             }),
             Contains("the last columns of all heads of k"));
  std::string text = to_text(small_layer().build(Phase::forward));
  const std::string line = "define rms_norm reads=value.input";
  REQUIRE(text.find(line) != std::string::npos);
  text.replace(text.find(line), line.size(), "define rms_norm reads=value.up");
  CHECK_THAT(test::message_of<InputError>([&] { (void)parse_schedule(text, "layer.txt"); }),
             Contains("layer.txt:") && Contains("definition 0 (rms_norm)"));
}

TEST_CASE("a bias is added once, and its gradient is of all tokens") {
  using Catch::Matchers::Contains;
  LayerCase layer = small_layer();
  layer.gated = false;  // with a bias at every matrix, row-parallel ones too
  const Graph graph = layer.graph().graph;
  const auto of_rows = [&](const Gemm& o, const std::vector<Buffer>&) {
    return o.kind == GemmKind::forward &&
           graph.param(graph.definition(o.definition).param).row_parts > 1 && !o.bias.empty();
  };
  Schedule without = layer.build(Phase::forward);
  without.program = [program = without.program, of_rows](Rank rank) {
    Program result = program(rank);
    OpList all = ops_of(result);
    for (Op& op : all) {
      auto* gemm = op_if<Gemm>(op.body);
      if (gemm != nullptr && of_rows(*gemm, result.buffers)) {
        gemm->bias = {};
      }
    }
    result.loops = {{.trips = 1, .body = [all](std::int64_t, OpList& ops) {
                       ops.insert(ops.end(), all.begin(), all.end());
                     }}};
    return result;
  };
  CHECK_THAT(refuted(without),
             Contains("lacks the contribution of the bias") || Contains("the bias"));
  CHECK_THAT(refuted(changed<Gemm>(
                 layer.build(Phase::backward),
                 [](const Gemm& o, const std::vector<Buffer>&) {
                   return o.kind == GemmKind::weight_gradient && !o.bias.empty();
                 },
                 [](Gemm& o) { o.bias = {}; })),
             Contains("d_param") || Contains("d_w_"));
  BufferList other;
  CHECK_THAT(refuted(changed<Gemm>(
                 layer.build(Phase::backward),
                 [&](const Gemm& o, const std::vector<Buffer>&) {
                   other = o.kind == GemmKind::weight_gradient ? o.bias : other;
                   return o.kind == GemmKind::input_gradient && !other.empty();
                 },
                 [&](Gemm& o) { o.bias = other; })),
             Contains("no gradient of an input has"));
}

TEST_CASE("wrong layers are refused with a counter-example") {
  using Catch::Matchers::Contains;
  const LayerCase layer = small_layer();
  const auto of = [](Tensor tensor) {
    return [tensor](const Collective& o, const std::vector<Buffer>& buffers) {
      return buffers[o.to.index()].tensor == tensor;
    };
  };
  const auto any = [](const auto&, const std::vector<Buffer>&) { return true; };
  // A gradient of a parameter that is summed up over the tensor ranks, not over those that hold
  // other tokens.
  CHECK_THAT(
      refuted(changed<Collective>(
          layer.build(Phase::backward), of(Tensor::d_param),
          [](Collective& o) { o.group = {.first = o.group.first, .stride = 1, .size = 2}; })),
      Contains("group") || Contains("lacks"));
  // Each rank keeps its part of a row-parallel product.
  CHECK_THAT(refuted(changed<Collective>(
                 layer.build(Phase::forward),
                 [](const Collective& o, const std::vector<Buffer>&) {
                   return o.kind == CollectiveKind::reduce_scatter;
                 },
                 [](Collective& o) { o.kind = CollectiveKind::all_gather; })),
             Contains("receives") || Contains("pieces"));
  // The weight's gradient of half of the tokens.
  CHECK_THAT(refuted(changed<Gemm>(
                 layer.build(Phase::backward),
                 [](const Gemm& o, const std::vector<Buffer>&) {
                   return o.kind == GemmKind::weight_gradient;
                 },
                 [](Gemm& o) { o.tokens = o.tokens.part(0, 2); })),
             Contains("lacks the contribution of tokens"));
  // A second product that replaces the first one's part of the input's gradient.
  CHECK_THAT(refuted(changed<Gemm>(
                 layer.build(Phase::backward),
                 [](const Gemm& o, const std::vector<Buffer>&) { return !o.initial; },
                 [](Gemm& o) { o.initial = true; })),
             Contains("lacks linear of value.up"));
  // A product of another matrix.
  CHECK_THAT(
      refuted(changed<Gemm>(layer.build(Phase::forward), any, [](Gemm& o) { o.definition += 4; })),
      Contains("uses") || Contains("definition"));
  // A sum that gives its gradient twice.
  CHECK_THAT(refuted(changed<RowKernel>(
                 layer.build(Phase::backward),
                 [](const RowKernel& o, const std::vector<Buffer>& buffers) {
                   return o.backward && o.writes.ids().size() == 1 && o.reads.ids().size() == 2 &&
                          o.reads.ids()[1] == o.writes.ids()[0] && !buffers.empty();
                 },
                 [](RowKernel& o) { o.reads = {o.writes.ids()[0], o.writes.ids()[0]}; })),
             Contains("as"));
}

TEST_CASE("gains of heads have the gradient of all heads of all tokens") {
  using Catch::Matchers::Contains;
  LayerCase layer = small_layer();
  layer.head_norms = true;
  const Schedule backward = layer.build(Phase::backward);
  REQUIRE_THAT(prove(backward).counter_example, Catch::Matchers::Equals(""));
  const Graph& graph = backward.contract.graph;
  const auto of_gains = [&](const Collective& o, const std::vector<Buffer>& buffers) {
    const Buffer& to = buffers[o.to.index()];
    return to.tensor == Tensor::d_param && graph.param(to.label).name == "qk_norm";
  };
  // Summed up over the ranks that hold other tokens of the same heads.
  Schedule of_own_heads = backward;
  of_own_heads.program = [program = backward.program, of_gains](Rank rank) {
    return changed<Collective>(program(rank), of_gains, [&](Collective& o) {
      o.group = {.first = rank.value % 2, .stride = 2, .size = 2};
    });
  };
  CHECK_THAT(refuted(of_own_heads), Contains("d_param.qk_norm") &&
                                        Contains("lacks the contribution of tokens") &&
                                        Contains("(part 1 of 2)"));
  const auto joins = [&](const RowKernel& o, const std::vector<Buffer>&) {
    return o.backward && graph.definition(o.definition).function == LayerFunction::split_heads;
  };
  // Without what was normed; through the norm of what something else was made from.
  CHECK_THAT(refuted(changed<RowKernel>(backward, joins,
                                        [](RowKernel& o) {
                                          const auto reads = o.reads.ids();
                                          o.reads = {reads[0], reads[1], reads[2], reads[4]};
                                        })),
             Contains("has other operands than split_heads backward"));
  CHECK_THAT(refuted(changed<RowKernel>(backward, joins,
                                        [](RowKernel& o) {
                                          const auto reads = o.reads.ids();
                                          o.reads = {reads[0], reads[1], reads[2],
                                                     o.writes.ids()[0], reads[4]};
                                        })),
             Contains("value.qkv"));
}

TEST_CASE("what all heads of latent attention have in common has the gradient of all of them") {
  using Catch::Matchers::Contains;
  LayerCase layer = small_layer();
  test::make_latent(layer);
  REQUIRE(layer.tensor > 1);
  const Schedule backward = layer.build(Phase::backward);
  REQUIRE_THAT(prove(backward).counter_example, Catch::Matchers::Equals(""));
  const Graph& graph = backward.contract.graph;
  const auto joins = [&](const RowKernel& o, const std::vector<Buffer>&) {
    return o.backward && graph.definition(o.definition).joins_latents();
  };
  // Each tensor rank keeps what its own heads give.
  CHECK_THAT(refuted(changed<Collective>(
                 backward,
                 [&](const Collective& o, const std::vector<Buffer>& buffers) {
                   const Buffer& to = buffers[o.to.index()];
                   return to.tensor == Tensor::d_value && graph.value(to.label).name == "k_rope";
                 },
                 [](Collective& o) { o.kind = CollectiveKind::all_gather; })),
             Contains("receives d_value.k_rope"));
  // Rows given back in another order.
  CHECK_THAT(refuted(changed<RowKernel>(backward, joins,
                                        [](RowKernel& o) {
                                          const auto writes = o.writes.ids();
                                          o.writes = {writes[1], writes[0], writes[2]};
                                        })),
             Contains("writes d_value.q_up to 'd_kv_up'"));
  // Heads of half of the tokens.
  CHECK_THAT(refuted(changed<RowKernel>(
                 layer.build(Phase::forward),
                 [&](const RowKernel& o, const std::vector<Buffer>&) {
                   return graph.definition(o.definition).joins_latents();
                 },
                 [](RowKernel& o) { o.tokens = o.tokens.part(0, 2); })),
             Contains("finds no query tokens"));
}

// With sinks, too: their two kernels, which the list has inside of attention's, are neither.
TEST_CASE("a layer's schedule has the products and transfers of its list of operations") {
  for_each_layer(2, [](const LayerCase& c, Phase phase) {
    const Schedule schedule = c.build(phase);
    const TensorOps list = c.ops();
    const LocalTokens local{.tokens = schedule.contract.attention.seq / c.attention.plan.ranks(),
                            .batch = schedule.contract.attention.batch,
                            .dtype = schedule.contract.attention.dtype,
                            .split = {.tensor = c.tensor}};
    std::vector<GemmShape> expected;
    std::array<Bytes, comm_kinds> moved{};
    for (const LayerOp& op :
         phase == Phase::forward ? forward_ops(list, local) : backward_ops(list, local)) {
      if (const auto* gemm = std::get_if<GemmShape>(&op.work)) {
        expected.push_back(*gemm);
      } else if (const auto* transfer = std::get_if<LayerTransfer>(&op.work)) {
        moved.at(static_cast<std::size_t>(transfer->kind)) +=
            transfer->bytes / c.tensor * (c.tensor - 1);
      }
    }
    const Program program = schedule.program(Rank(0));
    const Shapes shapes{
        .problem = &schedule.contract.attention, .buffers = program.buffers, .rank = Rank(0)};
    std::vector<GemmShape> products;
    std::array<Bytes, comm_kinds> sent{};
    for (const Op& op : ops_of(program)) {
      if (const auto* gemm = op_if<Gemm>(op.body)) {
        products.push_back(gemm_shape(*gemm, shapes));
      }
      if (op.stream == StreamId(6)) {
        const Transfer& transfer = std::get<Transfer>(op.body);
        sent.at(static_cast<std::size_t>(comm_kind_of(transfer))) += sent_bytes(transfer, shapes);
      }
    }
    const auto order = [](const GemmShape& g) { return std::tuple(g.m, g.n, g.k); };
    std::ranges::sort(expected, {}, order);
    std::ranges::sort(products, {}, order);
    REQUIRE(products == expected);
    REQUIRE(sent == moved);
  });
}

}  // namespace
}  // namespace spp
