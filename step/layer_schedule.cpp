// One class, hence one file: forward and backward place the same tensors.
#include "step/layer_schedule.hpp"

#include "parallel/attention/compose.hpp"
#include "schedule/transplant.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace spp {
namespace {

using strategies::compute;
constexpr StreamId tensor_stream{6};
constexpr StreamId weights_stream{7};
constexpr HeadRange whole_row{.begin = 0, .end = 1};

/// Attention of one tensor rank's heads.
Problem local_problem(const Problem& all, const LayerPlan& plan) {
  Problem local = all;
  local.q_heads /= plan.tensor;
  local.kv_heads /= plan.tensor;
  return local;
}

/// Tokens of a sequence rank are cut once more between the tensor ranks.
Problem padded_layer(const Problem& requested, const LayerPlan& plan) {
  Problem padded = requested;
  const std::int64_t unit = unit_of(plan.attention) * plan.tensor;
  padded.seq = (requested.seq + unit - 1) / unit * unit;
  return padded;
}

/// What all ranks' programs have in common.
struct LayerParts {
  LayerGraph layer;
  LayerPlan plan;
  Phase phase = Phase::forward;
  Problem problem;     // padded, all heads
  Schedule attention;  // of one tensor rank's heads
  HeadSplit split;     // of all heads
};

class LayerProgram {
 public:
  LayerProgram(const LayerParts& parts, Rank rank)
      : parts_(parts),
        graph_(parts.layer.graph),
        b_(parts.problem, rank, parts.layer.graph),
        tensor_(parts.plan.tensor),
        t_(rank.value % parts.plan.tensor),
        part_{.begin = t_, .end = t_ + 1},
        attention_(parts.attention.program(Rank(rank.value / parts.plan.tensor))),
        tensor_group_{.first = rank.value - t_, .stride = 1, .size = tensor_},
        sequence_group_{.first = t_, .stride = tensor_, .size = parts.plan.attention.ranks()},
        all_{.first = 0, .stride = 1, .size = parts.plan.ranks()} {
    const Tensor held = parts.phase == Phase::forward ? Tensor::q : Tensor::d_q;
    const auto at = std::ranges::find_if(attention_.buffers, [&](const Buffer& buffer) {
      return buffer.tensor == held && buffer.role != BufferRole::scratch;
    });
    ensure(at != attention_.buffers.end(), "attention without queries");
    home_ = at->tile;
    own_ = home_.part(t_, tensor_);
    q_heads_ = mine(parts.problem.q_heads);
    kv_heads_ = mine(parts.problem.kv_heads);
    place_ = {.first = t_,
              .stride = tensor_,
              .split = parts.split,
              .first_part = t_ * parts.plan.attention.ulysses,
              .q_heads = q_heads_.begin,
              .kv_heads = kv_heads_.begin,
              .inputs = {},
              .outputs = {}};
    for (const Definition& d : graph_.definitions) {
      note_kept(d);
    }
  }

  Program forward() {
    for (std::size_t i = 0; i < graph_.definitions.size(); ++i) {
      const int number = static_cast<int>(i);
      const Definition& d = graph_.definitions[i];
      if (d.function == LayerFunction::linear) {
        multiply(number, d);
        continue;
      }
      if (d.function == LayerFunction::split_heads) {
        row_kernel(number, d,
                   {output_heads("q", Tensor::q), output_heads("k", Tensor::k),
                    output_heads("v", Tensor::v)});
        attend();
        continue;
      }
      std::vector<BufferId> results;
      for (const TensorRef ref : d.writes) {
        results.push_back(result(ref));
      }
      row_kernel(number, d, results);
    }
    return b_.finish();
  }

  Program backward() {
    for (std::size_t i = graph_.definitions.size(); i-- > 0;) {
      const int number = static_cast<int>(i);
      const Definition& d = graph_.definitions[i];
      switch (d.function) {
        case LayerFunction::linear:
          multiply_back(number, d);
          break;
        case LayerFunction::add:
          remember(number, d);
          break;
        case LayerFunction::split_heads:
          join(number, d);
          break;
        case LayerFunction::rms_norm:
        case LayerFunction::layer_norm:
          norm_back(number, d);
          break;
        case LayerFunction::swiglu:
        case LayerFunction::gelu:
          activation_back(number, d);
          break;
      }
    }
    return b_.finish();
  }

 private:
  // ---- where things are

  [[nodiscard]] HeadRange mine(int heads) const {
    return {.begin = t_ * heads / tensor_, .end = (t_ + 1) * heads / tensor_};
  }
  [[nodiscard]] bool is_wide(TensorRef ref) const {
    return parts_.layer.cuts[static_cast<std::size_t>(ref.label)] == Cut::width;
  }
  [[nodiscard]] const TokenSet& tokens(TensorRef ref) const { return is_wide(ref) ? home_ : own_; }
  [[nodiscard]] HeadRange columns(TensorRef ref) const { return is_wide(ref) ? part_ : whole_row; }
  [[nodiscard]] const std::string& name(TensorRef ref) const {
    return graph_.value(ref.label).name;
  }

  /// Values that the backward reads.
  void note_kept(const Definition& d) {
    switch (d.function) {
      case LayerFunction::rms_norm:
      case LayerFunction::layer_norm:
        kept_.insert({d.reads[0], d.writes[1]});
        break;
      case LayerFunction::linear:
      case LayerFunction::swiglu:
      case LayerFunction::gelu:
        kept_.insert(d.reads.begin(), d.reads.end());
        break;
      case LayerFunction::split_heads:
      case LayerFunction::add:
        break;
    }
  }

  /// A value of the forward on this rank: written before, or an input.
  BufferId value(TensorRef ref) {
    const auto [at, is_new] = held_.try_emplace(ref);
    if (is_new) {
      at->second = ref.tensor == Tensor::out ? b_.input("attended", ref, home_, q_heads_)
                                             : b_.input(name(ref), ref, tokens(ref), columns(ref));
    }
    return at->second;
  }
  /// Room for a value that the forward writes.
  BufferId result(TensorRef ref) {
    const bool stays = kept_.contains(ref) || graph_.uses_of(ref).empty();
    return held_[ref] = stays
                            ? b_.output(name(ref), ref, tokens(ref), columns(ref))
                            : b_.scratch(name(ref), ref, tokens(ref).count(), columns(ref).count());
  }
  BufferId output_heads(const std::string& called, Tensor tensor) {
    return held_[tensor] = b_.output(called, tensor, home_, is_kv(tensor) ? kv_heads_ : q_heads_);
  }
  BufferId parameter(int label) {
    const Param& param = graph_.param(label);
    return b_.input("w_" + param.name, {Tensor::param, label}, parameter_rows(param),
                    parameter_columns(param));
  }
  [[nodiscard]] TokenSet parameter_rows(const Param& param) const {
    const std::int64_t rows = param.part_rows();
    return TokenSet({.begin = param.row_parts > 1 ? t_ * rows : 0, .count = rows});
  }
  [[nodiscard]] HeadRange parameter_columns(const Param& param) const {
    return param.column_parts > 1 ? part_ : whole_row;
  }

  /// All of the sequence rank's tokens of what each tensor rank has a part of; once.
  BufferId gathered(TensorRef ref, BufferId own) {
    if (tensor_ == 1) {
      return own;
    }
    const auto [at, is_new] = gathered_.try_emplace(ref);
    if (is_new) {
      const std::string called = ref.tensor == Tensor::d_value ? "d_" + name(ref) : name(ref);
      at->second = b_.scratch(called + "_gathered", ref, home_.count(), 1);
      b_.op(tensor_stream, Collective{.kind = CollectiveKind::all_gather,
                                      .group = tensor_group_,
                                      .from = own,
                                      .to = at->second,
                                      .deal = TokenDeal{},
                                      .to_tokens = home_,
                                      .to_heads = whole_row});
    }
    return at->second;
  }
  /// Sums over the tensor ranks, to each its tokens.
  void scatter(BufferId partial, BufferId own) {
    b_.op(tensor_stream, Collective{.kind = CollectiveKind::reduce_scatter,
                                    .group = tensor_group_,
                                    .from = partial,
                                    .to = own,
                                    .deal = TokenDeal{},
                                    .to_tokens = own_,
                                    .to_heads = whole_row});
  }

  // ---- forward

  void multiply(int number, const Definition& d) {
    const TensorRef x = d.reads[0];
    const TensorRef y = d.writes[0];
    const bool sums = graph_.param(d.param).row_parts > 1;
    const BufferId in = is_wide_operand(x) ? value(x) : gathered(x, value(x));
    const BufferId weight = parameter(d.param);
    const BufferId to = result(y);
    const BufferId product = sums ? b_.scratch(name(y) + "_partial", y, home_.count(), 1) : to;
    b_.op(compute, Gemm{.kind = GemmKind::forward,
                        .definition = number,
                        .a = in,
                        .b = weight,
                        .c = product,
                        .tokens = home_});
    if (sums) {
      scatter(product, to);
    }
  }
  [[nodiscard]] bool is_wide_operand(TensorRef x) const {
    return x.tensor == Tensor::out || is_wide(x);
  }

  void row_kernel(int number, const Definition& d, const std::vector<BufferId>& results) {
    RowKernel op{.definition = number, .reads = {}, .writes = {}, .tokens = tokens(d.reads[0])};
    for (const TensorRef ref : d.reads) {
      op.reads.push_back(value(ref));
    }
    if (d.param >= 0) {
      op.reads.push_back(parameter(d.param));
    }
    for (const BufferId id : results) {
      op.writes.push_back(id);
    }
    b_.op(compute, op);
  }

  void attend() {
    place_.inputs = {{Tensor::q, held_.at(Tensor::q)},
                     {Tensor::k, held_.at(Tensor::k)},
                     {Tensor::v, held_.at(Tensor::v)}};
    held_[Tensor::out] = b_.output("attended", Tensor::out, home_, q_heads_);
    place_.outputs = {{Tensor::out, held_.at(Tensor::out)}};
    transplant(b_, attention_, place_, "attention_");
  }

  // ---- backward

  [[nodiscard]] TensorRef gradient_ref(TensorRef x) const {
    return {Tensor::d_value, graph_.gradient_of(x.label)};
  }
  /// The complete gradient of a value, computed before; of the layer's output: an input.
  BufferId gradient(TensorRef x) {
    const TensorRef ref = gradient_ref(x);
    const auto [at, is_new] = held_.try_emplace(ref);
    if (is_new) {
      ensure(graph_.uses_of({Tensor::value, ref.label}).empty(), "a gradient is read too early");
      at->second = b_.input("d_" + name(ref), ref, tokens(ref), columns(ref));
    }
    return at->second;
  }
  /// Room for a gradient that is computed here.
  BufferId new_gradient(TensorRef x) {
    const TensorRef ref = gradient_ref(x);
    const bool leaves = graph_.writer_of({Tensor::value, ref.label}) < 0;
    const auto [at, is_new] = held_.try_emplace(ref);
    ensure(is_new, "a gradient is computed twice");
    at->second = leaves
                     ? b_.output("d_" + name(ref), ref, tokens(ref), columns(ref))
                     : b_.scratch("d_" + name(ref), ref, tokens(ref).count(), columns(ref).count());
    return at->second;
  }

  void multiply_back(int number, const Definition& d) {
    const TensorRef x = d.reads[0];
    const TensorRef y = d.writes[0];
    const bool row_parallel = is_wide_operand(x);
    const BufferId d_y = row_parallel ? gathered(gradient_ref(y), gradient(y)) : gradient(y);
    const BufferId in = row_parallel ? value(x) : gathered(x, value(x));
    const BufferId weight = parameter(d.param);
    if (row_parallel) {
      const BufferId d_x = x.tensor == Tensor::out
                               ? held_[Tensor::d_out] = b_.scratch("d_attended", Tensor::d_out,
                                                                   home_.count(), q_heads_.count())
                               : new_gradient(x);
      give_input(number, d_y, weight, d_x, true);
    } else {
      give_partial(number, x, d_y, weight);
    }
    const Param& param = graph_.param(d.param);
    const BufferId d_weight = new_parameter_gradient(d.param, sequence_group_);
    b_.op(compute, Gemm{.kind = GemmKind::weight_gradient,
                        .definition = number,
                        .a = in,
                        .b = d_y,
                        .c = d_weight,
                        .tokens = home_});
    finish(d.param, param, d_weight, sequence_group_);
  }
  void give_input(int number, BufferId d_y, BufferId weight, BufferId d_x, bool initial) {
    b_.op(compute, Gemm{.kind = GemmKind::input_gradient,
                        .definition = number,
                        .a = d_y,
                        .b = weight,
                        .c = d_x,
                        .tokens = home_,
                        .initial = initial});
  }
  /// A part of the gradient of what column-parallel matrices read: summed over them, then over the
  /// tensor ranks.
  void give_partial(int number, TensorRef x, BufferId d_y, BufferId weight) {
    const auto [at, is_new] = partial_.try_emplace(x);
    if (is_new) {
      at->second = tensor_ == 1
                       ? new_gradient(x)
                       : b_.scratch("d_" + name(x) + "_partial", gradient_ref(x), home_.count(), 1);
    }
    give_input(number, d_y, weight, at->second, is_new);
    const bool last = graph_.uses_of(x).front().definition == number;
    if (last && tensor_ > 1) {
      scatter(at->second, new_gradient(x));
    }
  }

  /// Of this rank's tokens; the result itself where nobody else has others.
  BufferId new_parameter_gradient(int label, const RankGroup& others) {
    const Param& param = graph_.param(label);
    const TensorRef ref{Tensor::d_param, label};
    return others.size == 1 ? b_.output("d_w_" + param.name, ref, parameter_rows(param),
                                        parameter_columns(param))
                            : b_.scratch("d_w_" + param.name + "_own", ref, param.part_rows(), 1);
  }
  void finish(int label, const Param& param, BufferId own, const RankGroup& others) {
    if (others.size == 1) {
      return;
    }
    const BufferId sum = b_.output("d_w_" + param.name, {Tensor::d_param, label},
                                   parameter_rows(param), parameter_columns(param));
    b_.op(weights_stream, Collective{.kind = CollectiveKind::all_reduce,
                                     .group = others,
                                     .from = own,
                                     .to = sum,
                                     .deal = TokenDeal{},
                                     .to_tokens = parameter_rows(param),
                                     .to_heads = parameter_columns(param)});
  }

  /// A sum gives its gradient to both of its inputs: nothing to do for one that has no other; the
  /// others get it when theirs is there.
  void remember(int number, const Definition& d) {
    for (const TensorRef x : d.reads) {
      if (gradient_ref(x) != gradient_ref(d.writes[0])) {
        passed_on_[gradient_ref(x)].push_back(number);
      }
    }
  }

  void norm_back(int number, const Definition& d) {
    const TensorRef x = d.reads[0];
    const BufferId d_y = gradient(d.writes[0]);
    const BufferId d_x = new_gradient(x);
    const BufferId d_gain = new_parameter_gradient(d.param, all_);
    b_.op(compute, RowKernel{.definition = number,
                             .backward = true,
                             .reads = {value(x), parameter(d.param), value(d.writes[1]), d_y},
                             .writes = {d_x, d_gain},
                             .tokens = own_});
    for (const int sum : passed_on_[gradient_ref(x)]) {
      b_.op(compute, RowKernel{.definition = sum,
                               .backward = true,
                               .reads = {gradient(graph_.definition(sum).writes[0]), d_x},
                               .writes = {d_x},
                               .tokens = own_});
    }
    finish(d.param, graph_.param(d.param), d_gain, all_);
  }

  void activation_back(int number, const Definition& d) {
    RowKernel op{.definition = number,
                 .backward = true,
                 .reads = {},
                 .writes = {},
                 .tokens = tokens(d.reads[0])};
    for (const TensorRef x : d.reads) {
      op.reads.push_back(value(x));
    }
    op.reads.push_back(gradient(d.writes[0]));
    for (const TensorRef x : d.reads) {
      op.writes.push_back(new_gradient(x));
    }
    b_.op(compute, op);
  }

  /// Through attention, and back into the row that q, k and v were split from.
  void join(int number, const Definition& d) {
    place_.inputs = {{Tensor::d_out, held_.at(Tensor::d_out)}};
    for (const Buffer& buffer : attention_.buffers) {
      if (buffer.role == BufferRole::input && buffer.tensor == Tensor::out &&
          buffer.tile == home_ && buffer.heads == q_heads_.count()) {
        place_.inputs[Tensor::out] = value(Tensor::out);
      }
    }
    RowKernel op{
        .definition = number, .backward = true, .reads = {}, .writes = {}, .tokens = home_};
    for (const auto& [tensor, heads] :
         {std::pair{Tensor::d_q, q_heads_}, {Tensor::d_k, kv_heads_}, {Tensor::d_v, kv_heads_}}) {
      const BufferId id =
          b_.scratch(std::string(to_string(tensor)), tensor, home_.count(), heads.count());
      place_.outputs[tensor] = id;
      op.reads.push_back(id);
    }
    transplant(b_, attention_, place_, "attention_");
    op.writes.push_back(new_gradient(d.reads[0]));
    b_.op(compute, op);
  }

  const LayerParts& parts_;
  const Graph& graph_;
  ProgramBuilder b_;
  int tensor_;
  int t_;
  HeadRange part_;
  Program attention_;
  RankGroup tensor_group_, sequence_group_, all_;
  TokenSet home_, own_;
  HeadRange q_heads_, kv_heads_;
  Transplant place_;
  std::set<TensorRef> kept_;
  std::map<TensorRef, BufferId> held_, gathered_, partial_;
  std::map<TensorRef, std::vector<int>> passed_on_;  // sums, by what they give their gradient to
};

/// Parts that an all-reduce of a parameter's gradient cuts it into.
std::string why_not_reduced(const Graph& graph, const LayerPlan& plan) {
  for (const Definition& d : graph.definitions) {
    if (d.param < 0) {
      continue;
    }
    const Param& param = graph.param(d.param);
    const bool norm = d.function != LayerFunction::linear;
    const int ranks = norm ? plan.ranks() : plan.attention.ranks();
    if (param.part_rows() % ranks != 0) {
      return fmt::format(
          "the {} rows of {} do not divide over the {} ranks that sum up its gradient",
          param.part_rows(), param.name, ranks);
    }
  }
  return "";
}

}  // namespace

std::string why_not_layer(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan) {
  if (!layer.why_not.empty()) {
    return "no schedule of a layer holds " + layer.why_not;
  }
  if (problem.kv_heads % plan.tensor != 0) {
    return fmt::format("a tensor degree of {} does not divide {} KV heads", plan.tensor,
                       problem.kv_heads);
  }
  const HeadPolicy heads = plan.attention.heads;
  if (heads == HeadPolicy::pad || (heads == HeadPolicy::uneven && plan.tensor > 1)) {
    return fmt::format("heads are dealt out {}, which the layer's matrices are not",
                       to_string(heads));
  }
  if (plan.attention.layout == Layout::document_zigzag) {
    return "the document-zigzag layout pads documents, and a layer's tokens are not padded so";
  }
  const Strategy& strategy = strategies::by_name(plan.attention.strategy, "--strategy");
  if (strategy.function != AttentionFunction::softmax) {
    return "its attention is a softmax";
  }
  for (const Definition& d : layer.graph.definitions) {
    for (const TensorRef ref : d.writes) {
      if (is_value(ref.tensor) &&
          layer.graph.value(ref.label).width % layer.graph.value(ref.label).parts != 0) {
        return fmt::format("a tensor degree of {} does not divide the {} columns of {}",
                           plan.tensor, layer.graph.value(ref.label).width,
                           layer.graph.value(ref.label).name);
      }
    }
  }
  const Problem all = padded_layer(problem, plan);
  const WhyNot attention = why_not(strategy, local_problem(all, plan), plan.attention);
  return attention.legal() ? why_not_reduced(layer.graph, plan) : attention.detail;
}

Schedule layer_schedule(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan,
                        Phase phase, const BuildOptions& options) {
  const Strategy& strategy = strategies::by_name(plan.attention.strategy, "--strategy");
  const Problem all = padded_layer(problem, plan);
  auto parts = std::make_shared<LayerParts>(LayerParts{
      .layer = layer,
      .plan = plan,
      .phase = phase,
      .problem = all,
      .attention = strategy.build(local_problem(all, plan), plan.attention, phase, options),
      .split = HeadSplit(all, plan.tensor * plan.attention.ulysses, plan.attention.heads)});
  ensure(parts->attention.problem == local_problem(all, plan), "attention pads what is padded");
  Schedule s;
  s.problem = all;
  s.requested = problem;
  s.graph = layer.graph;
  s.phase = phase;
  std::vector<MeshAxis> axes{{.name = "tensor", .size = plan.tensor}};
  const auto of_attention = parts->attention.mesh.axes();
  axes.insert(axes.end(), of_attention.begin(), of_attention.end());
  s.mesh = Mesh(std::move(axes));
  s.grain = parts->attention.grain;
  s.grain.heads = parts->split;
  s.streams = parts->attention.streams;
  ensure(s.streams.size() == tensor_stream.index(), "attention's streams are others");
  s.streams.insert(s.streams.end(), {"tensor", "weights"});
  s.program = [parts = std::shared_ptr<const LayerParts>(std::move(parts))](Rank rank) {
    LayerProgram program(*parts, rank);
    return parts->phase == Phase::forward ? program.forward() : program.backward();
  };
  return s;
}

}  // namespace spp
