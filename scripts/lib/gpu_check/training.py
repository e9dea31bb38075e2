"""Steps about whole layers and training steps: their kernels, their numbers, over NCCL too, and what they take
beside what was predicted."""

import dataclasses
import json
import pathlib

from gpu_check import plans, sp_plan, talking, times
from gpu_check.sp_plan import length

# Small enough for the host to compute it again in fp64; as many heads and experts as eight ranks divide.
SMALL = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8,
         "num_key_value_heads": 4, "intermediate_size": 384, "vocab_size": 512}
TINY = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 64}
EXPERTS = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 192}
# Heads that cuDNN's attention takes, with norms of heads and one table of words.
NORMED = {"model_type": "qwen3", "head_dim": 64, "hidden_size": 256, "tie_word_embeddings": True}
# Matrices of LLaMA 3.1 8B, of which two layers, and an eighth of the words: the host makes all of its numbers.
LARGE = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 16032}


def config_of(model, stand_in):
    """A config.json; a stand-in's takes milliseconds."""
    if model == "large" and not stand_in:
        return LARGE
    of_model = {"small": {}, "large": {}, "experts": EXPERTS, "normed": NORMED}[model]
    return SMALL | of_model | (TINY | ({"head_dim": 8} if model == "normed" else {}) if stand_in else {})


@dataclasses.dataclass(frozen=True)
class Work:
    """A layer of a model, or its training step; degrees are words of the command line."""

    model: pathlib.Path
    scope: str
    seq: int
    dtype: str = "fp32"

    def words(self):
        return ["--model", self.model, "--scope", self.scope, "--seq", self.seq, "--dtype", self.dtype]


def work(ctx, model, scope, seq, dtype="fp32"):
    file = ctx.logs / f"{model}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config_of(model, ctx.args.stand_in)))
    return Work(file, scope, seq, dtype)


def degrees(**wanted):
    words = []
    for name, value in wanted.items():
        words += [f"--{name.replace('_', '-')}", value]
    return words


def ranks_of(words):
    """Of a plan as words; experts are folded over the other axes."""
    ranks = 1
    for name, value in zip(words[::2], words[1::2]):
        ranks *= value if name in ("--tp", "--ulysses", "--ring", "--dp", "--pp") else 1
    return ranks


def shown_numbers(entry):
    """The tensor that is nearest to its limit: layers and steps have dozens."""
    found = {name: ratio for name, ratio in sp_plan.errors(entry["run"]).items() if ratio is not None}
    worst = max(found, key=found.get, default=None)
    return f"{len(found)} tensors right, the worst {worst} {found[worst]:.2g} of its limit" if worst else "not checked"


def checked(ctx, key, what, words, kernels="reference", **more):
    return ctx.sp_run(key, what, words, kernels=kernels, ranks=ranks_of(words), said=shown_numbers,
                      **({"iters": 2} | more))


def conclude(ctx, name):
    bad = [e["failed"] for e in ctx.record["entries"] if e["failed"]]
    holds = ctx.record["entries"] and not bad and not ctx.record["left_out"]
    ctx.establish(name, holds, bad[0] if bad else "" if holds else "not all of it ran")


def layers(ctx):
    """One rank, then tensor ranks with every kind of sequence parallelism inside; in bf16 with cuDNN."""
    small, normed = work(ctx, "small", "layer", 256), work(ctx, "normed", "layer", 256, "bf16")
    for name, words in (("1 rank", degrees(tp=1)), ("TP 2", degrees(tp=2)), ("TP 2 x ring 2", degrees(tp=2, ring=2)),
                        ("TP 2 x Ulysses 2", degrees(tp=2, ulysses=2)),
                        ("USP 2 x 2", degrees(ulysses=2, ring=2)),
                        ("StarTrail", degrees(strategy="startrail", ulysses=1, ring=4, team=2)),
                        ("all-gather", degrees(strategy="all-gather", ulysses=1, ring=2))):
        checked(ctx, name, small, words)
    fast = ctx.attention(shared=False)
    shared = ctx.attention(shared=True)
    checked(ctx, f"1 rank, bf16, norms of heads, {fast.name}", normed, degrees(tp=1), fast.name)
    checked(ctx, f"TP 2 x ring 2, bf16, norms of heads, {shared.name}", normed, degrees(tp=2, ring=2), shared.name)
    conclude(ctx, "layers are right")


STEPS = (("1 rank", "small", degrees(tp=1)),
         ("TP 2 x DP 2, ZeRO 1", "small", degrees(tp=2, dp=2, zero=1)),
         ("ring 2 x DP 2, ZeRO 3", "small", degrees(ring=2, dp=2, zero=3)),
         ("PP 2 x TP 2, 1F1B", "small", degrees(pp=2, tp=2, global_batch=4)),
         ("PP 2 x DP 2, ZB-H1", "small", degrees(pp=2, dp=2, global_batch=8, pipeline="zero-bubble")),
         ("one table, norms of heads, TP 2 x PP 2", "normed", degrees(tp=2, pp=2, global_batch=4)),
         ("experts 4 over TP 2 x DP 2", "experts", degrees(tp=2, dp=2, ep=4, zero=1)),
         ("experts 8 over ring 2 x DP 4", "experts", degrees(ring=2, dp=4, ep=8)),
         ("all computed again, Ulysses 2 x DP 2, ZeRO 2", "small", degrees(ulysses=2, dp=2, zero=2, recompute="full")))


def training_steps(ctx):
    """From words to updated parameters: TP, DP, ZeRO, pipelines, experts, recomputation."""
    for name, model, words in STEPS:
        checked(ctx, name, work(ctx, model, "step", 128), words)
    conclude(ctx, "training steps are right")


def over_nccl(ctx):
    """Processes of their own: on one GPU each pretends to be a host."""
    gpus = talking.gpu_count(ctx)
    for name, model, scope, words in (("TP 2, a layer", "small", "layer", degrees(tp=2)),
                                      ("TP 2", "small", "step", degrees(tp=2)),
                                      ("DP 2, ZeRO 3", "small", "step", degrees(dp=2, zero=3)),
                                      ("PP 2", "small", "step", degrees(pp=2, global_batch=2)),
                                      ("experts 2 over DP 2", "experts", "step", degrees(dp=2, ep=2, zero=1)),
                                      ("PP 2 x TP 2", "small", "step", degrees(pp=2, tp=2, global_batch=4)),
                                      ("ring 2 x DP 2, ZeRO 2", "small", "step", degrees(ring=2, dp=2, zero=2))):
        ranks = ranks_of(words)
        ctx.launch = talking.processes(ranks, gpus < ranks)
        try:
            checked(ctx, f"{ranks} processes, {name}", work(ctx, model, scope, 128), words, comm="nccl",
                    env=talking.logged(ctx, "run"))
        finally:
            ctx.launch = None
            ctx.kept_logs(*ctx.logs.glob("*.nccl.*"))
    conclude(ctx, "training steps over NCCL are right")


# ---- times


def shown_parts(entry):
    """Where the time went, beside the prediction."""
    run = entry["run"]
    parts = {name: sum(part[name] for part in run["phases"].values())
             for name in ("attention_s", "gemm_s", "other_kernels_s", "exposed_s", "imbalance_s", "launch_bound_s")}
    total = sum(parts.values()) or 1
    text = ", ".join(f"{name.removesuffix('_s').replace('_', ' ')} {100 * value / total:.0f} %"
                     for name, value in parts.items() if value > 0)
    return f"{plans.shown_error(entry)}; {text}"


def layer_times(ctx):
    """Layers and a step of a large model's matrices: by the catalog's GPU, then by a calibration of this one."""
    lengths = (64,) if ctx.args.stand_in else (4096, 16384)
    ranks = (1,) if ctx.args.stand_in else (1, 2)
    dtype = ctx.sizes.plans.dtype
    fast = ctx.attention(shared=False)
    catalog = ["--gpu", ctx.args.gpu, "--gpus-per-node", 8, "--nodes", 1]
    many = {"kernels": fast.name, "check": False, "said": shown_parts, "patience": 3}
    for seq in lengths:
        ctx.sp_run(f"a layer, {length(seq)}, as the catalog has this GPU", work(ctx, "large", "layer", seq, dtype), catalog,
                   iters=10, **many)
    ctx.sp_run(f"a step, {length(lengths[0])}, as the catalog has this GPU", work(ctx, "large", "step", lengths[0], dtype),
               catalog, iters=3, **many)
    if not ctx.args.stand_in:
        beside_torch(ctx, lengths, dtype)
    for n in ranks:
        words = ["--suite", "attention,elementwise,layer"] if n == 1 else []
        if not plans.calibrate(ctx, n, lengths, ctx.left() * (0.45 if n == 1 else 0.55), words):
            continue
        profile = ["--profile", plans.profile_file(ctx, n)]
        shared = ctx.attention(shared=n > 1)
        many |= {"kernels": shared.name, "ranks": n}
        for seq in lengths:
            for name, degree in ((("", []),) if n == 1 else (("TP 2, ", ["--tp", 2]), ("Ulysses 2, ", ["--ulysses", 2]),
                                                             ("ring 2, ", ["--ring", 2]))):
                ctx.sp_run(f"a layer, {name}{length(seq)}, as calibrated", work(ctx, "large", "layer", seq, dtype),
                           [*degree, *profile], iters=10, **many)
        if n == 1:
            ctx.sp_run(f"a step, {length(lengths[0])}, as calibrated", work(ctx, "large", "step", lengths[0], dtype),
                       profile, iters=3, **many)


def beside_torch(ctx, lengths, dtype):
    """The same layer as PyTorch runs it, eager."""
    key = "PyTorch"
    if not ctx.fact("PyTorch sees a GPU"):
        ctx.note(f"not beside PyTorch: {ctx.visit.fact('PyTorch sees a GPU')['why']}")
        return
    if ctx.known(key) is not None or not ctx.has_time(key):
        return
    program = pathlib.Path(__file__).with_name("torch_layer.py").read_text()
    ran = ctx.run([ctx.args.python, "-c", program, json.dumps([LARGE, dtype, lengths])], "torch", ctx.left())[0]
    lines = times.json_lines(ran.out)
    points = [line for line in lines if "seq" in line]
    said = ", ".join(f"{length(p['seq'])}: forward {1000 * p['fwd_s']:.2f} ms, backward {1000 * p['bwd_s']:.2f} ms"
                     for p in points)
    ctx.add({"key": key, "kind": "torch", "failed": None if points else ran.why or "it printed no times",
             "seconds": ran.seconds, "versions": next((line for line in lines if "torch" in line), {}), "points": [],
             "layers": points, "said": said})
