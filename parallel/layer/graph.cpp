// One class, hence one file: every kind of operation writes into the same graph.
#include "parallel/layer/graph.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace spp {
namespace {

constexpr double epsilon = 1e-5;
constexpr double rotation_base = 10000;

/// What a schedule computes again by itself. Not latent attention's projections up: q, k and v are
/// kept where attention's backward reads them, behind the strategy's all-to-alls.
ModuleSet scheduled(ModuleSet modules) {
  using enum RecomputeModule;
  return modules.common({core_attention, norms, activation, mlp, moe, shared_experts});
}

/// "norm 1" -> "norm_1": one word of a schedule's text.
std::string word_of(std::string_view name) {
  std::string word(name);
  std::ranges::replace(word, ' ', '_');
  return word;
}

class GraphWriter {
 public:
  GraphWriter(int tensor, int expert_groups) : tensor_(tensor), expert_groups_(expert_groups) {}

  /// Attentions of what is appended from now on see by this mask.
  void see_by(const LayerMask& mask) {
    std::vector<LayerMask>& masks = result_.masks;
    const auto at = std::ranges::find(masks, mask);
    mask_ = static_cast<int>(at - masks.begin());
    if (at == masks.end()) {
      masks.push_back(mask);
    }
  }
  /// Operations up to number `count`; names begin with `prefix`. `input`: what the list reads
  /// without having written it; else a value of its own. False: no schedule holds it.
  bool append(const TensorOps& ops, const std::string& prefix = "",
              std::optional<TensorRef> input = {}, std::size_t count = SIZE_MAX) {
    ops_ = &ops;
    ++unit_;
    prefix_ = prefix;
    input_ = input;
    places_.clear();
    for (const TensorOp& op : std::span(ops.ops).first(std::min(count, ops.ops.size()))) {
      modules_ = scheduled(op.modules);
      const std::string reason =
          std::visit([&](const auto& work) { return add(op, work); }, op.work);
      if (!reason.empty()) {
        result_ = {.graph = {},
                   .cuts = {},
                   .units = {},
                   .modules = {},
                   .masks = {},
                   .why_not = fmt::format("'{}': {}", op.name, reason)};
        return false;
      }
    }
    return true;
  }
  /// What the last list's only result, or what the operation before number `count`, wrote.
  [[nodiscard]] TensorRef result() const { return places_.at(ops_->results[0]); }
  [[nodiscard]] TensorRef last_written() const {
    return result_.graph.definitions.back().writes.front();
  }

  /// From logits to a loss.
  void lose(TensorRef logits, std::int64_t words) {
    modules_ = {};
    prefix_ = "";
    const TensorRef targets = words_value("targets", words);
    const TensorRef sums = value("word_sums", 3 * std::int64_t{tensor_}, Cut::rows, true);
    define({.function = LayerFunction::word_sums, .reads = {logits, targets}, .writes = {sums}});
    const TensorRef loss = value("loss", 1, Cut::rows, true);
    const TensorRef log_sum = value("log_sum", 1, Cut::rows, true);
    define({.function = LayerFunction::word_loss,
            .reads = {sums, targets},
            .writes = {loss, log_sum}});
  }
  void update_all(double rate) {
    modules_ = {};
    for (int label = 0; label < std::ssize(result_.graph.params); ++label) {
      define({.function = LayerFunction::adam,
              .reads = {},
              .writes = {},
              .param = label,
              .constant = rate});
    }
  }

  LayerGraph take() { return std::move(result_); }

 private:
  std::string add(const TensorOp& op, const Linear& linear) {
    if (linear.experts > 0) {
      return add_experts(op, linear);
    }
    if (linear.tied) {
      return multiply_by_table(op, linear);
    }
    const bool columns = linear.shard == Shard::columns;
    const std::optional<TensorRef> x = read(op.reads[0]);
    if (!x || op.reads.size() != 1 || op.writes.size() > 3) {
      return "a product of another form";
    }
    result_.graph.params.push_back({.name = named(op.name),
                                    .rows = linear.in,
                                    .columns = linear.out,
                                    .row_parts = linear.shard == Shard::rows ? tensor_ : 1,
                                    .column_parts = columns ? tensor_ : 1});
    const bool alone = op.writes.size() == 1;
    const TensorRef y = alone ? written(op.writes[0])
                              : value(op.name, linear.out, columns ? Cut::width : Cut::rows);
    if (linear.shard == Shard::none) {  // scores of experts are products in the step's type
      result_.graph.values.back().fp32 = false;
    }
    Definition product{
        .function = LayerFunction::linear, .reads = {*x}, .writes = {y}, .param = last_param()};
    if (linear.bias) {
      result_.graph.params.push_back({.name = named(op.name) + "_bias",
                                      .rows = linear.out,
                                      .row_parts = columns ? tensor_ : 1});
      product.bias = last_param();
    }
    define(std::move(product));
    if (op.writes.size() == 2) {
      columns ? join_columns(op, y) : split_columns(op, y);
    }
    if (op.writes.size() == 3) {
      attention_ = result_.graph.attentions();
      define({.function = LayerFunction::split_heads,
              .reads = {y},
              .writes = {of(Tensor::q), of(Tensor::k), of(Tensor::v)},
              .mask = mask_});
      places_[op.writes[0]] = of(Tensor::q);
      places_[op.writes[1]] = of(Tensor::k);
      places_[op.writes[2]] = of(Tensor::v);
    }
    return "";
  }

  /// Whole rows, which are read apart.
  void split_columns(const TensorOp& op, TensorRef row) {
    define({.function = LayerFunction::split,
            .reads = {row},
            .writes = {written(op.writes[0]), written(op.writes[1])}});
  }
  /// Of each head k's first columns and v, which latent attention's heads are made of.
  void join_columns(const TensorOp& op, TensorRef row) {
    places_[op.writes[0]] = row;
    places_[op.writes[1]] = row;
    values_of_ = op.writes[1];
  }

  /// By the embedding's table, transposed: its parts of words are parts of y.
  std::string multiply_by_table(const TensorOp& op, const Linear& linear) {
    const std::optional<TensorRef> x = read(op.reads[0]);
    const bool fits =
        table_ >= 0 && x && linear.shard == Shard::columns && !linear.bias && op.writes.size() == 1;
    if (!fits) {
      return "a table that no embedding of this graph has";
    }
    define({.function = LayerFunction::linear,
            .reads = {*x},
            .writes = {written(op.writes[0])},
            .param = table_,
            .transposed = true});
    return "";
  }

  /// A matrix for each expert, and a bias; gate and up are one.
  std::string add_experts(const TensorOp& op, const Linear& linear) {
    const std::optional<TensorRef> x = read(op.reads[0]);
    if (!x) {
      return "a product of another form";
    }
    result_.graph.params.push_back({.name = named(op.name),
                                    .rows = linear.experts * linear.in,
                                    .columns = linear.out,
                                    .row_parts = expert_groups_,
                                    .experts = static_cast<int>(linear.experts)});
    const TensorRef y = slots(op.name, linear.out);
    Definition product{
        .function = LayerFunction::linear, .reads = {*x}, .writes = {y}, .param = last_param()};
    if (linear.bias) {
      add_biases(op, linear, product);
    }
    define(std::move(product));
    for (const LayerTensorId id : op.writes) {
      places_[id] = y;
    }
    return "";
  }
  /// What a weight has been multiplied with meets a bias that is, too: the sum over a token's
  /// experts is a weighted one of all that each of them makes.
  void add_biases(const TensorOp& op, const Linear& linear, Definition& product) {
    result_.graph.params.push_back({.name = named(op.name) + "_bias",
                                    .rows = linear.experts * linear.out,
                                    .row_parts = expert_groups_,
                                    .experts = static_cast<int>(linear.experts)});
    product.bias = last_param();
    const Definition& before =
        result_.graph.definition(result_.graph.writer_of(product.reads.front()));
    if (before.function == LayerFunction::expert_swiglu) {
      product.reads.push_back(before.reads.back());
    }
  }

  /// Which experts a token has, and its way to them and back.
  std::string add_routed(const TensorOp& op, LayerFunction function,
                         const std::vector<TensorRef>& reads) {
    Routing& routing = result_.graph.routing;
    switch (function) {
      case LayerFunction::route: {
        const auto experts = static_cast<int>(ops_->at(op.reads[0]).width);
        const Routing wanted{.experts = experts,
                             .chosen = ops_->experts_per_token,
                             .groups = expert_groups_,
                             .period = experts / ops_->experts_per_token};
        if (experts % wanted.chosen != 0 || (!routing.empty() && routing != wanted)) {
          return fmt::format("{} of {} experts, which are no equal parts of them", wanted.chosen,
                             experts);
        }
        routing = wanted;
        const TensorRef weights = slots("expert weights", 1, true);
        define({.function = function, .reads = {reads[0]}, .writes = {weights}});
        places_[op.writes[0]] = weights;
        return "";
      }
      case LayerFunction::dispatch: {
        const TensorRef x = reads[0];
        const TensorRef y = slots(op.name, result_.graph.value(x.label).width);
        define({.function = function, .reads = {x}, .writes = {y}});
        places_[op.writes[0]] = y;
        places_[op.writes[1]] = reads[1];
        return "";
      }
      case LayerFunction::expert_swiglu: {
        const TensorRef gate_up = reads.front();
        const TensorRef a = slots(op.name, result_.graph.value(gate_up.label).part_width() / 2);
        define({.function = function, .reads = {gate_up, reads.back()}, .writes = {a}});
        places_[op.writes[0]] = a;
        return "";
      }
      default:  // combine
        define({.function = function, .reads = {reads[0]}, .writes = {written(op.writes[0])}});
        return "";
    }
  }

  std::string add(const TensorOp& op, const RowWise& rows) {
    if (!rows.function) {
      return "a row-wise function that schedules do not know";
    }
    std::vector<TensorRef> reads;
    for (const LayerTensorId id : op.reads) {
      const std::optional<TensorRef> ref = read(id);
      if (!ref) {
        return "a tensor from elsewhere";
      }
      reads.push_back(*ref);
    }
    switch (*rows.function) {
      case LayerFunction::split_heads:
        return rotate(op, reads);
      case LayerFunction::rms_norm:
      case LayerFunction::layer_norm: {
        if (reads.size() > 1) {
          return norm_heads(op, rows, reads);
        }
        result_.graph.params.push_back({.name = named(op.name), .rows = rows.weights});
        const bool mean = rows.function == LayerFunction::layer_norm;
        const TensorRef y = written(op.writes[0]);
        const TensorRef statistics =
            value(std::string(op.name) + " statistics", mean ? 2 : 1, Cut::rows, true);
        define({.function = *rows.function,
                .reads = reads,
                .writes = {y, statistics},
                .param = last_param(),
                .constant = epsilon});
        return "";
      }
      case LayerFunction::swiglu:
      case LayerFunction::gelu:
      case LayerFunction::add:
        define({.function = *rows.function, .reads = reads, .writes = {written(op.writes[0])}});
        return "";
      case LayerFunction::route:
      case LayerFunction::dispatch:
      case LayerFunction::expert_swiglu:
      case LayerFunction::combine:
        return add_routed(op, *rows.function, reads);
      case LayerFunction::linear:
      case LayerFunction::split:
      case LayerFunction::embedding:
      case LayerFunction::word_sums:
      case LayerFunction::word_loss:
      case LayerFunction::adam:
        break;
    }
    throw InternalError("no row-wise function of a layer");
  }

  /// Of q and k, where heads were split.
  std::string norm_heads(const TensorOp& op, const RowWise& rows,
                         const std::vector<TensorRef>& reads) {
    Definition* split = splits_heads(reads);
    if (split == nullptr || split->constant != 0) {
      return "norms of other heads than q's and k's before they are turned";
    }
    result_.graph.params.push_back({.name = named(op.name), .rows = rows.weights});
    split->param = last_param();
    split->epsilon = epsilon;
    places_[op.writes[0]] = of(Tensor::q);
    places_[op.writes[1]] = of(Tensor::k);
    return "";
  }

  /// What made this layer's q and k; nothing if these are other tensors.
  Definition* splits_heads(const std::vector<TensorRef>& reads) {
    if (reads != std::vector<TensorRef>{of(Tensor::q), of(Tensor::k)}) {
      return nullptr;
    }
    const int split = result_.graph.writer_of(reads.front());
    return split < 0 ? nullptr : &result_.graph.definitions[static_cast<std::size_t>(split)];
  }

  /// q and k, where heads were split.
  std::string rotate(const TensorOp& op, const std::vector<TensorRef>& reads) {
    if (reads.size() == 3) {
      return join_latents(op, reads);
    }
    Definition* split = splits_heads(reads);
    if (split == nullptr) {
      return "positions of other tensors than q and k";
    }
    split->constant = rotation_base;
    places_[op.writes[0]] = of(Tensor::q);
    places_[op.writes[1]] = of(Tensor::k);
    return "";
  }

  /// q's row, k's first columns and v, and k's last columns: heads of latent attention.
  std::string join_latents(const TensorOp& op, const std::vector<TensorRef>& reads) {
    attention_ = result_.graph.attentions();
    define({.function = LayerFunction::split_heads,
            .reads = reads,
            .writes = {of(Tensor::q), of(Tensor::k), of(Tensor::v)},
            .constant = rotation_base,
            .mask = mask_});
    places_[op.writes[0]] = of(Tensor::q);
    places_[op.writes[1]] = of(Tensor::k);
    places_[values_of_] = of(Tensor::v);
    return "";
  }

  std::string add(const TensorOp& op, const AttentionCall& call) {
    const bool plain = call.over_sequence() && op.reads.size() == 3 && op.writes.size() == 1;
    if (!plain || read(op.reads[0]) != of(Tensor::q) || read(op.reads[1]) != of(Tensor::k) ||
        read(op.reads[2]) != of(Tensor::v)) {
      return "attention that no schedule of this layer computes";
    }
    places_[op.writes[0]] = of(Tensor::out);
    for (std::size_t i = 0; i < result_.graph.definitions.size(); ++i) {
      const Definition& d = result_.graph.definitions[i];
      if (d.function == LayerFunction::split_heads && d.writes[0].label == attention_) {
        result_.modules[i] = op.modules;  // attention is computed with its heads
      }
    }
    if (call.sinks) {
      add_sink(op, call);
    }
    return "";
  }
  void add_sink(const TensorOp& op, const AttentionCall& call) {
    result_.graph.params.push_back(
        {.name = named(op.name) + "_sinks", .rows = call.q_heads, .row_parts = tensor_});
    splits_heads({of(Tensor::q), of(Tensor::k)})->sink = last_param();
  }
  std::string add(const TensorOp& op, const Lookup& lookup) {
    if (lookup.tied) {
      return "a table that something else has, too";
    }
    const std::int64_t width = ops_->at(op.writes[0]).width;
    result_.graph.params.push_back(
        {.name = named(op.name), .rows = lookup.words, .columns = width, .row_parts = tensor_});
    table_ = last_param();
    const TensorRef words = words_value("words", lookup.words);
    define({.function = LayerFunction::embedding,
            .reads = {words},
            .writes = {written(op.writes[0])},
            .param = table_});
    return "";
  }
  /// The schedule's transfers: the graph knows no ranks.
  std::string add(const TensorOp& op, const ExpertRoute&) {
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      places_[op.writes[i]] = places_.at(op.reads[i]);
    }
    return "";
  }
  static std::string add(const TensorOp& op, const ShortConvolution&) { return named_as(op); }
  static std::string add(const TensorOp& op, const PickCall&) { return named_as(op); }
  static std::string add(const TensorOp& op, const ScanCall&) { return named_as(op); }
  static std::string named_as(const TensorOp& op) { return fmt::format("a {}", op.name); }

  /// What was written, or the layer's input.
  std::optional<TensorRef> read(LayerTensorId id) {
    if (const auto at = places_.find(id); at != places_.end()) {
      return at->second;
    }
    const LayerTensor& tensor = ops_->at(id);
    if (tensor.outside || tensor.rows != Rows::tokens) {
      return {};
    }
    return input_ ? places_[id] = *input_ : written(id);
  }
  TensorRef written(LayerTensorId id) {
    const LayerTensor& tensor = ops_->at(id);
    return places_[id] = value(tensor.name, tensor.width, tensor.cut, tensor.fp32);
  }
  TensorRef value(std::string_view name, std::int64_t width, Cut cut, bool fp32 = false) {
    std::string word = named(name);
    while (std::ranges::find(result_.graph.values, word, &Value::name) !=
           result_.graph.values.end()) {
      word += '\'';
    }
    result_.graph.values.push_back({.name = std::move(word),
                                    .width = width,
                                    .parts = cut == Cut::width ? tensor_ : 1,
                                    .fp32 = fp32});
    result_.cuts.push_back(cut);
    return {Tensor::value, static_cast<int>(result_.graph.values.size()) - 1};
  }
  /// So many elements for each slot of a token.
  TensorRef slots(std::string_view name, std::int64_t width, bool fp32 = false) {
    const int chosen = result_.graph.routing.chosen;
    const TensorRef ref = value(name, chosen * width, Cut::rows, fp32);
    result_.graph.values.back().parts = chosen;
    return ref;
  }
  /// Numbers of words, on every rank.
  TensorRef words_value(std::string_view name, std::int64_t words) {
    const TensorRef ref = value(name, 1, Cut::whole, true);
    result_.graph.values.back().words = words;
    return ref;
  }
  [[nodiscard]] std::string named(std::string_view name) const { return prefix_ + word_of(name); }
  /// A tensor of the layer's attention.
  [[nodiscard]] TensorRef of(Tensor tensor) const { return {tensor, attention_}; }
  [[nodiscard]] int last_param() const { return static_cast<int>(result_.graph.params.size()) - 1; }
  void define(Definition d) {
    result_.graph.definitions.push_back(std::move(d));
    result_.units.push_back(unit_);
    result_.modules.push_back(modules_);
  }

  int tensor_, expert_groups_;
  const TensorOps* ops_ = nullptr;
  std::string prefix_;
  std::optional<TensorRef> input_;
  int attention_ = 0, mask_ = 0;
  int table_ = -1;           // the embedding's
  LayerTensorId values_of_;  // of latent attention
  int unit_ = -1;
  ModuleSet modules_;  // of the operation that is added
  LayerGraph result_;
  std::map<LayerTensorId, TensorRef> places_;
};

}  // namespace

LayerGraph layer_graph(const TensorOps& ops, int tensor, int expert_groups) {
  GraphWriter writer(tensor, expert_groups);
  writer.append(ops);
  return writer.take();
}

LayerGraph step_graph(const Model& model, int tensor, double rate, int expert_groups) {
  GraphWriter writer(tensor, expert_groups);
  const TensorOps first = first_of(model);
  if (first.ops.empty()) {
    return {.graph = {},
            .cuts = {},
            .units = {},
            .modules = {},
            .masks = {},
            .why_not = "a model without words, or none yet"};
  }
  if (!writer.append(first)) {
    return writer.take();
  }
  const std::vector<LayerRun> runs = layer_runs(model);
  const std::vector<std::size_t> kinds = kinds_of_layers(model);
  TensorRef stream = writer.result();
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const LayerRun& run = runs[kinds[static_cast<std::size_t>(i)]];
    if (run.attends) {
      writer.see_by(run.mask);
    }
    if (!writer.append(run.ops, fmt::format("l{}.", i), stream)) {
      return writer.take();
    }
    stream = writer.result();
  }
  const TensorOps last = last_of(model, StepKind::train);
  const auto is_product = [](const TensorOp& op) {
    return std::holds_alternative<Linear>(op.work);
  };
  const auto head = std::ranges::find_if(last.ops, is_product);
  if (writer.append(last, "", stream, static_cast<std::size_t>(head - last.ops.begin()) + 1)) {
    writer.lose(writer.last_written(), model.vocab);
    if (rate > 0) {
      writer.update_all(rate);
    }
  }
  return writer.take();
}

}  // namespace spp
