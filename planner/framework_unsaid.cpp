// What of a launch a text may leave to the user: one line each.
#include "planner/framework.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace spp {
namespace {

/// `words` is empty where a launch has nothing to be said, or what every framework does unasked.
struct Facet {
  bool Says::* said;  // null: by no text
  std::string (*words)(const Launch&);
};

std::string if_so(bool has, std::string words) { return has ? std::move(words) : ""; }

/// The mask that a model does not bring itself; one that is causal is nobody's.
bool own_mask(const Launch& l, MaskKind kind) {
  const Mask& mask = l.problem.mask;
  return mask.kind == kind &&
         (l.model == nullptr || l.model->mask.kind != kind || l.model->mask.window != mask.window);
}

std::string layers_of(const Launch& l) {
  return l.traits.sinks ? l.traits.windows ? "attention sinks, sliding windows" : "attention sinks"
                        : if_so(l.traits.windows, "sliding windows");
}

std::string shards_of(const Launch& l) {
  return if_so(l.zero > 0, l.shard_copies > 1
                               ? fmt::format("ZeRO {} over {} ranks, with copies on the others",
                                             l.zero, l.shard_data() * l.context())
                               : fmt::format("ZeRO {}", l.zero));
}

constexpr std::array facets{
    Facet{&Says::seq,
          [](const Launch& l) { return fmt::format("sequences of {} tokens", l.problem.seq); }},
    Facet{&Says::batch,
          [](const Launch& l) {
            return if_so(l.problem.batch > 1, fmt::format("{} sequences at once", l.problem.batch));
          }},
    Facet{&Says::micro_batches,
          [](const Launch& l) {
            return if_so(l.micro_batches > 1,
                         fmt::format("{} micro-batches a step", l.micro_batches));
          }},
    Facet{&Says::dtype,
          [](const Launch& l) {
            return if_so(l.problem.dtype != DType::bf16,
                         fmt::format("tensors in {}", to_string(l.problem.dtype)));
          }},
    Facet{&Says::full_mask,
          [](const Launch& l) {
            return if_so(own_mask(l, MaskKind::full), "attention without a mask");
          }},
    Facet{&Says::window,
          [](const Launch& l) {
            return if_so(own_mask(l, MaskKind::window),
                         fmt::format("a window of {} tokens", l.problem.mask.window));
          }},
    Facet{&Says::documents,
          [](const Launch& l) {
            return if_so(
                !l.problem.mask.document_ends.empty() && !deals_documents(l.attention.layout),
                fmt::format("{} documents packed into a sequence, none of which sees another",
                            l.problem.mask.document_ends.size()));
          }},
    Facet{&Says::cached,
          [](const Launch& l) {
            return if_so(l.problem.cached > 0,
                         fmt::format("{} cached tokens in front", l.problem.cached));
          }},
    Facet{nullptr,
          [](const Launch& l) {
            return if_so(l.problem.function == AttentionFunction::linear, "linear attention");
          }},
    Facet{&Says::layers, layers_of},
    Facet{&Says::zero, shards_of},
    Facet{&Says::recompute,
          [](const Launch& l) {
            return if_so(l.recompute.kind != Recompute::none,
                         fmt::format("{} recomputation", to_string(l.recompute)));
          }},
    Facet{&Says::offload_optimizer,
          [](const Launch& l) {
            return if_so(moves_optimizer(l.offload), "the optimizer in the host's memory");
          }},
    Facet{&Says::offload_activations,
          [](const Launch& l) {
            return if_so(moves_activations(l.offload), "activations in the host's memory");
          }},
    Facet{nullptr,
          [](const Launch& l) {
            return if_so(moves_activations(l.offload) && l.offloaded < 1,
                         fmt::format("{:.0f} % of them", 100 * l.offloaded));
          }},
    Facet{&Says::format,
          [](const Launch& l) {
            return if_so(l.format != GemmFormat::plain,
                         fmt::format("GEMMs in {}", to_string(l.format)));
          }},
    Facet{nullptr,
          [](const Launch& l) {
            return if_so(l.format != GemmFormat::plain && l.wide_attention,
                         "the projections around attention in 16 bits");
          }},
    Facet{&Says::sequence_parallel,
          [](const Launch& l) {
            return if_so(l.tp > 1 && l.tensor_sequence,
                         "Megatron's sequence parallelism between tensor ranks");
          }},
    Facet{&Says::no_sequence_parallel,
          [](const Launch& l) {
            return if_so(l.tp > 1 && !l.tensor_sequence,
                         "no sequence parallelism between tensor ranks");
          }},
    Facet{&Says::virtual_stages,
          [](const Launch& l) {
            return if_so(l.virtual_stages > 1,
                         fmt::format("{} virtual stages a pipeline rank", l.virtual_stages));
          }},
    Facet{&Says::nodes,
          [](const Launch& l) { return if_so(l.nodes > 1, fmt::format("{} nodes", l.nodes)); }},
};

}  // namespace

std::vector<std::string> unsaid(const Launch& launch, const Says& says) {
  std::vector<std::string> rest;
  for (const Facet& facet : facets) {
    if (facet.said == nullptr || !(says.*facet.said)) {
      if (std::string words = facet.words(launch); !words.empty()) {
        rest.push_back(std::move(words));
      }
    }
  }
  return rest;
}

}  // namespace spp
