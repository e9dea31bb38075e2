// What comes over a socket: bytes in pieces become frames or a flaw, and payloads a hello or texts.
// What is understood is written as bytes that mean the same. Nothing throws.
#include "runtime/comm/frames.hpp"

#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace spp::fuzz::targets::frames {
namespace {

using namespace runtime::tcp;

void use(const Frame& frame) {
  std::vector<std::byte> bytes;
  encode(frame.header, frame.payload, bytes);
  FrameReader again(largest_payload);
  again.push(bytes);
  const auto copy = again.next();
  ensure(copy && copy->payload == frame.payload && copy->header.kind == frame.header.kind &&
             copy->header.from == frame.header.from && copy->header.tag == frame.header.tag,
         "writing and reading a frame changed it");
  if (const auto hello = decode_hello(frame.payload)) {
    ensure(decode_hello(encode_hello(*hello)) == hello, "writing and reading a hello changed it");
    ensure(printable(hello->version, largest_word).size() <= largest_word, "it is too long");
  }
  for (const std::size_t count : {std::size_t{1}, std::size_t{3}}) {
    if (const auto texts = decode_texts(frame.payload, count)) {
      ensure(encode_texts(*texts) == frame.payload, "writing and reading texts changed them");
    }
  }
}

}  // namespace

extern const Target entry{
    "frames", Form::bytes, [](std::string_view text) {
      if (text.empty()) {
        return;
      }
      const auto first = static_cast<unsigned char>(text[0]);
      // The first byte says how large the pieces are, and what a stranger may send.
      const std::size_t piece = 1 + first % 64;
      const std::size_t largest = first % 2 == 0 ? largest_hello : largest_payload;
      const std::span<const std::byte> all = std::as_bytes(std::span(text).subspan(1));
      FrameReader reader(largest);
      std::size_t held = 0;
      for (std::size_t at = 0; at < all.size(); at += piece) {
        reader.push(all.subspan(at, std::min(piece, all.size() - at)));
        while (const auto frame = reader.next()) {
          ensure(frame->payload.size() <= largest, "a payload that is too large");
          use(*frame);
        }
        held = std::max(held, reader.held());
      }
      ensure(held <= header_bytes + largest + piece, "more is held than one frame");
      ensure(reader.flaw() == Flaw::none || !reader.next(), "a frame after a flaw");
    }};

}  // namespace spp::fuzz::targets::frames
