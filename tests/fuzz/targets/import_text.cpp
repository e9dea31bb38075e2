// Text of nvidia-smi, ibstat, ibv_devinfo, Slurm and NCCL's tests.
#include "tests/fuzz/importing.hpp"

namespace spp::fuzz::targets::import_text {

extern const Target entry{"import_text", Form::bytes,
                          [](std::string_view text) { import_one(text, "alltoall.txt"); }};

}  // namespace spp::fuzz::targets::import_text
