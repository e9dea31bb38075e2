"""sp-plan, nvidia-smi, ctest, PyTorch and NCCL's launchers for tests of scripts/gpu-check: they answer
like the real ones, or go wrong, as GPU_CHECK_FAKE says: "step=mode,…" (mode: fail, hang, deaf, garbage, killed,
flood, wrong, backward; step: the folder that a command runs in, or *). `answer` is for tests that start no
processes; as a program (links named like the real ones point here) it does the same for real.
"""

import datetime
import json
import os
import signal
import sys
import time

TENSORS = {"fwd": ("lse", "out"), "bwd": ("d_k", "d_q", "d_v"), "step": ("param.l0.qkv",)}
STRATEGIES = (("ulysses", 0, "contiguous"), ("usp", 2, "contiguous"), ("zigzag-ring", 1, "zigzag"),
              ("ring", 1, "contiguous"))
GARBAGE = b"\xff\xfe{\"format\": \"sp-plan/run\", \x00 }{]\n" * 3


class Hangs(Exception):
    """It would never end."""


def options(argv):
    found = {}
    for i, word in enumerate(argv):
        if word.startswith("-") and len(word) > 1 and not word[1:].isdigit():
            found[word] = argv[i + 1] if i + 1 < len(argv) else ""
    return found


def mode_of(env, cwd):
    step = os.path.basename(cwd)[3:]
    rules = dict(rule.split("=") for rule in env.get("GPU_CHECK_FAKE", "").split(",") if rule)
    return rules.get(step, rules.get("*") if step not in ("visit", "environment") else None)


def answer(name, argv, env, cwd, now=None):
    """(exit code, stdout as bytes, stderr)."""
    mode = mode_of(env, cwd) if name != env.get("GPU_CHECK_WELL") else None
    if "CUDNN_LOGDEST_DBG" in env:
        with open(env["CUDNN_LOGDEST_DBG"], "w", encoding="utf-8") as file:
            file.write(f"cuDNN at level {env['CUDNN_LOGLEVEL_DBG']}\n")
    if mode in ("hang", "deaf", "flood"):
        raise Hangs(mode)
    if mode == "fail":
        return 1, b"", f"{name}: it failed on purpose\n"
    if mode == "killed":
        return -signal.SIGKILL, b"", ""
    if mode == "garbage":
        return 0, GARBAGE, "\x1b[31m???\n"
    kind = {"sp-plan": sp_plan, "nvidia-smi": nvidia_smi, "python": torch, "ctest": ctest}.get(name)
    if kind is not None:
        return kind(argv, env, cwd, mode, now)
    if name in ("mpirun", "torchrun", "srun"):
        return launcher(name, argv, env, cwd, mode, now)
    if name.startswith(("gpu.", "device.")):
        return 0, b"===\nAll tests passed (9 assertions in 2 test cases)\n", ""
    return 0, b"", ""


def shape_of(o):
    heads, head_dim = (8, 64) if "--model" in o else (int(o["--heads"]), int(o["--head-dim"]))
    return {"seq": int(o.get("--seq", 64)), "heads": heads, "kv_heads": int(o.get("--kv-heads", heads)),
            "head_dim": head_dim, "batch": int(o.get("--batch", 1)), "mask": o.get("--mask", "causal"),
            "dtype": o["--dtype"], "phase": "step" if o.get("--scope") == "step" else o.get("--phase", "fwd+bwd")}


def plan_of(o):
    if "--plan" in o:
        with open(o["--plan"], encoding="utf-8") as file:
            return json.load(file)["plan"]
    ulysses, ring = int(o.get("--ulysses", 1)), int(o.get("--ring", 1))
    return plan(o.get("--strategy", "usp"), ulysses, ring, o.get("--layout", "contiguous"))


def plan(strategy, ulysses, ring, layout):
    order = [axis for axis, size in (("ulysses", ulysses), ("ring", ring)) if size > 1]
    return {"strategy": strategy, "ulysses": ulysses, "ring": ring, "team": 1, "window": 1, "layout": layout,
            "order": order}


def sp_plan(argv, env, cwd, mode, _):
    o = options(argv)
    if argv[0] == "--version":
        commit = env.get("GPU_CHECK_COMMIT", "abc123")
        back_ends = env.get("GPU_CHECK_BACK_ENDS", "inproc, tcp, reference, cuda, nccl, cudnn")
        return 0, f"sp-plan 0.1.0 (commit {commit})\nback ends compiled in: {back_ends}\n".encode(), ""
    if env.get("GPU_CHECK_NO_GPU"):
        return 1, b"", "sp-plan: --device cuda: no NVIDIA driver here\n"
    if int(env.get("RANK", env.get("OMPI_COMM_WORLD_RANK", 0))) > 0:
        return 0, b"", ""  # rank 0 tells
    if argv[0] == "plan":
        ranks = int(o["--gpus"]) if "--gpus" in o else 8 * int(o.get("--nodes", 1))
        return 0, json.dumps({"format": "sp-plan/plan", "candidates": candidates(ranks)}).encode(), ""
    if argv[0] == "calibrate":
        with open(o["-o"], "w", encoding="utf-8") as file:
            json.dump({"format": "sp-plan/profile", "machine": {"gpu": {"matrix_rate": {"fp32": {"value": 1}}}}}, file)
        return 0, b'{"format": "sp-plan/profile"}', "sp-plan: warning: a block was left out\n"
    if mode == "backward" and o["--kernels"] == "cudnn" and o.get("--phase") != "fwd":
        return 1, b"", "sp-plan: cuDNN attention failed on rank -1: no bwd plan for 2048x2048\n"
    document = run_document(o, env, wrong=mode == "wrong")
    if "--trace" in o:
        with open(o["--trace"], "w", encoding="utf-8") as file:
            json.dump(trace(document, env), file)
    return 0 if document["passed"] else 4, json.dumps(document).encode(), ""


def candidates(ranks):
    found = []
    for strategy, ulysses, layout in STRATEGIES:
        u = ranks if ulysses == 0 else ulysses
        if ranks % u == 0 and not (strategy == "usp" and ranks < 4):
            found.append({"plan": plan(strategy, u, ranks // u, layout), "predicted": {"step_s": 0.001}})
    return found


def run_document(o, env, wrong):
    shape, p = shape_of(o), plan_of(o)
    ranks = p["ulysses"] * p["ring"]
    phases = {}
    for phase in shape["phase"].split("+"):
        check = None
        if "--check" in o:
            check = {"passed": not wrong, "part": 1.0, "tensors": [
                {"tensor": name, "error": 1e-3, "limit": 1e-4 if wrong and name == "d_q" else 1e-2,
                 "mean_error": 1e-4, "mean_limit": 5e-3, "scale": 1.0, "compared": 10,
                 "worst": "rank 0", "worst_tile": "rank 0", "passed": not (wrong and name == "d_q")} for name in TENSORS[phase]]}
            check["passed"] = all(t["passed"] for t in check["tensors"])
        phases[phase] = {"median_s": 0.001, "predicted_s": None, "samples_s": [0.5] + [0.001] * (int(o["--iters"]) - 1),
                         "attention_s": 0.0008, "gemm_s": 0.0, "other_kernels_s": 0.0001, "exposed_s": 0.0001,
                         "imbalance_s": 0.0, "launch_bound_s": 0.0,
                         "kinds": [{"kind": "attention_fwd", "ops": 1, "measured_s": 0.0008, "predicted_s": None}],
                         "check": check}
    passed = all(not part["check"] or part["check"]["passed"] for part in phases.values())
    split = "GPU_CHECK_NO_SPLIT" not in env
    alone = o.get("--comm") == "nccl" or ranks == 1
    warnings = [] if split or alone else ["ranks share all SMs of a GPU, so their kernels hold each other up: no green contexts"]
    return {"format": "sp-plan/run", "format_version": "1.0", "tool_version": "0.1.0 (abc123)", "request": shape,
            "assumptions": [],
            "plan": p, "backend": {"device": "cuda", "comm": o["--comm"], "kernels": o["--kernels"], "ranks": ranks,
                                   "gpu": {
                "name": "NVIDIA H200", "gpus": 1, "ranks_per_gpu": 1 if alone else ranks,
                "multiprocessors_per_rank": 132 if alone or not split else 128 // ranks, "driver": "13.0",
                "runtime": "13.0",
                "clock_mhz": 1980, "memory_clock_mhz": 3201, "timed_event_s": 1e-6,
                "attention_made_for": None if o["--kernels"] == "reference" else "the whole GPU",
                "attention_refused": "cudnnSetStream failed: a stream of a green context"
                if "GPU_CHECK_REFUSES_SHARES" in env and o["--kernels"] == "cudnn" and not alone else None,
                "attention_plans": 0 if o["--kernels"] == "reference" else 4,
                "compile_s": 0.0 if o["--kernels"] == "reference" else 4.0,
                "attention_workspaces_bytes": 0, "communication_workspaces_bytes": 0,
                "copies": None if o["--comm"] == "nccl" or ranks == 1 else "beside kernels"}},
            "measured": {"step_s": 0.001, "p95_s": 0.001, "spread": 0.01,
                         "samples_s": [0.5] + [0.001] * (int(o["--iters"]) - 1),
                         "attention_s": 0.0008, "gemm_s": 0.0, "other_kernels_s": 0.0001, "exposed_comm_s": 0.0001,
                         "comm_bytes_per_rank": {"send_recv": 1 << 20, "all_to_all": 0, "all_gather": 0,
                                                 "reduce_scatter": 0,
                                                 "all_reduce": 0},
                         "attention_gflops_per_rank": 100.0, "pace_s": None, "pace_samples_s": []},
            "predicted": {"step_s": 0.00102, "interval_s": [0.0009, 0.0011], "error": 0.02, "pace_s": None}
            if "--profile" in o else None,
            "phases": phases, "passed": passed, "warnings": warnings, "elapsed_s": 1.0}


def trace(document, env):
    """A causal ring's forward: rank r computes r + 1 blocks, one after the other, each 10 us long, 5 us if it is
    the last rank's last and SMs are not its own."""
    ranks = document["backend"]["ranks"]
    events = []
    for rank in range(ranks):
        for step in range(rank + 1):
            last = rank == ranks - 1 and step == rank and ranks > 2
            duration = 2.5 if last and "GPU_CHECK_KEEPS_TO_NO_SHARE" in env else 10.0
            events.append({"name": "attention_fwd", "ph": "X", "pid": rank, "tid": 0, "ts": 10.0 * step,
                           "dur": duration,
                           "args": {"op": step, "bytes": 0, "flops": 1}})
            events.append({"name": "exchange", "ph": "X", "pid": rank, "tid": 2, "ts": 10.0 * step, "dur": 8.0,
                           "args": {"op": step, "bytes": 1 << 16, "flops": 0}})
    return {"otherData": {"title": "fake"}, "traceEvents": events}


def nvidia_smi(argv, env, _cwd, _mode, now):
    gpus = int(env.get("GPU_CHECK_GPUS", 1))
    if "GPU_CHECK_NO_GPU" in env:
        return 9, b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", ""
    if argv[0] == "-L":
        return 0, "".join(f"GPU {i}: NVIDIA H200 (UUID: GPU-{i})\n" for i in range(gpus)).encode(), ""
    query = next((word.split("=", 1)[1].split(",") for word in argv if word.startswith("--query-gpu=")), None)
    if query and "-lms" in argv:
        raise Samples("".join(
            f"{datetime.datetime.fromtimestamp(now + 0.2 * i):%Y/%m/%d %H:%M:%S.%f}, 0, 1755, 3201, 650.1, 55, 100, 0x0000000000000004\n"
            for i in range(400)))
    if query:
        values = {"name": "NVIDIA H200", "mig.mode.current": "Disabled", "compute_mode": "Default"}
        return 0, "".join(", ".join(values.get(key, "1") for key in query) + "\n" for _ in range(gpus)).encode(), ""
    if any(word.startswith("--query-compute-apps") for word in argv):
        return 0, b"", ""
    return 0, b"GPU0 X\n", ""


class Samples(Hangs):
    """It prints one line after the other until it is ended; these are what it will have printed."""


def torch(argv, _env, _cwd, _mode, _now):
    if len(argv) > 2:
        asked, took = json.loads(argv[2])[-1], {"fwd_s": 0.001, "bwd_s": 0.0011}  # layers of lengths, or attention
        points = [{"seq": p} | took if isinstance(p, int) else {"seq": p[0], "mask": p[1]} | took for p in asked]
        lines = [{"torch": "2.11.0", "cudnn": 91900, "cuda": "13.0", "gpu": "NVIDIA H200"}, *points]
        return 0, "\n".join(map(json.dumps, lines)).encode(), ""
    return 0, b'{"torch": "2.11.0", "cuda": "13.0", "cudnn": 91900, "nccl": [2, 28, 9], "gpus": 1, "folder": "/opt/torch"}\n', ""


def ctest(_argv, env, _cwd, _mode, _now):
    folder = env.get("GPU_CHECK_TESTS", "")
    names = sorted(os.listdir(folder)) if folder else []
    return 0, json.dumps({"tests": [{"name": n, "command": [f"{folder}/{n}"], "properties": []}
                                    for n in names]}).encode(), ""


def launcher(name, argv, env, cwd, mode, now):
    if argv[0] == "--version":
        return 0, b"mpirun (Open MPI) 4.1.4\n", ""
    if name in env.get("GPU_CHECK_BAD_LAUNCHERS", "").split("+"):
        return 213, b"", f"{name}: cannot start anything here\n"
    i = next(i for i, word in enumerate(argv) if os.path.basename(word) in ("sp-plan", "sh"))
    if argv[i].endswith("sh"):
        return 0, b"node1\nGPU 0: NVIDIA H200\n", ""
    code, out, err = answer("sp-plan", argv[i + 1:], env, cwd, now)
    return code, b"a launcher says hello\n" + out, err


def main():
    name = os.path.basename(sys.argv[0])
    try:
        code, out, err = answer(name, sys.argv[1:], dict(os.environ), os.getcwd(), time.time())
    except Samples as samples:
        sys.stdout.write(str(samples))
        sys.stdout.flush()
        time.sleep(600)
        return
    except Hangs as how:
        if str(how) == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while str(how) == "flood":
            sys.stdout.write("x" * (1 << 20))
        time.sleep(600)
        return
    sys.stdout.buffer.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
