// What snippets are written with: command lines, torchrun, lists of ranks. Degrees of a launch are
// written here or not at all, so that a plan with more axes needs one change.
#pragma once

#include "planner/framework.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spp::frameworks {

/// A shell command, an argument a line, with a backslash at the end of all lines but the last.
class Command {
 public:
  explicit Command(std::string start) : lines_{std::move(start)} {}
  Command& add(std::string_view word) {
    lines_.emplace_back(word);
    return *this;
  }
  template <class T>
  Command& add(std::string_view option, const T& value) {
    return add(fmt::format("{} {}", option, value));
  }
  /// Ends with a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::string> lines_;
};

/// The start of a line of torchrun, on all nodes of the launch: NODE_RANK and MASTER_ADDR are the
/// shell's. `program`: "train.py" or "-m package.module".
std::string torchrun(const Launch& launch, std::string_view program);

/// GPUs of every node; with an odd number in all, of every node but the last.
int processes_per_node(const Launch& launch);

/// Notes on what a launch on several nodes wants, for launchers like torchrun's.
void note_nodes(Snippet& snippet, const Launch& launch);
/// Notes how many prompts an engine computes together, of those that arrive together, if not all.
void note_prompts(Snippet& snippet, const Launch& launch, std::string_view by);
/// Tokens of a server's context: those of a prompt and of the answer at least, of which it keeps
/// `kept_back` free. A longer one than its model is made for it takes where `allows` is set.
std::int64_t context_length(Snippet& snippet, const Launch& launch, std::int64_t kept_back,
                            std::string_view by, std::string_view allows);
/// Notes that sequences are padded, if they are: by whom is the framework's to say.
void note_padding(Snippet& snippet, const Launch& launch, std::string_view by);

/// The process group of a sequence's ranks, where those of others run beside them: a line of
/// Python.
std::string sequence_group(const Launch& launch, std::string_view name);

/// "[[0, 1], [2, 3]]", as Python and JSON write it.
std::string rank_lists(const std::vector<std::vector<int>>& groups);
/// "bfloat16", as PyTorch, JAX and NumPy name it.
std::string_view long_name(DType dtype);
/// "True" or "False".
std::string_view python(bool value);

/// Variables that several frameworks want.
Variable expandable_segments();

}  // namespace spp::frameworks
