// What programs declare, before and after: both walk over the same homes, hence one file.
#include "schedule/postcondition.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace spp {
namespace {

struct Tile {
  const std::vector<int>* tokens = nullptr;
  HeadAtoms heads;
};

/// The declared tile of an input or output; stops if the grid does not know it.
std::optional<Tile> tile_of(Ledger& ledger, Rank rank, const Buffer& buffer) {
  const auto* tokens = ledger.grid.rows(buffer.tile, buffer.ref());
  const auto heads = ledger.grid.heads(buffer.head_range, buffer.ref());
  if (tokens == nullptr || !heads) {
    ledger.findings.stop(
        fmt::format("rank {}: {} '{}' declares tokens {} and heads {}:{}, which are not whole "
                    "parts of the layout",
                    rank.value, to_string(buffer.role), buffer.name, to_string(buffer.tile),
                    buffer.head_range.begin, buffer.head_range.count()));
    return {};
  }
  return Tile{.tokens = tokens, .heads = *heads};
}

/// The buffers of all ranks that a program is given or leaves, by tensor.
class Declared {
 public:
  explicit Declared(std::span<const Home> ranks) {
    for (const Home& home : ranks) {
      for (const Buffer& buffer : home.buffers) {
        if (buffer.role != BufferRole::scratch) {
          of_[{buffer.ref(), buffer.role}].emplace_back(home.rank, &buffer);
        }
      }
    }
  }

  /// Calls f(rank, buffer, cell) for every declared cell of a tensor and role, over all ranks.
  template <class F>
  void for_each(Ledger& ledger, TensorRef tensor, BufferRole role, F f) const {
    const auto found = of_.find({tensor, role});
    if (found == of_.end()) {
      return;
    }
    for (const auto& [rank, buffer] : found->second) {
      const auto tile = tile_of(ledger, rank, *buffer);
      if (!tile) {
        return;
      }
      for (const int t : *tile->tokens) {
        for (int h = tile->heads.begin; h < tile->heads.end; ++h) {
          f(rank, *buffer, Cell{.tokens = t, .heads = h});
        }
      }
    }
  }

 private:
  std::map<std::pair<TensorRef, BufferRole>, std::vector<std::pair<Rank, const Buffer*>>> of_;
};

/// All ranks together declare every cell of a tensor; `once`: no cell twice. `optional`: or none.
/// `cached`: every cell of tokens that are cached.
struct Demand {
  TensorRef tensor;
  BufferRole role;
  bool once = true;
  bool optional = false;
  bool cached = false;
};

void check_declared(Ledger& ledger, const Declared& declared, const Demand& demand) {
  const AtomGrid& grid = ledger.grid;
  const auto heads = static_cast<std::size_t>(grid.head_atoms(demand.tensor));
  std::vector<std::int32_t> owner(static_cast<std::size_t>(grid.row_atoms(demand.tensor)) * heads,
                                  -1);
  bool any = false;
  declared.for_each(
      ledger, demand.tensor, demand.role, [&](Rank rank, const Buffer& buffer, const Cell& cell) {
        any = true;
        std::int32_t& by = owner[static_cast<std::size_t>(cell.tokens) * heads +
                                 static_cast<std::size_t>(cell.heads)];
        if (by >= 0 && demand.once) {
          ledger.findings.note(
              fmt::format("{} {} of {} is declared twice: by rank {} and by rank {} ('{}')",
                          to_string(demand.role), grid.graph().name(demand.tensor),
                          grid.cell_text(demand.tensor, cell), by, rank.value, buffer.name));
        }
        if (!grid.exists(demand.tensor, cell)) {
          ledger.findings.note(
              fmt::format("rank {}: '{}' has {}, which is cached: it has no queries", rank.value,
                          buffer.name, grid.cell_text(demand.tensor, cell)));
        } else if (demand.cached && !grid.is_cached(cell)) {
          ledger.findings.note(fmt::format(
              "rank {}: '{}' is an {} and has {}, which is to be computed", rank.value, buffer.name,
              to_string(demand.role), grid.cell_text(demand.tensor, cell)));
        }
        by = rank.value;
      });
  if (!any && demand.optional) {
    return;
  }
  for (std::size_t i = 0; i < owner.size(); ++i) {
    const Cell cell{.tokens = static_cast<int>(i / heads), .heads = static_cast<int>(i % heads)};
    const bool wanted = demand.cached ? grid.is_cached(cell) : grid.exists(demand.tensor, cell);
    if (owner[i] < 0 && wanted) {
      ledger.findings.note(fmt::format("no rank declares {} {} of {}", to_string(demand.role),
                                       grid.graph().name(demand.tensor),
                                       grid.cell_text(demand.tensor, cell)));
      return;
    }
  }
}

/// One output buffer against its declaration.
void check_output(Ledger& ledger, Rank rank, const Buffer& buffer, const Contents& contents) {
  const AtomGrid& grid = ledger.grid;
  const auto tile = tile_of(ledger, rank, buffer);
  if (!tile) {
    return;
  }
  const auto place = [&] {
    return fmt::format("rank {}: {} '{}'", rank.value, to_string(buffer.role), buffer.name);
  };
  for (const int t : *tile->tokens) {
    for (int h = tile->heads.begin; h < tile->heads.end; ++h) {
      const Cell cell{.tokens = t, .heads = h};
      const auto pieces = contents.at(cell);
      if (pieces.size() != 1) {
        ledger.findings.note(fmt::format("{} holds {} pieces of {} at the end, not one", place(),
                                         pieces.size(), grid.cell_text(buffer.ref(), cell)));
        return;
      }
      const Piece& piece = pieces.front();
      const AtomSet& all =
          buffer.role == BufferRole::state ? grid.updated() : grid.complete(buffer.ref(), cell);
      const AtomSet missing = all.minus(piece.contributions);
      if (!missing.empty()) {
        ledger.findings.note(fmt::format("{}: {} of {} lacks the contribution of {}", place(),
                                         grid.graph().name(buffer.ref()),
                                         grid.cell_text(buffer.ref(), cell),
                                         grid.contributions_text(buffer.ref(), cell, missing)));
        return;
      }
      if (piece.contributions != all) {
        ledger.findings.note(fmt::format(
            "{}: {} of {} holds the contribution of {}, which the mask forbids", place(),
            grid.graph().name(buffer.ref()), grid.cell_text(buffer.ref(), cell),
            grid.contributions_text(buffer.ref(), cell, piece.contributions.minus(all))));
        return;
      }
      const bool normalised = ledger.problem.function == AttentionFunction::softmax;
      if (buffer.tensor == Tensor::out && normalised && piece.normaliser != piece.contributions) {
        ledger.findings.note(fmt::format("{}: out of {} is normalised over other keys than it sums",
                                         place(), grid.cell_text(buffer.ref(), cell)));
        return;
      }
    }
  }
  const auto cells =
      tile->tokens->size() * static_cast<std::size_t>(tile->heads.end - tile->heads.begin);
  if (contents.all().size() != cells) {
    ledger.findings.note(
        fmt::format("{} holds more than tokens {} at the end", place(), to_string(buffer.tile)));
  }
}

/// "" if a program may have such a buffer; else why not.
std::string flaw_of(const Ledger& ledger, const Buffer& buffer) {
  const Graph& graph = ledger.grid.graph();
  const auto name = [&] { return graph.name(buffer.ref()); };
  const bool comes_and_goes = buffer.tensor == Tensor::scores ||
                              buffer.tensor == Tensor::d_weights ||
                              buffer.tensor == Tensor::d_state;
  if (buffer.role != BufferRole::scratch && comes_and_goes) {
    return fmt::format("is an {}, but {} lives within a program alone", to_string(buffer.role),
                       name());
  }
  if (buffer.role == BufferRole::state && !is_updated(buffer.tensor)) {
    return fmt::format("is a state, but {} is nothing that an update replaces", name());
  }
  if (takes_fp32(buffer.ref(), graph) && buffer.dtype != DType::fp32) {
    return fmt::format("has elements of {}, but {} takes fp32", to_string(buffer.dtype), name());
  }
  // Sums are wider, and gradients may travel in fewer bits.
  const bool is_free = buffer.role == BufferRole::scratch &&
                       (buffer.dtype == DType::fp32 || is_gradient(buffer.tensor));
  if (!is_free && !takes_fp32(buffer.ref(), graph) && buffer.dtype != ledger.problem.dtype) {
    return fmt::format("has elements of {}, but the problem's are of {}", to_string(buffer.dtype),
                       to_string(ledger.problem.dtype));
  }
  return "";
}

}  // namespace

void check_buffers(Ledger& ledger, std::span<const Home> ranks) {
  for (const Home& home : ranks) {
    for (const Buffer& buffer : home.buffers) {
      if (const std::string flaw = flaw_of(ledger, buffer); !flaw.empty()) {
        ledger.findings.stop(fmt::format("rank {}: '{}' {}", home.rank.value, buffer.name, flaw));
        return;
      }
    }
  }
}

void load_inputs(Ledger& ledger, const Home& home) {
  for (std::size_t b = 0; b < home.buffers.size(); ++b) {
    const Buffer& buffer = home.buffers[b];
    if (!is_given(buffer.role)) {
      continue;
    }
    const auto tile = tile_of(ledger, home.rank, buffer);
    if (!tile) {
      return;
    }
    const bool is_normalised = ledger.problem.function == AttentionFunction::softmax &&
                               (buffer.tensor == Tensor::out || buffer.tensor == Tensor::weights);
    for (const int t : *tile->tokens) {
      for (int h = tile->heads.begin; h < tile->heads.end; ++h) {
        const Cell cell{.tokens = t, .heads = h};
        const AtomSet& all = ledger.grid.complete(buffer.ref(), cell);
        home.contents[b].add(
            {.cell = cell, .contributions = all, .normaliser = is_normalised ? all : AtomSet()});
      }
    }
    home.contents[b].sort();
  }
}

namespace {

/// Values that no definition writes.
std::vector<TensorRef> given_values(const Graph& graph) {
  std::vector<TensorRef> result;
  for (int label = 0; label < std::ssize(graph.values); ++label) {
    if (graph.writer_of({Tensor::value, label}) < 0) {
      result.emplace_back(Tensor::value, label);
    }
  }
  return result;
}

/// Values that no definition reads; statistics, which are only kept, are none.
std::vector<TensorRef> end_values(const Graph& graph) {
  std::vector<TensorRef> result;
  for (int label = 0; label < std::ssize(graph.values); ++label) {
    const TensorRef ref{Tensor::value, label};
    const int writer = graph.writer_of(ref);
    if (writer >= 0 && graph.uses_of(ref).empty() &&
        graph.definition(writer).writes.front() == ref) {
      result.push_back(ref);
    }
  }
  return result;
}

/// What attention by itself may be given.
bool is_given_to_attention(Phase phase, Tensor tensor) {
  switch (tensor) {
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
      return true;
    case Tensor::out:
    case Tensor::lse:
    case Tensor::weights:
    case Tensor::state:  // what the forward leaves
    case Tensor::d_out:
      return phase != Phase::forward;
    default:
      return false;
  }
}

/// What a program of this phase may be given. `cached`: keys and values of tokens that are, too.
bool may_be_given(const Graph& graph, Phase phase, const Buffer& buffer,
                  std::span<const TensorRef> given, bool cached) {
  if (buffer.role == BufferRole::state) {
    return phase == Phase::step && is_updated(buffer.tensor) && graph.update_of(buffer.label) >= 0;
  }
  if (graph.empty()) {
    return is_given_to_attention(phase, buffer.tensor);
  }
  if (phase != Phase::backward) {
    const bool replaced = phase == Phase::step && graph.update_of(buffer.label) >= 0;
    return is_kv(buffer.tensor)             ? cached
           : buffer.tensor == Tensor::param ? !replaced
                                            : std::ranges::find(given, buffer.ref()) != given.end();
  }
  switch (buffer.tensor) {
    case Tensor::d_value:
      return std::ranges::find(given, TensorRef{Tensor::value, buffer.label}) != given.end();
    case Tensor::param:
    case Tensor::value:
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
    case Tensor::out:
    case Tensor::lse:
    case Tensor::weights:  // what the forward leaves
      return true;
    default:
      return false;
  }
}

/// Nobody is given what is to be computed.
void check_given(Ledger& ledger, Phase phase, std::span<const Home> ranks) {
  const Graph& graph = ledger.grid.graph();
  const std::vector<TensorRef> given =
      phase == Phase::backward ? end_values(graph) : given_values(graph);
  for (const Home& home : ranks) {
    for (const Buffer& buffer : home.buffers) {
      if (is_given(buffer.role) &&
          !may_be_given(graph, phase, buffer, given, ledger.grid.cached() > 0)) {
        ledger.findings.note(fmt::format("rank {}: '{}' is an {}, but {} is to be computed",
                                         home.rank.value, buffer.name, to_string(buffer.role),
                                         graph.name(buffer.ref())));
      }
    }
  }
}

void check_graph_inputs(Ledger& ledger, Phase phase, const Declared& declared) {
  const Graph& graph = ledger.grid.graph();
  if (phase != Phase::backward) {
    for (const TensorRef ref : given_values(graph)) {
      check_declared(ledger, declared, {.tensor = ref, .role = BufferRole::input, .once = false});
    }
  }
  const int attentions = ledger.grid.cached() > 0 ? graph.attentions() : 0;
  for (int label = 0; label < attentions; ++label) {
    for (const Tensor tensor : {Tensor::k, Tensor::v}) {
      check_declared(
          ledger, declared,
          {.tensor = {tensor, label}, .role = BufferRole::input, .once = false, .cached = true});
    }
  }
}

void check_graph_outputs(Ledger& ledger, Phase phase, const Declared& declared) {
  const Graph& graph = ledger.grid.graph();
  const auto everywhere = [&](TensorRef ref, BufferRole role) {
    check_declared(ledger, declared, {.tensor = ref, .role = role, .once = false});
  };
  if (phase != Phase::backward) {
    for (const TensorRef ref : end_values(graph)) {
      everywhere(ref, BufferRole::output);
    }
  } else {
    for (const TensorRef ref : given_values(graph)) {
      if (graph.value(ref.label).words == 0) {
        everywhere({Tensor::d_value, ref.label}, BufferRole::output);
      }
    }
  }
  for (int label = 0; phase != Phase::forward && label < std::ssize(graph.params); ++label) {
    if (phase == Phase::backward || graph.update_of(label) < 0) {
      everywhere({Tensor::d_param, label}, BufferRole::output);
      continue;
    }
    for (const Tensor tensor :
         {Tensor::param, Tensor::master, Tensor::first_moment, Tensor::second_moment}) {
      everywhere({tensor, label}, BufferRole::state);
    }
  }
}

}  // namespace

void check_inputs(Ledger& ledger, Phase phase, std::span<const Home> ranks) {
  check_given(ledger, phase, ranks);
  const Declared declared(ranks);
  if (!ledger.grid.graph().empty()) {
    return check_graph_inputs(ledger, phase, declared);
  }
  if (phase == Phase::backward) {
    return;  // what the forward kept may be kept where it was last
  }
  check_declared(ledger, declared, {.tensor = Tensor::q, .role = BufferRole::input});
  for (const Tensor tensor : {Tensor::k, Tensor::v}) {
    // Cached heads lie where replicas of them were computed.
    check_declared(
        ledger, declared,
        {.tensor = tensor, .role = BufferRole::input, .once = ledger.grid.cached() == 0});
  }
}

void check_outputs(Ledger& ledger, Phase phase, std::span<const Home> ranks) {
  for (const Home& home : ranks) {
    for (std::size_t b = 0; b < home.buffers.size(); ++b) {
      if (is_result(home.buffers[b].role)) {
        check_output(ledger, home.rank, home.buffers[b], home.contents[b]);
      }
    }
  }
  const Declared declared(ranks);
  if (!ledger.grid.graph().empty()) {
    return check_graph_outputs(ledger, phase, declared);
  }
  if (phase == Phase::forward) {
    check_declared(ledger, declared, {.tensor = Tensor::out, .role = BufferRole::output});
    check_declared(
        ledger, declared,
        {.tensor = Tensor::lse, .role = BufferRole::output, .once = false, .optional = true});
    return;
  }
  for (const Tensor tensor : {Tensor::d_q, Tensor::d_k, Tensor::d_v}) {
    check_declared(ledger, declared, {.tensor = tensor, .role = BufferRole::output});
  }
}

}  // namespace spp
