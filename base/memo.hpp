// What a pure function has said of the questions asked last.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace spp {

/// Of few questions, which are compared one by one; for one thread. Answers are shared with those
/// who asked: forgotten ones stay theirs.
template <class Question, class Answer>
class Memo {
 public:
  explicit Memo(std::size_t most) : most_(most) {}

  /// answer(question), at once if it is remembered.
  template <class F>
  std::shared_ptr<const Answer> of(const Question& question, F&& answer) {
    auto known = std::ranges::find(known_, question, &Known::first);
    if (known == known_.end()) {
      Known found(question, std::make_shared<const Answer>(answer(question)));
      if (known_.size() == most_) {
        known_.pop_back();
      }
      known_.push_back(std::move(found));
      known = known_.end() - 1;
    }
    std::rotate(known_.begin(), known, known + 1);
    return known_.front().second;
  }

 private:
  using Known = std::pair<Question, std::shared_ptr<const Answer>>;
  std::size_t most_;
  std::vector<Known> known_;  // the one asked for last first
};

}  // namespace spp
