#include "tests/device/host_cudnn_graph.hpp"

#include "runtime/kernels/convert.hpp"
#include "tests/device/host_cuda.hpp"

#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace spp::test::host {
namespace {

using Values = std::vector<double>;

std::int64_t size_of(const Dims& d) { return d[0] * d[1] * d[2] * d[3]; }

Dims strides_of(const GraphTensor& t) { return is_statistic(t) ? dense(t.dims) : t.strides; }

DType type_of(const GraphTensor& t) {
  return t.dtype == CUDNN_DATA_FLOAT      ? DType::fp32
         : t.dtype == CUDNN_DATA_BFLOAT16 ? DType::bf16
                                          : DType::fp16;
}

/// Calls `body(index, offset in dense order)` for all elements.
template <class Body>
void for_all(const Dims& dims, Body&& body) {
  std::int64_t at = 0;
  Dims i{};
  for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) {
          body(i, at++);
        }
      }
    }
  }
}

/// Of an element of a tensor of `dims`, in one that may have fewer heads, or one row or column.
std::int64_t seen_from(const Dims& index, const Dims& dims, const Dims& in) {
  const Dims strides = dense(in);
  std::int64_t at = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    at += strides[d] * (index[d] * in[d] / dims[d]);
  }
  return at;
}

class Execution {
 public:
  Execution(const Pointers& pointers, const std::map<std::int64_t, double>& numbers)
      : pointers_(pointers), numbers_(numbers) {}

  void run(const GraphOp& op) {
    const GraphTensor& y = *op.y;
    Values result(static_cast<std::size_t>(size_of(y.dims)));
    switch (op.kind) {
      case GraphOpKind::matmul:
        matmul(op, result);
        break;
      case GraphOpKind::pointwise:
        pointwise(op, result);
        break;
      case GraphOpKind::reduction:
        reduce(op, result);
        break;
      case GraphOpKind::reshape:
        view(op, result);
        break;
    }
    if (!y.inner) {
      store(y, result);
    }
    values_[&y] = std::move(result);
  }

 private:
  const Values& of(const GraphTensor& t) {
    const auto found = values_.find(&t);
    if (found != values_.end()) {
      return found->second;
    }
    Values values(static_cast<std::size_t>(size_of(t.dims)));
    if (t.value) {
      values.front() = numbers_.at(t.uid);
    } else {
      const std::byte* memory = pointers_.at(t.uid);
      const Dims strides = strides_of(t);
      for_all(t.dims, [&](const Dims& i, std::int64_t at) {
        values[static_cast<std::size_t>(at)] =
            runtime::load(type_of(t), memory, offset(i, strides));
      });
    }
    return values_.emplace(&t, std::move(values)).first->second;
  }

  static std::int64_t offset(const Dims& i, const Dims& strides) {
    return i[0] * strides[0] + i[1] * strides[1] + i[2] * strides[2] + i[3] * strides[3];
  }

  void store(const GraphTensor& t, const Values& values) {
    std::byte* memory = pointers_.at(t.uid);
    const Dims strides = strides_of(t);
    for_all(t.dims, [&](const Dims& i, std::int64_t at) {
      runtime::store(type_of(t), memory, offset(i, strides),
                     static_cast<float>(values[static_cast<std::size_t>(at)]));
    });
  }

  void matmul(const GraphOp& op, Values& result) {
    const Values& a = of(*op.x);
    const Values& b = of(*op.b);
    const Dims& y = op.y->dims;
    const std::int64_t depth = op.x->dims[3];
    for_all(y, [&](const Dims& i, std::int64_t at) {
      Dims of_a = op.x->dims;
      Dims of_b = op.b->dims;
      const std::int64_t row = ((i[0] * of_a[1] + i[1] * of_a[1] / y[1]) * of_a[2] + i[2]) * depth;
      const std::int64_t column =
          (i[0] * of_b[1] + i[1] * of_b[1] / y[1]) * of_b[2] * of_b[3] + i[3];
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += a[static_cast<std::size_t>(row + k)] *
               b[static_cast<std::size_t>(column + k * of_b[3])];
      }
      result[static_cast<std::size_t>(at)] = sum;
    });
  }

  void pointwise(const GraphOp& op, Values& result) {
    const Dims& y = op.y->dims;
    if (op.mode == CUDNN_POINTWISE_GEN_INDEX) {
      for_all(y, [&](const Dims& i, std::int64_t at) {
        result[static_cast<std::size_t>(at)] =
            static_cast<double>(i[static_cast<std::size_t>(op.axis)]);
      });
      return;
    }
    const Values& x = of(*op.x);
    const Values* b = op.b == nullptr ? nullptr : &of(*op.b);
    const Values* t = op.t == nullptr ? nullptr : &of(*op.t);
    const auto at_index = [&](const Values& values, const GraphTensor& tensor, const Dims& i) {
      return values[static_cast<std::size_t>(seen_from(i, y, tensor.dims))];
    };
    for_all(y, [&](const Dims& i, std::int64_t at) {
      const double left = at_index(x, *op.x, i);
      const double right = b == nullptr ? 0 : at_index(*b, *op.b, i);
      const bool choose = t != nullptr && at_index(*t, *op.t, i) != 0;
      result[static_cast<std::size_t>(at)] = combined(op.mode, left, right, choose);
    });
  }

  static double combined(int mode, double x, double b, bool choose) {
    switch (mode) {
      case CUDNN_POINTWISE_ADD:
        return x + b;
      case CUDNN_POINTWISE_SUB:
        return x - b;
      case CUDNN_POINTWISE_MUL:
        return x * b;
      case CUDNN_POINTWISE_DIV:
        return x / b;
      case CUDNN_POINTWISE_EXP:
        return std::exp(x);
      case CUDNN_POINTWISE_LOG:
        return std::log(x);
      case CUDNN_POINTWISE_IDENTITY:
        return x;
      case CUDNN_POINTWISE_CMP_GE:
        return x >= b ? 1 : 0;
      case CUDNN_POINTWISE_BINARY_SELECT:
        return choose ? x : b;
      default:
        throw std::logic_error("a pointwise mode that cuDNN on the host does not know");
    }
  }

  void reduce(const GraphOp& op, Values& result) {
    const bool most = op.mode == CUDNN_REDUCE_TENSOR_MAX;
    result.assign(result.size(), most ? -std::numeric_limits<double>::infinity() : 0);
    const Values& x = of(*op.x);
    for_all(op.x->dims, [&](const Dims& i, std::int64_t at) {
      double& to = result[static_cast<std::size_t>(seen_from(i, op.x->dims, op.y->dims))];
      const double value = x[static_cast<std::size_t>(at)];
      to = most ? std::max(to, value) : to + value;
    });
  }

  void view(const GraphOp& op, Values& result) {
    const Values& x = of(*op.x);
    Values memory(x.size());  // as x lies there
    for_all(op.x->dims, [&](const Dims& i, std::int64_t at) {
      memory.at(static_cast<std::size_t>(offset(i, op.x->strides))) =
          x[static_cast<std::size_t>(at)];
    });
    for_all(op.y->dims, [&](const Dims& i, std::int64_t at) {
      result[static_cast<std::size_t>(at)] =
          memory.at(static_cast<std::size_t>(offset(i, op.y->strides)));
    });
  }

  const Pointers& pointers_;
  const std::map<std::int64_t, double>& numbers_;
  std::map<const GraphTensor*, Values> values_;
};

template <class Body>
void for_tensors(const Graph& graph, Body&& body) {
  for (const GraphOp& op : graph) {
    for (const auto& tensor : {op.x, op.b, op.t, op.y}) {
      if (tensor != nullptr) {
        body(*tensor);
      }
    }
  }
}

struct Last {
  std::mutex mutex;
  std::shared_ptr<const Graph> graph;
};
Last& last() {
  static Last last;
  return last;
}

}  // namespace

Dims dense(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

bool is_statistic(const GraphTensor& t) { return !t.inner && !t.value && t.dims[3] == 1; }

std::shared_ptr<const Graph> last_graph() {
  const std::scoped_lock lock(last().mutex);
  return last().graph;
}
void keep_graph(std::shared_ptr<const Graph> graph) {
  const std::scoped_lock lock(last().mutex);
  last().graph = std::move(graph);
}

std::string why_not(const Graph& graph) {
  std::string why;
  for_tensors(graph, [&](const GraphTensor& t) {
    if (!t.inner && !t.value && t.alignment % 16 != 0) {
      why = "memory at no multiple of 16 bytes";
    }
    if (is_statistic(t) && t.strides != dense(t.dims)) {
      why = "statistics that are not dense";
    }
  });
  return why;
}

std::map<std::int64_t, double> numbers_of(const Graph& graph, const Pointers& pointers) {
  std::map<std::int64_t, double> numbers;
  for_tensors(graph, [&](const GraphTensor& t) {
    if (t.value) {
      const std::byte* at = pointers.at(t.uid);
      numbers[t.uid] = t.dtype == CUDNN_DATA_INT32
                           ? static_cast<double>(*reinterpret_cast<const std::int32_t*>(at))
                           : static_cast<double>(*reinterpret_cast<const float*>(at));
      if (t.dtype == CUDNN_DATA_INT32 && mistaken("top-left masks")) {
        numbers[t.uid] = 0;  // where the diagonal ends
      }
    }
  });
  return numbers;
}

void execute(const Graph& graph, const Pointers& pointers,
             const std::map<std::int64_t, double>& numbers) {
  Execution execution(pointers, numbers);
  for (const GraphOp& op : graph) {
    execution.run(op);
  }
}

}  // namespace spp::test::host
