#include "runtime/comm/collectives.hpp"

#include "base/error.hpp"
#include "runtime/kernels/convert.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>

namespace spp::runtime {
namespace {

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  ensure(from.size() == to.size(),
         fmt::format("a part of {} bytes for {} bytes of memory", from.size(), to.size()));
  if (!from.empty() && from.data() != to.data()) {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

int positive_mod(int a, int n) { return (a % n + n) % n; }

/// What all communication ops have: messages under way.
class Messages : public Pending {
 public:
  [[nodiscard]] std::int64_t sent() const override { return sent_; }

  /// Whoever owes us data; if nobody does, whoever has not taken ours.
  [[nodiscard]] std::vector<Rank> waits_for() const override {
    std::vector<Rank> ranks;
    for (const auto& [ticket, peer] : receives_.empty() ? sends_ : receives_) {
      ranks.push_back(peer);
    }
    std::ranges::sort(ranks);
    const auto repeated = std::ranges::unique(ranks);
    ranks.erase(repeated.begin(), repeated.end());
    return ranks;
  }

 protected:
  struct Open {
    Ticket ticket;
    Rank peer;
  };

  Messages(Transport& transport, int tag) : transport_(transport), tag_(tag) {}

  [[nodiscard]] Rank self() const { return transport_.rank(); }

  void send(Rank to, std::span<const std::byte> data) {
    sends_.push_back({transport_.send(to, tag_, data), to});
    if (to != self()) {
      sent_ += static_cast<std::int64_t>(data.size());
    }
  }
  void receive(Rank from, std::span<std::byte> data) {
    receives_.push_back({transport_.receive(from, tag_, data), from});
  }

  [[nodiscard]] bool all_done() const { return receives_.empty() && sends_.empty(); }

  /// Forgets all that is done.
  void forget_done() {
    for (auto* messages : {&receives_, &sends_}) {
      std::erase_if(*messages, [this](const Open& m) { return transport_.done(m.ticket); });
    }
  }
  /// Rings take and give in order: true if the oldest is done; then it is forgotten.
  bool next_received() { return next_done(receives_); }
  bool next_sent() { return next_done(sends_); }

 private:
  bool next_done(std::deque<Open>& messages) {
    if (messages.empty() || !transport_.done(messages.front().ticket)) {
      return false;
    }
    messages.pop_front();
    return true;
  }

  Transport& transport_;
  int tag_;
  std::int64_t sent_ = 0;
  std::deque<Open> sends_, receives_;  // open ones, in order of posting
};

class RunningExchange : public Messages {
 public:
  RunningExchange(Transport& transport, int tag, const ExchangeParts& parts)
      : Messages(transport, tag) {
    ensure(parts.to.valid() || parts.send.empty(), "parts to send, but nobody to send them to");
    ensure(parts.from.valid() || parts.receive.empty(),
           "parts to receive, but nobody to send them");
    if (parts.to == self() && parts.from == self()) {
      ensure(parts.send.size() == parts.receive.size(), "exchange with itself: unequal parts");
      for (std::size_t i = 0; i < parts.send.size(); ++i) {
        copy(parts.send[i], parts.receive[i]);
      }
      return;
    }
    for (const auto part : parts.receive) {
      receive(parts.from, part);
    }
    for (const auto part : parts.send) {
      send(parts.to, part);
    }
  }
  bool advance() override {
    forget_done();
    return all_done();
  }
};

class RunningAllToAll : public Messages {
 public:
  RunningAllToAll(Transport& transport, int tag, const RankGroup& group, const AllToAllParts& parts)
      : Messages(transport, tag) {
    const auto size = static_cast<std::size_t>(group.size);
    ensure(parts.send.size() == size && parts.receive.size() == size,
           "all_to_all: one part each way for every member");
    const int me = group.index_of(self());
    for (int d = 1; d < group.size; ++d) {
      const int from = positive_mod(me - d, group.size);
      receive(group.rank(from), parts.receive[static_cast<std::size_t>(from)]);
    }
    for (int d = 1; d < group.size; ++d) {
      const int to = (me + d) % group.size;
      send(group.rank(to), parts.send[static_cast<std::size_t>(to)]);
    }
    copy(parts.send[static_cast<std::size_t>(me)], parts.receive[static_cast<std::size_t>(me)]);
  }
  bool advance() override {
    forget_done();
    return all_done();
  }
};

/// This rank's place in the ring of a group: host by host, so that as few edges as there are hosts
/// lead over the network; in group order on a host.
struct Ring {
  Ring(const Transport& transport, const RankGroup& group)
      : size(group.size), order(static_cast<std::size_t>(group.size)) {
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int i) { return transport.host(group.rank(i)); });
    const int mine = group.index_of(transport.rank());
    me = static_cast<int>(std::ranges::find(order, mine) - order.begin());
    next = group.rank(static_cast<int>(back(-1)));
    previous = group.rank(static_cast<int>(back(1)));
  }

  /// Group index of the member `steps` before this one.
  [[nodiscard]] std::size_t back(int steps) const {
    return static_cast<std::size_t>(
        order[static_cast<std::size_t>(positive_mod(me - steps, size))]);
  }

  int size;
  std::vector<int> order;  // group indices
  int me = 0;              // in `order`
  Rank next, previous;
};

/// Step s = 0 … n-2: send the part of the member s before me, receive that of the member s+1 before
/// me. After the last step all have arrived.
class RunningAllGather : public Messages {
 public:
  RunningAllGather(Transport& transport, int tag, const RankGroup& group,
                   std::span<const std::byte> own, std::vector<std::span<std::byte>> parts)
      : Messages(transport, tag), ring_(transport, group), parts_(std::move(parts)) {
    ensure(parts_.size() == static_cast<std::size_t>(ring_.size),
           "all_gather: one part for every member");
    for (int step = 0; step + 1 < ring_.size; ++step) {
      receive(ring_.previous, parts_[ring_.back(step + 1)]);
    }
    if (ring_.size > 1) {
      send(ring_.next, own);
    }
    copy(own, parts_[ring_.back(0)]);
  }

  bool advance() override {
    while (next_received()) {
      ++received_;
      if (received_ + 1 < ring_.size) {
        send(ring_.next, parts_[ring_.back(received_)]);
      }
    }
    while (next_sent()) {
    }
    return all_done();
  }

 private:
  Ring ring_;
  std::vector<std::span<std::byte>> parts_;
  int received_ = 0;
};

/// Elements in memory that are computed with as floats.
struct Numbers {
  const std::byte* data;
  DType type;
};

/// to = a + b, or a where there is no b, in fp32, piece by piece in the cache. `to` may be `a`, if
/// its type is the same.
void add(const Numbers& a, const std::byte* b, std::span<std::byte> to, DType to_type) {
  constexpr std::size_t piece = 1024;
  std::array<float, piece> sum;
  std::array<float, piece> addend;
  const auto from_bytes = static_cast<std::size_t>(size_of(a.type));
  const auto to_bytes = static_cast<std::size_t>(size_of(to_type));
  const std::size_t elements = to.size() / to_bytes;
  for (std::size_t at = 0; at < elements; at += piece) {
    const std::size_t count = std::min(piece, elements - at);
    to_floats(a.type, a.data + at * from_bytes, std::span(sum).first(count));
    if (b != nullptr) {
      to_floats(a.type, b + at * from_bytes, std::span(addend).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        sum[i] += addend[i];
      }
    }
    from_floats(to_type, std::span<const float>(sum).first(count), to.data() + at * to_bytes);
  }
}

/// Step s = 0 … n-2: send the partial sum of the part of the member s+1 before me (at first my own
/// addend), receive that of the member s+2 before me and add mine. The last one to arrive is of my
/// part. Partial sums pass through a few slots; a slot is free for the next one once it was sent.
class RunningReduceScatter : public Messages {
 public:
  struct Parts {
    std::vector<std::span<const std::byte>> from;
    DType from_type;
    std::span<std::byte> to;
    DType to_type;
  };

  RunningReduceScatter(Transport& transport, int tag, const RankGroup& group, Parts parts)
      : Messages(transport, tag), ring_(transport, group), parts_(std::move(parts)) {
    check();
    if (ring_.size == 1) {
      add({.data = parts_.from[0].data(), .type = parts_.from_type}, nullptr, parts_.to,
          parts_.to_type);
      return;
    }
    part_bytes_ = parts_.from[0].size();
    slots_ = std::min(most_slots, ring_.size - 1);
    memory_.resize(static_cast<std::size_t>(slots_) * part_bytes_);
    while (posted_ < slots_) {
      receive(ring_.previous, slot(posted_++));
    }
    send(ring_.next, parts_.from[ring_.back(1)]);
  }

  bool advance() override {
    while (next_received()) {
      const int step = received_++;
      const bool last = step + 2 == ring_.size;
      const std::span<std::byte> partial = slot(step);
      add({.data = partial.data(), .type = parts_.from_type},
          parts_.from[ring_.back(step + 2)].data(), last ? parts_.to : partial,
          last ? parts_.to_type : parts_.from_type);
      if (!last) {
        send(ring_.next, partial);
      }
    }
    while (next_sent()) {  // the first one is no slot; after that, the oldest slot is free
      if (taken_++ > 0 && posted_ + 1 < ring_.size) {
        receive(ring_.previous, slot(posted_++));
      }
    }
    return all_done();
  }

 private:
  // One that arrives, one that leaves, one that waits for its turn.
  static constexpr int most_slots = 3;

  void check() const {
    ensure(parts_.from.size() == static_cast<std::size_t>(ring_.size),
           "reduce_scatter: one part for every member");
    for (const auto part : parts_.from) {
      ensure(part.size() == parts_.from[0].size(), "reduce_scatter: parts of different sizes");
    }
    ensure(static_cast<std::int64_t>(parts_.from[0].size()) * size_of(parts_.to_type) ==
               static_cast<std::int64_t>(parts_.to.size()) * size_of(parts_.from_type),
           fmt::format("reduce_scatter: parts of {} bytes for a result of {}",
                       parts_.from[0].size(), parts_.to.size()));
  }

  [[nodiscard]] std::span<std::byte> slot(int step) {
    return std::span(memory_).subspan(static_cast<std::size_t>(step % slots_) * part_bytes_,
                                      part_bytes_);
  }

  Ring ring_;
  Parts parts_;
  std::size_t part_bytes_ = 0;
  int slots_ = 0;
  std::vector<std::byte> memory_;
  int posted_ = 0;    // receives
  int received_ = 0;  // of them, done
  int taken_ = 0;     // sends that are done
};

/// Messages of a tag keep their order, so members may be in different halves.
class RunningAllReduce : public Pending {
 public:
  RunningAllReduce(Transport& transport, int tag, const RankGroup& group,
                   std::vector<std::span<const std::byte>> parts,
                   std::vector<std::span<std::byte>> results, DType type)
      : transport_(transport), tag_(tag), group_(group), results_(std::move(results)) {
    ensure(results_.size() == static_cast<std::size_t>(group.size),
           "all_reduce: one result for every part");
    scatter_ = reduce_scatter(transport, tag, group, std::move(parts), type, own(), type);
  }

  bool advance() override {
    if (gather_ == nullptr) {
      if (!scatter_->advance()) {
        return false;
      }
      gather_ = all_gather(transport_, tag_, group_, own(), results_);
    }
    return gather_->advance();
  }
  [[nodiscard]] std::int64_t sent() const override {
    return scatter_->sent() + (gather_ == nullptr ? 0 : gather_->sent());
  }
  [[nodiscard]] std::vector<Rank> waits_for() const override {
    return (gather_ == nullptr ? scatter_ : gather_)->waits_for();
  }

 private:
  [[nodiscard]] std::span<std::byte> own() const {
    return results_[static_cast<std::size_t>(group_.index_of(transport_.rank()))];
  }

  Transport& transport_;
  int tag_;
  RankGroup group_;
  std::vector<std::span<std::byte>> results_;
  std::unique_ptr<Pending> scatter_, gather_;
};

}  // namespace

void finish(Transport& transport, Pending& pending, std::string_view what) {
  wait_until(
      transport, what, [&] { return pending.advance(); }, [&] { return pending.waits_for(); });
}

std::unique_ptr<Pending> exchange(Transport& transport, int tag, const ExchangeParts& parts) {
  return std::make_unique<RunningExchange>(transport, tag, parts);
}

std::unique_ptr<Pending> all_to_all(Transport& transport, int tag, const RankGroup& group,
                                    const AllToAllParts& parts) {
  return std::make_unique<RunningAllToAll>(transport, tag, group, parts);
}

std::unique_ptr<Pending> all_gather(Transport& transport, int tag, const RankGroup& group,
                                    std::span<const std::byte> own,
                                    std::vector<std::span<std::byte>> parts) {
  return std::make_unique<RunningAllGather>(transport, tag, group, own, std::move(parts));
}

std::unique_ptr<Pending> reduce_scatter(Transport& transport, int tag, const RankGroup& group,
                                        std::vector<std::span<const std::byte>> parts,
                                        DType from_type, std::span<std::byte> result,
                                        DType to_type) {
  return std::make_unique<RunningReduceScatter>(
      transport, tag, group,
      RunningReduceScatter::Parts{
          .from = std::move(parts), .from_type = from_type, .to = result, .to_type = to_type});
}

std::unique_ptr<Pending> all_reduce(Transport& transport, int tag, const RankGroup& group,
                                    std::vector<std::span<const std::byte>> parts,
                                    std::vector<std::span<std::byte>> results, DType type) {
  return std::make_unique<RunningAllReduce>(transport, tag, group, std::move(parts),
                                            std::move(results), type);
}

}  // namespace spp::runtime
