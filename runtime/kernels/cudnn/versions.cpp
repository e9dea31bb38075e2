#include "runtime/kernels/cudnn/versions.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spp::runtime::cudnn {
namespace {

/// Keys that a block of the backward's kernels takes at once.
constexpr std::int64_t key_block = 128;
constexpr std::size_t first_with_whole_gradients = 91501;
/// Before it the caller had to clear the sum that gradients of queries are added to
/// (cudnn-frontend, scaled_dot_product_flash_attention.h), which we do not.
constexpr std::size_t first_that_clears_sums = 90600;
constexpr std::size_t first_with_masked_single_rows = 91000;
/// A bug of Hopper's backward for "certain large head-dimension combinations" of keys and values
/// (release notes of cudnn-frontend 1.14.1, which do not say which): from 9.11 on, until 9.13.
constexpr std::size_t first_with_uneven_bug = 91100;
constexpr std::size_t first_without_uneven_bug = 91300;
constexpr int large_width = 128;

}  // namespace

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string version_why_not(std::size_t version) {
  if (version == 0) {
    return "libcudnn.so.9 cannot be loaded";
  }
  if (version == 91000 || version == 91001) {
    return fmt::format("cuDNN {} has known bugs in attention, which 9.10.2 mended",
                       version_text(version));
  }
  return "";
}

std::string version_why_not(std::size_t version, const SdpaShape& shape, Phase phase) {
  if (std::string never = version_why_not(version); !never.empty()) {
    return never;
  }
  if (phase == Phase::backward && version < first_that_clears_sums) {
    return fmt::format(
        "cuDNN {} adds gradients of queries to memory that it does not clear (9.6 "
        "does)",
        version_text(version));
  }
  if (phase == Phase::backward && shape.k_rows % key_block != 0 &&
      version < first_with_whole_gradients) {
    return fmt::format(
        "cuDNN {} gives wrong gradients for {} keys, which are no multiple of {} (9.15.1 mended "
        "that)",
        version_text(version), shape.k_rows, key_block);
  }
  if (phase == Phase::backward && shape.v_dim() != shape.head_dim &&
      std::max(shape.head_dim, shape.v_dim()) > large_width && version >= first_with_uneven_bug &&
      version < first_without_uneven_bug) {
    return fmt::format(
        "cuDNN {} has a known bug in the backward of keys of {} beside values of {} (9.13 mended "
        "that)",
        version_text(version), shape.head_dim, shape.v_dim());
  }
  if (shape.q_rows == 1 && shape.mask != SdpaMask::none &&
      version < first_with_masked_single_rows) {
    return fmt::format("cuDNN {} takes no mask for a single query (9.10.2 does)",
                       version_text(version));
  }
  return "";
}

}  // namespace spp::runtime::cudnn
