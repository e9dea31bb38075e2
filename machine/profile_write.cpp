#include "base/document.hpp"
#include "base/numbers.hpp"
#include "machine/attention_table.hpp"
#include "machine/profile.hpp"

#include <algorithm>
#include <utility>

namespace spp {
namespace {

Json measured_json(const MeasuredAttention& m, const Json& kernels) {
  Json json = {{"kernels", kernels},
               {"phase", to_string(m.phase)},
               {"dtype", to_string(m.dtype)},
               {"batch", m.batch},
               {"q_heads", m.q_heads},
               {"kv_heads", m.kv_heads},
               {"head_dim", m.head_dim},
               {"mask", to_string(m.mask)},
               {"q_tokens", to_string(m.q)},
               {"k_tokens", to_string(m.k)},
               {"median_s", rounded(m.median.count())},
               {"spread", rounded(std::clamp(m.spread, 0.0, 2.0))},
               {"n", m.samples}};
  if (const AttentionShape shape = shape_of(m); shape.v_dim() != shape.head_dim) {
    json["value_dim"] = shape.v_dim();
  }
  return json;
}

}  // namespace

Json profile_json(ProfileParts parts) {
  Json json = document("profile");
  json["name"] = parts.name;
  json["date"] = utc("%Y-%m-%dT%H:%M:%SZ");
  json["environment"] = std::move(parts.environment);
  json["nodes"] = std::move(parts.nodes);
  const Json& kernels = parts.machine.at("gpu").at("generation").at("kernel");
  Json& attention = json["attention"] = Json::array();
  for (const MeasuredAttention& m : parts.attention) {
    attention.push_back(measured_json(m, kernels));
  }
  if (parts.pace) {
    json["pace"] = measured_json(*parts.pace, kernels);
  }
  json["machine"] = std::move(parts.machine);
  json["other"] = Json::array();
  json["samples"] = std::move(parts.samples);
  if (!parts.note.empty()) {
    json["note"] = std::move(parts.note);
  }
  return json;
}

}  // namespace spp
