// What is wrong, said in one line: exit code, where, value, what would be right. One list of
// mistakes, hence one file.
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using spp::test::Result;
using spp::test::sp_plan;

namespace {

struct Wrong {
  std::string line;
  std::string message;  // stands in the line on stderr
};

void check_refused(const std::string& line, int code, const std::string& message) {
  INFO("sp-plan " << line);
  spp::test::check_refused(sp_plan(line), code, message);
}

/// Wrong invocations: a mistake each, exit code 2.
void check_refused(const std::vector<Wrong>& all) {
  for (const Wrong& w : all) {
    check_refused(w.line, 2, w.message);
  }
}

}  // namespace

TEST_CASE("a wrong command is refused with one line that names the place") {
  check_refused({
      {"", "a command is missing"},
      {"pln", "pln: unknown command (did you mean 'plan'?)"},
      {"simulat --seq 4K", "did you mean 'simulate'?"},
      {"plan --cp 8", "--cp: unknown option; here it is --ulysses U and --ring R, whose product"},
      {"plan --gbs=8", "--gbs: unknown option; here it is --global-batch (see --help)"},
      {"sweep --heads 8 --topology dgx-h100", "--seq: missing"},
      {"sweep --heads 8 --seq 4K,,8K --topology dgx-h100", "--seq: '4K,,8K' has an empty place"},
      {"sweep --heads 8 --seq 4K,4096 --topology dgx-h100", "--seq: 4096 tokens stand twice"},
      {"sweep --heads 8 --seq 4K --topology dgx-h100,dgx-h10", "did you mean 'dgx-h100'?"},
      {"sweep --model llama-3.1-8b,lama-3.1-8b --seq 4K --topology dgx-h100",
       "did you mean 'llama-3.1-8b'?"},
      {"sweep --heads 8 --seq 4K --topology dgx-h100 --gpus 8,8", "--gpus: '8' stands twice"},
      {"sweep --heads 8 --seq 4K --topology dgx-h100 --gpus 8,16 --nodes 1,2", "--nodes: a list"},
      {"sweep --heads 8 --seq 4K --topology dgx-h100 --threads 0", "--threads"},
      {"sweep --heads 8 --seq 4K --topology dgx-h100 --grain 0", "--grain"},
      {"sweep --heads 8 --seq 4K --topology dgx-h100 --csv /nonexistent/map.csv", "--csv"},
      {"plan --heads 8 --seq 4K --cached 4K --topology dgx-h100",
       "--cached: keys that are cached have no gradient: of --phase fwd or prefill, not fwd+bwd"},
      {"plan --model wan2.1-t2v-14b --seq 4K --cached 4K --phase inference --topology dgx-h100",
       "--cached: of softmax attention in language models"},
      {"plan --heads 8 --seq 4K --cached 4K --documents 2K,2K --phase fwd --topology dgx-h100",
       "--cached: packed documents"},
      {"report", "report: a FILE is missing"},
      {"report /nonexistent.json", "/nonexistent.json: cannot be read"},
      {"report README.md", "README.md:1:1"},
      {"report topologies/gpus/h100-80g-sxm.json", "no report is made of 'sp-plan/gpu'"},
      {"report tests/support/data/documents/plan.json --json", "--json: unknown option"},
      {"model import models/llama-3.1-8b.json", "is a model of ours already"},
      {"model import topologies", "config.json"},
      {"verify --model llama-3.1-8b --seq 4K --tp 2 --scope leyer",
       "--scope: unknown scope 'leyer' (did you mean 'layer'?)"},
      {"verify --heads 8 --seq 4K --ulysses 2 --scope layer",
       "--scope: a layer is one of a model's"},
      {"verify --model llama-3.1-8b --seq 4K --tp 2 --phase fwd+bwd --scope layer",
       "--phase train"},
      {"simulate --model mixtral-8x7b --seq 4K --topology dgx-h100 --scope layer",
       "layers with experts are scheduled in whole steps only: give --scope step"},
      {"verify --model llama-3.1-8b --seq 4K --tp 2 --phase prefill --scope step",
       "--scope: a step is one of training"},
      {"verify --model mixtral-8x7b --seq 4098 --gpus 2 --ep 2 --scope step",
       "do not divide among 4 experts of a slot"},
      {"verify --model llama-3.1-8b --seq 4K --gpus 4 --pp 4 --virtual-stages 2 --global-batch 6 "
       "--pipeline interleaved --scope step",
       "interleaving takes a multiple of 4 micro-batches"},
      {"verify --model nemotron-h-56b --seq 4K --tp 2 --scope step",
       "a step of nemotron-h-56b cannot be scheduled: no schedule of a layer holds 'linear in'"},
      {"verify --schedule nothing.txt --scope layer", "--scope: given together with --schedule"},
      {"run --heads 8 --seq 1K --comm ring", "--comm: unknown transport 'ring'"},
      {"run --heads 8 --seq 1K --comm nccl",
       "--comm: nccl moves memory of GPUs: add --device cuda"},
      {"run --heads 8 --seq 1K --device tpu", "--device: unknown device 'tpu' (cpu or cuda)"},
      {"run --heads 8 --seq 1K --ranks-per-gpu 2",
       "--ranks-per-gpu: is for GPUs: add --device cuda"},
      {"run --heads 8 --seq 1K --kernels onedn", "did you mean 'onednn'?"},
      {"run --heads 8 --seq 1K --iters 0", "--iters"},
      {"run --heads 8 --seq 1K --comm mpi --ring 4 --dtype fp32", "mpirun"},
      {"verify --heads 8 --seq 4K --documents 1K,2K --ring 2",
       "add up to 3072 tokens, --seq says 4096"},
      {"run --heads 8 --seq 4K --documents lengths.txt --ring 2",
       "--documents: 'lengths.txt' is neither"},
      {"compare", "compare: needs two files, not 0"},
      {"compare missing-a.json missing-b.json", "missing-a.json: cannot be read"},
      {"regress --corpus /nonexistent", "/nonexistent: there is no such folder of corpus files"},
      {"regress --scope atention", "--scope: unknown 'atention' (did you mean 'attention'?)"},
      {"regress --file usp", "--file: 'usp' is not in the corpus"},
      {"regress --gate /nonexistent.json", "/nonexistent.json: cannot be read"},
      {"stack", "write 'sp-plan stack list'"},
      {"stack show yunchan", "did you mean 'yunchang'?"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --stack deepsped", "did you mean 'deepspeed'?"},
      {"--hlep", "did you mean '--help'?"},
      {"plan extra --heads 8 --seq 4K", "extra: unexpected"},
      {"topology lst", "did you mean 'list'?"},
      {"topology show", "a NAME is missing"},
      {"topology check", "a FILE is missing"},
      {"topology import x.xml", "x.xml: cannot be read"},
      {"topology import", "a FILE is missing"},
      {"topology list --gpu h100", "--gpu: 'topology list' has no use for it"},
      {"topology import tests/support/data/machines/topo-h100.txt",
       "topo-h100.txt:1: says nowhere which GPUs these are: give --gpu NAME"},
      {"topology import tests/support/data/machines/azure_ncv4-graph.xml", "NCCL_TOPO_DUMP_FILE"},
      {"topology import topologies/machines/dgx-h100.json", "'topology check' reads documents"},
      {"topology import README.md", "README.md: nothing in it that describes a machine"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --gpu h100", "--gpu: given together with"},
      {"plan --heads 8 --seq 4K --topology tests/support/data/machines/topo-h100.txt",
       "says nowhere which GPUs"},
      {"topology list twice", "twice: unexpected"},
      {"topology show dgx-h10", "did you mean 'dgx-h100'?"},
      {"topology check /nonexistent/machine.json", "cannot be read"},
      {"model show lama-3.1-8b", "did you mean 'llama-3.1-8b'?"},
      {"model import /nonexistent.json", "cannot be read"},
      {"model shwo x", "did you mean 'show'?"},
      {"completion", "which shell?"},
      {"completion tcsh", "unknown shell 'tcsh'"},
  });
}

TEST_CASE("a wrong option is refused with one line that names the place") {
  check_refused({
      {"plan --heads 8 --seq 4K --topolgy dgx-h100",
       "--topolgy: unknown option (did you mean '--topology'?)"},
      {"plan --heads 8 --seq 4K --ulyses=4",
       "--ulyses: unknown option (did you mean '--ulysses'?)"},
      {"plan --xyzzy", "--xyzzy: unknown option"},
      {"plan -z", "-z: unknown option"},
      {"plan --seq", "--seq: a value is missing"},
      {"plan --seq --heads 8", "--seq: a value is missing"},
      {"plan --seq= --heads 8", "--seq: a value is missing"},
      {"plan --json=no --heads 8", "--json: takes no value"},
      {"plan --heads 8 --seq 4K --seq 8K --topology dgx-h100", "--seq: given 2 times"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --json --table",
       "--json: given together with --table"},
      {"model list --heads 8", "--heads: unknown option"},
  });
}

TEST_CASE("a wrong workload is refused with one line that names the place") {
  check_refused({
      {"plan --seq 4K --topology dgx-h100", "--model: missing"},
      {"plan --heads 8 --topology dgx-h100", "--seq: missing"},
      {"plan --model lama --seq 4K --topology dgx-h100", "--model: unknown model 'lama'"},
      {"plan --model llama-3.1-8b --heads 8 --seq 4K --topology dgx-h100",
       "--heads: given together with --model"},
      {"plan --model /nonexistent/config.json --seq 4K --topology dgx-h100", "--model: "},
      {"plan --heads 8 --seq 0 --topology dgx-h100", "--seq: 0 tokens is out of range"},
      {"plan --heads 8 --seq -5 --topology dgx-h100", "--seq: -5 tokens is out of range"},
      {"plan --heads 8 --seq 4KB --topology dgx-h100", "--seq: '4KB' is not a number of tokens"},
      {"plan --heads 8 --seq 9223372036854775808 --topology dgx-h100",
       "--seq: 9223372036854775808 tokens is out of range"},
      {"plan --heads 8 --seq 4M5 --topology dgx-h100", "--seq: '4M5'"},
      {"plan --heads 0 --seq 4K --topology dgx-h100", "--heads: 0 is out of range"},
      {"plan --heads 8.5 --seq 4K --topology dgx-h100", "--heads: '8.5' is not a whole number"},
      {"plan --heads 8 --kv-heads 3 --seq 4K --topology dgx-h100",
       "--kv-heads: 3 does not divide --heads 8"},
      {"plan --heads 8 --head-dim -1 --seq 4K --topology dgx-h100",
       "--head-dim: -1 is out of range"},
      {"plan --heads 8 --value-dim 0 --seq 4K --topology dgx-h100",
       "--value-dim: 0 is out of range"},
      {"plan --model llama-3.1-8b --value-dim 64 --seq 4K --topology dgx-h100",
       "--value-dim: given together with --model"},
      {"plan --heads 8 --value-dim 64 --attention linear --seq 4K --topology dgx-h100",
       "--value-dim: linear attention has values as wide as keys (128), not 64"},
      {"plan --heads 8 --seq 4K --batch 0 --topology dgx-h100", "--batch: 0 is out of range"},
      {"plan --heads 4096 --head-dim 2048 --batch 65536 --seq 2048M --topology dgx-h100",
       "too large"},
      {"plan --heads 8 --seq 4K --phase trian --topology dgx-h100",
       "--phase: unknown value 'trian' (did you mean 'train'?)"},
      {"plan --heads 8 --seq 4K --phase train --topology dgx-h100",
       "--phase: train needs a --model"},
      {"plan --heads 8 --seq 4K --mask caual --topology dgx-h100",
       "--mask: unknown mask 'caual' (did you mean 'causal'?)"},
      {"plan --heads 8 --seq 4K --mask window:8K --topology dgx-h100",
       "--mask: window:8192 is longer than the sequence of 4096 tokens; expected causal, or less"},
      {"plan --model llama-3.1-8b --seq 4K --mask window:1K --topology dgx-h100",
       "--mask: window:1024: of a bare shape (--heads)"},
      {"plan --heads 8 --seq 4K --documents lognormal:median=2K --topology dgx-h100",
       "--documents: lognormal needs sigma=…"},
      {"plan --heads 8 --seq 4K --documents lognormal:median=2K,sigma=9 --topology dgx-h100",
       "--documents: sigma 9 (of the natural logarithm of lengths) is not between 0 and 5"},
      {"plan --heads 8 --seq 4K --documents histogram:/none --topology dgx-h100", "/none"},
      {"plan --heads 8 --seq 4K --documents lognormal:median=2K,sigma=1,sigma=2 --topology "
       "dgx-h100",
       "--documents: 'sigma' is given 2 times"},
      {"plan --heads 8 --seq 4K --documents 1K,4K --topology dgx-h100",
       "the lengths add up to 5120 tokens, --seq says 4096"},
      {"simulate --heads 8 --seq 4K --documents 4K,0 --topology dgx-h100",
       "--documents: 0 tokens is out of range"},
      {"sweep --heads 8 --seq 4K --documents=-1,4097 --topology dgx-h100",
       "--documents: -1 tokens is out of range"},
      {"plan --heads 8 --seq 2 --documents 1,1,1 --topology dgx-h100",
       "3 documents are more than the 2 tokens"},
      {"plan --heads 8 --seq 4K --dtype fp8 --topology dgx-h100", "--dtype: unknown value 'fp8'"},
      {"plan --heads 8 --seq 4K --topology dgx-2-v100", "--dtype: "},
      {"plan --heads 8 --seq 4K --global-batch 64 --topology dgx-h100",
       "--global-batch: of a train step; --phase is fwd+bwd"},
      {"plan --model llama-3.1-8b --seq 4K --global-batch 0 --topology dgx-h100",
       "--global-batch: 0 is out of range"},
      {"plan --heads 8 --seq 4K --flops-convention half --topology dgx-h100",
       "--flops-convention: unknown value 'half'"},
      {"plan --heads 8 --seq 4K --flops-convention model-6N --topology dgx-h100",
       "model-6N needs a --model"},
  });
}

TEST_CASE("a wrong machine is refused with one line that names the place") {
  check_refused({
      {"plan --heads 8 --seq 4K", "--topology: missing"},
      {"plan --heads 8 --seq 4K --topology dgx-h1000", "did you mean 'dgx-h100'?"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --gpu a100-80g-sxm",
       "--gpu: given together with --topology"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --inter ib:8x400Gb/s",
       "--inter: given together with --topology"},
      {"plan --heads 8 --seq 4K --gpu a100-80g-smx", "did you mean 'a100-80g-sxm'?"},
      {"plan --heads 8 --seq 4K --gpu a100-80g-sxm --intra 300", "--intra: "},
      {"plan --heads 8 --seq 4K --gpu a100-80g-sxm --inter ib:8x400", "--inter: "},
      {"plan --heads 8 --seq 4K --gpu a100-80g-sxm --inter ib", "--inter: "},
      {"plan --heads 8 --seq 4K --gpu a100-80g-sxm --nodes 2", "--inter: 2 nodes need a network"},
      {"plan --heads 8 --seq 4K --topology 8xl20-pcie --nodes 2",
       "--inter: 2 nodes need a network, and 8xl20-pcie has none; for example"},
      {"plan --heads 8 --seq 4K --gpu a100-80g-sxm --gpus-per-node 0",
       "--gpus-per-node: 0 is out of range"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --nodes 0", "--nodes: 0 is out of range"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --nodes 1000000", "--nodes: "},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --nodes 4 --gpus 9",
       "--nodes: 4 nodes for 9 GPUs"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --nodes 1 --gpus 16",
       "--gpus: 16 GPUs, but 1 x dgx-h100 has 8; give --nodes 2"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --gpus 99999999999999999999", "--gpus: "},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --memory 80",
       "--memory: 80 is a number without its unit"},
      {"plan --heads 8 --seq 4K --gpu h100-80g-sxm --inter ib:0x400Gb/s",
       "--inter: NICs: 0 is out of range"},
      {"simulate --model llama-3.1-8b --seq 8K --topology dgx-h100 --dp 8 --zero-group 7",
       "--zero-group: groups of 7"},
      {"export --list extra", "extra: unexpected"},
      {"export --list --framework nope", "--framework: given together with --list"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --memory 80G", "did you mean 'GB'?"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --memory -80GB",
       "--memory: -80 is not a positive number"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --memory 1e30GB", "--memory: "},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --memory nanGB", "--memory: "},
      {"plan --heads 8 --seq 4K --profile /nonexistent/p.json",
       "/nonexistent/p.json: cannot be read"},
      {"plan --heads 8 --seq 4K --profile topologies/machines/dgx-h100.json",
       "format: 'sp-plan/machine' is not 'sp-plan/profile'"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --profile tests/support/data/cpu-2x2.json",
       "--profile: 'cpu-2x2' was measured on GPU 'cpu-core', but dgx-h100 has 'h100-80g-sxm'"},
      {"plan --heads 8 --seq 4K --gpu a100-80g-sxm --profile tests/support/data/cpu-2x2.json",
       "--gpu: given together with --profile, which says it already"},
      {"plan --heads 8 --seq 4K --dtype fp16 --profile tests/support/data/cpu-2x2.json",
       "--dtype: GPU 'cpu-core' has no matrix units for fp16"},
  });
}

TEST_CASE("a wrong degree is refused with one line that names the place") {
  check_refused({
      {"plan --heads 8 --seq 4K --topology dgx-h100 --ulysses 2 --ring 2",
       "--ulysses: 2 x --ring 2 = 4, but there are 8 GPUs"},
      {"simulate --heads 8 --seq 4K --topology dgx-h100 --ulysses 3",
       "--ulysses: 3 does not divide the 8 GPUs"},
      {"simulate --heads 8 --seq 4K --topology dgx-h100 --ring 5",
       "--ring: 5 does not divide the 8 GPUs"},
      {"verify --heads 8 --seq 4K --ring 8 --team 4", "--team: 4 squared is 16"},
      {"verify --heads 8 --seq 4K --ring 8 --window 3", "--window: 3 does not divide"},
      {"verify --heads 8 --seq 4K --ring 8 --team 0", "--team: 0 is out of range"},
      {"verify --heads 8 --kv-heads 2 --seq 4K --strategy ulysses --ulysses 4 --heads-policy "
       "divide",
       "--ulysses: "},
      {"verify --heads 8 --seq 4K --strategy zigzg-ring --ring 4", "did you mean 'zigzag-ring'?"},
      {"verify --heads 8 --seq 4K --strategy ulysses --ring 4", "--strategy: "},
      {"verify --heads 8 --seq 4K --strategy zigzag-ring --layout striped --ring 4", "--layout: "},
      {"verify --heads 8 --seq 4K --layout document-zigzag --ring 4",
       "--layout: document-zigzag deals out packed documents; --documents says which"},
      {"plan --heads 8 --seq 4K --layout document-zigzag --topology dgx-h100",
       "--layout: document-zigzag deals out packed documents; --documents says which"},
      {"verify --heads 8 --seq 4K --documents 4000,96 --layout document-zigzag --strategy "
       "striped-ring --ring 4",
       "--layout: striped-ring U1xR4 document-zigzag is not legal: striped-ring does not use"},
      {"verify --heads 8 --seq 4K --layout zigzga --ring 4", "--layout: unknown value 'zigzga'"},
      {"verify --heads 8 --seq 4K --ring 4 --order ring,ring",
       "--order: axis 'ring' is named twice"},
      {"verify --heads 8 --seq 4K --ring 4 --rank-order blok", "did you mean 'block'?"},
      {"verify --heads 8 --seq 4 --ring 4", "--seq: "},
      {"verify --heads 8 --seq 4K --ring 4 --nodes 2", "--nodes: needs a machine"},
      {"simulate --model llama-3.1-8b --seq 4K --topology dgx-h100 --ulysses 4 --dp 2 --rank-order "
       "cyclic",
       "--rank-order: cyclic deals out the ranks of a sequence, of which there are 4 of 8: block, "
       "or tp, dp, pp and cfg of 1"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --tp 2",
       "--tp: 2 around one attention call; a whole step of a --model has such degrees"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --dp 2", "--dp: 2 around one attention call"},
      {"plan --model llama-3.1-8b --seq 4K --topology dgx-h100 --tp 3",
       "--tp: tp 3 x ulysses 1 x ring 1 x dp 1 x pp 1 = 3, which does not divide the 8 GPUs"},
      {"plan --model llama-3.1-8b --seq 4K --topology dgx-h100 --tp 2 --ulysses 1 --ring 1 --dp 2 "
       "--pp 1",
       "= 4, which is not the 8 GPUs"},
      {"simulate --model llama-3.1-8b --seq 4K --topology dgx-h100 --pp 5 --gpus 5 --global-batch "
       "5",
       "--pp: 32 layers do not divide into 5 stages (nearest: 4 and 8)"},
      {"plan --model llama-3.1-8b --seq 4K --topology dgx-h100 --ep 2",
       "--ep: 2, and llama-3.1-8b has no experts"},
      {"plan --model mixtral-8x7b --seq 4K --topology dgx-h100 --nodes 2 --ep 16",
       "--ep: 16 does not divide the 8 experts"},
      {"simulate --model llama-3.1-8b --seq 4K --topology dgx-h100 --pp 4 --virtual-stages 2 "
       "--global-batch 6",
       "--pipeline: interleaving takes a multiple of 4 micro-batches, not 6 (nearest: 4)"},
      {"plan --model llama-3.1-8b --seq 4K --topology dgx-h100 --dp 8 --global-batch 4",
       "--global-batch: 4 sequences do not divide over --dp 8: fewer than replicas"},
      {"plan --model llama-3.1-8b --seq 4K --topology dgx-h100 --pipeline interleave",
       "did you mean 'interleaved'?"},
      {"plan --model llama-3.1-8b --seq 4K --topology dgx-h100 --offload weight", "--offload: "},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --pp 0", "--pp: 0 is out of range"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --zero 4", "--zero: 4 is out of range"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --recompute som", "--recompute: "},
  });
}

TEST_CASE("what a call or an inference has no use for is refused, not taken and left out") {
  const std::string bare = "plan --heads 8 --seq 4K --topology dgx-h100 ";
  const std::string prompt =
      "plan --model llama-3.1-8b --seq 4K --topology dgx-h100 --phase prefill ";
  const std::string step = "--model llama-3.1-8b --seq 4K --topology dgx-h100 ";
  const std::string whole = ": of a whole step of a --model, train or prefill; --phase is fwd+bwd";
  check_refused({
      {bare + "--zero 3", "--zero" + whole},
      {bare + "--gemm-format fp8", "--gemm-format" + whole},
      {bare + "--pipeline gpipe", "--pipeline" + whole},
      {bare + "--recompute full", "--recompute: of a train step; --phase is fwd+bwd"},
      {bare + "--offload activations", "--offload: of a train step; --phase is fwd+bwd"},
      {prompt + "--recompute full", "--recompute: of a train step; --phase is prefill"},
      {prompt + "--offload optimizer", "--offload: of a train step; --phase is prefill"},
      {prompt + "--zero 1", "--zero: 1 and 2 cut what only a train step has"},
      {"simulate --dp 8 --pipeline gpipe " + step,
       "--pipeline: gpipe orders the stages of a pipeline; --pp says how many"},
      {"plan --pp 1 --pipeline gpipe " + step,
       "--pipeline: gpipe orders the stages of a pipeline; --pp is 1"},
      {"plan --phase decode " + step,
       "--phase: unknown value 'decode' (one of: inference, fwd, bwd, fwd+bwd, prefill, train)"},
  });
  // What they have, they take.
  CHECK(sp_plan(prompt + "--zero 3 --recompute none --offload none").code == 0);
}

TEST_CASE("a wrong option of one command is refused with one line that names the place") {
  check_refused({
      {"plan --heads 8 --seq 4K --topology dgx-h100 --top 0", "--top: 0 is out of range"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --objective speed",
       "--objective: unknown value 'speed'"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --emit megatrom",
       "--emit: unknown framework 'megatrom' (did you mean 'megatron'?)"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 --framework deep-speed",
       "--framework: unknown framework 'deep-speed' (did you mean 'deepspeed'?)"},
      {"export --heads 8 --seq 4K", "--framework: missing"},
      {"export --framework pytorch --heads 8 --seq 4K", "--framework: unknown framework 'pytorch'"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 -o /nonexistent/out.json",
       "--output: '/nonexistent/out.json' cannot be written: no such folder"},
      {"plan --heads 8 --seq 4K --topology dgx-h100 -o /tmp", "--output: '/tmp' is a folder"},
      {"simulate --plan /nonexistent.json", "/nonexistent.json: cannot be read"},
      {"simulate --plan x.json --ulysses 2", "--ulysses: given together with --plan"},
      {"simulate --heads 1 --seq 1M --topology dgx-h100 --nodes 128 --ring 1024 --trace "
       "/tmp/t.json",
       "--trace: 1024 ranks are too many"},
      {"verify --schedule /nonexistent.txt", "--schedule: '/nonexistent.txt' cannot be read"},
      {"verify --schedule x.txt --seq 4K", "--seq: given together with --schedule"},
      {"verify --schedule x.txt --mask causal", "--mask: given together with --schedule"},
      {"verify --schedule x.txt --tp 2", "--tp: given together with --schedule"},
  });
}

TEST_CASE("a wrong file is refused with its name and key") {
  const spp::test::TempDir dir;
  const std::string work = " --heads 8 --seq 4K";
  const auto refused = [&](const std::string& text, const std::string& message) {
    const auto file = dir.write("machine.json", text);
    check_refused("plan" + work + " --topology " + file.string(), 2, message);
  };
  refused("", "machine.json: is empty");
  refused("{\"format\": ", "not JSON");
  refused("{}", "machine.json: ");
  refused(R"({"format": "sp-plan/machine", "format_version": "2.0"})", "format_version");
  const auto xml = dir.write("topo.xml", "<system version=\"1\"></system>");
  check_refused("plan" + work + " --topology " + xml.string(), 2, "topo.xml:1: has no <cpu>");
  const auto matrix = dir.write("topo.txt", "\tGPU0\tGPU1\n");
  check_refused("plan" + work + " --topology " + matrix.string(), 2,
                "topo.txt: nothing in it that describes a machine");
  const auto plan =
      dir.write("plan.json", R"({"strategy": "usp", "ulysses": 2, "ring": 2, "teem": 1})");
  check_refused("verify --plan " + plan.string() + work, 2, "did you mean 'team'?");
  const auto list = dir.write("list.json", "[1]");
  check_refused("verify --plan " + list.string() + work, 2, "is not a plan");
  const auto schedule = dir.write("schedule.txt", "sp-plan/schedule 9.0\n");
  check_refused("verify --schedule " + schedule.string(), 2, "schedule.txt:1");
}

TEST_CASE("a data folder that is none is named") {
  const Result r = sp_plan("topology list",
                           {.environment = {{"SP_PLAN_DATA", "/nonexistent"}}, .terminal = false});
  CHECK(r.code == 2);
  CHECK_THAT(r.err,
             ContainsSubstring("SP_PLAN_DATA: '/nonexistent' has no topologies/ and models/"));
}

TEST_CASE("what does not fit ends with 3 and says what would") {
  const Result r = sp_plan("plan --model llama-3.1-70b --seq 1M --topology dgx-h100 --quiet");
  CHECK(r.code == 3);
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  CHECK_THAT(r.err, ContainsSubstring("nothing fits: the smallest of "));
  CHECK_THAT(r.err, ContainsSubstring(" usable a GPU"));
  CHECK_THAT(r.out, ContainsSubstring("\"best\": null"));
}

TEST_CASE("a simulated step that does not fit says with what it would") {
  const std::string step =
      "simulate --model llama-3.1-70b --seq 256K --topology dgx-h100 --ulysses 8";
  const Result r = sp_plan(step + " --nodes 4 --zero 3 --quiet");
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("; with --recompute full it fits ("));
  const Result never = sp_plan(step + " --nodes 1 --quiet");
  CHECK(never.code == 3);
  CHECK_THAT(never.err, ContainsSubstring("; even with --zero 3 --recompute full it needs "));
}

TEST_CASE("without a legal plan the exit code is 3 and the rule is named") {
  const Result r = sp_plan(
      "plan --heads 8 --seq 4K --topology dgx-h100 --strategy ulysses --ulysses 8 --heads-policy "
      "pad");
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("no legal plan for 8 GPUs"));
  CHECK_THAT(r.err, ContainsSubstring("nothing to pad"));
}

TEST_CASE("a GPU that is not there is a failing back end, said in one line") {
  if (std::filesystem::exists("/dev/nvidia0")) {
    SPP_SKIP("here is a GPU");
  }
  const Result r = sp_plan("run --heads 8 --head-dim 64 --seq 1K --ring 2 --device cuda");
  CHECK(r.code == 1);
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  CHECK_THAT(r.err, ContainsSubstring("--device cuda: no"));  // no driver, no GPU, not compiled in
}

TEST_CASE("ranks of a run behind the first say which they are, and nobody else does") {
  const std::map<std::string, std::string> torchrun{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}};
  const std::map<std::string, std::string> mpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  for (const auto& environment : {torchrun, mpich}) {
    for (const std::string line : {"plan --heads 0", "verify --heads 0", "no-command", "compare"}) {
      INFO(line);
      const Result r = sp_plan(line, {.environment = environment});
      CHECK(r.code == 2);
      CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
      CHECK_THAT(r.err, !ContainsSubstring("rank 1"));
    }
    const Result table = sp_plan("topology list", {.environment = environment, .terminal = true});
    CHECK_THAT(table.out, ContainsSubstring("\x1b["));
  }
  const std::string run = "run --heads 0 --seq 1K";
  const auto of_rank = StartsWith("sp-plan: rank 1 on ");
  CHECK_THAT(sp_plan(run, {.environment = mpich}).err, of_rank);
  CHECK_THAT(sp_plan(run, {.environment = torchrun}).err, of_rank);
  CHECK_THAT(sp_plan(run + " --comm inproc", {.environment = mpich}).err, !of_rank);
  CHECK_THAT(sp_plan(run + " --device cuda", {.environment = torchrun}).err, of_rank);
}
