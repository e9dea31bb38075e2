// Times of attention blocks of which every query sees every key, as most of a ring's are: they
// follow from how many tokens the block's ranges have, wherever these lie (attention_tiles.cpp).
#pragma once

#include "base/units.hpp"
#include "schedule/measure.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace spp {

class WholeBlocks {
 public:
  /// Time of a kernel, of one problem in all calls: known, or time().
  template <class Time>
  Seconds of(const Kernel& kernel, const Shapes& shapes, Time time) {
    if (const auto* forward = std::get_if<AttentionForward>(&kernel)) {
      return of_block(*forward, 0, *shapes.problem, time);
    }
    if (const auto* backward = std::get_if<AttentionBackward>(&kernel)) {
      return of_block(*backward, 1, *shapes.problem, time);
    }
    return time();
  }

 private:
  /// Phase, mask, heads, and the tokens of two ranges each.
  using Key = std::array<std::int64_t, 8>;
  struct Known {
    Key key;
    Seconds time;
  };
  static constexpr std::size_t most_ranges = 2;
  static constexpr std::size_t most_known = 16;  // more are looked at in vain: a ring has three

  static bool is_whole(const TokenSet& q, const TokenSet& k, const Mask& mask) {
    if (mask.kind == MaskKind::window || !mask.document_ends.empty() ||
        q.ranges().size() > most_ranges || k.ranges().size() > most_ranges) {
      return false;
    }
    for (const TokenRange& queries : q.ranges()) {
      for (const TokenRange& keys : k.ranges()) {
        if (mask.kind == MaskKind::causal && keys.last() > queries.begin) {
          return false;
        }
      }
    }
    return true;
  }

  template <class Block, class Time>
  Seconds of_block(const Block& block, std::int64_t phase, const Problem& problem, Time time) {
    if (!is_whole(block.q_tokens, block.k_tokens, problem.mask_of(block.mask))) {
      return time();
    }
    Key key{phase, block.mask, block.heads.count(), block.kv_heads.count()};
    std::size_t at = 4;
    for (const TokenSet* tokens : {&block.q_tokens, &block.k_tokens}) {
      std::size_t place = at;
      for (const TokenRange& range : tokens->ranges()) {
        key.at(place++) = range.count;
      }
      at += most_ranges;
    }
    for (const Known& known : known_) {
      if (known.key == key) {
        return known.time;
      }
    }
    const Seconds found = time();
    if (known_.size() < most_known) {
      known_.push_back({.key = key, .time = found});
    }
    return found;
  }

  std::vector<Known> known_;
};

}  // namespace spp
