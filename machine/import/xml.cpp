#include "machine/import/xml.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp::imports {
namespace {

Place place_at(const Source& source, std::ptrdiff_t offset) {
  return source.at_offset(static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0)));
}

}  // namespace

void parse_xml(const Source& source, pugi::xml_document& document) {
  const pugi::xml_parse_result result = document.load_buffer(
      source.text.data(), source.text.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) {
    throw InputError(
        to_string(place_at(source, result.offset)),
        fmt::format("is not well-formed XML: {} (a file that was cut off?)", result.description()));
  }
}

Place place_of(const Source& source, const pugi::xml_node& node) {
  return place_at(source, node.offset_debug());
}

}  // namespace spp::imports
