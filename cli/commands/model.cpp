// sp-plan model: the models that sp-plan knows.
#include "transformer/model.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "planner/plan.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

namespace spp::cli::commands {
namespace {

std::string billions(std::int64_t parameters) {
  return parameters > 0 ? fmt::format("{:.3g} B", static_cast<double>(parameters) / 1e9) : "";
}

Json to_json(const Model& m) {
  const std::string why = not_planned(m);
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
          {"parameters", m.not_costed.empty() ? Json(m.parameters()) : Json()}};
}

void list(Output& output) {
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
  output.result(doc, [&](const Style& style) {
    std::string text;
    for (const std::string& line : table.lines()) {
      text += (text.empty() ? style.bold(line) : line) + "\n";
    }
    return text;
  });
}

void show(const std::string& name, Output& output) {
  const ModelLibrary library = models();
  const std::filesystem::path file = library.file_of(name, "model");
  const Model m = library.load(name, "model");
  Json doc = document("model-card");
  doc["file"] = shown_path(file);
  const Json shape = to_json(m);
  doc.update(shape);
  doc["assumed"] = m.assumed;
  output.result(doc, [&](const Style& style) {
    std::string text = style.bold(m.name) + fmt::format("  {}\n", shown_path(file));
    Table table;
    for (const auto& [key, value] : shape.items()) {
      if (!value.is_null() && key != "name") {
        table.rows.push_back({"  " + key, value.is_string() ? value.get<std::string>()
                                          : value.is_number_integer()
                                              ? human_count(value.get<std::int64_t>())
                                              : value.dump()});
      }
    }
    for (const std::string& line : table.lines()) {
      text += line + "\n";
    }
    for (const std::string& line : m.assumed) {
      text += style.dim(wrapped("assumed: " + line, 2));
    }
    return text;
  });
}

/// A published config.json in the frame of models/*.json: ready to be put there.
void import(const std::string& file, Output& output) {
  Json config = read_json(file);
  const Model m = read_model(config, file);  // refuses what is not a model
  if (JsonView(config, file).find("format")) {
    throw InputError(file, "is a model of ours already; import takes a published config.json");
  }
  std::string name = m.name;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  Json doc{{"format", "sp-plan/model"}, {"format_version", "1.0"},   {"name", name},
           {"aliases", Json::array()},  {"kind", to_string(m.kind)}, {"config", std::move(config)},
           {"source", {{"path", file}}}};
  if (!m.not_costed.empty()) {
    doc["note"] = m.not_costed;
  }
  output.result(doc, [&](const Style&) { return to_text(doc); });
}

void run(const Arguments& arguments, Output& output) {
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
    list(output);
  } else if (action == "show") {
    show(words[1], output);
  } else {
    import(words[1], output);
  }
}

}  // namespace

extern const Command model{
    .name = "model",
    .summary = "models: list them, show one, import a config.json",
    .description =
        "Lists the models of the data folder, shows what sp-plan understands of one of them (or of "
        "a config.json), "
        "or puts a published config.json into the frame of models/.",
    .arguments = "list | show NAME|FILE | import FILE",
    .groups = {},
    .options = {},
    .examples =
        "sp-plan model list\nsp-plan model show llama-3.1-8b\nsp-plan model import "
        "Qwen2.5-7B/config.json -o qwen.json",
    .run = run,
};

}  // namespace spp::cli::commands
