// GEMMs in blocks over oneDNN's matrix products, so that whoever computes polls about every
// millisecond. For onednn.cpp only.
//
// Products are in T (fp32 or bf16) with fp32 results. For each strip of columns of c, op(b) is
// packed once, in blocks of k, into the order in which oneDNN reads it fastest, transposed or not;
// then each panel of rows adds up its products, is rounded once and stored. A transposed left side,
// which is slow in a product, is transposed here, a block at a time. The workspace: packed b of a
// strip, a block of a, and the panel in fp32.
#pragma once

#if defined(SPP_ONEDNN)

#include "runtime/kernels/head_rows.hpp"
#include "runtime/kernels/layer.hpp"
#include "runtime/kernels/onednn_matmul.hpp"
#include "runtime/kernels/pacer.hpp"

#include <algorithm>
#include <vector>

namespace spp::runtime {

/// A stored matrix, or its transposed: heads of one element are its columns.
struct GemmOperand {
  Rows rows;
  bool transposed = false;

  GemmOperand(const Rows& stored, bool flipped)
      : rows{.data = stored.data,
             .dtype = stored.dtype,
             .count = matrix_rows(stored),
             .heads = static_cast<int>(matrix_columns(stored))},
        transposed(flipped) {}
};

template <class T>
class BlockedGemm {
 public:
  void run(const GemmArgs& args, const Poll& poll) {
    const GemmShape shape = gemm_shape(args);
    const GemmOperand a(args.a, args.kind == GemmKind::weight_gradient);
    const GemmOperand b(args.b, args.kind == GemmKind::input_gradient);
    const GemmOperand c(args.c, false);
    Pacer pace(poll);
    in_blocks(shape.n, most.n, [&](const Interval& columns) {
      std::size_t packed = 0;
      in_blocks(shape.k, most.k, [&](const Interval& depth) {
        packs_.resize(std::max(packs_.size(), packed + 1));
        matmuls_.pack(block(b, depth, columns), packs_[packed++]);
        pace();
      });
      in_blocks(shape.m, most.m, [&](const Interval& rows) {
        sum_.assign(static_cast<std::size_t>(rows.count() * columns.count()), 0);
        std::size_t next = 0;
        in_blocks(shape.k, most.k, [&](const Interval& depth) {
          multiply(left(a, rows, depth), packs_[next++], columns.count(), depth.begin > 0);
          pace();
        });
        store(c.rows, rows, columns, args.add);
      });
    });
  }

 private:
  /// A product of so much takes about a millisecond.
  static constexpr GemmShape most{.m = 128, .n = 512, .k = 512};

  template <class Body>
  static void in_blocks(std::int64_t count, std::int64_t size, Body&& body) {
    for (std::int64_t from = 0; from < count; from += size) {
      body(Interval{.begin = from, .end = std::min(from + size, count)});
    }
  }

  /// Part of a stored matrix as one of T: where it is, or converted into `room_`.
  Strided stored(const Rows& matrix, const Interval& rows, const Interval& columns) {
    const HeadGroup group = group_of(columns);
    if (matrix.dtype == stored_as<T>) {
      return {.data = matrix.data + run_of(matrix, rows.begin, group) * size_of(matrix.dtype),
              .rows = rows.count(),
              .columns = columns.count(),
              .row_stride = matrix.heads};
    }
    return gathered(matrix, rows, columns);
  }
  Strided gathered(const Rows& matrix, const Interval& rows, const Interval& columns) {
    room_.resize(rows.count() * columns.count());
    gather(matrix, group_of(columns), rows, room_.data());
    return {.data = reinterpret_cast<const std::byte*>(room_.data()),
            .rows = rows.count(),
            .columns = columns.count(),
            .row_stride = columns.count()};
  }
  static HeadGroup group_of(const Interval& columns) {
    return {.first = static_cast<int>(columns.begin), .count = static_cast<int>(columns.count())};
  }

  /// Rows and columns of op(b).
  Strided block(const GemmOperand& b, const Interval& rows, const Interval& columns) {
    return b.transposed ? stored(b.rows, columns, rows).transposed()
                        : stored(b.rows, rows, columns);
  }

  /// Rows and columns of op(a), dense: with a packed right side, oneDNN 2.6 multiplies others a
  /// thousand times as slowly.
  Strided left(const GemmOperand& a, const Interval& rows, const Interval& columns) {
    if (!a.transposed) {
      const bool dense = columns.count() == a.rows.heads;
      return dense ? stored(a.rows, rows, columns) : gathered(a.rows, rows, columns);
    }
    gathered(a.rows, columns, rows);
    flipped_.resize(rows.count() * columns.count());
    transpose(room_.data(), columns.count(), rows.count(), flipped_.data());
    return {.data = reinterpret_cast<const std::byte*>(flipped_.data()),
            .rows = rows.count(),
            .columns = columns.count(),
            .row_stride = columns.count()};
  }

  void multiply(const Strided& a, const dnnl::memory& b, std::int64_t columns, bool add) {
    matmuls_.run({.m = a.rows, .n = columns, .k = a.columns, .packed = true, .add = add}, a.data, b,
                 sum_.data());
  }

  void store(const Rows& c, const Interval& rows, const Interval& columns, bool add) {
    if (add) {
      before_.resize(sum_.size());
      gather(c, group_of(columns), rows, before_.data());
      std::ranges::transform(sum_, before_, sum_.begin(), std::plus<>());
    }
    scatter(sum_.data(), c, group_of(columns), rows);
  }

  Matmuls matmuls_{std::is_same_v<T, float> ? dnnl::memory::data_type::f32
                                            : dnnl::memory::data_type::bf16};
  std::vector<dnnl::memory> packs_;  // of a strip, by block of k
  Buffer<T> room_, flipped_;
  std::vector<float> sum_, before_;
};

}  // namespace spp::runtime

#endif
