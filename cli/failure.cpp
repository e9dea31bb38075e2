#include "cli/failure.hpp"

#include "base/error.hpp"

#include <exception>
#include <new>
#include <stdexcept>

namespace spp::cli {
namespace {

Failure out_of_memory() {
  return {.code = ExitCode::infeasible,
          .message =
              "out of memory: this machine, or what limits this process, has too little "
              "left for it"};
}

}  // namespace

Failure current_failure() {
  try {
    throw;
  } catch (const Refusal& e) {
    return {.code = e.code, .message = e.what()};
  } catch (const InputError& e) {
    return {.code = ExitCode::usage, .message = e.what()};
  } catch (const BackendError& e) {
    return {.code = ExitCode::failed, .message = e.what(), .of_this_rank = true};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::length_error&) {  // of a container that could never be allocated
    return out_of_memory();
  } catch (const std::exception& e) {
    return {.code = ExitCode::failed,
            .message = fmt::format("this is a bug, please report it: {}", e.what()),
            .of_this_rank = true};
  }
}

}  // namespace spp::cli
