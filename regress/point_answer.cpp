#include "regress/point_answer.hpp"

#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/double_ring_core.hpp"
#include "regress/corpus_point.hpp"
#include "regress/documents.hpp"
#include "schedule/counted_flops.hpp"

#include <algorithm>
#include <cmath>

namespace spp::regress {
namespace {

Mask mask_of(const Point& p) {
  const bool full = p.mask == PointMask::full || p.mask == PointMask::varlen_full;
  return {.kind = full ? MaskKind::full : MaskKind::causal};
}

}  // namespace

DType tensors_of(const Point& p) {
  return p.dtype == "fp16" ? DType::fp16 : p.dtype == "fp32" ? DType::fp32 : DType::bf16;
}

PointPrediction no(std::string reason) {
  PointPrediction p;
  p.reason = std::move(reason);
  return p;
}

bool is_low_precision(const Point& p) {
  return contains(p.dtype, "fp8") || contains(p.dtype, "fp4");
}

std::string why_no_problem(const Point& p) {
  return p.seq && p.q_heads && p.head_dim ? "" : "length, heads or their width are not stated";
}

Problem problem_of(const Point& p) {
  return {.seq = *p.seq,
          .batch = p.batch.value_or(1),
          .q_heads = *p.q_heads,
          .kv_heads = p.kv_heads.value_or(*p.q_heads),
          .head_dim = *p.head_dim,
          .value_dim = p.head_dim_v.value_or(0),
          .mask = mask_of(p),
          .dtype = tensors_of(p)};
}

std::vector<std::vector<std::int64_t>> packings_of(const Point& p) {
  if (!p.packs()) {
    return {{}};
  }
  if (p.packs_unknown()) {
    return {usual_packing(*p.seq).ends};
  }
  return p.packings;
}

namespace {

/// FLOPs of the call under the source's convention; of packed documents what they allow.
double flops_of_call(const Point& p) {
  if (p.op == "gemm") {
    return 2.0 * static_cast<double>(*p.m) * static_cast<double>(*p.n) * static_cast<double>(*p.k);
  }
  const Problem problem = problem_of(p);
  if (p.packs()) {
    const TokenRange all{.begin = 0, .count = problem.seq};
    const int values = p.head_dim_v.value_or(*p.head_dim);
    double passes = p.phase != "bwd" ? flops_per_pair(Phase::forward, *p.head_dim, values) : 0;
    passes += p.phase != "fwd" ? flops_per_pair(Phase::backward, *p.head_dim, values) : 0;
    return passes * mean_over(packings_of(p), [&](const std::vector<std::int64_t>& ends) {
             Mask mask = problem.mask;
             mask.document_ends = ends;
             return static_cast<double>(allowed_pairs(all, all, mask)) * problem.q_heads *
                    static_cast<double>(problem.batch);
           });
  }
  return counted_flops(CountedCall{.queries = *p.seq,
                                   .keys = p.seq_kv.value_or(*p.seq),
                                   .batch = problem.batch,
                                   .heads = problem.q_heads,
                                   .qk_dim = static_cast<double>(*p.head_dim),
                                   .v_dim = static_cast<double>(p.head_dim_v.value_or(*p.head_dim)),
                                   .halved = problem.mask.kind != MaskKind::full &&
                                             p.flops_convention != "full",
                                   .forward = p.phase != "bwd",
                                   .backward = p.phase != "fwd"})
      .value();
}

/// A time in the metric of the point.
std::optional<double> in_metric(const Point& p, double seconds) {
  switch (p.metric) {
    case Metric::time:
      return seconds;
    case Metric::tflops_per_gpu:
      return flops_of_call(p) / seconds / p.world / 1e12;
    case Metric::tokens_per_s:
      return static_cast<double>(*p.seq * p.batch.value_or(1)) / seconds /
             (p.per_gpu ? p.world : 1);
    case Metric::memory:
    case Metric::busbw:
      return std::nullopt;
  }
  throw InternalError("unknown metric");
}

}  // namespace

double interval_factor(double spread) {
  constexpr double eighty_percent = 1.2816;  // half its width over a standard deviation (normal)
  return std::exp(eighty_percent * spread);
}

PointPrediction answer(const Point& p, double seconds, double spread) {
  PointPrediction result;
  result.predicted = in_metric(p, seconds);
  if (!result.predicted) {
    return no(
        fmt::format("{} of scope {} is not predicted", to_string(p.metric), to_string(p.scope)));
  }
  const double factor = interval_factor(spread);
  const auto slow = in_metric(p, seconds * factor);
  const auto fast = in_metric(p, seconds / factor);
  result.low = std::min(*slow, *fast);
  result.high = std::max(*slow, *fast);
  return result;
}

namespace {

/// The plan that a point describes; what it leaves open is the planner's default.
FixedChoices choices_of(const Point& p) {
  FixedChoices f;
  f.ulysses = p.ulysses;
  f.ring = p.ring;
  if (const auto degree = p.cp_of_open_kind()) {
    f.ulysses = 1;  // the stack's default is a ring
    f.ring = degree;
  }
  f.own[&parameters::team] = p.team;
  f.layout = p.layout;
  if (p.ring_kind == RingKind::all_gather && p.ring.value_or(1) > 1) {
    f.strategy = "all-gather";
  } else if (p.ring_kind == RingKind::pass_q && p.ring.value_or(1) > 1) {
    f.strategy = "pass-q-ring";
  } else if (p.ring_kind == RingKind::group_cast && p.ring.value_or(1) > 1) {
    f.strategy = "group-cast";
  } else if (p.double_ring && p.ring.value_or(1) > 1) {
    const int node = p.machine.gpus_per_node / p.ulysses.value_or(1);
    const int window = p.inner.value_or(std::clamp(node, 1, *p.ring));
    if (window > 1 && window < *p.ring && *p.ring % window == 0) {
      f.strategy = "double-ring";
      f.own[&parameters::window] = window;
    }
  }
  if (p.placement == "ring-inner") {
    f.order = std::array{Axis::ring, Axis::team, Axis::ulysses};
  }
  return f;
}

}  // namespace

Bytes usable_memory(const GpuSpec& gpu) {
  return Bytes(static_cast<std::int64_t>(gpu.memory.value.as_double() * gpu.memory_usable.value));
}

Request request_of(const Point& p, const sim::Cluster& cluster, const StackSpec& stack) {
  Request request;
  request.problem = problem_of(p);
  request.cluster = &cluster;
  request.year = p.year;
  request.gpus = p.world;
  request.fixed = choices_of(p);
  request.run_by(stack);
  request.memory = usable_memory(cluster.machine().gpu);
  return request;
}

}  // namespace spp::regress
