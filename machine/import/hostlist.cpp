#include "machine/import/hostlist.hpp"

#include "base/error.hpp"
#include "machine/import/source.hpp"
#include "machine/machine.hpp"

#include <algorithm>

namespace spp::imports {
namespace {

/// "1101-1108,1110" -> 9.
std::int64_t numbers_in(std::string_view ranges, std::string_view list, std::string_view where) {
  const auto refuse = [&](std::string_view range) {
    throw InputError(where, fmt::format("'{}' in the hosts '{}' is no range such as 01-16", range,
                                        list.substr(0, 80)));
  };
  std::int64_t count = 0;
  while (true) {
    const std::size_t comma = std::min(ranges.find(','), ranges.size());
    const std::string_view range = ranges.substr(0, comma);
    const int low = leading_int(range);
    const std::size_t dash = range.find('-');
    const int high = dash == std::string_view::npos ? low : leading_int(range.substr(dash + 1));
    if (low < 0 || high < low) {
      refuse(range);
    }
    count += high - low + 1;
    if (comma == ranges.size()) {
      return count;
    }
    ranges.remove_prefix(comma + 1);
  }
}

}  // namespace

std::int64_t hosts_in(std::string_view list, std::string_view where) {
  std::int64_t all = 0;
  std::int64_t one = 1;  // that the current word stands for
  bool word = false;
  const auto add = [&] {
    all += word ? one : 0;
    one = 1;
    word = false;
    if (all > most_gpus) {
      throw InputError(
          where, fmt::format("the hosts '{}…' are more than {}", list.substr(0, 80), most_gpus));
    }
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      add();
    } else if (list[i] == '[') {
      const std::size_t end = list.find(']', i);
      if (end == std::string_view::npos) {
        throw InputError(where, fmt::format("the hosts '{}' lack a ']'", list.substr(0, 80)));
      }
      one = std::min<std::int64_t>(one * numbers_in(list.substr(i + 1, end - i - 1), list, where),
                                   std::int64_t{most_gpus} + 1);
      word = true;
      i = end;
    } else {
      word = true;
    }
  }
  add();
  return all;
}

}  // namespace spp::imports
