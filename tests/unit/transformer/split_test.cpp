#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/transformer/tiny_model.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"

#include <algorithm>
#include <map>
#include <string>

using namespace spp;
using spp::test::message_of;
using spp::test::tiny_model;

namespace {

/// 3 tokens of each of 2 sequences on 2 ranks: 6 rows, 3 of them on each.
constexpr LocalTokens shared{.tokens = 3, .batch = 2, .split = {.tensor = 2}};

LocalTokens without_sequence_parallelism() {
  LocalTokens group = shared;
  group.split.sequence_parallel = false;
  return group;
}

std::vector<std::string> shapes(const std::vector<LayerOp>& ops) {
  std::vector<std::string> lines;
  for (const LayerOp& op : ops) {
    if (const auto* gemm = std::get_if<GemmShape>(&op.work)) {
      lines.push_back(fmt::format("{} {}x{}x{}", to_string(op), gemm->m, gemm->n, gemm->k));
    } else if (const auto* transfer = std::get_if<LayerTransfer>(&op.work)) {
      lines.push_back(fmt::format("{} {} B{}", to_string(op), transfer->bytes.value(),
                                  op.beside ? " beside" : ""));
    } else if (const auto* stream = std::get_if<MemoryBound>(&op.work)) {
      lines.push_back(fmt::format("{} {} B", to_string(op), stream->touched.value()));
    } else if (const auto* attention = std::get_if<SelfAttention>(&op.work)) {
      lines.push_back(fmt::format("{} {}/{} heads", to_string(op), attention->call.q_heads,
                                  attention->call.kv_heads));
    }
  }
  return lines;
}

std::vector<std::string> transfers(const std::vector<LayerOp>& ops) {
  std::vector<std::string> lines;
  for (const LayerOp& op : ops) {
    if (std::holds_alternative<LayerTransfer>(op.work)) {
      lines.push_back(shapes({op}).front());
    }
  }
  return lines;
}

std::int64_t kept_on_rank(const Model& model, const LayerSplit& split, const Recomputation& how) {
  return kept_bytes(layer_of(model), {.tokens = 8, .split = split}, how).value();
}

Recomputation selective(ModuleSet modules) {
  return {.kind = Recompute::selective, .modules = modules};
}

}  // namespace

TEST_CASE("two ranks gather and scatter a layer's rows twice in its forward") {
  // Rows 3 where cut by rows: [3,8] is 48 B; Q, K, V 4 + 2 + 2 of 16 wide; a gathered [6,8] is 96
  // B.
  CHECK(shapes(forward_ops(layer_of(tiny_model()), shared)) ==
        std::vector<std::string>{"norm 1 96 B", "qkv all_gather 96 B", "qkv 6x8x8", "rope 144 B",
                                 "attention 2/1 heads", "out 6x8x4", "out reduce_scatter 96 B",
                                 "residual 1 144 B", "norm 2 96 B", "gate all_gather 96 B",
                                 "gate 6x8x8", "up 6x8x8", "activation 288 B", "down 6x8x8",
                                 "down reduce_scatter 96 B", "residual 2 144 B"});
}

TEST_CASE("a backward gathers gradients and saved inputs, and scatters sums beside weight GEMMs") {
  // Up's and gate's gradients of the norm's output are added before they are summed over the ranks.
  CHECK(shapes(backward_ops(layer_of(tiny_model()), shared)) ==
        std::vector<std::string>{"d down all_gather 96 B",
                                 "d down input 6x8x8",
                                 "d down weight 8x8x6",
                                 "d activation 480 B",
                                 "d up weight all_gather 96 B beside",
                                 "d up input 6x8x8",
                                 "d up weight 8x8x6",
                                 "d gate input 6x8x8",
                                 "d norm 2 sum 288 B",
                                 "d gate input reduce_scatter 96 B beside",
                                 "d gate weight 8x8x6",
                                 "d norm 2 144 B",
                                 "d residual 1 sum 144 B",
                                 "d out all_gather 96 B",
                                 "d out input 6x4x8",
                                 "d out weight 4x8x6",
                                 "d attention 2/1 heads",
                                 "d rope 144 B",
                                 "d qkv weight all_gather 96 B beside",
                                 "d qkv input 6x8x8",
                                 "d qkv input reduce_scatter 96 B beside",
                                 "d qkv weight 8x8x6",
                                 "d norm 1 144 B",
                                 "d input sum 144 B"});
}

TEST_CASE("without sequence parallelism sums are all-reduced, and rows are whole") {
  const TensorOps layer = layer_of(tiny_model());
  const LocalTokens group = without_sequence_parallelism();
  CHECK(transfers(forward_ops(layer, group)) ==
        std::vector<std::string>{"out all_reduce 96 B", "down all_reduce 96 B"});
  CHECK(transfers(backward_ops(layer, group)) ==
        std::vector<std::string>{"d gate input all_reduce 96 B beside",
                                 "d qkv input all_reduce 96 B beside"});
  CHECK(shapes(forward_ops(layer, group)).front() == "norm 1 192 B");
}

TEST_CASE("alone, a rank has no transfers") {
  const LocalTokens alone{.tokens = 3, .batch = 2};
  for (const TensorOps& list : {layer_of(tiny_model()), ends_of(tiny_model(), StepKind::train)}) {
    CHECK(transfers(forward_ops(list, alone)).empty());
    CHECK(transfers(backward_ops(list, alone)).empty());
  }
}

TEST_CASE("alone, a rank runs the kernels that layers had before they could be cut") {
  struct Sums {
    int kernels = 0;
    double flops = 0;
    std::int64_t touched = 0;
    bool operator==(const Sums&) const = default;
  };
  const auto sums = [](const std::vector<LayerOp>& ops) {
    Sums all{.flops = flops_of(ops).value()};
    for (const LayerOp& op : ops) {
      const auto* stream = std::get_if<MemoryBound>(&op.work);
      all.touched += stream != nullptr ? stream->touched.value() : 0;
      all.kernels += std::holds_alternative<SelfAttention>(op.work) ? 0 : 1;
    }
    return all;
  };
  // Forward and backward of a layer, 4096 tokens of 2 sequences in bf16; since then CogVideoX and
  // Z-Image have the GEMM of their modulation (2 rows) and its two backward, with a bias.
  const std::map<std::string, std::pair<Sums, Sums>> models{
      {"llama-3.1-8b",
       {{11, 3'573'412'790'272.0, 1'543'503'872}, {17, 7'146'825'580'544.0, 2'348'810'240}}},
      {"llama-3.1-405b",
       {{11, 52'226'802'319'360.0, 5'872'025'600}, {17, 104'453'604'638'720.0, 8'959'033'344}}},
      {"qwen2.5-7b",
       {{11, 3'818'225'926'144.0, 1'652'555'776}, {18, 7'636'451'852'288.0, 2'642'411'520}}},
      {"qwen3-32b",
       {{12, 7'988'639'170'560.0, 2'701'131'776}, {18, 15'977'278'341'120.0, 4'110'417'920}}},
      {"cogvideox-5b",
       {{16, 1'855'501'369'344.0, 1'711'276'032}, {26, 3'711'002'738'688.0, 2'768'240'640}}},
      {"wan2.1-t2v-14b",
       {{21, 5'089'536'245'760.0, 3'053'453'312}, {32, 10'222'022'164'480.0, 4'680'843'264}}},
      {"z-image",
       {{17, 2'899'118'653'440.0, 2'139'095'040}, {25, 5'798'237'306'880.0, 3'166'699'520}}}};
  const ModelLibrary library(test::source_path("models"));
  for (const auto& [name, expected] : models) {
    INFO(name);
    const TensorOps layer = layer_of(library.load(name, "--model"));
    const LocalTokens alone{.tokens = 4096, .batch = 2};
    CHECK(sums(forward_ops(layer, alone)) == expected.first);
    CHECK(sums(backward_ops(layer, alone)) == expected.second);
  }
}

TEST_CASE("more ranks than K/V heads copy them") {
  LocalTokens group = shared;
  group.split.tensor = 4;
  // Q 2, K 2, V 2 wide on each of 4 ranks, of 8, 4, 4.
  const auto lines = shapes(forward_ops(layer_of(tiny_model()), group));
  CHECK(lines.at(2) == "qkv 6x6x8");
  CHECK(lines.at(4) == "attention 1/1 heads");
  CHECK(weights_of(layer_of(tiny_model()), group.split) == 8 * 6 + 2 * 8 + 3 * 8 * 4 + 16);
}

TEST_CASE("a rank of two has half of the matrices and of the tables, all of the norms") {
  const LayerSplit two{.tensor = 2};
  CHECK(weights_of(layer_of(tiny_model()), two) == 576 / 2 + 16);
  CHECK(weights_of(first_of(tiny_model()), two) == 80 / 2);
  CHECK(weights_of(last_of(tiny_model(), StepKind::train), two) == 80 / 2 + 8);
  // A bias is whole behind a row-parallel GEMM.
  Model biased = tiny_model();
  biased.attention_bias = biased.output_bias = biased.mlp_bias = true;
  CHECK(weights_of(layer_of(biased), two) == 576 / 2 + 16 + (16 / 2 + 8 + 2 * 16 / 2 + 8));
}

TEST_CASE("a vocabulary in parts is looked up whole, scattered, and reduced three times") {
  // [6,8] in bf16 is 96 B; 6 numbers in fp32 24 B.
  CHECK(shapes(forward_ops(first_of(tiny_model()), shared)) ==
        std::vector<std::string>{"embedding 192 B", "embedding reduce_scatter 96 B"});
  CHECK(shapes(backward_ops(first_of(tiny_model()), shared)) ==
        std::vector<std::string>{"d embedding all_gather 96 B", "d embedding 480 B"});
  CHECK(shapes(forward_ops(last_of(tiny_model(), StepKind::train), shared)) ==
        std::vector<std::string>{"final norm 96 B", "logits all_gather 96 B", "logits 6x5x8",
                                 "logits to fp32 180 B", "logits max 120 B",
                                 "logits max all_reduce 24 B", "softmax 240 B",
                                 "softmax all_reduce 24 B", "softmax all_reduce 24 B"});
  CHECK(transfers(backward_ops(last_of(tiny_model(), StepKind::train), shared)) ==
        std::vector<std::string>{"d logits weight all_gather 96 B beside",
                                 "d logits input reduce_scatter 96 B beside"});
  // A prefill gathers the last token of each of 2 sequences: [2,8].
  CHECK(transfers(forward_ops(last_of(tiny_model(), StepKind::prefill), shared)) ==
        std::vector<std::string>{"logits all_gather 32 B"});
}

TEST_CASE("first and last list are the ends") {
  for (const StepKind step : {StepKind::train, StepKind::prefill}) {
    auto both = shapes(forward_ops(first_of(tiny_model()), shared));
    const auto last = shapes(forward_ops(last_of(tiny_model(), step), shared));
    both.insert(both.end(), last.begin(), last.end());
    CHECK(both == shapes(forward_ops(ends_of(tiny_model(), step), shared)));
  }
}

TEST_CASE("a text that every rank has is not gathered; its gradient is summed over them") {
  Model model = tiny_model();
  model.kind = ModelKind::dit;
  model.cross_tokens = 5;
  // Of the text [10,8]: 160 B.
  const auto forward = transfers(forward_ops(layer_of(model), shared));
  CHECK(forward == std::vector<std::string>{"qkv all_gather 96 B", "out reduce_scatter 96 B",
                                            "cross q all_gather 96 B",
                                            "cross out reduce_scatter 96 B", "gate all_gather 96 B",
                                            "down reduce_scatter 96 B"});
  const auto backward = transfers(backward_ops(layer_of(model), shared));
  CHECK(std::find(backward.begin(), backward.end(), "d cross kv input all_reduce 160 B beside") !=
        backward.end());
}

TEST_CASE("ranks that share a layer keep its activations by parts, and nothing twice") {
  // 232 B a token, statistics included: everything is cut by rows or by heads.
  CHECK(kept_on_rank(tiny_model(), {}, {}) == 8 * 232);
  CHECK(kept_on_rank(tiny_model(), {.tensor = 2}, {}) == 8 * 232 / 2);
  // Whole without sequence parallelism: norms' inputs and outputs 32, 1/rms 2.
  CHECK(kept_on_rank(tiny_model(), {.tensor = 2, .sequence_parallel = false}, {}) ==
        8 * ((232 + 32 * 2 + 2 * 4) / 2));
  CHECK(kept_on_rank(tiny_model(), {.tensor = 2}, {.kind = Recompute::full}) == 8 * 16 / 2);
}

TEST_CASE("a layer of GPT keeps 8h and 24h / t without sequence parallelism, 32h / t with it") {
  // Korthikanti et al. (arXiv:2205.05198, equations 2 and 4): 10 + 24 / t and 34 / t, less the
  // masks of two dropouts. Besides two 1/rms, whole or cut, and the LSE of 12 heads.
  Model model = tiny_model();
  model.hidden = 768;
  model.q_heads = model.kv_heads = 12;
  model.head_dim = 64;
  model.ffn = 4 * 768;
  model.gated_mlp = false;
  constexpr std::int64_t h = 768;
  CHECK(kept_on_rank(model, {.tensor = 4, .sequence_parallel = false}, {}) ==
        8 * (8 * h + 24 * h / 4 + 4 * (2 + 12 / 4)));
  CHECK(kept_on_rank(model, {.tensor = 4}, {}) == 8 / 4 * (32 * h + 4 * (2 + 12)));
}

TEST_CASE("eight ranks share the activations of Llama-3.1-70B") {
  // A layer and token: norms in and out 8 * 8192, Q and attention's output 4 * 8192, K and V
  // 4 * 1024, gate and up 4 * 28672, product 2 * 28672, LSE of 64 heads 256: 274,688; two 1/rms.
  Model model;
  model.layers = 80;
  model.hidden = 8192;
  model.q_heads = 64;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = 28672;
  model.vocab = 128256;
  CHECK(kept_on_rank(model, {.tensor = 8}, {}) == 274'688 + 8);
}

TEST_CASE("a rank of two has gathered rows beside its gradients") {
  // Alone 56 elements of gradients. Of two: 4 of the stream, 8 + 16 of product, gate and up: 28;
  // at up, stream 4, gate and up 16, the input gathered again 8 and its gradient 8: 36.
  const TensorOps layer = layer_of(tiny_model());
  CHECK(working_bytes(layer, {.tokens = 8}, {}) == Bytes(8 * 2 * 56));
  const Bytes of_two = working_bytes(layer, {.tokens = 8, .split = {.tensor = 2}}, {});
  CHECK(of_two >= Bytes(8 * 2 * 36));
  CHECK(of_two <= Bytes(8 * 2 * 44));
}

TEST_CASE("what modules drop is what they write") {
  // Elements: norms' outputs 16, product 16, gate and up 32; LSE 4 numbers.
  const auto saved = [](const Recomputation& how) {
    return (kept_on_rank(tiny_model(), {}, {}) - kept_on_rank(tiny_model(), {}, how)) / 8;
  };
  CHECK(saved({.kind = Recompute::selective}) == 2 * 32);
  CHECK(saved(selective({RecomputeModule::norms})) == 2 * 16);
  CHECK(saved(selective({RecomputeModule::activation})) == 2 * 16);
  CHECK(saved(selective({RecomputeModule::mlp})) == 2 * 48);
  CHECK(saved(selective({RecomputeModule::core_attention})) == 4 * 4);
  CHECK(saved(selective({RecomputeModule::moe})) == 0);
}

TEST_CASE("modules run again with their GEMMs and transfers") {
  const TensorOps layer = layer_of(tiny_model());
  CHECK(shapes(recomputed_ops(layer, shared, selective({RecomputeModule::mlp}))) ==
        std::vector<std::string>{"gate all_gather 96 B", "gate 6x8x8", "up 6x8x8",
                                 "activation 288 B", "down 6x8x8", "down reduce_scatter 96 B"});
  CHECK(shapes(recomputed_ops(layer, shared, selective({RecomputeModule::core_attention}))) ==
        std::vector<std::string>{"attention 2/1 heads"});
}

TEST_CASE("rows that were gathered stay, or are gathered again") {
  const TensorOps layer = layer_of(tiny_model());
  LocalTokens keeping = shared;
  keeping.gathered_kept = true;
  const auto gathers = [&](const std::vector<LayerOp>& ops) {
    return std::ranges::count_if(transfers(ops), [](const std::string& line) {
      return line.find("all_gather") != std::string::npos;
    });
  };
  // Backward: of the gradients behind two row-parallel GEMMs, and of two GEMMs' inputs.
  CHECK(gathers(backward_ops(layer, shared)) == 4);
  CHECK(gathers(backward_ops(layer, keeping)) == 2);
  CHECK(gathers(forward_ops(layer, keeping)) == 2);
  const Recomputation full{.kind = Recompute::full};
  CHECK(gathers(recomputed_ops(layer, keeping, {})) == 0);
  CHECK(gathers(recomputed_ops(layer, keeping, full)) == 2);
  // A policy that keeps no norm's output has no rows that were gathered of it; the one of an MLP
  // alone has them.
  CHECK(gathers(recomputed_ops(layer, keeping, selective({RecomputeModule::every_second_gemm}))) ==
        2);
  CHECK(gathers(recomputed_ops(layer, keeping, selective({RecomputeModule::mlp}))) == 0);
  CHECK(gathers(recomputed_ops(layer, shared, selective({RecomputeModule::mlp}))) == 1);
  // Two norms' outputs, 8 wide, of 6 rows instead of 3.
  CHECK(kept_bytes(layer, keeping, {}) == kept_bytes(layer, shared, {}) + Bytes(2 * 3 * 8 * 2));
  CHECK(kept_bytes(layer, keeping, full) == kept_bytes(layer, shared, full));
}

TEST_CASE("of every second GEMM the output is kept, and of attention") {
  const Recomputation how = selective({RecomputeModule::every_second_gemm});
  const TensorOps layer = layer_of(tiny_model());
  const LocalTokens alone{.tokens = 3, .batch = 2};
  CHECK(shapes(recomputed_ops(layer, alone, how)) ==
        std::vector<std::string>{"norm 1 192 B", "rope 288 B", "out 6x8x8", "residual 1 288 B",
                                 "norm 2 192 B", "up 6x16x8", "activation 576 B",
                                 "residual 2 288 B"});
  // Input 8; Q, K, V 16, attention 8, gate 16, down 8; LSE 4.
  CHECK(kept_on_rank(tiny_model(), {}, how) == 8 * (2 * 56 + 4 * 4));
  // On two ranks the reduce-scattered output of the second GEMM is kept, too; its GEMM runs still.
  CHECK(kept_on_rank(tiny_model(), {.tensor = 2}, how) == 8 * (2 * 64 + 4 * 4) / 2);
  CHECK(transfers(recomputed_ops(layer, shared, how)) ==
        std::vector<std::string>{"up all_gather 96 B"});
}

TEST_CASE("of all but attention the layer's input and attention's output are kept") {
  const Recomputation how = selective({RecomputeModule::all_but_attention});
  const TensorOps layer = layer_of(tiny_model());
  const std::vector<std::string> again =
      shapes(recomputed_ops(layer, {.tokens = 3, .batch = 2}, how));
  const std::vector<std::string> all =
      shapes(recomputed_ops(layer, {.tokens = 3, .batch = 2}, {.kind = Recompute::full}));
  CHECK(again.size() + 1 == all.size());
  CHECK(std::ranges::find(again, "attention 4/2 heads") == again.end());
  // Input 8, attention's output 8 wide in 2 bytes; of statistics LSE 4 and the norms' 2.
  CHECK(kept_on_rank(tiny_model(), {}, how) == 8 * (2 * 16 + 4 * 4 + 4 * 2));
}

TEST_CASE("recomputation of modules is written with their names") {
  for (const std::string_view text :
       {"none", "full", "selective", "selective:core_attention", "selective:norms,mlp",
        "selective:activation,moe,mla_up,shared_experts,every_second_gemm"}) {
    CHECK(to_string(parse_recomputation(text, "--recompute")) == text);
  }
  CHECK(parse_recomputation("selective:activation,norms", "").modules == usual_modules);
  const auto error = [](std::string_view text) {
    return message_of<InputError>([&] { (void)parse_recomputation(text, "--recompute"); });
  };
  CHECK(error("selective:norm") ==
        "--recompute: unknown module 'norm' of selective recomputation (did you mean 'norms'?)");
  CHECK(error("full:norms") ==
        "--recompute: 'full:norms': only selective recomputation has modules");
  CHECK(error("selective:mlp,mlp") == "--recompute: 'selective:mlp,mlp': 'mlp' stands there twice");
  CHECK(error("selective:").starts_with("--recompute: unknown module ''"));
}
