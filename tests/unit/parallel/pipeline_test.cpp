#include "base/error.hpp"
#include "parallel/pipeline/messages.hpp"
#include "parallel/pipeline/walk.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

PipelineTimes equal(const PipelineShape& shape, StageTimes times) {
  return {
      .stages = std::vector<StageTimes>(static_cast<std::size_t>(shape.virtual_stages()), times),
      .messages = std::vector<double>(static_cast<std::size_t>(shape.stages))};
}

double end_of(std::string_view name, const PipelineShape& shape, StageTimes times) {
  return walk(pipelines::by_name(name, "test"), shape, equal(shape, times)).end();
}

std::string words(const Pipeline& pipeline, const PipelineShape& shape, int rank) {
  std::string text;
  for (const StageOp& op : pipeline.order(shape, rank)) {
    text += (text.empty() ? "" : " ") + to_string(op, shape.chunks);
  }
  return text;
}

/// 1F1B with the first two ops of rank 0's second half exchanged.
std::vector<StageOp> backward_too_early(const PipelineShape& shape, int rank) {
  std::vector<StageOp> ops = pipelines::by_name("1f1b", "test").order(shape, rank);
  if (rank == 0) {
    const auto first = std::ranges::find(ops, StageWork::backward, &StageOp::work);
    std::iter_swap(ops.begin(), first);
  }
  return ops;
}

std::vector<StageOp> twice(const PipelineShape& shape, int rank) {
  std::vector<StageOp> ops = pipelines::by_name("1f1b", "test").order(shape, rank);
  ops.push_back(ops.back());
  return ops;
}

std::string always(const PipelineShape& /*shape*/) { return ""; }

/// f(pipeline, shape) of every pipeline over up to 6 stages, 3 chunks and 13 micro-batches.
template <class F>
void for_each_legal(F f) {
  for (const Pipeline* pipeline : pipelines::all()) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        for (int micro_batches = 1; micro_batches <= 13; ++micro_batches) {
          const PipelineShape shape{
              .stages = stages, .chunks = chunks, .micro_batches = micro_batches};
          if (!why_not(*pipeline, shape).empty()) {
            continue;
          }
          INFO(pipeline->name << " p=" << stages << " v=" << chunks << " m=" << micro_batches);
          f(*pipeline, shape);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("every pipeline runs every micro-batch once each way, and ends") {
  for_each_legal([](const Pipeline& pipeline, const PipelineShape& shape) {
    CHECK(disproof(pipeline, shape).empty());
  });
}

TEST_CASE("a wrong order is refused with the op that waits") {
  const PipelineShape shape{.stages = 2, .micro_batches = 3};
  const Pipeline early{.name = "early", .why_not = always, .order = backward_too_early};
  CHECK_THAT(disproof(early, shape), ContainsSubstring("rank 0 waits for ever at B0"));
  const Pipeline doubled{.name = "twice", .why_not = always, .order = twice};
  CHECK_THAT(
      disproof(doubled, shape),
      ContainsSubstring("rank 0 runs the input gradient of micro-batch 2 in chunk 0 2 times"));
}

TEST_CASE("bubbles are those of the papers") {
  constexpr double f = 2;
  constexpr double i = 3;
  constexpr double w = 1.5;
  const StageTimes times{.forward = f, .input_gradient = i, .weight_gradient = w};
  for (const int p : {2, 4, 7}) {
    for (const int m : {8, 28}) {
      const PipelineShape shape{.stages = p, .micro_batches = m};
      const double work = m * (f + i + w);
      CHECK_THAT(end_of("gpipe", shape, times), WithinRel(work + (p - 1) * (f + i + w)));
      CHECK_THAT(end_of("1f1b", shape, times), WithinRel(work + (p - 1) * (f + i + w)));
      CHECK_THAT(end_of("zero-bubble", shape, times), WithinRel(work + (p - 1) * (f + i - w)));
    }
  }
  for (const int v : {2, 4}) {
    const PipelineShape shape{.stages = 4, .chunks = v, .micro_batches = 16};
    CHECK_THAT(end_of("interleaved", shape, times), WithinRel((v * 16 + 3) * (f + i + w)));
  }
}

TEST_CASE("messages that do not overlap keep their senders busy") {
  const PipelineShape shape{.stages = 2, .micro_batches = 4};
  const Pipeline& order = pipelines::by_name("1f1b", "test");
  PipelineTimes times = equal(shape, {.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  const double free = walk(order, shape, times).end();
  times.messages = {0.25, 0.25};
  times.overlap = true;
  const double hidden = walk(order, shape, times).end();
  times.overlap = false;
  const double exposed = walk(order, shape, times).end();
  CHECK(free < hidden);
  CHECK(hidden < exposed);
}

TEST_CASE("each message takes its own link") {
  const PipelineShape shape{.stages = 3, .micro_batches = 1};
  const Pipeline& order = pipelines::by_name("1f1b", "test");
  PipelineTimes times = equal(shape, {.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  times.messages = {0.25, 4, 100};  // nothing goes from the last to the first
  CHECK(walk(order, shape, times).end() == Approx(3 * 3 + 2 * 4.25));
  const PipelineWalk walked = walk(order, shape, times);
  CHECK(walked.ranks[0].sending == Approx(0.25));
  CHECK(walked.ranks[1].sending == Approx(4.25));  // there and back
}

TEST_CASE("messages of one rank that take the same links go one after the other") {
  const PipelineShape shape{.stages = 3, .micro_batches = 20};
  const Pipeline& order = pipelines::by_name("1f1b", "test");
  PipelineTimes times = equal(shape, {.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  times.messages = {6, 6, 6};
  times.overlap = true;
  times.across = {true, false, false};
  const double apart = walk(order, shape, times).end();
  times.across = {true, true, false};
  const PipelineWalk together = walk(order, shape, times);
  CHECK(together.end() > apart + 15);
  std::vector<double> arrivals;
  for (const StageInterval& interval : together.ranks[1].ops) {
    arrivals.push_back(interval.arrives);
  }
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    CHECK(arrivals[i] >= arrivals[i - 1] + 6);
  }
}

TEST_CASE("stages of a node that share a network card send one after the other, there and back") {
  const PipelineShape shape{.stages = 6, .micro_batches = 120};
  const Pipeline& order = pipelines::by_name("zero-bubble", "test");
  PipelineTimes times = equal(shape, {.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  times.messages = {0.05, 2, 0.05, 2, 0.05, 2};
  times.overlap = true;
  times.across = {false, true, false, true, false, true};  // two stages a node
  times.cards = {0, 1, 2, 3, 4, 5};
  const double own = walk(order, shape, times).end();
  times.cards = {0, 0, 1, 1, 2, 2};
  const double shared = walk(order, shape, times).end();
  // Through the card of the node in the middle go an activation and a gradient of each micro-batch.
  CHECK(shared > 4 * 120);
  CHECK(shared > 1.2 * own);
  times.messages.assign(6, 0);
  CHECK(walk(order, shape, times).end() < 3.2 * 120);
}

// Stages of any times: some ranks come into step soon, some late, some never.
TEST_CASE("a walk that leaves out what repeats ends as the whole one, whatever stages take") {
  std::mt19937 random(7);  // NOLINT: the same every time
  int left_out = 0;
  for (const Pipeline* pipeline : pipelines::all()) {
    for (int i = 0; i < 200; ++i) {
      const PipelineShape shape{.stages = 1 + i % 5,
                                .chunks = pipeline->chunks ? 2 + i % 2 : 1,
                                .micro_batches = (1 + i % 5) * (7 + i % 20)};
      if (!why_not(*pipeline, shape).empty()) {
        continue;
      }
      std::uniform_int_distribution<int> slower(0, i % 7);
      PipelineTimes times{.overlap = i % 2 == 0};
      for (int r = 0; r < shape.stages; ++r) {
        times.messages.push_back(i % 3 * 0.17 + 0.05 * slower(random) + (i % 11 == 0 ? 2.5 : 0));
        times.across.push_back(i % 4 < 2);
        times.cards.push_back(i % 8 < 4 ? r / 2 : r);
      }
      for (int s = 0; s < shape.virtual_stages(); ++s) {
        times.stages.push_back({.forward = 1 + 0.3 * slower(random),
                                .input_gradient = 1.2 + 0.1 * slower(random),
                                .weight_gradient = 0.7});
      }
      const PipelineWalk all = walk(*pipeline, shape, times);
      const PipelineWalk ends = walk_ends(*pipeline, shape, times);
      INFO(pipeline->name << " p=" << shape.stages << " v=" << shape.chunks
                          << " m=" << shape.micro_batches << " case " << i);
      for (std::size_t r = 0; r < all.ranks.size(); ++r) {
        const PipelineRank& whole = all.ranks[r];
        const PipelineRank& rank = ends.ranks[r];
        const std::size_t missing = whole.ops.size() - rank.ops.size();
        left_out += missing > 0 ? 1 : 0;
        CHECK_THAT(rank.busy, WithinRel(whole.busy, 1e-9));
        CHECK_THAT(rank.sending + 1, WithinRel(whole.sending + 1, 1e-9));
        for (std::size_t k = 0; k < rank.ops.size(); ++k) {
          CHECK(rank.ops[k].op == whole.ops[missing + k].op);
          CHECK_THAT(rank.ops[k].begin + 1, WithinRel(whole.ops[missing + k].begin + 1, 1e-9));
        }
      }
    }
  }
  CHECK(left_out > 500);
}

TEST_CASE("1F1B reads as in the paper") {
  const Pipeline& order = pipelines::by_name("1f1b", "test");
  const PipelineShape shape{.stages = 4, .micro_batches = 5};
  CHECK(words(order, shape, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  CHECK(words(order, shape, 2) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  const Pipeline& virtual_stages = pipelines::by_name("interleaved", "test");
  const PipelineShape interleaved{.stages = 2, .chunks = 2, .micro_batches = 2};
  CHECK(words(virtual_stages, interleaved, 1) == "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0");
}

TEST_CASE("what is in flight follows from the order") {
  const std::vector<HeldByChunk> one{{.forward = 1, .input_gradient = 1}};
  const PipelineShape shape{.stages = 4, .micro_batches = 8};
  const auto most = [&](std::string_view name, int rank) {
    return most_held(pipelines::by_name(name, "test").order(shape, rank), one);
  };
  CHECK(most("gpipe", 0) == 8);
  CHECK(most("1f1b", 0) == 4);
  CHECK(most("1f1b", 3) == 1);
  CHECK(most("zero-bubble", 0) <= 4);
  CHECK(most("zero-bubble", 3) <= 4);
  // p (1 + (p-1)/(p v)) of the rank's layers (arXiv:2205.05198, section 4.2.3).
  const PipelineShape interleaved{.stages = 4, .chunks = 2, .micro_batches = 8};
  const std::vector<HeldByChunk> half(2, {.forward = 0.5});
  CHECK_THAT(most_held(pipelines::by_name("interleaved", "test").order(interleaved, 0), half),
             WithinRel(4 * (1 + 3.0 / 8)));
}

TEST_CASE("what waits between the halves of a backward is held apart from what waits for it") {
  const std::vector<StageOp> order{{.work = StageWork::forward, .micro_batch = 0},
                                   {.work = StageWork::forward, .micro_batch = 1},
                                   {.work = StageWork::input_gradient, .micro_batch = 0},
                                   {.work = StageWork::input_gradient, .micro_batch = 1},
                                   {.work = StageWork::weight_gradient, .micro_batch = 0},
                                   {.work = StageWork::weight_gradient, .micro_batch = 1}};
  const auto most = [&](double forward, double input_gradient) {
    return most_held(order, std::vector{HeldByChunk{forward, input_gradient}});
  };
  CHECK(most(1, 0) == 2);
  CHECK(most(1, 1) == 2);
  CHECK(most(1, 5) == 10);
  CHECK(most(5, 1) == 10);
}

TEST_CASE("what is in flight is known from the beginning and the end of an order that repeats") {
  for (const Pipeline* pipeline : pipelines::all()) {
    for (const int stages : {1, 2, 3, 5}) {
      for (const int chunks : {1, 2, 3}) {
        for (int micro_batches = stages; micro_batches <= 9 * stages + 1; ++micro_batches) {
          const PipelineShape shape{
              .stages = stages, .chunks = chunks, .micro_batches = micro_batches};
          if (!why_not(*pipeline, shape).empty()) {
            continue;
          }
          std::vector<HeldByChunk> held;
          for (int c = 0; c < chunks; ++c) {
            held.push_back({.forward = 1.0 + c, .input_gradient = 3.0 - c});
          }
          for (int rank = 0; rank < stages; ++rank) {
            INFO(pipeline->name << " p=" << stages << " v=" << chunks << " m=" << micro_batches);
            REQUIRE(most_held(*pipeline, shape, rank, held) ==
                    most_held(pipeline->order(shape, rank), held));
          }
        }
      }
    }
  }
}

TEST_CASE("what a pipeline says of itself is true of its order") {
  for (const Pipeline* pipeline : pipelines::all()) {
    for (const int stages : {2, 3, 4}) {
      for (const int chunks : {1, 2}) {
        for (const int batches : {stages, 3 * stages}) {
          const PipelineShape shape{.stages = stages, .chunks = chunks, .micro_batches = batches};
          if (!why_not(*pipeline, shape).empty()) {
            continue;
          }
          for (int rank = 0; rank < stages; ++rank) {
            INFO(pipeline->name << " " << stages << " x " << chunks << ", " << batches << " on "
                                << rank);
            const std::vector<StageOp> order = pipeline->order(shape, rank);
            const std::vector<HeldByChunk> held(static_cast<std::size_t>(chunks),
                                                {.forward = 1, .input_gradient = 1});
            CHECK(most_held(order, held) >= chunks * pipeline->in_flight(shape, rank));
            CHECK(std::ranges::any_of(order, [](const StageOp& op) {
                    return op.work == StageWork::input_gradient;
                  }) == pipeline->cuts_backward);
            CHECK((order.back().work == StageWork::backward || !pipeline->ends_with_backward));
          }
        }
      }
    }
  }
  CHECK(pipelines::usual(1).name == "1f1b");
  CHECK(pipelines::usual(2).name == "interleaved");
}

TEST_CASE("pipelines that cannot be are refused with a reason") {
  const Pipeline& interleaved = pipelines::by_name("interleaved", "test");
  CHECK_THAT(why_not(interleaved, {.stages = 4, .chunks = 1, .micro_batches = 8}),
             ContainsSubstring("two virtual stages"));
  CHECK_THAT(why_not(interleaved, {.stages = 4, .chunks = 2, .micro_batches = 6}),
             ContainsSubstring("a multiple of 4 micro-batches, not 6 (nearest: 4)"));
  CHECK_THAT(why_not(pipelines::by_name("1f1b", "test"), {.stages = 2, .chunks = 2}),
             ContainsSubstring("1f1b gives a rank one stage"));
  CHECK_THROWS_AS(pipelines::by_name("1f2b", "--pipeline"), InputError);
}

namespace {

/// Ranks that do one step after the other, a message blocking both of its ends; who is stuck at
/// what, or "".
std::string blocked(const std::vector<std::vector<StageStep>>& programs) {
  std::vector<std::size_t> next(programs.size(), 0);
  const auto at = [&](std::size_t rank) {
    return next[rank] < programs[rank].size() ? &programs[rank][next[rank]] : nullptr;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      const StageStep* step = at(rank);
      if (step == nullptr) {
        continue;
      }
      if (step->kind != StageStepKind::work) {
        const auto peer = static_cast<std::size_t>(step->peer);
        const StageStep* other = at(peer);
        if (other == nullptr || other->kind == StageStepKind::work || other->op != step->op ||
            other->kind == step->kind || other->peer != static_cast<int>(rank)) {
          continue;
        }
        ++next[peer];
      }
      ++next[rank];
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    if (const StageStep* step = at(rank)) {
      return std::to_string(rank) + " at " + to_string(*step, 2);
    }
  }
  return "";
}

}  // namespace

TEST_CASE("messages of a pipeline may block, and each comes before what it is for") {
  for_each_legal([](const Pipeline& pipeline, const PipelineShape& shape) {
    const auto programs = with_messages(pipeline, shape);
    REQUIRE(blocked(programs).empty());
    for (int rank = 0; rank < shape.stages; ++rank) {
      std::vector<StageOp> work;
      std::size_t sent = 0, received = 0;
      for (const StageStep& step : programs[static_cast<std::size_t>(rank)]) {
        sent += step.kind == StageStepKind::send ? 1 : 0;
        received += step.kind == StageStepKind::receive ? 1 : 0;
        if (step.kind == StageStepKind::work) {
          work.push_back(step.op);
        }
      }
      REQUIRE(work == pipeline.order(shape, rank));
      // Every virtual stage but the first and the last hands on and back.
      const auto edges = [&](int from) {
        int count = 0;
        for (int chunk = 0; chunk < shape.chunks; ++chunk) {
          const int stage = shape.virtual_stage(rank, chunk);
          count += shape.stages > 1 && stage != from ? shape.micro_batches : 0;
        }
        return static_cast<std::size_t>(count);
      };
      REQUIRE(sent == edges(shape.virtual_stages() - 1) + edges(0));
      REQUIRE(received == sent);
    }
  });
}

TEST_CASE("steps of a pipeline in words") {
  const auto programs =
      with_messages(pipelines::by_name("1f1b", "test"), {.stages = 2, .micro_batches = 2});
  std::string text;
  for (const StageStep& step : programs[0]) {
    text += (text.empty() ? "" : "; ") + to_string(step, 1);
  }
  CHECK(text == "F0; send F0 to 1; F1; send F1 to 1; receive B0 from 1; B0; receive B1 from 1; B1");
}
