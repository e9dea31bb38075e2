// Schedules with a slip in them, made of a right one's text: what a proof has to tell apart. The
// same seed gives the same slips everywhere.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace spp::test {

class ScheduleMutator {
 public:
  /// The schedule must be in the form that to_text writes.
  ScheduleMutator(const Schedule& schedule, std::uint64_t seed);

  struct Mutant {
    std::string text;
    std::string slip;  // for people
  };
  /// One op or one buffer changed, dropped, doubled or moved, on one rank, on two or on all; what
  /// is computed stays as it is said. nullopt: this slip changes nothing here.
  std::optional<Mutant> next();

 private:
  using Words = std::vector<std::string>;
  struct Line {
    std::size_t at = 0;  // in lines_
    std::size_t rank = 0;
  };
  using Slip = bool (ScheduleMutator::*)(Words& lines, std::string& slip);

  // Each changes `lines` and says what; false: not here.
  bool drop(Words& lines, std::string& slip);
  bool repeat(Words& lines, std::string& slip);
  bool swap_neighbours(Words& lines, std::string& slip);
  bool move(Words& lines, std::string& slip);
  bool renumber(Words& lines, std::string& slip);
  bool renumber_on_all_ranks(Words& lines, std::string& slip);
  bool take_another_buffer(Words& lines, std::string& slip);
  bool take_a_field_of_another_op(Words& lines, std::string& slip);
  bool exchange_fields_between_ranks(Words& lines, std::string& slip);
  bool toggle_a_flag(Words& lines, std::string& slip);
  bool change_stream(Words& lines, std::string& slip);
  bool change_buffer(Words& lines, std::string& slip);

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  template <class Range>
  auto& any_of(Range& range) {
    return range[below(range.size())];
  }
  /// A field of an op, never its stream or its own word; npos: it has none.
  std::size_t any_field(const Words& words);
  /// One of the numbers in a text made another.
  std::string renumbered(const std::string& text);
  /// Ops of all ranks at the place that `op` has among its own rank's.
  [[nodiscard]] std::vector<Line> beside(const Line& op) const;

  std::vector<std::string> lines_, streams_;
  std::vector<Line> ops_, buffers_;
  std::mt19937_64 random_;
};

}  // namespace spp::test
