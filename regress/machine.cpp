#include "regress/machine.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>

namespace spp::regress {
namespace {

/// The network of a node whose source does not describe it: what servers of this GPU are sold with
/// (DGX and HGX reference designs; PCIe servers with one port).
struct UsualNetwork {
  std::string_view transport;
  int nics = 1;
  double Gbps = 100;  // of a NIC
};

UsualNetwork usual_network(const GpuSpec& gpu, int gpus_per_node, std::string_view kind) {
  const bool server = !gpu.intra.starts_with("pcie");
  UsualNetwork usual{.transport = "ib", .nics = 1, .Gbps = 100};
  if (server) {
    usual.nics = gpus_per_node > 16 ? gpus_per_node : std::min(gpus_per_node, 8);
    usual.Gbps = gpu.compute_capability >= 90 ? 400 : gpu.compute_capability >= 80 ? 200 : 100;
  } else {
    usual.transport = "ethernet";
    usual.Gbps = 40;  // a ring of FLUX.1 over two L40 servers (xDiT docs/performance/flux.md)
  }
  if (kind == "efa") {  // p4d and p4de: 4 x 100; p5: 32 x 100, of which four serve a GPU
    usual = {.transport = "efa", .nics = std::min(gpus_per_node, 8), .Gbps = 400};
    if (gpu.compute_capability < 90) {
      usual = {.transport = "efa", .nics = std::min(gpus_per_node, 4), .Gbps = 100};
    }
  } else if (kind == "ethernet") {
    usual = {.transport = "ethernet", .nics = 1, .Gbps = 100};
  } else if (kind == "slingshot") {
    usual = {.transport = "slingshot", .nics = std::min(gpus_per_node, 4), .Gbps = 200};
  } else if (!kind.empty()) {
    usual.transport = kind;
  }
  return usual;
}

/// All-to-alls of peers on PCIe collapse at the host's root ports from four GPUs on; below switches
/// they do not (topologies/transports). Tables of 2024 on L20 and L40 (USP, yunchang, xDiT's FLUX
/// and Latte) have the first, those since then (diffusers, cache-dit) the second.
constexpr int switches_since = 2025;

/// The rate that NICs are sold with, in Gb/s, just above what one was seen to carry.
double rate_above(double GBps) {
  double rate = 25;
  while (rate / 8 < GBps) {
    rate *= 2;
  }
  return rate;
}

/// Whether a source's word for a link is one of our transports, of that kind. Else the usual one is
/// taken, as if the source had not said it.
bool is_link(const Catalog& catalog, const std::string& kind, bool network) {
  try {
    return (catalog.transport(kind, kind).medium == "network") == network;
  } catch (const InputError&) {
    return false;
  }
}

/// A source's own word for a link passes; InputError(where) at a slip of one of our transports,
/// which "nvlink" is not: it leaves the generation open.
void refuse_slip_of_link(const Catalog& catalog, const std::string& kind,
                         const std::string& where) {
  const std::vector<std::string> known = catalog.transport_names();
  const bool is_known = kind == "nvlink" || std::ranges::find(known, kind) != known.end();
  const bool resembles = std::ranges::any_of(
      known, [&](const std::string& name) { return edit_distance(kind, name) <= 1; });
  if (resembles && !is_known) {
    throw InputError(where, fmt::format("unknown '{}'{}", kind, did_you_mean(kind, known)));
  }
}

std::string inter_text(const CorpusMachine& m, int gpus_per_node, const GpuSpec& gpu,
                       const Catalog& catalog, std::vector<Assumption>& assumptions) {
  const std::string kind = is_link(catalog, m.inter_kind, true) ? m.inter_kind : "";
  const UsualNetwork usual = usual_network(gpu, gpus_per_node, kind);
  // A node's rate alone: as many NICs as that takes, each of the usual rate.
  const int enough =
      m.inter_Gbps ? std::clamp(static_cast<int>(*m.inter_Gbps / usual.Gbps + 0.5), 1, usual.nics)
                   : usual.nics;
  int nics = std::min(m.nics.value_or(enough), gpus_per_node);
  while (gpus_per_node % nics != 0) {
    --nics;
  }
  const double rate = m.inter_Gbps ? *m.inter_Gbps / nics
                      : m.nic_GBps ? rate_above(*m.nic_GBps)
                                   : usual.Gbps;
  if (kind.empty() || !m.nics || !m.inter_Gbps) {
    assumptions.push_back({.what = "inter",
                           .value = fmt::format("{}:{}x{:g}Gb/s", usual.transport, nics, rate),
                           .source = "usual for servers of this GPU"});
  }
  return fmt::format("{}:{}x{:g}Gb/s", usual.transport, nics, rate);
}

}  // namespace

ComposedCluster compose(const CorpusMachine& m, int world, const Catalog& catalog,
                        std::string_view where, int year) {
  if (m.gpu.empty()) {
    throw InputError(where, "machine.gpu is missing, and no 'like' names one to start from");
  }
  refuse_slip_of_link(catalog, m.intra_kind, fmt::format("{}: machine.intra.kind", where));
  refuse_slip_of_link(catalog, m.inter_kind, fmt::format("{}: machine.inter.kind", where));
  ComposedCluster result;
  const GpuSpec gpu = catalog.gpu(m.gpu, fmt::format("{}: gpu", where));
  const bool rack = gpu.nvlink_domain.has_value();
  int per_node = rack ? static_cast<int>(gpu.nvlink_domain->value) : m.gpus_per_node;
  const int needed = (world + per_node - 1) / per_node;
  if (rack && needed > 1 && world % needed == 0 && world < needed * per_node) {
    per_node = world / needed;  // 64 of 72: degrees are powers of two
    result.assumptions.push_back({.what = "placement",
                                  .value = fmt::format("{} GPUs of each NVLink domain", per_node),
                                  .source = "as many of each"});
  }
  result.nodes = m.nodes && !rack ? *m.nodes : needed;
  if (result.nodes < needed) {
    throw InputError(where, fmt::format("world {} is more than {} nodes of {} GPUs", world,
                                        result.nodes, per_node));
  }
  ComposedMachine request{.gpu = gpu.name, .gpus_per_node = per_node};
  // A kind names a family ("nvlink3"); the GPU's own transport may be a special one of it
  // (nvlink3-a800), and "nvswitch" says no more than the GPU does.
  const std::string& kind = m.intra_kind;
  if (!kind.empty() && !gpu.intra.starts_with(kind) && is_link(catalog, kind, false)) {
    request.intra = kind;
  } else if (year >= switches_since && gpu.intra == "pcie4") {
    request.intra = "pcie4-switch";
    result.assumptions.push_back(
        {.what = "intra",
         .value = "pcie4-switch",
         .source = "usual for PCIe servers measured since 2025: peers below switches"});
  }
  if (result.nodes > 1) {
    request.inter = inter_text(m, per_node, gpu, catalog, result.assumptions);
  }
  result.machine = catalog.compose(request, result.assumptions);
  if (m.intra_GBps) {
    result.machine.intra_rate = Bandwidth(*m.intra_GBps * 1e9);
  }
  return result;
}

}  // namespace spp::regress
