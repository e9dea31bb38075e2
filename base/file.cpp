// Reading and writing share how a failure is told, hence one file.
#include "base/file.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace spp {
namespace {

namespace fs = std::filesystem;

/// A file descriptor, closed with its scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) {
      ::close(value_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int value() const { return value_; }
  [[nodiscard]] bool valid() const { return value_ >= 0; }
  /// 0 or what went wrong: some file systems say only now that there was no space.
  int close() { return ::close(std::exchange(value_, -1)) == 0 ? 0 : errno; }

 private:
  int value_;
};

std::string text_of(int error) { return std::generic_category().message(error); }

/// What is complained about: "FILE: …" or "OPTION: 'FILE' …".
class Complaint {
 public:
  Complaint(const fs::path& file, std::string_view option)
      : file_(file.string()), option_(option) {}

  [[noreturn]] void operator()(std::string_view text) const {
    if (option_.empty()) {
      throw InputError(file_, text);
    }
    throw InputError(option_, fmt::format("'{}' {}", file_, text));
  }

 private:
  std::string file_;
  std::string_view option_;
};

/// Why a file of this kind is not read; "" if it is.
std::string_view why_not(const struct stat& status, const fs::path& file) {
  switch (status.st_mode & S_IFMT) {
    case S_IFREG:
      return "";
    case S_IFIFO:
      return is_handed_over(file) ? "" : "is a named pipe, not a file";
    case S_IFDIR:
      return "is a folder, not a file";
    case S_IFSOCK:
      return "is a socket, not a file";
    default:
      return "is a device, not a file";
  }
}

/// Waits until a pipe has something to say, or has ended.
void await(int pipe, const ReadLimits& limits, const Complaint& complain) {
  pollfd wait{.fd = pipe, .events = POLLIN, .revents = 0};
  const int patience = static_cast<int>(limits.silence.count() * 1e3);
  int ready = 0;
  while ((ready = ::poll(&wait, 1, patience)) < 0 && errno == EINTR) {
  }
  if (ready == 0) {
    complain(fmt::format("says nothing for {} seconds", limits.silence.count()));
  }
}

std::string read_all(int file, std::int64_t expected, const ReadLimits& limits,
                     const Complaint& complain) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  const auto most = static_cast<std::size_t>(limits.most.value());
  const auto too_large = [&] {
    complain(
        fmt::format("is too large: at most {:.3g} MB are read", limits.most.as_double() / 1e6));
  };
  if (expected > limits.most.value()) {
    too_large();
  }
  std::string text;
  std::size_t size = 0;
  text.resize(expected > 0 ? static_cast<std::size_t>(expected) + 1 : piece);
  for (;;) {
    const ssize_t n = ::read(file, text.data() + size, text.size() - size);
    if (n == 0) {
      break;
    }
    if (n > 0) {
      size += static_cast<std::size_t>(n);
      if (size > most) {
        too_large();
      }
      if (size == text.size()) {
        text.resize(std::min(2 * size, most + 1));
      }
    } else if (errno == EAGAIN) {
      await(file, limits, complain);
    } else if (errno != EINTR) {
      complain(fmt::format("cannot be read: {}", text_of(errno)));
    }
  }
  text.resize(size);
  return text;
}

/// Letters of two bytes each, of which programs' texts leave the same one NUL nearly always.
bool looks_like_utf16(std::string_view text) {
  constexpr std::size_t looked_at = 4096;
  const std::string_view head = text.substr(0, looked_at);
  std::array<std::size_t, 2> nul{};
  for (std::size_t i = 0; i < head.size(); ++i) {
    nul.at(i % 2) += head[i] == '\0' ? 1 : 0;
  }
  const auto [few, many] = std::minmax(nul[0], nul[1]);
  return 4 * many > head.size() && 8 * few < many;
}

std::ptrdiff_t line_at(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  return 1 + std::count(before.begin(), before.end(), '\n');
}

void expect_text(std::string& text, const Complaint& complain) {
  const std::size_t nul = text.find('\0');
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") ||
      (nul != std::string::npos && looks_like_utf16(text))) {
    complain("is UTF-16, not UTF-8; save it as UTF-8");
  }
  if (nul != std::string::npos) {
    complain(fmt::format("is not text: a NUL byte in line {}", line_at(text, nul)));
  }
  if (const std::size_t at = find_not_utf8(text); at != std::string::npos) {
    complain(fmt::format("is not UTF-8: byte 0x{:02x} in line {}; save it as UTF-8",
                         static_cast<unsigned char>(text[at]), line_at(text, at)));
  }
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) {
    text.erase(0, mark.size());
  }
}

// ---- writing
// ---------------------------------------------------------------------------------------

/// Hexadecimal digits that nobody can guess.
std::string random_digits() {
  std::array<unsigned char, 12> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw InternalError("the system has no random numbers");
  }
  std::string digits;
  for (const unsigned char byte : bytes) {
    digits += fmt::format("{:02x}", byte);
  }
  return digits;
}

/// 0 or an errno.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0 && errno != EINTR) {
      return errno;
    }
    text.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  return 0;
}

/// Some file systems cannot sync, which is no failure of the write.
int sync(int file) { return ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno; }

/// A new file whole on disk, with permissions `mode` if one was replaced. 0 or an errno.
int write_new(const fs::path& file, std::string_view text, std::optional<mode_t> mode) {
  constexpr mode_t mine = 0600;
  constexpr mode_t by_umask = 0666;
  Descriptor out(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode ? mine : by_umask));
  if (!out.valid()) {
    return errno;
  }
  int error = write_all(out.value(), text);
  if (error == 0 && mode && ::fchmod(out.value(), *mode) != 0) {
    error = errno;
  }
  error = error == 0 ? sync(out.value()) : error;
  const int closed = out.close();
  return error == 0 ? closed : error;
}

/// So that the name, too, survives a power cut; without it the old file would be back, whole.
void sync_folder(const fs::path& folder) {
  const Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open.valid()) {
    sync(open.value());
  }
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// Where a link ends.
fs::path resolved(const fs::path& file) {
  std::error_code ec;
  const fs::path target = fs::weakly_canonical(file, ec);
  return ec ? file : target;
}

/// Written where it is: neither a regular file nor a name for one.
bool is_in_place(const fs::path& target) {
  std::error_code ec;
  return fs::exists(target, ec) && !fs::is_regular_file(target, ec);
}

void write_atomically(const fs::path& target, std::string_view text, const Complaint& complain) {
  constexpr std::size_t longest = 200;  // of a name, which may have 255 bytes
  constexpr mode_t permissions = 0777;
  struct stat old{};
  const bool replaces = ::stat(target.c_str(), &old) == 0;
  const fs::path beside =
      folder_of(target) /
      fmt::format(".{}.{}", target.filename().string().substr(0, longest), random_digits());
  int error = write_new(beside, text,
                        replaces ? std::optional<mode_t>(old.st_mode & permissions) : std::nullopt);
  if (error == 0 && ::rename(beside.c_str(), target.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(beside.c_str());
    complain(fmt::format("cannot be written: {}", text_of(error)));
  }
  sync_folder(folder_of(target));
}

void write_in_place(const fs::path& target, std::string_view text, const Complaint& complain) {
  Descriptor out(::open(target.c_str(), O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC));
  int error = out.valid() ? write_all(out.value(), text) : errno;
  if (error == 0) {
    error = out.close();
  }
  if (error != 0) {
    complain(fmt::format("cannot be written: {}", text_of(error)));
  }
}

/// A file that is open for reading, with its kind; its descriptor is -1 if it is not read.
struct Opened {
  int descriptor = -1;
  std::int64_t size = 0;
  std::string why_not;
};

Opened open_to_read(const fs::path& file) {
  const auto refused = [](std::string_view reason) {
    return Opened{.descriptor = -1, .size = 0, .why_not = std::string(reason)};
  };
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) {
    return refused("cannot be read (no such file, or no permission)");
  }
  if (const std::string_view reason = why_not(status, file); !reason.empty()) {
    return refused(reason);
  }
  // Another file may have taken its place: what was opened is asked again, and opening never waits.
  const int opened = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (opened < 0 || ::fstat(opened, &status) != 0) {
    if (opened >= 0) {
      ::close(opened);
    }
    return refused("cannot be read (no such file, or no permission)");
  }
  if (const std::string_view reason = why_not(status, file); !reason.empty()) {
    ::close(opened);
    return refused(reason);
  }
  return {.descriptor = opened,
          .size = S_ISREG(status.st_mode) ? std::int64_t{status.st_size} : 0,
          .why_not = ""};
}

}  // namespace

std::string read_text_file(const fs::path& file, std::string_view option,
                           const ReadLimits& limits) {
  const Complaint complain(file, option);
  const Opened opened = open_to_read(file);
  const Descriptor in(opened.descriptor);
  if (!in.valid()) {
    complain(opened.why_not);
  }
  std::string text = read_all(in.value(), opened.size, limits, complain);
  expect_text(text, complain);
  return text;
}

std::string system_text(const fs::path& file) {
  const Opened opened = open_to_read(file);
  const Descriptor in(opened.descriptor);
  return in.valid() ? read_all(in.value(), 0, {}, Complaint(file, "")) : "";
}

bool is_handed_over(const fs::path& file) {
  const std::string name = file.string();
  return name == "/dev/stdin" || name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/");
}

bool is_readable_file(const fs::path& file) {
  struct stat status{};
  return ::stat(file.c_str(), &status) == 0 && why_not(status, file).empty();
}

std::vector<fs::path> files_in(const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> files;
  std::error_code ec;
  fs::directory_iterator entry(folder, ec);
  for (; !ec && entry != fs::directory_iterator(); entry.increment(ec)) {
    std::error_code unknown;
    if (entry->path().extension() == extension && entry->is_regular_file(unknown)) {
      files.push_back(entry->path());
    }
  }
  if (ec) {
    throw InputError(folder.string(), fmt::format("cannot be listed: {}", ec.message()));
  }
  std::ranges::sort(files);
  return files;
}

bool is_same_file(const fs::path& one, const fs::path& other) {
  const fs::path target = resolved(fs::absolute(one));
  if (target == "/dev/null") {
    return false;
  }
  struct stat status{};
  struct stat of_other{};
  if (::stat(one.c_str(), &status) == 0 && ::stat(other.c_str(), &of_other) == 0) {
    return status.st_dev == of_other.st_dev && status.st_ino == of_other.st_ino;
  }
  return target == resolved(fs::absolute(other));
}

void expect_writable(const std::string& file, std::string_view option) {
  std::error_code ec;
  const fs::path target = resolved(file);
  if (fs::is_directory(target, ec)) {
    throw InputError(option, fmt::format("'{}' is a folder, not a file", file));
  }
  const fs::path folder = folder_of(target);
  if (!fs::is_directory(folder, ec)) {
    throw InputError(option, fmt::format("'{}' cannot be written: no such folder", file));
  }
  struct stat status{};
  if (::stat(target.c_str(), &status) != 0 && errno != ENOENT) {  // such as too long a name
    throw InputError(option, fmt::format("'{}' cannot be written: {}", file, text_of(errno)));
  }
  if (::access((is_in_place(target) ? target : folder).c_str(), W_OK) != 0) {
    throw InputError(option, fmt::format("'{}' cannot be written: no permission", file));
  }
}

void write_file(const fs::path& file, std::string_view text) {
  const fs::path target = resolved(file);
  const Complaint complain(file, "");
  if (is_in_place(target)) {
    write_in_place(target, text, complain);
  } else {
    write_atomically(target, text, complain);
  }
}

std::optional<fs::path> make_private_file(const fs::path& folder, std::string_view prefix) {
  const fs::path file = folder / fmt::format("{}{}", prefix, random_digits());
  return write_new(file, "", 0600) == 0 ? std::optional(file) : std::nullopt;
}

}  // namespace spp
