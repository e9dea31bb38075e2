// All that is counted of a list's memory, in one file: what waits, what comes on top, what is cut.
#include "transformer/activations.hpp"

#include "transformer/layer_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <vector>

namespace spp {
namespace {

/// Bytes of tensors with a row a token, and of those with a row a token of the text: their maxima
/// are taken apart.
struct RowBytes {
  Bytes tokens{}, text{};
};

void add(RowBytes& sum, Rows rows, Bytes bytes) {
  if (rows == Rows::text) {
    sum.text += bytes;
  } else if (rows != Rows::last && rows != Rows::sequence) {
    sum.tokens += bytes;
  }
}

/// How many tensors are alive: adds and takes away, and remembers the most.
class Alive {
 public:
  explicit Alive(const LocalShapes& shapes) : shapes_(&shapes) {}
  void add(LayerTensorId id) { count(id, 1); }
  void drop(LayerTensorId id) { count(id, -1); }
  /// For the moment, besides.
  void brief(Bytes bytes) { most_.tokens = std::max(most_.tokens, now_.tokens + bytes); }
  [[nodiscard]] const RowBytes& most() const { return most_; }

 private:
  void count(LayerTensorId id, std::int64_t sign) {
    const LayerTensor& tensor = shapes_->ops().at(id);
    if (!tensor.outside) {
      spp::add(now_, tensor.rows, sign * shapes_->bytes(id));
      most_ = {.tokens = std::max(most_.tokens, now_.tokens),
               .text = std::max(most_.text, now_.text)};
    }
  }

  const LocalShapes* shapes_;
  RowBytes now_, most_;
};

std::vector<bool> all_of(const TensorOps& ops) { return std::vector<bool>(ops.ops.size(), true); }

/// By tensor: kept for the backward by some operation, or behind the list.
std::vector<bool> kept_by(const TensorOps& ops, const std::vector<bool>& operations) {
  std::vector<bool> kept(ops.tensors.size(), false);
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    for (const LayerTensorId id : ops.ops[i].keeps) {
      kept[id.index()] = kept[id.index()] || operations[i];
    }
  }
  for (const LayerTensorId id : ops.kept_behind) {
    kept[id.index()] = true;
  }
  return kept;
}

bool drops_output(const TensorOp& op, ModuleSet modules) {
  constexpr ModuleSet dropping{RecomputeModule::norms, RecomputeModule::activation,
                               RecomputeModule::mla_up};
  return !op.modules.common(modules).common(dropping).empty();
}

/// Which tensors, and which operations' statistics, wait for the backward.
struct Kept {
  std::vector<bool> tensors, statistics;
};

Kept kept_under(const LocalShapes& shapes, const Recomputation& recomputation) {
  const TensorOps& ops = shapes.ops();
  const std::vector<bool> again = runs_again(ops, recomputation);
  Kept kept{.tensors = kept_by(ops, all_of(ops)), .statistics = all_of(ops)};
  if (recomputation.kind == Recompute::none) {
    return kept;
  }
  std::vector<bool> once(again);
  once.flip();
  const std::vector<bool> by_others = kept_by(ops, once);
  const bool selective = recomputation.kind == Recompute::selective;
  const bool saves_outputs =
      selective && recomputation.modules.contains(RecomputeModule::every_second_gemm);
  const bool drops_inputs =
      selective && recomputation.modules.contains(RecomputeModule::all_but_attention);
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    const TensorOp& op = ops.ops[i];
    for (const LayerTensorId id : op.writes) {
      if (saves_outputs) {
        // Rows that no rank sends are what the operation in front of it wrote.
        const bool saved = !std::holds_alternative<ExpertRoute>(op.work) || shapes.exchanges();
        kept.tensors[id.index()] = (!again[i] && saved) || shapes.partial_sum(op);
      } else if (again[i]) {
        const bool leaves = selective && !drops_inputs && by_others[id.index()] &&
                            !drops_output(op, recomputation.modules);
        kept.tensors[id.index()] = kept.tensors[id.index()] && leaves;
      }
    }
    // A norm that runs again alone has its 1/rms still.
    const bool norm = selective && !saves_outputs && op.modules.contains(RecomputeModule::norms);
    kept.statistics[i] = !again[i] || norm;
  }
  return kept;
}

/// Of a tensor that some of these operations keep: its own rows, or all that a GEMM among them
/// gathered, and its own for the others. Kept behind the list, its own.
Bytes kept_rows(const LocalShapes& shapes, LayerTensorId id, const std::vector<bool>& operations) {
  const std::vector<TensorOp>& ops = shapes.ops().ops;
  const TensorOp* gathers = nullptr;
  bool own = false;
  for (std::size_t i = 0; i < ops.size() && shapes.local().gathered_kept; ++i) {
    if (operations[i] && std::ranges::find(ops[i].keeps, id) != ops[i].keeps.end()) {
      const bool all = shapes.gathers(ops[i], id);
      gathers = all ? &ops[i] : gathers;
      own = own || !all;
    }
  }
  return gathers == nullptr ? shapes.bytes(id)
                            : shapes.all_bytes(*gathers, id) + (own ? shapes.bytes(id) : Bytes(0));
}

/// Bytes of all kept tensors for these operations; those that GEMMs of fewer bits keep in their own
/// format, and those that others keep as they are: some twice.
RowBytes bytes_of(const LocalShapes& shapes, const Kept& kept,
                  const std::vector<bool>& operations) {
  RowBytes bytes;
  const TensorOps& ops = shapes.ops();
  std::vector<bool> narrow(operations), wide(operations);
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    const auto* linear = std::get_if<Linear>(&ops.ops[i].work);
    const bool is_narrow = shapes.local().stored != 1 && linear != nullptr &&
                           !linear->stays_wide(shapes.local().wide_attention);
    narrow[i] = narrow[i] && is_narrow;
    wide[i] = wide[i] && !is_narrow;
  }
  TensorOps inside = ops;
  inside.kept_behind = {};
  const std::vector<bool> by_narrow = kept_by(inside, narrow);
  const std::vector<bool> by_wide = kept_by(ops, wide);
  for (std::size_t i = 0; i < ops.tensors.size(); ++i) {
    if (!kept.tensors[i] || ops.tensors[i].outside) {
      continue;
    }
    const LayerTensorId id(i);
    double size = 0;
    if (by_narrow[i]) {
      size += shapes.local().stored * kept_rows(shapes, id, narrow).as_double();
    }
    if (by_wide[i] || !by_narrow[i]) {
      size += kept_rows(shapes, id, wide).as_double();
    }
    add(bytes, ops.tensors[i].rows, Bytes(std::llround(size)));
  }
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    if (kept.statistics[i] && ops.ops[i].statistics > 0) {
      bytes.tokens += shapes.statistics(ops.ops[i]);
    }
  }
  return bytes;
}

/// Of tensors that an operation has all rows of while it runs backward: inputs gathered again,
/// their gradients before they are summed over ranks, the gathered gradient of what it wrote.
Bytes gathered_backward(const LocalShapes& shapes, const TensorOp& op) {
  Bytes sum{};
  for (const LayerTensorId id : op.keeps) {
    const bool again = shapes.gathers(op, id) && !shapes.local().gathered_kept;
    sum += again ? shapes.all_bytes(op, id) : Bytes(0);
  }
  for (const LayerTensorId id : op.reads) {
    sum += shapes.gathers(op, id) ? shapes.all_bytes(op, id) : Bytes(0);
  }
  if (shapes.partial_sum(op) && shapes.sequence_parallel()) {
    sum += shapes.all_bytes(op, op.writes[0]);
  }
  return sum;
}

/// While it runs forward: gathered inputs, sums before they are scattered.
Bytes gathered_forward(const LocalShapes& shapes, const TensorOp& op) {
  Bytes sum{};
  for (const LayerTensorId id : op.reads) {
    sum += shapes.gathers(op, id) ? shapes.all_bytes(op, id) : Bytes(0);
  }
  if (shapes.partial_sum(op) && shapes.sequence_parallel()) {
    sum += shapes.all_bytes(op, op.writes[0]);
  }
  return sum;
}

/// What it writes takes the place of what it reads: an exchange without ranks does nothing.
bool in_place(const LocalShapes& shapes, const TensorOp& op) {
  const auto* row_wise = std::get_if<RowWise>(&op.work);
  return (row_wise != nullptr && row_wise->in_place) ||
         (std::holds_alternative<ExpertRoute>(op.work) && !shapes.exchanges());
}

/// Whose gradient's memory the gradient of each tensor uses: a sum passes it on, an operation in
/// place writes over it. Invalid: memory that is not counted here.
std::vector<LayerTensorId> gradient_places(const LocalShapes& shapes) {
  const TensorOps& ops = shapes.ops();
  std::vector<LayerTensorId> places(ops.tensors.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = ops.tensors[i].outside ? LayerTensorId() : LayerTensorId(i);
  }
  for (const TensorOp& op : std::views::reverse(ops.ops)) {
    const auto* call = std::get_if<AttentionCall>(&op.work);
    const auto* row_wise = std::get_if<RowWise>(&op.work);
    for (std::size_t i = 0; const LayerTensorId id : op.reads) {
      if (call != nullptr && call->over_sequence()) {
        places[id.index()] = LayerTensorId();
      } else if (row_wise != nullptr && row_wise->gradient == RowGradient::passed_on) {
        places[id.index()] = places[op.writes[0].index()];
      } else if (in_place(shapes, op)) {
        places[id.index()] = places[op.writes[i].index()];
      }
      ++i;
    }
  }
  return places;
}

/// Bytes of gradients that live at the same time: each from the first operation, backwards, that
/// computes it to the last one that reads it; a second one of a tensor until it is added.
Bytes most_gradients(const LocalShapes& shapes) {
  const TensorOps& ops = shapes.ops();
  const std::vector<LayerTensorId> places = gradient_places(shapes);
  std::vector<int> users(ops.tensors.size(), 0);  // tensors in each place
  for (const LayerTensorId place : places) {
    if (place.valid()) {
      ++users[place.index()];
    }
  }
  Alive alive(shapes);
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
  for (const TensorOp& op : std::views::reverse(ops.ops)) {
    const auto* row_wise = std::get_if<RowWise>(&op.work);
    const bool computed = row_wise == nullptr || row_wise->gradient == RowGradient::computed;
    LayerTensors second;
    for (const LayerTensorId id : op.reads) {
      if (computed && gives_gradient(op, id) && !in_place(shapes, op) && compute(id)) {
        second.push_back(id);
      }
    }
    alive.brief(gathered_backward(shapes, op));
    for (const LayerTensorId id : op.writes) {
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

Bytes kept_bytes(const TensorOps& ops, const LocalTokens& local,
                 const Recomputation& recomputation) {
  const LocalShapes shapes(ops, local);
  const RowBytes bytes = bytes_of(shapes, kept_under(shapes, recomputation), all_of(ops));
  return bytes.tokens + bytes.text;
}

Bytes working_bytes(const TensorOps& ops, const LocalTokens& local,
                    const Recomputation& recomputation) {
  const LocalShapes shapes(ops, local);
  const Kept kept = kept_under(shapes, recomputation);
  Kept again = kept_under(shapes, {});
  for (std::size_t i = 0; i < again.tensors.size(); ++i) {
    again.tensors[i] = again.tensors[i] && !kept.tensors[i];
  }
  for (std::size_t i = 0; i < again.statistics.size(); ++i) {
    again.statistics[i] = !kept.statistics[i];
  }
  const RowBytes bytes = bytes_of(shapes, again, all_of(ops));
  return bytes.tokens + bytes.text + most_gradients(shapes);
}

Bytes cut_bytes(const TensorOps& ops, const LocalTokens& local) {
  const LocalShapes shapes(ops, local);
  TensorOps inside = ops;
  inside.kept_behind = {};
  std::vector<bool> put_off(ops.ops.size());
  RowBytes gradients;
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    const TensorOp& op = ops.ops[i];
    put_off[i] = std::holds_alternative<Linear>(op.work) || std::holds_alternative<Lookup>(op.work);
    if (!put_off[i]) {
      continue;
    }
    for (const LayerTensorId id : op.writes) {
      if (!ops.at(id).outside) {
        const bool all = shapes.partial_sum(op) && shapes.sequence_parallel();
        add(gradients, ops.at(id).rows, all ? shapes.all_bytes(op, id) : shapes.bytes(id));
      }
    }
  }
  const RowBytes inputs = bytes_of(
      shapes,
      {.tensors = kept_by(inside, put_off), .statistics = std::vector<bool>(ops.ops.size())},
      put_off);
  return inputs.tokens + inputs.text + gradients.tokens + gradients.text;
}

Bytes scattered_sums(const TensorOps& ops, const LocalTokens& local) {
  const LocalShapes shapes(ops, local);
  Bytes sum{};
  for (const TensorOp& op : ops.ops) {
    if (shapes.partial_sum(op) && shapes.sequence_parallel()) {
      sum += shapes.all_bytes(op, op.writes[0]);
    }
  }
  return sum;
}

Bytes forward_bytes(const TensorOps& ops, const LocalTokens& local, double position_working) {
  const LocalShapes shapes(ops, local);
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
  Alive alive(shapes);
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
    if (in_place(shapes, ops.ops[i])) {
      drop_last_read();
    }
    for (const LayerTensorId id : ops.ops[i].writes) {
      alive.add(id);
    }
    alive.brief(gathered_forward(shapes, ops.ops[i]));
    const auto* row_wise = std::get_if<RowWise>(&ops.ops[i].work);
    if (row_wise != nullptr && row_wise->in_position == InPosition::turned) {
      const double numbers = shapes.bytes(ops.ops[i].writes[0]).as_double() /
                             static_cast<double>(size_of(local.dtype));
      alive.brief(Bytes(std::llround(position_working * numbers)));
    }
    if (!in_place(shapes, ops.ops[i])) {
      drop_last_read();
    }
  }
  return alive.most().tokens + alive.most().text;
}

Bytes cached_bytes(const TensorOps& ops, const LocalTokens& local, std::int64_t whole) {
  LocalTokens of_heads = local;
  of_heads.tokens += local.cached;
  LocalTokens of_latents = local;
  of_latents.tokens += whole;
  Bytes bytes{};
  for (const LayerTensorId id : ops.cached) {
    const bool by_heads = ops.at(id).cut == Cut::width;
    bytes += LocalShapes(ops, by_heads ? of_heads : of_latents).all_bytes(id);
  }
  return bytes;
}

Bytes projected_bytes(const TensorOps& ops, const LocalTokens& local) {
  LocalTokens cached = local;
  cached.tokens = local.cached;
  const LocalShapes shapes(ops, cached);
  Bytes bytes{};
  for (const TensorOp& op : ops.ops) {
    const auto* call = std::get_if<AttentionCall>(&op.work);
    if (call == nullptr || !call->over_sequence()) {
      continue;
    }
    for (const LayerTensorId id : {op.reads[1], op.reads[2]}) {
      bytes += ops.is_cached(id) ? Bytes(0) : shapes.all_bytes(id);
    }
  }
  return bytes;
}

}  // namespace spp
