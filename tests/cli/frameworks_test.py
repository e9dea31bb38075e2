"""What sp-plan writes for frameworks is valid in its language, and uses only keys that the table beside
this file knows from a source. Arguments: sp-plan, source folder."""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys

program, source = sys.argv[1], pathlib.Path(sys.argv[2])
known = json.loads((source / "tests/cli/framework_keys.json").read_text())
try:
    import yaml
except ImportError:
    yaml = None
bash = shutil.which("bash")


def documents(line):
    run = subprocess.run([program, *line.split(), "--json"], capture_output=True, text=True, check=False)
    if run.returncode not in (0, 3):
        sys.exit(f"sp-plan {line}: exit code {run.returncode}\n{run.stderr}")
    return json.loads(run.stdout)


def keys_of_tree(tree):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from keys_of_tree(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from keys_of_tree(value)


def keys_of_python(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield node.arg
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            yield ast.unparse(node.targets[0])


def keys_of_bash(text):
    if bash:
        check = subprocess.run([bash, "-n"], input=text, capture_output=True, text=True, check=False)
        if check.returncode != 0:
            sys.exit(f"bash -n: {check.stderr}\n{text}")
    for word in text.split():
        if re.fullmatch(r"--?[a-zA-Z][\w.-]*", word):
            yield word
        elif match := re.match(r"([\w.]+)=", word):
            yield match[1]


def keys_of(block):
    language, text = block["language"], block["text"]
    if language == "bash":
        return list(keys_of_bash(text))
    if language == "json":
        return list(keys_of_tree(json.loads(text)))
    if language == "yaml":
        return list(keys_of_tree(yaml.safe_load(text))) if yaml else []
    compile(text, "snippet", "exec")
    return list(keys_of_python(text))


def check(name, exported):
    allowed = set(known[name]["keys"]) | set(known["torchrun"]["keys"]) | set(known["environment"]["keys"])
    for block in exported["blocks"]:
        for key in keys_of(block):
            if key not in allowed:
                sys.exit(f"{name}: '{key}' is not in tests/cli/framework_keys.json\n{block['text']}")
        used[name].update(keys_of(block))


def model_of(framework):
    """A diffusion transformer that it has, on GPUs that divide its heads."""
    families = framework["families"] or ["Z-Image"]
    return ("wan2.1-t2v-14b --gpus 8" if "Wan" in families else
            "hunyuanvideo --gpus 8" if "HunyuanVideo" in families else "z-image --gpus 6")


frameworks = documents("export --list")["frameworks"]
used = {framework["name"]: set() for framework in frameworks}
for framework in frameworks:
    name, trains = framework["name"], framework["trains"]
    works = (["--model llama-3.1-8b --seq 64K --topology dgx-h100", "--model qwen3-8b --seq 64K --topology dgx-h100 --nodes 2",
              "--heads 8 --seq 16K --topology dgx-h100", "--model qwen2.5-7b --seq 32K --dtype fp16 --topology dgx-h100"]
             if trains else
             ["--model llama-3.1-8b --seq 64K --topology dgx-h100 --phase inference",
              "--heads 8 --seq 16K --topology dgx-h100",
              "--model mixtral-8x7b --seq 32K --topology dgx-h100 --nodes 2 --phase inference"]
             if framework["masks"] == ["causal"] else
             ["--heads 24 --mask full --seq 64K --topology dgx-h100", "--heads 30 --mask full --seq 64K --topology dgx-h100 --nodes 2",
              f"--model {model_of(framework)} --seq 75600 --topology dgx-h100 --phase inference"])
    choices = [""] + [f"--strategy {way['strategy']}" for way in framework["ways"]]
    stages, ways_again = framework["zero"] or [0, 1, 2, 3], framework["recompute"] or ["none"]
    sharded = [f"--zero {stages[-1]}"] if not trains and framework["zero"] else []
    choices += ([f"--zero {stage} --recompute {ways_again[0]}" for stage in stages] +
                [f"--zero {stages[0]} --recompute {how}" for how in ways_again[1:]]
                if trains else ["--ulysses 8", "--ulysses 4"])
    written = 0
    for work in works:  # stages and recomputation on the first alone: their keys do not depend on the model
        for choice in choices if work == works[0] else choices[:1 + len(framework["ways"])] + sharded:
            if "--zero" in choice and "--model" not in work:
                continue
            document = documents(f"plan {work} {choice} --top 1 --budget 0.1 --framework {name} --emit {name}")
            exported = document.get("export")
            if exported is None:
                continue  # no plan fits
            if exported["cannot"]:
                sys.exit(f"{name}: what --framework found, --emit cannot write: {exported['cannot']}")
            check(name, exported)
            written += 1
    if not written:
        sys.exit(f"{name}: nothing was written")
for name in used:
    if unused := set(known[name]["keys"]) - used[name]:
        print(f"{name}: not written here: {', '.join(sorted(unused))}")
print(f"{len(used)} frameworks, YAML {'parsed' if yaml else 'not parsed: no python3-yaml'}")
