// Whatever stands in a model, a machine, a stack or a profile: it is planned with, or refused with
// an InputError; never another exception, never a number that is none, and soon.
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "cli/data.hpp"
#include "machine/machine_json.hpp"
#include "machine/profile.hpp"
#include "machine/stack.hpp"
#include "planner/plan.hpp"
#include "tests/robust/mutated.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>

using namespace spp;
using namespace spp::test;

namespace {

/// Something that can be mutated, read, and planned with.
struct Source {
  std::string name;
  Json document;
  bool (*use)(const JsonView& view, std::size_t index);  // false: there was nothing to plan
};

const MachineSpec& usual_machine() {
  static const MachineSpec machine = cli::topologies().machine("dgx-h100", "test");
  return machine;
}

/// A number that a plan says is one, and is not negative.
void expect_number(double value, std::string_view what) {
  if (!std::isfinite(value) || value < 0) {
    throw InternalError(fmt::format("{} is {}", what, value));
  }
}

bool plan_on(MachineSpec machine, std::size_t index, Request request) {
  const auto per_node = static_cast<int>(machine.gpus_per_node.value);
  const int nodes = machine.inter && per_node <= 8 ? 2 : 1;
  const int gpus = nodes == 2 ? 2 * per_node : std::min(per_node, 4);
  request.memory =
      Bytes(std::llround(machine.gpu.memory.value.as_double() * machine.gpu.memory_usable.value));
  request.problem.dtype = machine.gpu.matrix_rate.begin()->first;
  const sim::Cluster cluster(std::move(machine), nodes, gpus);
  request.cluster = &cluster;
  request.gpus = gpus;
  request.top = 3;
  request.problem.seq = index % 2 == 0 ? 8192 : 65'536;
  const PlanResult result = plan(request);
  for (const Candidate& c : result.candidates) {
    expect_number(c.predicted.step.count(), "step");
    expect_number(c.predicted.low.count(), "low");
    expect_number(c.predicted.high.count(), "high");
    expect_number(c.predicted.tflops_per_gpu, "tflops_per_gpu");
    expect_number(c.predicted.tokens_per_s, "tokens_per_s");
    expect_number(c.predicted.memory.total().as_double(), "memory");
  }
  return !result.candidates.empty();
}

Request attention_of(int q_heads, int kv_heads, int head_dim) {
  Request request;
  request.problem.q_heads = q_heads;
  request.problem.kv_heads = kv_heads;
  request.problem.head_dim = head_dim;
  return request;
}

bool use_machine(const JsonView& view, std::size_t index) {
  return plan_on(read_whole_machine(view), index, attention_of(16, 8, 128));
}

bool use_profile(const JsonView& view, std::size_t index) {
  return plan_on(read_profile(view).machine, index, attention_of(8, 8, 64));
}

bool use_model(const JsonView& view, std::size_t index) {
  Model model = read_model(view.value(), "config.json");
  if (!model.not_costed.empty()) {
    return false;
  }
  Request request = attention_of(model.q_heads, model.kv_heads, model.head_dim);
  request.problem.mask = model.mask.over(request.problem.seq);
  request.model = std::move(model);
  request.phase = index % 3 == 0 ? StepPhase::prefill : StepPhase::train;
  return plan_on(usual_machine(), index, std::move(request));
}

bool use_stack(const JsonView& view, std::size_t index) {
  const auto by_name = [](const JsonView& name) {
    const std::string file = fmt::format("topologies/stacks/{}.json", name.string());
    return name.string().find('/') == std::string::npos
               ? read_json(source_path(file))
               : throw InputError(name.where(), "is no name");
  };
  const StackSpec stack = read_stack(view, by_name);
  Request request = attention_of(16, 8, 128);
  request.run_by(stack);
  return plan_on(usual_machine(), index, std::move(request));
}

/// Files of topologies/ as they are, refused or read.
bool use_part(const JsonView& view, std::size_t /*index*/) {
  const std::string format = view.at("format").string();
  if (format == "sp-plan/gpu") {
    (void)read_gpu(view);
  } else if (format == "sp-plan/generation") {
    (void)read_generation(view);
  } else if (format == "sp-plan/transport") {
    (void)read_transport(view);
  } else {
    (void)read_machine(view);
  }
  return false;
}

std::vector<Source> sources() {
  std::vector<Source> all;
  const auto add = [&](const std::string& folder, auto use) {
    for (const auto& file : files_in(source_path(folder), ".json")) {
      all.push_back({.name = folder + "/" + file.filename().string(),
                     .document = read_json(file),
                     .use = use});
    }
  };
  for (const std::string& name : cli::topologies().machine_names()) {
    all.push_back({.name = "machine " + name,
                   .document = cli::topologies().whole_machine(name, "test"),
                   .use = use_machine});
  }
  add("models", use_model);
  add("topologies/stacks", use_stack);
  for (const std::string_view part : {"gpus", "generations", "transports", "machines"}) {
    add(fmt::format("topologies/{}", part), use_part);
  }
  for (const std::string_view profile :
       {"tests/support/data/cpu-2x2.json", "reports/measured/cpu-2x2-1gbit/profile.json"}) {
    for (int i = 0; i < 10; ++i) {  // as many turns as ten machines have
      all.push_back({.name = std::string(profile),
                     .document = read_json(source_path(profile)),
                     .use = use_profile});
    }
  }
  return all;
}

/// What is tried; told when it takes too long.
std::array<char, 256> trying{};

extern "C" void give_up(int /*signal*/) {
  constexpr std::string_view text = "no answer within a minute: ";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  (void)!::write(STDERR_FILENO, trying.data(), std::strlen(trying.data()));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(1);
}

void expect_answers(std::size_t inputs) {
  constexpr unsigned patience = 60;  // seconds; an answer takes some hundredths of one
  const std::vector<Source> all = sources();
  std::signal(SIGALRM, give_up);
  std::map<std::string, std::size_t> outcomes;
  for (std::size_t i = 0; i < inputs; ++i) {
    const Source& source = all[i % all.size()];
    const std::string name = fmt::format("mutation {} of {}", i, source.name);
    name.copy(trying.data(), trying.size() - 1);
    trying.at(std::min(name.size(), trying.size() - 1)) = '\0';
    const std::string text = Mutator(20'261'123 + i).text(source.document);
    ::alarm(patience);
    try {
      const Json document = parse_json(text, "input.json");
      ++outcomes[source.use(JsonView(document, "input.json"), i) ? "planned" : "only read"];
    } catch (const InputError& e) {
      ++outcomes["refused"];
      CHECK(std::string_view(e.what()).size() > 0);
    } catch (const std::exception& e) {
      FAIL_CHECK(name << ": " << e.what());
    }
    ::alarm(0);
  }
  CAPTURE(outcomes["planned"], outcomes["only read"], outcomes["refused"]);
  CHECK(outcomes["planned"] > inputs / 10);
  CHECK(outcomes["refused"] > inputs / 10);
#if !defined(SPP_SANITIZED)
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  CHECK(usage.ru_maxrss < 1'000'000);  // KiB
#endif
}

}  // namespace

TEST_CASE("a model, machine, stack or profile with mistakes is planned with or refused") {
  expect_answers(400);
}

// Three minutes on one core.
TEST_CASE("5,000 models, machines, stacks and profiles with mistakes are planned with or refused",
          "[.all]") {
  expect_answers(5000);
}
