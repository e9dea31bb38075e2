#include "runtime/kernels/products.hpp"

#include "base/error.hpp"
#include "runtime/kernels/convert.hpp"
#include "schedule/measure.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <vector>

namespace spp::runtime {
namespace {

using Eigen::Index;
using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Some rows and elements of one head of one batch element.
struct Part {
  std::int64_t batch = 0;
  int head = 0;
  std::int64_t row = 0, rows = 0;
  std::int64_t first = 0, width = 0;

  /// All rows of a head.
  static Part of(const Rows& r, std::int64_t batch, int head) {
    return {.batch = batch, .head = head, .row = 0, .rows = r.count, .first = 0, .width = r.width};
  }
  [[nodiscard]] Part strip(std::int64_t from, std::int64_t count) const {
    Part part = *this;
    part.row = from;
    part.rows = count;
    return part;
  }
  [[nodiscard]] Part columns(std::int64_t from, std::int64_t count) const {
    Part part = *this;
    part.first = from;
    part.width = count;
    return part;
  }
  /// Where row i of the part begins in memory.
  [[nodiscard]] std::byte* at(const Rows& r, std::int64_t i) const {
    const std::int64_t element = (((row + i) * r.batch + batch) * r.heads + head) * r.width + first;
    return r.data + element * size_of(r.dtype);
  }
};

FloatMatrix take(const Rows& rows, const Part& part) {
  FloatMatrix m(part.rows, part.width);
  for (std::int64_t i = 0; i < part.rows; ++i) {
    to_floats(rows.dtype, part.at(rows, i),
              {m.row(i).data(), static_cast<std::size_t>(part.width)});
  }
  return m;
}

void put(const FloatMatrix& m, const Rows& rows, const Part& part) {
  ensure(m.rows() == part.rows && m.cols() == part.width, "a product of another shape");
  for (std::int64_t i = 0; i < part.rows; ++i) {
    from_floats(rows.dtype, {m.row(i).data(), static_cast<std::size_t>(part.width)},
                part.at(rows, i));
  }
}

/// Queries that are worked on at once, so that a strip of whole rows stays in the cache.
std::int64_t strip_of(std::int64_t width) {
  constexpr std::int64_t most = std::int64_t{1} << 18;
  return std::clamp<std::int64_t>(most / std::max<std::int64_t>(1, width), 1, 256);
}

/// body(batch, head), then polls.
template <class Body>
void for_each_head(const Rows& rows, const Poll& poll, Body body) {
  for (std::int64_t b = 0; b < rows.batch; ++b) {
    for (int h = 0; h < rows.heads; ++h) {
      body(b, h);
      if (poll) {
        poll();
      }
    }
  }
}

/// body(part) for strips of all rows of a head; polls after each.
template <class Body>
void for_each_strip(const Rows& rows, std::int64_t width, const Poll& poll, Body body) {
  const std::int64_t strip = strip_of(width);
  for_each_head(rows, {}, [&](std::int64_t b, int h) {
    for (std::int64_t from = 0; from < rows.count; from += strip) {
      body(Part::of(rows, b, h).strip(from, std::min(strip, rows.count - from)));
      if (poll) {
        poll();
      }
    }
  });
}

int group_of(const Rows& many, const Rows& few) {
  ensure(many.heads % few.heads == 0, "query heads are no multiple of KV heads");
  return many.heads / few.heads;
}

float scale_of(int head_dim) { return 1 / std::sqrt(static_cast<float>(head_dim)); }

/// Row i sees columns up to i.
FloatMatrix causal(FloatMatrix pairs) {
  for (Index i = 0; i < pairs.rows(); ++i) {
    pairs.row(i).tail(pairs.cols() - i - 1).setZero();
  }
  return pairs;
}

/// body(first row, rows) for chunks of all rows, first to last.
template <class Body>
void for_each_chunk(std::int64_t rows, Body body) {
  for (std::int64_t from = 0; from < rows; from += linear_chunk) {
    body(from, std::min(linear_chunk, rows - from));
  }
}

}  // namespace

void scores(const Rows& rows, const Rows& columns, const Rows& to, std::int64_t first,
            const Poll& poll) {
  const int group = group_of(rows, columns);
  for_each_strip(rows, columns.count, poll, [&](const Part& part) {
    const FloatMatrix keys = take(columns, Part::of(columns, part.batch, part.head / group));
    put(take(rows, part) * keys.transpose(), to, part.columns(first, columns.count));
  });
}

void softmax(const Rows& scores, const Rows& weights, const Visibility& visible, float scale,
             const Poll& poll) {
  std::vector<std::int64_t> queries;
  for (const TokenRange& range : visible.q_tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      queries.push_back(range.at(i));
    }
  }
  const TokenRange keys = visible.k_tokens.ranges()[0];
  for_each_strip(scores, scores.width, poll, [&](const Part& part) {
    FloatMatrix m = take(scores, part);
    for (Index i = 0; i < m.rows(); ++i) {
      const Interval seen = visible_keys(queries[static_cast<std::size_t>(part.row + i)], keys,
                                         visible.mask, visible.seq);
      auto row = m.row(i).array();
      row.head(seen.begin).setZero();
      row.tail(m.cols() - std::max(seen.begin, seen.end)).setZero();
      if (!seen.empty()) {
        auto among = row.segment(seen.begin, seen.count());
        const float most = among.maxCoeff();
        among = (scale * (among - most)).exp();
        among /= among.sum();
      }
    }
    put(m, weights, part);
  });
}

void softmax_backward(const Rows& weights, const Rows& d_weights, const Rows& d_scores, float scale,
                      const Poll& poll) {
  for_each_strip(weights, weights.width, poll, [&](const Part& part) {
    const FloatMatrix p = take(weights, part);
    FloatMatrix d = take(d_weights, part);
    for (Index i = 0; i < d.rows(); ++i) {
      const float mean = p.row(i).dot(d.row(i));
      d.row(i).array() = scale * p.row(i).array() * (d.row(i).array() - mean);
    }
    put(d, d_scores, part);
  });
}

void weigh(const Rows& weights, const Rows& values, const Rows& to, std::int64_t first,
           bool initial, const Poll& poll) {
  const int group = group_of(to, values);
  for_each_strip(to, values.count, poll, [&](const Part& part) {
    const FloatMatrix v = take(values, Part::of(values, part.batch, part.head / group));
    FloatMatrix sum = take(weights, part.columns(first, values.count)) * v;
    if (!initial) {
      sum += take(to, part);
    }
    put(sum, to, part);
  });
}

void weigh_back(const Rows& weights, const Rows& rows, const Rows& to, std::int64_t first,
                const Poll& poll) {
  const int group = group_of(rows, to);
  const std::int64_t strip = strip_of(to.count);
  for_each_head(to, poll, [&](std::int64_t b, int kv) {
    FloatMatrix sum = FloatMatrix::Zero(to.count, to.width);
    for (int h = kv * group; h < (kv + 1) * group; ++h) {
      for (std::int64_t from = 0; from < rows.count; from += strip) {
        const std::int64_t count = std::min(strip, rows.count - from);
        const Part part = Part::of(rows, b, h).strip(from, count);
        sum += take(weights, part.columns(first, to.count)).transpose() * take(rows, part);
      }
    }
    put(sum, to, Part::of(to, b, kv));
  });
}

void linear_forward(const Rows& q, const Rows& k, const Rows& v, const Rows& out,
                    const Poll& poll) {
  const int group = group_of(q, k);
  const float scale = scale_of(q.width);
  for_each_head(q, poll, [&](std::int64_t b, int h) {
    const Part queries = Part::of(q, b, h);
    const Part keys = Part::of(k, b, h / group);
    FloatMatrix state = FloatMatrix::Zero(k.width, v.width);
    for_each_chunk(q.count, [&](std::int64_t from, std::int64_t count) {
      const FloatMatrix of_q = take(q, queries.strip(from, count));
      const FloatMatrix of_k = take(k, keys.strip(from, count));
      const FloatMatrix of_v = take(v, keys.strip(from, count));
      const FloatMatrix sum = causal(of_q * of_k.transpose()) * of_v + of_q * state;
      put(scale * sum, out, queries.strip(from, count));
      state += of_k.transpose() * of_v;
    });
  });
}

void linear_backward(const LinearBackwardArgs& args, const Poll& poll) {
  const auto& [q, k, v, d_out, d_q, d_k, d_v] = args;
  const int group = group_of(q, k);
  const float scale = scale_of(q.width);
  const std::int64_t chunks = (q.count + linear_chunk - 1) / linear_chunk;
  for_each_head(k, poll, [&](std::int64_t b, int kv) {
    const Part keys = Part::of(k, b, kv);
    FloatMatrix sum_k = FloatMatrix::Zero(k.count, k.width);
    FloatMatrix sum_v = FloatMatrix::Zero(v.count, v.width);
    for (int h = kv * group; h < (kv + 1) * group; ++h) {
      const Part queries = Part::of(q, b, h);
      FloatMatrix before = FloatMatrix::Zero(k.width, v.width);  // sum of k (x) v
      for_each_chunk(q.count, [&](std::int64_t from, std::int64_t count) {
        const FloatMatrix of_k = take(k, keys.strip(from, count));
        const FloatMatrix of_v = take(v, keys.strip(from, count));
        const FloatMatrix of_d = take(d_out, queries.strip(from, count));
        const FloatMatrix sum = causal(of_d * of_v.transpose()) * of_k + of_d * before.transpose();
        put(scale * sum, d_q, queries.strip(from, count));
        before += of_k.transpose() * of_v;
      });
      FloatMatrix after = FloatMatrix::Zero(k.width, v.width);  // sum of q (x) d_out
      for (std::int64_t c = chunks - 1; c >= 0; --c) {
        const std::int64_t from = c * linear_chunk;
        const std::int64_t count = std::min(linear_chunk, q.count - from);
        const FloatMatrix of_q = take(q, queries.strip(from, count));
        const FloatMatrix of_k = take(k, keys.strip(from, count));
        const FloatMatrix of_v = take(v, keys.strip(from, count));
        const FloatMatrix of_d = take(d_out, queries.strip(from, count));
        sum_k.middleRows(from, count) +=
            causal(of_d * of_v.transpose()).transpose() * of_q + of_v * after.transpose();
        sum_v.middleRows(from, count) +=
            causal(of_q * of_k.transpose()).transpose() * of_d + of_k * after;
        after += of_q.transpose() * of_d;
      }
    }
    put(scale * sum_k, d_k, keys);
    put(scale * sum_v, d_v, keys);
  });
}

void make_state(const Rows& rows, const Rows& values, const Rows& to, const Poll& poll) {
  const int group = group_of(rows, to);
  for_each_head(to, poll, [&](std::int64_t b, int kv) {
    FloatMatrix sum = FloatMatrix::Zero(rows.width, values.width);
    for (int h = kv * group; h < (kv + 1) * group; ++h) {
      for_each_chunk(rows.count, [&](std::int64_t from, std::int64_t count) {
        const Part part = Part::of(rows, b, h).strip(from, count);
        sum += take(rows, part).transpose() * take(values, part);
      });
    }
    put(Eigen::Map<const FloatMatrix>(sum.data(), 1, sum.size()), to, Part::of(to, b, kv));
  });
}

void sum_states(const Rows& from, const Rows& to) {
  for_each_head(to, {}, [&](std::int64_t b, int kv) {
    const FloatMatrix slots = take(from, Part::of(from, b, kv));
    put(slots.colwise().sum(), to, Part::of(to, b, kv));
  });
}

void apply_state(const Rows& rows, const Rows& state, const Rows& to, StateUse use,
                 const Poll& poll) {
  const int group = group_of(rows, state);
  const int dim = rows.width;
  for_each_strip(rows, dim, poll, [&](const Part& part) {
    const FloatMatrix flat = take(state, Part::of(state, part.batch, part.head / group));
    const Eigen::Map<const FloatMatrix> m(flat.data(), dim, dim);
    FloatMatrix result = scale_of(dim) * take(rows, part);
    result = use.transposed ? FloatMatrix(result * m.transpose()) : FloatMatrix(result * m);
    if (use.add) {
      result += take(to, part);
    }
    put(result, to, part);
  });
}

}  // namespace spp::runtime
