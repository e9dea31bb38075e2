// Neighbouring questions in one file: what may change, and in which order it is asked.
#include "cli/neighbours.hpp"

#include "base/error.hpp"
#include "cli/human.hpp"
#include "cli/limits.hpp"
#include "planner/packing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace spp::cli {
namespace {

/// A search that only asks whether anything fits may take so long.
constexpr double probe_seconds = 0.25;

/// Questions that are asked one behind the other, all together within a limit.
class Probes {
 public:
  /// `ops`: as of searches (Request::most), about a million a second.
  Probes(double ops, const Watch& watch) : most_(ops), watch_(watch) {}

  /// Of one question, whether anything fits; nothing: no, or it cannot be asked, or the limit is
  /// reached.
  std::optional<Candidate> ask(const Arguments& arguments) {
    ended_ = ended_ || spent_ >= most_ || !told_of(spent_);
    if (ended_) {
      return std::nullopt;
    }
    try {
      Job job = read_search(arguments, 1);
      job.request.most = search_limit(probe_seconds);
      PlanResult result =
          plan(job.request, [&](double done, double) { return told_of(spent_ + done); });
      // A search does not count what it takes to list its plans.
      constexpr double of_plan = 20;
      spent_ += result.spent + of_plan * static_cast<double>(result.searched);
      const bool known = !result.candidates.empty() &&
                         (result.candidates.front().simulated || !job.request.whole_step());
      if (!known || !result.any_fits) {
        return std::nullopt;
      }
      return std::move(result.candidates.front());
    } catch (const InputError&) {  // beside the question there may be what nobody can ask
      return std::nullopt;
    }
  }
  /// Questions were left, and nobody asked them.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  bool told_of(double done) const {
    return !watch_ || watch_(done, std::isfinite(most_) ? most_ : 0);
  }
  double most_;
  const Watch& watch_;
  double spent_ = 0;
  bool ended_ = false;
};

/// Kinds of changes, in words.
namespace kinds {
constexpr std::string_view saving = "what saves memory";
constexpr std::string_view degrees = "other degrees";
constexpr std::string_view batches = "larger global batches";
constexpr std::string_view gpus = "more GPUs";
constexpr std::string_view lengths = "other lengths";
}  // namespace kinds

struct Change {
  std::string_view kind;
  std::string what;
  Arguments arguments;
  int nodes = 0;  // above 0: so many instead of the asked ones
};

/// Options that fix a degree, as far as they are given.
std::vector<std::string_view> fixed_options(const Arguments& arguments) {
  std::vector<std::string_view> fixed;
  for (const std::string_view option : degree_options()) {
    if (arguments.has(option)) {
      fixed.push_back(option);
    }
  }
  if (arguments.has("zero-group")) {
    fixed.emplace_back("zero-group");
  }
  return fixed;
}

void add_savings(const Arguments& arguments, const Job& job, std::vector<Change>& changes) {
  const StepChoices& step = job.request.step;
  const bool zero = job.request.whole_step() && step.zero && *step.zero < 3;
  const bool recompute =
      job.request.phase == StepPhase::train && step.recompute && *step.recompute != Recompute::full;
  if (recompute) {
    changes.push_back({kinds::saving, "full recomputation", arguments.with("recompute", "full")});
  }
  if (zero) {
    changes.push_back({kinds::saving, "ZeRO 3", arguments.with("zero", "3")});
  }
  if (zero && recompute) {
    changes.push_back({kinds::saving, "ZeRO 3 and full recomputation",
                       arguments.with("zero", "3").with("recompute", "full")});
  }
}

/// More of the nodes that there are.
void add_gpus(const Arguments& arguments, const Job& job, const std::string& before,
              std::vector<Change>& changes) {
  const sim::Cluster* cluster = job.request.cluster;
  if (cluster == nullptr) {
    return;
  }
  const int all = cluster->nodes() * job.gpus_of_node;
  if (cluster->nodes() == 1) {
    constexpr int few = 16;  // up to so many, every number is tried
    for (int more = job.request.gpus + 1; more < all; more = more < few ? more + 1 : 2 * more) {
      changes.push_back({kinds::gpus, fmt::format("{}{} GPUs", before, more),
                         arguments.with("gpus", fmt::format("{}", more))});
    }
  }
  if (job.request.gpus < all) {
    changes.push_back(
        {kinds::gpus, fmt::format("{}{} GPUs", before, all), arguments.without("gpus")});
  }
}

void add_nodes(const Arguments& arguments, const Job& job, const std::string& before,
               std::vector<Change>& changes) {
  const sim::Cluster* cluster = job.request.cluster;
  if (cluster == nullptr || !cluster->machine().inter) {
    return;
  }
  const int nodes = cluster->nodes();
  const Arguments whole = arguments.without("gpus");
  // By one more, whose number may divide better.
  changes.push_back({kinds::gpus, fmt::format("{}{} nodes", before, nodes + 1),
                     whole.with("nodes", fmt::format("{}", nodes + 1))});
  constexpr int most_times = 64;
  for (int times = 2; times <= most_times; times *= 2) {
    changes.push_back({.kind = kinds::gpus,
                       .what = fmt::format("{}{} nodes", before, nodes * times),
                       .arguments = whole.with("nodes", fmt::format("{}", nodes * times)),
                       .nodes = nodes * times});
  }
}

/// Global batches next above the asked one, of which more replicas get equal parts.
void add_batches(const Arguments& arguments, const Job& job, std::vector<Change>& changes) {
  const std::int64_t asked = job.request.step.global_batch.value_or(0);
  std::set<std::int64_t> above;
  for (std::int64_t replicas = 2; asked > 0 && replicas <= job.request.gpus; ++replicas) {
    if (job.request.gpus % replicas == 0 && asked % replicas != 0) {
      above.insert((asked + replicas - 1) / replicas * replicas);
    }
  }
  constexpr int most = 3;
  int tried = 0;
  for (const std::int64_t batch : above) {
    if (tried++ < most && batch < 2 * asked) {
      changes.push_back({kinds::batches, fmt::format("a global batch of {}", batch),
                         arguments.with("global-batch", fmt::format("{}", batch))});
    }
  }
}

/// The least to move first.
void add_offloads(const Arguments& arguments, const std::string& before,
                  std::vector<Change>& changes) {
  for (const auto& [offload, what] :
       {std::pair("activations", "activations"), std::pair("optimizer", "the optimizer's states"),
        std::pair("all", "activations and the optimizer's states")}) {
    changes.push_back({kinds::saving, fmt::format("{}{} in the host's memory", before, what),
                       arguments.with("offload", offload)});
  }
}

/// Between half of so many nodes, which do not, and all, which do: the fewest found to fit.
std::pair<Change, Candidate> fewest_nodes(Change change, Candidate best, Probes& probes) {
  int low = change.nodes / 2;
  const std::string before =
      change.what.substr(0, change.what.find(fmt::format("{} nodes", change.nodes)));
  constexpr int close = 8;  // of the nodes: a part
  while (change.nodes - low > std::max(1, change.nodes / close)) {
    const int middle = (low + change.nodes) / 2;
    Change fewer{.kind = change.kind,
                 .what = fmt::format("{}{} nodes", before, middle),
                 .arguments = change.arguments.with("nodes", fmt::format("{}", middle)),
                 .nodes = middle};
    if (auto fits = probes.ask(fewer.arguments)) {
      change = std::move(fewer);
      best = std::move(*fits);
    } else {
      low = middle;
    }
  }
  return {std::move(change), std::move(best)};
}

/// Of a training step, the same sequences in more micro-batches.
void add_smaller_batches(const Arguments& arguments, const Job& job, std::vector<Change>& changes) {
  const std::int64_t asked = job.request.problem.batch;
  const bool train = job.request.phase == StepPhase::train;
  for (std::int64_t batch = asked / 2; arguments.has("batch") && batch >= 1; batch /= 2) {
    Arguments smaller = arguments.with("batch", fmt::format("{}", batch));
    if (train && asked % batch == 0 && !arguments.has("global-batch")) {
      smaller = smaller.with("global-batch", fmt::format("{}", asked));
    }
    changes.push_back({kinds::saving,
                       fmt::format("{} of {}", train ? "micro-batches" : "a batch", batch),
                       std::move(smaller)});
  }
}

/// The nearest first.
std::vector<Change> changes_of(const Arguments& arguments, const Job& job) {
  std::vector<Change> changes;
  add_savings(arguments, job, changes);
  add_smaller_batches(arguments, job, changes);
  const std::vector<std::string_view> fixed = fixed_options(arguments);
  for (const std::string_view option : fixed) {
    changes.push_back(
        {kinds::degrees, fmt::format("without --{}", option), arguments.without(option)});
  }
  Arguments open = arguments;
  for (const std::string_view option : fixed) {
    open = open.without(option);
  }
  if (fixed.size() > 1) {
    changes.push_back({kinds::degrees, "no degree fixed", open});
  }
  // From here on all that saves memory is allowed.
  const std::string degrees_open = open.line();
  for (const std::string_view option : {"zero", "recompute"}) {
    open = open.without(option);
  }
  if (open.line() != degrees_open) {
    changes.push_back({kinds::degrees, "nothing fixed", open});
  }
  const bool train = job.request.phase == StepPhase::train;
  add_batches(arguments, job, changes);
  if (train && !arguments.has("offload")) {
    add_offloads(arguments, "", changes);
  }
  add_gpus(arguments, job, "", changes);
  // As engines round any checkpoint when they load it.
  if (job.request.phase == StepPhase::prefill && !arguments.has("gemm-format")) {
    changes.push_back({kinds::saving, "weights in fp8", arguments.with("gemm-format", "fp8")});
  }
  add_nodes(arguments, job, "", changes);
  if (train && job.request.gpus > 1 &&
      !arguments.has("global-batch")) {  // that data parallelism can split
    changes.push_back({kinds::batches, fmt::format("a global batch of {}", job.request.gpus),
                       arguments.with("global-batch", fmt::format("{}", job.request.gpus))});
  }
  if (open.line() != arguments.line()) {
    if (train && !arguments.has("offload")) {
      add_offloads(open, "nothing fixed, ", changes);
    }
    add_gpus(open, job, "nothing fixed, ", changes);
    add_nodes(open, job, "nothing fixed, ", changes);
  }
  return changes;
}

/// Where the asked sequence is too short: a longer one that is legal, and no longer than `most`;
/// else that.
std::int64_t shortest_beyond(const Arguments& arguments, const Job& job, std::int64_t most,
                             Probes& probes) {
  const std::int64_t pieces = 2 * std::int64_t{job.request.gpus};
  const std::int64_t asked = job.request.problem.seq;
  for (std::int64_t seq = (asked + pieces - 1) / pieces * pieces; asked < most && seq < most;
       seq *= 2) {
    if (probes.ask(arguments.with("seq", fmt::format("{}", seq)))) {
      return seq;
    }
  }
  return most;
}

/// To 1/512; 0: none fits.
std::int64_t longest_of(const Arguments& arguments, Probes& probes) {
  constexpr std::int64_t k = 1024;
  constexpr std::int64_t most = std::int64_t{1} << 31;
  // What is wrong with the other options is said, not taken for a sequence that does not fit.
  const Job job = read_search(arguments.with("seq", "1M"), 1);
  // Lengths that all frameworks take: multiples of two pieces a GPU.
  const std::int64_t pieces = 2 * std::int64_t{job.request.gpus};
  const std::int64_t unit = pieces * ((k + pieces - 1) / pieces);
  const auto fits = [&](std::int64_t seq) {
    return probes.ask(arguments.with("seq", fmt::format("{}", seq)));
  };
  std::int64_t low = 0;
  std::int64_t high = unit;
  for (auto best = fits(high); best; best = high > most ? std::nullopt : fits(high)) {
    low = high;
    high = std::max(2 * low, best->predicted.max_seq / unit * unit);
  }
  while (low > 0 && high - low > std::max(unit, low / 512 / unit * unit)) {
    const std::int64_t middle = (low + high) / 2 / unit * unit;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

Neighbour neighbour(const std::string& change, const Arguments& arguments, Candidate best) {
  return {.change = change,
          .command = fmt::format("sp-plan plan {}", arguments.line()),
          .best = std::move(best)};
}

/// The next smaller number of GPUs that fills whole nodes, or lies in one, and that deals out the
/// heads evenly.
int next_even(const Request& request, int per_node) {
  const int heads = request.problem.q_heads;
  int gpus = request.gpus - 1;
  while (gpus > 1 &&
         !((gpus < per_node || gpus % per_node == 0) && (heads % gpus == 0 || gpus % heads == 0))) {
    --gpus;
  }
  return gpus;
}

/// Numbers of GPUs on which a step may be faster: such as deal out nodes and heads evenly where it
/// does not, and one node where it waits much of the time: for the network, and where one batch
/// passes a pipeline, for other stages.
std::vector<int> fewer_gpus(const Job& job, const Candidate& best) {
  const Request& request = job.request;
  const int per_node = job.gpus_of_node;
  const HeadPolicy heads = best.plan.attention.heads;
  std::vector<int> numbers;
  if ((request.gpus > per_node && request.gpus % per_node != 0) || heads == HeadPolicy::pad ||
      heads == HeadPolicy::uneven) {
    numbers.push_back(next_even(request, per_node));
    const int whole_nodes = request.gpus / per_node * per_node;
    if (whole_nodes > 0 && whole_nodes < request.gpus && whole_nodes != numbers.back()) {
      numbers.push_back(whole_nodes);
    }
  }
  constexpr double much = 1.0 / 3;
  const auto part = [&](Component c) { return best.predicted.parts[static_cast<std::size_t>(c)]; };
  const double waits = part(Component::inter_comm) +
                       (request.phase == StepPhase::prefill ? part(Component::bubble) : 0.0);
  if (request.gpus > per_node && waits > much * best.predicted.step.count() &&
      std::ranges::find(numbers, per_node) == numbers.end()) {
    numbers.push_back(per_node);
  }
  return numbers;
}

}  // namespace

Neighbours first_that_fits(const Arguments& arguments, const Job& job, const Watch& watch) {
  Probes probes(job.request.most.ops, watch);
  Neighbours result;
  const auto asks = [&](std::string_view kind) {
    if (std::ranges::find(result.tried, kind) == result.tried.end()) {
      result.tried.push_back(kind);
    }
  };
  const auto found = [&](const std::string& what, const Arguments& asked, Candidate best) {
    result.first = neighbour(what, asked, std::move(best));
    return result;
  };
  // Where no length fits, one has to: the shortest.
  const bool any_length = arguments.get("seq", "") == "max";
  for (const Change& change : changes_of(arguments, job)) {
    auto best = probes.ask(any_length ? change.arguments.with("seq", "1K") : change.arguments);
    if (probes.ended()) {
      break;
    }
    asks(change.kind);
    if (best && change.nodes > 0 && !any_length) {
      const auto [fewest, cheapest] = fewest_nodes(change, std::move(*best), probes);
      return found(fewest.what, fewest.arguments, cheapest);
    }
    if (best) {
      return found(change.what, change.arguments, std::move(*best));
    }
  }
  // Documents that are listed add up to one length alone.
  const auto documents = arguments.find("documents");
  const bool one_length = documents && !LengthDistribution::is_meant(*documents);
  if (!any_length && !one_length && !probes.ended()) {
    asks(kinds::lengths);
    if (std::int64_t seq = longest_of(arguments, probes); seq > 0) {
      seq = std::min(seq, shortest_beyond(arguments, job, seq, probes));
      const Arguments shorter = arguments.with("seq", fmt::format("{}", seq));
      if (auto best = probes.ask(shorter)) {
        return found(fmt::format("{} tokens", human_count(seq)), shorter, std::move(*best));
      }
    }
  }
  result.ended = probes.ended();
  return result;
}

std::optional<Neighbour> faster_on_fewer(const Arguments& arguments, const Job& job,
                                         const PlanResult& result, const Watch& watch) {
  const Candidate& best = result.candidates.front();
  if (job.request.gpus == 1 || job.request.objective != Objective::time ||
      arguments.get("seq", "") == "max") {
    return std::nullopt;
  }
  Probes probes(job.request.most.ops - result.spent, watch);
  std::optional<Neighbour> fastest;
  for (const int gpus : fewer_gpus(job, best)) {
    const Arguments fewer = arguments.without("nodes").with("gpus", fmt::format("{}", gpus));
    auto found = probes.ask(fewer);
    if (found &&
        found->predicted.step < (fastest ? fastest->best.predicted.step : best.predicted.step)) {
      fastest = neighbour(fmt::format("{} GPUs", gpus), fewer, std::move(*found));
    }
  }
  return fastest;
}

std::int64_t longest_that_fits(const Arguments& arguments, const Watch& watch) {
  Probes probes(std::numeric_limits<double>::infinity(), watch);
  return longest_of(arguments, probes);
}

}  // namespace spp::cli
