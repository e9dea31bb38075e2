// What every transport must be able to do, as bodies of a run: tests/unit/runtime runs them over
// threads, tests/mpi over processes. They throw std::runtime_error, since Catch2's macros are for
// one thread.
#pragma once

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/transport.hpp"
#include "schedule/mesh.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::test {

struct CommCheck {
  std::string_view name;  // "all_gather"
  runtime::RankBody run;  // for any number of ranks
};
const std::vector<CommCheck>& comm_checks();

/// Bytes that tell where they belong.
std::vector<std::byte> pattern(std::uint64_t seed, std::size_t size);

/// Throws, naming `what`, the first difference and the rank.
void expect_same(std::string_view what, const runtime::Transport& transport,
                 std::span<const std::byte> got, std::span<const std::byte> want);

/// Waits as an executor without work does.
void wait_for(runtime::Transport& transport, runtime::Ticket ticket);
void wait_for(runtime::Transport& transport, runtime::Pending& pending);

/// The groups of `size` ranks, `stride` apart, that `self` is in one of; stride * size must divide
/// the number of ranks.
RankGroup group_of(Rank self, int stride, int size);

}  // namespace spp::test
