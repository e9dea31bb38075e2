// How long work tells how far it is, and hears whether it should go on. Libraries never print; who
// calls them decides what becomes of it.
#pragma once

#include <functional>

namespace spp {

/// Told now and then: `done` of about `of` (ops, plans, …); `of` may be an estimate. False: give
/// up, nobody waits any more.
using Watch = std::function<bool(double done, double of)>;

}  // namespace spp
