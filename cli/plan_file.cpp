#include "cli/plan_file.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/parse.hpp"
#include "cli/report_json.hpp"
#include "cli/request.hpp"
#include "planner/packing.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace spp::cli {
namespace {

/// The candidate's "plan" inside a document of ours: a plan's best, a simulation's result, a
/// candidate, or the plan itself.
JsonView plan_inside(const JsonView& document) {
  if (const auto best = document.find("best")) {
    return best->at("plan");
  }
  if (document.value().contains("best")) {
    document.fail("its 'best' is null: no plan of that search fits");
  }
  if (const auto result = document.find("result")) {
    return result->at("plan");
  }
  if (const auto plan = document.find("plan")) {
    return *plan;
  }
  return document.find("format") ? document.at("best").at("plan") : document;
}

std::string order_text(const JsonView& order) {
  if (order.value().is_string()) {
    return order.string();
  }
  std::vector<std::string> axes;
  for (const JsonView& axis : order.elements()) {
    axes.push_back(axis.string());
  }
  return fmt::format("{}", fmt::join(axes, ","));
}

std::int64_t degree_or(const JsonView& plan, std::string_view key, std::int64_t otherwise = 1) {
  const auto value = plan.find(key);
  return value ? value->integer(1, most_gpus) : otherwise;
}

std::int64_t ranks_of(const JsonView& plan) {
  std::int64_t ranks = 1;
  for (const std::string_view degree : {"ulysses", "ring", "tp", "dp", "cfg", "pp"}) {
    ranks *= degree_or(plan, degree);
    if (ranks > most_gpus) {
      plan.fail(fmt::format("{} ranks are more than {}", ranks, most_gpus));
    }
  }
  return ranks;
}

/// What a plan's micro-batches are made of: of a training step's global batch, prompts, or the two
/// branches of each image.
enum class Sequences : std::uint8_t { trained, prompts, branches };

/// Sequences that --batch says, of such a plan: of a micro-batch, or all that a group works on.
std::int64_t batch_of(const JsonView& plan, Sequences of) {
  const std::int64_t sequences = degree_or(plan, "micro_batch");
  const std::int64_t times = degree_or(plan, "micro_batches");
  return of == Sequences::trained ? sequences
         : of == Sequences::prompts
             ? sequences * times
             : std::max<std::int64_t>(1, sequences * times * degree_or(plan, "cfg") / 2);
}

/// Batches, virtual stages, and states that are not cut over all.
void adopt_step(Arguments& arguments, const JsonView& plan, Sequences of) {
  const auto set = [&](std::string_view option, std::string_view key, std::int64_t value) {
    arguments.set_default(option, fmt::format("{}", value), plan.at(key).where());
  };
  if (const std::int64_t stages = degree_or(plan, "virtual_stages"); stages > 1) {
    set("virtual-stages", "virtual_stages", stages);
  }
  if (plan.find("micro_batch")) {
    set("batch", "micro_batch", batch_of(plan, of));
    const std::int64_t times = degree_or(plan, "micro_batches");
    if (times > 1 && of == Sequences::trained) {
      set("global-batch", "micro_batches",
          degree_or(plan, "micro_batch") * times * degree_or(plan, "dp"));
    }
    if (of == Sequences::prompts && degree_or(plan, "pp") > 1) {
      set("prompts", "micro_batch", degree_or(plan, "micro_batch"));
    }
  }
  const std::int64_t replicas = degree_or(plan, "ulysses") * degree_or(plan, "ring") *
                                degree_or(plan, "dp") * degree_or(plan, "cfg");
  if (const std::int64_t group = degree_or(plan, "zero_group", replicas); group != replicas) {
    set("zero-group", "zero_group", group);
  }
}

void adopt_plan(Arguments& arguments, const JsonView& plan, Sequences of) {
  std::vector<std::string_view> degrees{"ulysses", "ring", "tp", "dp", "pp", "ep", "etp"};
  if (of == Sequences::branches) {
    degrees.emplace_back("cfg");
  }
  for (const Parameter* parameter : strategies::parameters()) {
    degrees.push_back(parameter->name);
  }
  std::vector<std::string_view> known{
      "strategy",  "layout",      "order",         "heads",          "rank_order", "cfg",
      "pipeline",  "micro_batch", "micro_batches", "virtual_stages", "zero",       "zero_group",
      "recompute", "offload",     "dispatcher",    "gemm_format",    "groups"};
  known.insert(known.end(), degrees.begin(), degrees.end());
  plan.allow_only(known);
  arguments.set_default("strategy", plan.at("strategy").string(), plan.at("strategy").where());
  for (const std::string_view degree : degrees) {
    const auto given = plan.find(degree);
    if (given || degree == "ulysses" || degree == "ring") {  // without one it is 1
      arguments.set_default(degree, fmt::format("{}", degree_or(plan, degree)),
                            (given ? *given : plan).where());
    }
  }
  adopt_step(arguments, plan, of);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> words{
      {{"layout", "layout"},
       {"heads", "heads-policy"},
       {"rank_order", "rank-order"},
       {"pipeline", "pipeline"},
       {"offload", "offload"},
       {"dispatcher", "dispatcher"},
       {"gemm_format", "gemm-format"},
       {"recompute", "recompute"}}};
  for (const auto& [key, option] : words) {
    if (const auto value = plan.find(key)) {
      arguments.set_default(option, value->string(), value->where());
    }
  }
  if (const auto zero = plan.find("zero")) {
    arguments.set_default("zero", fmt::format("{}", zero->integer(0, 3)), zero->where());
  }
  if (const auto order = plan.find("order"); order && !order_text(*order).empty()) {
    arguments.set_default("order", order_text(*order), order->where());
  }
  arguments.set_default("gpus", fmt::format("{}", ranks_of(plan)), plan.where());
}

void adopt_member(Arguments& arguments, const JsonView& request, std::string_view key,
                  std::string_view option) {
  if (const auto value = request.find(key)) {
    arguments.set_default(option,
                          value->value().is_string()
                              ? value->string()
                              : fmt::format("{}", value->integer(0, INT64_MAX)),
                          value->where());
  }
}

/// A file that a request names stands where it was asked, or beside the plan: "config.json" ->
/// "/folder/of/the/plan/config.json". What is no file stays as it is. InputError: two files could
/// be meant, or there is none.
std::string seen_from_here(const std::string& name, std::string_view option,
                           const std::filesystem::path& plan) {
  const std::filesystem::path beside = plan.parent_path() / name;
  std::error_code ec;
  const bool is_here = std::filesystem::exists(name, ec);
  const bool is_beside = std::filesystem::exists(beside, ec);
  if (is_readable_file(name) && is_readable_file(beside) && !is_same_file(name, beside)) {
    throw InputError(plan.string(),
                     fmt::format("was asked with the file '{}', and there is one here and one "
                                 "beside it: say which with --{}",
                                 name, option));
  }
  if (!is_here && !is_beside && name.ends_with(".json")) {
    throw InputError(plan.string(),
                     fmt::format("was asked with the file '{}', which is neither here nor beside "
                                 "it: give it with --{}",
                                 name, option));
  }
  return is_beside && !is_here ? std::filesystem::absolute(beside).lexically_normal().string()
                               : name;
}

/// The same of a machine's files, which may be several with commas between them.
std::string machine_seen_from_here(const std::string& names, const std::filesystem::path& plan) {
  if (is_readable_file(names) || is_readable_file(plan.parent_path() / names)) {
    return seen_from_here(names, "topology", plan);
  }
  std::string seen;
  for (const std::string_view name : split(names, ',')) {
    seen += (seen.empty() ? "" : ",") + seen_from_here(std::string(name), "topology", plan);
  }
  return seen;
}

/// The same of documents that are drawn from a histogram's file.
std::string documents_seen_from_here(std::string text, const std::filesystem::path& plan) {
  const std::string_view file = LengthDistribution::file_of(text);
  if (!file.empty()) {
    const auto at = static_cast<std::size_t>(file.data() - text.data());
    text.replace(at, file.size(), seen_from_here(std::string(file), "documents", plan));
  }
  return text;
}

/// What was given for an option: a document, which the request holds, or the name of one.
void adopt_file(Arguments& arguments, const JsonView& request, std::string_view option,
                const std::filesystem::path& plan) {
  if (arguments.has(option)) {
    return;
  }
  const auto given = request.find("given");
  if (const auto document = given ? given->find(option) : std::nullopt) {
    arguments.set_default_document(option, document->value(), document->where());
  } else if (const auto name = request.find(option)) {
    arguments.set_default(option,
                          option == "topology" ? machine_seen_from_here(name->string(), plan)
                                               : seen_from_here(name->string(), option, plan),
                          name->where());
  }
}

void adopt_request(Arguments& arguments, const JsonView& request, const std::filesystem::path& plan,
                   CostedOn software) {
  const bool other_model = arguments.has("model") || arguments.has("heads");
  const bool other_machine = software == CostedOn::nothing || arguments.has("topology") ||
                             arguments.has("gpu") || arguments.has("profile");
  if (!other_model) {
    adopt_file(arguments, request, "model", plan);
    if (!request.find("model")) {
      adopt_member(arguments, request, "heads", "heads");
      adopt_member(arguments, request, "kv_heads", "kv-heads");
      adopt_member(arguments, request, "head_dim", "head-dim");
      adopt_member(arguments, request, "value_dim", "value-dim");
      adopt_member(arguments, request, "attention", "attention");
    }
    adopt_member(arguments, request, "mask", "mask");
    adopt_member(arguments, request, "phase", "phase");
  }
  for (const std::string_view option : {"seq", "cached", "batch", "dtype", "guidance"}) {
    adopt_member(arguments, request, option, option);
  }
  if (const auto documents = request.find("documents"); documents && !arguments.has("documents")) {
    arguments.set_default("documents", documents_seen_from_here(documents->string(), plan),
                          documents->where());
  }
  adopt_member(arguments, request, "denoising_steps", "denoising-steps");
  if (const auto imbalance = request.find("expert_imbalance")) {
    arguments.set_default("expert-imbalance", fmt::format("{}", imbalance->number()),
                          imbalance->where());
  }
  adopt_member(arguments, request, "flops_convention", "flops-convention");
  if (!other_machine) {
    for (const std::string_view option : {"topology", "profile"}) {
      adopt_file(arguments, request, option, plan);
    }
    for (const std::string_view option : {"gpu", "intra", "inter", "nodes"}) {
      adopt_member(arguments, request, option, option);
    }
    adopt_member(arguments, request, "gpus_per_node", "gpus-per-node");
    if (const auto bytes = request.find("memory_bytes")) {
      arguments.set_default("memory", fmt::format("{}B", bytes->integer(1, INT64_MAX)),
                            bytes->where());
    }
  }
}

/// All that a request of ours has, a search's and a plan's.
void expect_known(const JsonView& request) {
  std::vector<std::string_view> known = split(
      "model,heads,kv_heads,head_dim,value_dim,attention,seq,cached,batch,"
      "global_batch,phase,mask,documents,dtype,flops_convention,guidance,"
      "denoising_steps,expert_imbalance,stack,topology,profile,gpu,gpus_per_node,intra,inter,nodes,"
      "gpus,memory_bytes,usable_memory_bytes,given,strategy,ulysses,ring,layout,"
      "order,heads_policy,rank_order,tp,dp,cfg,pp,ep,etp,dispatcher,virtual_stages,"
      "pipeline,prompts,zero,zero_group,recompute,offload,gemm_format,framework,objective,top",
      ',');
  for (const Parameter* parameter : strategies::parameters()) {
    known.push_back(parameter->name);
  }
  request.allow_only(known);
}

/// A plan that was changed by hand may no longer answer the request beside it.
void expect_answers(const JsonView& request, const JsonView& plan, Sequences of) {
  const auto expect = [&](std::string_view key, const JsonView& place, std::string_view makes,
                          std::int64_t planned, std::string_view unit) {
    const auto asked = request.find(key);
    if (asked && asked->integer(0, INT64_MAX) != planned) {
      place.fail(fmt::format("{} {}{}, and its request has {}", makes, planned, unit,
                             asked->integer(0, INT64_MAX)));
    }
  };
  std::vector<std::string_view> degrees{"ulysses", "ring", "tp",   "dp",
                                        "pp",      "ep",   "zero", "virtual_stages"};
  for (const Parameter* parameter : strategies::parameters()) {
    degrees.push_back(parameter->name);
  }
  for (const std::string_view degree : degrees) {
    if (const auto planned = plan.find(degree)) {
      expect(degree, *planned, "is", planned->integer(0, most_gpus), "");
    }
  }
  expect("gpus", plan, "has", ranks_of(plan), " ranks (ulysses x ring x tp x dp x cfg x pp)");
  if (const auto micro_batch = plan.find("micro_batch")) {
    expect("batch", *micro_batch, "makes a batch of", batch_of(plan, of), " sequences");
    if (const auto micro_batches = plan.find("micro_batches")) {
      expect(
          "global_batch", *micro_batches, "makes a global batch of",
          degree_or(plan, "micro_batch") * degree_or(plan, "micro_batches") * degree_or(plan, "dp"),
          " sequences");
    }
  }
}

}  // namespace

std::optional<SaidGroups> adopt_plan_file(Arguments& arguments, CostedOn software) {
  const auto file = arguments.find("plan");
  if (!file) {
    return std::nullopt;
  }
  for (const std::string_view option : degree_options()) {
    if (arguments.has(option)) {
      throw InputError(fmt::format("--{}", option),
                       "given together with --plan, whose file says all degrees");
    }
  }
  const Json* given = arguments.document("plan");
  const Json json = given != nullptr ? *given : read_json(*file);
  const JsonView document(json, given != nullptr ? "--plan" : *file);
  if (!json.is_object()) {
    document.fail("is not a plan; expected an object with 'best', 'result' or 'plan'");
  }
  if (const auto format = document.find("format")) {
    constexpr std::array<std::string_view, 2> others{"sp-plan/simulation", "sp-plan/layer"};
    const auto* other = std::ranges::find(others, format->string());
    expect_format(document, other != others.end() ? *other : "sp-plan/plan");
  }
  // What no command of ours wrote need not have one: options say the rest.
  const auto request = document.find("format") ? document.at("request") : document.find("request");
  const auto said = [&](std::string_view key, std::string_view word) {
    const auto value = request ? request->find(key) : std::nullopt;
    return value && value->value().is_string() && value->string() == word;
  };
  const Sequences sequences = said("guidance", "yes")    ? Sequences::branches
                              : said("phase", "prefill") ? Sequences::prompts
                                                         : Sequences::trained;
  const JsonView plan = plan_inside(document);
  if (document.find("format")) {  // ours say all of it
    for (const std::string_view key : {"layout", "order", "heads", "rank_order"}) {
      (void)plan.at(key);
    }
  }
  if (request) {
    expect_known(*request);
    expect_answers(*request, plan, sequences);
  }
  adopt_plan(arguments, plan, sequences);
  if (request) {
    const bool measured = arguments.has("profile");
    adopt_request(arguments, *request, given != nullptr ? "" : *file, software);
    if (software == CostedOn::its_stack && !measured) {
      adopt_member(arguments, *request, "stack", "stack");
    }
  }
  const auto groups = plan.find("groups");
  return groups ? std::optional(SaidGroups{.groups = groups->value(), .where = groups->where()})
                : std::nullopt;
}

void expect_groups(const std::optional<SaidGroups>& said, const StepPlan& plan) {
  if (!said) {
    return;
  }
  const Json groups = to_json(plan).at("groups");
  for (const auto& [axis, ranks] : JsonView(said->groups, said->where).members()) {
    // A document of very many ranks lists none.
    const Json planned = groups.value(axis, Json::array());
    if (ranks.value() != planned && !ranks.value().empty()) {
      throw InputError(
          fmt::format("{}.{}", said->where, axis),
          fmt::format("is not what degrees and order of its plan make: {}", planned.dump()));
    }
  }
}

}  // namespace spp::cli
