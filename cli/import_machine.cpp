#include "cli/import_machine.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "calibrate/nccl.hpp"
#include "machine/import/format.hpp"

#include <algorithm>

namespace spp::cli {
namespace {

/// Links that were measured stand in the document in full, the others by name.
void take_measured(Json& link, const Json& before, const Json& after) {
  if (before != after) {
    link["transport"] = after;
    link.erase("spread");  // that of the measurement counts
  }
}

/// Of `tests`, those between hosts are left out if the machine has no network.
void measure(Json& document, std::vector<NcclTest> tests, const Catalog& catalog) {
  const std::string where = document.at("name").get<std::string>();
  MachineSpec known = catalog.machine_of(document, where);
  std::vector<std::string> said;
  const bool any =
      std::ranges::any_of(tests, [](const NcclTest& t) { return t.name != "all_reduce"; });
  if (any) {
    const Json before = catalog.whole_machine_of(document, where);
    MachineDocument described(before);
    calibrate::put_nccl_tests(described, known, tests, said);
    const Json after = described.take();
    take_measured(document["intra"], before.at("intra").at("transport"),
                  after.at("intra").at("transport"));
    if (known.inter) {
      take_measured(document["inter"], before.at("inter").at("transport"),
                    after.at("inter").at("transport"));
    }
    for (const NcclTest& t : tests) {
      document["assumptions"].push_back(
          {{"what", t.hosts.size() > 1 ? "inter.measured" : "intra.measured"},
           {"value", fmt::format("{} on {} ranks of {} hosts, {} sizes", t.name, t.ranks(),
                                 t.hosts.size(), t.rows.size())},
           {"source", t.file}});
    }
  } else {
    said.push_back(
        fmt::format("{}: only all_reduce, which says nothing of how fast the messages of "
                    "plans are (alltoall, sendrecv, all_gather would)",
                    tests.front().file));
  }
  for (const std::string& text : said) {
    const std::size_t colon = text.find(": ");
    document["assumptions"].push_back({{"what", "nccl_tests"},
                                       {"value", text.substr(colon + 2)},
                                       {"source", text.substr(0, colon)}});
  }
}

}  // namespace

std::vector<TextFile> files_named(const std::string& names, std::string_view option) {
  if (is_readable_file(names)) {
    return {{.name = names, .text = read_text_file(names, option)}};
  }
  std::vector<TextFile> files;
  for (const std::string_view piece : split(names, ',')) {
    const std::string name(piece);
    if (!is_readable_file(name)) {
      return {};
    }
    files.push_back({.name = name, .text = read_text_file(name, option)});
  }
  return files;
}

bool is_own_document(const TextFile& file) {
  const std::size_t first = file.text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || file.text[first] != '{') {
    return false;
  }
  const Json json = parse_json(file.text, file.name);
  return json.contains("format") || !json.contains("results");
}

ImportedMachine import_machine(std::vector<TextFile> files, const imports::MergeOptions& options,
                               const Catalog& catalog) {
  std::vector<imports::Source> sources;
  for (TextFile& file : files) {
    sources.push_back(imports::source_of(std::move(file.text), std::move(file.name)));
  }
  const imports::Facts facts = imports::read_facts(sources);
  imports::Imported imported = imports::merge(facts, options, catalog);
  if (!imported.tests.empty()) {
    measure(imported.machine, std::move(imported.tests), catalog);
  }
  const std::string where = imported.machine.at("name").get<std::string>();
  MachineSpec spec = catalog.machine_of(imported.machine, where);
  return {
      .document = std::move(imported.machine), .spec = std::move(spec), .nodes = imported.nodes};
}

}  // namespace spp::cli
