#include "planner/layouts.hpp"

#include "machine/machine.hpp"
#include "parallel/attention/strategy.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <numeric>
#include <set>

using namespace spp;
using Catch::Approx;

namespace {

sim::Cluster one_node() {
  const MachineSpec spec = test::catalog().machine("dgx-h100", "test");
  return {spec, 1, 8};
}

Request packed(const sim::Cluster& cluster, std::vector<std::int64_t> ends) {
  Request r;
  r.problem = {.seq = ends.back(), .q_heads = 8, .kv_heads = 8, .head_dim = 128};
  r.problem.mask.document_ends = std::move(ends);
  r.cluster = &cluster;
  r.gpus = cluster.gpus();
  r.memory = Bytes(70'000'000'000);
  return r;
}

const LayoutWork& of(const std::vector<LayoutWork>& list, Layout layout) {
  const auto at = std::ranges::find_if(
      list, [&](const LayoutWork& work) { return work.plan.attention.layout == layout; });
  REQUIRE(at != list.end());
  return *at;
}

}  // namespace

// One long document and short ones: whole-sequence chunks give its pairs to the ranks where it
// lies, pieces of it to all alike.
TEST_CASE("layouts of packed documents are compared by work, padding and time") {
  const sim::Cluster cluster = one_node();
  Request request = packed(cluster, {40'000, 40'013, 50'000, 65'536});
  request.fixed.strategy = "zigzag-ring";
  const PlanResult result = plan(request);
  REQUIRE(result.any_fits);
  const std::vector<LayoutWork> layouts = compare_layouts(request, result);
  REQUIRE(layouts.size() == 6);
  CHECK(std::ranges::is_sorted(layouts, {}, [](const LayoutWork& w) { return *w.step; }));
  CHECK(gain_of(layouts).value() == Approx(*layouts[1].step / *layouts[0].step - 1));

  const LayoutWork& dealt = of(layouts, Layout::document_zigzag);
  CHECK(dealt.imbalance == 0);
  CHECK(dealt.padding_tokens == 3 + 13);  // 13 to 16, 9,987 to 10,000; the others divide
  CHECK(dealt.pairs.size() == 8);
  CHECK(of(layouts, Layout::zigzag).padding_tokens == 0);
  CHECK(of(layouts, Layout::zigzag).imbalance > 0.2);
  const LayoutWork& contiguous = of(layouts, Layout::contiguous);
  CHECK(contiguous.imbalance > 0.5);
  CHECK(contiguous.plan.attention.strategy == "dist-flash-attn");
  const LayoutWork& balanced = of(layouts, Layout::balanced);
  CHECK(balanced.imbalance < 0.05);
  CHECK(balanced.plan.attention.strategy == "group-cast");
  // Of 65,536 tokens a rank has 8,192: the first and the last document are shared by some ranks,
  // the others lie whole.
  const LayoutWork& whole = of(layouts, Layout::whole_documents);
  CHECK(whole.imbalance < 0.2);
  CHECK(whole.padding_tokens == 0);
  CHECK(whole.plan.attention.strategy == "group-cast");
  // The real pairs, however they are dealt out.
  const TokenRange all{.begin = 0, .count = request.problem.seq};
  CHECK(std::accumulate(contiguous.pairs.begin(), contiguous.pairs.end(), std::int64_t{0}) ==
        allowed_pairs(all, all, request.problem.mask));
}

TEST_CASE("without documents or without a ring no layouts are compared") {
  const sim::Cluster cluster = one_node();
  Request whole = packed(cluster, {8192});
  whole.problem.mask.document_ends.clear();
  CHECK(compare_layouts(whole, plan(whole)).empty());
  Request ulysses = packed(cluster, {4096, 8192});
  ulysses.fixed.ulysses = 8;
  CHECK(compare_layouts(ulysses, plan(ulysses)).empty());
  CHECK_FALSE(gain_of({}).has_value());
}

TEST_CASE("a search over packed documents considers document-zigzag, one without does not") {
  const sim::Cluster cluster = one_node();
  Request request = packed(cluster, {1000, 8192});
  const auto has = [](const std::vector<SequencePlan>& plans, std::string_view strategy) {
    return std::ranges::any_of(plans, [&](const SequencePlan& p) {
      return p.strategy == strategy && p.layout == Layout::document_zigzag;
    });
  };
  const std::vector<SequencePlan> plans = legal_plans(request, nullptr);
  for (const std::string_view strategy : {"zigzag-ring", "usp", "startrail", "double-ring"}) {
    CHECK(has(plans, strategy));
  }
  CHECK_FALSE(has(plans, "ring"));
  request.problem.mask.document_ends.clear();
  CHECK_FALSE(has(legal_plans(request, nullptr), "usp"));
}

TEST_CASE("a search tries group-cast where masks hide most, who names it gets it anywhere") {
  const sim::Cluster cluster = one_node();
  const auto layouts_tried = [](const Request& request) {
    std::set<Layout> layouts;
    for (const SequencePlan& p : legal_plans(request, nullptr)) {
      if (p.strategy == "group-cast") {
        layouts.insert(p.layout);
      }
    }
    return layouts;
  };
  Request request = packed(cluster, {1000, 8192});
  CHECK(layouts_tried(request) ==
        std::set{Layout::balanced, Layout::contiguous, Layout::whole_documents});
  request.problem.mask = {.kind = MaskKind::window, .window = 512};
  CHECK(layouts_tried(request) == std::set{Layout::contiguous});
  request.problem.mask = {.kind = MaskKind::causal};
  CHECK(layouts_tried(request).empty());
  request.fixed.strategy = "group-cast";
  CHECK_FALSE(layouts_tried(request).empty());
  CHECK(default_plan(request).layout == Layout::balanced);
}

TEST_CASE("over contiguous chunks a group-cast moves less than all-gather, of a window its halo") {
  const Problem problem{.seq = 8192,
                        .q_heads = 8,
                        .kv_heads = 8,
                        .head_dim = 64,
                        .mask = {.kind = MaskKind::window, .window = 257}};
  const auto sent = [&](std::string_view strategy) {
    const SequencePlan plan{.strategy = std::string(strategy), .ring = 8};
    const ClosedForm form =
        strategies::by_name(strategy, "test").closed_form(problem, plan, Phase::forward, {});
    Bytes total;
    for (const CommTerm& term : form.comm()) {
      total += term.total;
    }
    return total.value();
  };
  // 256 keys and values before each of seven chunks, 8 heads of 64 in 2 bytes.
  CHECK(sent("group-cast") == 7 * 256 * 2 * 8 * 64 * 2);
  CHECK(sent("all-gather") == 8 * 7 * 1024 * 2 * 8 * 64 * 2);
}
