"""A LLaMA layer in PyTorch, eager, with cuDNN's attention, timed. Run by a Python that has torch: one argument,
[config.json's keys, dtype, [tokens, …]]; a line of JSON for each length: forward and backward, in seconds."""

import json
import statistics
import sys

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.norm_1, self.norm_2 = (nn.Parameter(torch.ones(hidden)) for _ in range(2))
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=False)
        self.out = nn.Linear(self.heads * self.dim, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        def turned(heads):
            a, b = heads.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        qkv = self.qkv(rms_norm(x, x.shape[-1:], self.norm_1)).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        attended = scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(rms_norm(x, x.shape[-1:], self.norm_2)).chunk(2, dim=-1)
        return x + self.down(silu(gate) * up)


def elapsed(call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    result = call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000, result


def measure(seq, config, kind):
    layer = Layer(config).to("cuda", kind)
    x = torch.randn(1, seq, config["hidden_size"], device="cuda", dtype=kind, requires_grad=True)
    up = torch.randn_like(x)
    angles = torch.outer(torch.arange(seq, device="cuda"), 10000 ** -torch.linspace(0, 1, config["head_dim"] // 2, device="cuda"))
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    samples = {"fwd": [], "bwd": []}
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for _ in range(13):
            forward, y = elapsed(lambda: layer(x, cos, sin))
            backward, _ = elapsed(lambda y=y: y.backward(up))
            layer.zero_grad()  # as it starts a step: gradients are written, not added to
            x.grad = None
            samples["fwd"].append(forward)
            samples["bwd"].append(backward)
    return {"seq": seq, **{f"{phase}_s": statistics.median(found[3:]) for phase, found in samples.items()}}


def main():
    config, dtype, lengths = json.loads(sys.argv[1])
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    print(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                      "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}), flush=True)
    for seq in lengths:
        print(json.dumps(measure(seq, config, kind)), flush=True)


if __name__ == "__main__":
    main()
