// Every attention back end against attention in fp64.
//
// Inputs are uniform in [-1, 1], so scores are of order 1. Errors of sums of n terms grow like
// sqrt(n) u with random signs (u: half the distance of 1 to the next number). Tolerances, relative
// to the largest element of the result, whose terms have the same size:
//   fp32: 64 u32 sqrt(D + Nk): scores over D terms, sums over Nk keys, exp a few u, and room for
//         the extremes of some 10^5 elements (< 5 standard deviations, in each of three factors)
//         Terms of size 1 may cancel (dP - delta of a query with one key is 0): never below that.
//   bf16: P or dS is rounded (u16 a term, so u16 of the sum at most), and the result: 2 u16, twice
//         for the extremes of elements that are smaller than the largest terms they sum
//   fp16: the result is rounded: u16 more
#include "base/error.hpp"
#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/reference_attention.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <string>
#include <vector>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

struct Case {
  std::string name;
  Visibility visible;
  std::int64_t batch = 1;
  int q_heads = 1;
  int kv_heads = 1;
  int head_dim = 64;
  int value_dim = 64;
};

Visibility block(TokenSet q, TokenSet k, Mask mask, std::int64_t seq = 1 << 20) {
  return {.q_tokens = q, .k_tokens = k, .mask = mask, .seq = seq};
}

constexpr Mask full{.kind = MaskKind::full};
constexpr Mask causal{.kind = MaskKind::causal};
constexpr Mask window(std::int64_t keys) { return {.kind = MaskKind::window, .window = keys}; }

TokenSet range(std::int64_t begin, std::int64_t count, std::int64_t stride = 1) {
  return TokenSet({.begin = begin, .count = count, .stride = stride});
}
TokenSet zigzag(std::int64_t rank, std::int64_t ranks, std::int64_t chunk) {
  return {{.begin = rank * chunk, .count = chunk},
          {.begin = (2 * ranks - 1 - rank) * chunk, .count = chunk}};
}

std::vector<Case> cases() {
  return {
      {"one query, one key", block(range(0, 1), range(0, 1), causal)},
      {"MHA, no multiple of a tile", block(range(0, 301), range(0, 301), causal), 2, 1, 1, 64},
      {"more keys than a tile", block(range(7, 5), range(0, 515), full), 2, 3, 3, 128, 128},
      {"GQA, zigzag", block(zigzag(1, 3, 67), zigzag(0, 3, 67), causal), 1, 4, 2, 128, 128},
      {"GQA, zigzag, own", block(zigzag(2, 3, 67), zigzag(2, 3, 67), causal), 2, 6, 2, 64},
      {"values narrower than keys", block(range(0, 301), range(0, 301), causal), 2, 4, 2, 96, 64},
      {"values wider than keys", block(zigzag(1, 2, 70), range(0, 280), causal, 270), 1, 4, 4, 40,
       64},
      {"MQA, striped, padded", block(range(1, 150, 4), range(3, 150, 4), causal, 590), 2, 4, 1, 40,
       40},
      {"full, padded", block(range(0, 150), range(100, 150), full, 233), 1, 2, 1, 40, 40},
      {"window", block(range(0, 400), range(0, 400), window(37)), 1, 1, 1, 64},
      {"window of one key", block(range(0, 300), range(0, 300), window(1)), 1, 1, 1, 40, 40},
      {"window, striped", block(range(2, 130, 3), range(0, 130, 3), window(64)), 2, 4, 2, 64},
      {"some rows see no key", block(range(0, 300), range(150, 200), causal), 1, 2, 1, 64},
      {"no row sees a key", block(range(0, 70), range(100, 70), causal), 2, 2, 1, 64},
      {"only padded keys", block(range(90, 20), range(100, 30), full, 100), 1, 2, 2, 64},
      {"a group larger than a tile", block(range(0, 5), range(0, 9), causal), 1, 300, 1, 64},
      {"window and padding, zigzag", block(zigzag(0, 2, 90), zigzag(1, 2, 90), window(100), 300), 2,
       2, 1, 128, 128},
  };
}

/// Tensors of a case, and the truth.
struct Block {
  Case c;
  DType dtype;
  std::mt19937 random{20240917};
  Shape q_shape{c.visible.q_tokens.count(), c.batch, c.q_heads, c.head_dim};
  Shape k_shape{c.visible.k_tokens.count(), c.batch, c.kv_heads, c.head_dim};
  Shape v_shape{k_shape.count, c.batch, c.kv_heads, c.value_dim};
  Shape out_shape{q_shape.count, c.batch, c.q_heads, c.value_dim};
  Shape lse_shape{q_shape.count, c.batch, c.q_heads, 1};
  HostTensor q = random_tensor(dtype, q_shape, random);
  HostTensor k = random_tensor(dtype, k_shape, random);
  HostTensor v = random_tensor(dtype, v_shape, random);
  HostTensor d_out = random_tensor(dtype, out_shape, random);

  [[nodiscard]] double tolerance(const std::vector<double>& truth) const {
    const double u32 = 0x1p-24;
    const double sums =
        64 * u32 *
        std::sqrt(std::max(c.head_dim, c.value_dim) + static_cast<double>(k_shape.count));
    const double rounding = dtype == DType::bf16   ? 4 * unit_of(dtype)
                            : dtype == DType::fp16 ? unit_of(dtype)
                                                   : 0;
    return sums * std::max(1.0, magnitude(truth)) + rounding * magnitude(truth);
  }
};

std::unique_ptr<AttentionKernels> make(const AttentionBackend& backend) { return backend.make(); }

struct Forward {
  std::vector<double> out, lse;
};

Forward truth_forward(Block& p) {
  Forward truth{std::vector<double>(static_cast<std::size_t>(p.d_out.size())), {}};
  truth.lse.resize(truth.out.size() / static_cast<std::size_t>(p.c.value_dim));
  reference_forward({.q = p.q.rows(),
                     .k = p.k.rows(),
                     .v = p.v.rows(),
                     .visible = p.c.visible,
                     .out = truth.out,
                     .lse = truth.lse});
  return truth;
}

Forward run_forward(AttentionKernels& kernels, Block& p, DType out_type) {
  HostTensor out(out_type, p.out_shape);
  HostTensor lse(DType::fp32, p.lse_shape);
  kernels.forward({.q = p.q.rows(),
                   .k = p.k.rows(),
                   .v = p.v.rows(),
                   .out = out.rows(),
                   .lse = lse.rows(),
                   .visible = p.c.visible},
                  {});
  return {out.values(), lse.values()};
}

struct Gradients {
  std::vector<double> d_q, d_k, d_v;
};

/// The lse and delta of `whole`'s keys, as a rank would get them.
struct RowSums {
  HostTensor lse, delta;
};
RowSums row_sums(Block& p) {
  const Forward truth = truth_forward(p);
  std::vector<double> delta(truth.lse.size());
  reference_row_dot(p.d_out.rows(), truth.out, delta);
  RowSums sums{{DType::fp32, p.lse_shape}, {DType::fp32, p.lse_shape}};
  sums.lse.set(truth.lse);
  sums.delta.set(delta);
  return sums;
}

Gradients truth_backward(Block& p, RowSums& sums) {
  Gradients g;
  g.d_q.resize(static_cast<std::size_t>(p.q.size()));
  g.d_k.resize(static_cast<std::size_t>(p.k.size()));
  g.d_v.resize(static_cast<std::size_t>(p.v.size()));
  const std::vector<double> lse = sums.lse.values();
  const std::vector<double> delta = sums.delta.values();
  reference_backward({.q = p.q.rows(),
                      .k = p.k.rows(),
                      .v = p.v.rows(),
                      .d_out = p.d_out.rows(),
                      .visible = p.c.visible,
                      .lse = lse,
                      .delta = delta,
                      .d_q = g.d_q,
                      .d_k = g.d_k,
                      .d_v = g.d_v});
  return g;
}

Gradients run_backward(AttentionKernels& kernels, Block& p, RowSums& sums, DType out_type) {
  HostTensor d_q(out_type, p.q_shape);
  HostTensor d_k(out_type, p.k_shape);
  HostTensor d_v(out_type, p.v_shape);
  kernels.backward({.q = p.q.rows(),
                    .k = p.k.rows(),
                    .v = p.v.rows(),
                    .d_out = p.d_out.rows(),
                    .lse = sums.lse.rows(),
                    .delta = sums.delta.rows(),
                    .d_q = d_q.rows(),
                    .d_k = d_k.rows(),
                    .d_v = d_v.rows(),
                    .visible = p.c.visible},
                   {});
  return {d_q.values(), d_k.values(), d_v.values()};
}

/// Calls `body` with the kernels of every back end that runs here with `dtype`.
template <class Body>
void for_each_backend(DType dtype, Body&& body) {
  for (const AttentionBackend* backend : attention_kernels::all()) {
    CAPTURE(backend->name, to_string(dtype));
    if (const std::string reason = backend->why_not(dtype); !reason.empty()) {
      note_skip(std::string(backend->name) + ": " + reason);
      continue;
    }
    const auto kernels = make(*backend);
    body(*kernels);
  }
}

constexpr DType types[] = {DType::fp32, DType::bf16, DType::fp16};

}  // namespace

TEST_CASE("forward kernels compute attention") {
  for (const DType dtype : types) {
    std::vector<std::pair<Block, Forward>> blocks;  // one truth for all back ends
    for (const Case& c : cases()) {
      Block p{c, dtype};
      Forward truth = truth_forward(p);
      blocks.emplace_back(std::move(p), std::move(truth));
    }
    for_each_backend(dtype, [&](AttentionKernels& kernels) {
      for (auto& [p, truth] : blocks) {  // one object for all: workspaces change their size
        CAPTURE(p.c.name);
        const Forward got = run_forward(kernels, p, dtype);
        CHECK(distance(got.out, truth.out) <= p.tolerance(truth.out));
        // lse is fp32 and nothing that it depends on is rounded to less.
        Block in_fp32{p.c, DType::fp32};
        CHECK(distance(got.lse, truth.lse) <= in_fp32.tolerance(truth.lse) + 0x1p-20);
      }
    });
  }
}

TEST_CASE("backward kernels compute gradients") {
  struct Known {
    Block block;
    RowSums sums;
    Gradients truth;
  };
  for (const DType dtype : types) {
    std::vector<Known> blocks;  // as above
    for (const Case& c : cases()) {
      Block p{c, dtype};
      RowSums sums = row_sums(p);
      Gradients truth = truth_backward(p, sums);
      blocks.push_back({std::move(p), std::move(sums), std::move(truth)});
    }
    for_each_backend(dtype, [&](AttentionKernels& kernels) {
      for (auto& [p, sums, truth] : blocks) {
        CAPTURE(p.c.name);
        const Gradients got = run_backward(kernels, p, sums, dtype);
        CHECK(distance(got.d_q, truth.d_q) <= p.tolerance(truth.d_q));
        CHECK(distance(got.d_k, truth.d_k) <= p.tolerance(truth.d_k));
        CHECK(distance(got.d_v, truth.d_v) <= p.tolerance(truth.d_v));
      }
    });
  }
}

TEST_CASE("kernels write fp32 results of 16-bit inputs") {
  const Case c{"", block(range(0, 130), range(0, 130), causal), 1, 2, 1, 64};
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for_each_backend(dtype, [&](AttentionKernels& kernels) {
      Block p{c, dtype};
      const Forward truth = truth_forward(p);
      CHECK(distance(run_forward(kernels, p, DType::fp32).out, truth.out) <=
            p.tolerance(truth.out));
      RowSums sums = row_sums(p);
      const Gradients gradients = truth_backward(p, sums);
      CHECK(distance(run_backward(kernels, p, sums, DType::fp32).d_k, gradients.d_k) <=
            p.tolerance(gradients.d_k));
    });
  }
}

TEST_CASE("blocks of keys, merged, are attention to all keys") {
  const Case whole{"", block(range(100, 140), range(0, 240), causal), 2, 4, 2, 64};
  for_each_backend(DType::fp32, [&](AttentionKernels& kernels) {
    Block p{whole, DType::fp32};
    const Forward truth = truth_forward(p);
    RowSums sums = row_sums(p);
    const Gradients gradients = truth_backward(p, sums);
    HostTensor out(DType::fp32, p.q_shape);
    HostTensor lse(DType::fp32, p.lse_shape);
    HostTensor d_q(DType::fp32, p.q_shape);
    for (const std::int64_t from : {0, 80, 160}) {
      Block part{whole, DType::fp32};
      part.c.visible.k_tokens = range(from, 80);
      part.k_shape.count = 80;
      part.q = p.q;
      part.d_out = p.d_out;
      part.k = HostTensor(DType::fp32, part.k_shape);
      part.v = part.k;
      const std::int64_t offset = from * part.k.size() / 80;
      for (std::int64_t i = 0; i < part.k.size(); ++i) {
        part.k.set(i, p.k.at(offset + i));
        part.v.set(i, p.v.at(offset + i));
      }
      const Forward block_result = run_forward(kernels, part, DType::fp32);
      HostTensor part_out(DType::fp32, p.q_shape);
      HostTensor part_lse(DType::fp32, p.lse_shape);
      part_out.set(block_result.out);
      part_lse.set(block_result.lse);
      merge(out.rows(), lse.rows(), part_out.rows(), part_lse.rows(), from == 0);
      const Gradients block_gradients = run_backward(kernels, part, sums, DType::fp32);
      HostTensor part_d_q(DType::fp32, p.q_shape);
      part_d_q.set(block_gradients.d_q);
      accumulate(d_q.rows(), part_d_q.rows(), from == 0);
      const std::vector<double> d_k(gradients.d_k.begin() + offset,
                                    gradients.d_k.begin() + offset + part.k.size());
      CHECK(distance(block_gradients.d_k, d_k) <= p.tolerance(gradients.d_k));
    }
    CHECK(distance(out.values(), truth.out) <= p.tolerance(truth.out));
    CHECK(distance(lse.values(), truth.lse) <= p.tolerance(truth.lse));
    CHECK(distance(d_q.values(), gradients.d_q) <= p.tolerance(gradients.d_q));
  });
}

TEST_CASE("kernels survive scores whose exponentials overflow") {
  // Queries and keys of 2^7: scores up to +-2^14 sqrt(64) = 131072.
  const Case c{"", block(range(0, 80), range(0, 300), full), 1, 1, 1, 64};
  for_each_backend(DType::fp32, [&](AttentionKernels& kernels) {
    Block p{c, DType::fp32};
    for (HostTensor* t : {&p.q, &p.k}) {
      for (std::int64_t i = 0; i < t->size(); ++i) {
        t->set(i, t->at(i) > 0 ? 128.0F : -128.0F);
      }
    }
    // Scores are multiples of 2^15 / 8 = 4096, exactly: softmax is an argmax, ties share.
    const Forward truth = truth_forward(p);
    const Forward got = run_forward(kernels, p, DType::fp32);
    CHECK(distance(got.out, truth.out) <= p.tolerance(truth.out));
    CHECK(distance(got.lse, truth.lse) <= p.tolerance(truth.lse));
  });
}

TEST_CASE("kernels keep up with scores that grow along the keys") {
  // Keys grow from 0 to 32 times random ones: their scores from 0 to about 32 sqrt(64) / 3 / 8 = 11
  // standard, 40 at most, and every tile exceeds those before it by some powers of two.
  const Case c{"", block(range(0, 80), range(0, 1200), full), 1, 2, 1, 64};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for_each_backend(dtype, [&](AttentionKernels& kernels) {
      Block p{c, dtype};
      for (std::int64_t i = 0; i < p.k.size(); ++i) {
        const double growth = 32 * static_cast<double>(i) / static_cast<double>(p.k.size());
        p.k.set(i, static_cast<float>(p.k.at(i) * growth));
      }
      const Forward truth = truth_forward(p);
      const Forward got = run_forward(kernels, p, dtype);
      CHECK(distance(got.out, truth.out) <= p.tolerance(truth.out));
      Block in_fp32{c, DType::fp32};
      CHECK(distance(got.lse, truth.lse) <= in_fp32.tolerance(truth.lse));
    });
  }
}

TEST_CASE("kernels poll while they compute") {
  // 4 * 1500^2 * 4 * 64 = 2.3 GFLOP: more than 2 ms on any CPU core of today.
  const Case c{"", block(range(0, 1500), range(0, 1500), full), 1, 4, 4, 64};
  for_each_backend(DType::fp32, [&](AttentionKernels& kernels) {
    Block p{c, DType::fp32};
    HostTensor out(DType::fp32, p.q_shape);
    HostTensor lse(DType::fp32, p.lse_shape);
    int polls = 0;
    kernels.forward({.q = p.q.rows(),
                     .k = p.k.rows(),
                     .v = p.v.rows(),
                     .out = out.rows(),
                     .lse = lse.rows(),
                     .visible = c.visible},
                    [&] { ++polls; });
    CHECK(polls >= 2);
  });
}

TEST_CASE("kernels are found by name") {
  CHECK(attention_kernels::by_name("reference", "--kernels").name == "reference");
  CHECK(message_of<InputError>([] { attention_kernels::by_name("onednm", "--kernels"); }) ==
        "--kernels: unknown attention kernels 'onednm' (did you mean 'onednn'?)");
}
