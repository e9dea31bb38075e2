"""PyTorch's attention with its cuDNN back end, timed. Run by a Python that has torch: one argument,
[heads, kv_heads, head_dim, dtype, [[tokens, mask], …]]; a line of JSON for the versions and for each point."""

import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention


def timed(call):
    for _ in range(3):
        call()
    samples = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end) / 1000)
    return samples


def measure(seq, mask, heads, kv_heads, dim, kind):
    point = {"seq": seq, "mask": mask}
    try:
        q, k, v = (torch.randn(1, h, seq, dim, device="cuda", dtype=kind, requires_grad=True)
                   for h in (heads, kv_heads, kv_heads))
        grouped = {"enable_gqa": True} if kv_heads != heads else {}
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            def forward():
                return attention(q, k, v, is_causal=mask == "causal", **grouped)
            with torch.no_grad():
                point["fwd_samples_s"] = timed(forward)
            out = forward()
            up = torch.randn_like(out)
            point["bwd_samples_s"] = timed(
                lambda: torch.autograd.grad(out, (q, k, v), up, retain_graph=True))
        for phase in ("fwd", "bwd"):
            point[phase + "_s"] = statistics.median(point[phase + "_samples_s"])
    except Exception as e:  # pylint: disable=broad-except
        point["failed"] = str(e).split("\n", maxsplit=1)[0]
    return point


def main():
    heads, kv_heads, dim, dtype, points = json.loads(sys.argv[1])
    print(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                      "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}), flush=True)
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    for seq, mask in points:
        print(json.dumps(measure(seq, mask, heads, kv_heads, dim, kind)), flush=True)


if __name__ == "__main__":
    main()
