// The question and the answer: what to split over which cluster, and the ranked plans.
//
// A question is about one attention call (fwd, bwd, fwd+bwd), or about a whole step of a model
// (train, prefill): then tensor x sequence x pipeline x data x expert degrees, micro-batches, ZeRO
// and recomputation are searched together (step_search.hpp). Of a call plan() enumerates every
// legal plan and searches best first: each has a closed-form lower bound (bound.hpp), tightened by
// a walk over one rank's kernels when its turn comes, then simulated, until the next bound is worse
// than the last plan that is shown. The simulated ones are ranked. What a search may take is
// limited in ops (Request::most), not in seconds: the same question has the same answer on every
// machine. Plans that would take more are ranked by their bounds. Predictions carry an interval
// from the constants' stated spreads; plans whose difference is within what the spreads allow are
// ties, and the simplest of the ties is recommended, unless a faster plan, tie or not, is as
// simple.
#pragma once

#include "base/progress.hpp"
#include "machine/attention_table.hpp"
#include "parallel/attention/strategy.hpp"
#include "sim/simulate.hpp"
#include "step/cost.hpp"
#include "transformer/model.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace spp {

struct Framework;  // planner/framework.hpp

/// What is predicted. fwd, bwd and fwd+bwd are one attention call; prefill is the forward of a
/// whole model, train one step of it.
enum class StepPhase : std::uint8_t { forward, backward, forward_backward, prefill, train };
std::string_view to_string(StepPhase);
StepPhase parse_step_phase(std::string_view, std::string_view where);
/// Of a whole step.
inline StepKind kind_of(StepPhase phase) {
  return phase == StepPhase::train ? StepKind::train : StepKind::prefill;
}

enum class FlopsConvention : std::uint8_t { causal_halved, full, model_6n };
std::string_view to_string(FlopsConvention);
FlopsConvention parse_flops_convention(std::string_view, std::string_view where);

enum class Objective : std::uint8_t { time, tokens_per_s, memory };
std::string_view to_string(Objective);
Objective parse_objective(std::string_view, std::string_view where);

/// What the user fixed; the rest is searched (plan) or the default (simulate, verify).
struct FixedChoices {
  std::optional<std::string> strategy;
  std::optional<int> ulysses, ring;
  std::map<const Parameter*, int> own;  // of strategies
  std::optional<Layout> layout;
  std::optional<std::array<Axis, 3>> order;
  std::optional<HeadPolicy> heads;
  std::optional<RankOrder> rank_order;
};

/// A denoising step of a diffusion transformer under classifier-free guidance (arXiv:2207.12598)
/// computes two branches of every sequence: in one batch, or one after the other; or on as many
/// groups of GPUs at once as StepChoices::data says.
enum class Guidance : std::uint8_t { none, batched, apart };

/// The same of a whole step. Without `global_batch` a step is one micro-batch of each replica, and
/// `data` is 1 unless it is given; without `micro_batch` too, a micro-batch is one sequence.
struct StepChoices {
  std::optional<int> tensor, pipeline, data, expert, expert_tensor, virtual_stages;
  std::optional<std::string> order;  // of micro-batches
  std::optional<std::int64_t> micro_batch, global_batch;
  std::optional<std::int64_t> prompts;   // of a prefill, that pass the stages of a pipeline at once
  std::optional<int> zero, zero_group;   // not given: the fastest that fits; over all replicas
  std::optional<Recompute> recompute;    // not given: the fastest that fits
  std::optional<Offload> offload;        // not given: nothing
  std::optional<Dispatcher> to_experts;  // not given: the faster
  GemmFormat format = GemmFormat::plain;
  double imbalance = 1;                // rows that the fullest rank's experts get, over the mean
  Guidance guidance = Guidance::none;  // else global_batch is two branches of each sequence

  /// Sequences that a replica works on at once, under guidance.
  [[nodiscard]] std::int64_t guided_batch(int replicas) const {
    return guidance == Guidance::apart ? *global_batch / 2 : *global_batch / replicas;
  }
};

/// What predicting takes of the machine that predicts.
struct Effort {
  double ops = 0;  // simulated or walked, and flows on the network; about a million a second
  Bytes memory{};
};

/// What a model's layers ask of attention beside their masks.
struct AttentionTraits {
  bool sinks = false;    // a logit of each head that takes its share of the softmax
  bool windows = false;  // layers that see a window only
  bool chunks = false;   // layers that see a chunk only, of which a sequence has several
  bool linear = false;   // layers of linear attention besides, which carry a state
  bool picks = false;    // an indexer picks each query's keys, among all
  bool shapes = false;   // layers whose heads are of another width
};

/// Of a call in a step: attention of layers of another kind, which the same plan splits.
struct AttentionBeside {
  Problem problem;
  double calls = 1;  // for each of the request's
};

struct Request {
  Problem problem;         // of one attention call
  AttentionTraits traits;  // likewise; a whole step's are its model's
  std::vector<AttentionBeside> beside;
  /// What the mask's documents were drawn from (LengthDistribution::parse): a sequence of another
  /// length has others. Empty: they were given.
  std::string drawn_documents;
  std::optional<Model> model;  // train and prefill need one
  StepPhase phase = StepPhase::forward_backward;
  const sim::Cluster* cluster = nullptr;
  const StackSpec* stack = nullptr;        // nothing: what the generation says (sp-plan itself)
  const StepPractice* practice = nullptr;  // of a step around attention; nothing: the default
  /// What has to run the plan: the search keeps what it can, and says by whose rule the rest is
  /// rejected. Nothing: any plan.
  const Framework* framework = nullptr;
  int year = 0;          // that the stack's kernels are of; 0: today's
  int gpus = 1;          // all that are used: of a call, the ranks of its sequence-parallel group
  int gpus_at_work = 1;  // of a call in a step: all of the step's, which share power and cooling
  FixedChoices fixed;
  StepChoices step;
  Bytes memory{};  // of one GPU that may be used
  BuildOptions build;
  FlopsConvention flops_convention = FlopsConvention::causal_halved;
  Objective objective = Objective::time;
  int top = 5;
  bool finds_ties = true;  // all plans that may tie with the fastest, beside the first `top`
  /// That a search may take.
  Effort most{.ops = std::numeric_limits<double>::infinity(), .memory = Bytes(INT64_MAX)};

  /// As many prompts as there are replicas are worked on, or batches of a training whose batch is
  /// not given, and what counts is how fast all are.
  [[nodiscard]] bool counts_replicas() const {
    return whole_step() && (phase == StepPhase::prefill || !step.global_batch) &&
           objective == Objective::tokens_per_s && step.guidance == Guidance::none;
  }
  /// From here on this software runs the plan; `problem` is set. It must outlive the request.
  void run_by(const StackSpec& software);
  /// A whole step of a model is asked, not one attention call.
  [[nodiscard]] bool whole_step() const {
    return phase == StepPhase::train || phase == StepPhase::prefill;
  }
};

/// A whole step's are its model's.
AttentionTraits traits_of(const Request& request);

/// Parts of a step whose errors are independent of each other; each has one relative spread.
enum class Component : std::uint8_t {
  attention,
  elementwise,
  gemm,
  intra_comm,
  inter_comm,
  launch,
  bubble  // idle for ranks that still compute: of a pipeline, or that have more to do
};
constexpr std::size_t components = 7;
std::string_view to_string(Component);
using ComponentSeconds = std::array<double, components>;

/// Time of the attention kernels of one measured block.
struct MeasuredTime {
  double seconds = 0;
  double standard_error = 0;  // of the block's measurement, relative
};
using MeasuredTimes = std::map<AttentionKey, MeasuredTime>;

struct Prediction {
  Seconds step{};
  Seconds low{}, high{};
  Seconds attention{};  // attention calls, communication and small kernels included
  Seconds compute{};    // kernels of the whole step
  Seconds exposed{}, hidden{};
  SentBytes sent;             // by a rank of `stage`
  int stage = 0;              // of the pipeline, whose rank works longest
  double tflops_per_gpu = 0;  // under the request's convention
  double mfu = 0;
  double tokens_per_s = 0;            // of the job
  MemoryBytes memory;                 // of the fullest rank
  std::vector<MemoryBytes> by_stage;  // of each pipeline stage's
  bool fits = true;
  std::int64_t max_seq = 0;  // longest sequence that this plan fits
  ComponentSeconds parts{};  // critical path, by component; sums up to step
  StepSeconds parts_s;       // the same by what was worked on or waited for
  MeasuredTimes measured;    // of the attention component: what rests on measured blocks
};

struct Candidate {
  StepPlan plan;                       // of one attention call: all degrees around it are 1
  const Strategy* strategy = nullptr;  // of its attention
  /// False: too large to be simulated. `predicted` then holds only memory and what no run can beat:
  /// the bound as step and interval, and the rates that follow from it.
  bool simulated = true;
  Prediction predicted;
  std::int64_t padding_tokens = 0;
  int padding_heads = 0;
  std::string bound_by;
  std::string why;  // one sentence against the runner-up
  /// Of the recommended plan: of a step each of its degrees against the nearest other, of an
  /// attention call whether heads are dealt out.
  std::vector<std::string> decisions;
  std::vector<std::string> lowering;  // algorithm by kind of communication
  /// Of a simulated attention call, by phase: what its buffers take while ops overlap, against one
  /// after the other.
  std::array<double, 2> overlap{1, 1};
};

struct Rejected {
  StepPlan plan;
  std::string rule, detail;
};

struct PlanResult {
  std::vector<Candidate> candidates;  // ranked, at most request.top; the first is recommended. If
                                      // nothing fits: the one that needs least, with fits = false
  int ties = 1;                       // plans within reach of the best, itself included
  std::vector<Rejected> rejected;     // one per strategy, degrees and rule
  std::int64_t searched = 0;          // legal plans
  std::int64_t simulated = 0;
  /// Not simulated although their bounds allow that they belong to the candidates: the search would
  /// have taken more than Request::most, or was given up.
  std::int64_t unsettled = 0;
  bool any_fits = true;
  double spent = 0;  // of Request::most.ops
};

/// Searches. A request without any legal plan gives an empty candidate list. `watch` is told the
/// ops spent of Request::most, without a limit the plans simulated of all; where it gives up, the
/// search ends with what it has.
PlanResult plan(const Request& request, const Watch& watch = {});

/// Why no plan can be made of a model. Empty: it can.
std::string not_planned(const Model& model);

/// One plan with everything that a report wants.
struct Evaluation {
  Candidate candidate;
  /// Of one attention call; of attention that no schedule holds (Model::indexer): nothing.
  std::optional<sim::Simulation> forward, backward;
};
struct EvaluationOptions {
  bool fold = true;  // ranks, and turns of a step
  bool timeline = false;
  bool steps = false;
  /// Of a layer or a step op by op: with the kernels and the host that its stack has; else as our
  /// own executor runs it.
  bool by_stack = true;
  const sim::Folding* folding = nullptr;  // of the plan's schedules, if the caller has it
  Watch watch{};  // told what simulations took (Simulation::work), of effort
};
/// What evaluate() will take; simulates nothing. `plan` must be legal.
Effort effort_of(const Request& request, const SequencePlan& plan,
                 const EvaluationOptions& options = {});
/// Simulates one legal plan (else InputError("plan", rule and detail)). `options.watch` must
/// not give up. max_seq is left out, which takes some thirty questions of memory.
Evaluation evaluate(const Request& request, const SequencePlan& plan,
                    const EvaluationOptions& options = {});
/// The same of a whole step, or of a bare call, with max_seq. Of a step `forward` and `backward`
/// are its first kind of layer's attention call on one tensor rank.
Evaluation evaluate(const Request& request, const StepPlan& plan,
                    const EvaluationOptions& options = {});
Effort effort_of(const Request& request, const StepPlan& plan,
                 const EvaluationOptions& options = {});

/// Why so many ranks cannot lie on the cluster in that order.
WhyNot why_not(RankOrder order, const sim::Cluster& cluster, int ranks);
/// Why a strategy does not have what a question of that phase runs of attention, whatever the plan.
WhyNot why_not(const Strategy& strategy, StepPhase phase);
/// The plan of an attention call as one of a step: all degrees around it are 1.
StepPlan bare_step(const Request& request, const SequencePlan& plan);

/// The plan of a step that `step` and `fixed` describe with defaults for the rest: degrees that are
/// not given are 1, the sequence's what is left of the GPUs. InputError(option) if there is none.
StepPlan default_step(const Request& request);

/// The plan that `fixed` describes with defaults for the rest: strategy by degrees (usp, ulysses,
/// zigzag-ring, startrail, …), zigzag under a causal mask, heads by what divides.
SequencePlan default_plan(const Request& request);

/// The same plan for attention of other heads in the same step: KV heads that divide are not
/// copied, though the others' are.
SequencePlan plan_beside(const Problem& beside, const Problem& problem, SequencePlan plan);

/// All legal plans of the request; `rejected` gets the others, one per strategy, degrees and rule.
std::vector<SequencePlan> legal_plans(const Request& request, std::vector<Rejected>* rejected);

/// Ranks of the groups of a plan, as they talk to each other.
std::vector<std::vector<int>> groups_of(const SequencePlan& plan, Axis axis);

/// Axes that a plan uses (size above 1), innermost first.
std::vector<Axis> axes_of(const SequencePlan& plan);

/// "usp U8xR8 zigzag (ulysses innermost)": how plans are named in tables and sentences.
std::string short_name(const SequencePlan& plan);
/// The beginning of it: strategy and degrees, where nothing else is decided.
std::string degrees_name(const SequencePlan& plan);
/// "TP4 PP2 DP8 usp U2xR4 zigzag": degrees above 1, and the attention between them.
std::string short_name(const StepPlan& plan);
/// "TP4 PP2 DP8": "" if all are 1.
std::string degrees_of(const StepPlan& plan);

/// What the step counts as, all GPUs, under the request's convention. A bare attention call has no
/// model-6N; it counts as causal-halved there.
FlopCount counted_flops(const Request& request);
/// The same of a batch of so many sequences.
FlopCount counted_flops(const Request& request, std::int64_t batch);

}  // namespace spp
