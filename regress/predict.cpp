// Which software and which cluster a point was measured with; then its scope answers
// (predict_attention.cpp, predict_step.cpp, predict_kernel.cpp).
#include "regress/predict.hpp"

#include "base/error.hpp"
#include "regress/inference.hpp"
#include "regress/point_answer.hpp"
#include "regress/point_metric.hpp"
#include "sim/thinned.hpp"

#include <algorithm>

namespace spp::regress {
namespace {

/// An assumption, and how many points it was made for.
struct Tally {
  Assumption said;
  std::size_t points = 0;
};

void add(std::vector<Tally>& tallies, const Assumption& a) {
  auto at = std::ranges::find_if(
      tallies, [&](const Tally& t) { return t.said.what == a.what && t.said.value == a.value; });
  if (at == tallies.end()) {
    at = tallies.insert(at, {.said = a});
  }
  ++at->points;
}

/// What was not assumed for all of a file's points says for how many.
std::vector<Assumption> said_of(const std::vector<Tally>& tallies, std::size_t points) {
  std::vector<Assumption> said;
  for (const Tally& t : tallies) {
    said.push_back(t.said);
    if (t.points < points) {
      said.back().value += fmt::format(" ({} of {} points)", t.points, points);
    }
  }
  return said;
}

/// Capacities fix how many tokens an expert gets; HybridEP counts them in its kernels.
bool counts_on_device(const CorpusFile& file, const Point& p) {
  return contains(p.dispatcher, "HybridEP") || contains(file.notes, "capacity factor");
}

/// By torch.distributed's all-to-all: once for each expert, and its sizes are the host's.
StepPractice dispatching_plainly(StepPractice practice) {
  practice.device_counts.value = 0;
  practice.once_per_node.value = 0;
  return practice;
}

/// Tokens beyond a capacity are dropped: an all-to-all of known sizes, once for each expert, that
/// nothing hides (Megatron-Bridge training/utils/moe_token_drop.py asserts that dispatcher).
StepPractice dropping_tokens(StepPractice practice) {
  practice = counting_on_device(dispatching_plainly(std::move(practice)));
  practice.expert_hidden.value = 0;
  return practice;
}

}  // namespace

std::vector<PointPrediction> Predictor::predict(const CorpusFile& file) {
  clusters_.clear();
  std::vector<Tally> tallies;
  std::vector<PointPrediction> predictions;
  predictions.reserve(file.points.size());
  for (const Point& point : file.points) {
    assumptions_.clear();
    predictions.push_back(predict(file, point));
    for (const Assumption& a : assumptions_) {
      add(tallies, a);
    }
  }
  assumptions_ = said_of(tallies, predictions.size());
  if (!file.unread.empty()) {
    assume("keys that were not read", fmt::format("{}", fmt::join(file.unread, ", ")));
  }
  return predictions;
}

PointPrediction Predictor::predict(const CorpusFile& file, const Point& p) {
  if (std::string why = why_no_metric(p); !why.empty()) {
    return no(std::move(why));
  }
  const sim::Cluster& cluster = cluster_of(file, p);
  const std::string where = fmt::format("{}: stack", file.path.string());
  const bool whole = p.scope == Scope::model || p.scope == Scope::memory;
  const StackSpec& stack = stack_of(whole ? recognised(file, p) : file.stack, where);
  switch (p.scope) {
    case Scope::attention:
      return attention(p, cluster, stack);
    case Scope::kernel:
      return kernel(file, p, cluster, stack);
    case Scope::collective:
      return collective(p, cluster, stack);
    case Scope::model:
    case Scope::memory:
      return p.phase == "inference" ? inference(p, cluster, as_run(stack, file, p))
                                    : training(file, p, cluster, as_run(stack, file, p));
  }
  throw InternalError("unknown scope");
}

/// Whose words a source has in this text, the longest of them; nullptr: nobody's.
const Predictor::KnownBy* Predictor::known_by(const std::string& said, int year) {
  if (words_.empty()) {
    for (const std::string& name : catalog_.stack_names()) {
      const StackSpec& stack = stack_of(name, name);
      for (const std::string& word : stack.known_by) {
        words_.push_back({.word = word, .stack = name, .until = stack.until});
      }
    }
    // Long words before short ones, those of an early time before later ones and those of always.
    const auto until = [](const KnownBy& k) { return k.until == 0 ? 9999 : k.until; };
    std::ranges::stable_sort(words_, [&](const KnownBy& a, const KnownBy& b) {
      return a.word.size() != b.word.size() ? a.word.size() > b.word.size() : until(a) < until(b);
    });
  }
  const auto known = std::ranges::find_if(words_, [&](const KnownBy& k) {
    const bool then = k.until == 0 || (year > 0 && year <= k.until);
    return then && said.find(k.word) != std::string::npos;
  });
  return known == words_.end() ? nullptr : &*known;
}

/// The software of a whole step: whose words the point or its file has; else the file's stack.
std::string Predictor::recognised(const CorpusFile& file, const Point& p) {
  for (const std::string* said : {&p.features, &p.system, &p.library, &file.title}) {
    if (const KnownBy* known = known_by(*said, p.year)) {
      if (known->stack != file.stack) {
        assume("stack", fmt::format("{} ('{}')", known->stack, known->word));
      }
      return known->stack;
    }
  }
  return file.stack;
}

/// How the rates of a file were counted that does not say it: as the software does that its title
/// names. Who compares systems counts all of them alike.
StackSpec::Counting Predictor::counting_of(const CorpusFile& file, const Point& p) {
  const bool said = !p.flops_convention.empty() && p.flops_convention != "unknown";
  const KnownBy* known = known_by(file.title, p.year);
  const StackSpec& stack = stack_of(known != nullptr ? known->stack : file.stack, file.title);
  const bool then = stack.counting &&
                    (stack.counting->until == 0 || p.year == 0 || p.year <= stack.counting->until);
  return !said && then ? *stack.counting : StackSpec::Counting{};
}

void Predictor::assume(const std::string& what, std::string value) {
  assumptions_.push_back({.what = what, .value = std::move(value), .source = "default"});
}

const sim::Cluster& Predictor::cluster_of(const CorpusFile& file, const Point& p) {
  const CorpusMachine& m = p.machine;
  const std::string where = fmt::format("{}: points[{}]", file.path.string(), p.index);
  const std::string key =
      fmt::format("{}|{}|{}|{}", m.gpu, m.gpus_per_node, m.nodes.value_or(0), p.world);
  auto [at, fresh] = clusters_.try_emplace(key);
  if (fresh) {
    ComposedCluster composed = compose(m, p.world, catalog_, where, p.year);
    if (composed.nodes > 1) {
      composed.machine = sim::evenly_filled(std::move(composed.machine), composed.nodes, p.world);
    }
    const int gpus = composed.nodes * static_cast<int>(composed.machine.gpus_per_node.value);
    at->second = {.cluster = std::make_unique<sim::Cluster>(std::move(composed.machine),
                                                            composed.nodes, gpus),
                  .assumptions = std::move(composed.assumptions)};
  }
  for (const Assumption& a : at->second.assumptions) {
    assume(a.what, a.value);
  }
  return *at->second.cluster;
}

const StackSpec& Predictor::stack_of(const std::string& name, std::string_view where) {
  auto at = stacks_.find(name);
  if (at == stacks_.end()) {
    at = stacks_.emplace(name, catalog_.stack(name, where)).first;
  }
  return at->second;
}

const StackSpec& Predictor::as_run(const StackSpec& stack, const CorpusFile& file,
                                   const Point& point) {
  const bool fused = says_compiled(point);
  const bool counted = counts_on_device(file, point);
  const bool dropped = contains(point.variant, "tokendrop");
  const bool plain = point.dispatcher.empty() && stack.dispatches_plainly(point.model, point.dtype);
  const int pieces = contains(point.features, "async TP") ? point.tp : 1;
  if (!fused && !counted && !dropped && !plain && pieces == 1) {
    return stack;
  }
  const auto [at, fresh] =
      stacks_.try_emplace(fmt::format("{}{}{}{}{}, {} pieces", stack.name,
                                      fused ? ", compiled" : "", counted ? ", counted" : "",
                                      dropped ? ", dropped" : "", plain ? ", plain" : "", pieces),
                          stack);
  if (fresh) {
    at->second = fused ? compiled(stack) : stack;
    if (counted) {
      at->second.step = counting_on_device(at->second.step);
    }
    if (plain) {
      at->second.step = dispatching_plainly(at->second.step);
    }
    if (dropped) {
      at->second.step = dropping_tokens(at->second.step);
    }
    if (pieces > 1) {
      // A piece a rank, of which the first has no GEMM before it (PyTorch
      // torch/distributed/_symmetric_memory: _pipelined_multi_all_gather_and_consume).
      at->second.step.tensor_hidden.value = 1 - 1.0 / pieces;
    }
  }
  return at->second;
}

}  // namespace spp::regress
