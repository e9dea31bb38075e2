// Machines drawn: a node with its GPUs, switches, network cards and rates, alone or in its cluster
// with the axes of a plan on it; and which ranks an axis joins.
#pragma once

#include "report/sheet.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace spp::report {

struct NodeDrawing {
  std::string title, description;
  std::int64_t gpus = 1;
  std::int64_t sockets = 1;
  std::int64_t gpus_of_switch = 1;  // of a PCIe switch; 1: none is drawn
  std::string gpu;                  // "h100-80g-sxm"
  std::string inside;               // "nvlink4, 450 GB/s a GPU and direction"
  std::string beside;               // "between sockets 22 GB/s"; ""
  std::int64_t cards = 0;
  std::string network;  // "ib, 8 x 400 Gb/s"; "": none
  std::string fabric;   // what more there is to say of it
};

void add(Sheet& sheet, const NodeDrawing& node);
/// The same drawing as a file of its own: SVG with its own style, light and dark.
std::string svg_file(const NodeDrawing& node);

/// An axis of a plan by one of its groups.
struct AxisOnCluster {
  std::string_view key;  // class of colour and pattern
  std::string name;      // of the legend
  std::string label;     // of its line
  std::int64_t size = 1;
  std::vector<std::int64_t> gpus;  // of the group, the first ones of many; numbered node by node
  bool leaves = false;             // groups of it have GPUs of several nodes
};

struct ClusterDrawing {
  std::string title, description, note;
  NodeDrawing node;
  std::int64_t nodes = 1;
  std::vector<AxisOnCluster> axes;
  Grid numbers;
};

/// The first node and all others, with a line for each axis over what it joins.
void add(Sheet& sheet, const ClusterDrawing& cluster);

/// The groups of one axis: lists of ranks.
struct AxisGroups {
  std::string axis;
  std::vector<std::vector<std::int64_t>> groups;
};

struct GroupDrawing {
  std::string title;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  bool cyclic = false;  // ranks are dealt out to the nodes in turn
  std::vector<AxisGroups> axes;
};

/// A picture for each axis that joins ranks.
void add(Sheet& sheet, const GroupDrawing& drawing);

}  // namespace spp::report
