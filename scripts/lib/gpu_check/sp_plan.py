"""Command lines of sp-plan, and what is kept of its documents."""

import dataclasses
import json
import re

# Order in which errors are shown: forward's, then backward's.
TENSORS = ("out", "lse", "d_q", "d_k", "d_v")


@dataclasses.dataclass(frozen=True)
class Shape:
    """An attention call."""

    seq: int = 2048
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 128
    dtype: str = "bf16"
    mask: str = "causal"
    batch: int = 1
    documents: str = ""
    scope = "attention"

    def words(self):
        words = ["--heads", self.heads, "--kv-heads", self.kv_heads, "--head-dim", self.head_dim,
                 "--dtype", self.dtype, "--seq", self.seq]
        # Packed documents have a causal mask of their own.
        words += ["--documents", self.documents] if self.documents else ["--mask", self.mask]
        return words + (["--batch", self.batch] if self.batch != 1 else [])

    def text(self):
        heads = f"{self.heads}/{self.kv_heads}" if self.heads != self.kv_heads else f"{self.heads}"
        batch = f", batch {self.batch}" if self.batch != 1 else ""
        mask = f"documents of {self.documents}" if self.documents else self.mask
        return f"{length(self.seq)}, {heads} heads of {self.head_dim}, {self.dtype}, {mask}{batch}"

    def but(self, **changes):
        return dataclasses.replace(self, **changes)


def length(seq):
    return f"{seq // 1024}K" if seq % 1024 == 0 else str(seq)


def flops(shape, phase):
    """As papers count: 4·S²·H·D forward, half of it under a causal mask; backward 2.5 times that."""
    part = 0.5 if shape["mask"] == "causal" else 1
    forward = 4 * shape["batch"] * shape["heads"] * shape["head_dim"] * shape["seq"] ** 2 * part
    return forward * {"fwd": 1, "bwd": 2.5, "fwd+bwd": 3.5}[phase]


def document_in(text):
    """The JSON document in what a program said; launchers add lines of their own. {} if there is none."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        return {}
    try:
        document = json.loads(text[begin:end + 1])
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def version_in(text):
    """(version with commit, compiled-in back ends) of what `sp-plan --version` prints."""
    found = re.search(r"^sp-plan (\S+) \(commit (\S+)\)", text, re.M)
    back_ends = re.search(r"^back ends compiled in: (.*)$", text, re.M)
    return (f"{found[1]} ({found[2]})" if found else None,
            [word.strip() for word in back_ends[1].split(",")] if back_ends else [])


def plan_name(plan):
    name = f"{plan['strategy']} U{plan['ulysses']}xR{plan['ring']}"
    name += f" C{plan['team']}" if plan["team"] > 1 else ""
    name += f" W{plan['window']}" if plan["window"] > 1 else ""
    name += f" {plan['layout']}"
    return name + (f" {'<'.join(plan['order'])}" if len(plan["order"]) > 1 else "")


def kept(document):
    """What of a run's document goes into a step's: all that reports and later steps read.

    KeyError, TypeError, AttributeError: it is no document of a run.
    """
    phases = {}
    for name, phase in document["phases"].items():
        phases[name] = {key: phase[key] for key in ("median_s", "samples_s", "attention_s", "gemm_s",
                                                    "other_kernels_s", "exposed_s", "imbalance_s", "launch_bound_s",
                                                    "kinds")}
        phases[name]["check"] = phase["check"]
        phases[name]["predicted_s"] = phase.get("predicted_s")
    request, measured = document["request"], document["measured"]
    run = {"tool_version": document["tool_version"], "plan": plan_name(document["plan"]),
           "shape": {key: request[key] for key in ("seq", "heads", "kv_heads", "head_dim", "batch",
                                                   "mask", "dtype", "phase")},
           "ranks": document["backend"]["ranks"], "comm": document["backend"]["comm"],
           "kernels": document["backend"]["kernels"], "gpu": document["backend"]["gpu"],
           "step_s": measured["step_s"], "spread": measured["spread"], "samples_s": measured["samples_s"],
           "sent_bytes": sum(measured["comm_bytes_per_rank"].values()),
           "phases": phases, "passed": document["passed"], "warnings": document["warnings"],
           "elapsed_s": document["elapsed_s"], "predicted": None}
    if document["predicted"]:
        run["predicted"] = {key: document["predicted"][key] for key in ("step_s", "interval_s")}
    return run


def tensors(run):
    """(phase, tensor's check) of a run that was checked."""
    return [(phase, t) for phase, part in run["phases"].items() if part["check"]
            for t in part["check"]["tensors"]]


def errors(run):
    """Largest error of each tensor as a part of its limit: above 1 is wrong, None is no number."""
    found = {}
    for _, t in tensors(run):
        pairs = [(t["error"], t["limit"]), (t["mean_error"], t["mean_limit"])]
        ratio = None if any(e is None for e, _ in pairs) else max(e / limit for e, limit in pairs)
        if t["tensor"] not in found or ratio is None or (found[t["tensor"]] or 0) < ratio:
            found[t["tensor"]] = ratio
    return {name: found[name] for name in (*TENSORS, *sorted(set(found) - set(TENSORS))) if name in found}


def wrong(run):
    """Names of tensors that are not what single-device attention in fp64 gives."""
    return sorted({t["tensor"] for _, t in tensors(run) if not t["passed"]})
