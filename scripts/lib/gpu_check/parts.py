"""Which steps there are, in the order in which they teach most; and what each rests on."""

from gpu_check import correctness, environment, node, plans, sharing, talking, times, training
from gpu_check.visit import Step

GPU = ("sp-plan runs on a GPU",)
CUDNN = {"no_stand_in": "this stand-in was built without cuDNN", "stand_in_has": "cudnn"}
NCCL = {"no_stand_in": "this stand-in was built without NCCL", "stand_in_has": "nccl"}

ENVIRONMENT = Step(
    "environment", "What this machine is: GPUs, driver, libraries and where they lie, limits; and whether anything of ours runs.",
    30, environment.look_around, always=True)

FIRST = (
    ENVIRONMENT,
    Step("our-kernels", "Whether our own kernels, elementwise and the reference attention, compute on this GPU what the host computes.",
         45, correctness.our_kernels, GPU, "later steps show it in their numbers"),
    Step("reference", "Whether schedules, messages and memory are right on a GPU when no cuDNN is involved.",
         30, correctness.reference, GPU, "none: everything rests on it"),
    Step("cudnn-numbers", "Whether our cuDNN graphs are accepted, and O, LSE, dQ, dK and dV are right, on the primary stream.",
         60, correctness.cudnn, GPU, "later steps run the reference, or cuDNN's forward alone", **CUDNN),
    Step("splits", "How many SMs ranks that share a GPU really get, for 2, 4 and 8 ranks, and whether they keep to them.",
         30, sharing.splits, GPU, "ranks share all SMs"),
    Step("cudnn-on-shares", "Whether cuDNN is right on streams of green contexts, with plans for fewer SMs, and keeps to its share.",
         50, sharing.cudnn_on_shares, (*GPU, "cuDNN forward runs"),
         "later steps whose ranks share the GPU run the reference",
         **CUDNN),
    Step("queues-and-copies", "What hardware queues do to eight ranks' streams, and whether copies really run beside attention.",
         40, sharing.queues, GPU, "the reference's kernels, over shorter sequences"),
    Step("latencies", "What the first iteration, launches and compiled plans cost, against later iterations.",
         40, times.latencies, GPU, "the reference's kernels only"),
    Step("nccl", "Whether NCCL's calls are right between processes: on a GPU each, or on one as pretended hosts.",
         45, talking.nccl, GPU, "the reference's kernels", **NCCL),
    Step("strategies", "Whether one plan of every strategy gives single-device attention's numbers.",
         50, plans.strategies, GPU, "the reference's kernels"),
    Step("rates", "Attention kernels alone beside PyTorch's SDPA with its cuDNN back end, and the clocks meanwhile.",
         50, times.rates, GPU, "the reference's rate, which says nothing"),
    Step("calibration", "One calibration, and one plan of each (U, R, C) beside what it predicts.",
         80, plans.calibrated_plans, GPU, "the reference's kernels, over a short sequence"),
)

SECOND = (
    ENVIRONMENT,
    Step("tests", "All other tests of the label gpu.", 60, correctness.other_tests, GPU,
         no_stand_in="the build's tests have stand-ins of their own"),
    Step("numbers-at-large", "Numbers over lengths, heads, types and masks that plans really have.", 90,
         correctness.large,
         (*GPU, "cuDNN forward runs"), "ranks that share the GPU: the reference", **CUDNN),
    Step("more-ranks", "Twelve and sixteen ranks on one GPU, and emulated nodes.", 40, sharing.more_ranks, GPU,
         "the reference's kernels"),
    Step("more-nccl", "Four processes over NCCL, and plans of two axes.", 30, talking.more_nccl,
         (*GPU, "NCCL is right"), "the reference's kernels",
         **NCCL),
    Step("all-rates", "Rates beside PyTorch's over all lengths and masks.", 60, times.all_rates, GPU,
         "the reference's rate",
         no_stand_in="a stand-in's rates are no rates"),
    Step("calibrations", "Calibrations of 8, 4 and 2 ranks over all lengths.", 100, plans.calibrations, GPU,
         "the reference's kernels",
         no_stand_in="it takes a stand-in minutes"),
    Step("all-plans", "Legal plans beside their predictions, as many as there is time for: errors, and what following them costs.",
         120, plans.all_plans, GPU, "the reference's kernels", no_stand_in="it takes a stand-in minutes"),
    Step("sanitizer", "Our kernels and a few runs under compute-sanitizer.", 60, correctness.sanitizer, GPU,
         no_stand_in="the build's tests have sanitizers of their own"),
)

CUDNN_STEPS = ("cudnn-numbers", "cudnn-on-shares")
STEPS = (
    Step("layers", "Whether whole layers give one device's numbers, forward and backward.", 40, training.layers, GPU,
         "the reference's kernels"),
    Step("training-steps", "Whether a training step leaves one device's parameters: TP, DP, ZeRO, pipelines, experts.", 50,
         training.training_steps, GPU, "none: they run the reference's attention"),
    Step("over-nccl", "The same between processes over NCCL: on a GPU each, or on one as pretended hosts.", 60,
         training.over_nccl, GPU, "none: they run the reference's attention", **NCCL),
    Step("layer-times", "What layers and a step of a large model take, beside the catalog's prediction and a calibration's.", 240,
         training.layer_times, GPU, "the reference's kernels"),
)

LAUNCHED = (*GPU, "ranks are launched")
NODE = (
    ENVIRONMENT,
    Step("nodes", "What every node is: GPUs, links between them, network cards.", 15, node.inspect,
         no_stand_in="it has no nodes"),
    Step("launching", "How ranks are started here, and whether they compute the right numbers over NCCL.", 40,
         node.launching, GPU,
         "the next launcher there is", **NCCL),
    Step("cudnn-on-one", "Whether our cuDNN graphs are accepted, and O, LSE, dQ, dK and dV are right, on one GPU.", 50,
         correctness.cudnn, GPU, "later steps run the reference, or cuDNN's forward alone", **CUDNN),
    Step("node-strategies", "Whether one plan of every strategy gives single-device attention's numbers over NCCL.", 60,
         node.node_strategies, LAUNCHED, "the reference's kernels"),
    Step("links", "Latency and bandwidth of messages and collectives between these GPUs.", 70, node.links, LAUNCHED),
    Step("nccl-tests", "What NCCL's own tests say of the same links, where they are installed.", 40,
         node.links_by_nccl_tests, LAUNCHED),
    Step("node-calibration", "Links and attention blocks of these GPUs: what predictions rest on.", 140,
         node.calibration, LAUNCHED,
         "the reference's kernels, over a short sequence"),
    Step("node-plans", "Plans of every (U, R, C) beside what was predicted for them.", 140, node.node_plans,
         LAUNCHED, "the reference's kernels"),
    Step("one-gpu-rates", "Attention kernels alone on one GPU beside PyTorch's SDPA, and the clocks meanwhile.", 50,
         times.rates, GPU,
         "the reference's rate, which says nothing"),
)

# Parts: their steps by number, and the seconds that they take at most, unless --budget says more or less.
PARTS = {
    "first": ([(i + 1, step) for i, step in enumerate(FIRST)], 480),
    "second": ([(i + 20 if i else 1, step) for i, step in enumerate(SECOND)], 540),
    # What they rest on has the number that it has in the first part, which may have found it already.
    "steps": ([(1, ENVIRONMENT), *((i + 1, step) for i, step in enumerate(FIRST) if step.name in CUDNN_STEPS),
               *((i + 61, step) for i, step in enumerate(STEPS))], 480),
    "node": ([(i + 40 if i else 1, step) for i, step in enumerate(NODE)], 1500),
}
