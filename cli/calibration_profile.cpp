// The profile as a document: every number with its unit, its source and its spread.
#include "base/error.hpp"
#include "cli/calibration.hpp"
#include "cli/report_json.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>

namespace spp::cli {
namespace {

using runtime::Series;

/// Five digits: more is noise.
double rounded(double value) { return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr); }

std::string utc(const char* form) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  (void)std::strftime(text.data(), text.size(), form, &parts);
  return text.data();
}

class Writer {
 public:
  explicit Writer(const ProfileInput& input)
      : input_(input),
        hosts_(input.calibration.hosts),
        series_(all_series(input.calibration)),
        date_(utc("%Y-%m-%d")) {}

  Json write() {
    Json json = document("profile");
    json["name"] = input_.name;
    json["date"] = utc("%Y-%m-%dT%H:%M:%SZ");
    json["environment"] = environment();
    json["nodes"] = counted(hosts_.nodes(), "host names of the ranks");
    json["machine"] = machine();
    json["attention"] = attention();
    json["other"] = Json::array();
    Json samples = Json::array();
    for (const Series& s : series_) {
      samples.push_back(runtime::to_json(s));
    }
    json["samples"] = samples;
    return json;
  }

 private:
  Json quantity(double value, std::string_view unit, std::string source, double spread) const {
    return {{"value", rounded(value)},
            {"unit", unit},
            {"source", std::move(source)},
            {"spread", rounded(std::clamp(spread, 0.0, 2.0))}};
  }
  Json counted(std::int64_t value, std::string source, std::string_view unit = "count") const {
    return {{"value", value}, {"unit", unit}, {"source", std::move(source)}};
  }
  Json fitted(const Fitted& f, double scale, std::string_view unit, std::string_view what) const {
    if (f.samples == 0) {
      Json json =
          quantity(f.value * scale, unit, fmt::format("assumed: {}, not measured", what), f.spread);
      json["assumed"] = true;
      return json;
    }
    return quantity(f.value * scale, unit,
                    fmt::format("measured, of {} samples, {}, {}", f.samples, date_, what),
                    std::max(f.spread, 0.005));
  }
  Json assumed(double value, std::string_view unit, std::string_view why) const {
    Json json = quantity(value, unit, fmt::format("assumed: {}", why), 0.3);
    json["assumed"] = true;
    return json;
  }

  static Json headed(std::string_view kind, std::string_view name) {
    return {{"format", fmt::format("sp-plan/{}", kind)}, {"format_version", "1.0"}, {"name", name}};
  }

  // ---- where

  Json environment() const {
    std::ifstream cpuinfo("/proc/cpuinfo");
    std::string model = "unknown";
    for (std::string line; std::getline(cpuinfo, line);) {
      if (line.starts_with("model name")) {
        model = line.substr(std::min(line.size(), line.find(':') + 2));
        break;
      }
    }
    utsname system{};
    uname(&system);
    Json json = {{"cpu", model},
                 {"cores", fmt::format("{}", hosts_.cores)},
                 {"os", fmt::format("{} {}", system.sysname, system.release)},
                 {"comm", input_.comm},
                 {"kernels", input_.kernels},
                 {"ranks", fmt::format("{}", hosts_.per_node * hosts_.nodes())}};
    for (const auto& [name, version] : runtime::library_versions()) {
      json[name] = version;
    }
    json["date"] = utc("%Y-%m-%dT%H:%M:%SZ");
    return json;
  }

  // ---- links

  /// Segments of one kind; where it was not measured, those of messages.
  Json segments(const FittedTransport& t, CommKind kind) const {
    const bool own = !t.segments.at(static_cast<std::size_t>(kind)).empty();
    const auto at = static_cast<std::size_t>(own ? kind : CommKind::send_recv);
    const std::string source =
        own ? fmt::format("measured, medians of {} samples, {}", t.samples.at(at), date_)
            : fmt::format("assumed: as p2p, {} was not measured", to_string(kind));
    Json list = Json::array();
    const auto& lines = t.segments.at(at);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const LineFit& line = lines[i].line;
      const double fraction =
          line.per_unit > 0 ? std::min(1.0, 1 / (line.per_unit * t.rate.value)) : 1;
      const double spread = std::max(line.spread, 0.005);
      list.push_back(
          {{"up_to",
            i + 1 == lines.size() ? Json() : counted(std::llround(lines[i].up_to), source, "B")},
           {"latency", quantity(line.latency * 1e6, "us", source, spread)},
           {"fraction", quantity(fraction, "fraction", source, spread)}});
    }
    return list;
  }

  Json transport(const FittedTransport& t, std::string_view name, bool network) const {
    Json json = headed("transport", name);
    json["medium"] = network ? "network" : "host";
    json["scope"] = network ? "inter" : "intra";
    json["rate"] = network ? Json()
                           : fitted(t.rate, 1e-9, "GB/s",
                                    "the best that a rank reaches with a core of its own");
    json["p2p"] = segments(t, CommKind::send_recv);
    json["all_to_all"] = segments(t, CommKind::all_to_all);
    json["all_gather"] = segments(t, CommKind::all_gather);
    json["reduce_scatter"] = segments(t, CommKind::reduce_scatter);
    json["hop_latency"] = fitted(t.hop, 1e6, "us", "small messages round rings");
    if (!t.all_to_all_by_ranks.empty()) {
      Json& rows = json["all_to_all_by_ranks"] = Json::array();
      for (const auto& [ranks, factor] : t.all_to_all_by_ranks) {
        rows.push_back({{"ranks", counted(ranks, "groups measured")},
                        {"factor", quantity(factor, "fraction",
                                            fmt::format("measured, {}, rate against the best "
                                                        "number of ranks",
                                                        date_),
                                            0.05)}});
      }
    }
    json["cpu_share"] =
        fitted(t.cpu_share, 1, "fraction", "core time of a loop beside an exchange");
    return json;
  }

  /// Ranks that are alone in their node have no neighbours to measure.
  static FittedTransport no_neighbours() {
    FittedTransport t;
    t.rate = {.value = 5e9, .spread = 0.5, .samples = 0};
    t.cpu_share = {.value = 1, .spread = 0.3, .samples = 0};
    t.hop = {.value = 2e-6, .spread = 0.5, .samples = 0};
    t.segments.front() = {{.up_to = std::numeric_limits<double>::infinity(),
                           .line = {.latency = 2e-6, .per_unit = 1 / t.rate.value, .spread = 0.5}}};
    return t;
  }

  // ---- cores

  sim::GpuSpec gpu() const {
    sim::GpuSpec gpu;
    gpu.name = "cpu core";
    gpu.sms.value = 1;
    for (const auto& [dtype, peak] : peaks()) {
      gpu.matrix_rate[dtype] = {.value = FlopRate(peak.value), .spread = 0, .source = ""};
    }
    return gpu;
  }

  std::map<DType, Fitted> peaks() const {
    auto peaks = fit_peaks(series_);
    if (peaks.empty()) {
      for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
        peaks[dtype] = {.value = 5e10, .spread = 1, .samples = 0};
      }
    }
    return peaks;
  }

  Json kernel(const FittedAttention& a) const {
    const auto rows = [&](std::int64_t n, std::string_view source) {
      return counted(n, std::string(source), "rows");
    };
    const std::string tiles = fmt::format("tiles of the {} kernels", input_.kernels);
    const auto efficiency = [&](const Fitted& f, std::string_view what) {
      return fitted(f, 1, "fraction", fmt::format("{} blocks, part of matrix_rate", what));
    };
    const std::string fit = fmt::format("fitted to attention blocks, {}", date_);
    return {{"q_tile", rows(a.q_tile, tiles)},
            {"kv_tile", rows(a.kv_tile, tiles)},
            {"backward_tile", rows(a.backward_tile, tiles)},
            {"ctas_per_sm", counted(1, "a core works on one tile at a time")},
            {"item_overhead", rows(std::llround(a.forward.item_overhead), fit)},
            {"item_overhead_backward", rows(std::llround(a.backward.item_overhead), fit)},
            {"forward_full", efficiency(a.forward.full, "unmasked forward")},
            {"forward_causal", efficiency(a.forward.causal, "masked forward")},
            {"backward_full", efficiency(a.backward.full, "unmasked backward")},
            {"backward_causal", efficiency(a.backward.causal, "masked backward")},
            {"head_dim_64", assumed(1, "fraction", "efficiencies hold for the head_dim measured")},
            {"startup", fitted(a.forward.startup, 1e6, "us", "forward blocks")},
            {"startup_backward", fitted(a.backward.startup, 1e6, "us", "backward blocks")}};
  }

  Json generation(const FittedMemory& memory) const {
    Json json = headed("generation", "cpu");
    json["kernel"] = input_.kernels;
    json["attention"] = kernel(fit_attention(series_, input_.kernels, gpu(), input_.dtype));
    json["gemm"] = {
        {"efficiency", assumed(0.9, "fraction", "a plain product is close to the peak")},
        {"startup", assumed(5, "us", "a call of a library")},
        {"tile", counted(64, "assumed: blocking of a library", "rows")}};
    json["elementwise"] = {
        {"memory_efficiency", fitted(memory.efficiency, 1, "fraction",
                                     "merge, accumulate, cast, copy, row_dot together")}};
    json["launch"] = fitted(memory.launch, 1e6, "us", "an op of the executor");
    return json;
  }

  Json core() const {
    const FittedMemory memory = fit_memory(series_);
    Json json = headed("gpu", "cpu core");
    json["generation"] = generation(memory);
    json["compute_capability"] = 0;
    json["sms"] = counted(1, "a rank is a thread");
    Json rates = Json::object();
    double vector = 0;
    for (const auto& [dtype, peak] : peaks()) {
      rates[std::string(to_string(dtype))] =
          fitted(peak, 1e-9, "GFLOP/s", "1.1 times the fastest attention kernel");
      vector = dtype == DType::fp32 || vector == 0 ? peak.value : vector;
    }
    json["matrix_rate"] = rates;
    json["vector_rate_fp32"] =
        assumed(vector * 1e-9, "GFLOP/s", "vector units do the products in fp32, too");
    json["memory"] = quantity(hosts_.memory.as_double() / hosts_.per_node / (1 << 30), "GiB",
                              fmt::format("MemTotal / {} ranks of the host", hosts_.per_node), 0);
    json["memory_usable"] = assumed(0.9, "fraction", "the rest is the system's");
    json["memory_bandwidth"] =
        fitted(memory.bandwidth, 1e-9, "GB/s", "the fastest of the kernels around attention");
    return json;
  }

  Json machine() const {
    Json json = headed("machine", input_.name);
    json["gpu"] = core();
    json["gpus_per_node"] = counted(hosts_.per_node, "ranks of a host");
    const FittedTransport intra = fit_transport(series_, "intra", hosts_).value_or(no_neighbours());
    json["intra"] = {{"transport", transport(intra, fmt::format("{}-memory", input_.comm), false)},
                     {"medium", "host"}};
    json["sockets"] = counted(1, "not looked at");
    if (const auto inter = fit_transport(series_, "inter", hosts_)) {
      json["inter"] = {
          {"transport", transport(*inter, fmt::format("{}-network", input_.comm), true)},
          {"nics", counted(inter->nics, "one pair against all pairs of two nodes")},
          {"rate_per_nic", fitted(inter->rate, 1e-9, "GB/s", "all pairs of two nodes at once")},
          {"gpus_per_nic",
           counted(hosts_.per_node / inter->nics, "one pair against all pairs of two nodes")}};
    }
    json["host"] = {{"cores", counted(hosts_.cores, "sched_getaffinity")},
                    {"shared_by", hosts_.one_machine ? "cluster" : "node"}};
    return json;
  }

  Json attention() const {
    Json list = Json::array();
    for (const Series& s : series_) {
      if (s.what != "attention" || !s.block || s.seconds.empty()) {
        continue;
      }
      Json entry = {{"kernels", input_.kernels}};
      const Json series = runtime::to_json(s);
      for (const auto& [key, value] : series.at("block").items()) {
        entry[key] = value;
      }
      entry["median_s"] = rounded(runtime::median_of(s.seconds));
      entry["spread"] = rounded(std::clamp(runtime::spread_of(s.seconds), 0.0, 2.0));
      entry["n"] = s.seconds.size();
      list.push_back(std::move(entry));
    }
    return list;
  }

  const ProfileInput& input_;
  const runtime::Hosts& hosts_;
  std::vector<Series> series_;
  std::string date_;
};

}  // namespace

Json profile_document(const ProfileInput& input) { return Writer(input).write(); }

}  // namespace spp::cli
