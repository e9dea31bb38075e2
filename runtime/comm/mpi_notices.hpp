// What ranks of the `mpi` transport tell each other beside messages, only when they have waited or
// worked for long: who is at work, and who waits. Empty where MPI was not found.
//
// A notice has no content but its tag, on a communicator of its own: 0 is a sign of life; 1 + n
// modulo many says "I wait in meeting n". All go to rank 0, which passes signs of life on. So rank
// 0 knows for whom a meeting waits: for those who have not said that they wait in it.
#pragma once

#if defined(SPP_MPI)
#include "base/id.hpp"
#include "runtime/comm/mpi_library.hpp"

#include <cstdint>
#include <vector>

namespace spp::runtime::mpi_library {

class Notices {
 public:
  Notices(int rank, int size) : rank_(rank), waits_in_(static_cast<std::size_t>(size), 0) {}
  /// Made by all ranks together before.
  void use(MPI_Comm comm) { comm_ = comm; }

  /// The next meeting begins.
  void meet() {
    ++meeting_;
    told_ = false;
  }
  /// This rank is at work, or somebody is (rank 0).
  void tell_alive() {
    if (comm_ == no_comm()) {
      return;
    }
    for (int peer = 0; peer < (rank_ == 0 ? size() : 1); ++peer) {
      if (peer != rank_) {
        send(peer, alive);
      }
    }
  }
  /// This rank has waited for a while in its meeting.
  void tell_waiting() {
    if (rank_ != 0 && !told_ && comm_ != no_comm()) {
      send(0, tag_of(meeting_));
      told_ = true;
    }
  }
  /// Takes what has come; true if somebody is alive.
  bool listen() {
    bool heard = false;
    for (int there = 1; comm_ != no_comm() && there != 0;) {
      MPI_Status status;
      check(MPI_Iprobe(any_source(), any_tag(), comm_, &there, &status), "MPI_Iprobe", rank_);
      if (there != 0) {
        const int from = status.MPI_SOURCE;
        const int tag = status.MPI_TAG;
        check(MPI_Recv(nullptr, 0, byte_type(), from, tag, comm_, ignore()), "MPI_Recv", rank_);
        if (tag == alive) {
          heard = true;
        } else {
          waits_in_[static_cast<std::size_t>(from)] = tag;
        }
      }
    }
    return heard;
  }
  /// For whom this rank's meeting waits, as far as it knows: others than rank 0 hear nothing.
  [[nodiscard]] std::vector<Rank> absent() const {
    std::vector<Rank> ranks;
    for (int r = rank_ == 0 ? 1 : 0; r < (rank_ == 0 ? size() : 1); ++r) {
      if (waits_in_[static_cast<std::size_t>(r)] != tag_of(meeting_)) {
        ranks.emplace_back(r);
      }
    }
    return ranks;
  }
  void close() {
    if (comm_ != no_comm()) {
      MPI_Comm_free(&comm_);
    }
  }

 private:
  static constexpr int alive = 0;
  /// MPI's tags reach 32767 at least.
  static int tag_of(std::int64_t meeting) { return 1 + static_cast<int>(meeting % 30000); }
  [[nodiscard]] int size() const { return static_cast<int>(waits_in_.size()); }

  /// Nothing to keep until it has arrived.
  void send(int peer, int tag) const {
    MPI_Request request = no_request();
    check(MPI_Isend(nullptr, 0, byte_type(), peer, tag, comm_, &request), "MPI_Isend", rank_);
    MPI_Request_free(&request);
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): a request that is freed needs no wait
  }

  int rank_;
  MPI_Comm comm_ = no_comm();
  std::int64_t meeting_ = 0;
  bool told_ = false;
  std::vector<int> waits_in_;  // by rank: the tag of the meeting
};

}  // namespace spp::runtime::mpi_library
#endif
