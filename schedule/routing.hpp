// Which tokens go to which experts. A schedule is of any step, so its routing is none that a router
// has learned: every expert gets as many tokens, as under torchtitan's round robin
// (`debug.moe_force_load_balance`); Megatron-Core's `--moe-router-force-load-balancing` draws
// experts at random, which is as even on average. What is moved and multiplied depends on how many
// tokens go where, not on which. The weights of a token's experts are the router's own.
//
// A token has `chosen` experts, one in each of as many equal parts of all of them, its *slots*: in
// slot j expert j * classes + class, classes = experts / chosen. Its class depends on where it
// stands: every `period` tokens are cut into one run for each class, one after the other. Expert
// groups (of ranks) have consecutive experts: so what a group gets is, of every period, one run of
// tokens in one slot, or all tokens in some slots.
#pragma once

#include "schedule/problem.hpp"
#include "schedule/tokens.hpp"

#include <cstdint>
#include <span>

namespace spp {

struct Routing {
  int experts = 0;          // 0: there are none
  int chosen = 1;           // experts of a token; divides all
  int groups = 1;           // of experts; divides all, and is a divisor or a multiple of `chosen`
  std::int64_t period = 1;  // tokens; a multiple of classes()

  [[nodiscard]] bool empty() const { return experts == 0; }
  [[nodiscard]] int classes() const { return experts / chosen; }
  [[nodiscard]] int of_group() const { return experts / groups; }
  [[nodiscard]] int class_of(std::int64_t token) const {
    return static_cast<int>(token % period * classes() / period);
  }
  [[nodiscard]] int expert_of(std::int64_t token, int slot) const {
    return slot * classes() + class_of(token);
  }
  [[nodiscard]] int group_of(std::int64_t token, int slot) const {
    return expert_of(token, slot) / of_group();
  }
  /// Slots in which a group gets tokens.
  [[nodiscard]] HeadRange slots_of(int group) const;
  /// Of `tokens`, in order, those that a group gets.
  [[nodiscard]] TokenSet routed(const TokenSet& tokens, int group) const;
  /// The same of all tokens of classes [first, end).
  [[nodiscard]] TokenSet of_classes(const TokenSet& tokens, int first, int end) const;

  friend bool operator==(const Routing&, const Routing&) = default;
};

/// The period that cuts each of these sets of tokens, of a rank each, alike: of every one, every
/// class has as many tokens. 0: there is none, for so many classes.
std::int64_t period_of(std::span<const TokenSet> ranks, int classes);

}  // namespace spp
