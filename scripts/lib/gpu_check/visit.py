"""One visit to a machine: steps in their order, within a budget, whatever happens to each.

A step may take up to one and a half times its share of the time that is left (by its weight against
those of the steps to come), so that those that hang, were it all of them, leave some to each. A step
whose needs are not met is skipped, with the reason; one for which there is no time is left out, by name.
"""

import dataclasses
import datetime
import sys
import time
import traceback
from collections.abc import Callable

from gpu_check import command, folder, report, sp_plan
from gpu_check.context import Context, NothingToDo, NoTime, Sizes, hung



@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    teaches: str  # one sentence
    weight: float  # seconds that it should need, of a part's budget
    work: Callable[[Context], None]
    needs: tuple = ()  # facts without which it does nothing
    falls_back: str = ""  # what it does when cuDNN, or whatever it prefers, fails
    no_stand_in: str = ""  # why a stand-in has nothing to teach here
    stand_in_has: str = ""  # the back end with which one has, all the same
    always: bool = False  # done again when resumed: cheap, and the others rest on it


class Interrupted(BaseException):
    """The machine is wanted back."""


class Visit:
    def __init__(self, a, part, steps):
        self.args, self.part, self.steps = a, part, steps
        self.folder = folder.Folder(a.out, a.archive)
        self.begin = time.monotonic()
        self.budget = a.budget
        # A stand-in is a program of the CPU on a machine that does other things, too.
        self.grace = min(command.GRACE, self.budget / 40)
        self.deadline = self.begin + self.budget - 2 * self.grace - min(2.0, self.budget / 20)
        self.least = min(8.0, self.budget / 60)
        self.longest = self.budget / (3 if a.stand_in else 12)
        self.patience = max(2, int(0.75 * self.longest))
        self.sizes = Sizes.stand_in() if a.stand_in else Sizes.gpu(a)
        self.identity = {}
        self.back_ends = []
        self.records = {}  # by step

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def left(self):
        return self.deadline - time.monotonic()

    # ---- documents

    def save(self, record):
        self.folder.path.mkdir(parents=True, exist_ok=True)
        record["seconds"] = round(max(time.monotonic() - record["began_after_s"] - self.begin, 0), 1)
        folder.write_json(self.folder.step_file(record["number"], record["step"]), record)

    def write_report(self):
        report.write(self.folder)

    def look(self):
        """Which program this is, on which GPU: what was found of another one counts for nothing."""
        limit = min(20.0, self.budget / 20)
        logs = self.folder.logs(0, "visit")
        version = command.run([self.args.program, "--version"], limit, logs, "version", grace=self.grace)
        tool, back_ends = sp_plan.version_in(version.out)
        gpus = []
        if not self.args.stand_in:
            listed = command.run(["nvidia-smi", "-L"], limit, logs, "nvidia-smi", grace=self.grace)
            gpus = [line.strip() for line in listed.out.splitlines() if line.startswith("GPU ")]
        self.back_ends = back_ends
        self.identity = {"tool_version": tool or "unknown", "gpus": gpus, "stand_in": self.args.stand_in}
        earlier = {}
        if self.folder.visit_file.exists():
            try:
                earlier = folder.read_json(self.folder.visit_file)
            except folder.BadDocument as e:
                self.say(f"gpu-check: {e}: written anew")
        visits = earlier.get("visits", []) if isinstance(earlier.get("visits"), list) else []
        visits.append({"date": now(), "part": self.part, "budget_s": self.budget, "resumed": self.args.resume,
                       "only": self.args.only, "identity": self.identity})
        folder.write_json(self.folder.visit_file,
                          {"format": "gpu-check/visit", "format_version": "1.0", "identity": self.identity,
                           "back_ends": back_ends, "request": request_of(self.args), "visits": visits})

    def fact(self, name):
        """The latest word on it; what is not known does not hold."""
        for record in sorted(self.records.values(), key=lambda r: r["number"], reverse=True):
            if name in record.get("facts", {}):
                return record["facts"][name] | {"step": record["step"]}
        return {"holds": False, "why": "nothing has looked into it yet", "step": None}

    # ---- steps

    def run(self):
        """The exit code: 0 nothing failed, 4 something did, 1 this script did not do its work."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        chosen = [(n, s) for n, s in self.steps if not self.args.only or s.name in self.args.only]
        interrupted = False
        try:
            self.look()
            if not self.args.resume:
                self.folder.forget([(n, s.name) for n, s in chosen])
            for record in self.folder.records():
                if record.get("identity") == self.identity:
                    self.records[record["step"]] = record
            for i, (number, step) in enumerate(chosen):
                self.do(number, step, sum(s.weight for _, s in chosen[i:]))
        except Interrupted as e:
            interrupted = True
            self.say(f"gpu-check: {e}: what was found until now is in {self.folder.path}")
        self.write_report()
        self.folder.pack()
        states = [self.records[s.name]["status"] for _, s in chosen if s.name in self.records]
        if interrupted or "broken" in states:
            return 1
        return 4 if "failed" in states or any(
            self.records[s.name]["problems"] for _, s in chosen if s.name in self.records) else 0

    def do(self, number, step, weights):
        before = self.records.get(step.name)
        if self.args.resume and before and done(before) and not step.always:
            self.say(f"{number:02} {step.name}: {before['status']} before")
            return
        record = {"format": "gpu-check/step", "format_version": "1.0", "step": step.name, "number": number,
                  "part": self.part, "teaches": step.teaches, "needs": list(step.needs),
                  "falls_back": step.falls_back, "identity": self.identity, "date": now(),
                  "began_after_s": round(time.monotonic() - self.begin, 3), "seconds": 0,
                  "status": "running", "why": "", "facts": {}, "problems": [], "notes": [],
                  "fell_back": [], "left_out": [], "entries": [], "data": {}}
        self.records[step.name] = record
        seconds = min(self.left(), 1.5 * self.left() * step.weight / weights)
        record["limit_s"] = round(seconds, 1)
        self.say(f"{number:02} {step.name} (at most {max(seconds, 0):.0f} s)")
        try:
            reason = self.why_not(step)
            if reason:
                record["status"], record["why"] = "skipped", reason
            elif seconds < self.least:
                record["status"], record["why"] = "left out", "no time"
                record["entries"] = before["entries"] if before and self.args.resume else []
            else:
                self.save(record)
                self.work(step, record, before, seconds)
        except Interrupted as e:
            record["status"], record["why"] = "interrupted", str(e)
            raise
        finally:
            self.save(record)
            try:
                self.write_report()
                self.folder.pack()
            except OSError as e:
                self.say(f"gpu-check: the report cannot be written: {e}")
        self.say(f"   {record['status']}{': ' + record['why'] if record['why'] else ''}, {record['seconds']} s")

    def work(self, step, record, before, seconds):
        resumed = before["entries"] if before and self.args.resume else []
        context = Context(self, step, record, resumed, seconds)
        try:
            step.work(context)
        except NoTime:
            context.left_out(f"the rest of {step.name}")
        except NothingToDo as e:
            record["status"], record["why"] = "skipped", str(e)
            return
        except Exception as e:  # pylint: disable=broad-except
            record["status"] = "broken"
            record["why"] = f"this script failed: {type(e).__name__}: {e}"
            record["problems"].append(traceback.format_exc())
            return
        failed = [e for e in record["entries"] if e.get("failed")]
        if failed or record["problems"]:
            record["status"] = "failed"
            record["why"] = f"{failed[0]['key']}: {failed[0]['failed']}" if failed else record["problems"][0]
        elif record["left_out"]:
            record["status"] = "partly" if record["entries"] else "left out"
            record["why"] = f"{len(record['left_out'])} left out for want of time"
        else:
            record["status"] = "good"

    def why_not(self, step):
        if self.args.stand_in and step.no_stand_in and step.stand_in_has not in self.back_ends:
            return step.no_stand_in
        for name in step.needs:
            fact = self.fact(name)
            if not fact["holds"]:
                found = f"'{fact['step']}' found that it does not: {fact['why']}" if fact["step"] else fact["why"]
                return f"it needs '{name}'; {found}"
        return ""


def done(record):
    """Whether a visit that is resumed has nothing to add to it."""
    return (record["status"] in ("good", "failed") and not record["left_out"]
            and not any(hung(entry) for entry in record["entries"]))


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def request_of(a):
    return {"heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.head_dim, "dtype": a.dtype,
            "lengths": a.lengths, "kernel_lengths": a.kernel_lengths}
