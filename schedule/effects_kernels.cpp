#include "schedule/effects_graph.hpp"

namespace spp {
namespace {

/// The tile of an attention kernel.
template <class Attention>
std::optional<Block> block_of(const Site& site, const Attention& op) {
  const auto block = computes(site, AttentionFunction::softmax) && sees_by(site, op.mask)
                         ? named_block(site, op)
                         : std::nullopt;
  return block ? seen_block(site, *block, op.q_tokens, op.k_tokens) : std::nullopt;
}

/// The pieces of a buffer that lie in `tokens`: some of each token atom, one a cell; else stops and
/// gives nothing.
std::vector<const Piece*> pieces_in(const Site& site, BufferId id, std::span<const int> tokens) {
  std::vector<const Piece*> result;
  for (const int t : tokens) {
    const auto pieces = site.content(id).of_tokens(t);
    if (pieces.empty()) {
      only_piece(site, id, {.tokens = t, .heads = 0});  // says what is missing
      return {};
    }
    for (const Piece& piece : pieces) {
      if (only_piece(site, id, piece.cell) == nullptr) {
        return {};
      }
      result.push_back(&piece);
    }
  }
  return result;
}

/// sum += part on `tile`, or sum = part.
void write_sums(const Site& site, const Accumulate& op, std::span<const int> tile) {
  const TensorRef tensor = site.buffer(op.part).ref();
  if (!op.initial && !expect_sum(site, tensor)) {
    return;
  }
  Contents sums;
  for (const Piece* part : pieces_in(site, op.part, tile)) {
    if (op.initial) {
      sums.add(*part);
      continue;
    }
    const Piece* old = only_piece(site, op.sum, part->cell);
    if (old == nullptr) {
      return;
    }
    if (old->normaliser != part->normaliser) {
      site.stop(fmt::format("adds {} of {} to {}, but they are normalised over different keys",
                            site.quoted(op.part), site.grid().cell_text(tensor, part->cell),
                            site.quoted(op.sum)));
      return;
    }
    Piece sum = *old;
    unite(site, tensor, sum, *part, site.quoted(op.part), site.quoted(op.sum));
    sums.add(std::move(sum));
  }
  write(site, op.sum, tensor, std::move(sums));
}

}  // namespace

bool is_sum(const Site& site, TensorRef ref) {
  switch (ref.tensor) {
    case Tensor::out:
    case Tensor::d_q:
    case Tensor::d_k:
    case Tensor::d_v:
    case Tensor::d_value:
    case Tensor::d_param:
    case Tensor::state:
    case Tensor::d_state:
      return true;
    case Tensor::value: {
      const AtomGrid& grid = site.grid();
      const int writer = grid.index().writer_of(ref);
      return writer >= 0 && grid.graph().sum_parts(grid.graph().definition(writer)) > 0;
    }
    case Tensor::lse:  // of which the logarithms of sums are no sum
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
    case Tensor::d_out:
    case Tensor::delta:
    case Tensor::scores:
    case Tensor::weights:
    case Tensor::d_weights:
    case Tensor::d_scores:
    case Tensor::param:
    case Tensor::master:
    case Tensor::first_moment:
    case Tensor::second_moment:
      return false;
  }
  throw InternalError("no such Tensor");
}

bool expect_sum(const Site& site, TensorRef ref) {
  const bool sum = is_sum(site, ref);
  if (!sum) {
    site.stop(fmt::format("adds up {}, which is no sum", site.name(ref)));
  }
  return sum;
}

bool global_lse(const Site& site, BufferId lse, const Block& block) {
  const AtomGrid& grid = site.grid();
  for (const int q : block.queries) {
    for (int h = block.heads.begin; h < block.heads.end; ++h) {
      const Piece* piece = only_piece(site, lse, {.tokens = q, .heads = h});
      if (piece == nullptr) {
        return false;
      }
      const AtomSet missing =
          grid.complete(site.own(Tensor::lse), piece->cell).minus(piece->contributions);
      if (!missing.empty()) {
        site.stop(fmt::format("backward with a local LSE: '{}' of {} lacks {}",
                              site.buffer(lse).name, grid.cell_text(Tensor::lse, piece->cell),
                              grid.contributions_text(Tensor::lse, piece->cell, missing)));
        return false;
      }
    }
  }
  return true;
}

void apply(const Site& site, const AttentionForward& op) {
  const auto block = block_of(site, op);
  if (!block || !holds(site, op.q, Tensor::q, block->queries, block->heads) ||
      !holds(site, op.k, Tensor::k, block->keys, block->kv_heads) ||
      !holds(site, op.v, Tensor::v, block->keys, block->kv_heads)) {
    return;
  }
  Contents out = query_sums(site, *block, Phase::forward);
  Contents lse = out;
  for (Piece& piece : out.change_all()) {
    piece.normaliser = piece.contributions;
  }
  write(site, op.out, Tensor::out, std::move(out));
  write(site, op.lse, Tensor::lse, std::move(lse));
}

void apply(const Site& site, const AttentionBackward& op) {
  const auto block = block_of(site, op);
  if (!block || !holds(site, op.q, Tensor::q, block->queries, block->heads) ||
      !holds(site, op.k, Tensor::k, block->keys, block->kv_heads) ||
      !holds(site, op.v, Tensor::v, block->keys, block->kv_heads) ||
      !holds(site, op.d_out, Tensor::d_out, block->queries, block->heads) ||
      !holds(site, op.delta, Tensor::delta, block->queries, block->heads) ||
      !readable(site, op.lse, Tensor::lse) || !global_lse(site, op.lse, *block)) {
    return;
  }
  Contents d_kv = key_gradients(site, *block);
  write(site, op.d_q, Tensor::d_q, query_sums(site, *block, Phase::backward));
  write(site, op.d_k, Tensor::d_k, d_kv);
  write(site, op.d_v, Tensor::d_v, std::move(d_kv));
}

void apply(const Site& site, const RowDot& op) {
  if (!readable(site, op.out, Tensor::out) || !readable(site, op.d_out, Tensor::d_out)) {
    return;
  }
  const AtomGrid& grid = site.grid();
  Contents delta;
  for (const Piece& d_out : site.content(op.d_out).all()) {
    const Piece* out = only_piece(site, op.out, d_out.cell);
    if (out == nullptr || only_piece(site, op.d_out, d_out.cell) == nullptr) {
      return;
    }
    const AtomSet& all = grid.complete(site.own(Tensor::out), out->cell);
    if (out->contributions != all || out->normaliser != all) {
      site.stop(fmt::format(
          "delta of an incomplete output: {} of {} lacks {}", site.quoted(op.out),
          grid.cell_text(Tensor::out, out->cell),
          grid.contributions_text(Tensor::out, out->cell, all.minus(out->contributions))));
      return;
    }
    delta.add({.cell = out->cell, .contributions = {}, .normaliser = {}});
  }
  write(site, op.delta, Tensor::delta, std::move(delta));
}

void apply(const Site& site, const Merge& op) {
  const auto* tile = named_tokens(site, op.tokens);
  if (tile == nullptr || !readable(site, op.part_out, Tensor::out) ||
      !readable(site, op.part_lse, Tensor::lse) ||
      (!op.initial &&
       (!readable(site, op.out, Tensor::out) || !readable(site, op.lse, Tensor::lse)))) {
    return;
  }
  const AtomGrid& grid = site.grid();
  Contents out;
  Contents lse;
  for (const Piece* part : pieces_in(site, op.part_out, *tile)) {
    const Piece* part_lse = only_piece(site, op.part_lse, part->cell);
    if (part_lse == nullptr) {
      return;
    }
    if (part->contributions != part_lse->contributions || part->normaliser != part->contributions) {
      site.stop(fmt::format("{} and {} of {} do not belong together", site.quoted(op.part_out),
                            site.quoted(op.part_lse), grid.cell_text(Tensor::out, part->cell)));
      return;
    }
    Piece sum = *part;
    if (!op.initial) {
      const Piece* old = only_piece(site, op.out, part->cell);
      const Piece* old_lse = old != nullptr ? only_piece(site, op.lse, part->cell) : nullptr;
      if (old_lse == nullptr) {
        return;
      }
      if (old->contributions != old_lse->contributions || old->normaliser != old->contributions) {
        site.stop(fmt::format("{} and {} of {} do not belong together", site.quoted(op.out),
                              site.quoted(op.lse), grid.cell_text(Tensor::out, part->cell)));
        return;
      }
      sum = *old;
      unite(site, Tensor::out, sum, *part, site.quoted(op.part_out), site.quoted(op.out));
    }
    lse.add({.cell = sum.cell, .contributions = sum.contributions, .normaliser = {}});
    sum.normaliser = sum.contributions;
    out.add(std::move(sum));
  }
  write(site, op.out, Tensor::out, std::move(out));
  write(site, op.lse, Tensor::lse, std::move(lse));
}

void apply(const Site& site, const Rescale& op) {
  if (!readable(site, op.out, Tensor::out) || !readable(site, op.lse, Tensor::lse) ||
      !readable(site, op.gathered_lse, Tensor::lse)) {
    return;
  }
  const AtomGrid& grid = site.grid();
  Contents scaled;
  Contents global;
  for (const Piece& out : site.content(op.out).all()) {
    const Piece* lse = only_piece(site, op.lse, out.cell);
    if (lse == nullptr || only_piece(site, op.out, out.cell) == nullptr) {
      return;
    }
    Piece sum{.cell = out.cell, .contributions = {}, .normaliser = {}};
    bool own_is_there = false;
    for (const Piece& member : site.content(op.gathered_lse).at(out.cell)) {
      own_is_there = own_is_there || member.contributions == lse->contributions;
      unite(site, Tensor::lse, sum, member, "one member's lse", "another member's");
    }
    if (out.contributions != lse->contributions || out.normaliser != lse->contributions ||
        !own_is_there) {
      site.stop(fmt::format("{}, {} and {} of {} do not belong together", site.quoted(op.out),
                            site.quoted(op.lse), site.quoted(op.gathered_lse),
                            grid.cell_text(Tensor::out, out.cell)));
      return;
    }
    scaled.add(
        {.cell = out.cell, .contributions = out.contributions, .normaliser = sum.contributions});
    global.add(std::move(sum));
  }
  write(site, op.scaled, Tensor::out, std::move(scaled));
  write(site, op.global_lse, Tensor::lse, std::move(global));
}

void apply(const Site& site, const Accumulate& op) {
  const TensorRef tensor = site.buffer(op.part).ref();
  const auto* tile = named_rows(site, op.tokens, tensor);
  if (tile == nullptr || !readable(site, op.part, tensor) ||
      (!op.initial && !readable(site, op.sum, tensor))) {
    return;
  }
  write_sums(site, op, *tile);
}

void apply(const Site& site, const Fill& op) {
  const TensorRef filled = site.buffer(op.buffer).ref();
  const auto* tokens = named_rows(site, op.tokens, filled);
  const auto heads = tokens != nullptr ? named_heads(site, op.heads, filled) : std::nullopt;
  if (!heads) {
    return;
  }
  const auto refuse = [&] {
    site.stop(fmt::format("fills '{}', but {} is no sum", site.buffer(op.buffer).name,
                          site.name(filled)));
  };
  const bool of_ends = filled.tensor == Tensor::d_value && !site.grid().graph().empty() &&
                       site.grid().index().uses_of({Tensor::value, filled.label}).empty();
  if ((filled.tensor != Tensor::lse && !is_sum(site, filled)) || is_state(filled.tensor) ||
      of_ends) {
    return refuse();
  }
  Contents neutral;
  for (const int t : *tokens) {
    for (int h = heads->begin; h < heads->end; ++h) {
      neutral.add({.cell = {.tokens = t, .heads = h}, .contributions = {}, .normaliser = {}});
    }
  }
  write(site, op.buffer, filled, std::move(neutral));
}

namespace {

/// Every copy needs this of its buffers.
bool copies_alike(const Site& site, const Copy& op) {
  const TensorRef tensor = site.buffer(op.from).ref();
  if (!readable(site, op.from, tensor)) {
    return false;
  }
  if (site.buffer(op.to).ref() != tensor) {
    site.stop(fmt::format("copies {} to '{}', a buffer of {}", site.name(tensor),
                          site.buffer(op.to).name, site.name(site.buffer(op.to).ref())));
    return false;
  }
  return true;
}

/// Rows of one, beside those of the other or added to them: what an accumulation does where both
/// lie together.
void copy_some(const Site& site, const Copy& op) {
  const TensorRef tensor = site.buffer(op.from).ref();
  const bool sums = op.kind == CopyKind::add;
  const auto* tile = named_rows(site, op.tokens, tensor);
  if (tile == nullptr || (sums && !readable(site, op.to, tensor))) {
    return;
  }
  write_sums(site, {.sum = op.to, .part = op.from, .tokens = op.tokens, .initial = !sums}, *tile);
}

}  // namespace

void apply(const Site& site, const Copy& op) {
  if (op.of_slots()) {
    return copy_slots(site, op);
  }
  if (!copies_alike(site, op)) {
    return;
  }
  if (op.of_some()) {
    copy_some(site, op);
    return;
  }
  const TensorRef tensor = site.buffer(op.from).ref();
  if (op.kind != CopyKind::fold) {
    overwrite(site, op.to, site.content(op.from));
    return;
  }
  Contents folded;
  std::optional<Piece> sum;
  for (const Piece& copy : site.content(op.from).all()) {
    if (sum && sum->cell == copy.cell) {
      if (!expect_sum(site, tensor)) {
        return;
      }
      unite(site, tensor, *sum, copy, "one copy", "another copy");
      continue;
    }
    if (sum) {
      folded.add(std::move(*sum));
    }
    sum = copy;
  }
  folded.add(std::move(*sum));
  overwrite(site, op.to, std::move(folded));
}

}  // namespace spp
