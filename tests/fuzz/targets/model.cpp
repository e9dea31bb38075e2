// A model: ours, or a published config.json. What is read has finite sizes.
#include "transformer/model.hpp"

#include "tests/fuzz/target.hpp"

namespace spp::fuzz::targets::model {

extern const Target entry{
    "model", Form::json, [](std::string_view text) {
      allow_refusal([&] {
        const Json json = parse_python_json(text, "config.json");
        const Model model = read_model(json, "config.json");
        ensure(!model.not_costed.empty() || model.parameters() > 0, "a model without weights");
        ensure(model.active_parameters() >= 0 && model.active_parameters() <= model.parameters(),
               "more active weights than there are");
      });
    }};

}  // namespace spp::fuzz::targets::model
