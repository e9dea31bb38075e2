// The slow, obvious kernels: fp64 inside, rounded once to the type of the output.
#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/layer.hpp"
#include "runtime/kernels/reference_attention.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <vector>

namespace spp::runtime {
namespace {

std::vector<double> doubles_of(const Rows& rows) {
  std::vector<double> values(static_cast<std::size_t>(rows.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load(rows.dtype, rows.data, static_cast<std::int64_t>(i));
  }
  return values;
}

std::vector<double> doubles_like(const Rows& rows) {
  return std::vector<double>(static_cast<std::size_t>(rows.elements()));
}

void put(std::span<const double> values, const Rows& rows) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    store(rows.dtype, rows.data, static_cast<std::int64_t>(i), static_cast<float>(values[i]));
  }
}

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const Matrix> as_matrix(const std::vector<double>& values, const Rows& rows) {
  return {values.data(), matrix_rows(rows), matrix_columns(rows)};
}

/// Rows [from, from + count) of op(a) op(b).
Matrix product(const Eigen::Map<const Matrix>& a, const Eigen::Map<const Matrix>& b, GemmKind kind,
               std::int64_t from, std::int64_t count) {
  switch (kind) {
    case GemmKind::forward:
      return a.middleRows(from, count) * b;
    case GemmKind::input_gradient:
      return a.middleRows(from, count) * b.transpose();
    case GemmKind::weight_gradient:
      return a.middleCols(from, count).transpose() * b;
  }
  throw InternalError("unknown GEMM");
}

class ReferenceKernels final : public AttentionKernels {
 public:
  void forward(const AttentionForwardArgs& args, const Poll& poll) override {
    std::vector<double> out = doubles_like(args.out);
    std::vector<double> lse = doubles_like(args.lse);
    reference_forward(
        {.q = args.q, .k = args.k, .v = args.v, .visible = args.visible, .out = out, .lse = lse},
        poll);
    put(out, args.out);
    put(lse, args.lse);
  }

  void backward(const AttentionBackwardArgs& args, const Poll& poll) override {
    const std::vector<double> lse = doubles_of(args.lse);
    const std::vector<double> delta = doubles_of(args.delta);
    std::vector<double> d_q = doubles_like(args.d_q);
    std::vector<double> d_k = doubles_like(args.d_k);
    std::vector<double> d_v = doubles_like(args.d_v);
    reference_backward({.q = args.q,
                        .k = args.k,
                        .v = args.v,
                        .d_out = args.d_out,
                        .visible = args.visible,
                        .lse = lse,
                        .delta = delta,
                        .d_q = d_q,
                        .d_k = d_k,
                        .d_v = d_v},
                       poll);
    put(d_q, args.d_q);
    put(d_k, args.d_k);
    put(d_v, args.d_v);
  }

  void gemm(const GemmArgs& args, const Poll& poll) override {
    const GemmShape shape = gemm_shape(args);
    const std::vector<double> a = doubles_of(args.a);
    const std::vector<double> b = doubles_of(args.b);
    std::vector<double> c = args.add ? doubles_of(args.c) : doubles_like(args.c);
    Eigen::Map<Matrix> sum(c.data(), shape.m, shape.n);
    constexpr std::int64_t strip = 64;
    for (std::int64_t from = 0; from < shape.m; from += strip) {
      const std::int64_t count = std::min(strip, shape.m - from);
      sum.middleRows(from, count) +=
          product(as_matrix(a, args.a), as_matrix(b, args.b), args.kind, from, count);
      if (poll) {
        poll();
      }
    }
    put(c, args.c);
  }
};

std::string why_not(DType) { return ""; }
std::unique_ptr<AttentionKernels> make() { return std::make_unique<ReferenceKernels>(); }

}  // namespace

namespace attention_kernels {
extern const AttentionBackend reference{.name = "reference",
                                        .title = "plain matrix products in fp64",
                                        .why_not = why_not,
                                        .make = make};
}  // namespace attention_kernels

}  // namespace spp::runtime
