#include "runtime/calibrate/measure.hpp"

#include "base/error.hpp"
#include "runtime/comm/packed.hpp"
#include "runtime/kernels/convert.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One measurement: rounds of samples until they agree.
class Measurement {
 public:
  Measurement(Transport& transport, const Patient& patient, Samples samples, bool active,
              const std::function<void(int)>& work)
      : transport_(transport), patient_(patient), samples_(samples), active_(active), work_(work) {}

  std::vector<double> run() {
    if (patient_.leaves_out(patient_.once.count())) {
      return {};
    }
    (void)sample(1);  // first touch of memory, first use of a connection
    const double once =
        patient_.once > patient_.sample ? patient_.once.count() : slowest(sample(1));
    if (patient_.leaves_out(once)) {
      return {};
    }
    const int repetitions = patient_.repetitions(once);
    std::vector<double> all;
    for (int taken = 0; taken < patient_.most;) {
      const int round = patient_.round(taken);
      std::vector<double> mine;
      for (int i = 0; i < round; ++i) {
        mine.push_back(sample(repetitions));
      }
      taken += round;
      if (collect(mine, all) || patient_.satisfied_with(all)) {
        break;
      }
    }
    return all;
  }

 private:
  /// Seconds of one repetition.
  double sample(int repetitions) {
    transport_.barrier();
    if (!active_) {
      return absent;
    }
    if (samples_ == Samples::each) {
      const double start = core_seconds();
      work_(repetitions);
      return (core_seconds() - start) / repetitions;
    }
    work_(1);  // ranks leave a barrier one after the other; this lets them meet
    const auto start = Clock::now();
    work_(repetitions);
    return seconds_since(start) / repetitions;
  }

  double slowest(double mine) {
    std::vector<double> most;
    add_sample(all_gather_numbers(transport_, {mine}), 0, Samples::slowest, most);
    return most.front();
  }

  /// Adds a round; true if rank 0 says that time is up.
  bool collect(std::vector<double> mine, std::vector<double>& all) {
    const std::size_t round = mine.size();
    mine.push_back(seconds_since(start_));
    const auto numbers = all_gather_numbers(transport_, mine);
    for (std::size_t i = 0; i < round; ++i) {
      add_sample(numbers, i, samples_, all);
    }
    return numbers.front()[round] > patient_.budget.count();
  }

  Transport& transport_;
  const Patient& patient_;
  Samples samples_;
  bool active_;
  const std::function<void(int)>& work_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

double core_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<std::vector<double>> all_gather_numbers(Transport& transport,
                                                    const std::vector<double>& mine) {
  std::vector<std::vector<double>> all;
  for (const std::string& theirs : transport.all_gather_text(bytes_of_vector(mine))) {
    all.push_back(vector_of_bytes<double>(theirs));
  }
  return all;
}

std::vector<double> numbers_of_rank_0(Transport& transport, const std::vector<double>& mine) {
  return all_gather_numbers(transport, mine).front();
}

Seconds CommonClock::elapsed() const {
  return Seconds(numbers_of_rank_0(transport_, {seconds_since(start_)}).front());
}

void add_sample(const std::vector<std::vector<double>>& numbers, std::size_t at, Samples samples,
                std::vector<double>& seconds) {
  double most = absent;
  for (const auto& of_rank : numbers) {
    most = std::max(most, of_rank[at]);
    if (samples == Samples::each && of_rank[at] != absent) {
      seconds.push_back(of_rank[at]);
    }
  }
  if (samples == Samples::slowest) {
    seconds.push_back(most);
  }
}

std::vector<double> measure(Transport& transport, const Patient& patient, Samples samples,
                            bool active, const std::function<void(int)>& work) {
  return Measurement(transport, patient, samples, active, work).run();
}

void fill_numbers(const Rows& rows, float middle, float reach) {
  std::array<float, 1024> some;
  std::uint32_t state = 12345;
  for (float& x : some) {
    state = state * 1664525U + 1013904223U;
    x = middle + reach * (static_cast<float>(state >> 8U) / 8388608.0F - 1);
  }
  for (std::int64_t at = 0; at < rows.elements(); at += 1024) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(1024, rows.elements() - at));
    from_floats(rows.dtype, std::span<const float>(some).first(count),
                rows.data + at * size_of(rows.dtype));
  }
}

std::span<std::byte> Pool::next(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  ensure(size <= memory_.size(), "a part that is larger than its pool");
  if (at_ + size > memory_.size()) {
    at_ = 0;
  }
  const std::span<std::byte> part = std::span(memory_).subspan(at_, size);
  at_ += (size + 63) / 64 * 64;
  return part;
}

}  // namespace spp::runtime
