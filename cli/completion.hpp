// Shell completion, made from the tables of commands and options. Names of models and machines are
// those of the data folder at the time the script is made.
#pragma once

#include <string>
#include <string_view>

namespace spp::cli {

/// The script for "bash", "zsh" or "fish"; InputError for another shell.
std::string completion_script(std::string_view shell);

}  // namespace spp::cli
