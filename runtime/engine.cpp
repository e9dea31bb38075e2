#include "runtime/engine.hpp"

#include "base/error.hpp"

namespace spp::runtime {

void expect_same_kernels(Transport& transport, std::string_view kernels) {
  const std::string of_rank_0 = transport.all_gather_text(std::string(kernels)).front();
  if (kernels != of_rank_0) {
    throw BackendError("set-up",
                       fmt::format("{} kernels would run here and {} kernels on rank 0: choose "
                                   "those that all hosts can run (--kernels)",
                                   kernels, of_rank_0),
                       transport.rank().value);
  }
}

}  // namespace spp::runtime
