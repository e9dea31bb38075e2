// A kind of document that a report can be made of: one file each in kinds/, listed in
// CMakeLists.txt, from which the table `kinds::all()` is generated.
#pragma once

#include "base/json.hpp"
#include "report/sheet.hpp"

#include <span>
#include <string>
#include <string_view>

namespace spp::report {

struct Kind {
  std::string_view format;  // behind "sp-plan/"; "": no document of ours (a trace)
  std::string_view name;    // of a section: "Plan"
  /// One line: what the document is about.
  std::string (*subject)(const JsonView& document);
  /// Reads the document, complains with file and key, and adds what there is to say and to draw.
  void (*add)(const JsonView& document, Sheet& sheet);
  /// The picture of what the document is about, as a file of SVG; nothing where there is none.
  std::string (*picture)(const JsonView& document) = nullptr;
};

namespace kinds {
/// All kinds, in the order of report/CMakeLists.txt. Generated.
std::span<const Kind* const> all();
}  // namespace kinds

}  // namespace spp::report
