#include "parallel/attention/compose.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp::strategies {
namespace {

/// What the all-to-alls of one rank have in common.
struct UlyssesFrame {
  RankGroup group;
  HeadSplit split;
  int part = 0;
  TokenSet home;
  TokenSet gathered;
  TokenSet cached;  // held by heads, as gathered ones are
};

struct Moved {
  Tensor tensor;
  bool kv;
};

/// pack -> all-to-all: home tokens of all heads become all tokens of this rank's heads.
BufferId scatter_heads(ProgramBuilder& b, const UlyssesFrame& f, Moved what, BufferId home) {
  const std::string name(to_string(what.tensor));
  // The send buffer holds what all peers get; replicated KV heads are sent several times, read
  // once.
  const int all_heads = what.kv ? f.split.kv_heads() : f.split.q_heads();
  const HeadRange mine = what.kv ? f.split.kv(f.part) : f.split.q(f.part);
  const BufferId packed = b.scratch(name + "_packed", what.tensor, f.home.count(), all_heads);
  const BufferId gathered =
      b.scratch(name + "_gathered", what.tensor, f.gathered.count(), mine.count());
  b.op(compute, Copy{.kind = CopyKind::pack, .from = home, .to = packed});
  b.op(ulysses_stream, Collective{.kind = CollectiveKind::all_to_all,
                                  .group = f.group,
                                  .from = packed,
                                  .to = gathered,
                                  .deal = HeadDeal{.direction = HeadDirection::scatter_heads,
                                                   .split = f.split,
                                                   .kv = what.kv,
                                                   .tokens = f.home.count()},
                                  .to_tokens = f.gathered,
                                  .to_heads = mine});
  return gathered;
}

/// The same of keys or values, behind the cached ones, if there are any.
BufferId scatter_keys(ProgramBuilder& b, const UlyssesFrame& f, Tensor tensor, BufferId home) {
  const BufferId gathered = scatter_heads(b, f, {tensor, true}, home);
  if (f.cached.empty()) {
    return gathered;
  }
  const BufferId cache = b.input_with_room(std::string(to_string(tensor)) + "_cache", tensor,
                                           f.cached, f.split.kv(f.part), f.gathered.count());
  b.op(compute, Copy{.kind = CopyKind::take, .from = gathered, .to = cache, .tokens = f.gathered});
  return cache;
}

/// all-to-all -> unpack: the reverse. Copies of replicated KV heads (gradients) are summed.
void gather_heads(ProgramBuilder& b, const UlyssesFrame& f, Moved what, BufferId gathered,
                  BufferId home) {
  const bool fold = what.kv && f.split.replicas() > 1;
  const HeadRange all{0, what.kv ? f.split.kv_heads() : f.split.q_heads()};
  const BufferId received =
      b.scratch(std::string(to_string(what.tensor)) + "_received", what.tensor, f.home.count(),
                all.count() * (fold ? f.split.replicas() : 1));
  b.op(ulysses_stream, Collective{.kind = CollectiveKind::all_to_all,
                                  .group = f.group,
                                  .from = gathered,
                                  .to = received,
                                  .deal = HeadDeal{.direction = HeadDirection::gather_heads,
                                                   .split = f.split,
                                                   .kv = what.kv,
                                                   .tokens = f.home.count()},
                                  .to_tokens = f.home,
                                  .to_heads = all});
  b.op(compute,
       Copy{.kind = fold ? CopyKind::fold : CopyKind::unpack, .from = received, .to = home});
}

/// The sinks of the rank's heads, or their gradient, as declared: attention's only parameter.
constexpr TensorRef sinks_of_heads{Tensor::param, 0};
constexpr TensorRef gradient_of_sinks{Tensor::d_param, 0};
constexpr HeadRange one_column{.begin = 0, .end = 1};

/// Where the sequence begins, and its chunks of so many tokens and the cached ones', as many; 0:
/// chunks do not continue each other.
std::vector<std::int64_t> cuts_behind_cache(const Problem& problem, std::int64_t tokens) {
  const std::int64_t chunks = tokens > 0 ? problem.seq / tokens : 1;
  std::vector<std::int64_t> cuts;
  for (std::int64_t i = 1; i <= chunks; ++i) {
    cuts.push_back(problem.cached / chunks * i);
  }
  for (std::int64_t i = 1; i < chunks; ++i) {
    cuts.push_back(problem.cached + tokens * i);
  }
  return cuts;
}

void attend(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& context,
            const ForwardBuffers& io, ForwardCore core) {
  const BufferId lse = core(b, mesh, context, io);
  if (b.problem().sinks) {
    ensure(lse.valid(), "a sink beside a core without lse");
    const BufferId sinks =
        b.input("sinks", sinks_of_heads, rows_of_heads(context.heads), one_column);
    b.op(compute, Sink{.out = io.out, .lse = lse, .sinks = sinks});
  }
}

void attend_back(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& context,
                 const BackwardBuffers& io, BackwardCore core) {
  const Statistics rows = core(b, mesh, context, io);
  if (b.problem().sinks) {
    const TokenSet own = rows_of_heads(context.heads);
    b.op(compute, SinkBackward{.lse = rows.lse,
                               .delta = rows.delta,
                               .sinks = b.input("sinks", sinks_of_heads, own, one_column),
                               .d_sinks = b.output("d_sinks", gradient_of_sinks, own, one_column)});
  }
}

void build_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& context,
                   const UlyssesFrame& f, ForwardCore core) {
  const HeadRange all_q{0, f.split.q_heads()};
  const HeadRange all_kv{0, f.split.kv_heads()};
  ForwardBuffers io;
  const BufferId q = b.input("q", Tensor::q, f.home, all_q);
  const TokenSet& keys = f.group.size == 1 ? context.keys : f.home;
  const BufferId k = b.input("k", Tensor::k, keys, all_kv);
  const BufferId v = b.input("v", Tensor::v, keys, all_kv);
  const BufferId out = b.output("out", Tensor::out, f.home, all_q);
  if (f.group.size == 1) {
    attend(b, mesh, context, {.q = q, .k = k, .v = v, .out = out}, core);
    return;
  }
  io.q = scatter_heads(b, f, {Tensor::q, false}, q);
  io.k = scatter_keys(b, f, Tensor::k, k);
  io.v = scatter_keys(b, f, Tensor::v, v);
  io.out = b.scratch("out_gathered", Tensor::out, f.gathered.count(), context.heads.count());
  attend(b, mesh, context, io, core);
  gather_heads(b, f, {Tensor::out, false}, io.out, out);
}

void build_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& context,
                    const UlyssesFrame& f, const Cores& cores) {
  const HeadRange all_q{0, f.split.q_heads()};
  const HeadRange all_kv{0, f.split.kv_heads()};
  BackwardBuffers io;
  io.q = b.input("q", Tensor::q, context.tokens, context.heads);
  io.k = b.input("k", Tensor::k, context.tokens, context.kv_heads);
  io.v = b.input("v", Tensor::v, context.tokens, context.kv_heads);
  if (cores.keeps_out) {
    io.out = b.input("out", Tensor::out, context.tokens, context.heads);
  }
  const BufferId d_out = b.input("d_out", Tensor::d_out, f.home, all_q);
  const BufferId d_q = b.output("d_q", Tensor::d_q, f.home, all_q);
  const BufferId d_k = b.output("d_k", Tensor::d_k, f.home, all_kv);
  const BufferId d_v = b.output("d_v", Tensor::d_v, f.home, all_kv);
  if (f.group.size == 1) {
    io.d_out = d_out;
    io.d_q = d_q;
    io.d_k = d_k;
    io.d_v = d_v;
    attend_back(b, mesh, context, io, cores.backward);
    return;
  }
  io.d_out = scatter_heads(b, f, {Tensor::d_out, false}, d_out);
  io.d_q = b.scratch("d_q_gathered", Tensor::d_q, f.gathered.count(), context.heads.count());
  io.d_k = b.scratch("d_k_gathered", Tensor::d_k, f.gathered.count(), context.kv_heads.count());
  io.d_v = b.scratch("d_v_gathered", Tensor::d_v, f.gathered.count(), context.kv_heads.count());
  attend_back(b, mesh, context, io, cores.backward);
  gather_heads(b, f, {Tensor::d_q, false}, io.d_q, d_q);
  gather_heads(b, f, {Tensor::d_k, true}, io.d_k, d_k);
  gather_heads(b, f, {Tensor::d_v, true}, io.d_v, d_v);
}

}  // namespace

Axis axis_of(StreamId stream) {
  ensure(stream != compute, "no axis of kernels");
  return stream == ulysses_stream ? Axis::ulysses : stream == team_stream ? Axis::team : Axis::ring;
}

Schedule compose(const Problem& requested, const SequencePlan& plan, Phase phase,
                 const BuildOptions& options, const Cores& cores) {
  Schedule s;
  s.contract.requested = dealt(requested, plan);
  s.contract.attention = padded(requested, plan);
  s.contract.phase = phase;
  const AttentionMesh ranks(plan, s.contract.attention);
  s.mesh = ranks.mesh();
  s.streams = {"compute", "ulysses", "ring", "gradient", "team", "outer"};
  const HeadSplit split(s.contract.attention, plan.ulysses, plan.heads);
  s.grain.heads = split;
  s.grain.slots = cores.states ? plan.ring : 0;
  if (chunk_layout(plan.layout) ==
      Layout::zigzag) {  // also where the two chunks of a rank continue each other
    s.grain.tokens = s.contract.attention.seq / (2 * std::int64_t{ranks.teams()});
  }
  if (s.contract.attention.cached > 0) {
    ensure(phase == Phase::forward, "cached keys without a gradient");
    s.grain.cuts = cuts_behind_cache(s.contract.attention, s.grain.tokens);
    s.grain.tokens = 0;
  }
  if (split.even()) {
    s.symmetry.push_back({.axis = "ulysses", .under = AxisMoves::permutations});
  }
  // Where documents lie differently on every rank, no two are alike.
  const bool uniform =
      (s.contract.attention.mask.document_ends.empty() || deals_documents(plan.layout)) &&
      !by_work(plan.layout);
  if (cores.ring_symmetric && uniform && s.contract.attention.mask.kind == MaskKind::full) {
    // The two chunks of zigzag's last rank are one tile.
    const bool joined = cores.ring_alike && chunk_layout(plan.layout) == Layout::zigzag;
    s.symmetry.push_back(
        {.axis = "ring", .under = joined ? AxisMoves::alike : AxisMoves::rotations});
  } else if (cores.ring_alike && chunk_layout(plan.layout) != Layout::contiguous && uniform &&
             s.contract.attention.mask.kind == MaskKind::causal) {
    s.symmetry.push_back({.axis = "ring", .under = AxisMoves::alike});
  }
  if (s.contract.attention.sinks) {
    s.contract.graph.params = {{.name = "sinks", .rows = s.contract.attention.q_heads}};
  }
  s.program = [problem = s.contract.attention, graph = s.contract.graph, plan, phase, options,
               cores, split, mesh = ranks](Rank rank) {
    ProgramBuilder b(problem, rank, graph);
    const int part = mesh.at(rank).ulysses;
    const UlyssesFrame frame{.group = mesh.ulysses_group(rank),
                             .split = split,
                             .part = part,
                             .home = mesh.home_tokens(problem, rank),
                             .gathered = mesh.ring_tokens(problem, rank),
                             .cached = mesh.cached_tokens(problem, rank)};
    const CoreContext context{.plan = plan,
                              .options = options,
                              .heads = split.q(part),
                              .kv_heads = split.kv(part),
                              .tokens = frame.gathered,
                              .keys = mesh.ring_keys(problem, rank)};
    if (phase == Phase::forward) {
      build_forward(b, mesh, context, frame, cores.forward);
    } else {
      build_backward(b, mesh, context, frame, cores);
    }
    return b.finish();
  };
  return s;
}

Section needed_section(const TokenSet& q, const TokenSet& k, const Mask& mask,
                       const BuildOptions& options) {
  if (!options.sections) {
    return allows_any(q, k, mask) ? Section{.q = q, .k = k} : Section();
  }
  const auto keep = [](const TokenSet& tokens, auto needed) {
    const auto ranges = tokens.ranges();
    const auto first = std::ranges::find_if(ranges, needed);
    auto end = ranges.end();
    while (end != first && !needed(*std::prev(end))) {
      --end;
    }
    if (first == ranges.begin() && end == ranges.end()) {
      return tokens;
    }
    TokenSet kept;
    std::ranges::for_each(first, end, [&](const TokenRange& range) { kept.append(range); });
    return kept;
  };
  const auto sees_any = [&](const TokenRange& queries) {
    return std::ranges::any_of(
        k.ranges(), [&](const TokenRange& keys) { return allows_any(queries, keys, mask); });
  };
  const auto is_seen = [&](const TokenRange& keys) {
    return std::ranges::any_of(
        q.ranges(), [&](const TokenRange& queries) { return allows_any(queries, keys, mask); });
  };
  return {.q = keep(q, sees_any), .k = keep(k, is_seen)};
}

}  // namespace spp::strategies
