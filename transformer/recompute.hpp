// What a backward computes again instead of having kept it, as frameworks name it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace spp {

/// What is kept for the backward.
///  none:      everything
///  selective: not what some modules of a layer write (RecomputeModule)
///  full:      the layer's input only; the layer runs again, attention and its transfers included
enum class Recompute : std::uint8_t { none, selective, full };
std::string_view to_string(Recompute);
Recompute parse_recompute(std::string_view, std::string_view where);

/// What can run again by itself. Megatron-Core's names are core_attn, layernorm, moe_act, mlp, moe,
/// mla_up_proj, shared_experts (d98e8a64dd, megatron/core/transformer/transformer_config.py).
///  core_attention    attention; its output stays, which the next GEMM keeps
///  norms             norms and modulations in front of GEMMs; their outputs are dropped
///  activation        the activation of MLP and experts; its output is dropped
///  mlp, moe, shared_experts  the whole of it, GEMMs and transfers
///  mla_up            latent attention's projections up to heads, RoPE; Q, K and V are dropped
///  every_second_gemm torchtitan's "selective" (b5bcd76c6, distributed/activation_checkpoint.py):
///                    what every other GEMM, attention and transfers between ranks but all-gathers
///                    give is kept, the rest runs again; a policy, not a part of a layer
///  all_but_attention the layer but for attention, whose output and statistics are kept beside the
///                    layer's input: DistFlashAttn (arXiv:2310.03294, section 3.4), LoongTrain
///                    (arXiv:2406.18485, "selective checkpoint++"); a policy, too
enum class RecomputeModule : std::uint8_t {
  core_attention,
  norms,
  activation,
  mlp,
  moe,
  mla_up,
  shared_experts,
  every_second_gemm,
  all_but_attention
};
inline constexpr std::array all_recompute_modules{RecomputeModule::core_attention,
                                                  RecomputeModule::norms,
                                                  RecomputeModule::activation,
                                                  RecomputeModule::mlp,
                                                  RecomputeModule::moe,
                                                  RecomputeModule::mla_up,
                                                  RecomputeModule::shared_experts,
                                                  RecomputeModule::every_second_gemm,
                                                  RecomputeModule::all_but_attention};
std::string_view to_string(RecomputeModule);

/// How far a replay of a layer goes. `whole`: to its end (PyTorch's reentrant checkpoint,
/// Megatron's CheckpointFunction). `needed`: only what the backward reads, or what that is computed
/// from: not the last GEMM of an MLP, nor what sums it up over ranks (non-reentrant checkpoints,
/// which stop early; compilers).
enum class Replay : std::uint8_t { whole, needed };

class ModuleSet {
 public:
  constexpr ModuleSet() = default;
  constexpr ModuleSet(std::initializer_list<RecomputeModule> modules) {
    for (const RecomputeModule module : modules) {
      insert(module);
    }
  }
  constexpr void insert(RecomputeModule module) { bits_ |= bit(module); }
  [[nodiscard]] constexpr bool contains(RecomputeModule module) const {
    return (bits_ & bit(module)) != 0;
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr ModuleSet common(ModuleSet other) const {
    ModuleSet both;
    both.bits_ = bits_ & other.bits_;
    return both;
  }
  friend constexpr auto operator<=>(ModuleSet, ModuleSet) = default;

 private:
  static constexpr std::uint32_t bit(RecomputeModule module) {
    return std::uint32_t{1} << static_cast<unsigned>(module);
  }
  std::uint32_t bits_ = 0;
};

/// The modules of `selective` unless told: cheap to compute, wide to keep.
inline constexpr ModuleSet usual_modules{RecomputeModule::norms, RecomputeModule::activation};

struct Recomputation {
  Recompute kind = Recompute::none;
  ModuleSet modules = usual_modules;  // of selective
  friend constexpr auto operator<=>(const Recomputation&, const Recomputation&) = default;
};
/// "none", "full", "selective" (of the usual modules), "selective:core_attention,mlp".
/// "core_attention,norms".
std::string to_string(ModuleSet);
std::string to_string(const Recomputation&);
Recomputation parse_recomputation(std::string_view, std::string_view where);

}  // namespace spp
