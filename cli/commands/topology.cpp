// sp-plan topology: the machines and GPUs that sp-plan knows.
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/suggest.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"

#include <algorithm>
#include <array>

namespace spp::cli::commands {
namespace {

Json to_json(const GpuSpec& gpu) {
  Json rates = Json::object();
  for (const auto& [dtype, rate] : gpu.matrix_rate) {
    rates[std::string(spp::to_string(dtype))] = rate.value.value() / 1e12;
  }
  return {{"name", gpu.name},
          {"aliases", gpu.aliases},
          {"generation", gpu.generation.name},
          {"attention_kernel", gpu.generation.attention.kernel},
          {"sms", gpu.sms.value},
          {"peak_tflops", std::move(rates)},
          {"memory_bytes", gpu.memory.value.value()},
          {"memory_usable_fraction", gpu.memory_usable.value},
          {"memory_bytes_per_s", gpu.memory_bandwidth.value.value()}};
}

Json to_json(const MachineSpec& m) {
  Json json{{"name", m.name},
            {"aliases", m.aliases},
            {"gpus_per_node", m.gpus_per_node.value},
            {"intra",
             {{"transport", m.intra.name},
              {"medium", m.intra.medium},
              {"bytes_per_s_per_gpu", m.intra_rate.value()}}}};
  json["inter"] = m.inter ? Json{{"transport", m.inter->transport.name},
                                 {"nics", m.inter->nics.value},
                                 {"bytes_per_s_per_nic", m.inter->rate_per_nic.value.value()},
                                 {"gpus_per_nic", m.inter->gpus_per_nic.value}}
                          : Json();
  json["fabric"] = {{"kind", m.fabric.kind}, {"oversubscription", m.fabric.oversubscription.value}};
  json["gpu"] = to_json(m.gpu);
  return json;
}

std::string inter_text(const MachineSpec& m) {
  return m.inter ? fmt::format("{} {}x{:.0f}Gb/s", m.inter->transport.name, m.inter->nics.value,
                               m.inter->rate_per_nic.value.value() * 8e-9)
                 : "none";
}

void list(Output& output) {
  const Catalog catalog = topologies();
  Json doc = document("topology-list");
  Json machines = Json::array();
  Json gpus = Json::array();
  Table machine_table;
  machine_table.rows.push_back({"machine", "GPUs", "GPU", "inside a node", "between nodes"});
  for (const std::string& name : catalog.machine_names()) {
    const MachineSpec m = catalog.machine(name, "topology");
    machines.push_back(to_json(m));
    machine_table.rows.push_back({name, fmt::format("{}", m.gpus_per_node.value), m.gpu.name,
                                  fmt::format("{} {}", m.intra.name, human(m.intra_rate)),
                                  inter_text(m)});
  }
  Table gpu_table;
  gpu_table.rows.push_back({"GPU", "memory", "bandwidth", "generation", "inside a node"});
  for (const std::string& name : catalog.gpu_names()) {
    const GpuSpec g = catalog.gpu(name, "topology");
    gpus.push_back(to_json(g));
    gpu_table.rows.push_back(
        {name, human(g.memory.value), human(g.memory_bandwidth.value), g.generation.name, g.intra});
  }
  doc["machines"] = std::move(machines);
  doc["gpus"] = std::move(gpus);
  output.result(doc, [&](const Style& style) {
    std::string text;
    for (const Table* table : {&machine_table, &gpu_table}) {
      const std::vector<std::string> lines = table->lines();
      text += text.empty() ? "" : "\n";
      for (std::size_t i = 0; i < lines.size(); ++i) {
        text += (i == 0 ? style.bold(lines[i]) : lines[i]) + "\n";
      }
    }
    return text;
  });
}

/// A document of one machine or GPU; `file` is where it stands.
void print(const std::string& file, const MachineSpec* machine, const GpuSpec& gpu, bool checked,
           Output& output) {
  Json doc = document("topology");
  doc["file"] = file;
  doc["kind"] = machine != nullptr ? "machine" : "gpu";
  doc["machine"] = machine != nullptr ? to_json(*machine) : Json();
  doc["gpu"] = to_json(gpu);
  output.result(doc, [&](const Style& style) {
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
    std::string text =
        style.bold(machine != nullptr ? machine->name : gpu.name) + fmt::format("  {}\n", file);
    for (const std::string& line : table.lines()) {
      text += shortened(line, 100) + "\n";
    }
    return checked ? text + "no complaints\n" : text;
  });
}

void show(const std::string& name, bool checked, Output& output) {
  const Catalog catalog = topologies();
  std::vector<std::string> known = catalog.machine_names();
  std::ranges::copy(catalog.gpu_names(), std::back_inserter(known));
  const std::filesystem::path file = catalog.file_of(name, "topology");
  std::error_code ec;
  if (is_readable_file(file) && !std::filesystem::is_regular_file(file, ec)) {
    throw InputError("topology", fmt::format("'{}' is a pipe, and it is read twice: give a file",
                                             file.string()));
  }
  const Json document = read_json(file);
  const std::string format = JsonView(document, file.string()).at("format").string();
  if (format == "sp-plan/gpu") {
    print(shown_path(file), nullptr, catalog.gpu(name, "topology"), checked, output);
    return;
  }
  const MachineSpec machine = catalog.machine(name, "topology");
  print(shown_path(file), &machine, machine.gpu, checked, output);
}

/// A file is meant, even when it is named like something that the catalog has.
std::string as_path(const std::string& file) {
  return file.find('/') == std::string::npos ? "./" + file : file;
}

void run(const Arguments& arguments, Output& output) {
  const std::vector<std::string>& words = arguments.positionals();
  const std::string action = words.empty() ? "list" : words[0];
  const std::size_t expected = action == "list" ? 1 : 2;
  if (action == "import") {
    throw InputError("topology import",
                     "importing NCCL XML and nvidia-smi output is not available yet");
  }
  const std::vector<std::string> actions{"list", "show", "check"};
  if (std::ranges::find(actions, action) == actions.end()) {
    throw InputError("topology",
                     fmt::format("unknown action '{}'{}", action, did_you_mean(action, actions)));
  }
  if (!words.empty() && words.size() < expected) {
    throw InputError(
        fmt::format("topology {}", action),
        action == "show" ? "a NAME is missing (see 'sp-plan topology list')" : "a FILE is missing");
  }
  if (words.size() > expected) {
    throw InputError(words[expected], "unexpected (see 'sp-plan topology --help')");
  }
  if (action == "list") {
    list(output);
  } else {
    show(action == "check" ? as_path(words[1]) : words[1], action == "check", output);
  }
}

}  // namespace

extern const Command topology{
    .name = "topology",
    .summary = "machines and GPUs: list them, show one, check a file",
    .description =
        "Lists the machines and GPUs of the data folder, shows one of them, or checks a file of "
        "yours: units, "
        "sources, names, and whether its parts fit together.",
    .arguments = "list | show NAME | check FILE",
    .groups = {},
    .options = {},
    .examples =
        "sp-plan topology list\nsp-plan topology show dgx-h100\nsp-plan topology check "
        "my-cluster.json",
    .run = run,
};

}  // namespace spp::cli::commands
