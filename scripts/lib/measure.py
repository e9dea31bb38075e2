"""Shared by the scripts that measure on emulated nodes: running, environment, statistics."""

import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A command ended with something else than 0; the text is what it said."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def call(words, timeout=600):
    """Stdout of a command. It is asked to end when it takes too long, and gets time to tidy up."""
    with subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, cwd=root) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException as e:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            if isinstance(e, subprocess.TimeoutExpired):
                raise Failed(f"no end after {timeout} s") from e
            raise
    if process.returncode == 77:
        sys.exit(f"{errors.strip()}")
    if process.returncode != 0:
        told = [line for line in errors.splitlines() if line.startswith(("sp-plan:", "rank "))]
        raise Failed(f"exit {process.returncode}: " + " ".join(told or errors.split("\n")[:3]))
    return output


def call_json(words, timeout=600):
    return json.loads(call(words, timeout))


def program(given):
    """sp-plan: the one given, else that of the release build, brought up to date."""
    if given:
        return pathlib.Path(given).resolve()
    call([root / "scripts/sp-plan", "--version"], timeout=3600)
    return root / "build/release/cli/sp-plan"


def shown(words, sp_plan):
    """A command as one would type it in the root of the sources."""
    text = " ".join(str(w) for w in words)
    return text.replace(str(sp_plan), "sp-plan").replace(f"{root}/", "")


class Cluster:
    """Emulated nodes; see scripts/slow-network."""

    def __init__(self, nodes, ranks_per_node, rate):
        self.nodes, self.ranks_per_node, self.rate = nodes, ranks_per_node, rate

    @property
    def ranks(self):
        return self.nodes * self.ranks_per_node

    def launcher(self, rank_order="block"):
        words = [root / "scripts/slow-network", "--nodes", self.nodes,
                 "--ranks-per-node", self.ranks_per_node, "--rate", self.rate]
        if rank_order != "block":
            words += ["--rank-order", rank_order]
        return words + ["--"]

    def json(self):
        return {"nodes": self.nodes, "ranks_per_node": self.ranks_per_node, "rate": self.rate}


def priority(cluster):
    """Of the ranks, in words; earlier data were taken with another one."""
    return "; realtime priority" if cluster.get("realtime") else ""


def environment():
    """Of this machine and of emulated nodes on it."""
    cpu = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    mpi = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "mpi": (mpi.stdout.splitlines() or ["unknown"])[0],
            "congestion_control": call([*Cluster(1, 1, "1gbit").launcher(), "cat",
                                        "/proc/sys/net/ipv4/tcp_congestion_control"]).strip(),
            "load_before": load()}


def described(e):
    """What environment() found, in words."""
    tcp = f"; TCP with {e['congestion_control']}" if "congestion_control" in e else ""
    return f"{e['date']}; {e['cpu']}, {e['cores']} cores, Linux {e['kernel']}; {e['mpi']}{tcp}"


def load():
    """Of the last minute: 0 is an idle machine."""
    return round(os.getloadavg()[0], 2)


def median(samples):
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def p95(samples):
    ordered = sorted(samples)
    return ordered[max(-(-95 * len(ordered) // 100), 1) - 1]


def spread(samples):
    """Median deviation from the median, relative: what sp-plan run calls spread."""
    middle = median(samples)
    return median([abs(s - middle) for s in samples]) / middle if middle > 0 else 0


def ms(seconds):
    return f"{1000 * seconds:.1f}"


def percent(part):
    return f"{100 * part:+.1f} %"
