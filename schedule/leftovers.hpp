// What a program holds that no later op asks for: the proof (coverage.hpp) and the order of rows
// (storage.hpp) forget it, or they would hold all that every rank has ever had.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace spp {

/// Of a program that is followed op by op: what no later op asks for. Nothing of few buffers.
class Leftovers {
 public:
  Leftovers() = default;  // nothing
  explicit Leftovers(const Program& program)
      : lifespans_(program.buffers.size() > few_buffers ? lifespans_of(program)
                                                        : std::vector<Lifespan>()) {}

  /// Calls forget(id) of each buffer whose last op is this one, the `position`-th of the program.
  template <class F>
  void behind(const Op& op, std::int64_t position, F forget) const {
    if (lifespans_.empty()) {
      return;
    }
    const Access access = access_of(op.body);
    for (const auto ids : {access.reads(), access.writes()}) {
      for (const BufferId id : ids) {
        if (lifespans_[id.index()].last == position) {
          forget(id);
        }
      }
    }
  }

 private:
  std::vector<Lifespan> lifespans_;
};

}  // namespace spp
