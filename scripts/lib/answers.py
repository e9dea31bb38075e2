"""Random questions to `sp-plan plan`, each asked in several ways whose answers must agree (scripts/deep-check)."""

import json
import pathlib
import random
import subprocess
import tempfile

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen2.5-7b", "qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b",
          "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "gpt-oss-120b", "qwen3.5-27b", "nemotron-h-56b",
          "llama-4-scout-17b-16e", "gemma-4-26b-a4b", "wan2.1-t2v-14b")
MACHINES = {"dgx-h100": 128, "dgx-a100": 32, "dgx-b200": 32, "hgx-h20": 16, "gb200-nvl72": 8, "8xrtx4090-pcie": 1}  # nodes at most
SECONDS = 300  # of one question
NOTHING_FITS = 3  # exit code
SAME = 1e-6  # relative: one model, asked twice
AS_FAST = 0.005  # what a search may miss of what another one found
SEARCHED = 0.05  # the same, of one with ten times the budget
OPEN = 0.15  # the same, of an answer that says how many plans it left open


class Wrong(Exception):
    """The program answers in no way that it should."""


def question(seed):
    """Words of the command line."""
    draw = random.Random(seed)
    machine = draw.choice(list(MACHINES))
    nodes = draw.choice([n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= MACHINES[machine]])
    words = ["--model", draw.choice(MODELS), "--topology", machine, "--nodes", str(nodes),
             "--seq", draw.choice(["8K", "32K", "128K", "512K"])]
    if draw.random() < 0.25:
        return [*words, "--phase", "prefill"]
    return [*words, "--phase", "train", "--global-batch", str(draw.choice([8, 32, 64, 256, 1024]))]


def ask(program, command, words):
    """The document; None where nothing fits."""
    line = [program, command, *words, "--json"]
    try:
        ran = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as e:
        raise Wrong(f"no answer in {SECONDS} s: {shown(command, words)}") from e
    if ran.returncode == NOTHING_FITS:
        return None
    if ran.returncode != 0:
        raise Wrong(f"exit code {ran.returncode}: {shown(command, words)}: {ran.stderr.strip()[-300:]}")
    return json.loads(ran.stdout)


def shown(command, words):
    return " ".join(["sp-plan", command, *words])


def fastest(document):
    """Seconds of the fastest plan that was simulated; infinite without one."""
    return min((c["predicted"]["step_s"] for c in document["candidates"] if c["simulated"]), default=float("inf")
               ) if document else float("inf")


def missed(document, settled):
    """What its search may miss."""
    return OPEN if document and document["unsettled"] > 0 else settled


def apart(a, b):
    return abs(a - b) > SAME * max(abs(a), abs(b))


def inside(candidate):
    """What one prediction says of itself."""
    p = candidate["predicted"]
    memory = dict(p["memory_bytes"])
    total = memory.pop("total")
    low, high = p["interval_s"]
    if candidate["simulated"] and apart(sum(p["parts_s"].values()), p["step_s"]):
        yield f"parts of {sum(p['parts_s'].values())} s make a step of {p['step_s']} s"
    if apart(sum(memory.values()), total):
        yield f"{sum(memory.values())} bytes by class are {total} in total"
    if p["mfu"] is not None and p["mfu"] > 1:
        yield f"MFU {p['mfu']}"
    if not low * (1 - SAME) <= p["step_s"] <= high * (1 + SAME):
        yield f"{p['step_s']} s is not within {low} to {high} s"


def disagreements(program, seed):
    """Sentences, each with the commands that show it."""
    words = question(seed)
    answer = ask(program, "plan", words)
    if answer is None:
        return
    for candidate in answer["candidates"]:
        for what in inside(candidate):
            yield f"{candidate['name']}: {what}: {shown('plan', words)}"
    here = fastest(answer)
    # More of what a plan needs is never worse, and what is fixed never better than what is searched.
    more = [*words, "--budget", "100"]
    longer = fastest(ask(program, "plan", more))
    if longer > here * (1 + AS_FAST):
        yield f"{longer} s with more time, {here} s with less: {shown('plan', more)}"
    if here > longer * (1 + missed(answer, SEARCHED)):
        yield f"the search misses {100 * (here / longer - 1):.0f} %: {shown('plan', more)}"
    roomy = [*words, "--memory", "400GB"]
    other = ask(program, "plan", roomy)
    if fastest(other) > here * (1 + missed(other, AS_FAST)):
        yield f"{fastest(other)} s with more memory, {here} s with less: {shown('plan', roomy)}"
    best = answer["best"]
    fixed = [*words, "--tp", str(best["plan"]["tp"]), "--pp", str(best["plan"]["pp"])]
    if (found := fastest(ask(program, "plan", fixed))) < min(here, longer) * (1 - SEARCHED):
        yield f"{found} s with degrees given, {here} s without: {shown('plan', fixed)}"
    with tempfile.TemporaryDirectory(prefix="sp-plan-answers-") as folder:
        file = pathlib.Path(folder, "plan.json")
        file.write_text(json.dumps(answer))
        again = ask(program, "simulate", ["--plan", str(file)])
    if again is None or apart(again["result"]["predicted"]["step_s"], best["predicted"]["step_s"]):
        yield f"simulate --plan says otherwise than {best['predicted']['step_s']} s: {shown('plan', words)}"
