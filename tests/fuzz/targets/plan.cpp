// --plan FILE: a document of plan or simulate. What is read gives options values that they had not.
#include "cli/plan_file.hpp"
#include "tests/fuzz/target.hpp"

namespace spp::fuzz::targets::plan {

extern const Target entry{
    "plan", Form::json, [](std::string_view text) {
      static InputFile input;
      static const std::vector<cli::Option> known(cli::shared_options().begin(),
                                                  cli::shared_options().end());
      allow_refusal([&] {
        const std::string file = input.write(text).string();
        cli::Arguments arguments(known, {"--plan", file});
        cli::adopt_plan_file(arguments);
        for (const std::string_view degree : {"strategy", "ulysses", "ring", "gpus"}) {
          ensure(!arguments.get(degree, "").empty() || degree == "strategy",
                 "a plan whose degrees are not known");
        }
      });
    }};

}  // namespace spp::fuzz::targets::plan
