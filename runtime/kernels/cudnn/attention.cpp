#include "runtime/kernels/cudnn/attention.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

namespace spp::runtime {
namespace {

/// Parts of a workspace begin at multiples of this.
constexpr std::int64_t alignment = 256;
std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

Rows part_of(const Rows& rows, const Interval& part) {
  Rows result = rows;
  result.count = part.count();
  result.data += part.begin * (rows.bytes() / std::max<std::int64_t>(1, rows.count));
  return result;
}

/// Disjoint intervals of key rows.
class Written {
 public:
  [[nodiscard]] bool touches(const Interval& rows) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const Interval& w) { return w.begin < rows.end && rows.begin < w.end; });
  }
  /// The parts of `rows` that are not there yet.
  [[nodiscard]] std::vector<Interval> missing(const Interval& rows) const {
    std::vector<Interval> gaps;
    std::int64_t from = rows.begin;
    for (const Interval& w : list_) {
      if (w.begin > from && from < rows.end) {
        gaps.push_back({.begin = from, .end = std::min(w.begin, rows.end)});
      }
      from = std::max(from, w.end);
    }
    if (from < rows.end) {
      gaps.push_back({.begin = from, .end = rows.end});
    }
    return gaps;
  }
  void add(const Interval& rows) {
    list_.insert(std::upper_bound(list_.begin(), list_.end(), rows), rows);
  }

 private:
  std::vector<Interval> list_;  // rising; may overlap
};

/// Key rows of the sections that must be added to what others wrote, at most.
std::int64_t most_shared_keys(const std::vector<Section>& sections) {
  Written written;
  std::int64_t most = 0;
  for (const Section& s : sections) {
    if (s.seen) {
      most = written.touches(s.k) ? std::max(most, s.k.count()) : most;
      written.add(s.k);
    }
  }
  return most;
}

/// Bytes of lse or delta of the longest section.
std::int64_t statistics(const std::vector<Section>& sections, const Rows& q) {
  std::int64_t rows = 0;
  for (const Section& s : sections) {
    rows = s.seen ? std::max(rows, s.q.count()) : rows;
  }
  return aligned(rows * q.batch * q.heads * size_of(DType::fp32));
}

/// A forward's workspace is lse as calls have it, then the call's own; a backward's is this. Where
/// each part begins, in bytes; first is the surrogate out.
struct Layout {
  std::int64_t d_k = 0, d_v = 0, lse = 0, delta = 0, call = 0;
};

Layout layout_of(const std::vector<Section>& sections, const BlockRows& rows, SdpaDelta delta) {
  const Interval shared{.begin = 0, .end = most_shared_keys(sections)};
  const std::int64_t numbers = statistics(sections, rows.q);
  Rows out = rows.q;
  out.width = rows.v.width;
  Layout layout;
  layout.d_k = delta == SdpaDelta::from_out ? aligned(out.bytes()) : 0;
  layout.d_v = layout.d_k + aligned(part_of(rows.k, shared).bytes());
  layout.lse = layout.d_v + aligned(part_of(rows.v, shared).bytes());
  layout.delta = layout.lse + numbers;
  layout.call = layout.delta + (delta == SdpaDelta::given ? numbers : 0);
  return layout;
}

/// All tensors of [rows, batch, heads, width] of a call have one type.
void expect_type_of(const Rows& q, std::initializer_list<Rows> others) {
  for (const Rows& other : others) {
    ensure(other.dtype == q.dtype, "cuDNN reads and writes one type");
  }
}

/// One row of each: a call of these heads and this type.
constexpr Section one_row{.q = {.begin = 0, .end = 1}, .k = {.begin = 0, .end = 1}};

void expect_supported(const BlockRows& rows, const Visibility& visible) {
  ensure(visible.q_tokens.count() == rows.q.count && visible.k_tokens.count() == rows.k.count,
         "attention over other tokens than its rows hold");
  if (const std::string why = why_not(shape_of(one_row, rows)); !why.empty()) {
    throw InputError("attention", why);
  }
}

}  // namespace

SdpaShape shape_of(const Section& section, const BlockRows& rows) {
  return {.batch = rows.q.batch,
          .q_rows = section.q.count(),
          .k_rows = section.k.count(),
          .q_heads = rows.q.heads,
          .kv_heads = rows.k.heads,
          .head_dim = rows.q.width,
          .value_dim = rows.v.width == rows.q.width ? 0 : rows.v.width,
          .mask = section.mask,
          .dtype = rows.q.dtype};
}

std::string cudnn_why_not(const BlockRows& rows, const Visibility& visible) {
  const Sections cut = sections(visible);
  return cut.why_not.empty() ? why_not(shape_of(one_row, rows)) : cut.why_not;
}

Bytes cudnn_own_workspace(const BlockRows& rows, const Visibility& visible, Phase phase) {
  const auto& [q, k, v] = rows;
  const Sections cut = sections(visible);
  if (phase == Phase::forward) {
    return Bytes(statistics(cut.list, q));
  }
  // row_sum and d_q_sum of a call; with fewer KV heads, its plan also keeps d_k and d_v of all, as
  // the plans of cuDNN 9.19 for an H200 say (tests/unit/runtime/cudnn_plans_test.cpp asks them).
  std::int64_t most = 0;
  for (const Section& s : cut.list) {
    const std::int64_t of_queries = s.q.count() * q.batch * q.heads * (1 + q.width);
    const std::int64_t of_keys =
        q.heads == k.heads ? 0 : s.k.count() * k.batch * q.heads * (k.width + v.width);
    most = s.seen ? std::max(most, 4 * of_queries + size_of(k.dtype) * of_keys) : most;
  }
  return Bytes(layout_of(cut.list, rows, SdpaDelta::from_out).call + aligned(most));
}

std::vector<SdpaShape> CudnnAttention::shapes(const BlockRows& rows, const Visibility& visible) {
  expect_supported(rows, visible);
  std::vector<SdpaShape> all;
  for (const Section& s : cut(visible)) {
    if (s.seen) {
      all.push_back(shape_of(s, rows));
    }
  }
  return all;
}

CudnnAttention::CudnnAttention(std::unique_ptr<Sdpa> sdpa, RowKernels kernels, SdpaDelta delta)
    : sdpa_(std::move(sdpa)), kernels_(std::move(kernels)), delta_(delta) {}

const std::vector<Section>& CudnnAttention::cut(const Visibility& visible) {
  // Cutting looks at every row; a block comes back in every iteration.
  const std::string key =
      fmt::format("{} {} {} {}", to_string(visible.q_tokens), to_string(visible.k_tokens),
                  to_string(visible.mask), visible.seq);
  const auto found = cuts_.find(key);
  if (found != cuts_.end()) {
    return found->second;
  }
  Sections result = sections(visible);
  if (!result.why_not.empty()) {
    throw InputError("attention", result.why_not);
  }
  return cuts_.emplace(key, std::move(result.list)).first->second;
}

Bytes CudnnAttention::call_workspace(const std::vector<Section>& list, const BlockRows& rows,
                                     Phase phase) {
  Bytes most{};
  for (const Section& s : list) {
    if (s.seen) {
      most = std::max(most, sdpa_->workspace(shape_of(s, rows), phase));
    }
  }
  return most;
}

Bytes CudnnAttention::forward_workspace(const AttentionForwardArgs& args) {
  expect_supported(block_rows(args), args.visible);
  const std::vector<Section>& list = cut(args.visible);
  return Bytes(statistics(list, args.q)) + call_workspace(list, block_rows(args), Phase::forward);
}

Bytes CudnnAttention::backward_workspace(const AttentionBackwardArgs& args) {
  expect_supported(block_rows(args), args.visible);
  const std::vector<Section>& list = cut(args.visible);
  return Bytes(layout_of(list, block_rows(args), delta_).call) +
         call_workspace(list, block_rows(args), Phase::backward);
}

void CudnnAttention::forward(const AttentionForwardArgs& args, std::byte* workspace,
                             CudaStream stream) {
  expect_supported(block_rows(args), args.visible);
  expect_type_of(args.q, {args.k, args.v, args.out});
  const std::vector<Section>& list = cut(args.visible);
  const std::int64_t numbers = args.q.batch * args.q.heads;  // of a row
  for (const Section& s : list) {
    const Rows out = part_of(args.out, s.q);
    const Rows lse = part_of(args.lse, s.q);
    if (!s.seen) {
      kernels_.fill(out, 0, stream);
      kernels_.fill(lse, -std::numeric_limits<float>::infinity(), stream);
      continue;
    }
    sdpa_->forward(shape_of(s, block_rows(args)),
                   {.q = part_of(args.q, s.q).data,
                    .k = part_of(args.k, s.k).data,
                    .v = part_of(args.v, s.k).data,
                    .out = out.data,
                    .lse = workspace},
                   workspace + statistics(list, args.q), stream);
    kernels_.transpose(workspace, lse.data, numbers, s.q.count(), stream);
  }
}

void CudnnAttention::backward(const AttentionBackwardArgs& args, std::byte* workspace,
                              CudaStream stream) {
  expect_supported(block_rows(args), args.visible);
  expect_type_of(args.q, {args.k, args.v, args.d_out, args.d_q, args.d_k, args.d_v});
  const std::vector<Section>& list = cut(args.visible);
  const Layout layout = layout_of(list, block_rows(args), delta_);
  const std::int64_t numbers = args.q.batch * args.q.heads;  // of a row
  Rows out = args.d_out;
  out.data = workspace;
  if (delta_ == SdpaDelta::from_out) {
    kernels_.project(args.d_out, args.delta, out, stream);
  }

  Written written;
  const auto clear = [&](const Interval& keys) {
    for (const Interval& gap : written.missing(keys)) {
      kernels_.fill(part_of(args.d_k, gap), 0, stream);
      kernels_.fill(part_of(args.d_v, gap), 0, stream);
    }
  };
  for (const Section& s : list) {
    const Rows d_q = part_of(args.d_q, s.q);
    if (!s.seen) {
      kernels_.fill(d_q, 0, stream);
      continue;
    }
    const Rows sum_k = part_of(args.d_k, s.k);
    const Rows sum_v = part_of(args.d_v, s.k);
    const bool shared = written.touches(s.k);
    Rows d_k = sum_k;
    Rows d_v = sum_v;
    if (shared) {
      d_k.data = workspace + layout.d_k;
      d_v.data = workspace + layout.d_v;
    }
    kernels_.transpose(part_of(args.lse, s.q).data, workspace + layout.lse, s.q.count(), numbers,
                       stream);
    if (delta_ == SdpaDelta::given) {
      kernels_.transpose(part_of(args.delta, s.q).data, workspace + layout.delta, s.q.count(),
                         numbers, stream);
    }
    sdpa_->backward(shape_of(s, block_rows(args)),
                    {.q = part_of(args.q, s.q).data,
                     .k = part_of(args.k, s.k).data,
                     .v = part_of(args.v, s.k).data,
                     .d_out = part_of(args.d_out, s.q).data,
                     .lse = workspace + layout.lse,
                     .out = delta_ == SdpaDelta::from_out ? part_of(out, s.q).data : nullptr,
                     .delta = delta_ == SdpaDelta::given ? workspace + layout.delta : nullptr,
                     .d_q = d_q.data,
                     .d_k = d_k.data,
                     .d_v = d_v.data},
                    workspace + layout.call, stream);
    if (shared) {
      clear(s.k);
      kernels_.accumulate(sum_k, d_k, stream);
      kernels_.accumulate(sum_v, d_v, stream);
    }
    written.add(s.k);
  }
  clear({.begin = 0, .end = args.d_k.count});
}

}  // namespace spp::runtime
