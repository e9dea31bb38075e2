// Files of the outside, read and written in one place.
//
// Reading. Only regular files are read: a device has no end, and a FIFO of that name in a folder
// may never get a writer. An exception are pipes that the caller handed over as a descriptor,
// /dev/stdin and /dev/fd/N, so that `sp-plan plan … | sp-plan verify --plan /dev/stdin` and
// `--model <(curl …)` work: their writer exists already; what it may do is bounded by the same cap
// and by a deadline on silence. Nothing is opened before it is known to be one of these.
//
// Writing. A file is written whole or not at all: into a new file beside it, whose name nobody can
// guess and which is created (O_EXCL), never opened; synced; then renamed. A file that is replaced
// keeps its permissions, a new one has those of the umask.
#pragma once

#include "base/units.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// What is read of one file at most, unless a reader says otherwise: a hundred times a profile or a
/// published configuration, and little enough to be held in memory as a document.
constexpr Bytes most_text{64'000'000};
/// The same of schedules and traces: 2 million lines, as many as this program writes.
constexpr Bytes most_lines_text{1'000'000'000};

struct ReadLimits {
  Bytes most = most_text;
  Seconds silence{60};  // of a pipe, before it is given up
};

/// A text file as UTF-8, without a byte order mark. InputError: with no `option`, "FILE: …"; else
/// "OPTION: 'FILE' …". Refused: what is no file, what is too large, and what is no such text (NUL
/// bytes, UTF-16, a byte of another encoding, whatever line it is in).
std::string read_text_file(const std::filesystem::path& file, std::string_view option = "",
                           const ReadLimits& limits = {});

/// A file that the system keeps about itself (/proc, /sys); "" if there is none.
std::string system_text(const std::filesystem::path& file);

/// A regular file, or a pipe that the caller handed over: what read_text_file() can read.
bool is_readable_file(const std::filesystem::path& file);

/// A name of what the caller handed over as a descriptor: /dev/stdin, /dev/fd/N. To another process
/// it is another file, and a pipe is read once.
bool is_handed_over(const std::filesystem::path& file);

/// The regular files of a folder that end in `extension`, sorted. InputError(folder) if it cannot
/// be listed.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                            std::string_view extension);

/// Whether two names are of one file, which need not exist. Of /dev/null they never are: what is
/// written there is to be lost.
bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other);

/// Refuses a file that cannot be written, before long work is done for it. InputError(option).
void expect_writable(const std::string& file, std::string_view option);

/// Writes text whole or not at all; a link is followed, and what is not a regular file (a pipe,
/// /dev/null) is written in place. InputError(file) if it cannot.
void write_file(const std::filesystem::path& file, std::string_view text);

/// Creates an empty file that only this user can read, `folder`/`prefix` and a name that nobody
/// can guess. Nothing if it cannot.
std::optional<std::filesystem::path> make_private_file(const std::filesystem::path& folder,
                                                       std::string_view prefix);

}  // namespace spp
