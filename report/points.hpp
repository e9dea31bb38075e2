// Points over two axes: measured against predicted, error against size. Groups differ in shape as
// well as in colour.
#pragma once

#include "report/scale.hpp"
#include "report/sheet.hpp"

#include <functional>
#include <string>
#include <vector>

namespace spp::report {

struct Point {
  double x = 0, y = 0;
  std::string label;
};

struct PointGroup {
  std::string label;
  std::vector<Point> points;
};

struct PointAxis {
  std::string title;
  std::function<std::string(double)> text;
  bool logarithmic = true;
};

struct PointChart {
  std::string title, description, note;
  PointAxis x, y;
  std::vector<PointGroup> groups;
  bool diagonal = false;  // both axes are alike: draws y = x, and a tenth above and below
};

/// Points that a scale cannot show (0 on a logarithmic one) are left out, and said.
void add(Sheet& sheet, const PointChart& chart);

}  // namespace spp::report
