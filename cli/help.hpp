// Everything that tells people what sp-plan can do, made from the tables of commands and options.
#pragma once

#include "cli/command.hpp"
#include "cli/output.hpp"

#include <string>
#include <string_view>

namespace spp::cli {

/// "sp-plan --help".
std::string overview(const Style& style);
/// "sp-plan COMMAND --help".
std::string help_of(const Command& command, const Style& style);
/// "sp-plan --version": version, commit, back ends.
std::string version_text();
/// The man page sp-plan(1), in roff.
std::string man_page();

}  // namespace spp::cli
