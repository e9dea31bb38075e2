// What sharding the weights over the P ranks of a sequence-parallel group costs in traffic (ZeRO:
// Rajbhandari et al., arXiv:1910.02054, section 7).
//
//   stage 0   all-reduce of the gradients = reduce-scatter + all-gather
//   stage 1,2 reduce-scatter of the gradients, all-gather of the updated parameters
//   stage 3   all-gather of the parameters before each forward and each backward, reduce-scatter of
//             the gradients
// Each moves 2W resp. 3W bytes a rank, W = weights * (P-1)/P.
//
// Hiding. One communication stream. A layer's gradients leave once its backward is done, behind the
// backward of the layers that remain; what has not arrived when the backward ends is exposed: the
// last bucket (the embedding's and the first layer's) at least. Updated parameters are gathered
// behind the optimizer, exposed. Stage 3 prefetches one layer: a gather hides behind the layer
// before, the first one behind nothing; in the backward, gather and reduce-scatter of a layer share
// the stream.
#pragma once

#include "base/units.hpp"
#include "schedule/measure.hpp"
#include "schedule/problem.hpp"
#include "transformer/model.hpp"

#include <array>
#include <functional>

namespace spp {

struct ZeroTimes {
  Seconds forward_layer{};   // of a layer with its attention
  Seconds backward_layer{};  // the same, with what it computes again
};

struct ZeroRequest {
  int ranks = 1;  // P
  int zero = 0;   // stage
  DType parameter = DType::bf16;
  DType gradient = DType::fp32;  // in which gradients travel
  bool train = true;             // else only stage 3 gathers, once
  ZeroTimes times{};
};

struct ZeroCost {
  Seconds exposed{}, hidden{};
  std::array<Bytes, comm_kinds> sent{};  // by CommKind, to other ranks, by each rank
  [[nodiscard]] Bytes bytes() const;
};

/// Time of one collective over the group in which each rank sends that much to the others.
using CollectiveTime = std::function<Seconds(CommKind, Bytes sent_per_rank)>;

/// All 0 for one rank.
ZeroCost zero_cost(const Model& model, const ZeroRequest& request,
                   const CollectiveTime& collective);

}  // namespace spp
