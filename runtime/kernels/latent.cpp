#include "runtime/kernels/latent.hpp"

#include "base/error.hpp"
#include "runtime/kernels/rotation.hpp"
#include "runtime/kernels/row_checks.hpp"

#include <algorithm>
#include <optional>

namespace spp::runtime {
namespace {

/// f(row, turn) for each row; `turn` is at its token, or missing.
template <class F>
void for_each_turned(const LatentHeadsArgs& args, std::int64_t width, int sign, const F& f) {
  std::optional<Rotation> turn;
  if (args.theta > 0) {
    turn.emplace(static_cast<int>(width), args.theta, sign);
  }
  std::int64_t row = 0;
  for (const TokenRange& range : args.positions.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      if (turn) {
        turn->turn_to(range.at(i));
      }
      for (std::int64_t b = 0; b < args.q.batch; ++b, ++row) {
        f(row, turn);
      }
    }
  }
}

/// Where a head's numbers lie in a row.
struct LatentPlace {
  std::int64_t q = 0, content = 0, kv_value = 0, value = 0;
  LatentPlace(const LatentShape& s, std::int64_t head)
      : q(head * (s.content + s.turned)),
        content(head * (s.content + s.value)),
        kv_value(content + s.content),
        value(head * s.value) {}
};

/// A head of q or k, its two parts, and one of v.
struct LatentHead {
  std::vector<float> all, value;
  std::span<float> content, turned;
  explicit LatentHead(const LatentShape& s)
      : all(floats(s.content + s.turned)),
        value(floats(s.value)),
        content(std::span(all).first(static_cast<std::size_t>(s.content))),
        turned(std::span(all).last(static_cast<std::size_t>(s.turned))) {}
};

}  // namespace

LatentShape shape_of_latents(const LatentHeadsArgs& args) {
  const auto& [q_row, kv_row, position, q, k, v, positions, theta] = args;
  const LatentShape s{.heads = q.heads,
                      .content = q.width - matrix_columns(position),
                      .turned = matrix_columns(position),
                      .value = v.width};
  ensure_alike(q, k);
  for (const Rows* rows : {&q_row, &kv_row, &position, &v}) {
    ensure(rows->count == q.count && rows->batch == q.batch, "latents of other tokens");
  }
  ensure(v.heads == q.heads && s.content > 0 && matrix_columns(q_row) == matrix_columns(q) &&
             matrix_columns(kv_row) == s.heads * (s.content + s.value),
         "latents of other heads");
  ensure(positions.count() == q.count, "positions of other rows");
  ensure(theta == 0 || s.turned % 2 == 0, "a rotation of an odd number of elements");
  return s;
}

void latent_heads(const LatentHeadsArgs& args) {
  const LatentShape s = shape_of_latents(args);
  LatentHead head(s);
  std::vector<float> position = floats(s.turned);
  for_each_turned(args, s.turned, 1,
                  [&](std::int64_t row, const std::optional<Rotation>& rotation) {
                    read(args.position, row, 0, position);
                    if (rotation) {
                      rotation->apply(position);
                    }
                    for (std::int64_t h = 0; h < s.heads; ++h) {
                      const LatentPlace at(s, h);
                      read(args.q_row, row, at.q, head.all);
                      if (rotation) {
                        rotation->apply(head.turned);
                      }
                      write(head.all, args.q, row, at.q);
                      read(args.kv_row, row, at.content, head.content);
                      std::ranges::copy(position, head.turned.begin());
                      write(head.all, args.k, row, at.q);
                      read(args.kv_row, row, at.kv_value, head.value);
                      write(head.value, args.v, row, at.value);
                    }
                  });
}

void join_latent_heads(const LatentHeadsArgs& args) {
  const LatentShape s = shape_of_latents(args);
  LatentHead head(s);
  std::vector<float> sum = floats(s.turned);
  for_each_turned(args, s.turned, -1,
                  [&](std::int64_t row, const std::optional<Rotation>& rotation) {
                    std::ranges::fill(sum, 0.0F);
                    for (std::int64_t h = 0; h < s.heads; ++h) {
                      const LatentPlace at(s, h);
                      read(args.q, row, at.q, head.all);
                      if (rotation) {
                        rotation->apply(head.turned);
                      }
                      write(head.all, args.q_row, row, at.q);
                      read(args.k, row, at.q, head.all);
                      write(head.content, args.kv_row, row, at.content);
                      for (std::size_t i = 0; i < sum.size(); ++i) {
                        sum[i] += head.turned[i];
                      }
                      read(args.v, row, at.value, head.value);
                      write(head.value, args.kv_row, row, at.kv_value);
                    }
                    if (rotation) {  // the turn of a sum is the sum of turns
                      rotation->apply(sum);
                    }
                    write(sum, args.position, row, 0);
                  });
}

}  // namespace spp::runtime
