// Of the oracle: rows that heads are parts of, turned and normed, and rows side by side.
#include "runtime/trial/layer_oracle.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace spp::runtime {

namespace {

std::size_t place_of(std::int64_t i) { return static_cast<std::size_t>(i); }

/// 1/rms of a head.
double inverse_of(std::span<const double> head, double epsilon) {
  double square = 0;
  for (const double x : head) {
    square += x * x / static_cast<double>(head.size());
  }
  return 1 / std::sqrt(square + epsilon);
}

/// A head, or its part that is turned, by its position, pairs (i, i + half).
void turn(std::span<double> head, double position, double base) {
  const std::size_t half = head.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double angle =
        position * std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    const double low = head[i];
    const double high = head[i + half];
    head[i] = low * std::cos(angle) - high * std::sin(angle);
    head[i + half] = high * std::cos(angle) + low * std::sin(angle);
  }
}

}  // namespace

/// With the gains from row `gain` on.
void LayerOracle::norm_head(const Definition& d, std::vector<double>& head, std::int64_t gain) {
  const double inverse = inverse_of(head, d.epsilon);
  for (std::size_t i = 0; i < head.size(); ++i) {
    head[i] *= inverse * at({Tensor::param, d.param})[place_of(gain) + i];
  }
}

/// The gradient of the normed head becomes that of `x`.
void LayerOracle::norm_head_back(const Definition& d, std::vector<double>& head, const double* x,
                                 std::int64_t gain) {
  const std::size_t n = head.size();
  const double inverse = inverse_of({x, n}, d.epsilon);
  const auto& gains = at({Tensor::param, d.param});
  std::vector<double>& d_gains = make({Tensor::d_param, d.param});
  double of_products = 0;
  for (std::size_t i = 0; i < n; ++i) {
    d_gains[place_of(gain) + i] += head[i] * x[i] * inverse;
    head[i] *= gains[place_of(gain) + i];
    of_products += head[i] * x[i] * inverse / static_cast<double>(n);
  }
  for (std::size_t i = 0; i < n; ++i) {
    head[i] = inverse * (head[i] - x[i] * inverse * of_products);
  }
}

/// q, k and v of a row that consists of parts [q | k | v]; backward: the row's gradient of theirs.
void LayerOracle::split(const Definition& d, bool backward) {
  const TensorRef row_ref = backward ? TensorRef(Tensor::d_value, d.reads[0].label) : d.reads[0];
  std::vector<double>& row = make(row_ref);
  const Value& value = graph_.value(d.reads[0].label);
  const std::int64_t dim = problem_.head_dim;
  const std::int64_t q_heads = problem_.q_heads / value.parts;
  const std::int64_t kv_heads = problem_.kv_heads / value.parts;
  const int label = d.writes[0].label;
  for (const Tensor tensor : {Tensor::q, Tensor::k, Tensor::v}) {
    const bool is_q = tensor == Tensor::q;
    const Tensor gradient = is_q ? Tensor::d_q : tensor == Tensor::k ? Tensor::d_k : Tensor::d_v;
    std::vector<double>& heads = make({backward ? gradient : tensor, label});
    const std::int64_t of_part = is_q ? q_heads : kv_heads;
    const std::int64_t first = is_q ? 0 : tensor == Tensor::k ? q_heads : q_heads + kv_heads;
    const std::int64_t all = of_part * value.parts;
    const bool turns = tensor != Tensor::v && d.constant > 0;
    const bool norms = tensor != Tensor::v && d.param >= 0;
    const std::int64_t gain = is_q ? 0 : dim;  // its first row
    std::vector<double> head(place_of(dim));
    for (std::int64_t r = 0; r < rows(); ++r) {
      for (std::int64_t h = 0; h < all; ++h) {
        const std::int64_t place =
            r * value.width + h / of_part * value.part_width() + (first + h % of_part) * dim;
        double* in_row = &row[place_of(place)];
        const std::int64_t row_of_heads = r + (is_q ? 0 : cached_rows());
        double* in_heads = &heads[place_of((row_of_heads * all + h) * dim)];
        std::copy_n(backward ? in_heads : in_row, dim, head.begin());
        if (norms && !backward) {
          norm_head(d, head, gain);
        }
        if (turns) {
          const double position = position_of(r);
          turn(head, backward ? -position : position, d.constant);
        }
        if (norms && backward) {
          norm_head_back(d, head, &at(d.reads[0])[place_of(place)], gain);
        }
        std::ranges::copy(head, backward ? in_row : in_heads);
      }
    }
  }
}

/// A row's first columns and the others; backward: the row's gradient of theirs.
void LayerOracle::split_columns(const Definition& d, bool backward) {
  const auto ref = [&](TensorRef value) {
    return backward ? TensorRef(Tensor::d_value, value.label) : value;
  };
  std::vector<double>& row = make(ref(d.reads[0]));
  const std::int64_t all = width(d.reads[0]);
  std::int64_t first = 0;
  for (const TensorRef part : d.writes) {
    std::vector<double>& alone = make(ref(part));
    const std::int64_t columns = width(part);
    for (std::int64_t r = 0; r < rows(); ++r) {
      for (std::int64_t i = 0; i < columns; ++i) {
        double& in_row = row[place_of(r * all + first + i)];
        double& in_part = alone[place_of(r * columns + i)];
        backward ? in_row += in_part : in_part = in_row;
      }
    }
    first += columns;
  }
}

/// Heads of latent attention (graph.hpp, split_heads); backward: the rows' gradients of theirs.
void LayerOracle::join_latents(const Definition& d, bool backward) {
  const int label = d.writes[0].label;
  const auto row = [&](std::size_t i) -> std::vector<double>& {
    return make(backward ? TensorRef(Tensor::d_value, d.reads[i].label) : d.reads[i]);
  };
  const auto heads = [&](Tensor forward, Tensor gradient) -> std::vector<double>& {
    return make({backward ? gradient : forward, label});
  };
  std::vector<double>& q_row = row(0);
  std::vector<double>& kv_row = row(1);
  std::vector<double>& position = row(2);
  std::vector<double>& q = heads(Tensor::q, Tensor::d_q);
  std::vector<double>& k = heads(Tensor::k, Tensor::d_k);
  std::vector<double>& v = heads(Tensor::v, Tensor::d_v);
  const std::int64_t dim = problem_.head_dim;
  const std::int64_t turned = width(d.reads[2]);
  const std::int64_t content = dim - turned;
  const std::int64_t value = problem_.v_dim();
  // Numbers of a row become, or are added to by, those of a head; the last `turns` are turned.
  const auto bring = [&](std::vector<double>& in_row, std::int64_t from,
                         std::vector<double>& in_head, std::int64_t to, std::int64_t count,
                         std::int64_t turns, double token) {
    const std::span<double> rows_part = std::span(in_row).subspan(place_of(from), place_of(count));
    const std::span<double> head_part = std::span(in_head).subspan(place_of(to), place_of(count));
    std::vector<double> numbers(backward ? head_part.begin() : rows_part.begin(),
                                backward ? head_part.end() : rows_part.end());
    if (turns > 0 && d.constant > 0) {
      turn(std::span(numbers).last(place_of(turns)), backward ? -token : token, d.constant);
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      backward ? rows_part[i] += numbers[i] : head_part[i] = numbers[i];
    }
  };
  for (std::int64_t r = 0; r < rows(); ++r) {
    const double token = position_of(r);
    for (std::int64_t h = 0; h < problem_.q_heads; ++h) {
      const std::int64_t head = r * problem_.q_heads + h;
      const std::int64_t of_keys = head + cached_rows() * problem_.q_heads;
      const std::int64_t in_kv = head * (content + value);
      bring(q_row, head * dim, q, head * dim, dim, turned, token);
      bring(kv_row, in_kv, k, of_keys * dim, content, 0, token);
      bring(position, r * turned, k, of_keys * dim + content, turned, turned, token);
      bring(kv_row, in_kv + content, v, of_keys * value, value, 0, token);
    }
  }
}

}  // namespace spp::runtime
