#include "runtime/comm/transport.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "runtime/comm/endpoint.hpp"

#include <exception>

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

void check_message(const Transport& transport, Rank peer, int tag) {
  ensure(peer.valid() && peer.value < transport.size(),
         fmt::format("message between ranks {} and {} of {}", transport.rank().value, peer.value,
                     transport.size()));
  ensure(tag >= 0 && tag < message_tags,
         fmt::format("message tag {} (0 to {})", tag, message_tags - 1));
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
