// sp-plan regress: predicts published measurements and scores the predictions.
#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"
#include "regress/gate.hpp"
#include "regress/predict.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace spp::cli::commands {
namespace {

/// "attention|model|…": what --scope takes.
constexpr auto scope_values = [] {
  constexpr std::size_t size = [] {
    std::size_t letters = regress::families.size() - 1;
    for (const std::string_view family : regress::families) {
      letters += family.size();
    }
    return letters;
  }();
  std::array<char, size> text{};
  auto* at = text.begin();
  for (const std::string_view family : regress::families) {
    if (at != text.begin()) {
      *at++ = '|';
    }
    at = std::ranges::copy(family, at).out;
  }
  return text;
}();

constexpr std::array regress_options{
    Option{"corpus", "DIR", "folder of corpus files (default: reports/corpus)"},
    Option{"scope", std::string_view(scope_values.data(), scope_values.size()),
           "only files of this family"},
    Option{"file", "NAME", "only this file"},
    Option{"gate", "FILE",
           "limits that the figures must keep, of what is asked for; exit code 4 if they do not"},
    Option{"predictions", "FILE", "write one JSON line a point"},
};

struct Judged {
  std::optional<regress::CorpusFile> file;
  std::vector<regress::PointPrediction> predictions;
  std::vector<Assumption> assumptions;
  regress::Score score;
  std::string refused;  // why the file could not be used
};

class Judge {
 public:
  Judge(const Arguments& arguments, Output& output)
      : quiet_(output.quiet()),
        files_(regress::corpus_files(arguments.get("corpus", usual_corpus()))) {
    if (const auto scope = arguments.find("scope")) {
      asked_.family = std::string(regress::parse_family(*scope, "--scope"));
    }
    if (const auto file = arguments.find("file")) {
      std::erase_if(files_, [&](const auto& path) {
        return path.stem() != *file && path.filename() != *file;
      });
      asked_.one_file = true;
      if (files_.empty()) {
        throw InputError("--file", fmt::format("'{}' is not in the corpus", *file));
      }
    }
    judged_.resize(files_.size());
  }

  /// Files side by side, one thread a core.
  void run() {
    Progress progress("predicting", quiet_);
    progress_ = &progress;
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < cores; ++i) {
      workers.emplace_back([this] { work(); });
    }
    workers.clear();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    std::erase_if(judged_, [](const Judged& j) { return !j.file && j.refused.empty(); });
    if (judged_.empty()) {
      throw InputError("--scope",
                       fmt::format("no file asked for is of family '{}'", asked_.family));
    }
  }

  [[nodiscard]] const std::vector<Judged>& judged() const { return judged_; }
  [[nodiscard]] const regress::Asked& asked() const { return asked_; }

 private:
  static std::string usual_corpus() { return (data_folder() / "reports" / "corpus").string(); }

  void work() {
    try {
      regress::Predictor predictor(topologies());
      for (std::size_t i = next_++; i < files_.size(); i = next_++) {
        judge(predictor, i);
        progress_->update(static_cast<double>(++done_), static_cast<double>(files_.size()));
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
    }
  }

  void judge(regress::Predictor& predictor, std::size_t i) {
    Judged& j = judged_[i];
    try {
      regress::CorpusFile file = regress::read_corpus_file(files_[i]);
      if (!asked_.family.empty() && regress::family_of(file) != asked_.family) {
        return;
      }
      j.predictions = predictor.predict(file);
      j.assumptions = predictor.assumptions();
      j.score = regress::score(file, j.predictions);
      j.file = std::move(file);
    } catch (const InputError& e) {
      j.refused = e.what();
    }
  }

  regress::Asked asked_;
  bool quiet_;
  std::vector<std::filesystem::path> files_;
  std::vector<Judged> judged_;
  Progress* progress_ = nullptr;
  std::atomic<std::size_t> next_{0}, done_{0};
  std::mutex mutex_;
  std::exception_ptr failure_;
};

/// Figures by family, and over all files as "overall".
std::map<std::string, regress::Score> by_family(const std::vector<Judged>& judged) {
  std::map<std::string, std::vector<regress::Score>> families;
  for (const Judged& j : judged) {
    if (j.file) {
      families[std::string(regress::family_of(*j.file))].push_back(j.score);
      families["overall"].push_back(j.score);
    }
  }
  std::map<std::string, regress::Score> figures;
  for (const auto& [family, scores] : families) {
    figures.emplace(family, regress::over(scores));
  }
  return figures;
}

Json to_json(const regress::Score& s) {
  const auto figure = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  return {{"points", s.points},
          {"n", s.n},
          {"skipped", s.suspect},
          {"missing", s.missing},
          {"median_error", figure(s.median)},
          {"mape", figure(s.mape)},
          {"bias", figure(s.bias)},
          {"interval_coverage", figure(s.coverage)},
          {"choices", s.choices},
          {"regret_mean", figure(s.regret_mean)},
          {"regret_max", figure(s.regret_max)},
          {"kendall_tau", figure(s.tau)},
          {"oom_picked", s.oom_picked},
          {"oom_accuracy", figure(s.oom_accuracy)},
          {"oom_stated", s.oom_stated},
          {"oom_measured", s.oom_measured},
          {"oom_told", s.oom_told},
          {"oom_false", s.oom_false},
          {"memory_error", figure(s.memory_error)},
          {"memory_bias", figure(s.memory_bias)}};
}

/// Reasons for missing predictions, with how many points each explains.
Json reasons_of(const Judged& j) {
  std::map<std::string, int> count;
  for (const regress::PointPrediction& p : j.predictions) {
    if (!p.reason.empty()) {
      ++count[p.reason];
    }
  }
  Json list = Json::array();
  for (const auto& [reason, points] : count) {
    list.push_back({{"reason", reason}, {"points", points}});
  }
  return list;
}

Json result_document(const std::vector<Judged>& judged,
                     const std::map<std::string, regress::Score>& figures, Seconds elapsed) {
  Json doc = document("regression");
  Json files = Json::array();
  Json refused = Json::array();
  for (const Judged& j : judged) {
    if (!j.file) {
      refused.push_back(j.refused);
      continue;
    }
    Json file = {{"name", j.file->name},
                 {"scope", regress::family_of(*j.file)},
                 {"stack", j.file->stack},
                 {"trust", j.file->trust}};
    file.update(to_json(j.score));
    file["not_predicted"] = reasons_of(j);
    file["assumptions"] = cli::to_json(j.assumptions);
    files.push_back(std::move(file));
  }
  doc["files"] = std::move(files);
  doc["refused"] = std::move(refused);
  Json scopes = Json::object();
  for (const auto& [family, score] : figures) {
    (family == "overall" ? doc["overall"] : scopes[family]) = to_json(score);
  }
  doc["scopes"] = std::move(scopes);
  doc["elapsed_s"] = elapsed.count();
  return doc;
}

/// `memory`: with the columns of memory.
std::vector<std::string> row(const std::string& name, const regress::Score& s, bool memory) {
  const auto percent = [](const std::optional<double>& x, bool sign = false) {
    return !x ? std::string("-") : fmt::format(fmt::runtime(sign ? "{:+.1f}" : "{:.1f}"), 100 * *x);
  };
  std::vector<std::string> cells{name,
                                 fmt::format("{}", s.n),
                                 fmt::format("{}", s.missing),
                                 percent(s.median),
                                 percent(s.mape),
                                 percent(s.bias, true),
                                 percent(s.coverage),
                                 fmt::format("{}", s.choices),
                                 percent(s.regret_mean),
                                 percent(s.regret_max),
                                 s.tau ? fmt::format("{:.2f}", *s.tau) : "-"};
  if (memory) {
    cells.push_back(percent(s.memory_error));
    cells.push_back(percent(s.memory_bias, true));
    cells.push_back(percent(s.oom_accuracy));
  }
  return cells;
}

bool tells_memory(const Judged& j) {
  return j.file && (j.score.memory_error || j.score.oom_accuracy);
}

std::string result_table(const std::vector<Judged>& judged,
                         const std::map<std::string, regress::Score>& figures, const Style& style) {
  const bool memory = std::ranges::any_of(judged, tells_memory);
  Table table;
  table.rows.push_back({"file", "n", "missing", "median %", "MAPE %", "bias %", "in interval %",
                        "choices", "regret %", "max %", "tau"});
  if (memory) {
    for (const char* column : {"memory %", "memory bias %", "OOM right %"}) {
      table.rows.front().emplace_back(column);
    }
  }
  table.right = std::vector<bool>(table.rows.front().size(), true);
  table.right[0] = false;
  for (const Judged& j : judged) {
    if (j.file) {
      table.rows.push_back(row(j.file->name, j.score, memory));
    }
  }
  for (const auto& [family, score] : figures) {
    table.rows.push_back(
        row(family == "overall" ? "all files" : "all of " + family, score, memory));
  }
  std::string text;
  for (const std::string& line : table.lines()) {
    text += (text.empty() ? style.bold(line) : line) + "\n";
  }
  return text;
}

void write_predictions(const std::vector<Judged>& judged, const std::string& file) {
  std::string text;
  for (const Judged& j : judged) {
    for (std::size_t i = 0; i < j.predictions.size(); ++i) {
      text +=
          regress::prediction_line(j.file->name, static_cast<std::int64_t>(i), j.predictions[i]) +
          "\n";
    }
  }
  write_file(file, text);
}

std::vector<std::string> gate_failures(const regress::Gate& gate, const Judge& judge,
                                       const std::map<std::string, regress::Score>& figures) {
  std::map<std::string, std::vector<regress::PointPrediction>> now;
  for (const Judged& j : judge.judged()) {
    if (j.file) {
      now.emplace(j.file->name, j.predictions);
    }
  }
  std::vector<std::string> failed = regress::failures(gate, figures, judge.asked());
  for (std::string& moved : regress::drift(gate, now, judge.asked())) {
    failed.push_back("drift: " + std::move(moved));
  }
  return failed;
}

void regress_command(const Arguments& arguments, Output& output) {
  arguments.expect_no_positionals();
  std::optional<regress::Gate> gate;
  if (const auto file = arguments.find("gate")) {
    gate = regress::read_gate(*file);
  }
  if (const auto file = arguments.find("predictions")) {
    expect_writable(*file, "--predictions");
  }
  const auto start = std::chrono::steady_clock::now();
  Judge judge(arguments, output);
  judge.run();
  const auto figures = by_family(judge.judged());
  if (const auto file = arguments.find("predictions")) {
    write_predictions(judge.judged(), *file);
  }
  Json doc = result_document(judge.judged(), figures, std::chrono::steady_clock::now() - start);
  std::vector<std::string> failed;
  if (gate) {
    failed = gate_failures(*gate, judge, figures);
    const bool judged = regress::judges(*gate, judge.asked());
    doc["gate"] = {{"passed", judged ? Json(failed.empty()) : Json()}, {"failures", failed}};
    if (!judged) {
      output.warn({fmt::format("{} limits nothing of what was asked for: nothing was judged",
                               arguments.get("gate", ""))});
    }
  }
  output.result(doc,
                [&](const Style& style) { return result_table(judge.judged(), figures, style); });
  bool refused = false;
  for (const Judged& j : judge.judged()) {
    if (!j.refused.empty()) {
      refused = true;
      complain(j.refused);
    }
  }
  for (const std::string& failure : failed) {
    complain(failure);
  }
  if (refused) {
    throw Refusal(ExitCode::usage, "files with errors were left out; the others are scored");
  }
  if (!failed.empty()) {
    throw Refusal(ExitCode::refused, fmt::format("the gate failed in {} points", failed.size()));
  }
}

}  // namespace

extern const Command regress{
    .name = "regress",
    .summary = "predict published measurements and score the predictions",
    .description =
        "Predicts every point of a folder of published measurements (attention calls, kernels, "
        "collectives), compares with what was measured, and scores: error, bias, the regret of "
        "choosing by prediction, order. A gate file turns the figures into a test.",
    .arguments = "",
    .groups = {},
    .options = regress_options,
    .examples =
        "sp-plan regress --corpus reports/corpus\n"
        "sp-plan regress --scope attention --predictions predictions.jsonl\n"
        "sp-plan regress --gate reports/gates/gate.json",
    .run = regress_command,
};

}  // namespace spp::cli::commands
