// The formats of topologies/, which refer to each other: one reader each, with the words they
// share.
#include "machine/machine_json.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <limits>

namespace spp {
namespace {

std::string one_of(const JsonView& view, const std::vector<std::string>& known) {
  std::string text = view.string();
  for (const std::string& name : known) {
    if (text == name) {
      return text;
    }
  }
  view.fail(fmt::format("unknown value '{}'{}", text, did_you_mean(text, known)));
}

std::string name_in(const JsonView& document, std::string_view key) {
  const JsonView view = document.at(key);
  std::string name = view.string();
  if (name.empty()) {
    view.fail("is empty");
  }
  return name;
}

/// What `key` refers to: a name, or the thing itself, which has one; of the `whole` only the
/// latter.
std::string reference_in(const JsonView& document, std::string_view key, bool whole) {
  const JsonView view = document.at(key);
  return whole || view.value().is_object() ? name_in(view, "name") : name_in(document, key);
}

/// Of a link, beside that of its transport.
double spread_in(const JsonView& link) {
  const auto spread = link.find("spread");
  return spread ? spread->number(0, 2) : 0;
}

std::vector<Assumption> assumptions_of(const JsonView& document) {
  std::vector<Assumption> assumptions;
  if (const auto list = document.find("assumptions")) {
    for (const JsonView& row : list->elements()) {
      row.allow_only({"what", "value", "source"});
      assumptions.push_back({.what = name_in(row, "what"),
                             .value = name_in(row, "value"),
                             .source = name_in(row, "source")});
    }
  }
  return assumptions;
}

std::vector<std::string> aliases_of(const JsonView& document) {
  std::vector<std::string> aliases;
  if (const auto list = document.find("aliases")) {
    for (const JsonView& alias : list->elements()) {
      aliases.push_back(alias.string());
    }
  }
  return aliases;
}

// ---- transports
// ------------------------------------------------------------------------------------

Segment read_segment(const JsonView& view) {
  view.allow_only({"up_to", "latency", "fraction"});
  Segment s;
  s.up_to = view.at("up_to").is_null() ? Bytes(std::numeric_limits<std::int64_t>::max())
                                       : read_bytes(view.at("up_to")).value;
  s.latency = read_seconds(view.at("latency"));
  s.fraction = read_fraction(view.at("fraction"));
  return s;
}

std::vector<Segment> read_segments(const JsonView& list) {
  std::vector<Segment> segments;
  const std::vector<JsonView> elements = list.elements();
  if (elements.empty()) {
    list.fail("has no segment; one with \"up_to\": null is the least");
  }
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const JsonView& element = elements[i];
    segments.push_back(read_segment(element));
    const bool last = i + 1 == elements.size();
    if (element.at("up_to").is_null() != last) {
      element.at("up_to").fail(last ? "the last segment has no end: write null"
                                    : "only the last segment has no end: write a size");
    }
    if (i > 0 && segments[i].up_to <= segments[i - 1].up_to) {
      element.at("up_to").fail("is not larger than the segment's before");
    }
  }
  return segments;
}

std::vector<std::pair<int, double>> read_factors(const JsonView& list) {
  std::vector<std::pair<int, double>> factors;
  for (const JsonView& row : list.elements()) {
    row.allow_only({"ranks", "factor"});
    const auto ranks = static_cast<int>(read_count(row.at("ranks"), most_gpus).value);
    if (!factors.empty() && ranks <= factors.back().first) {
      row.at("ranks").fail("is not larger than the row's before");
    }
    factors.emplace_back(ranks, read_fraction(row.at("factor")).value);
  }
  return factors;
}

SwitchReduction read_nvls(const JsonView& view) {
  view.allow_only({"rate", "tree_rate"});
  return {.rate = read_bandwidth(view.at("rate")),
          .tree_rate = read_bandwidth(view.at("tree_rate"))};
}

AllReduceInside read_all_reduce_inside(const JsonView& view) {
  view.allow_only({"ring", "hop_latency", "tree_scaling", "nvls"});
  AllReduceInside a;
  a.ring = read_segments(view.at("ring"));
  a.hop_latency = read_seconds(view.at("hop_latency"));
  a.tree_scaling = read_fraction(view.at("tree_scaling"));
  if (const auto nvls = view.find("nvls")) {
    a.nvls = read_nvls(*nvls);
  }
  return a;
}

AllReduceAcross read_all_reduce_across(const JsonView& view) {
  view.allow_only({"stages", "simple_stage", "ring_hop", "tree_share", "ring_share"});
  AllReduceAcross a;
  const JsonView list = view.at("stages");
  for (const JsonView& row : list.elements()) {
    row.allow_only({"bytes", "latency"});
    const Bytes bytes = read_bytes(row.at("bytes")).value;
    Sourced<Seconds> latency = read_seconds(row.at("latency"));
    if (!a.stages.empty() && bytes <= a.stages.back().first) {
      row.at("bytes").fail("is not larger than the row's before");
    }
    if (!a.stages.empty() && latency.value < a.stages.back().second.value) {
      row.at("latency").fail("is less than the row's before: a longer message is never faster");
    }
    a.stages.emplace_back(bytes, std::move(latency));
  }
  if (a.stages.empty()) {
    list.fail("has no row");
  }
  a.simple_stage = read_seconds(view.at("simple_stage"));
  a.ring_hop = read_seconds(view.at("ring_hop"));
  a.tree_share = read_fraction(view.at("tree_share"));
  a.ring_share = read_fraction(view.at("ring_share"));
  return a;
}

// ---- generations
// -----------------------------------------------------------------------------------

ItemOrder read_order(const JsonView& view) {
  static const std::vector<std::string> names{"shortest_first", "longest_first",
                                              "longest_first_of_all"};
  const std::string name = one_of(view, names);
  return name == names[0]   ? ItemOrder::shortest_first
         : name == names[1] ? ItemOrder::longest_first
                            : ItemOrder::longest_first_of_all;
}

/// What an attention kernel may have beside the constants that every one has.
void read_attention_details(const JsonView& view, AttentionKernelSpec& a) {
  const auto part = [&](std::string_view key, double most, std::optional<Sourced<double>>& into) {
    if (const auto value = view.find(key)) {
      into = read_fraction(*value, most);
    }
  };
  part("forward_minimum_fill", 1, a.forward_minimum_fill);
  part("split_rate", 1, a.split_rate);
  if (a.split_rate && !a.forward_minimum_fill) {
    view.at("split_rate").fail("needs forward_minimum_fill: when the kernel splits");
  }
  part("lone_item", 1, a.lone_item);
  part("head_dim_256", 2, a.head_dim_256);
  const auto bytes = [&](std::string_view key, std::optional<Sourced<double>>& to) {
    if (const auto found = view.find(key)) {
      const Sourced<std::int64_t> count = read_count(*found, 256);
      to = {.value = static_cast<double>(count.value),
            .spread = count.spread,
            .source = count.source};
    }
  };
  bytes("backward_bytes", a.backward_bytes);
  bytes("kept_pair_bytes", a.kept_pair_bytes);
  if (const auto order = view.find("forward_order")) {
    a.forward_order = read_order(*order);
  }
  if (const auto order = view.find("backward_order")) {
    a.backward_order = read_order(*order);
  }
  if (const auto factor = view.find("matrix_rate_factor")) {
    a.matrix_rate_factor = read_count(*factor, 8);
  }
}

AttentionKernelSpec read_attention(const JsonView& view, std::string kernel) {
  view.allow_only({"version_of",
                   "until",
                   "like",
                   "q_tile",
                   "kv_tile",
                   "backward_tile",
                   "ctas_per_sm",
                   "item_overhead",
                   "item_overhead_backward",
                   "forward_full",
                   "forward_causal",
                   "backward_full",
                   "backward_causal",
                   "head_dim_64",
                   "startup",
                   "startup_backward",
                   "forward_minimum_fill",
                   "split_rate",
                   "lone_item",
                   "head_dim_256",
                   "backward_bytes",
                   "kept_pair_bytes",
                   "forward_order",
                   "backward_order",
                   "matrix_rate_factor"});
  constexpr std::int64_t most_rows = 1 << 16;
  const auto rows = [&](std::string_view key) { return read_count(view.at(key), most_rows); };
  const auto part = [&](std::string_view key) { return read_fraction(view.at(key)); };
  AttentionKernelSpec a;
  a.kernel = std::move(kernel);
  a.q_tile = rows("q_tile");
  a.kv_tile = rows("kv_tile");
  a.backward_tile = rows("backward_tile");
  a.ctas_per_sm = read_count(view.at("ctas_per_sm"), 32);
  a.item_overhead = rows("item_overhead");
  a.item_overhead_backward = rows("item_overhead_backward");
  a.forward_full = part("forward_full");
  a.forward_causal = part("forward_causal");
  a.backward_full = part("backward_full");
  a.backward_causal = part("backward_causal");
  a.head_dim_64 = read_fraction(view.at("head_dim_64"), 2);
  a.startup = read_seconds(view.at("startup"));
  a.startup_backward = read_seconds(view.at("startup_backward"));
  read_attention_details(view, a);
  return a;
}

constexpr std::int64_t most_sms = 4096;

/// The SMs that a GPU's communication kernels hold, or the core time of a CPU rank's messages.
void read_shares(const JsonView& document, TransportSpec& t) {
  if (const auto share = document.find("cpu_share")) {
    t.cpu_share = read_fraction(*share);
    if (const auto sms = document.find("sms")) {
      sms->fail("given together with cpu_share; CPU ranks have no SMs");
    }
    return;
  }
  if (t.medium == "host") {
    document.fail("cpu_share: ranks that copy through memory need it");
  }
  t.sms = read_count(document.at("sms"), most_sms);
}

/// "node", "cluster" or a number of nodes -> HostSpec::nodes.
std::int64_t read_sharing_nodes(const JsonView& view) {
  if (view.value().is_number()) {
    return view.integer(1, most_gpus);
  }
  return one_of(view, {"node", "cluster"}) == "cluster" ? 0 : 1;
}

void read_fabric_and_host(const JsonView& document, MachineSpec& m) {
  if (const auto fabric = document.find("fabric")) {
    fabric->allow_only({"kind", "nodes_per_leaf", "oversubscription"});
    m.fabric.kind = one_of(fabric->at("kind"), {"non-blocking", "fat-tree"});
    if (const auto leaf = fabric->find("nodes_per_leaf")) {
      m.fabric.nodes_per_leaf = read_count(*leaf, most_gpus);
    }
    m.fabric.oversubscription = read_fraction(fabric->at("oversubscription"), 64);
  }
  if (const auto host = document.find("host")) {
    host->allow_only({"cores", "shared_by"});
    m.host = {.cores = read_count(host->at("cores"), most_gpus),
              .nodes = read_sharing_nodes(host->at("shared_by"))};
  }
}

void read_shared_device(const JsonView& document, MachineSpec& m) {
  const auto device = document.find("device");
  if (!device) {
    return;
  }
  device->allow_only({"ranks", "multiprocessors", "memory_bandwidth", "l2"});
  m.device.emplace();
  m.device->ranks = read_count(device->at("ranks"), most_gpus_per_node);
  m.device->split = one_of(device->at("multiprocessors"), {"split", "whole"}) == "split";
  m.device->memory_bandwidth = read_bandwidth(device->at("memory_bandwidth"));
  if (const auto l2 = device->find("l2")) {
    m.device->l2 = read_bytes(*l2);
  }
}

Sourced<double> read_at_least_one(const JsonView& view) {
  Sourced<double> factor = read_fraction(view, 2);
  if (factor.value < 1) {
    view.fail(fmt::format("{} is below 1: in a group nothing is faster", factor.value));
  }
  return factor;
}

GpuSpec read_gpu_with(const JsonView& document, bool whole) {
  expect_format(document, "sp-plan/gpu");
  document.allow_only({"format", "format_version", "name", "aliases", "generation",
                       "compute_capability", "sms", "matrix_rate", "vector_rate_fp32", "memory",
                       "memory_usable", "memory_bandwidth", "intra", "pcie", "power_limit",
                       "gemm_training", "host_link", "nvlink_domain", "note"});
  GpuSpec g;
  g.name = name_in(document, "name");
  g.aliases = aliases_of(document);
  g.compute_capability = static_cast<int>(document.at("compute_capability").integer(0, 999));
  if (g.compute_capability > 0 && g.compute_capability < 10) {
    document.at("compute_capability").fail("is 10 times the version, such as 90; 0 is a CPU core");
  }
  g.sms = read_count(document.at("sms"), most_sms);
  const JsonView rates = document.at("matrix_rate");
  rates.allow_only({"bf16", "fp16", "fp32", "fp8", "fp4"});
  if (const auto rate = rates.find("fp8")) {
    g.fp8_rate = read_flop_rate(*rate);
  }
  if (const auto rate = rates.find("fp4")) {
    g.fp4_rate = read_flop_rate(*rate);
  }
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    if (const auto rate = rates.find(to_string(dtype))) {
      g.matrix_rate.emplace(dtype, read_flop_rate(*rate));
    }
  }
  if (g.matrix_rate.empty()) {
    rates.fail("has no rate; at least one of bf16, fp16, fp32");
  }
  g.vector_rate_fp32 = read_flop_rate(document.at("vector_rate_fp32"));
  g.memory = read_bytes(document.at("memory"));
  g.memory_usable = read_fraction(document.at("memory_usable"));
  g.memory_bandwidth = read_bandwidth(document.at("memory_bandwidth"));
  if (!whole) {  // defaults for machines that are composed; a whole machine has its own
    g.intra = name_in(document, "intra");
    g.pcie = g.compute_capability == 0 && !document.find("pcie") ? "" : name_in(document, "pcie");
  }
  g.generation.name = reference_in(document, "generation", whole);
  if (const auto domain = document.find("nvlink_domain")) {
    g.nvlink_domain = read_count(*domain, most_gpus_per_node);
  }
  if (const auto link = document.find("host_link")) {
    g.host_link = read_bandwidth(*link);
  }
  if (const auto training = document.find("gemm_training")) {
    g.gemm_training = read_fraction(*training);
  }
  if (const auto limit = document.find("power_limit")) {
    limit->allow_only({"after", "per_decade"});
    g.power_limit = {.after = read_seconds(limit->at("after")),
                     .per_decade = read_fraction(limit->at("per_decade"))};
  }
  return g;
}

MachineSpec read_machine_with(const JsonView& document, bool whole) {
  expect_format(document, "sp-plan/machine");
  document.allow_only({"format", "format_version", "name", "aliases", "gpu", "gpus_per_node",
                       "intra", "sockets", "host_bridge", "socket_link", "gpus_per_pcie_switch",
                       "inter", "fabric", "host", "device", "assumptions", "note"});
  MachineSpec m;
  m.name = name_in(document, "name");
  m.aliases = aliases_of(document);
  m.gpu.name = reference_in(document, "gpu", whole);
  m.gpus_per_node = read_count(document.at("gpus_per_node"), most_gpus_per_node);
  const JsonView intra = document.at("intra");
  intra.allow_only({"transport", "medium", "rate", "spread"});
  m.intra.name = reference_in(intra, "transport", whole);
  m.intra.medium = one_of(intra.at("medium"), {"nvlink", "pcie", "host", "device"});
  if (const auto rate = intra.find("rate")) {
    m.intra_rate = read_bandwidth(*rate).value;
  }
  m.intra_spread = spread_in(intra);
  m.sockets = read_count(document.at("sockets"), most_gpus_per_node);
  if (const auto bridge = document.find("host_bridge")) {
    m.host_bridge = read_bandwidth(*bridge);
  }
  if (const auto link = document.find("socket_link")) {
    m.socket_link = read_bandwidth(*link);
  }
  if (const auto count = document.find("gpus_per_pcie_switch")) {
    m.gpus_per_pcie_switch = read_count(*count, most_gpus_per_node);
  }
  if (const auto inter = document.find("inter")) {
    inter->allow_only({"transport", "nics", "rate_per_nic", "gpus_per_nic", "spread"});
    m.inter.emplace();
    m.inter->transport.name = reference_in(*inter, "transport", whole);
    m.inter->nics = read_count(inter->at("nics"), most_gpus_per_node);
    m.inter->rate_per_nic = read_bandwidth(inter->at("rate_per_nic"));
    m.inter->gpus_per_nic = read_count(inter->at("gpus_per_nic"), most_gpus_per_node);
    m.inter->spread = spread_in(*inter);
  }
  read_fabric_and_host(document, m);
  read_shared_device(document, m);
  m.assumptions = assumptions_of(document);
  return m;
}

}  // namespace

TransportSpec read_transport(const JsonView& document) {
  expect_format(document, "sp-plan/transport");
  document.allow_only({"format",
                       "format_version",
                       "name",
                       "aliases",
                       "medium",
                       "scope",
                       "rate",
                       "fitted_at",
                       "most",
                       "p2p",
                       "all_to_all",
                       "all_gather",
                       "reduce_scatter",
                       "hop_latency",
                       "all_to_all_by_ranks",
                       "own_copy",
                       "all_reduce",
                       "sms",
                       "cpu_share",
                       "note"});
  TransportSpec t;
  t.name = name_in(document, "name");
  t.aliases = aliases_of(document);
  t.medium = one_of(document.at("medium"), {"nvlink", "pcie", "host", "device", "network"});
  const bool network = t.medium == "network";
  const std::string scope = one_of(document.at("scope"), {"intra", "inter"});
  if ((scope == "inter") != network) {
    document.at("scope").fail(
        fmt::format("medium {} is {}", t.medium, network ? "inter" : "intra"));
  }
  if (const auto rate = document.find("rate")) {
    if (network) {
      rate->fail("a network's rate is the machine's (inter.rate_per_nic): write null");
    }
    t.rate = read_bandwidth(*rate);
  } else if (!network) {
    document.fail("rate: a link inside a node needs its nominal rate");
  }
  if (const auto fitted = document.find("fitted_at")) {
    t.fitted_at = read_bandwidth(*fitted);
  }
  if (const auto most = document.find("most")) {
    if (!network) {
      most->fail("is a network's: a link inside a node has its rate");
    }
    t.most = read_bandwidth(*most);
  }
  const auto set = [&](CommKind kind, std::string_view key) {
    t.segments.at(static_cast<std::size_t>(kind)) = read_segments(document.at(key));
  };
  set(CommKind::send_recv, "p2p");
  set(CommKind::all_to_all, "all_to_all");
  set(CommKind::all_gather, "all_gather");
  set(CommKind::reduce_scatter, "reduce_scatter");
  t.hop_latency = read_seconds(document.at("hop_latency"));
  if (const auto factors = document.find("all_to_all_by_ranks")) {
    t.all_to_all_by_ranks = read_factors(*factors);
  }
  if (const auto copy = document.find("own_copy")) {
    t.own_copy = read_fraction(*copy).value;
  }
  if (const auto reduce = document.find("all_reduce")) {
    if (network) {
      t.all_reduce_across = read_all_reduce_across(*reduce);
    } else {
      t.all_reduce_inside = read_all_reduce_inside(*reduce);
    }
  }
  read_shares(document, t);
  return t;
}

namespace {

/// A kernel that is like another one, or an earlier version of it, says what differs from that.
AttentionKernelSpec read_kernel(const JsonView& generation, const std::string& name) {
  const JsonView kernels = generation.at("kernels");
  const JsonView view = kernels.at(name);
  const auto version = view.find("version_of");
  const auto like = view.find("like");
  if (version && like) {
    like->fail("stands beside version_of; say one of them");
  }
  if (!version && !like) {
    return read_attention(view, name);
  }
  constexpr int first_year = 2000;
  constexpr int last_year = 2100;
  const JsonView& of = version ? *version : *like;
  const bool of_default = of.string() == generation.at("kernel").string();
  const auto other = of_default ? generation.find("attention") : kernels.find(of.string());
  if (!other || other->find("version_of") || other->find("like")) {
    of.fail(fmt::format("'{}' is no kernel of this generation that says all itself", of.string()));
  }
  Json whole = other->value();
  whole.merge_patch(view.value());
  AttentionKernelSpec kernel = read_attention(JsonView(whole, view.where()), name);
  if (version) {
    kernel.version_of = version->string();
    kernel.until = static_cast<int>(view.at("until").integer(first_year, last_year));
  }
  return kernel;
}

}  // namespace

namespace {

constexpr std::int64_t most_tile_rows = 1 << 12;

GemmTilesSpec read_gemm_tiles(const JsonView& view) {
  view.allow_only({"shapes", "small", "time", "split", "memory", "slower", "slower_after",
                   "grouped", "grouped_memory"});
  GemmTilesSpec t;
  for (const JsonView& shape : view.at("shapes").elements()) {
    const std::vector<JsonView> sides = shape.elements();
    if (sides.size() != 2) {
      shape.fail("is no tile; write [rows, columns]");
    }
    t.shapes.push_back({.rows = sides[0].integer(1, most_tile_rows),
                        .columns = sides[1].integer(1, most_tile_rows)});
  }
  if (t.shapes.empty()) {
    view.at("shapes").fail("is empty: a library has one tile at least");
  }
  t.small_tile = read_count(view.at("small"), most_tile_rows);
  t.tile_time = read_seconds(view.at("time"));
  t.split = read_seconds(view.at("split"));
  t.memory = read_fraction(view.at("memory"));
  t.slower = read_fraction(view.at("slower"), 4);
  t.slower_after = read_seconds(view.at("slower_after"));
  t.grouped = read_fraction(view.at("grouped"));
  t.grouped_memory = read_fraction(view.at("grouped_memory"));
  return t;
}

void read_gemm(const JsonView& gemm, GenerationSpec& g) {
  gemm.allow_only({"efficiency", "startup", "tile", "tiles", "formats", "training"});
  g.gemm_efficiency = read_fraction(gemm.at("efficiency"));
  g.gemm_startup = read_seconds(gemm.at("startup"));
  g.gemm_tile = read_count(gemm.at("tile"), 1 << 16);
  if (const auto training = gemm.find("training")) {
    g.gemm_training = read_fraction(*training);
  }
  const auto tiles = gemm.find("tiles");
  if (tiles) {
    g.gemm_tiles = read_gemm_tiles(*tiles);
  }
  const auto formats = gemm.find("formats");
  if (!formats) {
    return;
  }
  if (!tiles) {
    formats->fail("needs tiles, too");
  }
  for (const auto& [name, view] : formats->members()) {
    const GemmFormat format = parse_gemm_format(name, view.where());
    view.allow_only({"efficiency", "quantise", "quantise_bytes", "grouped"});
    GemmFormatSpec f{.efficiency = read_fraction(view.at("efficiency")),
                     .quantise = read_seconds(view.at("quantise")),
                     .quantise_bytes = read_count(view.at("quantise_bytes"), 256),
                     .grouped = std::nullopt};
    if (const auto grouped = view.find("grouped")) {
      f.grouped = read_fraction(*grouped);
    }
    if (format == GemmFormat::plain) {
      view.fail("is what efficiency tells of already");
    }
    g.gemm_formats.emplace(format, std::move(f));
  }
}

}  // namespace

GenerationSpec read_generation(const JsonView& document) {
  expect_format(document, "sp-plan/generation");
  document.allow_only({"format", "format_version", "name", "aliases", "kernel", "attention", "gemm",
                       "experts", "linear", "sparse", "elementwise", "layer", "launch", "kernels",
                       "group", "note"});
  GenerationSpec g;
  g.name = name_in(document, "name");
  g.attention = read_attention(document.at("attention"), name_in(document, "kernel"));
  read_gemm(document.at("gemm"), g);
  if (const auto experts = document.find("experts")) {
    experts->allow_only({"beside", "traffic"});
    g.expert_layer = {.beside = read_seconds(experts->at("beside")),
                      .traffic = read_fraction(experts->at("traffic"), 8)};
  }
  if (document.find("linear")) {
    g.linear = read_linear(document);
  }
  if (document.find("sparse")) {
    g.sparse = read_sparse(document);
  }
  const JsonView elementwise = document.at("elementwise");
  elementwise.allow_only({"memory_efficiency"});
  g.memory_efficiency = read_fraction(elementwise.at("memory_efficiency"));
  if (const auto layer = document.find("layer")) {
    g.layer = read_layer_kernels(*layer);
  }
  g.launch = read_seconds(document.at("launch"));
  if (const auto kernels = document.find("kernels")) {
    for (const auto& [kernel, ignored] : kernels->value().items()) {
      g.kernels.emplace(kernel, read_kernel(document, kernel));
    }
  }
  if (const auto group = document.find("group")) {
    group->allow_only({"forward", "backward"});
    const auto factor = [&](std::string_view key) {
      const auto view = group->find(key);
      return view ? std::optional(read_at_least_one(*view)) : std::nullopt;
    };
    g.group_forward = factor("forward");
    g.group_backward = factor("backward");
  }
  return g;
}

GpuSpec read_gpu(const JsonView& document) { return read_gpu_with(document, false); }

MachineSpec read_machine(const JsonView& document) { return read_machine_with(document, false); }

MachineSpec read_whole_machine(const JsonView& document) {
  MachineSpec m = read_machine_with(document, true);
  const JsonView gpu = document.at("gpu");
  m.gpu = read_gpu_with(gpu, true);
  m.gpu.generation = read_generation(gpu.at("generation"));
  const std::string medium = m.intra.medium;
  m.intra = read_transport(document.at("intra").at("transport"));
  if (const auto inter = document.find("inter")) {
    m.inter->transport = read_transport(inter->at("transport"));
  }
  complete(m, medium, document.where());
  return m;
}

namespace {

void widen(TransportSpec& transport, double spread) {
  for (std::vector<Segment>& segments : transport.segments) {
    for (Segment& s : segments) {
      s.fraction.spread = std::max(s.fraction.spread, spread);
    }
  }
}

}  // namespace

void complete(MachineSpec& machine, const std::string& claimed_medium, std::string_view where) {
  const TransportSpec& intra = machine.intra;
  if (intra.medium != claimed_medium) {
    throw InputError(
        fmt::format("{}: intra.medium", where),
        fmt::format("'{}', but transport '{}' is {}", claimed_medium, intra.name, intra.medium));
  }
  if (machine.intra_rate == Bandwidth{}) {
    machine.intra_rate = intra.rate->value;
  }
  widen(machine.intra, machine.intra_spread);
  if (intra.medium == "pcie") {  // past sockets, else
    widen(machine.intra, machine.host_bridge ? machine.host_bridge->spread : 0);
    widen(machine.intra, machine.socket_link ? machine.socket_link->spread : 0);
  }
  if (machine.inter) {
    widen(machine.inter->transport,
          std::max(machine.inter->spread, machine.inter->rate_per_nic.spread));
  }
  check(machine, where);
}

}  // namespace spp
