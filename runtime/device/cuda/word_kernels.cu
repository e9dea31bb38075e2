#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/cuda/word_kernels.hpp"
#include "runtime/device/cuda/word_ops.cuh"
#include "runtime/kernels/row_checks.hpp"

namespace spp::runtime::cuda {

void embedding(const EmbeddingArgs& args, cudaStream_t stream) {
  ensure_embedding(args.words, args.table, args.x);
  const std::int64_t columns = matrix_columns(args.x);
  with_vectors(columns, {args.table, args.x}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, args.x.elements() / size,
             EmbeddingOp<size>{.words = numbers_of(args.words),
                               .table = numbers_of(args.table),
                               .x = numbers_of(args.x),
                               .first = args.first,
                               .table_rows = matrix_rows(args.table),
                               .columns = columns});
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args, cudaStream_t stream) {
  ensure_embedding_backward(args);
  const std::int64_t columns = matrix_columns(args.d_x);
  fill(args.d_table, 0, stream);
  for_each(stream, columns * EmbeddingBackwardOp::buckets,
           EmbeddingBackwardOp{.words = numbers_of(args.words),
                               .d_x = numbers_of(args.d_x),
                               .d_table = numbers_of(args.d_table),
                               .first = args.first,
                               .table_rows = matrix_rows(args.d_table),
                               .columns = columns,
                               .rows = matrix_rows(args.d_x)});
}

void word_sums(const WordSumsArgs& args, cudaStream_t stream) {
  ensure_word_sums(args);
  const std::int64_t columns = matrix_columns(args.logits);
  with_vectors(columns, {args.logits}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, matrix_rows(args.logits), columns / size,
             WordSumsOp<size>{.logits = numbers_of(args.logits),
                              .targets = numbers_of(args.targets),
                              .to = numbers_of(args.sums),
                              .columns = columns,
                              .numbers = matrix_columns(args.sums),
                              .part = args.part});
  });
}

void word_loss(const WordLossArgs& args, cudaStream_t stream) {
  ensure_word_loss(args);
  for_each(stream, matrix_rows(args.sums),
           WordLossOp{.sums = numbers_of(args.sums),
                      .targets = numbers_of(args.targets),
                      .loss = numbers_of(args.loss),
                      .log_sum = numbers_of(args.log_sum),
                      .parts = static_cast<int>(matrix_columns(args.sums) / 3)});
}

void word_sums_backward(const WordSumsBackwardArgs& args, cudaStream_t stream) {
  ensure_word_sums_backward(args);
  const std::int64_t columns = matrix_columns(args.logits);
  with_vectors(columns, {args.logits, args.d_logits}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, args.logits.elements() / size,
             WordSumsBackwardOp<size>{.logits = numbers_of(args.logits),
                                      .targets = numbers_of(args.targets),
                                      .log_sum = numbers_of(args.log_sum),
                                      .d_logits = numbers_of(args.d_logits),
                                      .columns = columns,
                                      .part = args.part,
                                      .scale = args.scale});
  });
}

void adam(const AdamArgs& args, cudaStream_t stream) {
  ensure_adam(args);
  const std::int64_t count = args.gradient.elements();
  with_vectors(count, {args.gradient, args.master, args.first, args.second, args.param},
               [&](auto n) {
                 constexpr int size = decltype(n)::value;
                 for_each(stream, count / size,
                          AdamOp<size>{.gradient = numbers_of(args.gradient),
                                       .master = numbers_of(args.master),
                                       .first = numbers_of(args.first),
                                       .second = numbers_of(args.second),
                                       .param = numbers_of(args.param),
                                       .rate = args.rate,
                                       .constants = {}});
               });
}

namespace {

template <int N>
void load_word_kernels_of() {
  load_each<EmbeddingOp<N>>();
  load_rows<WordSumsOp<N>>();
  load_each<WordSumsBackwardOp<N>>();
  load_each<AdamOp<N>>();
}

}  // namespace

void load_word_kernels() {
  load_word_kernels_of<vector_elements>();
  load_word_kernels_of<1>();
  load_each<EmbeddingBackwardOp>();
  load_each<WordLossOp>();
}

}  // namespace spp::runtime::cuda
