// Models as data: the shape of a decoder (llm) or of a diffusion transformer (dit), read from
// models/*.json or from a published config.json.
//
// A model is `layers` layers: norm, attention, norm, MLP or experts, on a residual stream `hidden`
// wide, or on several of them (`streams`); of a hybrid one some have linear attention instead, or
// one of these parts alone. What does not fit that picture (K and V of another layer) is recognised
// and named in `not_costed`, never guessed; of such a model there may be weights alone, `counted`.
// What a config does not say and the reader filled in stands in `assumed`.
#pragma once

#include "base/json.hpp"
#include "schedule/state_scan.hpp"
#include "schedule/tokens.hpp"

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

enum class ModelKind : std::uint8_t { llm, dit };
std::string_view to_string(ModelKind);

/// Experts in place of an MLP: each token goes through a few of many, and through the shared ones.
struct Experts {
  int count = 0;      // routed ones; 0: none
  int per_token = 0;  // of them
  std::int64_t ffn = 0;
  int shared = 0;
  std::int64_t shared_ffn = 0;    // all shared ones together
  std::int64_t dense_layers = 0;  // first layers, which have an MLP
  std::int64_t every = 1;         // of the layers behind: in each so many-th of all only
  std::int64_t latent = 0;   // above 0: routed tokens are brought down to so many numbers, and back
  bool shared_gate = false;  // what the shared ones give is gated, by a number a token
  bool router_bias = false;
  bool bias = false;  // of the experts' matrices
  /// The shared ones and the routed ones read, and give, through norms of their own (Gemma 4).
  bool own_norms = false;
  /// The layer, counted from 0, has experts.
  [[nodiscard]] bool routes(std::int64_t layer) const {
    return count > 0 && layer >= dense_layers && (layer + 1) % every == 0;
  }
  friend bool operator==(const Experts&, const Experts&) = default;
};

/// Multi-head latent attention: K and V, and Q, are made from latents a few hundred wide.
struct Latent {
  std::int64_t q_rank = 0;   // 0: Q is made from the stream
  std::int64_t kv_rank = 0;  // 0: no latent attention
  int nope_dim = 0, rope_dim = 0, value_dim = 0;
  friend bool operator==(const Latent&, const Latent&) = default;
};

/// Layers of linear attention: a short convolution over what their projection gives, a state that
/// is carried through the sequence, a gated norm (gated DeltaNet, Mamba2).
struct LinearLayers {
  StateScan scan{};
  int conv_kernel = 4;  // tokens that the convolution sees
  bool conv_bias = false;
  bool bias = false;  // of the projections
  friend bool operator==(const LinearLayers&, const LinearLayers&) = default;
};

/// Of sparse attention: small heads of its own that score the keys a query sees; the query then
/// meets the best few alone (DeepSeek-V3.2, arXiv:2512.02556, section 2.1; of compressed entries
/// DeepSeek-V4, arXiv:2606.19348, section 2.3). Over latents.
struct Indexer {
  int heads = 0, dim = 0;
  std::int64_t keys = 0;  // that each query meets
  friend bool operator==(const Indexer&, const Indexer&) = default;
};

/// Which keys queries of sparse attention meet: those of the last `window` tokens (0: none), and
/// entries, each made of `entry` tokens (0: none), that end with the query or before it: the
/// `picked` best that an indexer finds, or all (0). Entries of one token are its keys.
struct MetKeys {
  std::int64_t window = 0, entry = 0, picked = 0;
  [[nodiscard]] bool any() const { return window > 0 || entry > 0; }
  friend auto operator<=>(const MetKeys&, const MetKeys&) = default;
};

/// Attention's output comes down in groups of its heads, each to `rank` numbers, then all of these
/// to the stream (DeepSeek-V4).
struct GroupedOutput {
  int groups = 0;
  std::int64_t rank = 0;
  friend bool operator==(const GroupedOutput&, const GroupedOutput&) = default;
};

/// What a layer of a hybrid model consists of, each part behind its own norm. `picked`: attention
/// to keys that an indexer picks; `compressed`: to a window and to entries made of several tokens.
enum class Mixer : std::uint8_t { attention, picked, compressed, linear, none };
/// `tabled`: experts that a table of token ids picks; the router gives them weights alone.
enum class Feed : std::uint8_t { mlp, experts, tabled, none };
struct LayerBlocks {
  Mixer mixer = Mixer::attention;
  Feed feed = Feed::mlp;
  MetKeys keys{};  // of sparse attention
  friend bool operator==(const LayerBlocks&, const LayerBlocks&) = default;
};

/// Of an MLP or of experts. quick_gelu: x sigmoid(1.702 x), as gpt-oss has it.
enum class Activation : std::uint8_t { silu, gelu, quick_gelu, squared_relu, other };

struct DiffusionFamily;  // diffusion_family.hpp

/// What makes a transformer one of diffusion: how text and the step's conditioning meet the tokens.
struct DiffusionBlocks {
  const DiffusionFamily* family = nullptr;  // one of the table; nullptr: none that is known
  /// Text tokens that stand in the sequence, attended to like all others; it counts them.
  std::int64_t joint_tokens = 0;
  /// First layers in which image and text have weights of their own, and attend together (MM-DiT,
  /// arXiv:2403.03206); the others treat all tokens alike.
  std::int64_t two_streams = 0;
  /// In the layers behind these attention and MLP read the same norm, and one GEMM brings both back
  /// (ViT-22B, arXiv:2302.05442; FLUX).
  bool parallel_mlp = false;
  /// adaLN: a layer's (two streams: a stream's) vectors of `hidden`, made from an embedding so
  /// wide; 0: from a table, which is no kernel.
  std::int64_t modulation_width = 0;
  int modulation_vectors = 0;
  bool cross_norm = true;  // in front of cross-attention
  /// Above 0: even layers attend within each of so many frames, odd ones between the tokens of one
  /// place in all of them, without text (Latte, arXiv:2401.03048).
  std::int64_t frames = 0;
  /// The second half of the layers starts from its input and what the mirrored layer gave
  /// (U-ViT, arXiv:2209.12152; HunyuanDiT).
  bool long_skips = false;
  friend bool operator==(const DiffusionBlocks&, const DiffusionBlocks&) = default;
};

/// Layers of one kind, by what they weigh.
struct LayerWeights {
  std::int64_t layers = 0;
  std::string kind;                // "full attention", "linear attention", "Mamba2", "MLP"
  std::string attention = "none";  // over heads: MHA, GQA, MQA, MLA
  std::string mask = "none";       // which keys a query of it sees
  std::string mlp = "none";        // dense, experts
  std::int64_t parameters = 0;     // of one layer
  std::int64_t active = 0;         // of these, what a token meets
  friend bool operator==(const LayerWeights&, const LayerWeights&) = default;
};

/// Which tokens those of a layer see, whatever the sequence: `kind` and `window` as in Mask.
struct LayerMask {
  MaskKind kind = MaskKind::causal;
  std::int64_t window = 0;
  std::int64_t chunk = 0;  // of so many tokens, from the first one on; 0: no chunks
  /// In a sequence of so many tokens, packed from documents that end there (Mask::document_ends):
  /// each has chunks of its own.
  [[nodiscard]] Mask over(std::int64_t tokens, std::vector<std::int64_t> document_ends = {}) const;
  friend bool operator==(const LayerMask&, const LayerMask&) = default;
};
/// "causal", "window:4096", "causal, chunks of 8192".
std::string to_string(const LayerMask&);

/// Of attention, beside its queries' heads.
struct KvHeads {
  int count = 0;        // divides the queries'
  int dim = 0;          // of Q and K
  bool v_is_k = false;  // one projection gives both
  friend bool operator==(const KvHeads&, const KvHeads&) = default;
};

struct Model {
  std::string name;
  ModelKind kind = ModelKind::llm;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  int q_heads = 0;
  int kv_heads = 0;     // divides q_heads
  int head_dim = 0;     // of Q and K
  bool v_is_k = false;  // one projection gives both
  Latent latent{};
  Experts experts{};
  std::optional<Indexer> indexer;      // of all layers, or of those that pick
  std::optional<LinearLayers> linear;  // of hybrid models
  std::vector<LayerBlocks> blocks;     // by layer; empty: attention, then an MLP or experts
  std::int64_t ffn = 0;                // inner width of the MLP
  bool gated_mlp = true;               // gate, up, down; else up, down
  Activation activation = Activation::silu;
  double activation_limit = 0;   // what it is clamped to; 0: not at all
  std::int64_t vocab = 0;        // 0: dit
  bool tied_embeddings = false;  // the loss head is the embedding
  bool attention_bias = false;   // of Q, K, V
  bool output_bias = false;      // of the attention's output projection
  bool mlp_bias = false;
  bool norm_bias = false;
  bool attention_gate = false;      // its output is gated, number by number, from its input
  bool qk_norm = false;             // Q and K are normed head by head
  bool v_norm = false;              // V, too, without gains
  bool branch_norms = false;        // what attention and MLP give back is normed too
  bool layer_scale = false;         // what a layer gives is multiplied by a number of its own
  bool rope = true;                 // positions are turned into Q and K; else added at the start
  bool attention_sinks = false;     // a learned logit for each head
  LayerMask mask{};                 // causal: llm; full: dit. Never chunks
  LayerMask narrow_mask{};          // of the layers that see a window or a chunk only
  std::vector<bool> narrow_layers;  // by layer; empty: none
  std::optional<KvHeads> narrow_heads;  // of those, where theirs are others
  std::int64_t max_positions = 0;       // 0: not said
  /// Copies of the residual stream, which layers read and write through small matrices of each
  /// token's own (hyper-connections, arXiv:2512.24880).
  int streams = 1;
  std::optional<GroupedOutput> grouped_output;
  int predict_layers = 0;                    // that predict further tokens in training (layer.hpp)
  std::optional<std::int64_t> predict_like;  // the layer of whose kind they are; else the last
  /// Text tokens that each layer attends to besides (dit with cross-attention); 0: none.
  std::int64_t cross_tokens = 0;
  DiffusionBlocks diffusion{};
  /// Weights outside this picture: learned positions; dit: what all layers' modulation is made
  /// from, refiner layers. They need memory, but no time per token of the sequence.
  std::int64_t extra_parameters = 0;
  std::string not_costed;             // why this model cannot be costed; empty: it can
  std::vector<LayerWeights> counted;  // then: what its layers weigh (layer_weights in layer.hpp)
  std::vector<std::string> assumed;

  /// Of values and outputs; 0: head_dim.
  [[nodiscard]] int value_dim() const {
    return latent.kv_rank > 0 && latent.value_dim != head_dim ? latent.value_dim : 0;
  }
  /// Of layers that see a part only, or of the others.
  [[nodiscard]] KvHeads heads(bool narrow) const {
    return narrow && narrow_heads ? *narrow_heads
                                  : KvHeads{.count = kv_heads, .dim = head_dim, .v_is_k = v_is_k};
  }
  [[nodiscard]] std::int64_t q_width() const { return std::int64_t{q_heads} * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
  /// Of what lies between layers: all streams of a token.
  [[nodiscard]] std::int64_t stream_width() const { return streams * hidden; }
  /// Weights of one layer, of the last kind, without extra_parameters (layer.hpp).
  [[nodiscard]] std::int64_t layer_parameters() const;
  /// Of one vocabulary table (embedding, loss head).
  [[nodiscard]] std::int64_t table_parameters() const { return vocab * hidden; }
  /// All weights. Exact for llm; for dit without patch, text and time embedders, within 5 % of what
  /// is published. 0 where they are not known: of some models that are not_costed.
  [[nodiscard]] std::int64_t parameters() const;
  /// Weights that a token meets: without the experts that it is not routed to.
  [[nodiscard]] std::int64_t active_parameters() const;
};

/// Reads our wrapper ({"format": "sp-plan/model", "config": {…}}) or a bare config.json, with the
/// decoder at the top or in an object of its own (text_config). InputError names file and key.
Model read_model(const Json& document, const std::string& file);

/// The data folder models/.
class ModelLibrary {
 public:
  /// Reads names and aliases of all *.json. InputError: no such folder, a name twice, or a name
  /// that is not its file's.
  explicit ModelLibrary(const std::filesystem::path& folder);

  [[nodiscard]] std::vector<std::string> names() const;  // sorted
  /// By name, alias ("Qwen/Qwen2.5-7B"), alias without organisation (all in any case), or path of a
  /// JSON file or of a folder with a config.json. InputError(where).
  [[nodiscard]] Model load(std::string_view name, std::string_view where) const;
  /// The file that load() reads.
  [[nodiscard]] std::filesystem::path file_of(std::string_view name, std::string_view where) const;

 private:
  struct Entry {
    std::string name;
    std::filesystem::path file;
    std::vector<std::string> keys;  // name, aliases, aliases without organisation; lower case
  };
  std::vector<Entry> entries_;
};

}  // namespace spp
