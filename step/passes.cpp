#include "step/passes.hpp"

#include "base/error.hpp"
#include "machine/linear_cost.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace spp {
namespace {

GemmKind kind_of(const LayerOp& op) {
  return op.role == KernelRole::input_gradient    ? GemmKind::input_gradient
         : op.role == KernelRole::weight_gradient ? GemmKind::weight_gradient
                                                  : GemmKind::forward;
}

StepAxis axis_of(LayerAxis axis) {
  switch (axis) {
    case LayerAxis::tensor:
      return StepAxis::tensor;
    case LayerAxis::expert:
      return StepAxis::expert;
    case LayerAxis::expert_tensor:
      return StepAxis::expert_tensor;
  }
  throw InternalError("no such LayerAxis");
}

class PassClock {
 public:
  explicit PassClock(const PassCosts& costs) : costs_(costs) {}

  PassAround run(std::span<const LayerOp> ops) {
    times_.reserve(ops.size());
    for (const LayerOp& op : ops) {
      times_.push_back(std::visit([&](const auto& work) { return time_of(op, work); }, op.work));
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      std::visit([&](const auto& work) { add(ops, i, work); }, ops[i].work);
    }
    return around_;
  }

 private:
  // ---- alone
  double time_of(const LayerOp& op, const GemmShape& gemm) const {
    return gemm_time(op, {.m = gemm.m, .n = gemm.n, .k = gemm.k, .kind = kind_of(op)}) +
           added_up(op, gemm.m * gemm.n);
  }
  double time_of(const LayerOp& op, const GroupedGemm& gemm) const {
    return gemm_time(op, {.m = gemm.rows,
                          .n = gemm.n,
                          .k = gemm.k,
                          .groups = gemm.groups,
                          .kind = kind_of(op)}) +
           added_up(op, gemm.n * gemm.k * gemm.groups);
  }
  [[nodiscard]] double added_up(const LayerOp& op, std::int64_t weights) const {
    return op.role != KernelRole::weight_gradient
               ? 0
               : adding_time(*costs_.kernels, *costs_.practice, costs_.dtype, weights).count() *
                     costs_.crowd;
  }
  double gemm_time(const LayerOp& op, GemmWork work) const {
    work.format = op.stays_wide ? GemmFormat::plain : costs_.format;
    work.quantised = true;  // norms and activations write what the next GEMM reads
    return costs_.kernels->gemm(work, costs_.dtype).count() * costs_.crowd *
           costs_.kernels->gemm_in_training();
  }
  double time_of(const LayerOp& op, const MemoryBound& kernel) const {
    const StepPractice& practice = *costs_.practice;
    if (const auto timed = timed_as(op, kernel)) {
      return kernel.by_kernel.value() == 0
                 ? 0
                 : costs_.kernels->row_kernel(*timed, kernel.by_kernel).count() * costs_.crowd;
    }
    const bool apart = practice.position.value > 0 && op.in_position != InPosition::no;
    return (costs_.kernels->memory_bound(kernel.touched).count() *
                (apart ? practice.position : practice.elementwise).value +
            costs_.kernels->launch().count()) *
           costs_.crowd;
  }
  /// As which a calibration of this machine timed it.
  [[nodiscard]] std::optional<RowFunction> timed_as(const LayerOp& op,
                                                    const MemoryBound& kernel) const {
    if (!kernel.function) {
      return std::nullopt;
    }
    const RowFunction function{.function = *kernel.function,
                               .backward = op.role == KernelRole::backward};
    return costs_.kernels->times(function) ? std::optional(function) : std::nullopt;
  }
  double time_of(const LayerOp& /*op*/, const CrossAttention& cross) const {
    return costs_.kernels
               ->attention({.q = TokenSet(TokenRange{.begin = 0, .count = cross.queries}),
                            .k = TokenSet(TokenRange{.begin = 0, .count = cross.keys}),
                            .q_heads = cross.call.q_heads,
                            .kv_heads = cross.call.kv_heads,
                            .head_dim = cross.call.head_dim,
                            .batch = cross.batch,
                            .mask = {.kind = MaskKind::full},
                            .dtype = costs_.dtype,
                            .phase = cross.phase,
                            .value_dim = cross.call.value_dim})
               .count() *
           costs_.crowd;
  }
  static double time_of(const LayerOp& /*op*/, const SelfAttention& /*call*/) { return 0; }
  static double time_of(const LayerOp& /*op*/, const PickKernel& /*pick*/) { return 0; }
  static double time_of(const LayerOp& /*op*/, const ScanKernel& /*scan*/) { return 0; }
  double time_of(const LayerOp& /*op*/, const ConvolutionKernel& kernel) const {
    const GpuSpec& gpu = costs_.kernels->gpu();
    return convolution_time(gpu, linear_spec_of(gpu),
                            {.seq = kernel.tokens,
                             .batch = kernel.batch,
                             .channels = kernel.channels,
                             .phase = kernel.phase})
               .count() *
           costs_.crowd;
  }
  double time_of(const LayerOp& /*op*/, const LayerTransfer& transfer) const {
    return costs_.links->collective(axis_of(transfer.axis), transfer.kind, moved(transfer)).count();
  }
  /// What of a transfer is sent: tokens for several experts of a node once, where the stack does
  /// so.
  [[nodiscard]] Bytes moved(const LayerTransfer& transfer) const {
    const bool exchange =
        transfer.axis == LayerAxis::expert && transfer.kind == CommKind::all_to_all;
    return exchange ? Bytes(std::llround(transfer.bytes.as_double() * copies_across()))
                    : transfer.bytes;
  }
  /// Of the copies of a token that leave the node, the part that is sent: with k experts on N nodes
  /// drawn evenly, (N-1)(1 - (1-1/N)^k) other nodes have one at least, of k (N-1)/N copies.
  [[nodiscard]] double copies_across() const {
    const double nodes = costs_.links->nodes(StepAxis::expert);
    const double k = costs_.experts_per_token;
    if (nodes <= 1 || costs_.practice->once_per_node.value == 0) {
      return 1;
    }
    return nodes * (1 - std::pow(1 - 1 / nodes, k)) / k;
  }

  // ---- in the pass
  void add(std::span<const LayerOp> ops, std::size_t i, const GemmShape& /*work*/) {
    add_gemm(ops[i], times_[i]);
  }
  void add(std::span<const LayerOp> ops, std::size_t i, const GroupedGemm& /*work*/) {
    add_gemm(ops[i], times_[i]);
  }
  void add_gemm(const LayerOp& op, double seconds) {
    time_.parts[StepPart::gemm] += seconds;
    if (op.role == KernelRole::weight_gradient) {
      time_.weight_gradients += seconds;
    }
    launched();
  }
  void add(std::span<const LayerOp> /*ops*/, std::size_t i, const MemoryBound& /*work*/) {
    time_.parts[StepPart::elementwise] += times_[i];
    if (times_[i] > 0) {  // else another op's kernel has it inside
      launched();
    }
  }
  void add(std::span<const LayerOp> /*ops*/, std::size_t i, const ConvolutionKernel& /*work*/) {
    time_.parts[StepPart::elementwise] += times_[i];
    launched();
  }
  void add(std::span<const LayerOp> /*ops*/, std::size_t i, const CrossAttention& /*work*/) {
    time_.parts[StepPart::attention] += times_[i];
    launched();
  }
  void add(std::span<const LayerOp> /*ops*/, std::size_t /*i*/, const SelfAttention& call) {
    add_attention(call.phase);
  }
  void add(std::span<const LayerOp> /*ops*/, std::size_t /*i*/, const PickKernel& /*pick*/) {
    launched();
  }
  void add(std::span<const LayerOp> /*ops*/, std::size_t /*i*/, const ScanKernel& scan) {
    add_attention(scan.phase);
  }
  void add_attention(Phase phase) {
    ++(phase == Phase::forward ? around_.forwards : around_.backwards);
    launched();
  }
  void add(std::span<const LayerOp> ops, std::size_t i, const LayerTransfer& transfer) {
    const StepAxis axis = axis_of(transfer.axis);
    const bool tensor = axis == StepAxis::tensor;
    const double behind = ops[i].beside ? costs_.practice->tensor_beside.value
                          : tensor      ? costs_.practice->tensor_hidden.value
                                        : costs_.practice->expert_hidden.value;
    const double cover = tensor ? neighbour(ops, i, transfer.kind) : times_[i];
    const double hidden = behind * std::min(times_[i], cover);
    time_.parts[tensor ? StepPart::tp : StepPart::ep] += times_[i] - hidden;
    time_.parts[StepPart::gemm] += costs_.practice->slowdown.value * hidden;
    time_.hidden += hidden;
    time_.links += costs_.links->taken(axis, transfer.kind, moved(transfer));
    around_.sent.at(axis, transfer.kind) +=
        costs_.links->sent(axis, transfer.kind, moved(transfer));
    // Most of it is in sorting tokens and counting them, whoever sends them how.
    const bool exchange = axis == StepAxis::expert;
    host_ += (exchange ? costs_.exchange : costs_.practice->host_transfer.value).count();
    if (tensor) {
      host_ += costs_.tensor_host.count();
    }
    if (axis == costs_.counted) {  // grouped GEMMs are told how many rows each expert has
      time_.parts[StepPart::launch] += costs_.counts.count();
    }
  }

  /// The GEMM that a transfer can hide behind: the next one of what is gathered, the last one of
  /// what is scattered; beside either, the next.
  double neighbour(std::span<const LayerOp> ops, std::size_t i, CommKind kind) const {
    const auto is_gemm = [&](std::size_t j) {
      return std::holds_alternative<GemmShape>(ops[j].work) ||
             std::holds_alternative<GroupedGemm>(ops[j].work);
    };
    if (kind == CommKind::all_gather || ops[i].beside) {
      for (std::size_t j = i + 1; j < ops.size(); ++j) {
        if (is_gemm(j)) {
          return times_[j];
        }
      }
      return 0;
    }
    for (std::size_t j = i; j-- > 0;) {
      if (is_gemm(j)) {
        return times_[j];
      }
    }
    return 0;
  }

  void launched() { host_ += costs_.practice->host_kernel.value.count(); }

  const PassCosts& costs_;
  std::vector<double> times_;
  PassAround around_;
  PassTime& time_ = around_.time;
  double& host_ = around_.host;
};

}  // namespace

Bytes kept_of(const AttentionCost& attention, const TensorOps& ops,
              const Recomputation& recompute) {
  const std::vector<bool> again = runs_again(ops, recompute);
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (again[i] && std::holds_alternative<AttentionCall>(ops.ops[i].work)) {
      return Bytes(0);
    }
  }
  return attention.kept;
}

std::string_view to_string(StepPart part) {
  constexpr std::array<std::string_view, step_parts> names{
      "attention", "gemm", "elementwise", "optimizer", "launch", "cp",
      "tp",        "ep",   "dp",          "pp",        "bubble"};
  return names.at(static_cast<std::size_t>(part));
}

double StepSeconds::total() const {
  double sum = 0;
  for (const double part : of_) {
    sum += part;
  }
  return sum;
}

StepSeconds& StepSeconds::operator+=(const StepSeconds& other) {
  for (std::size_t i = 0; i < step_parts; ++i) {
    of_[i] += other.of_[i];
  }
  return *this;
}

PassTime& PassTime::operator+=(const PassTime& other) {
  parts += other.parts;
  weight_gradients += other.weight_gradients;
  hidden += other.hidden;
  links += other.links;
  return *this;
}

PassTime operator*(double times, PassTime pass) {
  pass.parts = times * pass.parts;
  pass.weight_gradients *= times;
  pass.hidden *= times;
  pass.links = times * pass.links;
  return pass;
}

PassTime PassAround::time_with(const AttentionCost* attention) const {
  ensure(attention != nullptr || forwards + backwards == 0,
         "a layer with attention needs its cost");
  PassTime result = time;
  StepSeconds& parts = result.parts;
  double issued = host;
  const auto add = [&](int calls, const AttentionCost::Pass& cost) {
    parts[StepPart::attention] += calls * cost.kernels.count();
    parts[StepPart::elementwise] += calls * cost.small.count();
    parts[StepPart::cp] += calls * (cost.exposed + cost.imbalance).count();
    issued += calls * cost.issue.count();
    result.hidden += calls * cost.hidden.count();
    result.links += calls * cost.links;
  };
  if (attention != nullptr) {
    add(forwards, attention->forward);
    add(backwards, attention->backward);
  }
  parts[StepPart::launch] += std::max(0.0, issued - parts.total());
  return result;
}

SentBytes PassAround::sent_with(const AttentionCost* attention) const {
  SentBytes all = sent;
  if (attention != nullptr) {
    all += forwards * attention->forward.sent;
    all += backwards * attention->backward.sent;
  }
  return all;
}

Seconds adding_time(const KernelCost& kernels, const StepPractice& practice, DType dtype,
                    std::int64_t weights) {
  const double bytes = 2 * added_gradient(practice, dtype == DType::bf16);
  return kernels.memory_bound(Bytes(std::llround(bytes * static_cast<double>(weights))));
}

Seconds tensor_host(const StepPractice& practice, const StepLinks& links, int ranks) {
  const double further = links.nodes(StepAxis::tensor) - 1;
  const double apart = links.nodes(StepAxis::stages) > 1 ? ranks : 0;
  return further * practice.host_tensor_node.value + apart * practice.host_tensor_rank.value;
}

Seconds counts_host(const StepPractice& practice, const sim::Cluster& cluster) {
  const bool on_device =
      practice.device_counts.value > 0 && cluster.gpus_per_node() >= practice.device_counts.value;
  return on_device ? Seconds(0) : practice.host_counts.value;
}

Replay replay_of(const StepPractice& practice) {
  return practice.replays_whole.value > 0 ? Replay::whole : Replay::needed;
}

Seconds time_on_host(const sim::Cluster& cluster, int world, double numbers, Seconds each) {
  return std::min(world, cluster.gpus_per_node()) * numbers * each;
}

Seconds update_time(const KernelCost& kernels, const StepPractice& practice, std::int64_t updated,
                    std::int64_t gradients) {
  constexpr std::int64_t norm = 4;            // of a gradient in fp32, read
  constexpr std::int64_t adam = 16 + 12 + 2;  // gradient, master, m, v; master, m, v, 16 bit weight
  constexpr std::int64_t zeroing = 4;
  const Bytes update(updated * adam);
  const Bytes beside(updated * norm + gradients * zeroing);
  const RowFunction timed{.function = LayerFunction::adam};
  return kernels.times(timed)  // on this machine, its launch among it
             ? kernels.row_kernel(timed, update) + kernels.memory_bound(beside) +
                   2 * kernels.launch()
             : kernels.memory_bound(update + beside) * practice.optimizer.value +
                   3 * kernels.launch();
}

PassAround pass_around(std::span<const LayerOp> ops, const PassCosts& costs) {
  return PassClock(costs).run(ops);
}

}  // namespace spp
