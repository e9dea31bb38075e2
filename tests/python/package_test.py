"""What functions take, and how they refuse."""

import ast
import inspect
import json
import pathlib
import subprocess
import threading
import unittest

import sp_plan

SMALL = {"heads": 8, "kv_heads": 4, "seq": "8K", "topology": "dgx-h100"}


def line_of(words):
    """What the program says on stderr at its end, and its exit code."""
    run = subprocess.run([program, *words, "--quiet"], capture_output=True, text=True, check=False)
    return run.stderr.removeprefix("sp-plan: ").rstrip("\n"), run.returncode


class Keywords(unittest.TestCase):
    def test_numbers_paths_and_sequences_are_their_text(self):
        written = sp_plan.verify(heads="4", seq="1000", documents="900,100", ring="2", ulysses="2", order="ring,ulysses")
        meant = sp_plan.verify(heads=4, seq=1000.0, documents=[900, 100], ring=2, ulysses=2, order=("ring", "ulysses"))
        self.assertEqual(without_time(written), without_time(meant))
        shown = sp_plan.show_model(pathlib.Path("models/llama-3.1-8b.json"))
        self.assertEqual(shown, sp_plan.show_model("llama-3.1-8b"))

    def test_none_and_false_say_nothing(self):
        self.assertEqual(without_time(sp_plan.verify(heads=4, seq=64, ring=2, team=None, force=False)),
                         without_time(sp_plan.verify(heads=4, seq=64, ring=2)))

    def test_a_switch_is_true(self):
        self.assertTrue(sp_plan.verify(heads=4, seq=64, ring=2, force=True)["proven"])
        with self.assertRaisesRegex(sp_plan.InputError, "^--force: takes no value$"):
            sp_plan.verify(heads=4, seq=64, ring=2, force="yes")
        with self.assertRaisesRegex(sp_plan.InputError, r"^--seq: a value is missing \(N\)$"):
            sp_plan.verify(heads=4, seq=True, ring=2)

    def test_unknown_keywords_are_refused_with_the_nearest(self):
        with self.assertRaisesRegex(sp_plan.InputError, r"^--ulyses: unknown option \(did you mean '--ulysses'\?\)$"):
            sp_plan.plan(ulyses=8, **SMALL)
        with self.assertRaisesRegex(sp_plan.InputError, r"^--kv-head: unknown option \(did you mean '--kv-heads'\?\)$"):
            sp_plan.plan(kv_head=8, heads=8)

    def test_options_of_the_output_are_none(self):
        for name in ("json", "table", "output", "quiet", "help"):
            with self.assertRaisesRegex(sp_plan.InputError, f"^--{name}: unknown option"):
                sp_plan.plan(**{name: True}, **SMALL)

    def test_values_that_no_command_line_could_hold_are_refused(self):
        for value in ({1, 2}, b"8K", object(), float("nan")):
            with self.assertRaises(sp_plan.InputError):
                sp_plan.verify(heads=4, seq=value, ring=2)


class Documents(unittest.TestCase):
    def test_a_plan_is_simulated_as_it_was_returned(self):
        planned = sp_plan.plan(**SMALL)
        simulated = sp_plan.simulate(plan=planned)
        self.assertEqual(simulated["result"]["plan"], planned["best"]["plan"])
        self.assertEqual(simulated["result"]["predicted"], planned["best"]["predicted"])
        self.assertTrue(sp_plan.verify(plan=planned)["proven"])
        alone = sp_plan.simulate(plan=planned["best"]["plan"], **SMALL)
        self.assertEqual(alone["result"]["predicted"], planned["best"]["predicted"])

    def test_a_machine_is_planned_for_as_it_was_imported(self):
        machine = sp_plan.import_machine("tests/support/data/machines/topo-l40s.txt", gpu="l40s", name="ours")
        planned = sp_plan.plan(heads=8, seq="8K", topology=machine)
        self.assertEqual(planned["request"]["topology"], "ours")
        self.assertGreater(planned["best"]["predicted"]["step_s"], 0)

    def test_a_plan_keeps_the_documents_that_it_was_asked_with(self):
        machine = sp_plan.import_machine("tests/support/data/machines/topo-l40s.txt", gpu="l40s", name="ours")
        config = {"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
                  "intermediate_size": 2048, "num_hidden_layers": 2, "vocab_size": 1000}
        planned = sp_plan.plan(model=config, seq="8K", topology=machine, framework="megatron")
        self.assertEqual(planned["request"]["given"], {"topology": machine, "model": config})
        simulated = sp_plan.simulate(plan=planned)
        self.assertEqual(simulated["result"]["predicted"], planned["best"]["predicted"])
        self.assertEqual(sp_plan.simulate(plan=simulated)["result"], simulated["result"])
        self.assertTrue(sp_plan.verify(plan=planned)["proven"])
        self.assertTrue(sp_plan.export(plan=planned, framework="megatron")["export"]["blocks"])
        elsewhere = sp_plan.simulate(plan=planned, topology="dgx-h100")
        self.assertNotIn("topology", elsewhere["request"]["given"])
        # The program reads the same from a file.
        file = folder / "planned.json"
        file.write_text(json.dumps(planned))
        run = subprocess.run([program, "simulate", "--plan", file], capture_output=True, text=True, check=False)
        self.assertEqual(run.stderr, "")
        self.assertEqual(without_time(json.loads(run.stdout)), without_time(simulated))

    def test_a_plan_names_the_files_that_it_was_asked_with(self):
        file = folder / "ours.json"
        file.write_text(json.dumps(sp_plan.import_machine("tests/support/data/machines/topo-l40s.txt", gpu="l40s")))
        planned = sp_plan.plan(heads=8, seq="8K", topology=file)
        self.assertNotIn("given", planned["request"])
        self.assertEqual(sp_plan.simulate(plan=planned)["result"]["predicted"], planned["best"]["predicted"])

    def test_a_model_is_planned_for_as_it_was_published(self):
        config = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}
        planned = sp_plan.plan(model=config, seq="8K", topology="dgx-h100")
        self.assertEqual(planned["request"]["heads"], 4)

    def test_what_is_wrong_in_a_document_is_named(self):
        with self.assertRaisesRegex(sp_plan.InputError, "^--plan: strategy: 7 is not a string$"):
            sp_plan.simulate(plan={"strategy": 7}, **SMALL)
        with self.assertRaisesRegex(sp_plan.InputError, "^--plan: best: a set is none of a document's values"):
            sp_plan.simulate(plan={"best": {1}}, **SMALL)
        with self.assertRaisesRegex(sp_plan.InputError, "^--plan: best: a whole number of more than 63 bits$"):
            sp_plan.simulate(plan={"best": 2**70}, **SMALL)
        with self.assertRaisesRegex(sp_plan.InputError, "^--heads: a document is no value"):
            sp_plan.plan(heads={}, seq="8K", topology="dgx-h100")
        endless = {}
        endless["plan"] = endless
        with self.assertRaisesRegex(sp_plan.InputError, "levels deep"):
            sp_plan.simulate(plan=endless, **SMALL)


class Refusals(unittest.TestCase):
    def check(self, error, words, call):
        with self.assertRaises(error) as caught:
            call()
        message, code = line_of(words)
        self.assertIs(type(caught.exception), error)
        self.assertEqual(str(caught.exception), message)
        self.assertEqual(caught.exception.exit_code, code)
        return caught.exception

    def test_wrong_input(self):
        e = self.check(sp_plan.InputError, ["plan", "--heads", "8", "--seq", "8K", "--topology", "dgx-h10"],
                       lambda: sp_plan.plan(heads=8, seq="8K", topology="dgx-h10"))
        self.assertIsInstance(e, ValueError)
        self.assertIsNone(e.document)
        self.check(sp_plan.InputError, ["model", "show", "llama-3.1-8"], lambda: sp_plan.show_model("llama-3.1-8"))

    def test_nothing_fits_and_what_was_found_is_kept(self):
        e = self.check(sp_plan.NoPlanError, ["plan", "--model", "llama-3.1-70b", "--seq", "1M", "--topology", "dgx-h100"],
                       lambda: sp_plan.plan(model="llama-3.1-70b", seq="1M", topology="dgx-h100"))
        self.assertIsNone(e.document["best"])
        self.assertTrue(e.document["candidates"])

    def test_a_refuted_schedule(self):
        spoiled = folder / "spoiled.txt"
        schedule = folder / "schedule.txt"
        sp_plan.simulate(heads=4, seq=64, topology="dgx-h100", gpus=4, ulysses=2, ring=2, dump_schedule=schedule)
        lines = schedule.read_text().splitlines(keepends=True)
        lines.remove(next(line for line in lines if line.startswith("    compute: merge ")))
        spoiled.write_text("".join(lines))
        e = self.check(sp_plan.CheckError, ["verify", "--schedule", str(spoiled)],
                       lambda: sp_plan.verify(schedule=spoiled))
        self.assertIs(e.document["proven"], False)

    def test_all_are_errors_of_ours(self):
        for error in (sp_plan.InputError, sp_plan.NoPlanError, sp_plan.CheckError):
            self.assertTrue(issubclass(error, sp_plan.Error))
        self.assertEqual([e.exit_code for e in (sp_plan.Error, sp_plan.InputError, sp_plan.NoPlanError, sp_plan.CheckError)],
                         [1, 2, 3, 4])


class Threads(unittest.TestCase):
    def test_two_plans_at_once_are_what_each_is_alone(self):
        questions = [SMALL, {**SMALL, "heads": 16, "seq": "16K", "top": 3}]
        alone = [without_time(sp_plan.plan(**q)) for q in questions]
        together = [None, None]
        both = threading.Barrier(2)

        def ask(i):
            both.wait()
            for _ in range(3):
                together[i] = without_time(sp_plan.plan(**questions[i]))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(alone, together)


class Stubs(unittest.TestCase):
    def test_stubs_say_what_the_functions_take(self):
        package = pathlib.Path(sp_plan.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        stubs = {node.name: node for node in ast.parse((package / "__init__.pyi").read_text()).body
                 if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        self.assertEqual(sorted(stubs), sorted(sp_plan.__all__))
        for name in sp_plan.__all__:
            thing = getattr(sp_plan, name)
            if inspect.isfunction(thing):
                arguments = stubs[name].args
                self.assertEqual([a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
                                 + ([arguments.vararg.arg] if arguments.vararg else []),
                                 [p.name for p in sorted(inspect.signature(thing).parameters.values(),
                                                         key=lambda p: p.kind is p.VAR_POSITIONAL)], name)

    def test_help_lists_the_options(self):
        self.assertIn("kv_heads: its KV heads", inspect.getdoc(sp_plan.plan))
        self.assertIn("global_batch", inspect.signature(sp_plan.plan).parameters)


if __name__ == "__main__":
    import os
    import tempfile

    program = os.environ["SP_PLAN"]

    def without_time(document):
        return {key: value for key, value in document.items() if key != "elapsed_s"}

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        unittest.main()
