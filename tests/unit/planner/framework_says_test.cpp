// What a plan says, a framework's text says, too; or it is refused, or noted: of every framework
// each part of a plan is changed in turn, and what the user reads has to change with it.
#include "planner/framework.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

#include <string>
#include <vector>

using namespace spp;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Case {
  Request request;
  Candidate candidate;
};

/// Of a plan that has what is before, a part changed.
struct Change {
  std::string_view name;
  void (*before)(Case&);
  void (*change)(Case&);
  bool of_training = false;
};

StepPlan& step(Case& c) { return c.candidate.plan; }
SequencePlan& attention(Case& c) { return c.candidate.plan.attention; }
void nothing(Case&) {}
void two_tensor_ranks(Case& c) { step(c).tensor = 2; }
void four_stages(Case& c) {
  step(c).pipeline = 2;
  step(c).micro_batches = 8;
}
void narrow_gemms(Case& c) { step(c).format = GemmFormat::fp8; }
void moved_activations(Case& c) { step(c).offload = Offload::activations; }
void with_experts(Case& c) {
  static const Model mixtral =
      ModelLibrary(test::source_path("models")).load("mixtral-8x7b", "test");
  if (c.request.model->kind == ModelKind::llm) {
    c.request.model = mixtral;
  }
}
void experts_over_a_stage(Case& c) {
  with_experts(c);
  step(c).expert = step(c).stage_ranks();
}

constexpr Change changes[] = {
    {"degree", nothing,
     [](Case& c) {
       SequencePlan& plan = attention(c);
       (plan.ulysses > 1 ? plan.ulysses : plan.ring) /= 2;
     }},
    {"order of axes", [](Case& c) { attention(c).order = {Axis::ulysses, Axis::team, Axis::ring}; },
     [](Case& c) {
       if (attention(c).ulysses > 1 && attention(c).ring > 1) {
         attention(c).order = {Axis::ring, Axis::team, Axis::ulysses};
       } else {  // of one axis there is none
         attention(c).ring *= 2;
       }
     }},
    {"head policy", [](Case& c) { attention(c) = {.strategy = "ulysses", .ulysses = 4}; },
     [](Case& c) { attention(c).heads = HeadPolicy::pad; }},
    {"rank order", nothing, [](Case& c) { attention(c).rank_order = RankOrder::cyclic; }},
    {"tensor", nothing, two_tensor_ranks},
    {"no sequence parallelism", two_tensor_ranks,
     [](Case& c) { step(c).tensor_sequence = !step(c).tensor_sequence; }},
    {"data", nothing, [](Case& c) { step(c).data = 4; }},
    {"branches", [](Case& c) { step(c).guided = true; }, [](Case& c) { step(c).data = 2; }},
    {"experts", experts_over_a_stage, [](Case& c) { step(c).expert /= 2; }},
    {"parts of experts", experts_over_a_stage,
     [](Case& c) {
       step(c).expert /= 2;
       step(c).expert_tensor = 2;
     }},
    {"dispatcher", experts_over_a_stage,
     [](Case& c) {
       step(c).to_experts = step(c).to_experts == Dispatcher::all_gather ? Dispatcher::all_to_all
                                                                         : Dispatcher::all_gather;
     }},
    {"pipeline", nothing, [](Case& c) { step(c).pipeline = 2; }},
    {"virtual stages",
     [](Case& c) {
       four_stages(c);
       step(c).order = "interleaved";
       step(c).virtual_stages = 2;
     },
     [](Case& c) { step(c).virtual_stages = 4; }, true},
    {"GPipe", four_stages, [](Case& c) { step(c).order = "gpipe"; }, true},
    {"zero bubbles", four_stages, [](Case& c) { step(c).order = "zero-bubble"; }, true},
    {"micro-batch", nothing, [](Case& c) { step(c).micro_batch = 2; }},
    {"micro-batches", nothing, [](Case& c) { step(c).micro_batches = 4; }},
    {"ZeRO", nothing, [](Case& c) { step(c).zero = step(c).zero == 3 ? 1 : 3; }},
    {"shards", [](Case& c) { step(c).data = 4; },
     [](Case& c) {
       if (step(c).zero == 0) {
         step(c).zero = 3;
       }
       step(c).zero_group = step(c).sequence() * 2;
     }},
    {"recomputation", nothing, [](Case& c) { step(c).recompute.kind = Recompute::full; }, true},
    {"some recomputation", nothing,
     [](Case& c) {
       step(c).recompute = {.kind = Recompute::selective,
                            .modules = {RecomputeModule::core_attention}};
     },
     true},
    {"recomputed modules",
     [](Case& c) {
       step(c).recompute = {.kind = Recompute::selective,
                            .modules = {RecomputeModule::core_attention}};
     },
     [](Case& c) { step(c).recompute.modules.insert(RecomputeModule::mlp); }, true},
    {"optimizer on the host", nothing, [](Case& c) { step(c).offload = Offload::optimizer; }},
    {"activations on the host", nothing, moved_activations},
    {"both on the host", moved_activations, [](Case& c) { step(c).offload = Offload::all; }},
    {"half of the activations", moved_activations, [](Case& c) { step(c).offloaded = 0.5; }},
    {"GEMMs", nothing, narrow_gemms},
    {"GEMMs of another format", narrow_gemms, [](Case& c) { step(c).format = GemmFormat::mxfp8; }},
    {"wide projections", narrow_gemms, [](Case& c) { step(c).wide_attention = true; }},
    {"length", nothing, [](Case& c) { c.request.problem.seq *= 2; }},
    {"cached keys", nothing, [](Case& c) { c.request.problem.cached = 4096; }},
    {"no mask", nothing,
     [](Case& c) {
       Mask& mask = c.request.problem.mask;
       mask.kind = mask.kind == MaskKind::full ? MaskKind::causal : MaskKind::full;
     }},
    {"window", nothing,
     [](Case& c) { c.request.problem.mask = {.kind = MaskKind::window, .window = 1024}; }},
    {"documents", nothing,
     [](Case& c) { c.request.problem.mask.document_ends = {1024, c.request.problem.seq}; }},
    {"type", nothing, [](Case& c) { c.request.problem.dtype = DType::fp16; }},
    {"linear attention", nothing,
     [](Case& c) { c.request.problem.function = AttentionFunction::linear; }},
    {"nodes", nothing,
     [](Case& c) {
       static const sim::Cluster two = test::cluster_of("dgx-h100", 2);
       c.request.cluster = &two;
     }},
    {"phase", nothing,
     [](Case& c) {
       c.request.phase =
           c.request.phase == StepPhase::train ? StepPhase::prefill : StepPhase::train;
     }},
};

/// What a user reads of a plan: why it cannot be run, or text, variables and notes.
struct Answer {
  bool refused = false;
  std::string text;
};
Answer answer_of(const Framework& f, const Case& c) {
  Answer answer;
  for (const Cannot& reason : cannot(f, c.request, c.candidate)) {
    answer.refused = true;
    answer.text += reason.what;
  }
  if (answer.refused) {
    return answer;
  }
  const Snippet snippet = exported(f, c.request, c.candidate).snippet;
  for (const Block& block : snippet.blocks) {
    answer.text += block.text;
  }
  for (const Variable& v : snippet.environment) {
    answer.text += v.name + v.value;
  }
  for (const std::string& note : snippet.notes) {
    answer.text += note;
  }
  return answer;
}

Model model_for(const Framework& f) {
  const std::string_view family = f.families.empty() ? "" : f.families.front().name;
  const bool words = f.trains || f.masks.has(MaskKind::causal);
  return ModelLibrary(test::source_path("models"))
      .load(words                      ? "llama-3.1-8b"
            : family == "Wan"          ? "wan2.1-t2v-14b"
            : family == "HunyuanVideo" ? "hunyuanvideo"
                                       : "z-image",
            "test");
}

/// A step of four ranks to a sequence, split in one of the framework's ways.
Case case_for(const Framework& f, const Way& way, const Model& model, const sim::Cluster& cluster) {
  Case c{.request = test::bare_request(cluster, 65536), .candidate = {}};
  c.request.model = model;
  c.request.problem.q_heads = 32;
  c.request.problem.kv_heads = 8;
  c.request.problem.mask = model.mask.over(c.request.problem.seq);
  c.request.phase = f.trains ? StepPhase::train : StepPhase::prefill;
  const Strategy& strategy = strategies::by_name(way.strategy, "test");
  SequencePlan& plan = attention(c);
  plan.strategy = way.strategy;
  plan.ulysses = strategy.degrees.ulysses && strategy.degrees.ring && way.strategy == "usp" ? 2
                 : strategy.degrees.ring                                                    ? 1
                                                                                            : 4;
  plan.ring = 4 / plan.ulysses;
  plan.layout = way.layouts.empty() ? strategy.layouts.front() : way.layouts.front();
  step(c).zero = f.trains && !f.zero.values.empty() ? f.zero.values.front() : 0;
  return c;
}

}  // namespace

TEST_CASE("what changes in a plan changes in what every framework is given, or it is refused") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  int written = 0;
  for (const Framework* f : frameworks::all()) {
    const Model model = model_for(*f);
    for (const Way& way : f->ways) {
      for (const Change& change : changes) {
        Case c = case_for(*f, way, model, cluster);
        if (change.of_training && c.request.phase != StepPhase::train) {
          continue;
        }
        if (change.name == "phase" && f->trains && f->infers) {
          continue;  // an attention call is the same one
        }
        change.before(c);
        const Answer before = answer_of(*f, c);
        change.change(c);
        if (!before.refused) {
          ++written;
          INFO(f->name << ", " << way.name << " (" << way.strategy << "): " << change.name << "\n"
                       << before.text);
          CHECK(answer_of(*f, c).text != before.text);
        }
      }
    }
  }
  CHECK(written > 1000);
}

TEST_CASE("a problem and a plan of attention have no part that the changes above do not know") {
  // Fails to compile if one is added: add its change. Of a step, launch_of() does the same. Heads
  // are the model's; masks of other layers, sinks and micro-batches belong to graphs.
  const auto& [seq, cached, batch, q_heads, kv_heads, head_dim, value_dim, mask, other_masks, dtype,
               function, sinks, micro_batches] = Problem{};
  const auto& [strategy, ulysses, ring, own, layout, heads, order, rank_order] = SequencePlan{};
  CHECK(seq == 0);
  CHECK(ulysses == 1);
}
