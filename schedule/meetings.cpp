#include "schedule/meetings.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

namespace spp {
namespace {

/// Blocks of pairs: (head atom, whose, key atoms) -> query atoms, so that a team's block is one
/// line.
using Blocks = std::map<std::tuple<int, std::string, std::vector<int>>, std::vector<int>>;

std::string text_of(std::string_view what, const Blocks& blocks, const AtomGrid& grid) {
  constexpr std::size_t most = 4;
  std::vector<std::string> lines;
  std::size_t skipped = 0;
  std::vector<const Blocks::value_type*> sorted;  // by queries
  for (const auto& entry : blocks) {
    sorted.push_back(&entry);
  }
  std::ranges::stable_sort(sorted, {}, [](const auto* entry) { return entry->second; });
  for (const auto* entry : sorted) {
    const auto& [block, queries] = *entry;
    const auto& [head, whose, keys] = block;
    if (lines.size() == most) {
      ++skipped;
      continue;
    }
    const std::string cell = grid.cell_text(Tensor::q, {.tokens = queries.front(), .heads = head});
    lines.push_back(fmt::format("query tokens {} and key tokens {} {}{}", grid.tokens_text(queries),
                                grid.tokens_text(keys), cell.substr(cell.find('(')), whose));
  }
  if (lines.empty()) {
    return "";
  }
  if (skipped > 0) {
    lines.push_back(fmt::format("and {} more blocks", skipped));
  }
  return fmt::format("{}: {}.", what, fmt::join(lines, "; "));
}

}  // namespace

std::size_t Meetings::index(const Cell& query, int keys) const {
  const std::size_t cell =
      static_cast<std::size_t>(query.heads) * grid_->pairs() + grid_->pair(query.tokens, keys);
  return cell * static_cast<std::size_t>(times_);
}

void Meetings::meet(const Cell& query, int keys, Rank rank) {
  ++count_;
  if (by_.empty()) {
    by_.resize(static_cast<std::size_t>(grid_->query_atoms()) * grid_->pairs() *
                   static_cast<std::size_t>(times_),
               -1);
  }
  const std::span<std::int32_t> by(by_.data() + index(query, keys),
                                   static_cast<std::size_t>(times_));
  if (const auto free = std::ranges::find(by, -1); free != by.end()) {
    *free = rank.value;
  } else {
    doubles_.push_back({.query = query, .keys = keys, .first = by[0], .second = rank.value});
  }
}

std::string Meetings::met_twice() const {
  std::map<std::tuple<int, std::string, int>, std::vector<int>> rows;  // head, whose, query -> keys
  for (const Double& d : doubles_) {
    const std::string whose = d.first == d.second
                                  ? fmt::format(" by rank {} twice", d.first)
                                  : fmt::format(" by ranks {} and {}", std::min(d.first, d.second),
                                                std::max(d.first, d.second));
    rows[{d.query.heads, whose, d.query.tokens}].push_back(d.keys);
  }
  Blocks blocks;
  for (auto& [row, keys] : rows) {
    const auto& [head, whose, query] = row;
    std::ranges::sort(keys);
    keys.erase(std::ranges::unique(keys).begin(), keys.end());
    blocks[{head, whose, keys}].push_back(query);
  }
  return text_of("Met twice", blocks, *grid_);
}

std::string Meetings::never_met() const {
  std::string text = met_less_than(1, "Never met");
  return text.empty() && times_ > 1 ? met_less_than(times_, "Not computed again") : text;
}

std::string Meetings::met_less_than(int times, std::string_view what) const {
  Blocks blocks;
  for (int h = 0; h < grid_->query_atoms(); ++h) {
    for (int q = 0; q < grid_->token_atoms(); ++q) {
      std::vector<int> keys;
      for (int k = grid_->beside(q).begin; k < grid_->beside(q).end; ++k) {
        if (grid_->allowed(attention_, q, k) && !met({.tokens = q, .heads = h}, k, times)) {
          keys.push_back(k);
        }
      }
      if (!keys.empty()) {
        blocks[{h, "", keys}].push_back(q);
      }
    }
  }
  return text_of(what, blocks, *grid_);
}

}  // namespace spp
