// Documents share the parts that they are made of, hence one file.
#include "cli/report_json.hpp"

#include "base/error.hpp"
#include "base/version.hpp"
#include "parallel/attention/attention_mesh.hpp"
#include "planner/step.hpp"
#include "planner/traffic.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace spp::cli {
namespace {

/// Keys of the step's parts, by Component.
constexpr std::array<std::string_view, components> component_keys{
    "attention_kernels_s",  "small_kernels_s", "gemm_s",  "exposed_intra_node_s",
    "exposed_inter_node_s", "launch_s",        "bubble_s"};

std::string_view to_string(sim::Scope scope) {
  switch (scope) {
    case sim::Scope::self:
      return "self";
    case sim::Scope::intra:
      return "intra";
    case sim::Scope::inter:
      return "inter";
  }
  throw InternalError("unknown scope");
}

Json by_kind(const std::array<Bytes, comm_kinds>& bytes) {
  Json json = Json::object();
  for (std::size_t k = 0; k < comm_kinds; ++k) {
    json[std::string(to_string(static_cast<CommKind>(k)))] = bytes[k].value();
  }
  return json;
}

Json to_json(const MemoryBytes& memory) {
  return {{"total", memory.total().value()},
          {"tensors", memory.tensors().value()},
          {"parameters", memory.parameters.value()},
          {"gradients", memory.gradients.value()},
          {"optimizer", memory.optimizer.value()},
          {"activations", memory.activations.value()},
          {"attention_buffers", memory.attention_buffers.value()},
          {"communication", memory.communication.value()},
          {"logits", memory.logits.value()},
          {"process", memory.process.value()}};
}

Json to_json(const Prediction& p) {
  Json stages = Json::array();
  for (const MemoryBytes& stage : p.by_stage) {
    stages.push_back(to_json(stage));
  }
  Json parts = Json::object();
  for (std::size_t i = 0; i < step_parts; ++i) {
    const auto part = static_cast<StepPart>(i);
    parts[std::string(spp::to_string(part))] = p.parts_s[part];
  }
  const auto part = [&](Component c) {
    return std::max(0.0, p.parts[static_cast<std::size_t>(c)]);
  };
  return {{"step_s", p.step.count()},
          {"interval_s", {p.low.count(), p.high.count()}},
          {"attention_s", p.attention.count()},
          {"compute_s", p.compute.count()},
          {"exposed_comm_s", p.exposed.count()},
          {"hidden_comm_s", p.hidden.count()},
          {"comm_bytes_per_rank", by_kind(p.sent.by_kind())},
          {"tflops_per_gpu", p.tflops_per_gpu},
          {"mfu", p.mfu},
          {"tokens_per_s", p.tokens_per_s},
          {"memory_bytes", to_json(p.memory)},
          {"memory_by_stage", std::move(stages)},
          {"parts_s", std::move(parts)},
          {"intra_comm", part(Component::intra_comm)},
          {"inter_comm", part(Component::inter_comm)},
          {"fits", p.fits},
          {"max_seq", p.max_seq}};
}

Json to_json(const sim::Bottleneck& b, const std::vector<std::string>& streams) {
  Json json{
      {"kind", to_string(b.kind)}, {"scope", to_string(b.scope)}, {"exposed_s", b.exposed.count()}};
  json["stream"] = b.stream.valid() && b.stream.index() < streams.size()
                       ? Json(streams[b.stream.index()])
                       : Json();
  json["slowest"] =
      b.from.valid() && b.to.valid()
          ? Json{{"from", b.from.value}, {"to", b.to.value}, {"bytes_per_s", b.rate.value()}}
          : Json();
  json["algorithm"] = b.algorithm;
  return json;
}

std::vector<std::string> streams_of(const Evaluation& evaluation, const Request& request,
                                    Phase phase) {
  const Candidate& c = evaluation.candidate;
  return c.strategy
      ->build(attention_problem(request, c.plan, request.problem), c.plan.attention, phase,
              request.build)
      .streams;
}

}  // namespace

Json call_json(const sim::Simulation& s, Phase phase, const std::vector<std::string>& streams) {
  Json bottlenecks = Json::array();
  for (const sim::Bottleneck& b : s.bottlenecks) {
    bottlenecks.push_back(to_json(b, streams));
  }
  Json steps = Json::array();
  for (const sim::Wait& w : s.waits) {
    steps.push_back(
        {{"op", w.op},
         {"waited_for_op", w.waited_for},
         {"kind", to_string(w.kind)},
         {"stream", w.stream.index() < streams.size() ? Json(streams[w.stream.index()]) : Json()},
         {"exposed_s", w.seconds.count()}});
  }
  return {{"phase", spp::to_string(phase)},
          {"makespan_s", s.makespan.count()},
          {"critical_rank", s.critical.value},
          {"attention_s", s.breakdown.attention.count()},
          {"gemm_s", s.breakdown.gemm.count()},
          {"other_kernels_s", s.breakdown.other_kernels.count()},
          {"exposed_comm_s", s.breakdown.exposed.count()},
          {"imbalance_s", s.breakdown.imbalance.count()},
          {"hidden_comm_s", s.breakdown.hidden.count()},
          {"launch_bound_s", s.breakdown.launch_bound.count()},
          {"comm_bytes_per_rank", by_kind(s.sent)},
          {"bottlenecks", std::move(bottlenecks)},
          {"steps", std::move(steps)},
          {"simulated_ranks", static_cast<std::int64_t>(s.representatives.size())},
          {"ranks_each_stands_for", s.folded},
          {"turns_left_out", s.turns_left_out},
          {"simulated_ops", s.ops},
          {"simulated_messages", s.messages}};
}

Json to_json(const ComponentSeconds& seconds) {
  Json parts = Json::object();
  for (std::size_t c = 0; c < components; ++c) {
    parts[std::string(component_keys[c])] = seconds[c];
  }
  return parts;
}

Json to_json(const std::vector<Assumption>& assumptions) {
  Json list = Json::array();
  for (const Assumption& a : assumptions) {
    list.push_back({{"what", a.what}, {"value", a.value}, {"source", a.source}});
  }
  return list;
}

Json to_json(const GpuSpec& gpu) {
  Json rates = Json::object();
  for (const auto& [dtype, rate] : gpu.matrix_rate) {
    rates[std::string(spp::to_string(dtype))] = rate.value.value() / 1e12;
  }
  return {{"name", gpu.name},
          {"aliases", gpu.aliases},
          {"generation", gpu.generation.name},
          {"attention_kernel", gpu.generation.attention.kernel},
          {"sms", gpu.sms.value},
          {"peak_tflops", std::move(rates)},
          {"memory_bytes", gpu.memory.value.value()},
          {"memory_usable_fraction", gpu.memory_usable.value},
          {"memory_bytes_per_s", gpu.memory_bandwidth.value.value()}};
}

namespace {

Json or_null(const std::optional<Sourced<Bandwidth>>& rate) {
  return rate ? Json(rate->value.value()) : Json();
}

}  // namespace

Json to_json(const MachineSpec& m) {
  Json json{{"name", m.name},
            {"aliases", m.aliases},
            {"gpus_per_node", m.gpus_per_node.value},
            {"sockets", m.sockets.value},
            {"gpus_per_pcie_switch",
             m.gpus_per_pcie_switch ? Json(m.gpus_per_pcie_switch->value) : Json()},
            {"host_bridge_bytes_per_s", or_null(m.host_bridge)},
            {"socket_link_bytes_per_s", or_null(m.socket_link)},
            {"intra",
             {{"transport", m.intra.name},
              {"medium", m.intra.medium},
              {"bytes_per_s_per_gpu", m.intra_rate.value()}}}};
  json["inter"] = m.inter ? Json{{"transport", m.inter->transport.name},
                                 {"nics", m.inter->nics.value},
                                 {"bytes_per_s_per_nic", m.inter->rate_per_nic.value.value()},
                                 {"gpus_per_nic", m.inter->gpus_per_nic.value}}
                          : Json();
  json["fabric"] = {{"kind", m.fabric.kind}, {"oversubscription", m.fabric.oversubscription.value}};
  json["gpu"] = to_json(m.gpu);
  return json;
}

namespace {

Json to_json(const LinkTraffic& l) {
  return {{"kind", sim::to_string(l.link.kind)},
          {"name", l.name},
          {"bytes_per_s", l.link.capacity.value()},
          {"bytes", l.bytes},
          {"busy_s", l.busy().count()}};
}

Json to_json(const std::vector<LinkTraffic>& links) {
  Json list = Json::array();
  for (const LinkTraffic& link : links) {
    list.push_back(to_json(link));
  }
  return list;
}

/// Where the candidate's bytes go; the links' names are the cluster's.
Json traffic_json(const Request& request, const Candidate& c) {
  constexpr std::size_t most_listed = 256;  // GPUs of a group
  const std::optional<Traffic> traffic = traffic_of(request, c);
  if (!traffic) {
    return nullptr;
  }
  Json axes = Json::array();
  for (const AxisTraffic& axis : traffic->axes) {
    const std::span gpus(axis.gpus.data(), std::min(most_listed, axis.gpus.size()));
    axes.push_back({{"axis", spp::to_string(axis.axis)},
                    {"size", axis.gpus.size()},
                    {"groups", axis.groups},
                    {"first_group", std::vector<int>(gpus.begin(), gpus.end())},
                    {"reach", spp::to_string(axis.reach)},
                    {"bytes_per_rank", by_kind(axis.sent)},
                    {"links", to_json(axis.links)}});
  }
  return {{"axes", std::move(axes)}, {"links", to_json(traffic->links)}};
}

Json degrees_json(const SequencePlan& plan) {
  Json json = {{"strategy", plan.strategy}, {"ulysses", plan.ulysses}, {"ring", plan.ring}};
  for (const Parameter* parameter : strategies::parameters()) {
    json[std::string(parameter->name)] = plan.own[*parameter];
  }
  return json;
}

}  // namespace

Json dispatcher_json(const StepPlan& plan) {
  return plan.sends_to_experts() ? Json(spp::to_string(plan.to_experts)) : Json();
}

Json to_json(const StepPlan& plan, Groups groups) {
  const SequencePlan& attention = plan.attention;
  Json order = Json::array();
  for (const Axis axis : axes_of(attention)) {
    order.push_back(spp::to_string(axis));
  }
  constexpr int most_listed = 65'536;  // more would be a document of 100 MB
  const bool listed = groups == Groups::listed && plan.world() <= most_listed;
  Json members = Json::object();
  for (const Axis axis : {Axis::ulysses, Axis::ring, Axis::team}) {
    if (axis != Axis::team || size_of(attention, axis) > 1) {
      members[std::string(spp::to_string(axis))] =
          listed ? Json(groups_of(plan, axis)) : Json::array();
    }
  }
  for (const std::string_view axis : {"tp", "dp", "cfg", "pp", "ep"}) {
    members[std::string(axis)] = listed ? Json(groups_of(plan, axis)) : Json::array();
  }
  Json json = degrees_json(attention);
  json.update({{"layout", spp::to_string(attention.layout)},
               {"order", std::move(order)},
               {"heads", spp::to_string(attention.heads)},
               {"rank_order", spp::to_string(attention.rank_order)},
               {"tp", plan.tensor},
               {"dp", plan.dp()},
               {"cfg", plan.cfg()},
               {"pp", plan.pipeline},
               {"virtual_stages", plan.virtual_stages},
               {"ep", plan.expert},
               {"etp", plan.expert_tensor},
               {"dispatcher", dispatcher_json(plan)},
               {"pipeline", plan.pipeline > 1 ? Json(plan.order) : Json()},
               {"micro_batch", plan.micro_batch},
               {"micro_batches", plan.micro_batches},
               {"zero", plan.zero},
               {"zero_group", plan.shards()},
               {"recompute", spp::to_string(plan.recompute.kind)},
               {"offload", spp::to_string(plan.offload)},
               {"gemm_format", spp::to_string(plan.format)},
               {"groups", std::move(members)}});
  return json;
}

Json to_json(const Candidate& candidate, Groups groups) {
  return {{"name", short_name(candidate.plan)},
          {"plan", to_json(candidate.plan, groups)},
          {"predicted", to_json(candidate.predicted)},
          {"simulated", candidate.simulated},
          {"bound_by", candidate.bound_by},
          {"why", candidate.why},
          {"decisions", candidate.decisions},
          {"padding_tokens", candidate.padding_tokens},
          {"padding_heads", candidate.padding_heads},
          {"algorithms", candidate.lowering}};
}

/// All steps of an image or a video; null: this is no denoising step.
Json denoising_json(const Job& job, const Candidate& candidate) {
  if (job.denoising_steps == 0) {
    return nullptr;
  }
  return {{"steps", job.denoising_steps},
          {"seconds", candidate.predicted.step.count() * job.denoising_steps}};
}

Json plan_document(const Job& job, const PlanResult& result, Seconds elapsed) {
  Json doc = document("plan");
  doc["request"] = job.resolved;
  doc["assumptions"] = to_json(job.assumptions);
  Json candidates = Json::array();
  // Four lists of all ranks in each of them would be most of the document: `best` has them.
  constexpr int most_listed = 512;
  for (const Candidate& c : result.candidates) {
    candidates.push_back(
        to_json(c, c.plan.world() <= most_listed ? Groups::listed : Groups::left_out));
  }
  doc["best"] = candidates.empty() || !result.any_fits ? Json() : to_json(result.candidates[0]);
  doc["candidates"] = std::move(candidates);
  doc["machine"] = to_json(job.request.cluster->machine());
  doc["traffic"] =
      result.candidates.empty() ? Json() : traffic_json(job.request, result.candidates.front());
  doc["denoising"] =
      result.candidates.empty() ? Json() : denoising_json(job, result.candidates.front());
  doc["ties"] = result.ties;
  doc["rejected"] = Json::array();
  doc["rejected_more"] = Json::object();
  std::map<std::string_view, std::size_t> listed;
  for (const Rejected& r : result.rejected) {
    // Of hundreds the first ones of each rule say what the others would.
    constexpr std::size_t most_in_full = 128;
    constexpr std::size_t of_a_rule = 16;
    if (++listed[r.rule] > of_a_rule && result.rejected.size() > most_in_full) {
      doc["rejected_more"][r.rule] = listed[r.rule] - of_a_rule;
      continue;
    }
    Json plan = degrees_json(r.plan.attention);
    plan.update({{"tp", r.plan.tensor},
                 {"dp", r.plan.dp()},
                 {"cfg", r.plan.cfg()},
                 {"pp", r.plan.pipeline},
                 {"ep", r.plan.expert}});
    doc["rejected"].push_back({{"name", short_name(r.plan)},
                               {"plan", std::move(plan)},
                               {"rule", r.rule},
                               {"detail", r.detail}});
  }
  doc["searched"] = result.searched;
  doc["simulated"] = result.simulated;
  doc["unsettled"] = result.unsettled;
  doc["elapsed_s"] = elapsed.count();
  return doc;
}

Json simulation_document(const Job& job, const Evaluation& evaluation, Seconds elapsed) {
  Json doc = document("simulation");
  doc["request"] = job.resolved;
  doc["assumptions"] = to_json(job.assumptions);
  doc["result"] = to_json(evaluation.candidate);
  doc["machine"] = to_json(job.request.cluster->machine());
  doc["traffic"] = traffic_json(job.request, evaluation.candidate);
  doc["denoising"] = denoising_json(job, evaluation.candidate);
  doc["breakdown"] = to_json(evaluation.candidate.predicted.parts);
  Json calls = Json::array();
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto& simulation = phase == Phase::forward ? evaluation.forward : evaluation.backward;
    if (simulation) {
      calls.push_back(call_json(*simulation, phase, streams_of(evaluation, job.request, phase)));
    }
  }
  doc["attention_calls"] = std::move(calls);
  doc["elapsed_s"] = elapsed.count();
  return doc;
}

bool Verification::proven() const {
  return std::ranges::all_of(schedules, [](const Verified& v) { return v.proof.proven; });
}

Json verification_document(const Verification& verification, const Job* job, const StepPlan* plan,
                           Seconds elapsed) {
  Json doc = document("verification");
  doc["subject"] = verification.subject;
  doc["request"] = job != nullptr ? job->resolved : Json();
  doc["assumptions"] = job != nullptr ? to_json(job->assumptions) : Json::array();
  doc["plan"] = plan != nullptr ? to_json(*plan) : Json();
  doc["proven"] = verification.proven();
  Json schedules = Json::array();
  for (const Verified& v : verification.schedules) {
    schedules.push_back(
        {{"phase", v.phase},
         {"proven", v.proof.proven},
         {"counter_example", v.proof.proven ? Json() : Json(v.proof.counter_example)},
         {"pair_blocks", v.proof.pair_blocks},
         {"ops", v.proof.ops},
         {"messages", v.proof.messages},
         {"peak_memory_bytes", v.peak_memory.value()}});
  }
  doc["schedules"] = std::move(schedules);
  doc["elapsed_s"] = elapsed.count();
  return doc;
}

}  // namespace spp::cli
