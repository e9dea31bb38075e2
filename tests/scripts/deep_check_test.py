"""What scripts/deep-check keeps and reports, in a repository of its own with tools that only pretend.

Arguments: the root of the sources.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

source = pathlib.Path(sys.argv.pop(1)).resolve()

# Two tests, of which those that $FAIL names fail; every one that runs is noted in $LOG.
CTEST = r"""#!/usr/bin/env python3
import json, os, re, sys
if "--show-only=json-v1" in sys.argv:
    print(json.dumps({"tests": [{"name": "unit.one"}, {"name": "unit.two"}]}))
    sys.exit(0)
choice = sys.argv[sys.argv.index("-R") + 1]
tests = [t for t in ("unit.one", "unit.two") if re.match(choice, t)]
for i, name in enumerate(tests):
    open(os.environ["LOG"], "a").write(name + "\n")
    failed = name in os.environ.get("FAIL", "").split()
    print(f" {i + 1}/{len(tests)} Test  #{i + 1}: {name} ........{'Subprocess aborted***Exception: ' if failed else '   Passed '}   0.50 sec", flush=True)
    if name == os.environ.get("STOP_AFTER"):
        import time; time.sleep(600)
"""
TIDY = r"""#!/bin/sh
if [ "$1" = --version ]; then echo "LLVM version 19.1"; exit 0; fi
for file; do :; done
echo "$file" >>"$LOG"
! grep -q BAD "$file"
"""
VALGRIND = r"""#!/bin/sh
if [ "$1" = --version ]; then echo "valgrind-3.19"; exit 0; fi
for name; do :; done
echo "$name" >>"$LOG"
"""
# One plan for every question; with WRONG its parts are no step.
SP_PLAN = r"""#!/usr/bin/env python3
import json, os, sys
open(os.environ["LOG"], "a").write(sys.argv[1] + "\n")
predicted = {"step_s": 2.0, "interval_s": [1.8, 2.2], "mfu": 0.4, "parts_s": {"gemm": 3.0 if "WRONG" in os.environ else 2.0},
             "memory_bytes": {"total": 5, "parameters": 5}}
best = {"name": "TP1", "plan": {"tp": 1, "pp": 1}, "simulated": True, "predicted": predicted}
print(json.dumps({"best": best, "candidates": [best], "unsettled": 0, "result": best}))
"""
UNIT = "build/lint-units/base/CMakeFiles/spp_base.dir/Unity/unity_0_cxx.cxx"


class DeepCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "tree"
        tools = pathlib.Path(folder.name) / "tools"
        self.log = pathlib.Path(folder.name) / "log"
        (self.root / "scripts/lib").mkdir(parents=True)
        for file in ("scripts/deep-check", "scripts/lib/answers.py", "scripts/lib/tools.sh"):
            shutil.copy(source / file, self.root / file)
        self.tool(self.root / "scripts/setup", "#!/bin/sh\n")
        self.tool(tools / "ctest", CTEST)
        self.tool(tools / "cmake", "#!/bin/sh\nexit 0\n")
        for name in ("clang-tidy-19", "clang-tidy"):
            self.tool(tools / name, TIDY)
        self.tool(tools / "valgrind", VALGRIND)
        self.write("base/a.cpp", '#include "base/a.hpp"\n')
        self.write("base/b.cpp", "// alone\n")
        self.write("base/a.hpp", "// header\n")
        self.write(".clang-tidy", "Checks: all\n")
        self.write(".gitignore", "/build/\n")
        self.write("base/c.cpp", "// with others\n")
        self.write(UNIT, f'#include "{self.root}/base/c.cpp"\n')
        self.write("build/lint-units/compile_commands.json", json.dumps(
            [{"file": str(self.root / f), "command": f"c++ {f}"} for f in ("base/a.cpp", "base/b.cpp", UNIT)]))
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LOG": str(self.log),
                            "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": folder.name}
        self.git("init", "-q", "-b", "main")
        self.commit()

    def write(self, file, text):
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        (self.root / file).write_text(text)

    def tool(self, file, text):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@e", *words], cwd=self.root,
                       check=True, capture_output=True, env=self.environment)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "m")

    def check(self, *words, **environment):
        """(exit code, stdout, what ran); the latter is forgotten."""
        run = subprocess.run([self.root / "scripts/deep-check", *words], cwd=self.root, check=False,
                             env={**self.environment, **environment}, capture_output=True, text=True)
        ran = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        self.said = run.stderr
        return run.returncode, run.stdout, sorted(ran)

    def report(self, part):
        return json.loads((self.root / f"reports/deep/{part}.json").read_text())

    def test_what_passed_is_not_repeated_and_what_failed_is(self):
        code, _, ran = self.check("dev", FAIL="unit.two")
        self.assertEqual((code, ran), (1, ["unit.one", "unit.two"]), self.said)
        self.assertEqual(self.report("dev")["result"], "failed")
        self.assertEqual(list(self.report("dev")["failed"]), ["unit.two"])
        self.assertIsNone(self.report("dev")["last_passed"])
        code, _, ran = self.check("dev")
        self.assertEqual((code, ran), (0, ["unit.two"]), self.said)
        self.assertEqual(self.report("dev")["steps_passed"], 2)
        self.assertEqual(self.check("dev")[2], [])

    def test_a_part_that_was_stopped_goes_on(self):
        state = self.root / "build/deep-check/units.json"
        with subprocess.Popen([self.root / "scripts/deep-check"], cwd=self.root, text=True, stderr=subprocess.PIPE,
                              env={**self.environment, "STOP_AFTER": "unit.one"}) as run:
            while run.poll() is None and not (state.exists() and "unit.one" in state.read_text()):
                time.sleep(0.05)
            run.send_signal(signal.SIGINT)
            said = run.stderr.read()
        self.assertEqual(run.returncode, 130, said)
        self.assertIn("scripts/deep-check units goes on", said)
        self.assertNotIn("cases", said)
        self.assertFalse((self.root / "reports/deep/units.json").exists())
        self.assertEqual(self.log.read_text().split(), ["unit.one"])
        self.log.unlink()
        self.assertEqual(self.check("units")[::2], (0, ["unit.two"]), self.said)

    def test_other_sources_are_tested_again_but_a_report_is_no_change(self):
        self.check("dev")
        self.commit()  # of the report
        self.assertEqual(self.check("dev")[2], [])
        self.write("base/b.cpp", "// else\n")
        self.assertEqual(self.check("dev")[2], ["unit.one", "unit.two"])

    def test_memcheck_repeats_nothing_for_texts_that_no_program_reads(self):
        self.tool(self.root / "build/ci/tests/cli.contract", "#!/bin/sh\necho one\n")
        self.write("docs/choose.md", "more\n")
        self.commit()
        self.assertEqual(self.check("valgrind")[::2], (0, ["one"]), self.said)
        self.write("docs/choose.md", "else\n")
        self.commit()
        self.write("docs/README.md", "not committed\n")
        self.assertEqual(self.check("valgrind")[2], [])
        self.write("base/b.cpp", "// else\n")
        self.assertEqual(self.check("valgrind")[2], ["one"])

    def test_answers_are_held_against_each_other(self):
        self.tool(self.root / "build/ci/cli/sp-plan", SP_PLAN)
        self.environment["SPP_DEEP_QUESTIONS"] = "2"
        self.commit()
        self.assertEqual(self.check("answers")[::2], (0, 8 * ["plan"] + 2 * ["simulate"]), self.said)
        self.write("base/b.cpp", "// else\n")
        self.environment["WRONG"] = "1"
        self.assertEqual(self.check("answers")[0], 1)
        self.assertIn("TP1: parts of 3.0 s make a step of 2.0 s: sp-plan plan --model", self.said)

    def test_only_exactly_a_commit_counts_as_passed(self):
        self.write("base/b.cpp", "// not committed\n")
        self.assertEqual(self.check("dev")[0], 0)
        self.assertIsNone(self.report("dev")["last_passed"])
        self.assertIn(", changed", self.report("dev")["commit"])

    def test_a_failure_keeps_when_it_last_passed(self):
        self.check("dev")
        passed = self.report("dev")["last_passed"]
        self.write("base/b.cpp", "// else\n")
        self.commit()
        self.check("dev", FAIL="unit.one")
        self.assertEqual(self.report("dev")["result"], "failed")
        self.assertEqual(self.report("dev")["last_passed"], passed)

    def test_clang_tidy_repeats_files_that_changed_also_in_their_headers(self):
        self.assertEqual(self.check("tidy")[::2], (0, ["base/a.cpp", "base/b.cpp", UNIT]), self.said)
        self.write("base/a.hpp", "// other\n")
        self.assertEqual(self.check("tidy")[2], ["base/a.cpp"])
        self.write("base/b.cpp", "BAD\n")
        self.assertEqual(self.check("tidy")[::2], (1, ["base/b.cpp"]))
        self.assertEqual(list(self.report("tidy")["failed"]), ["base/b.cpp"])
        self.write("base/c.cpp", "// else\n")
        self.write("base/b.cpp", "// alone\n")
        self.assertEqual(self.check("tidy")[2], [UNIT])
        self.write(".clang-tidy", "Checks: others\n")
        self.assertEqual(self.check("tidy")[2], ["base/a.cpp", "base/b.cpp", UNIT])

    def test_status_tells_how_many_commits_ago_each_part_passed(self):
        self.check("dev")
        for _ in range(3):
            self.commit()
        code, out, _ = self.check("--status")
        lines = out.splitlines()
        self.assertEqual(code, 0)
        self.assertRegex(lines[2], r"^deep-check dev: passed 3 commits ago \(\d{4}-\d\d-\d\d\)$")
        self.assertEqual(lines[3], "deep-check tsan: WARNING: has never passed")
        empty = "commit refs/heads/main\ncommitter n <e@e> 0 +0000\ndata 0\n\n"
        first = empty.replace("data 0\n", "data 0\nfrom refs/heads/main^0\n", 1)
        subprocess.run(["git", "fast-import", "--quiet"], cwd=self.root, check=True, text=True,
                       env=self.environment, input=first + 147 * empty)
        self.assertIn("dev: WARNING: more than 150 commits ago: passed 151 commits ago", self.check("--status")[1])

    def test_an_unknown_part_is_refused(self):
        code, _, _ = self.check("devv")
        self.assertEqual(code, 2)
        self.assertIn("unknown part 'devv' (one of: units, cases, dev, tsan, tidy, fuzz, valgrind, numerics, answers)", self.said)


if __name__ == "__main__":
    unittest.main()
