#include "runtime/kernels/cudnn/versions.hpp"

#include <fmt/format.h>

namespace spp::runtime::cudnn {
namespace {

/// Keys that a block of the backward's kernels takes at once.
constexpr std::int64_t key_block = 128;
constexpr std::size_t first_with_whole_gradients = 91501;
constexpr std::size_t first_with_masked_single_rows = 91000;

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
  if (phase == Phase::backward && shape.k_rows % key_block != 0 &&
      version < first_with_whole_gradients) {
    return fmt::format(
        "cuDNN {} gives wrong gradients for {} keys, which are no multiple of {} (9.15.1 mended "
        "that)",
        version_text(version), shape.k_rows, key_block);
  }
  if (shape.q_rows == 1 && shape.mask != SdpaMask::none &&
      version < first_with_masked_single_rows) {
    return fmt::format("cuDNN {} takes no mask for a single query (9.10.2 does)",
                       version_text(version));
  }
  return "";
}

}  // namespace spp::runtime::cudnn
