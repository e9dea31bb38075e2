#include "runtime/device/cuda/inproc.hpp"

#include "runtime/device/cuda/kernels.hpp"

#include <chrono>

namespace spp::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t size_of_parts(std::span<const std::span<const std::byte>> parts) {
  std::int64_t bytes = 0;
  for (const auto part : parts) {
    bytes += static_cast<std::int64_t>(part.size());
  }
  return bytes;
}

std::vector<Rank> others(const RankGroup& group, Rank self) {
  std::vector<Rank> ranks;
  for (int i = 0; i < group.size; ++i) {
    if (group.rank(i) != self) {
      ranks.push_back(group.rank(i));
    }
  }
  return ranks;
}

}  // namespace

InprocWorld::InprocWorld(int ranks, std::optional<EmulatedNetwork> network)
    : own_(static_cast<std::size_t>(ranks)), network_(network) {
  ensure(ranks >= 1, "a run without ranks");
  for (int r = 0; r < ranks; ++r) {
    ends_.push_back(std::make_unique<End>());
  }
}

InprocWorld::~InprocWorld() = default;

void InprocWorld::keep(std::shared_ptr<const void> something) {
  const std::scoped_lock lock(mutex_);
  kept_.push_back(std::move(something));
}

InprocWorld::OpEvents& InprocCommunicator::events(std::int32_t op) {
  auto& all = world_.own_[self().index()].events;
  const auto index = static_cast<std::size_t>(op);
  if (all.size() <= index) {
    all.resize(index + 1);
  }
  if (all[index] == nullptr) {
    all[index] = std::make_unique<InprocWorld::OpEvents>();
  }
  return *all[index];
}

std::uint64_t* InprocCommunicator::clock(StreamId stream) {
  auto& buffer = world_.own_[self().index()].clocks[stream];
  if (buffer == nullptr) {
    buffer = std::make_unique<DeviceBuffer>(sizeof(std::uint64_t), self());
  }
  return reinterpret_cast<std::uint64_t*>(buffer->data());
}

void InprocCommunicator::put(Rank to, InprocWorld::PostKind kind, StreamId stream,
                             InprocWorld::Post post) {
  InprocWorld::End& end = *world_.ends_[to.index()];
  {
    const std::scoped_lock lock(end.mutex);
    end.inbox[{kind, self(), stream}].push_back(std::move(post));
  }
  end.changed.notify_one();
}

InprocWorld::Post InprocCommunicator::take(Rank from, InprocWorld::PostKind kind,
                                           const OpOnStream& at) {
  constexpr std::chrono::milliseconds look_again{20};
  InprocWorld::End& end = *world_.ends_[self().index()];
  const auto since = Clock::now();
  for (;;) {
    transport_.progress();  // throws when the run was aborted
    {
      std::unique_lock lock(end.mutex);
      std::deque<InprocWorld::Post>& line = end.inbox[{kind, from, at.stream_id}];
      if (end.changed.wait_for(lock, look_again, [&] { return !line.empty(); })) {
        InprocWorld::Post post = std::move(line.front());
        line.pop_front();
        return post;
      }
    }
    peers_are_late();
    transport_.idle();
    // others may be at work
    if (const Seconds waited = std::min<Seconds>(Clock::now() - since, transport_.silence());
        waited > timeout_) {
      throw BackendError(at.name,
                         fmt::format("nothing came for {:.0f} s from rank {} in op {}",
                                     waited.count(), from.value, at.op),
                         self().value);
    }
  }
}

std::int64_t InprocCommunicator::meet(
    const OpOnStream& at, const std::vector<Outgoing>& outgoing, const std::vector<Rank>& from,
    const Work& work, const std::function<Seconds(const std::vector<Arrived>&)>& duration) {
  InprocWorld::OpEvents& mine = events(at.op);
  mine.ready.record(at.stream);
  std::int64_t sent = 0;
  for (const Outgoing& out : outgoing) {
    ensure(out.to != self(), "a message to itself is a copy");
    sent += size_of_parts(out.parts);
    put(out.to, InprocWorld::PostKind::parts, at.stream_id,
        {.parts = out.parts, .ready = mine.ready.get()});
  }
  std::vector<Arrived> arrived;
  for (const Rank sender : from) {
    InprocWorld::Post post = take(sender, InprocWorld::PostKind::parts, at);
    wait(at.stream, post.ready);
    arrived.push_back({.from = sender, .parts = std::move(post.parts)});
  }
  const bool emulate = world_.network() && duration && !arrived.empty();
  if (emulate) {
    stamp(clock(at.stream_id), at.stream);
  }
  work(arrived);
  if (emulate) {
    hold_until(clock(at.stream_id), duration(arrived), at.stream);
  }
  mine.copied.record(at.stream);
  for (const Rank sender : from) {
    put(sender, InprocWorld::PostKind::copied, at.stream_id,
        {.parts = {}, .ready = mine.copied.get()});
  }
  for (const Outgoing& out : outgoing) {
    wait(at.stream, take(out.to, InprocWorld::PostKind::copied, at).ready);
  }
  return sent;
}

Seconds InprocCommunicator::direct(const std::vector<Arrived>& arrived) const {
  std::vector<Incoming> messages;
  for (const Arrived& a : arrived) {
    messages.push_back({.from = a.from, .bytes = size_of_parts(a.parts)});
  }
  return direct_time(*world_.network(), self(), messages);
}

void InprocCommunicator::copy_part(std::span<const std::byte> from, std::span<std::byte> to,
                                   Rank sender, const OpOnStream& at) const {
  if (from.size() != to.size()) {
    throw BackendError(at.name,
                       fmt::format("{} bytes from rank {} in op {}, but {} were expected",
                                   from.size(), sender.value, at.op, to.size()),
                       self().value);
  }
  if (from.data() != to.data()) {
    copy(to.data(), from.data(), from.size(), way_.value_or(CopyWay::plain), at.stream);
  }
}

void InprocCommunicator::prepare(const OpOnStream& at) {
  (void)events(at.op);
  if (world_.network()) {
    (void)clock(at.stream_id);
  }
  if (!way_) {
    way_ = find_copy_way(at.stream);
  }
}

/// A message without parts to and from everybody.
void InprocCommunicator::begin_run(const OpOnStream& at) {
  const std::vector<Rank> peers =
      others({.first = 0, .stride = 1, .size = transport_.size()}, self());
  std::vector<Outgoing> outgoing;
  for (const Rank peer : peers) {
    outgoing.push_back({.to = peer, .parts = {}});
  }
  meet(at, outgoing, peers, [](const std::vector<Arrived>&) {}, nullptr);
}

std::int64_t InprocCommunicator::exchange(const OpOnStream& at, const ExchangeParts& parts) {
  ensure(parts.to.valid() || parts.send.empty(), "parts to send, but nobody to send them to");
  ensure(parts.from.valid() || parts.receive.empty(), "parts to receive, but nobody to send them");
  if (parts.to == self() && parts.from == self()) {
    ensure(parts.send.size() == parts.receive.size(), "exchange with itself: unequal parts");
    for (std::size_t i = 0; i < parts.send.size(); ++i) {
      copy_part(parts.send[i], parts.receive[i], self(), at);
    }
    return 0;
  }
  std::vector<Outgoing> outgoing;
  if (parts.to.valid() && !parts.send.empty()) {
    outgoing.push_back({.to = parts.to, .parts = parts.send});
  }
  std::vector<Rank> from;
  if (parts.from.valid() && !parts.receive.empty()) {
    from.push_back(parts.from);
  }
  return meet(
      at, outgoing, from,
      [&](const std::vector<Arrived>& arrived) {
        for (const Arrived& a : arrived) {
          if (a.parts.size() != parts.receive.size()) {
            throw BackendError(
                at.name,
                fmt::format("{} messages from rank {} in op {}, but {} were expected",
                            a.parts.size(), a.from.value, at.op, parts.receive.size()),
                self().value);
          }
          for (std::size_t i = 0; i < a.parts.size(); ++i) {
            copy_part(a.parts[i], parts.receive[i], a.from, at);
          }
        }
      },
      [&](const std::vector<Arrived>& arrived) { return direct(arrived); });
}

std::int64_t InprocCommunicator::all_to_all(const OpOnStream& at, const RankGroup& group,
                                            const AllToAllParts& parts) {
  const auto size = static_cast<std::size_t>(group.size);
  ensure(parts.send.size() == size && parts.receive.size() == size,
         "all_to_all: one part each way for every member");
  std::vector<Outgoing> outgoing;
  for (const Rank peer : others(group, self())) {
    outgoing.push_back(
        {.to = peer, .parts = {parts.send[static_cast<std::size_t>(group.index_of(peer))]}});
  }
  const auto me = static_cast<std::size_t>(group.index_of(self()));
  return meet(
      at, outgoing, others(group, self()),
      [&](const std::vector<Arrived>& arrived) {
        copy_part(parts.send[me], parts.receive[me], self(), at);
        for (const Arrived& a : arrived) {
          copy_part(a.parts.front(),
                    parts.receive[static_cast<std::size_t>(group.index_of(a.from))], a.from, at);
        }
      },
      [&](const std::vector<Arrived>& arrived) { return direct(arrived); });
}

std::int64_t InprocCommunicator::all_gather(const OpOnStream& at, const RankGroup& group,
                                            const AllGatherParts& parts) {
  ensure(parts.parts.size() == static_cast<std::size_t>(group.size),
         "all_gather: one part for every member");
  std::vector<Outgoing> outgoing;
  for (const Rank peer : others(group, self())) {
    outgoing.push_back({.to = peer, .parts = {parts.own}});
  }
  const auto place = [&](Rank member) {
    return parts.parts[static_cast<std::size_t>(group.index_of(member))];
  };
  return meet(
      at, outgoing, others(group, self()),
      [&](const std::vector<Arrived>& arrived) {
        copy_part(parts.own, place(self()), self(), at);
        for (const Arrived& a : arrived) {
          copy_part(a.parts.front(), place(a.from), a.from, at);
        }
      },
      [&](const std::vector<Arrived>&) {
        return ring_time(*world_.network(), group, static_cast<std::int64_t>(parts.own.size()));
      });
}

std::int64_t InprocCommunicator::reduce_scatter(const OpOnStream& at, const RankGroup& group,
                                                const ReduceScatterParts& parts) {
  const auto me = static_cast<std::size_t>(group.index_of(self()));
  const auto count = static_cast<std::int64_t>(parts.result.size()) / size_of(parts.to_type);
  ensure(parts.parts.size() == static_cast<std::size_t>(group.size),
         "reduce_scatter: one part for every member");
  for (const auto part : parts.parts) {
    ensure(static_cast<std::int64_t>(part.size()) == count * size_of(parts.from_type),
           fmt::format("reduce_scatter: parts of {} bytes for {} elements", part.size(), count));
  }
  std::vector<Outgoing> outgoing;
  for (const Rank peer : others(group, self())) {
    outgoing.push_back(
        {.to = peer, .parts = {parts.parts[static_cast<std::size_t>(group.index_of(peer))]}});
  }
  return meet(
      at, outgoing, others(group, self()),
      [&](const std::vector<Arrived>& arrived) {
        std::vector<const std::byte*> addends(static_cast<std::size_t>(group.size));
        addends[me] = parts.parts[me].data();
        for (const Arrived& a : arrived) {
          ensure(a.parts.front().size() == parts.parts[me].size(),
                 "reduce_scatter: members bring parts of different sizes");
          addends[static_cast<std::size_t>(group.index_of(a.from))] = a.parts.front().data();
        }
        sum({.parts = addends,
             .from = parts.from_type,
             .to = parts.result.data(),
             .to_type = parts.to_type,
             .count = count},
            at.stream);
      },
      [&](const std::vector<Arrived>&) {
        return ring_time(*world_.network(), group,
                         static_cast<std::int64_t>(parts.parts[me].size()));
      });
}

std::int64_t InprocCommunicator::all_reduce(const OpOnStream& at, const RankGroup& group,
                                            const AllReduceParts& parts) {
  // A member gathers only when all have taken its part of the sums' addends: the op's events may be
  // recorded again.
  const std::span<std::byte> own =
      parts.results.at(static_cast<std::size_t>(group.index_of(self())));
  const std::int64_t scattered = reduce_scatter(
      at, group,
      {.parts = parts.parts, .from_type = parts.type, .result = own, .to_type = parts.type});
  return scattered + all_gather(at, group, {.own = own, .parts = parts.results});
}

}  // namespace spp::runtime::cuda
