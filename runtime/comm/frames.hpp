// What the `tcp` control plane says, as bytes: an encoder and a decoder without sockets. Whatever
// comes is understood or refused; no bytes, in any pieces, make the decoder throw, read beyond
// them, or hold more than one frame of the stated size.
//
//   frame    mark 4 bytes, protocol u16, kind u8, more u8, from i32, to i32, tag i32, size u32;
//            then `size` bytes of payload. All little-endian, field by field: no padding.
//   more     1: the next frame of this kind from this rank with this tag goes on with the payload;
//            so a frame is small however large the message is
//   mark     what no other protocol begins with (its last byte is no text); never changes, and
//            `protocol` stays behind it, so that builds of all times can say what is wrong
//   hello    size u32, request u64, version and token as length u16 and bytes; see Hello
//   texts    of every rank, by rank: length u64 and bytes
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::runtime::tcp {

inline constexpr std::array<std::byte, 4> frame_mark{std::byte{'S'}, std::byte{'P'}, std::byte{'P'},
                                                     std::byte{0xF1}};
inline constexpr std::uint16_t protocol = 2;
inline constexpr std::size_t header_bytes = 24;

/// Payloads: of a hello, which a stranger may send, and of all other frames.
inline constexpr std::size_t largest_hello = 512;
inline constexpr std::size_t largest_payload = 1 << 20;

enum class Kind : std::uint8_t {
  hello,    // rank -> hub: the first frame
  welcome,  // hub -> rank: it takes part
  refused,  // hub -> rank: it does not; the payload says why
  message,  // any rank -> any rank, passed on by the hub
  text,     // rank -> hub: its part of an all_gather_text
  texts,    // hub -> rank: all parts
  abort,    // both ways: the run ends; the payload says why
  alive     // both ways: somebody is at work, though no message moves
};
inline constexpr Kind last_kind = Kind::alive;

struct Header {
  Kind kind = Kind::message;
  bool more = false;
  std::int32_t from = 0, to = 0, tag = 0;
  friend bool operator==(const Header&, const Header&) = default;
};

struct Frame {
  Header header;
  std::vector<std::byte> payload;
  friend bool operator==(const Frame&, const Frame&) = default;
};

/// Appends a message to `out`: one frame, or several with `more`.
void encode(const Header& header, std::span<const std::byte> payload, std::vector<std::byte>& out);

/// Why a sequence of bytes is no sequence of our frames.
enum class Flaw : std::uint8_t { none, not_ours, other_protocol, unknown_kind, too_large };

/// Turns bytes into frames. After a flaw nothing more comes out of it, and it takes nothing more.
class FrameReader {
 public:
  /// `largest`: payload of a frame; more is a flaw as soon as the header says so.
  explicit FrameReader(std::size_t largest) : largest_(largest) {}
  void set_largest(std::size_t largest) { largest_ = largest; }

  /// Takes what was received, in pieces of any size. Called together with next() until that gives
  /// nothing, it never holds more than one frame and the last piece.
  void push(std::span<const std::byte> bytes);
  /// The oldest frame that is whole.
  std::optional<Frame> next();

  [[nodiscard]] Flaw flaw() const { return flaw_; }
  /// Bytes that are held.
  [[nodiscard]] std::size_t held() const { return bytes_.size() - at_; }

 private:
  std::size_t largest_;
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;  // what is before was given out
  Flaw flaw_ = Flaw::none;
};

/// How a rank introduces itself.
struct Hello {
  std::uint32_t size = 0;     // ranks of its run
  std::uint64_t request = 0;  // hash of what it was asked to do
  std::string version;        // at most largest_word bytes
  std::string token;          // likewise
  friend bool operator==(const Hello&, const Hello&) = default;
};
inline constexpr std::size_t largest_word = 200;

std::vector<std::byte> encode_hello(const Hello& hello);
/// Nothing if it is no hello: too short, too long, words that are too long.
std::optional<Hello> decode_hello(std::span<const std::byte> payload);

std::vector<std::byte> encode_texts(std::span<const std::string> texts);
/// Nothing if they are not exactly `count` texts.
std::optional<std::vector<std::string>> decode_texts(std::span<const std::byte> payload,
                                                     std::size_t count);

/// What another process says, fit for one line of a terminal: control characters and bytes that are
/// not UTF-8 are '?', and it ends after `most` bytes.
std::string printable(std::string_view text, std::size_t most);

}  // namespace spp::runtime::tcp
