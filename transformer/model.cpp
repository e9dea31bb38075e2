#include "transformer/model.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/suggest.hpp"
#include "schedule/documents.hpp"
#include "schedule/problem.hpp"

#include <algorithm>
#include <cctype>
#include <map>

namespace spp {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// "Qwen/Qwen2.5-7B" -> "Qwen2.5-7B".
std::string_view without_organisation(std::string_view alias) {
  const std::size_t slash = alias.rfind('/');
  return slash == std::string_view::npos ? alias : alias.substr(slash + 1);
}

void add_once(std::vector<std::string>& keys, std::string key) {
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
    keys.push_back(std::move(key));
  }
}

}  // namespace

std::string_view to_string(ModelKind kind) { return kind == ModelKind::llm ? "llm" : "dit"; }

Mask LayerMask::over(std::int64_t tokens, std::vector<std::int64_t> document_ends) const {
  if (chunk > 0 && chunk < tokens) {
    document_ends = chunk_ends(std::move(document_ends), tokens, chunk);
  }
  return {.kind = kind, .window = window, .document_ends = std::move(document_ends)};
}

std::string to_string(const LayerMask& mask) {
  const std::string sees = to_string(Mask{.kind = mask.kind, .window = mask.window});
  return mask.chunk > 0 ? fmt::format("{}, chunks of {}", sees, mask.chunk) : sees;
}

ModelLibrary::ModelLibrary(const std::filesystem::path& folder) {
  std::error_code ec;
  if (!std::filesystem::is_directory(folder, ec)) {
    throw InputError(folder.string(), "is not a folder of models");
  }
  std::map<std::string, std::string> owner;  // key -> file
  for (const auto& file : files_in(folder, ".json")) {
    const Json document = read_json(file);
    const JsonView view(document, file.string());
    expect_format(view, "sp-plan/model");
    Entry entry{.name = view.at("name").string(), .file = file, .keys = {}};
    if (entry.name != file.stem().string()) {
      view.at("name").fail(
          fmt::format("'{}' is not the file's name '{}'", entry.name, file.stem().string()));
    }
    add_once(entry.keys, lower(entry.name));
    if (const auto aliases = view.find("aliases")) {
      for (const JsonView& alias : aliases->elements()) {
        add_once(entry.keys, lower(alias.string()));
        add_once(entry.keys, lower(without_organisation(alias.string())));
      }
    }
    for (const std::string& key : entry.keys) {
      const auto [at, added] = owner.emplace(key, file.string());
      if (!added) {
        view.fail(fmt::format("the name '{}' is already that of {}", key, at->second));
      }
    }
    entries_.push_back(std::move(entry));
  }
}

std::vector<std::string> ModelLibrary::names() const {
  std::vector<std::string> result;
  result.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    result.push_back(entry.name);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::filesystem::path ModelLibrary::file_of(std::string_view name, std::string_view where) const {
  const std::string key = lower(name);
  for (const Entry& entry : entries_) {
    if (std::find(entry.keys.begin(), entry.keys.end(), key) != entry.keys.end()) {
      return entry.file;
    }
  }
  std::filesystem::path path(name);
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec) &&
      std::filesystem::exists(path / "config.json", ec)) {
    return path / "config.json";
  }
  if (is_readable_file(path) || (path.has_parent_path() && std::filesystem::exists(path, ec))) {
    return path;  // what is no file says so when it is read
  }
  if (path.extension() == ".json") {
    throw InputError(where, fmt::format("there is no model file '{}'", name));
  }
  // "meta-llama/Llama-3.1-70B-Instruct": of whom, and tuned for what, does not change a shape.
  std::string_view bare = without_organisation(key);
  for (const std::string_view ending : {"-instruct", "-it", "-chat", "-base", "-hf"}) {
    if (bare.ends_with(ending)) {
      bare.remove_suffix(ending.size());
    }
  }
  for (const std::string_view start : {"", "meta-"}) {
    for (const Entry& entry : entries_) {
      if (bare.starts_with(start) &&
          std::ranges::find(entry.keys, bare.substr(start.size())) != entry.keys.end()) {
        return entry.file;
      }
    }
  }
  const std::vector<std::string> known = names();
  throw InputError(where,
                   fmt::format("unknown model '{}'{}{}", name, did_you_mean(bare, known),
                               nearest_name(bare, known).empty()
                                   ? "; nothing is downloaded: give the path of its config.json"
                                   : ""));
}

Model ModelLibrary::load(std::string_view name, std::string_view where) const {
  const std::filesystem::path file = file_of(name, where);
  return read_model(read_python_json(file), file.string());
}

}  // namespace spp
