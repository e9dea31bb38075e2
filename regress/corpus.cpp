// Files, their machines and families; points: corpus_point.cpp.
#include "regress/corpus.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "regress/corpus_keys.hpp"
#include "regress/corpus_point.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace spp::regress {
namespace {

/// A rate without its unit, which the key says.
std::optional<double> rate(const JsonView& object, std::string_view key, std::string_view unit) {
  const auto view = object.find(key);
  if (!view) {
    return std::nullopt;
  }
  const double value = view->number();
  (void)bandwidth_from(value, unit, view->where());
  return value;
}

CorpusMachine read_machine(const JsonView& view) {
  refuse_slips(view, {"gpu", "gpus_per_node", "nodes", "intra", "inter", "like", "notes"});
  CorpusMachine m;
  if (const auto gpu = view.find("gpu")) {
    m.gpu = gpu->string();
  }
  if (const auto like = view.find("like"); like && (m.gpu.empty() || m.gpu == "unknown")) {
    m.gpu = like->string();
  }
  if (const auto count = view.find("gpus_per_node")) {
    m.gpus_per_node = static_cast<int>(count->integer(1, 1024));
  }
  if (const auto nodes = view.find("nodes")) {
    m.nodes = static_cast<int>(nodes->integer(1, most_count));
  }
  if (const auto intra = view.find("intra")) {
    refuse_slips(*intra, {"kind", "per_gpu_GBps", "measured", "notes"});
    if (const auto kind = intra->find("kind")) {
      m.intra_kind = kind->string();
    }
    m.intra_GBps = rate(*intra, "per_gpu_GBps", "GB/s");
  }
  if (const auto inter = view.find("inter")) {
    refuse_slips(*inter, {"kind", "per_node_Gbps", "nics_per_node", "measured", "notes"});
    if (const auto kind = inter->find("kind")) {
      m.inter_kind = kind->string();
    }
    m.inter_Gbps = rate(*inter, "per_node_Gbps", "Gb/s");
    if (const auto nics = inter->find("nics_per_node")) {
      m.nics = static_cast<int>(nics->integer(1, 1024));
    }
    if (const auto measured = inter->find("measured")) {
      m.nic_GBps = rate(*measured, "p2p_8_pairs_GBps_each", "GB/s");
    }
  }
  return m;
}

/// How a source shows its numbers.
constexpr std::array<std::string_view, 4> trusts{"log", "table", "chart", "secondary"};

std::string read_trust(const JsonView& view) {
  std::string word = view.string();
  if (std::ranges::find(trusts, word) == trusts.end()) {
    view.fail(fmt::format("unknown '{}'; it is one of {}", word, fmt::join(trusts, ", ")));
  }
  return word;
}

}  // namespace

std::string_view parse_family(std::string_view text, std::string_view where) {
  const auto at = std::ranges::find(families, text);
  if (at == families.end()) {
    const std::vector<std::string> words(families.begin(), families.end());
    throw InputError(where, fmt::format("unknown '{}'{}", text, did_you_mean(text, words)));
  }
  return *at;
}

std::string_view family_of(const CorpusFile& file) {
  std::array<int, families.size()> count{};
  for (const Point& p : file.points) {
    std::string_view family = family_of_op(p.op);
    if (family.empty()) {
      // Inference servers time the writing of their caches, too.
      const bool serving = p.scope == Scope::kernel && !p.library.empty();
      // Attention over documents of unknown lengths is judged apart: they are assumed.
      const bool packed = p.scope == Scope::attention && p.packs_unknown();
      family = serving ? "serving" : packed ? "packed" : to_string(p.scope);
    }
    ++count.at(static_cast<std::size_t>(std::ranges::find(families, family) - families.begin()));
  }
  return families.at(static_cast<std::size_t>(std::ranges::max_element(count) - count.begin()));
}

CorpusFile read_corpus_file(const std::filesystem::path& path) {
  const Json document = read_json(path);
  const JsonView view(document, path.string());
  expect_format(view, "sp-plan/corpus");
  refuse_slips(view, {"format", "format_version", "name", "source", "trust", "noise", "machine",
                      "stack", "workload", "points", "notes", "raw"});
  CorpusFile file;
  file.path = path;
  file.name = view.at("name").string();
  if (file.name != path.stem().string()) {
    view.at("name").fail(
        fmt::format("'{}' is not the file's name ('{}')", file.name, path.stem().string()));
  }
  file.stack = view.at("stack").string();
  file.trust = read_trust(view.at("trust"));
  if (const auto notes = view.find("notes"); notes && notes->value().is_string()) {
    file.notes = notes->string();
  }
  file.title = view.at("source").at("title").string();
  const auto said = view.at("source").find("year");
  const int year = said ? static_cast<int>(said->integer(1950, 2100)) : 0;
  const auto noise = view.find("noise");
  const double usual_noise = noise ? noise->number(0, 1) : 0;
  const CorpusMachine machine = read_machine(view.at("machine"));
  const JsonView workload = view.at("workload");
  std::set<std::string> unread;
  refuse_slips_of_point(workload, unread);
  std::int64_t index = 0;
  for (const JsonView& point : view.at("points").elements()) {
    file.points.push_back(read_point(point, workload, index++, usual_noise, machine, unread));
    file.points.back().year = year;
  }
  if (contains(file.notes, "Optimizer on the CPU")) {
    for (Point& point : file.points) {
      point.offload = point.offload.value_or(Offload::optimizer);
    }
  }
  file.unread.assign(unread.begin(), unread.end());
  if (file.points.empty()) {
    view.at("points").fail("is empty: a file of measurements has one at least");
  }
  return file;
}

std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder) {
  std::error_code ec;
  if (!std::filesystem::is_directory(folder, ec)) {
    throw InputError(folder.string(), "there is no such folder of corpus files (*.json)");
  }
  std::vector<std::filesystem::path> files = files_in(folder, ".json");
  if (files.empty()) {
    throw InputError(folder.string(), "holds no corpus files (*.json)");
  }
  return files;
}

}  // namespace spp::regress
