"""NCCL on this machine: processes of one run, on a GPU each, or on the only one."""

import socket

from gpu_check import correctness
from gpu_check.context import NoTime, visible_gpus


def gpu_count(ctx):
    named = ctx.visit.records.get("environment", {}).get("data", {}).get("gpus", [])
    return len(visible_gpus()) or len(named) or 1


def free_port():
    """A port, and the next one: sp-plan's ranks meet at MASTER_PORT + 1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return max(probe.getsockname()[1] - 1, 1024)


def processes(ranks, one_gpu):
    """Starts a command as that many ranks, by torchrun's variables. On one GPU each pretends to be a
    host of its own, since NCCL refuses two ranks on a host's GPU."""
    def launch(words, env):
        port = free_port()
        found = []
        for rank in range(ranks):
            mine = {"RANK": rank, "LOCAL_RANK": 0 if one_gpu else rank, "WORLD_SIZE": ranks,
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            if one_gpu:
                mine |= {"NCCL_HOSTID": f"pretended-host-{rank}", "NCCL_SOCKET_IFNAME": "lo",
                         "CUDA_VISIBLE_DEVICES": (visible_gpus() or ["0"])[0]}
            found.append((words, env | mine))
        return found
    return launch


def logged(ctx, name, level="WARN"):
    """NCCL's own words, by host and process."""
    return {"NCCL_DEBUG": level, "NCCL_DEBUG_FILE": ctx.logs / f"{name}.nccl.%h.%p.log"}


def nccl_run(ctx, key, shape, words, kernels, ranks, launch):
    """A run over NCCL; one that fails is done again with all that NCCL can tell."""
    ctx.launch = launch
    try:
        entry = ctx.sp_run(key, shape, words, kernels=kernels.name, ranks=ranks, phase=kernels.phase, comm="nccl",
                           iters=3,
                           env=logged(ctx, "run"), said=correctness.shown_errors)
        if entry is not None and entry["run"] is None and ctx.left() > ctx.visit.least:
            line = [ctx.program, "run", "--device", "cuda", "--comm", "nccl", "--kernels", kernels.name, *shape.words(),
                    *words, "--gpus", ranks, "--iters", 1, "--warmup", 0, "--timeout", ctx.visit.patience, "--json"]
            try:
                ctx.run(line, "again", None, logged(ctx, "again", "INFO"), launch)
            except NoTime:
                pass
        return entry
    finally:
        ctx.launch = None
        ctx.kept_logs(*ctx.logs.glob("*.nccl.*"))


def nccl(ctx):
    """Two processes at least: with one rank NCCL is never really asked."""
    gpus = gpu_count(ctx)
    ranks, one_gpu = (2, True) if gpus == 1 else (min(gpus, 8), False)
    kernels = ctx.attention(shared=False, right=True)
    shape = ctx.sizes.several if kernels.name == "cudnn" else ctx.sizes.small
    if one_gpu:
        ctx.note("one GPU: its processes take turns, so numbers are checked here and no time means anything")
    launch = processes(ranks, one_gpu)
    entries = [nccl_run(ctx, f"{ranks} processes, {name}", shape, words, kernels, ranks, launch)
               for name, words in (("ring", ["--strategy", "ring", "--ring", ranks]),
                                   ("Ulysses", ["--ulysses", ranks]),
                                   ("all-gather", ["--strategy", "all-gather", "--ring", ranks]))]
    if not one_gpu:
        entries.append(nccl_run(ctx, f"{ranks} threads, ring", shape, ["--strategy", "ring", "--ring", ranks],
                                kernels, ranks, None))
    bad = [e["failed"] for e in entries if e and e["failed"]]
    ran = any(e and not e["failed"] for e in entries)
    ctx.establish("NCCL is right", ran and not bad, bad[0] if bad else "" if ran else "no run came to an end")


def more_nccl(ctx):
    """Four processes, and one plan of two axes."""
    gpus = gpu_count(ctx)
    ranks, one_gpu = (4, True) if gpus == 1 else (min(gpus, 8), False)
    if ranks % 2:
        ranks -= 1
    kernels = ctx.attention(shared=False, right=True)
    shape = ctx.sizes.several if kernels.name == "cudnn" else ctx.sizes.small
    for name, words in (("USP", ["--ulysses", 2, "--ring", ranks // 2]),
                        ("ring", ["--strategy", "ring", "--ring", ranks]),
                        ("all-gather", ["--strategy", "all-gather", "--ring", ranks])):
        nccl_run(ctx, f"{ranks} processes, {name}", shape, words, kernels, ranks, processes(ranks, one_gpu))
