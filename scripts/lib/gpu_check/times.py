"""Steps about time: what the first iteration costs, and rates beside PyTorch's."""

import json
import pathlib
import time

from gpu_check import smi, sp_plan
from gpu_check.sp_plan import length


def shown_first(entry):
    samples, gpu = entry["run"]["samples_s"], entry["run"]["gpu"] or {}
    first, later = entry["first_s"], entry["later_s"]
    compiled = (f"{gpu['attention_plans']} plans compiled in {gpu['compile_s']:.1f} s, "
                if gpu.get("attention_plans") else "")
    return (f"first {1000 * first:.2f} ms, later {1000 * later:.3f} ms, {compiled}process {entry['seconds']:.1f} s, "
            f"{len(samples)} iterations")


def median(samples):
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def first_and_later(entry):
    samples = entry["run"]["samples_s"]
    entry["first_s"], entry["later_s"] = samples[0], median(samples[1:])
    return shown_first(entry)


def latencies(ctx):
    """Without warm-up, so that the first iteration shows: lazy loading, compiled plans, first allocations."""
    fast = ctx.attention(shared=False)
    shared = ctx.attention(shared=True)
    tiny = ctx.sizes.small.but(seq=64)
    ring = ["--strategy", "ring", "--ring", 8]

    def timed(key, shape, words=(), **more):
        return ctx.sp_run(key, shape, words, warmup=0, check=False, said=first_and_later, **more)

    timed("1 rank, reference, 64 tokens", tiny, kernels="reference", iters=20)
    timed("8 ranks, reference, ring, 256 tokens", tiny.but(seq=256), ring, kernels="reference", ranks=8, iters=20)
    if fast.name == "cudnn":
        call = ctx.sizes.plans
        timed("1 rank, cuDNN, 128 tokens", call.but(seq=128), kernels="cudnn", phase=fast.phase, iters=20)
        # A shape of its own: whatever a process compiles, it compiles once a shape.
        timed("1 rank, cuDNN, 4K", call.but(seq=4096), kernels="cudnn", phase=fast.phase, iters=5)
        timed("1 rank, cuDNN, 4K, modules loaded at the start", call.but(seq=4096), kernels="cudnn",
              phase=fast.phase, iters=5,
              env={"CUDA_MODULE_LOADING": "EAGER"})
    if shared.name == "cudnn":
        timed("8 ranks, cuDNN, ring, 4K", ctx.sizes.plans.but(seq=4096), ring, kernels="cudnn", phase=shared.phase,
              ranks=8, iters=5)
    events = [e["run"]["gpu"]["timed_event_s"] for e in ctx.record["entries"] if e["run"] and e["run"]["gpu"]]
    if events:
        ctx.note(f"a timed event costs its stream {1e6 * median(events):.2f} us, two for every op")


# ---- rates


def rates(ctx):
    rates_of(ctx, [(seq, "causal") for seq in ctx.sizes.kernel_lengths] + [(max(ctx.sizes.kernel_lengths), "full")])


def all_rates(ctx):
    rates_of(ctx, [(seq, mask) for seq in ctx.args.all_lengths for mask in ("causal", "full")])


def shown_rate(entry):
    run = entry["run"]
    said = [f"{phase} {sp_plan.flops(run['shape'], phase) / part['median_s'] / 1e12:.0f} TFLOP/s"
            for phase, part in run["phases"].items() if part["median_s"] > 0]
    return ", ".join(said)


def rates_of(ctx, points):
    """One rank with the GPU for itself, then PyTorch's over the same points, clocks beside both."""
    kernels = ctx.attention(shared=False)
    shape = ctx.sizes.plans if kernels.name == "cudnn" else ctx.sizes.small
    if kernels.name != "cudnn":
        points = [(shape.seq, mask) for mask in ("causal", "full")]
    sampler = smi.Sampler(ctx.logs, "rates") if ctx.fact("nvidia-smi answers") else None
    try:
        for seq, mask in points:
            begin = time.time()
            entry = ctx.sp_run(f"{length(seq)} {mask}", shape.but(seq=seq, mask=mask), kernels=kernels.name,
                               phase=kernels.phase,
                               check=False, iters=7, said=shown_rate)
            if entry is not None and "between" not in entry:
                entry["between"] = [begin, time.time()]
        if not ctx.args.stand_in:
            torch(ctx, shape, points)
    finally:
        samples = sampler.close(ctx.visit.grace) if sampler else []
    for entry in ctx.record["entries"]:
        if entry.get("between"):
            entry["clocks"] = smi.during(samples, *entry["between"])
    ctx.record["data"]["clock_samples"] = len(samples)


def json_lines(text):
    """The JSON objects that a program printed, a line each."""
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # cut off in the middle, or somebody's warning
            continue
    return [line for line in lines if isinstance(line, dict)]


def torch(ctx, shape, points):
    if not ctx.fact("PyTorch sees a GPU"):
        ctx.note(f"not beside PyTorch: {ctx.visit.fact('PyTorch sees a GPU')['why']}")
        return
    if shape.dtype not in ("bf16", "fp16"):
        return
    key = "PyTorch"
    if ctx.known(key) is not None or not ctx.has_time(key):
        return
    work = json.dumps([shape.heads, shape.kv_heads, shape.head_dim, shape.dtype, points])
    begin = time.time()
    # Not by its name: Python would look for torch's own imports in its folder first.
    program = pathlib.Path(__file__).with_name("sdpa.py").read_text()
    ran = ctx.run([ctx.args.python, "-c", program, work], "torch", ctx.left())[0]
    lines = json_lines(ran.out)
    here = [line for line in lines if "seq" in line]
    entry = {"key": key, "kind": "torch", "failed": None, "seconds": ran.seconds, "between": [begin, time.time()],
             "versions": next((line for line in lines if "torch" in line), {}), "points": here}
    if not here:
        entry["failed"] = ran.why or "it printed no times"
    reached = {(p["seq"], p["mask"]) for p in here}
    for seq, mask in points:
        if here and (seq, mask) not in reached:
            ctx.left_out(f"PyTorch, {length(seq)} {mask}: {ran.why or 'not printed'}")
    entry["said"] = f"{sum('failed' not in p for p in here)} of {len(points)} points"
    ctx.add(entry)
