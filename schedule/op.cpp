#include "schedule/op.hpp"

namespace spp {
namespace {

class AccessList {
 public:
  AccessList& read(std::initializer_list<BufferId> ids) {
    for (const BufferId id : ids) {
      access_.reads_storage.at(access_.read_count++) = id;
    }
    return *this;
  }
  AccessList& write(std::initializer_list<BufferId> ids) {
    for (const BufferId id : ids) {
      access_.writes_storage.at(access_.write_count++) = id;
    }
    return *this;
  }
  /// What an accumulating op does to its target: reads it unless it is the first contribution.
  AccessList& update(std::initializer_list<BufferId> ids, bool initial) {
    return initial ? write(ids) : read(ids).write(ids);
  }
  [[nodiscard]] Access result() const { return access_; }

 private:
  Access access_;
};

}  // namespace

std::string_view to_string(Tensor t) {
  constexpr std::array<std::string_view, 10> names{"q",     "k",   "v",   "out", "lse",
                                                   "d_out", "d_q", "d_k", "d_v", "delta"};
  return names.at(static_cast<std::size_t>(t));
}

std::string_view to_string(BufferRole r) {
  constexpr std::array<std::string_view, 3> names{"input", "output", "scratch"};
  return names.at(static_cast<std::size_t>(r));
}

std::string_view to_string(CopyKind k) {
  constexpr std::array<std::string_view, 6> names{"pack",    "unpack", "cast",
                                                  "reorder", "deal",   "fold"};
  return names.at(static_cast<std::size_t>(k));
}

std::string_view to_string(AllToAllKind k) {
  return k == AllToAllKind::scatter_heads ? "scatter_heads" : "gather_heads";
}

std::string_view name_of(const OpBody& body) {
  return std::visit(
      Overloaded{[](const AttentionForward&) { return "attention_fwd"; },
                 [](const AttentionBackward&) { return "attention_bwd"; },
                 [](const RowDot&) { return "row_dot"; }, [](const Merge&) { return "merge"; },
                 [](const Rescale&) { return "rescale"; },
                 [](const Accumulate&) { return "accumulate"; }, [](const Fill&) { return "fill"; },
                 [](const Copy&) { return "copy"; }, [](const Exchange&) { return "exchange"; },
                 [](const AllToAll&) { return "all_to_all"; },
                 [](const AllGather&) { return "all_gather"; },
                 [](const ReduceScatter&) { return "reduce_scatter"; },
                 [](const AllReduce&) { return "all_reduce"; }},
      body);
}

bool is_communication(const OpBody& body) {
  return std::holds_alternative<Exchange>(body) || std::holds_alternative<AllToAll>(body) ||
         std::holds_alternative<AllGather>(body) || std::holds_alternative<ReduceScatter>(body) ||
         std::holds_alternative<AllReduce>(body);
}

Access access_of(const OpBody& body) {
  AccessList list;
  std::visit(
      Overloaded{
          [&](const AttentionForward& o) { list.read({o.q, o.k, o.v}).write({o.out, o.lse}); },
          [&](const AttentionBackward& o) {
            list.read({o.q, o.k, o.v, o.d_out, o.lse, o.delta}).write({o.d_q, o.d_k, o.d_v});
          },
          [&](const RowDot& o) { list.read({o.out, o.d_out}).write({o.delta}); },
          [&](const Merge& o) {
            list.read({o.part_out, o.part_lse}).update({o.out, o.lse}, o.initial);
          },
          [&](const Rescale& o) {
            list.read({o.out, o.lse, o.gathered_lse}).write({o.scaled, o.global_lse});
          },
          [&](const Accumulate& o) { list.read({o.part}).update({o.sum}, o.initial); },
          [&](const Fill& o) { list.write({o.buffer}); },
          [&](const Copy& o) { list.read({o.from}).write({o.to}); },
          [&](const Exchange& o) {
            for (const BufferId id : o.send) {
              list.read({id});
            }
            for (const BufferId id : o.receive) {
              list.write({id});
            }
          },
          [&](const AllToAll& o) { list.read({o.from}).write({o.to}); },
          [&](const AllGather& o) { list.read({o.from}).write({o.to}); },
          [&](const ReduceScatter& o) { list.read({o.from}).write({o.to}); },
          [&](const AllReduce& o) { list.read({o.from}).write({o.to}); },
      },
      body);
  return list.result();
}

}  // namespace spp
