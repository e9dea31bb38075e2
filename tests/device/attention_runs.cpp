#include "tests/device/attention_runs.hpp"

#include "runtime/kernels/reference_attention.hpp"
#include "tests/device/device.hpp"

#include <fmt/format.h>

#include <cmath>
#include <tuple>
#include <utility>

namespace spp::test {
using namespace spp::runtime;

namespace {

std::vector<double> zeros(HostTensor& like) {
  return std::vector<double>(static_cast<std::size_t>(like.size()));
}

}  // namespace

std::string to_string(const AttentionCase& c) {
  return fmt::format("{}, {}, heads {}/{}, {}, widths {} and {}", c.tokens.name, to_string(c.mask),
                     c.q_heads, c.kv_heads, to_string(c.type), c.widths.keys, c.widths.values);
}

std::vector<AttentionCase> attention_cases(const std::vector<Block>& tokens,
                                           const std::vector<Mask>& masks, DType type,
                                           HeadWidths widths, Lse lse) {
  std::vector<AttentionCase> all;
  for (const auto& [q_heads, kv_heads] : {std::pair(2, 2), std::pair(4, 2), std::pair(3, 1)}) {
    for (const Block& block : tokens) {
      for (const Mask& mask : masks) {
        all.push_back({.tokens = block,
                       .mask = mask,
                       .type = type,
                       .q_heads = q_heads,
                       .kv_heads = kv_heads,
                       .widths = widths,
                       .lse = lse});
      }
    }
  }
  return all;
}

AttentionRun run_attention(cuda::DeviceAttention& kernels, const AttentionCase& c,
                           const cuda::Stream& stream, std::mt19937& random) {
  const Visibility visible{
      .q_tokens = c.tokens.queries, .k_tokens = c.tokens.keys, .mask = c.mask, .seq = seq};
  const Shape of_q{visible.q_tokens.count(), 2, c.q_heads, c.widths.keys};
  const Shape of_k{visible.k_tokens.count(), 2, c.kv_heads, c.widths.keys};
  const Shape of_v{visible.k_tokens.count(), 2, c.kv_heads, c.widths.values};
  const Shape of_out{visible.q_tokens.count(), 2, c.q_heads, c.widths.values};
  const Shape of_lse{visible.q_tokens.count(), 2, c.q_heads, 1};
  HostTensor q = random_tensor(c.type, of_q, random);
  HostTensor k = random_tensor(c.type, of_k, random);
  HostTensor v = random_tensor(c.type, of_v, random);
  HostTensor d_out = random_tensor(c.type, of_out, random);
  HostTensor out(c.type, of_out);
  HostTensor lse(DType::fp32, of_lse);
  std::vector<double> expected_out = zeros(out);
  std::vector<double> expected_lse = zeros(lse);
  reference_forward({.q = q.rows(),
                     .k = k.rows(),
                     .v = v.rows(),
                     .visible = visible,
                     .out = expected_out,
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
  kernels.prepare(forward, stream.get());
  kernels.forward(forward, stream.get());
  out_there.fetch();
  lse_there.fetch();
  AttentionRun run;
  run.out = {out.values(), expected_out};
  run.lse = {lse.values(), expected_lse};

  HostTensor delta(DType::fp32, of_lse);
  run.delta = zeros(delta);
  reference_row_dot(d_out.rows(), expected_out, run.delta);
  delta.set(run.delta);
  if (c.lse == Lse::finite) {
    for (double& x : expected_lse) {
      x = std::isfinite(x) ? x : 0;
    }
    lse.set(expected_lse);
  }
  HostTensor d_q(c.type, of_q);
  HostTensor d_k(c.type, of_k);
  HostTensor d_v(c.type, of_v);
  run.d_q.expected = zeros(d_q);
  run.d_k.expected = zeros(d_k);
  run.d_v.expected = zeros(d_v);
  reference_backward({.q = q.rows(),
                      .k = k.rows(),
                      .v = v.rows(),
                      .d_out = d_out.rows(),
                      .visible = visible,
                      .lse = expected_lse,
                      .delta = run.delta,
                      .d_q = run.d_q.expected,
                      .d_k = run.d_k.expected,
                      .d_v = run.d_v.expected});
  const OnDevice given_lse_there(lse, stream);
  const OnDevice d_out_there(d_out, stream);
  const OnDevice delta_there(delta, stream);
  const OnDevice d_q_there(d_q, stream);
  const OnDevice d_k_there(d_k, stream);
  const OnDevice d_v_there(d_v, stream);
  const AttentionBackwardArgs backward{.q = q_there.rows(),
                                       .k = k_there.rows(),
                                       .v = v_there.rows(),
                                       .d_out = d_out_there.rows(),
                                       .lse = given_lse_there.rows(),
                                       .delta = delta_there.rows(),
                                       .d_q = d_q_there.rows(),
                                       .d_k = d_k_there.rows(),
                                       .d_v = d_v_there.rows(),
                                       .visible = visible};
  kernels.prepare(backward, stream.get());
  kernels.backward(backward, stream.get());
  for (const auto& [tensor, there, to] :
       {std::tuple(&d_q, &d_q_there, &run.d_q), std::tuple(&d_k, &d_k_there, &run.d_k),
        std::tuple(&d_v, &d_v_there, &run.d_v)}) {
    there->fetch();
    to->values = tensor->values();
  }
  return run;
}

}  // namespace spp::test
