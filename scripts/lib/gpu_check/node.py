"""Steps for a node, or several, with a GPU for every rank: NCCL between them.

Ranks are started by whatever is there: srun inside a Slurm allocation, mpirun, torchrun, or by this
script itself (one node only). `--launch` says how, where none of them fits: a command line with {ranks},
{nodes} and {gpus}, to which sp-plan's is appended.
"""

import os
import re
import shlex
import shutil

from gpu_check import correctness, plans, talking
from gpu_check.context import NothingToDo, NoTime
from gpu_check.sp_plan import length

NCCL_TESTS = ("all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "sendrecv_perf")
# nvidia-smi's name of a GPU, how many a node has: the machine that --topology then names.
MACHINES = ((r"H200", 8, "dgx-h200"), (r"H100 80GB HBM3", 8, "dgx-h100"), (r"H800", 8, "hgx-h800"),
            (r"H20$|H20\b", 8, "hgx-h20"),
            (r"A100-SXM4-80GB", 8, "dgx-a100"), (r"A100-SXM4-40GB", 8, "dgx-a100-40g"), (r"A800-SXM4", 8, "hgx-a800"),
            (r"B200", 8, "dgx-b200"), (r"GB200", 4, "gb200-nvl72"), (r"V100-SXM", 16, "dgx-2-v100"),
            (r"\bL20\b", 8, "8xl20-pcie"),
            (r"\bL40\b", 8, "8xl40-pcie"), (r"RTX 4090", 8, "8xrtx4090-pcie"))
INSPECT = ("hostname; nvidia-smi -L; nvidia-smi topo -m; nvidia-smi nvlink -s; ls /sys/class/infiniband 2>/dev/null; "
           "cat /sys/class/infiniband/*/ports/*/rate 2>/dev/null; ip -brief link 2>/dev/null")


def nodes(ctx):
    return ctx.args.nodes


def gpus_per_node(ctx):
    return ctx.args.gpus_per_node or talking.gpu_count(ctx)


def ranks(ctx):
    return nodes(ctx) * gpus_per_node(ctx)


# ---- launchers: each gives (words, env) -> [(words, env)], one a process that this script starts


def prefixed(prefix):
    return lambda words, env: [([*prefix, *words], env)]


def by_torchrun_variables(prefix):
    """Tasks of a launcher that no MPI joins: Slurm's numbers under torchrun's names."""
    script = 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec "$@"'

    def launch(words, env):
        master = {"MASTER_ADDR": os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"), "MASTER_PORT": 29500}
        return [([*prefix, "bash", "-c", script, "sp-plan", *words], env | master)]
    return launch


def launchers(ctx):
    """(name, launch), the likeliest first."""
    n, k, g = ranks(ctx), nodes(ctx), gpus_per_node(ctx)
    if ctx.args.launch:
        line = ctx.args.launch.format(ranks=n, nodes=k, gpus=g)
        yield "--launch", prefixed(shlex.split(line))
        return
    if "SLURM_JOB_ID" in os.environ and shutil.which("srun"):
        srun = ["srun", "-N", k, "--ntasks-per-node", g, "--gpus-per-node", g]
        yield "srun --mpi=pmix", prefixed([*srun, "--mpi=pmix"])
        yield "srun with torchrun's variables", by_torchrun_variables([*srun, "--mpi=none"])
    if shutil.which("mpirun"):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 and open_mpi(ctx) else []
        hosts = ["--hostfile", ctx.args.hostfile] if ctx.args.hostfile else []
        if k == 1 or hosts:
            yield "mpirun", prefixed(["mpirun", *root, *hosts, "-np", n])
    if k == 1 and shutil.which("torchrun"):
        yield "torchrun", lambda words, env: [(["torchrun", "--nproc-per-node", n, "--no-python", "--master-port",
                                                talking.free_port(), *words], env)]
    if k == 1:
        yield "this script", talking.processes(n, one_gpu=False)


def open_mpi(ctx):
    try:
        return "Open MPI" in ctx.run(["mpirun", "--version"], "mpirun", ctx.visit.longest / 4)[0].out
    except NoTime:
        return False


def chosen(ctx):
    """The launcher that worked."""
    name = ctx.visit.records["launching"]["data"]["launcher"]
    return next(launch for known, launch in launchers(ctx) if known == name)


# ---- steps


def inspect(ctx):
    """Every node by itself: GPUs, links, network cards."""
    k = nodes(ctx)
    if k == 1:
        prefix = []
    elif "SLURM_JOB_ID" in os.environ:
        prefix = ["srun", "-N", k, "--ntasks-per-node", 1, "--label"]
    elif ctx.args.hostfile:
        prefix = ["mpirun", "--hostfile", ctx.args.hostfile, "-np", k, "--map-by", "node", "--tag-output"]
    else:
        raise NothingToDo("there is no way to ask each node by itself (no Slurm, no --hostfile)")
    ran = ctx.run([*prefix, "sh", "-c", INSPECT], "nodes")[0]
    if ran.why:
        ctx.note(f"asking the nodes: {ran.why}")
    ctx.record["data"]["hosts"] = k


def launching(ctx):
    """One small run with the reference kernels, with each launcher until one works."""
    ctx.record["data"] |= {"ranks": ranks(ctx), "nodes": nodes(ctx), "gpus_per_node": gpus_per_node(ctx),
                           "launcher": None}
    n = ranks(ctx)
    if n < 2:
        ctx.problem("one GPU makes no group: scripts/gpu-check without --node is for it")
        ctx.establish("ranks are launched", False, "there is one GPU")
        return
    shape = ctx.sizes.small.but(heads=n, kv_heads=n, seq=max(ctx.sizes.small.seq, 16 * n))
    why, failed = "no launcher is here", []
    for name, launch in launchers(ctx):
        ctx.launch = launch
        entry = ctx.sp_run(f"{n} ranks, {name}", shape, ["--strategy", "ring", "--ring", n], kernels="reference",
                           ranks=n, comm="nccl",
                           iters=1, env=talking.logged(ctx, "nccl", "INFO"), said=correctness.shown_errors)
        ctx.launch = None
        ctx.kept_logs(*ctx.logs.glob("*.nccl.*"))
        if entry is not None and entry["run"] is not None and entry["run"]["ranks"] == n:
            ctx.record["data"]["launcher"] = name
            for _, other in failed:  # a launcher that does not fit is no fault of ours
                ctx.note(f"{other['key']}: {other['failed']}")
                ctx.record["entries"].remove(other)
            ctx.establish("ranks are launched", True)
            return
        if entry is not None:
            failed.append((name, entry))
            why = entry["failed"] or why
    ctx.establish("ranks are launched", False, why)
    if not failed:
        ctx.problem(f"no rank was launched: {why}")


def topology(ctx):
    """--topology, or what nvidia-smi's names mean; [] where that is nobody's machine."""
    if ctx.args.topology:
        return ["--topology", ctx.args.topology]
    gpus = ctx.visit.records.get("environment", {}).get("data", {}).get("gpus") or []
    name = gpus[0]["name"] if gpus else ""
    for pattern, count, machine in MACHINES:
        if re.search(pattern, name) and gpus_per_node(ctx) == count:
            return ["--topology", machine]
    return []


def machine(ctx):
    """What plans are made for where nothing is calibrated."""
    known = topology(ctx)
    return [*known, "--nodes", nodes(ctx)] if known else None


def links(ctx):
    """Messages and collectives only: a quarter of an hour of attention is not needed for them."""
    known = topology(ctx)
    if not known:
        ctx.note("which machine this is was not said (--topology) and cannot be guessed: GPUs of one node, all alike")
    ctx.record["data"]["topology"] = known[1] if known else None
    n = ranks(ctx)
    plans.calibrate(ctx, n, (ctx.sizes.lengths[0],), ctx.left() * 0.8, [*known, "--suite", "links,collectives"],
                    chosen(ctx), "nccl",
                    key=f"links of {n} GPUs", establish="links are measured")


def links_by_nccl_tests(ctx):
    """NCCL's own tests, if they are in PATH: their text, and what sp-plan reads in it."""
    there = [name for name in NCCL_TESTS if shutil.which(name)]
    if not there:
        raise NothingToDo(f"NCCL's tests are not in PATH ({', '.join(NCCL_TESTS)})")
    texts = []
    for name in there:
        if ctx.known(name) is not None or not ctx.has_time(name):
            continue
        words = [name, "-b", "1K", "-e", "1G", "-f", "2", "-n", "10", "-w", "3"]
        # One process for all GPUs of a node; over nodes one a GPU, which takes tests built with MPI.
        ran = (ctx.run([*words, "-g", gpus_per_node(ctx)], name) if nodes(ctx) == 1
               else ctx.run([*words, "-g", 1], name, None, {}, chosen(ctx)))[0]
        if ran.why is None:
            texts.append(ran.out_file)
        ctx.add({"key": name, "kind": "nccl-tests", "failed": ran.why, "seconds": ran.seconds,
                 "said": ran.out_file.name})
    known = topology(ctx)
    if texts and known:
        file = ctx.visit.folder.path / "profile-nccl-tests.json"
        document, why = ctx.document([ctx.program, "calibrate", "--nccl-tests", ",".join(map(str, texts)), *known,
                                      "-o", file, "--json"],
                                     "read")
        if not document:
            ctx.problem(f"sp-plan does not read what NCCL's tests printed: {why}")


def node_strategies(ctx):
    plans.strategies(ctx, ranks(ctx), "nccl", machine(ctx), chosen(ctx))


def calibration(ctx):
    n = ranks(ctx)
    plans.calibrate(ctx, n, ctx.sizes.lengths, ctx.left() * 0.7, topology(ctx), chosen(ctx), "nccl")


def node_plans(ctx):
    """Of every (U, R, C) the best, the recommended ones first, at every length."""
    n = ranks(ctx)
    shape, lengths = plans.shape_of_profile(ctx, n)
    ctx.launch = chosen(ctx)
    try:
        for seq in sorted(lengths):
            found = plans.candidates(ctx, shape.but(seq=seq), n, plans.profile_file(ctx, n))
            if not found:
                ctx.problem(f"no plan of {n} ranks for {length(seq)} tokens")
                continue
            found[0]["recommended"] = True
            plans.beside_predictions(ctx, n, plans.first_of_each(found, plans.degrees), seq, "fwd+bwd", comm="nccl")
    finally:
        ctx.launch = None
