#include "cli/sweep_document.hpp"

#include "cli/report_json.hpp"
#include "cli/search_job.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace spp::cli {
namespace {

/// A candidate without the ranks of its groups: in a map of hundreds of plans nobody looks them up.
Json compact(const Candidate& candidate) {
  Json json = to_json(candidate);
  json["plan"].erase("groups");
  return json;
}

Json plan_or_null(const SweepCell& cell) {
  if (cell.verdict != Verdict::plan) {
    return nullptr;
  }
  Json json = to_json(cell.result.candidates.front().plan);
  json.erase("groups");
  return json;
}

Json side_of(const SweepCell& cell) {
  const bool plan = cell.verdict == Verdict::plan;
  const Candidate* best = plan ? &cell.result.candidates.front() : nullptr;
  return {{"seq", cell.seq},
          {"verdict", to_string(cell.verdict)},
          {"name", plan ? Json(short_name(best->plan)) : Json()},
          {"plan", plan_or_null(cell)},
          {"step_s", plan ? Json(best->predicted.step.count()) : Json()}};
}

/// What the plan of the cell before would cost here.
Json keeping(const SweepCell* before, const SweepCell& cell) {
  if (before == nullptr || before->verdict != Verdict::plan || cell.verdict != Verdict::plan ||
      same_recommendation(*before, cell)) {
    return nullptr;
  }
  const Candidate* kept = candidate_like(cell.result, before->result.candidates.front().plan);
  const double best = cell.result.candidates.front().predicted.step.count();
  return {{"seq", before->seq},
          {"step_s", kept != nullptr ? Json(kept->predicted.step.count()) : Json()},
          {"slower", kept != nullptr ? Json(kept->predicted.step.count() / best - 1) : Json()}};
}

Json cell_json(const SweepLine& line, std::size_t index, const SweepCell* before,
               const SweepCell& cell) {
  const PlanResult& result = cell.result;
  const bool plan = cell.verdict == Verdict::plan;
  const bool nearest = !result.candidates.empty();
  const std::string reason = reason_of(line, cell);
  Json json{{"line", index}, {"seq", cell.seq}, {"verdict", verdict_text(line, cell)}};
  json["reason"] = reason.empty() ? Json() : Json(reason);
  json["best"] = plan ? compact(result.candidates.front()) : Json();
  json["nearest"] = !plan && nearest ? compact(result.candidates.front()) : Json();
  json["ties"] = plan ? result.ties : 0;
  json["next"] = plan && result.candidates.size() > 1
                     ? Json{{"name", short_name(result.candidates[1].plan)},
                            {"step_s", result.candidates[1].predicted.step.count()}}
                     : Json();
  json["keeping"] = keeping(before, cell);
  json["searched"] = result.searched;
  json["simulated"] = result.simulated;
  json["unsettled"] = result.unsettled;
  return json;
}

Json boundary_json(const Boundary& b) {
  Json differs = Json::array();
  if (b.from.verdict == Verdict::plan && b.to.verdict == Verdict::plan) {
    for (const Difference& d :
         differences(b.from.result.candidates.front().plan, b.to.result.candidates.front().plan)) {
      differs.push_back({{"what", d.what}, {"before", d.before}, {"after", d.after}});
    }
  }
  return {{"line", b.line},         {"from_seq", b.from.seq},
          {"to_seq", b.to.seq},     {"before", side_of(b.from)},
          {"after", side_of(b.to)}, {"differs", std::move(differs)}};
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

/// A field; quoted where it must be.
std::string field(const Json& value) {
  if (value.is_null()) {
    return "";
  }
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (value.is_array()) {
    std::vector<std::string> words;
    for (const Json& word : value) {
      words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    }
    text = fmt::format("{}", fmt::join(words, " "));
  }
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  }
  return quoted + "\"";
}

std::vector<std::string_view> columns_of_plan() {
  std::vector<std::string_view> columns{"strategy", "ulysses", "ring"};
  for (const Parameter* parameter : strategies::parameters()) {
    columns.push_back(parameter->name);
  }
  columns.insert(columns.end(),
                 {"layout", "order", "heads", "tp", "dp", "cfg", "pp", "ep", "etp", "dispatcher",
                  "rank_order", "virtual_stages", "pipeline", "zero", "zero_group", "recompute",
                  "offload", "micro_batch", "micro_batches"});
  return columns;
}
constexpr std::array<std::string_view, 8> predicted_columns{
    "step_s",         "attention_s", "compute_s",    "exposed_comm_s",
    "tflops_per_gpu", "mfu",         "tokens_per_s", "max_seq"};

void add_row(std::string& text, const std::vector<std::string>& fields) {
  text += fmt::format("{}\r\n", fmt::join(fields, ","));
}

}  // namespace

std::vector<Assumption> assumptions_of(const Sweep& sweep) {
  std::vector<Assumption> all;
  for (const SweepLine& line : sweep.lines) {
    for (const Assumption& a : line.job.assumptions) {
      const bool known = std::ranges::any_of(all, [&](const Assumption& other) {
        return a.what == other.what && a.value == other.value && a.source == other.source;
      });
      if (!known) {
        all.push_back(a);
      }
    }
  }
  return all;
}

std::string verdict_text(const SweepLine& line, const SweepCell& cell) {
  return line.refused.empty() ? std::string(to_string(cell.verdict)) : "refused";
}

std::string reason_of(const SweepLine& line, const SweepCell& cell) {
  if (!line.refused.empty()) {
    return line.refused;
  }
  Request request = line.job.request;
  request.problem.seq = cell.seq;
  switch (cell.verdict) {
    case Verdict::plan:
      return "";
    case Verdict::nothing_fits:
      return nothing_fits(request, cell.result);
    case Verdict::no_legal_plan:
      return no_legal_plan(request, cell.result);
    case Verdict::unsearched:
      return "the sweep ended before (Ctrl-C)";
  }
  throw InternalError("unknown verdict");
}

Json sweep_document(const Sweep& sweep) {
  Json doc = document("sweep");
  Json lines = Json::array();
  Json cells = Json::array();
  for (std::size_t i = 0; i < sweep.lines.size(); ++i) {
    const SweepLine& line = sweep.lines[i];
    Json request = line.job.resolved;
    const bool asked = line.refused.empty();
    if (asked) {
      request.erase("seq");
    }
    lines.push_back(
        {{"model", text_or_null(line.model)},
         {"topology", text_or_null(line.topology)},
         {"gpus", asked ? Json(line.job.request.gpus) : text_or_null(line.gpus)},
         {"nodes", asked ? Json(line.job.request.cluster->nodes()) : text_or_null(line.nodes)},
         {"title", text_or_null(line.job.at_any_length)},
         {"request", std::move(request)}});
    const SweepCell* before = nullptr;
    for (const SweepCell& cell : sweep.result.cells[i]) {
      cells.push_back(cell_json(line, i, before, cell));
      before = &cell;
    }
  }
  Json boundaries = Json::array();
  for (const Boundary& b : sweep.result.boundaries) {
    boundaries.push_back(boundary_json(b));
  }
  doc["lengths"] = sweep.lengths;
  doc["lines"] = std::move(lines);
  doc["cells"] = std::move(cells);
  doc["boundaries"] = std::move(boundaries);
  doc["assumptions"] = to_json(assumptions_of(sweep));
  doc["questions"] = sweep.result.questions;
  doc["elapsed_s"] = sweep.elapsed.count();
  return doc;
}

std::string sweep_csv(const Sweep& sweep) {
  std::vector<std::string> heading{"model", "topology", "nodes",  "gpus",
                                   "seq",   "verdict",  "reason", "name"};
  const std::vector<std::string_view> plan_columns = columns_of_plan();
  heading.insert(heading.end(), plan_columns.begin(), plan_columns.end());
  heading.insert(heading.end(), predicted_columns.begin(), predicted_columns.end());
  heading.insert(heading.end(),
                 {"low_s", "high_s", "memory_bytes", "ties", "next", "next_step_s", "unsettled"});
  std::string text;
  add_row(text, heading);
  const Json doc = sweep_document(sweep);
  for (const Json& cell : doc["cells"]) {
    const Json& line = doc["lines"][cell["line"].get<std::size_t>()];
    std::vector<std::string> row{
        field(line["model"]), field(line["topology"]), field(line["nodes"]), field(line["gpus"]),
        field(cell["seq"]),   field(cell["verdict"]),  field(cell["reason"])};
    const Json& best = cell["best"];
    if (best.is_null()) {
      row.resize(heading.size() - 1);
      row.push_back(field(cell["unsettled"]));
      add_row(text, row);
      continue;
    }
    row.push_back(field(best["name"]));
    for (const std::string_view key : plan_columns) {
      row.push_back(field(best["plan"][std::string(key)]));
    }
    const Json& predicted = best["predicted"];
    for (const std::string_view key : predicted_columns) {
      row.push_back(field(predicted[std::string(key)]));
    }
    const Json& next = cell["next"];
    row.insert(row.end(), {field(predicted["interval_s"][0]), field(predicted["interval_s"][1]),
                           field(predicted["memory_bytes"]["total"]), field(cell["ties"]),
                           next.is_null() ? "" : field(next["name"]),
                           next.is_null() ? "" : field(next["step_s"]), field(cell["unsettled"])});
    add_row(text, row);
  }
  return text;
}

}  // namespace spp::cli
