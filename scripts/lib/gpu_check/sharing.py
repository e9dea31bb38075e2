"""Steps about ranks that share a GPU: their SMs, their queues, copies beside attention."""

from gpu_check import correctness, timelines

RANKS = (2, 4, 8)
SHARED_BELOW = 0.75  # of a kernel's time alone against its time beside others: its SMs are not its own


def ring(ranks):
    """A causal ring over contiguous tokens: its last rank works alone at the end."""
    return ["--strategy", "ring", "--ring", ranks, "--layout", "contiguous"]


def whole_gpu(ctx):
    gpu = ctx.visit.records["environment"]["data"].get("gpu") if "environment" in ctx.visit.records else None
    return gpu["multiprocessors_per_rank"] if gpu else None


def share_of(entry, whole):
    """What a rank really got: SMs by the driver's word, and whether time bears that out."""
    gpu, line = entry["run"]["gpu"], entry.get("timeline") or {}
    warned = [w for w in entry["run"]["warnings"] if "share all SMs" in w]
    ratio = line.get("ratio")
    return {"ranks": entry["run"]["ranks"], "sms": gpu["multiprocessors_per_rank"], "of": whole,
            "claimed": not warned and whole is not None and gpu["multiprocessors_per_rank"] < whole,
            "why": warned[0] if warned else "", "alone_against_busy": ratio,
            "attention_made_for": gpu.get("attention_made_for"),
            "borne_out": ratio is None or ratio >= SHARED_BELOW}


def not_kept(ctx, shares):
    """Those that time does not bear out; a stand-in's time is that of a CPU, which says nothing."""
    return [s for s in shares if s["claimed"] and not s["borne_out"] and not ctx.args.stand_in]


def shown_share(whole):
    def text(entry):
        share = share_of(entry, whole)
        ratio = share["alone_against_busy"]
        alone = "" if ratio is None else f"; alone a block takes {ratio:.2f} of its time beside others"
        plans = f"; plans for {share['attention_made_for']}" if share["attention_made_for"] else ""
        return f"{share['sms']} of {whole} SMs each{'' if share['claimed'] else ' (NOT SPLIT)'}{alone}{plans}"
    return text


def splits(ctx):
    """With the reference kernels: the driver's part, without cuDNN's."""
    whole, shares = whole_gpu(ctx), []
    for ranks in RANKS:
        shape = ctx.sizes.small.but(seq=max(ctx.sizes.small.seq, 32 * ranks))
        entry = ctx.sp_run(f"{ranks} ranks", shape, ring(ranks), kernels="reference", ranks=ranks, phase="fwd", iters=3,
                           analyse=timelines.alone_against_busy, said=shown_share(whole))
        if entry is not None and entry["run"] is not None:
            shares.append(share_of(entry, whole))
    ctx.record["data"]["shares"] = shares
    split = bool(shares) and all(s["claimed"] for s in shares)
    why = next((s["why"] or f"{s['ranks']} ranks have {s['sms']} SMs of {s['of']} each" for s in shares
                if not s["claimed"]),
               "" if shares else "no run came to an end")
    if ctx.args.stand_in:
        ctx.note("a stand-in has no SMs to split")
    elif not split:
        ctx.problem(f"SMs are not split: {why}")
        ctx.fall_back("a share of the SMs for each rank", "all SMs for all ranks, whose kernels hold each other up",
                      why)
    for share in not_kept(ctx, shares):
        ctx.problem(f"{share['ranks']} ranks have {share['sms']} SMs each by the driver's word, but a block that runs "
                    f"alone takes {share['alone_against_busy']:.2f} of its time beside others: they share more")
    ctx.establish("SMs are split", split, why)


def cudnn_on_shares(ctx):
    """cuDNN on green contexts' streams, with plans for fewer SMs, and the masks that plans bring."""
    whole, shape = whole_gpu(ctx), ctx.sizes.several
    # With several ranks blocks are rectangles, too, whose masks end at the bottom right.
    points = [("2 ranks, ring", shape, ring(2), 2), ("4 ranks, USP", shape, ["--ulysses", 2, "--ring", 2], 4),
              ("8 ranks, ring", shape, ring(8), 8), ("2 ranks, zigzag", shape,
                                                     ["--strategy", "zigzag-ring", "--ring", 2], 2),
              ("2 ranks, all-gather", shape, ["--strategy", "all-gather", "--ring", 2], 2),
              ("4 ranks, full", shape.but(mask="full"), ["--ulysses", 2, "--ring", 2], 4)]
    for name, work, words, ranks in points:
        correctness.check_cudnn(ctx, name, work, True, words, ranks)
    correctness.conclude(ctx, " on shares", [name for name, *_ in points[:3]])
    for ranks in RANKS[1:]:
        ctx.sp_run(f"{ranks} ranks, how long a block takes alone", ctx.sizes.plans.but(seq=2 * ctx.sizes.plans.seq),
                   ring(ranks),
                   kernels="cudnn", ranks=ranks, phase="fwd", check=False, analyse=timelines.alone_against_busy,
                   said=shown_share(whole))
    shares = [share_of(e, whole) for e in ctx.record["entries"] if e["run"] and (e.get("timeline") or {}).get("ratio")]
    ctx.record["data"]["shares"] = shares
    for share in not_kept(ctx, shares):
        ctx.problem(f"cuDNN does not keep to a share of {share['sms']} SMs: a block that runs alone takes "
                    f"{share['alone_against_busy']:.2f} of its time beside others")
    refusals = [e["run"]["gpu"].get("attention_refused") for e in ctx.record["entries"] if e["run"]]
    if any(refusals):
        ctx.fall_back("cuDNN on a share of the SMs", "cuDNN on all SMs, whose ranks hold each other up",
                      next(filter(None, refusals)))
    whole_plans = [s for s in shares if s["claimed"] and (s["attention_made_for"] or "").startswith("the whole GPU")]
    if whole_plans:
        ctx.fall_back("cuDNN's plans for a share of the SMs", "its plans for the whole GPU, on that share",
                      f"it has none for {whole_plans[0]['sms']} SMs")


def shown_queues(entry):
    line = entry.get("timeline") or {}
    beside = line.get("beside")
    gap = line.get("median_gap_s")
    copies = (entry["run"]["gpu"] or {}).get("copies")
    return (f"{1000 * entry['run']['step_s']:.2f} ms"
            + (f", {beside:.1f} kernels at once" if beside else "")
            + (f", {1e6 * gap:.0f} us between ops" if gap else "")
            + (f", copies: {copies}" if copies else ""))


def queues(ctx):
    """Eight ranks on one, eight and as many hardware queues as there are; then transfers and attention."""
    kernels = ctx.attention(shared=True)
    shape = ctx.sizes.plans
    usp = ["--ulysses", 2, "--ring", 4]
    for name, value in (("as it is", None), ("32 queues", 32), ("8 queues", 8), ("1 queue", 1)):
        env = {} if value is None else {"CUDA_DEVICE_MAX_CONNECTIONS": value}
        ctx.sp_run(f"8 ranks, {name}", shape, usp, kernels=kernels.name, ranks=8, phase=kernels.phase, check=False,
                   iters=5,
                   env=env, analyse=timelines.queueing, said=shown_queues)
    copies(ctx, kernels)


def shown_transfers(entry):
    line = entry.get("timeline") or {}
    said = [f"{name} attention {line[name]['bytes_per_s'] * 1e-9:.0f} GB/s ({line[name]['messages']} messages)"
            for name in ("beside", "without") if line.get(name) and line[name]["bytes_per_s"]]
    hidden = line.get("hidden")
    return "; ".join(said + ([f"{100 * hidden:.0f} % of transfer time beside attention"] if hidden is not None else []))


def copies(ctx, kernels):
    """Messages of a ring run beside attention, those of Ulysses alone; emulated links say what they should take."""
    shape = ctx.sizes.plans.but(seq=ctx.sizes.long) if kernels.name == "cudnn" else ctx.sizes.plans
    for name, words in (("ring", ["--strategy", "zigzag-ring", "--ring", 2]), ("Ulysses", ["--ulysses", 2]),
                        ("ring, links of 5 us and 20 GB/s", ["--strategy", "zigzag-ring", "--ring", 2,
                                                             "--emulate-link", "5us:20GB/s"])):
        entry = ctx.sp_run(f"2 ranks, {name}", shape, words, kernels=kernels.name, ranks=2, phase=kernels.phase,
                           check=False,
                           iters=5, analyse=timelines.transfers, said=shown_transfers)
        if entry is not None and "links" in name:
            emulated(ctx, entry, 5e-6, 20e9)


def emulated(ctx, entry, latency, rate):
    """Time that messages took against what their link was to take: above 1, something held them up."""
    line = entry.get("timeline") or {}
    for name in ("beside", "without"):
        sample = line.get(name) or {}
        if sample.get("median_s"):
            expected = latency + sample["bytes"] / rate
            sample["of_expected"] = sample["median_s"] / expected
            ctx.note(f"over links of 5 us and 20 GB/s messages {name} attention took {sample['of_expected']:.2f} of what "
                     "they should")


def more_ranks(ctx):
    """Twelve and sixteen ranks on one GPU, and emulated nodes."""
    kernels = ctx.attention(shared=True)
    shape = ctx.sizes.several.but(seq=2 * ctx.sizes.several.seq)
    for ranks, words in ((12, ["--ulysses", 4, "--ring", 3]), (16, ["--ulysses", 4, "--ring", 4]),
                         (16, ["--ulysses", 8, "--ring", 2]), (8, ["--ulysses", 4, "--ring", 2]),
                         (8, ["--ulysses", 2, "--ring", 4])):
        nodes = ["--ranks-per-gpu", 8, "--emulate-link", "5us:300GB/s,20us:50GB/s,4"] if ranks == 8 else []
        degrees = "x".join(str(w) for w in words if not isinstance(w, str))
        ctx.sp_run(f"{ranks} ranks, U and R {degrees}{', two emulated nodes' if nodes else ''}",
                   shape.but(heads=32, kv_heads=8),
                   [*words, *nodes], kernels=kernels.name, ranks=ranks, phase=kernels.phase, iters=3,
                   said=correctness.shown_errors)
