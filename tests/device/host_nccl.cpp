// NCCL on the host, as far as runtime/device/cuda/nccl.cpp uses it: ranks are threads, and an op is
// a task of the stream that it is put on. Linked into a test, these definitions take the place of
// runtime/device/cuda/nccl_library.cpp. As in NCCL, messages between two ranks of a communicator
// match in order, and whoever calls in another order than its peers waits for ever.
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/kernels/convert.hpp"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace {

using Bytes = std::vector<std::byte>;

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

  void put(int from, int to, const void* data, std::size_t size) {
    Bytes bytes(size);
    std::memcpy(bytes.data(), data, size);
    {
      const std::scoped_lock lock(mutex);
      messages[{from, to}].push_back(std::move(bytes));
    }
    changed.notify_all();
  }
  Bytes take(int from, int to) {
    std::unique_lock lock(mutex);
    std::deque<Bytes>& line = messages[{from, to}];
    changed.wait(lock, [&] { return !line.empty(); });
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
};

namespace {

/// Sends and receives between ncclGroupStart and ncclGroupEnd.
struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<std::function<void()>> sends, receives;
};
thread_local std::vector<Pending> pending;

void enqueue(cudaStream_t stream, std::function<void()> work) {
  cudaLaunchHostFunc(
      stream,
      [](void* data) {
        const std::unique_ptr<std::function<void()>> mine(
            static_cast<std::function<void()>*>(data));
        (*mine)();
      },
      new std::function<void()>(std::move(work)));
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
ncclResult_t init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const std::scoped_lock lock(registry().mutex);
  *comm = new ncclComm{.group = registry().groups.at(number), .rank = rank, .size = size};
  return ncclSuccess;
}
ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  Group& group = *comm->group;
  const int number = comm->splits++;
  std::unique_lock lock(group.mutex);
  Group::Split& all = group.splits[number];
  all.members[comm->rank] = {color, key};
  group.changed.notify_all();
  group.changed.wait(lock, [&] { return std::ssize(all.members) == comm->size; });
  *made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) {
    return ncclSuccess;
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
  *made = new ncclComm{.group = shared, .rank = place, .size = size};
  return ncclSuccess;
}
ncclResult_t finalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t destroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t async_error(ncclComm_t, ncclResult_t* result) {
  *result = ncclSuccess;
  return ncclSuccess;
}
const char* error_string(ncclResult_t) { return "an error of NCCL on the host"; }
const char* last_error(ncclComm_t) { return ""; }

ncclResult_t group_start() { return ncclSuccess; }
ncclResult_t group_end() {
  for (Pending& p : pending) {
    enqueue(p.stream, [sends = std::move(p.sends), receives = std::move(p.receives)] {
      for (const auto& send : sends) {
        send();
      }
      for (const auto& receive : receives) {
        receive();
      }
    });
  }
  pending.clear();
  return ncclSuccess;
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
    std::memcpy(data, bytes.data(), std::min(count, bytes.size()));
  });
  return ncclSuccess;
}
ncclResult_t all_gather(const void* from, void* to, std::size_t count, ncclDataType_t,
                        ncclComm_t comm, cudaStream_t stream) {
  enqueue(stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put(me, peer, from, count);
    }
    for (int peer = 0; peer < size; ++peer) {
      const Bytes bytes = group->take(peer, me);
      std::memcpy(static_cast<std::byte*>(to) + static_cast<std::size_t>(peer) * count,
                  bytes.data(), count);
    }
  });
  return ncclSuccess;
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
  enqueue(stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put(me, peer,
                 static_cast<const std::byte*>(from) + static_cast<std::size_t>(peer) * part, part);
    }
    const Bytes sum = take_sum(*group, me, size, dtype, count);
    std::memcpy(to, sum.data(), part);
  });
  return ncclSuccess;
}

ncclResult_t all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const spp::DType dtype = dtype_of(type);
  const std::size_t bytes = count * static_cast<std::size_t>(spp::size_of(dtype));
  enqueue(stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put(me, peer, static_cast<const std::byte*>(from), bytes);
    }
    const Bytes sum = take_sum(*group, me, size, dtype, count);
    std::memcpy(to, sum.data(), bytes);
  });
  return ncclSuccess;
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
                           .abort = ::destroy,
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
