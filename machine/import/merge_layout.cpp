// What runs between the GPUs of a node: layouts of several sources are one, and of a table that was
// cut off the pairs that nobody shows are
//
//   as all that are shown          if these are alike, and NVLink
//   as the same pair elsewhere     if blocks of as many GPUs are alike in it
//   not known                      else: no NVLink, and no switch, is counted between them
#include "base/error.hpp"
#include "machine/import/draft.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace spp::imports {
namespace {

/// NCCL's XML may lack NVLinks (clouds' files do); nvidia-smi shows what there is.
bool sees_nvlink(const Layout& layout, const Between& between) {
  return between.way == Way::nvlink || layout.origin == smi_topo_origin;
}

/// Two sources of a pair of GPUs.
void expect_same(const Layout& a, const Layout& b) {
  for (std::size_t i = 0; i < a.between.size(); ++i) {
    for (std::size_t j = i + 1; j < a.between.size(); ++j) {
      const Between& x = a.between[i][j];
      const Between& y = b.between[i][j];
      const bool comparable =
          a.origin == b.origin || (sees_nvlink(a, x) && sees_nvlink(b, y) &&
                                   (x.way == Way::nvlink || y.way == Way::nvlink));
      if (comparable && x.way != Way::unknown && y.way != Way::unknown && !(x == y)) {
        throw InputError(
            to_string(y.place),
            fmt::format("GPU {} to GPU {} is {} ({}), but {} at {} ({})", i, j, to_string(y),
                        b.origin, to_string(x), to_string(x.place), a.origin));
      }
    }
  }
}

/// What `other` knows and `layout` does not. Where there are NVLinks, a source that may lack them
/// says nothing of a pair.
void fill_from(Layout& layout, const Layout& other) {
  const bool nvlinks = std::ranges::any_of(layout.between, [](const auto& of_gpu) {
    return std::ranges::find(of_gpu, Way::nvlink, &Between::way) != of_gpu.end();
  });
  for (std::size_t i = 0; i < layout.between.size(); ++i) {
    for (std::size_t j = 0; j < layout.between.size(); ++j) {
      const Between& theirs = other.between[i][j];
      if (layout.between[i][j].way == Way::unknown && (!nvlinks || sees_nvlink(other, theirs))) {
        layout.between[i][j] = theirs;
      }
    }
    if (layout.numa[i].empty()) {
      layout.numa[i] = other.numa[i];
    }
  }
  if (layout.cards.empty()) {
    layout.cards = other.cards;
  }
}

/// Adapters are those of the source that lists some first.
void tell_other_cards(Draft& d, const Layout& layout, const Layout& other) {
  if (!other.cards.empty() && layout.cards != other.cards) {
    d.assume("inter.nics",
             fmt::format("not those listed here ({}, {}): they differ from the {} that were "
                         "listed before",
                         other.cards.size(), other.origin, layout.cards.size()),
             to_string(other.place));
  }
}

// ---- what was cut off

using Pair = std::pair<std::size_t, std::size_t>;

bool is_shown(const Layout& layout, const Pair& pair) {
  return layout.between[pair.first][pair.second].way != Way::unknown;
}

std::vector<Pair> pairs_of(const Layout& layout) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < layout.between.size(); ++i) {
    for (std::size_t j = i + 1; j < layout.between.size(); ++j) {
      pairs.emplace_back(i, j);
    }
  }
  return pairs;
}

/// What an unknown pair is taken for, and why.
struct Guess {
  Between between;
  std::string reason;
};

/// All pairs that are shown have as many NVLinks.
std::optional<Guess> as_all(const Layout& layout, const std::vector<Pair>& shown) {
  const Between& first = layout.between[shown.front().first][shown.front().second];
  const bool alike = std::ranges::all_of(
      shown, [&](const Pair& p) { return layout.between[p.first][p.second] == first; });
  return alike && first.way == Way::nvlink
             ? std::optional(Guess{first, "as all pairs that it shows"})
             : std::nullopt;
}

/// The pair lies in a block of `size` GPUs, and other blocks have the same between theirs.
std::optional<Guess> as_in_other_blocks(const Layout& layout, const std::vector<Pair>& shown,
                                        const Pair& pair) {
  const std::size_t gpus = layout.between.size();
  for (std::size_t size = 2; size < gpus; ++size) {
    if (gpus % size != 0 || pair.first / size != pair.second / size) {
      continue;
    }
    std::optional<Guess> guess;
    bool alike = true;
    for (const Pair& p : shown) {
      if (p.first / size == p.second / size && p.first % size == pair.first % size &&
          p.second % size == pair.second % size) {
        const Between& there = layout.between[p.first][p.second];
        alike = alike && (!guess || guess->between == there);
        guess = Guess{there, fmt::format("as GPU {} to GPU {}", p.first, p.second)};
      }
    }
    if (guess && alike) {
      return guess;
    }
  }
  return std::nullopt;
}

std::string text_of(const std::vector<Pair>& pairs) {
  constexpr std::size_t most = 8;
  std::vector<std::string> names;
  for (const Pair& p : pairs) {
    names.push_back(names.size() == most ? "…"
                                         : fmt::format("GPU {} to GPU {}", p.first, p.second));
    if (names.size() > most) {
      break;
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void fill_unknown(Draft& d, Layout& layout) {
  std::vector<Pair> shown = pairs_of(layout);
  const auto rest =
      std::ranges::partition(shown, [&](const Pair& pair) { return is_shown(layout, pair); });
  std::vector<Pair> unknown(rest.begin(), rest.end());
  if (unknown.empty()) {
    return;
  }
  std::ranges::sort(unknown);
  shown.erase(rest.begin(), rest.end());
  std::ranges::sort(shown);
  const bool one_is_whole = std::ranges::any_of(layout.between, [](const auto& of_gpu) {
    return std::ranges::count(of_gpu, Way::unknown, &Between::way) == 1;  // to itself
  });
  if (!one_is_whole) {
    throw InputError(to_string(layout.place),
                     "shows of no GPU how it reaches all others: the table was cut off; paste all "
                     "of it");
  }
  std::map<std::pair<std::string, std::string>, std::vector<Pair>> guessed;
  std::vector<Pair> left;
  const std::optional<Guess> all = as_all(layout, shown);
  const Layout seen = layout;
  for (const Pair& pair : unknown) {
    const std::optional<Guess> guess = all ? all : as_in_other_blocks(seen, shown, pair);
    if (!guess) {
      left.push_back(pair);
      continue;
    }
    guessed[{to_string(guess->between), guess->reason}].push_back(pair);
    layout.between[pair.first][pair.second] = guess->between;
    layout.between[pair.second][pair.first] = guess->between;
  }
  for (const auto& [guess, pairs] : guessed) {
    d.assume("import.cut_off", fmt::format("{}: {}, {}", text_of(pairs), guess.first, guess.second),
             to_string(layout.place));
  }
  if (!left.empty()) {
    d.assume("import.cut_off",
             fmt::format("{}: not known, and nothing else in the table is like it: taken to have "
                         "no NVLink or switch of their own",
                         text_of(left)),
             to_string(layout.place));
  }
}

}  // namespace

std::optional<Layout> layout_of_node(Draft& d) {
  std::optional<Layout> whole;
  for (const Layout& layout : d.facts.layouts) {
    if (layout.gpus() != d.gpus) {
      d.assume("import.layout",
               fmt::format("{} is not used: it has {} GPUs, not {}", layout.origin, layout.gpus(),
                           d.gpus),
               to_string(layout.place));
    } else if (!whole) {
      whole = layout;
    } else {
      expect_same(*whole, layout);
      fill_from(*whole, layout);
      tell_other_cards(d, *whole, layout);
    }
  }
  if (whole) {
    fill_unknown(d, *whole);
  }
  return whole;
}

}  // namespace spp::imports
