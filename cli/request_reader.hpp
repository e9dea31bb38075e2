// Inside of read_job(): one pass over the options, in three files.
#pragma once

#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/import_machine.hpp"
#include "cli/request.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spp::cli {

constexpr std::int64_t most_ranks = most_gpus;

/// What `read` returns; what it says is wrong with an option, said of where the option's value
/// stands.
template <class Read>
auto naming_origins(const Origins& origins, const Read& read) {
  try {
    return read();
  } catch (const InputError& e) {
    const auto at = origins.find(e.where());
    if (at == origins.end()) {
      throw;
    }
    throw InputError(at->second, e.message());
  }
}

class Reader {
 public:
  Reader(const Arguments& arguments, Job& job) : args_(arguments), job_(job) {}

  void work();
  void machine(MachineNeed need);
  void degrees();
  void title();

 private:
  Request& request() { return job_.request; }
  void resolve(std::string_view key, Json value) {
    job_.resolved[std::string(key)] = std::move(value);
  }
  /// A document that a caller gave where a file's name would stand: no name finds it again.
  void resolve_given(std::string_view option, const Json& document) {
    job_.resolved["given"][std::string(option)] = document;
  }
  void assume(std::string what, std::string value, std::string source = "default") {
    job_.assumptions.push_back(
        {.what = std::move(what), .value = std::move(value), .source = std::move(source)});
  }
  /// The option's text, or the default, which is then listed.
  std::string text_or(std::string_view option, std::string_view what, std::string_view otherwise,
                      std::string source = "default") {
    if (const auto text = args_.find(option)) {
      return *text;
    }
    assume(std::string(what), std::string(otherwise), std::move(source));
    return std::string(otherwise);
  }
  int count(std::string_view option, std::string_view text, std::int64_t most) const {
    return static_cast<int>(parse_int(text, fmt::format("--{}", option), 1, most));
  }
  std::optional<int> count(std::string_view option, std::int64_t most) const {
    const auto text = args_.find(option);
    return text ? std::optional(count(option, *text, most)) : std::nullopt;
  }

  void attention_shape();
  void model(const std::string& name);
  void bare_shape();
  StepPhase phase_of(const std::string& text);
  void mask_and_phase();
  void documents();
  void cached();
  void positions();
  void drawn_documents(const std::string& text);
  void batch();
  void stack();
  void ranks_without_machine();
  MachineSpec machine_spec();
  MachineSpec named_machine(const std::string& name);
  MachineSpec imported_machine(std::vector<TextFile> files, const Catalog& catalog);
  std::pair<int, std::string> usual_nodes(const MachineSpec& spec) const;
  MachineSpec described_machine(MachineSpec machine, std::string_view because);
  MachineSpec composed_machine();
  MachineSpec profiled_machine();
  void memory(MachineSpec& machine);
  void list_constants(const MachineSpec& machine);
  void step_degrees();
  void assume_host();
  void guidance();
  void imbalance();
  void check_idle();
  void check_degrees();
  void check_step();
  void check_layers();

  const Arguments& args_;
  Job& job_;
  bool imported_ = false;  // the machine is put together from files of others
  int listed_nodes_ = 0;   // that these files are of; 0: not said
};

}  // namespace spp::cli
