"""Every function's document is the one that the program prints."""

import json
import os
import subprocess
import tempfile
import unittest
import warnings

import sp_plan

program = os.environ["SP_PLAN"]
machines = "tests/support/data/machines"


def printed(line):
    run = subprocess.run([program, *line.split()], capture_output=True, text=True, check=False)
    assert run.returncode in (0, 3), run.stderr
    document = json.loads(run.stdout)
    document.pop("elapsed_s", None)
    return document


class Documents(unittest.TestCase):
    def check(self, line, document):
        document.pop("elapsed_s", None)
        self.maxDiff = None
        # As text: equal numbers of another type, or members in another order, would be another document.
        self.assertEqual(json.dumps(printed(line)), json.dumps(document))

    def test_plan(self):
        self.check("plan --model llama-3.1-8b --seq 32K --topology dgx-h100 --top 3 --recompute full",
                   sp_plan.plan(model="llama-3.1-8b", seq="32K", topology="dgx-h100", top=3, recompute="full"))
        self.check("plan --heads 32 --kv-heads 8 --seq 64K --gpu a100-80g-sxm --nodes 2 --inter ib:4x200Gb/s",
                   sp_plan.plan(heads=32, kv_heads=8, seq="64K", gpu="a100-80g-sxm", nodes=2, inter="ib:4x200Gb/s"))
        self.check("plan --model llama-3.1-8b --seq 64K --topology dgx-h100 --framework megatron --emit torchtitan",
                   sp_plan.plan(model="llama-3.1-8b", seq="64K", topology="dgx-h100", framework="megatron", emit="torchtitan"))

    def test_plan_that_does_not_fit(self):
        with self.assertRaises(sp_plan.NoPlanError) as caught:
            sp_plan.plan(model="llama-3.1-70b", seq="1M", topology="dgx-h100")
        self.check("plan --model llama-3.1-70b --seq 1M --topology dgx-h100", caught.exception.document)

    def test_simulate(self):
        self.check("simulate --heads 8 --seq 8K --topology dgx-h100 --ulysses 2 --ring 4",
                   sp_plan.simulate(heads=8, seq="8K", topology="dgx-h100", ulysses=2, ring=4))

    def test_simulate_writes_files(self):
        with tempfile.TemporaryDirectory() as folder:
            sp_plan.simulate(heads=8, seq="8K", topology="dgx-h100", ring=8, trace=f"{folder}/ours.json")
            printed(f"simulate --heads 8 --seq 8K --topology dgx-h100 --ring 8 --trace {folder}/theirs.json")
            with open(f"{folder}/ours.json", encoding="utf-8") as ours, open(f"{folder}/theirs.json", encoding="utf-8") as theirs:
                self.assertEqual(ours.read(), theirs.read())

    def test_sweep(self):
        self.check("sweep --heads 32 --kv-heads 8 --seq 16K,64K --topology dgx-h100 --gpus 4,8 --no-boundaries",
                   sp_plan.sweep(heads=32, kv_heads=8, seq=["16K", "64K"], topology="dgx-h100", gpus=[4, 8], no_boundaries=True))

    def test_report(self):
        documents = "tests/support/data/documents"
        with open(f"{documents}/plan.json", encoding="utf-8") as file:
            plan = json.load(file)
        page = sp_plan.report(plan, f"{documents}/sweep.json")
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertTrue(page.endswith("</html>\n"))
        self.assertIn("sweep.json", page)
        with self.assertRaises(sp_plan.InputError):
            sp_plan.report({"format": "sp-plan/model-list"})

    def test_longest_sequence(self):
        answer = sp_plan.plan(model="llama-3.1-8b", seq="max", topology="dgx-h100", top=1, budget=1)
        self.assertTrue(answer["best"]["predicted"]["fits"])
        self.assertGreater(answer["request"]["seq"], 128 * 1024)

    def test_verify(self):
        self.check("verify --heads 8 --seq 1K --ulysses 2 --ring 2", sp_plan.verify(heads=8, seq="1K", ulysses=2, ring=2))

    def test_export(self):
        self.check("export --framework diffusers --heads 24 --seq 32K --ulysses 4",
                   sp_plan.export(framework="diffusers", heads=24, seq="32K", ulysses=4))
        self.check("export --list", sp_plan.list_frameworks())

    def test_topologies(self):
        self.check("topology list", sp_plan.list_topologies())
        self.check("topology show dgx-h100", sp_plan.show_topology("dgx-h100"))
        self.check("topology show h100-80g-sxm", sp_plan.show_topology("h100-80g-sxm"))
        self.check(f"topology check {machines}/simai_topo_8A100_4CX6.xml",
                   sp_plan.check_topology(f"{machines}/simai_topo_8A100_4CX6.xml"))
        self.check(f"topology import {machines}/topo-h100.txt {machines}/alltoall-2x8.txt",
                   sp_plan.import_machine(f"{machines}/topo-h100.txt", f"{machines}/alltoall-2x8.txt"))

    def test_models_and_stacks(self):
        self.check("model list", sp_plan.list_models())
        self.check("model show hunyuanvideo", sp_plan.show_model("hunyuanvideo"))
        self.check("stack list", sp_plan.list_stacks())
        self.check("stack show ring-flash-attn", sp_plan.show_stack("ring-flash-attn"))
        with tempfile.TemporaryDirectory() as folder:
            config = f"{folder}/config.json"
            with open("models/qwen2.5-7b.json", encoding="utf-8") as ours, open(config, "w", encoding="utf-8") as theirs:
                json.dump(json.load(ours)["config"], theirs)
            self.check(f"model import {config}", sp_plan.import_model(config))

    def test_version(self):
        run = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout, sp_plan.version_text())
        self.assertIn(f"sp-plan {sp_plan.__version__} ", run.stdout)

    def test_a_warning_is_a_warning(self):
        with open("tests/support/data/cpu-2x2.json", encoding="utf-8") as file:
            profile = json.load(file)
        parts = {}
        for folder, part in (("machines", "dgx-h100"), ("gpus", "h100-80g-sxm"), ("generations", "hopper"),
                             ("transports", "nvlink4"), ("transports", "ib")):
            with open(f"topologies/{folder}/{part}.json", encoding="utf-8") as file:
                parts[part] = json.load(file)
        machine = parts["dgx-h100"] | {"name": "my-dgx"}
        machine["gpu"] = parts["h100-80g-sxm"] | {"generation": parts["hopper"]}
        machine["intra"]["transport"] = parts["nvlink4"]
        machine["inter"]["transport"] = parts["ib"]
        profile["machine"] = machine
        del profile["attention"]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with open(f"{folder}/profile.json", "w", encoding="utf-8") as file:
                json.dump(profile, file)
            sp_plan.plan(heads=8, seq="8K", topology="dgx-h100", profile=f"{folder}/profile.json")
        self.assertEqual([str(w.message) for w in caught],
                         ["--profile 'cpu-2x2' was measured on my-dgx, not on dgx-h100"])
        self.assertEqual(caught[0].filename, __file__)


if __name__ == "__main__":
    unittest.main()
