// A machine as documents describe it, and what each axis of a plan sends over its links ("machine"
// and "traffic" of plans and simulations).
#pragma once

#include "base/json.hpp"
#include "report/candidate.hpp"
#include "report/cluster.hpp"
#include "report/sheet.hpp"

namespace spp::report {

/// A bandwidth of a document, for people.
std::string rate_at(const JsonView& view, std::string_view key);

/// A node of a document's "machine".
NodeDrawing node_of(const JsonView& machine);

/// The cluster with the groups of each axis, how busy its links are, and which one most. Nothing
/// where the document has no traffic; `c` is the candidate whose it is.
void add_links(Sheet& sheet, const JsonView& document, const CandidateRead& c);

}  // namespace spp::report
