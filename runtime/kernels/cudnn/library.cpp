// cuDNN's functions, each of which loads the library when it is first called: the program starts
// where there is none, and in a process that has one of its own (Python with PyTorch) it brings no
// second one in. What the loader finds counts, else what was there at compile time. Where neither
// can be loaded, the version is 0 (versions.cpp) and all calls fail.
//
// Tests define the same functions (tests/device/host_cudnn.cpp): then nothing of this file is
// linked.
#if defined(SPP_CUDNN)

#include <cudnn.h>

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace {

/// For as long as the process lives: cuDNN keeps state of its own.
void* library() {
  static void* const loaded = [] {
    void* found = nullptr;
    for (const char* name : {"libcudnn.so.9", SPP_CUDNN_LIBRARY}) {
      found = found == nullptr ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : found;
    }
    return found;
  }();
  return loaded;
}

template <class Function>
Function* theirs(const char* name) {
  void* const from = library();
  return from == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(from, name));
}

template <class Function, class... Arguments>
cudnnStatus_t call(Function* function, Arguments... arguments) {
  return function == nullptr ? CUDNN_STATUS_NOT_INITIALIZED : function(arguments...);
}

}  // namespace

#define SPP_THEIRS(name) static auto* const theirs_ = theirs<decltype(name)>(#name)

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): cuDNN writes them in camel case
extern "C" {

std::size_t cudnnGetVersion() {
  SPP_THEIRS(cudnnGetVersion);
  return theirs_ == nullptr ? 0 : theirs_();
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  SPP_THEIRS(cudnnGetErrorString);
  return theirs_ == nullptr ? "libcudnn.so.9 cannot be loaded" : theirs_(status);
}
void cudnnGetLastErrorString(char* message, std::size_t max_size) {
  SPP_THEIRS(cudnnGetLastErrorString);
  if (theirs_ != nullptr) {
    theirs_(message, max_size);
  }
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  SPP_THEIRS(cudnnCreate);
  return call(theirs_, handle);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  SPP_THEIRS(cudnnDestroy);
  return call(theirs_, handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  SPP_THEIRS(cudnnSetStream);
  return call(theirs_, handle, stream);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  SPP_THEIRS(cudnnBackendCreateDescriptor);
  return call(theirs_, type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  SPP_THEIRS(cudnnBackendDestroyDescriptor);
  return call(theirs_, descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  SPP_THEIRS(cudnnBackendFinalize);
  return call(theirs_, descriptor);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  SPP_THEIRS(cudnnBackendSetAttribute);
  return call(theirs_, descriptor, name, type, count, values);
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t most,
                                       std::int64_t* count, void* values) {
  SPP_THEIRS(cudnnBackendGetAttribute);
  return call(theirs_, descriptor, name, type, most, count, values);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  SPP_THEIRS(cudnnBackendExecute);
  return call(theirs_, handle, plan, pack);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

#undef SPP_THEIRS

#endif
