#include "machine/expert_exchange.hpp"

#include "base/error.hpp"
#include "machine/machine.hpp"
#include "machine/stack.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using Catch::Approx;

namespace {

ExpertExchangeSpec deepep() {
  return test::catalog().stack("deepep", "test").expert_exchange.at("hopper");
}

constexpr Bandwidth nvlink(450e9);
constexpr Bandwidth nic(50e9);

constexpr ExpertExchangeWork usual{
    .tokens = 4096, .hidden = 7168, .experts = 256, .experts_per_token = 8, .ranks = 8};

}  // namespace

TEST_CASE("a token goes to fewer ranks than it has experts") {
  CHECK(other_parts(256, 8, 1) == 0);
  // One expert: each of the other seven ranks with one eighth.
  CHECK(other_parts(256, 1, 8) == Approx(7.0 / 8));
  // Every expert: everywhere.
  CHECK(other_parts(8, 8, 8) == Approx(7));
  CHECK(other_parts(256, 8, 8) > 4);
  CHECK(other_parts(256, 8, 8) < 5);
}

TEST_CASE("an exchange grows with tokens, hidden and nodes, and shrinks with SMs") {
  const ExpertExchangeSpec spec = deepep();
  const auto time = [&](const ExpertExchangeWork& work) {
    return exchange_time(spec, work, nvlink, nic);
  };
  const Seconds now = time(usual);
  ExpertExchangeWork more = usual;
  more.tokens *= 2;
  CHECK(time(more) > now);
  CHECK(time(more) < 2 * now);
  more = usual;
  more.hidden *= 2;
  CHECK(time(more) > now);
  more = usual;
  more.ranks = 32;
  more.nodes = 4;
  CHECK(time(more) > now);
  more = usual;
  more.sms = 12;
  CHECK(time(more) > now);
  more.sms = 100000;  // NVLink is the limit then
  const double bytes = 2.0 * 4096 * 7168 * other_parts(256, 8, 8);
  CHECK(time(more).count() >= bytes / nvlink.value());
}

TEST_CASE("a low-latency exchange sends a copy for each expert") {
  const ExpertExchangeSpec spec = deepep();
  ExpertExchangeWork work = usual;
  work.low_latency = true;
  work.tokens = 1;
  const Seconds one = exchange_time(spec, work, nvlink, nic);
  CHECK(one.count() == Approx(spec.dispatch.low_latency_start.value.count()).epsilon(0.1));
  work.tokens = 128;
  const double copies = 2.0 * 128 * 7168 * 8 * 7 / 8;
  CHECK(exchange_time(spec, work, nvlink, nic).count() ==
        Approx(spec.dispatch.low_latency_start.value.count() +
               copies / (450e9 * spec.dispatch.low_latency_nvlink.value)));
  work.nodes = 2;
  work.ranks = 16;
  CHECK(exchange_time(spec, work, nvlink, nic) > one);
}
