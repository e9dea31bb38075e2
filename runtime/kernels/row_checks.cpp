#include "runtime/kernels/row_checks.hpp"

#include "base/error.hpp"

namespace spp::runtime {

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

}  // namespace spp::runtime
