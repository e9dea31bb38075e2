// Which GPU of topologies/gpus/ a file means: by the driver's name, or by its PCI device, both of
// which are aliases there; of two that are called alike, by memory.
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "machine/import/draft.hpp"
#include "machine/import/source.hpp"
#include "machine/machine_json.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

namespace spp::imports {
namespace {

constexpr double memory_alike = 0.04;  // ECC, and what the driver keeps, count differently

/// "NVIDIA A100-SXM4-80GB" -> "a100-sxm4-80gb": how aliases are written.
std::string alias_of(std::string_view name) {
  std::string alias;
  for (const char c : trimmed(name)) {
    const bool upper = c >= 'A' && c <= 'Z';
    alias += c == ' ' || c == '_' ? '-' : upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const std::string_view maker : {"nvidia-", "tesla-", "quadro-"}) {
    if (alias.starts_with(maker)) {
      alias.erase(0, maker.size());
    }
  }
  return alias;
}

bool is_pci_device(std::string_view name) { return name.starts_with("10de:"); }

bool has_memory(const GpuSpec& gpu, Bytes memory) {
  return std::abs(memory.as_double() / gpu.memory.value.as_double() - 1) < memory_alike;
}

class KnownGpus {
 public:
  explicit KnownGpus(const Catalog& catalog) {
    for (const std::string& name : catalog.gpu_names()) {  // without what they refer to
      const std::filesystem::path file = catalog.file_of(name, "gpus");
      const Json json = read_json(file);
      gpus_.push_back(read_gpu(JsonView(json, file.string())));
    }
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      by_alias_.emplace(alias_of(gpus_[i].name), i);
      for (const std::string& alias : gpus_[i].aliases) {
        by_alias_.emplace(alias_of(alias), i);
      }
    }
  }

  /// Nothing if no GPU is called that.
  [[nodiscard]] const GpuSpec* find(const GpuFact& fact) const {
    std::string alias = alias_of(fact.name);
    const bool cut = alias.ends_with("...");
    if (cut) {
      alias.resize(alias.size() - 3);
    }
    const GpuSpec* found = nullptr;
    if (cut && !alias.empty() && fact.memory) {
      for (const auto& [known, index] : by_alias_) {
        if (known.starts_with(alias) && has_memory(gpus_[index], *fact.memory)) {
          found = &gpus_[index];
        }
      }
      return found;
    }
    const auto named = by_alias_.find(alias);
    if (named == by_alias_.end()) {
      return nullptr;
    }
    found = &gpus_[named->second];
    if (fact.memory && !has_memory(*found, *fact.memory)) {
      const std::string_view kind = first_word(found->name);
      for (const GpuSpec& gpu : gpus_) {
        if (first_word(gpu.name) == kind && has_memory(gpu, *fact.memory)) {
          return &gpu;
        }
      }
    }
    return found;
  }

  [[nodiscard]] std::string like(std::string_view name) const {
    std::vector<std::string> all;
    for (const auto& [alias, index] : by_alias_) {
      if (!is_pci_device(alias)) {
        all.push_back(alias);
      }
    }
    const std::string near = nearest_name(alias_of(name), all);
    return near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near);
  }

  /// Of a compute capability: "h100-80g-sxm, h200-141g-sxm".
  [[nodiscard]] std::string of_capability(int capability) const {
    std::vector<std::string_view> names;
    for (const GpuSpec& gpu : gpus_) {
      if (gpu.compute_capability == capability) {
        names.push_back(gpu.name);
      }
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

 private:
  static std::string_view first_word(std::string_view name) {
    return name.substr(0, name.find('-'));
  }

  std::vector<GpuSpec> gpus_;
  std::map<std::string, std::size_t> by_alias_;
};

std::string title_of(const GpuFact& fact) {
  return fact.index ? fmt::format("GPU {}", *fact.index) : "the GPU";
}

struct Named {
  const GpuSpec* gpu = nullptr;
  const GpuFact* fact = nullptr;
};

[[noreturn]] void refuse_unknown(const GpuFact& fact, const KnownGpus& known) {
  throw InputError(to_string(fact.place),
                   fmt::format("'{}' is no GPU of topologies/gpus/{}; --gpu NAME takes the nearest",
                               fact.name, known.like(fact.name)));
}

/// What all files that name a GPU agree on; nothing if none does. `label`s only if nobody else
/// speaks.
Named named_gpu(const Draft& d, const KnownGpus& known, bool labels) {
  Named first;
  for (const GpuFact& fact : d.facts.gpus) {
    if (fact.name.empty() || fact.label != labels) {
      continue;
    }
    const GpuSpec* gpu = known.find(fact);
    if (gpu == nullptr) {
      if (is_pci_device(fact.name) || labels) {
        continue;
      }
      refuse_unknown(fact, known);
    }
    if (first.gpu == nullptr) {
      first = {.gpu = gpu, .fact = &fact};
    } else if (gpu != first.gpu) {
      throw InputError(
          to_string(fact.place),
          fmt::format("{} is {}, but {} at {} is {}: GPUs of a machine are of one kind here; "
                      "--gpu NAME takes all as one",
                      title_of(fact), gpu->name, title_of(*first.fact),
                      to_string(first.fact->place), first.gpu->name));
    }
  }
  return first;
}

[[noreturn]] void refuse_nameless(const Draft& d, const KnownGpus& known) {
  std::string hint;
  std::string where = d.files();
  for (const GpuFact& fact : d.facts.gpus) {
    if (fact.compute_capability > 0) {
      const std::string alike = known.of_capability(fact.compute_capability);
      hint = fmt::format("; of compute capability {}.{} {}", fact.compute_capability / 10,
                         fact.compute_capability % 10,
                         alike.empty() ? "topologies/gpus/ has none" : "are " + alike);
      where = to_string(fact.place);
      break;
    }
  }
  if (hint.empty() && !d.facts.layouts.empty()) {
    where = to_string(d.facts.layouts.front().place);
  }
  throw InputError(where, fmt::format("says nowhere which GPUs these are: give --gpu NAME, or add "
                                      "the output of nvidia-smi{}",
                                      hint));
}

void expect_capability(const Draft& d, const GpuSpec& gpu) {
  for (const GpuFact& fact : d.facts.gpus) {
    const int capability = fact.compute_capability;
    if (capability > 0 && capability != gpu.compute_capability) {
      throw InputError(to_string(fact.place),
                       fmt::format("{} has compute capability {}.{}, but {} has {}.{}",
                                   title_of(fact), capability / 10, capability % 10, gpu.name,
                                   gpu.compute_capability / 10, gpu.compute_capability % 10));
    }
  }
}

/// The GPU as the machine's document names it; with a memory of its own, in place of its name.
Json document_of(Draft& d, const GpuSpec& gpu) {
  for (const GpuFact& fact : d.facts.gpus) {
    if (!fact.memory || has_memory(gpu, *fact.memory)) {
      continue;
    }
    const double gib = fact.memory->as_double() / static_cast<double>(1 << 30);
    d.assume("gpu.memory",
             fmt::format("{:.2f} GiB, where {} has {:.2f}", gib, gpu.name,
                         gpu.memory.value.as_double() / static_cast<double>(1 << 30)),
             to_string(fact.place));
    Json json = read_json(d.catalog.file_of(gpu.name, "gpu"));
    json["memory"] = d.numbers.quantity(gib, "GiB", to_string(fact.place), 0.0);
    return json;
  }
  return gpu.name;
}

}  // namespace

void expect_whole_gpus(Draft& d) {
  for (const GpuFact& fact : d.facts.gpus) {
    if (fact.mig && d.options.gpu.empty()) {
      throw InputError(to_string(fact.place),
                       fmt::format("{} is divided (MIG): its parts cannot talk to each other, and "
                                   "plans are made for whole GPUs; with --gpu NAME they are "
                                   "planned as if MIG were off",
                                   title_of(fact)));
    }
    if (fact.mig) {
      d.assume("gpu.mig", "off, though the file shows GPUs that are divided",
               to_string(fact.place));
      return;
    }
  }
}

GpuSpec gpu_of_node(Draft& d, Json& document) {
  const KnownGpus known(d.catalog);
  if (!d.options.gpu.empty()) {
    GpuSpec gpu = d.catalog.gpu(d.options.gpu, "--gpu");
    for (const GpuFact& fact : d.facts.gpus) {
      const GpuSpec* other = fact.name.empty() ? nullptr : known.find(fact);
      if (!fact.name.empty() && !fact.label && !is_pci_device(fact.name) &&
          (other == nullptr || other->name != gpu.name)) {
        d.assume("gpu", fmt::format("{}, though {} is '{}'", gpu.name, title_of(fact), fact.name),
                 fmt::format("--gpu, against {}", to_string(fact.place)));
        break;
      }
    }
    document = d.options.gpu.find('/') == std::string::npos ? Json(gpu.name) : Json(d.options.gpu);
    return gpu;
  }
  Named named = named_gpu(d, known, false);
  if (named.gpu == nullptr) {
    named = named_gpu(d, known, true);
    if (named.gpu == nullptr) {
      refuse_nameless(d, known);
    }
    d.assume("gpu", fmt::format("{}, by the label '{}'", named.gpu->name, named.fact->name),
             to_string(named.fact->place));
  }
  expect_capability(d, *named.gpu);
  document = document_of(d, *named.gpu);
  return d.catalog.gpu(named.gpu->name, to_string(named.fact->place));
}

}  // namespace spp::imports
