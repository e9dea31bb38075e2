"""Validates what sp-plan really prints by docs/schema/validate.py. Arguments: sp-plan, source folder."""

import json
import pathlib
import subprocess
import sys
import tempfile

program, source = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, str(source / "docs/schema"))
sys.dont_write_bytecode = True
try:
    import validate as by_schema
    from jsonschema import Draft202012Validator
except ImportError as missing:
    print(f"skipped: {missing} (Debian and Ubuntu: python3-jsonschema)")
    sys.exit(77)

for schema in by_schema.SCHEMAS.values():
    Draft202012Validator.check_schema(schema)

documents = {}  # the last of each format


def validate(document, what):
    documents[document["format"]] = document
    error = by_schema.first_error(document)
    if error:
        sys.exit(f"{what}: {error}")


def check(line, code=0):
    run = subprocess.run([program, *line.split()], capture_output=True, text=True, check=False)
    if run.returncode != code:
        sys.exit(f"sp-plan {line}: exit code {run.returncode}, expected {code}\n{run.stderr}")
    document = json.loads(run.stdout)
    validate(document, f"sp-plan {line}")
    return document


def check_command(folder):
    """The program, as docs/schema/README.md has it: what holds, and what does not."""
    files = []
    for name, document in documents.items():
        files.append(pathlib.Path(folder) / f"{name.removeprefix('sp-plan/')}.document.json")
        files[-1].write_text(json.dumps(document))

    def run(*names):
        return subprocess.run([sys.executable, "-B", source / "docs/schema/validate.py", *names],
                              capture_output=True, text=True, check=False)

    done = run(*files)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    spoiled = pathlib.Path(folder) / "spoiled.json"
    export = documents["sp-plan/export"]
    spoiled.write_text(json.dumps(export | {"request": export["request"] | {"seq": 0}}))
    wrong = run(*files, spoiled)
    assert wrong.returncode == 1 and wrong.stdout.startswith(f"{spoiled}: request.seq: 0 is less than"), wrong
    spoiled.write_text("[]")
    assert run(spoiled).stdout.startswith(f"{spoiled}: format: is none that has a schema (comparison, "), run(spoiled)


with tempfile.TemporaryDirectory() as folder:
    schedule = f"{folder}/schedule.txt"
    check("plan --model llama-3.1-8b --seq 32K --topology dgx-h100 --recompute full")
    check("plan --heads 32 --kv-heads 8 --seq 64K --gpu a100-80g-sxm --nodes 2 --inter ib:4x200Gb/s --top 20")
    check("plan --model wan2.1-t2v-1.3b --seq 32K --topology dgx-h100 --phase prefill")
    check("plan --model llama-3.1-70b --seq 1M --topology dgx-h100", code=3)
    check(f"simulate --heads 8 --seq 8K --topology dgx-h100 --ulysses 2 --ring 4 --dump-schedule {schedule}")
    check("simulate --heads 8 --seq 8K --topology dgx-h100 --strategy startrail --ring 8 --team 2 --phase fwd")
    check("simulate --model mixtral-8x7b --seq 32K --topology dgx-h100 --nodes 2"
          " --tp 2 --pp 2 --ulysses 2 --dp 2 --ep 4 --zero 1 --global-batch 16 --recompute full")
    check("verify --heads 8 --seq 1K --ulysses 2 --ring 2")
    layer = "--model llama-3.1-8b --seq 8K --tp 2 --ulysses 2 --ring 2 --scope layer"
    check(f"verify {layer}")
    layers = check(f"simulate {layer} --topology dgx-h100 --dump-schedule {schedule}.layer --trace {folder}/layer.json")
    assert [p["phase"] for p in layers["phases"]] == ["fwd", "bwd"] and all(p["gemm_s"] > 0 for p in layers["phases"])
    check(f"verify --schedule {schedule}.layer")
    step = "--model llama-3.1-8b --seq 8K --gpus 8 --tp 2 --ulysses 2 --dp 2 --zero 1 --scope step"
    check(f"verify {step}")
    whole = check(f"simulate {step} --topology dgx-h100 --dump-schedule {schedule}.step")
    assert whole["scope"] == "step" and [p["phase"] for p in whole["phases"]] == ["step"], whole
    check(f"verify --schedule {schedule}.step")
    check(f"verify --schedule {schedule}")
    profile = source / "tests/support/data/cpu-2x2.json"
    validate(json.loads(profile.read_text()), profile)
    check(f"plan --profile {profile} --heads 8 --head-dim 64 --seq 4K --dtype fp32")
    nccl = source / "tests/support/data/nccl-tests"
    check(f"calibrate --nccl-tests {nccl}/node.txt,{nccl}/two-nodes-alltoall.json --topology dgx-h100 -o {folder}/links.json --json")
    check("calibrate --comm inproc --gpus 2 --heads 2 --head-dim 16 --seq 256 --dtype fp32 --kernels reference --budget 1 "
          f"-o {folder}/cores.json --json")
    shape = "--heads 8 --kv-heads 4 --head-dim 64 --seq 1K --dtype fp32 --ulysses 2 --ring 2"
    result, trace, expected = (f"{folder}/{name}.json" for name in ("run", "measured", "predicted"))
    check(f"run {shape} --check --iters 2 --profile {profile} --trace {trace} -o {result} --json")
    check("run --heads 6 --kv-heads 1 --head-dim 32 --seq 999 --ring 3 --kernels reference --phase bwd --check --iters 1")
    check("run --heads 4 --kv-heads 2 --head-dim 32 --seq 600 --documents 100,37,463 --strategy startrail --ring 4 --team 2 --check --iters 1")
    tiny = source / "tests/support/data/tiny-llama.json"
    ran = check(f"run --model {tiny} --seq 252 --dtype fp32 --tp 2 --ring 2 --strategy zigzag-ring --scope layer --check --iters 1")
    tensors = {t["tensor"] for phase in ran["phases"].values() for t in phase["check"]["tensors"]}
    assert ran["backend"]["ranks"] == 4 and {"q", "out", "value.activation", "d_value.input", "d_param.qkv"} <= tensors, ran
    ran = check(f"run --model {tiny} --seq 64 --dtype fp32 --tp 2 --dp 2 --zero 1 --scope step --check --iters 2")
    tensors = {t["tensor"] for t in ran["phases"]["step"]["check"]["tensors"]}
    assert ran["backend"]["ranks"] == 4 and {"value.loss", "param.embedding", "first_moment.l1.qkv"} <= tensors, ran
    packed = "--heads 8 --seq 64K --documents 1000,40K,23576 --topology dgx-h100"
    check(f"plan {packed} -o {folder}/packed.json --json")
    check(f"simulate --plan {folder}/packed.json")
    check("verify --heads 4 --seq 1K --documents 1000,24 --ring 3 --strategy zigzag-ring")
    layouts = check(f"plan {packed} --ring 4")["layouts"]
    assert layouts["list"][0]["layout"] == layouts["best"] and layouts["gain"] >= 0
    check(f"simulate {packed} --ring 8 --layout document-zigzag")
    check("verify --heads 4 --seq 1K --documents 1000,24 --ring 3 --layout document-zigzag")
    check("run --heads 4 --kv-heads 2 --head-dim 32 --seq 600 --documents 100,37,463 --ring 3 --layout document-zigzag --check --iters 1")
    simulated = check(f"simulate {shape} --profile {profile} --trace {expected}")
    pathlib.Path(f"{folder}/simulated.json").write_text(json.dumps(simulated))
    check(f"compare {folder}/simulated.json {result}")
    assert check(f"compare {expected} {trace}")["ops"], "traces of one plan have common ops"
    check("topology list")
    for machine in ("dgx-h100", "8xl20-pcie", "h100-80g-sxm"):
        check(f"topology show {machine}")
    check(f"topology check {source}/topologies/machines/dgx-a100.json")
    machines = source / "tests/support/data/machines"
    check(f"topology import {machines}/topo-h100.txt {machines}/alltoall-2x8.txt -o {folder}/mine.json --json")
    check(f"topology import {machines}/topo-l40s.txt --gpu l40s")
    check(f"topology check {machines}/simai_topo_8A100_4CX6.xml")
    check(f"plan --heads 8 --seq 8K --topology {folder}/mine.json --nodes 2")
    check("model list")
    for model in ("llama-3.1-8b", "mixtral-8x7b", "hunyuanvideo", "qwen3.5-27b", "nemotron-3-nano-30b-a3b", "deepseek-v4-flash"):
        check(f"model show {model}")
    check("plan --model llama-3.1-8b --seq 64K --topology dgx-h100 --framework megatron --emit torchtitan")
    check("plan --model qwen3.5-27b --seq 64K --topology dgx-h100 --nodes 2 --global-batch 4")
    check("plan --heads 32 --kv-heads 4 --seq 64K --topology dgx-h100 --emit deepspeed")
    check("plan --heads 28 --kv-heads 4 --seq 64K --topology dgx-h100 --emit deepspeed", code=3)
    check("export --list")
    check("export --framework diffusers --heads 24 --seq 32K --ulysses 4")
    check("export --framework megatron --heads 32 --seq 64K --topology dgx-h100 --strategy striped-ring --ring 8", code=3)
    check("stack list")
    check("stack show ring-flash-attn")
    check(f"regress --corpus {source}/reports/corpus --scope packed")
    config = pathlib.Path(folder) / "config.json"
    config.write_text(json.dumps(json.loads((source / "models/qwen2.5-7b.json").read_text())["config"]))
    check(f"model import {config} -o {folder}/mine.json --json")
    validate(json.loads(pathlib.Path(f"{folder}/mine.json").read_text()), "model import -o")
    check("sweep --heads 32 --kv-heads 8 --seq 4K,64K,1M --topology dgx-h100 --gpus 8,12,16")
    check("sweep --model llama-3.1-70b --seq 1M,2M --topology dgx-h100 --gpus 4,8", code=3)
    check("sweep --heads 30 --kv-heads 5 --seq 8K --topology 8xl20-pcie --gpus 8,16")
    check_command(folder)

for name in sorted({f"sp-plan/{name}" for name in by_schema.SCHEMAS} - set(documents)):
    sys.exit(f"{name}: no output was checked against its schema")
print(f"{len(documents)} schemas hold")
