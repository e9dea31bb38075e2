// What an op of a layer is called, and how much it computes.
#include "base/error.hpp"
#include "base/named.hpp"
#include "schedule/measure.hpp"
#include "transformer/layer_kernels.hpp"

#include <array>

namespace spp {
namespace {

constexpr std::array dispatcher_names{Named{Dispatcher::all_to_all, "all-to-all"},
                                      Named{Dispatcher::all_gather, "all-gather"}};

}  // namespace

std::string_view to_string(Dispatcher dispatcher) { return name_of(dispatcher, dispatcher_names); }
Dispatcher parse_dispatcher(std::string_view text, std::string_view where) {
  return value_of(text, dispatcher_names, where);
}

FlopCount CrossAttention::flops() const {
  return FlopCount(flops_per_pair(phase, call.head_dim, call.v_dim()) *
                   static_cast<double>(queries) * static_cast<double>(keys) * call.q_heads *
                   static_cast<double>(batch));
}

bool gives_gradient(const TensorOp& op, LayerTensorId read) {
  const auto* row_wise = std::get_if<RowWise>(&op.work);
  const auto* linear = std::get_if<Linear>(&op.work);
  const auto* call = std::get_if<AttentionCall>(&op.work);
  const bool number = call != nullptr && call->meets.picked > 0 && op.reads.back() == read;
  return (row_wise == nullptr || row_wise->gradient != RowGradient::none) &&
         (linear == nullptr || !linear->detached) && !number;
}

FlopCount ScanKernel::flops() const {
  const double times = phase == Phase::backward ? 2 : 1;
  return times * forward_flops(scan, static_cast<double>(tokens));
}

std::string_view to_string(LayerAxis axis) {
  switch (axis) {
    case LayerAxis::tensor:
      return "tensor";
    case LayerAxis::expert:
      return "expert";
    case LayerAxis::expert_tensor:
      return "expert_tensor";
  }
  throw InternalError("no such LayerAxis");
}

std::string to_string(const LayerOp& op) {
  const auto* transfer = std::get_if<LayerTransfer>(&op.work);
  const std::string what = transfer == nullptr ? "" : fmt::format(" {}", to_string(transfer->kind));
  switch (op.role) {
    case KernelRole::forward:
      return fmt::format("{}{}", op.name, what);
    case KernelRole::backward:
      return fmt::format("d {}{}", op.name, what);
    case KernelRole::input_gradient:
      return fmt::format("d {} input{}", op.name, what);
    case KernelRole::weight_gradient:
      return fmt::format("d {} weight{}", op.name, what);
    case KernelRole::bias_gradient:
      return fmt::format("d {} bias{}", op.name, what);
    case KernelRole::sum:
      return fmt::format("d {} sum{}", op.name, what);
  }
  throw InternalError("no such KernelRole");
}

FlopCount flops_of(std::span<const LayerOp> ops) {
  FlopCount total{};
  for (const LayerOp& op : ops) {
    total += std::visit([](const auto& work) { return work.flops(); }, op.work);
  }
  return total;
}

}  // namespace spp
