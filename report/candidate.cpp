// What pages say of a candidate, read once: parts that several kinds of documents share.
#include "report/candidate.hpp"

#include "base/human.hpp"
#include "report/cluster.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace spp::report {
namespace {

constexpr std::size_t most_bars = 24;
constexpr std::int64_t most_degree = std::int64_t{1} << 40;

struct Class {
  std::string_view name, key, label;
};

constexpr std::array<Class, 11> parts{{{"attention", "k-attention", "attention kernels"},
                                       {"gemm", "k-gemm", "GEMMs"},
                                       {"elementwise", "k-elementwise", "small kernels"},
                                       {"optimizer", "k-optimizer", "optimizer"},
                                       {"launch", "k-launch", "waiting for the host"},
                                       {"cp", "k-cp", "exposed: sequence"},
                                       {"tp", "k-tp", "exposed: tensor"},
                                       {"ep", "k-ep", "exposed: experts"},
                                       {"dp", "k-dp", "exposed: weights, gradients"},
                                       {"pp", "k-pp", "exposed: between stages"},
                                       {"bubble", "k-bubble", "bubble or imbalance"}}};

constexpr std::array<Class, 8> memory_classes{
    {{"parameters", "m-parameters", "parameters"},
     {"gradients", "m-gradients", "gradients"},
     {"optimizer", "m-optimizer", "optimizer states"},
     {"activations", "m-activations", "activations"},
     {"attention_buffers", "m-attention", "attention buffers"},
     {"communication", "m-communication", "communication"},
     {"logits", "m-logits", "logits"},
     {"process", "m-process", "context, libraries, fragments"}}};

double number_or(const JsonView& view, std::string_view key, double otherwise) {
  const auto found = view.find(key);
  return found ? found->number(-most_count_read, most_count_read) : otherwise;
}

std::int64_t degree_of(const JsonView& plan, std::string_view key) {
  const auto found = plan.find(key);
  return found ? found->integer(0, most_degree) : 1;
}

std::string string_or(const JsonView& view, std::string_view key, std::string otherwise = "") {
  const auto found = view.find(key);
  return found ? found->string() : otherwise;
}

std::string innermost(const JsonView& plan) {
  const auto order = plan.find("order");
  if (!order || !order->value().is_array() || order->value().size() < 2) {
    return "";
  }
  return fmt::format(" ({} innermost)", order->elements().front().string());
}

/// What has to fit: all classes but the process's own.
double tensors_of(const JsonView& memory) {
  return number_or(memory, "total", 0) - number_or(memory, "process", 0);
}

Predicted read_predicted(const JsonView& view) {
  Predicted p;
  p.step = view.at("step_s").number(0, most_seconds_read);
  p.low = p.high = p.step;
  if (const auto interval = view.find("interval_s")) {
    const std::vector<JsonView> ends = interval->elements();
    if (ends.size() != 2) {
      interval->fail("is not a list of two numbers");
    }
    p.low = ends[0].number(0, most_seconds_read);
    p.high = ends[1].number(0, most_seconds_read);
  }
  p.exposed = number_or(view, "exposed_comm_s", 0);
  p.tokens_per_s = number_or(view, "tokens_per_s", 0);
  p.tflops = number_or(view, "tflops_per_gpu", 0);
  p.mfu = number_or(view, "mfu", 0);
  if (const auto memory = view.find("memory_bytes")) {
    p.memory = tensors_of(*memory);
  }
  if (const auto fits = view.find("fits")) {
    p.fits = fits->boolean();
  }
  if (const auto longest = view.find("max_seq")) {
    p.max_seq = longest->integer(0, most_degree);
  }
  if (const auto list = view.find("parts_s")) {
    for (const Class& part : parts) {
      const double seconds = number_or(*list, part.name, 0);
      if (seconds > 0) {
        p.parts.push_back({part.key, std::string(part.label), seconds});
      }
    }
  }
  if (p.parts.empty() && p.step > 0) {
    p.parts.push_back({"k-elementwise", "step", p.step});
  }
  return p;
}

}  // namespace

std::string seconds_text(double seconds) { return human(Seconds(seconds)); }
std::string bytes_text(double bytes) {
  return human(Bytes(static_cast<std::int64_t>(std::clamp(bytes, 0.0, 9e18))));
}
std::string tokens_text(double tokens) {
  return human_tokens(static_cast<std::int64_t>(std::llround(std::clamp(tokens, 0.0, 9e18))));
}

std::string plan_name(const JsonView& plan) {
  std::string text;
  for (const auto& [key, name] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{{"tp", "TP"},
                                                                            {"pp", "PP"},
                                                                            {"dp", "DP"},
                                                                            {"cfg", "CFG"},
                                                                            {"ep", "EP"},
                                                                            {"etp", "ETP"}}) {
    if (const std::int64_t degree = degree_of(plan, key); degree > 1) {
      text += fmt::format("{}{} ", name, degree);
    }
  }
  text += fmt::format("{} U{}×R{}", plan.at("strategy").string(),
                      plan.at("ulysses").integer(1, most_degree),
                      plan.at("ring").integer(1, most_degree));
  if (const std::int64_t team = degree_of(plan, "team"); team > 1) {
    text += fmt::format(" C{}", team);
  }
  if (const std::int64_t window = degree_of(plan, "window"); window > 1) {
    text += fmt::format(" W{}", window);
  }
  text += " " + string_or(plan, "layout");
  if (const std::string heads = string_or(plan, "heads", "divide"); heads != "divide") {
    text += fmt::format(" {} heads", heads);
  }
  if (const std::string order = string_or(plan, "rank_order", "block"); order != "block") {
    text += fmt::format(" {} ranks", order);
  }
  return text + innermost(plan);
}

std::string plan_around(const JsonView& plan) {
  std::vector<std::string> list;
  const std::int64_t batches = degree_of(plan, "micro_batches");
  const std::int64_t batch = degree_of(plan, "micro_batch");
  if (batches > 1 || batch > 1) {
    list.push_back(fmt::format(
        "{} of {}", batches == 1 ? "one micro-batch" : fmt::format("{} micro-batches", batches),
        batch));
  }
  if (degree_of(plan, "pp") > 1) {
    const std::int64_t chunks = degree_of(plan, "virtual_stages");
    list.push_back(string_or(plan, "pipeline", "1f1b") +
                   (chunks > 1 ? fmt::format(" with {} chunks a stage", chunks) : ""));
  }
  if (const auto zero = plan.find("zero"); zero && zero->integer(0, 3) > 0) {
    list.push_back(fmt::format("ZeRO {}", zero->integer(0, 3)));
  }
  if (const std::string again = string_or(plan, "recompute", "none"); again != "none") {
    list.push_back(again + " recomputation");
  }
  if (const std::string away = string_or(plan, "offload", "none"); away != "none") {
    list.push_back(away + " offloaded");
  }
  if (const std::string way = string_or(plan, "dispatcher"); way == "all-gather") {
    list.push_back("all-gather to experts");
  }
  std::string text;
  for (const std::string& word : list) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

CandidateRead read_candidate(const JsonView& candidate) {
  const JsonView plan = candidate.at("plan");
  const JsonView predicted = candidate.at("predicted");
  CandidateRead c{.name = plan_name(plan),
                  .around = plan_around(plan),
                  .bound_by = string_or(candidate, "bound_by"),
                  .why = string_or(candidate, "why"),
                  .predicted = read_predicted(predicted),
                  .plan = plan,
                  .prediction = predicted};
  if (const auto simulated = candidate.find("simulated")) {
    c.simulated = simulated->boolean();
  }
  return c;
}

std::string spread_text(const Predicted& p) {
  return p.step > 0 && p.high > p.low ? fmt::format("±{:.0f} %", 50 * (p.high - p.low) / p.step)
                                      : "";
}

void add_stats(Sheet& sheet, const CandidateRead& c) {
  const Predicted& p = c.predicted;
  std::vector<Stat> stats{
      {c.simulated ? "predicted step" : "step, at least", seconds_text(p.step), spread_text(p)}};
  if (p.tokens_per_s > 0) {
    stats.push_back({"throughput",
                     human_count(static_cast<std::int64_t>(std::min(p.tokens_per_s, 9e18))),
                     "tokens/s"});
  }
  if (p.tflops > 0) {
    const bool small = p.tflops < 1;
    stats.push_back({"each GPU",
                     small ? short_number(p.tflops * 1e3) : fmt::format("{:.0f}", p.tflops),
                     fmt::format("{}FLOP/s, MFU {:.0f} %", small ? "G" : "T", 100 * p.mfu)});
  }
  if (c.simulated) {
    stats.push_back({"exposed communication", seconds_text(p.exposed),
                     p.step > 0 ? percent(p.exposed / p.step) : ""});
  }
  if (p.memory > 0) {
    stats.push_back({"memory a GPU", bytes_text(p.memory), p.fits ? "fits" : "does not fit"});
  }
  if (p.max_seq > 0) {
    stats.push_back({"longest sequence", human_count(p.max_seq), "tokens"});
  }
  sheet.stats(stats);
}

void add_candidates(Sheet& sheet, const std::vector<CandidateRead>& candidates, std::string title) {
  BarChart chart{.title = std::move(title),
                 .description =
                     "Each bar is one plan's step: kernels in plain colours, then the time "
                     "that waits for communication and the bubble, hatched. The line "
                     "with two ends is the interval that the constants' spreads allow.",
                 .note = "",
                 .unit_heading = "seconds",
                 .text = seconds_text,
                 .bars = {},
                 .marks = {}};
  for (std::size_t i = 0; i < std::min(most_bars, candidates.size()); ++i) {
    const CandidateRead& c = candidates[i];
    const Predicted& p = c.predicted;
    std::string label = candidates.size() > 1 ? fmt::format("{}. {}", i + 1, c.name) : c.name;
    label += c.around.empty() ? "" : ", " + c.around;
    Bar bar{.label = std::move(label),
            .value = (c.simulated ? "" : "≥ ") + seconds_text(p.step) + " " + spread_text(p),
            .parts = p.parts,
            .interval = std::nullopt,
            .open = !c.simulated,
            .strong = i == 0};
    if (c.simulated && p.high > p.low) {
      bar.interval = {p.low, p.high};
    }
    chart.bars.push_back(std::move(bar));
  }
  if (candidates.size() > most_bars) {
    chart.note =
        fmt::format("The first {} of {} candidates are drawn.", most_bars, candidates.size());
  }
  add(sheet, chart);
}

void add_memory(Sheet& sheet, const CandidateRead& c, double usable) {
  std::vector<JsonView> stages;
  if (const auto list = c.prediction.find("memory_by_stage")) {
    stages = list->elements();
  }
  if (stages.empty()) {
    if (const auto whole = c.prediction.find("memory_bytes")) {
      stages.push_back(*whole);
    }
  }
  BarChart chart{.title = "Memory of one GPU",
                 .description = "Tensors of the fullest rank by class, at their peak.",
                 .note =
                     "What the process takes beside tensors (context, libraries, fragments) is "
                     "outside of what the usable memory is compared with.",
                 .unit_heading = "bytes",
                 .text = bytes_text,
                 .bars = {},
                 .marks = {}};
  for (std::size_t i = 0; i < std::min(most_bars, stages.size()); ++i) {
    Bar bar{.label = stages.size() > 1 ? fmt::format("stage {}", i) : "each rank",
            .value = bytes_text(tensors_of(stages[i])),
            .parts = {},
            .interval = std::nullopt};
    for (const Class& part : memory_classes) {
      const double bytes = number_or(stages[i], part.name, 0);
      if (bytes > 0) {
        bar.parts.push_back({part.key, std::string(part.label), bytes});
      }
    }
    if (!bar.parts.empty()) {
      chart.bars.push_back(std::move(bar));
    }
  }
  if (usable > 0) {
    chart.marks.push_back({usable, fmt::format("usable: {}", bytes_text(usable))});
  }
  add(sheet, chart);
}

void add_groups(Sheet& sheet, const CandidateRead& c, const std::optional<JsonView>& request) {
  const auto groups = c.plan.find("groups");
  if (!groups) {
    return;
  }
  GroupDrawing chart{.title = "Who talks to whom", .axes = {}};
  constexpr std::int64_t most_ranks = 65'536;
  chart.cyclic = string_or(c.plan, "rank_order", "block") == "cyclic";
  std::int64_t ranks = 0;
  for (const auto& [axis, list] : groups->members()) {
    AxisGroups read{.axis = axis, .groups = {}};
    for (const JsonView& group : list.elements()) {
      read.groups.emplace_back();
      for (const JsonView& rank : group.elements()) {
        read.groups.back().push_back(rank.integer(0, most_ranks));
        ranks = std::max(ranks, read.groups.back().back() + 1);
      }
      if (read.groups.back().empty()) {
        group.fail("is a group of no ranks");
      }
    }
    const bool joins = std::ranges::any_of(read.groups, [](const auto& g) { return g.size() > 1; });
    if (joins) {
      chart.axes.push_back(std::move(read));
    }
  }
  chart.ranks = std::max<std::int64_t>(1, ranks);
  const auto nodes = request ? request->find("nodes") : std::nullopt;
  chart.nodes = nodes ? std::clamp<std::int64_t>(nodes->integer(1, most_ranks), 1, chart.ranks) : 1;
  add(sheet, chart);
}

void add_traffic(Sheet& sheet, const CandidateRead& c, const JsonView& candidate) {
  Grid grid{.heading = {"communication", "sent by each rank"}, .right = {false, true}, .rows = {}};
  if (const auto sent = c.prediction.find("comm_bytes_per_rank")) {
    for (const auto& [kind, bytes] : sent->members()) {
      if (const double n = bytes.number(0, most_count_read); n > 0) {
        grid.rows.push_back({kind, bytes_text(n)});
      }
    }
  }
  sheet.table(grid);
  if (const auto algorithms = candidate.find("algorithms");
      algorithms && !algorithms->elements().empty()) {
    std::string text;
    for (const JsonView& line : algorithms->elements()) {
      text += (text.empty() ? "" : "; ") + line.string();
    }
    sheet.paragraph("Algorithms: " + text + ".", "quiet");
  }
}

std::vector<std::string> sentences(std::string_view text) {
  std::vector<std::string> list;
  std::string now;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (text[i] == ';' && depth <= 0) {
      list.push_back(std::move(now));
      now.clear();
      i += i + 1 < text.size() && text[i + 1] == ' ' ? 1 : 0;
    } else {
      now += text[i];
    }
  }
  if (!now.empty()) {
    list.push_back(std::move(now));
  }
  return list;
}

std::string value_text(const Json& value) {
  if (value.is_null()) {
    return "–";
  }
  if (value.is_string()) {
    return value.get<std::string>();
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > most) {
    return fmt::format("{:.6g}", static_cast<double>(value.get<std::uint64_t>()));
  }
  if (value.is_number_integer()) {
    return human_count(value.get<std::int64_t>());
  }
  return value.is_number() ? fmt::format("{:.6g}", value.get<double>())
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_at(const JsonView& view, std::string_view key) {
  const auto found = view.find(key);
  return found ? value_text(found->value()) : "";
}

std::string request_title(const std::optional<JsonView>& request) {
  if (!request || !request->value().is_object()) {
    return "";
  }
  std::string text;
  const auto model = request->find("model");
  if (model) {
    text = model->string();
  } else if (const auto heads = request->find("heads")) {
    text = fmt::format("attention {}/{} heads of {}", value_text(heads->value()),
                       value_text(request->at("kv_heads").value()),
                       value_text(request->at("head_dim").value()));
    if (const auto values = request->find("value_dim")) {
      text += fmt::format(" and {}", value_text(values->value()));
    }
  }
  const auto word = [&](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  if (const auto phase = request->find("phase")) {
    word(phase->string());
  }
  if (const auto seq = request->find("seq")) {
    word(fmt::format("{} tokens", human_tokens(seq->integer(0, most_degree))));
  }
  if (const auto batch = request->find("global_batch")) {
    word(fmt::format("global batch {}", value_text(batch->value())));
  }
  if (const auto gpus = request->find("gpus")) {
    word(human_count(gpus->integer(0, most_degree), "GPU"));
  }
  for (const std::string_view key : {"topology", "gpu"}) {
    if (const auto machine = request->find(key); machine && machine->value().is_string()) {
      text += fmt::format(" of {}", machine->string());
      break;
    }
  }
  return text;
}

void add_assumptions(Sheet& sheet, const JsonView& document) {
  const auto list = document.find("assumptions");
  if (!list) {
    return;
  }
  Grid grid{.heading = {"assumed", "value", "source"}, .right = {}, .rows = {}};
  for (const JsonView& a : list->elements()) {
    grid.rows.push_back({a.at("what").string(), a.at("value").string(), a.at("source").string()});
  }
  if (!grid.rows.empty()) {
    sheet.heading("What was assumed");
    sheet.table(shortened(std::move(grid), 200));
  }
}

void add_request(Sheet& sheet, const JsonView& document) {
  const auto request = document.find("request");
  if (!request || !request->value().is_object()) {
    return;
  }
  Grid grid{.heading = {"option", "value"}, .right = {}, .rows = {}};
  for (const auto& [key, value] : request->members()) {
    if (!value.is_null()) {
      grid.rows.push_back({key, cut(value_text(value.value()), 200)});
    }
  }
  sheet.details("The request, resolved", shortened(std::move(grid), 200));
}

}  // namespace spp::report
