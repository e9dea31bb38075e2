#include "runtime/kernels/head_moves.hpp"

#include "base/error.hpp"
#include "runtime/kernels/row_checks.hpp"

#include <utility>

namespace spp::runtime {
namespace {

void ensure_heads(const SplitHeadsArgs& args) {
  const auto& [qkv, q, k, v, positions, theta] = args;
  ensure_alike(k, v);
  ensure(q.count == k.count && q.batch == k.batch && q.width == k.width && qkv.count == q.count &&
             qkv.batch == q.batch &&
             matrix_columns(qkv) == matrix_columns(q) + matrix_columns(k) + matrix_columns(v),
         "a projection of other heads");
  ensure(positions.count() == q.count, "positions of other rows");
  ensure(theta == 0 || q.width % 2 == 0, "a rotation of an odd number of elements");
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

}  // namespace

std::array<HeadMove, 3> moves_to_split(const SplitHeadsArgs& args) {
  ensure_heads(args);
  const auto& [qkv, q, k, v, positions, theta] = args;
  const int sign = theta > 0 ? 1 : 0;
  return {
      HeadMove{.part = q, .from = packed_box(qkv, q, 0), .to = box_of(q), .sign = sign},
      HeadMove{.part = k, .from = packed_box(qkv, k, q.heads), .to = box_of(k), .sign = sign},
      HeadMove{.part = v, .from = packed_box(qkv, v, q.heads + k.heads), .to = box_of(v)},
  };
}

std::array<HeadMove, 3> moves_to_join(const SplitHeadsArgs& args) {
  std::array<HeadMove, 3> moves = moves_to_split(args);
  for (HeadMove& heads : moves) {
    std::swap(heads.from, heads.to);
    heads.sign = -heads.sign;
  }
  return moves;
}

}  // namespace spp::runtime
