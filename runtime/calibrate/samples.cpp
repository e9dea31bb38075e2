#include "runtime/calibrate/samples.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "runtime/comm/packed.hpp"
#include "runtime/kernels/convert.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A number that no sample is: this rank was not active.
constexpr double absent = -1;

Json block_json(const AttentionBlock& b) {
  return {
      {"phase", to_string(b.phase)}, {"dtype", to_string(b.dtype)}, {"batch", b.batch},
      {"q_heads", b.q_heads},        {"kv_heads", b.kv_heads},      {"head_dim", b.head_dim},
      {"mask", to_string(b.mask)},   {"q_tokens", to_string(b.q)},  {"k_tokens", to_string(b.k)}};
}

AttentionBlock read_block(const JsonView& view) {
  constexpr std::int64_t most = 1 << 20;
  const auto word = [&](std::string_view key, auto parse) {
    const JsonView member = view.at(key);
    return parse(member.string(), member.where());
  };
  const auto count = [&](std::string_view key) { return view.at(key).integer(1, most); };
  return {.phase = word("phase", parse_phase),
          .q = word("q_tokens", parse_token_set),
          .k = word("k_tokens", parse_token_set),
          .q_heads = static_cast<int>(count("q_heads")),
          .kv_heads = static_cast<int>(count("kv_heads")),
          .head_dim = static_cast<int>(count("head_dim")),
          .batch = count("batch"),
          .mask = word("mask", parse_mask),
          .dtype = word("dtype", parse_dtype)};
}

/// One measurement: rounds of samples until they agree.
class Measurement {
 public:
  Measurement(Transport& transport, const Patient& patient, Samples samples, bool active,
              const std::function<void(int)>& work)
      : transport_(transport), patient_(patient), samples_(samples), active_(active), work_(work) {}

  std::vector<double> run() {
    (void)sample(1);  // first touch of memory, first use of a connection
    const double once = patient_.once > Seconds(0) ? patient_.once.count() : slowest(sample(1));
    if (once * patient_.least > patient_.longest.count()) {
      return {};
    }
    const double wanted = patient_.sample.count() / std::max(once, 1e-9);
    const int repetitions = static_cast<int>(std::clamp(std::ceil(wanted), 1.0, 1024.0));
    std::vector<double> all;
    for (int taken = 0; taken < patient_.most;) {
      const int round = taken < patient_.least ? patient_.least - taken : 4;
      std::vector<double> mine;
      for (int i = 0; i < round; ++i) {
        mine.push_back(sample(repetitions));
      }
      taken += round;
      if (collect(mine, all) || spread_of(all) < patient_.spread) {
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
    double most = 0;
    for (const auto& numbers : all_gather_numbers(transport_, {mine})) {
      most = std::max(most, numbers.front());
    }
    return most;
  }

  /// Adds a round; true if rank 0 says that time is up.
  bool collect(std::vector<double> mine, std::vector<double>& all) {
    const std::size_t round = mine.size();
    mine.push_back(seconds_since(start_));
    const auto numbers = all_gather_numbers(transport_, mine);
    for (std::size_t i = 0; i < round; ++i) {
      double most = 0;
      for (const auto& of_rank : numbers) {
        if (samples_ == Samples::each && of_rank[i] > 0) {
          all.push_back(of_rank[i]);
        }
        most = std::max(most, of_rank[i]);
      }
      if (samples_ == Samples::slowest) {
        all.push_back(most);
      }
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

FlopCount flops_of(const AttentionBlock& b) {
  return FlopCount(static_cast<double>(allowed_pairs(b.q, b.k, b.mask)) * b.q_heads *
                   static_cast<double>(b.batch) * b.head_dim *
                   (b.phase == Phase::forward ? 4.0 : 10.0));
}

double core_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median_of(std::vector<double> values) {
  ensure(!values.empty(), "the median of nothing");
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double spread_of(const std::vector<double>& values) {
  if (values.empty()) {
    return 0;
  }
  const double middle = median_of(values);
  std::vector<double> deviations;
  for (const double v : values) {
    deviations.push_back(std::abs(v - middle));
  }
  return middle > 0 ? median_of(deviations) / middle : 0;
}

double error_of_median(const std::vector<double>& values) {
  const auto n = static_cast<double>(std::max<std::size_t>(1, values.size()));
  return 1.2533 * 1.4826 * spread_of(values) / std::sqrt(n);
}

Json to_json(const Series& s) {
  Json json = {{"suite", s.suite},   {"what", s.what},  {"scope", s.scope},    {"ranks", s.ranks},
               {"active", s.active}, {"bytes", s.size}, {"seconds", s.seconds}};
  if (!s.pace.empty()) {
    json["pace"] = s.pace;
  }
  if (s.block) {
    json["block"] = block_json(*s.block);
  }
  return json;
}

Series read_series(const JsonView& view) {
  constexpr std::int64_t most_ranks = 1 << 20;
  view.allow_only(
      {"suite", "what", "scope", "ranks", "active", "bytes", "seconds", "pace", "block"});
  Series s;
  s.suite = view.at("suite").string();
  s.what = view.at("what").string();
  s.scope = view.at("scope").string();
  s.ranks = static_cast<int>(view.at("ranks").integer(1, most_ranks));
  s.active = static_cast<int>(view.at("active").integer(1, most_ranks));
  s.size = view.at("bytes").number(0, most_bytes.as_double());
  for (const JsonView& seconds : view.at("seconds").elements()) {
    s.seconds.push_back(seconds_from(seconds.number(), "s", seconds.where()).count());
  }
  if (const auto pace = view.find("pace")) {
    for (const JsonView& seconds : pace->elements()) {
      s.pace.push_back(measured_from(seconds.number(), "s", seconds.where()).count());
    }
    if (s.pace.size() != s.seconds.size()) {
      pace->fail("has not as many samples as 'seconds'");
    }
  }
  if (const auto block = view.find("block")) {
    s.block = read_block(*block);
  }
  return s;
}

std::vector<std::vector<double>> all_gather_numbers(Transport& transport,
                                                    const std::vector<double>& mine) {
  std::vector<std::vector<double>> all;
  for (const std::string& theirs : transport.all_gather_text(bytes_of_vector(mine))) {
    all.push_back(vector_of_bytes<double>(theirs));
  }
  return all;
}

std::vector<double> measure(Transport& transport, const Patient& patient, Samples samples,
                            bool active, const std::function<void(int)>& work) {
  return Measurement(transport, patient, samples, active, work).run();
}

std::vector<std::int64_t> message_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes{8};
  for (std::int64_t size = 64; size <= largest; size *= 4) {
    sizes.push_back(size);
  }
  return sizes;
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
