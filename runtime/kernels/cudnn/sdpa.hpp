// Scaled-dot-product attention of cuDNN: one call is a dense rectangle of queries and keys, with no
// mask or a causal one. What a block of a schedule becomes in such calls: sections.hpp; who makes
// them: attention.hpp.
//
// No header of CUDA or cuDNN is needed to use this, and it links without them: then why_not() says
// that it is not compiled in.
#pragma once

#include "base/units.hpp"
#include "schedule/problem.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace spp::runtime {

using CudaStream = CUstream_st*;

/// Which keys query row i of Nq sees, of the key rows j of Nk:
///  none          all
///  top_left      j <= i; rows from Nk on see all
///  bottom_right  j <= i + Nk - Nq; needs Nq <= Nk
enum class SdpaMask : std::uint8_t { none, top_left, bottom_right };
std::string_view to_string(SdpaMask mask);

/// One call. Tensors are dense rows, tokens outermost, as ../rows.hpp has them: q, d_q [q_rows,
/// batch, q_heads, head_dim], out, d_out [q_rows, batch, q_heads, value_dim], k, d_k [k_rows,
/// batch, kv_heads, head_dim], v, d_v [k_rows, batch, kv_heads, value_dim] of `dtype`. lse and
/// delta are not: [batch, q_heads, q_rows] fp32, dense. cudnn-frontend gives cuDNN no other layout
/// of them (strides {heads rows, rows, 1, 1}), so nobody knows whether all engines would heed one.
struct SdpaShape {
  std::int64_t batch = 1;
  std::int64_t q_rows = 0;
  std::int64_t k_rows = 0;
  int q_heads = 1;
  int kv_heads = 1;  // divides q_heads
  int head_dim = 128;
  int value_dim = 0;  // 0: head_dim, and only 0 then
  SdpaMask mask = SdpaMask::none;
  DType dtype = DType::bf16;
  [[nodiscard]] int v_dim() const { return value_dim > 0 ? value_dim : head_dim; }
  friend auto operator<=>(const SdpaShape&, const SdpaShape&) = default;
};
std::string to_string(const SdpaShape& shape);
/// "" if this shape is one that this code builds graphs for, else why not. Whether an engine of a
/// device takes the graph is another matter: sdpa_support.
std::string why_not(const SdpaShape& shape);

/// Device memory. The softmax scale is 1/sqrt(head_dim), LSE the natural logarithm. Pointers are
/// multiples of 16.
struct SdpaForward {
  const std::byte *q = nullptr, *k = nullptr, *v = nullptr;
  std::byte *out = nullptr, *lse = nullptr;  // written
};
/// lse is of *all* keys of the queries, not of this call's only, and finite.
struct SdpaBackward {
  const std::byte *q = nullptr, *k = nullptr, *v = nullptr, *d_out = nullptr, *lse = nullptr;
  const std::byte* out = nullptr;                            // SdpaDelta::from_out
  const std::byte* delta = nullptr;                          // SdpaDelta::given
  std::byte *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;  // overwritten
};

/// The calls of one rank; used by one thread. An interface, so that what makes the calls can be
/// tested on a host.
class Sdpa {
 public:
  Sdpa() = default;
  Sdpa(const Sdpa&) = delete;
  Sdpa& operator=(const Sdpa&) = delete;
  virtual ~Sdpa() = default;
  /// Device memory that a call needs beside its tensors, at an address that is a multiple of 256.
  /// Compiles the shape's plan when it is new, which takes about a second: ask before measuring.
  virtual Bytes workspace(const SdpaShape& shape, Phase phase) = 0;
  /// Enqueue on `stream`; BackendError when cuDNN cannot.
  virtual void forward(const SdpaShape& shape, const SdpaForward& tensors, std::byte* workspace,
                       CudaStream stream) = 0;
  virtual void backward(const SdpaShape& shape, const SdpaBackward& tensors, std::byte* workspace,
                        CudaStream stream) = 0;
  /// Of the plans that calls have used: the numbers of SMs that they are made for; 0: the whole
  /// device.
  [[nodiscard]] virtual std::set<int> plan_sms() const { return {}; }
  /// What cuDNN said when it did not take the context of the streams, so that calls take
  /// SdpaOptions::detour; "": it takes it.
  [[nodiscard]] virtual std::string refusal() const { return ""; }
};

/// Where the backward takes delta = rowsum(d_out * out) from.
///  from_out  it sums over `out`, which is of all keys, like lse: the graph of cudnn-frontend
///  given     it is an input. Heuristics of cuDNN 9.19 take that graph and it compiles with
///            as large a workspace, but nobody has seen it run
enum class SdpaDelta : std::uint8_t { from_out, given };

struct SdpaOptions {
  /// The same bits at every call. On Hopper the backward then needs 2 * batch * q_heads * q_rows *
  /// k_rows bytes of workspace: for tests, not for long blocks.
  bool deterministic = false;
  SdpaDelta delta = SdpaDelta::from_out;
  /// That plans are wanted for (those of a green context); 0: all of the device. Where cuDNN has
  /// none, they are for all of it (Sdpa::plan_sms).
  int sms = 0;
  int device = 0;  // CUDA's number of the calling thread's: plans are kept by it
  /// Makes the context that streams belong to the calling thread's current one for as long as the
  /// result lives: cuDNN refuses streams of another context than its handle's. Empty: it is.
  std::function<std::shared_ptr<const void>()> enter = nullptr;
  /// The second attempt, where cuDNN refuses that context all the same: calls `work` with a stream
  /// of the device's primary context, whose work then comes after all that `stream` holds and
  /// before what it gets later. Empty: there is none, and the refusal is an error.
  std::function<void(CudaStream stream, const std::function<void(CudaStream)>& work)> detour =
      nullptr;
};

/// cuDNN on the calling thread's current device; plans are kept for the whole process, by shape.
/// BackendError when cuDNN does not start or is not compiled in.
std::unique_ptr<Sdpa> make_sdpa(const SdpaOptions& options = {});
/// "" or why make_sdpa cannot: "not compiled in: cuDNN was not found", a version that is wrong.
std::string sdpa_why_not();
/// "" or why a call is none for the version of cuDNN that is loaded.
std::string sdpa_why_not(const SdpaShape& shape, Phase phase);
/// Of cuDNN as loaded: "9.19.0"; "" when it is not compiled in.
std::string sdpa_version();
/// Plans that this process has compiled, for all its ranks, and the time that it took.
struct SdpaPlans {
  int compiled = 0;
  Seconds compiling{};
};
SdpaPlans sdpa_plans();

/// What cuDNN would do with a shape on a device, without that device (device_properties.hpp).
struct SdpaSupport {
  std::vector<std::int64_t> engines;  // that its heuristics propose, best first; empty: none
  std::int64_t engine = -1;           // of the plan
  Bytes workspace{};                  // of the plan, this code's own buffers included
  int operations = 0;                 // of the graph
  int sms = 0;                        // that engines are for; 0: all of the device
};
enum class SdpaDepth : std::uint8_t { heuristics, plan };
/// `plan` compiles (about a second) and needs a libcuda, if only a dummy (tests/dummy_libcuda).
SdpaSupport sdpa_support(const SdpaShape& shape, Phase phase, std::string_view device_json,
                         SdpaDepth depth, const SdpaOptions& options = {});

}  // namespace spp::runtime
