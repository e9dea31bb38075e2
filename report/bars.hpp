// Horizontal bars: stacked of parts, with an interval, against marks that go through all of them.
#pragma once

#include "report/sheet.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp::report {

struct BarPart {
  std::string_view key;  // class of colour and pattern
  std::string label;
  double value = 0;
};

struct Bar {
  std::string label;  // what it is of
  std::string value;  // as text
  std::vector<BarPart> parts;
  std::optional<std::pair<double, double>> interval;
  bool open = false;  // it takes at least as long as that
  bool strong = false;
};

struct Mark {
  double value = 0;
  std::string label;
};

struct BarChart {
  std::string title, description, note;
  std::string unit_heading;  // of the numbers behind it: "seconds"
  std::function<std::string(double)> text;
  std::vector<Bar> bars;
  std::vector<Mark> marks;
};

void add(Sheet& sheet, const BarChart& chart);

}  // namespace spp::report
