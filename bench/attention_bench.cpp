// Speed of the host's attention kernels beside the matrix products that they are made of.
//
//   attention_bench [--seq N] [--samples N]
//
// For each mask and type, one core: forward and backward time and FLOP rate (forward 4, backward 10
// FLOPs for each visible pair, head and dimension); the time that exp alone takes for the same
// number of scores; and the rate of oneDNN's products on the kernels' own tile
// shapes, so that
//
//   net = FLOPs / (time - exp time) / product rate
//
// is the part of the products' speed that the forward kernel keeps beside exp. Seconds are CPU
// seconds of the thread; medians of --samples (7) runs after one to warm up; "spread" is (slowest -
// fastest) / median of the forward runs. Products and kernels take turns, so that a machine that
// changes its clock does so to both.
#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/softmax.hpp"

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace spp;
using namespace spp::runtime;

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of(const std::function<void()>& act) {
  const double begin = cpu_seconds();
  act();
  return cpu_seconds() - begin;
}

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

struct Tensor {
  Rows rows;
  std::vector<std::byte> bytes;

  Tensor(DType dtype, std::int64_t count, int heads, int width, std::mt19937& random)
      : rows{.dtype = dtype, .count = count, .heads = heads, .width = width},
        bytes(static_cast<std::size_t>(rows.bytes())) {
    rows.data = bytes.data();
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < rows.elements(); ++i) {
      store(dtype, rows.data, i, uniform(random));
    }
  }
};

/// A product of one of the kernels' shapes; both operands and the result stay in the cache.
class TileProduct {
 public:
  TileProduct(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k)
      : flops_(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k)) {
    using Desc = dnnl::memory::desc;
    using Tag = dnnl::memory::format_tag;
    using Type = dnnl::memory::data_type;
    const Type type = dtype == DType::fp32 ? Type::f32 : Type::bf16;
    const Desc a({m, k}, type, Tag::ab);
    const Desc b({k, n}, type, Tag::any);
    const Desc c({m, n}, Type::f32, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc pd(engine_, a, b, c);
#else
    const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(a, b, c), engine_);
#endif
    product_ = dnnl::matmul(pd);
    for (const auto& [name, desc] : {std::pair(DNNL_ARG_SRC, pd.src_desc()),
                                     {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                     {DNNL_ARG_DST, pd.dst_desc()}}) {
      memories_[name] = dnnl::memory(desc, engine_);
      std::memset(memories_[name].get_data_handle(), 0, desc.get_size());
    }
  }
  /// FLOP/s of about a millisecond of products.
  double rate() {
    const int times = static_cast<int>(2e8 / flops_) + 1;
    return flops_ * times / seconds_of([&] {
             for (int i = 0; i < times; ++i) {
               product_.execute(stream_, memories_);
             }
           });
  }

 private:
  double flops_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul product_;
  std::unordered_map<int, dnnl::memory> memories_;
};

struct Options {
  std::int64_t seq = 4096;
  std::int64_t samples = 7;
};

constexpr int heads = 8;
constexpr int dim = 128;

struct Result {
  double forward, backward, exp, product;  // s, s, s, FLOP/s
  double spread;
};

/// exp of `count` scores, row by row, as the forward kernel does it.
double exp_seconds(double count) {
  constexpr std::int64_t row = 256;
  std::vector<float> scores(row * 128, -0.5F);
  const auto tiles = static_cast<std::int64_t>(count / static_cast<double>(scores.size()));
  const std::int64_t some = std::min<std::int64_t>(tiles, 200);
  volatile float sink = 0;
  const double seconds = seconds_of([&] {
    for (std::int64_t t = 0; t < some; ++t) {
      for (std::size_t r = 0; r < 128; ++r) {
        float* s = scores.data() + r * row;
        sink = exp_row(s, s, row, -0.5F, 1.0F);
      }
    }
  });
  return seconds * static_cast<double>(tiles) / static_cast<double>(some);
}

Result measure(const Options& options, DType dtype, MaskKind mask) {
  std::mt19937 random(1);
  const std::int64_t n = options.seq;
  Tensor q(dtype, n, heads, dim, random), k = q, v = q, out = q, d_q = q, d_k = q, d_v = q;
  for (Tensor* t : {&k, &v, &out, &d_q, &d_k, &d_v}) {
    t->rows.data = t->bytes.data();
  }
  Tensor lse(DType::fp32, n, heads, 1, random), delta = lse;
  delta.rows.data = delta.bytes.data();
  const TokenSet all({.begin = 0, .count = n});
  const Visibility visible{.q_tokens = all, .k_tokens = all, .mask = {.kind = mask}, .seq = n};
  const double pairs = heads * static_cast<double>(allowed_pairs(all, all, visible.mask));
  const auto kernels = attention_kernels::by_name("onednn", "bench").make();
  TileProduct scores(dtype, 256, 256, dim);
  TileProduct values(dtype, 256, dim, 256);
  std::vector<double> forward, backward, exp, product;
  for (std::int64_t s = 0; s <= options.samples; ++s) {
    const double f = seconds_of(
        [&] { kernels->forward({q.rows, k.rows, v.rows, out.rows, lse.rows, visible}, {}); });
    const double rate = 2 / (1 / scores.rate() + 1 / values.rate());
    const double e = exp_seconds(pairs);
    const double b = seconds_of([&] {
      kernels->backward({q.rows, k.rows, v.rows, out.rows, lse.rows, delta.rows, d_q.rows, d_k.rows,
                         d_v.rows, visible},
                        {});
    });
    if (s > 0) {  // the first warms up
      forward.push_back(f);
      backward.push_back(b);
      exp.push_back(e);
      product.push_back(rate);
    }
  }
  const auto [least, most] = std::ranges::minmax(forward);
  return {median(forward), median(backward), median(exp), median(product),
          (most - least) / median(forward)};
}

void print(const Options& options) {
  fmt::print("seq {}, {} heads of {}, batch 1, one core, medians of {} runs\n\n", options.seq,
             heads, dim, options.samples);
  fmt::print(
      "| mask | type | fwd ms | GFLOP/s | bwd ms | GFLOP/s | exp ms | products GFLOP/s | net | "
      "bwd/fwd rate | fp32/bf16 fwd time | spread "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const MaskKind mask : {MaskKind::full, MaskKind::causal}) {
    double fp32 = 0;
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      const Result r = measure(options, dtype, mask);
      const TokenSet all({.begin = 0, .count = options.seq});
      const double unit =
          static_cast<double>(allowed_pairs(all, all, {.kind = mask})) * heads * dim;
      fp32 = dtype == DType::fp32 ? r.forward : fp32;
      fmt::print(
          "| {} | {} | {:.1f} | {:.0f} | {:.1f} | {:.0f} | {:.1f} | {:.0f} | {:.2f} | {:.2f} | "
          "{} | {:.0f} % |\n",
          to_string(Mask{.kind = mask}), to_string(dtype), r.forward * 1e3,
          4 * unit / r.forward * 1e-9, r.backward * 1e3, 10 * unit / r.backward * 1e-9, r.exp * 1e3,
          r.product * 1e-9, 4 * unit / (r.forward - r.exp) / r.product,
          2.5 * r.forward / r.backward,
          dtype == DType::fp32 ? "" : fmt::format("{:.2f}", fp32 / r.forward), r.spread * 100);
      std::fflush(stdout);
    }
  }
}

bool read(std::string_view text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    std::int64_t* const number = name == "--seq"       ? &options.seq
                                 : name == "--samples" ? &options.samples
                                                       : nullptr;
    if (number == nullptr || i + 1 == argc || !read(argv[i + 1], *number)) {
      fmt::print(stderr, "usage: attention_bench [--seq N] [--samples N]\n");
      return 2;
    }
  }
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    setenv("OMP_NUM_THREADS", "1", 1);  // for the products; the kernels see to it themselves
    execv("/proc/self/exe", argv);
  }
  print(options);
}
