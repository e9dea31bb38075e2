"""Every command of sp-plan that stands in a block of README.md and docs/ runs, in the order of the page, each page in
a folder of its own with the files that people have. A block whose fence says "norun: why" is left out: it needs GPUs,
other hosts, or minutes. Arguments: sp-plan, source folder."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

program, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
machines = source / "tests/support/data/machines"
documents = source / "tests/support/data/documents"
CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
"num_key_value_heads": 8, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 128256,
"max_position_embeddings": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}
"""


def blocks(page):
    """(line number, commands) of the shell blocks that are to run."""
    found, language, begin = [], None, 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            if language in ("sh", "console"):
                found[-1][1].append(line)
            continue
        if language is not None:
            language = None
            continue
        word, _, rest = line[3:].partition(" ")
        if rest and not re.fullmatch(r"norun: .{10,}", rest):
            sys.exit(f"{page.name}:{number}: a fence says '{rest}', not 'norun: why'")
        language, begin = ("" if rest else word), number
        if language in ("sh", "console"):
            found.append((begin, []))
    return found


def commands(lines, console):
    for line in lines:
        if console and not line.startswith("$ "):
            continue  # what it prints
        text = re.sub(r"\s+#\s.*$", "", line.removeprefix("$ "))
        if re.match(r"(scripts/)?sp-plan ", text):
            yield text


def prepare(folder):
    shutil.copy(machines / "topo-h100.txt", folder / "topo.txt")
    shutil.copy(machines / "alltoall-2x8.txt", folder / "alltoall_perf.txt")
    for document in documents.glob("*.json"):
        shutil.copy(document, folder)
    (folder / "config.json").write_text(CONFIG)
    names = "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-{i:012d})\n" for i in range(8))
    for name in ("smi.txt", "nvidia-smi.txt"):
        (folder / name).write_text(names)


ran = 0
for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder)
        for begin, lines in blocks(page):
            for command in commands(lines, page.read_text().splitlines()[begin - 1].startswith("```console")):
                # A search of a second finds out whether the command works, if not the best plan.
                text = re.sub(r"(scripts/)?sp-plan (plan|sweep) ", rf"{program} \2 --budget 1 --quiet ", command)
                text = re.sub(r"(?<![\w/-])(scripts/)?sp-plan ", f"{program} ", text)
                run = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, check=False)
                if run.returncode != 0:
                    sys.exit(f"{page.relative_to(source)}:{begin}: {command}\nexit code {run.returncode}: {run.stderr[-500:]}")
                ran += 1
assert ran > 20, f"only {ran} commands were found"
print(f"{ran} commands of README.md and docs/ run")
