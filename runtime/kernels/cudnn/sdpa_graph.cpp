#include "runtime/kernels/cudnn/sdpa_graph.hpp"

#if defined(SPP_CUDNN)

namespace spp::runtime::cudnn {
namespace {

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return CUDNN_DATA_FLOAT;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::fp16:
      return CUDNN_DATA_HALF;
  }
  throw InternalError("unknown dtype");
}

/// Heads, rows and width of a tensor.
struct Rect {
  std::int64_t heads, rows, width;
};

class Builder {
 public:
  explicit Builder(const SdpaShape& shape)
      : shape_(shape),
        io_(type_of(shape.dtype)),
        query_{shape.q_heads, shape.q_rows, shape.head_dim},
        output_{shape.q_heads, shape.q_rows, shape.v_dim()},
        key_{shape.kv_heads, shape.k_rows, shape.head_dim},
        value_{shape.kv_heads, shape.k_rows, shape.v_dim()},
        row_{shape.q_heads, shape.q_rows, 1} {}

  Graph forward() {
    const Tensor& s = scores();
    const Tensor& max = graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, s, column());
    const Tensor& shifted = graph_.pointwise(CUDNN_POINTWISE_SUB, s, max, square());
    const Tensor& weights = graph_.pointwise(CUDNN_POINTWISE_EXP, shifted, square());
    const Tensor& sum = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, column());
    const Tensor& log = graph_.pointwise(CUDNN_POINTWISE_LOG, sum, column());
    graph_.pointwise(CUDNN_POINTWISE_ADD, max, log, row_values(uid::lse));
    const Tensor& p = graph_.pointwise(CUDNN_POINTWISE_DIV, weights, sum, square(io_));
    graph_.matmul(p, stored(uid::v, value_), stored(uid::out, output_));
    return std::move(graph_);
  }

  Graph backward(const SdpaOptions& options) {
    const Tensor& q = stored(uid::q, query_);
    const Tensor& k_transposed = transposed(uid::k, key_);
    const Tensor& d_out = stored(uid::d_out, output_);
    const Tensor& scale = number(uid::scale, CUDNN_DATA_FLOAT);
    const Tensor& delta =
        options.delta == SdpaDelta::from_out
            ? row_sum(d_out, stored(uid::out, output_), dims(output_))
            : row_sum(row_values(uid::delta), number(uid::one, CUDNN_DATA_FLOAT), dims(row_));

    // P = e^(scale Q K^T - lse), dV = P^T dO
    const Tensor& product = graph_.matmul(q, k_transposed, square());
    const Tensor& scaled = graph_.pointwise(CUDNN_POINTWISE_MUL, product, scale, square());
    Tensor& shifted = graph_.pointwise(CUDNN_POINTWISE_SUB, scaled, row_values(uid::lse), square());
    const Tensor& p = graph_.pointwise(CUDNN_POINTWISE_EXP, masked(shifted), square());
    to_keys(graph_.reshape(p, square_transposed()), d_out, uid::d_v, value_);

    // dS = scale P (dO V^T - delta), dK = dS^T Q
    const Tensor& d_p = graph_.matmul(d_out, transposed(uid::v, value_), square());
    const Tensor& centred = graph_.pointwise(CUDNN_POINTWISE_SUB, d_p, delta, square());
    const Tensor& weighted = graph_.pointwise(CUDNN_POINTWISE_MUL, centred, p, square());
    const Tensor& d_s = graph_.pointwise(CUDNN_POINTWISE_MUL, weighted, scale, square());
    to_keys(graph_.reshape(d_s, square_transposed()), q, uid::d_k, key_);

    // dQ = dS K. The faster kernel adds up over blocks of keys in fp32 memory, in any order.
    // K again, where it lies: with its own strides, as cudnn-frontend has it.
    const Tensor& k =
        graph_.reshape(k_transposed, graph_.tensor({.dims = dims(key_), .strides = strides(key_)}));
    if (options.deterministic) {
      graph_.matmul(d_s, k, stored(uid::d_q, query_));
    } else {
      const Tensor& sum = graph_.matmul(d_s, k,
                                        graph_.tensor({.kind = TensorSpec::Kind::real,
                                                       .uid = uid::d_q_sum,
                                                       .dims = dims(query_),
                                                       .strides = dense_strides(dims(query_))}));
      graph_.pointwise(CUDNN_POINTWISE_IDENTITY, sum, stored(uid::d_q, query_));
    }
    return std::move(graph_);
  }

 private:
  [[nodiscard]] Dims dims(const Rect& r) const { return {shape_.batch, r.heads, r.rows, r.width}; }
  /// Of [rows, batch, heads, width] seen as [batch, heads, rows, width].
  [[nodiscard]] Dims strides(const Rect& r) const {
    return {r.heads * r.width, r.width, shape_.batch * r.heads * r.width, 1};
  }

  Tensor& stored(std::int64_t id, const Rect& r) {
    return graph_.tensor({.kind = TensorSpec::Kind::real,
                          .uid = id,
                          .dims = dims(r),
                          .strides = strides(r),
                          .dtype = io_});
  }
  /// The same memory, with rows and columns exchanged.
  Tensor& transposed(std::int64_t id, const Rect& r) {
    Dims d = dims(r);
    Dims s = strides(r);
    std::swap(d[2], d[3]);
    std::swap(s[2], s[3]);
    return graph_.tensor(
        {.kind = TensorSpec::Kind::real, .uid = id, .dims = d, .strides = s, .dtype = io_});
  }
  /// lse, delta or row_sum: [batch, heads, rows, 1], dense whatever the layout of the others is, as
  /// cudnn-frontend has them.
  Tensor& row_values(std::int64_t id) {
    return graph_.tensor({.kind = TensorSpec::Kind::real,
                          .uid = id,
                          .dims = dims(row_),
                          .strides = dense_strides(dims(row_))});
  }
  Tensor& number(std::int64_t id, cudnnDataType_t dtype) {
    return graph_.tensor({.kind = TensorSpec::Kind::value, .uid = id, .dtype = dtype});
  }
  /// [batch, heads, q_rows, k_rows] and one column of it.
  Tensor& square(cudnnDataType_t dtype = CUDNN_DATA_FLOAT) {
    return graph_.inner({shape_.batch, shape_.q_heads, shape_.q_rows, shape_.k_rows}, dtype);
  }
  Tensor& column() { return graph_.inner(dims(row_)); }
  Tensor& square_transposed() {
    const std::int64_t size = shape_.q_rows * shape_.k_rows;
    return graph_.tensor({.dims = {shape_.batch, shape_.q_heads, shape_.k_rows, shape_.q_rows},
                          .strides = {shape_.q_heads * size, size, 1, shape_.k_rows},
                          .dtype = io_});
  }

  /// scale Q K^T, -infinity where the mask hides.
  Tensor& scores() {
    const Tensor& product =
        graph_.matmul(stored(uid::q, query_), transposed(uid::k, key_), square());
    const Tensor& scale = number(uid::scale, CUDNN_DATA_FLOAT);
    return masked(graph_.pointwise(CUDNN_POINTWISE_MUL, product, scale, square()));
  }

  /// Row sums of x y, whose product has dimensions `of`, in memory of the caller. The factor 1 is
  /// where dropout would scale; without it no engine takes the graph.
  Tensor& row_sum(const Tensor& x, const Tensor& y, const Dims& of) {
    const Tensor& product = graph_.pointwise(CUDNN_POINTWISE_MUL, x, y, graph_.inner(of));
    const Tensor& sum = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, product, column());
    return graph_.pointwise(CUDNN_POINTWISE_MUL, sum, number(uid::dropout, CUDNN_DATA_FLOAT),
                            row_values(uid::row_sum));
  }

  Tensor& masked(Tensor& s) {
    if (shape_.mask == SdpaMask::none) {
      return s;
    }
    const Tensor* row = &graph_.index(s, 2, square(CUDNN_DATA_INT32));
    if (shape_.mask == SdpaMask::bottom_right) {
      row = &graph_.pointwise(CUDNN_POINTWISE_ADD, *row, number(uid::diagonal, CUDNN_DATA_INT32),
                              square(CUDNN_DATA_INT32));
    }
    const Tensor& key = graph_.index(s, 3, square(CUDNN_DATA_INT32));
    const Tensor& seen =
        graph_.pointwise(CUDNN_POINTWISE_CMP_GE, *row, key, square(CUDNN_DATA_BOOLEAN));
    return graph_.select(s, number(uid::minus_infinity, CUDNN_DATA_FLOAT), seen, square());
  }

  /// to = a b, of keys or of values, summed over the query heads of a KV head.
  void to_keys(const Tensor& a, const Tensor& b, std::int64_t to, const Rect& of) {
    if (shape_.q_heads == shape_.kv_heads) {
      graph_.matmul(a, b, stored(to, of));
      return;
    }
    const Rect all_heads{shape_.q_heads, of.rows, of.width};
    const Tensor& each = graph_.matmul(a, b, graph_.inner(dims(all_heads), io_));
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, each, stored(to, of));
  }

  const SdpaShape& shape_;
  cudnnDataType_t io_;
  Rect query_, output_, key_, value_, row_;
  Graph graph_;
};

}  // namespace

Graph forward_graph(const SdpaShape& shape) { return Builder(shape).forward(); }

Graph backward_graph(const SdpaShape& shape, const SdpaOptions& options) {
  return Builder(shape).backward(options);
}

}  // namespace spp::runtime::cudnn

#endif
