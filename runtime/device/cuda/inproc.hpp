// `inproc` on CUDA: ranks are threads of one process, which may share a GPU. Receivers copy:
//
//   sender                                   receiver
//   records `ready` on its stream
//   posts addresses and `ready`  --------->  takes them; its stream waits for `ready`,
//                                            copies from the sender's memory, records `copied`
//   its stream waits for `copied`  <-------  posts `copied`
//
// On the host nobody waits before it has posted everything, so no circle of waiting threads can
// form; on the device a stream waits only for events that were recorded before, so all that is
// enqueued comes to its end, whatever the hosts do. Nothing spins (but emulated links, for a time
// that is fixed).
//
// The sum of a reduce_scatter reads the members' memory where it is. Ranks on several GPUs need
// peer access for that.
#pragma once

#include "runtime/device/cuda/communicator.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/network.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

namespace spp::runtime::cuda {

/// What the ranks of a run share; outlives their threads. Whatever a peer's device may still read
/// or wait for is kept here until then: events, and the memory of ranks that have failed.
class InprocWorld {
 public:
  explicit InprocWorld(int ranks, std::optional<EmulatedNetwork> network = std::nullopt);
  ~InprocWorld();

  [[nodiscard]] int size() const { return static_cast<int>(ends_.size()); }
  [[nodiscard]] const std::optional<EmulatedNetwork>& network() const { return network_; }
  void keep(std::shared_ptr<const void> something);

 private:
  friend class InprocCommunicator;

  /// From a sender: parts to read, once `ready` has happened. From a receiver: no parts; `ready`
  /// says that they were read.
  struct Post {
    std::vector<std::span<const std::byte>> parts;
    cudaEvent_t ready = nullptr;
  };
  enum class PostKind : std::uint8_t { parts, copied };
  using Line = std::tuple<PostKind, Rank, StreamId>;  // posts of a line match in order
  struct End {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<Line, std::deque<Post>> inbox;
  };
  struct OpEvents {
    Event ready, copied;
  };
  /// Of one rank, used by its thread.
  struct Own {
    std::vector<std::unique_ptr<OpEvents>> events;             // by op
    std::map<StreamId, std::unique_ptr<DeviceBuffer>> clocks;  // start of an emulated transfer
  };

  std::vector<std::unique_ptr<End>> ends_;
  std::vector<Own> own_;
  std::optional<EmulatedNetwork> network_;
  std::mutex mutex_;  // of kept_
  std::vector<std::shared_ptr<const void>> kept_;
};

class InprocCommunicator final : public DeviceCommunicator {
 public:
  /// `transport` tells of failures of other ranks. A peer that does not come within `timeout` is a
  /// BackendError.
  InprocCommunicator(InprocWorld& world, Transport& transport, Seconds timeout)
      : world_(world), transport_(transport), timeout_(timeout) {}

  std::int64_t exchange(const OpOnStream& at, const ExchangeParts& parts) override;
  std::int64_t all_to_all(const OpOnStream& at, const RankGroup& group,
                          const AllToAllParts& parts) override;
  std::int64_t all_gather(const OpOnStream& at, const RankGroup& group,
                          const AllGatherParts& parts) override;
  std::int64_t reduce_scatter(const OpOnStream& at, const RankGroup& group,
                              const ReduceScatterParts& parts) override;
  std::int64_t all_reduce(const OpOnStream& at, const RankGroup& group,
                          const AllReduceParts& parts) override;
  void prepare(const OpOnStream& at) override;
  void begin_run(const OpOnStream& at) override;
  [[nodiscard]] std::optional<CopyWay> copies() const override { return way_; }

 private:
  using Parts = std::vector<std::span<const std::byte>>;
  struct Outgoing {
    Rank to;
    Parts parts;
  };
  struct Arrived {
    Rank from;
    Parts parts;
  };
  using Work = std::function<void(const std::vector<Arrived>&)>;

  /// Posts, takes, enqueues `work` on what has arrived (in the order of `from`), and lets the op
  /// end when all of it was read on both sides and, over emulated links, `duration` (null: none)
  /// has passed since it began.
  std::int64_t meet(const OpOnStream& at, const std::vector<Outgoing>& outgoing,
                    const std::vector<Rank>& from, const Work& work,
                    const std::function<Seconds(const std::vector<Arrived>&)>& duration);
  [[nodiscard]] Seconds direct(const std::vector<Arrived>& arrived) const;
  [[nodiscard]] Rank self() const { return transport_.rank(); }
  InprocWorld::OpEvents& events(std::int32_t op);
  std::uint64_t* clock(StreamId stream);
  void put(Rank to, InprocWorld::PostKind kind, StreamId stream, InprocWorld::Post post);
  InprocWorld::Post take(Rank from, InprocWorld::PostKind kind, const OpOnStream& at);
  void copy_part(std::span<const std::byte> from, std::span<std::byte> to, Rank sender,
                 const OpOnStream& at) const;

  InprocWorld& world_;
  Transport& transport_;
  Seconds timeout_;
  std::optional<CopyWay> way_;  // none was looked for: plain
};

}  // namespace spp::runtime::cuda
