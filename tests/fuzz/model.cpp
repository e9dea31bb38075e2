// A model: ours, or a published config.json. What is read has finite sizes.
#include "transformer/model.hpp"

#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spp::fuzz::allow_refusal([&] {
    const spp::Json json = spp::parse_python_json(spp::fuzz::text_of(data, size), "config.json");
    const spp::Model model = spp::read_model(json, "config.json");
    spp::ensure(!model.not_costed.empty() || model.parameters() > 0, "a model without weights");
    spp::ensure(model.active_parameters() >= 0 && model.active_parameters() <= model.parameters(),
                "more active weights than there are");
  });
  return 0;
}
