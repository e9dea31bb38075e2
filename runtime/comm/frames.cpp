#include "runtime/comm/frames.hpp"

#include <algorithm>
#include <concepts>
#include <utility>

namespace spp::runtime::tcp {
namespace {

/// Whole numbers, least byte first.
template <std::integral Number>
void put(Number value, std::vector<std::byte>& out) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    out.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFFU));
  }
}

void put(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// Reads the same; once something was missing, all that follows is 0 or empty.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  Number number() {
    std::uint64_t value = 0;
    const std::span<const std::byte> field = take(sizeof(Number));
    for (std::size_t i = 0; i < field.size(); ++i) {
      value |= std::to_integer<std::uint64_t>(field[i]) << (8 * i);
    }
    return static_cast<Number>(value);
  }
  std::string text(std::uint64_t length) {
    const std::span<const std::byte> field = take(length);
    std::string text(field.size(), '\0');
    std::ranges::transform(field, text.begin(), [](std::byte b) { return static_cast<char>(b); });
    return text;
  }
  /// All was there, and nothing is left.
  [[nodiscard]] bool complete() const { return complete_ && bytes_.empty(); }

 private:
  std::span<const std::byte> take(std::uint64_t size) {
    if (!complete_ || size > bytes_.size()) {
      complete_ = false;
      return {};
    }
    const auto count = static_cast<std::size_t>(size);
    const std::span<const std::byte> field = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return field;
  }

  std::span<const std::byte> bytes_;
  bool complete_ = true;
};

void encode_frame(const Header& header, bool more, std::span<const std::byte> payload,
                  std::vector<std::byte>& out) {
  put(frame_mark, out);
  put(protocol, out);
  put(static_cast<std::uint8_t>(header.kind), out);
  put(static_cast<std::uint8_t>(more ? 1 : 0), out);
  put(header.from, out);
  put(header.to, out);
  put(header.tag, out);
  put(static_cast<std::uint32_t>(payload.size()), out);
  put(payload, out);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Bytes of the UTF-8 character that `text` begins with; 0: it begins with none, or with a control
/// character.
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  unsigned code = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) {
      return 0;
    }
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::array<unsigned, 5> least{0, 0, 0xA0, 0x800, 0x10000};  // 0x80 to 0x9F: controls
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  const bool direction = (code >= 0x200E && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
                         (code >= 0x2066 && code <= 0x2069);  // they, too, change what is seen
  return lead >= 0xC2 && lead <= 0xF4 && code >= least[length] && code <= 0x10FFFF && !surrogate &&
                 !direction
             ? length
             : 0;
}

}  // namespace

void encode(const Header& header, std::span<const std::byte> payload, std::vector<std::byte>& out) {
  while (payload.size() > largest_payload) {
    encode_frame(header, true, payload.first(largest_payload), out);
    payload = payload.subspan(largest_payload);
  }
  encode_frame(header, header.more, payload, out);
}

void FrameReader::push(std::span<const std::byte> bytes) {
  if (flaw_ != Flaw::none) {
    return;
  }
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<Frame> FrameReader::next() {
  const auto refuse = [this](Flaw flaw) {
    flaw_ = flaw;
    bytes_ = {};
    at_ = 0;
    return std::nullopt;
  };
  const std::span<const std::byte> bytes = std::span(bytes_).subspan(at_);
  const std::size_t seen = std::min(bytes.size(), frame_mark.size());
  if (!std::ranges::equal(bytes.first(seen), std::span(frame_mark).first(seen))) {
    return refuse(Flaw::not_ours);
  }
  if (bytes.size() < header_bytes) {
    return std::nullopt;
  }
  Fields fields(bytes.subspan(frame_mark.size(), header_bytes - frame_mark.size()));
  if (fields.number<std::uint16_t>() != protocol) {
    return refuse(Flaw::other_protocol);
  }
  const auto kind = fields.number<std::uint8_t>();
  const auto more = fields.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(last_kind) || more > 1) {
    return refuse(Flaw::unknown_kind);
  }
  Frame frame;
  frame.header.kind = static_cast<Kind>(kind);
  frame.header.more = more == 1;
  frame.header.from = fields.number<std::int32_t>();
  frame.header.to = fields.number<std::int32_t>();
  frame.header.tag = fields.number<std::int32_t>();
  const std::size_t size = fields.number<std::uint32_t>();
  if (size > largest_) {
    return refuse(Flaw::too_large);
  }
  if (bytes.size() - header_bytes < size) {
    return std::nullopt;
  }
  const std::span<const std::byte> payload = bytes.subspan(header_bytes, size);
  frame.payload.assign(payload.begin(), payload.end());
  at_ += header_bytes + size;
  return frame;
}

std::vector<std::byte> encode_hello(const Hello& hello) {
  std::vector<std::byte> out;
  put(hello.size, out);
  put(hello.request, out);
  for (const std::string& word : {hello.version, hello.token}) {
    put(static_cast<std::uint16_t>(word.size()), out);
    put(bytes_of(word), out);
  }
  return out;
}

std::optional<Hello> decode_hello(std::span<const std::byte> payload) {
  Fields fields(payload);
  Hello hello;
  hello.size = fields.number<std::uint32_t>();
  hello.request = fields.number<std::uint64_t>();
  hello.version = fields.text(fields.number<std::uint16_t>());
  hello.token = fields.text(fields.number<std::uint16_t>());
  const bool short_words =
      hello.version.size() <= largest_word && hello.token.size() <= largest_word;
  return fields.complete() && short_words ? std::optional(std::move(hello)) : std::nullopt;
}

std::vector<std::byte> encode_texts(std::span<const std::string> texts) {
  std::vector<std::byte> out;
  for (const std::string& text : texts) {
    put(std::uint64_t{text.size()}, out);
    put(bytes_of(text), out);
  }
  return out;
}

std::optional<std::vector<std::string>> decode_texts(std::span<const std::byte> payload,
                                                     std::size_t count) {
  constexpr std::size_t least = sizeof(std::uint64_t);  // of one text
  if (count > payload.size() / least) {
    return std::nullopt;
  }
  Fields fields(payload);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    texts.push_back(fields.text(fields.number<std::uint64_t>()));
  }
  return fields.complete() ? std::optional(std::move(texts)) : std::nullopt;
}

std::string printable(std::string_view text, std::size_t most) {
  std::string line;
  while (!text.empty()) {
    const std::size_t length = character(text);
    const std::string_view shown = length > 0 ? text.substr(0, length) : std::string_view("?");
    if (line.size() + shown.size() > most) {
      break;
    }
    line += shown;
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return line;
}

}  // namespace spp::runtime::tcp
