// Rows that own their memory, filled at random, for tests of kernels.
#pragma once

#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace spp::test {

struct Shape {
  std::int64_t count = 0;
  std::int64_t batch = 1;
  int heads = 1;
  int width = 1;
};

class HostTensor {
 public:
  HostTensor(DType dtype, const Shape& shape)
      : shape_(shape), dtype_(dtype), bytes_(static_cast<std::size_t>(rows().bytes())) {}

  [[nodiscard]] runtime::Rows rows() {
    return {.data = bytes_.data(),
            .dtype = dtype_,
            .count = shape_.count,
            .batch = shape_.batch,
            .heads = shape_.heads,
            .width = shape_.width};
  }
  [[nodiscard]] std::int64_t size() { return rows().elements(); }
  [[nodiscard]] float at(std::int64_t i) const { return runtime::load(dtype_, bytes_.data(), i); }
  void set(std::int64_t i, float x) { runtime::store(dtype_, bytes_.data(), i, x); }

  [[nodiscard]] std::vector<double> values() {
    std::vector<double> result;
    for (std::int64_t i = 0; i < size(); ++i) {
      result.push_back(at(i));
    }
    return result;
  }
  void set(const std::vector<double>& values) {
    for (std::int64_t i = 0; i < size(); ++i) {
      set(i, static_cast<float>(values[static_cast<std::size_t>(i)]));
    }
  }
  /// Uniform in [-1, 1], rounded to the type.
  void randomize(std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < size(); ++i) {
      set(i, uniform(random));
    }
  }

 private:
  Shape shape_;
  DType dtype_;
  std::vector<std::byte> bytes_;
};

inline HostTensor random_tensor(DType dtype, const Shape& shape, std::mt19937& random) {
  HostTensor tensor(dtype, shape);
  tensor.randomize(random);
  return tensor;
}

/// Largest |a - b|. Equal infinities differ by 0, a NaN or one infinity by infinity.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double apart = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]);
    most = apart >= most || apart != apart ? apart : most;
    if (most != most) {
      return std::numeric_limits<double>::infinity();
    }
  }
  return most;
}

/// Largest finite |a|.
inline double magnitude(const std::vector<double>& a) {
  double most = 0;
  for (const double x : a) {
    most = std::isfinite(x) ? std::max(most, std::abs(x)) : most;
  }
  return most;
}

/// Half of the distance of 1 to the next number: the relative error of one rounding.
inline double unit_of(DType dtype) {
  return dtype == DType::fp32 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

}  // namespace spp::test
