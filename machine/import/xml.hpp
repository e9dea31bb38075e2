// XML of others: parsed by pugixml, which expands no entities and reads nothing but the text.
#pragma once

#include "machine/import/source.hpp"

#include <cstdint>
#include <pugixml.hpp>
#include <string>

namespace spp::imports {

/// What a format's program writes before the root. Nothing that defines anything is read anywhere.
enum class Doctype : std::uint8_t { none, named };  // named: `<!DOCTYPE nvidia_smi_log SYSTEM "…">`

/// InputError(file:line) if it is not well-formed, or has a DOCTYPE that its program does not
/// write.
void parse_xml(const Source& source, pugi::xml_document& document, Doctype allowed);
Place place_of(const Source& source, const pugi::xml_node& node);

/// Elements below which nothing is looked at: descriptions of machines have some ten levels.
constexpr int most_xml_levels = 64;

}  // namespace spp::imports
