#include "runtime/kernels/cudnn/backend.hpp"

#if defined(SPP_CUDNN)

#include <cstring>
#include <type_traits>

namespace spp::runtime::cudnn {
namespace {

namespace attribute {

using Raw = cudnnBackendDescriptor_t;

template <class T>
constexpr cudnnBackendAttributeType_t type_of() {
  if constexpr (std::is_same_v<T, Raw>) {
    return CUDNN_TYPE_BACKEND_DESCRIPTOR;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return CUDNN_TYPE_INT64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return CUDNN_TYPE_INT32;
  } else if constexpr (std::is_same_v<T, bool>) {
    return CUDNN_TYPE_BOOLEAN;
  } else if constexpr (std::is_same_v<T, char>) {
    return CUDNN_TYPE_CHAR;
  } else if constexpr (std::is_same_v<T, cudnnHandle_t>) {
    return CUDNN_TYPE_HANDLE;
  } else if constexpr (std::is_same_v<T, cudnnDataType_t>) {
    return CUDNN_TYPE_DATA_TYPE;
  } else if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) {
    return CUDNN_TYPE_POINTWISE_MODE;
  } else if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) {
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  } else {
    static_assert(std::is_same_v<T, cudnnBackendHeurMode_t>);
    return CUDNN_TYPE_HEUR_MODE;
  }
}
template <class T>
constexpr Attribute<T> named(cudnnBackendAttributeName_t id, std::string_view name) {
  return {.id = id, .type = type_of<T>(), .name = name};
}

/// Pointers have the C++ type of descriptors, so their type does not tell them apart.
constexpr Attribute<void*> pointer(cudnnBackendAttributeName_t id, std::string_view name) {
  return {.id = id, .type = CUDNN_TYPE_VOID_PTR, .name = name};
}

constexpr auto tensor_dtype = named<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, "DATA_TYPE");
constexpr auto tensor_dims = named<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, "DIMENSIONS");
constexpr auto tensor_strides = named<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, "STRIDES");
constexpr auto tensor_uid = named<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, "UNIQUE_ID");
constexpr auto tensor_alignment =
    named<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, "BYTE_ALIGNMENT");
constexpr auto tensor_virtual = named<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, "IS_VIRTUAL");
constexpr auto tensor_by_value = named<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, "IS_BY_VALUE");

constexpr auto matmul_precision = named<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE, "COMP_TYPE");
constexpr auto matmul_a = named<Raw>(CUDNN_ATTR_OPERATION_MATMUL_ADESC, "ADESC");
constexpr auto matmul_b = named<Raw>(CUDNN_ATTR_OPERATION_MATMUL_BDESC, "BDESC");
constexpr auto matmul_c = named<Raw>(CUDNN_ATTR_OPERATION_MATMUL_CDESC, "CDESC");
constexpr auto matmul_mode = named<Raw>(CUDNN_ATTR_OPERATION_MATMUL_DESC, "DESC");

constexpr auto pointwise_kind = named<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE, "MODE");
constexpr auto pointwise_precision =
    named<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, "MATH_PREC");
constexpr auto pointwise_axis = named<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, "AXIS");
constexpr auto pointwise_mode = named<Raw>(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, "PW");
constexpr auto pointwise_x = named<Raw>(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, "XDESC");
constexpr auto pointwise_b = named<Raw>(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, "BDESC");
constexpr auto pointwise_t = named<Raw>(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, "TDESC");
constexpr auto pointwise_y = named<Raw>(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, "YDESC");

constexpr auto reduction_op =
    named<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR, "OPERATOR");
constexpr auto reduction_precision =
    named<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE, "COMP_TYPE");
constexpr auto reduction_mode = named<Raw>(CUDNN_ATTR_OPERATION_REDUCTION_DESC, "DESC");
constexpr auto reduction_x = named<Raw>(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, "XDESC");
constexpr auto reduction_y = named<Raw>(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, "YDESC");

constexpr auto reshape_x = named<Raw>(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, "XDESC");
constexpr auto reshape_y = named<Raw>(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, "YDESC");

constexpr auto graph_ops = named<Raw>(CUDNN_ATTR_OPERATIONGRAPH_OPS, "OPS");
constexpr auto graph_handle = named<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, "HANDLE");

constexpr auto properties_json = named<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, "JSON");

constexpr auto heuristics_graph = named<Raw>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, "GRAPH");
constexpr auto heuristics_mode = named<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE, "MODE");
constexpr auto heuristics_properties = named<Raw>(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, "DEVICEPROP");
constexpr auto heuristics_sms =
    named<std::int32_t>(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, "SM_COUNT_TARGET");
constexpr auto heuristics_results = named<Raw>(CUDNN_ATTR_ENGINEHEUR_RESULTS, "RESULTS");

constexpr auto config_engine = named<Raw>(CUDNN_ATTR_ENGINECFG_ENGINE, "ENGINE");
constexpr auto engine_number = named<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, "GLOBAL_INDEX");

constexpr auto plan_config = named<Raw>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, "ENGINE_CONFIG");
constexpr auto plan_handle = named<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, "HANDLE");
constexpr auto plan_properties = named<Raw>(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, "DEVICEPROP");
constexpr auto plan_workspace =
    named<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, "WORKSPACE_SIZE");

constexpr auto pack_uids = named<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, "UNIQUE_IDS");
constexpr auto pack_pointers = pointer(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, "DATA_POINTERS");
constexpr auto pack_workspace = pointer(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, "WORKSPACE");

}  // namespace attribute

std::vector<cudnnBackendDescriptor_t> raw_of(const std::vector<Descriptor>& descriptors) {
  std::vector<cudnnBackendDescriptor_t> raw;
  raw.reserve(descriptors.size());
  for (const Descriptor& d : descriptors) {
    raw.push_back(d.raw());
  }
  return raw;
}

}  // namespace

void check(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return;
  }
  std::array<char, 1024> last{};
  cudnnGetLastErrorString(last.data(), last.size() - 1);
  std::string text = cudnnGetErrorString(status);
  if (last[0] != '\0') {
    text += fmt::format(" ({})", last.data());
  }
  throw BackendError(call, text, -1);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, std::string_view what) : what_(what) {
  check(cudnnBackendCreateDescriptor(type, &raw_),
        fmt::format("cudnnBackendCreateDescriptor({})", what_));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(raw_, other.raw_);
  std::swap(what_, other.what_);
  return *this;
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) {
    cudnnBackendDestroyDescriptor(raw_);
  }
}

Descriptor& Descriptor::finalize() {
  const cudnnStatus_t status = cudnnBackendFinalize(raw_);
  if (status != CUDNN_STATUS_SUCCESS) {
    check(status, fmt::format("cudnnBackendFinalize({})", what_));
  }
  return *this;
}

void Descriptor::set_raw(cudnnBackendAttributeName_t id, cudnnBackendAttributeType_t type,
                         std::string_view name, std::int64_t count, const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(raw_, id, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    check(status, fmt::format("cudnnBackendSetAttribute({}, {})", what_, name));
  }
}

std::int64_t Descriptor::get_raw(cudnnBackendAttributeName_t id, cudnnBackendAttributeType_t type,
                                 std::string_view name, std::int64_t count, void* values) const {
  std::int64_t there = 0;
  const cudnnStatus_t status = cudnnBackendGetAttribute(raw_, id, type, count, &there, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    check(status, fmt::format("cudnnBackendGetAttribute({}, {})", what_, name));
  }
  return there;
}

Dims dense_strides(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

Tensor& Graph::tensor(TensorSpec spec) {
  if (spec.kind == TensorSpec::Kind::inner) {
    spec.uid = next_inner_++;
  }
  Tensor& made =
      tensors_.emplace_back(Tensor{.spec = spec,
                                   .descriptor = Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                                                            fmt::format("tensor {}", spec.uid))});
  made.descriptor.set(attribute::tensor_dtype, spec.dtype)
      .set(attribute::tensor_dims, std::span<const std::int64_t>(spec.dims))
      .set(attribute::tensor_strides, std::span<const std::int64_t>(spec.strides))
      .set(attribute::tensor_uid, spec.uid)
      .set(attribute::tensor_alignment, spec.alignment)
      .set(attribute::tensor_virtual, spec.kind == TensorSpec::Kind::inner)
      .set(attribute::tensor_by_value, spec.kind == TensorSpec::Kind::value)
      .finalize();
  return made;
}

Tensor& Graph::inner(const Dims& dims, cudnnDataType_t dtype) {
  return tensor({.dims = dims, .strides = dense_strides(dims), .dtype = dtype});
}

Tensor& Graph::matmul(const Tensor& a, const Tensor& b, Tensor& c) {
  Descriptor& mode = modes_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul");
  mode.set(attribute::matmul_precision, CUDNN_DATA_FLOAT).finalize();
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "operation matmul")
      .set(attribute::matmul_a, a.descriptor)
      .set(attribute::matmul_b, b.descriptor)
      .set(attribute::matmul_c, c.descriptor)
      .set(attribute::matmul_mode, mode)
      .finalize();
  return c;
}

Tensor& Graph::pointwise(cudnnPointwiseMode_t kind, std::int64_t axis, const Tensor& x,
                         const Tensor* b, const Tensor* t, Tensor& y) {
  const std::string name = fmt::format("pointwise {}", static_cast<int>(kind));
  Descriptor& mode = modes_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, name);
  // Indices are counted in whole numbers, comparisons give truth values; all else is fp32.
  const bool whole = y.spec.dtype == CUDNN_DATA_INT32 || y.spec.dtype == CUDNN_DATA_BOOLEAN;
  mode.set(attribute::pointwise_kind, kind)
      .set(attribute::pointwise_precision, whole ? y.spec.dtype : CUDNN_DATA_FLOAT);
  if (axis >= 0) {
    mode.set(attribute::pointwise_axis, axis);
  }
  mode.finalize();
  Descriptor& operation =
      operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "operation " + name);
  operation.set(attribute::pointwise_mode, mode).set(attribute::pointwise_x, x.descriptor);
  if (b != nullptr) {
    operation.set(attribute::pointwise_b, b->descriptor);
  }
  if (t != nullptr) {
    operation.set(attribute::pointwise_t, t->descriptor);
  }
  operation.set(attribute::pointwise_y, y.descriptor).finalize();
  return y;
}

Tensor& Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, Tensor& y) {
  return pointwise(mode, -1, x, nullptr, nullptr, y);
}
Tensor& Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, Tensor& y) {
  return pointwise(mode, -1, x, &b, nullptr, y);
}
Tensor& Graph::select(const Tensor& x, const Tensor& b, const Tensor& t, Tensor& y) {
  return pointwise(CUDNN_POINTWISE_BINARY_SELECT, -1, x, &b, &t, y);
}
Tensor& Graph::index(const Tensor& x, std::int64_t axis, Tensor& y) {
  return pointwise(CUDNN_POINTWISE_GEN_INDEX, axis, x, nullptr, nullptr, y);
}

Tensor& Graph::reduce(cudnnReduceTensorOp_t op, const Tensor& x, Tensor& y) {
  Descriptor& mode = modes_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
  mode.set(attribute::reduction_precision, CUDNN_DATA_FLOAT)
      .set(attribute::reduction_op, op)
      .finalize();
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "operation reduction")
      .set(attribute::reduction_mode, mode)
      .set(attribute::reduction_x, x.descriptor)
      .set(attribute::reduction_y, y.descriptor)
      .finalize();
  return y;
}

Tensor& Graph::reshape(const Tensor& x, Tensor& y) {
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "operation reshape")
      .set(attribute::reshape_x, x.descriptor)
      .set(attribute::reshape_y, y.descriptor)
      .finalize();
  return y;
}

const Descriptor& Graph::finalize(const Target& target) {
  ensure(graph_.empty(), "a graph is finalized once");
  Descriptor& graph = graph_.emplace_back(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
  const std::vector<cudnnBackendDescriptor_t> raw = raw_of(operations_);
  graph.set(attribute::graph_ops, std::span<const cudnnBackendDescriptor_t>(raw));
  if (target.properties == nullptr) {
    graph.set(attribute::graph_handle, target.handle);
  }
  return graph.finalize();
}

Descriptor device_properties(std::string_view json) {
  std::string text(json);
  text.push_back('\0');  // which cuDNN counts
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device properties");
  properties.set(attribute::properties_json, std::span<const char>(text)).finalize();
  return properties;
}

std::vector<Descriptor> engine_configs(const Descriptor& graph, const Target& target, int sms) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "engine heuristics");
  heuristics.set(attribute::heuristics_graph, graph)
      .set(attribute::heuristics_mode, CUDNN_HEUR_MODE_A);
  if (target.properties != nullptr) {
    heuristics.set(attribute::heuristics_properties, *target.properties);
  }
  if (sms > 0) {
    heuristics.set(attribute::heuristics_sms, sms);
  }
  heuristics.finalize();
  // The first answer is an upper bound; how many there are is known when they are fetched.
  const std::int64_t most =
      heuristics.get(attribute::heuristics_results, std::span<cudnnBackendDescriptor_t>());
  std::vector<Descriptor> configs;
  configs.reserve(static_cast<std::size_t>(most));
  for (std::int64_t i = 0; i < most; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration");
  }
  std::vector<cudnnBackendDescriptor_t> raw = raw_of(configs);
  const std::int64_t found =
      most > 0 ? heuristics.get(attribute::heuristics_results, std::span(raw)) : 0;
  while (std::ssize(configs) > found) {
    configs.pop_back();
  }
  return configs;
}

std::int64_t engine_of(const Descriptor& config) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
  cudnnBackendDescriptor_t raw = engine.raw();
  config.get(attribute::config_engine, std::span(&raw, 1));
  return engine.get(attribute::engine_number);
}

Descriptor make_plan(const Descriptor& config, const Target& target) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "execution plan");
  plan.set(attribute::plan_config, config);
  if (target.properties != nullptr) {
    plan.set(attribute::plan_properties, *target.properties);
  } else {
    plan.set(attribute::plan_handle, target.handle);
  }
  plan.finalize();
  return plan;
}

std::int64_t workspace_of(const Descriptor& plan) { return plan.get(attribute::plan_workspace); }

Descriptor VariantPack::descriptor(void* workspace) const {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
  pack.set(attribute::pack_uids, std::span<const std::int64_t>(uids_))
      .set(attribute::pack_pointers, std::span<void* const>(pointers_))
      .set(attribute::pack_workspace, workspace)
      .finalize();
  return pack;
}

void VariantPack::execute(cudnnHandle_t handle, const Descriptor& plan, void* workspace) const {
  const Descriptor pack = descriptor(workspace);
  check(cudnnBackendExecute(handle, plan.raw(), pack.raw()), "cudnnBackendExecute");
}

}  // namespace spp::runtime::cudnn

#endif
