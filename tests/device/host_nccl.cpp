// NCCL on the host, as far as runtime/device/cuda/nccl.cpp uses it: ranks are threads, and an op is
// a task of the stream that it is put on. Linked into a test, these definitions take the place of
// runtime/device/cuda/nccl_library.cpp. As in NCCL, messages between two ranks of a communicator
// match in order, and whoever calls in another order than its peers waits for ever; what a
// non-blocking communicator does is "in progress" at first, and takes a thread for every group; and
// an abort waits until the device has done the rank's kernels.
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/kernels/convert.hpp"
#include "tests/device/host_cuda.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace {

namespace host = spp::test::host;

using Bytes = std::vector<std::byte>;

/// The kernels of one rank, of all communicators that were split from one.
struct Family {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
};

/// What the members of a communicator share.
struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Bytes>> messages;  // by sender and receiver
  struct Split {
    std::map<int, std::pair<int, int>> members;  // rank -> color, key
    std::map<int, std::shared_ptr<Group>> groups;
  };
  std::map<int, Split> splits;  // by number
  std::set<int> aborted;        // ranks

  void abort(int rank) {
    {
      const std::scoped_lock lock(mutex);
      aborted.insert(rank);
    }
    changed.notify_all();
  }
  void put(int from, int to, const void* data, std::size_t size) {
    Bytes bytes(size);
    std::memcpy(bytes.data(), data, size);
    {
      const std::scoped_lock lock(mutex);
      messages[{from, to}].push_back(std::move(bytes));
    }
    changed.notify_all();
  }
  /// Nothing when the receiver has aborted.
  Bytes take(int from, int to) {
    std::unique_lock lock(mutex);
    std::deque<Bytes>& line = messages[{from, to}];
    changed.wait(lock, [&] { return !line.empty() || aborted.contains(to); });
    if (line.empty()) {
      return {};
    }
    Bytes bytes = std::move(line.front());
    line.pop_front();
    return bytes;
  }
};

struct Registry {
  std::mutex mutex;
  std::uint64_t last = 0;
  std::map<std::uint64_t, std::shared_ptr<Group>> groups;
};
Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int size = 1;
  int splits = 0;
  bool blocking = true;
  std::shared_ptr<Family> family = std::make_shared<Family>();
  int polls = 0;  // that say "in progress" yet
};

namespace {

/// Of a call on a communicator.
ncclResult_t begun(ncclComm_t comm) {
  if (comm->blocking) {
    return ncclSuccess;
  }
  comm->polls = 3;
  return ncclInProgress;
}

/// Sends and receives between ncclGroupStart and ncclGroupEnd.
struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<std::function<void()>> sends, receives;
};
thread_local std::vector<Pending> pending;
thread_local std::vector<ncclComm_t> aborts;  // in a group
thread_local int groups = 0;

ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, std::function<void()> work) {
  host::call();
  host::seen().group_threads += comm->blocking ? 0 : 1;
  {
    const std::scoped_lock lock(comm->family->mutex);
    ++comm->family->running;
  }
  host::enqueue(
      stream,
      [family = comm->family, work = std::move(work)] {
        work();
        {
          const std::scoped_lock lock(family->mutex);
          --family->running;
        }
        family->changed.notify_all();
      },
      true);
  return begun(comm);
}

void finish_abort(ncclComm_t comm) {
  constexpr std::chrono::seconds patience{2};
  std::unique_lock lock(comm->family->mutex);
  if (!comm->family->changed.wait_for(lock, patience, [&] { return comm->family->running == 0; })) {
    ++host::seen().stuck_aborts;
  }
  lock.unlock();
  delete comm;
}

Pending& pending_of(ncclComm_t comm, cudaStream_t stream) {
  for (Pending& p : pending) {
    if (p.comm == comm && p.stream == stream) {
      return p;
    }
  }
  return pending.emplace_back(Pending{.comm = comm, .stream = stream, .sends = {}, .receives = {}});
}

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::scoped_lock lock(registry().mutex);
  const std::uint64_t number = ++registry().last;
  registry().groups[number] = std::make_shared<Group>();
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}
ncclResult_t init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const std::scoped_lock lock(registry().mutex);
  *comm = new ncclComm{.group = registry().groups.at(number),
                       .rank = rank,
                       .size = size,
                       .blocking = config->blocking != 0};
  return begun(*comm);
}
ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  Group& group = *comm->group;
  const int number = comm->splits++;
  std::unique_lock lock(group.mutex);
  Group::Split& all = group.splits[number];
  all.members[comm->rank] = {color, key};
  group.changed.notify_all();
  group.changed.wait(lock, [&] { return std::ssize(all.members) == comm->size; });
  *made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) {
    return begun(comm);
  }
  int place = 0;
  int size = 0;
  for (const auto& [rank, member] : all.members) {
    size += member.first == color ? 1 : 0;
    place += member.first == color &&
                     (member.second < key || (member.second == key && rank < comm->rank))
                 ? 1
                 : 0;
  }
  std::shared_ptr<Group>& shared = all.groups[color];
  if (shared == nullptr) {
    shared = std::make_shared<Group>();
  }
  *made = new ncclComm{.group = shared,
                       .rank = place,
                       .size = size,
                       .blocking = config->blocking != 0,
                       .family = comm->family};
  return begun(comm);
}
ncclResult_t abort_rank(ncclComm_t comm) {
  comm->group->abort(comm->rank);
  if (groups > 0) {
    aborts.push_back(comm);
  } else {
    finish_abort(comm);
  }
  return ncclSuccess;
}
ncclResult_t finalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t destroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t async_error(ncclComm_t comm, ncclResult_t* result) {
  *result = comm->polls > 0 && comm->polls-- > 0 ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
const char* error_string(ncclResult_t) { return "an error of NCCL on the host"; }
const char* last_error(ncclComm_t) { return ""; }

ncclResult_t group_start() {
  ++groups;
  return ncclSuccess;
}
ncclResult_t group_end() {
  --groups;
  ncclResult_t result = ncclSuccess;
  for (Pending& p : pending) {
    const ncclResult_t one =
        enqueue(p.comm, p.stream, [sends = std::move(p.sends), receives = std::move(p.receives)] {
          for (const auto& send : sends) {
            send();
          }
          for (const auto& receive : receives) {
            receive();
          }
        });
    result = one == ncclSuccess ? result : one;
  }
  pending.clear();
  for (const ncclComm_t comm : std::exchange(aborts, {})) {
    finish_abort(comm);
  }
  return result;
}
ncclResult_t send(const void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  pending_of(comm, stream).sends.push_back([=, group = comm->group, me = comm->rank] {
    group->put(me, peer, data, count);
  });
  return ncclSuccess;
}
ncclResult_t receive(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  pending_of(comm, stream).receives.push_back([=, group = comm->group, me = comm->rank] {
    const Bytes bytes = group->take(peer, me);
    std::copy_n(bytes.data(), std::min(count, bytes.size()), static_cast<std::byte*>(data));
  });
  return ncclSuccess;
}
ncclResult_t all_gather(const void* from, void* to, std::size_t count, ncclDataType_t,
                        ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put(me, peer, from, count);
    }
    for (int peer = 0; peer < size; ++peer) {
      const Bytes bytes = group->take(peer, me);
      std::copy_n(bytes.data(), std::min(count, bytes.size()),
                  static_cast<std::byte*>(to) + static_cast<std::size_t>(peer) * count);
    }
  });
}
spp::DType dtype_of(ncclDataType_t type) {
  return type == ncclFloat32    ? spp::DType::fp32
         : type == ncclBfloat16 ? spp::DType::bf16
                                : spp::DType::fp16;
}

/// The next message of every member, added up.
Bytes take_sum(Group& group, int me, int size, spp::DType dtype, std::size_t count) {
  Bytes sum = group.take(0, me);
  for (int peer = 1; peer < size; ++peer) {
    const Bytes bytes = group.take(peer, me);
    if (sum.empty() || bytes.empty()) {
      return Bytes(count * static_cast<std::size_t>(spp::size_of(dtype)));  // aborted
    }
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i) {
      spp::runtime::store(
          dtype, sum.data(), i,
          spp::runtime::load(dtype, sum.data(), i) + spp::runtime::load(dtype, bytes.data(), i));
    }
  }
  return sum;
}

ncclResult_t reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const spp::DType dtype = dtype_of(type);
  const std::size_t part = count * static_cast<std::size_t>(spp::size_of(dtype));
  return enqueue(comm, stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put(me, peer,
                 static_cast<const std::byte*>(from) + static_cast<std::size_t>(peer) * part, part);
    }
    const Bytes sum = take_sum(*group, me, size, dtype, count);
    std::memcpy(to, sum.data(), part);
  });
}

ncclResult_t all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const spp::DType dtype = dtype_of(type);
  const std::size_t bytes = count * static_cast<std::size_t>(spp::size_of(dtype));
  return enqueue(comm, stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put(me, peer, static_cast<const std::byte*>(from), bytes);
    }
    const Bytes sum = take_sum(*group, me, size, dtype, count);
    std::memcpy(to, sum.data(), bytes);
  });
}

}  // namespace

namespace spp::runtime::cuda {

bool nccl_compiled() { return true; }
std::string why_not_nccl() { return ""; }
std::string nccl_version() { return "host"; }
std::string nccl_log() { return ""; }
const NcclApi& nccl_api() {
  static const NcclApi api{.get_version = ::get_version,
                           .get_unique_id = ::get_unique_id,
                           .init_rank = ::init_rank,
                           .split = ::split,
                           .finalize = ::finalize,
                           .destroy = ::destroy,
                           .abort = ::abort_rank,
                           .async_error = ::async_error,
                           .error_string = ::error_string,
                           .last_error = ::last_error,
                           .group_start = ::group_start,
                           .group_end = ::group_end,
                           .send = ::send,
                           .receive = ::receive,
                           .all_gather = ::all_gather,
                           .reduce_scatter = ::reduce_scatter,
                           .all_reduce = ::all_reduce};
  return api;
}

}  // namespace spp::runtime::cuda
