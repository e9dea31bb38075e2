#include "tests/conformance/cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <span>

namespace spp::test {
namespace {

struct Heads {
  int q, kv;
  int dim = 16, value_dim = 0;  // 0: as wide
};

/// Indices of `count` of `size` elements, spread evenly: steps of the golden ratio.
std::vector<std::size_t> spread(std::size_t size, std::size_t count) {
  auto step = static_cast<std::size_t>(static_cast<double>(size) * 0.6180339887) | 1U;
  while (std::gcd(step, size) != 1) {
    ++step;
  }
  std::vector<std::size_t> indices(std::min(size, count));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    indices[i] = i * step % size;
  }
  return indices;
}

}  // namespace

std::string Case::text() const {
  return fmt::format("{} | {} | {} gradient={}", describe(plan), describe(problem),
                     to_string(phase), to_string(options.gradient));
}

std::vector<Problem> problems(int ranks) {
  const std::int64_t seq = std::int64_t{ranks} * 7 + 2;  // divides by no even number of ranks
  const std::array masks{Mask{.kind = MaskKind::full}, Mask{.kind = MaskKind::causal},
                         Mask{.kind = MaskKind::window, .window = 2},
                         Mask{.kind = MaskKind::window, .window = seq / 3},
                         Mask{.kind = MaskKind::window, .window = seq}};
  std::vector<Problem> result;
  for (const Heads heads :
       {Heads{12, 12, 24, 16}, {12, 4}, {6, 1}, {128, 64}, {10, 5, 8, 16}, {64, 8, 2}, {33, 11}}) {
    for (const Mask& mask : masks) {
      for (const DType dtype : {DType::bf16, DType::fp32}) {
        result.push_back({.seq = seq,
                          .batch = dtype == DType::fp32 ? 1 : 2,
                          .q_heads = heads.q,
                          .kv_heads = heads.kv,
                          .head_dim = heads.dim,
                          .value_dim = heads.value_dim,
                          .mask = mask,
                          .dtype = dtype});
      }
    }
  }
  const std::size_t softmax = result.size();
  for (std::size_t i = 0; i < softmax; ++i) {
    if (result[i].mask.kind != MaskKind::window) {
      result.push_back(result[i]);
      result.back().function = AttentionFunction::linear;
      result.back().value_dim = 0;
    }
  }
  return result;
}

namespace {

std::vector<Case> cases_of(int ranks, std::size_t most, std::span<const Problem> problems,
                           const std::function<bool(const SequencePlan&)>& wanted) {
  std::map<std::string, std::vector<Case>> by_strategy;
  for (const Problem& problem : problems) {
    for (const SequencePlan& plan : legal_plans(ranks, problem)) {
      if (!wanted(plan)) {
        continue;
      }
      const Strategy& strategy = strategies::by_name(plan.strategy, "cases");
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        if (!why_not(strategy, phase).legal()) {
          continue;
        }
        const DType gradient = problem.mask.kind == MaskKind::causal ? DType::fp32 : DType::bf16;
        by_strategy[plan.strategy].push_back(
            {.problem = problem, .plan = plan, .phase = phase, .options = {.gradient = gradient}});
      }
    }
  }
  std::vector<Case> result;
  for (const auto& [name, all] : by_strategy) {
    for (const std::size_t i : spread(all.size(), std::max<std::size_t>(1, most / thinning))) {
      result.push_back(all[i]);
    }
  }
  return result;
}

}  // namespace

std::vector<Case> cases(int ranks, std::size_t most) {
  return cases_of(ranks, most, problems(ranks), [](const SequencePlan&) { return true; });
}

bool made_for_documents(const SequencePlan& plan) {
  return deals_documents(plan.layout) ||
         strategies::by_name(plan.strategy, "cases").for_sparse_masks;
}

std::vector<Case> document_cases(int ranks, std::size_t most) {
  std::vector<Problem> packed = problems(ranks);
  for (Problem& p : packed) {
    p.mask.document_ends = {p.seq / 3, p.seq / 3 + 1, p.seq - 1, p.seq};
  }
  return cases_of(ranks, most, packed, made_for_documents);
}

std::vector<Case> cached_cases(int ranks, std::size_t most) {
  std::vector<Problem> behind;
  for (const Problem& p : problems(ranks)) {
    const std::int64_t chunks = 2 * std::int64_t{ranks};
    for (const std::int64_t cached : {chunks, 8 * chunks + 1}) {  // the latter is padded
      if (p.function == AttentionFunction::softmax) {
        behind.push_back(p);
        behind.back().cached = cached;
      }
    }
  }
  std::vector<Case> all =
      cases_of(ranks, 2 * most, behind, [](const SequencePlan&) { return true; });
  std::erase_if(all, [](const Case& c) { return c.phase != Phase::forward; });
  return all;
}

std::vector<Case> all_cases(int ranks, std::size_t most) {
  std::vector<Case> all = cases(ranks, most);
  std::ranges::move(document_cases(ranks, most), std::back_inserter(all));
  std::ranges::move(cached_cases(ranks, most), std::back_inserter(all));
  return all;
}

}  // namespace spp::test
