#include "runtime/trial/layer_check.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>

namespace spp::runtime {
namespace {

/// Of differences over a tile; beyond it a result that is wrong as a whole could pass.
constexpr double most_mean = 0.5;

/// What fp16 takes from a step's gradients, in units of a row: rows are about 1 / tokens long, as
/// gradients of a mean are, and below 2^-14 each number of one is rounded to a multiple of 2^-24.
double underflow(const Schedule& schedule) {
  const Problem& p = schedule.contract.requested;
  if (schedule.contract.phase != Phase::step || p.dtype != DType::fp16) {
    return 0;
  }
  std::int64_t widest = 1;
  for (const Value& value : schedule.contract.graph.values) {
    widest = std::max(widest, value.width);
  }
  return std::ldexp(std::sqrt(static_cast<double>(widest)), -25) *
         static_cast<double>(p.all_tokens() * p.batch);
}

Tolerance layer_limit(const Schedule& schedule, const StoredProgram& program, Tensor tensor) {
  const Problem& p = schedule.contract.requested;
  std::int64_t longest = p.all_tokens() * p.batch;
  for (const Param& param : schedule.contract.graph.params) {
    longest = std::max({longest, param.rows, param.columns});
  }
  const bool backward = schedule.contract.phase != Phase::forward;
  const auto definitions =
      static_cast<double>(schedule.contract.graph.definitions.size() * (backward ? 2 : 1));
  const double products =
      (p.head_dim + 4 * std::sqrt(static_cast<double>(longest))) * unit_roundoff(DType::fp32);
  // Errors of squares of gradients are twice as large as the gradients'.
  const double factors = (backward ? 2 : 1) * (tensor == Tensor::second_moment ? 2 : 1);
  const double rounding = std::max(coarsest_roundoff(schedule, program), underflow(schedule));
  const double largest = std::sqrt(definitions) * (4 * rounding + products) * factors;
  return {.largest = largest, .mean = largest / 4};
}

/// What an update leaves of the tensor whatever the gradient is, as a factor; 0: it is none that an
/// update changes, or it is rounded to less than the change.
double kept_by_update(Tensor tensor) {
  constexpr AdamConstants adam;
  return tensor == Tensor::master          ? 1
         : tensor == Tensor::first_moment  ? adam.beta1
         : tensor == Tensor::second_moment ? adam.beta2
                                           : 0;
}

/// Of a tile, what is no padding.
TokenSet real_tokens(const TokenSet& tile, std::int64_t seq) {
  TokenSet result;
  for (TokenRange range : tile.ranges()) {
    range.count =
        range.begin >= seq ? 0 : std::min(range.count, (seq - 1 - range.begin) / range.stride + 1);
    if (range.count > 0) {
      result.append(range);
    }
  }
  return result;
}

}  // namespace

void expect_checkable(const Schedule& schedule, const std::vector<StoredProgram>& programs,
                      const CheckOptions& options, const SharedOracles& oracles) {
  const double flops = LayerOracle::flops(schedule) * oracles.computing();
  if (flops > options.flops) {
    throw InputError(
        "--check",
        fmt::format("every process computes all of it in fp64, {:.2g} FLOPs together "
                    "(at most {:.2g}): shorter sequences, a smaller model or fewer processes",
                    flops, options.flops));
  }
  for (const StoredProgram& program : programs) {
    for (const Buffer& buffer : program.buffers) {
      const double mean =
          is_result(buffer.role) ? layer_limit(schedule, program, buffer.ref().tensor).mean : 0;
      if (mean > most_mean) {
        throw InputError("--check", fmt::format("after {} definitions rounding alone may be {:.2g} "
                                                "of a result: fewer layers, or --dtype fp32",
                                                schedule.contract.graph.definitions.size(), mean));
      }
    }
  }
}

CheckReport check_layer(Transport& transport, const Schedule& schedule,
                        const StoredProgram& program, const HostMemory& memory,
                        const InputData& data, SharedOracles& oracles) {
  const Poll poll = [&] {
    transport.working();
    transport.progress();
  };
  const LayerOracle& oracle = oracles.of(schedule, data, poll);
  const Problem& p = schedule.contract.requested;
  Comparison comparison;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const TensorRef ref = buffer.ref();
    // Rows of weights that attention keeps for its backward show in what is made of them.
    if (!is_result(buffer.role) || !oracle.has(ref)) {
      continue;
    }
    const bool of_param = is_param(ref.tensor);
    const std::int64_t row = of_param ? schedule.contract.graph.param(ref.label).columns
                             : is_value(ref.tensor) ? schedule.contract.graph.value(ref.label).width
                             : is_kv(ref.tensor)    ? buffer.width * p.kv_heads
                                                    : buffer.width * p.q_heads;
    const std::vector<double>& expected = oracle.at(ref);
    const Compared compared{.memory = memory,
                            .buffer = BufferId(i),
                            .rank = program.rank,
                            .limit = layer_limit(schedule, program, ref.tensor)};
    // An update is small beside what it changes: were it left out, hardly a number would differ.
    Comparison::Expected before;
    if (const double kept = kept_by_update(ref.tensor); kept > 0) {
      before = [kept, width = buffer.width, data = TensorData(data, ref)](
                   std::int64_t line, std::int64_t, int part, int column) {
        return kept * data(0, line, std::int64_t{part} * width + column);
      };
    }
    comparison.compare(
        schedule.contract.graph.name(ref), compared,
        of_param ? buffer.tile : real_tokens(buffer.tile, p.all_tokens()), buffer.head_range,
        [&](std::int64_t token, std::int64_t batch, int head, int dim) {
          const std::int64_t line = (of_param ? token : token - p.cached) * buffer.batch + batch;
          return expected[static_cast<std::size_t>(line * row + head * buffer.width + dim)];
        },
        before);
  }
  return comparison.report(transport, 1);
}

}  // namespace spp::runtime
