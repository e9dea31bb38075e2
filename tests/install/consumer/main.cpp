#include "base/parse.hpp"
#include "base/version.hpp"

#include <iostream>

int main() {
  std::cout << "sp-plan " << spp::version() << ": " << spp::parse_bytes("80GB", "here").value()
            << " bytes\n";
}
