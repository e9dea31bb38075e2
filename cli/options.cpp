// The table of options and what other launchers call them, hence one file.
#include "cli/options.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "parallel/attention/strategy.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cctype>

namespace spp::cli {
namespace {

using enum OptionGroup;

constexpr std::array table{
    Option{"model", "NAME|FILE", "a model of models/, or a published config.json", work},
    Option{"heads", "N", "query heads of a bare attention shape (instead of --model)", work},
    Option{"kv-heads", "N", "its KV heads; they divide --heads (default: as many)", work},
    Option{"head-dim", "N", "its head dimension (default: 128)", work},
    Option{"value-dim", "N", "that of its values and outputs (default: --head-dim)", work},
    Option{"seq", "N",
           "tokens of one sequence, over all GPUs: 4096, 32K, 1M; plan: max, the longest that fits",
           work},
    Option{"cached", "N",
           "of a forward or a prefill: tokens in front of the sequence whose keys and values the "
           "ranks hold already (default: none)",
           work},
    Option{
        "batch", "B",
        "sequences that the group works on at once, in training the micro-batch (default: 1; plan "
        "with --global-batch: searched)",
        work},
    Option{"global-batch", "B",
           "sequences of one train step, over all replicas (default: a micro-batch each)", work},
    Option{
        "phase", "fwd|bwd|fwd+bwd|train|prefill|inference",
        "what is timed (default: train with a model, else fwd+bwd); inference: prefill of an LLM, "
        "one denoising step of a diffusion transformer, fwd of a bare shape",
        work},
    Option{"guidance", "yes|no",
           "a denoising step computes the branches of prompt and of none (default: as the model's "
           "pipeline)",
           work},
    Option{"denoising-steps", "N", "of an image or a video (default: as the model's pipeline)",
           work},
    Option{"expert-imbalance", "F",
           "tokens that go to the fullest rank's experts, over the mean of all ranks of --ep "
           "(default: 1)",
           work},
    Option{
        "attention", "softmax|linear",
        "what attention of a bare shape computes (default: softmax); linear: a sum over keys is a "
        "state of head_dim x head_dim",
        work},
    Option{"mask", "causal|full|window:W",
           "which keys a query sees (default: the model's, else causal)", work},
    Option{
        "documents", "A,B,…|FILE|DISTRIBUTION",
        "lengths of packed documents, which add up to --seq: attention stays inside each; or what "
        "they are drawn from: lognormal:median=2K,sigma=1.2,max=128K,seed=1 or histogram:FILE "
        "(lines of a length and its weight)",
        work},
    Option{"dtype", "bf16|fp16|fp32", "of activations (default: bf16)", work},
    Option{"flops-convention", "causal-halved|full|model-6N",
           "what counts as FLOPs in tflops_per_gpu and mfu (default: causal-halved)", work},

    Option{"topology", "NAME|FILE",
           "a machine of topologies/machines/, or what 'topology import' reads", machine},
    Option{"gpu", "NAME", "compose a machine from this GPU (instead of --topology)", machine},
    Option{"gpus-per-node", "N", "GPUs of a node of it (default: 8)", machine},
    Option{"intra", "nvlink4|pcie5|RATE",
           "links inside a node: a transport, or 300GB/s (default: the GPU's)", machine},
    Option{"inter", "TRANSPORT:NICSxRATE",
           "network: ib:8x400Gb/s, roce:…, ethernet:… (default: none)", machine},
    Option{"nodes", "K",
           "nodes (default: as many as --gpus needs, or as files of --topology list, else 1)",
           machine},
    Option{"gpus", "N", "GPUs that are used (default: all)", machine},
    Option{"memory", "SIZE", "memory of a GPU, 80GB or 80GiB (default: the device's)", machine},
    Option{"profile", "FILE",
           "measured on this machine: describes it alone, or calibrates --topology", machine},
    Option{"stack", "NAME", "the software that runs the plan (default: sp-plan; see stack list)",
           machine},

    Option{"strategy", "NAME", "usp, ulysses, ring, zigzag-ring, startrail, …", degrees},
    Option{"ulysses", "U", "Ulysses degree: heads are split U ways", degrees},
    Option{"ring", "R", "ring degree, all of it; tp*U*R*dp*pp = --gpus", degrees},
    Option{"layout",
           "contiguous|zigzag|striped|document-zigzag|document-contiguous|balanced|whole-documents",
           "which tokens a rank holds; document-…: its pieces of every packed document "
           "(--documents), each padded to 2 x ranks tokens (contiguous: ranks); balanced: chunks "
           "of even work; whole-documents: likewise of documents, each on as few ranks as it needs",
           degrees},
    Option{"order", "AXIS,…", "axes from the innermost: ulysses,team,ring", degrees},
    Option{"heads-policy", "divide|replicate|pad|uneven",
           "how heads that do not divide are dealt out", degrees},
    Option{"rank-order", "block|cyclic",
           "ranks fill a node before the next, or are dealt out in turn", degrees},
    Option{"tp", "T", "tensor parallel degree of a whole step", degrees},
    Option{"dp", "D", "data parallel degree of a whole step", degrees},
    Option{"cfg", "1|2",
           "groups of GPUs that compute the two branches of a guided denoising step (plan: the "
           "faster; else 1)",
           degrees},
    Option{"pp", "S", "pipeline stages of a whole step", degrees},
    Option{"virtual-stages", "V", "chunks of layers on each of them (interleaved)", degrees},
    Option{"pipeline", "NAME",
           "order of micro-batches: 1f1b, interleaved, gpipe, zero-bubble (default: 1f1b, or "
           "interleaved); plan: of several stages",
           degrees},
    Option{
        "prompts", "N",
        "prompts that pass these stages at once, of the --batch of a prefill (plan: the fastest; "
        "else as fit into 8,192 tokens)",
        degrees},
    Option{"ep", "E", "expert parallel degree, within tp*U*R*dp", degrees},
    Option{
        "etp", "T",
        "tensor parallel degree of each expert, beside --ep (default: 1, but as servers have it; "
        "not searched)",
        degrees},
    Option{"dispatcher", "all-to-all|all-gather",
           "how tokens come to experts on other ranks: each to its own, or all to all of them "
           "(plan: the faster)",
           degrees},
    Option{"zero", "0|1|2|3", "ZeRO stage over U*R*dp ranks (plan: the fastest that fits; else 1)",
           degrees},
    Option{"zero-group", "N", "ranks that its states are cut over (default: all U*R*dp)", degrees},
    Option{"recompute", "none|selective|full",
           "activations computed again in the backward (plan: the fastest that fits; else none)",
           degrees},
    Option{"offload", "none|activations|optimizer|all",
           "what lies in the host's memory; all: both (default: none)", degrees},
    Option{"gemm-format", "plain|fp8|fp8-block|mxfp8|nvfp4",
           "what matrix units multiply, but for router and loss head (default: plain, the dtype)",
           degrees},

    Option{"plan", "FILE", "a plan from a document of 'plan' or 'simulate', with its request",
           plan_file},

    Option{"json", "", "print one JSON document, on a terminal too", output},
    Option{"table", "", "print the table, also when stdout is not a terminal", output},
    Option{"output", "FILE", "write the JSON document to FILE, and print the table", output, 'o',
           true},
    Option{"quiet", "", "no progress on stderr", output, 'q'},
    Option{"help", "", "this help", output, 'h'},
};

std::string dashed(const Option& o) { return fmt::format("--{}", o.name); }

/// Options of launchers for what has another name here: of Megatron-LM, DeepSpeed, vLLM.
struct Foreign {
  std::string_view name, here;
};
constexpr std::array foreign_names{
    Foreign{"cp", "--ulysses U and --ring R, whose product it is"},
    Foreign{"context-parallel-size", "--ulysses U and --ring R, whose product it is"},
    Foreign{"sp", "--ulysses U and --ring R, whose product it is"},
    Foreign{"ulysses-sequence-parallel-size", "--ulysses"},
    Foreign{"tensor-model-parallel-size", "--tp"},
    Foreign{"tensor-parallel-size", "--tp"},
    Foreign{"pipeline-model-parallel-size", "--pp"},
    Foreign{"pipeline-parallel-size", "--pp"},
    Foreign{"expert-model-parallel-size", "--ep"},
    Foreign{"expert-tensor-parallel-size", "--etp"},
    Foreign{"data-parallel-size", "--dp"},
    Foreign{"vpp", "--virtual-stages"},
    Foreign{"mbs", "--batch, in training the micro-batch"},
    Foreign{"micro-batch", "--batch, in training the micro-batch"},
    Foreign{"micro-batch-size", "--batch, in training the micro-batch"},
    Foreign{"gbs", "--global-batch"},
    Foreign{"global-batch-size", "--global-batch"},
    Foreign{"seq-length", "--seq"},
    Foreign{"max-model-len", "--seq"},
    Foreign{"fp8", "--gemm-format fp8"},
    Foreign{"fp8-format", "--gemm-format fp8"},
    Foreign{"recompute-granularity", "--recompute"},
    Foreign{"zero-stage", "--zero"},
};

/// "--ulysess=4" or "-x" -> a complaint that names the nearest option.
[[noreturn]] void unknown_option(std::string_view word, std::span<const Option> known) {
  const std::string name(word.substr(0, word.find('=')));
  const auto foreign = std::ranges::find_if(
      foreign_names, [&](const Foreign& f) { return fmt::format("--{}", f.name) == name; });
  if (foreign != foreign_names.end() && std::ranges::any_of(known, [&](const Option& o) {
        return foreign->here.substr(0, foreign->here.find_first_of(" ,")) == dashed(o);
      })) {
    throw InputError(name,
                     fmt::format("unknown option; here it is {} (see --help)", foreign->here));
  }
  std::vector<std::string> names;
  for (const Option& o : known) {
    names.push_back(dashed(o));
  }
  const std::string near = nearest_name(name, names);
  throw InputError(name, near.empty() ? "unknown option (see --help)"
                                      : fmt::format("unknown option (did you mean '{}'?)", near));
}

}  // namespace

std::string_view title_of(OptionGroup group) {
  switch (group) {
    case work:
      return "The work";
    case machine:
      return "The machine";
    case degrees:
      return "The plan";
    case plan_file:
      return "Instead of the plan, and of what the rest leaves out";
    case command:
      return "Of this command";
    case output:
      return "Output";
  }
  throw InternalError("unknown option group");
}

std::span<const Option> shared_options() {
  static const std::vector<Option> all = [] {
    std::vector<Option> options(table.begin(), table.end());
    auto behind = std::ranges::find(options, "ring", &Option::name) + 1;
    for (const Parameter* p : strategies::parameters()) {
      behind = options.insert(behind, {p->name, p->letter, p->help, degrees}) + 1;
    }
    return options;
  }();
  return all;
}

std::vector<std::string_view> degree_options() {
  std::vector<std::string_view> names{
      "strategy", "ulysses", "ring", "layout", "order", "heads-policy",   "rank-order", "tp",
      "dp",       "cfg",     "pp",   "ep",     "etp",   "virtual-stages", "pipeline"};
  for (const Parameter* p : strategies::parameters()) {
    names.push_back(p->name);
  }
  return names;
}

std::vector<std::string> choices_of(const Option& option) {
  std::vector<std::string> choices;
  if (option.value.find('|') == std::string_view::npos) {
    return choices;
  }
  for (const std::string_view word : split(option.value, '|')) {
    const bool placeholder =
        std::ranges::any_of(word, [](unsigned char c) { return std::isupper(c) != 0; });
    if (!placeholder || word == "model-6N") {
      choices.emplace_back(word);
    }
  }
  return choices;
}

namespace {

/// Refuses an option that wants a value and stands at the end or before another option ("-5" is a
/// value), and a switch with one.
void check_values(std::span<const Option> known, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const Option& o : known) {
      const bool named =
          words[i] == dashed(o) || (o.letter != 0 && words[i] == fmt::format("-{}", o.letter));
      if (words[i].starts_with(dashed(o) + "=") && o.value.empty()) {
        throw InputError(dashed(o), "takes no value");
      }
      if (words[i] == dashed(o) + "=") {
        throw InputError(dashed(o), fmt::format("a value is missing ({})", o.value));
      }
      if (!named || o.value.empty()) {
        continue;
      }
      const bool option_follows = i + 1 < words.size() && words[i + 1].size() > 1 &&
                                  words[i + 1][0] == '-' &&
                                  (words[i + 1][1] == '-' ||
                                   std::isalpha(static_cast<unsigned char>(words[i + 1][1])) != 0);
      if (i + 1 == words.size() || option_follows || words[i + 1].empty()) {
        throw InputError(dashed(o), fmt::format("a value is missing ({})", o.value));
      }
      ++i;  // the value, whatever it looks like
      break;
    }
  }
}

}  // namespace

Arguments::Arguments(std::vector<Option> known, const std::vector<std::string>& words)
    : known_(std::move(known)) {
  check_values(known_, words);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<CLI::Option*> parsed;
  for (const Option& o : known_) {
    const std::string names = o.letter != 0 ? fmt::format("-{},--{}", o.letter, o.name) : dashed(o);
    CLI::Option* option = o.value.empty() ? app.add_flag(names) : app.add_option(names);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    parsed.push_back(option);
  }
  app.add_option("arguments", positionals_);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& e) {
    throw InputError("", fmt::format("{} (see --help)", e.what()));
  }
  for (const std::string& word : app.remaining()) {
    unknown_option(word, known_);
  }
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const Option& o = known_[i];
    const std::size_t count = parsed[i]->count();
    if (count > 1 && !o.value.empty()) {
      throw InputError(dashed(o), fmt::format("given {} times", count));
    }
    if (count > 0) {
      const std::string value = o.value.empty() ? "" : parsed[i]->results().front();
      if (value.empty() && !o.value.empty()) {
        throw InputError(dashed(o), fmt::format("a value is missing ({})", o.value));
      }
      given_.emplace(o.name, value);
    }
  }
}

namespace {

/// Whose readers take a document as well as a file. A command's own options do not.
bool takes_document(const Option& o) {
  return o.group != OptionGroup::command &&
         (o.name == "plan" || o.name == "topology" || o.name == "model" || o.name == "profile");
}

/// A model's may be a published configuration, which a program in Python hands on as it is.
Json document_in(const std::string& text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' ? parse_python_json(text, file)
                                                          : Json(text);
}

/// How a document is called where a file's name would stand.
std::string name_of(const Json& document) {
  const auto name = document.is_object() ? document.find("name") : document.end();
  return name != document.end() && name->is_string() ? name->get<std::string>() : "a document";
}

}  // namespace

Arguments::Arguments(std::vector<Option> known, std::vector<std::string> positionals,
                     const std::vector<Given>& given)
    : known_(std::move(known)), positionals_(std::move(positionals)) {
  std::vector<Option> offered;
  std::ranges::copy_if(known_, std::back_inserter(offered),
                       [](const Option& o) { return o.group != OptionGroup::output; });
  for (const Given& g : given) {
    const auto found = std::ranges::find(offered, g.option, &Option::name);
    if (found == offered.end()) {
      unknown_option(fmt::format("--{}", g.option), offered);
    }
    if (g.document && !takes_document(*found)) {
      throw InputError(dashed(*found),
                       fmt::format("a document is no value ({})",
                                   found->value.empty() ? "a switch" : found->value));
    }
    if (found->value.empty() && g.text) {
      throw InputError(dashed(*found), "takes no value");
    }
    const std::string text = g.document ? name_of(*g.document) : g.text.value_or("");
    if (!found->value.empty() && text.empty()) {
      throw InputError(dashed(*found), fmt::format("a value is missing ({})", found->value));
    }
    given_.insert_or_assign(std::string(found->name), text);
    if (g.document) {
      documents_.insert_or_assign(std::string(found->name), *g.document);
    }
  }
}

void Arguments::take_handed_over() {
  for (const Option& o : known_) {
    const auto file = takes_document(o) ? find(o.name) : std::nullopt;
    if (file && is_handed_over(*file)) {
      documents_.insert_or_assign(std::string(o.name),
                                  document_in(read_text_file(*file, dashed(o)), *file));
    }
  }
}

const Option& Arguments::known(std::string_view option) const {
  const auto it = std::ranges::find(known_, option, &Option::name);
  ensure(it != known_.end(), fmt::format("option '{}' is not in this command's table", option));
  return *it;
}

bool Arguments::has(std::string_view option) const { return given_.contains(known(option).name); }

std::optional<std::string> Arguments::find(std::string_view option) const {
  const auto it = given_.find(known(option).name);
  return it == given_.end() ? std::nullopt : std::optional(it->second);
}

const Json* Arguments::document(std::string_view option) const {
  const auto it = documents_.find(known(option).name);
  return it == documents_.end() ? nullptr : &it->second;
}

std::string Arguments::get(std::string_view option, std::string_view otherwise) const {
  return find(option).value_or(std::string(otherwise));
}

void Arguments::expect_no_positionals() const {
  if (!positionals_.empty()) {
    throw InputError(positionals_.front(), "unexpected; options begin with '--' (see --help)");
  }
}

void Arguments::set_default(std::string_view option, const std::string& value, std::string where) {
  const Option& o = known(option);
  if (given_.try_emplace(std::string(o.name), value).second && !where.empty()) {
    origins_.emplace(dashed(o), std::move(where));
  }
}

void Arguments::set_default_document(std::string_view option, const Json& document,
                                     std::string where) {
  if (!has(option)) {
    set_default(option, name_of(document), std::move(where));
    documents_.emplace(known(option).name, document);
  }
}

Arguments Arguments::with(std::string_view option, const std::string& value) const {
  Arguments other = *this;
  other.given_.insert_or_assign(std::string(known(option).name), value);
  return other;
}

Arguments Arguments::without(std::string_view option) const {
  Arguments other = *this;
  other.given_.erase(std::string(known(option).name));
  return other;
}

namespace {

/// As a shell takes it for one word: 'it'\''s'.
std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

}  // namespace

std::string Arguments::line() const {
  std::string text;
  for (const Option& o : known_) {
    const auto it = given_.find(o.name);
    if (it == given_.end() || o.group == OptionGroup::output) {
      continue;
    }
    const bool plain = it->second.find_first_of(" \t\"'\\$`*?;&|<>()[]{}~#!") == std::string::npos;
    text += fmt::format("{}--{}{}", text.empty() ? "" : " ", o.name,
                        o.value.empty() ? ""
                        : plain         ? " " + it->second
                                        : " " + shell_word(it->second));
  }
  return text;
}

}  // namespace spp::cli
