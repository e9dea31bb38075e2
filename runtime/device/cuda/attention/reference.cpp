// Plain loops in fp32, for any mask: so that everything can be tested on any GPU.
#include "base/error.hpp"
#include "runtime/device/cuda/attention.hpp"
#include "runtime/device/cuda/attention/reference_kernels.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/layer_kernels.hpp"
#include "runtime/device/cuda/seen_rows.hpp"

#include <algorithm>
#include <deque>

namespace spp::runtime::cuda {
namespace {

bool same(const Visibility& a, const Visibility& b) {
  return a.q_tokens == b.q_tokens && a.k_tokens == b.k_tokens && a.mask == b.mask && a.seq == b.seq;
}

class ReferenceAttention final : public DeviceAttention {
 public:
  ReferenceAttention() { load_reference_kernels(); }
  void prepare(const AttentionForwardArgs& args, cudaStream_t stream) override {
    make_table(args.visible, stream);
  }
  void prepare(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    make_table(args.visible, stream);
  }
  void prepare(const GemmArgs&, cudaStream_t) override {}
  void forward(const AttentionForwardArgs& args, cudaStream_t stream) override {
    reference_forward(args, table(args.visible), stream);
  }
  void backward(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    reference_backward(args, table(args.visible), stream);
  }
  void gemm(const GemmArgs& args, cudaStream_t stream) override { cuda::gemm(args, stream); }

 private:
  struct Table {
    Visibility visible;
    DeviceBuffer rows;
  };

  /// Of a block that was prepared; null: it was not.
  [[nodiscard]] const SeenKeyRows* find(const Visibility& visible) const {
    const auto at = std::ranges::find_if(
        tables_, [&](const Table& table) { return same(table.visible, visible); });
    return at == tables_.end() ? nullptr : reinterpret_cast<const SeenKeyRows*>(at->rows.data());
  }
  [[nodiscard]] const SeenKeyRows* table(const Visibility& visible) const {
    const SeenKeyRows* found = find(visible);
    ensure(found != nullptr, "attention over a block that was not prepared");
    return found;
  }
  /// As many as a program has different blocks.
  void make_table(const Visibility& visible, cudaStream_t stream) {
    if (find(visible) != nullptr) {
      return;
    }
    const std::vector<SeenKeyRows> rows = seen_rows(visible);
    const std::size_t bytes = rows.size() * sizeof(SeenKeyRows);
    // At least a byte: a table of no rows was made, too.
    const Table& made = tables_.emplace_back(
        Table{.visible = visible, .rows = DeviceBuffer(std::max<std::size_t>(bytes, 1))});
    copy(made.rows.data(), reinterpret_cast<const std::byte*>(rows.data()), bytes, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // `rows` ends here
  }

  std::deque<Table> tables_;
};

std::string why_not(const Problem&, const TokenSet&, const TokenSet&) { return ""; }
/// A table entry for every query row.
Bytes workspace(const BlockRows& rows, const Visibility&, Phase) {
  return Bytes(rows.q.count * static_cast<std::int64_t>(sizeof(SeenKeyRows)));
}
std::unique_ptr<DeviceAttention> make(const StreamSource*) {
  return std::make_unique<ReferenceAttention>();
}

}  // namespace

namespace device_attention {
extern const DeviceAttentionBackend reference{.name = "reference",
                                              .title = "plain loops in fp32",
                                              .why_not = why_not,
                                              .workspace = workspace,
                                              .gemm_workspace = Bytes(0),
                                              .make = make};
}  // namespace device_attention

}  // namespace spp::runtime::cuda
