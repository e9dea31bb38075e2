// What is asked and of what machine, option by option: one reader, hence one file but for the plan
// (request_plan.cpp).
#include "cli/request.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/suggest.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/request_reader.hpp"
#include "planner/packing.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace spp::cli {
namespace {

constexpr std::int64_t most_heads = 4096;
constexpr std::int64_t most_head_dim = 2048;
constexpr std::int64_t most_batch = 65536;
/// Sizes of whole tensors stay far below 2^63 bytes, so that sums of them do, too.
constexpr double most_tensor_bytes = 1e17;

/// Lengths of documents that a file has, with commas, spaces or lines between them.
std::vector<std::int64_t> lengths_in(const std::string& file) {
  std::vector<std::int64_t> lengths;
  std::istringstream text(read_text_file(file, "--documents"));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    const std::string here = fmt::format("--documents: {}, line {}", file, ++number);
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.size() > 1 && word.ends_with(',')) {
        word.pop_back();
      }
      for (const std::string_view length : split(word, ',')) {
        lengths.push_back(parse_tokens(length, here));
      }
    }
  }
  return lengths;
}

}  // namespace

// ---- the work
// --------------------------------------------------------------------------------------

void Reader::work() {
  attention_shape();
  const auto seq = args_.find("seq");
  if (!seq) {
    throw InputError("--seq",
                     "missing: tokens of one sequence over all GPUs, such as 32768, 128K or 1M");
  }
  if (*seq == "max") {
    throw InputError("--seq", "max: the longest that fits is searched by 'plan' alone");
  }
  request().problem.seq = parse_tokens(*seq, "--seq");
  batch();
  request().problem.dtype = parse_dtype(text_or("dtype", "dtype", "bf16"), "--dtype");
  mask_and_phase();
  documents();
  cached();
  positions();
  const Problem& p = request().problem;
  const int widest = std::max(p.head_dim, p.v_dim());
  const double bytes =
      4.0 * static_cast<double>(p.end()) * static_cast<double>(p.batch) * p.q_heads * widest;
  if (bytes > most_tensor_bytes) {
    throw InputError(
        "--batch",
        fmt::format("{} x {} tokens x {} heads x {} is too large: one tensor of {:.1g} bytes",
                    p.batch, p.end(), p.q_heads, widest, bytes));
  }
  request().flops_convention =
      parse_flops_convention(args_.get("flops-convention", "causal-halved"), "--flops-convention");
  if (request().flops_convention == FlopsConvention::model_6n && !request().model) {
    throw InputError("--flops-convention", "model-6N needs a --model");
  }

  resolve("model", request().model ? Json(args_.get("model", "")) : Json());
  resolve("heads", p.q_heads);
  resolve("kv_heads", p.kv_heads);
  resolve("head_dim", p.head_dim);
  if (p.v_dim() != p.head_dim) {
    resolve("value_dim", p.v_dim());
  }
  resolve("attention", to_string(p.function));
  resolve("seq", p.seq);
  if (p.cached > 0) {
    resolve("cached", p.cached);
  }
  const StepChoices& step = request().step;
  resolve("batch", step.micro_batch ? Json(*step.micro_batch) : Json());
  resolve("global_batch", step.global_batch ? Json(*step.global_batch) : Json());
  resolve("phase", to_string(request().phase));
  resolve("mask", to_string(Mask{.kind = p.mask.kind, .window = p.mask.window}));
  resolve("dtype", to_string(p.dtype));
  resolve("flops_convention", to_string(request().flops_convention));
}

void Reader::attention_shape() {
  const auto name = args_.find("model");
  if (!name) {
    bare_shape();
    return;
  }
  for (const std::string_view option :
       {"heads", "kv-heads", "head-dim", "value-dim", "attention"}) {
    if (args_.has(option)) {
      throw InputError(fmt::format("--{}", option),
                       "given together with --model, which says it already");
    }
  }
  model(*name);
}

void Reader::model(const std::string& name) {
  const ModelLibrary library = models();
  const Json* document = args_.document("model");
  Model m = document != nullptr ? read_model(*document, "--model") : library.load(name, "--model");
  if (const std::string why = not_planned(m); !why.empty()) {
    throw InputError("--model", fmt::format("'{}' is not available yet: {}", name, why));
  }
  for (const std::string& line : m.assumed) {
    assume("model", line,
           document != nullptr ? "--model" : shown_path(library.file_of(name, "--model")));
  }
  if (m.linear) {
    assume(
        "linear attention",
        "between sequence ranks heads by all-to-all or gathered states, the faster one; costed in "
        "closed form, not simulated; backward 3 times the chunked kernels' forward",
        "Megatron-Core, flash-linear-attention, LASP-2: docs/cost-model.md");
  }
  if (m.grouped_output) {
    assume("sparse attention",
           "queries meet a window's keys and entries made of several tokens, all or the best that "
           "an indexer picks: sequence ranks gather entries and the indexer's keys of them, and "
           "get a window's keys from the rank in front; every tensor rank has keys, entries and "
           "indexer whole; kernels at the rates published of DeepSeek-V3.2's, few heads padded to "
           "64; costed in closed form, not simulated",
           "arXiv:2606.19348; docs/cost-model.md");
    assume("residual streams",
           fmt::format("{} between layers and pipeline stages, in 16 bits; what reads and mixes "
                       "them is bound by memory, in kernels of their own",
                       m.streams),
           "arXiv:2512.24880; docs/cost-model.md");
  } else if (m.indexer) {
    assume("sparse attention",
           fmt::format("each query meets {} keys, picked among all: latents and the indexer's keys "
                       "are gathered between sequence ranks; the indexer is whole on every tensor "
                       "rank; kernels at published rates; costed in closed form, not simulated",
                       m.indexer->keys),
           "arXiv:2512.02556; docs/cost-model.md");
  }
  if (m.predict_layers > 0) {
    assume("further tokens",
           fmt::format("training predicts {}, by a layer and a loss each, before the loss head or "
                       "on the stage before it",
                       m.predict_layers),
           "arXiv:2412.19437, section 2.2; Megatron-Core's pipeline layouts");
  }
  if (document != nullptr) {
    resolve_given("model", *document);
  }
  Problem& p = request().problem;
  p.q_heads = m.q_heads;
  p.kv_heads = m.kv_heads;
  p.head_dim = m.head_dim;
  p.value_dim = m.value_dim();
  p.mask = m.mask.over(p.seq);
  request().model = std::move(m);
}

void Reader::bare_shape() {
  const auto heads = count("heads", most_heads);
  if (!heads) {
    throw InputError(
        "--model",
        "missing: a name (see 'sp-plan model list'), a config.json, or a bare attention "
        "shape with --heads, --kv-heads, --head-dim");
  }
  Problem& p = request().problem;
  p.q_heads = *heads;
  p.kv_heads =
      count("kv-heads", text_or("kv-heads", "kv_heads", fmt::format("{}", *heads)), most_heads);
  p.head_dim = count("head-dim", text_or("head-dim", "head_dim", "128"), most_head_dim);
  const int value_dim = count("value-dim", most_head_dim).value_or(p.head_dim);
  p.value_dim = value_dim == p.head_dim ? 0 : value_dim;
  constexpr int unit = 8;
  if (p.head_dim % unit != 0 || value_dim % unit != 0) {
    assume("head_dim", fmt::format("{} as it is", p.head_dim % unit != 0 ? p.head_dim : value_dim),
           "FlashAttention and cuDNN want multiples of 8: padded, a GPU's kernels take longer");
  }
  if (const auto function = args_.find("attention")) {
    p.function = parse_attention_function(*function, "--attention");
  }
  if (p.function == AttentionFunction::linear) {
    if (p.value_dim > 0) {
      throw InputError("--value-dim",
                       fmt::format("linear attention has values as wide as keys ({}), not {}",
                                   p.head_dim, p.value_dim));
    }
    assume("linear attention",
           "without decay; kernels at the best rate of fused softmax attention, or streaming the "
           "states of chunks of 64 tokens",
           "no published measurement was found");
  }
  if (p.q_heads % p.kv_heads != 0) {
    throw InputError("--kv-heads",
                     fmt::format("{} does not divide --heads {}", p.kv_heads, p.q_heads));
  }
}

void Reader::batch() {
  StepChoices& step = request().step;
  if (const auto global = count("global-batch", most_batch)) {
    step.global_batch = *global;
  }
  if (step.global_batch && !args_.has("batch")) {
    return;  // of a step: searched, or one sequence
  }
  request().problem.batch = count("batch", text_or("batch", "batch", "1"), most_batch);
  step.micro_batch = request().problem.batch;
}

/// "inference" is what a model's kind makes of it.
StepPhase Reader::phase_of(const std::string& text) {
  if (text != "inference") {
    std::vector<std::string> words{"inference"};
    for (const StepPhase phase :
         {StepPhase::forward, StepPhase::backward, StepPhase::forward_backward, StepPhase::prefill,
          StepPhase::train}) {
      words.emplace_back(to_string(phase));
    }
    if (std::ranges::find(words, text) == words.end()) {
      throw InputError("--phase",
                       fmt::format("unknown value '{}'{}", text, did_you_mean(text, words)));
    }
    return parse_step_phase(text, "--phase");
  }
  const auto& model = request().model;
  const StepPhase phase = model ? StepPhase::prefill : StepPhase::forward;
  assume("phase",
         fmt::format("{}: {}", to_string(phase),
                     !model                          ? "the forward of one attention call"
                     : model->kind == ModelKind::dit ? "one denoising step, forward"
                                                     : "the prompt of all sequences"),
         "--phase inference");
  return phase;
}

void Reader::mask_and_phase() {
  Request& r = request();
  if (const auto mask = args_.find("mask")) {
    r.problem.mask = parse_mask(*mask, "--mask");
    const bool some =
        r.model && std::ranges::find(r.model->narrow_layers, true) != r.model->narrow_layers.end();
    if (some && r.problem.mask.kind == MaskKind::causal) {
      assume("mask", "causal where the model's layers see everything; the others keep their part",
             r.model->name);
    }
  } else {
    assume("mask", to_string(r.problem.mask), r.model ? "the model's kind" : "default");
  }
  if (r.problem.mask.kind == MaskKind::window && args_.has("mask") && r.model) {
    throw InputError("--mask",
                     fmt::format("window:{}: of a bare shape (--heads); which layers of a model "
                                 "see a window, its config.json says",
                                 r.problem.mask.window));
  }
  r.phase = phase_of(text_or("phase", "phase", r.model ? "train" : "fwd+bwd"));
  if (r.model && r.model->indexer) {
    if (!r.whole_step()) {
      throw InputError("--phase",
                       fmt::format("{} of attention to keys that an indexer picks, which "
                                   "no schedule holds: {} has train and prefill",
                                   to_string(r.phase), r.model->name));
    }
    if (r.problem.mask.kind != MaskKind::causal) {
      throw InputError("--mask", fmt::format("{}: {}'s indexer picks among earlier keys (causal)",
                                             to_string(r.problem.mask), r.model->name));
    }
  }
  if (r.model && r.model->kind == ModelKind::dit && r.phase == StepPhase::prefill) {
    assume("left out", "text encoder and VAE",
           "a prefill of a diffusion transformer is one denoising step");
  }
  const bool whole = r.phase == StepPhase::train || r.phase == StepPhase::prefill;
  if (whole && !r.model) {
    throw InputError("--phase",
                     fmt::format("{} needs a --model; a bare shape has fwd, bwd or fwd+bwd",
                                 to_string(r.phase)));
  }
  constexpr int widest = 256;
  const bool sparse = r.model && r.model->indexer;  // has kernels of its own
  if (r.problem.head_dim > widest && r.problem.function == AttentionFunction::softmax && !sparse) {
    assume("attention kernels",
           fmt::format("heads {} wide at the rate of {} wide ones", r.problem.head_dim, widest),
           "FlashAttention 2 and 3 and cuDNN end there");
  }
}

void Reader::cached() {
  const auto text = args_.find("cached");
  if (!text || *text == "0") {  // the first chunk of a prompt
    return;
  }
  Request& r = request();
  if (r.phase != StepPhase::forward && r.phase != StepPhase::prefill) {
    throw InputError("--cached",
                     fmt::format("keys that are cached have no gradient: of --phase fwd "
                                 "or prefill, not {}",
                                 to_string(r.phase)));
  }
  if (r.problem.function == AttentionFunction::linear ||
      (r.model && r.model->kind == ModelKind::dit)) {
    throw InputError("--cached",
                     "of softmax attention in language models, which read earlier keys");
  }
  if (!r.problem.mask.document_ends.empty()) {
    not_available("--cached", "packed documents behind cached keys");
  }
  r.problem.cached = parse_tokens(*text, "--cached");
}

void Reader::positions() {
  const Request& r = request();
  const Mask& mask = r.problem.mask;
  if (!r.model && mask.kind == MaskKind::window && mask.window > r.problem.end()) {
    throw InputError("--mask",
                     fmt::format("window:{} is longer than the sequence of {} tokens; expected "
                                 "causal, or less",
                                 mask.window, r.problem.end()));
  }
  if (r.whole_step() && r.model->max_positions > 0 && r.problem.end() > r.model->max_positions) {
    assume(
        "positions",
        fmt::format("{} tokens, beyond the {} that {} was made for", human_tokens(r.problem.end()),
                    human_tokens(r.model->max_positions), r.model->name),
        "--seq");
  }
}

void Reader::documents() {
  const auto text = args_.find("documents");
  if (!text) {
    return;
  }
  if (request().model && (request().model->diffusion.frames > 0 || request().model->linear ||
                          request().model->indexer ||
                          std::ranges::any_of(layer_runs(*request().model), [](const LayerRun& r) {
                            return r.mask.kind == MaskKind::window;
                          }))) {
    not_available("--documents",
                  "packing for models with windows, frames, sparse or linear attention");
  }
  if (LengthDistribution::is_meant(*text)) {
    return drawn_documents(*text);
  }
  std::vector<std::int64_t> lengths;
  if (text->find_first_not_of("0123456789KkMm,-") == std::string::npos) {
    for (const std::string_view length : split(*text, ',')) {
      lengths.push_back(parse_tokens(length, "--documents"));
    }
  } else if (is_readable_file(*text)) {
    lengths = lengths_in(*text);
  } else {
    throw InputError("--documents", fmt::format("'{}' is neither a list of lengths such as "
                                                "1K,512,512 nor a file that can be read",
                                                *text));
  }
  const std::int64_t seq = request().problem.seq;
  if (std::ssize(lengths) > seq) {
    throw InputError("--documents", fmt::format("{} documents are more than the {} tokens of --seq",
                                                lengths.size(), seq));
  }
  Mask& mask = request().problem.mask;
  std::int64_t end = 0;
  for (const std::int64_t length : lengths) {
    end += length;
    mask.document_ends.push_back(end);
  }
  if (end != seq) {
    throw InputError("--documents",
                     fmt::format("the lengths add up to {} tokens, --seq says {}", end, seq));
  }
  resolve("documents", fmt::format("{}", fmt::join(lengths, ",")));
}

void Reader::drawn_documents(const std::string& text) {
  const std::int64_t seq = request().problem.seq;
  PackedSequence packed =
      typical_sequence(LengthDistribution::parse(text, seq, "--documents"), seq, "--documents");
  assume("documents",
         fmt::format("{} of {}: of 15 sequences of {} tokens drawn the one with the median "
                     "attention; the others, but for the least and the most, take {:.2g} to "
                     "{:.2g} times as much",
                     packed.ends.size(), text, human_tokens(seq), packed.least, packed.most),
         "--documents");
  request().problem.mask.document_ends = std::move(packed.ends);
  request().drawn_documents = text;
  resolve("documents", text);
}

void Reader::title() {
  const Problem& p = request().problem;
  const StepChoices& step = request().step;
  const std::string what = fmt::format(
      "{}, {}",
      request().model ? request().model->name
                      : fmt::format("{}attention {}/{} heads of {}{}",
                                    p.function == AttentionFunction::linear ? "linear " : "",
                                    p.q_heads, p.kv_heads, p.head_dim,
                                    p.value_dim > 0 ? fmt::format(" and {}", p.value_dim) : ""),
      request().model && request().model->kind == ModelKind::dit &&
              request().phase == StepPhase::prefill
          ? "a denoising step"
          : to_string(request().phase));
  const std::string how = fmt::format(
      "{}, {}, {}",
      step.global_batch && step.guidance == Guidance::none
          ? fmt::format("global batch {}", *step.global_batch)
          : fmt::format("batch {}{}", p.batch,
                        step.guidance == Guidance::none ? "" : " with guidance"),
      to_string(Mask{.kind = p.mask.kind, .window = p.mask.window}), to_string(p.dtype));
  const std::string packed = p.mask.document_ends.empty()
                                 ? ""
                                 : fmt::format(", {} documents", p.mask.document_ends.size());
  const bool drawn = !request().drawn_documents.empty();  // each length has its own number of them
  std::string where = job_.cluster
                          ? fmt::format(", on {} of {} x {}", human_count(request().gpus, "GPU"),
                                        job_.cluster->nodes(), job_.cluster->machine().name)
                          : fmt::format(", over {} ranks", request().gpus);
  if (p.cached > 0) {
    where += fmt::format(", behind {} cached tokens", human_tokens(p.cached));
  }
  job_.title = fmt::format("{}, {} tokens, {}{}{}", what, human_tokens(p.seq), how, packed, where);
  job_.at_any_length =
      fmt::format("{}, {}{}{}", what, how, drawn ? ", packed documents" : packed, where);
}

std::vector<Phase> phases_of(StepPhase phase) {
  switch (phase) {
    case StepPhase::forward:
    case StepPhase::prefill:
      return {Phase::forward};
    case StepPhase::backward:
      return {Phase::backward};
    case StepPhase::forward_backward:
    case StepPhase::train:
      return {Phase::forward, Phase::backward};
  }
  throw InternalError("unknown phase");
}

void not_available(std::string_view where, std::string_view what) {
  throw InputError(where, fmt::format("{} is not available yet", what));
}

Job read_job(const Arguments& arguments, MachineNeed machine) {
  arguments.expect_no_positionals();
  return naming_origins(arguments.origins(), [&] {
    Job job;
    job.resolved = Json::object();
    job.origins = arguments.origins();
    Reader reader(arguments, job);
    reader.work();
    reader.machine(machine);
    reader.degrees();
    reader.title();
    return job;
  });
}

}  // namespace spp::cli
