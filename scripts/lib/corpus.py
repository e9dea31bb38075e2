"""Shared by the scripts that score predictions of reports/corpus: points, costs, words.

The figures of files and families come from sp-plan regress; what is here looks at single points,
by the same rules (regress/score.hpp, regress/predict.cpp).
"""

import collections
import json
import math
import pathlib
import tempfile

import measure

RATES = {"tflops_per_gpu", "tokens_per_s", "busbw_GBps"}


def document(text):
    """JSON for a file that people read, too."""
    return json.dumps(text, indent=2, ensure_ascii=False) + "\n"


def replace(file, data):
    """Whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".new")
    fresh.write_bytes(data if isinstance(data, bytes) else data.encode())
    fresh.replace(file)


def regress(sp_plan, folder):
    """The regression document and the bytes of the predictions file. A corpus file with an error
    is a failure: figures over a part of the corpus are not those of the corpus."""
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "predictions.jsonl"
        result = measure.call_json([sp_plan, "regress", "--corpus", folder.resolve(),
                                    "--predictions", file, "--quiet", "--json"], 1800)
        return result, file.read_bytes()


def cost(metric, value):
    """Rates become times before they are compared."""
    return 1 / value if metric in RATES else value


class Point:
    """A measurement with the keys of its file that it does not give itself, and its prediction."""

    def __init__(self, document, index, line):
        self.file, self.index = document["name"], index
        self.own, self.workload = document["points"][index], document["workload"]
        self.machine = document["machine"]
        self.said = line
        self.metric = self.get("metric")

    def get(self, key, otherwise=None):
        """null says nothing, like a missing key."""
        for keys in (self.own, self.workload):
            if keys.get(key) is not None:
                return keys[key]
        return otherwise

    @property
    def gpu(self):
        own = self.own.get("gpu") or self.machine.get("gpu")
        return own if own and own != "unknown" else self.machine.get("like") or "not stated"

    @property
    def measured(self):
        return self.own.get("value")

    @property
    def predicted(self):
        return self.said.get("predicted")

    @property
    def scored(self):
        """Whether the point counts for errors of time."""
        return bool(self.measured and (self.predicted or 0) > 0 and self.metric != "memory_bytes"
                    and not self.get("suspect") and not self.get("relative"))

    @property
    def ratio(self):
        return cost(self.metric, self.predicted) / cost(self.metric, self.measured)

    @property
    def error(self):
        return self.ratio - 1

    @property
    def inside(self):
        """Measured inside the predicted interval; None without one."""
        interval = self.said.get("interval")
        return None if interval is None else interval[0] <= self.measured <= interval[1]

    def seconds(self):
        """What was measured, as a time; None where a rate says none (no bytes, no batch, FLOPs of
        more than an attention call)."""
        if self.metric == "time_s":
            return self.measured
        if self.metric == "busbw_GBps" and self.get("bytes"):
            n, op = self.own["world"], self.get("op")
            part = 1 if op in ("sendrecv", "p2p") else (n - 1) / n
            part *= 2 if op == "all_reduce" else 1
            return part * self.get("bytes") / (1e9 * self.measured)
        world = self.own.get("world", 1)
        call = self.get("scope") in ("attention", "kernel") and not self.get("op")
        if self.metric == "tflops_per_gpu" and call:
            return self.flops() / (self.measured * world * 1e12)
        if self.metric == "tokens_per_s" and self.get("seq") and self.get("batch"):
            gpus = world if self.get("per_gpu") else 1
            return self.get("seq") * self.get("batch") / (self.measured * gpus)
        return None

    def flops(self):
        """Of an attention call, under the source's convention."""
        pairs = self.get("seq") * self.get("seq_kv", self.get("seq"))
        width = (self.get("head_dim") + self.get("head_dim_v", self.get("head_dim"))) / 2
        flops = 4 * self.get("batch", 1) * self.get("q_heads") * width * pairs
        if "full" not in (self.get("mask", "causal").split("-")[-1], self.get("flops_convention")):
            flops /= 2
        return flops * {"fwd": 1, "bwd": 2.5}.get(self.get("phase"), 3.5)

    def matches(self, wanted):
        return all((self.index if key == "index" else self.get(key)) == value
                   for key, value in wanted.items())

    def words(self):
        """What was asked, short."""
        if self.get("op") and not self.get("bytes") and not self.get("peak"):
            return ", ".join(self.words_of_kernel())
        if self.get("op"):
            words = [self.get("op"), size(self.get("bytes")), f"{self.own['world']} GPUs"]
            words += [f"{self.get('nodes')} nodes"] if self.get("nodes", 1) > 1 else []
            return ", ".join(words)
        keys = f"/{tokens(self.get('seq_kv'))}" if self.get("seq_kv") else ""
        words = [tokens(self.get("seq")) + keys, heads(self), self.get("mask", "causal"),
                 self.get("phase", "")]
        words += [f"batch {self.get('batch')}"] if self.get("batch", 1) > 1 else []
        if self.get("ulysses") and self.get("ring"):
            words.append(f"U{self.get('ulysses')}xR{self.get('ring')}")
            words.append(self.get("layout", "") if self.get("ring") > 1 else "")
            words.append(f"C{self.get('team')}" if self.get("team", 1) > 1 else "")
        words.append("packed QKV" if self.get("qkv_packed") else "")
        words += [self.get(key, "") for key in ("kv", "kernel", "system", "variant", "dtype")]
        return ", ".join(word for word in words if word)


    def words_of_kernel(self):
        """Of a GEMM, of experts, of latent and linear attention."""
        yield self.get("op")
        if self.get("m"):
            yield " x ".join(str(self.get(key)) for key in "mnk")
        for key, unit in (("tokens", "tokens"), ("experts", "experts"), ("hidden", "wide")):
            if self.get(key):
                yield f"{self.get(key)} {unit}"
        if self.get("seq"):
            yield tokens(self.get("seq"))
            yield f"batch {self.get('batch', 1)}"
        for key in ("q_heads", "ep", "tp"):
            if self.get(key, 1) > 1:
                yield f"{key} {self.get(key)}"
        if self.own.get("world", 1) > 1:
            yield f"{self.own['world']} GPUs"
        yield from (self.get(key) for key in ("distribution", "mode", "variant", "dtype") if self.get(key))


def heads(point):
    q, kv = point.get("q_heads"), point.get("kv_heads")
    groups = f"/{kv}" if kv and kv != q else ""
    return f"{q}{groups} heads of {point.get('head_dim')}" if q else ""


def tokens(count):
    return f"{count // 1024}K" if count >= 1024 and count % 1024 == 0 else str(count)


def size(count):
    if count is None:
        return "peak"
    unit = min(int(math.log2(max(count, 1))) // 10, 3)
    return f"{count / 1024 ** unit:.4g} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


def duration(seconds):
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} us"


def amount(metric, value):
    """A value in its metric, for people."""
    unit = {"tflops_per_gpu": "TFLOP/s", "tokens_per_s": "tokens/s", "busbw_GBps": "GB/s"}
    return duration(value) if metric == "time_s" else f"{value:.3g} {unit.get(metric, metric)}"


def read(folder, predictions):
    """Points by file, in the order of the files' names, each with its line of the predictions."""
    lines = {}
    for text in predictions.decode().splitlines():
        line = json.loads(text)
        lines[line["file"], line["index"]] = line
    files = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        files[content["name"]] = [Point(content, i, lines[content["name"], i])
                                  for i in range(len(content["points"]))]
    return files


def mean(values):
    return sum(values) / len(values) if values else None


def errors(points):
    """Figures of points of one file that are scored."""
    told = [p.inside for p in points if p.inside is not None]
    magnitudes = [abs(p.error) for p in points]
    return {"n": len(points), "median_error": measure.median(magnitudes), "mape": mean(magnitudes),
            "bias": mean([p.error for p in points]), "interval_coverage": mean(told)}


def over(files):
    """Figures over files, each file alike."""
    result = {"n": sum(f["n"] for f in files), "files": len(files)}
    for key in ("median_error", "mape", "bias", "interval_coverage"):
        result[key] = mean([f[key] for f in files if f[key] is not None])
    return result


def grouped(points, key):
    """Figures of the scored points by key(point), each file of a group alike."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for p in points:
        if p.scored:
            groups[key(p)][p.file].append(p)
    return {name: over([errors(ps) for ps in groups[name].values()]) for name in sorted(groups)}
