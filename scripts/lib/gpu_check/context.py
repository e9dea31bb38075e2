"""What a step works with: time, facts that steps before it have found, and runs of sp-plan.

What a step finds is in its record, which is on disk after every run:
`entries` (one a run or test, each with a key, so that a visit that is resumed does only those that are
missing), `facts` (what later steps rest on), `problems`, `notes`, `fell_back`, `left_out`.
"""

import contextlib
import dataclasses
import gzip
import json
import os
import re
import tempfile
import time

from gpu_check import command, sp_plan, timelines
from gpu_check.sp_plan import Shape

RERUNS = 2  # of a step: failed runs that are done again to hear what cuDNN has to say
MOST_TRACE = 16 << 20


class NoTime(Exception):
    """The step's time is spent."""


class NothingToDo(Exception):
    """What the step needs is not here; the text says what."""


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Attention kernels to work with, and what they can do."""

    name: str
    phase: str = "fwd+bwd"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large the work is: a GPU's, or a stand-in's. What is checked is small, since the host computes it
    again in fp64: seconds of a core for 1,024 tokens of four heads."""

    small: Shape  # that the reference kernels take milliseconds for
    one: Shape  # that cuDNN is checked on, with one rank
    several: Shape  # the same, with up to eight
    plans: Shape  # that is timed
    lengths: tuple  # of plans
    kernel_lengths: tuple
    long: int  # tokens: a single length, for copies beside attention

    @staticmethod
    def gpu(a):
        call = Shape(heads=a.heads, kv_heads=a.kv_heads, head_dim=a.head_dim, dtype=a.dtype)
        return Sizes(small=Shape(seq=1024, heads=8, kv_heads=4, head_dim=64),
                     one=call.but(seq=1024, heads=4, kv_heads=2),
                     several=call.but(seq=1024, heads=8, kv_heads=4), plans=call.but(seq=4096),
                     lengths=tuple(a.lengths), kernel_lengths=tuple(a.kernel_lengths), long=16384)

    @staticmethod
    def stand_in():
        tiny = Shape(seq=64, heads=4, kv_heads=2, head_dim=8, dtype="fp32")
        half = tiny.but(dtype="bf16")  # cuDNN takes no fp32
        return Sizes(small=tiny, one=half, several=half.but(heads=8, kv_heads=4), plans=half, lengths=(64,), kernel_lengths=(64,), long=64)


def visible_gpus():
    """Those that somebody has restricted this to; [] where nobody has."""
    return [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]


def hung(entry):
    return (entry.get("failed") or "").startswith("no end")


def file_name(key):
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", key).strip("-.")[:80]


class Context:
    def __init__(self, visit, step, record, before, seconds):
        self.visit, self.step, self.record = visit, step, record
        self.args, self.sizes, self.program = visit.args, visit.sizes, visit.args.program
        self.before = {entry["key"]: entry for entry in before}
        self.end = time.monotonic() + seconds
        self.logs = visit.folder.logs(record["number"], step.name)
        self.launch = None  # how ranks are started, if not as threads: words, env -> [(words, env)]
        self.reruns = 0

    # ---- time

    def left(self):
        return self.end - time.monotonic()

    def has_time(self, what, least=None):
        if self.left() >= (self.visit.least if least is None else least):
            return True
        self.left_out(what)
        return False

    # ---- what was found

    def save(self):
        self.visit.save(self.record)

    def add(self, entry):
        self.record["entries"].append(entry)
        self.save()
        self.visit.say(f"    {entry['key']}: {entry.get('failed') or entry.get('said') or 'good'}")
        return entry

    def known(self, key):
        """What an interrupted visit has left of it: taken over, unless it had hung."""
        entry = self.before.pop(key, None)
        if entry is not None and hung(entry):
            return None
        if entry is not None:
            self.record["entries"].append(entry)
        return entry

    def fact(self, name):
        return self.visit.fact(name)["holds"]

    def establish(self, name, holds, why=""):
        self.record["facts"][name] = {"holds": bool(holds), "why": why}
        self.save()

    def problem(self, text):
        self.record["problems"].append(text)

    def note(self, text):
        self.record["notes"].append(text)

    def left_out(self, what):
        self.record["left_out"].append(what)

    def fall_back(self, wanted, taken, why):
        entry = {"wanted": wanted, "taken": taken, "why": why}
        if entry not in self.record["fell_back"]:
            self.record["fell_back"].append(entry)

    def attention(self, shared=False, right=False):
        """cuDNN if it runs (with `right`: gives right numbers), on all SMs or on shares of them, or if no step has
        looked into it (--only); its forward alone if only that; else the reference."""
        where, word = " on shares" if shared else "", "is right" if right else "runs"
        forward, backward = (f"cuDNN {phase}{where} {word}" for phase in ("forward", "backward"))
        if self.visit.args.stand_in:
            return Kernels("reference")  # its cuDNN is there for numbers, and takes its time
        known = [self.visit.fact(name) for name in (forward, backward)]
        alone = [self.visit.fact(f"cuDNN {phase} runs") for phase in ("forward", "backward")]
        untried = all(fact["step"] is None for fact in known) and all(
            fact["holds"] or fact["step"] is None for fact in alone)
        if not right and "cudnn" in self.visit.back_ends and untried:
            self.fall_back(f"a step that looks into cuDNN{where}", f"cuDNN{where}", "no such step ran: unless it fails, it runs")
            return Kernels("cudnn")
        if all(fact["holds"] for fact in known):
            return Kernels("cudnn")
        missing = backward if self.fact(forward) else forward
        why = self.visit.fact(missing)["why"]
        if shared and not self.fact(forward.replace(where, "")):
            why = self.visit.fact(forward.replace(where, ""))["why"]  # so nobody looked at shares
        if self.fact(forward) and not right:
            self.fall_back("cuDNN, forward and backward", "cuDNN, forward only", why)
            return Kernels("cudnn", "fwd")
        self.fall_back(f"cuDNN{where}", "reference kernels, slow on purpose", why)
        return Kernels("reference")

    # ---- commands

    def one_gpu(self):
        """Ranks that are threads would spread over all GPUs: of one they are to learn how it is shared."""
        return {} if self.args.stand_in else {"CUDA_VISIBLE_DEVICES": (visible_gpus() or ["0"])[0]}

    def run(self, words, name, limit=None, env=None, launch=None):
        """Runs commands to their end; one Ran for each process."""
        limit = min(self.left(), limit or self.visit.longest)
        if limit <= 0:
            raise NoTime()
        with self.messages() as folder:
            begun = (launch or (lambda w, e: [(w, e)]))(words, folder | (env or {}))
            started = [command.Started(w, self.logs, file_name(name) + (f".{i}" if i else ""), e)
                       for i, (w, e) in enumerate(begun)]
            return command.together(started, limit, self.visit.grace)

    @contextlib.contextmanager
    def messages(self):
        """Where a stand-in's processes leave NCCL's messages for each other: a variable; no other command's."""
        if not self.args.stand_in:
            yield {}
            return
        with tempfile.TemporaryDirectory(prefix="gpu-check-messages-") as folder:
            yield {"SPP_HOST_NCCL_FOLDER": folder}

    def cut_off(self, ran, limit):
        """Whether it had too little time to count as one that hangs."""
        return ran.timed_out and ran.why.startswith("no end") and limit < self.visit.longest / 2

    def shown(self, words):
        """A command as one would type it, with files of this report by their names."""
        text = " ".join(str(w) for w in words).replace(str(self.program), "sp-plan")
        text = text.replace(f"{self.logs}/", "").replace(f"{self.visit.folder.path}/", "")
        return command.home_removed(text)

    def sp_run(self, key, shape, words=(), *, kernels, ranks=1, check=True, iters=3, warmup=1, env=None,
               phase=None, comm="inproc", analyse=None, said=None, patience=1):
        """A run of sp-plan as an entry; None, and named as left out, when there is no time for it.

        `analyse`: what to make of the measured timeline's events. `said`: a line about a good run.
        `patience`: for large work, whose numbers the host makes: so many times as long as other runs.
        """
        if (entry := self.known(key)) is not None:
            return entry
        if not self.has_time(key):
            return None
        line = [self.program, "run", "--device", "cuda", "--comm", comm, "--kernels", kernels, *shape.words(),
                *([] if "--plan" in words else ["--gpus", ranks]), *(["--phase", phase] if phase else []),
                "--iters", iters, "--warmup", warmup, *(["--check"] if check else []),
                "--timeout", self.visit.patience * patience, "--json", *words]
        name = file_name(key)
        trace_file = self.logs / f"{name}.trace.json"
        if analyse:
            line += ["--trace", trace_file]
        log = self.logs / f"{name}.cudnn.log"
        variables = self.one_gpu() if comm == "inproc" else {}
        variables |= {"CUDNN_LOGLEVEL_DBG": 2, "CUDNN_LOGDEST_DBG": log} if kernels == "cudnn" else {}
        limit = min(self.left(), self.visit.longest * patience)
        try:
            ran = self.run(line, name, limit, variables | (env or {}), self.launch)
        except NoTime:
            self.left_out(key)
            return None
        if self.cut_off(ran[0], limit):
            self.left_out(f"{key}: cut off")
            return None
        entry = self.entry_of(key, ran, line, env or {}) | {"scope": shape.scope}
        entry["logs"] = self.kept_logs(log)
        if entry["run"] is None and kernels == "cudnn" and self.left() > self.visit.least:
            self.ask_cudnn(entry, line, log, env or {})
        if analyse:
            self.look_at_trace(entry, trace_file, analyse)
        if said and entry["failed"] is None:
            entry["said"] = said(entry)
        return self.add(entry)

    def entry_of(self, key, ran, line, env):
        first = ran[0]
        document = sp_plan.document_in(first.out)
        try:
            run = sp_plan.kept(document) if document.get("format") == "sp-plan/run" else None
        except (KeyError, TypeError, AttributeError, ValueError) as e:
            run, document = None, {"error": f"no document of a run: {type(e).__name__} {e}"}
        told = [f"process {i}: {r.why}" if len(ran) > 1 else r.why for i, r in enumerate(ran)
                if r.why and not r.why.startswith("ended because another")]
        failed = "; ".join(told) or None
        if run is None and failed is None:
            failed = document.get("error") or "it printed no document of a run"
        if run is not None and (bad := sp_plan.wrong(run)):
            failed = f"WRONG NUMBERS: {', '.join(bad)}"
        elif run is not None and not run["passed"] and failed is None:
            failed = "its own check failed"
        return {"key": key, "kind": "run", "failed": failed, "run": run,
                "seconds": max(r.seconds for r in ran), "command": self.shown(line), "environment":
                {name: str(value) for name, value in env.items()},
                "libraries": sorted({name for r in ran for name in r.libraries})}

    def kept_logs(self, *files):
        kept = []
        for file in files:
            command.bounded(file)
            if file.exists() and file.stat().st_size == 0:
                file.unlink()
            elif file.exists():
                kept.append(file.name)
        return kept

    def ask_cudnn(self, entry, line, log, env):
        """The same run, as short as possible, with all that cuDNN can tell about it."""
        if self.reruns >= RERUNS:
            return
        self.reruns += 1
        short = [word for word in line if word != "--check"]
        for option, value in (("--iters", 1), ("--warmup", 0)):
            short[short.index(option) + 1] = value
        full = log.with_name(log.name.replace(".cudnn.log", ".cudnn-all.log"))
        try:
            self.run(short, f"{file_name(entry['key'])}.again", None,
                     {"CUDNN_LOGLEVEL_DBG": 3, "CUDNN_LOGDEST_DBG": full} | env, self.launch)
        except NoTime:
            return
        entry["logs"] += self.kept_logs(full)

    def look_at_trace(self, entry, file, analyse):
        if not file.exists():
            return
        size = file.stat().st_size
        try:
            if size > MOST_TRACE:
                raise ValueError(f"{size >> 20} MiB are too many")
            entry["timeline"] = analyse(timelines.events_in(file.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as e:
            entry["timeline"] = None
            self.note(f"{entry['key']}: its timeline cannot be read: {e}")
        if size <= MOST_TRACE:
            file.with_suffix(".json.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()

    def document(self, words, name, limit=None, env=None, launch=None):
        """(document, why not) of a command that prints JSON."""
        ran = self.run(words, name, limit, env, launch)[0]
        document = sp_plan.document_in(ran.out)
        why = ran.why or (None if document else "it printed no document")
        return (document, None) if why is None else ({}, why)


def write_plan(file, plan):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"plan": plan}))
    return file
