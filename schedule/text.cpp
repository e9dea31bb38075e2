#include "schedule/text.hpp"

#include "schedule/text_fields.hpp"

#include <fmt/ranges.h>

#include <iterator>
#include <ostream>
#include <sstream>
#include <unordered_set>
#include <utility>

namespace spp {
namespace {

/// Anything else is a bug of the strategy.
void require_name(std::string_view name) {
  if (!text::is_name(name)) {
    throw InternalError(fmt::format("'{}' cannot be a name in a schedule", name));
  }
}

/// The archive that writes " key=value" for each field of a line.
class FieldWriter {
 public:
  FieldWriter(fmt::memory_buffer& line, const Problem& problem, std::span<const Buffer> buffers)
      : line_(line), problem_(problem), buffers_(buffers) {}

  void operator()(std::string_view key, BufferId id) { put(key, name(id)); }
  void operator()(std::string_view key, const BufferList& list) {
    std::string names;
    for (const BufferId id : list) {
      names += names.empty() ? "" : ",";
      names += name(id);
    }
    if (!names.empty()) {
      put(key, names);
    }
  }
  void operator()(std::string_view key, Rank rank) {
    if (rank.valid()) {
      put(key, rank.value);
    }
  }
  void operator()(std::string_view key, const TokenSet& tokens) { put(key, to_string(tokens)); }
  void operator()(std::string_view key, HeadRange heads) {
    put(key, fmt::format("{}:{}", heads.begin, heads.count()));
  }
  void operator()(std::string_view key, const RankGroup& group) {
    put(key, group.stride == 1 ? fmt::format("{}:{}", group.first, group.size)
                               : fmt::format("{}:{}/{}", group.first, group.size, group.stride));
  }
  void operator()(std::string_view key, const HeadSplit& split, int parts) {
    const HeadPolicy policy = split.kv_heads() > problem_.kv_heads    ? HeadPolicy::pad
                              : split.parts() > split.kv_heads()      ? HeadPolicy::replicate
                              : split.kv_heads() % split.parts() == 0 ? HeadPolicy::divide
                                                                      : HeadPolicy::uneven;
    ensure(HeadSplit(problem_, parts, policy) == split, "a head split of another group or problem");
    put(key, to_string(policy));
  }
  void operator()(std::string_view key, bool flag) {
    if (flag) {
      fmt::format_to(std::back_inserter(line_), " {}", key);
    }
  }
  void operator()(std::string_view key, const std::string& word) {
    require_name(word);
    put(key, word);
  }
  void operator()(std::string_view key, std::int64_t value, std::int64_t /*min*/,
                  std::int64_t /*max*/) {
    put(key, value);
  }
  void unless_zero(std::string_view key, std::int64_t value, std::int64_t /*max*/) {
    if (value != 0) {
      put(key, value);
    }
  }
  void unless_empty(std::string_view key, const std::vector<std::int64_t>& places) {
    if (!places.empty()) {
      put(key, fmt::format("{}", fmt::join(places, "+")));
    }
  }
  void unless_none(std::string_view key, const std::vector<Mask>& masks) {
    std::string all;
    for (const Mask& mask : masks) {
      all += (all.empty() ? "" : ";") + to_string(mask);
    }
    if (!all.empty()) {
      put(key, all);
    }
  }
  template <class T>  // masks, orders and enumerators
    requires requires(const T& value) { to_string(value); }
  void operator()(std::string_view key, const T& value) {
    put(key, to_string(value));
  }

 private:
  template <class T>
  void put(std::string_view key, const T& value) {
    fmt::format_to(std::back_inserter(line_), " {}={}", key, value);
  }
  [[nodiscard]] std::string_view name(BufferId id) const {
    ensure(id.valid() && id.index() < buffers_.size(), "an op names a buffer that its rank lacks");
    return buffers_[id.index()].name;
  }

  fmt::memory_buffer& line_;
  const Problem& problem_;
  std::span<const Buffer> buffers_;
};

class TextWriter {
 public:
  TextWriter(const Schedule& schedule, std::ostream& out) : schedule_(schedule), out_(out) {}

  void header() {
    append("sp-plan/schedule 2.0\n");
    line_of("problem", schedule_.contract.attention);
    line_of("requested", schedule_.contract.requested);
    append("phase {}{}\nmesh", to_string(schedule_.contract.phase),
           schedule_.contract.recomputes ? " recompute" : "");
    for (const MeshAxis& axis : schedule_.mesh.axes()) {
      require_name(axis.name);
      append(" {}={}", axis.name, axis.size);
    }
    append("\n");
    line_of("grain", schedule_.grain);
    append("streams");
    for (const std::string& name : schedule_.streams) {
      require_name(name);
      append(" {}", name);
    }
    append("\nsymmetry");
    for (const SymmetricAxis& s : schedule_.symmetry) {
      append(" {}={}", s.axis, to_string(s.under));
    }
    append("\n");
    graph();
    flush();
  }

  void rank(Rank rank) {
    const Program program = schedule_.program(rank);
    append("rank {}\n", rank.value);
    buffers(program.buffers);
    OpList ops;
    for (const Loop& loop : program.loops) {
      for (std::int64_t i = 0; i < loop.trips; ++i) {
        ops.clear();
        loop.body(i, ops);
        if (loop.trips > 1) {
          append("  iteration {} of {}\n", i + 1, loop.trips);
        }
        for (const Op& o : ops) {
          op(o, loop.trips > 1 ? "    " : "  ", program.buffers);
        }
        flush();
      }
      if (loop.trips > 1) {
        append("  end\n");
      }
    }
    flush();
  }

 private:
  void graph() {
    const Graph& graph = schedule_.contract.graph;
    const auto names = [&](const std::vector<TensorRef>& refs) {
      std::string text;
      for (const TensorRef ref : refs) {
        text += (text.empty() ? "" : ",") + graph.name(ref);
      }
      return text;
    };
    if (!graph.routing.empty()) {
      line_of("routing", graph.routing);
    }
    for (const Value& value : graph.values) {
      require_name(value.name);
      line_of("value " + value.name, value);
    }
    for (const Param& param : graph.params) {
      require_name(param.name);
      line_of("param " + param.name, param);
    }
    for (const Definition& d : graph.definitions) {
      append("define {} reads={} writes={}", to_string(d.function), names(d.reads),
             names(d.writes));
      if (d.param >= 0) {
        append(" param={}", graph.param(d.param).name);
      }
      if (d.bias >= 0) {
        append(" bias={}", graph.param(d.bias).name);
      }
      if (d.sink >= 0) {
        append(" sink={}", graph.param(d.sink).name);
      }
      if (d.transposed) {
        append(" transposed");
      }
      if (d.mask != 0) {
        append(" mask={}", d.mask);
      }
      if (d.constant != 0) {
        append(" constant={}", d.constant);
      }
      if (d.epsilon != 0) {
        append(" epsilon={}", d.epsilon);
      }
      append("\n");
    }
  }

  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  template <class T>
  void line_of(std::string_view word, const T& value) {
    append("{}", word);
    FieldWriter archive(text_, schedule_.contract.attention, {});
    text::fields(archive, value);
    append("\n");
  }

  void buffers(std::span<const Buffer> buffers) {
    std::unordered_set<std::string_view> names;
    for (const Buffer& b : buffers) {
      require_name(b.name);
      if (!names.insert(b.name).second) {
        throw InternalError(fmt::format("two buffers are called {}", b.name));
      }
      append("  buffer {} {} {} {}", b.name, schedule_.contract.graph.name(b.ref()),
             to_string(b.role), to_string(b.dtype));
      if (b.role == BufferRole::scratch) {
        append(" tokens={} heads={}\n", b.tokens, b.heads);
      } else {
        const std::int64_t room = b.tokens - b.tile.count();
        ensure(room == 0 || (room > 0 && b.role == BufferRole::input),
               "a buffer with a tile that is smaller, or without being an input larger");
        ensure(b.heads == b.head_range.count(), "a buffer of other heads than its tile's");
        append(" tile={} heads={}:{}", to_string(b.tile), b.head_range.begin, b.head_range.count());
        if (room > 0) {
          append(" room={}", room);
        }
        append("\n");
      }
    }
  }

  void op(const Op& o, std::string_view indent, std::span<const Buffer> buffers) {
    ensure(o.stream.valid() && o.stream.index() < schedule_.streams.size(),
           "an op on a stream that its schedule lacks");
    append("{}{}: {}", indent, schedule_.streams[o.stream.index()], name_of(o.body));
    FieldWriter archive(text_, schedule_.contract.attention, buffers);
    visit_op([&](const auto& body) { text::fields(archive, body); }, o.body);
    append("\n");
  }

  void flush() {
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    text_.clear();
  }

  const Schedule& schedule_;
  std::ostream& out_;
  fmt::memory_buffer text_;
};

}  // namespace

void write_text(const Schedule& schedule, std::ostream& out, std::span<const Rank> ranks) {
  TextWriter writer(schedule, out);
  writer.header();
  for (const Rank rank : ranks) {
    writer.rank(rank);
  }
  for (int r = 0; ranks.empty() && r < schedule.mesh.size(); ++r) {
    writer.rank(Rank(r));
  }
}

std::string to_text(const Schedule& schedule, std::span<const Rank> ranks) {
  std::ostringstream out;
  write_text(schedule, out, ranks);
  return std::move(out).str();
}

std::span<const std::string> op_names() {
  static const auto names = [] {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < op_kinds; ++i) {
      words.emplace_back(to_string(static_cast<OpKind>(i)));
    }
    return words;
  }();
  return names;
}

}  // namespace spp
