// A stack: the software that runs a plan (sp-plan, ring-flash-attn, yunchang, …), as far as it
// changes what a schedule costs. Data: topologies/stacks/, one file a stack.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "machine/expert_exchange.hpp"
#include "machine/machine.hpp"
#include "machine/step_practice.hpp"
#include "schedule/op.hpp"

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace spp {

struct StackSpec {
  std::string name;
  std::vector<std::string> aliases;
  std::string title;
  /// Words by which what others wrote about a measurement is recognised as this software's.
  std::vector<std::string> known_by;
  int until = 0;  // year up to which these words mean this stack; 0: always
  /// The stack whose constants it has where it says nothing (the same code, or called by it);
  /// "": none.
  std::string like;
  /// The framework under whose rules it runs plans (planner/framework.hpp), for searches; "": none.
  std::string framework;
  /// Without a framework: strategies that it implements, by name, for searches; empty: all.
  std::vector<std::string> strategies;
  /// Attention kernel by generation; a generation that is not named runs its default.
  std::map<std::string, std::string> attention;
  /// In which ring gradients travel: fp32, or nothing: as the inputs.
  std::optional<DType> gradient;
  /// Zigzag steps run the parts of a block that the mask needs, as sp-plan does; else whole blocks.
  bool zigzag_sections = true;
  /// Host time to issue an op (interpreter, framework, driver): ops of a rank are issued one after
  /// the other. What is missing takes the generation's launch time. `call`: before the first op.
  struct Host {
    std::optional<Sourced<Seconds>> call, attention_forward, attention_backward, elementwise, copy,
        send_recv, collective;
  } host;
  /// Point-to-point messages between nodes while a kernel of one of their ranks runs: after a while
  /// (what the library's buffers hold) they move at a part of their speed, because kernels that
  /// were issued first keep the SMs that communication kernels wait for. Missing: all their speed.
  struct BesideKernels {
    Sourced<Seconds> after;
    Sourced<double> speed_forward, speed_backward;
  };
  std::optional<BesideKernels> network_beside_kernels;
  /// What a layout's own implementation costs, over that of the contiguous one.
  struct LayoutCost {
    Sourced<double> attention;  // at least 1: e.g. lengths that are no whole tiles
    Sourced<double> merge;      // on traffic.merge
    Sourced<double> host_forward, host_backward;
  };
  std::map<Layout, LayoutCost> layouts;
  /// Of document-zigzag, if it has none of its own, zigzag's. Null: nothing is known of the layout.
  [[nodiscard]] const LayoutCost* cost_of(Layout layout) const;
  /// Relative standard deviation of times under this stack that its constants do not explain:
  /// versions, settings, the state of the machines it was measured on.
  std::optional<Sourced<double>> unexplained;
  /// Bytes that the kernels around attention move, over those of one fused kernel.
  struct Traffic {
    std::optional<Sourced<double>> merge, accumulate, copy;
  } traffic;
  /// How it counts the FLOPs of rates that it prints, as far as that is known.
  struct Counting {
    bool whole_attention = false;  // causal attention as if all scores were needed
    bool recomputed = false;       // a forward that runs again, too: hardware FLOPs
    int until = 0;                 // year up to which it does; 0: always
  };
  std::optional<Counting> counting;
  /// Its published recipes that send tokens to experts by a plain all-to-all of sizes that the host
  /// knows, once for each expert, whatever `step` says of the others. For measurements alone.
  struct Recipe {
    std::string model, dtype;  // beginning of the model's name
  };
  std::vector<Recipe> plain_dispatch;
  [[nodiscard]] bool dispatches_plainly(std::string_view model, std::string_view dtype) const;
  /// How it runs the rest of a training step.
  StepPractice step = default_practice();
  /// Sending tokens to their experts and back, by generation.
  std::map<std::string, ExpertExchangeSpec> expert_exchange;
};

/// InputError names file and key. Strict, as all of topologies/. `of_name`: the document of a
/// stack, for `like`.
StackSpec read_stack(const JsonView& document,
                     const std::function<Json(const JsonView& name)>& of_name);

/// The stack's code under torch.compile.
StackSpec compiled(StackSpec stack);

/// Host time by OpKind.
using HostTimes = std::array<Seconds, op_kinds>;
HostTimes host_times(const StackSpec& stack, const GenerationSpec& generation, Layout layout,
                     Phase phase);

/// Factor on the bytes of an elementwise op; 1 for all others.
double traffic_factor(const StackSpec& stack, Layout layout, const Kernel& kernel);

/// The attention kernel that the stack runs on this generation, in the version of a `year` (0: the
/// latest). InputError if it names one that the generation does not have.
const AttentionKernelSpec& attention_of(const StackSpec& stack, const GenerationSpec& generation,
                                        int year = 0);

}  // namespace spp
