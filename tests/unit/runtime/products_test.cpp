// Products of whole rows and states against the fp64 reference: 150 rows, so that linear attention
// goes through several chunks, the last one not full.
#include "runtime/kernels/products.hpp"

#include "runtime/kernels/reference_attention.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

constexpr std::int64_t rows = 150;
constexpr int dim = 24;
const Shape q_shape{rows, 2, 4, dim};
const Shape k_shape{rows, 2, 2, dim};
const Shape pairs_shape{rows, 2, 4, rows};
const Shape state_shape{1, 2, 2, dim* dim};

struct Inputs {
  std::mt19937 random{11};
  DType type;
  HostTensor q = random_tensor(type, q_shape, random);
  HostTensor k = random_tensor(type, k_shape, random);
  HostTensor v = random_tensor(type, k_shape, random);
  HostTensor d_out = random_tensor(type, q_shape, random);
  std::vector<double> out = std::vector<double>(static_cast<std::size_t>(q.size()));
  std::vector<double> lse = std::vector<double>(static_cast<std::size_t>(q.size() / dim));
  std::vector<double> d_q = out;
  std::vector<double> d_k = std::vector<double>(static_cast<std::size_t>(k.size()));
  std::vector<double> d_v = d_k;

  Inputs(DType of, const Visibility& visible, AttentionFunction function) : type(of) {
    reference_forward({.q = q.rows(),
                       .k = k.rows(),
                       .v = v.rows(),
                       .visible = visible,
                       .out = out,
                       .lse = lse,
                       .function = function});
    std::vector<double> delta(lse.size());
    reference_row_dot(d_out.rows(), out, delta);
    reference_backward({.q = q.rows(),
                        .k = k.rows(),
                        .v = v.rows(),
                        .d_out = d_out.rows(),
                        .visible = visible,
                        .lse = lse,
                        .delta = delta,
                        .d_q = d_q,
                        .d_k = d_k,
                        .d_v = d_v,
                        .function = function});
  }
};

Visibility among_all(MaskKind kind) {
  const TokenSet all({.begin = 0, .count = rows});
  return {.q_tokens = all, .k_tokens = all, .mask = {.kind = kind}, .seq = rows};
}

/// Rounded `times` times to the type, sums of some hundred products in fp32.
void check_near(HostTensor& got, const std::vector<double>& expected, DType type, int times = 2) {
  const double limit = (times * unit_of(type) + 600 * unit_of(DType::fp32)) * magnitude(expected);
  CHECK(distance(got.values(), expected) <= limit);
}

const float scale = 1 / std::sqrt(static_cast<float>(dim));

}  // namespace

TEST_CASE("whole rows of scores give the reference's attention") {
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const MaskKind kind = GENERATE(MaskKind::causal, MaskKind::full);
  Inputs in(type, among_all(kind), AttentionFunction::softmax);
  HostTensor s(DType::fp32, pairs_shape);
  HostTensor p(type, pairs_shape);
  HostTensor out(DType::fp32, q_shape);
  // The columns in two blocks, the values likewise.
  const std::int64_t first = 90;
  const auto block = [&](HostTensor& whole, std::int64_t from, std::int64_t count) {
    Rows some = whole.rows();
    some.data += from * (some.bytes() / some.count);
    some.count = count;
    return some;
  };
  scores(in.q.rows(), block(in.k, 0, first), s.rows(), 0, {});
  scores(in.q.rows(), block(in.k, first, rows - first), s.rows(), first, {});
  softmax(s.rows(), p.rows(), among_all(kind), scale, {});
  weigh(p.rows(), block(in.v, 0, first), out.rows(), 0, true, {});
  weigh(p.rows(), block(in.v, first, rows - first), out.rows(), first, false, {});
  check_near(out, in.out, type);

  HostTensor d_p(DType::fp32, pairs_shape);
  HostTensor d_s(type, pairs_shape);
  HostTensor d_q(DType::fp32, q_shape);
  HostTensor d_k(DType::fp32, k_shape);
  HostTensor d_v(DType::fp32, k_shape);
  scores(in.d_out.rows(), in.v.rows(), d_p.rows(), 0, {});
  softmax_backward(p.rows(), d_p.rows(), d_s.rows(), scale, {});
  weigh(d_s.rows(), in.k.rows(), d_q.rows(), 0, true, {});
  weigh_back(d_s.rows(), in.q.rows(), d_k.rows(), 0, {});
  weigh_back(p.rows(), in.d_out.rows(), d_v.rows(), 0, {});
  check_near(d_q, in.d_q, type, 4);
  check_near(d_k, in.d_k, type, 4);
  check_near(d_v, in.d_v, type, 4);
}

TEST_CASE("a softmax leaves out padding, other documents and what comes later") {
  HostTensor s(DType::fp32, {4, 1, 1, 4});
  HostTensor p(DType::fp32, {4, 1, 1, 4});
  const TokenSet all({.begin = 0, .count = 4});
  softmax(s.rows(), p.rows(),
          {.q_tokens = all,
           .k_tokens = all,
           .mask = {.kind = MaskKind::causal, .document_ends = {1, 3}},
           .seq = 3},
          1, {});
  CHECK(p.values() == std::vector<double>{1, 0, 0, 0, 0, 1, 0, 0, 0, 0.5, 0.5, 0, 0, 0, 0, 0});
}

TEST_CASE("linear attention in chunks is the reference's, forward and backward") {
  const DType type = GENERATE(DType::fp32, DType::bf16);
  Inputs in(type, among_all(MaskKind::causal), AttentionFunction::linear);
  HostTensor out(type, q_shape);
  linear_forward(in.q.rows(), in.k.rows(), in.v.rows(), out.rows(), {});
  check_near(out, in.out, type);
  HostTensor d_q(type, q_shape);
  HostTensor d_k(type, k_shape);
  HostTensor d_v(type, k_shape);
  linear_backward({.q = in.q.rows(),
                   .k = in.k.rows(),
                   .v = in.v.rows(),
                   .d_out = in.d_out.rows(),
                   .d_q = d_q.rows(),
                   .d_k = d_k.rows(),
                   .d_v = d_v.rows()},
                  {});
  check_near(d_q, in.d_q, type);
  check_near(d_k, in.d_k, type);
  check_near(d_v, in.d_v, type);
}

TEST_CASE("states say what all keys, or all queries, say one by one") {
  Inputs in(DType::fp32, among_all(MaskKind::full), AttentionFunction::linear);
  HostTensor state(DType::fp32, state_shape);
  HostTensor d_state(DType::fp32, state_shape);
  make_state(in.k.rows(), in.v.rows(), state.rows(), {});
  make_state(in.q.rows(), in.d_out.rows(), d_state.rows(), {});
  HostTensor two(DType::fp32, {2, 2, 2, dim * dim});  // a sum of slots: the state, and nothing
  std::vector<double> slots = state.values();
  slots.resize(slots.size() * 2);
  two.set(slots);
  sum_states(two.rows(), state.rows());
  HostTensor out(DType::fp32, q_shape);
  HostTensor d_q(DType::fp32, q_shape);
  HostTensor d_k(DType::fp32, k_shape);
  HostTensor d_v(DType::fp32, k_shape);
  apply_state(in.q.rows(), state.rows(), out.rows(), {}, {});
  apply_state(in.d_out.rows(), state.rows(), d_q.rows(), {.transposed = true}, {});
  apply_state(in.v.rows(), d_state.rows(), d_k.rows(), {.transposed = true}, {});
  apply_state(in.k.rows(), d_state.rows(), d_v.rows(), {}, {});
  check_near(out, in.out, DType::fp32);
  check_near(d_q, in.d_q, DType::fp32);
  check_near(d_k, in.d_k, DType::fp32);
  check_near(d_v, in.d_v, DType::fp32);
  apply_state(in.q.rows(), state.rows(), out.rows(), {.add = true}, {});
  for (double& x : in.out) {
    x *= 2;
  }
  check_near(out, in.out, DType::fp32);
}
