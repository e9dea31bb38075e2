// Small corpus files to read and to spoil.
#pragma once

#include "base/json.hpp"

#include <string>

namespace spp::test {

/// A complete file "example": two plans of one attention call on 8 x A100.
inline Json example_corpus() {
  return parse_json(R"({
    "format": "sp-plan/corpus", "format_version": "1.0", "name": "example",
    "source": {"title": "a table", "authors": "somebody", "year": 2024, "id": "x", "where": "y"},
    "trust": "table", "noise": 0.03,
    "machine": {"gpu": "a100-80g-sxm", "gpus_per_node": 8, "nodes": 1,
                "intra": {"kind": "nvlink3", "per_gpu_GBps": null},
                "inter": {"kind": "none", "per_node_Gbps": null, "nics_per_node": null}},
    "stack": "yunchang",
    "workload": {"scope": "attention", "q_heads": 32, "kv_heads": 8, "head_dim": 128, "batch": 1,
                 "mask": "causal", "dtype": "bf16", "phase": "fwd"},
    "points": [
      {"choice": "seq=32K", "seq": 32768, "world": 8, "ulysses": 8, "ring": 1, "metric": "time_s",
       "value": 0.0073},
      {"choice": "seq=32K", "seq": 32768, "world": 8, "ulysses": 1, "ring": 8, "layout": "zigzag",
       "metric": "time_s", "value": 0.0088},
      {"seq": 32768, "world": 8, "ulysses": 1, "ring": 8, "mask": "varlen-causal", "variant": "own",
       "metric": "tflops_per_gpu", "value": 100, "phase": "fwd+bwd", "noise": 0.1}],
    "notes": ""})",
                    "example.json");
}

}  // namespace spp::test
