// The grid on which a schedule is proven. Nothing is looked at token by token: the sequence is cut
// into *token atoms* and the heads into *head atoms*, each of which a schedule moves and computes
// as a whole.
//
//  token atom  the smallest ranges among the tiles of inputs and outputs that ranks declare, cut at
//              the schedule's grain, too (zigzag: the two halves of the middle rank continue each
//              other; slices of tiles that only some ranks need)
//  query atom  the query heads of one part of the grain
//  KV atom     the KV heads of one part; replicated KV heads serve `replicas` query atoms
//
// Of what a graph defines, a value is cut into token atoms and the parts of its row, a parameter
// into its row parts and column parts; the row parts once more where ranks declare pieces of them,
// as shards of an optimizer are (row atoms).
//
// Padded heads count like real ones.
#pragma once

#include "schedule/schedule.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spp {

/// A set of small numbers, as bits: of those between its least and its greatest.
class AtomSet {
 public:
  void insert(std::size_t i);
  void unite(const AtomSet& other);
  [[nodiscard]] bool empty() const { return words_.empty(); }
  [[nodiscard]] bool intersects(const AtomSet& other) const;
  [[nodiscard]] AtomSet intersection(const AtomSet& other) const;
  [[nodiscard]] AtomSet minus(const AtomSet& other) const;
  /// In ascending order.
  [[nodiscard]] std::vector<int> members() const;
  friend bool operator==(const AtomSet&, const AtomSet&) = default;

 private:
  [[nodiscard]] std::size_t end() const { return first_ + words_.size(); }
  [[nodiscard]] std::uint64_t word(std::size_t at) const {
    return at >= first_ && at < end() ? words_[at - first_] : 0;
  }
  /// Has words from `first` to `end`, at least.
  void widen(std::size_t first, std::size_t end);
  void trim();

  std::size_t first_ = 0;             // number of the first word; 0: of none
  std::vector<std::uint64_t> words_;  // the first and the last are never 0
};

/// Head atoms [begin, end).
struct HeadAtoms {
  int begin = 0;
  int end = 0;
  friend bool operator==(const HeadAtoms&, const HeadAtoms&) = default;
};

/// A cell of the grid: a token atom and a head atom (a KV atom for k, v, d_k, d_v and states). Of
/// states, `tokens` is a slot; of values `heads` is a part; of parameters it is a column part, and
/// `tokens` a row atom.
struct Cell {
  int tokens = 0;
  int heads = 0;
  friend constexpr auto operator<=>(const Cell&, const Cell&) = default;
};

class AtomGrid {
 public:
  /// `tiles`: the buffers that each rank declares.
  AtomGrid(const Schedule& schedule, std::span<const std::span<const Buffer>> tiles);

  /// "" or why the declared tiles cut no grid: then nothing can be proven.
  [[nodiscard]] const std::string& flaw() const { return flaw_; }
  [[nodiscard]] int token_atoms() const { return static_cast<int>(tokens_.size()); }
  [[nodiscard]] int slots() const { return static_cast<int>(keys_of_slots_.size()); }
  [[nodiscard]] int query_atoms() const { return static_cast<int>(q_heads_.size()); }
  [[nodiscard]] int head_atoms(TensorRef ref) const;
  /// Token atoms, slots or row atoms that a tensor has.
  [[nodiscard]] int row_atoms(TensorRef ref) const;
  /// Tokens that are cached: they have keys and values, and nothing else.
  [[nodiscard]] std::int64_t cached() const { return cached_; }
  [[nodiscard]] bool is_cached(const Cell& cell) const {
    return tokens_[static_cast<std::size_t>(cell.tokens)].begin < cached_;
  }
  /// A cell of that tensor exists.
  [[nodiscard]] bool exists(TensorRef ref, const Cell& cell) const;
  /// The KV atom that a query atom attends to.
  [[nodiscard]] int kv_of(int query_atom) const { return query_atom / replicas_; }

  /// Atoms of a token set in ascending order; nullptr if it is no union of atoms. Of states: slots.
  [[nodiscard]] const std::vector<int>* tokens(const TokenSet& set) const;
  [[nodiscard]] const std::vector<int>* slots(const TokenSet& set) const;
  /// Whichever `ref` has; of a parameter its row atoms.
  [[nodiscard]] const std::vector<int>* rows(const TokenSet& set, TensorRef ref) const;
  /// Head atoms of a range of query heads or KV heads, or of parts; nothing if it is no union of
  /// atoms.
  [[nodiscard]] std::optional<HeadAtoms> heads(HeadRange range, TensorRef ref) const;
  /// Head atoms of q or k that lie in part `part` of a row of `parts` parts of all heads.
  [[nodiscard]] HeadAtoms heads_of_part(Tensor tensor, int part, int parts) const;
  /// Row atoms of a parameter that lie in one of its row parts: [first, last).
  [[nodiscard]] HeadAtoms rows_of_part(int param, int part) const;

  /// The group of experts that a slot of these tokens goes to.
  [[nodiscard]] int group_of(int token_atom, int slot) const {
    return graph_.routing.group_of(tokens_[at(token_atom)].begin, slot);
  }

  /// Token atoms of one micro-batch, in which alone queries meet keys: [begin, end).
  struct Beside {
    int begin = 0;
    int end = 0;
    std::size_t pairs_before = 0;  // in micro-batches before
  };
  [[nodiscard]] const Beside& beside(int token_atom) const {
    return micro_batches_[at(micro_batch_of_[at(token_atom)])];
  }
  /// Pairs of token atoms of one micro-batch, and the number of one of them.
  [[nodiscard]] std::size_t pairs() const { return pairs_; }
  [[nodiscard]] std::size_t pair(int queries, int keys) const {
    const Beside& all = beside(queries);
    return all.pairs_before + at(queries - all.begin) * at(all.end - all.begin) +
           at(keys - all.begin);
  }
  /// The attention's mask allows at least one pair of these atoms.
  [[nodiscard]] bool allowed(int attention, int queries, int keys) const {
    return are_beside(queries, keys) && seen_by(attention).allowed[pair(queries, keys)];
  }
  /// It allows all pairs of these atoms.
  [[nodiscard]] bool all_allowed(int attention, int queries, int keys) const {
    return are_beside(queries, keys) && seen_by(attention).all_allowed[pair(queries, keys)];
  }
  /// Number by which a d_k or d_v cell remembers the contribution of a query cell.
  [[nodiscard]] std::size_t contributor(const Cell& query) const {
    return at(query.heads % replicas_) * tokens_.size() + at(query.tokens);
  }
  /// Number by which out and lse remember their head's sink; a key atom's is its own.
  [[nodiscard]] std::size_t sink() const { return tokens_.size(); }
  /// Row atoms of a parameter that has a row for each query head; nullptr if it lacks these.
  [[nodiscard]] const std::vector<int>* rows_of_query_atom(int query_atom, int param) const {
    return rows(rows_of_heads(q_heads_[at(query_atom)]), {Tensor::param, param});
  }
  /// The query cell of a KV atom that a contributor number means.
  [[nodiscard]] Cell contributing(int kv_atom, std::size_t number) const {
    return {.tokens = static_cast<int>(number % tokens_.size()),
            .heads = kv_atom * replicas_ + static_cast<int>(number / tokens_.size())};
  }
  /// Number by which a parameter's gradient remembers what it has of tokens by one of the numbers
  /// of its uses (graph.hpp).
  [[nodiscard]] std::size_t contributor(int token_atom, int use) const {
    return at(use) * tokens_.size() + at(token_atom);
  }
  /// All contributions that a cell of `tensor` can have: the keys that its queries may see, and
  /// for out and lse the sink, if their attention has one; for d_k and d_v the query cells that may
  /// see its keys; none for q, k, v, d_out and delta. A state that is handed to the part of its
  /// slot holds the keys that all queries of the part may see, whole atoms of them. Of what a graph
  /// defines: graph.hpp.
  [[nodiscard]] const AtomSet& complete(TensorRef ref, const Cell& cell) const;
  /// What a parameter's cell holds that was updated; before that it holds nothing.
  [[nodiscard]] const AtomSet& updated() const { return updated_; }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const GraphIndex& index() const { return index_; }

  /// Tokens times heads.
  [[nodiscard]] std::int64_t volume(TensorRef ref, const Cell& cell) const;

  // Words for people. Ranges are written begin:count, as in to_string(TokenSet).
  [[nodiscard]] std::string tokens_text(std::span<const int> atoms) const;
  /// "query tokens 0:64 (heads 0:8)", "key tokens 0:64 (KV heads 0:2)".
  /// "tokens 0:64 (part 1 of 2)", "rows 0:64, column part 1 of 2".
  [[nodiscard]] std::string cell_text(TensorRef ref, const Cell& cell) const;
  /// Contributions of a cell: "key tokens 0:64", "key tokens 0:64 and the sink", "query tokens 0:64
  /// (heads 0:8)", "row parts 1 of 2", "gate's column part 0", "tokens 0:64 (part 1 of 2)".
  [[nodiscard]] std::string contributions_text(TensorRef ref, const Cell& cell,
                                               const AtomSet& set) const;

 private:
  /// What a mask allows.
  struct Seen {
    std::vector<bool> allowed, all_allowed;    // [pair]
    std::vector<AtomSet> keys_of_queries;      // [query atom]
    std::vector<AtomSet> keys_and_sink;        // [query atom], where attention has sinks
    std::vector<AtomSet> contributors_of_key;  // [key atom]
  };
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] int kv_atoms() const { return static_cast<int>(kv_heads_.size()); }
  void cut_tokens(const Schedule& schedule, std::span<const std::span<const Buffer>> tiles);
  void tell_micro_batches(const Problem& problem);
  [[nodiscard]] bool are_beside(int queries, int keys) const {
    return micro_batch_of_[at(queries)] == micro_batch_of_[at(keys)];
  }
  void cut_heads(const HeadSplit& split);
  void allow_pairs(const Problem& problem, const Mask& mask);
  [[nodiscard]] const Seen& seen_by(int attention) const {
    return seen_[at(index_.mask_of(attention))];
  }
  void hand_out_states(const Schedule& schedule);
  void cut_params(std::span<const std::span<const Buffer>> tiles);
  void sum_up_graph();
  void route_tokens();
  [[nodiscard]] std::string param_contributions_text(int param, std::span<const int> members) const;
  void know_attentions(std::span<const std::span<const Buffer>> tiles);

  std::string flaw_;
  std::int64_t cached_ = 0;          // tokens without queries
  std::vector<TokenRange> tokens_;   // ascending by begin
  std::vector<int> micro_batch_of_;  // [token atom]
  std::vector<Beside> micro_batches_;
  std::size_t pairs_ = 0;
  std::vector<HeadRange> q_heads_;
  std::vector<HeadRange> kv_heads_;
  int replicas_ = 1;
  std::vector<Seen> seen_;                             // by mask
  std::vector<AtomSet> keys_of_slots_;                 // [slot]
  mutable std::map<TokenSet, std::vector<int>> sets_;  // known token sets
  mutable std::map<TokenSet, std::vector<int>> slots_;
  Graph graph_;
  GraphIndex index_;
  std::vector<AtomSet> of_values_, of_gradients_;  // complete, by label
  std::vector<AtomSet> of_experts_;                // by group: the tokens that go there
  std::vector<AtomSet> of_params_;                 // gradients, by label
  AtomSet updated_;
  std::vector<std::vector<std::int64_t>>
      row_cuts_;  // of parameters: where atoms begin, and the end
  mutable std::map<std::array<std::int64_t, 3>, std::vector<int>> param_rows_;
};

}  // namespace spp
