// sp-plan compare: two results side by side, predicted against measured or run against run.
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "schedule/timeline.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace spp::cli::commands {
namespace {

constexpr std::array compare_options{
    Option{"top", "K", "of traces: how many ops to show, those that differ most (default: 10)"},
};

/// One side: what a document says of its step, or a trace.
struct Side {
  std::string file, what;
  std::map<std::string, double> seconds;  // by name
  Json asked, plan;                       // of what work, and what plan; empty: of a trace
  std::optional<Timeline> timeline;
};

double seconds_of(const JsonView& value) {
  constexpr double rounding = 1e-9;  // of a part that is what others leave
  const double seconds = value.number();
  if (seconds < -rounding) {
    value.fail(fmt::format("{} s is less than no time", seconds));
  }
  return seconds;
}

/// Lists and objects are of several times, null is of none.
void add_seconds(Side& side, const JsonView& object) {
  for (const auto& [key, value] : object.members()) {
    if (key.ends_with("_s") && !key.ends_with("_per_s") && !value.value().is_structured() &&
        !value.is_null()) {
      side.seconds[key.substr(0, key.size() - 2)] = seconds_of(value);
    }
  }
}

/// What work it is of, and what plan of it. Earlier versions did not say all of it, and what a
/// search was free to choose is null.
void add_asked(Side& side, const JsonView& request, const JsonView& plan) {
  for (const char* key : {"model", "heads", "kv_heads", "head_dim", "attention", "mask", "dtype",
                          "seq", "batch", "phase"}) {
    if (const auto said = request.value().find(key);
        said != request.value().end() && !said->is_null()) {
      side.asked[key] = *said;
    }
  }
  side.plan = plan.value();
  side.plan.erase("groups");
}

/// The numbers of a layer or a step, all phases together as a run measures them, and of each phase.
void read_layer(Side& side, const JsonView& root) {
  side.what = "predicted";
  add_asked(side, root.at("request"), root.at("plan"));
  side.asked["scope"] = root.at("scope").value();
  for (const JsonView& phase : root.at("phases").elements()) {
    Side one;
    add_seconds(one, phase);
    for (const auto& [name, seconds] : one.seconds) {
      side.seconds[name] += seconds;
    }
    side.seconds[phase.at("phase").string()] = seconds_of(phase.at("makespan_s"));
  }
  side.seconds.erase("makespan");  // which is "step"
  add_seconds(side, root.at("predicted"));
}

/// The numbers of a plan's best candidate, of a simulation's result, or of a run's measurement.
void read_document(Side& side, const JsonView& root) {
  const std::string format = root.at("format").string();
  if (format == "sp-plan/run") {
    expect_format(root, format);
    side.what = "measured";
    add_asked(side, root.at("request"), root.at("plan"));
    if (const auto scope = root.find("scope")) {  // earlier versions had none
      side.asked["scope"] = scope->value();
    }
    add_seconds(side, root.at("measured"));
    for (const std::string_view phase : {"fwd", "bwd", "step"}) {
      if (const auto found = root.at("phases").find(phase)) {
        side.seconds[std::string(phase)] = seconds_of(found->at("median_s"));
      }
    }
    return;
  }
  if (format == "sp-plan/layer") {
    expect_format(root, format);
    read_layer(side, root);
    return;
  }
  const bool plan = format == "sp-plan/plan";
  if (!plan && format != "sp-plan/simulation") {
    root.at("format").fail(
        fmt::format("'{}' cannot be compared (a plan, simulation, layer or run, or a "
                    "trace of simulate or run)",
                    format));
  }
  expect_format(root, format);
  side.what = "predicted";
  const JsonView candidate = root.at(plan ? "best" : "result");
  add_asked(side, root.at("request"), candidate.at("plan"));
  const std::string phase = root.at("request").at("phase").string();
  const bool whole = side.asked.contains("model") && (phase == "train" || phase == "prefill");
  side.asked["scope"] = whole ? "step" : "attention";
  const JsonView predicted = candidate.at("predicted");
  add_seconds(side, predicted);
  // A run measures attention's kernels; the prediction's "attention_s" is whole calls.
  if (const auto parts = predicted.find("parts_s")) {
    side.seconds["attention"] = seconds_of(parts->at("attention"));
  }
}

Side read_side(const std::string& file) {
  Side side{
      .file = file, .what = "", .seconds = {}, .asked = {}, .plan = {}, .timeline = std::nullopt};
  const std::string text = read_text_file(file, "", {.most = most_lines_text});
  const Json json = parse_json(text, file, trace_limits);
  const JsonView root(json, file);
  if (root.find("traceEvents")) {
    Trace trace = parse_chrome_trace(text, file);
    side.what = trace.title.ends_with("measured") ? "measured" : "predicted";
    side.seconds["step"] = trace.timeline.end().count();
    side.timeline = std::move(trace.timeline);
    return side;
  }
  read_document(side, root);
  return side;
}

/// One op of one rank on both sides.
struct Pair {
  Rank rank;
  std::int64_t op = 0;
  std::string kind;
  double a = 0, b = 0;
};

std::vector<Pair> pairs_of(const Side& a, const Side& b) {
  std::map<std::pair<Rank, std::int64_t>, const TimelineEvent*> others;
  for (const TimelineEvent& e : b.timeline->events) {
    others[{e.rank, e.op}] = &e;
  }
  std::vector<Pair> pairs;
  for (const TimelineEvent& e : a.timeline->events) {
    const auto at = others.find({e.rank, e.op});
    if (at == others.end() || at->second->kind != e.kind) {
      throw InputError(b.file,
                       fmt::format("op {} of rank {} is {} in {}, and {} here: traces of different "
                                   "plans cannot be compared",
                                   e.op, e.rank.value, to_string(e.kind), a.file,
                                   at == others.end() ? "missing" : to_string(at->second->kind)));
    }
    pairs.push_back({.rank = e.rank,
                     .op = e.op,
                     .kind = std::string(to_string(e.kind)),
                     .a = (e.end - e.begin).count(),
                     .b = (at->second->end - at->second->begin).count()});
  }
  if (pairs.size() != others.size()) {
    throw InputError(b.file, fmt::format("{} ops, {} has {}: traces of different plans cannot be "
                                         "compared",
                                         others.size(), a.file, pairs.size()));
  }
  return pairs;
}

struct Comparison {
  Side a, b;
  std::vector<Pair> ops;                                   // those that differ most
  std::map<std::string, std::pair<double, double>> kinds;  // seconds of all ranks
};

Comparison compared(Side a, Side b, std::size_t top) {
  if (a.timeline.has_value() != b.timeline.has_value()) {
    throw InputError(a.timeline ? b.file : a.file,
                     "is no trace, and the other one is: two traces, or two results");
  }
  Comparison c{.a = std::move(a), .b = std::move(b), .ops = {}, .kinds = {}};
  if (c.a.timeline) {
    c.ops = pairs_of(c.a, c.b);
    for (const Pair& pair : c.ops) {
      c.kinds[pair.kind].first += pair.a;
      c.kinds[pair.kind].second += pair.b;
    }
    std::ranges::stable_sort(c.ops, std::ranges::greater(),
                             [](const Pair& p) { return std::abs(p.a - p.b); });
    c.ops.resize(std::min(c.ops.size(), top));
  }
  return c;
}

/// That the two are not of one question, and in what they differ; "" if they are, or do not say.
std::string differing(const Side& a, const Side& b) {
  std::vector<std::string> differences;
  if (!a.asked.empty() && !b.asked.empty()) {
    for (const auto& [key, value] : a.asked.items()) {
      if (b.asked.contains(key) && value != b.asked[key]) {
        differences.push_back(fmt::format("{} {} and {}", key, value.dump(), b.asked[key].dump()));
      }
    }
    for (const auto& [key, value] : a.plan.items()) {
      if (b.plan.contains(key) && value != b.plan[key]) {
        differences.push_back(fmt::format("the plans' {}", key));
      }
    }
  }
  return differences.empty() ? ""
                             : fmt::format("{} and {} are not of one question: {}", a.file, b.file,
                                           fmt::join(differences, ", "));
}

/// a against b: 0.1 says that a is 10 % more.
Json change(double a, double b) { return b != 0 ? Json(a / b - 1) : Json(); }
std::string change_text(double a, double b) {
  return b != 0 ? fmt::format("{:+.1f} %", 100 * (a / b - 1)) : "";
}

Json comparison_document(const Comparison& c) {
  Json json = document("comparison");
  json["a"] = {{"file", c.a.file}, {"what", c.a.what}};
  json["b"] = {{"file", c.b.file}, {"what", c.b.what}};
  json["seconds"] = Json::array();
  for (const auto& [name, a] : c.a.seconds) {
    if (const auto at = c.b.seconds.find(name); at != c.b.seconds.end()) {
      json["seconds"].push_back(
          {{"name", name}, {"a_s", a}, {"b_s", at->second}, {"change", change(a, at->second)}});
    }
  }
  json["kinds"] = Json::array();
  for (const auto& [kind, seconds] : c.kinds) {
    json["kinds"].push_back({{"kind", kind},
                             {"a_s", seconds.first},
                             {"b_s", seconds.second},
                             {"change", change(seconds.first, seconds.second)}});
  }
  json["ops"] = Json::array();
  for (const Pair& p : c.ops) {
    json["ops"].push_back({{"rank", p.rank.value},
                           {"op", p.op},
                           {"kind", p.kind},
                           {"a_s", p.a},
                           {"b_s", p.b},
                           {"change", change(p.a, p.b)}});
  }
  return json;
}

std::string comparison_table(const Comparison& c, const Style& style) {
  std::string text =
      style.bold(fmt::format("a: {} ({}), b: {} ({})", c.a.file, c.a.what, c.b.file, c.b.what)) +
      "\n";
  const auto section = [&](std::string_view title, std::vector<std::vector<std::string>> rows) {
    if (rows.empty()) {
      return;
    }
    rows.insert(rows.begin(), {fmt::format("  {}", title), "a", "b", "a against b"});
    Table table{.rows = std::move(rows), .right = {false, true, true, true}};
    text += "\n";
    for (const std::string& line : table.lines()) {
      text += line + "\n";
    }
  };
  std::vector<std::vector<std::string>> totals;
  for (const auto& [name, a] : c.a.seconds) {
    if (const auto at = c.b.seconds.find(name); at != c.b.seconds.end()) {
      totals.push_back(
          {"  " + name, human(Seconds(a)), human(Seconds(at->second)), change_text(a, at->second)});
    }
  }
  section("total", std::move(totals));
  std::vector<std::vector<std::string>> kinds;
  for (const auto& [kind, s] : c.kinds) {
    kinds.push_back({"  " + kind, human(Seconds(s.first)), human(Seconds(s.second)),
                     change_text(s.first, s.second)});
  }
  section("kind of op, all ranks", std::move(kinds));
  std::vector<std::vector<std::string>> ops;
  for (const Pair& p : c.ops) {
    ops.push_back({fmt::format("  rank {} op {} {}", p.rank.value, p.op, p.kind),
                   human(Seconds(p.a)), human(Seconds(p.b)), change_text(p.a, p.b)});
  }
  section("op", std::move(ops));
  return text;
}

void compare_files(const Arguments& arguments, Output& output) {
  const auto& files = arguments.positionals();
  if (files.size() != 2) {
    throw InputError("compare", fmt::format("needs two files, not {}", files.size()));
  }
  const auto top =
      static_cast<std::size_t>(parse_int(arguments.get("top", "10"), "--top", 0, 1'000'000));
  Side a = read_side(files[0]);
  Side b = read_side(files[1]);
  const Comparison c = compared(std::move(a), std::move(b), top);
  if (const std::string text = differing(c.a, c.b); !text.empty()) {
    output.warn({text});
  }
  output.result(comparison_document(c),
                [&](const Style& style) { return comparison_table(c, style); });
}

}  // namespace

extern const Command compare{
    .name = "compare",
    .summary = "two results side by side: predicted against measured, or run against run",
    .description =
        "Compares two results (plan, simulate, run) by their times, or two traces of attention "
        "(simulate --trace, run --trace) of one plan op by op. Traces of whole steps are for "
        "report.",
    .arguments = "A B",
    .groups = {},
    .options = compare_options,
    .examples =
        "sp-plan compare plan.json run.json\n"
        "sp-plan compare predicted-trace.json measured-trace.json",
    .run = compare_files,
};

}  // namespace spp::cli::commands
