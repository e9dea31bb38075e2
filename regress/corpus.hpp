// Published measurements: the files that the model is judged by (format "sp-plan/corpus",
// reports/corpus/README.md). Reading is strict where a slip would change a score: units, degrees,
// names of known keys; keys that only repeat a source's words are kept out of the way.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "schedule/problem.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace spp::regress {

/// What a point is about.
enum class Scope : std::uint8_t { attention, model, kernel, collective, memory };
std::string_view to_string(Scope);
Scope parse_scope(std::string_view, std::string_view where);

/// In what a point is measured.
enum class Metric : std::uint8_t { time, memory, tflops_per_gpu, tokens_per_s, busbw };
std::string_view to_string(Metric);
/// Rates become times before they are compared: 1 / value.
[[nodiscard]] bool is_rate(Metric);
[[nodiscard]] double cost(Metric, double value);

/// "varlen" are packed documents whose lengths the source does not give.
enum class PointMask : std::uint8_t { causal, full, varlen_causal, varlen_full };

/// How the ring dimension moves its data.
enum class RingKind : std::uint8_t { p2p, all_gather, pass_q };

/// Which machine; what a source does not say is missing here.
struct CorpusMachine {
  std::string gpu;  // name or alias of topologies/gpus; "" if the source names none
  int gpus_per_node = 8;
  std::optional<int> nodes;
  std::string intra_kind;            // "nvlink3", "pcie4", …
  std::optional<double> intra_GBps;  // per GPU and direction
  std::string inter_kind;            // "ib", "none", …
  std::optional<double> inter_Gbps;  // of a node
  std::optional<int> nics;           // of a node
  std::optional<double> nic_GBps;    // what the source saw one NIC carry, one direction
  friend bool operator==(const CorpusMachine&, const CorpusMachine&) = default;
};

/// One measurement with everything that applies to it: its own keys over its file's.
struct Point {
  std::int64_t index = 0;  // in its file, from 0
  Scope scope = Scope::attention;
  Metric metric = Metric::time;
  std::optional<double> value;  // in the metric's unit; none: out of memory, or only known to run
  std::optional<bool> oom;
  std::string choice;   // "" if none
  std::string suspect;  // why scorers skip it; "" if they do not
  bool relative = false, beyond = false, per_gpu = false;
  double noise = 0;
  CorpusMachine machine;
  int world = 1;

  // the work
  std::optional<std::int64_t> seq, seq_kv, batch;
  std::optional<int> q_heads, kv_heads, head_dim, head_dim_v;
  std::optional<PointMask> mask;
  std::string phase, dtype, model, flops_convention, recompute, call;
  std::optional<std::int64_t> layers, hidden, ffn, vocab, steps, micro_batch, new_tokens;

  // the plan
  std::optional<int> ulysses, ring, cp;
  int team = 1, tp = 1, dp = 1, pp = 1, cfg = 1, pipefusion = 1;
  std::optional<int> zero, zero_group, inner;
  std::optional<Layout> layout;
  RingKind ring_kind = RingKind::p2p;
  bool double_ring = false, balanced = false;
  std::string placement;  // "ulysses-inner", "ring-inner" or ""

  // collectives and kernels
  std::string op, kernel, fabric, algo;
  std::optional<Bytes> bytes;
  bool peak = false;

  // the source's words on what ran
  std::string system, variant, features;
  int year = 0;  // of the source, hence of its software; 0: not stated
};

struct CorpusFile {
  std::filesystem::path path;
  std::string name, stack, title;
  std::string trust;
  std::vector<Point> points;
};

/// Reads one file. InputError names file, point and key: an unknown key that resembles a known one,
/// a wrong type, an unknown metric or unit, degrees whose product is not `world`, a missing key
/// that its scope needs.
CorpusFile read_corpus_file(const std::filesystem::path& path);

/// The files of a folder, by name. InputError if there is none.
std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder);

}  // namespace spp::regress
