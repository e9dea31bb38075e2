#include "base/host_name.hpp"

#include <unistd.h>

#include <array>

namespace spp {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.front() != '\0' ? name.data() : "localhost";
}

}  // namespace spp
