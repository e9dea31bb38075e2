#include "planner/export/megatron_flags.hpp"

namespace spp::frameworks {

void add_megatron_model(Command& command, const Launch& launch) {
  const Problem& p = launch.problem;
  if (launch.model != nullptr) {
    const Model& m = *launch.model;
    command.add("--num-layers", m.layers).add("--hidden-size", m.hidden);
    command.add("--ffn-hidden-size", m.ffn);
  }
  command.add("--num-attention-heads", p.q_heads).add("--kv-channels", p.head_dim);
  if (p.kv_heads != p.q_heads) {
    command.add("--group-query-attention").add("--num-query-groups", p.kv_heads);
  }
  if (launch.model != nullptr && launch.model->kind == ModelKind::llm) {
    const Model& m = *launch.model;
    command.add("--position-embedding-type", "rope");
    command.add("--normalization", m.norm_bias ? "LayerNorm" : "RMSNorm");
    if (m.gated_mlp) {
      command.add("--swiglu");
    }
    if (!m.mlp_bias && !m.output_bias) {
      command.add("--disable-bias-linear");
    }
    if (m.attention_bias) {
      command.add("--add-qkv-bias");
    }
    if (m.qk_norm) {
      command.add("--qk-layernorm");
    }
    if (!m.tied_embeddings) {
      command.add("--untie-embeddings-and-output-weights");
    }
  }
  command.add("--seq-length", p.seq).add("--max-position-embeddings", p.seq);
  command.add("--micro-batch-size", p.batch).add("--global-batch-size", launch.global_batch());
  if (p.dtype != DType::fp32) {
    command.add(p.dtype == DType::bf16 ? "--bf16" : "--fp16");
  }
}

void add_megatron_step(Command& command, const Launch& launch) {
  command.add("--tensor-model-parallel-size", launch.tp);
  if (launch.tp > 1 && launch.tensor_sequence) {
    command.add("--sequence-parallel");
  }
  command.add("--pipeline-model-parallel-size", launch.pp);
  if (launch.virtual_stages > 1) {
    command.add("--num-virtual-stages-per-pipeline-rank", launch.virtual_stages);
  }
  if (launch.ep > 1) {
    command.add("--expert-model-parallel-size", launch.ep);
    command.add("--expert-tensor-parallel-size", launch.etp);
  }
  if (launch.recompute == Recompute::full) {
    command.add("--recompute-granularity", "full").add("--recompute-method", "uniform");
    command.add("--recompute-num-layers", 1);
  }
}

void add_megatron_zero(Command& command, const Launch& launch) {
  if (launch.zero >= 2) {
    command.add("--use-megatron-fsdp");
    command.add("--data-parallel-sharding-strategy",
                launch.zero == 2 ? "optim_grads" : "optim_grads_params");
    command.add("--no-gradient-accumulation-fusion").add("--ckpt-format", "fsdp_dtensor");
  }
  if (launch.zero >= 1) {
    command.add("--use-distributed-optimizer");
  }
}

}  // namespace spp::frameworks
