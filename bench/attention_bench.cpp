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
// fastest) / median of the forward runs. Products, kernels and types take turns, and what compares
// them is the median of what one turn gave, so that a machine that changes its speed does so to
// all.
#include "base/median.hpp"
#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/softmax.hpp"

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
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
  /// Seconds of a product, over some milliseconds of them.
  double seconds() {
    const int times = static_cast<int>(2e9 / flops_) + 1;
    return seconds_of([&] {
             for (int i = 0; i < times; ++i) {
               product_.execute(stream_, memories_);
             }
           }) /
           times;
  }
  [[nodiscard]] double flops() const { return flops_; }

 private:
  double flops_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul product_;
  std::unordered_map<int, dnnl::memory> memories_;
};

bool multiplies_bf16() {
  try {
    const TileProduct made(DType::bf16, 64, 64, 64);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

struct Options {
  std::int64_t seq = 4096;
  std::int64_t samples = 7;
};

constexpr int heads = 8;
constexpr int dim = 128;

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

/// What one turn took.
struct Turn {
  double forward, backward, exp;  // s
  double product_rate;            // FLOP/s
};

/// One type's attention with one mask.
class Case {
 public:
  Case(const Options& options, DType dtype, MaskKind mask)
      : n_(options.seq), dtype_(dtype), mask_{.kind = mask} {
    delta_.rows.data = delta_.bytes.data();
    for (Tensor* t : {&k_, &v_, &out_, &d_q_, &d_k_, &d_v_}) {
      t->rows.data = t->bytes.data();
    }
  }

  Turn turn() {
    const Visibility visible{.q_tokens = all_, .k_tokens = all_, .mask = mask_, .seq = n_};
    const double rate_before = product_rate();
    const double forward = seconds_of(
        [&] { kernels_->forward({q_.rows, k_.rows, v_.rows, out_.rows, lse_.rows, visible}, {}); });
    const double rate_after = product_rate();
    const double exp = exp_seconds(heads * pairs());
    const double backward = seconds_of([&] {
      kernels_->backward({q_.rows, k_.rows, v_.rows, out_.rows, lse_.rows, delta_.rows, d_q_.rows,
                          d_k_.rows, d_v_.rows, visible},
                         {});
    });
    return {forward, backward, exp, (rate_before + rate_after) / 2};
  }

  /// Visible pairs of a query and a key.
  [[nodiscard]] double pairs() const {
    return static_cast<double>(allowed_pairs(all_, all_, mask_));
  }
  /// A product Q K^T or P V of all visible pairs is twice that.
  [[nodiscard]] double multiplications() const { return pairs() * heads * dim; }
  [[nodiscard]] std::string name() const {
    return fmt::format("{} | {}", to_string(mask_), to_string(dtype_));
  }

 private:
  double product_rate() {
    return (scores_.flops() + values_.flops()) / (scores_.seconds() + values_.seconds());
  }

  std::int64_t n_;
  DType dtype_;
  Mask mask_;
  TokenSet all_{{.begin = 0, .count = n_}};
  std::mt19937 random_{1};
  Tensor q_{dtype_, n_, heads, dim, random_}, k_ = q_, v_ = q_, out_ = q_, d_q_ = q_, d_k_ = q_,
                                              d_v_ = q_;
  Tensor lse_{DType::fp32, n_, heads, 1, random_}, delta_ = lse_;
  std::unique_ptr<AttentionKernels> kernels_ = attention_kernels::by_name("onednn", "bench").make();
  TileProduct scores_{dtype_, 256, 256, dim};
  TileProduct values_{dtype_, 256, dim, 256};
};

/// The median over all turns of what `figure` makes of one.
template <class Figure>
double median_of(const std::vector<Turn>& turns, const Figure& figure) {
  std::vector<double> figures;
  figures.reserve(turns.size());
  for (std::size_t i = 0; i < turns.size(); ++i) {
    figures.push_back(figure(turns[i], i));
  }
  return spp::median_of(figures);
}

const Turn& fastest(const std::vector<Turn>& turns) {
  return *std::ranges::min_element(turns, {}, &Turn::forward);
}

/// How much longer the forward pass of `slower` takes: median of the turns, and fastest beside
/// fastest, which is what two passes take that nobody disturbs.
std::string times_as_fast(const std::vector<Turn>& turns, const std::vector<Turn>& slower) {
  return fmt::format(
      "{:.2f} | {:.2f}",
      median_of(turns, [&](const Turn& t, std::size_t i) { return slower[i].forward / t.forward; }),
      fastest(slower).forward / fastest(turns).forward);
}

void print(const Case& one, const std::vector<Turn>& turns, const std::string& times) {
  const double unit = one.multiplications();
  const auto figure = [&](const auto& of) {
    return median_of(turns, [&](const Turn& t, std::size_t) { return of(t); });
  };
  const double forward = figure([](const Turn& t) { return t.forward; });
  const double backward = figure([](const Turn& t) { return t.backward; });
  const double least = fastest(turns).forward;
  const double most = std::ranges::max_element(turns, {}, &Turn::forward)->forward;
  fmt::print(
      "| {} | {:.1f} | {:.1f} | {:.0f} | {:.1f} | {:.0f} | {:.1f} | {:.0f} | {:.2f} | {:.2f} | {} "
      "| {:.0f} % |\n",
      one.name(), forward * 1e3, least * 1e3, 4 * unit / forward * 1e-9, backward * 1e3,
      10 * unit / backward * 1e-9, figure([](const Turn& t) { return t.exp; }) * 1e3,
      figure([](const Turn& t) { return t.product_rate; }) * 1e-9,
      figure([&](const Turn& t) { return 4 * unit / (t.forward - t.exp) / t.product_rate; }),
      figure([](const Turn& t) { return 2.5 * t.forward / t.backward; }), times,
      (most - least) / forward * 100);
  std::fflush(stdout);
}

void measure(const Options& options) {
  fmt::print("seq {}, {} heads of {}, batch 1, one core, medians of {} runs\n\n", options.seq,
             heads, dim, options.samples);
  fmt::print(
      "| mask | type | fwd ms | fastest | GFLOP/s | bwd ms | GFLOP/s | exp ms | products GFLOP/s | "
      "net | bwd/fwd rate | fp32/bf16 fwd time | of the fastest | spread "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  const bool with_bf16 = multiplies_bf16();
  for (const MaskKind mask : {MaskKind::full, MaskKind::causal}) {
    Case fp32(options, DType::fp32, mask);
    std::optional<Case> bf16;
    std::vector<Turn> of_fp32, of_bf16;
    fp32.turn();  // warms up
    if (with_bf16) {
      bf16.emplace(options, DType::bf16, mask).turn();
    }
    for (std::int64_t i = 0; i < options.samples; ++i) {
      of_fp32.push_back(fp32.turn());
      if (bf16) {
        of_bf16.push_back(bf16->turn());
      }
    }
    print(fp32, of_fp32, " | ");
    if (bf16) {
      print(*bf16, of_bf16, times_as_fast(of_bf16, of_fp32));
    }
  }
  if (!with_bf16) {
    fmt::print("\nno rows of bf16: oneDNN has no such products on this CPU\n");
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
  measure(options);
}
