#include "cli/neighbours.hpp"

#include "base/error.hpp"
#include "cli/human.hpp"
#include "cli/limits.hpp"
#include "planner/packing.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace spp::cli {
namespace {

/// A search that only asks whether anything fits may take so long.
constexpr double probe_seconds = 0.25;

/// Of one question, whether anything fits; nothing: no, or it cannot be asked.
std::optional<Candidate> probe(const Arguments& arguments, const Watch& watch) {
  try {
    Job job = read_search(arguments, 1);
    job.request.most = search_limit(probe_seconds);
    PlanResult result = plan(job.request, watch);
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

struct Change {
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
  return fixed;
}

void add_savings(const Arguments& arguments, const Job& job, std::vector<Change>& changes) {
  const StepChoices& step = job.request.step;
  const bool zero = job.request.whole_step() && step.zero && *step.zero < 3;
  const bool recompute =
      job.request.phase == StepPhase::train && step.recompute && *step.recompute != Recompute::full;
  if (recompute) {
    changes.push_back({"full recomputation", arguments.with("recompute", "full")});
  }
  if (zero) {
    changes.push_back({"ZeRO 3", arguments.with("zero", "3")});
  }
  if (zero && recompute) {
    changes.push_back(
        {"ZeRO 3 and full recomputation", arguments.with("zero", "3").with("recompute", "full")});
  }
}

/// More of the nodes that there are.
void add_gpus(const Arguments& arguments, const Job& job, const std::string& before,
              std::vector<Change>& changes) {
  const sim::Cluster* cluster = job.request.cluster;
  if (cluster == nullptr) {
    return;
  }
  const int all = cluster->nodes() * cluster->gpus_per_node();
  if (cluster->nodes() == 1) {
    constexpr int few = 16;  // up to so many, every number is tried
    for (int gpus = job.request.gpus + 1; gpus < all; gpus = gpus < few ? gpus + 1 : 2 * gpus) {
      changes.push_back({fmt::format("{}{} GPUs", before, gpus),
                         arguments.with("gpus", fmt::format("{}", gpus))});
    }
  }
  if (job.request.gpus < all) {
    changes.push_back({fmt::format("{}{} GPUs", before, all), arguments.without("gpus")});
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
  changes.push_back({fmt::format("{}{} nodes", before, nodes + 1),
                     whole.with("nodes", fmt::format("{}", nodes + 1))});
  constexpr int most_times = 64;
  for (int times = 2; times <= most_times; times *= 2) {
    changes.push_back({.what = fmt::format("{}{} nodes", before, nodes * times),
                       .arguments = whole.with("nodes", fmt::format("{}", nodes * times)),
                       .nodes = nodes * times});
  }
}

/// Global batches next above the asked one, of which more replicas get equal parts.
void add_batches(const Arguments& arguments, const Job& job, std::vector<Change>& changes) {
  const std::int64_t asked = job.request.step.global_batch.value_or(0);
  std::set<std::int64_t> batches;
  for (std::int64_t replicas = 2; asked > 0 && replicas <= job.request.gpus; ++replicas) {
    if (job.request.gpus % replicas == 0 && asked % replicas != 0) {
      batches.insert((asked + replicas - 1) / replicas * replicas);
    }
  }
  constexpr int most = 3;
  int tried = 0;
  for (const std::int64_t batch : batches) {
    if (tried++ < most && batch < 2 * asked) {
      changes.push_back({fmt::format("a global batch of {}", batch),
                         arguments.with("global-batch", fmt::format("{}", batch))});
    }
  }
}

/// Between half of so many nodes, which do not, and all, which do: the fewest found to fit.
std::pair<Change, Candidate> fewest_nodes(Change change, Candidate best, const Watch& watch) {
  int low = change.nodes / 2;
  const std::string before =
      change.what.substr(0, change.what.find(fmt::format("{} nodes", change.nodes)));
  constexpr int close = 8;  // of the nodes: a part
  while (change.nodes - low > std::max(1, change.nodes / close)) {
    const int middle = (low + change.nodes) / 2;
    Change fewer{.what = fmt::format("{}{} nodes", before, middle),
                 .arguments = change.arguments.with("nodes", fmt::format("{}", middle)),
                 .nodes = middle};
    if (auto fits = probe(fewer.arguments, watch)) {
      change = std::move(fewer);
      best = std::move(*fits);
    } else {
      low = middle;
    }
  }
  return {std::move(change), std::move(best)};
}

/// The nearest first.
std::vector<Change> changes_of(const Arguments& arguments, const Job& job) {
  std::vector<Change> changes;
  add_savings(arguments, job, changes);
  if (arguments.has("batch") && arguments.get("batch", "") != "1") {
    changes.push_back({"micro-batches of 1", arguments.with("batch", "1")});
  }
  const std::vector<std::string_view> fixed = fixed_options(arguments);
  for (const std::string_view option : fixed) {
    changes.push_back({fmt::format("without --{}", option), arguments.without(option)});
  }
  Arguments open = arguments;
  for (const std::string_view option : fixed) {
    open = open.without(option);
  }
  if (fixed.size() > 1) {
    changes.push_back({"no degree fixed", open});
  }
  // From here on all that saves memory is allowed.
  const std::string degrees_open = open.line();
  for (const std::string_view option : {"zero", "recompute"}) {
    open = open.without(option);
  }
  if (open.line() != degrees_open) {
    changes.push_back({"nothing fixed", open});
  }
  const bool train = job.request.phase == StepPhase::train;
  add_batches(arguments, job, changes);
  add_gpus(arguments, job, "", changes);
  // As engines round any checkpoint when they load it.
  if (job.request.phase == StepPhase::prefill && !arguments.has("gemm-format")) {
    changes.push_back({"weights in fp8", arguments.with("gemm-format", "fp8")});
  }
  add_nodes(arguments, job, "", changes);
  if (train && !arguments.has("global-batch")) {  // that data parallelism can split
    changes.push_back({fmt::format("a global batch of {}", job.request.gpus),
                       arguments.with("global-batch", fmt::format("{}", job.request.gpus))});
  }
  if (train && !arguments.has("offload")) {
    changes.push_back(
        {"the optimizer's states in the host's memory", arguments.with("offload", "optimizer")});
  }
  if (open.line() != arguments.line()) {
    add_gpus(open, job, "nothing fixed, ", changes);
    add_nodes(open, job, "nothing fixed, ", changes);
  }
  return changes;
}

/// Where the asked sequence is too short: a longer one that is legal, and no longer than `most`;
/// else that.
std::int64_t shortest_beyond(const Arguments& arguments, const Job& job, std::int64_t most,
                             const Watch& watch) {
  const std::int64_t pieces = 2 * std::int64_t{job.request.gpus};
  const std::int64_t asked = job.request.problem.seq;
  for (std::int64_t seq = (asked + pieces - 1) / pieces * pieces; asked < most && seq < most;
       seq *= 2) {
    if (probe(arguments.with("seq", fmt::format("{}", seq)), watch)) {
      return seq;
    }
  }
  return most;
}

}  // namespace

std::optional<Neighbour> first_that_fits(const Arguments& arguments, const Job& job,
                                         const Watch& watch) {
  const auto found = [](const std::string& what, const Arguments& asked, Candidate best) {
    return Neighbour{.change = what,
                     .command = fmt::format("sp-plan plan {}", asked.line()),
                     .best = std::move(best)};
  };
  // Where no length fits, one has to: the shortest.
  const bool longest = arguments.get("seq", "") == "max";
  for (const Change& change : changes_of(arguments, job)) {
    auto best = probe(longest ? change.arguments.with("seq", "1K") : change.arguments, watch);
    if (best && change.nodes > 0 && !longest) {
      const auto [fewest, cheapest] = fewest_nodes(change, std::move(*best), watch);
      return found(fewest.what, fewest.arguments, cheapest);
    }
    if (best) {
      return found(change.what, change.arguments, std::move(*best));
    }
  }
  // Documents that are listed add up to one length alone.
  const auto documents = arguments.find("documents");
  if (longest || (documents && !LengthDistribution::is_meant(*documents))) {
    return std::nullopt;
  }
  if (std::int64_t seq = longest_that_fits(arguments, watch); seq > 0) {
    seq = std::min(seq, shortest_beyond(arguments, job, seq, watch));
    const Arguments shorter = arguments.with("seq", fmt::format("{}", seq));
    if (auto best = probe(shorter, watch)) {
      return found(fmt::format("{} tokens", human_count(seq)), shorter, std::move(*best));
    }
  }
  return std::nullopt;
}

std::int64_t longest_that_fits(const Arguments& arguments, const Watch& watch) {
  constexpr std::int64_t k = 1024;
  constexpr std::int64_t most = std::int64_t{1} << 31;
  // What is wrong with the other options is said, not taken for a sequence that does not fit.
  const Job job = read_search(arguments.with("seq", "1M"), 1);
  // Lengths that all frameworks take: multiples of two pieces a GPU.
  const std::int64_t pieces = 2 * std::int64_t{job.request.gpus};
  const std::int64_t unit = pieces * ((k + pieces - 1) / pieces);
  const auto fits = [&](std::int64_t seq) {
    return probe(arguments.with("seq", fmt::format("{}", seq)), watch);
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

}  // namespace spp::cli
