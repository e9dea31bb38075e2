// Effects of attention that is not one fused kernel: whole rows of scores, and states.
#include "schedule/effects.hpp"

namespace spp {
namespace {

/// Which tensors an op that serves several meets.
struct Roles {
  Tensor to, first, second;
};

/// The roles of what the op writes; stops if it cannot write such a tensor.
const Roles* roles_of(const Site& site, BufferId to, std::span<const Roles> known) {
  const Buffer& buffer = site.buffer(to);
  for (const Roles& roles : known) {
    if (roles.to == buffer.tensor) {
      return &roles;
    }
  }
  site.stop(
      fmt::format("cannot write '{}', a buffer of {}", buffer.name, to_string(buffer.tensor)));
  return nullptr;
}

/// Adds pieces to those of a sum, cell by cell; `initial`: they are the sum.
void add_to(const Site& site, BufferId id, Tensor tensor, Contents added, bool initial,
            BufferId from) {
  if (!initial) {
    for (Piece& piece : added.change_all()) {
      const Piece* old = only_piece(site, id, piece.cell);
      if (old == nullptr) {
        return;
      }
      if (old->normaliser != piece.normaliser) {
        site.stop(fmt::format("adds to {} of {}, but they are normalised over different keys",
                              to_string(tensor), site.grid().cell_text(tensor, piece.cell)));
        return;
      }
      Piece sum = *old;
      unite(site, tensor, sum, piece, "'" + site.buffer(from).name + "'",
            "'" + site.buffer(id).name + "'");
      piece = std::move(sum);
    }
  }
  write(site, id, tensor, std::move(added));
}

/// Weights (or gradients of scores) of these rows were taken over all keys that they may see.
bool over_all_keys(const Site& site, BufferId id, Tensor tensor, const Block& block) {
  if (!holds(site, id, tensor, block.queries, block.heads)) {
    return false;
  }
  for (const Piece& piece : site.content(id).all()) {
    if (piece.contributions != site.grid().complete(site.own(tensor), piece.cell)) {
      site.stop(fmt::format("'{}' of {} was not taken over all keys", site.buffer(id).name,
                            site.grid().cell_text(tensor, piece.cell)));
      return false;
    }
  }
  return true;
}

}  // namespace

void apply(const Site& site, const Scores& op) {
  static constexpr std::array known{Roles{Tensor::scores, Tensor::q, Tensor::k},
                                    Roles{Tensor::d_weights, Tensor::d_out, Tensor::v}};
  const Roles* roles =
      computes(site, AttentionFunction::softmax) ? roles_of(site, op.to, known) : nullptr;
  const auto block = roles != nullptr ? named_block(site, op) : std::nullopt;
  if (!block || !holds(site, op.rows, roles->first, block->queries, block->heads) ||
      !holds(site, op.columns, roles->second, block->keys, block->kv_heads)) {
    return;
  }
  AtomSet keys;
  for (const int k : block->keys) {
    keys.insert(static_cast<std::size_t>(k));
  }
  Contents products;
  for (const int q : block->queries) {
    for (int h = block->heads.begin; h < block->heads.end; ++h) {
      products.add({.cell = {.tokens = q, .heads = h}, .contributions = keys, .normaliser = {}});
    }
  }
  add_to(site, op.to, roles->to, std::move(products), op.initial, op.columns);
}

namespace {

/// What a softmax over these rows has summed; stops if a key is missing that a query may see.
std::optional<Contents> softmax_of(const Site& site, BufferId id, Tensor from, Tensor to) {
  if (!readable(site, id, from)) {
    return {};
  }
  const AtomGrid& grid = site.grid();
  Contents result;
  for (const Piece& piece : site.content(id).all()) {
    const AtomSet& all = grid.complete(site.own(to), piece.cell);
    const AtomSet missing = all.minus(piece.contributions);
    if (!missing.empty()) {
      site.stop(fmt::format("softmax over part of a row: '{}' of {} lacks {}", site.buffer(id).name,
                            grid.cell_text(from, piece.cell),
                            grid.contributions_text(from, piece.cell, missing)));
      return {};
    }
    result.add({.cell = piece.cell, .contributions = all, .normaliser = all});
  }
  return result;
}

}  // namespace

void apply(const Site& site, const Softmax& op) {
  const auto* tokens = named_tokens(site, op.tokens);
  if (tokens == nullptr || !within_micro_batch(site, op.tokens, {}) || !sees_by(site, op.mask) ||
      !readable(site, op.scores, Tensor::scores)) {
    return;
  }
  const std::vector<int> held = site.content(op.scores).tokens();
  if (*tokens != held) {
    site.stop(fmt::format("is over tokens {}, but '{}' holds tokens {}", to_string(op.tokens),
                          site.buffer(op.scores).name, site.grid().tokens_text(held)));
    return;
  }
  if (auto weights = softmax_of(site, op.scores, Tensor::scores, Tensor::weights)) {
    overwrite(site, op.weights, std::move(*weights));
  }
}

void apply(const Site& site, const SoftmaxBackward& op) {
  if (!readable(site, op.weights, Tensor::weights)) {
    return;
  }
  auto gradients = softmax_of(site, op.d_weights, Tensor::d_weights, Tensor::d_scores);
  if (!gradients) {
    return;
  }
  for (Piece& piece : gradients->change_all()) {
    if (only_piece(site, op.weights, piece.cell) == nullptr) {
      return;
    }
    piece.normaliser = {};
  }
  overwrite(site, op.d_scores, std::move(*gradients));
}

void apply(const Site& site, const Weigh& op) {
  static constexpr std::array known{Roles{Tensor::out, Tensor::weights, Tensor::v},
                                    Roles{Tensor::d_q, Tensor::d_scores, Tensor::k}};
  const Roles* roles = roles_of(site, op.to, known);
  const auto block = roles != nullptr ? named_block(site, op) : std::nullopt;
  if (!block || !over_all_keys(site, op.weights, roles->first, *block) ||
      !holds(site, op.values, roles->second, block->keys, block->kv_heads)) {
    return;
  }
  const bool forward = roles->to == Tensor::out;
  Contents sums = query_sums(site, *block, forward ? Phase::forward : Phase::backward);
  for (Piece& piece : sums.change_all()) {
    piece.normaliser = only_piece(site, op.weights, piece.cell)->normaliser;
  }
  add_to(site, op.to, roles->to, std::move(sums), op.initial, op.values);
}

void apply(const Site& site, const WeighBack& op) {
  static constexpr std::array known{Roles{Tensor::d_v, Tensor::weights, Tensor::d_out},
                                    Roles{Tensor::d_k, Tensor::d_scores, Tensor::q}};
  const Roles* roles = roles_of(site, op.to, known);
  const auto block = roles != nullptr ? named_block(site, op) : std::nullopt;
  if (!block || !over_all_keys(site, op.weights, roles->first, *block) ||
      !holds(site, op.rows, roles->second, block->queries, block->heads)) {
    return;
  }
  write(site, op.to, roles->to, key_gradients(site, *block));
}

namespace {

/// A rank's own tokens, in order.
template <class Linear>
std::optional<Block> linear_block(const Site& site, const Linear& op) {
  const auto* tokens =
      computes(site, AttentionFunction::linear) && within_micro_batch(site, op.tokens, {})
          ? named_tokens(site, op.tokens)
          : nullptr;
  const auto heads = tokens != nullptr ? named_heads(site, op.heads, Tensor::q) : std::nullopt;
  const auto kv_heads = heads ? attended_heads(site, op.heads, op.kv_heads) : std::nullopt;
  if (!kv_heads || !holds(site, op.q, Tensor::q, *tokens, *heads) ||
      !holds(site, op.k, Tensor::k, *tokens, *kv_heads) ||
      !holds(site, op.v, Tensor::v, *tokens, *kv_heads)) {
    return {};
  }
  const auto ranges = op.tokens.ranges();
  const bool rising = ranges.size() == 1 || ranges[0].last() < ranges[1].begin;
  const Mask& mask = site.ledger->problem.mask;
  if (!rising || mask != Mask{.kind = MaskKind::causal}) {
    site.stop(fmt::format("is causal over tokens that rise, not {} over {}", to_string(mask),
                          to_string(op.tokens)));
    return {};
  }
  return Block{.queries = *tokens, .keys = *tokens, .heads = *heads, .kv_heads = *kv_heads};
}

}  // namespace

void apply(const Site& site, const LinearForward& op) {
  if (const auto block = linear_block(site, op)) {
    write(site, op.out, Tensor::out, query_sums(site, *block, Phase::forward));
  }
}

void apply(const Site& site, const LinearBackward& op) {
  const auto block = linear_block(site, op);
  if (!block || !holds(site, op.d_out, Tensor::d_out, block->queries, block->heads)) {
    return;
  }
  Contents d_kv = key_gradients(site, *block);
  write(site, op.d_q, Tensor::d_q, query_sums(site, *block, Phase::backward));
  write(site, op.d_k, Tensor::d_k, d_kv);
  write(site, op.d_v, Tensor::d_v, std::move(d_kv));
}

void apply(const Site& site, const MakeState& op) {
  static constexpr std::array known{Roles{Tensor::state, Tensor::k, Tensor::v},
                                    Roles{Tensor::d_state, Tensor::q, Tensor::d_out}};
  const Roles* roles =
      computes(site, AttentionFunction::linear) ? roles_of(site, op.to, known) : nullptr;
  const auto* tokens = roles != nullptr ? named_tokens(site, op.tokens) : nullptr;
  const auto heads = tokens != nullptr ? named_heads(site, op.heads, roles->first) : std::nullopt;
  const auto named = heads ? named_heads(site, op.kv_heads, roles->to) : std::nullopt;
  if (!named) {
    return;
  }
  const HeadAtoms kv_heads = *named;
  const TokenSet slot({.begin = op.slot, .count = 1});
  if (!holds(site, op.rows, roles->first, *tokens, *heads) ||
      !holds(site, op.values, roles->second, *tokens, *heads) ||
      named_rows(site, slot, roles->to) == nullptr) {
    return;
  }
  const AtomGrid& grid = site.grid();
  const bool of_keys = roles->to == Tensor::state;
  Contents states;
  for (int kv = kv_heads.begin; kv < kv_heads.end; ++kv) {
    Piece state{.cell = {.tokens = static_cast<int>(op.slot), .heads = kv},
                .contributions = {},
                .normaliser = {}};
    for (int h = heads->begin; h < heads->end; ++h) {
      if (kv != (of_keys ? h : grid.kv_of(h))) {
        continue;
      }
      for (const int t : *tokens) {
        state.contributions.insert(of_keys ? static_cast<std::size_t>(t)
                                           : grid.contributor({.tokens = t, .heads = h}));
      }
    }
    if (state.contributions.empty()) {
      site.stop(fmt::format("no head of {}:{} belongs to KV heads {}:{}", op.heads.begin,
                            op.heads.count(), op.kv_heads.begin, op.kv_heads.count()));
      return;
    }
    states.add(std::move(state));
  }
  write(site, op.to, roles->to, std::move(states));
}

void apply(const Site& site, const SumStates& op) {
  const Tensor tensor = site.buffer(op.from).tensor;
  if (!is_state(tensor)) {
    site.stop(fmt::format("sums '{}', a buffer of {}, as states", site.buffer(op.from).name,
                          to_string(tensor)));
    return;
  }
  const auto* slots = named_rows(site, op.slots, tensor);
  const auto* slot = slots != nullptr
                         ? named_rows(site, TokenSet({.begin = op.slot, .count = 1}), tensor)
                         : nullptr;
  if (slot == nullptr || !readable(site, op.from, tensor)) {
    return;
  }
  Contents sums;
  for (int kv = 0; kv < site.grid().head_atoms(tensor); ++kv) {
    if (site.content(op.from).at({.tokens = slots->front(), .heads = kv}).empty()) {
      continue;  // another rank's heads
    }
    Piece sum{
        .cell = {.tokens = slot->front(), .heads = kv}, .contributions = {}, .normaliser = {}};
    for (const int s : *slots) {
      const Piece* piece = only_piece(site, op.from, {.tokens = s, .heads = kv});
      if (piece == nullptr) {
        return;
      }
      unite(site, tensor, sum, *piece, fmt::format("slot {}", s), "an earlier slot");
    }
    sums.add(std::move(sum));
  }
  if (sums.empty()) {
    only_piece(site, op.from, {.tokens = slots->front(), .heads = 0});  // says what is missing
    return;
  }
  write(site, op.to, tensor, std::move(sums));
}

namespace {

/// A state says something about pairs one by one: the mask must allow each of them.
bool all_allowed(const Site& site, Tensor to, const Cell& cell, const Piece& state) {
  const AtomGrid& grid = site.grid();
  const bool of_keys = !sums_queries(to);
  for (const int number : state.contributions.members()) {
    const int other =
        of_keys ? number : grid.contributing(cell.heads, static_cast<std::size_t>(number)).tokens;
    const int query = of_keys ? cell.tokens : other;
    const int key = of_keys ? other : cell.tokens;
    if (!grid.all_allowed(site.attention, query, key)) {
      site.stop(
          fmt::format("applies a state with {} tokens {} to {}, which the mask forbids in part",
                      of_keys ? "key" : "query", grid.tokens_text(std::span(&other, 1)),
                      grid.cell_text(to, cell)));
      return false;
    }
  }
  return true;
}

/// The heads of a state's result are its own, or attend to them; else stops.
bool attends(const Site& site, const ApplyState& op, Tensor to) {
  if (!is_kv(to)) {
    return attended_heads(site, op.heads, op.kv_heads).has_value();
  }
  if (op.heads == op.kv_heads) {
    return true;
  }
  site.stop(fmt::format("KV heads {}:{} have other states than {}:{}", op.heads.begin,
                        op.heads.count(), op.kv_heads.begin, op.kv_heads.count()));
  return false;
}

}  // namespace

void apply(const Site& site, const ApplyState& op) {
  static constexpr std::array known{Roles{Tensor::out, Tensor::q, Tensor::state},
                                    Roles{Tensor::d_q, Tensor::d_out, Tensor::state},
                                    Roles{Tensor::d_k, Tensor::v, Tensor::d_state},
                                    Roles{Tensor::d_v, Tensor::k, Tensor::d_state}};
  const Roles* roles =
      computes(site, AttentionFunction::linear) ? roles_of(site, op.to, known) : nullptr;
  const auto* tokens = roles != nullptr ? named_tokens(site, op.tokens) : nullptr;
  const auto heads = tokens != nullptr ? named_heads(site, op.heads, roles->to) : std::nullopt;
  if (!heads || !attends(site, op, roles->to) ||
      !holds(site, op.rows, roles->first, *tokens, *heads) ||
      !readable(site, op.state, roles->second)) {
    return;
  }
  const AtomGrid& grid = site.grid();
  const std::span<const Piece> states = site.content(op.state).all();
  Contents sums;
  for (const int t : *tokens) {
    for (int h = heads->begin; h < heads->end; ++h) {
      const Cell cell{.tokens = t, .heads = h};
      const int kv = is_kv(roles->to) ? h : grid.kv_of(h);
      const Piece* state =
          only_piece(site, op.state, {.tokens = states.front().cell.tokens, .heads = kv});
      if (state == nullptr || !all_allowed(site, roles->to, cell, *state)) {
        return;
      }
      for (const int number : state->contributions.members()) {
        if (roles->to == Tensor::out) {
          site.meetings(Phase::forward).meet(cell, number, site.rank);
        } else if (roles->to == Tensor::d_q) {
          site.meetings(Phase::backward).meet(cell, number, site.rank);
        }
      }
      sums.add({.cell = cell, .contributions = state->contributions, .normaliser = {}});
    }
  }
  add_to(site, op.to, roles->to, std::move(sums), op.initial, op.state);
}

}  // namespace spp
