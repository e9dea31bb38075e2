// A point of a corpus file, from its own keys over those of its file's workload.
#pragma once

#include "base/json.hpp"
#include "regress/corpus.hpp"

#include <set>
#include <string>
#include <string_view>

namespace spp::regress {

/// Counts beyond this are slips.
constexpr std::int64_t most_count = 1 << 20;

/// Of kernels that are no attention call ("gemm", …) and of collectives that are none of NCCL's
/// ("expert-parallel"); "" for the others, and for none.
std::string_view family_of_op(std::string_view op);

/// `noise` and `machine` are the file's. Adds keys that nobody knows to `unread`
/// (corpus_keys.hpp). InputError names point and key.
Point read_point(const JsonView& view, const JsonView& workload, std::int64_t index, double noise,
                 const CorpusMachine& machine, std::set<std::string>& unread);

}  // namespace spp::regress
