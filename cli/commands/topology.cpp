// sp-plan topology: the machines and GPUs that sp-plan knows.
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/explain_machine.hpp"
#include "cli/human.hpp"
#include "cli/import_machine.hpp"
#include "cli/report_json.hpp"
#include "report/page.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace spp::cli::commands {
namespace {

constexpr std::array own_options{
    Option{"gpu", "NAME", "import, check: these GPUs, where the files do not say it"},
    Option{"gpus-per-node", "N", "import, check: GPUs of a node, where the files do not agree"},
    Option{"inter", "TRANSPORT:NICSxRATE", "import, check: the network, such as ib:8x400Gb/s"},
    Option{.name = "draw",
           .value = "FILE",
           .help = "check: draw the machine into FILE, as SVG",
           .writes = true},
    Option{"name", "NAME", "import: what the machine is called (default: 8xh100-80g-sxm)"},
};

std::string inter_text(const MachineSpec& m) {
  return m.inter ? fmt::format("{} {}x{:.0f}Gb/s", m.inter->transport.name, m.inter->nics.value,
                               m.inter->rate_per_nic.value.value() * 8e-9)
                 : "none";
}

void list_machines(Output& output) {
  const Catalog& catalog = topologies();
  Json doc = document("topology-list");
  Json machines = Json::array();
  Json gpus = Json::array();
  Table machine_table;
  machine_table.rows.push_back({"machine", "GPUs", "GPU", "inside a node", "between nodes"});
  for (const std::string& name : catalog.machine_names()) {
    const MachineSpec m = catalog.machine(name, "topology");
    machines.push_back(spp::cli::to_json(m));
    machine_table.rows.push_back({name, fmt::format("{}", m.gpus_per_node.value), m.gpu.name,
                                  fmt::format("{} {}", m.intra.name, human(m.intra_rate)),
                                  inter_text(m)});
  }
  Table gpu_table;
  gpu_table.rows.push_back({"GPU", "memory", "bandwidth", "generation", "inside a node"});
  for (const std::string& name : catalog.gpu_names()) {
    const GpuSpec g = catalog.gpu(name, "topology");
    gpus.push_back(spp::cli::to_json(g));
    gpu_table.rows.push_back(
        {name, human(g.memory.value), human(g.memory_bandwidth.value), g.generation.name, g.intra});
  }
  doc["machines"] = std::move(machines);
  doc["gpus"] = std::move(gpus);
  output.result(doc, [&](const Style& style) {
    return headed(machine_table, style) + "\n" + headed(gpu_table, style);
  });
}

Table table_of(const MachineSpec* machine, const GpuSpec& gpu) {
  Table table;
  const auto row = [&](std::string what, std::string value) {
    table.rows.push_back({"  " + std::move(what), std::move(value)});
  };
  if (machine != nullptr) {
    row("GPUs a node", fmt::format("{} x {}", machine->gpus_per_node.value, gpu.name));
    row("inside a node", fmt::format("{}, {} per GPU and direction ({})", machine->intra.name,
                                     human(machine->intra_rate), machine->intra.medium));
    row("between nodes", inter_text(*machine));
    row("fabric", fmt::format("{}, oversubscription {}", machine->fabric.kind,
                              machine->fabric.oversubscription.value));
  }
  row("memory", fmt::format("{} a GPU, {:.0f} % of it usable ({})", human(gpu.memory.value),
                            100 * gpu.memory_usable.value, gpu.memory.source));
  row("memory bandwidth",
      fmt::format("{} ({})", human(gpu.memory_bandwidth.value), gpu.memory_bandwidth.source));
  for (const auto& [dtype, rate] : gpu.matrix_rate) {
    row(fmt::format("peak {}", spp::to_string(dtype)),
        fmt::format("{:.0f} TFLOP/s ({})", rate.value.value() / 1e12, rate.source));
  }
  row("kernels", fmt::format("{}, {}", gpu.generation.name, gpu.generation.attention.kernel));
  return table;
}

/// A point of a list, its further lines below its first word.
std::string bullet(const std::string& sentence, std::size_t width) {
  std::string text = wrapped(sentence, 4, width);
  text[2] = '-';
  return text;
}

std::string explanation_text(const Explanation& explanation, const Style& style) {
  std::string text = "\n";
  for (const std::string& sentence : explanation.sentences) {
    text += bullet(sentence, style.width);
  }
  text += "\n";
  for (const std::string& line : explanation.drawing) {
    text += "  " + line + "\n";
  }
  return text;
}

std::string assumed_text(const std::vector<Assumption>& assumptions, const Style& style) {
  if (assumptions.empty()) {
    return "";
  }
  std::string text = "\n" + style.bold("Assumed") + "\n";
  for (const Assumption& a : assumptions) {
    text += bullet(fmt::format("{}: {} ({})", a.what, a.value, a.source), style.width);
  }
  return text;
}

/// What is shown of one machine or GPU.
struct Shown {
  std::string file;  // where it stands
  std::optional<MachineSpec> machine;
  GpuSpec gpu;
};

/// `drawing`: the file for the picture of what is checked; "" for none.
void print(const Shown& shown, bool checked, const std::string& drawing, Output& output) {
  const MachineSpec* machine = shown.machine ? &*shown.machine : nullptr;
  std::optional<Explanation> explanation;
  if (machine != nullptr && checked) {
    explanation = explain(*machine);
  }
  Json doc = document("topology");
  doc["file"] = shown.file;
  doc["kind"] = machine != nullptr ? "machine" : "gpu";
  doc["machine"] = machine != nullptr ? spp::cli::to_json(*machine) : Json();
  doc["gpu"] = spp::cli::to_json(shown.gpu);
  if (explanation) {
    doc["explanation"] = explanation->sentences;
    doc["drawing"] = explanation->drawing;
    doc["assumptions"] = spp::cli::to_json(machine->assumptions);
  }
  if (!drawing.empty()) {
    write_file(drawing, spp::report::picture({.file = shown.file, .document = doc}));
  }
  output.result(doc, [&](const Style& style) {
    std::string text = style.bold(machine != nullptr ? machine->name : shown.gpu.name) +
                       fmt::format("  {}\n", shown.file);
    for (const std::string& line : table_of(machine, shown.gpu).lines()) {
      text += shortened(line, style.width) + "\n";
    }
    if (explanation) {
      text += explanation_text(*explanation, style) + assumed_text(machine->assumptions, style);
    }
    return checked ? text + "no complaints\n" : text;
  });
}

/// `arguments`: of what is checked; nullptr: it is shown.
void show_machine(const std::string& name, const Arguments* arguments, Output& output) {
  const bool checked = arguments != nullptr;
  const std::string drawing = checked ? arguments->get("draw", "") : "";
  const Catalog& catalog = topologies();
  const std::filesystem::path file = catalog.file_of(name, "topology");
  std::error_code ec;
  if (is_readable_file(file) && !std::filesystem::is_regular_file(file, ec)) {
    throw InputError("topology", fmt::format("'{}' is a pipe, and it is read twice: give a file",
                                             file.string()));
  }
  const Json document = read_json(file);
  const std::string format = JsonView(document, file.string()).at("format").string();
  if (format == "sp-plan/gpu") {
    print({.file = shown_path(file), .machine = {}, .gpu = catalog.gpu(name, "topology")}, checked,
          drawing, output);
    return;
  }
  MachineSpec machine = catalog.machine(name, "topology");
  for (const std::string_view option : {"gpu", "gpus-per-node"}) {
    if (checked && arguments->has(option)) {
      throw InputError(fmt::format("--{}", option), fmt::format("{} says it already", name));
    }
  }
  if (checked && arguments->has("inter")) {
    std::vector<Assumption> filled;
    machine = catalog.with_network(std::move(machine), arguments->get("inter", ""), filled);
    machine.assumptions.insert(machine.assumptions.end(), filled.begin(), filled.end());
  }
  GpuSpec gpu = machine.gpu;
  print({.file = shown_path(file), .machine = std::move(machine), .gpu = std::move(gpu)}, checked,
        drawing, output);
}

imports::MergeOptions merge_options(const Arguments& arguments) {
  imports::MergeOptions options{.gpu = arguments.get("gpu", ""),
                                .inter = arguments.get("inter", ""),
                                .name = arguments.get("name", "")};
  if (const auto gpus = arguments.find("gpus-per-node")) {
    options.gpus_per_node =
        static_cast<int>(parse_int(*gpus, "--gpus-per-node", 1, most_gpus_per_node));
  }
  return options;
}

/// A file is meant, even when it is named like something that the catalog has; without a file, the
/// latter.
void check_one(const std::string& name, const Arguments& arguments, Output& output) {
  const Catalog& catalog = topologies();
  const std::string drawing = arguments.get("draw", "");
  if (!is_readable_file(name)) {
    const std::vector<std::string> gpus = catalog.gpu_names();
    const bool known = catalog.has_machine(name) || std::ranges::find(gpus, name) != gpus.end();
    const bool is_file =
        !known && name.find('/') == std::string::npos && name.find('.') != std::string::npos;
    show_machine(is_file ? "./" + name : name, &arguments, output);
    return;
  }
  TextFile file{.name = name, .text = read_text_file(name, "")};
  if (is_own_document(file)) {
    show_machine(name.find('/') == std::string::npos ? "./" + name : name, &arguments, output);
    return;
  }
  ImportedMachine imported = import_machine({std::move(file)}, merge_options(arguments), catalog);
  GpuSpec gpu = imported.spec.gpu;
  print({.file = name, .machine = std::move(imported.spec), .gpu = std::move(gpu)}, true, drawing,
        output);
}

/// Output of other programs, all of one machine. `instead`: what documents of ours are for.
ImportedMachine import_together(const std::vector<std::string>& names, const Arguments& arguments,
                                std::string_view instead) {
  std::vector<TextFile> files;
  for (const std::string& name : names) {
    files.push_back({.name = name, .text = read_text_file(name)});
    if (is_own_document(files.back())) {
      throw InputError(name, fmt::format("is JSON, but not of NCCL's tests; {}", instead));
    }
  }
  return import_machine(std::move(files), merge_options(arguments), topologies());
}

void check_together(const std::vector<std::string>& names, const Arguments& arguments,
                    Output& output) {
  ImportedMachine imported =
      import_together(names, arguments,
                      "documents of sp-plan are checked one by one, several files are what other "
                      "programs print of one machine");
  GpuSpec gpu = imported.spec.gpu;
  print({.file = fmt::format("{}", fmt::join(names, ",")),
         .machine = std::move(imported.spec),
         .gpu = std::move(gpu)},
        true, arguments.get("draw", ""), output);
}

void import_files(const std::vector<std::string>& names, const Arguments& arguments,
                  Output& output) {
  const ImportedMachine imported =
      import_together(names, arguments,
                      "'topology check' reads documents of sp-plan, 'topology import' the output "
                      "of other programs");
  output.result(imported.document, [&](const Style& style) {
    std::string text =
        style.bold(imported.spec.name) + fmt::format("  from {}\n", fmt::join(names, ", "));
    for (const std::string& line : table_of(&imported.spec, imported.spec.gpu).lines()) {
      text += shortened(line, style.width) + "\n";
    }
    text += explanation_text(explain(imported.spec), style) +
            assumed_text(imported.spec.assumptions, style);
    const std::string nodes =
        imported.nodes > 1 ? fmt::format(" --nodes {}", imported.nodes) : std::string();
    const std::string file = arguments.get("output", "FILE");
    return text + fmt::format("\n{}: sp-plan plan --topology {}{} …\n",
                              arguments.has("output") ? "Use it" : "Keep it with -o FILE, then",
                              file, nodes);
  });
}

void topology_command(const Arguments& arguments, Output& output) {
  const std::vector<std::string>& words = arguments.positionals();
  const std::string action = words.empty() ? "list" : words[0];
  const std::vector<std::string> actions{"list", "show", "check", "import"};
  if (std::ranges::find(actions, action) == actions.end()) {
    throw InputError("topology",
                     fmt::format("unknown action '{}'{}", action, did_you_mean(action, actions)));
  }
  if (action == "import" && arguments.has("draw")) {
    throw InputError("--draw", "of 'topology check', which takes what 'import' wrote");
  }
  if (action == "list" || action == "show") {
    for (const Option& option : own_options) {
      if (arguments.has(option.name)) {
        throw InputError(fmt::format("--{}", option.name),
                         fmt::format("'topology {}' has no use for it", action));
      }
    }
  }
  const std::size_t least = action == "list" ? 1 : 2;
  if (!words.empty() && words.size() < least) {
    throw InputError(
        fmt::format("topology {}", action),
        action == "show" ? "a NAME is missing (see 'sp-plan topology list')" : "a FILE is missing");
  }
  if (words.size() > least && action != "import" && action != "check") {
    throw InputError(words[least], "unexpected (see 'sp-plan topology --help')");
  }
  if (action == "list") {
    list_machines(output);
  } else if (action == "show") {
    show_machine(words[1], nullptr, output);
  } else if (action == "check") {
    if (words.size() > least) {
      check_together({words.begin() + 1, words.end()}, arguments, output);
    } else {
      check_one(words[1], arguments, output);
    }
  } else {
    import_files({words.begin() + 1, words.end()}, arguments, output);
  }
}

}  // namespace

extern const Command topology{
    .name = "topology",
    .summary = "machines and GPUs: list, show, check them; import what other programs print",
    .description =
        "Lists the machines and GPUs of the data folder or shows one of them. 'import' makes a "
        "machine from what other programs print, any number of files together: nvidia-smi topo -m "
        "and -p2p r, nvidia-smi, nvidia-smi -L and -q -x, NCCL's topology XML, the text or JSON of "
        "nccl-tests, ibstat, ibv_devinfo, Slurm's scontrol show node and topology.conf; formats "
        "are "
        "told by what is in a file. What had to be assumed is listed with its reason; what "
        "contradicts is refused with both places. 'check' takes any of these, or a document of "
        "sp-plan, and explains the machine: which GPUs share a switch, the way of a ring's hop, "
        "what "
        "limits an all-to-all; with --draw it draws it, too.",
    .arguments = "list | show NAME | check FILE…|NAME | import FILE…",
    .groups = {},
    .options = own_options,
    .examples =
        "sp-plan topology list\nsp-plan topology show dgx-h100\nsp-plan topology check "
        "my-cluster.json --draw my-cluster.svg\nsp-plan topology import topo.txt nccl-tests.txt "
        "--gpu h100 -o "
        "my-cluster.json\nnvidia-smi topo -m | sp-plan topology import /dev/stdin --gpu h100",
    .run = topology_command,
};

}  // namespace spp::cli::commands
