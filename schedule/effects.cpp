#include "schedule/effects.hpp"

namespace spp {

std::string Site::where() const {
  return fmt::format("rank {}, op {} {} (stream {})", rank.value, op, op_name, stream);
}

void Site::stop(std::string_view what) const {
  ledger->findings.stop(fmt::format("{}: {}", where(), what));
}

void Site::note(std::string_view what) const {
  ledger->findings.note(fmt::format("{}: {}", where(), what));
}

bool readable(const Site& site, BufferId id, TensorRef tensor) {
  const Buffer& buffer = site.buffer(id);
  if (buffer.ref() != tensor) {
    site.stop(fmt::format("uses '{}', a buffer of {}, as {}", buffer.name, site.name(buffer.ref()),
                          site.name(tensor)));
    return false;
  }
  if (site.content(id).empty()) {
    site.stop(fmt::format("reads '{}', which nothing was written to", buffer.name));
    return false;
  }
  return true;
}

const Piece* only_piece(const Site& site, BufferId id, const Cell& cell) {
  const Buffer& buffer = site.buffer(id);
  const auto pieces = site.content(id).at(cell);
  if (pieces.size() == 1) {
    return &pieces.front();
  }
  const std::string wanted = site.grid().cell_text(buffer.ref(), cell);
  if (!pieces.empty()) {
    site.stop(fmt::format("finds {} pieces of {} in '{}' where one is wanted", pieces.size(),
                          wanted, buffer.name));
    return nullptr;
  }
  const std::vector<int> held = site.content(id).tokens();
  const bool of_tokens = !is_state(buffer.tensor) && !is_param(buffer.tensor);
  site.stop(fmt::format("finds no {} in '{}', which holds {}", wanted, buffer.name,
                        held.empty() ? "nothing"
                        : of_tokens  ? "tokens " + site.grid().tokens_text(held)
                                     : "others"));
  return nullptr;
}

const std::vector<int>* named_tokens(const Site& site, const TokenSet& set) {
  const auto* atoms = site.grid().tokens(set);
  if (atoms == nullptr) {
    site.stop(fmt::format("names tokens {}, which are not whole parts of what ranks hold at home",
                          to_string(set)));
  }
  return atoms;
}

const std::vector<int>* named_rows(const Site& site, const TokenSet& set, TensorRef tensor) {
  if (!is_state(tensor.tensor) && !is_param(tensor.tensor)) {
    return named_tokens(site, set);
  }
  const auto* rows = site.grid().rows(set, tensor);
  if (rows == nullptr) {
    site.stop(is_param(tensor.tensor)
                  ? fmt::format("names rows {} of {}, which are not whole parts of it",
                                to_string(set), site.name(tensor))
                  : fmt::format("names slots {} of states, which the schedule does not have",
                                to_string(set)));
  }
  return rows;
}

std::optional<HeadAtoms> named_heads(const Site& site, HeadRange range, TensorRef tensor) {
  const auto atoms = site.grid().heads(range, tensor);
  if (!atoms && is_of_graph(tensor.tensor)) {
    site.stop(fmt::format("names parts {}:{} of {}, which has {}", range.begin, range.count(),
                          site.name(tensor), site.grid().head_atoms(tensor)));
  } else if (!atoms) {
    site.stop(fmt::format("names {} {}:{}, which are not whole parts of the Ulysses split",
                          is_kv(tensor.tensor) ? "KV heads" : "heads", range.begin, range.count()));
  }
  return atoms;
}

std::optional<HeadAtoms> attended_heads(const Site& site, HeadRange heads, HeadRange kv_heads) {
  const auto q = named_heads(site, heads, Tensor::q);
  const auto kv = q ? named_heads(site, kv_heads, Tensor::k) : std::nullopt;
  if (!kv) {
    return {};
  }
  const AtomGrid& grid = site.grid();
  if (*kv != HeadAtoms{.begin = grid.kv_of(q->begin), .end = grid.kv_of(q->end - 1) + 1}) {
    site.stop(fmt::format("heads {}:{} do not attend to KV heads {}:{}", heads.begin, heads.count(),
                          kv_heads.begin, kv_heads.count()));
    return {};
  }
  return kv;
}

bool within_micro_batch(const Site& site, const TokenSet& queries, const TokenSet& keys) {
  const Problem& problem = site.ledger->problem;
  if (problem.micro_batches == 1 || problem.in_one_micro_batch(queries, keys)) {
    return true;
  }
  site.stop(fmt::format("attention of several micro-batches: query tokens {}, key tokens {}",
                        to_string(queries), to_string(keys)));
  return false;
}

std::optional<Block> seen_block(const Site& site, const Block& block, const TokenSet& queries,
                                const TokenSet& keys) {
  for (const int q : block.queries) {
    for (const int k : block.keys) {
      if (site.grid().allowed(site.attention, q, k)) {
        return block;
      }
    }
  }
  site.stop(fmt::format("computes a fully masked block: query tokens {}, key tokens {}",
                        to_string(queries), to_string(keys)));
  return {};
}

bool holds(const Site& site, BufferId id, Tensor tensor, std::span<const int> rows,
           HeadAtoms heads) {
  if (!readable(site, id, tensor)) {
    return false;
  }
  for (const int t : rows) {
    for (int h = heads.begin; h < heads.end; ++h) {
      if (only_piece(site, id, {.tokens = t, .heads = h}) == nullptr) {
        return false;
      }
    }
  }
  return true;
}

bool computes(const Site& site, AttentionFunction function) {
  const AttentionFunction wanted = site.ledger->problem.function;
  if (wanted == function) {
    return true;
  }
  site.stop(fmt::format("computes {} attention, but the problem is {} attention",
                        to_string(function), to_string(wanted)));
  return false;
}

bool sees_by(const Site& site, int mask) {
  const int own = site.grid().index().mask_of(site.attention);
  if (mask == own) {
    return true;
  }
  const Problem& problem = site.ledger->problem;
  const auto text = [&](int number) {
    return number >= 0 && number < problem.masks() ? to_string(problem.mask_of(number))
                                                   : fmt::format("mask {}", number);
  };
  site.stop(fmt::format("sees by {}, but its attention by {}", text(mask), text(own)));
  return false;
}

Contents query_sums(const Site& site, const Block& block, Phase phase) {
  Meetings& meetings = site.meetings(phase);
  Contents sums;
  for (const int q : block.queries) {
    AtomSet met;
    for (const int k : block.keys) {
      if (site.grid().allowed(site.attention, q, k)) {
        met.insert(static_cast<std::size_t>(k));
      }
    }
    for (int h = block.heads.begin; h < block.heads.end; ++h) {
      const Cell cell{.tokens = q, .heads = h};
      sums.add({.cell = cell, .contributions = met, .normaliser = {}});
      for (const int k : met.members()) {
        meetings.meet(cell, k, site.rank);
      }
    }
  }
  return sums;
}

Contents key_gradients(const Site& site, const Block& block) {
  const AtomGrid& grid = site.grid();
  Contents gradients;
  for (const int k : block.keys) {
    for (int kv = block.kv_heads.begin; kv < block.kv_heads.end; ++kv) {
      AtomSet met;
      for (int h = block.heads.begin; h < block.heads.end; ++h) {
        for (const int q : block.queries) {
          if (grid.kv_of(h) == kv && grid.allowed(site.attention, q, k)) {
            met.insert(grid.contributor({.tokens = q, .heads = h}));
          }
        }
      }
      gradients.add({.cell = {.tokens = k, .heads = kv}, .contributions = met, .normaliser = {}});
    }
  }
  return gradients;
}

namespace {

std::int64_t capacity_of(const Buffer& buffer) { return buffer.tokens * buffer.heads; }

/// Stops unless the new content fits.
bool fits(const Site& site, BufferId id, const Contents& added) {
  const Buffer& buffer = site.buffer(id);
  const std::int64_t volume = added.volume(site.grid(), buffer.ref());
  if (volume <= capacity_of(buffer)) {
    return true;
  }
  site.stop(fmt::format("writes {} (tokens x heads) to '{}', which has room for {} x {} = {}",
                        volume, buffer.name, buffer.tokens, buffer.heads, capacity_of(buffer)));
  return false;
}

}  // namespace

void write(const Site& site, BufferId id, TensorRef tensor, Contents added) {
  const Buffer& buffer = site.buffer(id);
  if (buffer.ref() != tensor) {
    site.stop(fmt::format("writes {} to '{}', a buffer of {}", site.name(tensor), buffer.name,
                          site.name(buffer.ref())));
    return;
  }
  if (!fits(site, id, added)) {
    return;
  }
  added.sort();
  Contents joined = site.content(id);
  joined.replace(added);
  site.content(id) = joined.volume(site.grid(), tensor) <= capacity_of(buffer) ? std::move(joined)
                                                                               : std::move(added);
}

void overwrite(const Site& site, BufferId id, Contents added) {
  if (fits(site, id, added)) {
    added.sort();
    site.content(id) = std::move(added);
  }
}

void unite(const Site& site, TensorRef tensor, Piece& target, const Piece& part,
           std::string_view from, std::string_view into) {
  const AtomGrid& grid = site.grid();
  if (target.contributions.intersects(part.contributions)) {
    const AtomSet both = target.contributions.intersection(part.contributions);
    site.note(fmt::format("{} of {} met {} twice: {} brings them, {} already has them",
                          site.name(tensor), grid.cell_text(tensor, target.cell),
                          grid.contributions_text(tensor, target.cell, both), from, into));
  }
  target.contributions.unite(part.contributions);
}

}  // namespace spp
