// Blocks by way of cuDNN's calls, with the calls made by the reference kernels on the host: the
// numbers of the whole must be those of the reference.
#include "runtime/kernels/cudnn/attention.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/reference_attention.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/sdpa_calls.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <algorithm>
#include <cstring>

using namespace spp;
using namespace spp::runtime;
using spp::test::HostTensor;
using spp::test::visibility_of;

namespace {

/// Does not own; inputs are only read.
Rows rows_of(const std::byte* data, DType dtype, const test::Shape& shape) {
  return {.data = const_cast<std::byte*>(data),
          .dtype = dtype,
          .count = shape.count,
          .batch = shape.batch,
          .heads = shape.heads,
          .width = shape.width};
}

void transpose(const std::byte* from, std::byte* to, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      std::memcpy(to + 4 * (c * rows + r), from + 4 * (r * columns + c), 4);
    }
  }
}

/// cuDNN's calls, on the host. Workspaces are overwritten, to find who reads what is gone.
class HostSdpa final : public Sdpa {
 public:
  HostSdpa(SdpaDelta delta, int* calls) : delta_(delta), calls_(calls) {}

  Bytes workspace(const SdpaShape& shape, Phase phase) override {
    REQUIRE(why_not(shape).empty());
    return Bytes(phase == Phase::forward ? 16 : 4 * shape.q_rows);
  }
  void forward(const SdpaShape& shape, const SdpaForward& t, std::byte* workspace,
               CudaStream) override {
    begin(shape, Phase::forward, workspace);
    HostTensor lse(DType::fp32, {shape.q_rows, shape.batch, shape.q_heads, 1});
    kernels_->forward({.q = query(shape, t.q),
                       .k = key(shape, t.k),
                       .v = value(shape, t.v),
                       .out = output(shape, t.out),
                       .lse = lse.rows(),
                       .visible = visibility_of(shape)},
                      {});
    transpose(lse.rows().data, t.lse, shape.q_rows, shape.batch * shape.q_heads);
  }
  void backward(const SdpaShape& shape, const SdpaBackward& t, std::byte* workspace,
                CudaStream) override {
    begin(shape, Phase::backward, workspace);
    HostTensor sum(DType::fp32, {shape.q_rows, shape.batch, shape.q_heads, 1});
    if (delta_ == SdpaDelta::from_out) {
      row_dot(output(shape, t.out), output(shape, t.d_out), sum.rows());
    } else {
      sum = rows_first(shape, t.delta);
    }
    HostTensor lse = rows_first(shape, t.lse);
    kernels_->backward({.q = query(shape, t.q),
                        .k = key(shape, t.k),
                        .v = value(shape, t.v),
                        .d_out = output(shape, t.d_out),
                        .lse = lse.rows(),
                        .delta = sum.rows(),
                        .d_q = query(shape, t.d_q),
                        .d_k = key(shape, t.d_k),
                        .d_v = value(shape, t.d_v),
                        .visible = visibility_of(shape)},
                       {});
  }

 private:
  static Rows query(const SdpaShape& s, const std::byte* data) {
    return rows_of(data, s.dtype, {s.q_rows, s.batch, s.q_heads, s.head_dim});
  }
  static Rows key(const SdpaShape& s, const std::byte* data) {
    return rows_of(data, s.dtype, {s.k_rows, s.batch, s.kv_heads, s.head_dim});
  }
  static Rows output(const SdpaShape& s, const std::byte* data) {
    return rows_of(data, s.dtype, {s.q_rows, s.batch, s.q_heads, s.v_dim()});
  }
  static Rows value(const SdpaShape& s, const std::byte* data) {
    return rows_of(data, s.dtype, {s.k_rows, s.batch, s.kv_heads, s.v_dim()});
  }
  /// Statistics as rows have them, of those that a call has.
  static HostTensor rows_first(const SdpaShape& s, const std::byte* data) {
    HostTensor rows(DType::fp32, {s.q_rows, s.batch, s.q_heads, 1});
    transpose(data, rows.rows().data, s.batch * s.q_heads, s.q_rows);
    return rows;
  }
  void begin(const SdpaShape& shape, Phase phase, std::byte* scratch) {
    ++*calls_;
    std::memset(scratch, 0x7f, static_cast<std::size_t>(workspace(shape, phase).value()));
  }

  SdpaDelta delta_;
  int* calls_;
  std::unique_ptr<AttentionKernels> kernels_ =
      attention_kernels::by_name("reference", "test").make();
};

RowKernels host_row_kernels() {
  return {
      .fill = [](const Rows& rows, float value, CudaStream) { fill(rows, value); },
      .accumulate = [](const Rows& sum, const Rows& part,
                       CudaStream) { accumulate(sum, part, false); },
      .project =
          [](const Rows& d_out, const Rows& delta, const Rows& out, CudaStream) {
            for (std::int64_t r = 0; r < delta.elements(); ++r) {
              float square = 0;
              for (std::int64_t d = r * d_out.width; d < (r + 1) * d_out.width; ++d) {
                const float x = load(d_out.dtype, d_out.data, d);
                square += x * x;
              }
              const float factor = square > 0 ? load(DType::fp32, delta.data, r) / square : 0;
              for (std::int64_t d = r * d_out.width; d < (r + 1) * d_out.width; ++d) {
                store(out.dtype, out.data, d, factor * load(d_out.dtype, d_out.data, d));
              }
            }
          },
      .transpose = [](const std::byte* from, std::byte* to, std::int64_t rows, std::int64_t columns,
                      CudaStream) { transpose(from, to, rows, columns); }};
}

struct Block {
  std::string name;
  Visibility visible;
  int calls = 1;
};

std::vector<Block> blocks() {
  const auto zigzag = [](std::int64_t r) {
    return TokenSet({.begin = 6 * r, .count = 6}, {.begin = 6 * (5 - r), .count = 6});
  };
  const auto striped = [](std::int64_t r) {
    return TokenSet({.begin = r, .count = 12, .stride = 3});
  };
  const Mask causal{.kind = MaskKind::causal};
  const TokenSet all({.begin = 0, .count = 36});
  return {
      {"zigzag diagonal", {zigzag(1), zigzag(1), causal, 36}, 1},
      {"zigzag lower", {zigzag(2), zigzag(1), causal, 36}, 1},
      {"zigzag upper", {zigzag(1), zigzag(2), causal, 36}, 1},
      {"striped, keys later", {striped(0), striped(2), causal, 36}, 1},
      {"padded stripes", {striped(1), striped(0), causal, 29}, 1},
      {"full", {zigzag(0), all, {.kind = MaskKind::full}, 34}, 1},
      {"all keys gathered", {zigzag(1), all, causal, 36}, 2},
      {"packed documents",
       {all, all, {.kind = MaskKind::causal, .document_ends = {7, 20, 33}}, 34},
       4},
      {"packed documents of one rank",
       {zigzag(1), all, {.kind = MaskKind::causal, .document_ends = {7, 20, 33}}, 36},
       3},
      {"nothing to see", {zigzag(0).slice(0, 6), zigzag(1), causal, 36}, 0},
  };
}

}  // namespace

TEST_CASE("blocks in cuDNN's calls give the numbers of the reference") {
  std::mt19937 random(11);
  const auto reference = attention_kernels::by_name("reference", "test").make();
  for (const auto& [delta, value_dim] : {std::pair(SdpaDelta::from_out, 16),
                                         {SdpaDelta::given, 16},
                                         {SdpaDelta::from_out, 8},
                                         {SdpaDelta::from_out, 24}}) {
    for (const Block& block : blocks()) {
      INFO(block.name << ", values of " << value_dim);
      const std::int64_t nq = block.visible.q_tokens.count();
      const std::int64_t nk = block.visible.k_tokens.count();
      const DType dtype = DType::bf16;
      const test::Shape query{nq, 2, 4, 16};
      const test::Shape key{nk, 2, 2, 16};
      const test::Shape output{nq, 2, 4, value_dim};
      const test::Shape value{nk, 2, 2, value_dim};
      const test::Shape number{nq, 2, 4, 1};
      int calls = 0;
      CudnnAttention cudnn(std::make_unique<HostSdpa>(delta, &calls), host_row_kernels(), delta);

      HostTensor q = test::random_tensor(dtype, query, random);
      HostTensor k = test::random_tensor(dtype, key, random);
      HostTensor v = test::random_tensor(dtype, value, random);
      HostTensor d_out = test::random_tensor(dtype, output, random);
      HostTensor lse = test::random_tensor(DType::fp32, number, random);
      HostTensor sums = test::random_tensor(DType::fp32, number, random);
      HostTensor out[2] = {d_out, d_out};
      HostTensor out_lse[2] = {lse, lse};
      HostTensor d_q[2] = {q, q};
      HostTensor d_k[2] = {k, k};
      HostTensor d_v[2] = {v, v};
      const auto forward_args = [&](int i) {
        return AttentionForwardArgs{.q = q.rows(),
                                    .k = k.rows(),
                                    .v = v.rows(),
                                    .out = out[i].rows(),
                                    .lse = out_lse[i].rows(),
                                    .visible = block.visible};
      };
      const auto backward_args = [&](int i) {
        return AttentionBackwardArgs{.q = q.rows(),
                                     .k = k.rows(),
                                     .v = v.rows(),
                                     .d_out = d_out.rows(),
                                     .lse = lse.rows(),
                                     .delta = sums.rows(),
                                     .d_q = d_q[i].rows(),
                                     .d_k = d_k[i].rows(),
                                     .d_v = d_v[i].rows(),
                                     .visible = block.visible};
      };
      reference->forward(forward_args(0), {});
      std::vector<std::byte> scratch(
          static_cast<std::size_t>(cudnn.forward_workspace(forward_args(1)).value()));
      cudnn.forward(forward_args(1), scratch.data(), nullptr);
      CHECK(calls == block.calls);
      // The same sums over the same keys in fp64, rounded once.
      CHECK(test::distance(out[0].values(), out[1].values()) == 0);
      CHECK(test::distance(out_lse[0].values(), out_lse[1].values()) == 0);

      // As if these were all keys: rows of P then sum up to 1.
      lse = out_lse[0];
      reference->backward(backward_args(0), {});
      scratch.assign(static_cast<std::size_t>(cudnn.backward_workspace(backward_args(1)).value()),
                     std::byte{0x7f});
      cudnn.backward(backward_args(1), scratch.data(), nullptr);
      CHECK(calls == 2 * block.calls);
      // Parts are rounded to the type, and so are their sums.
      const double u = test::unit_of(dtype);
      const auto rounded = [&](int times, HostTensor& t) {
        return 2 * times * u * test::magnitude(t.values());
      };
      const int sums_of_keys = std::max(0, block.calls - 1);
      CHECK(test::distance(d_v[0].values(), d_v[1].values()) <= rounded(sums_of_keys, d_v[0]));
      // The surrogate out is rounded element by element, which moves delta by at most u |delta|,
      // and |delta| <= 1. That moves dS = scale P (dP - delta) by scale P u; |q|, |k| <= 1. A key
      // is met by nq queries of two heads.
      const bool exact = delta == SdpaDelta::given;
      const double scale = 0.25;
      CHECK(test::distance(d_q[0].values(), d_q[1].values()) <=
            (exact ? 0 : scale * u + rounded(1, d_q[0])));
      CHECK(test::distance(d_k[0].values(), d_k[1].values()) <=
            (exact ? 0 : scale * u * 2 * static_cast<double>(nq) + rounded(1, d_k[0])) +
                rounded(sums_of_keys, d_k[0]));
    }
  }
}

TEST_CASE("blocks that cuDNN cannot do are input errors") {
  const TokenSet tokens({.begin = 0, .count = 4});
  const Visibility visible{.q_tokens = tokens, .k_tokens = tokens, .seq = 4};
  const Rows half{.dtype = DType::bf16, .count = 4, .heads = 2, .width = 64};
  Rows wide = half;
  wide.dtype = DType::fp32;
  CHECK(cudnn_why_not({half, half, half}, visible).empty());
  CHECK(cudnn_why_not({wide, wide, wide}, visible) ==
        "cuDNN's attention takes bf16 and fp16, not fp32");
  Rows odd = half;
  odd.width = 60;
  for (const BlockRows& rows : {BlockRows{odd, odd, odd}, BlockRows{half, half, odd}}) {
    CHECK(cudnn_why_not(rows, visible) ==
          "cuDNN's attention takes head dimensions 8 to 256, multiples of 8, not 60");
  }
  int calls = 0;
  CudnnAttention cudnn(std::make_unique<HostSdpa>(SdpaDelta::given, &calls), host_row_kernels(),
                       SdpaDelta::given);
  CHECK(test::message_of<InputError>([&] {
          cudnn.forward_workspace({.q = wide, .k = wide, .visible = visible});
        }) == "attention: cuDNN's attention takes bf16 and fp16, not fp32");
}
