// A calibration for people: links and collectives with latency and rate by size, attention rates,
// and what was noisy.
#include "cli/calibration_table.hpp"

#include "base/median.hpp"
#include "cli/human.hpp"
#include "cli/output.hpp"
#include "cli/report_run.hpp"
#include "samples/statistics.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace spp::cli {
namespace {

constexpr double noisy = 0.1;

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

std::string rate(double per_second, std::string_view unit) {
  return per_second >= 1e9 ? fmt::format("{:.3g} G{}", per_second * 1e-9, unit)
                           : fmt::format("{:.3g} M{}", per_second * 1e-6, unit);
}

void print(std::string& text, const std::string& title, const Table& table, const Style& style) {
  if (table.rows.size() < 2) {
    return;
  }
  text += "\n" + style.bold(title) + "\n";
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
}

/// Time of the smallest message, and the rate at three sizes.
Table messages(const std::vector<Series>& series) {
  Table table;
  table.rows.push_back(
      {"  what", "ranks", "at once", "8 B", "16 KiB", "1 MiB", "16 MiB", "spread"});
  table.right = {false, true, true, true, true, true, true, true};
  using Key = std::tuple<std::string, std::string, std::string, int, int>;
  std::map<Key, std::vector<const Series*>> groups;
  for (const Series& s : series) {
    if (s.size > 0 && !s.scope.empty() && s.what != "cpu" && !s.seconds.empty()) {
      groups[{s.scope, s.suite == "links" ? "" : s.suite, s.what, s.ranks, s.active}].push_back(&s);
    }
  }
  for (const auto& [key, list] : groups) {
    const auto& [scope, suite, what, ranks, active] = key;
    const auto near = [&group = list](double size) -> const Series* {
      for (const Series* s : group) {
        if (s->size > 0.7 * size && s->size < 1.5 * size) {
          return s;
        }
      }
      return nullptr;
    };
    const auto rate_at = [&](double size) {
      const Series* s = near(size);
      return s != nullptr ? rate(s->size / median_of(s->seconds), "B/s") : std::string("-");
    };
    std::vector<double> spreads;
    for (const Series* s : list) {
      spreads.push_back(spread_of(s->seconds));
    }
    table.rows.push_back({fmt::format("  {} {}", scope, what), fmt::format("{}", ranks),
                          fmt::format("{}", active),
                          human(Seconds(median_of(list.front()->seconds))), rate_at(16 << 10),
                          rate_at(1 << 20), rate_at(16 << 20), percent(median_of(spreads))});
  }
  return table;
}

Table attention(const std::vector<Series>& series) {
  Table table;
  table.rows.push_back({"  phase", "mask", "blocks", "smallest", "largest", "rate", "spread"});
  table.right = {false, false, true, true, true, true, true};
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    std::map<std::string, std::vector<const Series*>> masks;
    for (const Series& s : series) {
      if (s.what == "attention" && s.block && s.block->phase == phase && !s.seconds.empty()) {
        const bool full = allowed_pairs(s.block->q, s.block->k, s.block->mask) ==
                          s.block->q.count() * s.block->k.count();
        masks[full ? "none" : to_string(s.block->mask)].push_back(&s);
      }
    }
    for (auto& [mask, list] : masks) {
      const auto time = [](const Series* s) { return median_of(s->seconds); };
      const auto [least, most] = std::ranges::minmax_element(list, {}, time);
      std::vector<double> rates;
      std::vector<double> spreads;
      for (const Series* s : list) {
        rates.push_back(flops_of(*s->block).value() / time(s));
        spreads.push_back(spread_of(s->seconds));
      }
      table.rows.push_back({fmt::format("  {}", to_string(phase)), mask,
                            fmt::format("{}", list.size()), human(Seconds(time(*least))),
                            human(Seconds(time(*most))), rate(median_of(rates), "FLOP/s"),
                            percent(median_of(spreads))});
    }
  }
  return table;
}

Table small_kernels(const std::vector<Series>& series) {
  Table table;
  table.rows.push_back({"  kernel", "1 MiB", "16 MiB", "spread"});
  table.right = {false, true, true, true};
  std::map<std::string, std::vector<const Series*>> kernels;
  for (const Series& s : series) {
    if (s.suite == "elementwise" && s.size > 0 && !s.seconds.empty()) {
      kernels[s.what].push_back(&s);
    }
  }
  for (const auto& [what, list] : kernels) {
    const auto rate_of = [](const Series* s) {
      return rate(s->size / median_of(s->seconds), "B/s");
    };
    table.rows.push_back({"  " + what, rate_of(list[list.size() > 1 ? 1 : 0]), rate_of(list.back()),
                          percent(spread_of(list.back()->seconds))});
  }
  return table;
}

/// The usual and the fastest GEMM of each kind, and row-wise functions by bytes touched.
Table layer_kernels(const std::vector<Series>& series) {
  Table table;
  table.rows.push_back({"  kernel", "timed", "smallest", "largest", "median", "best", "spread"});
  table.right = {false, true, true, true, true, true, true};
  std::map<std::string, std::vector<const Series*>> kernels;
  for (const Series& s : series) {
    if (s.suite == "layer" && !s.seconds.empty()) {
      kernels[s.gemm ? fmt::format("gemm {}", to_string(s.gemm->kind)) : s.what].push_back(&s);
    }
  }
  for (const auto& [name, list] : kernels) {
    std::vector<double> times;
    std::vector<double> rates;
    std::vector<double> spreads;
    for (const Series* s : list) {
      times.push_back(median_of(s->seconds));
      rates.push_back((s->gemm ? s->gemm->shape.flops().value() : s->size) / times.back());
      spreads.push_back(spread_of(s->seconds));
    }
    const std::string_view unit = list.front()->gemm ? "FLOP/s" : "B/s";
    table.rows.push_back({"  " + name, fmt::format("{}", list.size()),
                          human(Seconds(std::ranges::min(times))),
                          human(Seconds(std::ranges::max(times))), rate(median_of(rates), unit),
                          rate(std::ranges::max(rates), unit), percent(median_of(spreads))});
  }
  return table;
}

}  // namespace

std::string profile_table(const Json& profile, const calibrate::ProfileInput& input, bool color) {
  const Style style{.color = color};
  const std::vector<Series> series = all_series(input.calibration);
  const Hosts& hosts = input.calibration.hosts;
  std::string text =
      style.bold(fmt::format("{}: {} x {} ranks ({}), {} kernels in {}", input.name, hosts.nodes(),
                             hosts.per_node, input.comm, input.kernels, to_string(input.dtype))) +
      "\n";
  text += input.device ? device_text(*input.device) + "\n"
                       : fmt::format("{} cores, {}\n", hosts.cores,
                                     profile.at("environment").at("cpu").get<std::string>());
  print(text, "Messages: time of the smallest, rate by size", messages(series), style);
  print(text, "Attention blocks of plans", attention(series), style);
  print(text, "Kernels around them", small_kernels(series), style);
  print(text, "Kernels of a layer", layer_kernels(series), style);
  std::int64_t unsteady = 0;
  for (const Series& s : series) {
    unsteady += spread_of(s.seconds) > noisy ? 1 : 0;
  }
  text += fmt::format("\n{} series of samples", series.size());
  text += unsteady > 0 ? fmt::format(
                             ", {} of them noisy (spread above {}): other work on this "
                             "machine, or ranks that share cores.\n",
                             unsteady, percent(noisy))
                       : ", none of them noisy.\n";
  return text;
}

std::string nccl_table(const calibrate::NcclProfile& profile, bool color) {
  const Style style{.color = color};
  Table table;
  table.rows.push_back(
      {"  test", "hosts", "ranks", "smallest", "takes", "largest", "sent by a rank"});
  table.right = {false, true, true, true, true, true, true};
  for (const NcclTest& t : profile.tests) {
    const auto [least, most] = std::ranges::minmax(t.rows, {}, &NcclTest::Row::size);
    table.rows.push_back({"  " + t.name, fmt::format("{}", t.hosts.size()),
                          fmt::format("{}", t.ranks()), human(Bytes(least.size)),
                          human(Seconds(least.seconds)), human(Bytes(most.size)),
                          human(Bandwidth(sent_by_rank(t, most.size) / most.seconds))});
  }
  std::string text =
      style.bold(fmt::format("Links of {}, by NCCL's tests",
                             profile.document.at("machine").at("name").get<std::string>())) +
      "\n";
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  return text;
}

}  // namespace spp::cli
