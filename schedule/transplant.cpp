#include "schedule/transplant.hpp"

#include "schedule/text_fields.hpp"

#include <memory>
#include <utility>

namespace spp {
namespace {

/// The archive (text_fields.hpp) that moves each field of an op to its new place.
class Mover {
 public:
  Mover(const Transplant& place, std::span<const BufferId> ids, std::span<const Tensor> tensors)
      : place_(place), ids_(ids), tensors_(tensors) {}

  /// The tensor that the op's heads are of, if these are not said to be KV heads.
  void of(Tensor tensor) { kv_ = is_kv(tensor); }
  [[nodiscard]] Tensor tensor(BufferId id) const { return tensors_[id.index()]; }

  void operator()(std::string_view /*key*/, BufferId& id) const {
    id = id.valid() ? ids_[id.index()] : id;
  }
  void operator()(std::string_view /*key*/, BufferList& list) const {
    BufferList moved;
    for (const BufferId id : list) {
      moved.push_back(ids_[id.index()]);
    }
    list = moved;
  }
  void operator()(std::string_view /*key*/, Rank& rank) const {
    rank = rank.valid() ? Rank(place_.first + rank.value * place_.stride) : rank;
  }
  void operator()(std::string_view /*key*/, RankGroup& group) const {
    group.first = place_.first + group.first * place_.stride;
    group.stride *= place_.stride;
  }
  void operator()(std::string_view key, HeadRange& heads) const {
    heads = moved(heads, kv_ || key == "kv_heads");
  }
  void operator()(std::string_view /*key*/, HeadSplit& split, int /*parts*/) const {
    split = place_.split;
  }
  void operator()(std::string_view key, TokenSet& tokens) const {
    tokens = key == "slots" ? tokens : tokens.shifted(place_.tokens);
  }
  // What has the same meaning everywhere: kinds, numbers, flags.
  void operator()(std::string_view, const auto&) const {}
  void operator()(std::string_view, const auto&, std::int64_t, std::int64_t) const {}
  void unless_zero(std::string_view key, auto& number, std::int64_t) const {
    number = key == "mask" ? place_.mask : number;
  }

  [[nodiscard]] HeadRange moved(HeadRange heads, bool kv) const {
    const int by = kv ? place_.kv_heads : place_.q_heads;
    return {.begin = heads.begin + by, .end = heads.end + by};
  }

 private:
  const Transplant& place_;
  std::span<const BufferId> ids_;
  std::span<const Tensor> tensors_;
  bool kv_ = false;
};

/// What an op's heads are of, where it does not say so itself.
void note_tensor(Mover& mover, const OpBody& body) {
  visit_op(
      Overloaded{[&](const Fill& o) { mover.of(mover.tensor(o.buffer)); },
                 [&](const Collective& o) { mover.of(mover.tensor(o.to)); },
                 [&](const MakeState& o) { mover.of(mover.tensor(o.rows)); },
                 [&](const ApplyState& o) { mover.of(mover.tensor(o.rows)); }, [](const auto&) {}},
      body);
}

/// What a program's ops are moved by.
struct Where {
  Transplant place;
  std::vector<BufferId> ids;
  std::vector<Tensor> tensors;  // of the program's buffers
};

void move(OpBody& body, const Where& where) {
  Mover mover(where.place, where.ids, where.tensors);
  note_tensor(mover, body);
  auto* collective = op_if<Collective>(body);
  if (auto* deal = collective != nullptr ? std::get_if<HeadDeal>(&collective->deal) : nullptr) {
    deal->first += where.place.first_part;
  }
  std::visit([&](auto& either) { std::visit([&](auto& op) { text::fields(mover, op); }, either); },
             body);
}

}  // namespace

std::vector<BufferId> transplant(ProgramBuilder& to, const Program& program,
                                 const Transplant& place, const std::string& prefix) {
  std::vector<BufferId> ids;
  Mover heads(place, {}, {});
  for (const Buffer& buffer : program.buffers) {
    const BufferId known = buffer.role != BufferRole::scratch ? place.known(buffer) : BufferId();
    if (known.valid()) {
      ids.push_back(known);
      continue;
    }
    Buffer copy = buffer;
    copy.name = prefix + buffer.name;
    copy.label = place.attention;
    if (place.inner) {
      copy.role = BufferRole::scratch;
      copy.tile = {};
      copy.head_range = {};
    } else if (buffer.role != BufferRole::scratch) {
      copy.tile = buffer.tile.shifted(place.tokens);
      copy.head_range = heads.moved(buffer.head_range, is_kv(buffer.tensor));
    }
    ids.push_back(to.push(std::move(copy)));
  }
  auto where = std::make_shared<Where>(Where{.place = place, .ids = ids, .tensors = {}});
  where->place.known = nullptr;  // only asked above
  for (const Buffer& buffer : program.buffers) {
    where->tensors.push_back(buffer.tensor);
  }
  OpList single;
  for (const Loop& loop : program.loops) {
    if (loop.trips != 1) {
      to.loop(loop.trips, [body = loop.body, where](std::int64_t trip, OpList& ops) {
        const std::size_t first = ops.size();
        body(trip, ops);
        for (std::size_t i = first; i < ops.size(); ++i) {
          move(ops[i].body, *where);
        }
      });
      continue;
    }
    // Among the ops around it.
    single.clear();
    loop.body(0, single);
    for (Op& op : single) {
      move(op.body, *where);
      to.op(op.stream, std::move(op.body));
    }
  }
  return ids;
}

}  // namespace spp
