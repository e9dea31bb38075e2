#include "planner/sweep.hpp"

#include "base/named.hpp"
#include "planner/packing.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

namespace spp {
namespace {

constexpr std::array<Named<Verdict>, 4> verdict_names{{{Verdict::plan, "plan"},
                                                       {Verdict::nothing_fits, "nothing fits"},
                                                       {Verdict::no_legal_plan, "no legal plan"},
                                                       {Verdict::unsearched, "unsearched"}}};

/// What is asked of it, told to one Watch from several threads.
class Tally {
 public:
  Tally(const Watch& watch, double of) : watch_(watch), of_(of) {}
  void expect(double more) {
    const std::scoped_lock lock(mutex_);
    of_ += more;
  }
  void answered() {
    const std::scoped_lock lock(mutex_);
    ++done_;
    ask();
  }
  /// From within a question: whoever comes while another one asks takes the last answer.
  bool go_on() {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) {
      ask();
    }
    return !given_up_;
  }
  void give_up() { given_up_ = true; }
  [[nodiscard]] std::int64_t done() const { return done_; }

 private:
  void ask() {
    if (watch_ && !given_up_ && !watch_(static_cast<double>(done_), of_)) {
      given_up_ = true;
    }
  }
  const Watch& watch_;
  std::mutex mutex_;
  double of_;
  std::int64_t done_ = 0;
  std::atomic<bool> given_up_{false};
};

/// Calls work(i) for i < n from so many threads. The first of what they throw, by i, is thrown.
void side_by_side(std::size_t n, int threads, Tally& tally,
                  const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t error_at = n;
  const auto worker = [&] {
    std::size_t i = n;
    try {
      for (i = next++; i < n && tally.go_on(); i = next++) {
        work(i);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!error || i < error_at) {
        error_at = i;
        error = std::current_exception();
      }
      tally.give_up();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads && static_cast<std::size_t>(t) < n; ++t) {
      others.emplace_back(worker);
    }
    worker();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

SweepCell answered(const Request& line, std::int64_t seq, Tally& tally) {
  Request request = line;
  request.problem.seq = seq;
  if (!request.drawn_documents.empty()) {
    constexpr std::string_view option = "--documents";
    const auto lengths = LengthDistribution::parse(request.drawn_documents, seq, option);
    request.problem.mask.document_ends = typical_sequence(lengths, seq, option).ends;
  }
  SweepCell cell{.seq = seq};
  cell.result = plan(request, [&](double, double) { return tally.go_on(); });
  if (!tally.go_on() && cell.result.candidates.empty()) {
    return cell;  // given up before there was anything
  }
  cell.verdict = verdict_of(cell.result);
  // Of hundreds of questions: one reason each.
  if (cell.result.rejected.size() > 1) {
    cell.result.rejected.resize(cell.verdict == Verdict::no_legal_plan ? 1 : 0);
  }
  tally.answered();
  return cell;
}

/// Two neighbouring cells that differ, and what lies between them.
struct Gap {
  std::size_t line = 0;
  const SweepCell* from = nullptr;
  const SweepCell* to = nullptr;
  std::vector<Boundary> found;
};

class Bisection {
 public:
  Bisection(const Request& line, Gap& gap, std::int64_t grain, Tally& tally)
      : line_(line), gap_(gap), grain_(grain), tally_(tally) {}

  void run() { between(*gap_.from, *gap_.to); }

 private:
  /// A recommendation that changes to and fro would ask for every grain.
  static constexpr int most_questions = 24;

  void between(const SweepCell& from, const SweepCell& to) {
    if (same_recommendation(from, to)) {
      return;
    }
    const std::int64_t middle = from.seq + (to.seq - from.seq) / 2 / grain_ * grain_;
    if (middle > from.seq && asked_ < most_questions && tally_.go_on()) {
      ++asked_;
      const SweepCell cell = answered(line_, middle, tally_);
      if (cell.verdict != Verdict::unsearched) {
        between(from, cell);
        between(cell, to);
        return;
      }
    }
    gap_.found.push_back({.line = gap_.line, .from = from, .to = to});
  }

  const Request& line_;
  Gap& gap_;
  std::int64_t grain_;
  Tally& tally_;
  int asked_ = 0;
};

std::vector<Gap> gaps_of(const SweepQuestion& question, const SweepResult& result) {
  std::vector<Gap> gaps;
  for (std::size_t line = 0; line < question.lines.size(); ++line) {
    const std::vector<SweepCell>& cells = result.cells[line];
    for (std::size_t i = 1; i < cells.size(); ++i) {
      const bool known =
          cells[i - 1].verdict != Verdict::unsearched && cells[i].verdict != Verdict::unsearched;
      if (known && !same_recommendation(cells[i - 1], cells[i])) {
        gaps.push_back({.line = line, .from = &cells[i - 1], .to = &cells[i], .found = {}});
      }
    }
  }
  return gaps;
}

std::string text_of(std::int64_t n) { return fmt::format("{}", n); }

}  // namespace

std::string_view to_string(Verdict v) { return name_of(v, verdict_names); }

Verdict verdict_of(const PlanResult& result) {
  return result.candidates.empty() ? Verdict::no_legal_plan
         : result.any_fits         ? Verdict::plan
                                   : Verdict::nothing_fits;
}

bool SweepResult::any_plan() const {
  return std::ranges::any_of(cells, [](const std::vector<SweepCell>& line) {
    return std::ranges::any_of(line, [](const SweepCell& c) { return c.verdict == Verdict::plan; });
  });
}

std::int64_t grain_between(std::int64_t from, std::int64_t to) {
  constexpr std::int64_t parts = 64;
  constexpr std::int64_t least = 1024;
  const auto part = static_cast<std::uint64_t>(std::max<std::int64_t>(1, (to - from) / parts));
  return std::max(least, static_cast<std::int64_t>(std::bit_floor(part)));
}

std::vector<Difference> differences(const StepPlan& before, const StepPlan& after) {
  std::vector<Difference> list;
  const auto add = [&](std::string_view what, const auto& a, const auto& b) {
    if (a != b) {
      list.push_back({std::string(what), fmt::format("{}", a), fmt::format("{}", b)});
    }
  };
  const SequencePlan& a = before.attention;
  const SequencePlan& b = after.attention;
  const auto order = [](const SequencePlan& p) {
    std::string text;
    for (const Axis axis : axes_of(p)) {
      text += fmt::format("{}{}", text.empty() ? "" : ",", to_string(axis));
    }
    return text;
  };
  add("tp", before.tensor, after.tensor);
  add("strategy", a.strategy, b.strategy);
  add("ulysses", a.ulysses, b.ulysses);
  add("ring", a.ring, b.ring);
  for (const Parameter* parameter : strategies::parameters()) {
    add(std::string(parameter->name), a.own[*parameter], b.own[*parameter]);
  }
  add("layout", to_string(a.layout), to_string(b.layout));
  if (axes_of(a).size() == axes_of(b).size() && axes_of(a).size() > 1) {
    add("order", order(a), order(b));
  }
  add("heads-policy", to_string(a.heads), to_string(b.heads));
  add("rank-order", to_string(a.rank_order), to_string(b.rank_order));
  add("dp", before.data, after.data);
  add("pp", before.pipeline, after.pipeline);
  add("virtual-stages", before.virtual_stages, after.virtual_stages);
  if (before.pipeline > 1 && after.pipeline > 1) {
    add("pipeline", before.order, after.order);
  }
  add("ep", before.expert, after.expert);
  add("etp", before.expert_tensor, after.expert_tensor);
  add("dispatcher", to_string(before.to_experts), to_string(after.to_experts));
  add("batch", text_of(before.micro_batch), text_of(after.micro_batch));
  add("micro-batches", text_of(before.micro_batches), text_of(after.micro_batches));
  add("zero", before.zero, after.zero);
  add("recompute", to_string(before.recompute.kind), to_string(after.recompute.kind));
  add("offload", to_string(before.offload), to_string(after.offload));
  return list;
}

bool same_recommendation(const SweepCell& a, const SweepCell& b) {
  if (a.verdict != b.verdict) {
    return false;
  }
  return a.verdict != Verdict::plan ||
         differences(a.result.candidates.front().plan, b.result.candidates.front().plan).empty();
}

const Candidate* candidate_like(const PlanResult& result, const StepPlan& plan) {
  const auto at = std::ranges::find_if(result.candidates, [&](const Candidate& c) {
    return c.simulated && differences(c.plan, plan).empty();
  });
  return at == result.candidates.end() ? nullptr : &*at;
}

SweepResult sweep(const SweepQuestion& question, const Watch& watch) {
  const std::size_t columns = question.lengths.size();
  const std::size_t cells = question.lines.size() * columns;
  SweepResult result;
  result.cells.resize(question.lines.size());
  for (std::vector<SweepCell>& line : result.cells) {
    for (const std::int64_t seq : question.lengths) {
      line.push_back({.seq = seq, .result = {}});
    }
  }
  // As many cells at once share the memory that a search may take.
  const auto at_once = static_cast<std::int64_t>(
      std::clamp<std::size_t>(cells, 1, static_cast<std::size_t>(question.threads)));
  std::vector<Request> lines = question.lines;
  for (Request& line : lines) {
    line.most.memory = Bytes(line.most.memory.value() / at_once);
  }
  Tally tally(watch, static_cast<double>(cells));
  side_by_side(cells, question.threads, tally, [&](std::size_t i) {
    const std::size_t from_the_end = cells - 1 - i;  // the longest questions come last
    const std::size_t line = from_the_end / columns;
    SweepCell& cell = result.cells[line][from_the_end % columns];
    cell = answered(lines[line], cell.seq, tally);
  });
  if (question.boundaries) {
    std::vector<Gap> gaps = gaps_of(question, result);
    constexpr double usual = 7;  // questions of an gap: its 64 parts, halved, and one more
    tally.expect(usual * static_cast<double>(gaps.size()));
    side_by_side(gaps.size(), question.threads, tally, [&](std::size_t i) {
      Gap& gap = gaps[i];
      const std::int64_t grain =
          question.grain > 0 ? question.grain : grain_between(gap.from->seq, gap.to->seq);
      Bisection(lines[gap.line], gap, grain, tally).run();
    });
    for (Gap& gap : gaps) {
      std::ranges::move(gap.found, std::back_inserter(result.boundaries));
    }
  }
  result.questions = tally.done();
  return result;
}

}  // namespace spp
