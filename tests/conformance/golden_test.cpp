// The schedules of strategies whose ranks do different things, as text, over 4 ranks: what a reader
// can follow by hand, and what no change may touch unseen.
#include "schedule/text.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

namespace spp {
namespace {

/// Both phases, as far as the strategy has them; 15 tokens, so that one is padded. Dealt out by
/// documents: of 10 and 5, which are padded to 16 and 8.
std::string text_of(const Strategy& strategy, Layout layout) {
  Problem problem{
      .seq = 15, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .function = strategy.function};
  if (needs_documents(layout) || layout == Layout::balanced) {
    problem.mask.document_ends = {10, 15};
  }
  const SequencePlan plan{.strategy = std::string(strategy.name), .ring = 4, .layout = layout};
  REQUIRE(why_not(strategy, problem, plan).legal());
  std::string text;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    if (why_not(strategy, phase).legal()) {
      text += to_text(strategy.build(problem, plan, phase, {}));
    }
  }
  return text;
}

void check_golden(std::string_view strategy, Layout layout, const std::string& file) {
  INFO(strategy);
  CHECK(text_of(strategies::by_name(strategy, "test"), layout) ==
        test::read_text(test::source_path("tests/golden/" + file)));
}

TEST_CASE("pass-Q over 4 ranks is the schedule of its golden text") {
  check_golden("pass-q-ring", Layout::zigzag, "pass_q_ring_of_four.txt");
}

TEST_CASE("a zigzag ring of documents over 4 ranks is the schedule of its golden text") {
  check_golden("zigzag-ring", Layout::document_zigzag, "document_zigzag_ring_of_four.txt");
}

TEST_CASE("a group-cast over 4 ranks is the schedule of its golden text") {
  check_golden("group-cast", Layout::balanced, "group_cast_of_four.txt");
}

TEST_CASE("a group-cast of whole documents over 4 ranks is the schedule of its golden text") {
  check_golden("group-cast", Layout::whole_documents, "whole_documents_of_four.txt");
}

TEST_CASE("DistFlashAttn over 4 ranks is the schedule of its golden text") {
  check_golden("dist-flash-attn", Layout::contiguous, "dist_flash_attn_of_four.txt");
}

TEST_CASE("Ring Self-Attention over 4 ranks is the schedule of its golden text") {
  check_golden("rsa", Layout::contiguous, "rsa_of_four.txt");
}

TEST_CASE("LASP-2 over 4 ranks is the schedule of its golden text") {
  check_golden("lasp-2", Layout::contiguous, "lasp_2_of_four.txt");
}

}  // namespace
}  // namespace spp
