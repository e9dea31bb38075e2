"""Steps about plans: one of each strategy, a calibration, plans beside their predictions."""

from gpu_check import correctness
from gpu_check.context import file_name, write_plan
from gpu_check.folder import read_json, write_json
from gpu_check.sp_plan import length, plan_name

ALL = 1000  # candidates: as many as there are


def machine_words(ctx, ranks, profile=None):
    """What a plan is made for: the calibrated machine, or one of this many GPUs as described."""
    if profile is not None:
        return ["--gpus", ranks, "--profile", profile]
    return ["--gpus", ranks, "--gpu", ctx.args.gpu, "--gpus-per-node", max(ranks, 8), "--nodes", 1]


def candidates(ctx, shape, ranks, profile=None, phase="fwd+bwd", machine=None):
    """Legal plans with their predictions, best first; [] where there are none, with a note why."""
    words = [ctx.program, "plan", *shape.words(), "--phase", phase, *(machine or machine_words(ctx, ranks, profile)),
             "--top", ALL, "--json"]
    document, why = ctx.document(words, f"plan-{ranks}-{shape.seq}-{phase}")
    try:
        found = [{"plan": c["plan"], "name": plan_name(c["plan"]), "predicted_s": c["predicted"]["step_s"]}
                 for c in document.get("candidates", [])]
    except (KeyError, TypeError) as e:
        found, why = [], f"no document of plans: {e}"
    if not found:
        ctx.note(f"plans of {ranks} ranks, {length(shape.seq)} {phase}: {why or 'none is legal'}")
    return found


def first_of_each(found, key):
    """The best plan of every kind that `key` tells apart, in their order."""
    kinds = {}
    for candidate in found:
        kinds.setdefault(key(candidate["plan"]), candidate)
    return list(kinds.values())


def degrees(plan):
    return plan["ulysses"], plan["ring"], plan["team"]


def run_plan(ctx, what, candidate, shape, ranks, kernels, words=(), **more):
    file = write_plan(ctx.logs / f"{file_name(what)}.plan.json", candidate["plan"])
    entry = ctx.sp_run(what, shape, ["--plan", file, *words], kernels=kernels.name, ranks=ranks, **more)
    if entry is not None:
        entry["plan"] = candidate["plan"]
    return entry


def strategies(ctx, ranks=8, comm="inproc", machine=None, launch=None):
    """Numbers only: every strategy's schedule, messages and kernels together."""
    kernels = ctx.attention(shared=comm == "inproc", right=True)
    shape = ctx.sizes.several.but(heads=max(ctx.sizes.several.heads, ranks),
                                  kv_heads=max(ctx.sizes.several.kv_heads, ranks // 2))
    if kernels.name != "cudnn":
        shape = ctx.sizes.small.but(heads=ranks, kv_heads=max(ranks // 2, 1), seq=max(ctx.sizes.small.seq, 16 * ranks))
    found = candidates(ctx, shape, ranks, machine=machine)
    chosen = first_of_each(found, lambda plan: plan["strategy"])
    if not chosen:
        ctx.problem("there are no plans to run")
    ctx.launch = launch
    for candidate in chosen:
        run_plan(ctx, f"{ranks} ranks, {candidate['name']}", candidate, shape, ranks, kernels, comm=comm, iters=2,
                 phase=kernels.phase, said=correctness.shown_errors)
    ctx.launch = None
    bad = [e["failed"] for e in ctx.record["entries"] if e["failed"]]
    ctx.establish("every strategy is right", chosen and not bad and not ctx.record["left_out"], bad[0] if bad else "")


# ---- calibrations


def profile_file(ctx, ranks):
    return ctx.visit.folder.path / f"profile-{ranks}.json"


def profile_fact(ranks):
    return f"{ranks} ranks are calibrated"


def calibrate(ctx, ranks, lengths, seconds, words=(), launch=None, comm="inproc", key=None, establish=None):
    """A profile of this machine as an entry; True if there is one."""
    key = key or f"calibration of {ranks} ranks"
    file = profile_file(ctx, ranks)
    kernels = ctx.attention(shared=comm == "inproc")
    shape = ctx.sizes.plans if kernels.name == "cudnn" else ctx.sizes.small.but(heads=max(ctx.sizes.small.heads, ranks))
    if kernels.name != "cudnn":
        lengths = (shape.seq,)
    if ctx.known(key) is None and ctx.has_time(key, 2 * ctx.visit.least):
        # It ends its last kernels, and fits: more than it was told to take.
        budget = 1 if ctx.args.stand_in else max(1, int(seconds * 0.7))
        heads = ["--heads", shape.heads, "--kv-heads", shape.kv_heads, "--head-dim", shape.head_dim, "--dtype",
                 shape.dtype]
        line = [ctx.program, "calibrate", "--device", "cuda", "--comm", comm, "--kernels", kernels.name, "--gpus",
                ranks,
                *heads, "--seq", ",".join(str(n) for n in lengths), "--mask", "causal", "--budget", budget, "--name",
                f"{ranks}-ranks", "--quiet", *words, "-o", file]
        file.unlink(missing_ok=True)
        env = ctx.one_gpu() if comm == "inproc" else {}
        ran = ctx.run(line, file_name(key), min(ctx.left(), max(1.5 * seconds, ctx.visit.least)), env, launch)[0]
        failed = ran.why
        if failed is None and not file.exists():
            failed = "it wrote no profile"
        if failed is None and ctx.args.stand_in:
            be_generous(file)
        ctx.add({"key": key, "kind": "calibration", "failed": failed, "seconds": ran.seconds,
                 "command": ctx.shown(line),
                 "file": file.name, "shape": {"lengths": list(lengths), "heads": shape.heads,
                                              "kv_heads": shape.kv_heads,
                                              "head_dim": shape.head_dim, "dtype": shape.dtype},
                 "warnings": [w for w in ran.err.splitlines() if "warning" in w][:8], "said": f"{ran.seconds:.0f} s"})
    mine = next((e for e in ctx.record["entries"] if e["key"] == key), None)
    holds = mine is not None and not mine["failed"] and file.exists()
    ctx.establish(establish or profile_fact(ranks), holds, "" if holds else mine["failed"] or "" if mine
                  else "it was not reached")
    return holds


def be_generous(file):
    """Other work may have slowed a stand-in's calibration down but not a run, which would then be refused as
    faster than the machine can be: a peak that nothing reaches."""
    profile = read_json(file)
    for rate in profile["machine"]["gpu"]["matrix_rate"].values():
        rate["value"] = 1000
    write_json(file, profile)


def shape_of_profile(ctx, ranks):
    """The call that a profile was made for: (shape, lengths)."""
    for record in ctx.visit.records.values():
        for entry in record["entries"]:
            if entry.get("kind") == "calibration" and entry["file"] == profile_file(ctx, ranks).name:
                made = dict(entry["shape"])
                lengths = made.pop("lengths")
                return ctx.sizes.plans.but(seq=lengths[0], **made), lengths
    return ctx.sizes.plans, list(ctx.sizes.lengths)


def beside_predictions(ctx, ranks, chosen, seq, phase, **more):
    """Plans with what was predicted for them from this machine's profile."""
    shape, _ = shape_of_profile(ctx, ranks)
    kernels = ctx.attention(shared=more.get("comm", "inproc") == "inproc")
    if kernels.phase == "fwd":
        phase = "fwd"
    for candidate in chosen:
        entry = run_plan(ctx, f"{ranks} ranks, {candidate['name']}, {length(seq)} {phase}", candidate,
                         shape.but(seq=seq), ranks,
                         kernels, ["--profile", profile_file(ctx, ranks)], iters=5, phase=phase, check=False,
                         said=shown_error, **more)
        if entry is not None:
            entry["recommended"] = candidate.get("recommended", False)


def shown_error(entry):
    run = entry["run"]
    text = f"{1000 * run['step_s']:.2f} ms"
    if run["predicted"]:
        text += f", predicted {100 * (run['predicted']['step_s'] / run['step_s'] - 1):+.1f} %"
    return text


def calibrated_plans(ctx):
    """Four ranks, one length: the whole circle once."""
    # A stand-in's calibration takes minutes for more.
    ranks = 2 if ctx.args.stand_in else 4
    seq = ctx.sizes.lengths[min(1, len(ctx.sizes.lengths) - 1)]
    if calibrate(ctx, ranks, (seq,), ctx.left() * 0.6, stand_in_suites(ctx)):
        shape, lengths = shape_of_profile(ctx, ranks)
        found = candidates(ctx, shape.but(seq=lengths[0]), ranks, profile_file(ctx, ranks))
        chosen = first_of_each(found, degrees)
        if found:
            found[0]["recommended"] = True
        beside_predictions(ctx, ranks, chosen, lengths[0], "fwd+bwd")


def stand_in_suites(ctx):
    return ["--suite", "links,attention"] if ctx.args.stand_in else []


def calibrations(ctx):
    """The most ranks first: what they need has the most blocks."""
    ranks = (8, 4, 2)
    for i, n in enumerate(ranks):
        calibrate(ctx, n, ctx.sizes.lengths, ctx.left() / (len(ranks) - i) * 0.8)


def all_plans(ctx):
    """What is worth most comes first: every (U, R, C), then recommended plans at every length, then others."""
    queue = []
    for ranks in (2, 4, 8):
        if not ctx.fact(profile_fact(ranks)):
            ctx.note(f"{ranks} ranks were not calibrated: {ctx.visit.fact(profile_fact(ranks))['why']}")
            continue
        shape, lengths = shape_of_profile(ctx, ranks)
        longest = candidates(ctx, shape.but(seq=max(lengths)), ranks, profile_file(ctx, ranks))
        for seq in sorted(lengths):
            for phase in ("fwd+bwd", "fwd"):
                found = candidates(ctx, shape.but(seq=seq), ranks, profile_file(ctx, ranks), phase)
                if found:
                    queue.append((1, seq, ranks, phase, [found[0] | {"recommended": True}]))
                queue.append((0 if seq == min(lengths) and phase == "fwd+bwd" else 2, seq, ranks, phase,
                              first_of_each(longest, degrees)))
        queue.append((3, min(lengths), ranks, "fwd+bwd",
                      first_of_each(longest, lambda p: (p["strategy"], p["window"], *degrees(p)))))
    if not queue:
        ctx.problem("nothing is calibrated, so nothing can stand beside a prediction")
    done = set()
    for _, seq, ranks, phase, chosen in sorted(queue, key=lambda q: q[:4]):
        new = [c for c in chosen if (ranks, c["name"], seq, phase) not in done]
        done |= {(ranks, c["name"], seq, phase) for c in new}
        beside_predictions(ctx, ranks, new, seq, phase)


