// Time of what sends tokens to the ranks of their experts (dispatch) and sums what comes back
// (combine), as DeepEP does it: kernels that write into other GPUs' memory.
//
//   normal       a token goes once to each other rank that has one of its experts, through SMs:
//                start + max(NVLink, network)
//                NVLink  = tokens * hidden * bytes * other ranks of a token
//                          / (sms * per_sm * hidden / (hidden + row))
//                network = tokens * hidden * bytes * other nodes of a token / (NIC * network)
//   low latency  one copy for each expert: start + copies / (NVLink rate * nvlink), or across nodes
//                start + network_start + copies to other nodes / (NIC * network)
//
// Other ranks of a token: k different experts of E, all equally likely: hypergeometric.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"

#include <cstdint>

namespace spp {

/// Of a library on a generation (stacks/: expert_exchange).
struct ExpertExchangeSpec {
  struct Way {
    Sourced<Seconds> start;
    Sourced<Bandwidth> per_sm;  // normal
    Sourced<Seconds> low_latency_start;
    Sourced<double> low_latency_nvlink;  // part of the rate
  };
  Way dispatch, combine;
  Sourced<std::int64_t> row;       // elements: a token's row of which an SM moves at half of per_sm
  Sourced<double> network;         // part of a NIC's rate
  Sourced<Seconds> network_start;  // low latency, across nodes
  Sourced<std::int64_t> sms;       // that a call has, if nobody says
};

/// InputError names the key. Strict.
ExpertExchangeSpec read_expert_exchange(const JsonView& view);

struct ExpertExchangeWork {
  std::int64_t tokens = 0;  // of a rank
  std::int64_t hidden = 0;
  std::int64_t experts = 1, experts_per_token = 1;
  int ranks = 1, nodes = 1;
  double bytes = 2;  // of an element
  bool combine = false, low_latency = false;
  std::int64_t sms = 0;  // 0: the library's usual
};

/// How many others of `parts` equal parts of the experts a token goes to, on average, from inside
/// one of them. 0 if there is one part.
double other_parts(std::int64_t experts, std::int64_t experts_per_token, int parts);

/// `nvlink` of a GPU, `nic` of a rank, one direction; `nic` counts across nodes only.
Seconds exchange_time(const ExpertExchangeSpec& spec, const ExpertExchangeWork& work,
                      Bandwidth nvlink, Bandwidth nic);

}  // namespace spp
