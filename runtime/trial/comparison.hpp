// Computed tensors beside what is expected of them, rank by rank: the largest differences.
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/memory.hpp"
#include "schedule/schedule.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace spp::runtime {

struct TensorCheck {
  std::string tensor;         // "out"
  double error = 0;           // largest |difference| / scale over all ranks
  double limit = 0;           // of it
  double scale = 0;           // largest |expected|
  std::int64_t compared = 0;  // elements
  std::string worst;          // "rank 3, batch 0, token 17, head 2, dim 5: 0.31 instead of 0.29"
  [[nodiscard]] bool passed() const { return error <= limit; }
};

struct CheckReport {
  std::vector<TensorCheck> tensors;
  double part = 1;  // of all elements, compared
  [[nodiscard]] bool passed() const;
};

struct CheckOptions {
  double flops = 4e10;  // fp64 work of all ranks together, about; the rest is left out
};

/// What is compared: rows of one buffer.
struct ComparedBuffer {
  const HostMemory& memory;
  BufferId buffer;
};

class Comparison {
 public:
  /// What is expected of a (token, batch, head, dim); asked in the order of storage.
  using Expected = std::function<double(std::int64_t, std::int64_t, int, int)>;

  /// Some tokens and heads of a buffer of this rank, under the name of its tensor.
  void compare(const std::string& tensor, const ComparedBuffer& of, Rank rank,
               const TokenSet& tokens, HeadRange heads, const Expected& expected);
  /// Over all ranks, which all call it; rank 0 is told of the tensors. Errors are in units of the
  /// tensor's largest value. `limit`: of what this rank does; ranks may round differently, and the
  /// coarsest counts.
  CheckReport report(Transport& transport, double limit, double part) const;

 private:
  struct Worst {
    int rank = 0;
    std::int64_t batch = 0, token = 0;
    int head = 0, dim = 0;
    double got = 0, wanted = 0;
    [[nodiscard]] std::string text() const;
  };
  struct Extreme {
    double error = 0, scale = 0;
    std::int64_t compared = 0;
    Worst worst;
  };
  std::map<std::string, Extreme> extremes_;
};

/// u of the type: fp32 2^-24, fp16 2^-11, bf16 2^-8.
double unit_roundoff(DType dtype);
/// The coarsest type that a result passes through: a schedule may carry gradients in less than
/// fp32.
double coarsest_roundoff(const Schedule& schedule, const StoredProgram& program);

}  // namespace spp::runtime
