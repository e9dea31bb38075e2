// The software that runs a plan: topologies/stacks/. What is read prices host time and traffic.
#include "machine/stack.hpp"

#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

#include <array>
#include <cmath>

using namespace spp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::allow_refusal([&] {
    static const Json like = read_json(SPP_FUZZ_LIKE);  // what every 'like' names
    const Json json = parse_json(fuzz::text_of(data, size), "stack.json");
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
    fuzz::allow_refusal([&] { (void)attention_of(stack, generation); });
  });
  return 0;
}
