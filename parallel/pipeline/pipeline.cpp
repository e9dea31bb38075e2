#include "parallel/pipeline/pipeline.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>

namespace spp {

std::string_view to_string(StageWork work) {
  switch (work) {
    case StageWork::forward:
      return "forward";
    case StageWork::backward:
      return "backward";
    case StageWork::input_gradient:
      return "input gradient";
    case StageWork::weight_gradient:
      return "weight gradient";
  }
  throw InternalError("no such StageWork");
}

std::string to_string(const StageOp& op, int chunks) {
  constexpr std::string_view letters = "FBIW";
  std::string text =
      fmt::format("{}{}", letters[static_cast<std::size_t>(op.work)], op.micro_batch);
  if (chunks > 1) {
    text += fmt::format(".{}", op.chunk);
  }
  return text;
}

const Pipeline& pipelines::usual(int chunks) {
  const auto found = std::ranges::find_if(
      all(), [&](const Pipeline* p) { return p->chunks == (chunks > 1) && !p->dominated; });
  ensure(found != all().end(), "no usual order of a pipeline");
  return **found;
}

std::string why_not(const Pipeline& pipeline, const PipelineShape& shape) {
  ensure(shape.stages >= 1 && shape.chunks >= 1 && shape.micro_batches >= 1,
         "a pipeline has stages, chunks and micro-batches");
  if (shape.chunks > 1 && !pipeline.chunks) {
    return fmt::format("{} gives a rank one stage, not {} virtual ones", pipeline.name,
                       shape.chunks);
  }
  return pipeline.why_not(shape);
}

const Pipeline& pipelines::by_name(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Pipeline* p : all()) {
    if (p->name == name) {
      return *p;
    }
    names.emplace_back(p->name);
  }
  throw InputError(where, fmt::format("unknown pipeline '{}'{}", name, did_you_mean(name, names)));
}

}  // namespace spp
