// --plan FILE: a document of plan or simulate. What is read gives options values that they had not.
#include "cli/plan_file.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

using namespace spp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFile input;
  static const std::vector<cli::Option> known(cli::shared_options().begin(),
                                              cli::shared_options().end());
  fuzz::allow_refusal([&] {
    const std::string file = input.write(fuzz::text_of(data, size)).string();
    cli::Arguments arguments(known, {"--plan", file});
    cli::adopt_plan_file(arguments);
    for (const std::string_view degree : {"strategy", "ulysses", "ring", "gpus"}) {
      ensure(!arguments.get(degree, "").empty() || degree == "strategy",
             "a plan whose degrees are not known");
    }
  });
  return 0;
}
