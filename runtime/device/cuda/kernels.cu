#include "runtime/device/cuda/elementwise_ops.cuh"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/kernels/row_checks.hpp"

#if !defined(__CUDACC__)
#include <atomic>
#include <chrono>
#include <thread>
#endif

namespace spp::runtime::cuda {
namespace {

void convert(const Numbers& from, const Numbers& to, std::int64_t count, bool add,
             cudaStream_t stream) {
  if (!add && from.dtype == to.dtype) {
    copy(to.data, from.data, static_cast<std::size_t>(count * size_of(to.dtype)), stream);
    return;
  }
  with_elements(vectors_fit(from, count) && vectors_fit(to, count), [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, count / size, ConvertOp<size>{.from = from, .to = to, .add = add});
  });
}

SPP_HOST_DEVICE std::uint64_t clock_ns() {
#if defined(__CUDA_ARCH__)
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#elif defined(__CUDACC__)
  return 0;  // never called: only kernels ask
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
#endif
}

/// What a thread does between two looks at what it waits for.
SPP_HOST_DEVICE void pause() {
#if defined(__CUDA_ARCH__)
  __nanosleep(100);
#elif !defined(__CUDACC__)
  std::this_thread::sleep_for(std::chrono::microseconds(20));
#endif
}

/// Of memory that another processor writes.
SPP_HOST_DEVICE std::uint32_t look_at(const std::uint32_t* flag) {
#if defined(__CUDACC__)
  return *static_cast<const volatile std::uint32_t*>(flag);
#else
  return std::atomic_ref(*const_cast<std::uint32_t*>(flag)).load();
#endif
}

/// Kernels that wait have one warp and next to no registers: attention leaves room for that, and
/// loses no SM to it.
constexpr int waiting_threads = 32;

struct StampOp {
  static constexpr const char* name = "stamp kernel";
  std::uint64_t* at = nullptr;
  SPP_HOST_DEVICE void operator()(std::int64_t) const { *at = clock_ns(); }
};

struct HoldOp {
  static constexpr const char* name = "hold kernel";
  static constexpr int threads = waiting_threads;
  const std::uint64_t* at = nullptr;
  std::uint64_t nanoseconds = 0;
  SPP_HOST_DEVICE void operator()(std::int64_t) const {
    const std::uint64_t since = *at;
    while (clock_ns() - since < nanoseconds) {
      pause();
    }
  }
};

struct GateOp {
  static constexpr const char* name = "gate kernel";
  static constexpr int threads = waiting_threads;
  const std::uint32_t* flag = nullptr;
  std::uint32_t value = 0;
  std::uint64_t patience_ns = 0;
  SPP_HOST_DEVICE void operator()(std::int64_t) const {
    const std::uint64_t since = clock_ns();
    // Rounds: a later one was opened after this one.
    const auto behind = [this] { return static_cast<std::int32_t>(look_at(flag) - value) < 0; };
    while (behind() && clock_ns() - since < patience_ns) {
      pause();
    }
  }
};

template <int N>
void load_kernels_of() {
  load_each<ConvertOp<N>>();
  load_each<FillOp<N>>();
  load_each<MoveOp<N>>();
  load_each<SumOp<N>>();
  load_rows<RowDotOp<N>>();
  load_rows<ProjectOp<N>>();
  load_rows<MergeOp<N>>();
  load_rows<RescaleOp<N>>();
  load_rows<SinkOp<N>>();
}

}  // namespace

void row_dot(const Rows& out, const Rows& d_out, const Rows& delta, cudaStream_t stream) {
  ensure_alike(out, d_out);
  ensure_scalars(out, delta);
  const bool vectors =
      vectors_fit(numbers_of(out), out.width) && vectors_fit(numbers_of(d_out), out.width);
  with_elements(vectors, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, delta.elements(), out.width / size,
             RowDotOp<size>{.out = numbers_of(out),
                            .d_out = numbers_of(d_out),
                            .delta = numbers_of(delta),
                            .width = out.width});
  });
}

void merge(const Rows& out, const Rows& lse, const Rows& part_out, const Rows& part_lse,
           bool initial, cudaStream_t stream) {
  ensure_alike(out, part_out);
  ensure_scalars(out, lse);
  ensure_scalars(part_out, part_lse);
  if (initial) {
    convert(numbers_of(part_out), numbers_of(out), out.elements(), false, stream);
    convert(numbers_of(part_lse), numbers_of(lse), lse.elements(), false, stream);
    return;
  }
  const bool vectors =
      vectors_fit(numbers_of(out), out.width) && vectors_fit(numbers_of(part_out), out.width);
  with_elements(vectors, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, lse.elements(), out.width / size,
             MergeOp<size>{.out = numbers_of(out),
                           .lse = numbers_of(lse),
                           .part = numbers_of(part_out),
                           .part_lse = numbers_of(part_lse),
                           .width = out.width});
  });
}

void sink(const SinkArgs& args, cudaStream_t stream) {
  ensure_sink(args);
  const Rows& out = args.out;
  const std::int64_t of_row = args.lse.batch * args.lse.heads;
  with_elements(vectors_fit(numbers_of(out), out.width), [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, args.lse.elements(), out.width / size,
             SinkOp<size>{.out = numbers_of(out),
                          .lse = numbers_of(args.lse),
                          .sinks = numbers_of(args.sinks),
                          .width = out.width,
                          .begin_row = args.first * of_row,
                          .end_row = (args.first + out.count) * of_row,
                          .heads = args.lse.heads});
  });
}

void sink_backward(const SinkBackwardArgs& args, cudaStream_t stream) {
  ensure_sink_backward(args);
  for_rows(stream, args.lse.heads, matrix_rows(args.lse),
           SinkBackwardOp{.lse = numbers_of(args.lse),
                          .delta = numbers_of(args.delta),
                          .sinks = numbers_of(args.sinks),
                          .d_sinks = numbers_of(args.d_sinks),
                          .heads = args.lse.heads});
}

void rescale(const Rows& out, const Rows& lse, const Rows& gathered, const Rows& scaled,
             const Rows& global_lse, cudaStream_t stream) {
  ensure_alike(out, scaled);
  ensure_scalars(out, lse);
  ensure_scalars(scaled, global_lse);
  const bool vectors =
      vectors_fit(numbers_of(out), out.width) && vectors_fit(numbers_of(scaled), out.width);
  with_elements(vectors, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, lse.elements(), out.width / size,
             RescaleOp<size>{.out = numbers_of(out),
                             .lse = numbers_of(lse),
                             .gathered = numbers_of(gathered),
                             .scaled = numbers_of(scaled),
                             .global_lse = numbers_of(global_lse),
                             .width = out.width,
                             .rows = lse.elements(),
                             .members = members_of(gathered, lse)});
  });
}

void accumulate(const Rows& sum, const Rows& part, bool initial, cudaStream_t stream) {
  ensure_alike(sum, part);
  convert(numbers_of(part), numbers_of(sum), sum.elements(), !initial, stream);
}

void project(const Rows& d_out, const Rows& delta, const Rows& out, cudaStream_t stream) {
  ensure_alike(d_out, out);
  ensure_scalars(out, delta);
  const bool vectors =
      vectors_fit(numbers_of(out), out.width) && vectors_fit(numbers_of(d_out), out.width);
  with_elements(vectors, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, delta.elements(), out.width / size,
             ProjectOp<size>{.d_out = numbers_of(d_out),
                             .delta = numbers_of(delta),
                             .out = numbers_of(out),
                             .width = out.width});
  });
}

void fill(const Rows& rows, float value, cudaStream_t stream) {
  const std::int64_t count = rows.elements();
  with_elements(vectors_fit(numbers_of(rows), count), [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, count / size, FillOp<size>{.to = numbers_of(rows), .value = value});
  });
}

void move(const Box& from, const Box& to, std::int64_t rows, std::int64_t batch, int heads,
          int width, bool add, cudaStream_t stream) {
  ensure_box_fits(heads, from, to);
  const Numbers source{.data = from.data, .dtype = from.dtype};
  const Numbers target{.data = to.data, .dtype = to.dtype};
  const std::int64_t run = std::int64_t{heads} * width;
  const BoxIndex from_box{.row_elements = std::int64_t{from.row_heads} * width,
                          .row_step = from.row_step};
  const BoxIndex to_box{.row_elements = std::int64_t{to.row_heads} * width,
                        .row_step = to.row_step};
  const bool whole =
      heads == from.row_heads && heads == to.row_heads && from.row_step == 1 && to.row_step == 1;
  if (whole) {
    convert(source, target, rows * batch * run, add, stream);
    return;
  }
  const bool vectors = vectors_fit(source, run) && vectors_fit(target, run) &&
                       from_box.row_elements % vector_elements == 0 &&
                       to_box.row_elements % vector_elements == 0;
  with_elements(vectors, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, rows * batch * (run / size),
             MoveOp<size>{.from = source,
                          .to = target,
                          .from_box = from_box,
                          .to_box = to_box,
                          .batch = batch,
                          .run = run,
                          .add = add});
  });
}

void transpose(const std::byte* from, std::byte* to, std::int64_t rows, std::int64_t columns,
               cudaStream_t stream) {
  for_each(stream, rows * columns,
           TransposeOp{.from = reinterpret_cast<const float*>(from),
                       .to = reinterpret_cast<float*>(to),
                       .rows = rows,
                       .columns = columns});
}

void sum(const SumArgs& args, cudaStream_t stream) {
  const Numbers to{.data = args.to, .dtype = args.to_type};
  bool vectors = vectors_fit(to, args.count);
  for (const std::byte* part : args.parts) {
    vectors = vectors && reinterpret_cast<std::uintptr_t>(part) % vector_bytes == 0;
  }
  with_elements(vectors, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for (std::size_t first = 0; first < args.parts.size(); first += SumOp<size>::most_parts) {
      SumOp<size> op{.from = args.from, .to = to, .add = first > 0};
      const auto some = args.parts.subspan(
          first, std::min<std::size_t>(args.parts.size() - first, SumOp<size>::most_parts));
      for (const std::byte* part : some) {
        op.parts[op.count++] = part;
      }
      for_each(stream, args.count / size, op);
    }
  });
}

void hold_for(const std::uint32_t* flag, std::uint32_t value, Seconds patience,
              cudaStream_t stream) {
  for_each(stream, 1,
           GateOp{.flag = flag,
                  .value = value,
                  .patience_ns = static_cast<std::uint64_t>(patience.count() * 1e9)});
}

void load_kernels() {
  load_kernels_of<vector_elements>();
  load_kernels_of<1>();
  load_rows<SinkBackwardOp>();
  load_each<TransposeOp>();
  load_each<StampOp>();
  load_each<HoldOp>();
  load_each<GateOp>();
}

void stamp(std::uint64_t* at, cudaStream_t stream) { for_each(stream, 1, StampOp{.at = at}); }

void hold_until(const std::uint64_t* at, Seconds after, cudaStream_t stream) {
  if (after.count() > 0) {
    for_each(stream, 1,
             HoldOp{.at = at, .nanoseconds = static_cast<std::uint64_t>(after.count() * 1e9)});
  }
}

}  // namespace spp::runtime::cuda
