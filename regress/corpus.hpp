// Published measurements: the files that the model is judged by (format "sp-plan/corpus",
// reports/corpus/README.md). Reading is strict where a slip would change a score: units, degrees,
// names of known keys; keys that only repeat a source's words are kept out of the way.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "schedule/problem.hpp"
#include "step/plan.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace spp::regress {

/// What a point is about.
enum class Scope : std::uint8_t { attention, model, kernel, collective, memory };
std::string_view to_string(Scope);

/// In what a point is measured.
enum class Metric : std::uint8_t { time, memory, tflops_per_gpu, tokens_per_s, busbw };
std::string_view to_string(Metric);
/// Rates become times before they are compared: 1 / value.
[[nodiscard]] bool is_rate(Metric);
[[nodiscard]] double cost(Metric, double value);

/// "varlen" are packed documents, whose lengths the source may not give.
enum class PointMask : std::uint8_t { causal, full, varlen_causal, varlen_full };

/// How the ring dimension moves its data.
enum class RingKind : std::uint8_t { p2p, all_gather, pass_q, group_cast };

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
  /// Where each packed document ends; of several sequences, over which the source took the mean.
  std::vector<std::vector<std::int64_t>> packings;
  /// dtype: formats by our names, with the source's words ("fp8_block", "bf16 attention, fp8 ffn").
  std::string phase, dtype, model, flops_convention, recompute, call;
  std::optional<std::int64_t> layers, hidden, ffn, vocab, steps, micro_batch;
  std::optional<std::int64_t> new_tokens;  // of a prefill whose other keys are there already
  std::string blocks, task;                // of a diffusion transformer; what it is asked for

  // what kind of layers a model has, where it is not the usual one
  std::optional<bool> gated, tied_embeddings;
  std::string mlp;
  std::optional<int> experts, experts_per_token, shared_experts, dense_layers;
  std::optional<std::int64_t> moe_ffn, shared_expert_ffn;
  std::optional<std::int64_t> q_lora_rank, kv_lora_rank, qk_rope_head_dim, v_head_dim;  // MLA

  // the plan
  std::optional<int> ulysses, ring, cp;  // cp: a context-parallel degree of unknown kind
  int team = 1, tp = 1, dp = 1, pp = 1, cfg = 1, pipefusion = 1;
  std::optional<int> vp, ep, etp, grad_accum;
  std::optional<int> zero, zero_group, inner;
  std::string schedule, ac;
  std::optional<Offload> offload;
  double offloaded = 1;  // part of the activations that moves, if they do
  std::optional<bool> tp_sequence_parallel;
  std::optional<Layout> layout;
  RingKind ring_kind = RingKind::p2p;
  bool double_ring = false;
  std::string placement;  // "ulysses-inner", "ring-inner" or ""

  // collectives and kernels
  std::string op, kernel, algo, library;
  std::optional<std::int64_t> m, n, k, tokens;
  std::string distribution;   // of tokens over experts
  std::string layer, plugin;  // linear attention: of which kind, which kernel
  std::optional<int> k_heads, k_head_dim, v_heads, d_conv, d_state;
  std::optional<int> linear_heads, linear_groups, chunk;  // Mamba2: "heads", "groups", "chunk"
  std::optional<std::int64_t> channels;
  std::string mode;        // of ep_dispatch and ep_combine: "normal", "low_latency"
  std::optional<int> sms;  // that a communication kernel was given
  std::optional<Bytes> bytes;
  bool peak = false;

  // the source's words on what ran
  std::string system, variant, features, dispatcher;
  int year = 0;  // of the source, hence of its software; 0: not stated

  /// The context-parallel degree whose kind is not stated: `cp` where Ulysses x ring says none.
  [[nodiscard]] std::optional<int> cp_of_open_kind() const {
    return ulysses && ring && *ulysses * *ring > 1 ? std::nullopt : cp;
  }
  [[nodiscard]] bool packs() const {
    return mask == PointMask::varlen_causal || mask == PointMask::varlen_full;
  }
  [[nodiscard]] bool packs_unknown() const { return packs() && packings.empty(); }
};

/// Of a source's words on what ran.
inline bool contains(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

struct CorpusFile {
  std::filesystem::path path;
  std::string name, stack, title, notes;
  std::string trust;
  std::vector<Point> points;
  std::vector<std::string> unread;  // keys of numbers that nobody knows
};

/// Families of files, by which figures are reported: the scopes, and kinds of kernels and
/// collectives that are judged apart from attention kernels and NCCL ("gemm", "moe", …).
inline constexpr std::array<std::string_view, 12> families{
    "attention", "model", "kernel", "collective", "memory", "gemm",
    "moe",       "mla",   "linear", "serving",    "packed", "expert-parallel"};
/// The family of most of a file's points.
std::string_view family_of(const CorpusFile& file);
/// InputError(where) if unknown, with the nearest.
std::string_view parse_family(std::string_view, std::string_view where);

/// Reads one file. InputError names file, point and key: an unknown key that resembles a known one,
/// a wrong type, an unknown metric or unit, degrees whose product is not `world`, a missing key
/// that its scope needs.
CorpusFile read_corpus_file(const std::filesystem::path& path);

/// The files of a folder, by name. InputError if there is none.
std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder);

}  // namespace spp::regress
