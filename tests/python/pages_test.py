"""docs/python.md says what happens, and the examples run."""

import doctest
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

import sp_plan

root = pathlib.Path.cwd()


class Page(unittest.TestCase):
    def test_its_sessions_go_as_it_says(self):
        page = (root / "docs/python.md").read_text(encoding="utf-8")
        session = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
        self.assertGreater(session.count(">>>"), 5)
        example = doctest.DocTestParser().get_doctest(session, {}, "docs/python.md", "docs/python.md", 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        said = []
        runner.run(example, out=said.append)
        self.assertEqual(runner.summarize(verbose=False).failed, 0, "".join(said))


class DeviceMesh(unittest.TestCase):
    def run_it(self, *words, **environment):
        run = subprocess.run([sys.executable, "-B", "python/examples/device_mesh.py", *words], text=True, check=True,
                             capture_output=True, env={**os.environ, **environment})
        return run.stdout

    def test_its_mesh_has_the_groups_of_the_plan(self):
        for world, words in (("16", ["--model", "llama-3.1-8b", "--seq", "128K"]),
                             ("64", ["--model", "llama-3.1-70b", "--seq", "32K", "--global-batch", "64"])):
            mesh = self.run_it(*words, WORLD_SIZE=world, RANK="0")
            shape = [int(n) for n in re.search(r"\(([\d, ]+)\), mesh_dim_names", mesh).group(1).split(",") if n.strip()]
            names = re.findall(r"'(\w+)'", mesh.split("mesh_dim_names")[1])
            self.assertEqual(len(shape), len(names))
            product = 1
            for size in shape:
                product *= size
            self.assertEqual(product, int(world))
            options = dict(zip([w.removeprefix("--").replace("-", "_") for w in words[::2]], words[1::2]))
            plan = sp_plan.plan(topology="dgx-h100", gpus=int(world), **options)["best"]["plan"]
            stride = 1
            for name, size in reversed(list(zip(names, shape))):
                groups = [[first + i * stride for i in range(size)] for first in range(product) if first // stride % size == 0]
                if name != "cp":
                    self.assertEqual(sorted(groups), sorted(plan["groups"][name]), json.dumps(plan)[:200])
                stride *= size

    def test_other_ranks_say_nothing(self):
        self.assertEqual(self.run_it("--model", "llama-3.1-8b", "--seq", "32K", WORLD_SIZE="8", RANK="3"), "")


if __name__ == "__main__":
    unittest.main()
