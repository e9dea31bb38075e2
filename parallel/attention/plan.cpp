#include "parallel/attention/plan.hpp"

#include "base/error.hpp"
#include "base/named.hpp"
#include "base/parse.hpp"
#include "parallel/attention/attention_mesh.hpp"
#include "schedule/balanced.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace spp {
namespace {

constexpr std::array<Named<Axis>, 3> axes{
    {{Axis::ulysses, "ulysses"}, {Axis::team, "team"}, {Axis::ring, "ring"}}};

std::int64_t chunks_a_rank(Layout layout) {
  return layout == Layout::balanced               ? chunks_of_rank
         : chunk_layout(layout) == Layout::zigzag ? 2
                                                  : 1;
}

std::int64_t rounded_up(std::int64_t tokens, std::int64_t unit) {
  return (tokens + unit - 1) / unit * unit;
}

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

std::int64_t unit_of(const SequencePlan& plan) { return plan.ranks() * chunks_a_rank(plan.layout); }

std::int64_t unit_of_cached(const SequencePlan& plan) { return unit_of(plan) / plan.ulysses; }

namespace {

/// Every document cut into pieces, one for each chunk, and filled up so that they are alike.
void deal_documents(Problem& problem, const SequencePlan& plan) {
  Mask& mask = problem.mask;
  const std::vector<std::int64_t> ends = std::exchange(mask.document_ends, {});
  mask.pieces = chunks_a_rank(plan.layout) * (plan.ring / plan.own[parameters::team]);
  std::int64_t begin = 0;
  std::int64_t piece_end = 0;
  const auto add = [&](std::int64_t end) {
    if (end > begin) {
      piece_end += rounded_up(end - begin, unit_of(plan)) / mask.pieces;
      mask.document_ends.push_back(piece_end);
      begin = end;
    }
  };
  for (const std::int64_t end : ends) {
    add(std::min(end, problem.seq));
  }
  add(problem.seq);  // behind the last document: one of its own
  problem.seq = piece_end * mask.pieces;
}

}  // namespace

Problem dealt(const Problem& problem, const SequencePlan& plan) {
  Problem result = problem;
  result.cached = rounded_up(problem.cached, unit_of_cached(plan));
  if (deals_documents(plan.layout) && problem.mask.pieces == 1) {
    deal_documents(result, plan);
  }
  if (problem.mask.kind == MaskKind::window && problem.mask.window >= problem.end()) {
    // a window over all tokens hides none from the padding, either
    result.mask.window = result.cached + rounded_up(result.seq, unit_of(plan));
  }
  return result;
}

Problem padded(const Problem& problem, const SequencePlan& plan) {
  Problem result = dealt(problem, plan);
  result.seq = rounded_up(result.seq, unit_of(plan));
  if (plan.heads == HeadPolicy::pad) {
    const HeadSplit split(problem, plan.ulysses, plan.heads);
    result.q_heads = split.q_heads();
    result.kv_heads = split.kv_heads();
  }
  return result;
}

}  // namespace spp
