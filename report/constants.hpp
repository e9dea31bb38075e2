// The quantities of machine files and profiles: value, unit, spread, source.
#pragma once

#include "base/json.hpp"
#include "report/sheet.hpp"

#include <cstdint>
#include <string>

namespace spp::report {

/// All quantities of a document below a view, in the order in which they stand there.
Grid constants_of(const JsonView& view, std::size_t most = 300);

/// "450 GB/s" of a quantity or a plain number; "" if there is none.
std::string quantity_text(const JsonView& view, std::string_view key);
/// The value of a counted quantity; `otherwise` if there is none.
std::int64_t counted_at(const JsonView& view, std::string_view key, std::int64_t otherwise);
/// The name that stands there, or that of the object that stands there.
std::string name_at(const JsonView& view, std::string_view key);

/// A machine as its file describes it (docs/schema/machine.schema.json), drawn.
void add_machine(Sheet& sheet, const JsonView& machine);

}  // namespace spp::report
