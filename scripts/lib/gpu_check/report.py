"""README.md of a report's folder, from its documents alone: made again after every step."""

from gpu_check import accuracy, folder, sp_plan

STAND_IN = "# A stand-in's report: CUDA's runtime on the host, no GPU, no measurement"
BROKEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
NAMES = {"out": "O", "lse": "LSE", "d_q": "dQ", "d_k": "dK", "d_v": "dV"}
MOST_LINES = 12


def write(where):
    """`where`: a Folder."""
    folder.write_atomically(where.path / "README.md", text_of(where))


def text_of(where):
    visit = folder.read_json(where.visit_file) if where.visit_file.exists() else {}
    records = where.records()
    identity = visit.get("identity", {})
    lines = heading(identity, records)
    lines += overview(where, visit, records)
    for title, body_of in (("What failed", failures), ("Fall-backs that were taken", fall_backs),
                           ("Predicted and measured", predictions), ("What rests on what", rests)):
        try:
            body = body_of(records)
        except BROKEN as e:
            body = [f"It cannot be shown: {type(e).__name__}: {e}"]
        lines += ["", f"## {title}", "", *body] if body else []
    lines += ["", "## The steps"]
    for record in records:
        try:
            lines += section(record, identity)
        except BROKEN as e:
            lines += ["", f"### {record.get('step', 'a step')}", "",
                      f"Its document cannot be shown: {type(e).__name__}: {e}"]
    return "\n".join([*lines, *how(visit, records), ""])


def table(header, rows):
    rows = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header),
            *("| " + " | ".join(row) + " |" for row in rows)]


def environment(records):
    return next((r.get("data", {}) for r in records if r.get("step") == "environment"), {})


def heading(identity, records):
    if identity.get("stand_in"):
        return [STAND_IN, "", "Every time below is of threads of a CPU. It shows that this script and the program's "
                "ways through a GPU run work, nothing else."]
    gpus = environment(records).get("gpus") or []
    gpu = environment(records).get("gpu") or {}
    name = gpu.get("name") or (gpus[0]["name"] if gpus else "no GPU answered")
    return [f"# Checked and measured on GPUs: {f'{len(gpus)} x ' if len(gpus) > 1 else ''}{name}"]


def overview(where, visit, records):
    states = {}
    for r in records:
        states.setdefault(r.get("status", "?"), []).append(r.get("step", "?"))
    told = [f"{len(names)} {state}" + ("" if state == "good" else f" ({', '.join(names)})")
            for state, names in sorted(states.items())]
    lines = ["", f"Of {len(records)} steps: {'; '.join(told)}.", "",
             f"This file is made from `steps/` (`scripts/gpu-check --report {where.path.name}`), whose documents have "
             f"all data{'; `logs/` holds what programs said' if (where.path / 'logs').is_dir() else ''}. Times are "
             "*measured* where nothing else is said.", ""]
    rows = [[f"{r.get('number', 0):02}", r.get("step", "?"), state_of(r, visit), f"{r.get('seconds', 0):.0f}",
             in_short(r)] for r in records]
    lines += table(["", "step", "outcome", "s", "in short"], rows)
    try:
        stand_in = visit.get("identity", {}).get("stand_in")
        goals = [] if stand_in else accuracy.torch_overview(records) + accuracy.overview(records)
    except BROKEN as e:
        goals = [["errors of predictions", f"cannot be shown: {e}"]]
    return lines + (["", *table(["", "value"], goals)] if goals else [])


def state_of(record, visit):
    """A step that another program or GPU did is no part of this visit."""
    other = record.get("identity") != visit.get("identity")
    version = record.get("identity", {}).get("tool_version", "?")
    return record.get("status", "?") + (f" (of {version}, {record.get('date', '?')})" if other else "")


def in_short(record):
    entries = record.get("entries", [])
    told = record.get("why") or ""
    if record.get("status") == "running":
        return "it was running when this script was killed"
    if not told and entries:
        told = f"{sum(not e.get('failed') for e in entries)} of {len(entries)} good"
    notes = [f"fell back to {f['taken']}" for f in record.get("fell_back", [])][:1]
    return "; ".join([told[:300], *notes] if told else notes)


def failures(records):
    lines = []
    for r in records:
        found = [p.strip().splitlines()[-1] if p.startswith("Traceback") else p for p in r.get("problems", [])]
        found += [f"{e['key']}: {e['failed']}" for e in r.get("entries", []) if e.get("failed")]
        more = len(found) - MOST_LINES
        lines += [f"- **{r.get('step', '?')}**: {text}" for text in found[:MOST_LINES]]
        lines += [f"- **{r.get('step', '?')}**: and {more} more"] if more > 0 else []
    return lines


def fall_backs(records):
    rows = [[r.get("step", "?"), f["wanted"], f["taken"], f["why"]] for r in records for f in r.get("fell_back", [])]
    return table(["step", "instead of", "it took", "because"], rows) if rows else []


def predictions(records):
    rows = list(accuracy.rows(accuracy.predicted(records)))
    if not rows:
        return []
    return ["*Predicted*: simulated, with the profile that was calibrated in the same visit. Error = predicted / "
            "measured − 1, of one call. Regret: the recommended plan's time over the fastest's of those that ran.",
            "", *table(accuracy.HEADER, rows)]


def rests(records):
    """Facts that were found, and who needs them."""
    facts = {}
    for r in records:
        for name, fact in r.get("facts", {}).items():
            facts[name] = ["yes" if fact["holds"] else "NO", fact.get("why", "")[:200], r.get("step", "?")]
    found = [[name, holds, step, why] for name, (holds, why, step) in facts.items()]
    lines = table(["fact", "holds", "found by", "why not"], found) if facts else []
    rows = [[r.get("step", "?"), ", ".join(r.get("needs", [])) or "-", r.get("falls_back") or "-"] for r in records]
    return [*lines, "", *table(["step", "needs", "where cuDNN or another dependency fails"], rows)]


# ---- sections


def section(record, identity):
    lines = ["", f"### {record['number']:02} {record['step']}: {record['status']}", "",
             f"*Teaches:* {record['teaches']}"]
    if record["identity"] != identity:
        other = record["identity"]
        lines += ["", f"Of another visit: {other.get('tool_version', '?')} on {', '.join(other.get('gpus', [])) or '?'}."]
    if record["why"] and record["status"] in ("skipped", "left out", "interrupted", "broken"):
        lines += ["", f"{record['status'].capitalize()}: {record['why']}."]
    lines += environment_text(record["data"]) if record["step"] == "environment" else []
    runs = [e for e in record["entries"] if e["kind"] == "run"]
    for body in (runs_table(runs), rates_table(record), shares_table(record["data"]), tests_table(record),
                 others(record)):
        lines += ["", *body] if body else []
    lines += ["", *(f"- {note}" for note in record["notes"])] if record["notes"] else []
    if record["left_out"]:
        more = len(record["left_out"]) - MOST_LINES
        named = record["left_out"][:MOST_LINES] + ([f"and {more} more"] if more > 0 else [])
        lines += ["", f"Left out: {'; '.join(named)}."]
    return lines


def runs_table(runs):
    if not runs:
        return []
    checked = [name for name in sp_plan.TENSORS if any(e["run"] and name in sp_plan.errors(e["run"]) for e in runs)]
    header = ["run", "outcome", "kernels", "ms", *(NAMES[name] for name in checked), "said", "s"]
    rows = []
    for e in runs:
        run = e["run"]
        ratios = sp_plan.errors(run) if run else {}
        rows.append([e["key"], e["failed"] or "good", run["kernels"] if run else "-",
                     f"{1000 * run['step_s']:.3g}" if run else "-",
                     *(("-" if name not in ratios else "NaN" if ratios[name] is None else f"{ratios[name]:.2g}")
                       for name in checked),
                     "" if checked and not e.get("timeline") else e.get("said", ""), f"{e['seconds']:.1f}"])
    legend = ["", "O to dV: the largest error against fp64 as a part of its limit; above 1 is wrong."] if checked else []
    return [*table(header, rows), *legend]


def rates_table(record):
    """Beside PyTorch, with clocks."""
    torch = next((e for e in record["entries"] if e["kind"] == "torch"), None)
    runs = [e for e in record["entries"] if e["kind"] == "run" and e["run"] and e.get("between")]
    if not runs:
        return []
    ratios = {(point, phase): ratio for point, phase, ratio in accuracy.torch_ratios(record)}
    rows = []
    for e in runs:
        shape, clocks = e["run"]["shape"], e.get("clocks")
        for phase, part in e["run"]["phases"].items():
            ratio = ratios.get(((shape["seq"], shape["mask"]), phase))
            speed = sp_plan.flops(shape, phase) / part["median_s"] / 1e12 if part["median_s"] > 0 else 0
            rows.append([sp_plan.length(shape["seq"]), shape["mask"], phase, f"{1000 * part['median_s']:.3g}",
                         f"{speed:.3g}",
                         f"{speed / ratio:.3g}" if ratio else "-", f"{ratio:.3f}" if ratio else "-",
                         f"{clocks['sm_mhz']:.0f} ({clocks['sm_mhz_least']:.0f} at least), {clocks['watts']:.0f} W"
                         + (f", slowed by {', '.join(clocks['slowed_by'])}" if clocks["slowed_by"] else "")
                         if clocks else "-"])
    lines = table(["tokens", "mask", "phase", "ms", "TFLOP/s", "PyTorch TFLOP/s", "PyTorch's time / ours",
                   "SM clock MHz"], rows)
    if torch and torch.get("versions"):
        v = torch["versions"]
        lines += ["", f"PyTorch {v.get('torch')} (CUDA {v.get('cuda')}, cuDNN {v.get('cudnn')}): "
                  "scaled_dot_product_attention with its cuDNN back end."]
    return [*lines, "", "FLOPs: 4·S²·H·D forward, half of it causal, backward 2.5 times that."]


def shares_table(data):
    if not data.get("shares"):
        return []
    rows = [[s["ranks"], f"{s['sms']} of {s['of']}", "yes" if s["claimed"] else "NO",
             "-" if s["alone_against_busy"] is None else f"{s['alone_against_busy']:.2f}"] for s in data["shares"]]
    return table(["ranks", "SMs each", "split", "a block's time alone / beside others"], rows)


def tests_table(record):
    tests = [e for e in record["entries"] if e["kind"] == "test"]
    if not tests:
        return []
    lines = table(["test", "outcome", "s", "said"],
                  [[t["key"], "skipped" if t["skipped"] else t["failed"] or "passed", f"{t['seconds']:.1f}",
                    t["said"]] for t in tests])
    for t in tests:
        if t["failed"]:
            lines += ["", *(f"- {name}: {how}" for name, how in t["cases"] if how != "passed")]
            lines += ["", f"The end of {t['key']}:", "", "```", *t.get("tail", []), "```"]
    return lines


def others(record):
    """Calibrations, NCCL's tests, PyTorch."""
    rows = [[e["key"], e["failed"] or "good", e.get("file", ""), e.get("said", ""), "; ".join(e.get("warnings", []))]
            for e in record["entries"] if e["kind"] in ("calibration", "nccl-tests", "torch")]
    return table(["what", "outcome", "file", "said", "warnings"], rows) if rows else []


def environment_text(data):
    machine, gpus, gpu = data.get("machine", {}), data.get("gpus") or [], data.get("gpu") or {}
    rows = [[key, machine.get(key)] for key in ("host", "os", "kernel", "cpu", "cores", "memory", "memory_limit",
                                                "cpu_limit", "python")]
    rows += [["load, ulimits", f"{machine.get('load')}, {machine.get('limits')}"]]
    rows += [[f"GPU {i}", ", ".join(f"{key} {value}" for key, value in g.items() if value not in ("[N/A]", ""))]
             for i, g in enumerate(gpus)]
    if gpu:
        rows += [["sp-plan sees", f"{gpu.get('name')}, {gpu.get('multiprocessors_per_rank')} SMs, "
                  f"CUDA {gpu.get('driver')} (driver), {gpu.get('runtime')} (runtime)"]]
    for key in ("nvcc", "torch", "built_with", "tools", "versions_loaded", "libraries_loaded", "libraries_found",
                "variables", "other_processes"):
        if key in data:
            value = data[key]
            rows.append([key.replace("_", " "), ", ".join(f"{k} {v}" for k, v in value.items())
                         if isinstance(value, dict)
                         else ", ".join(value) if isinstance(value, list) else value])
    return ["", *table(["", ""], rows)]


def how(visit, records):
    request = visit.get("request", {})
    lines = ["", "## How", ""]
    for v in visit.get("visits", [])[-6:]:
        resumed = ", resumed" if v.get("resumed") else ""
        lines.append(f"- {v.get('date')}: part {v.get('part')}, {v.get('budget_s')} s{resumed}, "
                     f"sp-plan {v.get('identity', {}).get('tool_version')}")
    heads = f"{request.get('heads')}/{request.get('kv_heads')} heads of {request.get('head_dim')}"
    lines += ["", f"Timed: {heads}, {request.get('dtype')}. Back ends compiled in: {', '.join(visit.get('back_ends', [])) or '?'}.",
              "", "```"]
    commands = []
    for r in records:
        commands += [e["command"] for e in r.get("entries", []) if e.get("command")][:1]
    return [*lines, *commands, "```"]
