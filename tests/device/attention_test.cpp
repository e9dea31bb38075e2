// The device's reference attention against the fp64 oracle, over masks, layouts and heads. It
// computes in fp32: scores are sums of D products, results of up to S, so it is within
// (D + S) u32 of the largest number, and within one rounding of the storage type.
#include "runtime/device/cuda/attention.hpp"

#include "runtime/kernels/reference_attention.hpp"
#include "tests/device/blocks.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

namespace spp::test {
using namespace spp::runtime;

TEST_CASE("a device's reference attention is the oracle's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  const auto kernels = cuda::device_attention::by_name("reference", "test").make(nullptr);
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  const int width = GENERATE(64, 20);
  struct Heads {
    int q, kv;
  };
  std::mt19937 random(7);
  for (const Heads heads : {Heads{2, 2}, Heads{4, 2}, Heads{3, 1}}) {
    for (const Block& block : blocks()) {
      for (const Mask& mask : masks()) {
        INFO(block.name << ", " << to_string(mask) << ", heads " << heads.q << "/" << heads.kv);
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
        const double fp32 = (width + 46) * 0x1p-24;
        CHECK(distance(out.values(), expected) <= unit_of(type) + fp32);
        CHECK(distance(lse.values(), expected_lse) <= 8 * fp32);

        Tensor delta(DType::fp32, of_lse);
        std::vector<double> delta_values(expected_lse.size());
        reference_row_dot(d_out.rows(), expected, delta_values);
        delta.set(delta_values);
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
                            .lse = expected_lse,
                            .delta = delta_values,
                            .d_q = expected_q,
                            .d_k = expected_k,
                            .d_v = expected_v});
        const OnDevice d_out_there(d_out, stream);
        const OnDevice delta_there(delta, stream);
        const OnDevice d_q_there(d_q, stream);
        const OnDevice d_k_there(d_k, stream);
        const OnDevice d_v_there(d_v, stream);
        const AttentionBackwardArgs backward{.q = q_there.rows(),
                                             .k = k_there.rows(),
                                             .v = v_there.rows(),
                                             .d_out = d_out_there.rows(),
                                             .lse = lse_there.rows(),
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
        const double gradient = unit_of(type) + 4 * fp32;  // two products, of numbers below 8
        CHECK(distance(d_q.values(), expected_q) <= gradient * (1 + magnitude(expected_q)));
        CHECK(distance(d_k.values(), expected_k) <= gradient * (1 + magnitude(expected_k)));
        CHECK(distance(d_v.values(), expected_v) <= gradient * (1 + magnitude(expected_v)));
      }
    }
  }
}

}  // namespace spp::test
