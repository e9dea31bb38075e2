// cuDNN's backend on the host, as far as runtime/kernels/cudnn/ uses it: descriptors keep what they
// are given, plans execute their graph in fp64 (host_cudnn_graph.hpp) on the handle's stream.
// Linked into a test, these definitions take the place of the library's. As in cuDNN, a handle
// takes no stream of another context, and neither a handle nor a plan is for two threads at a time.
// A plan that was made for a description of a device is executed nowhere: cuDNN promises that for
// devices of the very same properties only.
#include "tests/device/host_cuda.hpp"
#include "tests/device/host_cudnn_graph.hpp"

#include <cudnn.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

namespace {

namespace host = spp::test::host;

/// One thread at a time; true if it is this one's turn.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& taken) : taken_(taken), mine_(!taken.exchange(true)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (mine_) {
      taken_ = false;
    }
  }
  explicit operator bool() const { return mine_; }

 private:
  std::atomic<bool>& taken_;
  bool mine_;
};

constexpr std::int64_t plan_workspace = 512;

thread_local std::string last_error;

/// Of the calling thread, as cuDNN keeps it.
cudnnStatus_t refuse(cudnnStatus_t status, std::string_view why) {
  last_error = why;
  return status;
}

/// Of a whole device.
bool primary(const host::Context& context) {
  return &context == host::primary_context(context.device()).get();
}

struct Attribute {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<int, Attribute> attributes;
  std::shared_ptr<host::GraphTensor> tensor;  // of a tensor
  host::GraphOp op;                           // of an operation
  std::shared_ptr<const host::Graph> graph;   // of a graph, and of what is made from one
  std::atomic<bool> executing = false;        // of a plan
  std::atomic<bool> loaded = false;           // of a plan, at its first execution
  bool described = false;                     // of a plan: for a device that has no handle

  template <class T>
  [[nodiscard]] T get(int id, T otherwise = {}) const {
    const auto at = attributes.find(id);
    if (at != attributes.end()) {
      std::memcpy(&otherwise, at->second.bytes.data(), sizeof(T));
    }
    return otherwise;
  }
  [[nodiscard]] const Descriptor* other(int id) const {
    return static_cast<const Descriptor*>(get<void*>(id));
  }
};

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // enumerations, int32
  }
}

/// [rows, batch, heads], as rows lie in a schedule.
host::Dims tokens_outermost(const host::Dims& d) { return {d[1], 1, d[0] * d[1], 1}; }

host::GraphTensor tensor_of(const Descriptor& d) {
  host::GraphTensor tensor{.uid = d.get<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                           .dims = d.get<host::Dims>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                           .strides = d.get<host::Dims>(CUDNN_ATTR_TENSOR_STRIDES),
                           .dtype = d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
                           .alignment = d.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                           .inner = d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                           .value = d.get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
  if (host::is_statistic(tensor) && host::mistaken("strided statistics")) {
    tensor.strides = tokens_outermost(tensor.dims);
  }
  return tensor;
}

host::GraphOp op_of(const Descriptor& d) {
  const auto tensor = [&](int id) {
    const Descriptor* other = d.other(id);
    return other == nullptr ? std::shared_ptr<host::GraphTensor>() : other->tensor;
  };
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {.kind = host::GraphOpKind::matmul,
              .x = tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
              .b = tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
              .t = nullptr,
              .y = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      const Descriptor& mode = *d.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      return {.kind = host::GraphOpKind::pointwise,
              .mode = mode.get<int>(CUDNN_ATTR_POINTWISE_MODE),
              .axis = mode.get<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1),
              .x = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
              .b = tensor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
              .t = tensor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
              .y = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    }
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {
          .kind = host::GraphOpKind::reduction,
          .mode =
              d.other(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->get<int>(CUDNN_ATTR_REDUCTION_OPERATOR),
          .x = tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
          .b = nullptr,
          .t = nullptr,
          .y = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    default: {
      const std::shared_ptr<host::GraphTensor> x = tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
      const std::shared_ptr<host::GraphTensor> y = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
      if (!x->inner && host::mistaken("dense reshapes")) {
        y->strides = host::dense(y->dims);
      }
      return {.kind = host::GraphOpKind::reshape, .x = x, .b = nullptr, .t = nullptr, .y = y};
    }
  }
}

std::shared_ptr<const host::Graph> graph_of(const Descriptor& d) {
  auto graph = std::make_shared<host::Graph>();
  const Attribute& ops = d.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  for (std::int64_t i = 0; i < ops.count; ++i) {
    void* op = nullptr;
    std::memcpy(&op, ops.bytes.data() + 8 * i, 8);
    graph->push_back(static_cast<const Descriptor*>(op)->op);
  }
  return graph;
}

/// Copies what there is, as far as there is room for it.
cudnnStatus_t give(const void* data, std::int64_t there, std::size_t size, std::int64_t room,
                   std::int64_t* count, void* to) {
  *count = there;
  if (room > 0 && size > 0) {
    std::memcpy(to, data, size * static_cast<std::size_t>(std::min(room, there)));
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

struct cudnnContext {
  std::shared_ptr<host::Context> context;
  int number = 0;
  cudaStream_t stream = nullptr;
  std::atomic<bool> used = false;
};

std::size_t cudnnGetVersion() {
  const std::size_t set = host::settings().cudnn_version;
  return set != 0 ? set : CUDNN_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of cuDNN on the host"; }
void cudnnGetLastErrorString(char* text, std::size_t room) {
  std::snprintf(text, room, "%s", last_error.c_str());
  last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  host::call();
  host::expect_idle();
  static std::atomic<int> handles{0};
  *handle = new cudnnContext{.context = host::current_context(), .number = ++handles};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  host::call();
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  host::call();
  if (stream->context != handle->context) {
    return refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream of another context");
  }
  if (host::settings().objection == host::Objection::to_streams && !primary(*stream->context)) {
    return refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream of a green context");
  }
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  host::call();
  *descriptor = new Descriptor{.type = type, .attributes = {}, .tensor = {}, .op = {}, .graph = {}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  host::call();
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  host::call();
  // Pointers and descriptors are of one C++ type, not of one type to cuDNN.
  const bool pointers =
      name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS || name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE;
  if (pointers != (type == CUDNN_TYPE_VOID_PTR)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  const auto* bytes = static_cast<const std::byte*>(values);
  static_cast<Descriptor*>(descriptor)->attributes[name] = {
      .type = type,
      .count = count,
      .bytes = {bytes, bytes + size_of(type) * static_cast<std::size_t>(count)}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  host::call();
  Descriptor& d = *static_cast<Descriptor*>(descriptor);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      d.tensor = std::make_shared<host::GraphTensor>(tensor_of(d));
      break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      d.op = op_of(d);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      d.graph = graph_of(d);
      host::keep_graph(d.graph);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      if (d.attributes.contains(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET) &&
          !host::settings().sm_count_target) {
        return CUDNN_STATUS_NOT_SUPPORTED;
      }
      d.graph = d.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      ++host::seen().compiled_plans;
      host::expect_idle();
      std::this_thread::sleep_for(std::chrono::milliseconds(host::settings().compile_ms));
      d.graph = d.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph;
      d.described = !d.attributes.contains(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) ||
                    host::mistaken("plans for described devices");
      break;
    default:
      break;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t room,
                                       std::int64_t* count, void* to) {
  host::call();
  const Descriptor& d = *static_cast<const Descriptor*>(descriptor);
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *count = host::why_not(*d.graph).empty() ? 1 : 0;
    if (room > 0 && *count > 0) {
      static_cast<Descriptor*>(*static_cast<void**>(to))->graph = d.graph;
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    return give(&plan_workspace, 1, sizeof(plan_workspace), room, count, to);
  }
  const std::int64_t engine = 1;
  return name == CUDNN_ATTR_ENGINECFG_ENGINE ? give(nullptr, 1, 0, room, count, to)
                                             : give(&engine, 1, sizeof(engine), room, count, to);
}

namespace {

/// As if every handle had plans of its own.
void count_compiled(cudnnHandle_t handle, const Descriptor& plan) {
  static std::mutex mutex;
  static std::set<std::pair<int, const void*>> seen;
  if (host::mistaken("plans of every rank")) {
    const std::scoped_lock lock(mutex);
    host::seen().compiled_plans += seen.emplace(handle->number, &plan).second ? 1 : 0;
  }
}

}  // namespace

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  Descriptor& p = *static_cast<Descriptor*>(plan);
  const Descriptor& v = *static_cast<const Descriptor*>(pack);
  const Turn handle_turn(handle->used);
  const Turn plan_turn(p.executing);
  if (!handle_turn || !plan_turn || host::current_context() != handle->context) {
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "two threads at a time, or another context");
  }
  host::call();  // which takes time, so that whoever comes meanwhile is seen
  count_compiled(handle, p);
  if (!p.loaded.exchange(true)) {
    host::expect_idle();
  }
  if (p.described) {
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "a plan for a device that was only described");
  }
  if (host::settings().objection == host::Objection::to_plans && !primary(*handle->context)) {
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "a plan that was made in another context");
  }
  host::Pointers pointers;
  const Attribute& uids = v.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const Attribute& data = v.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (std::int64_t i = 0; i < uids.count; ++i) {
    std::int64_t uid = 0;
    std::byte* pointer = nullptr;
    std::memcpy(&uid, uids.bytes.data() + 8 * i, 8);
    std::memcpy(&pointer, data.bytes.data() + 8 * i, 8);
    pointers[uid] = pointer;
  }
  for (const host::GraphOp& op : *p.graph) {
    for (const auto& tensor : {op.x, op.b, op.t, op.y}) {
      if (tensor != nullptr && !tensor->inner && !tensor->value &&
          reinterpret_cast<std::uintptr_t>(pointers.at(tensor->uid)) % 16 != 0) {
        return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
      }
    }
  }
  auto* const workspace = v.get<std::byte*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  host::enqueue(handle->stream,
                [graph = p.graph, pointers, workspace,
                 numbers = host::numbers_of(*p.graph, pointers), context = handle->context] {
                  context->take(context->sms());
                  std::memset(workspace, 0x7f, plan_workspace);  // it is the plan's
                  host::execute(*graph, pointers, numbers);
                  context->give(context->sms());
                });
  return CUDNN_STATUS_SUCCESS;
}
