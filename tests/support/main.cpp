// main() of every Catch2 executable: Catch2's own, and exit code 77 when all that ran was skipped.
#define CATCH_CONFIG_RUNNER
#include "tests/support/catch.hpp"

#include <atomic>
#include <cstdio>

namespace {

std::atomic<int> skipped = 0;
std::size_t ran = 0;

#if SPP_CATCH2_VERSION == 2
using Listener = Catch::TestEventListenerBase;
#else
using Listener = Catch::EventListenerBase;
#endif

struct CountTests : Listener {
  using Listener::Listener;
  void testRunEnded(const Catch::TestRunStats& stats) override {
    ran = stats.totals.testCases.total();
  }
};

}  // namespace

CATCH_REGISTER_LISTENER(CountTests)

namespace spp::test {

void note_skip(std::string_view why) {
  ++skipped;
  std::fprintf(stderr, "skipped: %.*s\n", static_cast<int>(why.size()), why.data());
  SUCCEED("skipped: " << why);
}

}  // namespace spp::test

int main(int argc, char** argv) {
  constexpr int all_skipped = 77;  // SKIP_RETURN_CODE in cmake/SppTest.cmake
  const int result = Catch::Session().run(argc, argv);
  const bool only_skips = result == 0 && skipped > 0 && static_cast<std::size_t>(skipped) >= ran;
  return only_skips ? all_skipped : result;
}
