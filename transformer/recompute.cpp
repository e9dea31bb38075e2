#include "transformer/recompute.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <vector>

namespace spp {

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  throw InternalError("no such Recompute");
}

Recompute parse_recompute(std::string_view text, std::string_view where) {
  std::vector<std::string> names;
  for (const Recompute value : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (to_string(value) == text) {
      return value;
    }
    names.emplace_back(to_string(value));
  }
  throw InputError(where,
                   fmt::format("unknown recomputation '{}'{}", text, did_you_mean(text, names)));
}

std::string_view to_string(RecomputeModule module) {
  switch (module) {
    case RecomputeModule::core_attention:
      return "core_attention";
    case RecomputeModule::norms:
      return "norms";
    case RecomputeModule::activation:
      return "activation";
    case RecomputeModule::mlp:
      return "mlp";
    case RecomputeModule::moe:
      return "moe";
    case RecomputeModule::mla_up:
      return "mla_up";
    case RecomputeModule::shared_experts:
      return "shared_experts";
    case RecomputeModule::every_second_gemm:
      return "every_second_gemm";
    case RecomputeModule::all_but_attention:
      return "all_but_attention";
  }
  throw InternalError("no such RecomputeModule");
}

namespace {

RecomputeModule parse_module(std::string_view text, std::string_view where) {
  std::vector<std::string> names;
  for (const RecomputeModule module : all_recompute_modules) {
    if (to_string(module) == text) {
      return module;
    }
    names.emplace_back(to_string(module));
  }
  throw InputError(where, fmt::format("unknown module '{}' of selective recomputation{}", text,
                                      did_you_mean(text, names)));
}

}  // namespace

std::string to_string(ModuleSet modules) {
  std::string text;
  for (const RecomputeModule module : all_recompute_modules) {
    if (modules.contains(module)) {
      text += text.empty() ? "" : ",";
      text += to_string(module);
    }
  }
  return text;
}

std::string to_string(const Recomputation& recomputation) {
  std::string text(to_string(recomputation.kind));
  if (recomputation.kind == Recompute::selective && recomputation.modules != usual_modules) {
    text += ":" + to_string(recomputation.modules);
  }
  return text;
}

Recomputation parse_recomputation(std::string_view text, std::string_view where) {
  const std::size_t colon = text.find(':');
  Recomputation result{.kind = parse_recompute(text.substr(0, colon), where)};
  if (colon == std::string_view::npos) {
    return result;
  }
  if (result.kind != Recompute::selective) {
    throw InputError(where, fmt::format("'{}': only selective recomputation has modules", text));
  }
  result.modules = {};
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    const RecomputeModule module = parse_module(rest.substr(0, comma), where);
    if (result.modules.contains(module)) {
      throw InputError(where,
                       fmt::format("'{}': '{}' stands there twice", text, to_string(module)));
    }
    result.modules.insert(module);
    if (comma == std::string_view::npos) {
      return result;
    }
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace spp
