#include "transformer/activations.hpp"

#include <algorithm>
#include <vector>

namespace spp {
namespace {

void add(RowBytes& sum, Rows rows, std::int64_t bytes) {
  if (rows == Rows::tokens) {
    sum.tokens += bytes;
  } else if (rows == Rows::text) {
    sum.text += bytes;
  }
}

std::int64_t width_bytes(const LayerTensor& tensor, DType dtype) {
  return tensor.width * (tensor.fp32 ? 4 : size_of(dtype));
}

/// How many tensors are alive: adds and takes away, and remembers the most.
class Alive {
 public:
  Alive(const TensorOps& ops, DType dtype) : ops_(&ops), dtype_(dtype) {}
  void add(LayerTensorId id) { count(id, 1); }
  void drop(LayerTensorId id) { count(id, -1); }
  [[nodiscard]] const RowBytes& most() const { return most_; }

 private:
  void count(LayerTensorId id, int sign) {
    const LayerTensor& tensor = ops_->at(id);
    if (!tensor.outside) {
      spp::add(now_, tensor.rows, sign * width_bytes(tensor, dtype_));
      most_ = {.tokens = std::max(most_.tokens, now_.tokens),
               .text = std::max(most_.text, now_.text)};
    }
  }

  const TensorOps* ops_;
  DType dtype_;
  RowBytes now_, most_;
};

/// Which tensors are kept, and which of them a cheap operation wrote.
struct Kept {
  std::vector<bool> kept, cheap, written;
};

Kept kept_tensors(const TensorOps& ops) {
  const std::vector<bool> none(ops.tensors.size(), false);
  Kept k{.kept = none, .cheap = none, .written = none};
  for (const TensorOp& op : ops.ops) {
    for (const LayerTensorId id : op.keeps) {
      k.kept[id.index()] = true;
    }
    for (const LayerTensorId id : op.writes) {
      k.written[id.index()] = true;
      k.cheap[id.index()] = op.cheap;
    }
  }
  for (const LayerTensorId id : ops.kept_behind) {
    k.kept[id.index()] = true;
  }
  return k;
}

bool in_place(const TensorOp& op) {
  const auto* row_wise = std::get_if<RowWise>(&op.work);
  return row_wise != nullptr && row_wise->in_place;
}

/// Whose gradient's memory the gradient of each tensor uses: a sum passes it on, an operation in
/// place writes over it. Invalid: memory that is not counted here.
std::vector<LayerTensorId> gradient_places(const TensorOps& ops) {
  std::vector<LayerTensorId> places(ops.tensors.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = ops.tensors[i].outside ? LayerTensorId() : LayerTensorId(i);
  }
  for (auto op = ops.ops.rbegin(); op != ops.ops.rend(); ++op) {
    const auto* call = std::get_if<AttentionCall>(&op->work);
    const auto* row_wise = std::get_if<RowWise>(&op->work);
    for (std::size_t i = 0; const LayerTensorId id : op->reads) {
      if (call != nullptr && call->keys == Rows::tokens) {
        places[id.index()] = LayerTensorId();
      } else if (row_wise != nullptr && row_wise->gradient == RowGradient::passed_on) {
        places[id.index()] = places[op->writes[0].index()];
      } else if (in_place(*op)) {
        places[id.index()] = places[op->writes[i].index()];
      }
      ++i;
    }
  }
  return places;
}

/// Bytes of gradients that live at the same time: each from the first operation, backwards, that
/// computes it to the last one that reads it; a second one of a tensor until it is added.
std::int64_t most_gradients(const TensorOps& ops, DType dtype) {
  const std::vector<LayerTensorId> places = gradient_places(ops);
  std::vector<int> users(ops.tensors.size(), 0);  // tensors in each place
  for (const LayerTensorId place : places) {
    if (place.valid()) {
      ++users[place.index()];
    }
  }
  Alive alive(ops, dtype);
  std::vector<bool> there(ops.tensors.size(), false);
  /// Whether it lies beside one that is there.
  const auto compute = [&](LayerTensorId id) {
    const LayerTensorId place = places[id.index()];
    if (!place.valid()) {
      return false;
    }
    const bool second = there[place.index()];
    alive.add(second ? id : place);
    there[place.index()] = true;
    return second;
  };
  for (const LayerTensorId id : ops.results) {
    compute(id);
  }
  for (auto op = ops.ops.rbegin(); op != ops.ops.rend(); ++op) {
    const auto* row_wise = std::get_if<RowWise>(&op->work);
    const bool computed = row_wise == nullptr || row_wise->gradient == RowGradient::computed;
    LayerTensors second;
    for (const LayerTensorId id : op->reads) {
      if (computed && !in_place(*op) && compute(id)) {
        second.push_back(id);
      }
    }
    for (const LayerTensorId id : op->writes) {
      const LayerTensorId place = places[id.index()];
      if (place.valid() && there[place.index()] && --users[place.index()] == 0) {
        alive.drop(place);
      }
    }
    for (const LayerTensorId id : second) {
      alive.drop(id);
    }
  }
  return alive.most().tokens;
}

}  // namespace

RowBytes kept_bytes(const TensorOps& ops, DType dtype, Recompute recompute) {
  const Kept k = kept_tensors(ops);
  RowBytes bytes;
  for (std::size_t i = 0; i < ops.tensors.size(); ++i) {
    const LayerTensor& tensor = ops.tensors[i];
    const bool dropped = (recompute == Recompute::full && k.written[i]) ||
                         (recompute == Recompute::selective && k.cheap[i]);
    if (k.kept[i] && !tensor.outside && !dropped) {
      add(bytes, tensor.rows, width_bytes(tensor, dtype));
    }
  }
  if (recompute != Recompute::full) {
    for (const TensorOp& op : ops.ops) {
      add(bytes, Rows::tokens, op.statistics * 4);
    }
  }
  return bytes;
}

RowBytes working_bytes(const TensorOps& ops, DType dtype, Recompute recompute) {
  const RowBytes all = kept_bytes(ops, dtype, Recompute::none);
  const RowBytes kept = kept_bytes(ops, dtype, recompute);
  return {.tokens = all.tokens - kept.tokens + most_gradients(ops, dtype),
          .text = all.text - kept.text};
}

RowBytes forward_bytes(const TensorOps& ops, DType dtype) {
  std::vector<std::size_t> last(ops.tensors.size(), ops.ops.size());  // that reads the tensor
  std::vector<bool> written(ops.tensors.size(), false);
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    for (const LayerTensorId id : ops.ops[i].reads) {
      last[id.index()] = i;
    }
    for (const LayerTensorId id : ops.ops[i].writes) {
      written[id.index()] = true;
    }
  }
  for (const LayerTensorId id : ops.results) {
    last[id.index()] = ops.ops.size();
  }
  Alive alive(ops, dtype);
  for (std::size_t i = 0; i < ops.tensors.size(); ++i) {
    if (!written[i] && last[i] < ops.ops.size()) {
      alive.add(LayerTensorId(i));
    }
  }
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    const auto drop_last_read = [&] {
      for (const LayerTensorId id : ops.ops[i].reads) {
        if (last[id.index()] == i) {
          alive.drop(id);
        }
      }
    };
    if (in_place(ops.ops[i])) {
      drop_last_read();
    }
    for (const LayerTensorId id : ops.ops[i].writes) {
      alive.add(id);
    }
    if (!in_place(ops.ops[i])) {
      drop_last_read();
    }
  }
  return alive.most();
}

std::int64_t cached_bytes(const TensorOps& ops, DType dtype) {
  std::int64_t bytes = 0;
  for (const TensorOp& op : ops.ops) {
    const auto* call = std::get_if<AttentionCall>(&op.work);
    if (call != nullptr && call->keys == Rows::tokens) {
      bytes += width_bytes(ops.at(op.reads[1]), dtype) + width_bytes(ops.at(op.reads[2]), dtype);
    }
  }
  return bytes;
}

}  // namespace spp
