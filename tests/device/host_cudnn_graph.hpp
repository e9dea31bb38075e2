// cuDNN's operation graphs, executed in fp64: what they mean, whatever an engine makes of them.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace spp::test::host {

using Dims = std::array<std::int64_t, 4>;

struct GraphTensor {
  std::int64_t uid = 0;
  Dims dims{1, 1, 1, 1}, strides{1, 1, 1, 1};
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  std::int64_t alignment = 1;
  bool inner = false;  // virtual
  bool value = false;  // a number on the host
};

enum class GraphOpKind : std::uint8_t { matmul, pointwise, reduction, reshape };
struct GraphOp {
  GraphOpKind kind = GraphOpKind::matmul;
  int mode = 0;  // of pointwise and reduction
  std::int64_t axis = -1;
  std::shared_ptr<const GraphTensor> x, b, t, y;  // of a matmul: x b = y
};
using Graph = std::vector<GraphOp>;

/// Strides of a tensor without gaps, the last dimension fastest.
Dims dense(const Dims& dims);
/// Of every row one number, in memory: lse, delta.
bool is_statistic(const GraphTensor& tensor);

/// The graph that was finalized last, by any thread.
std::shared_ptr<const Graph> last_graph();
void keep_graph(std::shared_ptr<const Graph> graph);

/// "" or why no engine takes the graph. They ask for what cudnn-frontend gives them, and no more is
/// known: memory at multiples of 16 bytes, and statistics that are dense.
std::string why_not(const Graph& graph);

/// Memory of the caller by uid; for values, a pointer to the number.
using Pointers = std::map<std::int64_t, std::byte*>;
/// Numbers of the values, read now.
std::map<std::int64_t, double> numbers_of(const Graph& graph, const Pointers& pointers);
/// Executes. A reshape is a view: the memory of what it reads, seen with the strides of what it
/// gives. Statistics are taken to be dense, whatever their strides are.
void execute(const Graph& graph, const Pointers& pointers,
             const std::map<std::int64_t, double>& numbers);

}  // namespace spp::test::host
