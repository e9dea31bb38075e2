#include "step/layer_graph.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace spp {
namespace {

constexpr double epsilon = 1e-5;
constexpr double rotation_base = 10000;

/// "norm 1" -> "norm_1": one word of a schedule's text.
std::string word_of(std::string_view name) {
  std::string word(name);
  std::ranges::replace(word, ' ', '_');
  return word;
}

class GraphWriter {
 public:
  GraphWriter(const TensorOps& ops, int tensor) : ops_(ops), tensor_(tensor) {}

  LayerGraph write() {
    for (const TensorOp& op : ops_.ops) {
      const std::string reason =
          std::visit([&](const auto& work) { return add(op, work); }, op.work);
      if (!reason.empty()) {
        return {.graph = {}, .cuts = {}, .why_not = fmt::format("'{}': {}", op.name, reason)};
      }
    }
    return std::move(result_);
  }

 private:
  std::string add(const TensorOp& op, const Linear& linear) {
    if (linear.experts > 0 || linear.bias || linear.tied || linear.shard == Shard::none) {
      return linear.experts > 0 ? "experts"
             : linear.bias      ? "a bias"
                                : "a matrix that is whole on every rank, or another's";
    }
    const bool columns = linear.shard == Shard::columns;
    const std::optional<TensorRef> x = read(op.reads[0]);
    if (!x || op.reads.size() != 1 || (op.writes.size() != 1 && op.writes.size() != 3)) {
      return "a product of another form";
    }
    result_.graph.params.push_back({.name = word_of(op.name),
                                    .rows = linear.in,
                                    .columns = linear.out,
                                    .row_parts = columns ? 1 : tensor_,
                                    .column_parts = columns ? tensor_ : 1});
    const bool heads = op.writes.size() == 3;
    const TensorRef y = heads ? value(op.name, linear.out, columns ? Cut::width : Cut::rows)
                              : written(op.writes[0]);
    define(
        {.function = LayerFunction::linear, .reads = {*x}, .writes = {y}, .param = last_param()});
    if (heads) {
      define({.function = LayerFunction::split_heads,
              .reads = {y},
              .writes = {Tensor::q, Tensor::k, Tensor::v}});
      places_[op.writes[0]] = Tensor::q;
      places_[op.writes[1]] = Tensor::k;
      places_[op.writes[2]] = Tensor::v;
    }
    return "";
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
        result_.graph.params.push_back({.name = word_of(op.name), .rows = rows.weights});
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
      case LayerFunction::linear:
        break;
    }
    throw InternalError("a product is no row-wise function");
  }

  /// q and k, where heads were split.
  std::string rotate(const TensorOp& op, const std::vector<TensorRef>& reads) {
    if (reads != std::vector<TensorRef>{Tensor::q, Tensor::k}) {
      return "positions of other tensors than q and k";
    }
    for (Definition& d : result_.graph.definitions) {
      if (d.function == LayerFunction::split_heads) {
        d.constant = rotation_base;
      }
    }
    places_[op.writes[0]] = Tensor::q;
    places_[op.writes[1]] = Tensor::k;
    return "";
  }

  std::string add(const TensorOp& op, const AttentionCall& call) {
    const bool plain = call.over_sequence() && !call.sinks && call.v_dim() == call.head_dim &&
                       op.reads.size() == 3 && op.writes.size() == 1;
    if (!plain || read(op.reads[0]) != TensorRef(Tensor::q) ||
        read(op.reads[1]) != TensorRef(Tensor::k) || read(op.reads[2]) != TensorRef(Tensor::v)) {
      return "attention that no schedule of this layer computes";
    }
    places_[op.writes[0]] = Tensor::out;
    return "";
  }
  static std::string add(const TensorOp&, const Lookup&) { return "a table of words"; }
  static std::string add(const TensorOp&, const ExpertRoute&) { return "experts"; }

  /// What was written, or the layer's input.
  std::optional<TensorRef> read(LayerTensorId id) {
    if (const auto at = places_.find(id); at != places_.end()) {
      return at->second;
    }
    const LayerTensor& tensor = ops_.at(id);
    if (tensor.outside || tensor.rows != Rows::tokens) {
      return {};
    }
    return written(id);
  }
  TensorRef written(LayerTensorId id) {
    const LayerTensor& tensor = ops_.at(id);
    return places_[id] = value(tensor.name, tensor.width, tensor.cut, tensor.fp32);
  }
  TensorRef value(std::string_view name, std::int64_t width, Cut cut, bool fp32 = false) {
    std::string word = word_of(name);
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
  [[nodiscard]] int last_param() const { return static_cast<int>(result_.graph.params.size()) - 1; }
  void define(Definition d) { result_.graph.definitions.push_back(std::move(d)); }

  const TensorOps& ops_;
  int tensor_;
  LayerGraph result_;
  std::map<LayerTensorId, TensorRef> places_;
};

}  // namespace

LayerGraph layer_graph(const TensorOps& ops, int tensor) {
  return GraphWriter(ops, tensor).write();
}

}  // namespace spp
