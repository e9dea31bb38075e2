"""scripts/gpu-check from its first step to its last with sp-plan over CUDA's runtime on the host: every command
line that it makes is one that the program takes, and every document one that it reads. Arguments: that program,
the build folder, and what of it: `all` that it does unless told, or the part of `steps`."""

import json
import pathlib
import subprocess
import sys
import tempfile

program, build, which = sys.argv[1:]
root = pathlib.Path(__file__).resolve().parents[2]


def expect(holds, what):
    if not holds:
        sys.exit(f"{what}\n{told.stderr}\n{readme if 'readme' in globals() else ''}")


def gpu_check(report, *words):
    return subprocess.run([sys.executable, str(root / "scripts/gpu-check"), "--stand-in", "--program", program, "--tests", build,
                           *words, "--out", str(report), "--budget", "900"], capture_output=True, text=True, check=False)


with tempfile.TemporaryDirectory(prefix="gpu-check-stand-in-") as name:
    report = pathlib.Path(name) / "report"
    if which == "steps":
        told = gpu_check(report, "--part", "steps", "--only", "environment,layers,training-steps,over-nccl,layer-times")
        expect(told.returncode == 0, f"exit code {told.returncode}")
        sys.exit(0)
    told = gpu_check(report)
    expect(told.returncode == 0, f"exit code {told.returncode}")
    readme = (report / "README.md").read_text()
    first = readme.splitlines()[0]
    expect(first == "# A stand-in's report: CUDA's runtime on the host, no GPU, no measurement",
           f"its first line: {first}")
    records = {r["step"]: r for r in (json.loads(f.read_text()) for f in sorted((report / "steps").glob("*.json")))}
    states = {step: record["status"] for step, record in records.items()}
    skipped = {step: records[step]["why"] for step, state in states.items() if state == "skipped"}
    built = (pathlib.Path(build) / "tests/device.kernels").exists()
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    lacks = set() if built else {"our-kernels"}
    lacks |= set() if "cudnn" in version else {"cudnn-numbers", "cudnn-on-shares"}
    lacks |= set() if "nccl" in version else {"nccl"}
    expect(set(skipped) == lacks and all(skipped.values()), f"skipped: {skipped}")
    expect(all(state == "good" for step, state in states.items() if step not in skipped), f"states: {states}")
    expect(len(states) == 12, f"steps: {sorted(states)}")
    strategies = {e["plan"]["strategy"] for e in records["strategies"]["entries"]}
    expect(len(strategies) >= 8, f"strategies: {strategies}")
    expect(any(e["kind"] == "run" and e["run"]["predicted"] for e in records["calibration"]["entries"]),
           "nothing was predicted")
    expect(pathlib.Path(f"{report}.tar.gz").exists(), "no archive")
    print(f"{sum(len(r['entries']) for r in records.values())} runs, {len(skipped)} steps skipped with their reasons")
