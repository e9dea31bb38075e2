#include "runtime/device/cuda/nccl_library.hpp"

#include "base/error.hpp"
#include "base/file.hpp"

#if defined(SPP_NCCL)
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>
#endif

namespace spp::runtime::cuda {

#if defined(SPP_NCCL)

namespace {

/// The library, for as long as the process lives: NCCL keeps threads of its own.
struct Loaded {
  NcclApi api;
  std::string why_not;
  std::string log;  // file; "" if NCCL writes elsewhere

  Loaded() {
    void* library = nullptr;
    // What the loader finds (LD_LIBRARY_PATH, too), else what was there at compile time.
    for (const char* name : {"libnccl.so.2", SPP_NCCL_LIBRARY}) {
      library = library == nullptr ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : library;
    }
    if (library == nullptr) {
      const char* text = dlerror();
      why_not = fmt::format("NCCL cannot be loaded ({})", text == nullptr ? "unknown" : text);
      return;
    }
    choose_log();
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && why_not.empty()) {
        why_not = fmt::format("NCCL here has no {} (2.18 or newer is needed)", name);
      }
    };
    find(api.get_version, "ncclGetVersion");
    find(api.get_unique_id, "ncclGetUniqueId");
    find(api.init_rank, "ncclCommInitRankConfig");
    find(api.split, "ncclCommSplit");
    find(api.finalize, "ncclCommFinalize");
    find(api.destroy, "ncclCommDestroy");
    find(api.abort, "ncclCommAbort");
    find(api.async_error, "ncclCommGetAsyncError");
    find(api.error_string, "ncclGetErrorString");
    find(api.last_error, "ncclGetLastError");
    find(api.group_start, "ncclGroupStart");
    find(api.group_end, "ncclGroupEnd");
    find(api.send, "ncclSend");
    find(api.receive, "ncclRecv");
    find(api.all_gather, "ncclAllGather");
    find(api.reduce_scatter, "ncclReduceScatter");
    find(api.all_reduce, "ncclAllReduce");
  }

  /// NCCL reads these once, at its first call.
  void choose_log() {
    // NOLINTBEGIN(concurrency-mt-unsafe): the caller has made sure that this comes first
    if (std::getenv("NCCL_DEBUG") != nullptr || std::getenv("NCCL_DEBUG_FILE") != nullptr) {
      return;
    }
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (!error) {
      // Its name cannot be guessed: nobody can put a link to another file there.
      const auto file = make_private_file(folder, "sp-plan-nccl-");
      if (file && file->string().find('%') == std::string::npos) {  // which NCCL would replace
        log = file->string();
        setenv("NCCL_DEBUG", "INFO", 1);
        setenv("NCCL_DEBUG_FILE", log.c_str(), 1);
      }
    }
    // NOLINTEND(concurrency-mt-unsafe)
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() {
    if (!log.empty()) {
      std::error_code error;
      std::filesystem::remove(log, error);
    }
  }
};

const Loaded& loaded() {
  static const Loaded library;
  return library;
}

}  // namespace

bool nccl_compiled() { return true; }
std::string why_not_nccl() { return loaded().why_not; }

std::string nccl_version() {
  int version = 0;
  if (!loaded().why_not.empty() || loaded().api.get_version(&version) != ncclSuccess) {
    return "";
  }
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string nccl_log() {
  try {
    return loaded().log.empty() ? "" : system_text(loaded().log);
  } catch (const InputError&) {  // longer than any file that is read: NCCL_DEBUG=TRACE
    return "";
  }
}

const NcclApi& nccl_api() {
  if (!loaded().why_not.empty()) {
    throw BackendError("dlopen", loaded().why_not, -1);
  }
  return loaded().api;
}

#else

bool nccl_compiled() { return false; }
std::string why_not_nccl() { return "not compiled in: NCCL was not found"; }
std::string nccl_version() { return ""; }
std::string nccl_log() { return ""; }

#endif

}  // namespace spp::runtime::cuda
