#include "runtime/trial/inputs.hpp"

#include "base/error.hpp"
#include "runtime/kernels/convert.hpp"

#include <vector>

namespace spp::runtime {
namespace {

/// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection whose output looks random.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

}  // namespace

float InputData::value(Tensor tensor, std::int64_t batch, std::int64_t token, int head,
                       int dim) const {
  const bool kv = tensor == Tensor::k || tensor == Tensor::v;
  if (token >= requested.seq || head >= (kv ? requested.kv_heads : requested.q_heads)) {
    return 0;
  }
  std::uint64_t place =
      static_cast<std::uint64_t>(batch) * static_cast<std::uint64_t>(requested.seq) +
      static_cast<std::uint64_t>(token);
  place = place * 65536 + static_cast<std::uint64_t>(head);
  place = place * 4096 + static_cast<std::uint64_t>(dim);
  const std::uint64_t key = mixed(seed * 16 + static_cast<std::uint64_t>(tensor));
  // 24 bits: exact in a float.
  const auto bits = static_cast<std::int64_t>(mixed(place ^ key) >> 40U);
  return static_cast<float>(bits - (1 << 23)) / static_cast<float>(1 << 23);
}

void InputData::fill(Tensor tensor, const TokenSet& tokens, HeadRange heads,
                     const Rows& rows) const {
  ensure(rows.count == tokens.count() && rows.heads == heads.count(), "rows of another tile");
  std::vector<float> line(static_cast<std::size_t>(rows.width));
  std::byte* to = rows.data;
  for (const TokenRange& range : tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      for (std::int64_t b = 0; b < rows.batch; ++b) {
        for (int h = heads.begin; h < heads.end; ++h) {
          for (int d = 0; d < rows.width; ++d) {
            line[static_cast<std::size_t>(d)] = value(tensor, b, range.at(i), h, d);
          }
          from_floats(rows.dtype, line, to);
          to += rows.width * size_of(rows.dtype);
        }
      }
    }
  }
}

}  // namespace spp::runtime
