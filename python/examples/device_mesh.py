"""Plans inside a training script's set-up: which mesh these ranks form, as torch's init_device_mesh takes it.

    torchrun --nproc-per-node 8 device_mesh.py --model llama-3.1-8b --seq 128K
    WORLD_SIZE=64 python3 device_mesh.py --model llama-3.1-70b --seq 128K --global-batch 64     # without torch

Every rank asks for itself: the answer depends on the question alone, so all of them get the same one.
"""

import argparse
import os

import sp_plan


def mesh_of(plan):
    """Sizes and names, the outermost first: tensor ranks lie side by side, then those of one sequence."""
    if plan["team"] > 1:  # StarTrail's teams are no axes of a plain mesh
        inner = [("cp", plan["ulysses"] * plan["ring"])]
    else:
        inner = [(axis, plan[axis]) for axis in plan["order"]]
    axes = [("tp", plan["tp"]), *inner, ("dp", plan["dp"]), ("cfg", plan["cfg"]), ("pp", plan["pp"])]
    axes = [axis for axis in reversed(axes) if axis[1] > 1] or [("dp", 1)]
    return tuple(size for _, size in axes), tuple(name for name, _ in axes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a name, or a config.json")
    parser.add_argument("--seq", required=True)
    parser.add_argument("--topology", default="dgx-h100", help="a machine's name, or what it was imported to")
    parser.add_argument("--global-batch", type=int)
    words = parser.parse_args()

    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    best = sp_plan.plan(model=words.model, seq=words.seq, topology=words.topology, global_batch=words.global_batch,
                        gpus=world)["best"]
    shape, names = mesh_of(best["plan"])
    if rank == 0:
        print(f"# {best['why']}")
        print(f'init_device_mesh("cuda", {shape}, mesh_dim_names={names})')
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun started us
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh("cuda", shape, mesh_dim_names=names)
    return None


if __name__ == "__main__":
    main()
