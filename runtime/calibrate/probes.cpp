#include "runtime/calibrate/probes.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace spp::runtime {
Series probe_labels(std::string suite, std::string what, int active) {
  return {.suite = std::move(suite),
          .what = std::move(what),
          .scope = "",
          .ranks = 1,
          .active = active,
          .size = 0,
          .seconds = {},
          .block = std::nullopt};
}

std::vector<Work> everybodys(const Work& work, const Crew& crew) {
  std::vector<Work> all(crew.works.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r] = crew.works[r] ? work : Work();
  }
  return all;
}

std::vector<Probe> link_probes(const Layout& layout, std::int64_t largest) {
  std::vector<Probe> probes;
  const int n = layout.per_node;
  const int all = layout.ranks;
  struct Kind {
    std::string what, scope;
    int ranks, active;
  };
  const auto add = [&](const Kind& kind, const std::function<Work(int rank)>& neighbours) {
    for (const std::int64_t bytes : message_sizes(largest)) {
      Probe& probe = probes.emplace_back(
          Probe{.series = probe_labels("links", kind.what, kind.active), .work = {}});
      probe.series.scope = kind.scope;
      probe.series.ranks = kind.ranks;
      probe.series.size = static_cast<double>(bytes);
      for (int r = 0; r < all; ++r) {
        probe.work.push_back(neighbours(r));
        if (auto* exchange = std::get_if<ExchangeWork>(&probe.work.back())) {
          exchange->bytes = bytes;
        }
      }
    }
  };
  const auto between = [](int to, int from) {
    return Work(ExchangeWork{.to = Rank(to), .from = Rank(from)});
  };
  const auto pair = [&](int first, int second) {
    return [=](int r) {
      return r == first ? between(second, second) : r == second ? between(first, first) : Work();
    };
  };
  const auto one_way = [](int from, int to) {
    return [=](int r) {
      return r == from ? Work(ExchangeWork{.to = Rank(to), .from = Rank()})
             : r == to ? Work(ExchangeWork{.to = Rank(), .from = Rank(from)})
                       : Work();
    };
  };
  const auto next_node = [&](int r) { return between((r + n) % all, (r - n + all) % all); };
  if (n > 1) {
    add({.what = "ring", .scope = "intra", .ranks = n, .active = all}, [&](int r) {
      const int first = r / n * n;
      return between(first + (r - first + 1) % n, first + (r - first - 1 + n) % n);
    });
    add({.what = "pair", .scope = "intra", .ranks = 2, .active = 2}, pair(0, 1));
    add({.what = "one_way", .scope = "intra", .ranks = 2, .active = 2}, one_way(0, 1));
  }
  if (layout.nodes() > 1) {
    add({.what = "ring", .scope = "inter", .ranks = layout.nodes(), .active = layout.nodes()},
        [&](int r) { return r % n == 0 ? next_node(r) : Work(); });
    add({.what = "pair", .scope = "inter", .ranks = 2, .active = 2}, pair(0, n));
    add({.what = "one_way", .scope = "inter", .ranks = 2, .active = 2}, one_way(0, n));
    add({.what = "pairs", .scope = "inter", .ranks = layout.nodes(), .active = all}, next_node);
  }
  return probes;
}

std::vector<Probe> collective_probes(const Layout& layout, std::int64_t largest) {
  struct Kind {
    int size, stride;
    std::string scope;
  };
  std::vector<Kind> kinds;
  const int n = layout.per_node;
  for (int size = 2; size <= n; ++size) {
    if (n % size == 0) {
      kinds.push_back({.size = size, .stride = 1, .scope = "intra"});
    }
  }
  if (layout.nodes() > 1) {
    kinds.push_back({.size = layout.nodes(), .stride = n, .scope = "inter"});
    if (n > 1) {
      kinds.push_back({.size = layout.ranks, .stride = 1, .scope = "inter"});
    }
  }
  std::vector<Probe> probes;
  for (const Kind& kind : kinds) {
    for (const CommKind what : {CommKind::all_to_all, CommKind::all_gather,
                                CommKind::reduce_scatter, CommKind::all_reduce}) {
      if (what == CommKind::all_reduce && kind.scope == "inter") {
        continue;
      }
      for (const std::int64_t bytes : message_sizes(largest)) {
        // A part goes to each peer; of an all-reduce as a summand, and again as a sum.
        const int peers = (kind.size - 1) * (what == CommKind::all_reduce ? 2 : 1);
        const std::int64_t part = std::max<std::int64_t>(4, bytes / peers / 4 * 4);
        Probe& probe = probes.emplace_back(
            Probe{.series = probe_labels("collectives", std::string(to_string(what)), layout.ranks),
                  .work = {}});
        probe.series.scope = kind.scope;
        probe.series.ranks = kind.size;
        probe.series.size = static_cast<double>(part * peers);
        for (int r = 0; r < layout.ranks; ++r) {
          const int first = kind.stride == 1 ? r / kind.size * kind.size : r % kind.stride;
          probe.work.emplace_back(
              CollectiveWork{.kind = what,
                             .group = {.first = first, .stride = kind.stride, .size = kind.size},
                             .part = part});
        }
      }
    }
  }
  return probes;
}

std::vector<Probe> attention_probes(std::vector<AttentionBlock> blocks, const std::string& what,
                                    const Crew& crew) {
  std::ranges::stable_sort(blocks, {}, flops_of);
  std::vector<Probe> probes;
  for (const AttentionBlock& block : blocks) {
    Probe& probe = probes.emplace_back(Probe{.series = probe_labels("attention", what, crew.active),
                                             .work = everybodys(block, crew)});
    probe.series.block = block;
  }
  return probes;
}

std::vector<std::size_t> ends_then_middles(std::size_t n) {
  std::vector<std::size_t> order;
  if (n > 0) {
    order.push_back(0);
  }
  if (n > 1) {
    order.push_back(n - 1);
  }
  std::vector<std::pair<std::size_t, std::size_t>> gaps{{0, n - 1}};
  for (std::size_t i = 0; order.size() < n; ++i) {
    const auto [begin, end] = gaps[i];
    const std::size_t middle = begin + (end - begin) / 2;
    if (middle > begin) {
      order.push_back(middle);
      gaps.emplace_back(begin, middle);
      gaps.emplace_back(middle, end);
    }
  }
  return order;
}

std::vector<Probe> kernel_probes(const Problem& shape, const Crew& crew, std::int64_t largest) {
  using Kernel = KernelWork::Kernel;
  constexpr std::int64_t smallest = 256 << 10;
  std::vector<Probe> probes;
  for (std::int64_t bytes = smallest; bytes <= std::max(largest, smallest); bytes *= 4) {
    const std::int64_t cells = std::int64_t{shape.q_heads} * shape.head_dim;
    const std::int64_t n = std::max<std::int64_t>(1, bytes / (4 * cells));
    const std::int64_t rows = n * cells * size_of(shape.dtype);
    const std::int64_t rows_fp32 = n * cells * size_of(DType::fp32);
    const std::int64_t statistics = n * shape.q_heads * size_of(DType::fp32);  // lse or delta
    struct Kind {
      std::string what;
      Kernel kernel;
      std::int64_t touched;
    };
    const std::array kinds{Kind{"merge", Kernel::merge, rows + 3 * statistics + 2 * rows_fp32},
                           Kind{"accumulate", Kernel::accumulate, rows + 2 * rows_fp32},
                           Kind{"cast", Kernel::cast, rows_fp32 + rows},
                           Kind{"copy", Kernel::copy, 2 * rows},
                           Kind{"row_dot", Kernel::row_dot, 2 * rows + statistics}};
    for (const Kind& kind : kinds) {
      Probe& probe = probes.emplace_back(
          Probe{.series = probe_labels("elementwise", kind.what, crew.active),
                .work = everybodys(KernelWork{.kernel = kind.kernel, .rows = n}, crew)});
      probe.series.size = static_cast<double>(kind.touched);
    }
  }
  return probes;
}

Probe empty_op_probe(const Crew& crew) {
  return {.series = probe_labels("elementwise", "op", crew.active),
          .work = everybodys(EmptyOpWork(), crew)};
}

}  // namespace spp::runtime
