#include "cli/completion.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "parallel/attention/strategy.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "planner/framework.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/attention.hpp"
#include "samples/calibration.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

namespace spp::cli {
namespace {

/// Of what a generated table lists.
std::vector<std::string> names_in(const auto& table) {
  std::vector<std::string> names;
  for (const auto* entry : table) {
    names.emplace_back(entry->name);
  }
  return names;
}

/// Attention kernels of the host and of GPUs; both have a reference.
std::vector<std::string> kernel_names() {
  std::vector<std::string> names = names_in(runtime::attention_kernels::all());
  for (std::string& name : runtime::device::kernel_names()) {
    if (std::ranges::find(names, name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

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
    return names_in(strategies::all());
  }
  if (option.name == "stack") {
    return topologies().stack_names();
  }
  if (option.name == "pipeline") {
    return names_in(pipelines::all());
  }
  if (option.name == "framework" || option.name == "emit") {
    return names_in(frameworks::all());
  }
  if (option.name == "suite") {
    return {calibration_suites.begin(), calibration_suites.end()};
  }
  if (option.name == "kernels") {
    return kernel_names();
  }
  return choices_of(option);
}

bool takes_file(const Option& option) {
  return option.value.find("FILE") != std::string_view::npos;
}

/// What stands behind a command, or behind its action.
struct Argument {
  std::string action;  // empty: none
  bool file = false;
  bool name = false;
};

/// "list | show NAME | check FILE|NAME" -> list; show, a name; check, a file or a name. "A B" ->
/// files.
std::vector<Argument> arguments_of(const Command& command) {
  std::vector<Argument> arguments;
  std::size_t begin = 0;
  constexpr std::string_view between = " | ";
  while (begin < command.arguments.size()) {
    const std::size_t end =
        std::min(command.arguments.find(between, begin), command.arguments.size());
    const std::string_view piece = command.arguments.substr(begin, end - begin);
    const std::string_view word = piece.substr(0, piece.find(' '));
    const bool action =
        std::ranges::none_of(word, [](unsigned char c) { return std::isupper(c) != 0; });
    const std::string_view rest = action ? piece.substr(word.size()) : "FILE";
    arguments.push_back({.action = action ? std::string(word) : "",
                         .file = rest.find("FILE") != std::string_view::npos,
                         .name = rest.find("NAME") != std::string_view::npos});
    begin = end + between.size();
  }
  return arguments;
}

std::vector<std::string> actions_of(const Command& command) {
  std::vector<std::string> actions;
  for (const Argument& a : arguments_of(command)) {
    if (!a.action.empty()) {
      actions.push_back(a.action);
    }
  }
  return actions;
}

/// What NAME can be behind a command.
std::vector<std::string> names_of(const Command& command) {
  if (command.name == "topology") {
    std::vector<std::string> names = topologies().machine_names();
    std::ranges::copy(topologies().gpu_names(), std::back_inserter(names));
    return names;
  }
  return command.name == "model"   ? models().names()
         : command.name == "stack" ? topologies().stack_names()
                                   : std::vector<std::string>();
}

std::string words(const std::vector<std::string>& list) {
  return fmt::format("{}", fmt::join(list, " "));
}

std::vector<std::string> command_names() {
  std::vector<std::string> names = names_in(commands::all());
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

/// COMPREPLY of `list` and, if wanted, of files.
std::string bash_reply(const std::vector<std::string>& list, bool files) {
  std::string reply = fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", words(list));
  if (files) {
    reply +=
        "; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$cur\"); "
        "compopt -o filenames 2>/dev/null";
  }
  return reply;
}

std::string bash() {
  std::string script =
      "# bash completion of sp-plan; made by 'sp-plan completion bash'\n_sp_plan() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= \n"
      "  COMPREPLY=()\n  if [[ $COMP_CWORD -eq 1 ]]; then\n";
  std::vector<std::string> first = command_names();
  first.insert(first.end(), {"--help", "--version"});
  script += fmt::format("    {}\n    return\n  fi\n  case $prev in\n", bash_reply(first, false));
  for (const Option& o : all_options()) {
    const std::vector<std::string> values = values_of(o);
    const std::string letter = o.letter != 0 ? fmt::format("|-{}", o.letter) : "";
    if (!values.empty() || takes_file(o)) {
      script += fmt::format("    --{}{}) {}; return ;;\n", o.name, letter,
                            bash_reply(values, takes_file(o)));
    } else if (!o.value.empty()) {
      script += fmt::format("    --{}{}) return ;;\n", o.name, letter);
    }
  }
  script += "  esac\n  case ${COMP_WORDS[1]}:${COMP_WORDS[2]}:$cur in\n    *:-*) ;;\n";
  for (const Command* c : commands::all()) {
    for (const Argument& a : arguments_of(*c)) {
      if (a.file || a.name) {
        const std::string reply =
            bash_reply(a.name ? names_of(*c) : std::vector<std::string>(), a.file);
        script +=
            a.action.empty()
                ? fmt::format("    {}:*) {}; return ;;\n", c->name, reply)
                : fmt::format("    {}:{}:*) if [[ $COMP_CWORD -gt 2 ]]; then {}; return; fi ;;\n",
                              c->name, a.action, reply);
      }
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

/// Specifications of what stands behind a command: its actions, and what stands behind these.
std::string zsh_arguments(const Command& c) {
  const std::vector<std::string> actions = actions_of(c);
  if (actions.empty()) {
    return c.arguments.empty() ? "" : " \\\n        '*:file:_files'";
  }
  std::string behind;
  for (const Argument& a : arguments_of(c)) {
    if (a.file || a.name) {
      behind += fmt::format("{}) {}{};; ", a.action,
                            a.name ? fmt::format("compadd {}; ", words(names_of(c))) : "",
                            a.file ? "_files " : "");
    }
  }
  return fmt::format(" \\\n        '2:action:({})'", words(actions)) +
         (behind.empty()
              ? ""
              : fmt::format(" \\\n        '*:argument:{{case $words[3] in {}esac}}'", behind));
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
        script += takes_file(o) ? fmt::format(":{}:{{compadd {}; _files}}", o.name, words(values))
                                : fmt::format(":{}:({})", o.name, words(values));
      } else if (!o.value.empty()) {
        script += fmt::format(":{}:{}", o.name, takes_file(o) ? "_files" : "");
      }
      script += "'";
    }
    script += zsh_arguments(*c);
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
      script += o.value.empty() ? "" : takes_file(o) ? " -r -F" : " -x";
      script += values.empty() ? "" : fmt::format(" -a '{}'", words(values));
      script += "\n";
    }
    const std::vector<std::string> actions = actions_of(*c);
    for (const Argument& a : arguments_of(*c)) {
      const std::string there =
          a.action.empty() ? here
                           : fmt::format(
                                 "complete -c sp-plan -n '__fish_seen_subcommand_from {}; and "
                                 "__fish_seen_subcommand_from {}'",
                                 c->name, a.action);
      if (!a.action.empty()) {
        script += fmt::format("{}; and not __fish_seen_subcommand_from {}' -a {}\n",
                              here.substr(0, here.size() - 1), words(actions), a.action);
      }
      script += a.name ? fmt::format("{} -a '{}'\n", there, words(names_of(*c))) : "";
      script += a.file ? fmt::format("{} -F\n", there) : "";
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
