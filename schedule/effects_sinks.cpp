// Effects of attention sinks: one more contribution to out and lse, and its gradient.
#include "schedule/effects_graph.hpp"

#include <array>
#include <map>

namespace spp {
namespace {

/// The sinks of a query atom's heads, which no update has replaced yet; else stops.
bool holds_sinks(const Site& site, BufferId id, int query_atom, int param) {
  const auto* rows = site.grid().rows_of_query_atom(query_atom, param);
  if (rows == nullptr) {
    site.stop(
        fmt::format("finds no sinks of heads that {} lacks", site.name({Tensor::param, param})));
    return false;
  }
  for (const int row : *rows) {
    const Piece* logit = only_piece(site, id, {.tokens = row, .heads = 0});
    if (logit == nullptr) {
      return false;
    }
    if (!logit->contributions.empty()) {
      site.stop(fmt::format("reads {}, which was updated before", site.quoted(id)));
      return false;
    }
  }
  return true;
}

/// The parameter that is the sink of the op's attention; stops and gives -1 if there is none, or
/// the buffer has another.
int known_sink(const Site& site, BufferId sinks) {
  const int param = site.grid().index().sink_of(site.attention);
  if (param < 0) {
    site.stop("works on a sink, which its attention does not have");
    return -1;
  }
  return readable(site, sinks, TensorRef{Tensor::param, param}) ? param : -1;
}

}  // namespace

void apply(const Site& site, const Sink& op) {
  const int param = known_sink(site, op.sinks);
  if (param < 0 || !readable(site, op.out, Tensor::out) || !readable(site, op.lse, Tensor::lse)) {
    return;
  }
  const AtomGrid& grid = site.grid();
  AtomSet sink;
  sink.insert(grid.sink());
  Contents out = site.content(op.out);
  for (Piece& piece : out.change_all()) {
    const Piece* lse = only_piece(site, op.lse, piece.cell);
    if (lse == nullptr || only_piece(site, op.out, piece.cell) == nullptr) {
      return;
    }
    if (piece.contributions != lse->contributions || piece.normaliser != piece.contributions) {
      site.stop(fmt::format("{} and {} of {} do not belong together", site.quoted(op.out),
                            site.quoted(op.lse), grid.cell_text(Tensor::out, piece.cell)));
      return;
    }
    piece.contributions.unite(sink);
    piece.normaliser.unite(sink);
  }
  Contents lse = site.content(op.lse);
  for (Piece& piece : lse.change_all()) {
    if (piece.contributions.intersects(sink)) {
      site.stop(fmt::format("gives {} of {} a second sink", site.quoted(op.lse),
                            grid.cell_text(Tensor::lse, piece.cell)));
      return;
    }
    if (!holds_sinks(site, op.sinks, piece.cell.heads, param)) {
      return;
    }
    piece.contributions.unite(sink);
  }
  write(site, op.out, Tensor::out, std::move(out));
  write(site, op.lse, Tensor::lse, std::move(lse));
}

void apply(const Site& site, const SinkBackward& op) {
  const int param = known_sink(site, op.sinks);
  if (param < 0 || !readable(site, op.delta, Tensor::delta) ||
      !readable(site, op.lse, Tensor::lse)) {
    return;
  }
  const AtomGrid& grid = site.grid();
  const int use = use_of_param(grid.index(), param, grid.index().writer_of(site.own(Tensor::q)));
  std::map<int, AtomSet> tokens;  // by row of the parameter
  for (const Piece& piece : site.content(op.delta).all()) {
    const Cell& cell = piece.cell;
    const std::array queries{cell.tokens};
    const Block row{
        .queries = queries, .keys = {}, .heads = {cell.heads, cell.heads + 1}, .kv_heads = {}};
    if (only_piece(site, op.delta, cell) == nullptr || !global_lse(site, op.lse, row) ||
        !holds_sinks(site, op.sinks, cell.heads, param)) {
      return;
    }
    for (const int logit : *grid.rows_of_query_atom(cell.heads, param)) {
      tokens[logit].insert(grid.contributor(cell.tokens, use));
    }
  }
  Contents gradients;
  for (auto& [logit, met] : tokens) {
    gradients.add(
        {.cell = {.tokens = logit, .heads = 0}, .contributions = std::move(met), .normaliser = {}});
  }
  write(site, op.d_sinks, TensorRef{Tensor::d_param, param}, std::move(gradients));
}

}  // namespace spp
