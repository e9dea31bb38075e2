// A simulated plan: where a step's time goes, which op waited for which, memory.
#include "base/human.hpp"
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/links.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace spp::report::kinds::simulation {
namespace {

std::string subject(const JsonView& document) { return request_title(document.find("request")); }

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

void add_calls(Sheet& sheet, const JsonView& document) {
  const auto calls = document.find("attention_calls");
  if (!calls || calls->elements().empty()) {
    return;
  }
  BarChart chart{.title = "One attention call on the rank that ends last",
                 .description =
                     "Parts of the call, for each phase; what is hidden behind kernels takes no "
                     "time and is not drawn.",
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
  for (const JsonView& call : calls->elements()) {
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

void add(const JsonView& document, Sheet& sheet) {
  const JsonView result = document.at("result");
  const CandidateRead c = read_candidate(result);
  sheet.verdict(c.predicted.fits ? Tone::plain : Tone::bad,
                c.predicted.fits ? "Simulated" : "Simulated; it does not fit",
                c.name + (c.around.empty() ? "" : ", " + c.around));
  add_stats(sheet, c);
  if (!c.bound_by.empty()) {
    sheet.paragraph(fmt::format("Bound by {}.", c.bound_by));
  }
  add_candidates(sheet, {c}, "Where the step's time goes");
  add_calls(sheet, document);
  const auto request = document.find("request");
  const auto usable = request ? request->find("usable_memory_bytes") : std::nullopt;
  add_memory(sheet, c, usable ? usable->number(0, most_count_read) : 0);
  add_groups(sheet, c, request);
  sheet.heading("What moves");
  add_links(sheet, document, c);
  add_traffic(sheet, c, result);
  add_assumptions(sheet, document);
  add_request(sheet, document);
}

}  // namespace

extern const Kind entry{
    .format = "simulation", .name = "Simulation", .subject = subject, .add = add};

}  // namespace spp::report::kinds::simulation
