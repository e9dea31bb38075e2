#include "planner/zero.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp {
namespace {

/// Weights that travel together. In the order of the forward: `first` (embedding), the layers,
/// `last` (loss head, final norm).
struct Buckets {
  std::int64_t first = 0;
  std::int64_t layer = 0;
  std::int64_t layers = 0;
  std::int64_t last = 0;
};

Buckets buckets_of(const Model& model) {
  const std::int64_t all = model.parameters();
  Buckets buckets{.first = model.table_parameters(), .layers = model.layers};
  // Weights beside the picture (modulation, text streams) are the layers'.
  buckets.layer = model.layer_parameters() + model.extra_parameters / model.layers;
  buckets.last = std::max<std::int64_t>(0, all - buckets.first - buckets.layers * buckets.layer);
  return buckets;
}

class Traffic {
 public:
  Traffic(const ZeroRequest& request, const CollectiveTime& collective)
      : request_(&request), collective_(&collective) {}

  /// One collective over `weights`, counted `times` times. 0 for no weights.
  Seconds send(CommKind kind, std::int64_t weights, std::int64_t times = 1) {
    if (weights == 0) {
      return Seconds(0);
    }
    const DType dtype = kind == CommKind::all_gather ? request_->parameter : request_->gradient;
    return send_bytes(kind, weights * size_of(dtype), times);
  }
  /// Gradients, reduced and given to all.
  Seconds all_reduce(std::int64_t weights, std::int64_t times = 1) {
    if (weights == 0) {
      return Seconds(0);
    }
    const std::int64_t bytes = weights * size_of(request_->gradient);
    return send_bytes(CommKind::reduce_scatter, bytes, times) +
           send_bytes(CommKind::all_gather, bytes, times);
  }
  /// Books `exposed` of all the time sent so far that is not booked yet.
  void settle(Seconds exposed) {
    cost_.exposed += exposed;
    cost_.hidden += std::max(Seconds(0), open_ - exposed);  // below 0 by rounding only
    open_ = Seconds(0);
  }
  [[nodiscard]] const ZeroCost& cost() const { return cost_; }

 private:
  Seconds send_bytes(CommKind kind, std::int64_t bytes, std::int64_t times) {
    const std::int64_t ranks = request_->ranks;
    const Bytes sent((bytes + ranks - 1) / ranks * (ranks - 1));
    const Seconds time = (*collective_)(kind, sent);
    cost_.sent.at(static_cast<std::size_t>(kind)) += sent * times;
    open_ += time * static_cast<double>(times);
    return time;
  }

  const ZeroRequest* request_;
  const CollectiveTime* collective_;
  ZeroCost cost_;
  Seconds open_{};
};

/// Buckets of one stream that become ready one after the other: `last` at once, then a layer every
/// `compute`, the first weights together with the last of them. What is left when the compute ends:
/// the stream is busy without a gap from some bucket on, whichever makes it longest.
Seconds left_over(const Buckets& buckets, Seconds last, Seconds layer, Seconds first,
                  Seconds compute) {
  const auto n = static_cast<double>(buckets.layers);
  const Seconds from_last_layer = layer + first;
  const Seconds from_first_layer = n * layer + first - (n - 1) * compute;
  const Seconds from_the_start = last + n * layer + first - n * compute;
  return std::max({from_last_layer, from_first_layer, from_the_start});
}

/// Stage 3, forward: the first weights and the first layer's wait for nothing; layer i + 1's and
/// the last weights hide behind a layer each.
void gather_forward(const Buckets& buckets, const ZeroTimes& times, Traffic& traffic) {
  const Seconds first = traffic.send(CommKind::all_gather, buckets.first);
  const Seconds layer = traffic.send(CommKind::all_gather, buckets.layer, buckets.layers);
  const Seconds last = traffic.send(CommKind::all_gather, buckets.last);
  const Seconds zero(0);
  traffic.settle(first + layer +
                 static_cast<double>(buckets.layers - 1) *
                     std::max(zero, layer - times.forward_layer) +
                 std::max(zero, last - times.forward_layer));
}

/// Stage 3, backward: the last weights are still there from the forward. While a layer computes,
/// the next one is gathered and the one before is reduced; at the ends only one of the two.
void gather_and_reduce_backward(const Buckets& buckets, const ZeroTimes& times, Traffic& traffic) {
  const Seconds gather = traffic.send(CommKind::all_gather, buckets.layer, buckets.layers);
  const Seconds last = traffic.send(CommKind::reduce_scatter, buckets.last);
  const Seconds reduce = traffic.send(CommKind::reduce_scatter, buckets.layer, buckets.layers);
  const Seconds first = traffic.send(CommKind::reduce_scatter, buckets.first);
  const Seconds zero(0);
  const Seconds compute = times.backward_layer;
  Seconds exposed = gather;  // of the last layer
  if (buckets.layers == 1) {
    exposed += std::max(zero, last - compute);
  } else {
    exposed += std::max(zero, last + gather - compute) +
               static_cast<double>(buckets.layers - 2) * std::max(zero, gather + reduce - compute) +
               std::max(zero, reduce - compute);
  }
  traffic.settle(exposed + reduce + first);
}

}  // namespace

Bytes ZeroCost::bytes() const {
  Bytes total{};
  for (const Bytes one : sent) {
    total += one;
  }
  return total;
}

ZeroCost zero_cost(const Model& model, const ZeroRequest& request,
                   const CollectiveTime& collective) {
  ensure(request.ranks >= 1 && request.zero >= 0 && request.zero <= 3, "no such ZeroRequest");
  if (request.ranks == 1 || model.layers == 0) {
    return {};
  }
  const Buckets buckets = buckets_of(model);
  Traffic traffic(request, collective);
  if (request.zero == 3) {
    gather_forward(buckets, request.times, traffic);
    if (request.train) {
      gather_and_reduce_backward(buckets, request.times, traffic);
    }
    return traffic.cost();
  }
  if (!request.train) {
    return {};
  }
  const bool whole = request.zero == 0;
  const auto gradients = [&](std::int64_t weights, std::int64_t times = 1) {
    return whole ? traffic.all_reduce(weights, times)
                 : traffic.send(CommKind::reduce_scatter, weights, times);
  };
  const Seconds last = gradients(buckets.last);
  const Seconds layer = gradients(buckets.layer, buckets.layers);
  const Seconds first = gradients(buckets.first);
  traffic.settle(left_over(buckets, last, layer, first, request.times.backward_layer));
  if (!whole) {
    traffic.settle(traffic.send(CommKind::all_gather, model.parameters()));
  }
  return traffic.cost();
}

}  // namespace spp
