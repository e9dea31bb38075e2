// The option table: every option once. Parsing, help, man page and completions read it, so that
// none of them can forget an option.
//
// Parsing yields text by name; what the text means is said where it is used (request.cpp), by the
// parsers of base/, whose complaints name the option. A caller in this process (answer.hpp) gives
// the text itself, and where a file is named that holds a document of ours, the document.
#pragma once

#include "base/json.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

enum class OptionGroup : std::uint8_t { work, machine, degrees, plan_file, command, output };
std::string_view title_of(OptionGroup group);

struct Option {
  std::string_view name;   // without dashes
  std::string_view value;  // as help shows it: "N", "bf16|fp16|fp32"; empty: a switch
  std::string_view help;
  OptionGroup group = OptionGroup::command;
  char letter = 0;      // short form; 0: none
  bool writes = false;  // its value is a file that is written
};

/// Work, machine, degrees (shared by plan, simulate, verify), a plan from a file (simulate, verify)
/// and output (all commands).
std::span<const Option> shared_options();

/// The options that choose a plan: a plan's file says them all.
std::vector<std::string_view> degree_options();

/// "bf16|fp16|fp32" -> its words; placeholders (in capitals) are left out.
std::vector<std::string> choices_of(const Option& option);

/// An option as a caller in this process gives it.
struct Given {
  std::string option;               // without dashes
  std::optional<std::string> text;  // none: a switch
  std::optional<Json> document;     // what the file would hold
};

/// "--layout" -> "plan.json: best.plan.layout".
using Origins = std::map<std::string, std::string, std::less<>>;

/// What stood on the command line behind the command.
class Arguments {
 public:
  /// InputError: an unknown option (with "did you mean"), a missing value, an option given twice.
  Arguments(std::vector<Option> known, const std::vector<std::string>& words);
  /// The same for what was not written on a line, and has nothing printed: options of the output
  /// are none. InputError: also a document for an option that takes none.
  Arguments(std::vector<Option> known, std::vector<std::string> positionals,
            const std::vector<Given>& given);

  [[nodiscard]] bool has(std::string_view option) const;
  [[nodiscard]] std::optional<std::string> find(std::string_view option) const;
  [[nodiscard]] std::string get(std::string_view option, std::string_view otherwise) const;
  /// The document that a caller gave instead of a file; find() has its name, to be shown.
  [[nodiscard]] const Json* document(std::string_view option) const;
  [[nodiscard]] const std::vector<std::string>& positionals() const { return positionals_; }
  /// All that may be given.
  [[nodiscard]] const std::vector<Option>& options() const { return known_; }
  /// Reads what stands behind /dev/stdin and /dev/fd/N, where a document may be given: from here on
  /// it is one that a caller gave, which plans take along; text of others (topology import) is a
  /// string. InputError.
  void take_handed_over();
  /// Refuses positionals; for commands that take options only.
  void expect_no_positionals() const;
  /// Gives options that were not given a value, from a document of ours that has it at `where`.
  void set_default(std::string_view option, const std::string& value, std::string where = "");
  /// The same of the document that was given for them.
  void set_default_document(std::string_view option, const Json& document, std::string where);
  /// Where the values stand that documents gave, by option with its dashes: what is wrong with one
  /// is said of that place.
  [[nodiscard]] const Origins& origins() const { return origins_; }
  /// The same arguments with another value of an option: one of a list.
  [[nodiscard]] Arguments with(std::string_view option, const std::string& value) const;
  /// The same without it.
  [[nodiscard]] Arguments without(std::string_view option) const;
  /// What was asked, as a shell takes it, but for what is about output: "--heads 8 --seq 4K".
  [[nodiscard]] std::string line() const;

 private:
  [[nodiscard]] const Option& known(std::string_view option) const;

  std::vector<Option> known_;
  std::map<std::string, std::string, std::less<>> given_;
  std::map<std::string, Json, std::less<>> documents_;
  Origins origins_;
  std::vector<std::string> positionals_;
};

}  // namespace spp::cli
