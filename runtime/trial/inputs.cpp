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
float uniform(std::uint64_t place, std::uint64_t mixed_key) {
  const auto bits = static_cast<std::int64_t>(mixed(place ^ mixed_key) >> 40U);
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
  if (token >= requested.end() || head >= (kv ? requested.kv_heads : requested.q_heads)) {
    return 0;
  }
  std::uint64_t place =
      static_cast<std::uint64_t>(batch) * static_cast<std::uint64_t>(requested.end()) +
      static_cast<std::uint64_t>(token);
  place = place * 65536 + static_cast<std::uint64_t>(head);
  place = place * 4096 + static_cast<std::uint64_t>(dim);
  return uniform(place, mixed(seed * 16 + static_cast<std::uint64_t>(tensor)));
}

TensorData::TensorData(const InputData& data, TensorRef ref) {
  const Graph& graph = data.graph;
  const Problem& requested = data.requested;
  const bool is_master = ref.tensor == Tensor::master;
  const Tensor tensor = is_master ? Tensor::param : ref.tensor;
  of_tokens_ = is_value(tensor);
  tokens_ = requested.all_tokens();
  key_ = mixed((data.seed * 64 + static_cast<std::uint64_t>(tensor)) * 4096 +
               static_cast<std::uint64_t>(ref.label));
  if (of_tokens_) {
    words_ = graph.value(ref.label).words;
    return;
  }
  const float slope = 1 / static_cast<float>(requested.all_tokens() * requested.batch);
  if (tensor == Tensor::first_moment) {
    below_.scale = slope;
    return;
  }
  if (tensor == Tensor::second_moment) {
    below_ = {.middle = 1, .reach = 0.5F, .scale = slope * slope};
    return;
  }
  const Param& param = graph.param(ref.label);
  const auto user = std::ranges::find(graph.definitions, ref.label, &Definition::param);
  const auto function = user == graph.definitions.end() ? LayerFunction::linear : user->function;
  constexpr Numbers gain{.middle = 1, .reach = 0.25F};
  if (is_norm(function)) {
    rows_below_ = graph.value(user->reads.front().label).width;
    below_ = gain;
    above_.reach = 0.25F;
  } else if (function == LayerFunction::split_heads) {
    below_ = gain;
  } else if (function != LayerFunction::embedding) {
    const std::int64_t rows = param.rows / std::max(param.experts, 1);
    below_.scale = std::sqrt(3.0F / static_cast<float>(rows));
  }
}

float TensorData::operator()(std::int64_t batch, std::int64_t row, std::int64_t column) const {
  if (of_tokens_ && row >= tokens_) {
    return words_ > 0 ? -1 : 0;
  }
  const std::int64_t line = of_tokens_ ? batch * tokens_ + row : row;
  const float u =
      uniform((static_cast<std::uint64_t>(line) << 32U) + static_cast<std::uint64_t>(column), key_);
  if (words_ > 0) {
    const auto all = static_cast<float>(words_);
    return std::min(std::floor((u + 1) / 2 * all), all - 1);
  }
  const Numbers& numbers = row < rows_below_ ? below_ : above_;
  return (numbers.middle + u * numbers.reach) * numbers.scale;
}

void InputData::fill_ref(TensorRef ref, const TokenSet& tokens, HeadRange heads,
                         const Rows& rows) const {
  if (!is_of_graph(ref.tensor)) {
    return fill(ref.tensor, tokens, heads, rows);
  }
  const TensorData data(*this, ref);
  fill_rows(tokens, heads, rows, [&](std::int64_t batch, std::int64_t token, int head, int dim) {
    return data(batch, token, std::int64_t{head} * rows.width + dim);
  });
}

void InputData::fill(Tensor tensor, const TokenSet& tokens, HeadRange heads,
                     const Rows& rows) const {
  fill_rows(tokens, heads, rows, [&](std::int64_t batch, std::int64_t token, int head, int dim) {
    return value(tensor, batch, token, head, dim);
  });
}

}  // namespace spp::runtime
