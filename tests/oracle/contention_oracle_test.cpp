// FlowNetwork against an independent simulator: every completion time of contention_oracle.json
// (SimGrid 4.1, CM02; see README.md here), which prints nine digits.
//
// The driver adds what a FlowNetwork leaves to its caller: a flow waits for the sum of its links'
// latencies and then starts; chains start after their predecessor; in a ring, step k of a rank ends
// when its computing, its send to the right and its receive from the left have ended, and a
// transfer begins when both its sides have reached step k (rendezvous).
#include "base/json.hpp"
#include "sim/flow_network.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

using namespace spp;
using namespace spp::sim;

namespace {

struct Expectation {
  double simulated;
  double expected;
};

/// Timers and flows over one FlowNetwork.
class Driver {
 public:
  using Action = std::function<void()>;

  explicit Driver(const Json& links) {
    for (const Json& link : links) {
      network_.add_link(link.at("bytes_per_s").get<double>());
      latency_.push_back(link.at("latency_s").get<double>());
    }
  }

  [[nodiscard]] double now() const { return now_; }

  void at(double time, Action action) {
    timers_.emplace(time, actions_.size());
    actions_.push_back(std::move(action));
  }

  void send(const Json& route, double bytes, Action done) {
    double latency = 0;
    std::vector<Usage> usages;
    for (const Json& link : route) {
      const auto id = LinkId(link.get<std::size_t>());
      latency += latency_[id.index()];
      usages.push_back({.link = id});
    }
    const RouteId id = network_.route_for(usages);
    const std::size_t token = actions_.size();
    actions_.push_back(std::move(done));
    at(now_ + latency, [this, id, bytes, token] {
      network_.start({.route = id, .volume = bytes, .token = token});
    });
  }

  void run() {
    while (!timers_.empty() || network_.active_flows() > 0) {
      now_ = network_.next_completion().count();
      if (!timers_.empty()) {
        now_ = std::min(now_, timers_.top().first);
      }
      const auto ended = network_.advance_to(Seconds(now_));
      const std::vector<Completion> completions(ended.begin(), ended.end());
      for (const Completion& completion : completions) {
        act(completion.token);
      }
      while (!timers_.empty() && timers_.top().first <= now_) {
        const std::size_t action = timers_.top().second;
        timers_.pop();
        act(action);
      }
    }
  }

 private:
  using Timer = std::pair<double, std::size_t>;

  void act(std::size_t index) {
    const Action action = std::move(actions_[index]);  // actions_ may grow meanwhile
    action();
  }

  FlowNetwork network_;
  double now_ = 0;
  std::vector<double> latency_;
  std::vector<Action> actions_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
};

/// "flows": {id, bytes, route, not_before_s, after (id or -1), end_s}.
std::vector<Expectation> run_flows(const Json& scenario) {
  Driver driver(scenario.at("links"));
  std::map<int, double> end;
  std::multimap<int, const Json*> successors;
  std::function<void(const Json&)> start = [&](const Json& flow) {
    driver.at(std::max(driver.now(), flow.at("not_before_s").get<double>()),
              [&driver, &end, &successors, &start, &flow] {
                driver.send(flow.at("route"), flow.at("bytes").get<double>(),
                            [&driver, &end, &successors, &start, &flow] {
                              const int id = flow.at("id").get<int>();
                              end[id] = driver.now();
                              const auto [first, last] = successors.equal_range(id);
                              for (auto it = first; it != last; ++it) {
                                start(*it->second);
                              }
                            });
              });
  };
  for (const Json& flow : scenario.at("flows")) {
    if (const int after = flow.at("after").get<int>(); after >= 0) {
      successors.emplace(after, &flow);
    } else {
      start(flow);
    }
  }
  driver.run();
  std::vector<Expectation> result;
  for (const Json& flow : scenario.at("flows")) {
    result.push_back({end.at(flow.at("id").get<int>()), flow.at("end_s").get<double>()});
  }
  return result;
}

/// "ring": steps, block_bytes and per rank {compute_s_per_step, route_to_right, end_s}.
class Ring {
 public:
  explicit Ring(const Json& scenario)
      : driver_(scenario.at("links")),
        ring_(scenario.at("ring")),
        ranks_(ring_.at("ranks")),
        progress_(ranks_.size()) {}

  std::vector<Expectation> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      begin_step(rank);
    }
    driver_.run();
    std::vector<Expectation> result;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      result.push_back({progress_[rank].end, ranks_[rank].at("end_s").get<double>()});
    }
    return result;
  }

 private:
  struct Progress {
    int step = 0;
    int missing = 0;  // parts of the step: computing, send, receive
    double end = -1;
  };

  void begin_step(std::size_t rank) {
    Progress& p = progress_[rank];
    if (++p.step > ring_.at("steps").get<int>()) {
      p.end = driver_.now();
      return;
    }
    p.missing = 3;
    driver_.at(driver_.now() + ranks_[rank].at("compute_s_per_step").get<double>(),
               [this, rank] { end_part(rank); });
    meet(rank, p.step);
    meet((rank + ranks_.size() - 1) % ranks_.size(), p.step);
  }

  void meet(std::size_t sender, int step) {
    if (++posted_[{sender, step}] == 2) {
      driver_.send(ranks_[sender].at("route_to_right"), ring_.at("block_bytes").get<double>(),
                   [this, sender] {
                     end_part(sender);
                     end_part((sender + 1) % ranks_.size());
                   });
    }
  }

  void end_part(std::size_t rank) {
    if (--progress_[rank].missing == 0) {
      begin_step(rank);
    }
  }

  Driver driver_;
  const Json& ring_;
  const Json& ranks_;
  std::vector<Progress> progress_;
  std::map<std::pair<std::size_t, int>, int> posted_;  // (sender, step): sides that are there
};

}  // namespace

TEST_CASE("every completion time of the contention oracle is met") {
  const Json oracle = read_json(test::source_path("tests/oracle/contention_oracle.json"));
  std::size_t times = 0;
  for (const Json& scenario : oracle.at("scenarios")) {
    INFO(scenario.at("name").get<std::string>());
    const auto pairs = scenario.contains("flows") ? run_flows(scenario) : Ring(scenario).run();
    double makespan = 0;
    for (const Expectation& pair : pairs) {
      CHECK(pair.simulated == Catch::Approx(pair.expected).epsilon(1e-6).margin(0));
      makespan = std::max(makespan, pair.simulated);
    }
    CHECK(makespan ==
          Catch::Approx(scenario.at("makespan_s").get<double>()).epsilon(1e-6).margin(0));
    times += pairs.size();
  }
  CHECK(oracle.at("scenarios").size() == 12);
  CHECK(times == 382);
}
