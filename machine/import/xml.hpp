// XML of others: parsed by pugixml, which expands no entities and reads nothing but the text.
#pragma once

#include "machine/import/source.hpp"

#include <pugixml.hpp>
#include <string>

namespace spp::imports {

/// InputError(file:line) if it is not well-formed.
void parse_xml(const Source& source, pugi::xml_document& document);
Place place_of(const Source& source, const pugi::xml_node& node);

/// Elements below which nothing is looked at: descriptions of machines have some ten levels.
constexpr int most_xml_levels = 64;

}  // namespace spp::imports
