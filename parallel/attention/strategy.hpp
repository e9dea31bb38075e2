// A strategy: how one attention call is split. One file each in parallel/attention/, listed in
// parallel/CMakeLists.txt, from which the table `strategies::all()` is generated.
#pragma once

#include "parallel/attention/closed_form.hpp"
#include "schedule/schedule.hpp"

#include <span>
#include <string>
#include <string_view>

namespace spp {

/// Which degrees a strategy can use above 1; the others must be 1.
struct Degrees {
  bool ulysses = false;
  bool ring = false;
};

struct Strategy {
  std::string_view name;   // "usp"
  std::string_view title;  // "USP: Ulysses inside, ring outside"
  std::string_view paper;
  Degrees degrees;
  std::span<const Parameter* const> parameters = {};  // of its own
  std::span<const Layout> layouts;
  /// What only this strategy demands; "" if legal. Common rules are in why_not() below.
  std::string (*why_not)(const Problem&, const SequencePlan&);
  /// `problem` as requested; padding happens inside.
  Schedule (*build)(const Problem& problem, const SequencePlan&, Phase, const BuildOptions&);
  ClosedForm (*closed_form)(const Problem& problem, const SequencePlan&, Phase,
                            const BuildOptions&);
  AttentionFunction function = AttentionFunction::softmax;
  /// False: inference only; `build` and `closed_form` are never asked for the backward phase.
  bool backward = true;
  /// Made for masks under which ranks need few of the others' keys: packed documents, windows. A
  /// search tries it there; elsewhere who names it gets it.
  bool for_sparse_masks = false;
  /// Its queries meet keys that are cached in front of the sequence, where no axis but a ring
  /// splits tokens.
  bool behind_cache = false;
  /// Without Ulysses every rank gets all keys before its queries meet any, so they can be picked
  /// among first.
  bool gathers_keys = false;
  /// Why its softmax has no attention sinks; empty: it takes them.
  std::string_view no_sinks = {};
};

/// Rules: "function", "degrees", "heads", "layout", "sequence", "cached", "phase", "strategy",
/// "sparse", "sinks", a parameter's name.
WhyNot why_not(const Strategy& strategy, const Problem& problem, const SequencePlan& plan);
/// Why keys cannot be picked among all before a rank's queries meet them; rule "sparse".
WhyNot why_not_picked(const SequencePlan& plan);
/// Why a layout by_work() cannot serve layers that see by several masks; rule "layout".
WhyNot why_not_by_work(Layout layout);
/// Why a strategy takes no attention sinks, if it does not; rule "sinks".
WhyNot why_not_sinks(const Strategy& strategy);
/// Why a strategy does not have a phase, whatever the plan.
WhyNot why_not(const Strategy& strategy, Phase phase);

namespace strategies {
/// All strategies, in the order of parallel/CMakeLists.txt. Generated.
std::span<const Strategy* const> all();
/// What they take of their own, in their order; a name is that of one parameter.
std::span<const Parameter* const> parameters();
/// The simplest that can use these degrees and this layout: the first in the table's order, which
/// is that of simplicity. Without a ring, one that splits heads. nullptr: there is none.
const Strategy* simplest(const SequencePlan& plan,
                         AttentionFunction function = AttentionFunction::softmax);
/// The first that gathers keys.
const Strategy& gathering();
/// By name; unknown names are an InputError(where) with "did you mean".
const Strategy& by_name(std::string_view name, std::string_view where);
}  // namespace strategies

}  // namespace spp
