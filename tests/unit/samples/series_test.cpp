#include "samples/series.hpp"

#include "tests/support/catch.hpp"

using namespace spp;

TEST_CASE("a series survives being written and read") {
  Series s{.suite = "links",
           .what = "pair",
           .scope = "intra",
           .ranks = 2,
           .active = 2,
           .size = 64,
           .seconds = std::vector<double>(7, 1.25e-6)};
  s.block = AttentionBlock{.phase = Phase::backward,
                           .q = TokenSet({.begin = 0, .count = 8}, {.begin = 24, .count = 8}),
                           .k = TokenSet({.begin = 3, .count = 8, .stride = 4}),
                           .q_heads = 4,
                           .kv_heads = 2,
                           .head_dim = 32,
                           .batch = 3,
                           .mask = {.kind = MaskKind::window, .window = 5},
                           .dtype = DType::bf16};
  const Json json = to_json(s);
  const Series back = read_series(JsonView(json, "test"));
  CHECK(back.what == s.what);
  CHECK(back.seconds == s.seconds);
  CHECK(back.block == s.block);
}
