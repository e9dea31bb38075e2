// A decision map: for each line a band over the lengths, cut where the recommendation changes; and
// a heat map of numbers over the same cells. Each choice has a letter beside its colour.
#pragma once

#include "report/sheet.hpp"

#include <functional>
#include <string>
#include <vector>

namespace spp::report {

struct BandPiece {
  double from = 0, to = 0;  // on the x axis
  int choice = -1;          // -1: none
  std::string label;        // what a reader is told of it
};

struct Band {
  std::string label;
  std::vector<BandPiece> pieces;
};

struct BandChart {
  std::string title, description, note;
  std::vector<std::string> choices;  // by number
  std::vector<double> columns;       // asked lengths: where ticks stand
  std::function<std::string(double)> text;
  std::vector<Band> bands;
};

void add(Sheet& sheet, const BandChart& chart);

struct HeatCell {
  double value = 0;
  std::string text;
  bool known = false;
};

struct HeatChart {
  std::string title, description, note;
  std::string low, high;  // what the ends of the colours mean
  std::vector<std::string> columns, rows;
  std::vector<std::vector<HeatCell>> cells;  // by row
};

void add(Sheet& sheet, const HeatChart& chart);

/// "A", …, "Z", "AA", …
std::string letter(int choice);

}  // namespace spp::report
