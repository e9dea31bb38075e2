#include "parallel/attention/group_cast_parts.hpp"
#include "parallel/attention/sizes.hpp"

#include <algorithm>
#include <initializer_list>

namespace spp::strategies::group_cast {
namespace {

/// Scratch of one rank, by the first and the last op that touches it.
class Scratch {
 public:
  std::size_t add(Bytes bytes) {
    buffers_.push_back({.bytes = bytes});
    return buffers_.size() - 1;
  }
  void op(std::initializer_list<std::size_t> touched) {
    for (const std::size_t id : touched) {
      Buffer& buffer = buffers_[id];
      buffer.first = buffer.last < 0 ? ops_ : buffer.first;
      buffer.last = ops_;
    }
    ++ops_;
  }
  [[nodiscard]] Bytes peak() const {
    std::vector<Bytes> change(static_cast<std::size_t>(ops_) + 1);
    for (const Buffer& buffer : buffers_) {
      if (buffer.last >= 0) {
        change[static_cast<std::size_t>(buffer.first)] += buffer.bytes;
        change[static_cast<std::size_t>(buffer.last) + 1] -= buffer.bytes;
      }
    }
    Bytes alive;
    Bytes most;
    for (const Bytes& each : change) {
      alive += each;
      most = std::max(most, alive);
    }
    return most;
  }

 private:
  struct Buffer {
    Bytes bytes;
    int first = 0, last = -1;
  };
  std::vector<Buffer> buffers_;
  int ops_ = 0;
};

/// What ranks need of each other, in stages.
class Counts {
 public:
  Counts(const Problem& padded, const AttentionMesh& mesh, const SequencePlan& plan)
      : ring_(plan.ring),
        stages_(plan.own[parameters::overlap]),
        needed_(needed_of(padded, mesh)) {}

  [[nodiscard]] int stages() const { return stages_; }
  [[nodiscard]] auto distances(int stage) const { return distances_of(stage, stages_, ring_); }
  [[nodiscard]] const Needed& needed() const { return *needed_; }
  [[nodiscard]] std::int64_t from(int rank, int distance) const {
    return needed_->from(rank, distance);
  }
  [[nodiscard]] std::int64_t to(int rank, int distance) const {
    return needed_->to(rank, distance);
  }
  /// Kernels: one for own keys, one for each stage in which keys come.
  [[nodiscard]] std::int64_t kernels(int rank) const {
    std::int64_t kernels = 1;
    for (int stage = 0; stage < stages_; ++stage) {
      kernels += std::ranges::any_of(distances(stage), [&](int d) { return from(rank, d) > 0; });
    }
    return kernels;
  }
  [[nodiscard]] std::int64_t exchanges(int rank) const {
    return std::ranges::count_if(std::views::iota(1, ring_),
                                 [&](int d) { return from(rank, d) > 0 || to(rank, d) > 0; });
  }

 private:
  int ring_, stages_;
  std::shared_ptr<const Needed> needed_;
};

/// Follows the scratch of one rank through its ops.
class Walk {
 public:
  Walk(const Sizes& sizes, const Counts& counts, int rank, Phase phase)
      : s_(sizes),
        counts_(counts),
        rank_(rank),
        stages_(counts.stages()),
        arrived_(static_cast<std::size_t>(stages_)) {
    const Tiles own = s_.busiest(s_.ring);
    const bool gathered = phase == Phase::forward;  // the backward's are inputs
    q_ = scratch_.add(gathered ? s_.framed(own.q) : Bytes(0));
    k_ = scratch_.add(gathered ? s_.framed(own.k) : Bytes(0));
    v_ = scratch_.add(gathered ? s_.framed(own.v) : Bytes(0));
    scratch_.op({q_, k_, v_});
  }

  Bytes forward() {
    const Tiles own = s_.busiest(s_.ring);
    const std::size_t out = scratch_.add(s_.framed(own.out));
    cast(0);
    cast(1);
    if (counts_.kernels(rank_) == 1) {
      scratch_.op({q_, k_, v_, out});
      for (int stage = 2; stage < stages_; ++stage) {
        cast(stage);
      }
      return scratch_.peak();
    }
    const std::size_t sum = scratch_.add(s_.fp32(own.out));
    const std::size_t part = scratch_.add(own.out + own.lse);
    scratch_.op({q_, k_, v_, part});
    scratch_.op({sum, part});
    for (int stage = 0; stage < stages_; ++stage) {
      cast(stage + 2);
      if (const Keys keys = join(stage); keys.tokens > 0) {
        scratch_.op({q_, keys.k, keys.v, part});
        scratch_.op({sum, part});
      }
    }
    scratch_.op({sum, out});
    return scratch_.peak();
  }

  Bytes backward() {
    const Tiles own = s_.busiest(s_.ring);
    const std::size_t d_out = scratch_.add(s_.framed(own.out));
    const std::size_t d_q = scratch_.add(s_.framed(own.q));
    const std::size_t d_k = scratch_.add(s_.framed(own.k));
    const std::size_t d_v = scratch_.add(s_.framed(own.v));
    const std::size_t delta = scratch_.add(own.lse);
    scratch_.op({d_out, delta});
    if (counts_.exchanges(rank_) == 0) {
      scratch_.op({d_out, delta, d_q, d_k, d_v});
      return scratch_.peak();
    }
    cast(0);
    cast(1);
    const std::size_t q_sum = scratch_.add(s_.wide(own.q));
    const std::size_t k_sum = scratch_.add(s_.wide(own.k));
    const std::size_t v_sum = scratch_.add(s_.wide(own.v));
    const std::size_t q_part = scratch_.add(own.q);
    const std::size_t k_part = scratch_.add(own.k);
    const std::size_t v_part = scratch_.add(own.v);
    scratch_.op({d_out, delta, q_part, k_part, v_part});
    scratch_.op({q_part, q_sum});
    scratch_.op({k_part, k_sum});
    scratch_.op({v_part, v_sum});
    for (int stage = 0; stage < stages_; ++stage) {
      cast(stage + 2);
      const Keys keys = join(stage);
      Keys gradients;
      if (keys.tokens > 0) {
        gradients = this->keys(keys.tokens);
        scratch_.op({d_out, delta, keys.k, keys.v, q_part, gradients.k, gradients.v});
        scratch_.op({q_part, q_sum});
      }
      add_returned();
      reduce(stage, gradients);
    }
    add_returned();
    scratch_.op({q_sum, d_q});
    scratch_.op({k_sum, d_k});
    scratch_.op({v_sum, d_v});
    return scratch_.peak();
  }

 private:
  struct Keys {
    std::int64_t tokens = 0;
    std::size_t k = 0, v = 0;
  };

  Keys keys(std::int64_t tokens, bool wide = false) {
    const Tiles tiles = s_.busiest(tokens);
    const auto add = [&](Bytes bytes) { return scratch_.add(wide ? s_.wide(bytes) : bytes); };
    return {.tokens = tokens, .k = add(tiles.k), .v = add(tiles.v)};
  }

  void cast(int stage) {
    if (stage >= stages_) {
      return;
    }
    for (const int d : counts_.distances(stage)) {
      const std::int64_t to = counts_.to(rank_, d);
      const std::int64_t from = counts_.from(rank_, d);
      Keys sent{.tokens = to, .k = k_, .v = v_};
      if (to > 0 && to < s_.ring) {
        sent = keys(to);
        scratch_.op({k_, sent.k});
        scratch_.op({v_, sent.v});
      }
      if (from > 0) {
        arrived_[static_cast<std::size_t>(stage)].push_back(keys(from));
      }
      exchange(sent, from > 0 ? arrived_[static_cast<std::size_t>(stage)].back() : Keys{});
    }
  }

  void exchange(const Keys& sent, const Keys& received) {
    if (sent.tokens > 0 && received.tokens > 0) {
      scratch_.op({sent.k, sent.v, received.k, received.v});
    } else if (sent.tokens > 0) {
      scratch_.op({sent.k, sent.v});
    } else if (received.tokens > 0) {
      scratch_.op({received.k, received.v});
    }
  }

  Keys join(int stage) {
    const std::vector<Keys>& all = arrived_[static_cast<std::size_t>(stage)];
    if (all.size() < 2) {
      return all.empty() ? Keys{} : all.front();
    }
    std::int64_t tokens = 0;
    for (const Keys& one : all) {
      tokens += one.tokens;
    }
    const Keys joined = keys(tokens);
    for (const Keys& one : all) {
      scratch_.op({one.k, joined.k});
      scratch_.op({one.v, joined.v});
    }
    return joined;
  }

  void reduce(int stage, const Keys& gradients) {
    for (const int d : counts_.distances(stage)) {
      Keys back;
      Keys home;
      if (const std::int64_t from = counts_.from(rank_, d); from > 0) {
        back = keys(from, true);
        scratch_.op({gradients.k, back.k});
        scratch_.op({gradients.v, back.v});
      }
      if (const std::int64_t to = counts_.to(rank_, d); to > 0) {
        home = keys(to, true);
        returned_.push_back(home);
      }
      exchange(back, home);
    }
  }

  void add_returned() {
    for (const Keys& one : returned_) {
      scratch_.op({one.k});
      scratch_.op({one.v});
    }
    returned_.clear();
  }

  const Sizes& s_;
  const Counts& counts_;
  int rank_, stages_;
  Scratch scratch_;
  std::size_t q_ = 0, k_ = 0, v_ = 0;
  std::vector<std::vector<Keys>> arrived_;  // by stage
  std::vector<Keys> returned_;
};

}  // namespace

ClosedForm group_cast_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                           const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  const AttentionMesh mesh(plan, s.problem);
  const Counts counts(s.problem, mesh, plan);
  ClosedForm form = frame_form(s, plan, phase);
  Bytes scratch = s.frame_peak(phase);
  for (int r = 0; r < plan.ring; ++r) {
    form.attention_calls = std::max(form.attention_calls, counts.kernels(r));
    Walk walk(s, counts, r, phase);
    scratch = std::max(scratch, phase == Phase::forward ? walk.forward() : walk.backward());
  }
  form.busiest_flops = s.flops(counts.needed().most_pairs, s.split.q(0).count(), phase);
  form.calls_of_busiest = false;
  const Bytes kv = s.all_parts(counts.needed().all_tokens).kv();
  const auto exchanges = [&](Bytes total) {
    form.add({.kind = CommKind::send_recv,
              .axis = Axis::ring,
              .group_size = plan.ring,
              .calls = counts.exchanges(0),
              .total = total,
              .neighbours = false});
  };
  exchanges(kv);
  if (phase == Phase::backward) {
    exchanges(s.wide(kv));
  }
  form.peak_buffers = s.inputs_and_outputs(phase) + s.busiest(s.ring).lse + scratch;
  return form;
}

}  // namespace spp::strategies::group_cast
