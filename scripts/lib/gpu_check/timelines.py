"""What measured timelines tell: which ops ran beside which."""

import dataclasses
import json
import statistics

TRANSFERS = ("exchange", "all_to_all", "all_gather", "reduce_scatter", "all_reduce")


@dataclasses.dataclass(frozen=True)
class Event:
    kind: str
    rank: int
    stream: int
    begin: float  # seconds
    end: float
    bytes: int

    @property
    def seconds(self):
        return self.end - self.begin


def events_in(text):
    """Of a trace that `sp-plan run --trace` wrote. ValueError, KeyError, TypeError: it is none."""
    return [Event(e["name"], e["pid"], e["tid"], e["ts"] * 1e-6, (e["ts"] + e["dur"]) * 1e-6, e["args"]["bytes"])
            for e in json.loads(text)["traceEvents"] if e["ph"] == "X"]


def overlap(event, others):
    """Seconds of an event during which one of the others ran."""
    pieces = sorted((max(o.begin, event.begin), min(o.end, event.end)) for o in others
                    if o.begin < event.end and o.end > event.begin)
    total, reached = 0.0, event.begin
    for begin, end in pieces:
        total += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return total


def attention(events, phase="fwd"):
    return [e for e in events if e.kind == f"attention_{phase}"]


def alone_against_busy(events):
    """Of a causal ring with contiguous tokens, forward: its last rank does one whole block in every
    step, the last one when all others are done. On SMs of its own that takes as long as the others;
    where ranks share all SMs it is faster alone, up to as many times as there are ranks."""
    blocks = attention(events)
    last = max(e.rank for e in blocks)
    mine = sorted((e for e in blocks if e.rank == last), key=lambda e: e.begin)[1:]  # the first is half masked
    others = [e for e in blocks if e.rank != last]
    beside = [overlap(e, others) / e.seconds if e.seconds > 0 else 1 for e in mine]
    alone = [e.seconds for e, part in zip(mine, beside) if part < 0.1]
    busy = [e.seconds for e, part in zip(mine, beside) if part > 0.5]
    return {"alone_s": statistics.median(alone) if alone else None,
            "busy_s": statistics.median(busy) if busy else None,
            "ratio": statistics.median(alone) / statistics.median(busy) if alone and busy else None}


def transfers(events):
    """How fast messages were, beside attention of their rank and without, and how much was hidden."""
    found = {"beside": [], "without": [], "seconds": 0.0, "hidden_s": 0.0}
    for e in events:
        if e.kind not in TRANSFERS or e.bytes <= 0 or e.seconds <= 0:
            continue
        computing = [a for a in events if a.rank == e.rank and a.kind.startswith("attention_")]
        together = overlap(e, computing)
        found["seconds"] += e.seconds
        found["hidden_s"] += together
        found["beside" if together > e.seconds / 2 else "without"].append((e.bytes, e.seconds))
    rates = {}
    for name in ("beside", "without"):
        sample = found[name]
        rates[name] = {"messages": len(sample),
                       "median_s": statistics.median(s for _, s in sample) if sample else None,
                       "bytes": statistics.median(b for b, _ in sample) if sample else None,
                       "bytes_per_s": statistics.median(b / s for b, s in sample) if sample else None}
    return rates | {"hidden": found["hidden_s"] / found["seconds"] if found["seconds"] else None}


def queueing(events):
    """Seconds between ops on the compute stream, a rank and op: what launching and waiting cost."""
    gaps = []
    streams = {}
    for e in sorted(events, key=lambda e: e.begin):
        previous = streams.get((e.rank, e.stream))
        if previous is not None:
            gaps.append(max(e.begin - previous, 0))
        streams[e.rank, e.stream] = e.end
    return {"ops": len(events), "median_gap_s": statistics.median(gaps) if gaps else None,
            "beside": concurrency(events)}


def concurrency(events):
    """Attention kernels that ran at once, on average while any did: the number of ranks if their
    streams have queues of their own."""
    blocks = [e for e in events if e.kind.startswith("attention_")]
    edges = sorted([(e.begin, 1) for e in blocks] + [(e.end, -1) for e in blocks])
    busy = work = 0.0
    running, since = 0, 0.0
    for at, change in edges:
        if running:
            busy += at - since
            work += running * (at - since)
        running, since = running + change, at
    return work / busy if busy else None
