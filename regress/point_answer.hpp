// What scopes of predictions share: a point as a problem and a request, a time as its answer.
#pragma once

#include "machine/stack.hpp"
#include "planner/plan.hpp"
#include "regress/corpus.hpp"
#include "regress/score.hpp"

#include <string>
#include <vector>

namespace spp::regress {

/// A point without a prediction, and why.
PointPrediction no(std::string reason);

/// In which its tensors are: bf16 unless it says other 16 or 32 bits.
DType tensors_of(const Point& p);
/// Its matrices multiply in fewer.
bool is_low_precision(const Point& p);

/// Why a point says too little for `problem_of`; "" if it does not.
std::string why_no_problem(const Point& p);

/// Of one sequence, whatever is packed in it.
Problem problem_of(const Point& p);

/// Packed sequences that the source timed; documents of usual lengths if it does not say which; one
/// sequence of no documents if none are packed.
std::vector<std::vector<std::int64_t>> packings_of(const Point& p);

template <class F>
double mean_over(const std::vector<std::vector<std::int64_t>>& packings, F f) {
  double sum = 0;
  for (const std::vector<std::int64_t>& ends : packings) {
    sum += f(ends);
  }
  return sum / static_cast<double>(packings.size());
}

/// From a value to the ends of its 80 % interval, of a relative standard deviation.
double interval_factor(double spread);

/// A prediction with its 80 % interval: `spread` is a standard deviation, relative. None of memory
/// and bus bandwidth, which are no times.
PointPrediction answer(const Point& p, double seconds, double spread);

Bytes usable_memory(const GpuSpec& gpu);

/// What attention calls and training steps ask alike.
Request request_of(const Point& p, const sim::Cluster& cluster, const StackSpec& stack);

}  // namespace spp::regress
