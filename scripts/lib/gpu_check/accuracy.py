"""What predictions were worth: their errors, and what following them costs."""

from gpu_check.sp_plan import length
from gpu_check.times import median

# What predictions and kernels are to reach: median and mean of abs(error), the recommended plan's
# time over the fastest's, PyTorch's time over ours.
MEDIAN_ERROR, MAPE, REGRET, TORCH_RATIO = 0.05, 0.08, 0.02, 0.98


def predicted(records):
    """Attention calls that a prediction stands beside, of all steps."""
    return [e for r in records for e in r["entries"]
            if e.get("kind") == "run" and e.get("run") and e["run"]["predicted"] and e["run"]["step_s"] > 0
            and e.get("scope", "attention") == "attention"]


def error_of(entry):
    return entry["run"]["predicted"]["step_s"] / entry["run"]["step_s"] - 1


def verdict(value, goal, reached):
    return f"{value} (goal: {goal}, {'reached' if reached else 'missed'})"


def groups(entries):
    """By ranks, tokens, phase, network: errors, and the recommended plan's regret."""
    found = {}
    for e in entries:
        run = e["run"]
        found.setdefault((run["ranks"], run["shape"]["seq"], run["shape"]["phase"], run["comm"]), []).append(e)
    for key, here in sorted(found.items()):
        fastest = min(here, key=lambda e: e["run"]["step_s"])
        chosen = next((e for e in here if e.get("recommended")), None)
        yield {"ranks": key[0], "seq": key[1], "phase": key[2], "entries": here, "fastest": fastest, "chosen": chosen,
               "regret": chosen["run"]["step_s"] / fastest["run"]["step_s"] - 1 if chosen else None}


def overview(records):
    entries = predicted(records)
    if not entries:
        return []
    errors = [abs(error_of(e)) for e in entries]
    middle, mean = median(errors), sum(errors) / len(errors)
    inside = sum(e["run"]["predicted"]["interval_s"][0] <= e["run"]["step_s"] <= e["run"]["predicted"]["interval_s"][1]
                 for e in entries)
    rows = [["runs that were predicted", str(len(entries))],
            ["median of abs(error)", verdict(f"{100 * middle:.1f} %", f"{100 * MEDIAN_ERROR:.0f} %",
                                             middle <= MEDIAN_ERROR)],
            ["MAPE: mean of abs(error)", verdict(f"{100 * mean:.1f} %", f"{100 * MAPE:.0f} %", mean <= MAPE)],
            ["measured inside the predicted interval", f"{inside} of {len(entries)}"]]
    regrets = [g["regret"] for g in groups(entries) if g["regret"] is not None]
    if regrets:
        rows.append(["recommended plan's time over the fastest's that ran, at worst",
                     verdict(f"{100 * max(regrets):+.1f} %", f"within {100 * REGRET:.0f} %", max(regrets) <= REGRET)])
    return rows


def torch_overview(records):
    ratios = [ratio for r in records for _, _, ratio in torch_ratios(r)]
    if not ratios:
        return []
    reached = sum(ratio >= TORCH_RATIO for ratio in ratios)
    return [["kernels alone, rate over PyTorch's: least, median",
             verdict(f"{100 * min(ratios):.1f} %, {100 * median(ratios):.1f} %", f"at least {100 * TORCH_RATIO:.0f} %",
                     reached == len(ratios)) + f"; {reached} of {len(ratios)} reach it"]]


def torch_ratios(record):
    """((tokens, mask), phase, PyTorch's time / ours) of a step's runs that both did."""
    points = {(p["seq"], p["mask"]): p for e in record["entries"] if e.get("kind") == "torch"
              for p in e["points"] if "failed" not in p}
    for e in record["entries"]:
        if e.get("kind") != "run" or not e.get("run") or e["run"]["kernels"] != "cudnn":
            continue
        point = (e["run"]["shape"]["seq"], e["run"]["shape"]["mask"])
        for phase, part in e["run"]["phases"].items():
            if point in points and part["median_s"] > 0:
                yield point, phase, points[point][f"{phase}_s"] / part["median_s"]


def rows(entries):
    """A row for each group, for the report's table."""
    for g in groups(entries):
        errors = [error_of(e) for e in g["entries"]]
        fastest, chosen = g["fastest"]["run"], g["chosen"]["run"] if g["chosen"] else None
        yield [str(g["ranks"]), length(g["seq"]), g["phase"], str(len(errors)),
               f"{100 * median([abs(e) for e in errors]):.1f} %", f"{100 * sum(map(abs, errors)) / len(errors):.1f} %",
               f"{100 * sum(errors) / len(errors):+.1f} %", f"{fastest['plan']}, {1000 * fastest['step_s']:.3g} ms",
               f"{chosen['plan']}, {1000 * chosen['step_s']:.3g} ms" if chosen else "-",
               "it did not run" if g["regret"] is None else f"{100 * g['regret']:+.1f} %"]


HEADER = ["ranks", "tokens", "phase", "plans", "median abs(error)", "MAPE", "bias", "fastest", "recommended", "regret"]
