#include "machine/step_practice.hpp"

#include <array>
#include <string_view>

namespace spp {
namespace {

constexpr double most_bytes = 64;    // of a weight or a logit
constexpr double most_factor = 100;  // of traffic

struct TimeKey {
  std::string_view key;
  Sourced<Seconds> StepPractice::* member;
};
constexpr std::array times{
    TimeKey{"host_kernel", &StepPractice::host_kernel},
    TimeKey{"host_transfer", &StepPractice::host_transfer},
    TimeKey{"host_tensor_node", &StepPractice::host_tensor_node},
    TimeKey{"host_tensor_rank", &StepPractice::host_tensor_rank},
    TimeKey{"host_exchange", &StepPractice::host_exchange},
    TimeKey{"host_counts", &StepPractice::host_counts},
    TimeKey{"served_exchange", &StepPractice::served_exchange},
    TimeKey{"host_micro_batch", &StepPractice::host_micro_batch},
    TimeKey{"host_message", &StepPractice::host_message},
    TimeKey{"host_step", &StepPractice::host_step},
    TimeKey{"host_update", &StepPractice::host_update},
    TimeKey{"host_add", &StepPractice::host_add},
    TimeKey{"host_call", &StepPractice::host_call},
    TimeKey{"decode", &StepPractice::decode},
};

struct NumberKey {
  std::string_view key;
  Sourced<double> StepPractice::* member;
  double most;
};
constexpr std::array numbers{
    NumberKey{"elementwise", &StepPractice::elementwise, most_factor},
    NumberKey{"position", &StepPractice::position, most_factor},
    NumberKey{"compiled", &StepPractice::compiled, most_factor},
    NumberKey{"compiled_host", &StepPractice::compiled_host, 1},
    NumberKey{"optimizer", &StepPractice::optimizer, most_factor},
    NumberKey{"slowdown", &StepPractice::slowdown, 1},
    NumberKey{"tensor_sequence", &StepPractice::tensor_sequence, 1},
    NumberKey{"tensor_hidden", &StepPractice::tensor_hidden, 1},
    NumberKey{"tensor_beside", &StepPractice::tensor_beside, 1},
    NumberKey{"expert_hidden", &StepPractice::expert_hidden, 1},
    NumberKey{"device_counts", &StepPractice::device_counts, 1e6},
    NumberKey{"once_per_node", &StepPractice::once_per_node, 1},
    NumberKey{"gradients_hidden", &StepPractice::gradients_hidden, 1},
    NumberKey{"parameters_hidden", &StepPractice::parameters_hidden, 1},
    NumberKey{"gathered_kept", &StepPractice::gathered_kept, 1},
    NumberKey{"messages_hidden", &StepPractice::messages_hidden, 1},
    NumberKey{"messages_gathered", &StepPractice::messages_gathered, 1},
    NumberKey{"replays_whole", &StepPractice::replays_whole, 1},
    NumberKey{"interleaves", &StepPractice::interleaves, 1},
    NumberKey{"even_stages", &StepPractice::even_stages, 1},
    NumberKey{"whole_tables", &StepPractice::whole_tables, 1},
    NumberKey{"logit_part", &StepPractice::logit_part, 1},
    NumberKey{"mlp_part", &StepPractice::mlp_part, 1},
    NumberKey{"gradient_bytes", &StepPractice::gradient_bytes, most_bytes},
    NumberKey{"state_parameter", &StepPractice::state_parameter, most_bytes},
    NumberKey{"state_gradient", &StepPractice::state_gradient, most_bytes},
    NumberKey{"bf16_gradient", &StepPractice::bf16_gradient, most_bytes},
    NumberKey{"state_optimizer", &StepPractice::state_optimizer, most_bytes},
    NumberKey{"state_update", &StepPractice::state_update, most_bytes},
    NumberKey{"position_working", &StepPractice::position_working, most_bytes},
    NumberKey{"held_sums", &StepPractice::held_sums, 1},
    NumberKey{"stage_buffers", &StepPractice::stage_buffers, most_factor},
    NumberKey{"kept_outputs", &StepPractice::kept_outputs, 1},
    NumberKey{"dummy_gradients", &StepPractice::dummy_gradients, 1},
    NumberKey{"logit_bytes", &StepPractice::logit_bytes, most_bytes},
    NumberKey{"logit_kept", &StepPractice::logit_kept, most_bytes},
    NumberKey{"unexplained", &StepPractice::unexplained, 1},
    NumberKey{"kept", &StepPractice::kept, most_factor},
    NumberKey{"narrow_kept", &StepPractice::narrow_kept, 1},
    NumberKey{"zero_pieces", &StepPractice::zero_pieces, most_factor},
    NumberKey{"zero_by_rank", &StepPractice::zero_by_rank, 1},
    NumberKey{"slack", &StepPractice::slack, 2},
    NumberKey{"crowded", &StepPractice::crowded, 1},
    NumberKey{"crowded_slowdown", &StepPractice::crowded_slowdown, most_factor},
    NumberKey{"first_stage_reported", &StepPractice::first_stage_reported, 1},
    NumberKey{"process_reported", &StepPractice::process_reported, 1},
    NumberKey{"virtual_stages", &StepPractice::virtual_stages, most_factor},
    NumberKey{"stage_micro_batches", &StepPractice::stage_micro_batches, most_factor},
};

struct BytesKey {
  std::string_view key;
  Sourced<Bytes> StepPractice::* member;
};
constexpr std::array sizes{
    BytesKey{"gradient_bucket", &StepPractice::gradient_bucket},
    BytesKey{"context", &StepPractice::context},
    BytesKey{"communicator", &StepPractice::communicator},
};

StepPractice made_default() {
  const auto time = [](double us, double spread, const char* source) {
    return Sourced<Seconds>{.value = Seconds(us * 1e-6), .spread = spread, .source = source};
  };
  const auto number = [](double value, double spread, const char* source) {
    return Sourced<double>{.value = value, .spread = spread, .source = source};
  };
  StepPractice p;
  p.host_kernel = time(9, 0.4, "assumed: eager PyTorch, a few operators deep");
  p.host_transfer = time(40, 0.4, "assumed: torch.distributed, NCCL's enqueue");
  p.host_tensor_node = time(0, 0, "not known of others than nanotron");
  p.host_tensor_rank = time(0, 0, "not known of others than nanotron");
  p.host_exchange = time(1700, 0.5,
                         "Moonlight-16B of Megatron-Bridge's activation-recompute study, bound by "
                         "the host: 17 ms a layer and step");
  p.host_counts = time(
      900, 0.4, "fitted to whole steps of reports/corpus: Qwen3, DeepSeek-V3 on H100 and B200");
  p.served_exchange =
      time(100, 0.5, "assumed: a collective and half a dozen kernels (vLLM, SGLang with DeepEP)");
  p.host_micro_batch = time(300, 0.5, "assumed");
  p.host_message = time(50, 0.5, "assumed: batched isend and irecv");
  p.host_step = time(10000, 0.5, "assumed: data, gradient norm, logging");
  p.host_call = time(50000, 0.6, "assumed: tokenizer, scheduler, result to the host");
  p.decode = time(330000, 0.5,
                  "xDiT, FLUX.1-schnell on A100: 0.4 s beside the steps for 1024 x 1024, 1.4 s for "
                  "2048 x 2048");
  p.compiled = number(1.2, 0.3, "assumed: row-wise kernels fused as far as there are reductions");
  p.compiled_host = number(0.35, 0.4, "assumed: a launch without an operator's dispatch");
  p.elementwise = number(1.2, 0.2, "assumed: kernels fused as TransformerEngine has them");
  p.position = number(0, 0, "as elementwise: fused");
  p.optimizer = number(1.3, 0.2, "assumed: norm, clipping and copies beside a fused Adam");
  p.slowdown = number(0.12, 0.5, "assumed: 16 of 132 SMs (NCCL's channels)");
  p.tensor_sequence = number(1, 0, "Megatron-LM --sequence-parallel (arXiv:2205.05198)");
  p.tensor_hidden = number(0, 0, "assumed: as Megatron-LM without --tp-comm-overlap");
  p.tensor_beside = number(1, 0, "Megatron-Core tensor_parallel/layers.py: asynchronous");
  p.expert_hidden = number(0, 0, "assumed: dispatchers wait");
  p.device_counts = number(0, 0, "torch.distributed all_to_all_single: sizes are the host's");
  p.once_per_node = number(0, 0, "all-to-all dispatcher: once for each expert");
  p.gradients_hidden = number(1, 0, "assumed: buckets as they become ready");
  p.parameters_hidden = number(0, 0, "assumed: gathered before the next forward");
  p.gathered_kept = number(0, 0, "Megatron-Core tensor_parallel/layers.py: gathered again");
  p.messages_hidden = number(1, 0, "Megatron-LM: overlap_p2p_comm of interleaved pipelines");
  p.messages_gathered = number(0, 0, "Megatron-Core: each tensor rank sends all it holds");
  p.replays_whole = number(1, 0,
                           "Megatron-Core tensor_parallel/random.py, CheckpointFunction; PyTorch's "
                           "reentrant torch.utils.checkpoint");
  p.interleaves = number(0, 0, "assumed");
  p.even_stages = number(0, 0, "Megatron-Core transformer_block.py");
  p.whole_tables = number(1, 0,
                          "Megatron-Core finalize_model_grads.py, _allreduce_word_embedding_grads; "
                          "DeepSpeed runtime/pipe/engine.py, _exec_reduce_tied_grads");
  p.logit_part = number(1, 0, "whole");
  p.mlp_part = number(1, 0, "whole");
  p.gradient_bytes = number(4, 0, "Megatron-LM arguments.py: accumulated and reduced in fp32");
  p.state_parameter = number(2, 0, "16 bits");
  p.state_gradient = number(4, 0, "Megatron-LM: main gradients in fp32");
  p.bf16_gradient = number(0, 0, "as in fp16");
  p.state_update = number(0, 0, "fused optimizers work in place");
  p.position_working = number(0, 0, "fused: no copies");
  p.held_sums = number(0, 0, "what the allocator counts as used ends with its tensor");
  p.stage_buffers = number(0, 0, "activations are allocated when they are computed");
  p.kept_outputs = number(0, 0, "Megatron-Core schedules.py: deallocate_pipeline_outputs");
  p.dummy_gradients = number(0, 0, "gradients are those that are added up");
  p.state_optimizer = number(12, 0, "fp32 master, m, v (arXiv:1910.02054, section 3.1)");
  p.logit_bytes = number(6, 0.3, "16 bits and an fp32 copy for the softmax");
  p.logit_kept = number(4, 0,
                        "fp32 softmax: Megatron-Core tensor_parallel/cross_entropy.py, "
                        "exp_logits; PyTorch's log_softmax");
  p.unexplained =
      number(0.1, 0.5, "whole steps of reports/corpus: about what is left of their errors");
  p.gradient_bucket = {.value = Bytes(0), .spread = 0, .source = "FSDP, and large buckets"};
  p.zero_pieces = number(0, 0, "Megatron-Core distrib_optimizer.py: contiguous buffers");
  p.zero_by_rank = number(0, 0, "one all-gather");
  p.host_update =
      time(0.0011, 0.5, "arXiv:2506.13996: Llama-3.1-8B over 8 GPUs takes 9.5 s more than on them");
  p.host_add = time(0.0006, 0.5,
                    "fitted to one table, Hugging Face's blog on Ulysses, Qwen3-4B over 1 and 4 "
                    "H100: 2.1 and 2.8 s a micro-batch beside kernels and update");
  p.kept = number(1, 0.2, "assumed: as fused kernels keep");
  p.narrow_kept = number(0, 0, "torchao's float8: cast again in the backward");
  p.crowded = number(0, 0, "assumed: segments grow in place");
  p.crowded_slowdown = number(1, 0, "no step is crowded");
  p.slack =
      number(0.055, 0.3,
             "SimuMax's DeepSeek steps on B200 (reports/corpus) print both: the allocator has "
             "4 to 7 % more than tensors take; its planner: tensors / 0.94");
  p.first_stage_reported = number(0, 0, "of the fullest rank");
  p.process_reported = number(1, 0, "as nvidia-smi");
  p.virtual_stages = number(0, 0, "assumed: a layer each");
  p.stage_micro_batches = number(0, 0, "Megatron-LM: as many as --micro-batch-size leaves");
  p.context = {.value = Bytes(1'000'000'000),
               .spread = 0.5,
               .source = "assumed: CUDA context, kernels, cuBLAS workspaces"};
  p.communicator = {.value = Bytes(350'000'000),
                    .spread = 0.5,
                    .source = "NVIDIA/nccl issue 964: 0.5 to 0.7 GB, of several less each"};
  return p;
}

}  // namespace

double added_gradient(const StepPractice& practice, bool bf16) {
  return practice.state_gradient.value + (bf16 ? practice.bf16_gradient.value : 0);
}

const StepPractice& default_practice() {
  static const StepPractice practice = made_default();
  return practice;
}

StepPractice in_type(StepPractice practice, DType dtype) {
  if (dtype != DType::fp32) {
    return practice;
  }
  const auto wide = static_cast<double>(size_of(dtype));
  practice.state_parameter.value = wide;
  for (Sourced<double>* bytes : {&practice.gradient_bytes, &practice.state_gradient}) {
    bytes->value = std::max(bytes->value, wide);
  }
  practice.state_optimizer.value = std::max(practice.state_optimizer.value - wide, 2 * wide);
  return practice;
}

StepPractice compiled(StepPractice practice) {
  practice.elementwise = practice.position = practice.compiled;
  practice.host_kernel.value *= practice.compiled_host.value;
  practice.host_transfer.value *= practice.compiled_host.value;
  return practice;
}

StepPractice on_cpus(StepPractice practice) {
  constexpr const char* source = "our own executor: its launches are part of measured kernels";
  for (const TimeKey& k : times) {
    if (k.key.starts_with("host_") && k.key != "host_update" && k.key != "host_add") {
      practice.*k.member = {.value = Seconds(0), .spread = 0, .source = source};
    }
  }
  for (auto* bytes : {&practice.context, &practice.communicator}) {
    *bytes = {.value = Bytes(0), .spread = 0, .source = "threads, or small processes"};
  }
  practice.slack = {.value = 0, .spread = 0, .source = "an arena is laid out beforehand"};
  return practice;
}

StepPractice counting_on_device(StepPractice practice) {
  practice.device_counts.value = 1;
  return practice;
}

StepPractice read_step_practice(const JsonView& step) {
  StepPractice practice = default_practice();
  std::vector<std::string_view> known{"selective", "recompute", "offload", "dispatcher", "zero"};
  for (const TimeKey& k : times) {
    known.push_back(k.key);
    if (const auto view = step.find(k.key)) {
      practice.*k.member = read_seconds(*view);
    }
  }
  for (const NumberKey& k : numbers) {
    known.push_back(k.key);
    if (const auto view = step.find(k.key)) {
      practice.*k.member = read_part(*view, k.most);
    }
  }
  for (const BytesKey& k : sizes) {
    known.push_back(k.key);
    if (const auto view = step.find(k.key)) {
      practice.*k.member = read_bytes(*view);
    }
  }
  if (const auto modules = step.find("selective")) {
    modules->allow_only({"modules", "source"});
    for (const JsonView& name : modules->at("modules").elements()) {
      practice.selective.push_back(name.string());
    }
  }
  if (const auto recompute = step.find("recompute")) {
    recompute->allow_only({"kind", "source"});
    practice.recompute = recompute->at("kind").string();
  }
  if (const auto offload = step.find("offload")) {
    offload->allow_only({"kind", "source"});
    practice.offload = offload->at("kind").string();
  }
  if (const auto dispatcher = step.find("dispatcher")) {
    dispatcher->allow_only({"kind", "source"});
    practice.dispatcher = dispatcher->at("kind").string();
  }
  if (const auto zero = step.find("zero")) {
    zero->allow_only({"stage", "source"});
    practice.zero = static_cast<int>(zero->at("stage").integer(0, 3));
  }
  step.allow_only(known);
  return practice;
}

}  // namespace spp
