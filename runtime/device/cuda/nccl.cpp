// One class, hence one file: ops, polls and the watchdog share the communicators that an abort
// ends.
#include "runtime/device/cuda/nccl.hpp"

#include "base/error.hpp"

#if defined(SPP_NCCL)
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/nccl_plan.hpp"
#include "runtime/device/cuda/watchdog.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#endif

namespace spp::runtime::cuda {

#if defined(SPP_NCCL)

namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t type_of(DType dtype) {
  return dtype == DType::fp32 ? ncclFloat32 : dtype == DType::bf16 ? ncclBfloat16 : ncclFloat16;
}

/// The parts are one piece of memory, in order, all of one size.
template <class Byte>
bool contiguous(std::span<const std::span<Byte>> parts) {
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].size() != parts[0].size() ||
        parts[i].data() != parts[i - 1].data() + parts[0].size()) {
      return false;
    }
  }
  return true;
}

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(const EngineParts& parts, const NcclApi& api)
      : api_(api),
        transport_(parts.transport),
        timeout_(parts.options.timeout),
        watchdog_(parts.options.timeout * 1.5, [this] { abort(); }) {
    const std::array phases{&parts.forward_of_all, &parts.backward_of_all};
    const auto layers = communicator_layers(phases, transport_.size());
    if (layers.empty()) {
      return;  // to make a communicator takes a second, and nobody needs one
    }
    try {
      make_world();
      for (const CommunicatorLayer& layer : layers) {
        split(layer);
      }
      meeting_place_ = groups_.at(meeting_place(layers, transport_.size()));
      here_.emplace(sizeof(float), self());
      watchdog_.arm(false);
    } catch (...) {
      abort();  // a thread of NCCL's may be about to write to us
      throw;
    }
  }
  ~NcclCommunicator() override {
    // All members end a communicator together: one that does not come must not hold us for ever.
    watchdog_.arm(true);
    while (!groups_.empty()) {
      const auto first = groups_.begin();
      close(first->second, [&] { groups_.erase(first); });
      if (aborted_) {
        return;
      }
    }
    if (world_ != nullptr) {
      close(world_, [&] { world_ = nullptr; });
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  std::int64_t exchange(const OpOnStream& at, const ExchangeParts& parts) override {
    if (parts.to == self() && parts.from == self()) {
      ensure(parts.send.size() == parts.receive.size(), "exchange with itself: unequal parts");
      for (std::size_t i = 0; i < parts.send.size(); ++i) {
        copy_own(parts.send[i], parts.receive[i], at);
      }
      return 0;
    }
    const RankGroup all{.first = 0, .stride = 1, .size = transport_.size()};
    std::int64_t sent = 0;
    grouped(at, all, [&](ncclComm_t comm) {
      for (const auto part : parts.receive) {
        receive(at, comm, parts.from.value, part);
      }
      for (const auto part : parts.send) {
        sent += send(at, comm, parts.to.value, part);
      }
    });
    return sent;
  }

  std::int64_t all_to_all(const OpOnStream& at, const RankGroup& group,
                          const AllToAllParts& parts) override {
    ensure(parts.send.size() == at_index(group.size) && parts.receive.size() == parts.send.size(),
           "all_to_all: one part each way for every member");
    const int me = group.index_of(self());
    copy_own(parts.send[at_index(me)], parts.receive[at_index(me)], at);
    return everybody(at, group, parts.send, parts.receive);
  }

  std::int64_t all_gather(const OpOnStream& at, const RankGroup& group,
                          const AllGatherParts& parts) override {
    ensure(parts.parts.size() == at_index(group.size), "all_gather: one part for every member");
    const int me = group.index_of(self());
    if (group.size > 1 && contiguous(std::span(std::as_const(parts.parts)))) {
      call(at, group, [&](ncclComm_t comm) {
        return api_.all_gather(parts.own.data(), parts.parts.front().data(), parts.own.size(),
                               ncclInt8, comm, at.stream);
      });
      return static_cast<std::int64_t>(parts.own.size()) * (group.size - 1);
    }
    copy_own(parts.own, parts.parts[at_index(me)], at);
    const std::vector<std::span<const std::byte>> same(parts.parts.size(), parts.own);
    return everybody(at, group, same, parts.parts);
  }

  std::int64_t reduce_scatter(const OpOnStream& at, const RankGroup& group,
                              const ReduceScatterParts& parts) override {
    ensure(parts.parts.size() == at_index(group.size), "reduce_scatter: one part for every member");
    const auto count = static_cast<std::int64_t>(parts.result.size()) / size_of(parts.to_type);
    const std::int64_t part_bytes = count * size_of(parts.from_type);
    for (const auto part : parts.parts) {
      ensure(static_cast<std::int64_t>(part.size()) == part_bytes,
             "reduce_scatter: parts of different sizes");
    }
    if (group.size > 1 && adds_up_itself(parts)) {
      call(at, group, [&](ncclComm_t comm) {
        return api_.reduce_scatter(parts.parts.front().data(), parts.result.data(),
                                   static_cast<std::size_t>(count), type_of(parts.to_type), ncclSum,
                                   comm, at.stream);
      });
      return part_bytes * (group.size - 1);
    }
    return sum_of_all(at, group, parts, count, part_bytes);
  }

  std::int64_t all_reduce(const OpOnStream& at, const RankGroup& group,
                          const AllReduceParts& parts) override {
    ensure(parts.parts.size() == at_index(group.size) &&
               contiguous(std::span(std::as_const(parts.parts))) &&
               contiguous(std::span(std::as_const(parts.results))),
           "all_reduce: the parts are not one piece of memory");
    const std::span<const std::byte> first = parts.parts.front();
    const std::span whole(first.data(), first.size() * at_index(group.size));
    if (group.size == 1) {
      copy_own(whole, parts.results.front(), at);
      return 0;
    }
    call(at, group, [&](ncclComm_t comm) {
      return api_.all_reduce(whole.data(), parts.results.front().data(),
                             whole.size() / static_cast<std::size_t>(size_of(parts.type)),
                             type_of(parts.type), ncclSum, comm, at.stream);
    });
    return static_cast<std::int64_t>(first.size()) * 2 * (group.size - 1);  // as of a ring
  }

  void prepare_reduce_scatter(const OpOnStream& at, const RankGroup& group,
                              const ReduceScatterParts& parts) override {
    if (group.size > 1 && !adds_up_itself(parts)) {
      grow(at.stream_id, parts.parts.front().size() * at_index(group.size));
    }
  }

  /// All ranks meet in an all_reduce of one number.
  void begin_run(const OpOnStream& at) override {
    watchdog_.arm(true);
    if (meeting_place_ != nullptr) {
      expect_alive(at.name);
      settle(api_.all_reduce(here_->data(), here_->data(), 1, ncclFloat32, ncclSum, meeting_place_,
                             at.stream),
             at.name, meeting_place_);
    }
  }
  void end_run() noexcept override { watchdog_.arm(false); }

  void poll() override {
    watchdog_.hear();
    expect_alive("execution");
    for (const auto& [key, comm] : groups_) {
      ncclResult_t state = ncclSuccess;
      expect(api_.async_error(comm, &state), "ncclCommGetAsyncError", comm);
      if (state != ncclSuccess && state != ncclInProgress) {
        expect(state, "a kernel of NCCL", comm);
      }
    }
  }

  /// Called by the watchdog, too. In one group: an abort waits for the device, where a kernel of
  /// another communicator may wait for a peer until that one is aborted, too (NVIDIA/nccl issues
  /// 549, 1013). The one they were split from runs no kernels, and non-blocking and blocking ones
  /// do not go into one group.
  void abort() noexcept override {
    if (aborted_.exchange(true)) {
      return;
    }
    const std::scoped_lock lock(ending_);  // what is destroyed is none of these any more
    api_.group_start();
    for (const auto& [key, comm] : groups_) {
      api_.abort(comm);
    }
    api_.group_end();
    if (world_ != nullptr) {
      api_.abort(world_);
    }
  }

 private:
  struct ByKey {
    bool operator()(const CommunicatorKey& a, const CommunicatorKey& b) const {
      const auto order = [](const CommunicatorKey& k) {
        return std::tuple(k.stream.value, k.group.first, k.group.stride, k.group.size);
      };
      return order(a) < order(b);
    }
  };

  /// Non-blocking communicators are finalized before they are destroyed. Nothing is left of those
  /// that were aborted.
  /// `forget`: takes it from what abort() ends.
  void close(ncclComm_t comm, const std::function<void()>& forget) {
    if (aborted_) {
      return;
    }
    constexpr std::chrono::seconds patience{5};
    const auto since = Clock::now();
    ncclResult_t state = api_.finalize(comm);
    if (state == ncclSuccess) {
      state = ncclInProgress;  // as in begin()
    }
    while (state == ncclInProgress && Clock::now() - since < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::scoped_lock lock(ending_);
      if (aborted_) {
        return;
      }
      api_.async_error(comm, &state);
    }
    {
      const std::scoped_lock lock(ending_);
      if (aborted_) {
        return;
      }
      forget();
    }
    if (state == ncclSuccess) {
      api_.destroy(comm);
    } else {
      api_.abort(comm);
    }
  }

  static std::size_t at_index(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] Rank self() const { return transport_.rank(); }

  void expect_alive(std::string_view what) const {
    if (aborted_) {
      throw BackendError(what, "the communicators were aborted: an op has waited for too long",
                         self().value);
    }
  }

  void expect(ncclResult_t result, std::string_view what, ncclComm_t comm) const {
    if (result != ncclSuccess) {
      const char* last = api_.last_error(comm);
      throw BackendError(
          what,
          fmt::format("{}{}{}", api_.error_string(result),
                      last != nullptr && *last != 0 ? ": " : "", last != nullptr ? last : ""),
          self().value);
    }
  }

  /// Waits until a call of a non-blocking communicator is through.
  void settle(ncclResult_t result, std::string_view what, ncclComm_t comm) {
    const auto since = Clock::now();
    while (result == ncclInProgress) {
      watchdog_.hear();
      expect_alive(what);
      transport_.progress();  // throws when the run was aborted
      transport_.idle();
      expect(api_.async_error(comm, &result), "ncclCommGetAsyncError", comm);
      // others may be at work
      if (const Seconds waited = std::min<Seconds>(Clock::now() - since, transport_.silence());
          waited > timeout_) {
        throw BackendError(what, fmt::format("peers did not come for {:.0f} s", waited.count()),
                           self().value);
      }
    }
    expect(result, what, comm);
  }

  /// Waits until a call is through that a thread of NCCL's does. Not every such call says that it
  /// is in progress: ncclCommSplit of 2.28.9 returns success, and writes the new communicator
  /// later.
  void begin(ncclResult_t result, std::string_view what, ncclComm_t comm) {
    settle(result == ncclSuccess ? ncclInProgress : result, what, comm);
  }

  static ncclConfig_t config(bool blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    return config;
  }

  /// NCCL adds parts of one type that lie together.
  static bool adds_up_itself(const ReduceScatterParts& parts) {
    return parts.from_type == parts.to_type && contiguous(std::span(std::as_const(parts.parts)));
  }

  void make_world() {
    ncclUniqueId id{};
    if (self().value == 0) {
      expect(api_.get_unique_id(&id), "ncclGetUniqueId", nullptr);
    }
    const std::vector<std::string> ids = transport_.all_gather_text(
        self().value == 0 ? std::string(id.internal, sizeof(id.internal)) : std::string());
    ensure(ids.front().size() == sizeof(id.internal), "rank 0 gave no id");
    std::memcpy(id.internal, ids.front().data(), sizeof(id.internal));
    watchdog_.arm(true);  // from here on a call may wait for a peer inside of NCCL
    ncclConfig_t settings = config(false);
    const ncclResult_t begun =
        api_.init_rank(&world_, transport_.size(), id, self().value, &settings);
    begin(begun, "ncclCommInitRankConfig", world_);
  }

  void split(const CommunicatorLayer& layer) {
    int color = NCCL_SPLIT_NOCOLOR;
    int place = 0;
    for (std::size_t i = 0; i < layer.size(); ++i) {
      const RankGroup& group = layer[i].group;
      const int index = group.index_of(self());
      if (index >= 0 && index < group.size && group.rank(index) == self()) {
        color = static_cast<int>(i);
        place = index;
      }
    }
    ncclConfig_t settings = config(true);
    begin(api_.split(world_, color, place, &made_, &settings), "ncclCommSplit", world_);
    if (color != NCCL_SPLIT_NOCOLOR) {
      begin(ncclSuccess, "ncclCommSplit", made_);
      const std::scoped_lock lock(ending_);
      groups_.emplace(layer[at_index(color)], made_);
    }
  }

  ncclComm_t communicator(const OpOnStream& at, const RankGroup& group) {
    const auto found = groups_.find({.stream = at.stream_id, .group = group});
    ensure(found != groups_.end(), "a communicator that no program needs");
    return found->second;
  }

  template <class Body>
  void call(const OpOnStream& at, const RankGroup& group, Body&& body) {
    expect_alive(at.name);
    watchdog_.hear();
    const ncclComm_t comm = communicator(at, group);
    settle(body(comm), at.name, comm);
  }

  template <class Body>
  void grouped(const OpOnStream& at, const RankGroup& group, Body&& body) {
    call(at, group, [&](ncclComm_t comm) {
      expect(api_.group_start(), "ncclGroupStart", comm);
      body(comm);
      return api_.group_end();
    });
  }

  void receive(const OpOnStream& at, ncclComm_t comm, int peer, std::span<std::byte> part) {
    in_group(api_.receive(part.data(), part.size(), ncclInt8, peer, comm, at.stream), "ncclRecv",
             comm);
  }
  std::int64_t send(const OpOnStream& at, ncclComm_t comm, int peer,
                    std::span<const std::byte> part) {
    in_group(api_.send(part.data(), part.size(), ncclInt8, peer, comm, at.stream), "ncclSend",
             comm);
    return static_cast<std::int64_t>(part.size());
  }
  /// Inside a group "in progress" is as good as done: ncclGroupEnd tells.
  void in_group(ncclResult_t result, std::string_view what, ncclComm_t comm) const {
    expect(result == ncclInProgress ? ncclSuccess : result, what, comm);
  }

  void copy_own(std::span<const std::byte> from, std::span<std::byte> to,
                const OpOnStream& at) const {
    ensure(from.size() == to.size(), "a part of another size than its place");
    copy(to.data(), from.data(), from.size(), at.stream);
  }

  /// One part to and one from every other member, nearest first.
  std::int64_t everybody(const OpOnStream& at, const RankGroup& group,
                         std::span<const std::span<const std::byte>> out,
                         std::span<const std::span<std::byte>> in) {
    if (group.size == 1) {
      return 0;
    }
    const int me = group.index_of(self());
    std::int64_t sent = 0;
    grouped(at, group, [&](ncclComm_t comm) {
      for (int d = 1; d < group.size; ++d) {
        const int from = (me - d + group.size) % group.size;
        const int to = (me + d) % group.size;
        receive(at, comm, from, in[at_index(from)]);
        sent += send(at, comm, to, out[at_index(to)]);
      }
    });
    return sent;
  }

  /// Smaller ones stay: what was enqueued with them may still run.
  void grow(StreamId stream, std::size_t bytes) {
    std::vector<DeviceBuffer>& spaces = workspaces_[stream];
    if (spaces.empty() || spaces.back().size() < bytes) {
      spaces.emplace_back(bytes, self());
    }
  }

  std::int64_t sum_of_all(const OpOnStream& at, const RankGroup& group,
                          const ReduceScatterParts& parts, std::int64_t count,
                          std::int64_t part_bytes) {
    const auto bytes = static_cast<std::size_t>(part_bytes);
    grow(at.stream_id, bytes * at_index(group.size));
    std::byte* space = workspaces_[at.stream_id].back().data();
    const int me = group.index_of(self());
    std::vector<std::span<std::byte>> in(at_index(group.size));
    std::vector<const std::byte*> addends(in.size());
    for (int i = 0; i < group.size; ++i) {
      in[at_index(i)] = {space + bytes * at_index(i), bytes};
      addends[at_index(i)] = i == me ? parts.parts[at_index(me)].data() : in[at_index(i)].data();
    }
    const std::int64_t sent = everybody(at, group, parts.parts, in);
    sum({.parts = addends,
         .from = parts.from_type,
         .to = parts.result.data(),
         .to_type = parts.to_type,
         .count = count},
        at.stream);
    return sent;
  }

  NcclApi api_;
  Transport& transport_;
  Seconds timeout_;
  std::mutex ending_;  // of what abort() ends, and what is destroyed
  ncclComm_t world_ = nullptr;
  ncclComm_t made_ = nullptr;  // where a split in progress writes
  std::map<CommunicatorKey, ncclComm_t, ByKey> groups_;
  std::map<StreamId, std::vector<DeviceBuffer>> workspaces_;
  ncclComm_t meeting_place_ = nullptr;  // one of groups_
  std::optional<DeviceBuffer> here_;    // a number, to meet with
  std::atomic<bool> aborted_ = false;
  Watchdog watchdog_;  // last: its thread uses the rest
};

}  // namespace

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(const EngineParts& parts,
                                                           const NcclApi& api) {
  return std::make_unique<NcclCommunicator>(parts, api);
}

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(const EngineParts& parts) {
  return make_nccl_communicator(parts, nccl_api());
}

#else

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(const EngineParts& parts) {
  throw BackendError("nccl", why_not_nccl(), parts.transport.rank().value);
}

#endif

}  // namespace spp::runtime::cuda
