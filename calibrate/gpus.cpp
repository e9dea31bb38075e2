// The machine of a calibration whose ranks are GPUs, or parts of one. What was not measured comes
// from topologies/: from the machine that --topology names, else from the GPU of that name, else
// from the generation of its compute capability.
#include "base/error.hpp"
#include "calibrate/parts.hpp"
#include "calibrate/profile.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace spp::calibrate {
namespace {

struct KnownGpu {
  GpuSpec gpu;
  bool same = false;  // the very GPU, not only its generation
};

std::string version_of(int compute_capability) {
  return fmt::format("{}.{}", compute_capability / 10, compute_capability % 10);
}

/// "NVIDIA H100 80GB HBM3" -> "-nvidia-h100-80gb-hbm3-"
std::string words_of(std::string_view name) {
  std::string words = "-";
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    const char next = std::isalnum(u) != 0 ? static_cast<char>(std::tolower(u)) : '-';
    if (next != '-' || words.back() != '-') {
      words += next;
    }
  }
  return words.back() == '-' ? words : words + "-";
}

/// The GPU of topologies/gpus with the longest name in the driver's, and as much memory.
std::optional<GpuSpec> gpu_called(const DeviceReport& device, const Catalog& catalog) {
  constexpr double alike = 0.15;
  std::optional<GpuSpec> found;
  std::size_t longest = 0;
  for (const std::string& name : catalog.gpu_names()) {
    GpuSpec gpu = catalog.gpu(name, "--device");
    const double memory = device.memory.as_double() / gpu.memory.value.as_double();
    if (gpu.compute_capability != device.compute_capability || std::abs(memory - 1) > alike) {
      continue;
    }
    if (const std::size_t length = name_in(gpu, device.gpu); length > longest) {
      longest = length;
      found = std::move(gpu);
    }
  }
  return found;
}

/// Of the newest generation that is not newer than this GPU: the first GPU of the kind that most
/// of its GPUs have.
GpuSpec gpu_like(const DeviceReport& device, const Catalog& catalog) {
  std::vector<GpuSpec> gpus;
  for (const std::string& name : catalog.gpu_names()) {
    gpus.push_back(catalog.gpu(name, "--device"));
  }
  const auto order = [&](const GpuSpec& gpu) {
    const bool newer = gpu.compute_capability > device.compute_capability;
    const auto alike = std::ranges::count(
        gpus, gpu.generation.name, [](const GpuSpec& other) { return other.generation.name; });
    return std::tuple(newer ? -gpu.compute_capability : gpu.compute_capability, alike);
  };
  return *std::ranges::max_element(gpus, {}, order);
}

bool shared(const DeviceReport& device) { return device.ranks_per_gpu > 1; }

KnownGpu known_gpu(const DeviceReport& device, const std::string& topology,
                   const Catalog& catalog) {
  if (!topology.empty()) {
    const MachineSpec machine = catalog.machine(topology, "--topology");
    if (machine.gpu.compute_capability != device.compute_capability) {
      throw InputError("--topology",
                       fmt::format("'{}' has GPUs of compute capability {}, but {} here has {}",
                                   topology, version_of(machine.gpu.compute_capability), device.gpu,
                                   version_of(device.compute_capability)));
    }
    return {.gpu = machine.gpu, .same = true};
  }
  if (auto gpu = gpu_called(device, catalog)) {
    return {.gpu = std::move(*gpu), .same = true};
  }
  return {.gpu = gpu_like(device, catalog), .same = false};
}

// ---- the GPU

/// "NVIDIA H200, 16 of 132 SMs" where ranks share it; else as topologies/ call it.
std::string name_of(const DeviceReport& device, const KnownGpu& known) {
  if (shared(device)) {
    return device.split ? fmt::format("{}, {} of {} SMs", device.gpu, device.multiprocessors,
                                      device.all_multiprocessors)
                        : fmt::format("{}, shared by {}", device.gpu, device.ranks_per_gpu);
  }
  return known.same ? known.gpu.name : device.gpu;
}

/// The kernel as its generation has it, less what a fit of whole blocks contains anyway. The
/// reference kernels have no tiles.
AttentionKernelSpec kernel_of(const std::string& kernels, const GenerationSpec& generation) {
  if (kernels == "reference") {
    const Sourced<std::int64_t> one{
        .value = 1, .spread = 0, .source = "the reference kernels have no tiles"};
    AttentionKernelSpec plain;
    plain.kernel = kernels;
    plain.q_tile = plain.kv_tile = plain.backward_tile = plain.ctas_per_sm = one;
    plain.head_dim_64 = {.value = 1,
                         .spread = 0.3,
                         .source = "assumed: efficiencies hold for the head_dim measured"};
    return plain;
  }
  const std::string name = kernels == "cudnn" ? "cuDNN 9" : kernels;
  AttentionKernelSpec kernel = generation.attention;
  if (const auto named = generation.kernels.find(name); named != generation.kernels.end()) {
    kernel = named->second;
  }
  kernel.kernel = name;
  kernel.forward_minimum_fill.reset();
  kernel.split_rate.reset();
  kernel.lone_item.reset();
  kernel.backward_bytes.reset();
  kernel.matrix_rate_factor.reset();
  return kernel;
}

/// Peaks: nominal ones of a GPU that a rank has for itself, unless the kernels are faster, or do
/// not use its matrix units; else 1.1 times the fastest kernel.
struct Peaks {
  std::map<DType, FlopRate> rates;
  Json json = Json::object();
  bool nominal = true;  // all of them
};
Peaks peaks_of(const std::vector<Series>& series, const DeviceReport& device, const KnownGpu& known,
               const Numbers& numbers) {
  constexpr double with_matrix_units = 0.1;
  const std::map<DType, Fitted> fitted = fit_peaks(series);
  const Json measured = peaks_json(fitted, numbers);
  Peaks peaks;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    const std::string key(to_string(dtype));
    const auto known_rate = known.gpu.matrix_rate.find(dtype);
    const bool has_nominal = known_rate != known.gpu.matrix_rate.end();
    const double share =
        device.split && device.all_multiprocessors > 0
            ? static_cast<double>(device.multiprocessors) / device.all_multiprocessors
            : 1;
    const double nominal = has_nominal ? known_rate->second.value.value() * share : 0;
    if (const auto it = fitted.find(dtype); it != fitted.end()) {
      const double part = nominal > 0 ? it->second.value / nominal : 0;
      if (!known.same || shared(device) || part < with_matrix_units || part > 1) {
        peaks.nominal = false;
        peaks.rates[dtype] = FlopRate(it->second.value);
        peaks.json[key] = measured.at(key);
        continue;
      }
    }
    if (has_nominal) {
      const std::string source = known_rate->second.source;
      peaks.rates[dtype] = FlopRate(nominal);
      peaks.json[key] = known.same
                            ? numbers.quantity(nominal * 1e-12, "TFLOP/s", source, 0)
                            : numbers.assumed(nominal * 1e-12, "TFLOP/s",
                                              fmt::format("as {}: {}", known.gpu.name, source));
    }
  }
  return peaks;
}

/// Kernels around attention when `active` ranks of a GPU run them.
FittedMemory memory_with(const std::vector<Series>& series, int active) {
  std::vector<Series> some;
  std::ranges::copy_if(series, std::back_inserter(some), [&](const Series& s) {
    return s.suite == "elementwise" && s.active == active;
  });
  return fit_memory(some);
}

struct MemoryRates {
  FittedMemory alone;
  Fitted together;  // of all ranks of a GPU
};
MemoryRates memory_of(const std::vector<Series>& series, const DeviceReport& device,
                      const KnownGpu& known) {
  MemoryRates rates{.alone = memory_with(series, 1), .together = {}};
  const Sourced<Bandwidth>& nominal = known.gpu.memory_bandwidth;
  if (rates.alone.bandwidth.samples == 0) {
    rates.alone.bandwidth = {.value = nominal.value.value(), .spread = 0.2, .samples = 0};
  }
  const FittedMemory all = memory_with(series, device.ranks_per_gpu);
  if (all.launch.samples > 0) {  // plans run on all ranks
    rates.alone.launch = all.launch;
  }
  rates.together = all.bandwidth;
  rates.together.value *= device.ranks_per_gpu;
  if (rates.together.samples == 0) {
    rates.together = {.value = nominal.value.value(), .spread = 0.2, .samples = 0};
  }
  return rates;
}

Json gpu_of(const ProfileInput& input, const std::vector<Series>& series, const KnownGpu& known,
            const FittedMemory& memory, const Numbers& numbers) {
  const DeviceReport& device = *input.device;
  const Peaks peaks = peaks_of(series, device, known, numbers);
  const GenerationSpec& generation = known.gpu.generation;
  const AttentionKernelSpec kernel = kernel_of(input.kernels, generation);
  GpuSpec gpu;  // as far as the fit of its kernels asks
  gpu.name = name_of(device, known);
  gpu.sms.value = device.multiprocessors;
  gpu.memory_bandwidth.value = Bandwidth(memory.bandwidth.value);
  for (const auto& [dtype, rate] : peaks.rates) {
    gpu.matrix_rate[dtype] = {.value = rate, .spread = 0, .source = ""};
  }
  const FittedAttention attention = fit_attention(series, kernel, gpu, input.dtype);
  const Json whole = input.catalog->generation_document(generation.name);
  constexpr int usual_tile = 128;
  gpu.generation.gemm_tile.value = peaks.nominal ? generation.gemm_tile.value : usual_tile;
  // With other ranks the blocks were timed while all GPUs worked.
  const bool alone = input.calibration.hosts.per_node * input.calibration.hosts.nodes() == 1;
  return gpu_json(
      {.name = gpu.name,
       .generation = fitted_generation(
           {.name = generation.name,
            .attention = fitted_attention(kernel, attention, numbers),
            .gemm = peaks.nominal ? gemm_of(whole) : assumed_gemm(usual_tile, numbers),
            .group = alone ? group_of(whole) : Json(),
            .layer = fitted_layer(fit_layer(series, gpu, input.dtype), numbers),
            .kernel = kernel},
           memory, numbers),
       .compute_capability = device.compute_capability,
       .sms = numbers.counted(device.multiprocessors, "SMs of a rank"),
       .matrix_rate = peaks.json,
       .vector_rate_fp32 =
           numbers.assumed(known.gpu.vector_rate_fp32.value.value() * 1e-12 *
                               device.multiprocessors / static_cast<double>(known.gpu.sms.value),
                           "TFLOP/s", fmt::format("as {}", known.gpu.name)),
       .memory = numbers.quantity(
           device.memory.as_double() / device.ranks_per_gpu / (1 << 30), "GiB",
           fmt::format("the driver, / {} ranks of a GPU", device.ranks_per_gpu), 0),
       .memory_usable = numbers.taken(known.gpu.memory_usable),
       .memory_bandwidth = numbers.fitted(memory.bandwidth, 1e-9, "GB/s",
                                          "the fastest of the kernels around attention")});
}

// ---- links

/// SMs that messages hold: those of NCCL's kernels; copies inside a process hold next to none.
Json held_sms(const ProfileInput& input, const std::string& like, const Numbers& numbers) {
  if (input.comm != "nccl") {
    return numbers.counted(1, "copies hold no SM; the least that there is");
  }
  return sms_of(input.catalog->transport_document(like));
}

Json transport(const ProfileInput& input, const FittedTransport& t, TransportWords words,
               const std::string& like, const Numbers& numbers) {
  words.sms = held_sms(input, like, numbers);
  return whole_transport(t, std::move(words), numbers);
}

/// Links of a machine that nobody has described.
void put_fitted_links(MachineDocument& machine, const ProfileInput& input,
                      const std::vector<Series>& series, const KnownGpu& known,
                      const Sharing& sharing, const Numbers& numbers) {
  if (const auto intra = fit_transport(series, "intra", sharing)) {
    const std::string medium = shared(*input.device) ? "device" : "nvlink";
    TransportWords words{.name = fmt::format("{}-{}", input.comm, medium),
                         .medium = medium,
                         .rate = "the best that a rank reaches alone"};
    machine.put_intra(transport(input, *intra, std::move(words), known.gpu.intra, numbers), medium);
  } else {  // one rank a node: what such GPUs usually have
    const std::string medium = input.catalog->transport(known.gpu.intra, "--device").medium;
    const Json usual = input.catalog->transport_document(known.gpu.intra);
    machine.put_intra(usual, medium);
    if (medium == "pcie") {
      machine.put_host_bridge(rate_of(usual));
    }
  }
  if (const auto inter = fit_transport(series, "inter", sharing)) {
    TransportWords words{
        .name = fmt::format("{}-network", input.comm), .medium = "network", .rate = ""};
    machine.put_inter(fitted_network(*inter,
                                     transport(input, *inter, std::move(words), "ib", numbers),
                                     sharing.per_node, numbers));
  }
}

}  // namespace

std::size_t name_in(const GpuSpec& gpu, std::string_view driver_name) {
  const std::string words = words_of(driver_name);
  std::size_t longest = words.find(words_of(gpu.name)) != std::string::npos ? gpu.name.size() : 0;
  for (const std::string& alias : gpu.aliases) {
    if (words.find(words_of(alias)) != std::string::npos) {
      longest = std::max(longest, alias.size());
    }
  }
  return longest;
}

void expect_describable(const DeviceReport& device, int ranks, const std::string& topology,
                        const Catalog& catalog) {
  if (!topology.empty() && shared(device)) {
    throw InputError("--topology", fmt::format("'{}' has a GPU for every rank; here {} share one",
                                               topology, device.ranks_per_gpu));
  }
  const KnownGpu known = known_gpu(device, topology, catalog);
  if (topology.empty() && !shared(device) && ranks > 1 &&
      catalog.transport(known.gpu.intra, "--device").medium == "pcie") {
    throw InputError("--topology",
                     fmt::format("missing: {} GPUs talk over PCIe, and only a machine's "
                                 "description has its sockets, switches and host bridges",
                                 device.gpu));
  }
}

Json machine_of_gpus(const ProfileInput& input, const Numbers& numbers) {
  const Hosts& hosts = input.calibration.hosts;
  const DeviceReport& device = *input.device;
  const Catalog& catalog = *input.catalog;
  const std::vector<Series> series = all_series(input.calibration);
  const KnownGpu known = known_gpu(device, input.topology, catalog);
  const MemoryRates memory = memory_of(series, device, known);
  const Sharing sharing{.nodes = hosts.nodes(),
                        .per_node = hosts.per_node,
                        .ranks_per_gpu = device.ranks_per_gpu,
                        .gpu_memory_rate = memory.together.value};
  Json gpu = gpu_of(input, series, known, memory.alone, numbers);
  if (!input.topology.empty()) {
    MachineDocument machine(catalog.whole_machine(input.topology, "--topology"));
    machine.put_gpu(std::move(gpu));
    put_links(machine, catalog.machine(input.topology, "--topology"), series, sharing, numbers);
    return machine.take();
  }
  MachineDocument machine(input.name);
  machine.put_gpu(std::move(gpu));
  machine.put_gpus_per_node(numbers.counted(hosts.per_node, "ranks of a node"));
  machine.put_sockets(numbers.counted(1, "not looked at"));
  put_fitted_links(machine, input, series, known, sharing, numbers);
  if (shared(device)) {
    machine.put_device(
        {.ranks = numbers.counted(device.ranks_per_gpu, "ranks of a GPU"),
         .split = device.split,
         .memory_bandwidth = numbers.fitted(memory.together, 1e-9, "GB/s",
                                            "kernels around attention on all ranks of a GPU"),
         .l2 = device.l2.value() > 0
                   ? numbers.quantity(device.l2.as_double() / (1 << 20), "MiB", "the driver", 0)
                   : Json()});
  }
  return machine.take();
}

}  // namespace spp::calibrate
