#include "runtime/kernels/reference_attention.hpp"

#include "base/error.hpp"
#include "runtime/kernels/convert.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace spp::runtime {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Column = Eigen::VectorXd;

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<std::int64_t> listed(const TokenSet& set) {
  std::vector<std::int64_t> tokens;
  for (const TokenRange& r : set.ranges()) {
    for (std::int64_t i = 0; i < r.count; ++i) {
      tokens.push_back(r.at(i));
    }
  }
  return tokens;
}

/// One head of one batch element.
struct Head {
  std::int64_t batch = 0;
  int head = 0;
};

/// Element index of (row, batch, head, 0) in [rows, B, H, width].
std::int64_t index_of(const Rows& rows, std::int64_t row, Head of) {
  return ((row * rows.batch + of.batch) * rows.heads + of.head) * rows.width;
}

/// Rows [from, from + count) of a head, as a matrix [count, width].
Matrix matrix_of(const Rows& rows, Head of, std::int64_t from, std::int64_t count) {
  Matrix m(count, rows.width);
  for (Index r = 0; r < count; ++r) {
    for (int d = 0; d < rows.width; ++d) {
      m(r, d) = load(rows.dtype, rows.data, index_of(rows, from + r, of) + d);
    }
  }
  return m;
}

void put(const Matrix& m, std::span<double> to, const Rows& like, Head of, std::int64_t from) {
  for (Index r = 0; r < m.rows(); ++r) {
    std::copy_n(m.row(r).data(), m.cols(),
                to.data() + index_of(like, from + static_cast<std::int64_t>(r), of));
  }
}

/// Like q, but as wide as values.
Rows outputs_of(const Rows& q, const Rows& v) {
  Rows out = q;
  out.width = v.width;
  return out;
}

/// Rows [from, from + count) of lse or delta.
Column column_of(std::span<const double> values, const Rows& q, Head of, std::int64_t from,
                 std::int64_t count) {
  Column c(count);
  for (Index r = 0; r < count; ++r) {
    c(r) = values[static_cast<std::size_t>(index_of(q, from + r, of) / q.width)];
  }
  return c;
}

/// What all heads have in common, and the strips of queries that they are worked on in.
class Block {
 public:
  Block(const Rows& q, const Rows& k, const Visibility& visible)
      : queries_(listed(visible.q_tokens)),
        keys_(listed(visible.k_tokens)),
        mask_(visible.mask),
        seq_(visible.seq),
        group_(q.heads / k.heads),
        scale_(1 / std::sqrt(static_cast<double>(q.width))) {
    ensure(std::ssize(queries_) == q.count && std::ssize(keys_) == k.count,
           "attention over other tokens than its rows hold");
    ensure(q.heads % k.heads == 0, "query heads are no multiple of KV heads");
  }

  [[nodiscard]] int kv_head(int head) const { return head / group_; }
  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] std::int64_t strip() const {
    constexpr std::int64_t most = std::int64_t{1} << 20;
    return std::clamp<std::int64_t>(most / std::max<std::int64_t>(1, std::ssize(keys_)), 1, 64);
  }

  /// Scores of queries `from` on, `hidden` where not visible.
  [[nodiscard]] Matrix scores(const Matrix& q, const Matrix& k, std::int64_t from,
                              double hidden = -infinity) const {
    Matrix s = scale_ * (q * k.transpose());
    for (Index r = 0; r < s.rows(); ++r) {
      const std::int64_t query = queries_[static_cast<std::size_t>(from + r)];
      for (Index c = 0; c < s.cols(); ++c) {
        const std::int64_t key = keys_[static_cast<std::size_t>(c)];
        if (key >= seq_ || !mask_.allows(query, key)) {
          s(r, c) = hidden;
        }
      }
    }
    return s;
  }

 private:
  std::vector<std::int64_t> queries_, keys_;
  Mask mask_;
  std::int64_t seq_;
  int group_;
  double scale_;
};

/// log of the sum of e^s; -infinity where nothing is visible.
Column log_sum_exp(const Matrix& s) {
  Column lse(s.rows());
  for (Index r = 0; r < s.rows(); ++r) {
    const double max = s.cols() > 0 ? s.row(r).maxCoeff() : -infinity;
    lse(r) = max == -infinity ? -infinity : max + std::log((s.row(r).array() - max).exp().sum());
  }
  return lse;
}

/// e^(s - lse); 0 in rows that saw no key at all.
Matrix probabilities(Matrix s, const Column& lse) {
  for (Index r = 0; r < s.rows(); ++r) {
    if (lse(r) == -infinity) {
      s.row(r).setZero();
    } else {
      // Eigen's exp of -infinity is a denormal number, which slows down what multiplies it.
      s.row(r) = (s.row(r).array() == -infinity).select(0.0, (s.row(r).array() - lse(r)).exp());
    }
  }
  return s;
}

template <class Body>
void for_each_head(const Rows& rows, Body&& body) {
  for (std::int64_t b = 0; b < rows.batch; ++b) {
    for (int h = 0; h < rows.heads; ++h) {
      body(Head{.batch = b, .head = h});
    }
  }
}

void backward_of_head(const ReferenceBackward& args, const Block& block, Head kv, Head head,
                      Matrix& d_k, Matrix& d_v, const Poll& poll) {
  const Matrix k = matrix_of(args.k, kv, 0, args.k.count);
  const Matrix v = matrix_of(args.v, kv, 0, args.v.count);
  const auto add_gradients = [&](const Matrix& d_s, const Matrix& p, const Matrix& q,
                                 const Matrix& d_out, std::int64_t from) {
    if (!args.d_q.empty()) {
      put(d_s * k, args.d_q, args.q, head, from);
    }
    if (!args.d_k.empty()) {
      d_k += d_s.transpose() * q;
      d_v += p.transpose() * d_out;
    }
    if (poll) {
      poll();
    }
  };
  for (std::int64_t from = 0; from < args.q.count; from += block.strip()) {
    const std::int64_t count = std::min(block.strip(), args.q.count - from);
    const Matrix q = matrix_of(args.q, head, from, count);
    const Matrix d_out = matrix_of(args.d_out, head, from, count);
    if (args.function == AttentionFunction::linear) {
      add_gradients(block.scores(d_out, v, from, 0), block.scores(q, k, from, 0), q, d_out, from);
      continue;
    }
    const Column lse = column_of(args.lse, args.q, head, from, count);
    const Column delta = column_of(args.delta, args.q, head, from, count);
    const Matrix p = probabilities(block.scores(q, k, from), lse);
    Matrix d_s = d_out * v.transpose();
    d_s.colwise() -= delta;
    d_s = block.scale() * p.cwiseProduct(d_s);
    for (Index r = 0; r < d_s.rows(); ++r) {
      if (lse(r) == -infinity) {
        d_s.row(r).setZero();  // whatever delta is
      }
    }
    add_gradients(d_s, p, q, d_out, from);
  }
}

}  // namespace

void reference_forward(const ReferenceForward& args, const Poll& poll) {
  const Block block(args.q, args.k, args.visible);
  const Rows outputs = outputs_of(args.q, args.v);
  for_each_head(args.q, [&](Head head) {
    const Head kv{.batch = head.batch, .head = block.kv_head(head.head)};
    const Matrix k = matrix_of(args.k, kv, 0, args.k.count);
    const Matrix v = matrix_of(args.v, kv, 0, args.v.count);
    for (std::int64_t from = 0; from < args.q.count; from += block.strip()) {
      const std::int64_t count = std::min(block.strip(), args.q.count - from);
      const Matrix q = matrix_of(args.q, head, from, count);
      if (args.function == AttentionFunction::linear) {
        put(block.scores(q, k, from, 0) * v, args.out, outputs, head, from);
      } else {
        const Matrix s = block.scores(q, k, from);
        const Column lse = log_sum_exp(s);
        put(probabilities(s, lse) * v, args.out, outputs, head, from);
        for (Index r = 0; r < count; ++r) {
          args.lse[static_cast<std::size_t>(index_of(args.q, from + r, head) / args.q.width)] =
              lse(r);
        }
      }
      if (poll) {
        poll();
      }
    }
  });
}

void reference_backward(const ReferenceBackward& args, const Poll& poll) {
  const Block block(args.q, args.k, args.visible);
  const int group = args.q.heads / args.k.heads;
  for_each_head(args.k, [&](Head kv) {
    Matrix d_k = Matrix::Zero(args.k.count, args.k.width);
    Matrix d_v = Matrix::Zero(args.v.count, args.v.width);
    for (int h = kv.head * group; h < (kv.head + 1) * group; ++h) {
      backward_of_head(args, block, kv, {.batch = kv.batch, .head = h}, d_k, d_v, poll);
    }
    if (!args.d_k.empty()) {
      put(d_k, args.d_k, args.k, kv, 0);
      put(d_v, args.d_v, args.v, kv, 0);
    }
  });
}

void reference_row_dot(const Rows& d_out, std::span<const double> out, std::span<double> delta) {
  for (std::size_t row = 0; row < delta.size(); ++row) {
    double sum = 0;
    for (int d = 0; d < d_out.width; ++d) {
      const std::size_t i =
          row * static_cast<std::size_t>(d_out.width) + static_cast<std::size_t>(d);
      sum += load(d_out.dtype, d_out.data, static_cast<std::int64_t>(i)) * out[i];
    }
    delta[row] = sum;
  }
}

}  // namespace spp::runtime
