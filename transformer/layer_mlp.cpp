// What a layer does to each token alone: an MLP, or experts that tokens are routed to.
#include "base/error.hpp"
#include "transformer/layer_writer.hpp"

namespace spp {
namespace {

struct MlpNames {
  std::string_view gate, up, activation, down;
};

/// down(activation(gate(y), up(y))), or without a gate.
LayerTensorId branch(const Model& model, ListWriter& list, LayerTensorId y, std::int64_t ffn,
                     const MlpNames& names, ModuleSet modules) {
  const Linear wide{
      .in = model.hidden, .out = ffn, .shard = Shard::columns, .bias = model.mlp_bias};
  LayerTensors inner;
  if (model.gated_mlp) {
    inner.push_back(list.linear(names.gate, y, wide, modules));
  }
  inner.push_back(list.linear(names.up, y, wide, modules));
  const LayerTensorId product = list.activation(names.activation, inner, modules);
  return list.linear(names.down, product,
                     {.in = ffn, .out = model.hidden, .shard = Shard::rows, .bias = model.mlp_bias},
                     modules);
}

/// What tokens bring to experts: themselves, and the weights that the router gave.
struct Routed {
  LayerTensorId tokens, weights;
};

LayerTensorId received(ListWriter& list, std::string_view name, std::int64_t width, Cut cut) {
  return list.tensor({.name = name, .width = width, .rows = Rows::received, .cut = cut});
}

constexpr ModuleSet moe() { return {RecomputeModule::moe}; }

/// Scores of all experts in fp32, made from y; the best few of each token, or those that a table
/// names, whose scores are their weights alone.
LayerTensorId route(const Model& model, ListWriter& list, LayerTensorId y, bool scored) {
  const Experts& e = model.experts;
  const LayerTensorId scores = list.tensor({.name = "router", .width = e.count, .fp32 = true});
  list.add({.name = "router",
            .work = Linear{.in = model.hidden,
                           .out = e.count,
                           .bias = e.router_bias && scored,
                           .width = GemmWidth::wide},
            .reads = {y},
            .writes = {scores},
            .keeps = {y},
            .modules = moe()});
  const LayerTensorId best = list.tensor({.name = "top k", .width = e.per_token, .fp32 = true});
  list.add({.name = "top k",
            .work = RowWise{.function = LayerFunction::route},
            .reads = {scores},
            .writes = {best},
            .keeps = {scores},
            .modules = moe()});
  return best;
}

/// A copy of each token for each of its experts, in their order: of all (routed), or of those that
/// are on the rank (received).
Routed permute(ListWriter& list, const Routed& tokens, Rows rows) {
  const Cut cut = rows == Rows::received ? Cut::whole : Cut::rows;
  const Routed copies{
      .tokens = list.tensor(
          {.name = "permute", .width = list.at(tokens.tokens).width, .rows = rows, .cut = cut}),
      .weights =
          list.tensor({.name = "weights", .width = 1, .rows = rows, .cut = cut, .fp32 = true})};
  list.add({.name = "permute",
            .work = RowWise{.function = LayerFunction::dispatch},
            .reads = {tokens.tokens, tokens.weights},
            .writes = {copies.tokens, copies.weights},
            .modules = moe()});
  return copies;
}
/// Their sum.
LayerTensorId unpermute(ListWriter& list, LayerTensorId copies, Rows rows) {
  const LayerTensorId y =
      list.tensor({.name = "unpermute", .width = list.at(copies).width, .rows = rows});
  list.add({.name = "unpermute",
            .work = RowWise{.function = LayerFunction::combine},
            .reads = {copies},
            .writes = {y},
            .modules = moe()});
  return y;
}

/// Rows to the ranks of the experts: of copies those that are theirs, of tokens all.
Routed dispatch(ListWriter& list, const Routed& own, Rows rows) {
  const Cut cut = rows == Rows::received ? Cut::whole : Cut::rows;
  const auto there = [&](std::string_view name, LayerTensorId from) {
    const LayerTensor& tensor = list.at(from);
    return list.tensor(
        {.name = name, .width = tensor.width, .rows = rows, .cut = cut, .fp32 = tensor.fp32});
  };
  const Routed arrived{.tokens = there("dispatch", own.tokens),
                       .weights = there("weights", own.weights)};
  list.add({.name = "dispatch",
            .work = ExpertRoute{.direction = RouteDirection::dispatch},
            .reads = {own.tokens, own.weights},
            .writes = {arrived.tokens, arrived.weights},
            .modules = moe()});
  return arrived;
}
/// And back.
LayerTensorId combine(ListWriter& list, LayerTensorId there, Rows rows) {
  const LayerTensorId back =
      list.tensor({.name = "combine", .width = list.at(there).width, .rows = rows});
  list.add({.name = "combine",
            .work = ExpertRoute{.direction = RouteDirection::combine},
            .reads = {there},
            .writes = {back},
            .modules = moe()});
  return back;
}

/// The experts themselves. The router's weight is multiplied in with the activation (Megatron-Core
/// since 0.13), so that the second GEMM's output is not kept.
LayerTensorId multiply(const Model& model, ListWriter& list, const Routed& rows) {
  const Experts& e = model.experts;
  const std::int64_t width = list.at(rows.tokens).width;
  LayerTensors inner;
  const int matrices = model.gated_mlp ? 2 : 1;
  for (int i = 0; i < matrices; ++i) {
    inner.push_back(
        received(list, i == 0 && matrices == 2 ? "experts gate" : "experts up", e.ffn, Cut::width));
  }
  list.add({.name = "experts up",
            .work = Linear{.in = width,
                           .out = matrices * e.ffn,
                           .shard = Shard::columns,
                           .bias = e.bias,
                           .experts = e.count},
            .reads = {rows.tokens},
            .writes = inner,
            .keeps = {rows.tokens},
            .modules = moe()});
  inner.push_back(rows.weights);
  const LayerTensorId product =
      list.activation("experts activation", inner, moe(),
                      model.gated_mlp ? std::optional(LayerFunction::expert_swiglu) : std::nullopt);
  const LayerTensorId out = received(list, "experts down", width, Cut::whole);
  list.add(
      {.name = "experts down",
       .work =
           Linear{
               .in = e.ffn, .out = width, .shard = Shard::rows, .bias = e.bias, .experts = e.count},
       .reads = {product},
       .writes = {out},
       .keeps = {product},
       .modules = moe()});
  return out;
}

/// To the ranks of the experts, through these, and back.
LayerTensorId through_experts(const Model& model, ListWriter& list, const Routed& own) {
  switch (list.to_experts()) {
    case Dispatcher::all_to_all: {
      const Routed there = dispatch(list, permute(list, own, Rows::routed), Rows::received);
      return unpermute(list, combine(list, multiply(model, list, there), Rows::routed),
                       Rows::tokens);
    }
    case Dispatcher::all_gather: {
      const Routed there = permute(list, dispatch(list, own, Rows::gathered), Rows::received);
      return combine(list, unpermute(list, multiply(model, list, there), Rows::gathered),
                     Rows::tokens);
    }
  }
  throw InternalError("no such Dispatcher");
}

/// x * sigmoid(y w), a number a token.
LayerTensorId gated_by_one(const Model& model, ListWriter& list, LayerTensorId y, LayerTensorId x) {
  const ModuleSet shared{RecomputeModule::moe, RecomputeModule::shared_experts};
  const LayerTensorId gate =
      list.linear("shared expert gate", y, {.in = model.hidden, .out = 1}, shared);
  const LayerTensorId gated = list.like("gated shared", x);
  list.add({.name = "gated shared",
            .work = RowWise{},
            .reads = {x, gate},
            .writes = {gated},
            .keeps = {x, gate},
            .modules = shared});
  return gated;
}

}  // namespace

/// x -> x + down(activation(gate(norm(x)), up(norm(x)))), or without a gate.
LayerTensorId mlp(const Model& model, ListWriter& list, LayerTensorId stream) {
  const Branch merged = branch_from(model, list, mlp_branch, stream);
  LayerTensorId y = list.norm("norm 2", merged.x, model);
  if (model.kind == ModelKind::dit) {
    y = list.scaled("modulate 2", y, {RecomputeModule::norms});
  }
  y = branch(model, list, y, model.ffn,
             {.gate = "gate", .up = "up", .activation = "activation", .down = "down"},
             {RecomputeModule::mlp});
  if (model.branch_norms) {
    y = list.norm("branch norm 2", y, model);
  }
  if (model.kind == ModelKind::dit) {
    y = list.scaled("gate 2", y, {});
  }
  return merge(list, merged, y);
}

/// x -> x + experts(norm(x)) + shared(norm(x)); with norms of their own around both.
LayerTensorId experts(const Model& model, ListWriter& list, LayerTensorId stream, bool scored) {
  const Experts& e = model.experts;
  const Branch merged = branch_from(model, list, mlp_branch, stream);
  const LayerTensorId x = merged.x;
  const LayerTensorId normed = list.norm("norm 2", x, model);
  LayerTensorId shared;
  if (e.shared_ffn > 0) {
    shared = branch(model, list, normed, e.shared_ffn,
                    {.gate = "shared gate",
                     .up = "shared up",
                     .activation = "shared activation",
                     .down = "shared down"},
                    {RecomputeModule::moe, RecomputeModule::shared_experts});
  }
  if (e.shared_gate) {
    shared = gated_by_one(model, list, normed, shared);
  }
  LayerTensorId read = normed;  // by the router
  LayerTensorId y = normed;
  if (e.own_norms) {
    shared = list.norm("shared norm", shared, model);
    read = list.norm("router norm", x, model.hidden + e.count);  // and a gain of each expert
    y = list.norm("experts norm", x, model);
  }
  // Latents are made, and brought back, on the rank that has the token.
  if (e.latent > 0) {
    y = list.linear("latent down", y, {.in = model.hidden, .out = e.latent, .bias = model.mlp_bias},
                    {RecomputeModule::moe});
  }
  y = through_experts(model, list, {.tokens = y, .weights = route(model, list, read, scored)});
  if (e.latent > 0) {
    y = list.linear("latent up", y, {.in = e.latent, .out = model.hidden, .bias = model.mlp_bias},
                    {RecomputeModule::moe});
  }
  if (e.own_norms) {
    y = list.norm("experts out norm", y, model);
  }
  if (shared.valid()) {
    y = list.residual("shared sum", y, shared);
  }
  if (model.branch_norms) {
    y = list.norm("branch norm 2", y, model);
  }
  return merge(list, merged, y);
}

}  // namespace spp
