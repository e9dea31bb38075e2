// The slow, obvious kernels: fp64 inside, rounded once to the type of the output.
#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/reference_attention.hpp"

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
