"""What scripts/gpu-check is made of. Python's standard library only (3.11).

| file | what it holds |
|---|---|
| `command.py` | one command: its limit, its end, what it said, bounded |
| `folder.py` | the report's folder: a JSON document a step, an archive |
| `visit.py` | steps in their order: budget, what they need, fall-backs, resuming |
| `context.py` | what a step works with: runs of sp-plan, facts, failures |
| `sp_plan.py` | command lines and documents of sp-plan |
| `parts.py` | which steps there are, in which order |
| `environment.py`, `correctness.py`, `sharing.py`, `talking.py`, `times.py`, `plans.py`, `node.py` | the steps |
| `timelines.py`, `smi.py`, `sdpa.py`, `accuracy.py` | measured timelines; NVIDIA's own tool; PyTorch's attention; errors of predictions |
| `report.py` | README.md, from the documents alone |

A step is a function with a `Step` around it: put it into its list in `parts.py`, and that is all.
"""
