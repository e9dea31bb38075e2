// What libFuzzer calls. SPP_FUZZ_TARGET names the target.
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

const spp::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("SPP_FUZZ_TARGET");  // NOLINT(concurrency-mt-unsafe): one thread
  chosen = name != nullptr ? spp::fuzz::find(name) : nullptr;
  if (chosen == nullptr) {
    std::fputs("SPP_FUZZ_TARGET names none of the targets\n", stderr);
    std::exit(2);  // NOLINT(concurrency-mt-unsafe): one thread
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->feed({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return chosen->form == spp::fuzz::Form::json ? spp::fuzz::mutate_json(data, size, most, seed)
                                               : LLVMFuzzerMutate(data, size, most);
}
