// Cells of what a graph defines.
#include "base/error.hpp"
#include "schedule/atoms.hpp"

#include <algorithm>
#include <set>

namespace spp {

void AtomGrid::cut_params(std::span<const std::span<const Buffer>> tiles) {
  std::vector<std::set<std::int64_t>> cuts;
  for (const Param& param : graph_.params) {
    std::set<std::int64_t>& of_param = cuts.emplace_back();
    for (int part = 0; part <= param.row_parts; ++part) {
      of_param.insert(part * param.part_rows());
    }
  }
  for (const auto& rank : tiles) {
    for (const Buffer& buffer : rank) {
      if (!is_param(buffer.tensor)) {
        continue;
      }
      const std::int64_t rows = graph_.param(buffer.label).rows;
      for (const TokenRange& range : buffer.tile.ranges()) {
        if (range.stride == 1 && range.begin + range.count <= rows) {
          cuts[at(buffer.label)].insert({range.begin, range.begin + range.count});
        }
      }
    }
  }
  for (int attention = 0; attention < index_.attentions(); ++attention) {
    const int sink = index_.sink_of(attention);
    for (const HeadRange& heads : q_heads_) {
      if (sink >= 0 && heads.end <= graph_.param(sink).rows) {
        cuts[at(sink)].insert({heads.begin, heads.end});
      }
    }
  }
  for (const std::set<std::int64_t>& of_param : cuts) {
    row_cuts_.emplace_back(of_param.begin(), of_param.end());
  }
}

void AtomGrid::know_attentions(std::span<const std::span<const Buffer>> tiles) {
  for (const auto& rank : tiles) {
    for (const Buffer& buffer : rank) {
      if (!is_of_graph(buffer.tensor) && buffer.label >= index_.attentions()) {
        flaw_ = fmt::format("'{}' is a buffer of attention {}, of {}", buffer.name, buffer.label,
                            index_.attentions());
        return;
      }
    }
  }
}

void AtomGrid::sum_up_graph() {
  const auto first = [](int count) {
    AtomSet set;
    for (int i = 0; i < count; ++i) {
      set.insert(at(i));
    }
    return set;
  };
  updated_ = first(1);
  for (int label = 0; label < std::ssize(graph_.values); ++label) {
    const TensorRef ref{Tensor::value, label};
    const int writer = index_.writer_of(ref);
    of_values_.push_back(first(writer >= 0 ? graph_.summands(graph_.definition(writer)) : 0));
    const std::vector<Use>& uses = index_.uses_of(ref);
    of_gradients_.push_back(first(uses.empty() ? 0 : uses.back().first + uses.back().count));
  }
  for (int label = 0; label < std::ssize(graph_.params); ++label) {
    const std::vector<Use>& uses = index_.uses_of_param(label);
    const int numbers = uses.empty() ? 1 : uses.back().first + uses.back().count;
    of_params_.push_back(first(numbers * token_atoms()));
  }
}

std::string AtomGrid::param_contributions_text(int param, std::span<const int> members) const {
  const std::vector<Use>& uses = index_.uses_of_param(param);
  std::string text;
  for (const Use& use : uses) {
    const Definition& d = graph_.definition(use.definition);
    for (int part = 0; part < use.count; ++part) {
      std::vector<int> tokens;
      for (const int member : members) {
        if (member / token_atoms() == use.first + part) {
          tokens.push_back(member % token_atoms());
        }
      }
      if (!tokens.empty()) {
        text += fmt::format("{}tokens {}", text.empty() ? "" : ", ", tokens_text(tokens));
        text += use.count > 1 ? fmt::format(" (part {} of {})", part, use.count) : "";
        text += uses.size() > 1 ? fmt::format(" ({} of {})", to_string(d.function),
                                              graph_.name(d.writes.front()))
                                : "";
      }
    }
  }
  return text;
}

void AtomGrid::route_tokens() {
  const Routing& routing = graph_.routing;
  of_experts_.resize(routing.empty() ? 0 : at(routing.groups));
  for (int t = 0; !routing.empty() && t < token_atoms(); ++t) {
    const TokenRange& range = tokens_[at(t)];
    for (int slot = 0; slot < routing.chosen; ++slot) {
      const int group = routing.group_of(range.begin, slot);
      of_experts_[at(group)].insert(at(t));
      const bool all = routing.groups <= routing.chosen ||
                       routing.routed(TokenSet(range), group).count() == range.count;
      if (!all) {
        flaw_ = fmt::format("tokens {} go to several groups of experts, and are cut for none",
                            to_string(TokenSet(range)));
        return;
      }
    }
  }
}

int AtomGrid::head_atoms(TensorRef ref) const {
  if (is_value(ref.tensor)) {
    return graph_.value(ref.label).parts;
  }
  if (is_param(ref.tensor)) {
    return graph_.param(ref.label).column_parts;
  }
  return is_kv(ref.tensor) ? kv_atoms() : query_atoms();
}

int AtomGrid::row_atoms(TensorRef ref) const {
  return is_param(ref.tensor)   ? static_cast<int>(row_cuts_[at(ref.label)].size()) - 1
         : is_state(ref.tensor) ? slots()
                                : token_atoms();
}

bool AtomGrid::exists(TensorRef ref, const Cell& cell) const {
  return is_param(ref.tensor) || is_state(ref.tensor) || is_kv(ref.tensor) ||
         tokens_[at(cell.tokens)].begin >= cached_;
}

const std::vector<int>* AtomGrid::rows(const TokenSet& set, TensorRef ref) const {
  if (!is_param(ref.tensor)) {
    return is_state(ref.tensor) ? slots(set) : tokens(set);
  }
  const std::vector<std::int64_t>& cuts = row_cuts_[at(ref.label)];
  const TokenRange range = set.ranges().size() == 1 ? set.ranges()[0] : TokenRange{};
  const auto [it, is_new] = param_rows_.try_emplace({ref.label, range.begin, range.count});
  const auto begin = std::ranges::lower_bound(cuts, range.begin);
  const auto end = std::ranges::lower_bound(cuts, range.begin + range.count);
  const bool whole = range.stride == 1 && end != cuts.end() && *begin == range.begin &&
                     *end == range.begin + range.count;
  for (auto cut = begin; is_new && whole && cut != end; ++cut) {
    it->second.push_back(static_cast<int>(cut - cuts.begin()));
  }
  return it->second.empty() ? nullptr : &it->second;
}

HeadAtoms AtomGrid::rows_of_part(int param, int part) const {
  const std::vector<std::int64_t>& cuts = row_cuts_[at(param)];
  const std::int64_t rows = graph_.param(param).part_rows();
  const auto place = [&](std::int64_t row) {
    return static_cast<int>(std::ranges::lower_bound(cuts, row) - cuts.begin());
  };
  return {.begin = place(part * rows), .end = place((part + 1) * rows)};
}

HeadAtoms AtomGrid::heads_of_part(Tensor tensor, int part, int parts) const {
  const int all = head_atoms(tensor);
  const int replicas = is_kv(tensor) ? replicas_ : 1;
  // Query atoms of a part, then the KV atoms that these attend to.
  const int begin = part * query_atoms() / parts;
  const int end = (part + 1) * query_atoms() / parts;
  ensure(all > 0 && end > begin, "a part of a row without heads");
  return {.begin = begin / replicas, .end = (end - 1) / replicas + 1};
}

}  // namespace spp
