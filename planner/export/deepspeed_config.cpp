#include "planner/export/deepspeed_config.hpp"

namespace spp::frameworks {

Json deepspeed_config(const Launch& launch) {
  Json config{{"train_micro_batch_size_per_gpu", launch.problem.batch},
              {"gradient_accumulation_steps", launch.micro_batches},
              {"zero_optimization", {{"stage", launch.zero}}}};
  if (moves_optimizer(launch.offload)) {
    config["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
  }
  if (launch.problem.dtype != DType::fp32) {
    config[launch.problem.dtype == DType::bf16 ? "bf16" : "fp16"] = {{"enabled", true}};
  }
  return config;
}

}  // namespace spp::frameworks
