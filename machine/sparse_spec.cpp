#include "machine/sparse_spec.hpp"

namespace spp {

SparseSpec read_sparse(const JsonView& generation) {
  const JsonView view = generation.at("sparse");
  view.allow_only({"forward", "backward", "index", "heads", "heads_backward"});
  constexpr std::int64_t most_heads = 1024;
  return {.forward = read_fraction(view.at("forward")),
          .backward = read_fraction(view.at("backward")),
          .index = read_fraction(view.at("index")),
          .heads = read_count(view.at("heads"), most_heads),
          .heads_backward = read_count(view.at("heads_backward"), most_heads)};
}

}  // namespace spp
