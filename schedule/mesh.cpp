#include "schedule/mesh.hpp"

#include "base/error.hpp"

#include <utility>

namespace spp {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    ensure(axes_[a].size >= 1, "an axis without ranks");
    ensure(find(axes_[a].name) == a, "two axes of one name");
    strides_.push_back(size_);
    size_ *= axes_[a].size;
  }
}

std::optional<std::size_t> Mesh::find(std::string_view axis) const {
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a].name == axis) {
      return a;
    }
  }
  return {};
}

}  // namespace spp
