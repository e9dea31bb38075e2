// `ibv_devinfo`, and with -v the rates of its ports.
//
//   hca_id: mlx5_0
//                   state:                  PORT_ACTIVE (4)
//                   link_layer:             InfiniBand
//                   active_width:           4X (2)
//                   active_speed:           100.0 Gbps (128)
#include "base/error.hpp"
#include "base/parse.hpp"
#include "machine/import/format.hpp"

#include <algorithm>
#include <utility>

namespace spp::imports::formats::ibv_devinfo {
namespace {

bool recognises(const Source& source) {
  return !source.xml && std::ranges::any_of(source.lines, [](const std::string& line) {
    return value_of(line, "hca_id").has_value();
  });
}

/// "100.0 Gbps (128)" of each lane.
double gigabits_in(const std::string& text, const std::string& where) {
  constexpr double most_gigabits = 100'000;
  const std::vector<std::string> words = words_of_line(text);
  if (words.size() < 2 || words[1] != "Gbps") {
    return 0;
  }
  const double rate = parse_double(words[0], where);
  if (!(rate > 0) || rate > most_gigabits) {
    throw InputError(where, fmt::format("'{}' is no rate of a port", text));
  }
  return rate;
}

void read(const Source& source, Facts& facts) {
  CardFact card;
  int width = 0;
  double speed = 0;
  bool of_port = false;  // what was read belongs to one
  const auto close = [&] {
    if (card.name.empty()) {
      return;
    }
    if (width > 0 && speed > 0) {
      card.rate = bandwidth_from(width * speed, "Gb/s", to_string(card.place));
    }
    facts.cards.push_back(card);
  };
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const std::string& line = source.lines[i];
    if (const auto name = value_of(line, "hca_id")) {
      close();
      card = {.name = *name, .rate = {}, .transport = "", .up = true, .place = source.at(i)};
      width = 0;
      speed = 0;
      of_port = false;
    } else if (value_of(line, "port")) {
      if (std::exchange(of_port, true)) {  // a second one
        close();
        card = {.name = card.name,
                .rate = {},
                .transport = card.transport,
                .up = true,
                .place = source.at(i)};
        width = 0;
        speed = 0;
      }
    } else if (const auto state = value_of(line, "state")) {
      card.up = state->starts_with("PORT_ACTIVE");
    } else if (const auto layer = value_of(line, "link_layer")) {
      card.transport = *layer == "InfiniBand" ? "ib" : *layer == "Ethernet" ? "roce" : "";
    } else if (const auto transport = value_of(line, "transport")) {
      card.transport = transport->starts_with("unspecified") ? "efa" : card.transport;
    } else if (const auto lanes = value_of(line, "active_width")) {
      width = std::clamp(leading_int(*lanes), 0, 64);
    } else if (const auto rate = value_of(line, "active_speed")) {
      speed = gigabits_in(*rate, to_string(source.at(i)));
    }
  }
  close();
}

}  // namespace

extern const Format entry{
    .name = "ibv-devinfo", .title = "ibv_devinfo [-v]", .recognises = recognises, .read = read};

}  // namespace spp::imports::formats::ibv_devinfo
