#include "transformer/layer_split.hpp"

#include "base/error.hpp"

#include <cmath>

namespace spp {
namespace {

std::int64_t part_of(std::int64_t whole, int parts) { return (whole + parts - 1) / parts; }

std::int64_t width_of(const LayerTensor& tensor, const LayerSplit& split) {
  const int parts = tensor.rows == Rows::received ? split.expert_tensor : split.tensor;
  return tensor.cut == Cut::width ? part_of(tensor.width / tensor.unit, parts) * tensor.unit
                                  : tensor.width;
}

}  // namespace

LocalShapes::LocalShapes(const TensorOps& ops, const LocalTokens& local)
    : ops_(&ops), local_(&local) {
  const LayerSplit& split = local.split;
  ensure(split.tensor >= 1 && split.expert >= 1 && split.expert_tensor >= 1,
         "degrees are at least one");
}

std::int64_t LocalShapes::own_tokens() const {
  return local_->split.sequence_parallel || exchanges()
             ? part_of(local_->rows(), local_->split.tensor)
             : local_->rows();
}

std::int64_t LocalShapes::all_rows(LayerTensorId id) const {
  const std::int64_t routed = own_tokens() * ops_->experts_per_token;
  switch (ops_->at(id).rows) {
    case Rows::tokens:
      return local_->rows();
    case Rows::text:
      return ops_->text_tokens * local_->batch;
    case Rows::image:
      return (local_->tokens - local_->joint) * local_->batch;
    case Rows::joint:
      return local_->joint * local_->batch;
    case Rows::last:
    case Rows::sequence:
      return local_->batch;
    case Rows::entries:
      return part_of(local_->tokens, static_cast<int>(ops_->entry_tokens)) * local_->batch;
    case Rows::routed:
      return routed;
    case Rows::gathered:
      return own_tokens() * local_->split.expert * local_->split.expert_tensor;
    case Rows::received: {
      // As many as all ranks send, over as many ranks; more where the experts are liked.
      const double excess = local_->split.expert > 1 ? local_->routed_excess : 1;
      return local_->split.expert_tensor *
             static_cast<std::int64_t>(std::ceil(static_cast<double>(routed) * excess));
    }
  }
  throw InternalError("no such Rows");
}

std::int64_t LocalShapes::rows(LayerTensorId id) const {
  const LayerTensor& tensor = ops_->at(id);
  const bool cut = tensor.cut == Cut::rows && local_->split.sequence_parallel &&
                   tensor.rows != Rows::routed && tensor.rows != Rows::received &&
                   tensor.rows != Rows::gathered;
  return cut ? part_of(all_rows(id), local_->split.tensor) : all_rows(id);
}

std::int64_t LocalShapes::width(LayerTensorId id) const {
  return width_of(ops_->at(id), local_->split);
}

Bytes LocalShapes::sized(std::int64_t rows, LayerTensorId id) const {
  return Bytes(width(id) * (ops_->at(id).fp32 ? 4 : size_of(local_->dtype))) * rows;
}

Bytes LocalShapes::bytes(const LayerTensors& ids) const {
  Bytes sum{};
  for (const LayerTensorId id : ids) {
    sum += bytes(id);
  }
  return sum;
}

Bytes LocalShapes::statistics(const TensorOp& op) const {
  Bytes sum{};
  for (const LayerTensorId written : op.writes) {
    const bool heads = ops_->at(written).cut == Cut::width;
    sum += Bytes(4 * (heads ? part_of(op.statistics, local_->split.tensor) : op.statistics)) *
           rows(written);
  }
  return sum;
}

std::int64_t LocalShapes::heads(std::int64_t all) const {
  return part_of(all, local_->split.tensor);
}

AttentionCall LocalShapes::heads(const AttentionCall& call) const {
  AttentionCall mine = call;
  mine.q_heads = static_cast<int>(part_of(call.q_heads, local_->split.tensor));
  mine.kv_heads = static_cast<int>(part_of(call.kv_heads, local_->split.tensor));
  return mine;
}

std::int64_t LocalShapes::experts(std::int64_t all) const {
  return part_of(all, local_->split.expert);
}

StateScan LocalShapes::heads(const StateScan& scan) const {
  StateScan mine = scan;
  mine.key_heads = static_cast<int>(part_of(scan.key_heads, local_->split.tensor));
  mine.value_heads = static_cast<int>(part_of(scan.value_heads, local_->split.tensor));
  return mine;
}

bool LocalShapes::exchanges() const {
  return local_->split.expert > 1 || local_->split.expert_tensor > 1;
}

bool LocalShapes::gathers(const TensorOp& op, LayerTensorId read) const {
  return local_->split.sequence_parallel && ops_->at(read).cut == Cut::rows &&
         (partial_gradient(op, read) || repeats(op));
}

bool LocalShapes::repeats(const TensorOp& op) const {
  const auto* linear = std::get_if<Linear>(&op.work);
  return local_->split.tensor > 1 && linear != nullptr && linear->detached;
}

bool LocalShapes::partial_gradient(const TensorOp& op, LayerTensorId read) const {
  return local_->split.tensor > 1 && !op.writes.empty() &&
         ops_->at(op.writes[0]).rows != Rows::received &&
         ops_->at(op.writes[0]).cut == Cut::width && ops_->at(read).cut != Cut::width;
}

bool LocalShapes::partial_sum(const TensorOp& op) const {
  const auto* linear = std::get_if<Linear>(&op.work);
  return local_->split.tensor > 1 && !op.writes.empty() &&
         ops_->at(op.writes[0]).rows != Rows::received &&
         ((linear != nullptr && linear->shard == Shard::rows) ||
          std::holds_alternative<Lookup>(op.work));
}

std::int64_t weights_of(const TensorOp& op, const TensorOps& ops, const LayerSplit& split) {
  struct Count {
    const TensorOp* op;
    const TensorOps* ops;
    const LayerSplit* split;

    std::int64_t operator()(const Linear& linear) const {
      if (linear.tied) {
        return 0;
      }
      const bool cut_in = linear.shard == Shard::rows || linear.shard == Shard::heads;
      const std::int64_t in = cut_in ? width(op->reads) : linear.in;
      const std::int64_t out = linear.shard == Shard::columns ? width(op->writes) : linear.out;
      const std::int64_t matrices = linear.alike ? linear.heads : 1;
      const std::int64_t one = in / matrices * (out / linear.heads) + (linear.bias ? out : 0);
      return linear.experts > 0 ? one * part_of(linear.experts, split->expert) : one;
    }
    std::int64_t operator()(const RowWise& row_wise) const { return row_wise.weights; }
    std::int64_t operator()(const AttentionCall& call) const {
      return call.sinks ? part_of(call.q_heads, split->tensor) : 0;
    }
    std::int64_t operator()(const PickCall& /*scores*/) const { return 0; }
    std::int64_t operator()(const ShortConvolution& convolution) const {
      return width(op->writes) * (convolution.kernel + (convolution.bias ? 1 : 0));
    }
    std::int64_t operator()(const ScanCall& call) const {
      return part_of(call.weights, split->tensor);
    }
    std::int64_t operator()(const ExpertRoute& /*exchange*/) const { return 0; }
    std::int64_t operator()(const Lookup& lookup) const {
      return lookup.tied ? 0 : part_of(lookup.words, split->tensor) * width(op->writes);
    }
    [[nodiscard]] std::int64_t width(const LayerTensors& ids) const {
      std::int64_t sum = 0;
      for (const LayerTensorId id : ids) {
        sum += width_of(ops->at(id), *split);
      }
      return sum;
    }
  };
  return std::visit(Count{.op = &op, .ops = &ops, .split = &split}, op.work);
}

std::int64_t weights_of(const TensorOps& ops, const LayerSplit& split) {
  std::int64_t sum = 0;
  for (const TensorOp& op : ops.ops) {
    sum += weights_of(op, ops, split);
  }
  return sum;
}

std::int64_t weights_of(const TensorOp& op, const TensorOps& ops) {
  return weights_of(op, ops, LayerSplit{});
}

std::int64_t weights_of(const TensorOps& ops) { return weights_of(ops, LayerSplit{}); }

}  // namespace spp
