// NCCL's topology and nvidia-smi -q -x: XML, well-formed or not.
#include "tests/fuzz/importing.hpp"

namespace spp::fuzz::targets::import_xml {

extern const Target entry{
    "import_xml", Form::bytes, [](std::string_view text) {
      import_one(text, "topology.xml");
      if (!text.starts_with('<')) {  // mutated away: the rest may still be a description
        import_one("<system>" + std::string(text), "topology.xml");
      }
    }};

}  // namespace spp::fuzz::targets::import_xml
