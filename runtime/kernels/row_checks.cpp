#include "runtime/kernels/row_checks.hpp"

#include "base/error.hpp"

namespace spp::runtime {
namespace {

void ensure_normed(const Rows& x, const Rows& weight, const Rows& statistics, Centring centring,
                   Caller at) {
  const int numbers = centring == Centring::mean ? 2 : 1;
  ensure(matrix_rows(weight) == numbers && matrix_columns(weight) == matrix_columns(x),
         "a norm with the weight of other rows", at);
  ensure(statistics.dtype == DType::fp32 && matrix_rows(statistics) == matrix_rows(x) &&
             matrix_columns(statistics) == numbers,
         "a norm with the statistics of other rows", at);
}

/// One in fp32 for each row.
void ensure_number(const Rows& numbers, const Rows& rows, Caller at) {
  ensure(numbers.dtype == DType::fp32 && matrix_rows(numbers) == matrix_rows(rows) &&
             matrix_columns(numbers) == 1,
         "numbers of other rows", at);
}

}  // namespace

void ensure_alike(const Rows& a, const Rows& b, Caller at) {
  ensure(a.count == b.count && a.batch == b.batch && a.heads == b.heads && a.width == b.width,
         "rows of different shapes", at);
}

void ensure_scalars(const Rows& rows, const Rows& scalars, Caller at) {
  ensure(scalars.elements() * rows.width == rows.elements(), "lse or delta of other rows", at);
}

std::int64_t members_of(const Rows& gathered, const Rows& lse, Caller at) {
  const std::int64_t rows = lse.elements();
  ensure(rows == 0 || gathered.elements() % rows == 0, "gathered lse of other rows", at);
  return rows == 0 ? 0 : gathered.elements() / rows;
}

void ensure_box_fits(int heads, const Box& from, const Box& to, Caller at) {
  ensure(heads <= from.row_heads && heads <= to.row_heads, "a box wider than its rows", at);
}

void ensure_block(const Rows& q, const Rows& k, const Visibility& visible, Caller at) {
  ensure(q.count == visible.q_tokens.count() && k.count == visible.k_tokens.count(),
         "attention over other tokens than its rows hold", at);
  ensure(k.heads > 0 && q.heads % k.heads == 0, "query heads are no multiple of KV heads", at);
}

void ensure_norm(const NormArgs& args, Centring centring, Caller at) {
  ensure_alike(args.x, args.y, at);
  ensure_normed(args.x, args.weight, args.statistics, centring, at);
}

void ensure_norm_backward(const NormBackwardArgs& args, Centring centring, Caller at) {
  ensure_alike(args.x, args.d_y, at);
  ensure_alike(args.x, args.d_x, at);
  ensure_normed(args.x, args.weight, args.statistics, centring, at);
  ensure(matrix_rows(args.d_weight) == matrix_rows(args.weight) &&
             matrix_columns(args.d_weight) == matrix_columns(args.weight),
         "the gradient of another weight", at);
}

void ensure_sink(const SinkArgs& args, Caller at) {
  const Rows& lse = args.lse;
  ensure(lse.width == 1 && args.out.batch == lse.batch && args.out.heads == lse.heads &&
             args.first + args.out.count <= lse.count && args.sinks.elements() == lse.heads,
         "a sink of other heads, or of rows without lse", at);
}

void ensure_sink_backward(const SinkBackwardArgs& args, Caller at) {
  ensure_alike(args.lse, args.delta, at);
  ensure(args.lse.width == 1 && args.sinks.elements() == args.lse.heads &&
             args.d_sinks.elements() == args.lse.heads,
         "a sink of other heads", at);
}

void ensure_bias(const Rows& y, const Rows& bias, const Rows& weights, Caller at) {
  ensure(bias.elements() == matrix_columns(y), "a bias of other columns", at);
  if (weights.count > 0) {
    ensure_number(weights, y, at);
  }
}

void ensure_embedding(const Rows& words, const Rows& table, const Rows& x, Caller at) {
  ensure_number(words, x, at);
  ensure(matrix_columns(table) == matrix_columns(x), "a table of other rows", at);
}

void ensure_embedding_backward(const EmbeddingBackwardArgs& args, Caller at) {
  ensure_embedding(args.words, args.d_table, args.d_x, at);
  ensure(args.d_table.dtype == DType::fp32, "a table's gradients are summed up in fp32", at);
}

void ensure_word_sums(const WordSumsArgs& args, Caller at) {
  ensure_number(args.targets, args.logits, at);
  ensure(args.sums.dtype == DType::fp32 && matrix_rows(args.sums) == matrix_rows(args.logits) &&
             matrix_columns(args.sums) >= 3 * std::int64_t{args.part + 1},
         "sums of other rows, or without their part", at);
}

void ensure_word_sums_backward(const WordSumsBackwardArgs& args, Caller at) {
  ensure_alike(args.logits, args.d_logits, at);
  ensure_number(args.targets, args.logits, at);
  ensure_number(args.log_sum, args.logits, at);
}

void ensure_word_loss(const WordLossArgs& args, Caller at) {
  ensure(args.sums.dtype == DType::fp32 && matrix_columns(args.sums) % 3 == 0,
         "sums that are not three fp32 numbers a part", at);
  ensure_number(args.targets, args.sums, at);
  ensure_number(args.loss, args.sums, at);
  ensure_number(args.log_sum, args.sums, at);
}

void ensure_route(const Rows& scores, const Rows& weights, const TokenSet& tokens,
                  const Routing& routing, Caller at) {
  ensure(matrix_columns(scores) == routing.experts && matrix_columns(weights) == routing.chosen &&
             matrix_rows(scores) == matrix_rows(weights) && scores.count == tokens.count() &&
             weights.dtype == DType::fp32,
         "scores and weights of other tokens or experts", at);
}

void ensure_expert_swiglu(const Rows& gate_up, const Rows& weights, const Rows& a, Caller at) {
  ensure(matrix_columns(gate_up) == 2 * matrix_columns(a) && matrix_columns(weights) == 1 &&
             matrix_rows(gate_up) == matrix_rows(a) && matrix_rows(weights) == matrix_rows(a) &&
             weights.dtype == DType::fp32,
         "an expert's rows of different shapes", at);
}

void ensure_adam(const AdamArgs& args, Caller at) {
  for (const Rows* rows : {&args.master, &args.first, &args.second}) {
    ensure_alike(args.gradient, *rows, at);
    ensure(rows->dtype == DType::fp32, "what an update keeps is in fp32", at);
  }
  ensure_alike(args.gradient, args.param, at);
}

}  // namespace spp::runtime
