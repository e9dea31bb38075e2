#include "regress/point_metric.hpp"

#include "base/error.hpp"
#include "regress/corpus_point.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace spp::regress {
namespace {

/// `what`: a family of operations, or the scope of what is of none.
bool has(std::string_view what, Metric metric) {
  const auto one_of = [&](std::initializer_list<std::string_view> known) {
    return std::ranges::find(known, what) != known.end();
  };
  switch (metric) {
    case Metric::time:
      return what != "memory";
    case Metric::memory:
      return one_of({"attention", "kernel", "model", "memory"});
    case Metric::tflops_per_gpu:
      return one_of({"attention", "kernel", "model", "gemm"});
    case Metric::tokens_per_s:
      return one_of({"attention", "kernel", "model"});
    case Metric::busbw:
      return what == "collective";
  }
  throw InternalError("unknown metric");
}

}  // namespace

std::string why_no_metric(const Point& p) {
  const std::string_view family = family_of_op(p.op);
  const std::string_view what = family.empty() ? to_string(p.scope) : family;
  if (has(what, p.metric)) {
    return "";
  }
  std::vector<std::string_view> known;
  for (const Metric m : {Metric::time, Metric::memory, Metric::tflops_per_gpu, Metric::tokens_per_s,
                         Metric::busbw}) {
    if (has(what, m)) {
      known.push_back(to_string(m));
    }
  }
  return fmt::format("{} of {} is not predicted; {} is", to_string(p.metric), what,
                     fmt::join(known, ", "));
}

}  // namespace spp::regress
