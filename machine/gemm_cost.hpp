// Time of GEMMs on a GPU, from their shape: C[m,n] = A[m,k] B[k,n], and groups of these.
//
// A library cuts C into tiles and gives each SM one after another. For each tile shape that the
// generation has, and each way of splitting k over several SMs:
//
//   waves = ceil(tiles * splits / sms)                                      (wave quantisation)
//   wave  = ceil(k / 64 / splits) * step + tile_time * (rows * columns) / (128 * 128)
//   step  = 2 * 64 * rows * columns / (rate / sms * efficiency of the tile)
//   efficiency of the tile = efficiency * (1 + small * (1/256 + 1/128))
//                                       / (1 + small * (1/rows + 1/columns)), at most efficiency
//   split: `split` once, and fp32 partial sums through the L2: 2 bytes of memory time each
//
// The best of them is taken, as a library's heuristics nearly do. The matrices stream meanwhile:
//
//   time = (waves^3 + stream^3)^(1/3), then * (1 + slower * time / (time + after)): long GEMMs run
//   at the clock that the power limit leaves; startup once.
//
// Narrow formats: their own efficiency, of their own peak; A comes in 16 bits and is rounded first
// by another kernel: `quantise` once, and `quantise_bytes` for each element. B is a weight, rounded
// once a step, not here.
//
// A grouped GEMM is one launch: the tiles of all its groups, `grouped` of the efficiency,
// `grouped_memory` of the memory's rate.
//
// Of a kind that a calibration timed on this machine (layer_kernels.hpp) its own constants count,
// whatever tiles the generation has.
//
// It never falls as m, n or k grow, and never beats the peak.
#pragma once

#include "base/units.hpp"
#include "machine/gemm_format.hpp"
#include "machine/machine.hpp"

#include <cstdint>
#include <span>

namespace spp {

/// C[m,n] = A[m,k] B[k,n]. groups > 1: as many GEMMs of B's own each, over m rows together.
struct GemmWork {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t groups = 1;
  GemmKind kind = GemmKind::forward;
  GemmFormat format = GemmFormat::plain;
  bool quantised = false;  // A comes in that format already: another kernel rounded it on the way
};

/// Experts of one rank: SwiGLU between two grouped GEMMs, and what routes tokens to them.
struct ExpertLayerWork {
  std::span<const std::int64_t> rows;  // of each of its experts
  std::int64_t tokens = 0;             // before each went to several experts
  std::int64_t hidden = 0, ffn = 0;
  GemmFormat format = GemmFormat::plain;
};

/// Peak of the matrix units for a format. InputError(where) if this GPU has none.
FlopRate matrix_rate(const GpuSpec& gpu, GemmFormat format, DType dtype, std::string_view where);

/// `rows` of each group; they share n, k and the format of `work`. Quantising included.
/// InputError: the GPU lacks the format, or nobody knows how its GEMMs run in it.
Seconds gemm_time(const GpuSpec& gpu, std::span<const std::int64_t> rows, const GemmWork& work,
                  DType dtype);

}  // namespace spp
