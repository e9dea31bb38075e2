// A timeline: a lane for each stream of each rank, and on it what ran when.
#pragma once

#include "report/sheet.hpp"

#include <functional>
#include <string>
#include <vector>

namespace spp::report {

struct Stretch {
  double from = 0, to = 0;
  int kind = 0;  // of LaneChart::kinds
};

struct Lane {
  std::string group, label;  // "rank 0", "compute"
  std::vector<Stretch> stretches;
};

struct LaneChart {
  std::string title, description, note;
  std::vector<Key> kinds;
  double end = 0;
  std::function<std::string(double)> text;
  std::vector<Lane> lanes;  // of one group together
};

/// What is too short to be seen is drawn as wide as a hair; what lies closer than that is joined.
void add(Sheet& sheet, const LaneChart& chart);

}  // namespace spp::report
