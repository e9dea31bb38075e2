#include "parallel/layer/weights.hpp"

#include <algorithm>
#include <utility>

namespace spp {

TokenSet RankWeights::rows_of(int label) const {
  const Param& param = graph_.param(label);
  const std::int64_t rows = param.part_rows();
  const int part = use_of(label).of_experts ? at_.expert : param.row_parts > 1 ? at_.index : 0;
  return TokenSet({.begin = part * rows, .count = rows});
}

HeadRange RankWeights::columns_of(int label) const {
  return graph_.param(label).column_parts > 1 ? HeadRange{.begin = at_.index, .end = at_.index + 1}
                                              : HeadRange{.begin = 0, .end = 1};
}

TokenSet RankWeights::shard_of(int label) const {
  const RankGroup others = shards(label);
  return rows_of(label).part(others.index_of(at_.rank), others.size);
}

RankGroup RankWeights::shards(int label) const {
  const RankGroup& all = summed_over(label);
  const int size = is_updated(label)
                       ? shards_of(use_of(label), graph_.param(label).part_rows(), parts_.plan)
                       : 1;
  const int own = all.index_of(at_.rank);
  return {.first = all.rank(own / size * size).value, .stride = all.stride, .size = size};
}

RankGroup RankWeights::copies(int label) const {
  const RankGroup& all = summed_over(label);
  const int size = shards(label).size;
  const int own = all.index_of(at_.rank);
  return {
      .first = all.rank(own % size).value, .stride = all.stride * size, .size = all.size / size};
}

bool RankWeights::holds(int unit) const {
  const PipelineShape& shape = parts_.plan.pipeline;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const StagePart& part =
        parts_.stages[static_cast<std::size_t>(shape.virtual_stage(at_.stage, chunk))];
    if (unit >= part.first_unit && unit < part.end_unit) {
      return true;
    }
  }
  return false;
}

int RankWeights::uses_here(int label) const {
  return static_cast<int>(
      std::ranges::count_if(use_of(label).units, [&](int unit) { return holds(unit); }));
}

int RankWeights::stage_of(int unit) const {
  const auto part = std::ranges::find_if(
      parts_.stages, [&](const StagePart& stage) { return unit < stage.end_unit; });
  return static_cast<int>(part - parts_.stages.begin()) % parts_.plan.pipeline.stages;
}

RankGroup RankWeights::between_stages(int label) const {
  const int first = stage_of(use_of(label).units.front());
  const int last = stage_of(use_of(label).units.back());
  return {.first = at_.at_stage(first).value,
          .stride = std::max(1, (last - first) * at_.stage_ranks),
          .size = first == last ? 1 : 2};
}

BufferId RankWeights::scratch(const std::string& name, Tensor tensor, int label,
                              const TokenSet& rows) {
  const auto named = named_.try_emplace(name).first;
  const BufferId id = b_.scratch(next_name(named->first), {tensor, label}, rows.count(), 1);
  journal_.named.push_back({.buffer = id, .name = &named->first});
  return id;
}

std::string RankWeights::next_name(const std::string& name) {
  const int before = named_.at(name)++;
  return before == 0 ? name : fmt::format("{}_{}", name, before + 1);
}

// ---- parameters

BufferId RankWeights::held_parameter(int label) {
  const auto [at, is_new] = held_.try_emplace(label);
  if (is_new) {
    const std::string called = "w_" + graph_.param(label).name;
    const TensorRef ref{Tensor::param, label};
    at->second = is_updated(label)
                     ? b_.state(called, ref, is_gathered(label) ? shard_of(label) : rows_of(label),
                                columns_of(label))
                     : b_.input(called, ref, rows_of(label), columns_of(label));
  }
  return at->second;
}

void RankWeights::enter(int unit, int step) {
  if (parts_.plan.zero != 3 || !parts_.is_step() || (unit == unit_ && step == way_)) {
    return;
  }
  if (unit != unit_ && parts_.plan.pipeline.stages == 1) {
    std::erase_if(full_, [&](const auto& known) {
      return std::ranges::find(use_of(known.first).units, unit_) != use_of(known.first).units.end();
    });
  }
  unit_ = unit;
  way_ = step;
  for (const int wanted : {unit, unit + step}) {
    if (!holds(wanted)) {
      continue;
    }
    for (const int label : parts_.params[static_cast<std::size_t>(wanted)]) {
      if (is_gathered(label) && !full_.contains(label)) {
        gather(label);
      }
    }
  }
}

void RankWeights::gather(int label) {
  const std::string called = "w_" + graph_.param(label).name;
  const TokenSet rows = rows_of(label);
  const BufferId sent = scratch(called + "_sent", Tensor::param, label, shard_of(label));
  const BufferId full = scratch(called + "_full", Tensor::param, label, rows);
  b_.op(parts_.streams.compute,
        Copy{.kind = CopyKind::cast, .from = held_parameter(label), .to = sent});
  b_.op(parts_.streams.parameters, Collective{.kind = CollectiveKind::all_gather,
                                              .group = shards(label),
                                              .from = sent,
                                              .to = full,
                                              .deal = TokenDeal{},
                                              .to_tokens = rows,
                                              .to_heads = columns_of(label)});
  full_[label] = full;
}

// ---- gradients

RankWeights::Room RankWeights::open(int label, bool adds) {
  const std::string called = "d_w_" + graph_.param(label).name;
  const TokenSet rows = rows_of(label);
  add_waiting(label);
  BufferId& own = own_sum(label);
  if (!own.valid()) {
    own = summed_over(label).size == 1 ? sum_of_stage(label, rows)
                                       : scratch(called + "_own", Tensor::d_param, label, rows);
    return {.buffer = own};
  }
  return adds ? Room{.buffer = own, .initial = false}
              : Room{.buffer = scratch(called + "_part", Tensor::d_param, label, rows)};
}

void RankWeights::close(int label, const Room& room) {
  Gradient& gradient = gradients_[label];
  ++gradient.given;
  BufferId& own = own_sum(label);
  if (room.buffer != own) {
    b_.op(parts_.streams.compute,
          Accumulate{.sum = own, .part = room.buffer, .tokens = rows_of(label)});
  }
  const bool each_time = is_reduced_each_time(label);
  const int addends = uses_here(label) * (each_time ? 1 : parts_.plan.micro_batches());
  const bool all = gradient.given % addends == 0;
  if (all && each_time) {
    const TokenSet rows = shard_of(label);
    if (gradient.given == addends) {
      gradient.sum = sum_of_stage(label, rows);
    }
    gradient.waiting =
        scratch("d_w_" + graph_.param(label).name + "_part", Tensor::d_param, label, rows);
    reduce(label, std::exchange(own, {}), gradient.waiting);
    on_their_way_.push_back(label);
  } else if (all && summed_over(label).size > 1) {
    reduce(label, own, sum_of_stage(label, shard_of(label)));
  }
  journal_.events.push_back({.label = label, .gave = true, .waiting = gradient.waiting});
  if (all && each_time) {
    keep_up(label);
  }
}

void RankWeights::add_waiting(int label) {
  Gradient& gradient = gradients_[label];
  if (gradient.waiting.valid()) {
    journal_.events.push_back({.label = label, .gave = false, .waiting = gradient.waiting});
    std::erase(on_their_way_, label);
    b_.op(parts_.streams.compute, Accumulate{.sum = gradient.sum,
                                             .part = std::exchange(gradient.waiting, {}),
                                             .tokens = shard_of(label),
                                             .initial = std::exchange(gradient.empty, false)});
  }
}

void RankWeights::keep_up(int label) {
  const auto unit = static_cast<std::size_t>(use_of(label).units.front());
  const std::size_t ahead = parts_.params[unit].size();
  while (on_their_way_.size() > ahead) {
    add_waiting(on_their_way_.front());
  }
}

BufferId RankWeights::sum_of_stage(int label, const TokenSet& rows) {
  if (between_stages(label).size == 1) {
    return finished_gradient(label, rows);
  }
  return gradients_[label].of_stage =
             scratch("d_w_" + graph_.param(label).name + "_of_stage", Tensor::d_param, label, rows);
}

BufferId RankWeights::finished_gradient(int label, const TokenSet& rows) {
  const TensorRef ref{Tensor::d_param, label};
  const std::string called = "d_w_" + graph_.param(label).name;
  return finished_[label] = is_updated(label) ? b_.scratch(called, ref, rows.count(), 1)
                                              : b_.output(called, ref, rows, columns_of(label));
}

void RankWeights::reduce(int label, BufferId from, BufferId to) {
  const auto sum = [&](StreamId stream, CollectiveKind kind, const RankGroup& group,
                       BufferId addend, BufferId into) {
    b_.op(stream, Collective{.kind = kind,
                             .group = group,
                             .from = addend,
                             .to = into,
                             .deal = TokenDeal{},
                             .to_tokens = shard_of(label),
                             .to_heads = columns_of(label)});
  };
  const RankGroup scattered = shards(label);
  const RankGroup all = copies(label);
  const TokenSet rows = shard_of(label);
  const auto sum_of = [&](int ranks) {  // `to` is that of all
    return ranks == scattered.size * all.size
               ? to
               : scratch(fmt::format("d_w_{}_of_{}", graph_.param(label).name, ranks),
                         Tensor::d_param, label, rows);
  };
  BufferId addend = from;
  if (scattered.size > 1) {
    addend = sum_of(scattered.size);
    sum(parts_.streams.weights, CollectiveKind::reduce_scatter, scattered, from, addend);
  }
  if (all.size == 1) {
    return;
  }
  // Neighbours first, then one of each group of those. Copies beside the shards that follow, as
  // PyTorch's fully_shard has a stream for them (FSDPCommContext).
  const StreamId stream = scattered.size > 1 ? parts_.streams.copies : parts_.streams.weights;
  const int own = all.index_of(at_.rank);
  int summed = 1;  // groups whose addends a rank has
  for (const int size : sum_sizes(rows.count(), all.size)) {
    const int of_both = summed * size;
    const RankGroup group{.first = all.rank(own / of_both * of_both + own % summed).value,
                          .stride = all.stride * summed,
                          .size = size};
    const BufferId into = sum_of(scattered.size * of_both);
    sum(stream, CollectiveKind::all_reduce, group, addend, into);
    addend = into;
    summed = of_both;
  }
}

// ---- updates

void RankWeights::sum_over_stages(int label) {
  add_waiting(label);
  const TokenSet rows = shard_of(label);
  b_.op(parts_.streams.weights, Collective{.kind = CollectiveKind::all_reduce,
                                           .group = between_stages(label),
                                           .from = gradients_[label].of_stage,
                                           .to = finished_gradient(label, rows),
                                           .deal = TokenDeal{},
                                           .to_tokens = rows,
                                           .to_heads = columns_of(label)});
}

void RankWeights::update() {
  for (const auto& [label, gradient] : gradients_) {
    if (gradient.of_stage.valid()) {
      sum_over_stages(label);
    }
  }
  for (int i = 0; i < std::ssize(graph_.definitions); ++i) {
    const Definition& d = graph_.definition(i);
    if (d.function == LayerFunction::adam && uses_here(d.param) > 0) {
      update(i, d.param);
    }
  }
}

void RankWeights::update(int number, int label) {
  const Param& param = graph_.param(label);
  const TokenSet rows = shard_of(label);
  const HeadRange columns = columns_of(label);
  const TensorRef ref{Tensor::param, label};
  add_waiting(label);
  const bool shared_out = shards(label).size > 1 && !is_gathered(label);
  RowKernel op{.definition = number, .reads = {finished_.at(label)}, .writes = {}, .tokens = rows};
  for (const Tensor kept : {Tensor::master, Tensor::first_moment, Tensor::second_moment}) {
    const BufferId id =
        b_.state(std::string(to_string(kept)) + "_" + param.name, {kept, label}, rows, columns);
    op.reads.push_back(id);
    op.writes.push_back(id);
  }
  const BufferId next = shared_out ? b_.scratch("w_" + param.name + "_next", ref, rows.count(), 1)
                                   : held_parameter(label);
  op.writes.push_back(next);
  b_.op(parts_.streams.compute, op);
  if (shared_out) {
    b_.op(parts_.streams.weights, Collective{.kind = CollectiveKind::all_gather,
                                             .group = shards(label),
                                             .from = next,
                                             .to = held_parameter(label),
                                             .deal = TokenDeal{},
                                             .to_tokens = rows_of(label),
                                             .to_heads = columns});
  }
}

}  // namespace spp
