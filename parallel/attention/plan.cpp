#include "parallel/attention/plan.hpp"

#include "base/error.hpp"
#include "base/named.hpp"
#include "base/parse.hpp"

#include <algorithm>
#include <vector>

namespace spp {
namespace {

constexpr std::array<Named<Axis>, 3> axes{
    {{Axis::ulysses, "ulysses"}, {Axis::team, "team"}, {Axis::ring, "ring"}}};

}  // namespace

std::string_view to_string(Axis v) { return name_of(v, axes); }

std::array<Axis, 3> parse_order(std::string_view text, std::string_view where) {
  std::vector<Axis> order;
  for (const std::string_view piece : split(text, ',')) {
    const Axis axis = value_of(piece, axes, where);
    if (std::ranges::find(order, axis) != order.end()) {
      throw InputError(where, fmt::format("axis '{}' is named twice in '{}'", piece, text));
    }
    order.push_back(axis);
  }
  for (const auto& axis : axes) {
    if (std::ranges::find(order, axis.value) == order.end()) {
      order.push_back(axis.value);
    }
  }
  return {order[0], order[1], order[2]};
}

std::string to_string(const std::array<Axis, 3>& order) {
  return fmt::format("{},{},{}", to_string(order[0]), to_string(order[1]), to_string(order[2]));
}

Problem padded(const Problem& problem, const SequencePlan& plan) {
  const std::int64_t unit = std::int64_t{plan.ranks()} * (plan.layout == Layout::zigzag ? 2 : 1);
  Problem result = problem;
  result.seq = (problem.seq + unit - 1) / unit * unit;
  if (plan.heads == HeadPolicy::pad) {
    const HeadSplit split(problem, plan.ulysses, plan.heads);
    result.q_heads = split.q_heads();
    result.kv_heads = split.kv_heads();
  }
  return result;
}

}  // namespace spp
