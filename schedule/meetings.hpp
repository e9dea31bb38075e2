// Which rank computed which (query, key, head) cell, over the whole schedule.
#pragma once

#include "schedule/atoms.hpp"

namespace spp {

/// Memory: 4 bytes for each (query atom, key atom of its micro-batch, head atom) and time, from the
/// first meeting on.
class Meetings {
 public:
  /// `times`: that each pair has to meet, more than once where a step computes forwards again.
  Meetings(const AtomGrid& grid, int attention, int times)
      : grid_(&grid), attention_(attention), times_(times) {}

  void meet(const Cell& query, int keys, Rank rank);
  /// Cells met, each time counted.
  [[nodiscard]] std::int64_t count() const { return count_; }

  /// "Met twice: query tokens … and key tokens … (heads …) by rank 0 and rank 1; …", which is once
  /// too often; "" if none.
  [[nodiscard]] std::string met_twice() const;
  /// "Never met: query tokens … and key tokens … (heads …); …", or not often enough; "" if none.
  [[nodiscard]] std::string never_met() const;

 private:
  struct Double {
    Cell query;
    int keys = 0;
    std::int32_t first = -1;
    std::int32_t second = -1;
  };
  [[nodiscard]] std::size_t index(const Cell& query, int keys) const;
  /// So many times.
  [[nodiscard]] bool met(const Cell& query, int keys, int times) const {
    return !by_.empty() && by_[index(query, keys) + static_cast<std::size_t>(times - 1)] >= 0;
  }
  [[nodiscard]] std::string met_less_than(int times, std::string_view what) const;

  const AtomGrid* grid_;
  int attention_;
  int times_;
  std::vector<std::int32_t> by_;  // [head atom][pair][time] -> rank, -1 if not met;
                                  // empty: nothing was
  std::vector<Double> doubles_;
  std::int64_t count_ = 0;
};

}  // namespace spp
