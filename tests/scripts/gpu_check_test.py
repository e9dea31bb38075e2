"""scripts/gpu-check over fakes that go wrong. Most visits start no process (gpu_check_fakes.answer) and have a
clock of their own, so that every step can go wrong in every way; the last class starts real ones.

python3 tests/scripts/gpu_check_test.py [-v] [names of tests]
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
here = pathlib.Path(__file__).resolve().parent
root = here.parents[1]
sys.path[:0] = [str(here), str(root / "scripts/lib")]
import gpu_check_fakes as fakes  # noqa: E402
from gpu_check import accuracy, command, context, folder, report, smi, sp_plan, talking, times, timelines, visit  # noqa: E402
from gpu_check.parts import FIRST, NODE, PARTS, SECOND  # noqa: E402

loader = importlib.machinery.SourceFileLoader("gpu_check_script", str(root / "scripts/gpu-check"))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(script)

TOOLS = ("sp-plan", "nvidia-smi", "python", "ctest", "nvcc", "mpirun", "torchrun", "gpu.kernels")


def new_folder(test):
    """In memory where there is one: every document is renamed into place, which a disk takes time for."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check-test-", dir=memory))
    test.addCleanup(shutil.rmtree, path, ignore_errors=True)
    return path


class Clock:
    """Time that passes when a command runs or somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now + 1.7e9

    def sleep(self, seconds):
        self.now += seconds


class FakeProcess:
    pid = 0

    def __init__(self, code):
        self.returncode = code

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            raise subprocess.TimeoutExpired("fake", timeout)
        return self.returncode


class World:
    """Fakes instead of processes, and what was asked of them."""

    def __init__(self, test, env=None, here=TOOLS):
        self.env, self.here = {**(env or {})}, here
        self.clock, self.asked, self.alive = Clock(), [], []
        self.folder = new_folder(test)
        self.tools = self.folder / "bin"
        (self.tools / "build" / "cli").mkdir(parents=True)
        (self.tools / "build" / "tests").mkdir()
        for file in ("cli/sp-plan", "tests/gpu.kernels", "tests/gpu.numerics", "tests/gpu.memcheck.kernels"):
            (self.tools / "build" / file).write_text("#!/bin/false\n")
            (self.tools / "build" / file).chmod(0o755)

    def started(self):
        world = self

        class FakeStarted(command.Started):
            def __init__(self, words, logs, name, env=None,
                         most_said=command.MOST_SAID):  # pylint: disable=super-init-not-called
                self.words, self.most_said, self.libraries, self.failed = [str(w) for w in words], most_said, set(), None
                logs.mkdir(parents=True, exist_ok=True)
                self.out_file, self.err_file = logs / f"{name}.out", logs / f"{name}.err"
                self.begin = world.clock.now
                self.deaf = False
                env = {k: str(v) for k, v in {**world.env, **(env or {})}.items()}
                world.asked.append((logs.name[3:], self.words, env))
                tool = os.path.basename(self.words[0])
                if "sp-plan" in self.words[0] or tool in world.here or tool.startswith("gpu."):
                    self.answer(tool, env, logs)
                else:
                    self.process, self.failed = None, f"no {tool} here"
                world.alive.append(self)

            def answer(self, tool, env, logs):
                world.clock.sleep(0.5)
                try:
                    code, out, err = fakes.answer(tool, self.words[1:], env, str(logs), world.clock.time())
                except fakes.Hangs as how:
                    code, out, err = None, str(how).encode() if isinstance(how, fakes.Samples) else b"", ""
                    self.deaf = str(how) == "deaf"
                self.out_file.write_bytes(out)
                self.err_file.write_text(err)
                self.process = FakeProcess(code)

            def look_at_libraries(self):
                self.libraries.add("/usr/lib/libcuda.so.1")

            def kill(self, grace):
                if self.process is not None and self.process.returncode is None:
                    world.clock.sleep(grace if self.deaf else 0.1)
                    self.process.returncode = -signal.SIGKILL
                return True

        return FakeStarted

    def visit(self, *words, script_steps=None, archive=False):
        """Exit code of scripts/gpu-check with these words."""
        build = self.tools / "build"
        line = ["gpu-check", "--build", str(build), "--out", str(self.folder / "report"), "--python", "python", *words]
        which = lambda name: f"/usr/bin/{name}" if name in self.here else None  # noqa: E731
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            enter(mock.patch.object(command, "Started", self.started()))
            for module in (command, visit, context, times):
                enter(mock.patch.object(module, "time", self.clock))
            enter(mock.patch.object(sys, "argv", line))
            enter(mock.patch("shutil.which", which))
            enter(mock.patch.dict(os.environ, {k: v for k, v in self.env.items() if k.startswith("SLURM")}))
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # put back by the patch
            self.said = enter(contextlib.redirect_stderr(io.StringIO()))
            self.printed = enter(contextlib.redirect_stdout(io.StringIO()))
            if not archive:
                enter(mock.patch.object(folder.Folder, "pack"))
            if script_steps is not None:
                enter(mock.patch.dict(PARTS, {"first": script_steps}))
            enter(mock.patch.object(script.signal, "signal"))
            try:
                return script.main()
            except SystemExit as e:
                return e.code

    @property
    def report(self):
        return self.folder / "report"

    def records(self):
        return {r["step"]: r for r in folder.Folder(self.report).records()}

    def readme(self):
        return (self.report / "README.md").read_text()

    def kernels_of(self, step):
        return {words[words.index("--kernels") + 1] for asked, words, _ in self.asked if asked == step
                and "--kernels" in words}

    def left_alive(self):
        return [s.words for s in self.alive if s.process is not None and s.process.returncode is None]


FIRST_NAMES = [step.name for step in FIRST]


class AGoodVisit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(cls)
        cls.code = cls.world.visit(archive=True)

    @classmethod
    def addCleanup(cls, *what, **more):  # pylint: disable=arguments-differ
        cls.addClassCleanup(*what, **more)

    def test_ends_with_0_and_every_step_is_good(self):
        states = {name: (r["status"], r["why"]) for name, r in self.world.records().items()}
        self.assertEqual(states, {name: ("good", "") for name in FIRST_NAMES})
        self.assertEqual(self.code, 0)

    def test_its_steps_are_in_the_order_of_the_list_and_say_what_they_teach(self):
        readme = self.world.readme()
        places = [readme.index(f"### {i + 1:02} {step.name}: good\n\n*Teaches:* {step.teaches}") for i,
                  step in enumerate(FIRST)]
        self.assertEqual(places, sorted(places))

    def test_holds_errors_of_O_LSE_dQ_dK_dV_apart(self):
        run = self.world.records()["cudnn-numbers"]["entries"][0]["run"]
        self.assertEqual(set(sp_plan.errors(run)), {"out", "lse", "d_q", "d_k", "d_v"})
        self.assertIn("| O | LSE | dQ | dK | dV |", self.world.readme())

    def test_tells_how_many_SMs_ranks_got(self):
        shares = self.world.records()["splits"]["data"]["shares"]
        self.assertEqual([(s["ranks"], s["sms"], s["of"], s["claimed"]) for s in shares],
                         [(2, 64, 132, True), (4, 32, 132, True), (8, 16, 132, True)])

    def test_runs_two_processes_of_NCCL_on_one_GPU_as_two_hosts(self):
        hosts = {env["RANK"]: (env["NCCL_HOSTID"], env["MASTER_PORT"]) for step, words, env in self.world.asked
                 if step == "nccl" and "--ulysses" in words}
        self.assertEqual(sorted(hosts), ["0", "1"])
        self.assertNotEqual(hosts["0"][0], hosts["1"][0])
        self.assertEqual(hosts["0"][1], hosts["1"][1])

    def test_has_rates_beside_pytorch_with_clocks(self):
        entry = self.world.records()["rates"]["entries"][0]
        self.assertEqual(entry["clocks"]["sm_mhz"], 1755)
        self.assertEqual(entry["clocks"]["slowed_by"], ["power cap"])
        self.assertIn("| 4K | causal | fwd | 1 | 137 | 137 | 1.000 | 1755 (1755 at least), 650 W, slowed by power cap |", self.world.readme())

    def test_has_a_calibration_and_plans_beside_their_predictions(self):
        self.assertTrue((self.world.report / "profile-4.json").exists())
        self.assertIn("| median of abs(error) | 2.0 % (goal: 5 %, reached) |", self.world.readme())

    def test_runs_one_plan_of_each_strategy(self):
        ran = {e["plan"]["strategy"] for e in self.world.records()["strategies"]["entries"]}
        self.assertEqual(ran, {name for name, *_ in fakes.STRATEGIES})

    def test_shows_ranks_that_share_a_GPU_only_one(self):
        shown = {env.get("CUDA_VISIBLE_DEVICES") for step, words, env in self.world.asked if "inproc" in words}
        self.assertEqual(shown, {"0"})

    def test_leaves_no_process_behind(self):
        self.assertEqual(self.world.left_alive(), [])

    def test_report_from_the_documents_alone_is_the_same(self):
        before = self.world.readme()
        (self.world.report / "README.md").unlink()
        report.write(folder.Folder(self.world.report))
        self.assertEqual(self.world.readme(), before)

    def test_archive_holds_every_document_and_nobodys_name(self):
        with tarfile.open(f"{self.world.report}.tar.gz") as archive:
            members = archive.getmembers()
        names = {m.name.split("/", 1)[1] for m in members}
        self.assertLessEqual({"README.md", "visit.json", *(f"steps/{i + 1:02}-{n}.json" for i,
                                                           n in enumerate(FIRST_NAMES))}, names)
        self.assertEqual({(m.uid, m.uname) for m in members}, {(0, "")})


class EveryStepInTurn(unittest.TestCase):
    def went_wrong(self, step, mode):
        world = World(self, {"GPU_CHECK_FAKE": f"{step}={mode}"})
        begin = world.clock.now
        code = world.visit()
        records = world.records()
        self.assertEqual(list(records), FIRST_NAMES, "every step has a document")
        self.assertNotIn("broken", {r["status"] for r in records.values()}, records)
        self.assertLessEqual(world.clock.now - begin, 480)
        self.assertEqual(world.left_alive(), [])
        for name in FIRST_NAMES:
            self.assertIn(f" {name}: {records[name]['status']}\n", world.readme())
        return code, records

    def test_is_reported_when_it_goes_wrong_and_the_rest_goes_on(self):
        for i, step in enumerate(FIRST_NAMES[1:]):
            for mode in ("deaf", ("fail", "garbage", "killed")[i % 3]):
                with self.subTest(step=step, mode=mode):
                    code, records = self.went_wrong(step, mode)
                    self.assertEqual((code, records[step]["status"]), (4, "failed"))
                    skipped = ["cudnn-on-shares"] if step == "cudnn-numbers" else []
                    self.assertEqual([n for n, r in records.items() if n != step and r["status"] != "good"], skipped)

    def test_hanging_all_at_once_still_ends_in_time_and_every_step_had_its_turn(self):
        code, records = self.went_wrong("*", "deaf")
        self.assertEqual(code, 4)
        self.assertEqual({n for n, r in records.items() if r["status"] not in ("failed", "skipped")}, {"environment"})
        self.assertEqual([n for n, r in records.items() if r["status"] == "skipped"], ["cudnn-on-shares"])

    def test_in_the_environment_no_GPU_skips_the_rest_with_the_reason(self):
        world = World(self, {"GPU_CHECK_NO_GPU": "1"})
        self.assertEqual(world.visit(), 4)
        records = world.records()
        self.assertEqual(records["environment"]["status"], "failed")
        self.assertEqual({r["status"] for n, r in records.items() if n != "environment"}, {"skipped"})
        self.assertEqual(records["rates"]["why"], "it needs 'sp-plan runs on a GPU'; 'environment' found that it does not: "
                         "exit 1: sp-plan: --device cuda: no NVIDIA driver here")

    def test_of_nvidia_smi_and_pytorch_leaves_time_for_what_all_rests_on(self):
        world = World(self, {"GPU_CHECK_FAKE": "environment=hang"}, here=("nvidia-smi", "python", "nvcc"))
        world.env["GPU_CHECK_WELL"] = "sp-plan"
        self.assertEqual(world.visit(), 0)
        self.assertEqual({n: r["status"] for n, r in world.records().items() if r["status"] != "good"},
                         {"environment": "partly"})

    def test_with_wrong_numbers_says_which_tensor(self):
        code, records = self.went_wrong("reference", "wrong")
        self.assertEqual(code, 4)
        self.assertIn("WRONG NUMBERS: d_q", records["reference"]["why"])
        self.assertFalse(records["reference"]["facts"]["the reference is right"]["holds"])


class FallBacks(unittest.TestCase):
    def test_without_cudnn_later_steps_run_the_reference_and_say_so(self):
        world = World(self, {"GPU_CHECK_FAKE": "cudnn-numbers=fail"})
        world.visit()
        for step in ("queues-and-copies", "strategies", "rates", "calibration"):
            self.assertEqual(world.kernels_of(step), {"reference"}, step)
        fell_back = world.records()["strategies"]["fell_back"]
        self.assertEqual(fell_back[0]["taken"], "reference kernels, slow on purpose")
        self.assertIn("it failed on purpose", fell_back[0]["why"])
        self.assertIn("## Fall-backs that were taken", world.readme())

    def test_cudnn_that_no_step_looked_into_is_tried(self):
        world = World(self, {})
        world.visit("--only", "environment,rates")
        self.assertEqual(world.kernels_of("rates"), {"cudnn"})
        self.assertEqual(world.records()["rates"]["fell_back"][0]["taken"], "cuDNN")

    def test_without_cudnns_backward_its_forward_is_still_timed(self):
        world = World(self, {"GPU_CHECK_FAKE": "cudnn-numbers=backward,cudnn-on-shares=backward"})
        world.visit()
        facts = world.records()["cudnn-numbers"]["facts"]
        self.assertTrue(facts["cuDNN forward is right"]["holds"])
        self.assertFalse(facts["cuDNN backward runs"]["holds"])
        asked = [words for step, words, _ in world.asked if step == "rates" and "--kernels" in words]
        self.assertEqual({(w[w.index("--kernels") + 1], w[w.index("--phase") + 1]) for w in asked}, {("cudnn", "fwd")})
        self.assertEqual(world.kernels_of("strategies"), {"reference"})

    def test_wrong_numbers_of_cudnn_are_timed_but_not_checked_again(self):
        world = World(self, {"GPU_CHECK_FAKE": "cudnn-numbers=wrong,cudnn-on-shares=wrong"})
        self.assertEqual(world.visit(), 4)
        self.assertEqual(world.kernels_of("rates"), {"cudnn"})
        self.assertEqual(world.kernels_of("strategies"), {"reference"})
        self.assertIn("WRONG NUMBERS: d_q", world.readme())

    def test_a_failed_run_of_cudnn_is_done_again_with_all_that_cudnn_can_tell(self):
        world = World(self, {"GPU_CHECK_FAKE": "cudnn-numbers=fail"})
        world.visit()
        levels = [env.get("CUDNN_LOGLEVEL_DBG") for step, words, env in world.asked if step == "cudnn-numbers"
                  and "run" in words]
        self.assertEqual(levels.count("3"), context.RERUNS)
        self.assertEqual(set(levels), {"2", "3"})
        logs = world.records()["cudnn-numbers"]["entries"][0]["logs"]
        self.assertEqual([(world.report / "logs/04-cudnn-numbers" / name).read_text() for name in logs],
                         ["cuDNN at level 2\n", "cuDNN at level 3\n"])

    def test_ranks_that_share_all_SMs_are_a_failure_that_is_named(self):
        world = World(self, {"GPU_CHECK_NO_SPLIT": "1"})
        self.assertEqual(world.visit(), 4)
        self.assertIn("SMs are not split: ranks share all SMs of a GPU", world.records()["splits"]["why"])

    def test_cudnn_that_refuses_a_share_runs_on_all_SMs_which_its_words_explain(self):
        world = World(self, {"GPU_CHECK_REFUSES_SHARES": "1"})
        world.visit()
        self.assertIn("cuDNN on all SMs", world.readme())
        self.assertIn("cudnnSetStream failed: a stream of a green context", world.readme())

    def test_a_kernel_that_is_faster_alone_does_not_keep_to_its_share(self):
        world = World(self, {"GPU_CHECK_KEEPS_TO_NO_SHARE": "1"})
        self.assertEqual(world.visit(), 4)
        self.assertIn("they share more", world.records()["splits"]["why"])
        self.assertIn("cuDNN does not keep to a share of 32 SMs", world.readme())

    def test_without_tools_their_parts_are_notes_and_nothing_fails(self):
        world = World(self, here=("sp-plan",))
        self.assertEqual(world.visit(), 0)
        records = world.records()
        self.assertEqual({r["status"] for r in records.values()}, {"good"})
        self.assertIn("no nvidia-smi here", " ".join(records["environment"]["notes"]))
        self.assertIn("not beside PyTorch: no python here", " ".join(records["rates"]["notes"]))


class Budgets(unittest.TestCase):
    def test_what_did_not_fit_is_named_and_is_no_failure(self):
        world = World(self)
        begin = world.clock.now
        self.assertEqual(world.visit("--budget", "36"), 0)
        self.assertLessEqual(world.clock.now - begin, 36)
        records = world.records()
        self.assertEqual(list(records), FIRST_NAMES)
        self.assertIn("partly", {r["status"] for r in records.values()})
        self.assertIn("Left out: ", world.readme())

    def test_resuming_does_only_what_is_missing(self):
        world = World(self)
        world.visit("--budget", "36")
        missing = [n for n, r in world.records().items() if r["left_out"] or r["status"] == "left out"]
        keys = {n: [e["key"] for e in r["entries"]] for n, r in world.records().items()}
        self.assertTrue(missing)
        asked = len(world.asked)
        self.assertEqual(world.visit("--resume"), 0)
        again = [(step, words) for step, words, _ in world.asked[asked:] if step not in ("environment", "visit")]
        self.assertEqual({step for step, _ in again}, set(missing) - {"environment"})
        records = world.records()
        self.assertEqual({r["status"] for r in records.values()}, {"good"})
        for name, before in keys.items():
            after = [e["key"] for e in records[name]["entries"]]
            self.assertEqual(len(after), len(set(after)), "no run twice")
            self.assertLessEqual(set(before), set(after))

    def test_resuming_tries_again_what_hung(self):
        world = World(self, {"GPU_CHECK_FAKE": "rates=hang"})
        self.assertEqual(world.visit(), 4)
        del world.env["GPU_CHECK_FAKE"]
        self.assertEqual(world.visit("--resume"), 0)
        self.assertEqual({r["status"] for r in world.records().values()}, {"good"})

    def test_resuming_with_another_commit_does_all_again(self):
        world = World(self)
        world.visit()
        asked = len(world.asked)
        world.env["GPU_CHECK_COMMIT"] = "def456"
        world.visit("--resume")
        self.assertEqual(len(world.asked), 2 * asked)

    def test_steps_of_another_commit_are_marked_and_count_for_nothing(self):
        world = World(self)
        world.visit()
        world.env["GPU_CHECK_COMMIT"] = "def456"
        world.visit("--only", "rates")
        self.assertIn("good (of 0.1.0 (abc123), ", world.readme())
        self.assertIn("nothing has looked into it yet", world.records()["rates"]["why"])

    def test_only_does_only_these_steps_with_the_facts_of_before(self):
        world = World(self)
        world.visit()
        asked = len(world.asked)
        self.assertEqual(world.visit("--only", "rates"), 0)
        self.assertEqual({step for step, _, _ in world.asked[asked:]}, {"visit", "rates"})
        self.assertEqual(world.kernels_of("rates"), {"cudnn"})


class Breaks(unittest.TestCase):
    def test_a_mistake_in_a_step_is_1_and_the_rest_goes_on(self):
        def wrong(_):
            raise KeyError("a mistake")
        steps = [(1, FIRST[0]), (2, visit.Step("mistake", "Nothing.", 10, wrong)), (3, FIRST[2])]
        world = World(self)
        self.assertEqual(world.visit(script_steps=(steps, 480)), 1)
        records = world.records()
        self.assertEqual(records["mistake"]["status"], "broken")
        self.assertEqual(records["reference"]["status"], "good")

    def test_an_interruption_leaves_a_report_of_what_was_found(self):
        def interrupted(_):
            raise visit.Interrupted("interrupted by SIGTERM")
        steps = [(1, FIRST[0]), (2, visit.Step("wanted-back", "Nothing.", 10, interrupted)), (3, FIRST[2])]
        world = World(self)
        self.assertEqual(world.visit(script_steps=(steps, 480)), 1)
        self.assertEqual({n: r["status"] for n, r in world.records().items()},
                         {"environment": "good", "wanted-back": "interrupted"})
        self.assertIn("interrupted by SIGTERM", world.readme())

    def test_a_broken_document_is_passed_over(self):
        world = World(self)
        world.visit()
        (world.report / "steps/05-splits.json").write_text('{"cut off')
        (world.report / "steps/06-cudnn-on-shares.json").write_text('{"step": "cudnn-on-shares", "entries": [{}]}')
        report.write(folder.Folder(world.report))
        self.assertNotIn("05 splits", world.readme())
        self.assertIn("Its document cannot be shown", world.readme())

    def test_wrong_usage_is_2_with_one_line(self):
        world = World(self)
        for words, told in ((["--only", "nonsense"], "--only: no step 'nonsense' in this part"),
                            (["--budget", "0"], "--budget"),
                            (["--node", "--launch", "x {gpu}"], "--launch: 'gpu' is none of {ranks}, {nodes}, {gpus}"),
                            (["--program", "/nowhere/sp-plan"], "no program /nowhere/sp-plan"),
                            (["--report", "/nowhere"], "has no visit.json")):
            with self.subTest(words=words):
                self.assertEqual(world.visit(*words), 2)
                self.assertIn(told, world.said.getvalue())
                self.assertEqual(world.said.getvalue().count("\n"), 1)

    def test_a_build_without_gpus_is_refused(self):
        world = World(self)
        (world.tools / "build/CMakeCache.txt").write_text("SPP_CUDA:STRING=OFF\n")
        self.assertEqual(world.visit(), 2)
        self.assertIn("was configured without GPUs: cmake --preset release", world.said.getvalue())


class TheSecondPart(unittest.TestCase):
    def test_goes_on_from_what_the_first_has_found(self):
        world = World(self)
        world.env["GPU_CHECK_TESTS"] = str(world.tools / "build/tests")
        self.assertEqual(world.visit(), 0)
        self.assertEqual(world.visit("--part", "second", "--budget", "2000"), 0)
        records = world.records()
        self.assertEqual({s.name: records[s.name]["status"] for s in SECOND}, {s.name: "good" for s in SECOND})
        self.assertEqual([e["key"] for e in records["tests"]["entries"]], ["gpu.numerics"])
        self.assertEqual([e["key"] for e in records["sanitizer"]["entries"]], ["gpu.memcheck.kernels"])
        self.assertIn("| 8 | 64K | fwd |", world.readme())

    def test_alone_skips_what_rests_on_the_first(self):
        world = World(self)
        self.assertEqual(world.visit("--part", "second"), 0)
        self.assertIn("nothing has looked into it yet", world.records()["numbers-at-large"]["why"])

    def test_without_a_calibration_plans_are_a_failure(self):
        world = World(self, {"GPU_CHECK_FAKE": "calibrations=killed"})
        self.assertEqual(world.visit("--part", "second"), 4)
        self.assertIn("nothing is calibrated", world.records()["all-plans"]["why"])
        self.assertIn("killed by SIGKILL", world.records()["calibrations"]["why"])


class ThePartOfSteps(unittest.TestCase):
    def test_runs_layers_and_steps_and_holds_their_times_against_predictions(self):
        world = World(self)
        self.assertEqual(world.visit("--part", "steps"), 0)
        records = world.records()
        names = {step.name for _, step in PARTS["steps"][0]}
        self.assertEqual({n: (r["status"], r["why"]) for n, r in records.items()}, {n: ("good", "") for n in names})
        self.assertEqual({e["scope"] for e in records["training-steps"]["entries"]}, {"step"})
        self.assertIn("predicted +2.0 %", world.readme())
        self.assertIn("| PyTorch | good |", world.readme())
        self.assertNotIn("## Predicted and measured", world.readme(), "that is of attention calls")

    def test_says_which_step_is_wrong(self):
        world = World(self, {"GPU_CHECK_FAKE": "over-nccl=fail"})
        self.assertEqual(world.visit("--part", "steps"), 4)
        self.assertIn("it failed on purpose", world.records()["over-nccl"]["why"])


class ANode(unittest.TestCase):
    def node(self, *words, here=TOOLS, **env):
        world = World(self, {"GPU_CHECK_GPUS": "8", **env}, here)
        self.code = world.visit("--node", *words)
        return world

    def test_runs_its_whole_list_over_NCCL(self):
        world = self.node(here=(*TOOLS, "all_gather_perf"))
        records = world.records()
        self.assertEqual({n: (r["status"], r["why"]) for n, r in records.items()}, {s.name: ("good", "") for s in NODE})
        self.assertEqual(self.code, 0)
        self.assertEqual({e["run"]["ranks"] for e in records["node-plans"]["entries"]}, {8})
        self.assertEqual({e["run"]["comm"] for e in records["node-plans"]["entries"]}, {"nccl"})

    def test_is_a_machine_that_is_guessed_or_said(self):
        asked = [w for s, w, _ in self.node().asked if s == "links" and "calibrate" in w][0]
        self.assertEqual(asked[asked.index("--topology") + 1], "dgx-h200")
        asked = [w for s, w, _ in self.node("--topology", "hgx-h200").asked if s == "links" and "calibrate" in w][0]
        self.assertEqual(asked[asked.index("--topology") + 1], "hgx-h200")

    def test_takes_the_next_launcher_where_one_does_not_fit(self):
        world = self.node(GPU_CHECK_BAD_LAUNCHERS="mpirun")
        self.assertEqual(self.code, 0)
        self.assertEqual(world.records()["launching"]["data"]["launcher"], "torchrun")
        self.assertIn("mpirun: cannot start anything here", " ".join(world.records()["launching"]["notes"]))

    def test_starts_its_own_processes_where_there_is_no_launcher(self):
        world = self.node(here=("sp-plan", "nvidia-smi"))
        self.assertEqual(world.records()["launching"]["data"]["launcher"], "this script")
        ranks = {env["RANK"] for s, w, env in world.asked if s == "node-plans" and "RANK" in env}
        self.assertEqual(ranks, {str(i) for i in range(8)})

    def test_each_step_that_goes_wrong_is_reported_and_the_rest_goes_on(self):
        there = [step for step in NODE[2:] if step.name != "nccl-tests"]
        for i, step in enumerate(there):
            for mode in ("deaf", ("fail", "garbage", "killed")[i % 3]):
                with self.subTest(step=step.name, mode=mode):
                    world = World(self, {"GPU_CHECK_GPUS": "2", "GPU_CHECK_FAKE": f"{step.name}={mode}"})
                    begin = world.clock.now
                    self.assertEqual(world.visit("--node"), 4)
                    self.assertLessEqual(world.clock.now - begin, 1500)
                    records = world.records()
                    self.assertEqual(set(records), {s.name for s in NODE})
                    self.assertEqual(records[step.name]["status"], "failed", records[step.name])
                    self.assertNotIn("broken", {r["status"] for r in records.values()})

    def test_of_one_GPU_says_what_to_call_instead(self):
        world = self.node(GPU_CHECK_GPUS="1")
        self.assertEqual(self.code, 4)
        self.assertIn("scripts/gpu-check without --node is for it", world.records()["launching"]["why"])

    def test_under_slurm_is_started_by_srun_over_all_nodes(self):
        world = World(self, {"GPU_CHECK_GPUS": "8", "SLURM_JOB_ID": "1"}, (*TOOLS, "srun"))
        self.assertEqual(world.visit("--nodes", "2"), 0)
        words = [w for s, w, _ in world.asked if s == "node-plans" and "run" in w][0]
        self.assertEqual(words[:8], ["srun", "-N", "2", "--ntasks-per-node", "8", "--gpus-per-node", "8", "--mpi=pmix"])


class AStandIn(unittest.TestCase):
    def test_is_said_on_the_first_line_and_what_it_lacks_is_skipped_with_the_reason(self):
        world = World(self, {"GPU_CHECK_BACK_ENDS": "inproc, tcp, reference, cuda"}, here=("sp-plan",))
        self.assertEqual(world.visit("--stand-in"), 0)
        self.assertTrue(world.readme().startswith(report.STAND_IN + "\n"))
        records = world.records()
        self.assertEqual({n: r["why"] for n, r in records.items() if r["status"] == "skipped"},
                         {"cudnn-numbers": "this stand-in was built without cuDNN",
                          "cudnn-on-shares": "this stand-in was built without cuDNN",
                          "nccl": "this stand-in was built without NCCL", "our-kernels": records["our-kernels"]["why"]})
        self.assertIn("device.kernels was not built", records["our-kernels"]["why"])
        self.assertNotIn("goal", world.readme())

    def test_does_the_whole_list_with_stand_ins_for_cudnn_and_nccl(self):
        world = World(self, {"GPU_CHECK_KEEPS_TO_NO_SHARE": "1"}, here=("sp-plan",))  # which its time does not tell
        self.assertEqual(world.visit("--stand-in"), 0)
        records = world.records()
        self.assertEqual([n for n, r in records.items() if r["status"] != "good"], ["our-kernels"])
        self.assertEqual(world.kernels_of("cudnn-numbers"), {"cudnn"})
        self.assertEqual(world.kernels_of("cudnn-on-shares"), {"cudnn"})
        self.assertEqual(world.kernels_of("strategies"), {"reference"})

    def test_has_a_folder_for_messages_between_the_processes_of_a_run(self):
        world = World(self, here=("sp-plan",))
        world.visit("--stand-in")
        folders = [env["SPP_HOST_NCCL_FOLDER"] for step, words, env in world.asked if step == "nccl" and "run" in words]
        self.assertEqual({folders.count(f) for f in folders}, {2})
        self.assertFalse(any(pathlib.Path(f).exists() for f in folders))


class Pieces(unittest.TestCase):
    def test_the_fake_prints_what_the_schema_of_a_run_requires(self):
        schema = json.loads((root / "docs/schema/run.schema.json").read_text())
        words = ["run", "--heads", "2", "--kv-heads", "2", "--head-dim", "8", "--dtype", "bf16", "--iters", "2",
                 "--comm", "inproc",
                 "--kernels", "cudnn", "--profile", "p", "--check"]
        document = fakes.run_document(fakes.options(words), {}, wrong=False)
        self.expect(schema, schema, document)

    def expect(self, schema, part, value):
        if part.get("$ref", "").startswith("#/$defs/"):
            part = schema["$defs"][part["$ref"].rsplit("/", 1)[1]]
        part = next((p for p in part.get("anyOf", []) if p.get("type") != "null"), part)
        if isinstance(value, dict) and "properties" in part:
            if part.get("additionalProperties") is False:
                self.assertEqual(set(part.get("required", [])) - set(value), set())
                self.assertLessEqual(set(value), set(part["properties"]))
            for key, inner in value.items():
                self.expect(schema, part["properties"].get(key, {}), inner)
        for inner in value if isinstance(value, list) else []:
            self.expect(schema, part.get("items", {}), inner)

    def test_a_document_is_found_among_a_launchers_lines(self):
        self.assertEqual(sp_plan.document_in('hello\n{"a": {"b": 1}}\nbye\n'), {"a": {"b": 1}})
        for text in ("", "{", "}{", "no", "[1]", '{"a": }'):
            self.assertEqual(sp_plan.document_in(text), {})

    def test_a_block_that_is_as_fast_alone_keeps_to_its_share(self):
        events = [timelines.Event("attention_fwd", r, 0, s, s + (0.25 if (r, s) == (3, 3) else 1), 0)
                  for r in range(4) for s in range(r + 1)]
        self.assertAlmostEqual(timelines.alone_against_busy(events)["ratio"], 0.25)
        events = [timelines.Event("attention_fwd", r, 0, s, s + 1, 0) for r in range(4) for s in range(r + 1)]
        self.assertAlmostEqual(timelines.alone_against_busy(events)["ratio"], 1)

    def test_overlap_counts_time_once(self):
        event = timelines.Event("exchange", 0, 2, 0, 10, 1)
        others = [timelines.Event("attention_fwd", 0, 0, *span, 0) for span in ((1, 4), (2, 5), (8, 20), (30, 40))]
        self.assertEqual(timelines.overlap(event, others), 6)  # 1 to 5, 8 to 10

    def test_concurrency_is_one_where_kernels_take_turns_and_two_where_two_run(self):
        turns = [timelines.Event("attention_fwd", r, 0, r, r + 1, 0) for r in range(2)]
        at_once = [timelines.Event("attention_fwd", r, 0, 0, 1, 0) for r in range(2)]
        self.assertEqual((timelines.concurrency(turns), timelines.concurrency(at_once)), (1, 2))

    def test_clock_samples_that_were_cut_off_are_passed_over(self):
        line = "2026/11/23 20:00:00.100, 0, 1980, 3201, 700.0, 60, 99, 0x0000000000000004"
        samples = smi.samples_in(f"{line}\n[N/A], 0\n{line[:40]}")
        self.assertEqual(len(samples), 1)
        self.assertEqual(smi.during(samples, samples[0]["at"] - 1, samples[0]["at"] + 1)["slowed_by"], ["power cap"])
        self.assertIsNone(smi.during(samples, 0, 1))

    def test_errors_of_predictions_are_those_of_their_formulas(self):
        # Predicted 1.02 ms and 0.9 ms, measured 1 ms each: errors 2 % and -10 %, the recommended one 0 % slower.
        def entry(predicted, measured, recommended):
            return {"kind": "run", "recommended": recommended, "run": {
                "ranks": 2, "comm": "inproc", "plan": "p", "shape": {"seq": 4096, "phase": "fwd"}, "step_s": measured,
                "predicted": {"step_s": predicted, "interval_s": [0.95e-3, 1.1e-3]}}}
        rows = dict(accuracy.overview([{"entries": [entry(1.02e-3, 1e-3, True), entry(0.9e-3, 1e-3, False)]}]))
        self.assertEqual(rows["median of abs(error)"], "6.0 % (goal: 5 %, missed)")
        self.assertEqual(rows["MAPE: mean of abs(error)"], "6.0 % (goal: 8 %, reached)")
        self.assertEqual(rows["recommended plan's time over the fastest's that ran, at worst"],
                         "+0.0 % (goal: within 2 %, reached)")

    def test_a_home_folder_is_taken_out_of_logs(self):
        with tempfile.TemporaryDirectory() as name, mock.patch.object(pathlib.Path, "home", lambda: pathlib.Path("/home/somebody")):
            file = pathlib.Path(name) / "log"
            file.write_text("/home/somebody/lib/libcudnn.so " + "x" * 1000)
            command.bounded(file, most=400)
            self.assertTrue(file.read_text().startswith("~/lib/libcudnn.so "))
            self.assertIn("bytes left out", file.read_text())
            self.assertLess(file.stat().st_size, 500)

    def test_a_free_port_leaves_room_for_the_next(self):
        self.assertGreaterEqual(talking.free_port(), 1024)


class RealProcesses(unittest.TestCase):
    """The script as people start it, over programs that really hang, flood and die."""

    def setUp(self):
        self.folder = new_folder(self)
        tools = self.folder / "bin"
        (tools / "build/cli").mkdir(parents=True)
        fake = f"#!{sys.executable} -SE\n" + (here / "gpu_check_fakes.py").read_text()
        for name in ("nvidia-smi", "python", "build/cli/sp-plan"):
            (tools / name).write_text(fake)
            (tools / name).chmod(0o755)
        self.report = self.folder / "report"
        self.line = [sys.executable, str(root / "scripts/gpu-check"), "--build", str(tools / "build"), "--out",
                     str(self.report),
                     "--python", "python"]
        self.env = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin", "HOME": str(self.folder)}

    def start(self, *words, **env):
        process = subprocess.Popen([*self.line, *words], env={**self.env, **env}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def records(self):
        return {r["step"]: r for r in folder.Folder(self.report).records()}

    def wait_for(self, what, seconds=120):
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end, "it never came")
            time.sleep(0.02)

    def processes_here(self):
        """Of our fakes, still running."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.folder) in entry.read_text() and "scripts/gpu-check" not in entry.read_text():
                    found.append(entry.read_text())
        return found

    def test_that_hang_and_ignore_being_asked_end_within_the_budget(self):
        begin = time.monotonic()
        process = self.start("--budget", "16", "--only", "environment,reference,splits,rates",
                             GPU_CHECK_FAKE="*=deaf")
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 4, err)
        self.assertLess(time.monotonic() - begin, 16 + 10)  # ten for a busy machine to start Python and to write
        states = {n: r["status"] for n, r in self.records().items()}
        self.assertEqual((states["environment"], states["reference"]), ("good", "failed"))
        self.assertLessEqual({states["splits"], states["rates"]},
                             {"failed", "left out"})  # out of time on a busy machine
        self.assertEqual(out.strip(), str(self.report / "README.md"))
        self.assertEqual(self.processes_here(), [])

    def test_that_flood_are_ended_and_their_logs_bounded(self):
        process = self.start("--budget", "200", "--only", "environment,splits", GPU_CHECK_FAKE="splits=flood")
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 4, err)
        self.assertIn("said more than 64 MiB", self.records()["splits"]["why"])
        self.assertLess(max(f.stat().st_size for f in (self.report / "logs/05-splits").iterdir()), command.KEPT + 1000)

    def test_are_ended_by_a_polite_stop_which_leaves_a_report(self):
        process = self.start("--budget", "100", GPU_CHECK_FAKE="reference=hang")
        self.wait_for(lambda: self.records().get("reference", {}).get("status") == "running" and self.processes_here())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(self.records()["reference"]["status"], "interrupted")
        self.assertIn("| 03 | reference | interrupted |", (self.report / "README.md").read_text())
        self.wait_for(lambda: not self.processes_here())

    def test_die_with_a_script_that_is_killed_whose_report_is_made_later_and_which_is_resumed(self):
        process = self.start("--budget", "100", "--only", "environment,reference,splits", GPU_CHECK_FAKE="splits=hang")
        self.wait_for(lambda: self.records().get("splits", {}).get("status") == "running" and self.processes_here())
        process.kill()
        process.communicate(timeout=120)
        self.wait_for(lambda: not self.processes_here())
        self.assertEqual(self.records()["reference"]["status"], "good")
        self.assertIn("| 03 | reference | good |", (self.report / "README.md").read_text())
        with tarfile.open(f"{self.report}.tar.gz") as archive:
            self.assertIn("report/steps/03-reference.json", archive.getnames())
        again = subprocess.run([*self.line[:2], "--report", str(self.report)], env=self.env, capture_output=True,
                               text=True, check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("it was running when this script was killed", (self.report / "README.md").read_text())
        before = self.records()["reference"]["date"]
        resumed = self.start("--budget", "100", "--only", "environment,reference,splits", "--resume")
        _, err = resumed.communicate(timeout=120)
        self.assertEqual(resumed.returncode, 0, err)
        self.assertEqual(self.records()["splits"]["status"], "good")
        self.assertEqual(self.records()["reference"]["date"], before)


if __name__ == "__main__":
    unittest.main()
