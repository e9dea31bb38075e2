#include "planner/layer_costs.hpp"

#include "planner/step.hpp"
#include "step/passes.hpp"

namespace spp {
namespace {

Seconds tensor_host_of(const Request& request, const StepPlan& plan) {
  const StepPractice& practice = practice_of(request);
  if (practice.host_tensor_node.value + practice.host_tensor_rank.value == Seconds(0)) {
    return Seconds(0);  // wherever the groups lie
  }
  GroupTimes groups(*request.cluster);
  return tensor_host(practice, StepLinks(groups, plan), plan.tensor);
}

/// Bytes that the stack's kernels for a function touch, over those of the one that a schedule has
/// for it.
std::map<RowFunction, double> traffic_of(const Request& request, const StepPlan& plan,
                                         const LayerQuestion& question) {
  const LocalTokens local{.tokens = question.problem.seq / plan.sequence(),
                          .batch = plan.micro_batch,
                          .dtype = request.problem.dtype,
                          .split = plan.split()};
  struct Touched {
    double all = 0, by_kernel = 0;
  };
  std::map<RowFunction, Touched> bytes;
  const auto add = [&](std::span<const LayerOp> ops) {
    for (const LayerOp& op : ops) {
      const auto* kernel = std::get_if<MemoryBound>(&op.work);
      if (kernel == nullptr || !kernel->function) {
        continue;
      }
      // A schedule's kernel that deals out heads has it inside; eager code does it in several.
      const bool inside =
          op.in_position != InPosition::no && kernel->function != LayerFunction::split_heads;
      const LayerFunction function = inside ? LayerFunction::split_heads : *kernel->function;
      Touched& sum = bytes[{.function = function, .backward = op.role == KernelRole::backward}];
      sum.all += kernel->touched.as_double();
      sum.by_kernel += inside ? 0 : kernel->by_kernel.as_double();
    }
  };
  const ModelLayers layers(*request.model, kind_of(request.phase), plan.to_experts);
  const auto add_list = [&](const TensorOps& ops) {
    add(forward_ops(ops, local));
    add(backward_ops(ops, local));
  };
  for (const LayerRun& run : layers.runs) {
    add_list(run.ops);
  }
  add_list(layers.first);
  add_list(layers.last);
  std::map<RowFunction, double> traffic;
  for (const auto& [function, sum] : bytes) {
    if (sum.by_kernel > 0) {
      traffic[function] = sum.all / sum.by_kernel;
    }
  }
  return traffic;
}

std::int64_t held_for_one(const StepPlan& plan) {
  const bool these_alone = plan.zero == 0 || (plan.zero >= 2 && plan.pipeline == 1);
  return these_alone ? 1 : plan.shards();
}

const Buffer& buffer_of(const Shapes& shapes, BufferId id) { return shapes.buffers[id.index()]; }

std::int64_t numbers_of(const Shapes& shapes, BufferId id, std::int64_t rows) {
  const Buffer& buffer = buffer_of(shapes, id);
  return bytes_of(buffer, rows, buffer.heads).value() / size_of(buffer.dtype);
}

}  // namespace

LayerCosts::LayerCosts(const Request& request, const StepPlan& plan, const LayerQuestion& question,
                       const KernelCost& kernels, bool by_stack)
    : question_(question),
      graph_(question.graph.graph),
      practice_(practice_of(request)),
      kernels_(kernels),
      by_stack_(by_stack),
      streams_(question.plan),
      dtype_(request.problem.dtype),
      traffic_(by_stack ? traffic_of(request, plan, question) : std::map<RowFunction, double>()),
      held_for_one_(held_for_one(plan)),
      tensor_(question.step ? tensor_host_of(request, plan) : Seconds(0)),
      counts_(counts_host(practice_, *request.cluster)) {}

Seconds LayerCosts::kernel(const Kernel& kernel, const Shapes& shapes, Seconds alone) const {
  if (const auto* gemm = std::get_if<Gemm>(&kernel)) {
    // A layer by itself writes them, once.
    const bool of_weights = question_.step && gemm->kind == GemmKind::weight_gradient;
    const std::int64_t rows = buffer_of(shapes, gemm->c).tokens;
    return alone * kernels_.gemm_in_training() +
           (of_weights ? adding_time(kernels_, practice_, dtype_, numbers_of(shapes, gemm->c, rows))
                       : Seconds(0));
  }
  const auto* copy = std::get_if<Copy>(&kernel);
  if (by_stack_ && copy != nullptr && copy->of_slots()) {
    const bool there = copy->kind == CopyKind::dispatch;
    return row_wise(there ? LayerFunction::dispatch : LayerFunction::combine, false, kernel, shapes,
                    kernels_.memory_bound(touched_bytes(kernel, shapes)));
  }
  const auto* row = std::get_if<RowKernel>(&kernel);
  if (row == nullptr) {
    return alone;
  }
  const LayerFunction function = graph_.definition(row->definition).function;
  if (function == LayerFunction::adam) {
    const std::int64_t updated = numbers_of(shapes, row->reads.ids()[0], row->tokens.count());
    // Norm and zeroing are launched for all parameters at once.
    return update_time(kernels_, practice_, updated, held_for_one_ * updated) -
           2 * kernels_.launch();
  }
  return row_wise(function, row->backward && function != LayerFunction::add, kernel, shapes, alone);
}

Seconds LayerCosts::row_wise(LayerFunction function, bool backward, const Kernel& kernel,
                             const Shapes& shapes, Seconds alone) const {
  const RowFunction timed{.function = function, .backward = backward};
  if (kernels_.times(timed)) {  // its launch among it
    return kernels_.row_kernel(timed, touched_bytes(kernel, shapes));
  }
  const auto traffic = traffic_.find(timed);
  const bool apart = function == LayerFunction::split_heads && practice_.position.value > 0;
  return alone * (traffic == traffic_.end() ? 1 : traffic->second) *
             (apart ? practice_.position : practice_.elementwise).value +
         kernels_.launch();
}

sim::HostTime LayerCosts::host(const Op& op, const Shapes& shapes, Seconds attention) const {
  return std::visit(
      Overloaded{[&](const Kernel& kernel) { return host(kernel, attention); },
                 [&](const Transfer& transfer) {
                   return std::visit(
                       Overloaded{[&](const Exchange& e) { return host(e, shapes, attention); },
                                  [&](const Collective&) {
                                    return host_of_collective(op.stream, attention);
                                  }},
                       transfer);
                 }},
      op.body);
}

sim::HostTime LayerCosts::host(const Kernel& kernel, Seconds attention) const {
  if (const auto* row = std::get_if<RowKernel>(&kernel)) {
    const LayerFunction function = graph_.definition(row->definition).function;
    const bool begins = function == LayerFunction::embedding && !row->backward;
    const bool turns = function == LayerFunction::word_loss;
    return {.issue = practice_.host_kernel.value, .stand = begins || turns ? turn() : Seconds(0)};
  }
  const auto* copy = std::get_if<Copy>(&kernel);
  const bool of_layer =
      std::holds_alternative<Gemm>(kernel) || (copy != nullptr && copy->of_slots());
  return {.issue = of_layer ? practice_.host_kernel.value : attention};
}

sim::HostTime LayerCosts::host(const Exchange& exchange, const Shapes& shapes,
                               Seconds attention) const {
  const BufferId sent = exchange.send.empty() ? *exchange.receive.begin() : *exchange.send.begin();
  if (!is_value(buffer_of(shapes, sent).tensor)) {
    return {.issue = attention};
  }
  const bool waits = exchange.from.valid() && !question_.plan.messages_overlap;
  return {.issue = practice_.host_message.value,
          .stand = (exchange.from.valid() ? turn() : Seconds(0)) +
                   (waits ? practice_.host_message.value : Seconds(0))};
}

sim::HostTime LayerCosts::host_of_collective(StreamId stream, Seconds attention) const {
  if (stream == streams_.experts) {
    return {.issue = practice_.host_exchange.value, .stand = counts_};
  }
  if (stream == streams_.tensor) {
    return {.issue = practice_.host_transfer.value + tensor_};
  }
  const bool of_attention = stream.index() < LayerStreams::first;
  return {.issue = of_attention ? attention : practice_.host_transfer.value};
}

Seconds LayerCosts::turn() const { return practice_.host_micro_batch.value / 2; }

Seconds LayerCosts::call() const { return practice_.host_step.value; }

}  // namespace spp
