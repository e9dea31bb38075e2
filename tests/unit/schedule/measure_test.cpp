// Bytes and FLOPs by hand. The system: seq 1024 on ranks of 256 tokens, batch 2, 8 query heads and
// 4 KV heads of dimension 16 in bf16. One KV tile: 2*256*4*16*2 B = 65,536 B; one Q tile: 131,072
// B.
#include "schedule/measure.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/schedule/ring_of_two.hpp"

using namespace spp;

namespace {

constexpr std::int64_t q_tile = 131'072;
constexpr std::int64_t kv_tile = 65'536;
constexpr std::int64_t lse_tile = 2LL * 256 * 8 * 4;

struct Operands {
  Problem problem{.seq = 1024, .batch = 2, .q_heads = 8, .kv_heads = 4, .head_dim = 16};
  std::vector<Buffer> buffers;

  BufferId add(Tensor tensor, std::int64_t tokens, int heads, DType dtype = DType::bf16) {
    const BufferShape shape = shape_of(tensor, problem);
    buffers.push_back({.name = {},
                       .tensor = tensor,
                       .dtype = dtype,
                       .tokens = tokens,
                       .heads = heads,
                       .width = shape.width,
                       .batch = shape.batch});
    return BufferId(buffers.size() - 1);
  }
  BufferId q() { return add(Tensor::q, 256, 8); }
  BufferId kv() { return add(Tensor::k, 256, 4); }
  BufferId lse(std::int64_t tokens = 256) { return add(Tensor::lse, tokens, 8, DType::fp32); }
  std::int64_t sent(const Transfer& transfer, int rank = 0) {
    return sent_bytes(transfer, {.problem = &problem, .buffers = buffers, .rank = Rank(rank)})
        .value();
  }
  double flops(const Kernel& kernel) {
    return attention_flops(kernel, {.problem = &problem, .buffers = buffers, .rank = Rank(0)})
        .value();
  }
  std::int64_t touched(const Kernel& kernel) {
    return touched_bytes(kernel, {.problem = &problem, .buffers = buffers, .rank = Rank(0)})
        .value();
  }
};

}  // namespace

TEST_CASE("a buffer has batch * tokens * heads * width elements") {
  Operands b;
  const auto size = [&](BufferId id) { return bytes_of(b.buffers[id.index()]).value(); };
  CHECK(size(b.q()) == q_tile);
  CHECK(size(b.kv()) == kv_tile);
  CHECK(size(b.lse()) == lse_tile);
  CHECK(size(b.add(Tensor::delta, 256, 8, DType::fp32)) == lse_tile);
  CHECK(size(b.add(Tensor::d_k, 256, 4, DType::fp32)) == 2 * kv_tile);
}

TEST_CASE("values and outputs may be narrower than queries and keys") {
  Operands b;
  b.problem.value_dim = 8;
  const auto size = [&](Tensor tensor, int heads) {
    return bytes_of(b.buffers[b.add(tensor, 256, heads).index()]).value();
  };
  for (const Tensor of_keys : {Tensor::k, Tensor::d_k}) {
    CHECK(size(of_keys, 4) == kv_tile);
  }
  for (const Tensor of_values : {Tensor::v, Tensor::d_v}) {
    CHECK(size(of_values, 4) == kv_tile / 2);
  }
  CHECK(size(Tensor::q, 8) == q_tile);
  CHECK(size(Tensor::d_q, 8) == q_tile);
  CHECK(size(Tensor::out, 8) == q_tile / 2);
  CHECK(size(Tensor::d_out, 8) == q_tile / 2);

  const TokenSet tokens({.begin = 0, .count = 256});
  const double pairs = 256.0 * 256 * 8 * 2;  // all, of all heads, in both sequences
  b.problem.mask = {.kind = MaskKind::full};
  CHECK(b.flops(AttentionForward{.q_tokens = tokens, .k_tokens = tokens, .heads = {0, 8}}) ==
        pairs * 2 * (16 + 8));
  CHECK(b.flops(AttentionBackward{.q_tokens = tokens, .k_tokens = tokens, .heads = {0, 8}}) ==
        pairs * (6 * 16 + 4 * 8));
  const auto scores = [&](Tensor columns) {
    return b.flops(Scores{.columns = b.add(columns, 256, 4),
                          .q_tokens = tokens,
                          .k_tokens = tokens,
                          .heads = {0, 8}});
  };
  CHECK(scores(Tensor::k) == pairs * 2 * 16);
  CHECK(scores(Tensor::v) == pairs * 2 * 8);
}

TEST_CASE("an exchange sends its buffers, and nothing over the network to itself or nobody") {
  Operands b;
  const BufferId k = b.kv();
  const BufferId v = b.kv();
  CHECK(b.sent(Exchange{.to = Rank(1), .from = Rank(3), .send = {k, v}, .receive = {}}) ==
        2 * kv_tile);
  CHECK(b.sent(Exchange{.to = Rank(0), .from = Rank(0), .send = {k}, .receive = {v}}) == 0);
  CHECK(b.sent(Exchange{.to = {}, .from = Rank(3), .send = {}, .receive = {v}}) == 0);
}

TEST_CASE("an all-gather sends the own part to all others") {
  Operands b;
  const Collective op{.kind = CollectiveKind::all_gather,
                      .group = {.first = 0, .stride = 1, .size = 4},
                      .from = b.kv(),
                      .to = b.add(Tensor::k, 1024, 4),
                      .to_tokens = {},
                      .to_heads = {}};
  CHECK(b.sent(op) == 3 * kv_tile);
}

TEST_CASE("a reduce-scatter sends one part to each other") {
  Operands b;
  const Collective op{.kind = CollectiveKind::reduce_scatter,
                      .group = {.first = 0, .stride = 1, .size = 4},
                      .from = b.add(Tensor::d_k, 1024, 4),
                      .to = b.kv(),
                      .to_tokens = {},
                      .to_heads = {}};
  CHECK(b.sent(op) == 3 * kv_tile);
}

TEST_CASE("an all-reduce reduces and gathers every part but one") {
  Operands b;
  const Collective op{.kind = CollectiveKind::all_reduce,
                      .group = {.first = 0, .stride = 1, .size = 4},
                      .from = b.add(Tensor::d_k, 1024, 4),
                      .to = b.add(Tensor::d_k, 1024, 4),
                      .to_tokens = {},
                      .to_heads = {}};
  CHECK(b.sent(op) == 2 * 3 * kv_tile);
}

TEST_CASE("scattering heads sends each other rank its heads of the own tokens") {
  Operands b;
  Collective op{.kind = CollectiveKind::all_to_all,
                .group = {.first = 0, .stride = 1, .size = 4},
                .from = b.q(),
                .to = b.add(Tensor::q, 1024, 2),
                .deal = HeadDeal{.direction = HeadDirection::scatter_heads,
                                 .split = HeadSplit(b.problem, 4, HeadPolicy::divide),
                                 .tokens = 256},
                .to_tokens = {},
                .to_heads = {}};
  CHECK(b.sent(op) == 3 * q_tile / 4);
  op.from = b.kv();
  std::get<HeadDeal>(op.deal).kv = true;
  CHECK(b.sent(op, 2) == 3 * kv_tile / 4);
}

TEST_CASE("gathering heads sends each other rank its tokens of the own heads") {
  Operands b;
  const Collective op{.kind = CollectiveKind::all_to_all,
                      .group = {.first = 0, .stride = 1, .size = 4},
                      .from = b.add(Tensor::out, 1024, 2),
                      .to = b.q(),
                      .deal = HeadDeal{.direction = HeadDirection::gather_heads,
                                       .split = HeadSplit(b.problem, 4, HeadPolicy::divide),
                                       .tokens = 256},
                      .to_tokens = {},
                      .to_heads = {}};
  CHECK(b.sent(op) == 3 * q_tile / 4);
}

TEST_CASE("replicated KV heads are sent to every rank that needs them") {
  Operands b;  // 4 KV heads over 8 ranks: one head to each of the 7 others
  const Collective op{.kind = CollectiveKind::all_to_all,
                      .group = {.first = 0, .stride = 1, .size = 8},
                      .from = b.kv(),
                      .to = b.add(Tensor::k, 2048, 1),
                      .deal = HeadDeal{.direction = HeadDirection::scatter_heads,
                                       .split = HeadSplit(b.problem, 8, HeadPolicy::replicate),
                                       .kv = true,
                                       .tokens = 256},
                      .to_tokens = {},
                      .to_heads = {}};
  CHECK(b.sent(op) == 7 * kv_tile / 4);
}

TEST_CASE("uneven heads: a rank sends all but its own share, however large that is") {
  Operands b;  // 4 KV heads over 3 ranks: 2 1 1
  Collective op{.kind = CollectiveKind::all_to_all,
                .group = {.first = 0, .stride = 1, .size = 3},
                .from = b.kv(),
                .to = b.add(Tensor::k, 768, 2),
                .deal = HeadDeal{.direction = HeadDirection::scatter_heads,
                                 .split = HeadSplit(b.problem, 3, HeadPolicy::uneven),
                                 .kv = true,
                                 .tokens = 256},
                .to_tokens = {},
                .to_heads = {}};
  CHECK(b.sent(op, 0) == 2 * kv_tile / 4);
  CHECK(b.sent(op, 1) == 3 * kv_tile / 4);
  std::get<HeadDeal>(op.deal).direction =
      HeadDirection::gather_heads;  // 2 heads of 256 tokens to each of 2 others
  CHECK(b.sent(op, 0) == 2 * 2 * kv_tile / 4);
}

TEST_CASE("attention counts 4 FLOPs a pair, head and dimension forward, 10 backward") {
  Operands b;
  const TokenSet first({.begin = 0, .count = 256});
  const TokenSet second({.begin = 256, .count = 256});
  const HeadRange heads{0, 8};
  const double full = 256.0 * 256 * 8 * 16 * 2;  // pairs * heads * dim * batch
  const auto forward = [&](const TokenSet& q, const TokenSet& k) {
    AttentionForward op;
    op.q_tokens = q;
    op.k_tokens = k;
    op.heads = heads;
    return b.flops(op);
  };
  CHECK(forward(second, first) == 4 * full);
  CHECK(forward(first, second) == 0);  // causal
  CHECK(forward(first, first) == 4 * full / 65'536 * (256.0 * 257 / 2));
  AttentionBackward backward;
  backward.q_tokens = second;
  backward.k_tokens = first;
  backward.heads = heads;
  CHECK(b.flops(backward) == 10 * full);
  CHECK(b.flops(Merge{}) == 0);
}

TEST_CASE("a merge reads the part, and reads and writes the accumulator") {
  Operands b;
  Merge op{.out = b.add(Tensor::out, 1024, 8, DType::fp32),
           .lse = b.lse(1024),
           .part_out = b.q(),
           .part_lse = b.lse(),
           .tokens = TokenSet({.begin = 0, .count = 256})};
  const std::int64_t part = q_tile + lse_tile;
  const std::int64_t sum = 2 * q_tile + lse_tile;  // fp32, the part's tokens only
  CHECK(b.touched(op) == part + 2 * sum);
  op.initial = true;
  CHECK(b.touched(op) == part + sum);
}

TEST_CASE("a sink changes all rows of out and lse, its gradient reads those of delta") {
  Operands b;
  const BufferId sinks = b.lse(8);
  const BufferId d_sinks = b.lse(8);
  for (const auto& [id, dtype] : {std::pair(sinks, DType::bf16), std::pair(d_sinks, DType::fp32)}) {
    Buffer& buffer = b.buffers[id.index()];
    buffer.tensor = Tensor::param;
    buffer.dtype = dtype;
    buffer.heads = 1;
    buffer.batch = 1;
  }
  const BufferId lse = b.lse(1024);  // of four ranks' tokens
  CHECK(b.touched(Sink{.out = b.q(), .lse = lse, .sinks = sinks}) ==
        2 * (q_tile + 4 * lse_tile) + 8 * 2);
  CHECK(b.touched(SinkBackward{.lse = lse, .delta = b.lse(), .sinks = sinks, .d_sinks = d_sinks}) ==
        2 * lse_tile + 8 * (2 + 4));
}

TEST_CASE("the gradient of heads that are normed reads what was normed, which v is not") {
  Operands b;
  const auto of_graph = [&](Tensor tensor, std::int64_t tokens, std::int64_t width, DType dtype) {
    const BufferId id = b.q();
    Buffer& buffer = b.buffers[id.index()];
    buffer.tensor = tensor;
    buffer.dtype = dtype;
    buffer.tokens = tokens;
    buffer.heads = 1;
    buffer.width = width;
    buffer.batch = is_param(tensor) ? 1 : b.problem.batch;
    return id;
  };
  constexpr std::int64_t width = (8 + 2 * 4) * 16;
  RowKernel op{
      .backward = true,
      .reads = {b.add(Tensor::d_q, 256, 8, DType::bf16), b.add(Tensor::d_k, 256, 4, DType::bf16),
                b.add(Tensor::d_v, 256, 4, DType::bf16)},
      .writes = {of_graph(Tensor::d_value, 256, width, DType::bf16)},
      .tokens = TokenSet({.begin = 0, .count = 256})};
  constexpr std::int64_t row = q_tile + 2 * kv_tile;
  CHECK(b.touched(op) == 2 * row);
  op.reads.push_back(of_graph(Tensor::value, 256, width, DType::bf16));
  op.reads.push_back(of_graph(Tensor::param, 2 * 16, 1, DType::bf16));
  op.writes.push_back(of_graph(Tensor::d_param, 2 * 16, 1, DType::fp32));
  CHECK(b.touched(op) == 2 * row + q_tile + kv_tile + 2 * 16 * (2 + 4));
}

TEST_CASE("a copy reads one buffer and writes the other") {
  Operands b;
  CHECK(b.touched(Copy{.from = b.kv(), .to = b.add(Tensor::k, 256, 4, DType::fp32)}) ==
        3 * kv_tile);
}

TEST_CASE("a fill writes its tile") {
  Operands b;
  CHECK(b.touched(Fill{.buffer = b.add(Tensor::out, 1024, 8),
                       .tokens = TokenSet({.begin = 0, .count = 256}),
                       .heads = {0, 8}}) == q_tile);
}

TEST_CASE("transfers have a kind of communication") {
  CHECK(comm_kind_of(Exchange{}) == CommKind::send_recv);
  CHECK(to_string(comm_kind_of(
            Collective{.kind = CollectiveKind::all_to_all, .deal = HeadDeal{}})) == "all_to_all");
}

TEST_CASE("the totals of the ring of two are one hop and all pairs") {
  const Schedule s = test::ring_of_two();
  const Totals totals = totals_of(s.program(Rank(1)), s.contract.attention, Rank(1));
  CHECK(totals.sent[0] == Bytes(2 * 8 * 2 * 8 * 2));  // K and V: 8 tokens, 2 heads of 8, bf16
  CHECK(totals.sent[1] == Bytes(0));
  CHECK(totals.flops.value() == 4.0 * (8 * 16) * 4 * 8);
}
