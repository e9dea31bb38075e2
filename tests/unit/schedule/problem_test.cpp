#include "schedule/problem.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"

#include <vector>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;

namespace {

Problem heads(int q, int kv) { return {.seq = 1024, .q_heads = q, .kv_heads = kv}; }

/// How often each head is dealt out, over all parts.
template <class Part>
std::vector<int> times_dealt(int total, int parts, Part part) {
  std::vector<int> times(static_cast<std::size_t>(total));
  for (int i = 0; i < parts; ++i) {
    const HeadRange range = part(i);
    for (int h = range.begin; h < range.end; ++h) {
      ++times.at(static_cast<std::size_t>(h));
    }
  }
  return times;
}

}  // namespace

TEST_CASE("every policy deals each query head to one part and each KV head to `replicas` parts") {
  int splits = 0;
  for (const HeadPolicy policy :
       {HeadPolicy::divide, HeadPolicy::replicate, HeadPolicy::pad, HeadPolicy::uneven}) {
    for (int kv = 1; kv <= 12; ++kv) {
      for (int group = 1; group <= 8; ++group) {
        for (int parts = 1; parts <= 24; ++parts) {
          const Problem problem = heads(kv * group, kv);
          if (!HeadSplit::why_not(problem, parts, policy).empty()) {
            continue;
          }
          CAPTURE(to_string(policy), kv, group, parts);
          const HeadSplit split(problem, parts, policy);
          ++splits;
          const auto q = times_dealt(split.q_heads(), parts, [&](int i) { return split.q(i); });
          const auto k = times_dealt(split.kv_heads(), parts, [&](int i) { return split.kv(i); });
          REQUIRE(q == std::vector<int>(q.size(), 1));
          REQUIRE(k == std::vector<int>(k.size(), split.replicas()));
          for (int i = 0; i < parts; ++i) {  // each query head lies beside its own KV head
            const HeadRange mine = split.q(i);
            REQUIRE(mine.count() > 0);
            REQUIRE(mine.begin / group >= split.kv(i).begin);
            REQUIRE((mine.end - 1) / group < split.kv(i).end);
            REQUIRE((!split.even() || mine.count() == split.q(0).count()));
          }
        }
      }
    }
  }
  CHECK(splits > 1000);
}

TEST_CASE("divide gives each rank its share of KV heads") {
  const HeadSplit split(heads(32, 8), 4, HeadPolicy::divide);
  CHECK(split.kv(1) == HeadRange{2, 4});
  CHECK(split.q(1) == HeadRange{8, 16});
  CHECK(split.replicas() == 1);
  CHECK(split.even());
}

TEST_CASE("replicate gives U/kv_heads ranks the same KV head") {
  const HeadSplit split(heads(32, 8), 16, HeadPolicy::replicate);
  CHECK(split.replicas() == 2);
  CHECK(split.kv(2) == HeadRange{1, 2});
  CHECK(split.kv(3) == HeadRange{1, 2});
  CHECK(split.q(3) == HeadRange{6, 8});
}

TEST_CASE("pad adds whole KV groups until they divide") {
  const HeadSplit split(heads(30, 10), 4, HeadPolicy::pad);  // 10 -> 12 KV heads, 3 queries each
  CHECK(split.kv_heads() == 12);
  CHECK(split.q_heads() == 36);
  CHECK(split.q(3) == HeadRange{27, 36});
}

TEST_CASE("uneven gives the first ranks one KV head more") {
  const HeadSplit split(heads(20, 10), 4, HeadPolicy::uneven);  // 3 3 2 2
  CHECK(split.kv(0) == HeadRange{0, 3});
  CHECK(split.kv(3) == HeadRange{8, 10});
  CHECK(split.q(3) == HeadRange{16, 20});
  CHECK_FALSE(split.even());
}

TEST_CASE("a policy that cannot split says why, with the numbers") {
  CHECK_THAT(HeadSplit::why_not(heads(30, 10), 4, HeadPolicy::divide),
             ContainsSubstring("10 KV heads do not divide over 4 ranks"));
  CHECK_FALSE(HeadSplit::why_not(heads(40, 10), 16, HeadPolicy::replicate).empty());
  CHECK_FALSE(HeadSplit::why_not(heads(4, 4), 8, HeadPolicy::uneven).empty());
  CHECK_THROWS_AS(HeadSplit(heads(30, 10), 4, HeadPolicy::divide), InternalError);
}

TEST_CASE("words of a problem are read back") {
  for (const DType v : {DType::bf16, DType::fp16, DType::fp32}) {
    CHECK(parse_dtype(to_string(v), "x") == v);
  }
  for (const Phase v : {Phase::forward, Phase::backward}) {
    CHECK(parse_phase(to_string(v), "x") == v);
  }
  for (const Layout v : {Layout::contiguous, Layout::zigzag, Layout::striped,
                         Layout::document_zigzag, Layout::document_contiguous, Layout::balanced}) {
    CHECK(parse_layout(to_string(v), "x") == v);
  }
  for (const HeadPolicy v :
       {HeadPolicy::divide, HeadPolicy::replicate, HeadPolicy::pad, HeadPolicy::uneven}) {
    CHECK(parse_head_policy(to_string(v), "x") == v);
  }
  for (const RankOrder v : {RankOrder::block, RankOrder::cyclic}) {
    CHECK(parse_rank_order(to_string(v), "x") == v);
  }
  for (const Mask& v : {Mask{.kind = MaskKind::full}, Mask{.kind = MaskKind::causal},
                        Mask{.kind = MaskKind::window, .window = 4096},
                        Mask{.kind = MaskKind::full, .document_ends = {7, 20}},
                        Mask{.kind = MaskKind::causal, .document_ends = {7, 20}, .pieces = 8}}) {
    CHECK(parse_mask(to_string(v), "x") == v);
  }
  CHECK(to_string(Mask{.document_ends = {7, 20}, .pieces = 8}) == "causal@7+13x8");
}

TEST_CASE("zigzag chunks pair the r-th with the r-th last of 2R") {
  CHECK(to_string(chunk_tokens(64, Layout::zigzag, 1, 4)) == "8:8+48:8");
  CHECK(to_string(chunk_tokens(64, Layout::zigzag, 3, 4)) == "24:16");  // adjoining: one range
  CHECK(to_string(chunk_tokens(64, Layout::contiguous, 1, 4)) == "16:16");
  CHECK(to_string(chunk_tokens(64, Layout::striped, 1, 4)) == "1:16/4");
  const Problem behind{.seq = 64, .cached = 32};
  CHECK(to_string(chunk_of_queries(behind, Layout::zigzag, 1, 4)) == "40:8+80:8");
  CHECK(to_string(chunk_of_keys(behind, Layout::zigzag, 1, 4)) == "4:4+24:4+40:8+80:8");
  CHECK(to_string(chunk_of_keys(behind, Layout::zigzag, 0, 4)) == "0:4+28:12+88:8");
  CHECK(behind.all_tokens() == 96);
}

TEST_CASE("a mistyped word is answered with the nearest one") {
  CHECK(message_of<InputError>([] { parse_layout("zig-zag", "--layout"); }) ==
        "--layout: unknown value 'zig-zag' (did you mean 'zigzag'?)");
  CHECK_THAT(message_of<InputError>([] { parse_mask("casual", "--mask"); }),
             ContainsSubstring("did you mean 'causal'?"));
  for (const std::string_view wrong :
       {"causal@", "causal@4x", "causal@x4", "causal@4x1", "causal@4x0", "causal@4x2x2",
        "causal@4+0x2", "causal@4x2097152", "causal@2147483648+2147483648"}) {
    CAPTURE(wrong);
    CHECK(message_of<InputError>([&] { parse_mask(wrong, "file:7"); }).starts_with("file:7: "));
  }
}
