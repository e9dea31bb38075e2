#include "runtime/trial/inputs.hpp"

#include "base/error.hpp"
#include "runtime/kernels/convert.hpp"

#include <algorithm>
#include <cmath>
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

/// In [-1, 1), of a place: 24 bits, exact in a float.
float uniform(std::uint64_t place, std::uint64_t key) {
  const auto bits = static_cast<std::int64_t>(mixed(place ^ mixed(key)) >> 40U);
  return static_cast<float>(bits - (1 << 23)) / static_cast<float>(1 << 23);
}

bool is_norm(LayerFunction function) {
  return function == LayerFunction::rms_norm || function == LayerFunction::layer_norm;
}

template <class Value>
void fill_rows(const TokenSet& tokens, HeadRange heads, const Rows& rows, Value value) {
  ensure(rows.count == tokens.count() && rows.heads == heads.count(), "rows of another tile");
  std::vector<float> line(static_cast<std::size_t>(rows.width));
  std::byte* to = rows.data;
  for (const TokenRange& range : tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      for (std::int64_t b = 0; b < rows.batch; ++b) {
        for (int h = heads.begin; h < heads.end; ++h) {
          for (int d = 0; d < rows.width; ++d) {
            line[static_cast<std::size_t>(d)] = value(b, range.at(i), h, d);
          }
          from_floats(rows.dtype, line, to);
          to += rows.width * size_of(rows.dtype);
        }
      }
    }
  }
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
  return uniform(place, seed * 16 + static_cast<std::uint64_t>(tensor));
}

float InputData::value(TensorRef ref, std::int64_t batch, std::int64_t row,
                       std::int64_t column) const {
  const bool of_tokens = is_value(ref.tensor);
  const std::int64_t words = of_tokens ? graph.value(ref.label).words : 0;
  if (of_tokens && row >= requested.all_tokens()) {
    return words > 0 ? -1 : 0;
  }
  if (ref.tensor == Tensor::master) {
    return value({Tensor::param, ref.label}, batch, row, column);
  }
  const std::int64_t line = of_tokens ? batch * requested.all_tokens() + row : row;
  const std::uint64_t place =
      (static_cast<std::uint64_t>(line) << 32U) + static_cast<std::uint64_t>(column);
  const std::uint64_t key = (seed * 64 + static_cast<std::uint64_t>(ref.tensor)) * 4096 +
                            static_cast<std::uint64_t>(ref.label);
  const float u = uniform(place, key);
  if (words > 0) {
    const auto all = static_cast<float>(words);
    return std::min(std::floor((u + 1) / 2 * all), all - 1);
  }
  if (of_tokens) {
    return u;
  }
  const float slope = 1 / static_cast<float>(requested.all_tokens() * requested.batch);
  if (ref.tensor == Tensor::first_moment) {
    return u * slope;
  }
  if (ref.tensor == Tensor::second_moment) {
    return (1 + u / 2) * slope * slope;
  }
  const Param& param = graph.param(ref.label);
  const auto user = std::ranges::find(graph.definitions, ref.label, &Definition::param);
  if (user != graph.definitions.end() && is_norm(user->function)) {
    const bool gain = row < graph.value(user->reads.front().label).width;
    return gain ? 1 + u / 4 : u / 4;
  }
  if (user != graph.definitions.end() && user->function == LayerFunction::split_heads) {
    return 1 + u / 4;
  }
  const bool is_table =
      user != graph.definitions.end() && user->function == LayerFunction::embedding;
  const auto rows = static_cast<float>(param.rows / std::max(param.experts, 1));
  return is_table ? u : u * std::sqrt(3.0F / rows);
}

void InputData::fill_ref(TensorRef ref, const TokenSet& tokens, HeadRange heads,
                         const Rows& rows) const {
  if (!is_of_graph(ref.tensor)) {
    return fill(ref.tensor, tokens, heads, rows);
  }
  fill_rows(tokens, heads, rows, [&](std::int64_t batch, std::int64_t token, int head, int dim) {
    return value(ref, batch, token, std::int64_t{head} * rows.width + dim);
  });
}

void InputData::fill(Tensor tensor, const TokenSet& tokens, HeadRange heads,
                     const Rows& rows) const {
  fill_rows(tokens, heads, rows, [&](std::int64_t batch, std::int64_t token, int head, int dim) {
    return value(tensor, batch, token, head, dim);
  });
}

}  // namespace spp::runtime
