// The output of NCCL's performance tests (github.com/NVIDIA/nccl-tests): all_gather_perf,
// reduce_scatter_perf, alltoall_perf, sendrecv_perf, all_reduce_perf, as they print it or as their
// JSON file. A row has the size of the larger buffer of a rank, S, and times in microseconds. Of n
// ranks each sends, to all others together:
//
//   all_gather, reduce_scatter, alltoall   S (n-1)/n    (doc/PERFORMANCE.md of nccl-tests: busbw)
//   sendrecv                               S            to the next rank, round all of them
#pragma once

#include "base/json.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// Sizes of one collective in all files together: the tests go from a size to the next by factors,
/// or by a few hundred steps, and finding where a line bends takes the cube of their number.
constexpr std::size_t most_nccl_sizes = 500;

struct NcclTest {
  std::string file;
  std::string name;                // "all_gather", "alltoall", …
  std::vector<std::string> hosts;  // in the order of ranks
  int ranks_per_host = 1;
  std::string gpu;   // as the driver calls it
  std::string nccl;  // its version; "": not said
  struct Row {
    std::int64_t size = 0;  // bytes
    double seconds = 0;     // out of place; in place if that was not timed
  };
  std::vector<Row> rows;

  [[nodiscard]] int ranks() const { return static_cast<int>(hosts.size()) * ranks_per_host; }
};

/// A file may hold several, one after the other. InputError names file, line and what would be
/// right.
std::vector<NcclTest> read_nccl_tests(const std::string& file);
/// The same of the text of `file`.
std::vector<NcclTest> parse_nccl_tests(const std::string& text, const std::string& file);

/// Bytes that a rank sends in all to others, where the larger buffer has `size`.
double sent_by_rank(const NcclTest& test, std::int64_t size);

}  // namespace spp
