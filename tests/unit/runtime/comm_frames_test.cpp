// Bytes of the `tcp` control plane: what is encoded is decoded, in any pieces; all else is refused.
#include "runtime/comm/frames.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

using namespace spp::runtime::tcp;

namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes encoded(const Header& header, std::string_view payload) {
  Bytes out;
  encode(header, bytes_of(payload), out);
  return out;
}

/// All frames of `bytes`, pushed in pieces of `piece` bytes.
std::vector<Frame> decoded(FrameReader& reader, std::span<const std::byte> bytes,
                           std::size_t piece) {
  std::vector<Frame> frames;
  while (!bytes.empty()) {
    const std::size_t n = std::min(piece, bytes.size());
    reader.push(bytes.first(n));
    bytes = bytes.subspan(n);
    while (auto frame = reader.next()) {
      frames.push_back(std::move(*frame));
    }
  }
  return frames;
}

Flaw flaw_of(const Bytes& bytes, std::size_t largest = largest_payload) {
  FrameReader reader(largest);
  reader.push(bytes);
  while (reader.next()) {
  }
  return reader.flaw();
}

constexpr std::size_t kind_at = 6;
constexpr std::size_t size_at = 20;

}  // namespace

TEST_CASE("frames come out as they went in, whatever the pieces") {
  Bytes bytes;
  const std::vector<Frame> frames{
      {{.kind = Kind::hello, .from = 3, .to = 0}, bytes_of("hello")},
      {{.kind = Kind::message, .more = true, .from = 1, .to = 2, .tag = 63}, bytes_of("")},
      {{.kind = Kind::message, .from = -1, .to = 1 << 30, .tag = -7}, bytes_of("x")},
      {{.kind = Kind::alive}, {}}};
  for (const Frame& frame : frames) {
    encode(frame.header, frame.payload, bytes);
  }
  for (const std::size_t piece : {1, 2, 3, 23, 24, 25, 1000}) {
    FrameReader reader(largest_payload);
    CHECK(decoded(reader, bytes, piece) == frames);
    CHECK(reader.flaw() == Flaw::none);
    CHECK(reader.held() == 0);
  }
}

TEST_CASE("a header is 24 bytes, little-endian, field by field") {
  const Bytes bytes =
      encoded({.kind = Kind::text, .more = true, .from = 1, .to = 0x01020304, .tag = -2}, "ab");
  const Bytes expected =
      bytes_of(std::string_view("SPP\xF1"
                                "\x02\x00\x04\x01"
                                "\x01\x00\x00\x00"
                                "\x04\x03\x02\x01"
                                "\xFE\xFF\xFF\xFF"
                                "\x02\x00\x00\x00"
                                "ab",
                                26));
  CHECK(bytes == expected);
}

TEST_CASE("a message that is larger than a frame travels in several") {
  const std::string large(2 * largest_payload + 5, 'm');
  FrameReader reader(largest_payload);
  const auto frames = decoded(reader, encoded({.kind = Kind::message, .from = 1}, large), 1 << 16);
  REQUIRE(frames.size() == 3);
  CHECK(frames[0].header.more);
  CHECK(frames[1].header.more);
  CHECK_FALSE(frames[2].header.more);
  CHECK(frames[0].payload.size() + frames[1].payload.size() + frames[2].payload.size() ==
        large.size());
}

TEST_CASE("what does not begin with our mark is refused with its first wrong byte") {
  for (const std::string_view text : {"GET / HTTP/1.1\r\n\r\n", "G", "SPP ", "SPQ", "1pps"}) {
    CHECK(flaw_of(bytes_of(text)) == Flaw::not_ours);
  }
  CHECK(flaw_of(bytes_of("SPP")) == Flaw::none);  // it may still become one
}

TEST_CASE("another protocol, unknown kinds and sizes above the limit are told apart") {
  Bytes other = encoded({.kind = Kind::text}, "ab");
  other[4] = std::byte{9};
  CHECK(flaw_of(other) == Flaw::other_protocol);
  Bytes unknown = encoded({.kind = Kind::text}, "ab");
  unknown[kind_at] = std::byte{200};
  CHECK(flaw_of(unknown) == Flaw::unknown_kind);
  Bytes huge = encoded({.kind = Kind::text}, "");
  std::fill_n(huge.begin() + size_at, 4, std::byte{0xFF});
  CHECK(flaw_of(huge) == Flaw::too_large);  // before a byte of it has come
  CHECK(flaw_of(encoded({.kind = Kind::hello}, std::string(largest_hello, 'x')), largest_hello) ==
        Flaw::none);
  CHECK(flaw_of(encoded({.kind = Kind::hello}, std::string(largest_hello + 1, 'x')),
                largest_hello) == Flaw::too_large);
}

TEST_CASE("a reader that has refused gives nothing and keeps nothing") {
  FrameReader reader(largest_payload);
  reader.push(bytes_of("HTTP"));
  CHECK_FALSE(reader.next());
  reader.push(encoded({.kind = Kind::text}, "ab"));
  CHECK_FALSE(reader.next());
  CHECK(reader.flaw() == Flaw::not_ours);
  CHECK(reader.held() == 0);
}

TEST_CASE("a hello is read back; one that is cut, longer or too wordy is none") {
  const Hello hello{.size = 4, .request = 0x0123456789abcdefULL, .version = "1.0", .token = "abc"};
  const Bytes bytes = encode_hello(hello);
  CHECK(decode_hello(bytes) == hello);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CHECK_FALSE(decode_hello(std::span(bytes).first(n)));
  }
  Bytes longer = bytes;
  longer.push_back({});
  CHECK_FALSE(decode_hello(longer));
  Hello wordy = hello;
  wordy.token = std::string(largest_word, 't');
  wordy.version = std::string(largest_word, 'v');
  CHECK(decode_hello(encode_hello(wordy)) == wordy);
  CHECK(encode_hello(wordy).size() <= largest_hello);
  wordy.token += 't';
  CHECK_FALSE(decode_hello(encode_hello(wordy)));
}

TEST_CASE("texts of ranks are read back; another count or cut ones are refused") {
  const std::vector<std::string> texts{"", "a", std::string("b\0c", 3)};
  const Bytes bytes = encode_texts(texts);
  CHECK(decode_texts(bytes, 3) == texts);
  CHECK_FALSE(decode_texts(bytes, 2));
  CHECK_FALSE(decode_texts(bytes, 4));
  CHECK_FALSE(decode_texts(bytes, std::size_t{1} << 60));
  CHECK_FALSE(decode_texts(std::span(bytes).first(bytes.size() - 1), 3));
  Bytes long_text = bytes;
  std::fill_n(long_text.begin(), 8, std::byte{0xFF});
  CHECK_FALSE(decode_texts(long_text, 3));
}

TEST_CASE("what others say is printed without control characters, and not for ever") {
  CHECK(printable("rank 1: 5 ± 1 … ok", 100) == "rank 1: 5 ± 1 … ok");
  CHECK(printable("\x1b[31mred\n\x07", 100) == "?[31mred??");
  CHECK(printable("\xc2\x9b"
                  "2J",
                  100) == "??2J");                 // a control character of two bytes
  CHECK(printable("\xff\xfe\xc3", 100) == "???");  // not UTF-8
  CHECK(printable("\xe2\x80\xae"
                  "abc",
                  100) == "???abc");     // writes backwards
  CHECK(printable("abc±", 4) == "abc");  // never half a character
  CHECK(printable(std::string(1000, 'x'), 10).size() == 10);
}
