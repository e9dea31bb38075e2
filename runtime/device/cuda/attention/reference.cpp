// Plain loops in fp32, for any mask: so that everything can be tested on any GPU.
#include "runtime/device/cuda/attention.hpp"
#include "runtime/device/cuda/attention/reference_kernels.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/seen_rows.hpp"

#include <deque>

namespace spp::runtime::cuda {
namespace {

bool same(const Visibility& a, const Visibility& b) {
  return a.q_tokens == b.q_tokens && a.k_tokens == b.k_tokens && a.mask == b.mask && a.seq == b.seq;
}

class ReferenceAttention final : public DeviceAttention {
 public:
  void forward(const AttentionForwardArgs& args, cudaStream_t stream) override {
    reference_forward(args, seen(args.visible, stream), stream);
  }
  void backward(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    reference_backward(args, seen(args.visible, stream), stream);
  }

 private:
  struct Table {
    Visibility visible;
    DeviceBuffer rows;
  };

  /// The table of a block, made at its first use; as many as a program has different blocks.
  const SeenKeyRows* seen(const Visibility& visible, cudaStream_t stream) {
    for (const Table& table : tables_) {
      if (same(table.visible, visible)) {
        return reinterpret_cast<const SeenKeyRows*>(table.rows.data());
      }
    }
    const std::vector<SeenKeyRows> rows = seen_rows(visible);
    const std::size_t bytes = rows.size() * sizeof(SeenKeyRows);
    Table& table = tables_.emplace_back(Table{.visible = visible, .rows = DeviceBuffer(bytes)});
    copy(table.rows.data(), reinterpret_cast<const std::byte*>(rows.data()), bytes, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // `rows` ends here
    return reinterpret_cast<const SeenKeyRows*>(table.rows.data());
  }

  std::deque<Table> tables_;
};

std::string why_not(const Problem&, const TokenSet&, const TokenSet&) { return ""; }
std::unique_ptr<DeviceAttention> make(int) { return std::make_unique<ReferenceAttention>(); }

}  // namespace

namespace device_attention {
extern const DeviceAttentionBackend reference{
    .name = "reference", .title = "plain loops in fp32", .why_not = why_not, .make = make};
}  // namespace device_attention

}  // namespace spp::runtime::cuda
