// A simulated plan: where a step's time goes, which op waited for which, memory.
#include "report/calls.hpp"
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/links.hpp"

namespace spp::report::kinds::simulation {
namespace {

std::string subject(const JsonView& document) { return request_title(document.find("request")); }

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
  if (const auto calls = document.find("attention_calls")) {
    add_calls(sheet, *calls, "One attention call on the rank that ends last");
  }
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
