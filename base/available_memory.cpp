#include "base/available_memory.hpp"

#include "base/file.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace spp {
namespace {

namespace fs = std::filesystem;

/// A whole number that stands alone in a file; nothing if there is none ("max").
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::istringstream in(system_text(file));
  std::int64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

/// The number behind `key` in a file of lines "key value …"; 0 if it is not there.
std::int64_t value_of(const fs::path& file, std::string_view key) {
  std::istringstream in(system_text(file));
  std::string word;
  for (std::int64_t value = 0; in >> word;) {
    if (word == key && in >> value) {
      return value;
    }
    in.clear();
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

/// Names of a version's files.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* droppable;  // key in memory.stat
};
constexpr GroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles version_2{"memory.max", "memory.current", "inactive_file"};

/// What a group and those above it leave. A path that is not here (of the host, seen from inside a
/// container) ends at the top, which is ours there.
std::int64_t left_by_groups(const fs::path& top, const fs::path& group, const GroupFiles& files) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    const fs::path folder = at.empty() ? top : top / at;
    const auto limit = number_in(folder / files.limit);
    const auto used = number_in(folder / files.used);
    if (limit && used) {
      const std::int64_t taken =
          *used - std::min(*used, value_of(folder / "memory.stat", files.droppable));
      least = std::min(least, std::max<std::int64_t>(*limit - taken, 0));
    }
    if (at.empty()) {
      return least;
    }
  }
}

std::int64_t left_by_groups(const fs::path& root) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::istringstream in(system_text(root / "proc/self/cgroup"));
  for (std::string line; std::getline(in, line);) {  // "4:memory:/path", "0::/path"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least, left_by_groups(root / "sys/fs/cgroup", group, version_2));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, left_by_groups(root / "sys/fs/cgroup/memory", group, version_1));
    }
  }
  return least;
}

/// What setrlimit leaves of the address space and of data; pages as /proc/self/statm counts them.
std::int64_t left_by_limits(const fs::path& root) {
  std::istringstream in(system_text(root / "proc/self/statm"));
  std::int64_t size = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  in >> size >> resident >> shared >> text >> library >> data;
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const auto leave = [&](int resource, std::int64_t pages) {
    rlimit limit{};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur < std::uint64_t{1} << 62) {
      const auto allowed = static_cast<std::int64_t>(limit.rlim_cur);
      least = std::min(least, std::max<std::int64_t>(allowed - pages * page, 0));
    }
  };
  leave(RLIMIT_AS, size);
  leave(RLIMIT_DATA, data);
  return least;
}

}  // namespace

Bytes available_memory(const fs::path& root) {
  constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max();
  const std::int64_t free = value_of(root / "proc/meminfo", "MemAvailable:") * 1024;
  const std::int64_t least =
      std::min({free > 0 ? free : unknown, left_by_groups(root), left_by_limits(root)});
  return Bytes(least == unknown ? 0 : least);
}

}  // namespace spp
