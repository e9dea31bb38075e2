// NCCL's topology and nvidia-smi -q -x: XML, well-formed or not.
#include "tests/fuzz/importing.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = spp::fuzz::text_of(data, size);
  spp::fuzz::import_one(text, "topology.xml");
  if (!text.starts_with('<')) {  // mutated away: the rest may still be a description
    spp::fuzz::import_one("<system>" + std::string(text), "topology.xml");
  }
  return 0;
}
