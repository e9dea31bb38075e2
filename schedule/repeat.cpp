#include "schedule/repeat.hpp"

#include "schedule/text_fields.hpp"

#include <type_traits>
#include <utility>

namespace spp {
namespace {

/// The archive (text_fields.hpp) that gives an op the repetition's buffers and tokens.
class Repeater {
 public:
  explicit Repeater(const Repetition& repetition) : repetition_(repetition) {}

  template <class Body>
  void move(Body& op) {
    tokens_ = names_rows(op) ? 0 : repetition_.tokens;
    text::fields(*this, op);
  }

  void operator()(std::string_view /*key*/, BufferId& id) const {
    id = id.valid() ? repetition_.moved(id) : id;
  }
  void operator()(std::string_view /*key*/, BufferList& list) const {
    for (BufferId& id : list.ids()) {
      id = repetition_.moved(id);
    }
  }
  void operator()(std::string_view /*key*/, TokenSet& tokens) const {
    if (tokens_ != 0) {
      tokens = tokens.shifted(tokens_);
    }
  }
  void operator()(std::string_view, const auto&) const {}
  void operator()(std::string_view, const auto&, std::int64_t, std::int64_t) const {}
  void operator()(std::string_view, const HeadSplit&, int) const {}
  void unless_zero(std::string_view, const auto&, std::int64_t) const {}

 private:
  /// Whether its tokens are rows of a parameter.
  template <class Body>
  [[nodiscard]] bool names_rows(const Body& op) const {
    if constexpr (std::is_same_v<Body, Accumulate>) {
      return is_of_param(op.sum);
    } else if constexpr (std::is_same_v<Body, Fill>) {
      return is_of_param(op.buffer);
    } else if constexpr (std::is_same_v<Body, Collective>) {
      return is_of_param(op.to);
    } else {
      return false;
    }
  }
  [[nodiscard]] bool is_of_param(BufferId id) const {
    return (*repetition_.buffers)[id.index()].of_param;
  }

  const Repetition& repetition_;
  std::int64_t tokens_ = 0;
};

}  // namespace

void repeat(ProgramBuilder& program, ProgramBuilder::Place begin, ProgramBuilder::Place end,
            Repetition repetition) {
  const auto how = std::make_shared<const Repetition>(std::move(repetition));
  for (std::size_t i = begin.loops; i < end.loops; ++i) {
    const Loop& loop = program.loop(i);
    program.loop(
        loop.trips,
        [body = loop.body, how](std::int64_t trip, OpList& ops) {
          const std::size_t first = ops.size();
          body(trip, ops);
          Repeater repeater(*how);
          for (std::size_t op = first; op < ops.size(); ++op) {
            std::visit(
                [&](auto& either) { std::visit([&](auto& of) { repeater.move(of); }, either); },
                ops[op].body);
          }
        },
        i);
  }
}

}  // namespace spp
