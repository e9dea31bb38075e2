"""nvidia-smi: what it knows, and clocks while something runs."""

import datetime
import statistics

from gpu_check import command

FIELDS = ("timestamp", "index", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")
# Bits of clocks_event_reasons.active that slow a kernel down, as nvml.h has them.
REASONS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal slowdown",
           0x40: "hardware thermal slowdown", 0x80: "power brake"}


class Sampler:
    """Clocks every fifth of a second, until it is closed."""

    def __init__(self, logs, name):
        # The reasons' field has two names; a driver that does not know the first says so at once.
        self.started = None
        for reasons in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
            started = command.Started(["nvidia-smi", f"--query-gpu={','.join((*FIELDS, reasons))}",
                                       "--format=csv,noheader,nounits", "-lms", "200"], logs, f"{name}-clocks")
            try:
                if started.process is not None:
                    started.process.wait(1.0)
            except command.subprocess.TimeoutExpired:
                self.started = started
                return

    def close(self, grace):
        """Samples, oldest first; [] if there was no nvidia-smi that gives them."""
        if self.started is None:
            return []
        self.started.kill(grace)
        return samples_in(self.started.result("enough").out)


def samples_in(text):
    samples = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        try:
            at = datetime.datetime.strptime(words[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
            samples.append({"at": at, "gpu": int(words[1]), "sm_mhz": float(words[2]),
                            "memory_mhz": float(words[3]), "watts": float(words[4]),
                            "celsius": float(words[5]), "busy": float(words[6]),
                            "reasons": int(words[7], 16)})
        except (ValueError, IndexError):
            continue  # a line that was cut off, or "[N/A]"
    return samples


def during(samples, begin, end):
    """Clocks of busy GPUs between two times (seconds since 1970)."""
    busy = [s for s in samples if begin <= s["at"] <= end and s["busy"] > 0]
    if not busy:
        return None
    seen = 0
    for s in busy:
        seen |= s["reasons"]
    return {"samples": len(busy), "sm_mhz": statistics.median(s["sm_mhz"] for s in busy),
            "sm_mhz_least": min(s["sm_mhz"] for s in busy), "watts": max(s["watts"] for s in busy),
            "celsius": max(s["celsius"] for s in busy),
            "slowed_by": [name for bit, name in REASONS.items() if seen & bit]}
