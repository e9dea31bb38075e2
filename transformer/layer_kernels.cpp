// Every kernel that an operation becomes, forward and backward side by side.
#include "transformer/layer_kernels.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

namespace spp {
namespace {

/// Ops of a rank made from operations.
class OpWriter {
 public:
  OpWriter(const TensorOps& ops, const LocalTokens& local)
      : shapes_(ops, local),
        seen_(ops.tensors.size(), 0),
        partial_(ops.tensors.size(), 0),
        partial_left_(ops.tensors.size(), 0),
        gathered_(ops.tensors.size(), false) {}

  /// `scatters_kept`: in a replay that has what reduce-scatters gave.
  void forward(const TensorOp& op, bool scatters_kept = false) {
    gather(op, op.reads);
    std::visit([&](const auto& work) { forward(op, work); }, op.work);
    if (shapes_.partial_sum(op) && !scatters_kept) {
      transfer(op, KernelRole::forward, sum_over_ranks(), all_written(op));
    }
  }
  /// All rows of those that it needs them of, unless they are there.
  void gather(const TensorOp& op, const LayerTensors& ids) {
    for (const LayerTensorId id : ids) {
      if (shapes_.gathers(op, id) && !gathered_[id.index()]) {
        transfer(op, KernelRole::forward, CommKind::all_gather, shapes_.all_bytes(op, id));
        gathered_[id.index()] = true;
      }
    }
  }
  /// All rows are there of what GEMMs keep, but of tensors that were dropped.
  void keep_gathered(const std::vector<bool>& dropped) {
    for (const TensorOp& op : shapes_.ops().ops) {
      for (const LayerTensorId id : op.keeps) {
        if (shapes_.gathers(op, id) && !dropped[id.index()]) {
          gathered_[id.index()] = true;
        }
      }
    }
  }
  /// Gradients come from behind the list for its results; then reversed, op by op.
  void backward() {
    const TensorOps& list = shapes_.ops();
    for (const LayerTensorId id : list.results) {
      seen_[id.index()] = 1;
    }
    for (const TensorOp& op : list.ops) {
      for (const LayerTensorId id : op.reads) {
        partial_left_[id.index()] +=
            gives_gradient(op, id) && shapes_.partial_gradient(op, id) ? 1 : 0;
      }
    }
    for (const TensorOp& op : std::views::reverse(list.ops)) {
      if (shapes_.partial_sum(op) && shapes_.sequence_parallel()) {
        transfer(op, KernelRole::backward, CommKind::all_gather, all_written(op));
      }
      std::visit([&](const auto& work) { backward(op, work); }, op.work);
      add_gradients(op);
    }
  }
  [[nodiscard]] std::vector<LayerOp> take() { return std::move(ops_); }

 private:
  struct Gemm {
    std::int64_t rows, out, in;
  };
  [[nodiscard]] Gemm shape_of(const TensorOp& op, const Linear& linear) const {
    Gemm gemm{.rows = linear.shard == Shard::none ? shapes_.rows(op.writes[0])
                                                  : shapes_.all_rows(op.writes[0]),
              .out = 0,
              .in = shapes_.width(op.reads[0])};
    for (const LayerTensorId id : op.writes) {
      gemm.out += shapes_.width(id);
    }
    return gemm;
  }

  void forward(const TensorOp& op, const Linear& linear) {
    Gemm gemm = shape_of(op, linear);
    if (shapes_.ops().is_cached(op.reads[0])) {
      gemm.rows += shapes_.local().cached * shapes_.local().batch;
    }
    write_gemm(op, KernelRole::forward, gemm.rows, gemm.out, gemm.in);
  }
  void forward(const TensorOp& op, const ExpertRoute& work) {
    move_rows(op, KernelRole::forward, work.direction == RouteDirection::dispatch);
  }
  void forward(const TensorOp& op, const RowWise& work) {
    memory_bound(op, KernelRole::forward, read(op) + shapes_.bytes(op.writes), work);
    for (int i = 0; i < work.reduced && shapes_.local().split.tensor > 1; ++i) {
      transfer(op, KernelRole::forward, CommKind::all_reduce, Bytes(4) * shapes_.rows(op.reads[0]));
    }
  }
  void forward(const TensorOp& op, const AttentionCall& call) {
    attention(op, call, Phase::forward);
  }
  void forward(const TensorOp& op, const PickCall& call) { pick(op, call, Phase::forward); }
  void forward(const TensorOp& op, const ShortConvolution& /*work*/) {
    convolution(op, KernelRole::forward, Phase::forward);
  }
  void forward(const TensorOp& op, const ScanCall& call) {
    scan(op, call, KernelRole::forward, Phase::forward);
  }
  void forward(const TensorOp& op, const Lookup& /*work*/) {
    memory_bound(op.name, KernelRole::forward, shapes_.bytes(op.reads) + all_written(op),
                 LayerFunction::embedding);
  }

  void backward(const TensorOp& op, const Linear& linear) {
    const Gemm gemm = shape_of(op, linear);
    if (linear.bias) {  // sums the rows of dY
      memory_bound(op.name, KernelRole::bias_gradient, gradient_bytes(op.writes));
    }
    for (const LayerTensorId id : op.keeps) {
      if (shapes_.gathers(op, id) && !gathered_[id.index()] && !shapes_.local().gathered_kept) {
        transfer(op, KernelRole::weight_gradient, CommKind::all_gather, shapes_.all_bytes(op, id),
                 true);
        gathered_[id.index()] = true;
      }
    }
    if (!linear.detached) {
      write_gemm(op, KernelRole::input_gradient, gemm.rows, gemm.in, gemm.out);
      sum_partial_gradients(op, true);
    }
    write_gemm(op, KernelRole::weight_gradient, gemm.in, gemm.out, gemm.rows);
  }
  void backward(const TensorOp& op, const ExpertRoute& work) {
    move_rows(op, KernelRole::backward, work.direction == RouteDirection::combine);
  }
  void backward(const TensorOp& op, const RowWise& work) {
    if (work.gradient == RowGradient::computed) {
      memory_bound(op, KernelRole::backward,
                   gradient_bytes(op.writes) + shapes_.bytes(op.keeps) + read(op), work);
    }
    if (work.gradient != RowGradient::none) {
      sum_partial_gradients(op, false);
    }
  }
  void backward(const TensorOp& op, const AttentionCall& call) {
    attention(op, call, Phase::backward);
    sum_partial_gradients(op, false);
  }
  void backward(const TensorOp& op, const PickCall& call) { pick(op, call, Phase::backward); }
  void backward(const TensorOp& op, const ShortConvolution& /*work*/) {
    convolution(op, KernelRole::backward, Phase::backward);
  }
  void backward(const TensorOp& op, const ScanCall& call) {
    scan(op, call, KernelRole::backward, Phase::backward);
  }
  void backward(const TensorOp& op, const Lookup& /*work*/) {
    // Reads dY, reads and writes as many rows of the table's fp32 gradient.
    Bytes bytes = seen_[op.writes[0].index()] > 0 ? all_written(op) : Bytes(0);
    for (const LayerTensorId id : op.reads) {
      bytes += Bytes(8 * shapes_.width(id)) * shapes_.rows(id);
    }
    memory_bound(op.name, KernelRole::backward, bytes, LayerFunction::embedding);
  }

  /// The op gave its part of a gradient: once all that give one have, it is summed over the ranks.
  void sum_partial_gradients(const TensorOp& op, bool beside) {
    for (const LayerTensorId id : op.reads) {
      if (!shapes_.partial_gradient(op, id)) {
        continue;
      }
      if (partial_[id.index()]++ > 0) {
        sum(id, shapes_.all_bytes(op, id));
      }
      if (--partial_left_[id.index()] == 0) {
        const bool rows = shapes_.gathers(op, id);
        transfer(op, KernelRole::input_gradient,
                 rows ? CommKind::reduce_scatter : CommKind::all_reduce,
                 rows ? shapes_.all_bytes(op, id) : shapes_.bytes(id), beside);
      }
    }
  }
  /// The op gave each tensor that it reads a gradient; what had one already gets the sum.
  void add_gradients(const TensorOp& op) {
    for (const LayerTensorId id : op.reads) {
      if (!gives_gradient(op, id)) {
        continue;
      }
      const bool unfinished = shapes_.partial_gradient(op, id) && partial_left_[id.index()] > 0;
      if (!unfinished && seen_[id.index()]++ > 0) {
        sum(id, shapes_.bytes(id));
      }
    }
  }
  /// One of the three GEMMs of Y[rows,out] = X[rows,in] W.
  void write_gemm(const TensorOp& op, KernelRole role, std::int64_t m, std::int64_t n,
                  std::int64_t k) {
    if (m == 0 || n == 0 || k == 0) {
      return;  // a stream without tokens on this rank
    }
    const auto& linear = std::get<Linear>(op.work);
    const bool wide = linear.stays_wide(shapes_.local().wide_attention);
    if (const std::int64_t experts = linear.experts; experts > 0) {
      const bool weight = role == KernelRole::weight_gradient;  // [in, rows] [rows, out]
      ops_.push_back({.name = op.name,
                      .role = role,
                      .work = GroupedGemm{.rows = weight ? k : m,
                                          .n = n,
                                          .k = weight ? m : k,
                                          .groups = shapes_.experts(experts)},
                      .stays_wide = wide});
      return;
    }
    ops_.push_back(
        {.name = op.name, .role = role, .work = by_heads(op, role, {m, n, k}), .stays_wide = wide});
  }
  /// Products of all heads, side by side: as many tiles as one product of so many rows has.
  [[nodiscard]] GemmShape by_heads(const TensorOp& op, KernelRole role, GemmShape all) const {
    const auto& linear = std::get<Linear>(op.work);
    const std::int64_t heads =
        linear.shard == Shard::heads ? shapes_.heads(linear.heads) : linear.heads;
    if (role != KernelRole::weight_gradient) {
      return {.m = all.m * heads, .n = all.n / heads, .k = all.k / heads};
    }
    return linear.alike ? GemmShape{.m = all.m / heads, .n = all.n / heads, .k = all.k * heads}
                        : GemmShape{.m = all.m, .n = all.n / heads, .k = all.k};
  }
  void memory_bound(std::string_view name, KernelRole role, Bytes touched,
                    std::optional<LayerFunction> function = std::nullopt) {
    ops_.push_back(
        {.name = name,
         .role = role,
         .work = MemoryBound{.touched = touched, .function = function, .by_kernel = touched}});
  }
  /// A function's kernel reads what its first op does; its gradient's writes as much, too.
  void memory_bound(const TensorOp& op, KernelRole role, Bytes touched, const RowWise& work) {
    memory_bound(op.name, role, touched, work.function);
    ops_.back().in_position = work.in_position;
    Bytes& by_kernel = std::get<MemoryBound>(ops_.back().work).by_kernel;
    if (work.in_kernel == InKernel::reads) {
      by_kernel = read(op) * (role == KernelRole::backward ? 2 : 1);
    } else if (work.in_kernel == InKernel::inside) {
      by_kernel = Bytes(0);
    }
  }
  /// Of two gradients of a tensor of `bytes`.
  void sum(LayerTensorId id, Bytes bytes) {
    memory_bound(shapes_.ops().at(id).name, KernelRole::sum, bytes * 3, LayerFunction::add);
  }
  void transfer(const TensorOp& op, KernelRole role, CommKind kind, Bytes bytes,
                bool beside = false) {
    transfer(op, role, {.kind = kind, .axis = LayerAxis::tensor, .bytes = bytes}, beside);
  }
  void transfer(const TensorOp& op, KernelRole role, LayerTransfer work, bool beside = false) {
    ops_.push_back({.name = op.name, .role = role, .work = work, .beside = beside});
  }
  /// Rows to the ranks of their experts, and to all that share these; or back, summed. What comes
  /// back is of all tokens on every tensor rank where these have copies of them.
  void move_rows(const TensorOp& op, KernelRole role, bool to_experts) {
    const bool dispatches = std::get<ExpertRoute>(op.work).direction == RouteDirection::dispatch;
    const bool copies =
        shapes_.exchanges() && shapes_.local().split.tensor > 1 && !shapes_.sequence_parallel();
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      const LayerTensorId own = dispatches ? op.reads[i] : op.writes[i];
      const LayerTensorId there = dispatches ? op.writes[i] : op.reads[i];
      const Bytes all = shapes_.token_bytes(own);
      if (copies && shapes_.local().split.has_experts_beside()) {
        if (!to_experts) {
          transfer(op, role, CommKind::all_reduce, all);
        }
        continue;
      }
      if (shapes_.ops().at(there).rows == Rows::gathered) {
        gather_rows(op, role, to_experts, shapes_.bytes(there));
      } else {
        send_rows(op, role, to_experts, shapes_.bytes(own), shapes_.bytes(there));
      }
      if (copies && !to_experts) {
        transfer(op, role, CommKind::all_gather, all);
      }
    }
  }
  /// Between ranks with other experts, and between those that share them: first the ones, then the
  /// others, and back the other way round.
  void over_experts(const TensorOp& op, KernelRole role, const LayerTransfer& first,
                    const LayerTransfer& then) {
    for (const LayerTransfer& work : {first, then}) {
      const LayerSplit& split = shapes_.local().split;
      if ((work.axis == LayerAxis::expert ? split.expert : split.expert_tensor) > 1) {
        transfer(op, role, work);
      }
    }
  }
  /// Each rank's `routed` bytes, of which each expert's ranks get `received`.
  void send_rows(const TensorOp& op, KernelRole role, bool to_experts, Bytes routed,
                 Bytes received) {
    const LayerTransfer sent{
        .kind = CommKind::all_to_all,
        .axis = LayerAxis::expert,
        .bytes = to_experts ? routed : received / shapes_.local().split.expert_tensor};
    const LayerTransfer shared{.kind = to_experts ? CommKind::all_gather : CommKind::reduce_scatter,
                               .axis = LayerAxis::expert_tensor,
                               .bytes = received};
    over_experts(op, role, to_experts ? sent : shared, to_experts ? shared : sent);
  }
  /// `all` bytes on every rank that has experts.
  void gather_rows(const TensorOp& op, KernelRole role, bool to_experts, Bytes all) {
    const CommKind kind = to_experts ? CommKind::all_gather : CommKind::reduce_scatter;
    const LayerTransfer near{.kind = kind,
                             .axis = LayerAxis::expert_tensor,
                             .bytes = all / shapes_.local().split.expert};
    const LayerTransfer far{.kind = kind, .axis = LayerAxis::expert, .bytes = all};
    over_experts(op, role, to_experts ? near : far, to_experts ? far : near);
  }
  void attention(const TensorOp& op, const AttentionCall& call, Phase phase) {
    LayerOp result{.name = op.name,
                   .role = phase == Phase::forward ? KernelRole::forward : KernelRole::backward,
                   .work = SelfAttention{.call = shapes_.heads(call), .phase = phase}};
    if (call.among > 0) {
      result.work = CrossAttention{.call = shapes_.heads(call),
                                   .queries = call.among,
                                   .keys = call.among,
                                   .batch = (shapes_.local().rows() + call.among - 1) / call.among,
                                   .phase = phase};
    } else if (call.keys == Rows::text) {
      result.work = CrossAttention{.call = shapes_.heads(call),
                                   .queries = shapes_.local().tokens,
                                   .keys = shapes_.ops().text_tokens,
                                   .batch = shapes_.local().batch,
                                   .phase = phase};
    }
    ops_.push_back(result);
  }

  void pick(const TensorOp& op, const PickCall& call, Phase phase) {
    ops_.push_back({.name = op.name,
                    .role = phase == Phase::forward ? KernelRole::forward : KernelRole::backward,
                    .work = PickKernel{.indexer = call.indexer, .phase = phase}});
  }

  void convolution(const TensorOp& op, KernelRole role, Phase phase) {
    ConvolutionKernel kernel{
        .tokens = shapes_.local().tokens, .batch = shapes_.local().batch, .phase = phase};
    for (const LayerTensorId id : op.writes) {
      kernel.channels += shapes_.width(id);
    }
    ops_.push_back({.name = op.name, .role = role, .work = kernel});
  }
  void scan(const TensorOp& op, const ScanCall& call, KernelRole role, Phase phase) {
    ops_.push_back(
        {.name = op.name,
         .role = role,
         .work = ScanKernel{
             .scan = shapes_.heads(call.scan), .tokens = shapes_.local().rows(), .phase = phase}});
  }

  [[nodiscard]] CommKind sum_over_ranks() const {
    return shapes_.sequence_parallel() ? CommKind::reduce_scatter : CommKind::all_reduce;
  }
  /// Bytes that an op reads: all rows of what it gathers.
  [[nodiscard]] Bytes read(const TensorOp& op) const {
    Bytes sum{};
    for (const LayerTensorId id : op.reads) {
      sum += shapes_.gathers(op, id) ? shapes_.all_bytes(op, id) : shapes_.bytes(id);
    }
    return sum;
  }
  /// Bytes of all rows that an op writes.
  [[nodiscard]] Bytes all_written(const TensorOp& op) const {
    Bytes sum{};
    for (const LayerTensorId id : op.writes) {
      sum += shapes_.all_bytes(op, id);
    }
    return sum;
  }
  /// Of gradients that exist: somebody behind read the tensor.
  [[nodiscard]] Bytes gradient_bytes(const LayerTensors& ids) const {
    Bytes sum{};
    for (const LayerTensorId id : ids) {
      if (seen_[id.index()] > 0) {
        sum += shapes_.bytes(id);
      }
    }
    return sum;
  }

  LocalShapes shapes_;
  std::vector<int> seen_;          // gradients of each tensor so far
  std::vector<int> partial_;       // parts of sums over ranks so far
  std::vector<int> partial_left_;  // operations that will still give one
  std::vector<bool> gathered_;
  std::vector<LayerOp> ops_;
};

bool keeps_output(const TensorOp& op) {
  return std::holds_alternative<AttentionCall>(op.work) ||
         std::holds_alternative<ExpertRoute>(op.work);
}

/// torchtitan's rule: what GEMMs, attention and exchanges give is kept, but of every second GEMM
/// and of the router.
std::vector<bool> all_but_every_other_gemm(const TensorOps& ops) {
  std::vector<bool> again;
  bool second = true;
  for (const TensorOp& op : ops.ops) {
    // Of GEMMs only those beside the layer's matrices give fp32: routers, compressors, streams.
    const bool gemm = std::holds_alternative<Linear>(op.work) && !ops.at(op.writes[0]).fp32;
    second = gemm ? !second : second;
    again.push_back(gemm ? second : !keeps_output(op));
  }
  return again;
}

std::vector<bool> written_by(const TensorOps& ops, const std::vector<bool>& operations) {
  std::vector<bool> written(ops.tensors.size(), false);
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    for (const LayerTensorId id : ops.ops[i].writes) {
      written[id.index()] = written[id.index()] || operations[i];
    }
  }
  return written;
}

/// Of the operations that run again, those that write what some backward reads or what another one
/// of them is computed from (of a schedule: needed_again of parallel/layer/parts.cpp). Some have no
/// reader that a list knows: a maximum, modulations. What experts give back counts as read:
/// software may weigh it behind them (torchtitan without score_before_experts, MaxText).
std::vector<bool> needed_of(const TensorOps& ops, std::vector<bool> again) {
  std::vector<bool> needed(ops.tensors.size(), true);
  const auto mark = [&](const LayerTensors& ids, bool is_needed) {
    for (const LayerTensorId id : ids) {
      needed[id.index()] = is_needed;
    }
  };
  mark(ops.results, false);
  for (const TensorOp& op : ops.ops) {
    mark(op.reads, false);
  }
  for (const TensorOp& op : ops.ops) {
    mark(op.keeps, true);
    const auto* route = std::get_if<ExpertRoute>(&op.work);
    if (route != nullptr && route->direction == RouteDirection::combine) {
      mark(op.writes, true);
    }
  }
  for (std::size_t i = ops.ops.size(); i-- > 0;) {
    const TensorOp& op = ops.ops[i];
    const auto is_needed = [&](LayerTensorId id) { return needed[id.index()]; };
    again[i] = again[i] && (op.statistics > 0 || op.writes.empty() ||
                            std::ranges::any_of(op.writes, is_needed));
    for (const LayerTensorId id : op.reads) {
      needed[id.index()] = needed[id.index()] || again[i];
    }
  }
  return again;
}

}  // namespace

std::vector<LayerOp> forward_ops(const TensorOps& ops, const LocalTokens& local) {
  return recomputed_ops(ops, local, {.kind = Recompute::full});
}

std::vector<LayerOp> backward_ops(const TensorOps& ops, const LocalTokens& local) {
  OpWriter writer(ops, local);
  writer.backward();
  return writer.take();
}

std::vector<bool> runs_again(const TensorOps& ops, const Recomputation& recomputation) {
  if (recomputation.kind == Recompute::selective &&
      recomputation.modules.contains(RecomputeModule::every_second_gemm)) {
    return all_but_every_other_gemm(ops);
  }
  const bool but_attention = recomputation.modules.contains(RecomputeModule::all_but_attention);
  std::vector<bool> again;
  for (const TensorOp& op : ops.ops) {
    const auto* call = std::get_if<AttentionCall>(&op.work);
    const bool chosen = !op.modules.common(recomputation.modules).empty() ||
                        (but_attention && (call == nullptr || call->keys != Rows::tokens));
    again.push_back(recomputation.kind == Recompute::full ||
                    (recomputation.kind == Recompute::selective && chosen));
  }
  return again;
}

std::vector<LayerOp> recomputed_ops(const TensorOps& ops, const LocalTokens& local,
                                    const Recomputation& recomputation, Replay replay) {
  const bool keeps_sums = recomputation.kind == Recompute::selective &&
                          recomputation.modules.contains(RecomputeModule::every_second_gemm);
  std::vector<bool> again = runs_again(ops, recomputation);
  if (replay == Replay::needed) {
    again = needed_of(ops, again);
  }
  OpWriter writer(ops, local);
  if (local.gathered_kept && recomputation.kind != Recompute::full) {
    writer.keep_gathered(written_by(ops, again));
  }
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    const TensorOp& op = ops.ops[i];
    if (again[i]) {
      writer.forward(op, keeps_sums);
    } else if (local.gathered_kept) {
      writer.gather(op, op.keeps);
    }
  }
  return writer.take();
}

}  // namespace spp
