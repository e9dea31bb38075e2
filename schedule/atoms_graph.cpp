// Cells of what a graph defines.
#include "base/error.hpp"
#include "schedule/atoms.hpp"

namespace spp {

void AtomGrid::sum_up_graph() {
  const auto first = [](int count) {
    AtomSet set;
    for (int i = 0; i < count; ++i) {
      set.insert(at(i));
    }
    return set;
  };
  all_tokens_ = first(token_atoms());
  for (int label = 0; label < std::ssize(graph_.values); ++label) {
    const TensorRef ref{Tensor::value, label};
    const int writer = graph_.writer_of(ref);
    const bool is_sum = writer >= 0 && graph_.definition(writer).function == LayerFunction::linear;
    of_values_.push_back(first(is_sum ? graph_.sum_parts(graph_.definition(writer)) : 0));
    const std::vector<Use> uses = graph_.uses_of(ref);
    of_gradients_.push_back(first(uses.empty() ? 0 : uses.back().first + uses.back().count));
  }
}

int AtomGrid::head_atoms(TensorRef ref) const {
  if (is_value(ref.tensor)) {
    return graph_.value(ref.label).parts;
  }
  if (is_param(ref.tensor)) {
    return graph_.param(ref.label).column_parts;
  }
  return is_kv(ref.tensor) ? kv_atoms() : query_atoms();
}

int AtomGrid::row_atoms(TensorRef ref) const {
  return is_param(ref.tensor)   ? graph_.param(ref.label).row_parts
         : is_state(ref.tensor) ? slots()
                                : token_atoms();
}

const std::vector<int>* AtomGrid::rows(const TokenSet& set, TensorRef ref) const {
  if (!is_param(ref.tensor)) {
    return is_state(ref.tensor) ? slots(set) : tokens(set);
  }
  const Param& param = graph_.param(ref.label);
  const TokenRange range = set.ranges().size() == 1 ? set.ranges()[0] : TokenRange{};
  const std::int64_t part = param.part_rows();
  const auto [it, is_new] = row_parts_.try_emplace({ref.label, range.begin, range.count});
  const bool whole = range.stride == 1 && range.begin % part == 0 && range.count % part == 0 &&
                     range.begin + range.count <= param.rows;
  for (std::int64_t i = 0; is_new && whole && i < range.count / part; ++i) {
    it->second.push_back(static_cast<int>(range.begin / part + i));
  }
  return it->second.empty() ? nullptr : &it->second;
}

HeadAtoms AtomGrid::heads_of_part(Tensor tensor, int part, int parts) const {
  const int all = head_atoms(tensor);
  const int replicas = is_kv(tensor) ? replicas_ : 1;
  // Query atoms of a part, then the KV atoms that these attend to.
  const int begin = part * query_atoms() / parts;
  const int end = (part + 1) * query_atoms() / parts;
  ensure(all > 0 && end > begin, "a part of a row without heads");
  return {.begin = begin / replicas, .end = (end - 1) / replicas + 1};
}

}  // namespace spp
