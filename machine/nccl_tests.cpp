#include "machine/nccl_tests.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

namespace spp {
namespace {

constexpr std::array<std::string_view, 5> known_tests{"all_gather", "reduce_scatter", "alltoall",
                                                      "sendrecv", "all_reduce"};

/// "/opt/nccl-tests/build/all_gather_perf_mpi", "allgather.txt" -> "all_gather"; nothing if it is
/// none we know.
std::optional<std::string> test_in(std::string_view text) {
  const auto joined = [](std::string_view words) {
    std::string letters;
    std::ranges::copy_if(words, std::back_inserter(letters), [](char c) { return c != '_'; });
    return letters;
  };
  const std::string letters = joined(text);
  for (const std::string_view name : known_tests) {
    if (letters.find(joined(name)) != std::string::npos) {
      return std::string(name);
    }
  }
  return std::nullopt;
}

std::string names_of_tests() { return fmt::format("{}_perf", fmt::join(known_tests, "_perf, ")); }

/// 22907 is 2.29.7.
std::string nccl_version(std::int64_t code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

/// Ranks as they were listed, host by host.
class Ranks {
 public:
  void add(std::string host, std::int64_t ranks = 1) {
    if (hosts_.empty() || hosts_.back() != host) {
      hosts_.push_back(std::move(host));
      counts_.push_back(0);
    }
    counts_.back() += ranks;
  }
  [[nodiscard]] bool empty() const { return hosts_.empty(); }
  /// InputError(where) unless hosts have equally many, one host after the other.
  void put_into(NcclTest& test, std::string_view where) const {
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (!seen.insert(hosts_[i]).second) {
        throw InputError(where, fmt::format("ranks of host {} are not neighbours; start the test "
                                            "with mpirun --map-by slot",
                                            hosts_[i]));
      }
      if (counts_[i] != counts_.front()) {
        throw InputError(where,
                         fmt::format("{} ranks on {}, but {} on {}: hosts need equally many",
                                     counts_.front(), hosts_.front(), counts_[i], hosts_[i]));
      }
    }
    constexpr std::int64_t most = 1 << 16;
    const std::int64_t all = counts_.front() * static_cast<std::int64_t>(hosts_.size());
    if (all < 2 || all > most) {
      throw InputError(where, fmt::format("{} ranks; a test has 2 to {}", all, most));
    }
    test.hosts = hosts_;
    test.ranks_per_host = static_cast<int>(counts_.front());
  }

 private:
  std::vector<std::string> hosts_;
  std::vector<std::int64_t> counts_;
};

std::vector<std::string> words_in(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// ---- text

class TextReader {
 public:
  explicit TextReader(std::string file) : file_(std::move(file)) {}

  std::vector<NcclTest> read(std::istream& in) {
    for (std::string line; std::getline(in, line);) {
      ++line_;
      if (line.ends_with('\r')) {
        line.pop_back();
      }
      // mpirun --tag-output
      if (const auto tag = line.find(">:"); line.starts_with('[') && tag != std::string::npos) {
        line.erase(0, tag + 2);
      }
      one_line(line);
    }
    end_test();
    if (tests_.empty()) {
      throw InputError(file_,
                       fmt::format("no line '# nThread …': not the output of NCCL's tests ({})",
                                   names_of_tests()));
    }
    return std::move(tests_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(fmt::format("{}:{}", file_, line_), message);
  }

  void one_line(const std::string& line) {
    std::vector<std::string> words = words_in(line);
    if (words.empty()) {
      return;
    }
    if (line.starts_with("# Collective test starting:")) {
      end_test();
      program_ = words.back();
    } else if (line.starts_with("# nccl-tests version")) {
      end_test();
      version_of_library(words);
    } else if (words[0] == "#" && words.size() > 1 && words[1] == "nThread") {
      end_test();
      begin_test();
    } else if (words[0] == "#" && words.size() > 1 && words[1] == "Rank") {
      rank(line, words);
    } else if (line.starts_with("NCCL version ") && words.size() > 2) {
      version_ = words[2].substr(0, words[2].find('+'));
    } else if (words[0].starts_with('#')) {
      header(words);
    } else if (const auto typed = std::ranges::find_if(
                   words, [](const std::string& w) { return w.ends_with("_perf"); });
               typed != words.end()) {  // "$ ./build/all_reduce_perf -b 1M"
      end_test();
      program_ = *typed;
    } else if (open_ && time_from_end_ > 0 && std::ranges::all_of(words[0], [](unsigned char c) {
                 return std::isdigit(c) != 0;
               })) {
      row(words);
    }
  }

  void version_of_library(const std::vector<std::string>& words) {
    constexpr std::string_view key = "nccl-library=";
    for (const std::string& word : words) {
      if (word.starts_with(key)) {
        version_ = nccl_version(parse_int(word.substr(key.size()), at(), 0, 1'000'000));
      }
    }
  }

  [[nodiscard]] std::string at() const { return fmt::format("{}:{}", file_, line_); }

  void begin_test() {
    open_ = true;
    begun_at_ = line_;
    test_ = {};
    ranks_ = {};
    time_from_end_ = 0;
    const auto name = test_in(program_.empty() ? file_ : program_);
    if (!name) {
      fail(
          fmt::format("which test is this? Neither a line '# Collective test starting: …' nor the "
                      "file's name says one of {}",
                      names_of_tests()));
    }
    test_.file = file_;
    test_.name = *name;
  }

  void end_test() {
    if (!open_) {
      return;
    }
    open_ = false;
    program_.clear();
    const std::string where = fmt::format("{}:{}", file_, begun_at_);
    if (ranks_.empty()) {
      throw InputError(where, "no lines '#  Rank … on HOST device …' follow: where did it run?");
    }
    if (test_.rows.empty()) {
      throw InputError(where, "no sizes and times follow: the test was cut off, or failed");
    }
    ranks_.put_into(test_, where);
    test_.nccl = version_;
    tests_.push_back(std::move(test_));
  }

  /// "#  Rank  0 Group  0 Pid 1234 on host1 device  0 [0000:07:00] NVIDIA H100 80GB HBM3"
  void rank(const std::string& line, const std::vector<std::string>& words) {
    const auto on = std::ranges::find(words, "on");
    const std::size_t bus = line.find("] ");
    if (!open_ || words.end() - on < 4 || on[2] != "device" || bus == std::string::npos) {
      fail("a rank's line is '#  Rank 0 … on HOST device 0 [BUS] NAME', after '# nThread …'");
    }
    ranks_.add(on[1]);
    test_.gpu = line.substr(bus + 2);
  }

  /// "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time …": where times stand,
  /// counted from the end, since what has no value is left out of a row.
  void header(const std::vector<std::string>& words) {
    const auto time = std::ranges::find_if(
        words, [](const std::string& word) { return word == "time" || word == "cputime"; });
    if (time == words.end() || words.end() - time < columns_of_time ||
        std::ranges::find(words, "busbw") == words.end()) {
      return;
    }
    const bool stamped = words.back() == "timestamp";  // two words in a row
    time_from_end_ = words.end() - time + (stamped ? 1 : 0);
    const auto second = std::find(time + 1, words.end(), *time);
    in_place_from_end_ = second == words.end() ? 0 : words.end() - second + (stamped ? 1 : 0);
  }

  void row(const std::vector<std::string>& words) {
    constexpr std::ptrdiff_t before = 3;  // size, count, type
    const auto n = static_cast<std::ptrdiff_t>(words.size());
    if (n < time_from_end_ + before) {
      fail(
          fmt::format("{} columns, but the header has more: size, count, type, …, time, algbw, "
                      "busbw, #wrong, twice",
                      n));
    }
    const auto column = [&](std::ptrdiff_t from_end) {
      return words[static_cast<std::size_t>(n - from_end)];
    };
    NcclTest::Row row{.size = parse_int(words[0], at(), 0, std::int64_t{1} << 50), .seconds = 0};
    const std::string time = column(time_from_end_) != "N/A" || in_place_from_end_ == 0
                                 ? column(time_from_end_)
                                 : column(in_place_from_end_);
    const std::string wrong = column(time_from_end_ - (columns_of_time - 1));
    if (wrong != "N/A" && parse_double(wrong, at()) != 0) {
      fail(fmt::format("{} wrong elements: a test that computes wrong numbers measures nothing",
                       wrong));
    }
    if (row.size > 0) {  // less than an element for every rank: nothing was sent
      row.seconds = measured_from(parse_double(time, at()), "us", at()).count();
      if (test_.rows.size() == most_nccl_sizes) {
        fail(fmt::format("more than {} sizes in one test", most_nccl_sizes));
      }
      test_.rows.push_back(row);
    }
  }

  static constexpr std::ptrdiff_t columns_of_time = 4;  // time, algbw, busbw, #wrong

  std::string file_;
  int line_ = 0;
  int begun_at_ = 0;
  bool open_ = false;
  std::string program_, version_;
  std::ptrdiff_t time_from_end_ = 0, in_place_from_end_ = 0;
  NcclTest test_;
  Ranks ranks_;
  std::vector<NcclTest> tests_;
};

// ---- JSON

double time_in(const JsonView& row) {
  for (const std::string_view place : {"out_of_place", "in_place"}) {
    if (const auto timed = row.find(place)) {
      if (const auto wrong = timed->find("nwrong"); wrong && wrong->number() != 0) {
        wrong->fail("a test that computes wrong numbers measures nothing");
      }
      const auto time = timed->find("time");
      const JsonView us = time ? *time : timed->at("cpu_time");
      return measured_from(us.number(), "us", us.where()).count();
    }
  }
  row.fail("has neither out_of_place nor in_place");
}

NcclTest read_json_test(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonView view(json, file);
  NcclTest test;
  test.file = file;
  const JsonView args = view.at("args");
  const auto name = test_in(args.elements().empty() ? file : args.elements().front().string());
  if (!name) {
    args.fail(fmt::format("names none of {}", names_of_tests()));
  }
  test.name = *name;
  if (const auto version = view.find("nccl_version")) {
    test.nccl = nccl_version(version->integer(0, 1'000'000));
  }
  const JsonView config = view.at("config");
  constexpr std::int64_t most = 1024;
  const std::int64_t of_process =
      config.at("nthreads").integer(1, most) * config.at("ngpus").integer(1, most);
  const std::vector<JsonView> devices = config.at("devices").elements();
  // A process is listed with its first GPU only.
  const bool all = devices.size() > 1 && devices[1].at("rank").integer(0, 1 << 20) == 1;
  Ranks ranks;
  for (const JsonView& device : devices) {
    ranks.add(device.at("hostname").string(), all ? 1 : of_process);
    test.gpu = device.at("device_info").string();
  }
  if (ranks.empty()) {
    config.at("devices").fail("lists no GPU");
  }
  ranks.put_into(test, config.at("devices").where());
  for (const JsonView& row : view.at("results").elements()) {
    const std::int64_t size = row.at("size").integer(0, std::int64_t{1} << 50);
    if (test.rows.size() == most_nccl_sizes) {
      row.fail(fmt::format("more than {} sizes in one test", most_nccl_sizes));
    }
    if (size > 0) {
      test.rows.push_back({.size = size, .seconds = time_in(row)});
    }
  }
  if (test.rows.empty()) {
    view.at("results").fail("has no size above 0");
  }
  return test;
}

}  // namespace

std::vector<NcclTest> read_nccl_tests(const std::string& file) {
  return parse_nccl_tests(read_text_file(file, "--nccl-tests"), file);
}

std::vector<NcclTest> parse_nccl_tests(const std::string& text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    return {read_json_test(text, file)};
  }
  std::istringstream in(text);
  return TextReader(file).read(in);
}

double sent_by_rank(const NcclTest& test, std::int64_t size) {
  const double n = test.ranks();
  return static_cast<double>(size) * (test.name == "sendrecv" ? 1 : (n - 1) / n);
}

}  // namespace spp
