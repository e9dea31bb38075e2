"""Step 1: what this machine is. Nothing here fails but the one run that all others rest on."""

import contextlib
import ctypes.util
import glob
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import sys

from gpu_check import command
from gpu_check.context import NoTime

QUERY = ("name", "uuid", "driver_version", "memory.total", "memory.used", "compute_cap", "compute_mode",
         "mig.mode.current", "persistence_mode", "ecc.mode.current", "power.limit", "power.max_limit",
         "clocks.max.sm", "clocks.max.memory", "clocks.applications.graphics", "clocks.sm", "temperature.gpu",
         "pcie.link.gen.current", "pcie.link.width.current")
# Parts of `nvidia-smi -q` without those that list processes, which are other people's business.
PARTS = "MEMORY,UTILIZATION,ECC,TEMPERATURE,POWER,CLOCK,COMPUTE,PERFORMANCE"
OUR_VARIABLES = ("CUDA_", "NCCL_", "CUDNN_", "NVIDIA_", "LD_LIBRARY_PATH", "LD_PRELOAD", "OMP_", "UCX_", "FI_")
TOOLS = ("nvcc", "compute-sanitizer", "nvidia-cuda-mps-control", "ncu", "nsys", "mpirun", "srun", "torchrun",
         "cmake", "ctest", "all_gather_perf")
TORCH = """
import json, torch
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                  "nccl": list(torch.cuda.nccl.version()) if torch.cuda.is_available() else None,
                  "gpus": torch.cuda.device_count(), "folder": torch.__path__[0]}))
"""


def resources():
    """Of this machine, from Linux; each part by itself, so that one that is missing costs no other."""
    limits = {name: [None if v == resource.RLIM_INFINITY else v for v in resource.getrlimit(number)]
              for name, number in (("memlock", resource.RLIMIT_MEMLOCK), ("nofile", resource.RLIMIT_NOFILE),
                                   ("nproc", resource.RLIMIT_NPROC), ("stack", resource.RLIMIT_STACK))}
    return {"host": platform.node(), "kernel": platform.release(), "os": first_line("/etc/os-release", "PRETTY_NAME="),
            "cpu": first_line("/proc/cpuinfo", "model name"), "cores": len(os.sched_getaffinity(0)),
            "cores_of_machine": os.cpu_count(), "memory": first_line("/proc/meminfo", "MemTotal"),
            "memory_free": first_line("/proc/meminfo", "MemAvailable"),
            "memory_limit": first_line("/sys/fs/cgroup/memory.max", ""),
            "cpu_limit": first_line("/sys/fs/cgroup/cpu.max", ""),
            "shared_memory_bytes": free_bytes("/dev/shm"), "load": [round(x, 2) for x in os.getloadavg()],
            "limits": limits, "python": platform.python_version()}


def first_line(file, beginning):
    try:
        for line in pathlib.Path(file).read_text(errors="replace").splitlines():
            if line.startswith(beginning):
                return line[len(beginning):].strip(" \t:=\"")
    except OSError:
        pass
    return None


def free_bytes(path):
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def built_with(build):
    """Versions of the headers that the program was compiled with."""
    versions = {}
    try:
        entries = dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M))
    except OSError:
        return versions
    for name, key, header, words in (("cudnn", "SPP_CUDNN_INCLUDE", "cudnn_version.h",
                                      "CUDNN_(?:MAJOR|MINOR|PATCHLEVEL)"),
                                     ("nccl", "SPP_NCCL_INCLUDE", "nccl.h", "NCCL_(?:MAJOR|MINOR|PATCH)")):
        file = pathlib.Path(entries.get(key, "")) / header
        if file.is_file():
            versions[name] = ".".join(re.findall(rf"#define {words} +(\d+)", file.read_text(errors="replace")))
    versions["build_type"] = entries.get("CMAKE_BUILD_TYPE", "")
    versions["architectures"] = entries.get("CMAKE_CUDA_ARCHITECTURES", "")
    return versions


def found_libraries():
    """Where cuDNN and NCCL lie, besides where our program takes them from."""
    folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/cuda*/lib*",
               *(f"{path}/nvidia/*/lib" for path in sys.path if "packages" in path),
               *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    files = {os.path.realpath(file) for folder in folders if folder
             for name in ("libcudnn.so*", "libnccl.so*", "libcuda.so*")
             for file in glob.glob(f"{folder}/{name}")}
    return sorted(command.home_removed(file) for file in files)


def look_around(ctx):
    """Resources, tools, libraries; our smallest run, which all rests on; then what others say of the GPUs."""
    data = ctx.record["data"]
    data["machine"] = resources()
    data["tools"] = {name: command.home_removed(found) for name in TOOLS if (found := shutil.which(name))}
    data["libraries_found"] = found_libraries()
    data["loader_finds"] = {name: ctypes.util.find_library(name) for name in ("cuda", "cudnn", "nccl")}
    data["variables"] = {name: command.home_removed(value) for name, value in sorted(os.environ.items())
                         if name.startswith(OUR_VARIABLES) and name != "NVIDIA_REQUIRE_CUDA"}  # an image's
    data["built_with"] = built_with(ctx.program.parents[1])
    if "CUDA_DEVICE_MAX_CONNECTIONS" in os.environ:
        queues = os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]
        ctx.note(f"CUDA_DEVICE_MAX_CONNECTIONS={queues} was set from outside: streams of ranks that share a GPU need "
                 "up to 32 queues")
    first_run(ctx)
    if not ctx.args.stand_in:
        for look in (ask_nvidia_smi, ask_torch, ask_nvcc):
            try:
                look(ctx, data)
            except NoTime:
                ctx.left_out("the rest of the environment")
            ctx.save()


def ask_nvidia_smi(ctx, data):
    limit = ctx.visit.longest / 4
    ran = ctx.run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"], "gpus", limit)[0]
    if ran.why and "not a valid field" in ran.out + ran.err:
        fields = QUERY[:4]  # those that every driver knows
        ran = ctx.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"], "gpus", limit)[0]
    gpus = [dict(zip(QUERY, (word.strip() for word in line.split(","))))
            for line in ran.out.splitlines() if line.count(",") >= 3]
    ctx.establish("nvidia-smi answers", ran.why is None and gpus, ran.why or ("" if gpus else "it named no GPU"))
    if not gpus:
        ctx.note(f"nvidia-smi: {ran.why or 'it named no GPU'}")
        return
    data["gpus"] = gpus
    for words, name in ((["nvidia-smi", "-q", "-d", PARTS], "details"), (["nvidia-smi", "topo", "-m"], "topology"),
                        (["nvidia-smi", "nvlink", "-s"], "nvlink")):
        told = ctx.run(words, name, limit)[0]
        if told.why:
            ctx.note(f"{' '.join(words)}: {told.why}")
    others = ctx.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], "others", limit)[0]
    data["other_processes"] = None if others.why else len(others.out.split())
    others.out_file.unlink(missing_ok=True)
    for gpu in gpus:
        if gpu.get("mig.mode.current") == "Enabled":
            ctx.note(f"{gpu['name']}: MIG is on: SMs, and so every rate, are those of a slice")
        if gpu.get("compute_mode", "Default") not in ("Default", "[N/A]"):
            ctx.note(f"{gpu['name']}: compute mode {gpu['compute_mode']}: several processes cannot share it")
    if data["other_processes"]:
        ctx.note(f"{data['other_processes']} other processes are on the GPUs: times are not theirs alone")


def ask_torch(ctx, data):
    ran = ctx.run([ctx.args.python, "-c", TORCH], "torch", ctx.visit.longest)[0]
    try:
        data["torch"] = json.loads(ran.out.strip().splitlines()[-1]) if ran.why is None else None
        works = bool(data["torch"] and data["torch"]["gpus"])
    except (ValueError, KeyError, IndexError, TypeError):
        data["torch"], works = None, False
    if data["torch"]:
        data["torch"]["folder"] = command.home_removed(str(data["torch"].get("folder", "")))
    ctx.establish("PyTorch sees a GPU", works, "" if works else ran.why or "torch sees no GPU")


def versions(ctx, libraries):
    """What libraries say they are, each asked by a process of its own."""
    found = {}
    for name, call in (("libcudnn.so", "cudnnGetVersion()"),
                       ("libcudart.so", "cudaRuntimeGetVersion(ctypes.byref(n)) or n.value")):
        file = next((path for path in libraries if pathlib.PurePath(path).name.startswith(name)), None)
        if file is not None:
            words = [sys.executable, "-c", "import ctypes, sys; n = ctypes.c_int(0); "
                     f"print(ctypes.CDLL(sys.argv[1]).{call})", os.path.expanduser(file)]
            with contextlib.suppress(NoTime):
                found[name] = ctx.run(words, f"version-of-{name}", ctx.visit.longest / 4)[0].out.strip()
    return found


def ask_nvcc(ctx, data):
    ran = ctx.run(["nvcc", "--version"], "nvcc", ctx.visit.longest / 4)[0]
    found = re.search(r"release [\d.]+, V([\d.]+)", ran.out)
    data["nvcc"] = found[1] if found else None


def first_run(ctx):
    """With the reference kernels, so that cuDNN cannot stand in the way."""
    entry = ctx.sp_run("the smallest run", ctx.sizes.small.but(seq=64), kernels="reference", iters=1, check=False)
    if entry is None:
        ctx.establish("sp-plan runs on a GPU", False, "there was no time for its smallest run")
        ctx.problem("there was no time for the smallest run on a GPU")
        return
    run = entry["run"]
    ctx.establish("sp-plan runs on a GPU", run is not None, entry["failed"] or "")
    if run is not None:
        ctx.record["data"]["gpu"] = run["gpu"]
        ctx.record["data"]["versions_loaded"] = versions(ctx, entry["libraries"])
        ctx.record["data"]["libraries_loaded"] = entry["libraries"]
