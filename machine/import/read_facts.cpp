// Which formats a file is of, and what they say.
#include "base/error.hpp"
#include "machine/import/format.hpp"

namespace spp::imports {

Facts read_facts(const std::vector<Source>& sources) {
  Facts facts;
  for (const Source& source : sources) {
    bool known = false;
    for (const Format* format : formats::all()) {
      if (format->recognises(source)) {
        format->read(source, facts);
        known = true;
      }
    }
    if (!known) {
      std::vector<std::string_view> titles;
      for (const Format* format : formats::all()) {
        titles.push_back(format->title);
      }
      throw InputError(source.file,
                       fmt::format("{} that describes a machine; it would be one of: {}",
                                   source.text.empty() ? "is empty; nothing" : "nothing in it",
                                   fmt::join(titles, "; ")));
    }
    facts.files.push_back(source.file);
  }
  return facts;
}

}  // namespace spp::imports
