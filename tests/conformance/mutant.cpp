#include "tests/conformance/mutant.hpp"

#include "schedule/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <sstream>

namespace spp::test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string joined(const std::vector<std::string>& words, char between) {
  return fmt::format("{}", fmt::join(words, std::string(1, between)));
}

/// "send" of "send=k,v"; "" of a flag.
std::string key_of(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals == std::string::npos ? "" : word.substr(0, equals);
}

/// A line's first words, by place.
enum : std::size_t { buffer_name = 1, buffer_tensor = 2, buffer_role = 3 };

}  // namespace

ScheduleMutator::ScheduleMutator(const Schedule& schedule, std::uint64_t seed)
    : lines_(lines_of(to_text(schedule))), random_(seed) {
  std::optional<std::size_t> rank;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const std::vector<std::string> words = words_of(lines_[i]);
    if (words.empty()) {
      continue;
    }
    if (words[0] == "streams") {
      streams_.assign(words.begin() + 1, words.end());
    } else if (words[0] == "rank") {
      rank = rank ? *rank + 1 : 0;
    } else if (rank && words[0] == "buffer") {
      buffers_.push_back({.at = i, .rank = *rank});
    } else if (rank && words[0].ends_with(':')) {
      ops_.push_back({.at = i, .rank = *rank});
    }
  }
}

std::optional<ScheduleMutator::Mutant> ScheduleMutator::next() {
  static constexpr std::array<Slip, 12> slips{&ScheduleMutator::drop,
                                              &ScheduleMutator::repeat,
                                              &ScheduleMutator::swap_neighbours,
                                              &ScheduleMutator::move,
                                              &ScheduleMutator::renumber,
                                              &ScheduleMutator::renumber_on_all_ranks,
                                              &ScheduleMutator::take_another_buffer,
                                              &ScheduleMutator::take_a_field_of_another_op,
                                              &ScheduleMutator::exchange_fields_between_ranks,
                                              &ScheduleMutator::toggle_a_flag,
                                              &ScheduleMutator::change_stream,
                                              &ScheduleMutator::change_buffer};
  std::vector<std::string> lines = lines_;
  std::string slip;
  if (!(this->*slips[below(slips.size())])(lines, slip) || lines == lines_) {
    return std::nullopt;
  }
  return Mutant{.text = joined(lines, '\n') + '\n', .slip = std::move(slip)};
}

bool ScheduleMutator::drop(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  slip = fmt::format("dropped on rank {}: {}", op.rank, lines[op.at]);
  lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(op.at));
  return true;
}

bool ScheduleMutator::repeat(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  slip = fmt::format("twice on rank {}: {}", op.rank, lines[op.at]);
  const std::string line = lines[op.at];
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(op.at), line);
  return true;
}

bool ScheduleMutator::swap_neighbours(Words& lines, std::string& slip) {
  const std::size_t i = below(ops_.size());
  if (i + 1 == ops_.size() || ops_[i + 1].at != ops_[i].at + 1) {
    return false;
  }
  slip = fmt::format("swapped on rank {}: {} and {}", ops_[i].rank, lines[ops_[i].at],
                     lines[ops_[i].at + 1]);
  std::swap(lines[ops_[i].at], lines[ops_[i].at + 1]);
  return true;
}

bool ScheduleMutator::move(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  std::vector<Line> mine;
  std::ranges::copy_if(ops_, std::back_inserter(mine),
                       [&](const Line& other) { return other.rank == op.rank; });
  std::size_t to = any_of(mine).at;
  const std::string line = lines[op.at];
  slip = fmt::format("moved on rank {}: {} before {}", op.rank, line, lines[to]);
  lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(op.at));
  to -= to > op.at ? 1 : 0;
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(to), line);
  return true;
}

bool ScheduleMutator::renumber(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  Words words = words_of(lines[op.at]);
  const std::size_t field = any_field(words);
  if (field == std::string::npos) {
    return false;
  }
  words[field] = renumbered(words[field]);
  slip = fmt::format("on rank {}: {} for {}", op.rank, words[field], lines[op.at]);
  lines[op.at] = joined(words, ' ');
  return true;
}

bool ScheduleMutator::renumber_on_all_ranks(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  const std::size_t field = any_field(words_of(lines[op.at]));
  if (field == std::string::npos) {
    return false;
  }
  const auto as_this_one = random_;
  for (const Line& other : beside(op)) {
    Words words = words_of(lines[other.at]);
    if (field < words.size()) {
      random_ = as_this_one;
      words[field] = renumbered(words[field]);
      lines[other.at] = joined(words, ' ');
    }
  }
  slip = fmt::format("on all ranks: {} for {}", lines[op.at], lines_[op.at]);
  return true;
}

bool ScheduleMutator::take_another_buffer(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  Words words = words_of(lines[op.at]);
  const std::size_t field = any_field(words);
  if (field == std::string::npos || key_of(words[field]).empty()) {
    return false;
  }
  const std::size_t first = words[field].find('=') + 1;
  const std::size_t end = std::min(words[field].find(',', first), words[field].size());
  const std::string name = words[field].substr(first, end - first);
  Words names;
  Words alike;  // of the same tensor
  std::string tensor;
  for (const bool find_tensor : {true, false}) {
    for (const Line& buffer : buffers_) {
      const Words said = words_of(lines[buffer.at]);
      if (buffer.rank != op.rank) {
        continue;
      }
      if (find_tensor) {
        tensor = said[buffer_name] == name ? said[buffer_tensor] : tensor;
      } else if (said[buffer_name] != name) {
        names.push_back(said[buffer_name]);
        if (said[buffer_tensor] == tensor) {
          alike.push_back(said[buffer_name]);
        }
      }
    }
  }
  if (tensor.empty() || names.empty()) {
    return false;
  }
  const std::string& other = alike.empty() || below(4) == 0 ? any_of(names) : any_of(alike);
  words[field].replace(first, end - first, other);
  slip = fmt::format("on rank {}: {} for {}", op.rank, words[field], lines[op.at]);
  lines[op.at] = joined(words, ' ');
  return true;
}

bool ScheduleMutator::take_a_field_of_another_op(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  Words words = words_of(lines[op.at]);
  const std::size_t field = any_field(words);
  if (field == std::string::npos || key_of(words[field]).empty()) {
    return false;
  }
  for (const std::string& word : words_of(lines[any_of(ops_).at])) {
    if (key_of(word) == key_of(words[field])) {
      words[field] = word;
    }
  }
  slip = fmt::format("on rank {}: {} for {}", op.rank, words[field], lines[op.at]);
  lines[op.at] = joined(words, ' ');
  return true;
}

bool ScheduleMutator::exchange_fields_between_ranks(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  const std::vector<Line> others = beside(op);
  const Line& other = others[below(others.size())];
  Words here = words_of(lines[op.at]);
  Words there = words_of(lines[other.at]);
  const std::size_t field = any_field(here);
  if (field == std::string::npos || field >= there.size()) {
    return false;
  }
  std::swap(here[field], there[field]);
  slip = fmt::format("{} of rank {} for {} of rank {}: {}", here[field], other.rank, there[field],
                     op.rank, lines[op.at]);
  lines[op.at] = joined(here, ' ');
  lines[other.at] = joined(there, ' ');
  return true;
}

bool ScheduleMutator::toggle_a_flag(Words& lines, std::string& slip) {
  static constexpr std::array<std::string_view, 5> flags{"initial", "kv", "back", "slots",
                                                         "experts"};
  const Line op = any_of(ops_);
  Words words = words_of(lines[op.at]);
  const auto found = std::find_if(words.begin() + 2, words.end(), [](const std::string& word) {
    return std::ranges::find(flags, word) != flags.end();
  });
  if (found != words.end()) {
    words.erase(found);
  } else {
    words.emplace_back(any_of(flags));
  }
  slip = fmt::format("on rank {}: {} for {}", op.rank, joined(words, ' '), lines[op.at]);
  lines[op.at] = joined(words, ' ');
  return true;
}

bool ScheduleMutator::change_stream(Words& lines, std::string& slip) {
  const Line op = any_of(ops_);
  Words words = words_of(lines[op.at]);
  words[0] = any_of(streams_) + ':';
  slip = fmt::format("on rank {}: {} for {}", op.rank, words[0], lines[op.at]);
  lines[op.at] = joined(words, ' ');
  return true;
}

bool ScheduleMutator::change_buffer(Words& lines, std::string& slip) {
  static constexpr std::array<std::string_view, 4> roles{"input", "output", "scratch", "state"};
  const Line buffer = any_of(buffers_);
  Words words = words_of(lines[buffer.at]);
  const std::size_t field = buffer_tensor + below(words.size() - buffer_tensor);
  if (field == buffer_tensor) {
    words[field] = words_of(lines[any_of(buffers_).at])[buffer_tensor];
  } else if (field == buffer_role) {
    words[field] = any_of(roles);
  } else {
    words[field] = renumbered(words[field]);
  }
  slip = fmt::format("on rank {}: {} for {}", buffer.rank, words[field], lines[buffer.at]);
  lines[buffer.at] = joined(words, ' ');
  return true;
}

std::size_t ScheduleMutator::any_field(const Words& words) {
  constexpr std::size_t first = 2;
  return words.size() > first ? first + below(words.size() - first) : std::string::npos;
}

std::string ScheduleMutator::renumbered(const std::string& text) {
  struct Number {
    std::size_t at = 0, digits = 0;
    std::int64_t value = 0;
  };
  std::vector<Number> numbers;
  for (std::size_t i = 0; i < text.size();) {
    std::int64_t value = 0;
    const auto [end, failed] = std::from_chars(text.data() + i, text.data() + text.size(), value);
    const auto digits = static_cast<std::size_t>(end - (text.data() + i));
    if (digits > 0 && failed == std::errc() && std::isdigit(text[i]) != 0) {
      numbers.push_back({.at = i, .digits = digits, .value = value});
      i += digits;
    } else {
      ++i;
    }
  }
  // What is kept or sent in fewer bits is right, and less exact than a mutant is held to.
  if (numbers.empty() || text == "fp32") {
    return text;
  }
  const Number& number = any_of(numbers);
  const std::int64_t x = number.value;
  const std::array<std::int64_t, 7> others{x + 1,
                                           x > 0 ? x - 1 : 1,
                                           2 * x,
                                           x / 2,
                                           0,
                                           any_of(numbers).value,
                                           x + static_cast<std::int64_t>(below(16))};
  return text.substr(0, number.at) + std::to_string(others[below(others.size())]) +
         text.substr(number.at + number.digits);
}

std::vector<ScheduleMutator::Line> ScheduleMutator::beside(const Line& op) const {
  std::vector<std::size_t> seen;  // ops so far, by rank
  std::vector<Line> found;
  std::size_t place = 0;
  for (const bool find_place : {true, false}) {
    seen.assign(seen.size(), 0);
    for (const Line& line : ops_) {
      seen.resize(std::max(seen.size(), line.rank + 1), 0);
      if (find_place && line.at == op.at) {
        place = seen[line.rank];
      } else if (!find_place && seen[line.rank] == place) {
        found.push_back(line);
      }
      ++seen[line.rank];
    }
  }
  return found;
}

}  // namespace spp::test
