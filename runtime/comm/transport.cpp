#include "runtime/comm/transport.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "runtime/comm/endpoint.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>

namespace spp::runtime {

void abort_on_throw(Transport& transport, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    transport.abort(e.what());
    throw;
  } catch (...) {
    transport.abort("unknown exception");
    throw;
  }
}

std::string ranks_text(const std::vector<Rank>& ranks) {
  std::vector<int> numbers;
  for (const Rank rank : ranks) {
    numbers.push_back(rank.value);
  }
  return fmt::format("{}{}",
                     numbers.empty()       ? "nobody"
                     : numbers.size() == 1 ? "rank "
                                           : "ranks ",
                     fmt::join(numbers, ", "));
}

std::string silence_text(Seconds silence, const std::vector<Rank>& waits_for) {
  return fmt::format("nothing happened for {:.1f} s; it waits for {}", silence.count(),
                     ranks_text(waits_for));
}

void wait_until(Transport& transport, std::string_view what, const std::function<bool()>& done,
                const std::function<std::vector<Rank>()>& waits_for) {
  constexpr int now_and_then = 64;  // calibrations time these waits
  using Clock = std::chrono::steady_clock;
  const auto since = Clock::now();
  transport.progress();
  for (int turn = 1; !done(); ++turn) {
    transport.idle();
    transport.progress();
    if (turn % now_and_then != 0) {
      continue;
    }
    // Nothing that happened on a device before is news to the transport.
    if (const Seconds silence = std::min<Seconds>(Clock::now() - since, transport.silence());
        silence > transport.deadlines().timeout) {
      throw BackendError(what, silence_text(silence, waits_for()), transport.rank().value);
    }
  }
}

void check_message(const Transport& transport, Rank peer, int tag) {
  ensure(peer.valid() && peer.value < transport.size(),
         fmt::format("message between ranks {} and {} of {}", transport.rank().value, peer.value,
                     transport.size()));
  ensure(tag >= 0 && tag < message_tags,
         fmt::format("message tag {} (0 to {})", tag, message_tags - 1));
}

std::vector<int> numbers_of(const std::vector<std::string>& names) {
  std::map<std::string_view, int> known;
  std::vector<int> numbers;
  for (const std::string& name : names) {
    numbers.push_back(known.emplace(name, static_cast<int>(known.size())).first->second);
  }
  return numbers;
}

namespace transports {

const TransportBackend& by_name(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const TransportBackend* t : all()) {
    if (t->name == name) {
      return *t;
    }
    names.emplace_back(t->name);
  }
  throw InputError(where, fmt::format("unknown transport '{}'{}", name, did_you_mean(name, names)));
}

}  // namespace transports
}  // namespace spp::runtime
