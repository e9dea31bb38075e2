// The software that runs a plan: topologies/stacks/. What is read prices host time and traffic.
#include "machine/stack.hpp"

#include "tests/fuzz/target.hpp"

#include <array>
#include <cmath>

namespace spp::fuzz::targets::stack {

extern const Target entry{
    "stack", Form::json, [](std::string_view text) {
      allow_refusal([&] {
        static const Json like = read_json(SPP_FUZZ_LIKE);  // what every 'like' names
        const Json json = parse_json(text, "stack.json");
        const StackSpec stack = read_stack(JsonView(json, "stack.json"), [](const JsonView& name) {
          (void)name.string();
          return like;
        });
        const GenerationSpec generation;
        for (const Layout layout :
             {Layout::contiguous, Layout::zigzag, Layout::striped, Layout::document_zigzag,
              Layout::document_contiguous, Layout::balanced, Layout::whole_documents}) {
          for (const Phase phase : {Phase::forward, Phase::backward}) {
            for (const Seconds time : host_times(stack, generation, layout, phase)) {
              ensure(std::isfinite(time.count()) && time.count() >= 0, "host time that is no time");
            }
          }
          ensure(std::isfinite(traffic_factor(stack, layout, Merge{})), "endless traffic");
        }
        allow_refusal([&] { (void)attention_of(stack, generation); });
      });
    }};

}  // namespace spp::fuzz::targets::stack
