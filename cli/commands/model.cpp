// sp-plan model: the models that sp-plan knows.
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/printable.hpp"
#include "base/suggest.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "planner/plan.hpp"
#include "transformer/layer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

namespace spp::cli::commands {
namespace {

std::string billions(std::int64_t parameters) {
  const double billion = static_cast<double>(parameters) / 1e9;
  return parameters > 0
             ? fmt::format(fmt::runtime(billion < 1000 ? "{:.3g} B" : "{:.0f} B"), billion)
             : "";
}

Json to_json(const Model& m) {
  const std::string why = not_planned(m);
  const std::int64_t parameters = m.parameters();
  return {{"name", m.name},
          {"kind", to_string(m.kind)},
          {"available", why.empty()},
          {"not_costed", why.empty() ? Json() : Json(why)},
          {"layers", m.layers},
          {"hidden", m.hidden},
          {"q_heads", m.q_heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"ffn", m.ffn},
          {"vocab", m.vocab},
          {"tied_embeddings", m.tied_embeddings},
          {"mask", to_string(m.mask)},
          {"max_positions", m.max_positions > 0 ? Json(m.max_positions) : Json()},
          {"parameters", parameters > 0 ? Json(parameters) : Json()}};
}

/// What 'show' and 'import' say beside the shape.
Json details(const Model& m) {
  Json json{{"active_parameters", Json()}, {"weights", Json()}, {"layer_kinds", Json::array()}};
  const std::vector<LayerWeights> kinds = layer_weights(m);
  if (kinds.empty()) {
    return json;
  }
  std::int64_t in_layers = 0;
  for (const LayerWeights& kind : kinds) {
    in_layers += kind.layers * kind.parameters;
    json["layer_kinds"].push_back({{"layers", kind.layers},
                                   {"kind", kind.kind},
                                   {"attention", kind.attention},
                                   {"mask", kind.mask},
                                   {"mlp", kind.mlp},
                                   {"parameters", kind.parameters}});
  }
  json["active_parameters"] = m.active_parameters();
  json["weights"] = {{"layers", in_layers},
                     {"embedding", weights_of(first_of(m))},
                     {"head", weights_of(last_of(m, StepKind::train))},
                     {"other", m.extra_parameters}};
  return json;
}

Json card_of(const Model& m, const std::string& file) {
  Json doc = document("model-card");
  doc["file"] = file;
  doc.update(to_json(m));
  doc.update(details(m));
  doc["assumed"] = m.assumed;
  return doc;
}

std::string value_of(const Json& value) {
  return value.is_string()           ? value.get<std::string>()
         : value.is_number_integer() ? human_count(value.get<std::int64_t>())
                                     : value.dump();
}

/// "GQA, causal, dense MLP, 218,112,000 parameters each".
std::string said_of(const Json& kind) {
  std::string text;
  for (const auto& [key, behind] : {std::pair{"attention", ""}, {"mask", ""}, {"mlp", " MLP"}}) {
    if (kind[key] != "none") {
      text += value_of(kind[key]) + behind + ", ";
    }
  }
  return text + value_of(kind["parameters"]) + " parameters each";
}

std::string card_table(const Json& card, const Style& style) {
  std::string text = style.bold(card["name"].get<std::string>()) +
                     fmt::format("  {}\n", card["file"].get<std::string>());
  Table table;
  for (const auto& [key, value] : card.items()) {
    const bool shown = key != "format" && key != "format_version" && key != "tool_version" &&
                       key != "file" && key != "name" && key != "weights" && key != "layer_kinds" &&
                       key != "assumed";
    if (shown && !value.is_null() && value != 0) {  // 0: the model has none, or does not say it
      table.rows.push_back({"  " + key, value_of(value)});
    }
  }
  if (!card["weights"].is_null()) {
    for (const auto& [key, value] : card["weights"].items()) {
      table.rows.push_back({"    in " + key, value_of(value)});
    }
  }
  for (const Json& kind : card["layer_kinds"]) {
    table.rows.push_back(
        {fmt::format("  {} {}", value_of(kind["layers"]), value_of(kind["kind"])), said_of(kind)});
  }
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  for (const Json& line : card["assumed"]) {
    text += style.dim(wrapped("assumed: " + line.get<std::string>(), 2));
  }
  return text;
}

void list_models(Output& output) {
  const ModelLibrary library = models();
  Json doc = document("model-list");
  Json list = Json::array();
  Table table;
  table.right = {false, false, true, true, true, true};
  table.rows.push_back({"model", "kind", "layers", "hidden", "heads", "size", ""});
  for (const std::string& name : library.names()) {
    const Model m = library.load(name, "model");
    list.push_back(to_json(m));
    table.rows.push_back(
        {name, std::string(to_string(m.kind)), m.layers > 0 ? fmt::format("{}", m.layers) : "",
         m.hidden > 0 ? fmt::format("{}", m.hidden) : "",
         m.q_heads > 0 ? fmt::format("{}/{}", m.q_heads, m.kv_heads) : "", billions(m.parameters()),
         not_planned(m).empty() ? "" : "not available yet"});
  }
  doc["models"] = std::move(list);
  output.result(doc, [&](const Style& style) { return headed(table, style); });
}

void show_model(const std::string& name, Output& output) {
  const ModelLibrary library = models();
  const std::filesystem::path file = library.file_of(name, "model");
  const Json card = card_of(library.load(name, "model"), shown_path(file));
  output.result(card, [&](const Style& style) { return card_table(card, style); });
}

/// In the frame of models/*.json: ready to be put there, and read by --model.
Json framed(const Model& m, Json config, const std::string& file) {
  std::string name = m.name;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  Json doc{{"format", "sp-plan/model"}, {"format_version", "1.0"},   {"name", name},
           {"aliases", Json::array()},  {"kind", to_string(m.kind)}, {"config", std::move(config)},
           {"source", {{"path", file}}}};
  if (!m.not_costed.empty()) {
    doc["note"] = m.not_costed;
  }
  return doc;
}

/// A published config.json, or a folder that has one: what is understood of it, and with -o our own
/// file of it, which is another document than what is printed.
void import(const std::string& name, const Arguments& arguments, Output& output) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(name, ignored);
  const std::string file = folder ? (std::filesystem::path(name) / "config.json").string() : name;
  const Json config = read_python_json(file);
  const Model m = read_model(config, file);  // refuses what is not a model
  if (JsonView(config, file).find("format")) {
    throw InputError(file, "is a model of ours already; import takes a published config.json");
  }
  const Json card = card_of(m, shown_path(file));
  const auto table = [&](const Style& style) { return card_table(card, style); };
  const auto target = arguments.find("output");
  if (!target) {
    output.result(card, table);
    return;
  }
  write_file(*target, to_text(framed(m, config, file)));
  Output::text(arguments.has("json") ? to_text(card) : printable_page(table(Style::of_stdout())));
}

void model_command(const Arguments& arguments, Output& output) {
  const std::vector<std::string>& words = arguments.positionals();
  const std::string action = words.empty() ? "list" : words[0];
  const std::vector<std::string> actions{"list", "show", "import"};
  if (std::ranges::find(actions, action) == actions.end()) {
    throw InputError("model",
                     fmt::format("unknown action '{}'{}", action, did_you_mean(action, actions)));
  }
  const std::size_t expected = action == "list" ? 1 : 2;
  if (!words.empty() && words.size() < expected) {
    throw InputError(
        fmt::format("model {}", action),
        action == "show" ? "a NAME is missing (see 'sp-plan model list')" : "a FILE is missing");
  }
  if (words.size() > expected) {
    throw InputError(words[expected], "unexpected (see 'sp-plan model --help')");
  }
  if (action == "list") {
    list_models(output);
  } else if (action == "show") {
    show_model(words[1], output);
  } else {
    import(words[1], arguments, output);
  }
}

}  // namespace

extern const Command model{
    .name = "model",
    .summary = "models: list them, show one, import a config.json",
    .description =
        "Lists the models of the data folder, shows what sp-plan understands of one of them (or of "
        "a config.json): weights, layers by kind, what was assumed. 'import' shows the same of a "
        "published config.json, or of a folder that has one, and writes with -o a file of models/, "
        "which --model reads.",
    .arguments = "list | show NAME|FILE | import FILE|FOLDER",
    .groups = {},
    .options = {},
    .examples =
        "sp-plan model list\nsp-plan model show llama-3.1-8b\nsp-plan model import "
        "Qwen2.5-7B/config.json -o qwen.json",
    .run = model_command,
};

}  // namespace spp::cli::commands
