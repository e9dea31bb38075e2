// cuDNN's attention on a device against the fp64 oracle, as a rank's kernels call it: cut into
// calls, statistics transposed, workspaces and all. On a GPU it is cuDNN's own kernels; on the host
// its graphs are executed in fp64 (host_cudnn_graph.hpp), so that what is compared is what they
// say.
//
// Tolerances. Inputs are in [-1, 1], P adds up to 1 over the keys. delta comes from rows of numbers
// that were rounded to the type: it errs by u |delta|, and dS by another factor scale. Kernels
// round P and dS to the type, too: a product of D numbers is below 5 standard deviations, 5 sqrt(D)
// / 3. A gradient adds up P over keys (1) or queries (at most their number); parts of it that share
// keys are rounded, added and rounded.
#include "runtime/device/cuda/attention.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"
#include "runtime/kernels/reference_attention.hpp"
#include "tests/device/blocks.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

#include <cmath>

namespace spp::test {
using namespace spp::runtime;

TEST_CASE("cuDNN's attention on a device is the oracle's") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = sdpa_why_not(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  const cuda::Stream stream(0);
  const auto kernels = cuda::device_attention::by_name("cudnn", "test").make(nullptr);
  const DType type = GENERATE(DType::bf16, DType::fp16);
  const int width = GENERATE(64, 128);
  struct Heads {
    int q, kv;
  };
  std::vector<Block> cases = blocks();
  cases.push_back({"all keys gathered",
                   TokenSet({.begin = 8, .count = 8}, {.begin = 30, .count = 8}), tokens(0, 46)});
  std::mt19937 random(7);
  for (const Heads heads : {Heads{2, 2}, Heads{4, 2}, Heads{3, 1}}) {
    for (const Block& block : cases) {
      for (const Mask& mask : {Mask{.kind = MaskKind::full}, Mask{.kind = MaskKind::causal}}) {
        INFO(block.name << ", " << to_string(mask) << ", heads " << heads.q << "/" << heads.kv
                        << ", " << to_string(type) << ", width " << width);
        const Visibility visible{
            .q_tokens = block.queries, .k_tokens = block.keys, .mask = mask, .seq = seq};
        const Shape of_q{block.queries.count(), 2, heads.q, width};
        const Shape of_k{block.keys.count(), 2, heads.kv, width};
        const Shape of_lse{block.queries.count(), 2, heads.q, 1};
        Tensor q = random_tensor(type, of_q, random);
        Tensor k = random_tensor(type, of_k, random);
        Tensor v = random_tensor(type, of_k, random);
        Tensor d_out = random_tensor(type, of_q, random);
        Tensor out(type, of_q);
        Tensor lse(DType::fp32, of_lse);
        std::vector<double> expected(static_cast<std::size_t>(out.size()));
        std::vector<double> expected_lse(static_cast<std::size_t>(lse.size()));
        reference_forward({.q = q.rows(),
                           .k = k.rows(),
                           .v = v.rows(),
                           .visible = visible,
                           .out = expected,
                           .lse = expected_lse});
        const OnDevice q_there(q, stream);
        const OnDevice k_there(k, stream);
        const OnDevice v_there(v, stream);
        const OnDevice out_there(out, stream);
        const OnDevice lse_there(lse, stream);
        const AttentionForwardArgs forward{.q = q_there.rows(),
                                           .k = k_there.rows(),
                                           .v = v_there.rows(),
                                           .out = out_there.rows(),
                                           .lse = lse_there.rows(),
                                           .visible = visible};
        kernels->prepare(forward, stream.get());
        kernels->forward(forward, stream.get());
        out_there.fetch();
        lse_there.fetch();
        const double u = unit_of(type);
        const double fp32 = (width + 46) * 0x1p-24;
        CHECK(distance(out.values(), expected) <= 2 * u);
        CHECK(distance(lse.values(), expected_lse) <= 8 * fp32);

        // lse of all keys is finite: here of a query that sees none, too.
        Tensor delta(DType::fp32, of_lse);
        std::vector<double> delta_values(expected_lse.size());
        reference_row_dot(d_out.rows(), expected, delta_values);
        delta.set(delta_values);
        std::vector<double> finite = expected_lse;
        for (double& x : finite) {
          x = std::isfinite(x) ? x : 0;
        }
        lse.set(finite);
        Tensor d_q(type, of_q);
        Tensor d_k(type, of_k);
        Tensor d_v(type, of_k);
        std::vector<double> expected_q(static_cast<std::size_t>(d_q.size()));
        std::vector<double> expected_k(static_cast<std::size_t>(d_k.size()));
        std::vector<double> expected_v(expected_k.size());
        reference_backward({.q = q.rows(),
                            .k = k.rows(),
                            .v = v.rows(),
                            .d_out = d_out.rows(),
                            .visible = visible,
                            .lse = finite,
                            .delta = delta_values,
                            .d_q = expected_q,
                            .d_k = expected_k,
                            .d_v = expected_v});
        const OnDevice all_lse_there(lse, stream);
        const OnDevice d_out_there(d_out, stream);
        const OnDevice delta_there(delta, stream);
        const OnDevice d_q_there(d_q, stream);
        const OnDevice d_k_there(d_k, stream);
        const OnDevice d_v_there(d_v, stream);
        const AttentionBackwardArgs backward{.q = q_there.rows(),
                                             .k = k_there.rows(),
                                             .v = v_there.rows(),
                                             .d_out = d_out_there.rows(),
                                             .lse = all_lse_there.rows(),
                                             .delta = delta_there.rows(),
                                             .d_q = d_q_there.rows(),
                                             .d_k = d_k_there.rows(),
                                             .d_v = d_v_there.rows(),
                                             .visible = visible};
        kernels->prepare(backward, stream.get());
        kernels->backward(backward, stream.get());
        d_q_there.fetch();
        d_k_there.fetch();
        d_v_there.fetch();
        const double scale = 1 / std::sqrt(static_cast<double>(width));
        const double product = emulated() ? 0 : 5 * std::sqrt(static_cast<double>(width)) / 3;
        const double d_s = scale * (magnitude(delta_values) + product);
        const auto queries = static_cast<double>(block.queries.count() * heads.q / heads.kv);
        const auto within = [&](const std::vector<double>& values, double sum_of_p, double factor) {
          return u * (2 * sum_of_p * factor + 3 * magnitude(values));
        };
        CHECK(distance(d_q.values(), expected_q) <= within(expected_q, 1, d_s));
        CHECK(distance(d_k.values(), expected_k) <= within(expected_k, queries, d_s));
        CHECK(distance(d_v.values(), expected_v) <=
              within(expected_v, queries, emulated() ? 0 : 1));
      }
    }
  }
}

}  // namespace spp::test
