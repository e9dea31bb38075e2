// Point-to-point messages between the ranks of one run: what communicators are made of. One file
// each in runtime/comm/, listed in runtime/CMakeLists.txt, from which `transports::all()` is
// generated: `inproc` (ranks are threads of this process), `mpi` and `tcp` (ranks are processes).
//
// A transport is used by the thread of its rank only and never blocks, except in the calls that say
// so. Data moves when progress() is called (between the tiles of a kernel, while waiting): overlap
// is as good as progress is often.
#pragma once

#include "base/id.hpp"
#include "runtime/comm/deadlines.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::runtime {

/// A posted message of one side; valid until done() has returned true for it.
using Ticket = std::int64_t;

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Number of the host that a rank is on; hosts are numbered as they first appear by rank.
  [[nodiscard]] virtual int host(Rank rank) const = 0;

  /// Posts one side of a message and returns at once; the memory stays as it is until done.
  /// Messages from one rank to another with one tag match in the order of posting; both sides must
  /// give the same size (else BackendError). Tags are small: 0 to 63. A rank may send to itself.
  virtual Ticket send(Rank to, int tag, std::span<const std::byte> data) = 0;
  virtual Ticket receive(Rank from, int tag, std::span<std::byte> data) = 0;
  /// Moves what can be moved.
  virtual void progress() = 0;
  /// True once the message is complete on this side; then the ticket is gone.
  virtual bool done(Ticket ticket) = 0;
  /// Called by a rank that has nothing to do: lets others have the core.
  virtual void idle() = 0;

  // ---- who is slow, who is dead: deadlines.hpp
  [[nodiscard]] virtual const Deadlines& deadlines() const = 0;
  /// Called again and again by a rank that computes for itself: those who wait for it know that it
  /// is at work. Costs a look at the clock.
  virtual void working() = 0;
  /// How long nothing has happened, as far as a rank that waits knows; it asks while it waits.
  [[nodiscard]] virtual Seconds silence() = 0;

  // ---- control plane: small, blocking, all ranks together, in the same order; not timed.
  // BackendError that names who has not come, as far as that is known, after Deadlines::timeout.
  virtual void barrier() = 0;
  /// Everybody's text, by rank, on every rank.
  virtual std::vector<std::string> all_gather_text(const std::string& mine) = 0;

  /// Ends the run for everybody: the other ranks' next call throws BackendError with this text
  /// (mpi: the processes are ended after the text was printed to stderr). Idempotent.
  virtual void abort(std::string_view text) noexcept = 0;
};

/// What one rank does.
using RankBody = std::function<void(Transport&)>;

/// Runs `work`. If it throws, the run is aborted before the exception goes on: declare what
/// messages point to before the call, not in `work`, so that no other rank reads memory that is
/// gone.
void abort_on_throw(Transport& transport, const std::function<void()>& work);

/// Waits for one's own messages: calls progress() and idle() until `done`. BackendError(what) that
/// names `waits_for` when nothing has happened for the time-out.
void wait_until(Transport& transport, std::string_view what, const std::function<bool()>& done,
                const std::function<std::vector<Rank>()>& waits_for);

/// "rank 1", "ranks 1, 3", "nobody".
std::string ranks_text(const std::vector<Rank>& ranks);

/// "nothing happened for 10 s; it waits for ranks 1, 3"
std::string silence_text(Seconds silence, const std::vector<Rank>& waits_for);

/// What all processes of a run agree on, and who hears of it.
struct RunSettings {
  Deadlines deadlines;
  /// What this process is asked to do. All ranks must be asked for the same (mpi, tcp).
  std::function<std::string()> request;
  /// On rank 0: something about the run that people should know.
  std::function<void(const std::string&)> warn;
};

struct TransportBackend {
  std::string_view name;   // "inproc"
  std::string_view title;  // "threads of this process"
  /// "" if it can run here, else why not ("not compiled in: MPI was not found", "RANK is 'x', …").
  std::string (*why_not)();
  /// Whether a launcher's variables are there, right or wrong.
  bool (*launched)();
  /// Ranks that this process is one of, if the launcher has decided that (mpirun, srun); 0: free,
  /// or the launcher's variables are wrong.
  int (*launched_ranks)();
  /// This process's rank there; else 0. Only rank 0 should talk to people.
  int (*launched_rank)();
  /// Runs `body` on `ranks` ranks and returns when all have ended. inproc: one thread each. mpi:
  /// once, in this process; InputError if the launcher started another number. If a rank throws,
  /// the others are aborted and the first rank's exception is rethrown here, the original one
  /// before those that only tell of the abort.
  void (*start)(int ranks, const RankBody& body, const RunSettings& settings);
  void run(int ranks, const RankBody& body, const RunSettings& settings = {}) const {
    start(ranks, body, settings);
  }
};

namespace transports {
/// All back ends, in the order of runtime/CMakeLists.txt. Generated.
std::span<const TransportBackend* const> all();
/// By name; unknown names are an InputError(where) with "did you mean".
const TransportBackend& by_name(std::string_view name, std::string_view where);
}  // namespace transports

}  // namespace spp::runtime
