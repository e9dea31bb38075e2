#include "samples/series.hpp"

#include "base/error.hpp"
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
                           .value_dim = 16,
                           .batch = 3,
                           .mask = {.kind = MaskKind::window, .window = 5},
                           .dtype = DType::bf16};
  const Json json = to_json(s);
  const Series back = read_series(JsonView(json, "test"));
  CHECK(back.what == s.what);
  CHECK(back.seconds == s.seconds);
  CHECK(back.block == s.block);
}

TEST_CASE("a GEMM's series survives being written and read, and another kind is refused") {
  Series s{.suite = "layer",
           .what = "gemm",
           .scope = "",
           .ranks = 1,
           .active = 2,
           .size = 4096,
           .seconds = std::vector<double>(7, 1e-3)};
  s.gemm = GemmBlock{.kind = GemmKind::weight_gradient,
                     .shape = {.m = 64, .n = 32, .k = 16},
                     .dtype = DType::bf16};
  Json json = to_json(s);
  CHECK(read_series(JsonView(json, "test")).gemm == s.gemm);
  json["gemm"]["kind"] = "backward";
  CHECK_THAT(spp::test::message_of<InputError>([&] { (void)read_series(JsonView(json, "test")); }),
             Catch::Matchers::ContainsSubstring("gemm.kind: 'backward' is none of forward"));
}

TEST_CASE("a sample that takes no time is refused, one of a byte's core time is not") {
  Json json = {{"suite", "links"}, {"what", "cpu"}, {"scope", "intra"},         {"ranks", 2},
               {"active", 2},      {"bytes", 1024}, {"seconds", {1e-11, 2e-11}}};
  CHECK(read_series(JsonView(json, "x.partial")).seconds.front() == 1e-11);
  json["seconds"][1] = 0;
  CHECK_THROWS_WITH(read_series(JsonView(json, "x.partial")),
                    "x.partial: seconds[1]: is 0: nothing that is measured takes no time");
}
