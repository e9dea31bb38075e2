// An attention call, planned and simulated as the point says.
#include "base/error.hpp"
#include "planner/plan.hpp"
#include "regress/documents.hpp"
#include "regress/point_answer.hpp"
#include "regress/predict.hpp"

#include <algorithm>
#include <cmath>

namespace spp::regress {
namespace {

StepPhase step_phase(const Point& p) {
  return p.phase == "fwd"   ? StepPhase::forward
         : p.phase == "bwd" ? StepPhase::backward
                            : StepPhase::forward_backward;
}

}  // namespace

PointPrediction Predictor::attention(const Point& p, const sim::Cluster& cluster,
                                     const StackSpec& stack) {
  if (!p.ulysses || !p.ring) {
    return no(p.beyond ? "not a plan of Ulysses x ring (beyond)"
                       : "degrees of Ulysses and ring are not stated");
  }
  if (std::string why = why_no_problem(p); !why.empty()) {
    return no(std::move(why));
  }
  if (p.tp * p.dp * p.pp * p.cfg * p.pipefusion != 1) {
    return no("attention calls are predicted for one sequence-parallel group");
  }
  if (p.seq_kv.value_or(*p.seq) != *p.seq) {
    return no(fmt::format("attention of {} queries to {} keys over several GPUs is not modelled",
                          *p.seq, *p.seq_kv));
  }
  if (is_low_precision(p)) {
    return no(fmt::format("attention in {} over several GPUs is not modelled", p.dtype));
  }
  Request request = request_of(p, cluster, stack);
  request.phase = step_phase(p);
  if (p.packs() && p.ring > 1 && p.ring_kind == RingKind::p2p) {
    // Rings of packed sequences cut each document (TransformerEngine, ring-flash-attention).
    request.fixed.layout =
        p.layout == Layout::contiguous ? Layout::document_contiguous : Layout::document_zigzag;
  }
  try {
    double seconds = 0;
    double spread = 0;
    bool fits = true;
    const auto packings = packings_of(p);
    for (const std::vector<std::int64_t>& ends : packings) {
      request.problem.mask.document_ends = ends;
      const Evaluation e = evaluate(request, default_plan(request));
      const Prediction& said = e.candidate.predicted;
      if (p.metric == Metric::memory) {
        PointPrediction result;
        result.predicted = said.memory.total().as_double();
        result.oom = !said.fits;
        return result;
      }
      seconds += said.step.count() / static_cast<double>(packings.size());
      spread = std::max(spread, (said.high - said.low).count() / 2 / said.step.count());
      fits = fits && said.fits;
    }
    PointPrediction result = answer(p, seconds, std::hypot(spread, spread_of_packing(p)));
    result.oom = !fits;
    return result;
  } catch (const InputError& refused) {
    return no(refused.what());
  }
}

double Predictor::spread_of_packing(const Point& p) {
  if (!p.packs_unknown()) {
    return 0;
  }
  assume("documents",
         "lengths that the source does not give: drawn from MagiAttention's histogram");
  return packing_spread(usual_packing(*p.seq));
}

}  // namespace spp::regress
