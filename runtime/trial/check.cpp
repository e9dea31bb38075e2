// One class, hence one file: all its parts share the sample and one KV head's keys and statistics.
#include "runtime/trial/check.hpp"

#include "runtime/comm/packed.hpp"
#include "runtime/kernels/reference_attention.hpp"
#include "runtime/kernels/softmax.hpp"
#include "runtime/trial/comparison.hpp"
#include "runtime/trial/layer_check.hpp"
#include "schedule/measure.hpp"

#include <algorithm>
#include <cmath>

namespace spp::runtime {
namespace {

/// What is compared: the same on all ranks.
struct Sample {
  int kv_heads = 1;       // the first ones
  std::int64_t step = 1;  // every step-th token
};

/// Comparing all takes `passes` forwards over all pairs.
Sample sample_of(const Schedule& schedule, double passes, const CheckOptions& options) {
  const Problem& p = schedule.contract.requested;
  const double pairs = static_cast<double>(p.seq) * static_cast<double>(p.end());
  const double all = passes * flops_per_pair(Phase::forward, p.head_dim, p.v_dim()) * pairs *
                     p.q_heads * static_cast<double>(p.batch);
  const double part = std::min(1.0, options.flops / all);
  Sample sample;
  sample.kv_heads = std::clamp(static_cast<int>(part * p.kv_heads), 1, p.kv_heads);
  const double left = part * p.kv_heads / sample.kv_heads;
  sample.step = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(0.999 / left)));
  return sample;
}

/// Every step-th token of a tile that is not padding.
TokenSet sampled(const TokenSet& tile, std::int64_t step, std::int64_t seq) {
  TokenSet result;
  for (TokenRange range : tile.ranges()) {
    while (range.count > 0 && range.last() >= seq) {
      range.count = range.begin >= seq ? 0 : (seq - 1 - range.begin) / range.stride + 1;
    }
    if (range.count == 0) {
      continue;
    }
    const TokenRange some{.begin = range.begin,
                          .count = (range.count + step - 1) / step,
                          .stride = range.stride * step};
    result.append(some);
  }
  return result;
}

/// Rows that own their memory.
struct OwnRows {
  std::vector<std::byte> storage;
  Rows rows;
};

/// Roundoffs that an exponential and a logarithm in fp32 may cost.
constexpr double exp_and_log = 8;

/// Where what is stored has a roundoff of `storage`.
Tolerance limit_of(const Schedule& schedule, const StoredProgram& program, double storage) {
  const Problem& p = schedule.contract.requested;
  const auto kernels = std::ranges::count_if(
      program.ops, [](const StoredOp& s) { return is_attention(kind_of(s.op.body)); });
  int summed = 1;  // by a collective
  for (const StoredOp& s : program.ops) {
    const auto* collective = op_if<Collective>(s.op.body);
    if (collective != nullptr && (collective->kind == CollectiveKind::reduce_scatter ||
                                  collective->kind == CollectiveKind::all_reduce)) {
      summed = std::max(summed, collective->group.size);
    }
  }
  const auto steps = static_cast<double>(kernels + summed);
  const double rounded = (4 + std::sqrt(steps)) * storage;
  const double products =
      (std::max(p.head_dim, p.v_dim()) + 4 * std::sqrt(static_cast<double>(p.end()))) *
      unit_roundoff(DType::fp32);
  const double largest =
      (rounded + products) * (schedule.contract.phase == Phase::backward ? 2 : 1);
  return {.largest = largest, .mean = largest / 2};
}

Tolerance lse_limit(const Schedule& schedule, const StoredProgram& program) {
  Tolerance limit = limit_of(schedule, program, exp_and_log * unit_roundoff(DType::fp32));
  limit.absolute =
      schedule.contract.requested.dtype == DType::bf16 ? power_error<Bf16> : power_error<float>;
  return limit;
}

class Checker {
 public:
  Checker(Transport& transport, const Schedule& schedule, const StoredProgram& program,
          const HostMemory& memory, const InputData& data, Sample sample)
      : transport_(transport),
        requested_(schedule.contract.requested),
        program_(program),
        memory_(memory),
        data_(data),
        sample_(sample),
        limit_(limit_of(schedule, program, coarsest_roundoff(schedule, program))),
        of_lse_(lse_limit(schedule, program)),
        everything_({.begin = 0, .count = schedule.contract.requested.end()}),
        poll_([this] {
          transport_.working();
          transport_.progress();
        }) {}

  void forward() {
    for (int kv = 0; kv < sample_.kv_heads; ++kv) {
      make_keys(kv);
      std::vector<double> other;  // of out and lse, the one that is not compared
      compare_query_side(kv, Tensor::out,
                         [&](const TokenSet& tokens, HeadRange heads, std::vector<double>& out) {
                           attend(tokens, heads, out, other);
                         });
      compare_query_side(kv, Tensor::lse,
                         [&](const TokenSet& tokens, HeadRange heads, std::vector<double>& lse) {
                           attend(tokens, heads, other, lse);
                         });
    }
  }

  void backward() {
    for (int kv = 0; kv < sample_.kv_heads; ++kv) {
      make_keys(kv);
      make_statistics(kv);
      compare_query_side(
          kv, Tensor::d_q,
          [&](const TokenSet& tokens, HeadRange heads, std::vector<double>& expected) {
            const OwnRows q = make(Tensor::q, tokens, heads);
            const OwnRows d_out = make(Tensor::d_out, tokens, heads);
            const std::vector<double> lse = statistics(lse_, tokens, heads, kv);
            const std::vector<double> delta = statistics(delta_, tokens, heads, kv);
            expected.resize(static_cast<std::size_t>(q.rows.elements()));
            reference_backward({.q = q.rows,
                                .k = keys_.rows,
                                .v = values_.rows,
                                .d_out = d_out.rows,
                                .visible = visible(tokens, everything_),
                                .lse = lse,
                                .delta = delta,
                                .d_q = expected,
                                .d_k = {},
                                .d_v = {},
                                .function = requested_.function},
                               poll_);
          });
      compare_key_side(kv);
    }
  }

  CheckReport report() {
    const double part = static_cast<double>(sample_.kv_heads) / requested_.kv_heads /
                        static_cast<double>(sample_.step);
    return comparison_.report(transport_, part);
  }

 private:
  [[nodiscard]] Visibility visible(const TokenSet& q, const TokenSet& k) const {
    return {.q_tokens = q, .k_tokens = k, .mask = requested_.mask, .seq = requested_.end()};
  }

  [[nodiscard]] OwnRows make(Tensor tensor, const TokenSet& tokens, HeadRange heads) const {
    OwnRows own{.storage = {},
                .rows = {.data = nullptr,
                         .dtype = requested_.dtype,
                         .count = tokens.count(),
                         .batch = requested_.batch,
                         .heads = heads.count(),
                         .width = static_cast<int>(shape_of(tensor, requested_).width)}};
    own.storage.resize(static_cast<std::size_t>(own.rows.bytes()));
    own.rows.data = own.storage.data();
    data_.fill(tensor, tokens, heads, own.rows);
    return own;
  }

  /// All keys and values of one KV head.
  void make_keys(int kv) {
    keys_ = make(Tensor::k, everything_, {.begin = kv, .end = kv + 1});
    values_ = make(Tensor::v, everything_, {.begin = kv, .end = kv + 1});
  }

  /// Query heads of a KV head.
  [[nodiscard]] HeadRange group(int kv) const {
    const int size = requested_.group_size();
    return {.begin = kv * size, .end = (kv + 1) * size};
  }

  void attend(const TokenSet& tokens, HeadRange heads, std::vector<double>& out,
              std::vector<double>& lse) const {
    const OwnRows q = make(Tensor::q, tokens, heads);
    const auto rows = static_cast<std::size_t>(q.rows.elements() / q.rows.width);
    out.resize(rows * static_cast<std::size_t>(values_.rows.width));
    lse.resize(rows);
    reference_forward({.q = q.rows,
                       .k = keys_.rows,
                       .v = values_.rows,
                       .visible = visible(tokens, everything_),
                       .out = out,
                       .lse = lse,
                       .function = requested_.function},
                      poll_);
  }

  /// lse and delta of all queries of a KV head, [seq, batch, group]: every rank computes a part.
  void make_statistics(int kv) {
    const std::int64_t seq = requested_.seq;
    const int ranks = transport_.size();
    const std::int64_t begin = seq * transport_.rank().value / ranks;
    const std::int64_t end = seq * (transport_.rank().value + 1) / ranks;
    const TokenSet mine =
        end > begin ? TokenSet({.begin = begin, .count = end - begin}) : TokenSet();
    std::vector<double> both;
    if (!mine.empty()) {
      std::vector<double> out;
      std::vector<double> lse;
      attend(mine, group(kv), out, lse);
      const OwnRows d_out = make(Tensor::d_out, mine, group(kv));
      std::vector<double> delta(lse.size());
      reference_row_dot(d_out.rows, out, delta);
      both = lse;
      both.insert(both.end(), delta.begin(), delta.end());
    }
    lse_.clear();
    delta_.clear();
    for (const std::string& part : transport_.all_gather_text(bytes_of_vector(both))) {
      const auto values = vector_of_bytes<double>(part);
      const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
      lse_.insert(lse_.end(), values.begin(), half);
      delta_.insert(delta_.end(), half, values.end());
    }
  }

  /// The statistics of some tokens and heads of a KV head's group.
  [[nodiscard]] std::vector<double> statistics(const std::vector<double>& all,
                                               const TokenSet& tokens, HeadRange heads,
                                               int kv) const {
    std::vector<double> result;
    const std::int64_t batch = requested_.batch;
    const HeadRange of = group(kv);
    for (const TokenRange& range : tokens.ranges()) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        for (std::int64_t b = 0; b < batch; ++b) {
          for (int h = heads.begin; h < heads.end; ++h) {
            result.push_back(all.at(
                static_cast<std::size_t>((range.at(i) * batch + b) * of.count() + h - of.begin)));
          }
        }
      }
    }
    return result;
  }

  /// Compares this rank's part of a tensor that belongs to queries; `compute` gives what is
  /// expected of some tokens and heads.
  template <class Compute>
  void compare_query_side(int kv, Tensor tensor, Compute compute) {
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.role != BufferRole::output || buffer.tensor != tensor) {
        continue;
      }
      const HeadRange heads{.begin = std::max(buffer.head_range.begin, group(kv).begin),
                            .end = std::min(buffer.head_range.end, group(kv).end)};
      const TokenSet tokens = sampled(buffer.tile, sample_.step, requested_.end());
      if (heads.count() > 0 && !tokens.empty()) {
        std::vector<double> expected;
        compute(tokens, heads, expected);
        compare(BufferId(i), tokens, heads, expected);
      }
    }
  }

  void compare_key_side(int kv) {
    const auto find = [&](Tensor tensor) {
      for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
        if (program_.buffers[i].role == BufferRole::output &&
            program_.buffers[i].tensor == tensor) {
          return BufferId(i);
        }
      }
      throw InternalError("a backward without d_k or d_v");
    };
    const BufferId d_k = find(Tensor::d_k);
    const BufferId d_v = find(Tensor::d_v);
    const Buffer& buffer = memory_.buffer(d_k);
    const HeadRange head{.begin = kv, .end = kv + 1};
    const TokenSet tokens = sampled(buffer.tile, sample_.step, requested_.end());
    if (tokens.empty() || kv < buffer.head_range.begin || kv >= buffer.head_range.end) {
      return;
    }
    const OwnRows q = make(Tensor::q, everything_, group(kv));
    const OwnRows d_out = make(Tensor::d_out, everything_, group(kv));
    const OwnRows k = make(Tensor::k, tokens, head);
    const OwnRows v = make(Tensor::v, tokens, head);
    std::vector<double> expected_k(static_cast<std::size_t>(k.rows.elements()));
    std::vector<double> expected_v(static_cast<std::size_t>(v.rows.elements()));
    reference_backward({.q = q.rows,
                        .k = k.rows,
                        .v = v.rows,
                        .d_out = d_out.rows,
                        .visible = visible(everything_, tokens),
                        .lse = lse_,
                        .delta = delta_,
                        .d_q = {},
                        .d_k = expected_k,
                        .d_v = expected_v,
                        .function = requested_.function},
                       poll_);
    compare(d_k, tokens, head, expected_k);
    compare(d_v, tokens, head, expected_v);
  }

  void compare(BufferId id, const TokenSet& tokens, HeadRange heads,
               const std::vector<double>& expected) {
    std::size_t next = 0;
    const Tensor tensor = memory_.buffer(id).tensor;
    const Compared compared{.memory = memory_,
                            .buffer = id,
                            .rank = program_.rank,
                            .limit = tensor == Tensor::lse ? of_lse_ : limit_};
    comparison_.compare(std::string(to_string(tensor)), compared, tokens, heads,
                        [&](std::int64_t, std::int64_t, int, int) { return expected[next++]; });
  }

  Transport& transport_;
  const Problem& requested_;
  const StoredProgram& program_;
  const HostMemory& memory_;
  const InputData& data_;
  Sample sample_;
  Tolerance limit_, of_lse_;
  TokenSet everything_;
  Poll poll_;  // the fp64 work takes long: others that wait are told
  OwnRows keys_, values_;
  std::vector<double> lse_, delta_;
  Comparison comparison_;
};

}  // namespace

CheckReport check_forward(Transport& transport, const Schedule& schedule,
                          const StoredProgram& program, const HostMemory& memory,
                          const InputData& data, const CheckOptions& options,
                          SharedOracles& oracles) {
  if (!schedule.contract.graph.empty()) {
    return check_layer(transport, schedule, program, memory, data, oracles);
  }
  Checker checker(transport, schedule, program, memory, data, sample_of(schedule, 2, options));
  checker.forward();
  return checker.report();
}

CheckReport check_backward(Transport& transport, const Schedule& schedule,
                           const StoredProgram& program, const HostMemory& memory,
                           const InputData& data, const CheckOptions& options,
                           SharedOracles& oracles) {
  if (!schedule.contract.graph.empty()) {
    return check_layer(transport, schedule, program, memory, data, oracles);
  }
  // lse and delta, dQ, dK and dV: some five passes of two products.
  Checker checker(transport, schedule, program, memory, data, sample_of(schedule, 5, options));
  checker.backward();
  return checker.report();
}

}  // namespace spp::runtime
