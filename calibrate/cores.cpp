// The machine of a calibration whose ranks are CPU cores.
#include "calibrate/parts.hpp"
#include "calibrate/profile.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace spp::calibrate {
namespace {

/// Ranks that are alone in their node, or whose messages were not timed.
FittedTransport assumed_transport() {
  FittedTransport t;
  t.rate = {.value = 5e9, .spread = 0.5, .samples = 0};
  t.cpu_share = {.value = 1, .spread = 0.3, .samples = 0};
  t.hop = {.value = 2e-6, .spread = 0.5, .samples = 0};
  t.segments.front() = {{.up_to = std::numeric_limits<double>::infinity(),
                         .line = {.latency = 2e-6, .per_unit = 1 / t.rate.value, .spread = 0.5}}};
  return t;
}

Json transport(const FittedTransport& t, TransportWords words, const Numbers& numbers) {
  words.cpu_share =
      numbers.fitted(t.cpu_share, 1, "fraction", "core time of a loop beside an exchange");
  return whole_transport(t, std::move(words), numbers);
}

std::map<DType, Fitted> peaks_of(const std::vector<Series>& series) {
  auto peaks = fit_peaks(series);
  if (peaks.empty()) {
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      peaks[dtype] = {.value = 5e10, .spread = 1, .samples = 0};
    }
  }
  return peaks;
}

/// oneDNN's compute scores in multiples of 64 rows, which the heads of a group share, by 64 keys at
/// a mask's edge; the reference computes none that is hidden.
AttentionKernelSpec kernel_of(const ProfileInput& input, const std::vector<Series>& series) {
  std::int64_t group = 1;
  for (const Series& s : series) {
    if (s.what == "attention" && s.block) {
      group = std::max<std::int64_t>(group, s.block->q_heads / s.block->kv_heads);
    }
  }
  const auto rows = [&](std::int64_t n) {
    return Sourced<std::int64_t>{
        .value = n, .spread = 0, .source = fmt::format("tiles of the {} kernels", input.kernels)};
  };
  const std::int64_t tile = input.kernels == "onednn" ? 64 : 1;
  AttentionKernelSpec kernel;
  kernel.kernel = input.kernels;
  kernel.q_tile = rows(std::max<std::int64_t>(1, tile / group));
  kernel.kv_tile = kernel.backward_tile = rows(tile);
  kernel.ctas_per_sm = {.value = 1, .spread = 0, .source = "a core works on one tile at a time"};
  kernel.head_dim_64 = {
      .value = 1, .spread = 0.3, .source = "assumed: efficiencies hold for the head_dim measured"};
  return kernel;
}

Json core(const ProfileInput& input, const std::vector<Series>& series, const Numbers& numbers) {
  const Hosts& hosts = input.calibration.hosts;
  const FittedMemory memory = fit_memory(series);
  const std::map<DType, Fitted> peaks = peaks_of(series);
  GpuSpec gpu;
  gpu.name = "cpu core";
  gpu.sms.value = 1;
  double vector = 0;
  for (const auto& [dtype, peak] : peaks) {
    gpu.matrix_rate[dtype] = {.value = FlopRate(peak.value), .spread = 0, .source = ""};
    vector = dtype == DType::fp32 || vector == 0 ? peak.value : vector;
  }
  const AttentionKernelSpec kernel = kernel_of(input, series);
  const FittedAttention attention = fit_attention(series, kernel, gpu, input.dtype);
  // oneDNN's registers, or an AMX unit's, hold 16 rows by 16 columns, and our blocks over its
  // products have 512 columns and sum up 512 numbers; the reference cuts nothing.
  const bool onednn = input.kernels == "onednn";
  const int gemm_tile = onednn ? 16 : 1;
  const int gemm_block = onednn ? 512 : 0;
  gpu.generation.gemm_tile.value = gemm_tile;
  return gpu_json(
      {.name = gpu.name,
       .generation = fitted_generation(
           {.name = "cpu",
            .attention = fitted_attention(kernel, attention, numbers),
            .gemm = assumed_gemm(gemm_tile, numbers),
            .group = Json(),
            .layer = fitted_layer(fit_layer(series, gpu, input.dtype, gemm_block), numbers),
            .kernel = kernel},
           memory, numbers),
       .compute_capability = 0,
       .sms = numbers.counted(1, "a rank is a thread"),
       .matrix_rate = peaks_json(peaks, numbers),
       .vector_rate_fp32 =
           numbers.assumed(vector * 1e-9, "GFLOP/s", "vector units do the products in fp32, too"),
       .memory =
           numbers.quantity(hosts.memory.as_double() / hosts.per_node / (1 << 30), "GiB",
                            fmt::format("MemTotal / {} ranks of the host", hosts.per_node), 0),
       .memory_usable = numbers.assumed(0.9, "fraction", "the rest is the system's"),
       .memory_bandwidth =
           numbers.fitted(memory.bandwidth, 1e-9, "GB/s", "the fastest kernel that moves bytes")});
}

}  // namespace

Json machine_of_cores(const ProfileInput& input, const Numbers& numbers) {
  const Hosts& hosts = input.calibration.hosts;
  const std::vector<Series> series = all_series(input.calibration);
  const Sharing sharing{.nodes = hosts.nodes(),
                        .per_node = hosts.per_node,
                        .cores = hosts.cores,
                        .nodes_on_cores = hosts.nodes_on_cores};
  MachineDocument machine(input.name);
  machine.put_gpu(core(input, series, numbers));
  machine.put_gpus_per_node(numbers.counted(hosts.per_node, "ranks of a host"));
  TransportWords inside{.name = fmt::format("{}-memory", input.comm),
                        .medium = "host",
                        .rate = "the best that a rank reaches with a core of its own"};
  machine.put_intra(transport(fit_transport(series, "intra", sharing).value_or(assumed_transport()),
                              std::move(inside), numbers),
                    "host");
  machine.put_sockets(numbers.counted(1, "not looked at"));
  if (const auto inter = fit_transport(series, "inter", sharing)) {
    TransportWords across{
        .name = fmt::format("{}-network", input.comm), .medium = "network", .rate = ""};
    machine.put_inter(fitted_network(*inter, transport(*inter, std::move(across), numbers),
                                     hosts.per_node, numbers));
  }
  const int together = hosts.nodes_on_cores;
  machine.put_host({.cores = numbers.counted(hosts.cores, "sched_getaffinity"),
                    .shared_by = together == 1               ? Json("node")
                                 : together == hosts.nodes() ? Json("cluster")
                                                             : Json(together)});
  return machine.take();
}

}  // namespace spp::calibrate
