#include "machine/import/xml.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp::imports {
namespace {

Place place_at(const Source& source, std::ptrdiff_t offset) {
  return source.at_offset(static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0)));
}

/// Entities that a file defines are not expanded here, so its values would be read without them.
void expect_doctype(const Source& source, const pugi::xml_node& doctype, Doctype allowed) {
  const std::string_view text = doctype.value();
  if (text.find('[') != std::string_view::npos) {
    throw InputError(to_string(place_of(source, doctype)),
                     "its DOCTYPE defines entities or elements, which are not read: give the file "
                     "as the program wrote it, without them");
  }
  if (allowed == Doctype::none) {
    throw InputError(to_string(place_of(source, doctype)),
                     "has a DOCTYPE, which NCCL does not write: give the file as "
                     "NCCL_TOPO_DUMP_FILE has it, from <system> on");
  }
}

}  // namespace

void parse_xml(const Source& source, pugi::xml_document& document, Doctype allowed) {
  const pugi::xml_parse_result result =
      document.load_buffer(source.text.data(), source.text.size(),
                           pugi::parse_default | pugi::parse_doctype, pugi::encoding_utf8);
  if (!result) {
    throw InputError(
        to_string(place_at(source, result.offset)),
        fmt::format("is not well-formed XML: {} (a file that was cut off?)", result.description()));
  }
  for (const pugi::xml_node node : document.children()) {
    if (node.type() == pugi::node_doctype) {
      expect_doctype(source, node, allowed);
    }
  }
}

Place place_of(const Source& source, const pugi::xml_node& node) {
  return place_at(source, node.offset_debug());
}

}  // namespace spp::imports
