// The graphs that cuDNN gets: those of NVIDIA's frontend, tensor by tensor, and what the stand-in
// (host_cudnn_graph.hpp) would make of others.
#include "runtime/kernels/cudnn/sdpa.hpp"
#include "runtime/kernels/cudnn/sdpa_graph.hpp"
#include "tests/device/host_cudnn_graph.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <set>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

namespace uid = cudnn::uid;

/// With a batch and heads a layout that is dense looks like no other.
constexpr SdpaShape shape{.q_rows = 6,
                          .k_rows = 10,
                          .q_heads = 4,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .mask = SdpaMask::bottom_right};

/// `batch`: one that nobody else asks for, so that there is no plan yet.
host::Graph graph_of(Phase phase, std::int64_t batch) {
  SdpaShape fresh = shape;
  fresh.batch = batch;
  (void)make_sdpa()->workspace(fresh, phase);
  return *host::last_graph();
}

}  // namespace

TEST_CASE(
    "K is read where it lies: a reshape has the strides of what it reads, as the frontend's") {
  // scaled_dot_product_flash_attention.h of cudnn-frontend, "reshape_k": dimensions and strides of
  // K^T, the last two exchanged.
  int of_k = 0;
  for (const host::GraphOp& op : graph_of(Phase::backward, 2)) {
    if (op.kind != host::GraphOpKind::reshape) {
      continue;
    }
    const host::GraphTensor& x = *op.x;
    CHECK(op.y->dims == host::Dims{x.dims[0], x.dims[1], x.dims[3], x.dims[2]});
    CHECK(op.y->strides == host::Dims{x.strides[0], x.strides[1], x.strides[3], x.strides[2]});
    if (!x.inner) {
      ++of_k;
      CHECK(x.uid == uid::k);
      // [rows, batch, heads, width] in memory.
      CHECK(op.y->dims == host::Dims{2, 2, 10, 8});
      CHECK(op.y->strides == host::Dims{2 * 8, 8, 2 * 2 * 8, 1});
    }
  }
  CHECK(of_k == 1);
}

TEST_CASE(
    "P and dS are transposed to the type of Q, and dS times K is of fp32, as the frontend's") {
  // "reshape_p" and "reshape_dS" of the same file: set_data_type(Q's), strides {h s_q s_kv, s_q
  // s_kv, 1, s_kv}; dS itself, which "matmul_dS_K" takes, keeps the type of what is computed with.
  int transposed = 0;
  int of_d_q = 0;
  for (const host::GraphOp& op : graph_of(Phase::backward, 4)) {
    if (op.kind == host::GraphOpKind::reshape && op.x->inner) {
      ++transposed;
      CHECK(op.x->dtype == CUDNN_DATA_FLOAT);
      CHECK(op.y->dtype == CUDNN_DATA_BFLOAT16);
      CHECK(op.y->dims == host::Dims{4, 4, 10, 6});
      CHECK(op.y->strides == host::Dims{4 * 6 * 10, 6 * 10, 1, 10});
    }
    if (op.kind == host::GraphOpKind::matmul && op.y->uid == uid::d_q_sum) {
      ++of_d_q;
      CHECK(op.x->dtype == CUDNN_DATA_FLOAT);
      CHECK(op.y->dtype == CUDNN_DATA_FLOAT);
    }
  }
  CHECK(transposed == 2);
  CHECK(of_d_q == 1);
}

TEST_CASE("statistics are dense in cuDNN's graphs, as the frontend has them") {
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    std::set<std::int64_t> seen;
    for (const host::GraphOp& op : graph_of(phase, 3)) {
      for (const auto& tensor : {op.x, op.b, op.y}) {
        if (tensor != nullptr && host::is_statistic(*tensor)) {
          seen.insert(tensor->uid);
          CHECK(tensor->dims == host::Dims{3, 4, 6, 1});
          CHECK(tensor->strides == host::Dims{4 * 6, 6, 1, 1});
        }
      }
    }
    CHECK(seen == (phase == Phase::forward ? std::set<std::int64_t>{uid::lse}
                                           : std::set<std::int64_t>{uid::lse, uid::row_sum}));
  }
}

TEST_CASE("a reshape is read by its strides: dense ones give the rows of others") {
  // K of 3 rows, batch 2, heads 2, width 2, tokens outermost; K^T is the same memory.
  std::array<float, 24> k{};
  std::iota(k.begin(), k.end(), 0.0F);
  const auto k_transposed = std::make_shared<const host::GraphTensor>(
      host::GraphTensor{.uid = 1, .dims = {2, 2, 2, 3}, .strides = {4, 2, 1, 8}});
  const auto seen_through = [&](const host::Dims& strides) {
    const auto inner = std::make_shared<const host::GraphTensor>(
        host::GraphTensor{.uid = 2, .dims = {2, 2, 3, 2}, .strides = strides, .inner = true});
    const auto copy = std::make_shared<const host::GraphTensor>(
        host::GraphTensor{.uid = 3, .dims = {2, 2, 3, 2}, .strides = {4, 2, 8, 1}});
    const host::Graph graph{{.kind = host::GraphOpKind::reshape, .x = k_transposed, .y = inner},
                            {.kind = host::GraphOpKind::pointwise,
                             .mode = CUDNN_POINTWISE_IDENTITY,
                             .x = inner,
                             .y = copy}};
    std::array<float, 24> result{};
    host::execute(graph,
                  {{1, reinterpret_cast<std::byte*>(k.data())},
                   {3, reinterpret_cast<std::byte*>(result.data())}},
                  {});
    return result;
  };
  CHECK(seen_through({4, 2, 8, 1}) == k);
  CHECK(seen_through(host::dense({2, 2, 3, 2})) != k);
}
