#include "transformer/layer_kernels.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "schedule/measure.hpp"

#include <utility>

namespace spp {
namespace {

/// Kernels made from operations. `e` bytes an element of the step's type.
class KernelWriter {
 public:
  KernelWriter(const TensorOps& ops, const LocalTokens& local)
      : ops_(&ops), local_(&local), seen_(ops.tensors.size(), 0) {}

  void forward(const TensorOp& op) {
    std::visit([&](const auto& work) { forward(op, work); }, op.work);
  }
  /// Gradients come from behind the list for its results; then reversed, op by op.
  void backward() {
    for (const LayerTensorId id : ops_->results) {
      seen_[id.index()] = 1;
    }
    for (auto op = ops_->ops.rbegin(); op != ops_->ops.rend(); ++op) {
      std::visit([&](const auto& work) { backward(*op, work); }, op->work);
      add_gradients(*op);
    }
  }
  [[nodiscard]] std::vector<LayerKernel> take() { return std::move(kernels_); }

 private:
  void forward(const TensorOp& op, const Linear& linear) {
    gemm(op, KernelRole::forward, rows_of(op), linear.out, linear.in);
  }
  void forward(const TensorOp& op, const RowWise& /*work*/) {
    memory_bound(op.name, KernelRole::forward, bytes_of(op.reads) + bytes_of(op.writes));
  }
  void forward(const TensorOp& op, const AttentionCall& call) {
    cross_attention(op, call, Phase::forward);
  }
  void forward(const TensorOp& op, const Lookup& /*work*/) {
    memory_bound(op.name, KernelRole::forward, bytes_of(op.reads) + bytes_of(op.writes));
  }

  void backward(const TensorOp& op, const Linear& linear) {
    const std::int64_t rows = rows_of(op);
    if (linear.bias) {  // sums the rows of dY
      memory_bound(op.name, KernelRole::bias_gradient, gradient_bytes(op.writes));
    }
    gemm(op, KernelRole::input_gradient, rows, linear.in, linear.out);
    gemm(op, KernelRole::weight_gradient, linear.in, linear.out, rows);
  }
  void backward(const TensorOp& op, const RowWise& work) {
    if (work.gradient == RowGradient::computed) {
      memory_bound(op.name, KernelRole::backward,
                   gradient_bytes(op.writes) + bytes_of(op.keeps) + bytes_of(op.reads));
    }
  }
  void backward(const TensorOp& op, const AttentionCall& call) {
    cross_attention(op, call, Phase::backward);
  }
  void backward(const TensorOp& op, const Lookup& /*work*/) {
    // Reads dY, reads and writes as many rows of the table's fp32 gradient.
    Bytes bytes = gradient_bytes(op.writes);
    for (const LayerTensorId id : op.reads) {
      bytes += Bytes(8 * ops_->at(id).width) * rows_of(ops_->at(id).rows);
    }
    memory_bound(op.name, KernelRole::backward, bytes);
  }

  /// The op gave each tensor that it reads a gradient; what had one already gets the sum.
  void add_gradients(const TensorOp& op) {
    const auto* row_wise = std::get_if<RowWise>(&op.work);
    if (row_wise != nullptr && row_wise->gradient == RowGradient::none) {
      return;
    }
    for (const LayerTensorId id : op.reads) {
      if (seen_[id.index()]++ > 0) {
        memory_bound(ops_->at(id).name, KernelRole::sum, size_of_tensor(id) * 3);
      }
    }
  }

  void gemm(const TensorOp& op, KernelRole role, std::int64_t m, std::int64_t n, std::int64_t k) {
    kernels_.push_back({.name = op.name, .role = role, .work = GemmShape{.m = m, .n = n, .k = k}});
  }
  void memory_bound(std::string_view name, KernelRole role, Bytes touched) {
    kernels_.push_back({.name = name, .role = role, .work = MemoryBound{.touched = touched}});
  }
  void cross_attention(const TensorOp& op, const AttentionCall& call, Phase phase) {
    if (call.keys == Rows::text) {
      kernels_.push_back(
          {.name = op.name,
           .role = phase == Phase::forward ? KernelRole::forward : KernelRole::backward,
           .work = CrossAttention{.call = call,
                                  .queries = local_->tokens,
                                  .keys = ops_->text_tokens,
                                  .batch = local_->batch,
                                  .phase = phase}});
    }
  }

  [[nodiscard]] std::int64_t rows_of(Rows rows) const {
    switch (rows) {
      case Rows::tokens:
        return local_->rows();
      case Rows::text:
        return ops_->text_tokens * local_->batch;
      case Rows::last:
        return local_->batch;
    }
    throw InternalError("no such Rows");
  }
  /// Rows that a GEMM computes.
  [[nodiscard]] std::int64_t rows_of(const TensorOp& op) const {
    return rows_of(ops_->at(op.writes[0]).rows);
  }
  [[nodiscard]] Bytes size_of_tensor(LayerTensorId id) const {
    const LayerTensor& tensor = ops_->at(id);
    return Bytes(tensor.width * (tensor.fp32 ? 4 : size_of(local_->dtype))) * rows_of(tensor.rows);
  }
  [[nodiscard]] Bytes bytes_of(const LayerTensors& ids) const {
    Bytes sum{};
    for (const LayerTensorId id : ids) {
      sum += size_of_tensor(id);
    }
    return sum;
  }
  /// Of gradients that exist: somebody behind read the tensor.
  [[nodiscard]] Bytes gradient_bytes(const LayerTensors& ids) const {
    Bytes sum{};
    for (const LayerTensorId id : ids) {
      if (seen_[id.index()] > 0) {
        sum += size_of_tensor(id);
      }
    }
    return sum;
  }

  const TensorOps* ops_;
  const LocalTokens* local_;
  std::vector<int> seen_;  // gradients of each tensor so far
  std::vector<LayerKernel> kernels_;
};

}  // namespace

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  throw InternalError("no such Recompute");
}

Recompute parse_recompute(std::string_view text, std::string_view where) {
  std::vector<std::string> names;
  for (const Recompute value : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (to_string(value) == text) {
      return value;
    }
    names.emplace_back(to_string(value));
  }
  throw InputError(where,
                   fmt::format("unknown recomputation '{}'{}", text, did_you_mean(text, names)));
}

FlopCount CrossAttention::flops() const {
  return FlopCount(flops_per_pair(phase, call.head_dim, call.head_dim) *
                   static_cast<double>(queries) * static_cast<double>(keys) * call.q_heads *
                   static_cast<double>(batch));
}

std::string to_string(const LayerKernel& kernel) {
  switch (kernel.role) {
    case KernelRole::forward:
      return std::string(kernel.name);
    case KernelRole::backward:
      return fmt::format("d {}", kernel.name);
    case KernelRole::input_gradient:
      return fmt::format("d {} input", kernel.name);
    case KernelRole::weight_gradient:
      return fmt::format("d {} weight", kernel.name);
    case KernelRole::bias_gradient:
      return fmt::format("d {} bias", kernel.name);
    case KernelRole::sum:
      return fmt::format("d {} sum", kernel.name);
  }
  throw InternalError("no such KernelRole");
}

std::vector<LayerKernel> forward_kernels(const TensorOps& ops, const LocalTokens& local) {
  return recomputed_kernels(ops, local, Recompute::full);
}

std::vector<LayerKernel> backward_kernels(const TensorOps& ops, const LocalTokens& local) {
  KernelWriter writer(ops, local);
  writer.backward();
  return writer.take();
}

std::vector<LayerKernel> recomputed_kernels(const TensorOps& ops, const LocalTokens& local,
                                            Recompute recompute) {
  KernelWriter writer(ops, local);
  for (const TensorOp& op : ops.ops) {
    if (recompute == Recompute::full || (recompute == Recompute::selective && op.cheap)) {
      writer.forward(op);
    }
  }
  return writer.take();
}

FlopCount flops_of(std::span<const LayerKernel> kernels) {
  FlopCount total{};
  for (const LayerKernel& kernel : kernels) {
    total += std::visit([](const auto& work) { return work.flops(); }, kernel.work);
  }
  return total;
}

}  // namespace spp
