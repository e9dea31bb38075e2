#include "parallel/layer/parts.hpp"

#include "base/error.hpp"
#include "schedule/storage.hpp"

#include <algorithm>
#include <numeric>

namespace spp {

std::vector<ParamUse> param_uses(const LayerGraph& layer) {
  std::vector<ParamUse> uses(layer.graph.params.size());
  for (std::size_t i = 0; i < layer.graph.definitions.size(); ++i) {
    const Definition& d = layer.graph.definitions[i];
    const bool of_norm = d.function == LayerFunction::rms_norm ||
                         d.function == LayerFunction::layer_norm ||
                         d.function == LayerFunction::split_heads || is_whole(layer, d);
    const bool of_experts = layer.graph.is_of_experts(d);
    for (const int param : {d.param, d.bias}) {
      if (param >= 0 && d.function != LayerFunction::adam) {
        ParamUse& use = uses[static_cast<std::size_t>(param)];
        use.units.push_back(layer.units[i]);
        use.of_norm = of_norm;
        use.of_experts = of_experts;
      }
    }
    if (d.sink >= 0) {
      uses[static_cast<std::size_t>(d.sink)].units.push_back(layer.units[i]);
    }
  }
  return uses;
}

int ranks_that_sum(const ParamUse& use, const LayerPlan& plan) {
  return plan.stage_ranks() / (use.of_experts ? plan.expert : use.of_norm ? 1 : plan.tensor);
}

int shards_of(const ParamUse& use, std::int64_t rows, const LayerPlan& plan) {
  const int all = ranks_that_sum(use, plan);
  const int shards = use.of_experts ? all : all * plan.shard_ranks() / plan.stage_ranks();
  return plan.zero > 0 && rows % shards == 0 ? shards : 1;
}

std::vector<int> sum_sizes(std::int64_t rows, int ranks) {
  std::vector<int> sizes;
  for (int left = ranks; left > 1; left /= sizes.back()) {
    sizes.push_back(static_cast<int>(std::gcd(rows, std::int64_t{left})));
    if (sizes.back() == 1) {
      return {};
    }
  }
  return sizes.empty() ? std::vector{1} : sizes;
}

bool is_whole(const LayerGraph& layer, const Definition& d) {
  const auto is_cut_by_rows = [&](TensorRef ref) {
    return is_value(ref.tensor) && layer.cuts[static_cast<std::size_t>(ref.label)] == Cut::rows;
  };
  return d.function == LayerFunction::linear && !layer.graph.is_of_experts(d) &&
         is_cut_by_rows(d.reads.front()) && is_cut_by_rows(d.writes.front());
}

TokenSet home_of(const std::vector<Buffer>& buffers, Phase phase) {
  const Tensor held = phase == Phase::forward ? Tensor::q : Tensor::d_q;
  const auto queries = std::ranges::find_if(buffers, [&](const Buffer& buffer) {
    return buffer.tensor == held && buffer.role != BufferRole::scratch;
  });
  ensure(queries != buffers.end(), "attention without queries");
  return queries->tile;
}

std::vector<TokenSet> homes_of(const Schedule& attention) {
  std::vector<TokenSet> homes;
  for (int rank = 0; rank < attention.mesh.size(); ++rank) {
    homes.push_back(home_of(attention.program(Rank(rank)).buffers, attention.contract.phase));
  }
  return homes;
}

std::vector<std::vector<int>> params_of_units(const LayerGraph& layer) {
  std::vector<std::vector<int>> params(
      layer.units.empty() ? 0 : static_cast<std::size_t>(layer.units.back()) + 1);
  const std::vector<ParamUse> uses = param_uses(layer);
  for (std::size_t label = 0; label < uses.size(); ++label) {
    for (const int unit : uses[label].units) {
      params[static_cast<std::size_t>(unit)].push_back(static_cast<int>(label));
    }
  }
  return params;
}

std::vector<StagePart> stage_parts(const LayerGraph& layer, const LayerPlan& plan) {
  const std::vector<Definition>& definitions = layer.graph.definitions;
  const auto updates = std::ranges::find(definitions, LayerFunction::adam, &Definition::function);
  const auto work = static_cast<std::size_t>(updates - definitions.begin());
  const int units = work == 0 ? 0 : layer.units[work - 1] + 1;
  const std::vector<int> counts = plan.units.empty() ? std::vector{units} : plan.units;
  std::vector<StagePart> parts;
  int unit = 0;
  for (const int count : counts) {
    StagePart part{.first_unit = unit, .end_unit = unit + count, .leaving = {}};
    const auto of = [&](int wanted) {
      const auto end = layer.units.begin() + static_cast<std::ptrdiff_t>(work);
      return static_cast<int>(std::lower_bound(layer.units.begin(), end, wanted) -
                              layer.units.begin());
    };
    part.first_definition = of(part.first_unit);
    part.end_definition = of(part.end_unit);
    parts.push_back(part);
    unit += count;
  }
  ensure(unit == units && std::ssize(parts) == plan.pipeline.virtual_stages(),
         "stages of other units than the graph has");
  const GraphIndex index(layer.graph);
  for (int label = 0; label < std::ssize(layer.graph.values); ++label) {
    const TensorRef ref{Tensor::value, label};
    const int writer = index.writer_of(ref);
    const std::vector<Use>& uses = index.uses_of(ref);
    if (writer < 0 || uses.empty()) {
      continue;
    }
    for (StagePart& part : parts) {
      if (writer < part.end_definition && uses.back().definition >= part.end_definition) {
        part.leaving.push_back(ref);
      }
    }
  }
  return parts;
}

namespace {

/// Its backward reads values that a forward has written.
bool backward_reads(LayerFunction function) {
  switch (function) {
    case LayerFunction::add:
    case LayerFunction::split:
    case LayerFunction::dispatch:
    case LayerFunction::combine:
    case LayerFunction::word_loss:
    case LayerFunction::adam:
      return false;
    case LayerFunction::linear:
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
    case LayerFunction::split_heads:
    case LayerFunction::swiglu:
    case LayerFunction::gelu:
    case LayerFunction::embedding:
    case LayerFunction::word_sums:
    case LayerFunction::route:
    case LayerFunction::expert_swiglu:
      return true;
  }
  throw InternalError("unknown function of a layer");
}

/// Its backward reads what the forward itself has written: statistics, attention's tensors.
bool backward_reads_results(LayerFunction function) {
  return function == LayerFunction::rms_norm || function == LayerFunction::layer_norm ||
         function == LayerFunction::split_heads || function == LayerFunction::route;
}

/// A replay runs it, whoever reads what it writes: as in needed_of of
/// transformer/layer_kernels.cpp.
bool runs_always(LayerFunction function) {
  return backward_reads_results(function) || function == LayerFunction::combine;
}

/// The last definition whose backward reads what one of [first, end) writes; its own attention's
/// tensors are read by a definition that splits heads.
int last_reader(const Graph& graph, const GraphIndex& index, int first, int end) {
  int last = -1;
  for (int i = first; i < end; ++i) {
    if (backward_reads_results(graph.definition(i).function)) {
      last = std::max(last, i);
    }
    for (const TensorRef written : graph.definition(i).writes) {
      for (const Use& use : index.uses_of(written)) {
        if (backward_reads(graph.definition(use.definition).function)) {
          last = std::max(last, use.definition);
        }
      }
    }
  }
  return last;
}

/// Which of [first, end), of one unit, a replay must run: those that write what a backward in it
/// reads, or what such a one is computed from.
std::vector<bool> needed_again(const LayerGraph& layer, const GraphIndex& index, int first,
                               int end) {
  const auto unit = [&](int i) { return layer.units[static_cast<std::size_t>(i)]; };
  std::vector<bool> runs(static_cast<std::size_t>(end - first));
  const auto is_for = [&](const Use& use) {
    const int reader = use.definition;
    return unit(reader) == unit(first) &&
           (backward_reads(layer.graph.definition(reader).function) ||
            (reader < end && runs[static_cast<std::size_t>(reader - first)]));
  };
  for (int i = end; i-- > first;) {
    const Definition& d = layer.graph.definition(i);
    runs[static_cast<std::size_t>(i - first)] =
        runs_always(d.function) || std::ranges::any_of(d.writes, [&](TensorRef ref) {
          return std::ranges::any_of(index.uses_of(ref), is_for);
        });
  }
  return runs;
}

}  // namespace

std::vector<std::vector<int>> computed_again(const LayerGraph& layer, const LayerPlan& plan) {
  const auto count = static_cast<int>(layer.units.size());
  const auto unit = [&](int i) { return layer.units[static_cast<std::size_t>(i)]; };
  const bool whole = plan.recompute.kind == Recompute::full;
  std::vector<bool> is_layer(count == 0 ? 0 : static_cast<std::size_t>(layer.units.back()) + 1);
  for (int i = 0; i < count; ++i) {
    if (layer.graph.definition(i).function == LayerFunction::split_heads) {
      is_layer[static_cast<std::size_t>(unit(i))] = true;
    }
  }
  const auto again = [&](int i) {
    return is_layer[static_cast<std::size_t>(unit(i))] &&
           (whole ||
            (plan.recompute.kind == Recompute::selective &&
             !layer.modules[static_cast<std::size_t>(i)].common(plan.recompute.modules).empty()));
  };
  const GraphIndex index(layer.graph);
  std::vector<std::vector<int>> result(static_cast<std::size_t>(count));
  for (int first = 0; first < count;) {
    int end = first;
    while (end < count && unit(end) == unit(first) && again(end)) {
      ++end;
    }
    const int before = whole ? end - 1 : last_reader(layer.graph, index, first, end);
    const std::vector<bool> runs =
        plan.replay == Replay::needed
            ? needed_again(layer, index, first, end)
            : std::vector<bool>(static_cast<std::size_t>(end - first), true);
    for (int i = first; i < end && before >= 0; ++i) {
      if (runs[static_cast<std::size_t>(i - first)]) {
        result[static_cast<std::size_t>(before)].push_back(i);
      }
    }
    first = std::max(end, first + 1);
  }
  return result;
}

std::string prefix_of(const LayerPlan& plan, int micro_batch) {
  return plan.micro_batches() > 1 ? fmt::format("m{}.", micro_batch) : "";
}

LayerRank::LayerRank(const LayerParts& parts, Rank r)
    : rank(r),
      tensor(parts.plan.tensor),
      index(r.value % parts.plan.tensor),
      stage_ranks(parts.plan.stage_ranks()) {
  const int model_ranks = parts.plan.model_ranks();
  replica = r.value % stage_ranks / model_ranks;
  stage = r.value / stage_ranks;
  of_attention = Rank(r.value % model_ranks / tensor);
  const int first = stage * stage_ranks;
  tensor_group = {.first = r.value - index, .stride = 1, .size = tensor};
  same_tensor = {.first = first + index, .stride = tensor, .size = stage_ranks / tensor};
  of_stage = {.first = first, .stride = 1, .size = stage_ranks};
  const int groups = parts.plan.expert;
  expert = (r.value - first) % groups;
  expert_group = {.first = r.value - expert, .stride = 1, .size = groups};
  same_experts = {.first = first + expert, .stride = groups, .size = stage_ranks / groups};
}

namespace {

bool is_same(const Buffer& kept, const Buffer& input) {
  return kept.tensor == input.tensor && kept.dtype == input.dtype;
}

/// Given to the forward, or its result; -1: neither.
int declared(const std::vector<Buffer>& forward, const Buffer& input) {
  const auto at = std::ranges::find_if(forward, [&](const Buffer& buffer) {
    return buffer.role != BufferRole::scratch && is_same(buffer, input) &&
           buffer.tile == input.tile && buffer.head_range == input.head_range;
  });
  return at == forward.end() ? -1 : static_cast<int>(at - forward.begin());
}

int left_over(const StoredProgram& forward, const Buffer& input) {
  const StoredContent wanted{{.tokens = TokenList(input.tile), .heads = input.head_range}};
  for (std::size_t b = 0; b < forward.buffers.size(); ++b) {
    if (forward.buffers[b].role == BufferRole::scratch && is_same(forward.buffers[b], input) &&
        forward.contents[b] == wanted) {
      return static_cast<int>(b);
    }
  }
  return -1;
}

}  // namespace

std::vector<KeptBuffers> kept_by(const Schedule& forward, const Schedule& backward,
                                 std::string& lacking) {
  std::vector<KeptBuffers> kept;
  std::vector<StoredProgram> stored;  // only where it is asked for
  for (int rank = 0; rank < forward.mesh.size(); ++rank) {
    const std::vector<Buffer> before = forward.program(Rank(rank)).buffers;
    KeptBuffers& of_rank = kept.emplace_back();
    for (const Buffer& buffer : backward.program(Rank(rank)).buffers) {
      const bool is_kept = buffer.role == BufferRole::input && buffer.tensor != Tensor::d_out;
      of_rank.push_back(is_kept ? declared(before, buffer) : -1);
      if (!is_kept || of_rank.back() >= 0) {
        continue;
      }
      if (stored.empty()) {
        stored = store(forward);
      }
      of_rank.back() = left_over(stored[static_cast<std::size_t>(rank)], buffer);
      if (of_rank.back() < 0) {
        lacking = to_string(buffer.tensor);
        return {};
      }
    }
  }
  return kept;
}

}  // namespace spp
