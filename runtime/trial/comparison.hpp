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

/// What rounding alone may do to a tensor.
struct Tolerance {
  double largest = 0;  // of a difference, in units of the tensor's largest value
  double mean = 0;  // of differences over a tile, root mean square, in units of the same of what is
                    // expected: a contribution that is missing shows in all of a tile, however
                    // much larger the tensor is elsewhere
  double absolute = 0;  // of both, in the tensor's own unit: what is no smaller where values are
};

struct TensorCheck {
  std::string tensor;         // "out"
  double error = 0;           // largest |difference| / scale over all ranks
  double mean_error = 0;      // of the worst tile, as Tolerance::mean
  Tolerance limit;            // of both, `absolute` included
  double scale = 0;           // largest |expected|
  std::int64_t compared = 0;  // elements
  std::string worst;          // "rank 3, batch 0, token 17, head 2, dim 5: 0.31 instead of 0.29"
  std::string worst_tile;     // "rank 3, batch 0, tokens 16 to 31, head 2"
  [[nodiscard]] bool passed() const { return error <= limit.largest && mean_error <= limit.mean; }
  /// What is wrong, if anything is.
  [[nodiscard]] std::string wrong() const;
};

struct CheckReport {
  std::vector<TensorCheck> tensors;
  double part = 1;  // of all elements, compared
  [[nodiscard]] bool passed() const;
};

struct CheckOptions {
  double flops = 4e10;  // fp64 work of all ranks together, about; the rest is left out
};

/// What is compared: rows of one buffer of a rank.
struct Compared {
  const HostMemory& memory;
  BufferId buffer;
  Rank rank;
  Tolerance limit;
};

class Comparison {
 public:
  /// What is expected of a (token, batch, head, dim); asked in the order of storage.
  using Expected = std::function<double(std::int64_t, std::int64_t, int, int)>;

  /// Some tokens and heads of a buffer, under the name of its tensor. `before`: what was there, of
  /// a tensor whose change is compared.
  void compare(const std::string& tensor, const Compared& of, const TokenSet& tokens,
               HeadRange heads, const Expected& expected, const Expected& before = {});
  /// Over all ranks, which all call it; rank 0 is told of the tensors. Ranks may round differently:
  /// the coarsest counts.
  CheckReport report(Transport& transport, double part) const;

 private:
  struct Worst {
    std::int64_t batch = 0, token = 0;
    int head = 0, dim = 0;
    double got = 0, wanted = 0;
  };
  /// Successive tokens of one head.
  struct Tile {
    std::int64_t batch = 0, first = 0, last = 0;
    int head = 0;
    double errors = 0, values = 0;  // sums of squares
    std::int64_t count = 0;
    /// In units of the root mean square of what is expected, or of the whole tensor's where that is
    /// more: of a tile that ought to be 0 all is rounding. Less what chance may add, three standard
    /// deviations: it is little of 256 tokens, and much of a gain of eight numbers.
    [[nodiscard]] double mean_error(double of_tensor) const;
  };
  struct Extreme {
    double error = 0, scale = 0;
    std::int64_t compared = 0;
    Worst worst;
    Tolerance limit;
    int rank = 0;
    std::vector<Tile> tiles;
  };
  /// By tensor, the root mean square of what is expected of all ranks.
  [[nodiscard]] std::map<std::string, double> means(Transport& transport) const;

  std::map<std::string, Extreme> extremes_;
};

/// u of the type: fp32 2^-24, fp16 2^-11, bf16 2^-8.
double unit_roundoff(DType dtype);
/// The coarsest type that a result passes through: a schedule may carry gradients in less than
/// fp32.
double coarsest_roundoff(const Schedule& schedule, const StoredProgram& program);

}  // namespace spp::runtime
