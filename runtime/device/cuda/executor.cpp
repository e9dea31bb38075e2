// One class, hence one file.
#include "runtime/device/cuda/executor.hpp"

#include "runtime/device/cuda/expert_kernels.hpp"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/latent_kernels.hpp"
#include "runtime/device/cuda/layer_kernels.hpp"
#include "runtime/device/cuda/product_kernels.hpp"
#include "runtime/device/cuda/seen_rows.hpp"
#include "runtime/device/cuda/word_kernels.hpp"
#include "runtime/device/cuda/workspaces.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace spp::runtime::cuda {
namespace {

/// The kernels of a device, on one stream.
struct DeviceKernels {
  DeviceAttention* attention;
  std::byte* room;  // of the op beside its buffers (DeviceExecutor::make_room)
  cudaStream_t stream;

  void forward(const AttentionForwardArgs& args) const { attention->forward(args, stream); }
  void backward(const AttentionBackwardArgs& args) const { attention->backward(args, stream); }
  template <class... Args>
  void scores(const Args&... args) const {
    cuda::scores(args..., stream);
  }
  void softmax(const Rows& scores, const Rows& weights, const Visibility&, float scale) const {
    cuda::softmax(scores, weights, reinterpret_cast<const SeenKeyRows*>(room), scale, stream);
  }
  template <class... Args>
  void softmax_backward(const Args&... args) const {
    cuda::softmax_backward(args..., stream);
  }
  template <class... Args>
  void weigh(const Args&... args) const {
    cuda::weigh(args..., stream);
  }
  template <class... Args>
  void weigh_back(const Args&... args) const {
    cuda::weigh_back(args..., stream);
  }
  template <class... Args>
  void linear_forward(const Args&... args) const {
    cuda::linear_forward(args..., LinearRoom{.data = room, .chunk = linear_chunk}, stream);
  }
  void linear_backward(const LinearBackwardArgs& args) const {
    cuda::linear_backward(args, LinearRoom{.data = room, .chunk = linear_chunk}, stream);
  }
  template <class... Args>
  void make_state(const Args&... args) const {
    cuda::make_state(args..., stream);
  }
  template <class... Args>
  void sum_states(const Args&... args) const {
    cuda::sum_states(args..., stream);
  }
  template <class... Args>
  void apply_state(const Args&... args) const {
    cuda::apply_state(args..., stream);
  }
  template <class... Args>
  void row_dot(const Args&... args) const {
    cuda::row_dot(args..., stream);
  }
  template <class... Args>
  void merge(const Args&... args) const {
    cuda::merge(args..., stream);
  }
  void sink(const SinkArgs& args) const { cuda::sink(args, stream); }
  void sink_backward(const SinkBackwardArgs& args) const { cuda::sink_backward(args, stream); }
  template <class... Args>
  void rescale(const Args&... args) const {
    cuda::rescale(args..., stream);
  }
  template <class... Args>
  void accumulate(const Args&... args) const {
    cuda::accumulate(args..., stream);
  }
  template <class... Args>
  void fill(const Args&... args) const {
    cuda::fill(args..., stream);
  }
  template <class... Args>
  void move(const Args&... args) const {
    cuda::move(args..., stream);
  }
  void gemm(const GemmArgs& args) const { attention->gemm(args, stream); }
  void add_bias(const BiasArgs& args) const { cuda::add_bias(args, stream); }
  void bias_gradient(const BiasGradientArgs& args) const { cuda::bias_gradient(args, stream); }
  void bias_weights_gradient(const BiasWeightsArgs& args) const {
    cuda::bias_weights_gradient(args, stream);
  }
  void rms_norm(const NormArgs& args, float epsilon) const {
    cuda::rms_norm(args, epsilon, stream);
  }
  void rms_norm_backward(const NormBackwardArgs& args) const {
    cuda::rms_norm_backward(args, room, stream);
  }
  void layer_norm(const NormArgs& args, float epsilon) const {
    cuda::layer_norm(args, epsilon, stream);
  }
  void layer_norm_backward(const NormBackwardArgs& args) const {
    cuda::layer_norm_backward(args, room, stream);
  }
  void split_heads(const SplitHeadsArgs& args) const { cuda::split_heads(args, stream); }
  void join_heads(const JoinHeadsArgs& args) const { cuda::join_heads(args, room, stream); }
  void latent_heads(const LatentHeadsArgs& args) const { cuda::latent_heads(args, stream); }
  void join_latent_heads(const LatentHeadsArgs& args) const {
    cuda::join_latent_heads(args, stream);
  }
  template <class... Args>
  void swiglu(const Args&... args) const {
    cuda::swiglu(args..., stream);
  }
  void swiglu_backward(const SwigluBackwardArgs& args) const {
    cuda::swiglu_backward(args, stream);
  }
  void route(const RouteArgs& args) const { cuda::route(args, stream); }
  void route_backward(const RouteBackwardArgs& args) const { cuda::route_backward(args, stream); }
  void expert_swiglu(const ExpertSwigluArgs& args) const { cuda::expert_swiglu(args, stream); }
  void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args) const {
    cuda::expert_swiglu_backward(args, stream);
  }
  template <class... Args>
  void gelu(const Args&... args) const {
    cuda::gelu(args..., stream);
  }
  template <class... Args>
  void gelu_backward(const Args&... args) const {
    cuda::gelu_backward(args..., stream);
  }
  template <class... Args>
  void add(const Args&... args) const {
    cuda::add(args..., stream);
  }
  void embedding(const EmbeddingArgs& args) const { cuda::embedding(args, stream); }
  void embedding_backward(const EmbeddingBackwardArgs& args) const {
    cuda::embedding_backward(args, stream);
  }
  void word_sums(const WordSumsArgs& args) const { cuda::word_sums(args, stream); }
  void word_sums_backward(const WordSumsBackwardArgs& args) const {
    cuda::word_sums_backward(args, stream);
  }
  void word_loss(const WordLossArgs& args) const { cuda::word_loss(args, stream); }
  void adam(const AdamArgs& args) const { cuda::adam(args, stream); }
};

/// The communication of a device, for one op.
struct DeviceCommunication {
  DeviceCommunicator& communicator;
  const OpOnStream& at;

  [[nodiscard]] std::int64_t exchange(const ExchangeParts& parts) const {
    return communicator.exchange(at, parts);
  }
  [[nodiscard]] std::int64_t all_to_all(const RankGroup& group, const AllToAllParts& parts) const {
    return communicator.all_to_all(at, group, parts);
  }
  [[nodiscard]] std::int64_t all_gather(const RankGroup& group, const AllGatherParts& parts) const {
    return communicator.all_gather(at, group, parts);
  }
  [[nodiscard]] std::int64_t reduce_scatter(const RankGroup& group,
                                            const ReduceScatterParts& parts) const {
    return communicator.reduce_scatter(at, group, parts);
  }
  [[nodiscard]] std::int64_t all_reduce(const RankGroup& group, const AllReduceParts& parts) const {
    return communicator.all_reduce(at, group, parts);
  }
};

/// Prepares what DeviceCommunication does.
struct CommunicationPreparation {
  DeviceCommunicator& communicator;
  const OpOnStream& at;

  void exchange(const ExchangeParts&) const { communicator.prepare(at); }
  void all_to_all(const RankGroup&, const AllToAllParts&) const { communicator.prepare(at); }
  void all_gather(const RankGroup&, const AllGatherParts&) const { communicator.prepare(at); }
  void reduce_scatter(const RankGroup& group, const ReduceScatterParts& parts) const {
    communicator.prepare_reduce_scatter(at, group, parts);
  }
  void all_reduce(const RankGroup&, const AllReduceParts&) const { communicator.prepare(at); }
};

/// " with ranks 1, 3"; "" for nobody.
std::string with_text(const std::vector<Rank>& peers) {
  return peers.empty() ? "" : fmt::format(" with {}", ranks_text(peers));
}

/// What an op puts on its stream, about: waits and events, and a launch or a copy for every piece.
std::size_t calls_of(const StoredOp& stored) {
  constexpr std::size_t events = 2;
  const auto* gemm = op_if<Gemm>(stored.op.body);
  const std::size_t of_a_run = gemm != nullptr && !gemm->bias.empty() ? 2 : 1;
  return stored.waits.size() + events +
         std::max({of_a_run, of_a_run * stored.runs.size(), stored.moves.size(),
                   stored.sends.size() + stored.receives.size()});
}

/// Of those, on a hardware queue behind a closed gate, at most: it takes about a thousand before
/// the host must wait for the device.
constexpr std::size_t most_on_queue = 700;

}  // namespace

DeviceExecutor::DeviceExecutor(const ExecutorParts& parts)
    : parts_(parts),
      shapes_(shapes_of(parts.schedule, parts.program)),
      streams_(parts.streams.of(parts.program, parts.schedule.streams.size())),
      attention_(parts.schedule.streams.size()),
      rooms_(parts.program.ops.size()),
      events_(parts.program.ops.size()),
      ends_(parts.schedule.streams.size()),
      ended_(parts.schedule.streams.size()) {
  make_events();
  try {
    prepare();
  } catch (...) {
    end_all();
    throw;
  }
}

DeviceExecutor::~DeviceExecutor() {
  end_all();
  parts_.communicator.when_peers_are_late({});
}

/// What is enqueued uses memory and events that go away after this.
void DeviceExecutor::end_all() noexcept {
  gate_.open();
  for (const Stream* stream : streams_) {
    if (stream != nullptr) {
      cudaStreamSynchronize(stream->get());
    }
  }
}

/// Runs no op that others see: attention over whatever its buffers hold, at most.
void DeviceExecutor::prepare() {
  parts_.communicator.prepare(start());
  for (std::size_t i = 0; i < parts_.program.ops.size(); ++i) {
    parts_.transport.working();  // plans of an op take seconds, of a program perhaps a minute
    const StoredOp& stored = parts_.program.ops[i];
    const StreamId id = stored.op.stream;
    const cudaStream_t stream = streams_[id.index()]->get();
    const OpPlace place{.schedule = parts_.schedule, .memory = parts_.memory, .stored = stored};
    if (const auto* transfer = std::get_if<Transfer>(&stored.op.body)) {
      const OpOnStream at{.stream = stream,
                          .stream_id = id,
                          .op = static_cast<std::int32_t>(i),
                          .name = name_of(stored.op.body)};
      run_transfer(place, *transfer,
                   CommunicationPreparation{.communicator = parts_.communicator, .at = at});
      continue;
    }
    if (const auto* forward = op_if<AttentionForward>(stored.op.body)) {
      attention(id).prepare(arguments_of(place, *forward), stream);
    } else if (const auto* backward = op_if<AttentionBackward>(stored.op.body)) {
      attention(id).prepare(arguments_of(place, *backward), stream);
    } else if (const auto* gemm = op_if<Gemm>(stored.op.body)) {
      for_each_product(place, *gemm,
                       [&](const GemmArgs& args) { attention(id).prepare(args, stream); });
    } else {
      make_room(i, place, stream);
    }
  }
  for (const Stream* stream : streams_) {
    if (stream != nullptr) {
      stream->synchronize();
    }
  }
}

/// A softmax of whole rows reads which keys each query sees; linear attention keeps the states of
/// its chunks, a norm's backward sums over slices of rows.
void DeviceExecutor::make_room(std::size_t index, const OpPlace& place, cudaStream_t stream) {
  const OpBody& body = place.stored.op.body;
  if (const auto* softmax = op_if<Softmax>(body)) {
    const std::vector<SeenKeyRows> seen = seen_rows(place.visible(*softmax));
    const std::size_t bytes = seen.size() * sizeof(SeenKeyRows);
    rooms_[index] = DeviceBuffer(bytes, parts_.program.rank);
    copy(rooms_[index].data(), reinterpret_cast<const std::byte*>(seen.data()), bytes, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // `seen` ends here
  } else if (const std::int64_t bytes =
                 room_of(body, parts_.schedule, parts_.program.buffers).value();
             bytes > 0) {
    rooms_[index] = DeviceBuffer(static_cast<std::size_t>(bytes), parts_.program.rank);
  }
}

/// Where ranks meet before the first op: as if it were one behind the last.
OpOnStream DeviceExecutor::start() const {
  return {.stream = stream().get(),
          .stream_id = StreamId(0),
          .op = static_cast<std::int32_t>(parts_.program.ops.size()),
          .name = "start"};
}

DeviceAttention& DeviceExecutor::attention(StreamId id) {
  std::unique_ptr<DeviceAttention>& kernels = attention_[id.index()];
  if (kernels == nullptr) {
    kernels = parts_.attention.make(parts_.streams.source());
  }
  return *kernels;
}

std::set<int> DeviceExecutor::made_for() const {
  std::set<int> sms;
  for (const auto& attention : attention_) {
    if (attention != nullptr) {
      sms.merge(attention->made_for());
    }
  }
  return sms;
}

std::string DeviceExecutor::refusal() const {
  for (const auto& attention : attention_) {
    if (attention != nullptr && !attention->refusal().empty()) {
      return attention->refusal();
    }
  }
  return "";
}

/// Ends are recorded for the timeline, for ops that others wait for, and for the last op of a
/// stream, which tells when the rank was done.
void DeviceExecutor::make_events() {
  const std::vector<StoredOp>& ops = parts_.program.ops;
  std::vector<bool> awaited(ops.size(), false);
  std::vector<std::int32_t> last(streams_.size(), -1);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    last[ops[i].op.stream.index()] = static_cast<std::int32_t>(i);
    for (const std::int32_t before : ops[i].waits) {
      awaited[static_cast<std::size_t>(before)] = true;
    }
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::size_t stream = ops[i].op.stream.index();
    const auto index = static_cast<std::int32_t>(i);
    const bool timed = parts_.options.timeline || last[stream] == index;
    if (parts_.options.timeline) {
      events_[i].begin.emplace(EventUse::time);
    }
    if (timed || awaited[i]) {
      events_[i].end.emplace(timed ? EventUse::time : EventUse::order);
      ends_[stream].push_back(index);
    }
  }
}

Execution DeviceExecutor::run() {
  Execution result;
  result.timeline.streams = parts_.schedule.streams;
  std::ranges::fill(ended_, 0);
  parts_.communicator.when_peers_are_late([this] { gate_.open(); });
  try {
    enqueue_all(result);
    wait_for_all();
  } catch (...) {
    gate_.open();
    parts_.communicator.abort();
    parts_.communicator.end_run();
    throw;
  }
  parts_.communicator.end_run();
  read_times(result);
  return result;
}

void DeviceExecutor::enqueue_all(Execution& result) {
  const cudaStream_t first = stream().get();
  const auto count = static_cast<std::int32_t>(parts_.program.ops.size());
  gate_.close(first);
  parts_.communicator.begin_run(start());
  start_.record(first);
  for (const Stream* stream : streams_) {
    if (stream != nullptr && stream != streams_.front()) {
      wait(stream->get(), start_.get());
    }
  }
  // Not in the first run: what libraries set up at a first call may wait for the device, and so for
  // gates, one by one.
  const bool pauses = std::exchange(ran_, true);
  auto pause = pauses ? parts_.options.pauses.begin() : parts_.options.pauses.end();
  std::size_t behind_gate = 0;
  const std::size_t most = most_behind_gate();
  for (std::int32_t i = 0; i < count; ++i) {
    if (pause != parts_.options.pauses.end() && *pause == i) {
      gate_.open();
      gate_.close(streams_[op(i).op.stream.index()]->get());
      behind_gate = 0;
      ++pause;
    }
    behind_gate += calls_of(op(i));
    if (behind_gate > most) {
      gate_.open();
    }
    enqueue(i, result);
  }
  gate_.open();
}

/// Where streams share a queue, all ranks' calls may stand behind one gate. (Calls may wait for a
/// peer's gate, too, on a queue that fills: its host opens it when it has waited for this one's,
/// when_peers_are_late.)
std::size_t DeviceExecutor::most_behind_gate() const {
  const auto queues = static_cast<std::size_t>(hardware_queues());
  const std::size_t streams =
      parts_.streams.count() * static_cast<std::size_t>(parts_.ranks_of_gpu);
  return most_on_queue / std::max<std::size_t>(1, (streams + queues - 1) / queues);
}

void DeviceExecutor::enqueue(std::int32_t index, Execution& result) {
  const StoredOp& stored = op(index);
  const StreamId id = stored.op.stream;
  const cudaStream_t stream = streams_[id.index()]->get();
  for (const std::int32_t before : stored.waits) {
    if (op(before).op.stream != id) {
      wait(stream, events(before).end->get());
    }
  }
  if (events(index).begin) {
    events(index).begin->record(stream);
  }
  const OpPlace place{.schedule = parts_.schedule, .memory = parts_.memory, .stored = stored};
  if (const auto* transfer = std::get_if<Transfer>(&stored.op.body)) {
    const OpOnStream at{
        .stream = stream, .stream_id = id, .op = index, .name = name_of(stored.op.body)};
    const Bytes sent(run_transfer(
        place, *transfer, DeviceCommunication{.communicator = parts_.communicator, .at = at}));
    expect_sent(*transfer, shapes_, sent);
    result.sent[static_cast<std::size_t>(comm_kind_of(*transfer))] += sent;
  } else {
    run_kernel(place, std::get<Kernel>(stored.op.body),
               DeviceKernels{.attention = attention_[id.index()].get(),
                             .room = rooms_[static_cast<std::size_t>(index)].data(),
                             .stream = stream});
  }
  if (events(index).end) {
    events(index).end->record(stream);
  }
}

/// Says whether another op has ended.
bool DeviceExecutor::look_for_ended() {
  bool moved = false;
  for (std::size_t s = 0; s < ends_.size(); ++s) {
    while (ended_[s] < ends_[s].size() && events(ends_[s][ended_[s]]).end->happened()) {
      ++ended_[s];
      moved = true;
    }
  }
  return moved;
}

void DeviceExecutor::wait_for_all() {
  auto last_progress = Clock::now();
  const auto all_ended = [&] {
    for (std::size_t s = 0; s < ends_.size(); ++s) {
      if (ended_[s] < ends_[s].size()) {
        return false;
      }
    }
    return true;
  };
  for (;;) {
    const bool moved = look_for_ended();
    if (all_ended()) {
      return;
    }
    parts_.communicator.poll();
    parts_.transport.progress();  // throws when the run was aborted
    if (moved) {
      parts_.transport.working();  // ranks that wait elsewhere know that this one is not dead
      last_progress = Clock::now();
      continue;
    }
    parts_.transport.idle();
    // others may be at work
    const Seconds waited =
        std::min<Seconds>(Clock::now() - last_progress, parts_.transport.silence());
    if (waited > parts_.options.timeout) {
      throw BackendError(
          "execution",
          fmt::format("nothing happened for {:.0f} s; not ended: {}", waited.count(), unfinished()),
          parts_.program.rank.value);
    }
  }
}

/// "op 12 exchange with ranks 1, 3 (stream ring), op 13 attention_fwd (stream compute)"
std::string DeviceExecutor::unfinished() const {
  std::string text;
  for (std::size_t s = 0; s < ends_.size(); ++s) {
    if (ended_[s] < ends_[s].size()) {
      const std::int32_t index = ends_[s][ended_[s]];
      const OpBody& body = op(index).op.body;
      text +=
          fmt::format("{}op {} {}{} (stream {})", text.empty() ? "" : ", ", index, name_of(body),
                      with_text(peers_of(body, parts_.program.rank)), parts_.schedule.streams[s]);
    }
  }
  return text;
}

void DeviceExecutor::read_times(Execution& result) const {
  for (const std::vector<std::int32_t>& ends : ends_) {
    if (!ends.empty()) {
      const OpEvents& last = events_[static_cast<std::size_t>(ends.back())];
      result.elapsed = std::max(result.elapsed, between(start_, *last.end));
    }
  }
  if (!parts_.options.timeline) {
    return;
  }
  for (std::size_t i = 0; i < events_.size(); ++i) {
    result.timeline.events.push_back(
        event_of(parts_.schedule, parts_.program, static_cast<std::int32_t>(i),
                 between(start_, *events_[i].begin), between(start_, *events_[i].end)));
  }
  tell_waits(parts_.program, result.timeline.events);
  std::ranges::stable_sort(result.timeline.events, {}, &TimelineEvent::end);
}

}  // namespace spp::runtime::cuda
