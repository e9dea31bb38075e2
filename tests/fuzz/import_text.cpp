// Text of nvidia-smi, ibstat, ibv_devinfo, Slurm and NCCL's tests.
#include "tests/fuzz/importing.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spp::fuzz::import_one(spp::fuzz::text_of(data, size), "alltoall.txt");
  return 0;
}
