// Layers of linear attention. A projection gives queries, keys, values, a gate of the output and
// the state's own gates; a short convolution goes over the first three; the state is carried
// through the sequence; its output is normed, gated and projected back. Tensors are as
// flash-linear-attention and mamba_ssm keep them; Megatron-Core cuts them by heads
// (megatron/core/ssm/gated_delta_net.py, mamba_mixer.py).
#include "transformer/layer_writer.hpp"

namespace spp {
namespace {

/// What the projection gives; queries, keys and values then go through the convolution.
struct Projected {
  LayerTensorId q, k, v, z;
};

Projected project(const Model& model, ListWriter& list, LayerTensorId y, LayerTensors own) {
  const StateScan& scan = model.linear->scan;
  const Projected p{.q = list.tensor(heads_tensor("linear q", scan.key_heads, scan.key_dim)),
                    .k = list.tensor(heads_tensor("linear k", scan.key_heads, scan.key_dim)),
                    .v = list.tensor(heads_tensor("linear v", scan.value_heads, scan.value_dim)),
                    .z = list.tensor(heads_tensor("linear z", scan.value_heads, scan.value_dim))};
  TensorOp op{.name = "linear in",
              .work = Linear{.in = model.hidden,
                             .out = 2 * scan.key_width() + 2 * scan.value_width(),
                             .shard = Shard::columns,
                             .bias = model.linear->bias},
              .reads = {y},
              .writes = {p.q, p.k, p.v, p.z},
              .keeps = {y}};
  for (const LayerTensorId gate : own) {
    std::get<Linear>(op.work).out += list.at(gate).width;
    op.writes.push_back(gate);
  }
  list.add(op);
  return p;
}

/// A number a value head.
LayerTensorId gate(const Model& model, ListWriter& list, std::string_view name, bool fp32 = false) {
  return list.tensor(
      {.name = name, .width = model.linear->scan.value_heads, .cut = Cut::width, .fp32 = fp32});
}

void convolve(const Model& model, ListWriter& list, Projected& p) {
  const LayerTensors in{p.q, p.k, p.v};
  p.q = list.like("convolved q", p.q);
  p.k = list.like("convolved k", p.k);
  p.v = list.like("convolved v", p.v);
  list.add({.name = "short convolution",
            .work = ShortConvolution{.kernel = model.linear->conv_kernel,
                                     .bias = model.linear->conv_bias},
            .reads = in,
            .writes = {p.q, p.k, p.v},
            .keeps = in});
}

/// The state, in fp32, and the tokens that the next one's convolution sees.
void cache_state(const Model& model, ListWriter& list) {
  const StateScan& scan = model.linear->scan;
  const std::int64_t channels = 2 * scan.key_width() + scan.value_width();
  const std::int64_t before = model.linear->conv_kernel - 1;
  list.cache({list.tensor({.name = "state",
                           .width = scan.state(),
                           .rows = Rows::sequence,
                           .cut = Cut::width,
                           .unit = std::int64_t{scan.key_dim} * scan.value_dim,
                           .fp32 = true}),
              list.tensor({.name = "convolution state",
                           .width = before * channels,
                           .rows = Rows::sequence,
                           .cut = Cut::width})});
}

/// Of a chunk of C tokens the kernels keep C numbers of 16 bits a token and head, its inverted
/// triangle (fla/ops/gated_delta_rule/chunk.py).
LayerTensorId delta_rule(const Model& model, ListWriter& list, Projected& p, LayerTensorId a,
                         LayerTensorId b) {
  const StateScan& scan = model.linear->scan;
  const LayerTensorId decay = gate(model, list, "decay", true);
  const LayerTensorId beta = gate(model, list, "beta");
  list.add({.name = "linear gates",
            .work = RowWise{.weights = 2 * std::int64_t{scan.value_heads}},  // A_log, dt_bias
            .reads = {a, b},
            .writes = {decay, beta},
            .keeps = {a, b}});
  const LayerTensorId q = list.like("l2 norm q", p.q);
  const LayerTensorId k = list.like("l2 norm k", p.k);
  list.add({.name = "l2 norm",
            .work = RowWise{},
            .reads = {p.q, p.k},
            .writes = {q, k},
            .keeps = {q, k},
            .statistics = scan.key_heads});
  const LayerTensorId out = list.like("gated delta rule", p.v);
  list.add({.name = "gated delta rule",
            .work = ScanCall{.scan = scan},
            .reads = {q, k, p.v, decay, beta},
            .writes = {out},
            .keeps = {q, k, p.v, decay, beta},
            .statistics = std::int64_t{scan.value_heads} * scan.chunk / 2,
            .modules = {RecomputeModule::core_attention}});
  return out;
}

/// Of what comes before the convolution, and of the output, the backward computes all else again
/// (mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn).
LayerTensorId state_space(const Model& model, ListWriter& list, const Projected& p,
                          LayerTensorId dt) {
  const StateScan& scan = model.linear->scan;
  const LayerTensorId out = list.like("state-space scan", p.v);
  list.add({.name = "state-space scan",
            .work = ScanCall{.scan = scan,
                             .weights = 3 * std::int64_t{scan.value_heads}},  // A_log, D, dt_bias
            .reads = {p.q, p.k, p.v, dt},
            .writes = {out},
            .keeps = {dt, out},
            .modules = {RecomputeModule::core_attention}});
  return out;
}

}  // namespace

LayerTensorId linear_attention(const Model& model, ListWriter& list, LayerTensorId x) {
  const StateScan& scan = model.linear->scan;
  const bool mamba = scan.rule == StateRule::mamba2;
  const LayerTensorId y = list.norm("norm 1", x, model);
  LayerTensorId a;
  LayerTensorId b;
  LayerTensors own;
  if (mamba) {
    a = gate(model, list, "dt");
    own = {a};
  } else {
    b = gate(model, list, "b");
    a = gate(model, list, "a");
    own = {b, a};
  }
  Projected p = project(model, list, y, own);
  convolve(model, list, p);
  const LayerTensorId out =
      mamba ? state_space(model, list, p, a) : delta_rule(model, list, p, a, b);
  cache_state(model, list);
  // Mamba2's is over a group of heads, with a gain a number; the delta rule's over a head.
  const LayerTensorId gated = list.like("gated norm", out);
  list.add({.name = "gated norm",
            .work = RowWise{.weights = mamba ? scan.value_width() : scan.value_dim},
            .reads = {out, p.z},
            .writes = {gated},
            .keeps = {out, p.z},
            .statistics = mamba ? scan.key_heads : scan.value_heads});
  const LayerTensorId back = list.linear("linear out", gated,
                                         {.in = scan.value_width(),
                                          .out = model.hidden,
                                          .shard = Shard::rows,
                                          .bias = model.linear->bias});
  return list.residual("residual 1", x, back);
}

}  // namespace spp
