// Mirrors one header, hence one file.
#include "schedule/text.hpp"

#include "base/error.hpp"
#include "schedule/arena.hpp"
#include "schedule/coverage.hpp"
#include "schedule/measure.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/schedule/ring_of_two.hpp"

#include <algorithm>
#include <random>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;
using spp::test::ring_of_two;

namespace {

/// A rank with every op and every optional field; it computes nothing sensible.
Schedule one_of_each() {
  Schedule s;
  s.contract.attention = {.seq = 64,
                          .batch = 2,
                          .q_heads = 8,
                          .kv_heads = 4,
                          .head_dim = 16,
                          .value_dim = 8,
                          .mask = {.kind = MaskKind::window, .window = 24},
                          .dtype = DType::fp16};
  s.contract.requested = s.contract.attention;
  s.contract.phase = Phase::backward;
  s.mesh = Mesh(
      {{.name = "ring", .size = 2}, {.name = "ulysses", .size = 2}, {.name = "team", .size = 2}});
  s.grain = {.tokens = 8, .heads = HeadSplit(s.contract.attention, 2, HeadPolicy::divide)};
  s.streams = {"compute", "ulysses", "ring.kv"};
  s.symmetry = {{.axis = "ulysses", .under = AxisMoves::permutations},
                {.axis = "ring", .under = AxisMoves::rotations}};
  s.contract.graph.values = {{.name = "x", .width = 24},
                             {.name = "y", .width = 24},
                             {.name = "rms", .width = 1, .fp32 = true},
                             {.name = "z", .width = 48, .parts = 2}};
  s.contract.graph.params = {{.name = "gain", .rows = 24},
                             {.name = "wide", .rows = 24, .columns = 48, .column_parts = 2}};
  s.contract.graph.routing = {.experts = 8, .chosen = 2, .groups = 4, .period = 16};
  const TensorRef value_x{Tensor::value, 0};
  const TensorRef value_y{Tensor::value, 1};
  s.contract.graph.definitions = {{.function = LayerFunction::rms_norm,
                                   .reads = {value_x},
                                   .writes = {value_y, {Tensor::value, 2}},
                                   .param = 0,
                                   .constant = 1e-5},
                                  {.function = LayerFunction::linear,
                                   .reads = {value_y},
                                   .writes = {{Tensor::value, 3}},
                                   .param = 1}};
  s.program = [problem = s.contract.attention, mesh = s.mesh, graph = s.contract.graph](Rank rank) {
    ProgramBuilder b(problem, rank, graph);
    const TokenSet tile({.begin = 0, .count = 4}, {.begin = 60, .count = 4});
    const HeadRange heads{2, 6};
    const BufferId row = b.input("row", {Tensor::value, 0}, tile, {0, 1});
    const BufferId gain =
        b.input("w_gain", {Tensor::param, 0}, TokenSet({.begin = 0, .count = 24}), {0, 1});
    const BufferId d_wide = b.scratch("d_wide", {Tensor::d_param, 1}, 24, 1);
    const BufferId x = b.input("x", Tensor::q, tile, heads);
    const BufferId y =
        b.output("y", Tensor::d_k, TokenSet({.begin = 1, .count = 8, .stride = 8}), {0, 4});
    const BufferId z = b.scratch("z-1.a", Tensor::delta, 0, 0, DType::fp32);
    const StreamId compute(0);
    const StreamId ulysses(1);
    const RankGroup group = mesh.group(rank, 1);
    b.once([=](OpList& ops) {
      ops.push_back({compute, AttentionForward{.q = x,
                                               .k = y,
                                               .v = z,
                                               .out = x,
                                               .lse = z,
                                               .q_tokens = tile,
                                               .k_tokens = {},
                                               .heads = heads,
                                               .kv_heads = {1, 3}}});
      ops.push_back({compute, AttentionBackward{.q = x,
                                                .k = y,
                                                .v = z,
                                                .d_out = x,
                                                .lse = y,
                                                .delta = z,
                                                .d_q = x,
                                                .d_k = y,
                                                .d_v = z,
                                                .q_tokens = tile,
                                                .k_tokens = tile,
                                                .heads = heads,
                                                .kv_heads = {1, 3}}});
    });
    b.op(compute, Gemm{.kind = GemmKind::weight_gradient,
                       .definition = 1,
                       .a = row,
                       .b = x,
                       .c = d_wide,
                       .tokens = tile,
                       .initial = false});
    b.op(compute, RowKernel{.definition = 0,
                            .backward = true,
                            .reads = {row, gain},
                            .writes = {row},
                            .tokens = tile});
    const HeadRange kv_heads{1, 3};
    b.op(compute, Scores{.rows = x,
                         .columns = y,
                         .to = z,
                         .q_tokens = tile,
                         .k_tokens = tile,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .initial = true});
    b.op(compute, Softmax{.scores = x, .weights = y, .tokens = tile});
    b.op(compute, SoftmaxBackward{.weights = x, .d_weights = y, .d_scores = z});
    b.op(compute, Weigh{.weights = x,
                        .values = y,
                        .to = z,
                        .q_tokens = tile,
                        .k_tokens = tile,
                        .heads = heads,
                        .kv_heads = kv_heads});
    b.op(compute, WeighBack{.weights = x,
                            .rows = y,
                            .to = z,
                            .q_tokens = tile,
                            .k_tokens = tile,
                            .heads = heads,
                            .kv_heads = kv_heads});
    b.op(compute, LinearForward{.q = x,
                                .k = y,
                                .v = z,
                                .out = x,
                                .tokens = tile,
                                .heads = heads,
                                .kv_heads = kv_heads});
    b.op(compute, LinearBackward{.q = x,
                                 .k = y,
                                 .v = z,
                                 .d_out = x,
                                 .d_q = y,
                                 .d_k = z,
                                 .d_v = x,
                                 .tokens = tile,
                                 .heads = heads,
                                 .kv_heads = kv_heads});
    b.op(compute, MakeState{.rows = x,
                            .values = y,
                            .to = z,
                            .tokens = tile,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .slot = 3});
    b.op(compute, SumStates{.from = x, .to = y, .slots = tile, .slot = 1});
    b.op(compute, ApplyState{.rows = x,
                             .state = y,
                             .to = z,
                             .tokens = tile,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .initial = true});
    b.op(compute, RowDot{.out = x, .d_out = y, .delta = z});
    b.op(compute, Sink{.out = x, .lse = y, .sinks = z});
    b.op(compute, SinkBackward{.lse = x, .delta = y, .sinks = z, .d_sinks = x});
    b.loop(3, [=](std::int64_t i, OpList& ops) {
      if (i != 1) {
        ops.push_back({compute, Merge{.out = x,
                                      .lse = y,
                                      .part_out = z,
                                      .part_lse = x,
                                      .tokens = tile,
                                      .initial = i == 0}});
      }
    });
    b.loop(2, [=](std::int64_t i, OpList& ops) {
      ops.push_back({compute, Accumulate{.sum = x, .part = y, .tokens = tile, .initial = i == 0}});
    });
    b.op(compute, Rescale{.out = x, .lse = y, .gathered_lse = z, .scaled = x, .global_lse = y});
    b.op(compute, Fill{.buffer = x, .tokens = tile, .heads = heads});
    for (const CopyKind kind :
         {CopyKind::pack, CopyKind::unpack, CopyKind::cast, CopyKind::reorder, CopyKind::fold}) {
      b.op(compute, Copy{.kind = kind, .from = x, .to = y});
    }
    for (const CopyKind kind :
         {CopyKind::take, CopyKind::add, CopyKind::dispatch, CopyKind::combine}) {
      b.op(compute, Copy{.kind = kind, .from = x, .to = y, .tokens = tile});
    }
    b.op(compute, Copy{.kind = CopyKind::combine,
                       .from = x,
                       .to = y,
                       .tokens = tile,
                       .of_group = true,
                       .expert_group = 3});
    b.op(StreamId(2), Exchange{.to = Rank(3), .from = Rank(5), .send = {x, y}, .receive = {z}});
    b.op(StreamId(2), Exchange{.to = Rank(3), .from = {}, .send = {x}, .receive = {}});
    b.op(StreamId(2), Exchange{.to = {}, .from = Rank(3), .send = {}, .receive = {x}});
    b.op(compute, Gemm{.definition = 1, .a = x, .b = y, .c = z, .tokens = tile, .experts = 2});
    b.op(compute, RowKernel{.definition = 0, .reads = {x}, .writes = {y}, .slots = true});
    for (const bool back : {false, true}) {
      b.op(ulysses, Collective{.kind = CollectiveKind::all_to_all,
                               .group = group,
                               .from = x,
                               .to = y,
                               .deal = ExpertDeal{.back = back, .cells = 4},
                               .to_tokens = tile,
                               .to_heads = heads});
    }
    for (const bool kv : {false, true}) {
      b.op(ulysses, Collective{.kind = CollectiveKind::all_to_all,
                               .group = group,
                               .from = x,
                               .to = y,
                               .deal = HeadDeal{.direction = HeadDirection::scatter_heads,
                                                .split = HeadSplit(problem, 2, HeadPolicy::divide),
                                                .kv = kv,
                                                .tokens = 8},
                               .to_tokens = tile,
                               .to_heads = heads});
    }
    b.op(ulysses, Collective{.kind = CollectiveKind::all_gather,
                             .group = group,
                             .from = x,
                             .to = y,
                             .to_tokens = tile,
                             .to_heads = heads});
    b.op(ulysses, Collective{.kind = CollectiveKind::reduce_scatter,
                             .group = group,
                             .from = x,
                             .to = y,
                             .to_tokens = tile,
                             .to_heads = heads});
    b.op(ulysses, Collective{.kind = CollectiveKind::all_reduce,
                             .group = group,
                             .from = x,
                             .to = y,
                             .to_tokens = tile,
                             .to_heads = heads});
    return b.finish();
  };
  return s;
}

std::string golden() { return test::read_text(test::source_path("tests/golden/ring_of_two.txt")); }

/// The golden text with one piece replaced; the piece must be there.
std::string broken(std::string_view piece, std::string_view by) {
  std::string text = golden();
  const std::size_t at = text.find(piece);
  REQUIRE(at != std::string::npos);
  return text.replace(at, piece.size(), by);
}

std::string complaint(std::string_view piece, std::string_view by) {
  return message_of<InputError>([&] { parse_schedule(broken(piece, by), "s.txt"); });
}

}  // namespace

TEST_CASE("the ring of two is written as in tests/golden/ring_of_two.txt") {
  CHECK(to_text(ring_of_two()) == golden());
}

TEST_CASE("text, read and written again, is the same text") {
  const std::string ring = to_text(ring_of_two());
  CHECK(to_text(parse_schedule(ring, "ring")) == ring);
  const std::string each = to_text(one_of_each());
  CHECK(to_text(parse_schedule(each, "each")) == each);
}

TEST_CASE("a schedule, written and read, has the same header, buffers, ops and loops") {
  const Schedule before = one_of_each();
  const Schedule after = parse_schedule(to_text(before), "each");
  CHECK(after.contract.attention == before.contract.attention);
  CHECK(after.contract.requested == before.contract.requested);
  CHECK(after.grain == before.grain);
  CHECK(after.contract.graph == before.contract.graph);
  CHECK(after.contract.phase == before.contract.phase);
  CHECK(after.streams == before.streams);
  CHECK(after.symmetry == before.symmetry);
  CHECK(after.mesh == before.mesh);
  for (int r = 0; r < before.mesh.size(); ++r) {
    const Program p = before.program(Rank(r));
    const Program q = after.program(Rank(r));
    CHECK(ops_of(p) == ops_of(q));
    REQUIRE(p.buffers.size() == q.buffers.size());
    for (std::size_t i = 0; i < p.buffers.size(); ++i) {
      CHECK(p.buffers[i].name == q.buffers[i].name);
      CHECK(p.buffers[i].ref() == q.buffers[i].ref());
      CHECK(p.buffers[i].width == q.buffers[i].width);
      CHECK(p.buffers[i].batch == q.buffers[i].batch);
      CHECK(p.buffers[i].role == q.buffers[i].role);
      CHECK(p.buffers[i].dtype == q.buffers[i].dtype);
      CHECK(p.buffers[i].tokens == q.buffers[i].tokens);
      CHECK(p.buffers[i].heads == q.buffers[i].heads);
      CHECK(p.buffers[i].tile == q.buffers[i].tile);
      CHECK(p.buffers[i].head_range == q.buffers[i].head_range);
    }
  }
  const auto repeated = [](const Program& p) {
    std::vector<std::int64_t> trips;
    for (const Loop& loop : p.loops) {
      if (loop.trips > 1) {
        trips.push_back(loop.trips);
      }
    }
    return trips;
  };
  CHECK(repeated(after.program(Rank(0))) == std::vector<std::int64_t>{3, 2});
}

TEST_CASE("the ring of two is proven, and so is what was read of its text") {
  CHECK(prove(ring_of_two()).counter_example.empty());
  CHECK(prove(parse_schedule(golden(), "ring")).counter_example.empty());
}

TEST_CASE("every op has a word of its own") {
  const std::string text = to_text(one_of_each());
  std::vector<std::string> names(op_names().begin(), op_names().end());
  CHECK(names.size() == op_kinds);
  for (const std::string& name : names) {
    CHECK_THAT(text, ContainsSubstring(": " + name + " "));
  }
  std::ranges::sort(names);
  CHECK(std::ranges::adjacent_find(names) == names.end());
}

TEST_CASE("heads that are replicated, padded or uneven are read back as such") {
  struct Case {
    int kv_heads;
    int ulysses;
    HeadPolicy policy;
  };
  for (const Case c : {Case{2, 4, HeadPolicy::replicate}, Case{3, 4, HeadPolicy::pad},
                       Case{5, 4, HeadPolicy::uneven}, Case{4, 4, HeadPolicy::divide}}) {
    CAPTURE(to_string(c.policy));
    const HeadPolicy policy = c.policy;
    Schedule s;
    s.contract.attention = {
        .seq = 64, .q_heads = c.kv_heads * 2, .kv_heads = c.kv_heads, .head_dim = 8};
    s.contract.requested = s.contract.attention;
    s.mesh = Mesh({{.name = "ulysses", .size = c.ulysses}});
    s.grain.heads = HeadSplit(s.contract.attention, c.ulysses, policy);
    s.streams = {"compute"};
    s.program = [problem = s.contract.attention, mesh = s.mesh, policy](Rank rank) {
      ProgramBuilder b(problem, rank);
      const BufferId x = b.scratch("x", Tensor::k, 4, 1);
      b.op(StreamId(0),
           Collective{.kind = CollectiveKind::all_to_all,
                      .group = mesh.group(rank, 0),
                      .from = x,
                      .to = x,
                      .deal = HeadDeal{.split = HeadSplit(problem, mesh.size(), policy)},
                      .to_tokens = {},
                      .to_heads = {}});
      return b.finish();
    };
    const Schedule read = parse_schedule(to_text(s), "x");
    CHECK(ops_of(read.program(Rank(3))) == ops_of(s.program(Rank(3))));
  }
}

TEST_CASE("only the ranks that are asked for are written") {
  const Schedule s = ring_of_two();
  const std::array ranks{Rank(1)};
  const std::string text = to_text(s, ranks);
  CHECK_THAT(text, ContainsSubstring("\nrank 1\n"));
  CHECK_THAT(text, !ContainsSubstring("\nrank 0\n"));
  const Schedule read = parse_schedule(text, "part.txt");
  CHECK(to_text(read, ranks) == text);
  CHECK(message_of<InputError>([&] { read.program(Rank(0)); }) ==
        "part.txt: holds no program of rank 0");
}

TEST_CASE("comments, empty lines, indentation and line ends do not matter") {
  std::string text = golden();
  std::string other = "# by hand\r\n\r\n";
  for (const char c : text) {
    other += c == '\n' ? std::string(" \r\n  # more\n") : std::string(1, c);
  }
  other.pop_back();
  CHECK(to_text(parse_schedule(other, "x")) == text);
}

TEST_CASE("a mistyped word is answered with its line and the nearest word") {
  CHECK(complaint("attention_fwd", "atention_fwd") ==
        "s.txt:21: unknown op 'atention_fwd' (did you mean 'attention_fwd'?)");
  CHECK(complaint("out=part ", "out=prat ") ==
        "s.txt:21: rank 0 has no buffer 'prat' (did you mean 'part'?)");
  CHECK(complaint("ring: exchange", "rnig: exchange") ==
        "s.txt:19: unknown stream 'rnig' (did you mean 'ring'?)");
  CHECK(complaint("q_tokens=", "q_token=") ==
        "s.txt:21: 'q_tokens=' is missing (did you mean it by 'q_token'?)");
  CHECK(complaint("k scratch", "kk scratch") == "s.txt:15: unknown value 'kk' (did you mean 'k'?)");
  CHECK(complaint("heads=divide", "heads=devide") ==
        "s.txt:6: unknown value 'devide' (did you mean 'divide'?)");
  CHECK(complaint("symmetry ring=rotations", "symmetry ring=rotation") ==
        "s.txt:8: unknown value 'rotation' (did you mean 'rotations'?)");
}

TEST_CASE("what does not fit is refused with its line") {
  struct Case {
    std::string_view piece, by, message;
  };
  for (const Case& c : {
           Case{"schedule 2.0", "schedule 1.0", "s.txt:1: version '1.0' cannot be read"},
           Case{"sp-plan/schedule", "sp-plan/plan", "s.txt:1: expected the line 'sp-plan/schedule"},
           Case{"seq=16", "seq=0", "s.txt:2: 0 is out of range"},
           Case{"seq=16", "seq=1x", "s.txt:2: '1x' is not a whole number"},
           Case{"kv_heads=2", "kv_heads=3", "s.txt:2: kv_heads=3 does not divide q_heads=4"},
           Case{"head_dim=8", "head_dim=8 colour=red", "s.txt:2: unknown field 'colour'"},
           Case{"head_dim=8", "head_dim=8 head_dim=8", "s.txt:2: 'head_dim' stands twice"},
           Case{"requested seq=15", "requested seq=17",
                "s.txt:3: seq=17 q_heads=4 kv_heads=2 cannot"},
           Case{"requested seq=15 batch=1", "requested seq=15 batch=2",
                "s.txt:3: requested differs from the problem in more than seq"},
           Case{"mask=full", "mask=full@9+8", "s.txt:2: mask=full@9+8: documents of 17 tokens"},
           Case{"mask=full", "mask=full@3+2x4", "s.txt:2: mask=full@3+2x4: documents of 20 tokens"},
           Case{"mesh ring=2", "mesh ring", "s.txt:5: 'ring' is no axis=size"},
           Case{"mesh ring=2", "mesh ring=2 ring=1", "s.txt:5: 'ring' is no axis=size, or stands"},
           Case{"tokens=0 parts", "tokens=3 parts", "s.txt:6: tokens=3 cuts 16 tokens into more"},
           Case{"parts=1", "parts=3", "s.txt:6: heads=divide: 2 KV heads do not divide over 3"},
           Case{"symmetry ring", "symmetry rings", "s.txt:8: the mesh has no axis 'rings'"},
           Case{"streams compute ring", "streams compute compute", "s.txt:7: 'compute' is no name"},
           Case{"rank 0", "rank 2", "s.txt:9: 2 is out of range (0 to 1)"},
           Case{"rank 1", "rank 0", "rank 0 stands twice"},
           Case{"buffer v1 ", "buffer k1 ", "s.txt:16: buffer 'k1' stands twice"},
           Case{"tokens=8", "tokens=8000000000", "s.txt:15: 8000000000 is out of range"},
           Case{"tile=0:8", "tile=9:8", "s.txt:10: tile=9:8 reaches beyond the sequence's 16"},
           Case{"tile=0:8", "tile=0:3/8", "s.txt:10: tile=0:3/8 reaches beyond"},
           Case{"tile=0:8", "tile=0:16+0:8", "s.txt:10: tile=0:16+0:8 has tokens twice"},
           Case{"exchange to=1", "exchange to=7", "s.txt:19: 7 is out of range (0 to 1)"},
           Case{" initial", " initial=yes", "s.txt:22: 'initial' stands twice, or is a flag"},
           Case{"iteration 2 of 2", "iteration 3 of 2", "s.txt:23: 3 is out of range (1 to 2)"},
           Case{"iteration 2 of 2", "iteration 2 of 3", "s.txt:23: expected 'iteration 2 of 2'"},
           Case{"iteration 1 of 2", "iteration 1 of 900000000000", "s.txt:23"},
           Case{"  end\n", "", "'end' is missing"},
           Case{"  iteration 1 of 2\n", "", "s.txt:22: expected 'iteration 1 of 2'"},
       }) {
    CAPTURE(c.piece, c.by);
    CHECK_THAT(complaint(c.piece, c.by), ContainsSubstring(std::string(c.message)));
  }
}

TEST_CASE("absurd sizes are refused before anything is allocated") {
  CHECK_THAT(complaint("mesh ring=2", "mesh ulysses=1000 ring=1001"),
             ContainsSubstring("more than 1000000 ranks"));
  CHECK_THAT(complaint("mesh ring=2", "mesh ring=1000001"), ContainsSubstring("out of range"));
  CHECK_THAT(complaint("head_dim=8", "head_dim=99999999999999999999"),
             ContainsSubstring("out of range"));
  CHECK_THAT(complaint("batch=1 q_heads=4 kv_heads=2 head_dim=8",
                       "batch=1048576 q_heads=4 kv_heads=2 head_dim=65536"),
             ContainsSubstring("batch * q_heads * head_dim or value_dim is too large"));
  CHECK_THAT(complaint("buffer out out output bf16 tile=0:8 heads=0:4",
                       "buffer out out output bf16 tile=0:8 heads=0:4 room=8"),
             ContainsSubstring("room=8: only an input has room behind its tile"));
  CHECK_THAT(complaint(" batch=1", " cached=16 batch=1 micro_batches=2"),
             ContainsSubstring("cached=16: of one forward"));
  CHECK_THAT(complaint(" batch=1", "0000000 micro_batches=1000000 batch=1"),
             ContainsSubstring("seq * micro_batches is too large"));
  CHECK_THAT(complaint("phase fwd", "phase fwd recompute"),
             ContainsSubstring("a step computes again, no 'fwd'"));
}

TEST_CASE("values as wide as keys need no width of their own, and linear attention has no other") {
  const std::string text = to_text(ring_of_two());
  CHECK(text.find("value_dim") == std::string::npos);
  Schedule told = ring_of_two();
  told.contract.attention.value_dim = told.contract.requested.value_dim = 8;
  CHECK(to_text(told) == text);
  const std::string read = broken("head_dim=8 mask", "head_dim=8 value_dim=8 mask");
  CHECK(parse_schedule(read, "s.txt").contract.attention == ring_of_two().contract.attention);
  CHECK_THAT(complaint("dtype=bf16", "value_dim=4 dtype=bf16 linear"),
             ContainsSubstring("value_dim=4 differs from head_dim=8"));
}

TEST_CASE("a text that stops early names what is missing") {
  CHECK(message_of<InputError>([] { parse_schedule("", "s.txt"); }) ==
        "s.txt: ends before the line 'sp-plan/schedule …'");
  CHECK(message_of<InputError>([] { parse_schedule("sp-plan/schedule 2.0\n", "s.txt"); }) ==
        "s.txt: ends before the line 'problem …'");
}

TEST_CASE("a text cut or changed anywhere is read or refused, nothing else") {
  const std::string text = to_text(one_of_each());
  const std::string_view characters = "0129:,=/+-# \nabkq\xff";
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text.substr(0, below(8) == 0 ? below(text.size()) : text.size());
    for (std::size_t n = below(4); n > 0 && !changed.empty(); --n) {
      changed[below(changed.size())] = characters[below(characters.size())];
    }
    try {
      const Schedule s = parse_schedule(changed, "s.txt");
      for (int r = 0; r < s.mesh.size(); ++r) {  // whatever was read can be measured and written
        const Program program = s.program(Rank(r));
        totals_of(program, s.contract.attention, Rank(r));
        plan_arena(program);
        to_text(s, std::array{Rank(r)});
      }
    } catch (const InputError&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("names that would break the text are our bugs") {
  Schedule s = ring_of_two();
  s.streams[1] = "ring 1";
  CHECK_THROWS_AS(to_text(s), InternalError);
  s.streams = {"compute"};
  CHECK_THROWS_AS(to_text(s), InternalError);
}
