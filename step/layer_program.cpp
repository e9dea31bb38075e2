// One class, hence one file: forward and backward place the same tensors.
#include "step/layer_program.hpp"

#include "parallel/attention/compose.hpp"
#include "schedule/storage.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace spp {
namespace {

using strategies::compute;
constexpr StreamId tensor_stream{layer_streams_first};
constexpr StreamId weights_stream{layer_streams_first + 1};
constexpr StreamId gather_stream{layer_streams_first + 2};  // of parameters in shards
constexpr HeadRange whole_row{.begin = 0, .end = 1};

class LayerProgram {
 public:
  LayerProgram(const LayerParts& parts, Rank rank)
      : parts_(parts),
        graph_(parts.layer.graph),
        index_(parts.index),
        b_(parts.problem, rank, parts.layer.graph),
        tensor_(parts.plan.tensor),
        t_(rank.value % parts.plan.tensor),
        of_attention_(rank.value % parts.plan.model_ranks() / parts.plan.tensor),
        part_{.begin = t_, .end = t_ + 1},
        tensor_group_{.first = rank.value - t_, .stride = 1, .size = tensor_},
        same_tensor_{.first = t_,
                     .stride = tensor_,
                     .size = parts.plan.attention.ranks() * parts.plan.replicas},
        all_{.first = 0, .stride = 1, .size = parts.plan.ranks()} {
    const int replica = rank.value / parts.plan.model_ranks();
    const std::int64_t before = replica * parts.problem.seq;
    if (parts.forward) {
      forward_ = parts.forward->program(of_attention_);
    }
    if (parts.backward) {
      backward_ = parts.backward->program(of_attention_);
    }
    const std::vector<Buffer>& buffers = parts.forward ? forward_.buffers : backward_.buffers;
    const Tensor held = parts.forward ? Tensor::q : Tensor::d_q;
    const auto at = std::ranges::find_if(buffers, [&](const Buffer& buffer) {
      return buffer.tensor == held && buffer.role != BufferRole::scratch;
    });
    ensure(at != buffers.end(), "attention without queries");
    home_ = at->tile.shifted(before);
    own_ = home_.part(t_, tensor_);
    q_heads_ = mine(parts.problem.q_heads);
    kv_heads_ = mine(parts.problem.kv_heads);
    place_ = {.first = replica * parts.plan.model_ranks() + t_,
              .stride = tensor_,
              .split = parts.split,
              .first_part = t_ * parts.plan.attention.ulysses,
              .q_heads = q_heads_.begin,
              .kv_heads = kv_heads_.begin,
              .tokens = before,
              .known = {},
              .inner = is_step()};
    for (const Definition& d : graph_.definitions) {
      note_kept(d);
    }
  }

  Program write() {
    const auto count = static_cast<int>(graph_.definitions.size());
    for (int i = 0; parts_.phase != Phase::backward && i < count; ++i) {
      enter_unit(i, 1);
      forward(i, graph_.definition(i));
    }
    gathered_.clear();  // gathered again, not kept
    for (int i = count; parts_.phase != Phase::forward && i-- > 0;) {
      enter_unit(i, -1);
      backward(i, graph_.definition(i));
    }
    for (int i = 0; is_step() && i < count; ++i) {
      if (graph_.definition(i).function == LayerFunction::adam) {
        update(i, graph_.definition(i));
      }
    }
    return b_.finish();
  }

 private:
  void forward(int number, const Definition& d) {
    switch (d.function) {
      case LayerFunction::linear:
        return multiply(number, d);
      case LayerFunction::split_heads: {
        const int label = d.writes[0].label;
        row_kernel(number, d,
                   {output_heads("q", {Tensor::q, label}), output_heads("k", {Tensor::k, label}),
                    output_heads("v", {Tensor::v, label})});
        return attend(label);
      }
      case LayerFunction::embedding:
        return look_up(number, d);
      case LayerFunction::word_sums:
        return sum_words(number, d);
      case LayerFunction::rms_norm:
      case LayerFunction::layer_norm:
      case LayerFunction::swiglu:
      case LayerFunction::gelu:
      case LayerFunction::add:
      case LayerFunction::word_loss: {
        std::vector<BufferId> results;
        for (const TensorRef ref : d.writes) {
          results.push_back(result(ref));
        }
        return row_kernel(number, d, results);
      }
      case LayerFunction::adam:
        return;  // at the end
    }
  }

  void backward(int number, const Definition& d) {
    switch (d.function) {
      case LayerFunction::linear:
        return multiply_back(number, d);
      case LayerFunction::add:
        return remember(number, d);
      case LayerFunction::split_heads:
        return join(number, d);
      case LayerFunction::rms_norm:
      case LayerFunction::layer_norm:
        return norm_back(number, d);
      case LayerFunction::swiglu:
      case LayerFunction::gelu:
        return activation_back(number, d);
      case LayerFunction::embedding:
        return look_up_back(number, d);
      case LayerFunction::word_sums:
        return sum_words_back(number, d);
      case LayerFunction::word_loss:  // its gradient is a constant
      case LayerFunction::adam:
        return;
    }
  }

  // ---- where things are

  [[nodiscard]] bool is_step() const { return parts_.phase == Phase::step; }

  [[nodiscard]] HeadRange mine(int heads) const {
    return {.begin = t_ * heads / tensor_, .end = (t_ + 1) * heads / tensor_};
  }
  [[nodiscard]] Cut cut(TensorRef ref) const {
    return parts_.layer.cuts[static_cast<std::size_t>(ref.label)];
  }
  [[nodiscard]] bool is_wide(TensorRef ref) const { return cut(ref) == Cut::width; }
  [[nodiscard]] const TokenSet& tokens(TensorRef ref) const {
    return cut(ref) == Cut::rows ? own_ : home_;
  }
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
      case LayerFunction::embedding:
      case LayerFunction::word_sums:
      case LayerFunction::word_loss:
      case LayerFunction::adam:
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
  /// Room for a value that the forward writes. A step keeps nothing but its ends.
  BufferId result(TensorRef ref) {
    const bool ends = index_.uses_of(ref).empty();
    const bool stays = is_step()
                           ? ends && graph_.definition(index_.writer_of(ref)).writes.front() == ref
                           : ends || kept_.contains(ref);
    return held_[ref] = stays
                            ? b_.output(name(ref), ref, tokens(ref), columns(ref))
                            : b_.scratch(name(ref), ref, tokens(ref).count(), columns(ref).count());
  }
  BufferId output_heads(const std::string& called, TensorRef ref) {
    const HeadRange heads = is_kv(ref.tensor) ? kv_heads_ : q_heads_;
    return held_[ref] = is_step()
                            ? b_.scratch(of_layer(ref) + called, ref, home_.count(), heads.count())
                            : b_.output(called, ref, home_, heads);
  }
  /// Names of one layer's tensors, where there are several.
  [[nodiscard]] std::string of_layer(TensorRef ref) const {
    return index_.attentions() > 1 ? fmt::format("l{}.", ref.label) : "";
  }
  /// As a kernel reads it.
  BufferId parameter(int label) {
    return is_gathered(label) ? full_.at(label) : held_parameter(label);
  }
  /// What the rank keeps of it: all that its tensor index has, or a shard.
  BufferId held_parameter(int label) {
    const Param& param = graph_.param(label);
    const TensorRef ref{Tensor::param, label};
    const auto [at, is_new] = held_.try_emplace(ref);
    if (is_new) {
      const bool replaced = is_step() && index_.update_of(label) >= 0;
      const std::string called = "w_" + param.name;
      const TokenSet rows =
          is_gathered(label) ? shard_of(label, summed_over(label)) : parameter_rows(param);
      at->second = replaced
                       ? b_.state(called, ref, rows, parameter_columns(param))
                       : b_.input(called, ref, parameter_rows(param), parameter_columns(param));
    }
    return at->second;
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
      const bool again = is_step() && !gathered_before_.insert(ref).second;
      at->second =
          b_.scratch(called + (again ? "_gathered_again" : "_gathered"), ref, home_.count(), 1);
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
    Gemm op{.kind = GemmKind::forward,
            .definition = number,
            .a = in,
            .b = weight,
            .c = product,
            .tokens = home_};
    if (d.bias >= 0 && (!sums || t_ == 0)) {  // once into a sum
      op.bias = {parameter(d.bias)};
    }
    b_.op(compute, op);
    if (sums) {
      scatter(product, to);
    }
  }
  /// Each rank of a table's, or of the logits', parts its sum; then the sum of these for each one's
  /// tokens.
  void sum_parts(RowKernel op, TensorRef y) {
    const BufferId to = result(y);
    const bool sums = tensor_ > 1;
    const BufferId partial = sums ? b_.scratch(name(y) + "_partial", y, home_.count(), 1) : to;
    op.writes = {partial};
    op.tokens = home_;
    op.part = t_;
    b_.op(compute, op);
    if (sums) {
      scatter(partial, to);
    }
  }
  void look_up(int number, const Definition& d) {
    sum_parts({.definition = number,
               .reads = {value(d.reads[0]), parameter(d.param)},
               .writes = {},
               .tokens = {}},
              d.writes[0]);
  }
  void sum_words(int number, const Definition& d) {
    sum_parts({.definition = number,
               .reads = {value(d.reads[0]), value(d.reads[1])},
               .writes = {},
               .tokens = {}},
              d.writes[0]);
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

  void attend(int label) {
    const TensorRef out{Tensor::out, label};
    held_[out] = is_step()
                     ? b_.scratch(of_layer(out) + "attended", out, home_.count(), q_heads_.count())
                     : b_.output("attended", out, home_, q_heads_);
    place_.attention = label;
    place_.known = [&](const Buffer& buffer) {
      const bool is_ours = buffer.role == BufferRole::input || buffer.tensor == Tensor::out;
      return is_ours ? held_.at({buffer.tensor, label}) : BufferId();
    };
    kept_of_attention_[label] = transplant(b_, forward_, place_, of_layer(out) + "attention_");
  }

  // ---- backward

  [[nodiscard]] TensorRef gradient_ref(TensorRef x) const {
    return {Tensor::d_value, index_.gradient_of(x.label)};
  }
  /// The complete gradient of a value, computed before; of the layer's output: an input.
  BufferId gradient(TensorRef x) {
    const TensorRef ref = gradient_ref(x);
    const auto [at, is_new] = held_.try_emplace(ref);
    if (is_new) {
      ensure(index_.uses_of({Tensor::value, ref.label}).empty(), "a gradient is read too early");
      at->second = b_.input("d_" + name(ref), ref, tokens(ref), columns(ref));
    }
    return at->second;
  }
  /// Room for a gradient that is computed here.
  BufferId new_gradient(TensorRef x) {
    const TensorRef ref = gradient_ref(x);
    const bool leaves = index_.writer_of({Tensor::value, ref.label}) < 0;
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
      give_input(number, d_y, weight,
                 x.tensor == Tensor::out ? new_heads({Tensor::d_out, x.label}, "d_attended")
                                         : new_gradient(x),
                 true);
    } else {
      give_partial(number, x, d_y, weight);
    }
    const BufferId d_weight = new_parameter_gradient(d.param, same_tensor_);
    Gemm op{.kind = GemmKind::weight_gradient,
            .definition = number,
            .a = in,
            .b = d_y,
            .c = d_weight,
            .tokens = home_};
    if (d.bias >= 0) {
      op.bias = {new_parameter_gradient(d.bias, same_tensor_)};
    }
    b_.op(compute, op);
    finish(d.param, d_weight, same_tensor_);
    if (d.bias >= 0) {
      finish(d.bias, op.bias.ids()[0], same_tensor_);
    }
  }
  BufferId new_heads(TensorRef ref, const std::string& called) {
    const HeadRange heads = is_kv(ref.tensor) ? kv_heads_ : q_heads_;
    return held_[ref] = b_.scratch(of_layer(ref) + called, ref, home_.count(), heads.count());
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
    const bool last = index_.uses_of(x).front().definition == number;
    if (last && tensor_ > 1) {
      scatter(at->second, new_gradient(x));
    }
  }

  // ---- parameters

  /// Gathered from all ranks' shards for each use (ZeRO stage 3; FSDP).
  [[nodiscard]] bool is_gathered(int label) const {
    return parts_.plan.zero == 3 && is_sharded(label) && summed_over(label).size > 1;
  }
  /// Definition `number` is the first of its unit on the way `step` (1 forward, -1 backward): its
  /// parameters are there, those of the next unit begin to travel, those of the last one are let
  /// go.
  void enter_unit(int number, int step) {
    const std::vector<int>& units = parts_.layer.units;
    const int unit = units[static_cast<std::size_t>(number)];
    if (parts_.plan.zero != 3 || !is_step() || unit == unit_) {
      return;
    }
    std::erase_if(full_, [&](const auto& known) { return unit_of(known.first) == unit_; });
    unit_ = unit;
    for (const int wanted : {unit, unit + step}) {
      for (int label = 0; label < std::ssize(graph_.params); ++label) {
        if (unit_of(label) == wanted && is_gathered(label) && !full_.contains(label)) {
          gather(label);
        }
      }
    }
  }
  [[nodiscard]] int unit_of(int label) const { return use_of(label).unit; }
  [[nodiscard]] const ParamUse& use_of(int label) const {
    return parts_.uses[static_cast<std::size_t>(label)];
  }
  /// The shard is copied to where it is sent from in between the kernels, as FSDP does; so it does
  /// not travel earlier.
  void gather(int label) {
    const Param& param = graph_.param(label);
    const RankGroup& others = summed_over(label);
    const TensorRef ref{Tensor::param, label};
    const std::string suffix = gathered_before_.insert(ref).second ? "" : "_again";
    const TokenSet rows = parameter_rows(param);
    const BufferId sent =
        b_.scratch("w_" + param.name + "_sent" + suffix, ref, shard_of(label, others).count(), 1);
    const BufferId full = b_.scratch("w_" + param.name + "_full" + suffix, ref, rows.count(), 1);
    b_.op(compute, Copy{.kind = CopyKind::cast, .from = held_parameter(label), .to = sent});
    b_.op(gather_stream, Collective{.kind = CollectiveKind::all_gather,
                                    .group = others,
                                    .from = sent,
                                    .to = full,
                                    .deal = TokenDeal{},
                                    .to_tokens = rows,
                                    .to_heads = parameter_columns(param)});
    full_[label] = full;
  }

  /// Of this rank's tokens; the result itself where nobody else has others.
  BufferId new_parameter_gradient(int label, const RankGroup& others) {
    const Param& param = graph_.param(label);
    const TensorRef ref{Tensor::d_param, label};
    return others.size == 1 ? finished_gradient(label, parameter_rows(param))
                            : b_.scratch("d_w_" + param.name + "_own", ref, param.part_rows(), 1);
  }
  /// An update reads it here; else it is what the program is for.
  BufferId finished_gradient(int label, const TokenSet& rows) {
    const Param& param = graph_.param(label);
    const TensorRef ref{Tensor::d_param, label};
    const std::string called = "d_w_" + param.name;
    const bool is_read = is_step() && index_.update_of(label) >= 0;
    return held_[ref] = is_read ? b_.scratch(called, ref, rows.count(), 1)
                                : b_.output(called, ref, rows, parameter_columns(param));
  }
  /// Sums over the ranks that have other tokens: for all of them, or for each its shard.
  void finish(int label, BufferId own, const RankGroup& others) {
    if (others.size == 1) {
      return;
    }
    const Param& param = graph_.param(label);
    const TokenSet rows = shard_of(label, others);
    b_.op(weights_stream, Collective{.kind = is_sharded(label) ? CollectiveKind::reduce_scatter
                                                               : CollectiveKind::all_reduce,
                                     .group = others,
                                     .from = own,
                                     .to = finished_gradient(label, rows),
                                     .deal = TokenDeal{},
                                     .to_tokens = rows,
                                     .to_heads = parameter_columns(param)});
  }
  [[nodiscard]] bool is_sharded(int label) const {
    return is_step() && parts_.plan.zero > 0 && index_.update_of(label) >= 0;
  }
  /// Rows whose update is this rank's.
  [[nodiscard]] TokenSet shard_of(int label, const RankGroup& others) const {
    const TokenSet rows = parameter_rows(graph_.param(label));
    const int index = (b_.rank().value - others.first) / others.stride;
    return is_sharded(label) ? rows.part(index, others.size) : rows;
  }
  /// Who sums its gradient up: ranks that have other tokens.
  [[nodiscard]] const RankGroup& summed_over(int label) const {
    return use_of(label).of_norm ? all_ : same_tensor_;
  }
  void update(int number, const Definition& d) {
    const Param& param = graph_.param(d.param);
    const RankGroup& others = summed_over(d.param);
    const TokenSet rows = shard_of(d.param, others);
    const HeadRange columns = parameter_columns(param);
    const TensorRef ref{Tensor::param, d.param};
    const bool shared_out = is_sharded(d.param) && others.size > 1 && !is_gathered(d.param);
    RowKernel op{.definition = number,
                 .reads = {held_.at({Tensor::d_param, d.param})},
                 .writes = {},
                 .tokens = rows};
    for (const Tensor kept : {Tensor::master, Tensor::first_moment, Tensor::second_moment}) {
      const BufferId id =
          b_.state(std::string(to_string(kept)) + "_" + param.name, {kept, d.param}, rows, columns);
      op.reads.push_back(id);
      op.writes.push_back(id);
    }
    const BufferId next = shared_out ? b_.scratch("w_" + param.name + "_next", ref, rows.count(), 1)
                                     : held_parameter(d.param);
    op.writes.push_back(next);
    b_.op(compute, op);
    if (shared_out) {
      b_.op(weights_stream, Collective{.kind = CollectiveKind::all_gather,
                                       .group = others,
                                       .from = next,
                                       .to = held_parameter(d.param),
                                       .deal = TokenDeal{},
                                       .to_tokens = parameter_rows(param),
                                       .to_heads = columns});
    }
  }

  // ---- row by row, backward

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
    finish(d.param, d_gain, all_);
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

  void look_up_back(int number, const Definition& d) {
    const TensorRef x = d.writes[0];
    const BufferId d_table = new_parameter_gradient(d.param, same_tensor_);
    b_.op(compute, RowKernel{.definition = number,
                             .backward = true,
                             .reads = {value(d.reads[0]), parameter(d.param),
                                       gathered(gradient_ref(x), gradient(x))},
                             .writes = {d_table},
                             .tokens = home_,
                             .part = t_});
    finish(d.param, d_table, same_tensor_);
  }
  void sum_words_back(int number, const Definition& d) {
    const TensorRef sums = d.writes[0];
    const TensorRef log_sum = graph_.definition(index_.uses_of(sums).front().definition).writes[1];
    b_.op(compute, RowKernel{.definition = number,
                             .backward = true,
                             .reads = {value(d.reads[0]), value(d.reads[1]),
                                       gathered(log_sum, value(log_sum))},
                             .writes = {new_gradient(d.reads[0])},
                             .tokens = home_,
                             .part = t_});
  }

  /// What attention's backward reads: its own in a step what the forward left.
  [[nodiscard]] BufferId known_backward(const Buffer& buffer, int label) {
    const TensorRef ref{buffer.tensor, label};
    if (buffer.role == BufferRole::output || buffer.tensor == Tensor::d_out) {
      return held_.at(ref);
    }
    if (is_step()) {
      const auto index = static_cast<std::size_t>(&buffer - backward_.buffers.data());
      const int kept = parts_.kept[of_attention_.index()][index];
      return kept_of_attention_.at(label)[static_cast<std::size_t>(kept)];
    }
    const bool is_whole = buffer.tensor == Tensor::out &&
                          buffer.tile.shifted(place_.tokens) == home_ &&
                          buffer.heads == q_heads_.count();
    return is_whole ? value(ref) : BufferId();
  }
  /// Through attention, and back into the row that q, k and v were split from.
  void join(int number, const Definition& d) {
    const int label = d.writes[0].label;
    RowKernel op{
        .definition = number, .backward = true, .reads = {}, .writes = {}, .tokens = home_};
    for (const Tensor tensor : {Tensor::d_q, Tensor::d_k, Tensor::d_v}) {
      op.reads.push_back(new_heads({tensor, label}, std::string(to_string(tensor))));
    }
    place_.attention = label;
    place_.known = [&](const Buffer& buffer) { return known_backward(buffer, label); };
    transplant(b_, backward_, place_,
               of_layer({Tensor::q, label}) + (is_step() ? "attention_back_" : "attention_"));
    op.writes.push_back(new_gradient(d.reads[0]));
    b_.op(compute, op);
  }

  const LayerParts& parts_;
  const Graph& graph_;
  const GraphIndex& index_;
  ProgramBuilder b_;
  int tensor_;
  int t_;
  Rank of_attention_;
  HeadRange part_;
  Program forward_, backward_;  // of attention
  RankGroup tensor_group_, same_tensor_, all_;
  TokenSet home_, own_;
  HeadRange q_heads_, kv_heads_;
  Transplant place_;
  std::set<TensorRef> kept_, gathered_before_;
  std::map<int, std::vector<BufferId>> kept_of_attention_;  // by attention: its forward's buffers
  std::map<TensorRef, BufferId> held_, gathered_, partial_;
  std::map<int, BufferId> full_;                     // parameters that are gathered now
  int unit_ = -1;                                    // whose definitions are being written
  std::map<TensorRef, std::vector<int>> passed_on_;  // sums, by what they give their gradient to
};

}  // namespace

std::vector<ParamUse> param_uses(const LayerGraph& layer) {
  std::vector<ParamUse> uses(layer.graph.params.size());
  for (std::size_t i = 0; i < layer.graph.definitions.size(); ++i) {
    const Definition& d = layer.graph.definitions[i];
    const bool of_norm =
        d.function == LayerFunction::rms_norm || d.function == LayerFunction::layer_norm;
    for (const int param : {d.param, d.bias}) {
      if (param >= 0 && d.function != LayerFunction::adam) {
        uses[static_cast<std::size_t>(param)] = {.unit = layer.units[i], .of_norm = of_norm};
      }
    }
  }
  return uses;
}

Program layer_program(const LayerParts& parts, Rank rank) {
  return LayerProgram(parts, rank).write();
}

namespace {

bool is_same(const Buffer& kept, const Buffer& input) {
  return kept.tensor == input.tensor && kept.dtype == input.dtype;
}

/// Given to the forward, or its result; -1: neither.
int declared(const std::vector<Buffer>& forward, const Buffer& input) {
  const auto at = std::ranges::find_if(forward, [&](const Buffer& buffer) {
    return buffer.role != BufferRole::scratch && is_same(buffer, input) &&
           buffer.tile == input.tile && buffer.head_range == input.head_range;
  });
  return at == forward.end() ? -1 : static_cast<int>(at - forward.begin());
}

int left_over(const StoredProgram& forward, const Buffer& input) {
  const StoredContent wanted{{.tokens = TokenList(input.tile), .heads = input.head_range}};
  for (std::size_t b = 0; b < forward.buffers.size(); ++b) {
    if (forward.buffers[b].role == BufferRole::scratch && is_same(forward.buffers[b], input) &&
        forward.contents[b] == wanted) {
      return static_cast<int>(b);
    }
  }
  return -1;
}

}  // namespace

std::vector<KeptBuffers> kept_by(const Schedule& forward, const Schedule& backward,
                                 std::string& lacking) {
  std::vector<KeptBuffers> kept;
  std::vector<StoredProgram> stored;  // only where it is asked for
  for (int rank = 0; rank < forward.mesh.size(); ++rank) {
    const std::vector<Buffer> before = forward.program(Rank(rank)).buffers;
    KeptBuffers& of_rank = kept.emplace_back();
    for (const Buffer& buffer : backward.program(Rank(rank)).buffers) {
      const bool is_kept = buffer.role == BufferRole::input && buffer.tensor != Tensor::d_out;
      of_rank.push_back(is_kept ? declared(before, buffer) : -1);
      if (!is_kept || of_rank.back() >= 0) {
        continue;
      }
      if (stored.empty()) {
        stored = store(forward);
      }
      of_rank.back() = left_over(stored[static_cast<std::size_t>(rank)], buffer);
      if (of_rank.back() < 0) {
        lacking = to_string(buffer.tensor);
        return {};
      }
    }
  }
  return kept;
}

}  // namespace spp
