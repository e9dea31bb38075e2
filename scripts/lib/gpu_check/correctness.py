"""Steps about right and wrong: our kernels, the reference, cuDNN; all against fp64."""

import os
import pathlib
import re
import shutil

from gpu_check import sp_plan
from gpu_check.context import NoTime, NothingToDo

# ---- tests of the build


def tests_of(ctx, label):
    """As ctest tells them, else the programs of that name (a build that moved): name, command, seconds."""
    build, tests = ctx.args.tests, []
    if shutil.which("ctest"):
        listed, _ = ctx.document(["ctest", "--test-dir", build, "-L", f"^{label}$", "--show-only=json-v1"], "ctest",
                                 ctx.visit.longest / 4)
        for test in listed.get("tests", []):
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            words = test.get("command")
            if words and pathlib.Path(words[0]).exists():
                tests.append((test["name"], words, properties.get("TIMEOUT", 300)))
    if not tests:
        for folder in (build / "tests", build):
            tests += [(file.name, [file], 300) for file in sorted(folder.glob(f"{label}.*"))
                      if os.access(file, os.X_OK) and file.is_file()]
    return tests


def run_test(ctx, name, words, seconds):
    """A test as an entry. One that fails is run again case by case, to name those that do."""
    if ctx.known(name) is not None or not ctx.has_time(name):
        return
    limit = min(ctx.left(), seconds)
    ran = ctx.run(words, name, limit)[0]
    if ctx.cut_off(ran, limit):
        ctx.left_out(f"{name}: cut off")
        return
    skipped = ran.code == 77 or (ran.code == 0 and ran.out.startswith("skipped: "))  # as ctest takes them
    lines = [line for line in (ran.out + "\n" + ran.err).splitlines() if line.strip(" =")]
    silent = None if skipped or "passed" in ran.out else "it did not say that its tests passed"
    entry = {"key": name, "kind": "test", "failed": None if skipped else ran.why or silent, "skipped": skipped,
             "seconds": ran.seconds, "said": lines[-1].strip("= ") if lines else "", "cases": []}
    if entry["failed"]:
        entry["tail"] = lines[-25:]
        entry["cases"] = cases(ctx, name, words)
    ctx.add(entry)


def cases(ctx, name, words):
    """[(test case, how it went)], each in a process of its own; [] where the program does not list them."""
    found = []
    try:
        # Catch2's version 2 knows the one, version 3 the other.
        for option in (["--list-test-names-only"], ["--list-tests", "--verbosity", "quiet"]):
            listed = ctx.run([*words[:1], *option], f"{name}.list", ctx.visit.longest / 4)[0]
            names = [line.strip() for line in listed.out.splitlines() if line.strip()]
            if names and "rror" not in names[0]:
                break
        for i, case in enumerate(names[:40]):
            if ctx.left() < ctx.visit.least:
                ctx.left_out(f"{name}: cases from '{case}' on, one by one")
                break
            # What Catch2 takes for a pattern in a name.
            ran = ctx.run([*words[:1], re.sub(r"([\\,\[\]*])", r"\\\1", case)], f"{name}.{i}", ctx.visit.longest / 2)[0]
            found.append([case, ran.why or "passed"])
    except NoTime:
        ctx.left_out(f"{name}: its cases one by one")
    return found


def our_kernels(ctx):
    """gpu.kernels: elementwise kernels and the reference attention, without any of the rest."""
    label, wanted = ("device", "device.kernels") if ctx.args.stand_in else ("gpu", "gpu.kernels")
    tests = [t for t in tests_of(ctx, label) if t[0] == wanted]
    if not tests:
        file = ctx.args.tests / "tests" / wanted
        tests = [(wanted, [file], 300)] if os.access(file, os.X_OK) else []
    if not tests:
        ctx.establish("our kernels are right", False, "not known: their test was not built")
        raise NothingToDo(f"{wanted} was not built (cmake --build DIR --target test_{wanted.replace('.', '_')})")
    for test in tests:
        run_test(ctx, *test)
    bad = [e["failed"] for e in ctx.record["entries"] if e["failed"]]
    ctx.establish("our kernels are right", ctx.record["entries"] and not bad, bad[0] if bad else "")


def other_tests(ctx):
    """All other tests of the label gpu; those under the sanitizer have a step of their own."""
    tests = [t for t in tests_of(ctx, "gpu") if t[0] != "gpu.kernels" and "check." not in t[0]]
    if not tests:
        raise NothingToDo(f"no tests of the label gpu were built in {ctx.args.tests.name}")
    for test in tests:
        run_test(ctx, *test)


def sanitizer(ctx):
    found = [t for t in tests_of(ctx, "gpu") if "check." in t[0]]
    if not found:
        raise NothingToDo("this build has no tests under compute-sanitizer")
    for test in found:
        run_test(ctx, *test)


# ---- runs against fp64


def shown_errors(entry):
    """"O 0.12, LSE 0.03, …": the largest error of each as a part of its limit."""
    names = {"out": "O", "lse": "LSE", "d_q": "dQ", "d_k": "dK", "d_v": "dV"}
    return ", ".join(f"{names.get(name, name)} {'NaN' if ratio is None else f'{ratio:.2g}'}"
                     for name, ratio in sp_plan.errors(entry["run"]).items())


def right(entry, phase=None):
    if entry is None or entry["run"] is None:
        return False
    return not any(not t["passed"] for p, t in sp_plan.tensors(entry["run"]) if phase in (None, p))


def reference(ctx):
    """One rank, then ranks that share the GPU: schedules, messages and memory, with slow but plain kernels."""
    shape = ctx.sizes.small
    one = [ctx.sp_run(f"1 rank, {mask}", shape.but(mask=mask), kernels="reference", iters=1, said=shown_errors)
           for mask in ("causal", "full")]
    shared = [ctx.sp_run(f"{ranks} ranks, {name}", shape, words, kernels="reference", ranks=ranks, iters=1,
                         said=shown_errors)
              for name, ranks, words in (("ring", 2, ["--strategy", "ring", "--ring", 2]),
                                         ("Ulysses", 2, ["--ulysses", 2]),
                                         ("USP", 4, ["--ulysses", 2, "--ring", 2]))]
    for name, entries in (("the reference is right", one), ("ranks share a GPU", shared)):
        bad = [e["failed"] for e in entries if e and e["failed"]]
        missing = None in entries
        ctx.establish(name, not bad and not missing, bad[0] if bad else "not all of it ran" if missing else "")


def points(sizes):
    """What cuDNN is compared on, what matters most first: (name, shape, whether plans rest on it)."""
    call = sizes.one
    yield "causal", call, True
    yield "full", call.but(mask="full"), True
    yield "as many KV heads", call.but(kv_heads=call.heads), False
    yield "heads of 64", call.but(head_dim=64), False
    yield "fp16", call.but(dtype="fp16" if call.dtype == "bf16" else "bf16"), False
    # Backward kernels of some versions are wrong where tiles are not full.
    yield "an odd length", call.but(seq=call.seq - 24), False
    yield "an odd length, full", call.but(seq=call.seq - 24, mask="full"), False
    yield "half a tile more", call.but(seq=call.seq + 64), False
    yield "batch of 2", call.but(batch=2), False
    half = call.seq // 2
    yield "documents", call.but(documents=f"{half},{half // 2 - 8},{call.seq - half - half // 2 + 8}"), False


def cudnn(ctx):
    """One rank on the primary stream, with nothing shared: forward and backward apart."""
    for name, shape, basis in points(ctx.sizes):
        check_cudnn(ctx, name, shape, basis)
    conclude(ctx, "", [name for name, _, basis in points(ctx.sizes) if basis])


def check_cudnn(ctx, name, shape, basis, words=(), ranks=1, analyse=None):
    """Both phases; where that gives no result, the forward alone says whose fault it is."""
    key = f"{name}: {shape.text()}"
    both = ctx.sp_run(key, shape, words, kernels="cudnn", ranks=ranks, iters=2, said=shown_errors, analyse=analyse)
    if both is not None:
        both["point"], both["basis"] = name, basis
        if both["run"] is None:
            alone = ctx.sp_run(f"{key}, forward only", shape, words, kernels="cudnn", ranks=ranks, iters=2, phase="fwd",
                               said=shown_errors, analyse=analyse)
            if alone is not None:
                alone["point"], alone["basis"] = name, basis
    ctx.save()
    return both


def conclude(ctx, where, basis):
    """Facts about cuDNN from what ran. `basis`: points that later steps rest on."""
    entries = [e for e in ctx.record["entries"] if e.get("point") in basis]
    ran = [e for e in entries if e["run"] is not None]
    whys = [e["failed"] for e in entries if e["failed"]] or ["no point was reached"]
    for phase, tag in (("forward", "fwd"), ("backward", "bwd")):
        with_phase = [e for e in ran if tag in e["run"]["phases"]]
        runs = all(any(e["point"] == point for e in with_phase) for point in basis)
        ctx.establish(f"cuDNN {phase}{where} runs", runs, "" if runs else whys[0])
        holds = runs and all(right(e, tag) for e in with_phase)
        ctx.establish(f"cuDNN {phase}{where} is right", holds, "" if holds else whys[0])


def large(ctx):
    """Lengths, heads, masks and types that plans really have; of the long ones a sample is compared."""
    call = ctx.sizes.plans
    for name, shape in (("long", call.but(seq=32768)), ("long, full", call.but(seq=16384, mask="full")),
                        ("long, odd", call.but(seq=16384 - 40)), ("heads of 256", ctx.sizes.one.but(head_dim=256)),
                        ("heads of 96", ctx.sizes.one.but(head_dim=96)),
                        ("heads of 192", ctx.sizes.one.but(head_dim=192)),
                        ("one KV head", ctx.sizes.one.but(heads=8, kv_heads=1)),
                        ("batch of 4", ctx.sizes.one.but(batch=4)),
                        ("short", call.but(seq=128)), ("tiny", call.but(seq=24)),
                        ("documents", ctx.sizes.one.but(seq=4096, documents="1000,1500,96,1500")),
                        ("fp16, long", call.but(seq=16384, dtype="fp16"))):
        check_cudnn(ctx, name, shape, False)
    kernels = ctx.attention(shared=True)
    for ranks, degrees in ((2, (1, 2)), (3, (1, 3)), (4, (2, 2)), (6, (2, 3)), (8, (1, 8)), (8, (4, 2))):
        for strategy in ("usp", "zigzag-ring", "all-gather"):
            ulysses, ring = degrees
            if (strategy == "usp") != (ulysses > 1 and ring > 1) or (strategy == "zigzag-ring" and ulysses > 1):
                continue
            words = ["--strategy", strategy, "--ulysses", ulysses, "--ring", ring]
            ctx.sp_run(f"{ranks} ranks, {strategy} U{ulysses}xR{ring}, 16K", call.but(seq=16384), words,
                       kernels=kernels.name,
                       ranks=ranks, iters=1, phase=kernels.phase, said=shown_errors)


