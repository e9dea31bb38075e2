// Several residual streams (manifold-constrained hyper-connections, arXiv:2512.24880, section 4;
// DeepSeek-V4, arXiv:2606.19348, section 2.2). From the n streams of a token one GEMM makes
// n (n + 2) numbers in fp32: how much of each a branch reads (n), how much of its result each gets
// (n), and how the streams mix (n x n, made doubly stochastic by Sinkhorn's iterations in the
// kernel that reads them). The root mean square that the GEMM's input is divided by is a number a
// token, divided out behind it. Kernels as the frameworks fuse them: the sum that is read and the
// mixes in one, the mix with the result in another; both are cheap and wide, and run again with the
// norms.
#include "transformer/layer_writer.hpp"

namespace spp {
namespace {

/// `numbers` of a token, each an affine function of all streams.
LayerTensorId mixes(const Model& model, ListWriter& list, std::string_view name,
                    LayerTensorId streams, std::int64_t numbers) {
  const LayerTensorId made = list.tensor({.name = name, .width = numbers, .fp32 = true});
  list.add(
      {.name = name,
       .work =
           Linear{
               .in = model.stream_width(), .out = numbers, .bias = true, .width = GemmWidth::wide},
       .reads = {streams},
       .writes = {made},
       .keeps = {streams}});
  return made;
}

/// A weighted sum of the streams; `scales` are learned factors of the weights.
LayerTensorId weighted_sum(const Model& model, ListWriter& list, std::string_view name,
                           LayerTensorId streams, LayerTensorId weights, std::int64_t scales) {
  const LayerTensorId sum = list.tensor(name, model.hidden);
  list.add({.name = name,
            .work = RowWise{.weights = scales},
            .reads = {streams, weights},
            .writes = {sum},
            .keeps = {streams, weights},
            .modules = {RecomputeModule::norms}});
  return sum;
}

}  // namespace

Branch branch_from(const Model& model, ListWriter& list, const BranchNames& names,
                   LayerTensorId stream) {
  Branch branch{.names = names, .stream = stream, .x = stream, .mixes = {}};
  if (model.streams > 1) {
    const std::int64_t n = model.streams;
    branch.mixes = mixes(model, list, names.mix, stream, n * (n + 2));
    branch.x = weighted_sum(model, list, names.read, stream, branch.mixes, 3);
  }
  return branch;
}

LayerTensorId merge(ListWriter& list, const Branch& branch, LayerTensorId result) {
  if (!branch.mixes.valid()) {
    return list.residual(branch.names.merge, branch.stream, result);
  }
  const LayerTensorId mixed = list.like(branch.names.merge, branch.stream);
  list.add({.name = branch.names.merge,
            .work = RowWise{},
            .reads = {branch.stream, result, branch.mixes},
            .writes = {mixed},
            .keeps = {branch.stream, result, branch.mixes},
            .modules = {RecomputeModule::norms}});
  return mixed;
}

LayerTensorId spread(const Model& model, ListWriter& list, LayerTensorId x) {
  if (model.streams == 1) {
    return x;
  }
  const LayerTensorId streams = list.tensor("streams", model.stream_width());
  list.add({.name = "streams", .work = RowWise{}, .reads = {x}, .writes = {streams}});
  return streams;
}

LayerTensorId collapse(const Model& model, ListWriter& list, LayerTensorId streams) {
  if (model.streams == 1) {
    return streams;
  }
  const LayerTensorId weights = mixes(model, list, "streams mix", streams, model.streams);
  return weighted_sum(model, list, "streams sum", streams, weights, 1);
}

}  // namespace spp
