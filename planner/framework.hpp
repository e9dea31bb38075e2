// A framework: software that people start already, as far as it decides which plans can be run and
// how they are asked for. One file each in planner/export/, listed in planner/CMakeLists.txt, from
// which the table `frameworks::all()` is generated.
//
// What a framework can is data: its ways of splitting attention, each with the plans of ours that
// it is, and rules for heads, lengths, ranks and the step around. cannot() alone reads them, for
// the search (legal.cpp) and for export alike; emit() only writes what nothing forbids.
#pragma once

#include "planner/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// Everything that a launch says: a plan, the step around it, the work and the machine.
struct Launch {
  SequencePlan attention;  // of one tensor rank's heads
  int tp = 1, pp = 1, dp = 1, ep = 1, etp = 1;
  Dispatcher to_experts = Dispatcher::all_to_all;
  int cfg = 1;  // groups of GPUs that compute the branches of a guided denoising step
  int virtual_stages = 1;
  std::string order;  // of micro-batches in the pipeline
  std::int64_t micro_batches = 1;
  bool tensor_sequence = true;
  int zero = 0;
  int shard_copies = 1;  // data ranks are so many groups, each with all shards
  Recomputation recompute;
  Offload offload = Offload::none;
  double offloaded = 1;  // part of the activations that moves, if they do
  GemmFormat format = GemmFormat::plain;
  bool wide_attention = false;  // the projections around attention stay in 16 bits
  StepPhase phase = StepPhase::train;
  Problem problem;               // batch: the micro-batch
  AttentionTraits traits;        // of the model's layers
  const Model* model = nullptr;  // nothing: a bare attention shape
  int nodes = 1;
  int gpus_per_node = 1;
  [[nodiscard]] int context() const { return attention.ranks(); }
  [[nodiscard]] int world() const { return tp * pp * dp * cfg * context(); }
  [[nodiscard]] std::int64_t global_batch() const { return problem.batch * dp * micro_batches; }
  /// Data ranks that shards are cut over.
  [[nodiscard]] int shard_data() const { return dp / shard_copies; }
};
/// Without a cluster in the request: one node with all GPUs.
Launch launch_of(const Request& request, const Candidate& candidate);

/// A piece of text to paste or to save.
struct Block {
  std::string_view language;  // "bash", "yaml", "json", "python"
  std::string file;           // where others of the blocks expect it; "": pasted
  std::string text;           // ends with a newline
};
struct Variable {
  std::string name, value;  // no value: must not be set
  std::string why;
};
/// What of a launch, beside its degrees and its attention (which are said or refused), a text says,
/// or its framework does by itself. The rest is noted where a plan has it (unsaid).
struct Says {
  bool seq = false, cached = false;
  bool batch = false, micro_batches = false;
  bool dtype = false;      // any; bf16 nobody has to say
  bool full_mask = false;  // where the framework has another one, too
  bool window = false;     // of all layers; of some they are the model's
  bool documents = false;  // where packed documents end
  bool layers = false;     // what attention in the model's layers has: sinks, windows
  bool zero = false, recompute = false;
  bool offload_optimizer = false, offload_activations = false;
  bool format = false;
  // Megatron's sequence parallelism between tensor ranks, where the plan has it, and that there is
  // none, where it does not.
  bool sequence_parallel = false, no_sequence_parallel = false;
  bool virtual_stages = false;
  bool nodes = false;
};
struct Snippet {
  std::vector<Block> blocks;
  std::vector<Variable> environment;  // set by the first bash block, if there is one
  std::vector<std::string> notes;     // what the text does not say, a sentence each
  Says says;
};
/// What of a launch a text does not say, in words: "8 micro-batches", "ZeRO 3".
std::vector<std::string> unsaid(const Launch& launch, const Says& says);

/// What of a plan a framework cannot run, and who says so.
struct Cannot {
  std::string rule;  // "framework": it does not have the strategy; "axes", "layout", "order",
                     // "heads", "degrees", "sequence", "rank-order", "mask", "sinks", "window",
                     // "phase", "model", "nodes", "linear", "cached", "batch", "dtype", "zero",
                     // "zero-group", "recompute"; of a step: "tensor", "mlp", "data", "pipeline",
                     // "expert"
  std::string what;  // "megatron deals tokens out zigzag, not striped"
  std::string source;
};

/// Which axis has adjacent ranks where both degrees are above 1.
enum class Inner : std::uint8_t { any, ulysses, ring };

/// One way in which a framework splits attention: which of our plans it is.
struct Way {
  std::string_view name;      // the framework's word: "a2a+p2p"
  std::string_view strategy;  // ours
  std::string_view source;
  std::span<const Layout> layouts{};  // under a mask (without one all do the same); empty: any
  std::span<const Layout> packed{};   // of packed documents; empty: as above
  bool both = true;                   // Ulysses and ring degrees above 1 at once
  Inner inner = Inner::any;
  int unit = 0;  // tokens of a sequence are a multiple of this many a rank; 0: it pads
  // Over several ranks its kernels take no attention sinks, no sliding windows.
  bool no_sinks = false, no_windows = false;
  bool no_documents = false;  // no packed documents either
  bool no_shard_copies = false;
  bool no_tensor = false;  // nor any tensor parallelism beside it
  bool no_data = false;    // nor replicas
  bool one_width = false;  // heads of q, k and v are as wide, in all layers
};

/// What is allowed, and who says so. Empty: anything.
template <class T>
struct Allowed {
  std::span<const T> values{};
  std::string_view source{};
  [[nodiscard]] bool has(const T& value) const {
    return values.empty() || std::ranges::find(values, value) != values.end();
  }
};

/// Over which ranks a framework splits experts, whole ones or parts of them: any; all of a replica;
/// all of a stage, then one or the other; or whole groups that share a sequence, with parts over
/// the tensor ranks of each, or whole over these, too.
enum class ExpertRanks : std::uint8_t { any, replica, stage, whole_groups };

/// Which numbers of layers a framework deals out to a pipeline: those that plans do; as many to
/// every virtual stage; or as many to each chunk, of which every rank has one layer at least.
enum class DealtLayers : std::uint8_t { as_planned, even_stages, even_chunks };

/// Degrees around attention that a framework has.
struct FrameworkAxes {
  bool tensor = false, pipeline = false, expert = false;
  bool kv_copies = false;  // more tensor ranks than KV heads, of which they hold copies
  bool data = true;
  std::span<const std::string_view> orders{};  // of micro-batches in a pipeline, in training
  DealtLayers layers = DealtLayers::as_planned;
  ExpertRanks expert_ranks = ExpertRanks::any;
  std::string_view expert_source{};  // of whole_groups
  /// How tokens come to experts without further packages, its default first; empty: as the stack
  /// does.
  std::span<const Dispatcher> dispatchers{};
  bool guidance = false;      // the branches of a guided denoising step on GPUs of their own
  bool shard_copies = false;  // ZeRO's shards over some of the data ranks, the others have copies
  /// Who says that tensor ranks and stages have weights that are cut over other ranks, too; "":
  /// they need not.
  std::string_view cut_weights{};
  /// Who says that copies beside tensor or sequence ranks are of shards over several data ranks.
  std::string_view cut_copies{};

  [[nodiscard]] bool has_order(std::string_view order) const {
    return std::ranges::find(orders, order) != orders.end();
  }
  [[nodiscard]] bool deals_out(std::int64_t count, int ranks, int chunks) const {
    switch (layers) {
      case DealtLayers::as_planned:
        return true;
      case DealtLayers::even_stages:
        return count % (std::int64_t{ranks} * chunks) == 0;
      case DealtLayers::even_chunks:
        return count % chunks == 0 && count / chunks >= ranks;
    }
    return false;
  }
  /// As many as experts are split over; 0: as many as a plan likes.
  [[nodiscard]] int expert_ranks_of(int tensor_ranks, int sequence, int data_ranks) const {
    const bool all = expert_ranks == ExpertRanks::replica || expert_ranks == ExpertRanks::stage;
    return all ? tensor_ranks * sequence * (expert_ranks == ExpertRanks::stage ? data_ranks : 1)
               : 0;
  }
  /// Parts that an expert may be in, the usual one first, where these are in so many groups.
  [[nodiscard]] std::vector<int> parts_of_expert(int groups, int tensor_ranks, int sequence,
                                                 int data_ranks) const {
    if (const int ranks = expert_ranks_of(tensor_ranks, sequence, data_ranks); ranks > 0) {
      return {std::max(1, ranks / groups)};
    }
    if (expert_ranks != ExpertRanks::whole_groups || tensor_ranks == 1) {
      return {1};
    }
    return expert == 1 ? std::vector<int>{tensor_ranks} : std::vector<int>{1, tensor_ranks};
  }
};

/// A family of diffusion transformers (transformer/diffusion_family.hpp), by its name there.
struct FrameworkFamily {
  std::string_view name;
  bool shards = true;    // its weights are cut, where the framework does that
  bool guidance = true;  // branches on GPUs of their own, where the framework has that
};

/// Tokens of a sequence are a multiple of so many for each rank that has some of them: the
/// sequence's, and tensor ranks that cut them between GEMMs. 0: of none.
struct TokenUnit {
  int tokens = 0;
  std::string_view source{};
};

struct Framework {
  std::string_view name;
  std::string_view title;
  std::span<const std::string_view> aliases{};
  std::string_view checked;  // the version whose keys are written, and where they were read
  /// The stack (topologies/stacks/) that says what it costs; "": none does.
  std::string_view stack{};
  std::span<const Way> ways;
  bool trains = true, infers = false;
  Allowed<MaskKind> masks{};
  Allowed<HeadPolicy> heads{};
  Allowed<int> zero{};             // stages; weights alone in inference: empty is none there
  Allowed<Recompute> recompute{};  // in training
  ModuleSet modules{};             // that selective recomputation may name
  FrameworkAxes axes{};
  std::optional<ModelKind> models{};            // of this kind alone; nothing: of any
  std::span<const FrameworkFamily> families{};  // of diffusion transformers these; empty: any
  TokenUnit unit{};
  /// Who says that it starts as many processes on every node; "": any number on the last one.
  std::string_view even_nodes{};
  /// Who says that all its processes are of one node; "": of any.
  std::string_view one_node{};
  /// Who says that it splits MLPs over tensor x sequence ranks; "": over tensor ranks, as plans do.
  std::string_view mlp_over_all{};
  /// Who says that attention between sequence ranks takes tensors of 16 bits alone; "": of any
  /// type.
  std::string_view half_attention{};
  /// The text names a model, whose layers the framework knows: hybrid ones, too, but tokens of
  /// their linear attention it does not split over ranks.
  bool loads_models = false;
  bool writes_heads = false;  // the text says how many heads there are and how wide: of one shape
  bool places_ranks = false;  // the caller makes the groups: any rank order; else node by node
  /// What only this framework forbids, of attention and of a step; a `what` of "" if nothing.
  Cannot (*also)(const SequencePlan&, const Problem&) = nullptr;
  Cannot (*also_step)(const Request&, const StepPlan&) = nullptr;
  Snippet (*emit)(const Launch&, const Way&);

  [[nodiscard]] bool has_zero(int stage, StepPhase phase) const {
    return phase == StepPhase::train || trains
               ? zero.has(stage)
               : stage == 0 || (!zero.values.empty() && zero.has(stage));
  }
  [[nodiscard]] bool recomputes(const Recomputation& how) const {
    return recompute.has(how.kind) &&
           (how.kind != Recompute::selective || how.modules.common(modules) == how.modules);
  }
};

namespace frameworks {
/// All frameworks, in the order of planner/CMakeLists.txt. Generated.
std::span<const Framework* const> all();
/// By name or alias, in any case; else an InputError(where) with "did you mean".
const Framework& by_name(std::string_view name, std::string_view where);
}  // namespace frameworks

/// That a strategy is none of the framework's ways. On one rank any will do.
Cannot no_way(const Framework& framework, std::string_view strategy);
/// What the framework cannot run of an attention plan: the reasons against the way that has
/// fewest. Empty: it can.
std::vector<Cannot> cannot(const Framework& framework, const SequencePlan& plan,
                           const Problem& problem, const AttentionTraits& traits = {});
/// What it cannot whatever the plan: the phase, the mask, layers of linear attention, and with no
/// way out the request's ZeRO stage and recomputation.
std::vector<Cannot> cannot(const Framework& framework, const Request& request);
/// Both, and the candidate's ZeRO stage and recomputation.
std::vector<Cannot> cannot(const Framework& framework, const Request& request,
                           const Candidate& candidate);

/// A plan as a framework takes it; or, where it cannot, the fastest plan that it can run.
struct Exported {
  const Framework* framework = nullptr;
  std::vector<Cannot> cannot;      // of the plan that was wanted
  std::optional<Candidate> shown;  // whose snippet it is: the wanted plan, or the nearest; nothing:
                                   // no plan of this request that the framework can run is known
  std::optional<double> loss;  // time of the nearest over that of the wanted plan, less 1; nothing:
                               // not known, it does not fit, or it is shown
  Snippet snippet;
};
/// The nearest is searched with what the request fixes, and if nothing is left, with all open; not
/// without a cluster.
Exported exported(const Framework& framework, const Request& request, const Candidate& wanted,
                  const Watch& watch = {});

}  // namespace spp
