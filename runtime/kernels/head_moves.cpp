#include "runtime/kernels/head_moves.hpp"

#include "base/error.hpp"
#include "runtime/kernels/row_checks.hpp"

#include <numeric>
#include <utility>

namespace spp::runtime {
namespace {

void ensure_heads(const SplitHeadsArgs& args) {
  const auto& [qkv, q, k, v, positions, theta, gain, epsilon] = args;
  ensure_alike(k, v);
  ensure(q.count == k.count && q.batch == k.batch && q.width == k.width && qkv.count == q.count &&
             qkv.batch == q.batch &&
             matrix_columns(qkv) == matrix_columns(q) + matrix_columns(k) + matrix_columns(v),
         "a projection of other heads");
  ensure(positions.count() == q.count, "positions of other rows");
  ensure(theta == 0 || q.width % 2 == 0, "a rotation of an odd number of elements");
  ensure(gain.count == 0 || (matrix_rows(gain) == 2 && matrix_columns(gain) == q.width),
         "heads normed by the gain of others");
}

/// Heads of packed rows like those of `part`, from head `first` on.
Box packed_box(const Rows& packed, const Rows& part, std::int64_t first) {
  // No rows may have no memory, which has no places.
  const std::int64_t offset = part.count == 0 ? 0 : first * part.width * size_of(packed.dtype);
  return {.data = packed.data + offset,
          .dtype = packed.dtype,
          .row_heads = static_cast<int>(matrix_columns(packed) / part.width)};
}
Box box_of(const Rows& part) {
  return {.data = part.data, .dtype = part.dtype, .row_heads = part.heads};
}

/// Of q (0) or k (1), out of what both have; of no rows: no rows.
Rows row_of(Rows both, std::int64_t row) {
  if (both.count > 0) {
    both.data += row * matrix_columns(both) * size_of(both.dtype);
    both.count = 1;
  }
  return both;
}

}  // namespace

std::array<HeadMove, 3> moves_to_split(const SplitHeadsArgs& args) {
  ensure_heads(args);
  const auto& [qkv, q, k, v, positions, theta, gain, epsilon] = args;
  const int sign = theta > 0 ? 1 : 0;
  return {
      HeadMove{.part = q,
               .from = packed_box(qkv, q, 0),
               .to = box_of(q),
               .sign = sign,
               .gain = row_of(gain, 0)},
      HeadMove{.part = k,
               .from = packed_box(qkv, k, q.heads),
               .to = box_of(k),
               .sign = sign,
               .gain = row_of(gain, 1)},
      HeadMove{.part = v, .from = packed_box(qkv, v, q.heads + k.heads), .to = box_of(v)},
  };
}

std::array<HeadMove, 3> moves_to_join(const JoinHeadsArgs& args) {
  const SplitHeadsArgs& split = args.heads;
  std::array<HeadMove, 3> moves = moves_to_split(split);
  for (HeadMove& heads : moves) {
    std::swap(heads.from, heads.to);
    heads.sign = -heads.sign;
  }
  if (split.gain.count > 0) {
    ensure_alike(args.x, split.qkv);
    ensure_alike(args.d_gain, split.gain);
    moves[0].normed = packed_box(args.x, split.q, 0);
    moves[1].normed = packed_box(args.x, split.k, split.q.heads);
    moves[0].d_gain = row_of(args.d_gain, 0);
    moves[1].d_gain = row_of(args.d_gain, 1);
  }
  return moves;
}

std::array<ColumnMove, 2> moves_of_columns(const Rows& row, const Rows& a, const Rows& b) {
  ensure(row.count == a.count && row.batch == a.batch && row.count == b.count &&
             row.batch == b.batch && matrix_columns(row) == matrix_columns(a) + matrix_columns(b),
         "rows that are not side by side in another");
  const auto width = static_cast<int>(std::gcd(matrix_columns(a), matrix_columns(b)));
  const auto in_heads = [width](Rows rows) {
    rows.heads = static_cast<int>(matrix_columns(rows) / width);
    rows.width = width;
    return rows;
  };
  const Rows first = in_heads(a);
  const Rows second = in_heads(b);
  return {
      ColumnMove{.part = first, .in_row = packed_box(row, first, 0), .alone = box_of(first)},
      ColumnMove{
          .part = second, .in_row = packed_box(row, second, first.heads), .alone = box_of(second)}};
}

}  // namespace spp::runtime
