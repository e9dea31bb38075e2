// Runs of elements go through floats on the stack, a piece at a time that stays in the first cache:
// one loop for each operation, whatever the types.
#include "runtime/kernels/elementwise.hpp"

#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/every_cpu.hpp"
#include "runtime/kernels/row_checks.hpp"
#include "runtime/kernels/softmax.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace spp::runtime {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr std::int64_t piece = 1024;  // elements
using Piece = std::array<float, piece>;

SPP_EVERY_CPU float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// y <- a y + b x.
SPP_EVERY_CPU void combine(float a, float* y, float b, const float* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = a * y[i] + b * x[i];
  }
}

/// A run of elements in memory.
struct Run {
  std::byte* data;
  DType dtype;

  [[nodiscard]] Run from(std::int64_t i) const { return {data + i * size_of(dtype), dtype}; }
  [[nodiscard]] std::span<float> read(Piece& floats, std::int64_t n) const {
    const std::span<float> some(floats.data(), static_cast<std::size_t>(n));
    to_floats(dtype, data, some);
    return some;
  }
  void write(std::span<const float> floats) const { from_floats(dtype, floats, data); }
};

Run run_of(const Rows& rows) { return {rows.data, rows.dtype}; }

/// body(offset, count) for pieces of [0, count).
template <class Body>
void in_pieces(std::int64_t count, Body&& body) {
  for (std::int64_t at = 0; at < count; at += piece) {
    body(at, std::min(piece, count - at));
  }
}

void copy_run(const Run& from, const Run& to, std::int64_t count) {
  if (from.dtype == to.dtype) {
    // Not memcpy: of nothing, it must not be given a null pointer.
    std::copy_n(from.data, count * size_of(to.dtype), to.data);
    return;
  }
  Piece floats;
  in_pieces(count, [&](std::int64_t at, std::int64_t n) {
    to.from(at).write(from.from(at).read(floats, n));
  });
}

/// to <- a to + b from.
void combine_run(float a, const Run& to, float b, const Run& from, std::int64_t count) {
  Piece sum;
  Piece part;
  in_pieces(count, [&](std::int64_t at, std::int64_t n) {
    const std::span<float> y = to.from(at).read(sum, n);
    combine(a, y.data(), b, from.from(at).read(part, n).data(), n);
    to.from(at).write(y);
  });
}

/// to <- b from.
void scale_run(float b, const Run& from, const Run& to, std::int64_t count) {
  Piece floats;
  in_pieces(count, [&](std::int64_t at, std::int64_t n) {
    const std::span<float> x = from.from(at).read(floats, n);
    scale_row(x.data(), n, b);
    to.from(at).write(x);
  });
}

void fill_run(const Run& to, float value, std::int64_t count) {
  Piece floats;
  std::ranges::fill(floats, value);
  in_pieces(count, [&](std::int64_t at, std::int64_t n) {
    to.from(at).write({floats.data(), static_cast<std::size_t>(n)});
  });
}

}  // namespace

void row_dot(const Rows& out, const Rows& d_out, const Rows& delta) {
  ensure_alike(out, d_out);
  ensure_scalars(out, delta);
  Piece a;
  Piece b;
  for (std::int64_t row = 0; row < delta.elements(); ++row) {
    float sum = 0;
    in_pieces(out.width, [&](std::int64_t at, std::int64_t n) {
      const std::int64_t i = row * out.width + at;
      sum += dot(run_of(out).from(i).read(a, n).data(), run_of(d_out).from(i).read(b, n).data(), n);
    });
    store(delta.dtype, delta.data, row, sum);
  }
}

void merge(const Rows& out, const Rows& lse, const Rows& part_out, const Rows& part_lse,
           bool initial) {
  ensure_alike(out, part_out);
  ensure_scalars(out, lse);
  ensure_scalars(part_out, part_lse);
  if (initial) {
    copy_run(run_of(part_out), run_of(out), out.elements());
    copy_run(run_of(part_lse), run_of(lse), lse.elements());
    return;
  }
  for (std::int64_t row = 0; row < lse.elements(); ++row) {
    const float ours = load(lse.dtype, lse.data, row);
    const float theirs = load(part_lse.dtype, part_lse.data, row);
    if (theirs == minus_infinity) {
      continue;
    }
    const Run to = run_of(out).from(row * out.width);
    const Run from = run_of(part_out).from(row * out.width);
    if (ours == minus_infinity) {
      copy_run(from, to, out.width);
      store(lse.dtype, lse.data, row, theirs);
      continue;
    }
    // With e = e^(smaller - larger): lse' = larger + log(1 + e), weights 1 / (1 + e), e / (1 + e).
    const float e = std::exp(-std::abs(ours - theirs));
    const float larger = 1 / (1 + e);
    const float smaller = e * larger;
    const bool ours_larger = ours >= theirs;
    combine_run(ours_larger ? larger : smaller, to, ours_larger ? smaller : larger, from,
                out.width);
    store(lse.dtype, lse.data, row, std::max(ours, theirs) + std::log1p(e));
  }
}

void sink(const SinkArgs& args) {
  ensure_sink(args);
  const Rows& lse = args.lse;
  const std::int64_t of_row = lse.batch * lse.heads;
  const std::int64_t begin = args.first * of_row;
  const std::int64_t end = begin + args.out.count * of_row;
  for (std::int64_t row = 0; row < lse.elements(); ++row) {
    const float keys = load(lse.dtype, lse.data, row);
    const float own = load(args.sinks.dtype, args.sinks.data, row % lse.heads);
    const float larger = std::max(keys, own);
    const float both = larger + std::log1p(std::exp(std::min(keys, own) - larger));
    if (row >= begin && row < end) {
      const Run to = run_of(args.out).from((row - begin) * args.out.width);
      scale_run(std::exp(keys - both), to, to, args.out.width);
    }
    store(lse.dtype, lse.data, row, both);
  }
}

void sink_backward(const SinkBackwardArgs& args) {
  ensure_sink_backward(args);
  const Rows& lse = args.lse;
  for (std::int64_t h = 0; h < lse.heads; ++h) {
    const float own = load(args.sinks.dtype, args.sinks.data, h);
    double sum = 0;
    for (std::int64_t row = h; row < lse.elements(); row += lse.heads) {
      sum -= std::exp(own - load(lse.dtype, lse.data, row)) *
             load(args.delta.dtype, args.delta.data, row);
    }
    store(args.d_sinks.dtype, args.d_sinks.data, h, static_cast<float>(sum));
  }
}

void rescale(const Rows& out, const Rows& lse, const Rows& gathered, const Rows& scaled,
             const Rows& global_lse) {
  ensure_alike(out, scaled);
  ensure_scalars(out, lse);
  ensure_scalars(scaled, global_lse);
  const std::int64_t rows = lse.elements();
  const std::int64_t members = members_of(gathered, lse);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto of_member = [&](std::int64_t m) {
      return load(gathered.dtype, gathered.data, m * rows + row);
    };
    float largest = minus_infinity;
    for (std::int64_t m = 0; m < members; ++m) {
      largest = std::max(largest, of_member(m));
    }
    float sum = 0;
    for (std::int64_t m = 0; m < members && largest != minus_infinity; ++m) {
      sum += std::exp(of_member(m) - largest);
    }
    const float global = largest == minus_infinity ? minus_infinity : largest + std::log(sum);
    const float own = load(lse.dtype, lse.data, row);
    const Run to = run_of(scaled).from(row * out.width);
    if (own == minus_infinity) {
      fill_run(to, 0, out.width);
    } else {
      scale_run(std::exp(own - global), run_of(out).from(row * out.width), to, out.width);
    }
    store(global_lse.dtype, global_lse.data, row, global);
  }
}

void accumulate(const Rows& sum, const Rows& part, bool initial) {
  ensure_alike(sum, part);
  if (initial) {
    copy_run(run_of(part), run_of(sum), sum.elements());
  } else {
    combine_run(1, run_of(sum), 1, run_of(part), sum.elements());
  }
}

void fill(const Rows& rows, float value) { fill_run(run_of(rows), value, rows.elements()); }

void move(const Box& from, const Box& to, std::int64_t rows, std::int64_t batch, int heads,
          int width, bool add) {
  ensure_box_fits(heads, from, to);
  // Runs that lie together in both are one: all heads of a row, then rows without steps.
  std::int64_t parts = batch;  // runs of a row
  std::int64_t length = std::int64_t{heads} * width;
  if (heads == from.row_heads && heads == to.row_heads) {
    length *= parts;
    parts = 1;
    if (from.row_step == 1 && to.row_step == 1) {
      length *= rows;
      rows = std::min<std::int64_t>(rows, 1);
    }
  }
  const auto start = [&](const Box& box, std::int64_t row, std::int64_t part) {
    return Run{box.data, box.dtype}.from((row * box.row_step * batch + part) * box.row_heads *
                                         width);
  };
  for (std::int64_t run = 0; run < rows * parts; ++run) {
    const Run source = start(from, run / parts, run % parts);
    const Run target = start(to, run / parts, run % parts);
    if (add) {
      combine_run(1, target, 1, source, length);
    } else {
      copy_run(source, target, length);
    }
  }
}

}  // namespace spp::runtime
