// One library, hence one file.
//
// NCCL on the host, as far as runtime/device/cuda/nccl.cpp uses it: an op is a task of the stream
// that it is put on. Ranks are threads, or processes that share a folder (SPP_HOST_NCCL_FOLDER), in
// which their messages are files. Linked into a test, these definitions take the place of
// runtime/device/cuda/nccl_library.cpp. As in NCCL, two ranks of a communicator are not on one GPU
// of a host (NCCL_HOSTID names it); messages between two ranks match in order, and whoever calls in
// another order than its peers waits for ever; what a non-blocking communicator does is "in
// progress" at first, and takes a thread for every group; the first message of two ranks takes
// memory; and an abort waits until the device has done the rank's kernels.
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/kernels/convert.hpp"
#include "tests/device/host_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
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

/// Messages of ops, and those with which members set something up.
enum class Channel : std::uint8_t { ops, setup };
using Line = std::tuple<Channel, int, int>;  // sender, receiver

/// What the members of a communicator share.
class Group {
 public:
  explicit Group(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] const std::string& name() const { return name_; }

  void abort(int rank) {
    {
      const std::scoped_lock lock(mutex_);
      aborted_.insert(rank);
    }
    changed_.notify_all();
  }
  void put(const Line& line, const void* data, std::size_t size) {
    Bytes bytes(size);
    std::memcpy(bytes.data(), data, size);
    {
      const std::scoped_lock lock(mutex_);
      if (folder() == nullptr) {
        messages_[line].push_back(std::move(bytes));
      } else {
        write(file(line, put_[line]++), bytes);
      }
    }
    changed_.notify_all();
  }
  /// Nothing when the receiver has aborted.
  Bytes take(const Line& line) {
    std::unique_lock lock(mutex_);
    std::deque<Bytes>& waiting = messages_[line];
    while (waiting.empty() && !aborted_.contains(std::get<2>(line))) {
      if (folder() == nullptr) {
        changed_.wait(lock);
        continue;
      }
      const std::filesystem::path path = file(line, taken_[line]);
      if (std::filesystem::exists(path)) {
        waiting.push_back(read(path));
        ++taken_[line];
      } else {
        changed_.wait_for(lock, std::chrono::microseconds(200));
      }
    }
    if (waiting.empty()) {
      return {};
    }
    Bytes bytes = std::move(waiting.front());
    waiting.pop_front();
    return bytes;
  }
  /// What all members say, by rank.
  std::vector<std::string> all_gather(int me, int size, const std::string& text) {
    for (int peer = 0; peer < size; ++peer) {
      put({Channel::setup, me, peer}, text.data(), text.size());
    }
    std::vector<std::string> all;
    for (int peer = 0; peer < size; ++peer) {
      const Bytes bytes = take({Channel::setup, peer, me});
      all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
  }

 private:
  static const char* folder() {
    static const char* const path = std::getenv("SPP_HOST_NCCL_FOLDER");
    return path;
  }
  [[nodiscard]] std::filesystem::path file(const Line& line, int number) const {
    const auto& [channel, from, to] = line;
    return std::filesystem::path(folder()) / fmt::format("{}-{}-{}-{}-{}", name_,
                                                         channel == Channel::ops ? "op" : "setup",
                                                         from, to, number);
  }
  /// Under its name it is whole.
  static void write(const std::filesystem::path& path, const Bytes& bytes) {
    const std::filesystem::path part = path.string() + ".part";
    std::ofstream(part, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    std::filesystem::rename(part, path);
  }
  static Bytes read(const std::filesystem::path& path) {
    Bytes bytes(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
    std::filesystem::remove(path);
    return bytes;
  }

  std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Line, std::deque<Bytes>> messages_;
  std::map<Line, int> put_, taken_;  // of files
  std::set<int> aborted_;            // ranks
};

/// Groups of this process, by name.
struct Registry {
  std::mutex mutex;
  int last = 0;
  std::map<std::string, std::shared_ptr<Group>> groups;
  std::shared_ptr<Group> group(const std::string& name) {
    const std::scoped_lock lock(mutex);
    std::shared_ptr<Group>& found = groups[name];
    if (found == nullptr) {
      found = std::make_shared<Group>(name);
    }
    return found;
  }
};
Registry& registry() {
  static Registry all;
  return all;
}

/// Memory of a device that is given back with this.
class Reserved {
 public:
  Reserved() { cudaGetDevice(&device_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() { host::release(device_, bytes_); }
  bool take(std::size_t bytes) {
    const bool there = host::reserve(device_, bytes);
    bytes_ += there ? bytes : 0;
    return there;
  }

 private:
  int device_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int size = 1;
  int splits = 0;
  bool blocking = true;
  std::shared_ptr<Family> family = std::make_shared<Family>();
  ncclResult_t state = ncclSuccess;
  int polls = 0;  // that say "in progress" yet
  // What a split has made, and where it is written when all polls are through.
  std::unique_ptr<ncclComm> coming{};
  ncclComm_t* comes_to = nullptr;
  Reserved memory{};
  std::set<std::pair<int, bool>> connected{};  // peers, to or from
};

namespace {

/// Of a call on a communicator.
ncclResult_t begun(ncclComm_t comm) {
  if (comm->blocking) {
    return comm->state;
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

/// The first channel to a peer, or from it; false when there is no memory for it.
bool connect(ncclComm_t comm, int peer, bool to) {
  return peer == comm->rank || !comm->connected.insert({peer, to}).second ||
         comm->memory.take(host::settings().nccl_channels);
}
/// As a ring wants it.
bool connect_neighbours(ncclComm_t comm) {
  return connect(comm, (comm->rank + 1) % comm->size, true) &&
         connect(comm, (comm->rank + comm->size - 1) % comm->size, false);
}
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

ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, std::function<void()> work) {
  return connect_neighbours(comm) ? enqueue(comm, stream, std::move(work)) : ncclUnhandledCudaError;
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
  host::call();
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t get_unique_id(ncclUniqueId* id) {
  host::call();
  const std::scoped_lock lock(registry().mutex);
  *fmt::format_to_n(id->internal, sizeof(id->internal) - 1, "world{}", ++registry().last).out = 0;
  return ncclSuccess;
}

/// The host and the GPU of the calling thread, as NCCL tells ranks apart.
std::string place() {
  int device = 0;
  std::array<char, 32> bus{};
  cudaGetDevice(&device);
  cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device);
  const char* host = host::mistaken("one host") ? nullptr : std::getenv("NCCL_HOSTID");
  return fmt::format("GPU {} of host {}", bus.data(), host == nullptr ? "here" : host);
}
ncclResult_t init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  host::call();
  *comm = new ncclComm{.group = registry().group(id.internal),
                       .rank = rank,
                       .size = size,
                       .blocking = config->blocking != 0};
  host::log(fmt::format("NCCL rank {} of {} on {}", rank, size, place()));
  std::vector<std::string> all = (*comm)->group->all_gather(rank, size, place());
  std::ranges::sort(all);
  if (std::ranges::adjacent_find(all) != all.end()) {
    (*comm)->state = ncclInvalidUsage;  // duplicate GPU
  }
  return begun(*comm);
}
ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  host::call();
  const int number = comm->splits++;
  const std::vector<std::string> all =
      comm->group->all_gather(comm->rank, comm->size, fmt::format("{} {}", color, key));
  *made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) {
    begun(comm);
    return ncclSuccess;
  }
  int place = 0;
  int size = 0;
  for (int rank = 0; rank < comm->size; ++rank) {
    std::istringstream text(all[static_cast<std::size_t>(rank)]);
    int its_color = 0;
    int its_key = 0;
    text >> its_color >> its_key;
    size += its_color == color ? 1 : 0;
    place += its_color == color && std::pair(its_key, rank) < std::pair(key, comm->rank) ? 1 : 0;
  }
  // Not moved, as make_unique would. NOLINTNEXTLINE(modernize-make-unique)
  auto child = std::unique_ptr<ncclComm>(new ncclComm{
      .group = registry().group(fmt::format("{}.{}.{}", comm->group->name(), number, color)),
      .rank = place,
      .size = size,
      .blocking = config->blocking != 0 && !host::mistaken("threads of groups"),
      .family = comm->family});
  if (comm->blocking) {
    *made = child.release();
  } else {
    comm->coming = std::move(child);
    comm->comes_to = made;
  }
  begun(comm);
  return ncclSuccess;  // also while it is in progress, as NCCL 2.28.9
}
ncclResult_t abort_rank(ncclComm_t comm) {
  host::call();
  comm->group->abort(comm->rank);
  if (groups > 0 && !host::mistaken("aborts one by one")) {
    aborts.push_back(comm);
  } else {
    finish_abort(comm);
  }
  return ncclSuccess;
}
ncclResult_t finalize(ncclComm_t) {
  host::call();
  return ncclSuccess;
}
ncclResult_t destroy(ncclComm_t comm) {
  host::call();
  delete comm;
  return ncclSuccess;
}
ncclResult_t async_error(ncclComm_t comm, ncclResult_t* result) {
  host::call();
  const bool busy = comm->polls > 0;
  comm->polls -= busy ? 1 : 0;
  if (!busy && comm->coming != nullptr) {
    *comm->comes_to = comm->coming.release();
  }
  *result = busy ? ncclInProgress : comm->state;
  return ncclSuccess;
}
const char* error_string(ncclResult_t) { return "an error of NCCL on the host"; }
const char* last_error(ncclComm_t) { return ""; }

ncclResult_t group_start() {
  host::call();
  ++groups;
  return ncclSuccess;
}
ncclResult_t group_end() {
  host::call();
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
  host::call();
  pending_of(comm, stream).sends.emplace_back([=, group = comm->group, me = comm->rank] {
    group->put({Channel::ops, me, peer}, data, count);
  });
  return connect(comm, peer, true) ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t receive(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  host::call();
  pending_of(comm, stream).receives.emplace_back([=, group = comm->group, me = comm->rank] {
    const Bytes bytes = group->take({Channel::ops, peer, me});
    std::copy_n(bytes.data(), std::min(count, bytes.size()), static_cast<std::byte*>(data));
  });
  return connect(comm, peer, false) ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t all_gather(const void* from, void* to, std::size_t count, ncclDataType_t,
                        ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put({Channel::ops, me, peer}, from, count);
    }
    for (int peer = 0; peer < size; ++peer) {
      const Bytes bytes = group->take({Channel::ops, peer, me});
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
  Bytes sum = group.take({Channel::ops, 0, me});
  for (int peer = 1; peer < size; ++peer) {
    const Bytes bytes = group.take({Channel::ops, peer, me});
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
  return collective(comm, stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put({Channel::ops, me, peer},
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
  return collective(comm, stream, [=, group = comm->group, me = comm->rank, size = comm->size] {
    for (int peer = 0; peer < size; ++peer) {
      group->put({Channel::ops, me, peer}, static_cast<const std::byte*>(from), bytes);
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
