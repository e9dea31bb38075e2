// `ibstat`: ports of InfiniBand and RoCE adapters.
//
//   CA 'mlx5_0'
//           Port 1:
//                   State: Active
//                   Rate: 400
//                   Link layer: InfiniBand
#include "base/parse.hpp"
#include "machine/import/format.hpp"

#include <algorithm>

namespace spp::imports::formats::ibstat {
namespace {

std::optional<std::string> adapter_in(std::string_view line) {
  line = trimmed(line);
  if (!line.starts_with("CA '") || line.size() < 6 || !line.ends_with('\'')) {
    return std::nullopt;
  }
  return std::string(line.substr(4, line.size() - 5));
}

bool recognises(const Source& source) {
  return !source.xml && std::ranges::any_of(source.lines, [](const std::string& line) {
    return adapter_in(line).has_value();
  });
}

void read(const Source& source, Facts& facts) {
  constexpr int most_gigabits = 100'000;
  CardFact card;
  bool open = false;
  const auto close = [&] {
    if (open) {
      facts.cards.push_back(card);
    }
    open = false;
  };
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const std::string& line = source.lines[i];
    if (const auto name = adapter_in(line)) {
      close();
      card = {.name = *name, .rate = {}, .transport = "", .up = true, .place = source.at(i)};
    } else if (trimmed(line).starts_with("Port ") && trimmed(line).ends_with(':')) {
      close();
      open = !card.name.empty();
    } else if (const auto state = value_of(line, "State")) {
      card.up = *state == "Active";
    } else if (const auto rate = value_of(line, "Rate")) {
      if (const int gigabits = leading_int(*rate); gigabits > 0 && gigabits < most_gigabits) {
        card.rate = bandwidth_from(gigabits, "Gb/s", to_string(source.at(i)));
      }
    } else if (const auto layer = value_of(line, "Link layer")) {
      card.transport = *layer == "InfiniBand" ? "ib" : *layer == "Ethernet" ? "roce" : "";
    }
  }
  close();
}

}  // namespace

extern const Format entry{
    .name = "ibstat", .title = "ibstat", .recognises = recognises, .read = read};

}  // namespace spp::imports::formats::ibstat
