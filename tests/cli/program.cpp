#include "tests/cli/program.hpp"

#include "tests/support/paths.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace spp::test {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2 failed");
  }
  return {ends[0], ends[1]};
}

/// Both ends of a pseudo terminal: what is written to `write` is read from `read`.
Pipe make_terminal(int columns) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 128> name{};
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0 ||
      ::ptsname_r(master, name.data(), name.size()) != 0) {
    throw std::runtime_error("no pseudo terminal");
  }
  const int slave = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) {
    throw std::runtime_error("no pseudo terminal");
  }
  const winsize size{
      .ws_row = 40, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  if (columns > 0 && ::ioctl(slave, TIOCSWINSZ, &size) != 0) {
    throw std::runtime_error("a terminal without a size");
  }
  return {master, slave};
}

/// Reads both until both are closed, so that neither can fill up and block the program. `heard` is
/// told after every piece.
void drain(int out, std::string& out_text, int err, std::string& err_text,
           const std::function<void()>& heard) {
  std::array<pollfd, 2> files{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&out_text, &err_text};
  int open = 2;
  while (open > 0 && (::poll(files.data(), files.size(), -1) >= 0 || errno == EINTR)) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) {
        continue;
      }
      std::array<char, 4096> block{};
      const ssize_t n = ::read(files[i].fd, block.data(), block.size());
      if (n > 0) {
        texts[i]->append(block.data(), static_cast<std::size_t>(n));
        heard();
      } else {  // the end; a terminal says EIO
        files[i].fd = -1;
        --open;
      }
    }
  }
}

}  // namespace

Running::Running(const std::vector<std::string>& words, const RunOptions& options)
    : interrupt_at_(options.interrupt_at) {
  const std::string program = build_path(options.program).string();
  const Pipe out = options.terminal ? make_terminal(options.columns) : make_pipe();
  const Pipe err = make_pipe();
  const Pipe in = make_pipe();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);

  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(options.input.empty() ? ::open("/dev/null", O_RDONLY) : in.read, STDIN_FILENO);
    ::dup2(out.write, STDOUT_FILENO);
    ::dup2(err.write, STDERR_FILENO);
    if (options.err_file == "closed") {
      ::close(STDERR_FILENO);
    } else if (!options.err_file.empty()) {
      ::dup2(::open(options.err_file.c_str(), O_WRONLY), STDERR_FILENO);
    }
    if (options.address_space > 0) {
      const rlimit most{.rlim_cur = options.address_space, .rlim_max = options.address_space};
      ::setrlimit(RLIMIT_AS, &most);
    }
    ::unsetenv("NO_COLOR");
    ::unsetenv("SP_PLAN_DATA");
    for (const auto& [name, value] : options.environment) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) {
      ::_exit(126);
    }
    constexpr uid_t nobody = 65534;
    if (options.nobody && ::getuid() == 0 && (::setgid(nobody) != 0 || ::setuid(nobody) != 0)) {
      ::_exit(126);
    }
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(out.write);
  ::close(err.write);
  // Less than a pipe holds: this waits for nobody.
  if (::write(in.write, options.input.data(), options.input.size()) < 0) {
    throw std::runtime_error("writing to a pipe failed");
  }
  ::close(in.read);
  ::close(in.write);
  out_ = out.read;
  err_ = err.read;
}

Running::Running(Running&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(other.out_),
      err_(other.err_),
      interrupt_at_(std::move(other.interrupt_at_)) {}

Running::~Running() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    (void)end();
  }
}

Result Running::end() {
  Result result;
  bool interrupted = interrupt_at_.empty();
  drain(out_, result.out, err_, result.err, [&] {
    if (!interrupted && result.err.find(interrupt_at_) != std::string::npos) {
      interrupted = true;
      ::kill(pid_, SIGINT);
    }
  });
  ::close(out_);
  ::close(err_);
  int status = 0;
  rusage usage{};
  ::wait4(std::exchange(pid_, -1), &status, 0, &usage);
  result.peak_kilobytes = usage.ru_maxrss;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  result.core_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

Result sp_plan(const std::vector<std::string>& words, const RunOptions& options) {
  return Running(words, options).end();
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) {
    words.push_back(word);
  }
  return words;
}

Result sp_plan(const std::string& line, const RunOptions& options) {
  return sp_plan(words_of(line), options);
}

}  // namespace spp::test
