// Matrix products of small tiles by oneDNN, on the calling thread: primitives are made once per
// shape and kept. For onednn.cpp only.
//
// oneDNN is built with OpenMP as a rule and would spread every product over all cores, but the
// ranks of this runtime are threads that share them. OneThread tells OpenMP so; the setting belongs
// to the calling thread (OpenMP 5.2, 2.4) and is given back. With one thread oneDNN opens no
// parallel region at all, neither when it makes nor when it runs a primitive.
#pragma once

#if defined(SPP_ONEDNN)

#include "base/error.hpp"
#include "runtime/kernels/convert.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#if defined(_OPENMP) && __has_include(<omp.h>)
#include <omp.h>
#elif defined(_OPENMP) || defined(SPP_GOMP)  // a compiler without <omp.h>
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}
#endif

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <new>
#include <unordered_map>

namespace spp::runtime {

#if defined(_OPENMP) || defined(SPP_GOMP)
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = omp_get_max_threads();
};
#else
struct OneThread {  // oneDNN with another threading runtime
  OneThread() {}
};
#endif

/// Memory on a cache line, not initialised.
template <class T>
class Buffer {
 public:
  void resize(std::int64_t count) {
    if (count > count_) {
      data_.reset(static_cast<T*>(
          ::operator new(static_cast<std::size_t>(count) * sizeof(T), std::align_val_t{64})));
      count_ = count;
    }
  }
  [[nodiscard]] T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t count_ = 0;
};

/// c[m, n] = a[m, k] b[k, n]; with `add`, c += … . All row-major; b dense or packed.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool packed = false, add = false;
  std::int64_t a_stride = 0, c_stride = 0;  // of rows, in elements; 0: dense
  friend auto operator<=>(const Product&, const Product&) = default;
};

/// A matrix [rows, columns] somewhere, strides in elements.
struct Strided {
  const std::byte* data = nullptr;
  std::int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 1;

  [[nodiscard]] Strided transposed() const {
    return {.data = data,
            .rows = columns,
            .columns = rows,
            .row_stride = column_stride,
            .column_stride = row_stride};
  }
};

/// Products of matrices of `type` with fp32 result.
class Matmuls {
 public:
  explicit Matmuls(dnnl::memory::data_type type) : type_(type) {}

  void run(const Product& shape, const void* a, const void* b, float* c) {
    Primitive& p = primitive(shape);
    p.memories[DNNL_ARG_SRC].set_data_handle(const_cast<void*>(a));
    p.memories[DNNL_ARG_WEIGHTS].set_data_handle(const_cast<void*>(b));
    p.memories[DNNL_ARG_DST].set_data_handle(c);
    p.matmul.execute(stream_, p.memories);
  }
  void run(const Product& shape, const void* a, const dnnl::memory& packed_b, float* c) {
    Primitive& p = primitive(shape);
    p.memories[DNNL_ARG_SRC].set_data_handle(const_cast<void*>(a));
    p.memories[DNNL_ARG_WEIGHTS] = packed_b;
    p.memories[DNNL_ARG_DST].set_data_handle(c);
    p.matmul.execute(stream_, p.memories);
  }

  /// Puts `from` into the order that products like best, for use as b. `to` is reused if it fits.
  void pack(const Strided& from, dnnl::memory& to) {
    const dnnl::memory::desc like = packed({from.rows, from.columns});
    if (!to.get(true) || to.get_desc() != like) {
      to = dnnl::memory(like, engine_);
    }
    dnnl::memory source({{from.rows, from.columns}, type_, {from.row_stride, from.column_stride}},
                        engine_, const_cast<std::byte*>(from.data));
    const std::array key{from.rows, from.columns, from.row_stride, from.column_stride};
    auto [at, is_new] = reorders_.try_emplace(key);
    if (is_new) {
      at->second = dnnl::reorder(source, to);
    }
    at->second.execute(stream_, source, to);
  }

  /// Whether oneDNN has such products on this CPU.
  static bool can(dnnl::memory::data_type type) {
    try {
      Matmuls(type).primitive({.m = 64, .n = 64, .k = 64});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }

 private:
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;
  struct Primitive {
    dnnl::matmul matmul;
    std::unordered_map<int, dnnl::memory> memories;
  };

  dnnl::matmul::primitive_desc describe(const Product& p, const Desc& b, bool add) const {
    const auto rows_of = [](std::int64_t rows, std::int64_t columns, auto type,
                            std::int64_t stride) {
      return Desc({rows, columns}, type, {stride > 0 ? stride : columns, 1});
    };
    const Desc a = rows_of(p.m, p.k, type_, p.a_stride);
    const Desc c = rows_of(p.m, p.n, dnnl::memory::data_type::f32, p.c_stride);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (add) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attr.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    return {engine_, a, b, c, attr};
#else
    return {dnnl::matmul::desc(a, b, c), attr, engine_};
#endif
  }

  /// The order oneDNN chooses for b[k, n]. Asked once, with many rows, so that it is the same for
  /// all m.
  const Desc& packed(std::array<std::int64_t, 2> shape) {
    auto [at, is_new] = packed_.try_emplace(shape);
    if (is_new) {
      const Desc any({shape[0], shape[1]}, type_, Tag::any);
      const Product p{.m = 256, .n = shape[1], .k = shape[0]};
      at->second = describe(p, any, false).weights_desc();
    }
    return at->second;
  }

  Primitive& primitive(const Product& p) {
    auto [at, is_new] = primitives_.try_emplace(p);
    if (is_new) {
      const Desc b = p.packed ? packed({p.k, p.n}) : Desc({p.k, p.n}, type_, Tag::ab);
      const auto pd = describe(p, b, p.add);
      at->second = {.matmul = dnnl::matmul(pd),
                    .memories = {{DNNL_ARG_SRC, {pd.src_desc(), engine_, DNNL_MEMORY_NONE}},
                                 {DNNL_ARG_WEIGHTS, {pd.weights_desc(), engine_, DNNL_MEMORY_NONE}},
                                 {DNNL_ARG_DST, {pd.dst_desc(), engine_, DNNL_MEMORY_NONE}},
                                 {DNNL_ARG_SCRATCHPAD, {pd.scratchpad_desc(), engine_}}}};
    }
    return at->second;
  }

  dnnl::memory::data_type type_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Product, Primitive> primitives_;
  std::map<std::array<std::int64_t, 2>, Desc> packed_;
  std::map<std::array<std::int64_t, 4>, dnnl::reorder> reorders_;
};

}  // namespace spp::runtime

#endif
