// Ranks as processes that mpirun (or srun) started: MPI's C interface, Open MPI and MPICH. One
// class, hence one file.
//
// A message travels in pieces that the library sends eagerly, so that the kernel's socket buffers
// work on while the rank computes; larger ones are handed over in a rendezvous that only moves
// inside MPI calls. Measured over TCP with Open MPI 4.1.4: of a 35 ms exchange, 64 % hidden behind
// 80 ms of work without any poll with pieces, 2 % without. A message has `size / piece_bytes + 1`
// pieces, so its last one is always short: a receiver that expects another size meets a piece of a
// size it did not expect, never silence.
//
// Pieces of one message match in the order of posting. So of the messages to one rank with one tag
// the second posts its pieces after the first has posted all of its; same for receives.
//
// Waits. A meeting of all ranks is one of the library's collectives, which do not tell who is
// missing; so ranks that have waited for an eighth of the time-out say so (mpi_notices.hpp). What
// waits inside the library itself, MPI_Init and MPI_Finalize, is the launcher's to end (mpirun
// --timeout).
//
// Longer than most files, so that all that is left out without MPI stands in one place.
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/launcher.hpp"
#include "runtime/comm/mpi_library.hpp"
#include "runtime/comm/mpi_notices.hpp"
#include "runtime/comm/question.hpp"

#if defined(SPP_MPI)
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>
#endif

namespace spp::runtime {
namespace {

#if defined(SPP_MPI)

using namespace mpi_library;

// The analyser looks for the wait in the function that starts a request; here it is in progress().
// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)

// Below Open MPI's eager limit for TCP, 64 KiB with its header (btl_tcp_eager_limit).
constexpr std::size_t piece_bytes = 63 << 10;
// Pieces of one message in flight: 4 MiB, as much as Linux lets a socket buffer (tcp_wmem), so a
// longer queue would move nothing more between two polls.
constexpr std::int64_t window = 64;
constexpr int abort_tag = message_tags;

struct Message;
/// Messages to or from one rank with one tag that have pieces to post, in order.
using Line = std::deque<Message*>;

using Clock = std::chrono::steady_clock;

/// One side of a message.
struct Message {
  Rank peer;
  int tag = 0;
  bool sending = false;
  std::byte* data = nullptr;  // of a send: only read
  std::size_t size = 0;
  std::int64_t posted = 0;     // pieces
  std::int64_t completed = 0;  // pieces
  Line* line = nullptr;

  [[nodiscard]] std::int64_t pieces() const {
    return static_cast<std::int64_t>(size / piece_bytes) + 1;
  }
  [[nodiscard]] std::size_t bytes_of(std::int64_t piece) const {
    return piece + 1 < pieces() ? piece_bytes : size % piece_bytes;
  }
  [[nodiscard]] bool complete() const { return completed == pieces(); }
};

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(const RunSettings& settings)
      : rank_(Library::get().rank()),
        size_(Library::get().size()),
        deadlines_(settings.deadlines),
        notices_(rank_, size_),
        patience_(deadlines_) {}
  ~MpiTransport() override {
    if (!aborted_ && comm_ != no_comm()) {
      notices_.close();
      MPI_Comm_free(&comm_);
    }
  }
  /// Until all ranks have come, and are asked for the same. Before all else.
  void set_up(const RunSettings& settings) {
    comm_ = copy_of_world();
    notices_.use(copy_of_world());
    hosts_ = numbers_of(all_gather_text(host_name()));
    expect_same_question(settings);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  [[nodiscard]] Rank rank() const override { return Rank(rank_); }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int host(Rank rank) const override { return hosts_.at(rank.index()); }

  Ticket send(Rank to, int tag, std::span<const std::byte> data) override {
    // MPI wants a pointer to non-const memory in requests of both kinds; a send does not write to
    // it.
    return post({.peer = to,
                 .tag = tag,
                 .sending = true,
                 .data = const_cast<std::byte*>(data.data()),
                 .size = data.size()});
  }
  Ticket receive(Rank from, int tag, std::span<std::byte> data) override {
    return post({.peer = from, .tag = tag, .data = data.data(), .size = data.size()});
  }

  void progress() override;

  bool done(Ticket ticket) override {
    go_on("done");
    const auto at = messages_.find(ticket);
    ensure(at != messages_.end(), fmt::format("no message with ticket {}", ticket));
    if (!at->second.complete()) {
      return false;
    }
    messages_.erase(at);
    patience_.news();
    return true;
  }

  void idle() override {
    go_on("idle");
    if (patience_.wait()) {
      working();  // there was news
    }
    patience_.nap();
  }

  [[nodiscard]] const Deadlines& deadlines() const override { return deadlines_; }
  void working() override {
    if (patience_.sign_due()) {
      notices_.tell_alive();
    }
  }
  [[nodiscard]] Seconds silence() override {
    const Seconds silence = patience_.silence();
    if (silence < deadlines_.between_signs() || !notices_.listen()) {
      return silence;
    }
    patience_.heard();
    if (rank_ == 0) {
      working();  // tells the others
    }
    return patience_.silence();
  }

  void barrier() override {
    go_on("barrier");
    notices_.meet();
    MPI_Request request = no_request();
    check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier", rank_);
    wait(request, "MPI_Ibarrier", "barrier");
  }

  std::vector<std::string> all_gather_text(const std::string& mine) override;

  void abort(std::string_view text) noexcept override;

  [[nodiscard]] std::size_t open_messages() const { return messages_.size(); }

 private:
  struct Piece {
    Message* message;
    std::int64_t index;
  };

  /// Of one all_gather_text. The transport's own, since a rank that comes late still reads and
  /// writes it after this one has given up waiting and says so.
  struct Texts {
    std::string mine, all;
    std::int64_t size = 0;
    std::vector<std::int64_t> sizes;  // by rank
    std::vector<int> lengths, places;
  };
  /// Bytes of all ranks in one call.
  static constexpr std::int64_t most_text = 8 << 20;

  Ticket post(const Message& message);
  void post_pieces(Line& line);
  void post_piece(Message& message);
  void complete(const Piece& piece, const MPI_Status& status, bool has_error);
  void copy_to_self(int tag);
  [[noreturn]] void wrong_size(const Message& expected, std::size_t came) const;

  void go_on(std::string_view call) const {
    if (aborted_) {
      throw BackendError(call, "the run was aborted", rank_);
    }
  }

  /// Not MPI_Wait: that would keep the core, and for ever. `what`: that people know of.
  void wait(MPI_Request& request, std::string_view call, std::string_view what) {
    for (;;) {
      int ended = 0;
      check(MPI_Test(&request, &ended, ignore()), call, rank_);
      if (ended != 0) {
        patience_.news();
        return;
      }
      idle();
      const Seconds waited = silence();
      if (waited > deadlines_.between_signs()) {
        notices_.tell_waiting();
      }
      if (waited > deadlines_.silence_of(rank_)) {
        throw BackendError(what, silence_text(waited, notices_.absent()), rank_);
      }
    }
  }

  MPI_Comm copy_of_world() {
    MPI_Request request = no_request();
    check(MPI_Comm_idup(world(), &copy_, &request), "MPI_Comm_idup", rank_);
    wait(request, "MPI_Comm_idup", "set-up");
    check(MPI_Comm_set_errhandler(copy_, errors_return()), "MPI_Comm_set_errhandler", rank_);
    return copy_;
  }
  /// A rank that was asked for something else than rank 0 says so.
  void expect_same_question(const RunSettings& settings) {
    const Question ours = question_of(settings);
    const std::string request = fmt::format("{:x}", ours.request);
    const std::string program_of_0 = all_gather_text(ours.program).front();
    const std::string request_of_0 = all_gather_text(request).front();
    if (ours.program != program_of_0) {
      throw BackendError("set-up", another_version(program_of_0), rank_);
    }
    if (request != request_of_0) {
      throw BackendError("set-up", another_request, rank_);
    }
  }

  [[nodiscard]] bool abort_was_told(bool by_lower_only) const;
  [[nodiscard]] bool somebody_else_aborts() const;
  void tell_abort() const;

  int rank_;
  int size_;
  Deadlines deadlines_;
  Notices notices_;
  Texts texts_;
  std::vector<int> hosts_;  // by rank
  MPI_Comm comm_ = no_comm();
  /// Where copy_of_world() has one written: as with texts_, perhaps after it has given up.
  MPI_Comm copy_ = no_comm();
  bool aborted_ = false;
  Ticket last_ticket_ = 0;
  std::unordered_map<Ticket, Message> messages_;
  std::map<std::tuple<int, int, bool>, Line> lines_;  // by peer, tag, sending
  std::vector<Line*> waiting_lines_;                  // that may post more
  // In flight, by the same index; and what MPI_Testsome says about them.
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
  Patience patience_;
};

Ticket MpiTransport::post(const Message& message) {
  go_on(message.sending ? "send" : "receive");
  check_message(*this, message.peer, message.tag);
  Message& kept = messages_.emplace(++last_ticket_, message).first->second;
  kept.line = &lines_[{message.peer.value, message.tag, message.sending}];
  kept.line->push_back(&kept);
  if (message.peer.value == rank_) {
    copy_to_self(message.tag);
  } else {
    post_pieces(*kept.line);
  }
  return last_ticket_;
}

void MpiTransport::copy_to_self(int tag) {
  Line& sends = lines_[{rank_, tag, true}];
  Line& receives = lines_[{rank_, tag, false}];
  if (sends.empty() || receives.empty()) {
    return;
  }
  Message& from = *sends.front();
  Message& to = *receives.front();
  if (from.size != to.size) {
    wrong_size(to, from.size);
  }
  if (from.size > 0) {
    std::memcpy(to.data, from.data, from.size);
  }
  for (Message* message : {&from, &to}) {
    message->completed = message->pieces();
    message->line->pop_front();
  }
}

/// Posts what may be in flight of the line's messages.
void MpiTransport::post_pieces(Line& line) {
  while (!line.empty()) {
    Message& message = *line.front();
    while (message.posted < message.pieces() && message.posted - message.completed < window) {
      post_piece(message);
    }
    if (message.posted < message.pieces()) {
      return;
    }
    line.pop_front();
  }
}

void MpiTransport::post_piece(Message& message) {
  const std::size_t bytes = message.bytes_of(message.posted);
  std::byte* data = message.data + static_cast<std::size_t>(message.posted) * piece_bytes;
  const int count = static_cast<int>(bytes);
  const int peer = message.peer.value;
  MPI_Request request = no_request();
  if (message.sending) {
    check(MPI_Isend(data, count, byte_type(), peer, message.tag, comm_, &request), "MPI_Isend",
          rank_);
  } else {
    check(MPI_Irecv(data, count, byte_type(), peer, message.tag, comm_, &request), "MPI_Irecv",
          rank_);
  }
  requests_.push_back(request);
  pieces_.push_back({.message = &message, .index = message.posted++});
}

void MpiTransport::progress() {
  go_on("progress");
  if (requests_.empty()) {  // the library may still hold pieces that it has called sent
    int there = 0;
    check(MPI_Iprobe(any_source(), abort_tag, comm_, &there, ignore()), "MPI_Iprobe", rank_);
    return;
  }
  const int active = static_cast<int>(requests_.size());
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code =
      MPI_Testsome(active, requests_.data(), &count, finished_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) {
    check(code, "MPI_Testsome", rank_);
  }
  if (count <= 0) {  // MPI_UNDEFINED is negative
    return;
  }
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Piece& piece = pieces_[static_cast<std::size_t>(finished_[at])];
    complete(piece, statuses_[at], code == MPI_ERR_IN_STATUS);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != no_request()) {
      requests_[kept] = requests_[i];
      pieces_[kept++] = pieces_[i];
    }
  }
  requests_.resize(kept);
  pieces_.resize(kept);
  for (Line* line : std::exchange(waiting_lines_, {})) {
    post_pieces(*line);
  }
  patience_.news();
}

void MpiTransport::complete(const Piece& piece, const MPI_Status& status, bool has_error) {
  Message& message = *piece.message;
  if (has_error && status.MPI_ERROR == MPI_ERR_TRUNCATE) {
    throw BackendError("MPI_Irecv",
                       fmt::format("more than {} bytes from rank {} with tag {}", message.size,
                                   message.peer.value, message.tag),
                       rank_);
  }
  if (has_error) {
    check(status.MPI_ERROR, message.sending ? "MPI_Isend" : "MPI_Irecv", rank_);
  }
  if (!message.sending) {
    int count = 0;
    check(MPI_Get_count(&status, byte_type(), &count), "MPI_Get_count", rank_);
    const auto bytes = static_cast<std::size_t>(count);
    if (bytes != message.bytes_of(piece.index)) {
      wrong_size(message, static_cast<std::size_t>(piece.index) * piece_bytes + bytes);
    }
  }
  ++message.completed;
  if (message.posted < message.pieces()) {
    waiting_lines_.push_back(message.line);
  }
}

void MpiTransport::wrong_size(const Message& expected, std::size_t came) const {
  throw BackendError("receive",
                     fmt::format("{} bytes from rank {} with tag {}, but {} were expected", came,
                                 expected.peer.value, expected.tag, expected.size),
                     rank_);
}

std::vector<std::string> MpiTransport::all_gather_text(const std::string& mine) {
  go_on("all_gather_text");
  notices_.meet();
  const auto ranks = static_cast<std::size_t>(size_);
  Texts& t = texts_;
  t.mine = mine;
  t.size = std::ssize(mine);
  t.sizes.assign(ranks, 0);
  MPI_Request request = no_request();
  check(MPI_Iallgather(&t.size, sizeof t.size, byte_type(), t.sizes.data(), sizeof t.size,
                       byte_type(), comm_, &request),
        "MPI_Iallgather", rank_);
  wait(request, "MPI_Iallgather", "all_gather_text");

  std::vector<std::string> texts(ranks);
  const std::int64_t part = std::max<std::int64_t>(1, most_text / size_);
  for (std::int64_t begin = 0; begin < std::ranges::max(t.sizes); begin += part) {
    t.lengths.clear();
    for (const std::int64_t size : t.sizes) {
      t.lengths.push_back(static_cast<int>(std::clamp<std::int64_t>(size - begin, 0, part)));
    }
    t.places.resize(ranks);
    std::exclusive_scan(t.lengths.begin(), t.lengths.end(), t.places.begin(), 0);
    t.all.resize(static_cast<std::size_t>(t.places.back()) +
                 static_cast<std::size_t>(t.lengths.back()));
    check(MPI_Iallgatherv(t.mine.data() + std::min(begin, t.size),
                          t.lengths[static_cast<std::size_t>(rank_)], byte_type(), t.all.data(),
                          t.lengths.data(), t.places.data(), byte_type(), comm_, &request),
          "MPI_Iallgatherv", rank_);
    wait(request, "MPI_Iallgatherv", "all_gather_text");
    for (std::size_t r = 0; r < ranks; ++r) {
      texts[r].append(t.all, static_cast<std::size_t>(t.places[r]),
                      static_cast<std::size_t>(t.lengths[r]));
    }
  }
  return texts;
}

/// Whether the notice of another rank that aborts is there.
bool MpiTransport::abort_was_told(bool by_lower_only) const {
  for (int peer = 0; peer < (by_lower_only ? rank_ : size_); ++peer) {
    int there = 0;
    if (peer != rank_ && MPI_Iprobe(peer, abort_tag, comm_, &there, ignore()) == MPI_SUCCESS &&
        there != 0) {
      return true;
    }
  }
  return false;
}

void MpiTransport::tell_abort() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      MPI_Request notice = no_request();
      MPI_Isend(nullptr, 0, byte_type(), peer, abort_tag, comm_, &notice);
    }
  }
}

/// Where ranks fail together, one tells: whoever sees a notice before it has sent its own leaves it
/// to others, and of those who could not see each other's the lowest speaks. They have a second to
/// see: an idle machine takes a millisecond, one with many more ranks than cores some hundred.
bool MpiTransport::somebody_else_aborts() const {
  if (comm_ == no_comm()) {
    return false;  // not set up: no way to tell
  }
  if (abort_was_told(false)) {
    return true;
  }
  tell_abort();
  const auto speak = Clock::now() + std::chrono::seconds(rank_ == 0 ? 0 : 1);
  while (Clock::now() < speak) {
    if (abort_was_told(true)) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void MpiTransport::abort(std::string_view text) noexcept {
  if (std::exchange(aborted_, true) || size_ == 1) {
    return;  // alone: run() throws
  }
  Library::get().never_finalize();
  if (somebody_else_aborts()) {
    std::this_thread::sleep_for(std::chrono::seconds(5));  // it ends us meanwhile
  } else {
    // The one place where a library prints: no caller lives on to do it.
    const std::string line = fmt::format("rank {} ended the run: {}\n", rank_, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
    // Others are still to see that somebody has spoken; and MPICH's mpiexec drops what it has not
    // forwarded yet when MPI_Abort reaches it. Notices move only inside the library's calls.
    const auto leave = Clock::now() + std::chrono::milliseconds(200);
    while (Clock::now() < leave) {
      (void)abort_was_told(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  MPI_Abort(world(), 1);
}

void run(int ranks, const RankBody& body, const RunSettings& settings) {
  ensure(ranks >= 1, "a run without ranks");
  const Launch launch = launched_by_mpi();
  if (!launch.wrong.empty()) {
    throw InputError("transport mpi", launch.wrong);
  }
  const int launched = launch.ranks;
  if (launched == 0 && ranks > 1) {
    throw InputError("transport mpi",
                     fmt::format("the plan has {} ranks, but no mpirun (or srun) started this "
                                 "process: mpirun -np {} …",
                                 ranks, ranks));
  }
  const auto refuse = [&](int started) {
    throw InputError("transport mpi",
                     fmt::format("mpirun started {} ranks, the plan has {}: mpirun -np {} …",
                                 started, ranks, ranks));
  };
  if (launched > 0 && launched != ranks) {
    refuse(launched);
  }
  const int size = Library::get().size();
  if (size == 1 && launched > 1) {
    throw InputError("transport mpi",
                     fmt::format("{} ranks were started, but MPI sees one: the launcher belongs to "
                                 "another MPI than the library",
                                 launched));
  }
  if (size != ranks) {
    refuse(size);
  }
  MpiTransport transport(settings);
  abort_on_throw(transport, [&] {
    transport.set_up(settings);
    body(transport);
    ensure(transport.open_messages() == 0,
           fmt::format("rank {} ended with {} open messages", transport.rank().value,
                       transport.open_messages()));
    transport.barrier();  // MPI_Finalize, which has no time-out, waits for all
  });
}

// NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)

std::string why_not() { return launched_by_mpi().wrong; }

#else

std::string why_not() { return "not compiled in: MPI was not found"; }

void run(int /*ranks*/, const RankBody& /*body*/, const RunSettings& /*settings*/) {
  throw InputError("transport mpi", why_not());
}

#endif

}  // namespace

namespace transports {
extern const TransportBackend mpi{
    .name = "mpi",
    .title = "processes, by MPI",
    .why_not = why_not,
    .launched = [] { return launched_by_mpi().found(); },
    .launched_ranks = [] { return launched_by_mpi().ranks; },
    .launched_rank = [] { return launched_by_mpi().rank; },
    .start = run,
};
}  // namespace transports

}  // namespace spp::runtime
