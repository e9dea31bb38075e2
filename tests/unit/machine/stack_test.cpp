#include "machine/stack.hpp"

#include "base/error.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <functional>

using namespace spp;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string example = R"({
  "format": "sp-plan/stack", "format_version": "1.0", "name": "example", "title": "an example",
  "strategies": {"names": ["ring", "usp"], "source": "x"},
  "attention": {"hopper": {"kernel": "FA2", "source": "x"}},
  "gradient": {"dtype": "fp32", "source": "x"},
  "host": {"call": {"value": 50, "unit": "us", "source": "x"},
           "send_recv": {"value": 80, "unit": "us", "source": "x", "spread": 0.4}},
  "network_beside_kernels": {"after": {"value": 300, "unit": "us", "source": "x"},
                             "speed_forward": {"value": 0.5, "unit": "fraction", "source": "x"},
                             "speed_backward": {"value": 0.75, "unit": "fraction", "source": "x"}},
  "layouts": {"zigzag": {"attention": {"value": 1.0, "unit": "fraction", "source": "x"},
                         "merge": {"value": 0.5, "unit": "fraction", "source": "x"},
                         "host_forward": {"value": 0.6, "unit": "fraction", "source": "x"},
                         "host_backward": {"value": 1.2, "unit": "fraction", "source": "x"}}},
  "traffic": {"merge": {"value": 3.0, "unit": "fraction", "source": "x"}}})";

StackSpec read(const std::function<void(Json&)>& change = {}) {
  Json document = parse_json(example, "example.json");
  if (change) {
    change(document);
  }
  return read_stack(JsonView(document, "example.json"), [](const JsonView& name) -> Json {
    if (name.string() != "base") {
      name.fail("unknown stack");
    }
    Json base = parse_json(example, "base.json");
    base["name"] = "base";
    base["aliases"] = {"b"};
    return base;
  });
}

}  // namespace

TEST_CASE("what a stack says, and what it leaves to the GPU") {
  const StackSpec stack = read();
  CHECK(stack.gradient == DType::fp32);
  CHECK(stack.strategies == std::vector<std::string>{"ring", "usp"});
  const Catalog& catalog = test::catalog();
  const GenerationSpec hopper = catalog.generation("hopper", "test");
  CHECK(attention_of(stack, hopper).kernel == "FA2");
  const GenerationSpec ampere = catalog.generation("ampere", "test");
  CHECK(attention_of(stack, ampere).kernel == ampere.attention.kernel);

  const auto send = static_cast<std::size_t>(OpKind::exchange);
  const auto copy = static_cast<std::size_t>(OpKind::copy);
  const HostTimes contiguous = host_times(stack, hopper, Layout::contiguous, Phase::forward);
  CHECK(contiguous.at(send).count() == Approx(80e-6));
  CHECK(contiguous.at(copy) == hopper.launch.value);
  const HostTimes zigzag = host_times(stack, hopper, Layout::zigzag, Phase::backward);
  CHECK(zigzag.at(send).count() == Approx(96e-6));

  CHECK_FALSE(stack.counting);
  const StackSpec counts = read([](Json& d) {
    d["flops"] = {{"attention", "whole"}, {"recomputed", true}, {"until", 2025}, {"source", "x"}};
  });
  REQUIRE(counts.counting);
  CHECK(counts.counting->whole_attention);
  CHECK(counts.counting->recomputed);
  CHECK(counts.counting->until == 2025);

  CHECK_FALSE(stack.dispatches_plainly("gpt-oss-120b", "bf16"));
  const StackSpec plain = read([](Json& d) {
    d["plain_dispatch"] = {{{"model", "gpt-oss"}, {"dtype", "bf16"}, {"source", "x"}}};
  });
  CHECK(plain.dispatches_plainly("gpt-oss-120b", "bf16"));
  CHECK_FALSE(plain.dispatches_plainly("gpt-oss-120b", "mxfp8"));
  CHECK_FALSE(plain.dispatches_plainly("qwen3-30b-a3b", "bf16"));

  CHECK(traffic_factor(stack, Layout::contiguous, Merge{}) == 3.0);
  CHECK(traffic_factor(stack, Layout::zigzag, Merge{}) == 1.5);
  CHECK(traffic_factor(stack, Layout::zigzag, Accumulate{}) == 1.0);
  CHECK(traffic_factor(stack, Layout::zigzag, AttentionForward{}) == 1.0);
}

TEST_CASE("a stack that is like another one says only what differs") {
  const StackSpec like = read([](Json& d) {
    d.erase("host");
    d.erase("strategies");
    d["like"] = "base";
    d["title"] = "a fork";
    d["layouts"] = nullptr;
    d["traffic"] = {{"merge", {{"value", 2.0}, {"unit", "fraction"}, {"source", "x"}}}};
    d["sections"] = {{"zigzag", false}, {"source", "x"}};
  });
  CHECK(like.name == "example");
  CHECK(like.title == "a fork");
  CHECK(like.host.call->value.count() == Approx(50e-6));
  CHECK(like.traffic.merge->value == 2.0);
  CHECK(like.layouts.empty());
  CHECK_FALSE(like.zigzag_sections);
  CHECK(like.strategies.empty());  // what another one can is not inherited, nor its names
  CHECK(like.aliases.empty());
  CHECK_THROWS_WITH(read([](Json& d) { d["like"] = "nobody"; }),
                    ContainsSubstring("example.json: like"));
}

TEST_CASE("a stack that is like one that is like a third has what both say") {
  const auto of_name = [](const JsonView& like) {
    Json d = parse_json(example, "another.json");
    d["name"] = like.string();
    if (like.string() == "fork") {
      d.erase("traffic");
      d["like"] = "base";
      d["host"] = {{"call", {{"value", 70}, {"unit", "us"}, {"source", "x"}}}};
    } else if (like.string() == "snake") {
      d["like"] = "snake";
    }
    return d;
  };
  Json d = parse_json(example, "example.json");
  d.erase("host");
  d.erase("traffic");
  d["like"] = "fork";
  const StackSpec stack = read_stack(JsonView(d, "example.json"), of_name);
  CHECK(stack.like == "fork");
  CHECK(stack.host.call->value.count() == Approx(70e-6));
  CHECK(stack.traffic.merge->value == 3.0);
  d["like"] = "snake";
  CHECK_THROWS_WITH(read_stack(JsonView(d, "example.json"), of_name),
                    ContainsSubstring("like: 'snake' is like itself"));
}

TEST_CASE("in fp32 a weight has 4 bytes wherever it is held or sent, and no second copy") {
  const StepPractice& half = default_practice();
  const StepPractice wide = in_type(half, DType::fp32);
  CHECK(wide.state_parameter.value == 4);
  CHECK(wide.state_gradient.value == 4);
  CHECK(wide.gradient_bytes.value == 4);
  CHECK(wide.state_optimizer.value == half.state_optimizer.value - 4);
  CHECK(in_type(half, DType::fp16).state_parameter.value == half.state_parameter.value);
}

TEST_CASE("wrong stacks are refused by key") {
  CHECK_THROWS_WITH(read([](Json& d) { d["hosts"] = 1; }), ContainsSubstring("hosts"));
  CHECK_THROWS_WITH(read([](Json& d) { d["host"]["call"]["unit"] = "GB"; }),
                    ContainsSubstring("host.call"));
  CHECK_THROWS_WITH(read([](Json& d) { d["layouts"]["zigzag"]["attention"]["value"] = 0.9; }),
                    ContainsSubstring("0.9 is below 1"));
  CHECK_THROWS_WITH(read([](Json& d) { d["layouts"]["zigzak"] = d["layouts"]["zigzag"]; }),
                    ContainsSubstring("zigza"));
  CHECK_THROWS_WITH(read([](Json& d) { d["flops"] = {{"attention", "all"}, {"source", "x"}}; }),
                    ContainsSubstring("'all' is not whole or half"));
  CHECK_THROWS_WITH(read([](Json& d) { d["gradient"]["dtype"] = "fp8"; }),
                    ContainsSubstring("fp8"));
  StackSpec unknown = read([](Json& d) { d["attention"]["hopper"]["kernel"] = "FA9"; });
  const Catalog& catalog = test::catalog();
  CHECK_THROWS_WITH(attention_of(unknown, catalog.generation("hopper", "test")),
                    ContainsSubstring("stack example: attention.hopper"));
}

TEST_CASE("every stack can run on every GPU") {
  const Catalog& catalog = test::catalog();
  for (const std::string& name : catalog.stack_names()) {
    const StackSpec stack = catalog.stack(name, "test");
    CHECK(stack.name == name);
    for (const std::string& generation : catalog.generation_names()) {
      CHECK_NOTHROW(attention_of(stack, catalog.generation(generation, "test")));
    }
  }
}
