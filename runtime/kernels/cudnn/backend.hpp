// The backend C API of cuDNN, typed: descriptors that are owned, attributes that know their type,
// errors that name call and attribute; and what is built from them: a graph of operations, the
// engines that heuristics propose for it, an execution plan. No cudnn-frontend: not every system
// packages it, and all it does for attention is in sdpa_graph.cpp.
//
// Nothing here needs a GPU but `execute`: graphs, heuristics and plans take the properties of the
// device as a JSON text (device_properties.hpp) instead of a handle.
#pragma once

#if defined(SPP_CUDNN)

#include "base/error.hpp"

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace spp::runtime::cudnn {

/// Throws BackendError with the call, cuDNN's name of the status and its last message.
void check(cudnnStatus_t status, std::string_view call);

/// An attribute of a descriptor; T is how one of its elements is given.
template <class T>
struct Attribute {
  cudnnBackendAttributeName_t id;
  cudnnBackendAttributeType_t type;
  std::string_view name;
};

/// An owned backend descriptor. Set attributes, finalize, then use it.
class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, std::string_view what);
  Descriptor(Descriptor&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)), what_(std::move(other.what_)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  template <class T>
  Descriptor& set(const Attribute<T>& attribute, std::span<const T> values) {
    set_raw(attribute.id, attribute.type, attribute.name, std::ssize(values),
            static_cast<const void*>(values.data()));
    return *this;
  }
  template <class T>
  Descriptor& set(const Attribute<T>& attribute, std::type_identity_t<T> value) {
    return set(attribute, std::span<const T>(&value, 1));
  }
  Descriptor& set(const Attribute<cudnnBackendDescriptor_t>& attribute, const Descriptor& value) {
    return set(attribute, value.raw());
  }
  Descriptor& finalize();

  template <class T>
  [[nodiscard]] T get(const Attribute<T>& attribute) const {
    T value{};
    get_raw(attribute.id, attribute.type, attribute.name, 1, static_cast<void*>(&value));
    return value;
  }
  /// Number of elements that there are; writes at most `to.size()` of them.
  template <class T>
  std::int64_t get(const Attribute<T>& attribute, std::span<T> to) const {
    return get_raw(attribute.id, attribute.type, attribute.name, std::ssize(to),
                   static_cast<void*>(to.data()));
  }

  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  void set_raw(cudnnBackendAttributeName_t id, cudnnBackendAttributeType_t type,
               std::string_view name, std::int64_t count, const void* values);
  std::int64_t get_raw(cudnnBackendAttributeName_t id, cudnnBackendAttributeType_t type,
                       std::string_view name, std::int64_t count, void* values) const;

  cudnnBackendDescriptor_t raw_ = nullptr;
  std::string what_;
};

/// What engines and plans are for: a live device by its handle, or any device by its properties.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;  // if not null, these count
};

/// [batch, heads, rows, columns], in elements. All that attention needs has four.
using Dims = std::array<std::int64_t, 4>;

/// A tensor of a graph. Real tensors are memory of the caller, found by `uid` in a VariantPack;
/// virtual ones live inside the engine; values are one number that the caller hands over on the
/// host.
struct TensorSpec {
  enum class Kind : std::uint8_t { real, inner, value };
  Kind kind = Kind::inner;
  std::int64_t uid = 0;  // of inner tensors: given by the graph
  Dims dims{1, 1, 1, 1};
  Dims strides{1, 1, 1, 1};
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  std::int64_t alignment = 16;  // bytes that the pointer is a multiple of
};
struct Tensor {
  TensorSpec spec;
  Descriptor descriptor;
};

/// Strides of a dense tensor, the last dimension fastest.
Dims dense_strides(const Dims& dims);

/// An operation graph: tensors and the operations between them, in the order of computation. All
/// arithmetic is in fp32. Tensors live as long as the graph; operations return what they write.
class Graph {
 public:
  Tensor& tensor(TensorSpec spec);
  /// Dense, inside the engine.
  Tensor& inner(const Dims& dims, cudnnDataType_t dtype = CUDNN_DATA_FLOAT);

  /// c [.., m, n] = a [.., m, k] b [.., k, n]; heads of fewer KV heads repeat.
  Tensor& matmul(const Tensor& a, const Tensor& b, Tensor& c);
  /// y = mode(x), y = mode(x, b): shapes of one row, one column or one number repeat.
  Tensor& pointwise(cudnnPointwiseMode_t mode, const Tensor& x, Tensor& y);
  Tensor& pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, Tensor& y);
  /// y = t ? x : b
  Tensor& select(const Tensor& x, const Tensor& b, const Tensor& t, Tensor& y);
  /// y (int32) = own index along `axis` in a tensor of the shape of x.
  Tensor& index(const Tensor& x, std::int64_t axis, Tensor& y);
  /// Over the dimensions in which y has one element (or fewer heads).
  Tensor& reduce(cudnnReduceTensorOp_t op, const Tensor& x, Tensor& y);
  /// The elements of x in the shape and with the strides of y.
  Tensor& reshape(const Tensor& x, Tensor& y);

  /// The graph, ready for engine_configs; once.
  const Descriptor& finalize(const Target& target);
  [[nodiscard]] std::size_t operations() const { return operations_.size(); }

 private:
  Tensor& pointwise(cudnnPointwiseMode_t kind, std::int64_t axis, const Tensor& x, const Tensor* b,
                    const Tensor* t, Tensor& y);

  std::deque<Tensor> tensors_;
  std::vector<Descriptor> modes_;  // what operations refer to
  std::vector<Descriptor> operations_;
  std::vector<Descriptor> graph_;  // one, once finalized
  std::int64_t next_inner_ = 1000;
};

/// A DEVICEPROP descriptor from its JSON text.
Descriptor device_properties(std::string_view json);

/// Engine configurations that cuDNN's heuristics propose, best first; may be empty. `sms`: that
/// they are to use; 0: all.
std::vector<Descriptor> engine_configs(const Descriptor& graph, const Target& target, int sms = 0);
/// The number of a configuration's engine.
std::int64_t engine_of(const Descriptor& config);
/// Compiles; takes about a second. Throws when this engine cannot after all.
Descriptor make_plan(const Descriptor& config, const Target& target);
std::int64_t workspace_of(const Descriptor& plan);

/// Where a plan finds its tensors. Pointers to numbers (TensorSpec::Kind::value) are host memory
/// and read before `execute` returns.
class VariantPack {
 public:
  void add(std::int64_t uid, const void* data) {
    uids_.push_back(uid);
    // cuDNN's interface is not const-correct; inputs are only read.
    pointers_.push_back(const_cast<void*>(data));
  }
  /// As cuDNN takes it.
  [[nodiscard]] Descriptor descriptor(void* workspace) const;
  /// Enqueues the plan on the handle's stream.
  void execute(cudnnHandle_t handle, const Descriptor& plan, void* workspace) const;

 private:
  std::vector<std::int64_t> uids_;
  std::vector<void*> pointers_;
};

}  // namespace spp::runtime::cudnn

#endif
