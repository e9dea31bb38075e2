// Heads of latent attention against their definition in fp64, written once more here; gradients
// against that of a sum of them, which is linear in the rows.
#include "runtime/kernels/latent.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <cmath>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

using Values = std::vector<double>;

constexpr std::int64_t batch = 2;
constexpr int heads = 3;
constexpr int content = 6;
constexpr int turned = 4;
constexpr int value_dim = 5;
constexpr int dim = content + turned;

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Where numbers of a row come to stand: to[i] = factor * from[j] + …, as a list.
struct Term {
  std::size_t to = 0, from = 0;
  double factor = 1;
};

struct LatentTerms {
  std::vector<Term> q, k_of_kv, k_of_position, v;
};

LatentTerms terms_of(const TokenSet& positions, double theta) {
  LatentTerms all;
  std::int64_t row = 0;
  for (const TokenRange& range : positions.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      for (std::int64_t b = 0; b < batch; ++b, ++row) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t head = (row * heads + h) * dim;
          const std::int64_t kv = (row * heads + h) * (content + value_dim);
          for (std::int64_t e = 0; e < content; ++e) {
            all.q.push_back({place(head + e), place(head + e)});
            all.k_of_kv.push_back({place(head + e), place(kv + e)});
          }
          for (std::int64_t e = 0; e < value_dim; ++e) {
            all.v.push_back({place((row * heads + h) * value_dim + e), place(kv + content + e)});
          }
          const auto turn = [&](std::vector<Term>& terms, std::int64_t from) {
            const std::int64_t to = head + content;
            for (std::int64_t e = 0; e < turned / 2; ++e) {
              const double angle =
                  theta == 0 ? 0
                             : static_cast<double>(range.at(i)) *
                                   std::pow(theta, -2.0 * static_cast<double>(e) / turned);
              const std::int64_t half = turned / 2;
              terms.push_back({place(to + e), place(from + e), std::cos(angle)});
              terms.push_back({place(to + e), place(from + e + half), -std::sin(angle)});
              terms.push_back({place(to + e + half), place(from + e + half), std::cos(angle)});
              terms.push_back({place(to + e + half), place(from + e), std::sin(angle)});
            }
          };
          turn(all.q, head + content);
          turn(all.k_of_position, row * turned);
        }
      }
    }
  }
  return all;
}

void add(Values& to, const Values& from, const std::vector<Term>& terms) {
  for (const Term& term : terms) {
    to[term.to] += term.factor * from[term.from];
  }
}
void add_back(Values& from, const Values& to, const std::vector<Term>& terms) {
  for (const Term& term : terms) {
    from[term.from] += term.factor * to[term.to];
  }
}

/// Rounded once, of `depth` numbers in fp32.
void check_near(HostTensor& got, const Values& expected, double depth) {
  const double limit =
      (unit_of(got.rows().dtype) + depth * unit_of(DType::fp32)) * magnitude(expected);
  CHECK(distance(got.values(), expected) <= limit);
}

}  // namespace

TEST_CASE("heads are made of latents, turned by their positions, and their gradients joined") {
  const auto [in_rows, apart] = GENERATE(table<DType, DType>(
      {{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::fp16, DType::fp32}}));
  const double theta = GENERATE(0.0, 10000.0);
  const TokenSet positions =
      GENERATE(TokenSet({.begin = 3, .count = 2}, {.begin = 1000001, .count = 3}), TokenSet(),
               TokenSet({.begin = 1, .count = 4, .stride = 3}));
  const std::int64_t n = positions.count();
  std::mt19937 random(31);
  HostTensor q_row = random_tensor(in_rows, {n, batch, 1, heads * dim}, random);
  HostTensor kv_row = random_tensor(in_rows, {n, batch, 1, heads * (content + value_dim)}, random);
  HostTensor position = random_tensor(in_rows, {n, batch, 1, turned}, random);
  HostTensor q(apart, {n, batch, heads, dim});
  HostTensor k(apart, {n, batch, heads, dim});
  HostTensor v(apart, {n, batch, heads, value_dim});
  const LatentHeadsArgs args{.q_row = q_row.rows(),
                             .kv_row = kv_row.rows(),
                             .position = position.rows(),
                             .q = q.rows(),
                             .k = k.rows(),
                             .v = v.rows(),
                             .positions = positions,
                             .theta = theta};
  latent_heads(args);
  const LatentTerms terms = terms_of(positions, theta);
  Values of_q(q.values().size());
  Values of_k = of_q;
  Values of_v(v.values().size());
  add(of_q, q_row.values(), terms.q);
  add(of_k, kv_row.values(), terms.k_of_kv);
  add(of_k, position.values(), terms.k_of_position);
  add(of_v, kv_row.values(), terms.v);
  check_near(q, of_q, 8);
  check_near(k, of_k, 8);
  check_near(v, of_v, 0);

  for (HostTensor* gradient : {&q, &k, &v}) {
    gradient->randomize(random);
  }
  join_latent_heads(args);
  Values of_q_row(of_q.size());
  Values of_kv_row(kv_row.values().size());
  Values of_position(position.values().size());
  add_back(of_q_row, q.values(), terms.q);
  add_back(of_kv_row, k.values(), terms.k_of_kv);
  add_back(of_kv_row, v.values(), terms.v);
  add_back(of_position, k.values(), terms.k_of_position);
  check_near(q_row, of_q_row, 8);
  check_near(kv_row, of_kv_row, 0);
  check_near(position, of_position, 8 * heads);
}

TEST_CASE("latents of other tokens or heads are refused") {
  HostTensor q_row(DType::fp32, {2, 1, 1, 8});
  HostTensor kv_row(DType::fp32, {2, 1, 1, 8});
  HostTensor position(DType::fp32, {2, 1, 1, 2});
  HostTensor q(DType::fp32, {2, 1, 2, 4});
  HostTensor v(DType::fp32, {2, 1, 2, 2});
  LatentHeadsArgs args{.q_row = q_row.rows(),
                       .kv_row = kv_row.rows(),
                       .position = position.rows(),
                       .q = q.rows(),
                       .k = q.rows(),
                       .v = v.rows(),
                       .positions = TokenSet({.begin = 0, .count = 2}),
                       .theta = 10000};
  CHECK_NOTHROW(shape_of_latents(args));
  HostTensor odd(DType::fp32, {2, 1, 1, 3});
  args.position = odd.rows();
  CHECK_THROWS_AS(shape_of_latents(args), InternalError);
  args.position = q_row.rows();
  CHECK_THROWS_AS(shape_of_latents(args), InternalError);
  args.position = position.rows();
  args.positions = TokenSet({.begin = 0, .count = 3});
  CHECK_THROWS_AS(shape_of_latents(args), InternalError);
}
