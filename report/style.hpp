// How a page looks: one style sheet for light, dark and paper, and the patterns that tell classes
// apart without colour.
#pragma once

#include <string>

namespace spp::report {

/// Content of <style>; well-formed as XML's text.
std::string style_sheet();

/// An invisible <svg> that defines the patterns which the style sheet names.
std::string patterns();

}  // namespace spp::report
