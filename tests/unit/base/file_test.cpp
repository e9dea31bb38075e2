#include "base/file.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

using namespace spp;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using spp::test::message_of;
using spp::test::read_text;
using spp::test::TempDir;

namespace {

std::string refusal(const fs::path& file, const ReadLimits& limits = {}) {
  return message_of<InputError>([&] { (void)read_text_file(file, "", limits); });
}

mode_t mode_of(const fs::path& file) {
  struct stat status{};
  REQUIRE(::stat(file.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

std::size_t entries_of(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

/// A pipe whose reading end has a name under /dev/fd.
struct HandedOver {
  HandedOver() { REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0); }
  ~HandedOver() {
    ::close(ends[0]);
    close_writer();
  }
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;
  void write(std::string_view text) const {
    // Also called by threads, where Catch2 must not be asked.
    if (::write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("a pipe that cannot be written");
    }
  }
  void close_writer() {
    if (ends[1] >= 0) {
      ::close(ends[1]);
      ends[1] = -1;
    }
  }
  [[nodiscard]] fs::path path() const { return fmt::format("/dev/fd/{}", ends[0]); }

  std::array<int, 2> ends{-1, -1};
};

}  // namespace

TEST_CASE("a file is read whole, whatever its length") {
  const TempDir folder;
  for (const std::size_t length : {0UL, 1UL, 65'535UL, 65'536UL, 1'000'001UL}) {
    const std::string text(length, 'x');
    CHECK(read_text_file(folder.write("file", text)) == text);
  }
}

TEST_CASE("a file of the system is read though it says that it is empty") {
  CHECK_THAT(system_text("/proc/self/status"), ContainsSubstring("Name:"));
  CHECK(system_text("/proc/self/none").empty());
}

TEST_CASE("what is no file is refused in a line that says what it is") {
  const TempDir folder;
  const fs::path fifo = folder.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(refusal(fifo) == fifo.string() + ": is a named pipe, not a file");
  CHECK(refusal(folder.path()) == folder.path().string() + ": is a folder, not a file");
  CHECK(refusal("/dev/zero") == "/dev/zero: is a device, not a file");
  CHECK(refusal("/dev/null") == "/dev/null: is a device, not a file");
  CHECK_THAT(refusal(folder.path() / "none"), EndsWith("none: cannot be read (no such file, or no "
                                                       "permission)"));

  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  const fs::path socket = folder.path() / "socket";
  REQUIRE(socket.string().size() < sizeof name.sun_path);
  std::memcpy(name.sun_path, socket.c_str(), socket.string().size() + 1);
  const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(listening, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
  CHECK(refusal(socket) == socket.string() + ": is a socket, not a file");
  ::close(listening);
}

TEST_CASE("an option's file is complained about by the option") {
  CHECK(message_of<InputError>([] { (void)read_text_file("/tmp", "--plan"); }) ==
        "--plan: '/tmp' is a folder, not a file");
}

TEST_CASE("a file that is too large is refused before it is read") {
  const TempDir folder;
  const fs::path file = folder.write("large", "");
  fs::resize_file(file, 1'000'000'000'000);  // a hole: no disk is needed
  CHECK_THAT(refusal(file), EndsWith("is too large: at most 64 MB are read"));
  CHECK_THAT(refusal(folder.write("eleven", "12345678901"), {.most = Bytes(10)}),
             ContainsSubstring("is too large"));
  CHECK(read_text_file(folder.write("ten", "1234567890"), "", {.most = Bytes(10)}).size() == 10);
}

TEST_CASE("what is not UTF-8 text is refused in one clear line") {
  const TempDir folder;
  CHECK_THAT(refusal(folder.write("nul", std::string("one\ntwo\0", 8))),
             EndsWith("is not text: a NUL byte in line 2"));
  CHECK_THAT(refusal(folder.write("wide", std::string("\xff\xfe{\0}\0", 6))),
             EndsWith("is UTF-16, not UTF-8; save it as UTF-8"));
  CHECK_THAT(refusal(folder.write("wide", std::string("\xfe\xff\0{\0}", 6))),
             EndsWith("is UTF-16, not UTF-8; save it as UTF-8"));
}

TEST_CASE("a byte of another encoding is named with its line, whatever that line says") {
  const TempDir folder;
  CHECK_THAT(refusal(folder.write("latin", "one\n\xc3\xa9t\xc3\xa9\n# 35 \xb0\n")),
             EndsWith("latin: is not UTF-8: byte 0xb0 in line 3; save it as UTF-8"));
  CHECK_THAT(refusal(folder.write("cut", "one\ntw\xc3")),
             EndsWith("cut: is not UTF-8: byte 0xc3 in line 2; save it as UTF-8"));
}

TEST_CASE("UTF-16 without a byte order mark is called so, in either order") {
  const TempDir folder;
  std::string little;
  std::string big;
  for (const char c : std::string_view("\tGPU0\nGPU0\t X \n")) {
    little += {c, '\0'};
    big += {'\0', c};
  }
  little += std::string("\xe9\0", 2);  // a letter beyond ASCII
  for (const std::string& wide : {little, big}) {
    CHECK_THAT(refusal(folder.write("wide", wide)),
               EndsWith("wide: is UTF-16, not UTF-8; save it as UTF-8"));
  }
}

TEST_CASE("a byte order mark does not count as text") {
  const TempDir folder;
  CHECK(read_text_file(folder.write("marked", "\xef\xbb\xbf{}")) == "{}");
}

TEST_CASE("a pipe that was handed over is read to its end") {
  HandedOver pipe;
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) {
      pipe.write(std::string(10'000, 'x'));  // more than a pipe holds
    }
    pipe.close_writer();
  });
  CHECK(is_readable_file(pipe.path()));
  CHECK(read_text_file(pipe.path()) == std::string(1'000'000, 'x'));
  writer.join();
}

TEST_CASE("a pipe that says nothing is given up, one that says too much is refused") {
  HandedOver pipe;
  CHECK_THAT(refusal(pipe.path(), {.silence = Seconds(0.05)}),
             EndsWith("says nothing for 0.05 seconds"));
  pipe.write("12345678901");
  CHECK_THAT(refusal(pipe.path(), {.most = Bytes(10)}), ContainsSubstring("is too large"));
}

TEST_CASE("the files of a folder come sorted, without what only has the name of a file") {
  const TempDir folder;
  const fs::path b = folder.write("b.json", "");
  const fs::path a = folder.write("a.json", "");
  (void)folder.write("c.txt", "");
  fs::create_directory(folder.path() / "d.json");
  CHECK(files_in(folder.path(), ".json") == std::vector<fs::path>{a, b});
  CHECK_THAT(message_of<InputError>([&] { (void)files_in(a, ".json"); }),
             ContainsSubstring("a.json: cannot be listed: "));
}

TEST_CASE("a file is written whole, over what was there, and leaves nothing beside it") {
  const TempDir folder;
  const auto file = folder.write("out.json", "old and longer");
  write_file(file, "new");
  CHECK(read_text(file) == "new");
  CHECK(entries_of(folder.path()) == 1);
}

TEST_CASE("a file that is replaced keeps its permissions, a new one has those of the umask") {
  const TempDir folder;
  const auto file = folder.write("secret", "old");
  for (const mode_t mode : {0600U, 0664U, 0640U}) {
    REQUIRE(::chmod(file.c_str(), mode) == 0);
    write_file(file, "new");
    CHECK(mode_of(file) == mode);
  }
  const mode_t before = ::umask(027);
  write_file(folder.path() / "fresh", "new");
  ::umask(before);
  CHECK(mode_of(folder.path() / "fresh") == 0640);
}

TEST_CASE("no name that somebody else could have prepared is written to") {
  const TempDir folder;
  const auto victim = folder.write("victim", "precious");
  const auto file = folder.path() / "out.json";
  // The name that the temporary file once had.
  const fs::path trap = fmt::format("{}.tmp{}", file.string(), ::getpid());
  fs::create_symlink(victim, trap);
  write_file(file, "new");
  CHECK(read_text(victim) == "precious");
  CHECK(fs::is_symlink(trap));
  CHECK(read_text(file) == "new");
}

TEST_CASE("what a link points to is replaced, not the link") {
  const TempDir folder;
  const auto file = folder.write("real.json", "old");
  fs::create_symlink("real.json", folder.path() / "link.json");
  write_file(folder.path() / "link.json", "new");
  CHECK(fs::is_symlink(folder.path() / "link.json"));
  CHECK(read_text(file) == "new");
}

TEST_CASE("what is no regular file is written in place") {
  CHECK_NOTHROW(write_file("/dev/null", "text"));
  CHECK(message_of<InputError>([] { write_file("/dev/full", "text"); }) ==
        "/dev/full: cannot be written: No space left on device");
}

TEST_CASE("a file that cannot be written says why, and leaves what was there") {
  const TempDir folder;
  CHECK(message_of<InputError>([&] { write_file(folder.path() / "no" / "out", ""); }) ==
        (folder.path() / "no" / "out").string() + ": cannot be written: No such file or directory");
  const fs::path kept = folder.path() / "kept";
  fs::create_directory(kept);
  CHECK_THROWS_AS(write_file(kept, "text"), InputError);
  CHECK(entries_of(folder.path()) == 1);
}

TEST_CASE("a file that could not be written is refused before work is done for it") {
  const TempDir folder;
  const std::string in = folder.path().string() + "/";
  const auto refused = [&](const std::string& file) {
    return message_of<InputError>([&] { expect_writable(file, "--output"); });
  };
  CHECK(refused(in) == "--output: '" + in + "' is a folder, not a file");
  CHECK_THAT(refused(in + "none/x"), EndsWith("cannot be written: no such folder"));
  CHECK_THAT(refused(in + std::string(300, 'x')),
             EndsWith("cannot be written: File name too long"));
  CHECK_NOTHROW(expect_writable(in + "x", "--output"));
}

TEST_CASE("a private file is empty, new, and nobody else's") {
  const TempDir folder;
  const auto one = make_private_file(folder.path(), "log-");
  const auto two = make_private_file(folder.path(), "log-");
  REQUIRE((one && two));
  CHECK(*one != *two);
  CHECK(one->filename().string().starts_with("log-"));
  CHECK(mode_of(*one) == 0600);
  CHECK_FALSE(make_private_file(folder.path() / "none", "log-"));
}
