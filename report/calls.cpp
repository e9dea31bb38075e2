#include "report/calls.hpp"

#include "base/human.hpp"
#include "report/bars.hpp"
#include "report/candidate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace spp::report {
namespace {

struct CallPart {
  std::string_view name, key, label;
};
constexpr std::array<CallPart, 6> call_parts{
    {{"attention_s", "k-attention", "attention kernels"},
     {"gemm_s", "k-gemm", "matrix products"},
     {"other_kernels_s", "k-elementwise", "small kernels"},
     {"exposed_comm_s", "k-cp", "exposed communication"},
     {"imbalance_s", "k-bubble", "waiting for busy ranks"},
     {"launch_bound_s", "k-launch", "waiting for the host"}}};

}  // namespace

void add_calls(Sheet& sheet, const JsonView& calls, std::string title) {
  if (calls.elements().empty()) {
    return;
  }
  BarChart chart{.title = std::move(title),
                 .description =
                     "Its parts, for each phase; what is hidden behind kernels takes no time and "
                     "is not drawn.",
                 .note = "",
                 .unit_heading = "seconds",
                 .text = seconds_text,
                 .bars = {},
                 .marks = {}};
  Grid waits{.heading = {"phase", "op", "waited for op", "kind", "stream", "exposed"},
             .right = {false, true, true, false, false, true},
             .rows = {}};
  Grid slow{.heading = {"phase", "kind", "where", "slowest pair", "rate", "algorithm", "exposed"},
            .right = {false, false, false, false, true, false, true},
            .rows = {}};
  for (const JsonView& call : calls.elements()) {
    const std::string phase = call.at("phase").string();
    Bar bar{.label = phase,
            .value = seconds_text(call.at("makespan_s").number(0, most_seconds_read)),
            .parts = {},
            .interval = std::nullopt};
    for (const CallPart& part : call_parts) {
      const auto seconds = call.find(part.name);  // of products only where there are any
      const double value = seconds ? seconds->number(0, most_seconds_read) : 0;
      if (value > 0 || part.name != "gemm_s") {
        bar.parts.push_back({part.key, std::string(part.label), value});
      }
    }
    chart.bars.push_back(std::move(bar));
    std::vector<JsonView> steps = call.at("steps").elements();
    std::ranges::stable_sort(steps, [](const JsonView& a, const JsonView& b) {
      return a.at("exposed_s").number() > b.at("exposed_s").number();
    });
    for (std::size_t i = 0; i < std::min<std::size_t>(12, steps.size()); ++i) {
      waits.rows.push_back({phase, text_at(steps[i], "op"), text_at(steps[i], "waited_for_op"),
                            steps[i].at("kind").string(), text_at(steps[i], "stream"),
                            seconds_text(steps[i].at("exposed_s").number())});
    }
    for (const JsonView& b : call.at("bottlenecks").elements()) {
      const auto pair = b.find("slowest");
      slow.rows.push_back(
          {phase, b.at("kind").string(), b.at("scope").string(),
           pair ? fmt::format("rank {} to {}", value_text(pair->at("from").value()),
                              value_text(pair->at("to").value()))
                : "",
           pair ? human(Bandwidth(pair->at("bytes_per_s").number(0, most_count_read))) : "",
           text_at(b, "algorithm"), seconds_text(b.at("exposed_s").number())});
    }
  }
  add(sheet, chart);
  sheet.details("Who waited longest, for what", shortened(std::move(waits), 48));
  sheet.details("The slowest pairs", shortened(std::move(slow), 48));
}

}  // namespace spp::report
