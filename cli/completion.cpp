#include "cli/completion.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "parallel/attention/strategy.hpp"
#include "planner/framework.hpp"

#include <fmt/ranges.h>

#include <vector>

namespace spp::cli {
namespace {

/// Words to offer behind an option; empty: file names, if its value is or can be a FILE.
std::vector<std::string> values_of(const Option& option) {
  if (option.name == "model") {
    return models().names();
  }
  if (option.name == "topology") {
    return topologies().machine_names();
  }
  if (option.name == "gpu") {
    return topologies().gpu_names();
  }
  if (option.name == "strategy") {
    std::vector<std::string> names;
    for (const Strategy* s : strategies::all()) {
      names.emplace_back(s->name);
    }
    return names;
  }
  if (option.name == "stack") {
    return topologies().stack_names();
  }
  if (option.name == "framework" || option.name == "emit") {
    std::vector<std::string> names;
    for (const Framework* f : frameworks::all()) {
      names.emplace_back(f->name);
    }
    return names;
  }
  return choices_of(option);
}

bool takes_file(const Option& option) {
  return option.value.find("FILE") != std::string_view::npos;
}

/// "list | show NAME | check FILE" -> list, show, check.
std::vector<std::string> actions_of(const Command& command) {
  std::vector<std::string> actions;
  for (const std::string_view piece : split(command.arguments, '|')) {
    const std::size_t begin = piece.find_first_not_of(' ');
    if (begin != std::string_view::npos) {
      const std::string_view word = piece.substr(begin);
      actions.emplace_back(word.substr(0, word.find(' ')));
    }
  }
  return actions;
}

std::string words(const std::vector<std::string>& list) {
  return fmt::format("{}", fmt::join(list, " "));
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command* c : commands::all()) {
    names.emplace_back(c->name);
  }
  names.emplace_back("help");
  return names;
}

/// All options of all commands, each once; an option has one meaning everywhere.
std::vector<Option> all_options() {
  std::vector<Option> options(shared_options().begin(), shared_options().end());
  for (const Command* c : commands::all()) {
    options.insert(options.end(), c->options.begin(), c->options.end());
  }
  return options;
}

std::string bash() {
  std::string script =
      "# bash completion of sp-plan; made by 'sp-plan completion bash'\n_sp_plan() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= \n"
      "  COMPREPLY=()\n  if [[ $COMP_CWORD -eq 1 ]]; then\n";
  script += fmt::format(
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$cur\"))\n    return\n  fi\n",
      words(command_names()));
  script += "  case $prev in\n";
  for (const Option& o : all_options()) {
    const std::vector<std::string> values = values_of(o);
    const std::string files = takes_file(o) ? " $(compgen -f -- \"$cur\")" : "";
    if (!values.empty() || takes_file(o)) {
      script += fmt::format("    --{}) COMPREPLY=($(compgen -W '{}' -- \"$cur\"){}); return ;;\n",
                            o.name, words(values), files);
    } else if (!o.value.empty()) {
      script += fmt::format("    --{}) return ;;\n", o.name);
    }
  }
  script += "  esac\n  case ${COMP_WORDS[1]} in\n";
  for (const Command* c : commands::all()) {
    std::vector<std::string> offered = actions_of(*c);
    for (const Option& o : options_of(*c)) {
      offered.push_back(fmt::format("--{}", o.name));
    }
    script += fmt::format("    {}) words='{}' ;;\n", c->name, words(offered));
  }
  script += fmt::format("    help) words='{}' ;;\n", words(command_names()));
  return script +
         "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -F _sp_plan "
         "sp-plan\n";
}

/// Inside single quotes and brackets of zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else if (c == '[' || c == ']' || c == ':') {
      result += '\\';
      result += c;
    } else {
      result += c;
    }
  }
  return result;
}

std::string zsh() {
  std::string script =
      "#compdef sp-plan\n# zsh completion of sp-plan; made by 'sp-plan completion zsh'\n_sp_plan() "
      "{\n"
      "  if (( CURRENT == 2 )); then\n    local -a commands=(\n";
  for (const Command* c : commands::all()) {
    script += fmt::format("      '{}:{}'\n", c->name, zsh_text(c->summary));
  }
  script += "    )\n    _describe command commands\n    return\n  fi\n  case $words[2] in\n";
  for (const Command* c : commands::all()) {
    script += fmt::format("    {})\n      _arguments", c->name);
    for (const Option& o : options_of(*c)) {
      script += fmt::format(" \\\n        '--{}[{}]", o.name, zsh_text(o.help));
      const std::vector<std::string> values = values_of(o);
      if (!values.empty()) {
        script += fmt::format(":{}:({})", o.name, words(values));
      } else if (!o.value.empty()) {
        script += fmt::format(":{}:{}", o.name, takes_file(o) ? "_files" : "");
      }
      script += "'";
    }
    const std::vector<std::string> actions = actions_of(*c);
    if (!actions.empty()) {
      script += fmt::format(" \\\n        '2:action:({})' '*:file:_files'", words(actions));
    }
    script += "\n      ;;\n";
  }
  return script + "  esac\n}\n_sp_plan \"$@\"\n";
}

std::string fish_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += c == '\'' || c == '\\' ? "\\" : "";
    result += c;
  }
  return result;
}

std::string fish() {
  std::string script =
      "# fish completion of sp-plan; made by 'sp-plan completion fish'\ncomplete -c sp-plan -f\n";
  for (const Command* c : commands::all()) {
    script += fmt::format("complete -c sp-plan -n __fish_use_subcommand -a {} -d '{}'\n", c->name,
                          fish_text(c->summary));
    const std::string here =
        fmt::format("complete -c sp-plan -n '__fish_seen_subcommand_from {}'", c->name);
    for (const Option& o : options_of(*c)) {
      script += fmt::format("{} -l {} -d '{}'", here, o.name, fish_text(o.help));
      const std::vector<std::string> values = values_of(o);
      script += o.value.empty()   ? ""
                : !values.empty() ? fmt::format(" -x -a '{}'", words(values))
                : takes_file(o)   ? " -r -F"
                                  : " -x";
      script += "\n";
    }
    for (const std::string& action : actions_of(*c)) {
      script += fmt::format("{} -a {}\n", here, action);
    }
  }
  return script;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") {
    return bash();
  }
  if (shell == "zsh") {
    return zsh();
  }
  if (shell == "fish") {
    return fish();
  }
  const std::vector<std::string> known{"bash", "zsh", "fish"};
  throw InputError("completion",
                   fmt::format("unknown shell '{}'{}", shell, did_you_mean(shell, known)));
}

}  // namespace spp::cli
