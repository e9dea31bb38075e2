#include "base/available_memory.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <sys/resource.h>

#include <filesystem>

using namespace spp;
namespace fs = std::filesystem;

namespace {

/// A root with a /proc and a /sys of its own: 8 GB free.
struct Machine {
  Machine() { put("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n"); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((dir.path() / file).parent_path());
    (void)dir.write(file, text);
  }
  [[nodiscard]] std::int64_t available() const { return available_memory(dir.path()).value(); }
  test::TempDir dir;
};

}  // namespace

TEST_CASE("without limits there is what the system has free") {
  CHECK(Machine().available() == 8'000'000LL * 1024);
}

TEST_CASE("a control group of version 2 leaves its limit but for what cannot be dropped") {
  const Machine m;
  m.put("proc/self/cgroup", "0::/job/step\n");
  m.put("sys/fs/cgroup/job/memory.max", "5000\n");
  m.put("sys/fs/cgroup/job/memory.current", "3000\n");
  m.put("sys/fs/cgroup/job/memory.stat", "anon 2000\ninactive_file 600\nfile 1000\n");
  m.put("sys/fs/cgroup/job/step/memory.max", "max\n");
  m.put("sys/fs/cgroup/job/step/memory.current", "3000\n");
  CHECK(m.available() == 5000 - (3000 - 600));
}

TEST_CASE("a control group of version 1 counts, too, and those above it") {
  const Machine m;
  m.put("proc/self/cgroup", "9:cpu:/\n4:memory,hugetlb:/job\n0::/\n");
  m.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  m.put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "10\n");
  m.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  m.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  CHECK(m.available() == 6000);
}

TEST_CASE("a group that is full leaves nothing, and not less") {
  const Machine m;
  m.put("proc/self/cgroup", "0::/\n");
  m.put("sys/fs/cgroup/memory.max", "1000\n");
  m.put("sys/fs/cgroup/memory.current", "1500\n");
  CHECK(m.available() == 0);
}

TEST_CASE("a limit of the address space leaves what is not mapped") {
#if defined(SPP_SANITIZED)
  SPP_SKIP("sanitizers map more than any limit");
#endif
  const Machine m;
  m.put("proc/self/statm", "1000 1 1 1 0 1 0\n");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_DATA, &before) == 0);
  const rlimit lower{.rlim_cur = std::uint64_t{1} << 40, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_DATA, &lower) == 0);  // harmless: a terabyte
  m.put("proc/meminfo", "MemAvailable: 8000000000000 kB\n");
  const std::int64_t page = 4096;
  CHECK(m.available() == (std::int64_t{1} << 40) - page);
  CHECK(setrlimit(RLIMIT_DATA, &before) == 0);
}
