#include "cli/help.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "base/version.hpp"
#include "cli/human.hpp"
#include "runtime/comm/transport.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/attention.hpp"

#include <algorithm>
#include <array>

namespace spp::cli {
namespace {

constexpr std::string_view purpose =
    "sp-plan says how to split a model with long sequences over the GPUs of a cluster: attention "
    "(Ulysses degree, ring degree, StarTrail team size, rank order, token layout), and around it "
    "tensor, pipeline, data and expert degrees, ZeRO and recomputation; what that will cost in "
    "time and memory; and why the others lose.";

struct ExitLine {
  int code;
  std::string_view meaning;
};
constexpr std::array<ExitLine, 5> exit_lines{
    {{0, "done"},
     {1, "a failing back end, or a bug"},
     {2, "wrong usage or input"},
     {3, "no legal plan, or nothing fits, be it this machine's memory"},
     {4, "a check or a gate failed"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> variables{
    {{"SP_PLAN_DATA", "folder that holds topologies/ and models/, instead of the installed one"},
     {"SP_PLAN_JOB_TOKEN",
      "secret of a job whose ranks meet over TCP (torchrun's variables): the same on all ranks, "
      "new "
      "for each job"},
     {"NO_COLOR", "when set, no colours"}}};

std::string spelled(const Option& o) {
  const std::string letter = o.letter != 0 ? fmt::format("-{}, ", o.letter) : "";
  return fmt::format("{}--{}{}{}", letter, o.name, o.value.empty() ? "" : " ", o.value);
}

std::string usage_of(const Command& c) {
  return fmt::format("sp-plan {}{}{}{}", c.name, c.arguments.empty() ? "" : " ", c.arguments,
                     " [options]");
}

std::string options_text(std::span<const Option> options, const Style& style) {
  constexpr std::size_t column = 36;
  std::string text;
  OptionGroup group{};
  bool first = true;
  for (const Option& o : options) {
    if (first || o.group != group) {
      text += "\n" + style.bold(title_of(o.group)) + "\n";
    }
    first = false;
    group = o.group;
    const std::string left = "  " + spelled(o);
    std::string right = wrapped(o.help, column, style.width);
    if (width_of(left) + 2 > column) {
      text += fmt::format("{}\n{}", left, right);
    } else {
      right.replace(0, width_of(left), left);
      text += right;
    }
  }
  return text;
}

// ---- roff
// ------------------------------------------------------------------------------------------

/// Roff reads '-' as a hyphen, and '\', and '.' or a quote at the start of a line.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) {
      result += "\\&";
      result += c;
    } else {
      result += c;
    }
  }
  return result;
}

std::string roff_option(const Option& o) {
  const std::string letter = o.letter != 0 ? fmt::format(R"(\fB\-{}\fR, )", o.letter) : "";
  return fmt::format(
      ".TP\n{}\\fB\\-\\-{}\\fR{}{}\n{}\n", letter, roff(o.name), o.value.empty() ? "" : " ",
      o.value.empty() ? "" : fmt::format(R"(\fI{}\fR)", roff(o.value)), roff(o.help));
}

}  // namespace

std::vector<Option> options_of(const Command& command) {
  std::vector<Option> options;
  const auto add_group = [&](OptionGroup group) {
    std::ranges::copy_if(shared_options(), std::back_inserter(options),
                         [&](const Option& o) { return o.group == group; });
  };
  for (const OptionGroup group : command.groups) {
    add_group(group);
  }
  options.insert(options.end(), command.options.begin(), command.options.end());
  add_group(OptionGroup::output);
  if (command.plain) {
    std::erase_if(options, [](const Option& o) { return o.name == "json" || o.name == "table"; });
    std::ranges::find(options, "output", &Option::name)->help = "write it to FILE";
  }
  return options;
}

const Command& command_named(std::string_view name) {
  std::vector<std::string> names{"help"};
  for (const Command* c : commands::all()) {
    if (c->name == name) {
      return *c;
    }
    names.emplace_back(c->name);
  }
  throw InputError(name, fmt::format("unknown command{}", did_you_mean(name, names)));
}

std::string overview(const Style& style) {
  std::string text = wrapped(purpose, 0, style.width) + "\n" + style.bold("Usage") +
                     "\n  sp-plan COMMAND [options]\n\n" + style.bold("Commands") + "\n";
  Table table;
  for (const Command* c : commands::all()) {
    table.rows.push_back({fmt::format("  {}", c->name), std::string(c->summary)});
  }
  table.rows.push_back({"  help", "this page, or that of a command: sp-plan help plan"});
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  text += "\n" + style.bold("Example") +
          "\n  sp-plan plan --model llama-3.1-8b --seq 128K --topology dgx-h100\n\n" +
          style.bold("Exit codes") + "\n";
  for (const ExitLine& line : exit_lines) {
    text += fmt::format("  {}  {}\n", line.code, line.meaning);
  }
  return text +
         "\n'sp-plan COMMAND --help' has a command's options and examples; 'sp-plan --version' the "
         "version.\n";
}

std::string help_of(const Command& command, const Style& style) {
  std::string text = wrapped(command.description, 0, style.width) + "\n" + style.bold("Usage") +
                     "\n  " + usage_of(command) + "\n\n" + style.bold("Examples") + "\n";
  for (const std::string_view line : split(command.examples, '\n')) {
    text += fmt::format("  {}\n", line);
  }
  return text + options_text(options_of(command), style);
}

std::string version_text() {
  std::string back_ends;
  const auto add = [&](std::string_view name) {
    back_ends += fmt::format("{}{}", back_ends.empty() ? "" : ", ", name);
  };
  const auto compiled = [](const std::string& why_not) {
    return !why_not.starts_with("not compiled in");
  };
  for (const runtime::TransportBackend* transport : runtime::transports::all()) {
    if (compiled(transport->why_not())) {
      add(transport->name);
    }
  }
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    if (compiled(kernels->why_not(DType::fp32))) {
      add(kernels->name);
    }
  }
  for (const std::string& word : runtime::device::compiled()) {
    add(word);
  }
  return fmt::format("sp-plan {} (commit {})\nback ends compiled in: {}\n", version(), commit(),
                     back_ends);
}

std::string man_page() {
  std::string text =
      fmt::format(".TH SP\\-PLAN 1 \"\" \"sp\\-plan {}\" \"User Commands\"\n", roff(version()));
  text += ".SH NAME\nsp\\-plan \\- plans, predicts and proves sequence\\-parallel attention\n";
  text += ".SH SYNOPSIS\n";
  for (const Command* c : commands::all()) {
    text += fmt::format(".B {}\n.br\n", roff(usage_of(*c)));
  }
  text += fmt::format(".SH DESCRIPTION\n{}\n.SH COMMANDS\n", roff(purpose));
  for (const Command* c : commands::all()) {
    text += fmt::format(".SS sp\\-plan {}\n{}\n", roff(c->name), roff(c->description));
    for (const Option& o : c->options) {
      text += roff_option(o);
    }
  }
  text += ".SH OPTIONS\n";
  for (const OptionGroup group : {OptionGroup::work, OptionGroup::machine, OptionGroup::degrees,
                                  OptionGroup::plan_file, OptionGroup::output}) {
    text += fmt::format(".SS {}\n", title_of(group));
    for (const Option& o : shared_options()) {
      text += o.group == group ? roff_option(o) : "";
    }
  }
  text += ".SH EXIT STATUS\n";
  for (const ExitLine& line : exit_lines) {
    text += fmt::format(".TP\n.B {}\n{}\n", line.code, roff(line.meaning));
  }
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : variables) {
    text += fmt::format(".TP\n.B {}\n{}\n", name, roff(meaning));
  }
  text += ".SH EXAMPLES\n.nf\n";
  for (const Command* c : commands::all()) {
    text += roff(c->examples) + "\n";
  }
  return text + ".fi\n";
}

}  // namespace spp::cli
