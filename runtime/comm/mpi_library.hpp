// What mpi.cpp needs of MPI's C interface: its constants without their casts, its errors as
// exceptions, its start and its end. Empty where MPI was not found.
#pragma once

#if defined(SPP_MPI)
#include "base/error.hpp"

#include <mpi.h>

#include <array>
#include <string>
#include <string_view>

namespace spp::runtime::mpi_library {

// MPI's constants are macros with C casts inside, in both libraries: used here and nowhere else.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
inline MPI_Comm world() { return MPI_COMM_WORLD; }
inline MPI_Comm no_comm() { return MPI_COMM_NULL; }
inline MPI_Datatype byte_type() { return MPI_BYTE; }
inline MPI_Errhandler errors_return() { return MPI_ERRORS_RETURN; }
inline MPI_Request no_request() { return MPI_REQUEST_NULL; }
inline MPI_Status* ignore() { return MPI_STATUS_IGNORE; }
inline int any_source() { return MPI_ANY_SOURCE; }
inline int any_tag() { return MPI_ANY_TAG; }
#pragma GCC diagnostic pop

inline std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

inline void check(int code, std::string_view call, int rank) {
  if (code != MPI_SUCCESS) {
    throw BackendError(call, error_text(code), rank);
  }
}

/// MPI of this process. It can be started once only, so it lives as long as the process, over all
/// runs.
class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// MPI_Abort may run the destructors of this process, and MPI_Finalize would wait for the others.
  void never_finalize() { finalize_ = false; }

 private:
  Library() {
    int running = 0;
    check(MPI_Initialized(&running), "MPI_Initialized", 0);
    if (running == 0) {
      int provided = 0;
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread",
            0);
      finalize_ = true;
    }
    check(MPI_Comm_set_errhandler(world(), errors_return()), "MPI_Comm_set_errhandler", 0);
    check(MPI_Comm_rank(world(), &rank_), "MPI_Comm_rank", 0);
    check(MPI_Comm_size(world(), &size_), "MPI_Comm_size", rank_);
  }
  ~Library() {
    if (finalize_) {
      MPI_Finalize();
    }
  }

  bool finalize_ = false;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace spp::runtime::mpi_library
#endif
