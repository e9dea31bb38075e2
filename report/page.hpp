// One page of HTML from documents of ours: complete in itself, without scripts, well-formed XML.
//
// Each document becomes a section; what kind it is, its own "format" says (kind.hpp), or that it is
// a trace. Documents are outside input: names and sentences in them are text and nothing else.
#pragma once

#include "base/json.hpp"

#include <span>
#include <string>

namespace spp::report {

struct Source {
  std::string file;  // its name, as it was given
  Json document;
};

/// InputError names file and key: no document of ours, one of a version or a kind that no report is
/// made of, or one whose members are not what its format says.
std::string page(std::span<const Source> sources);

/// What a document is about, drawn as a file of SVG, complete in itself. InputError besides: of its
/// kind there is no picture.
std::string picture(const Source& source);

}  // namespace spp::report
