# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A small transformer, a small convnet and a small ResNet, trained by PyTorch on the first GPU with a fixed
seed and deterministic kernels. Knows nothing of this project but with --allocator.

    gpu_train.py --write FILE                losses, times and memory, as JSON
    gpu_train.py --expect FILE               ends with 1 if the losses are others
    gpu_train.py --allocator                 with uvmrust.torch.install()
    gpu_train.py --allocator --budget MIB    and the GPU's memory short from there on
"""

import argparse
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

import gpu_checks
from train import resnet

# The kernels are deterministic. Which kernel cuBLAS and cuDNN take may depend on an address.
TOLERANCE = 1e-4


class Transformer(nn.Module):
    def __init__(self, words=512, width=128):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.out = nn.Linear(width, words)

    def forward(self, x):
        return self.out(self.layers(self.embed(x))).flatten(0, 1)


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 16 * 16, 10),
    )


def train(name, model, data, labels, steps):
    """The losses, and the milliseconds of each step."""
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses, times = [], []
    for step in range(steps):
        torch.cuda.synchronize()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(data), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(1e3 * (time.perf_counter() - began))
    later = sorted(times[steps // 2 :])
    print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}, median of the later steps "
          f"{later[len(later) // 2]:.3f} ms, the first {times[0]:.1f} ms")
    return losses, later[len(later) // 2]


def both(steps, only):
    torch.manual_seed(7)
    out = {}
    words = torch.randint(0, 512, (16, 65))
    text = words[:, :-1].cuda(), words[:, 1:].flatten().cuda()
    pictures = torch.randn(32, 3, 64, 64).cuda(), torch.randint(0, 10, (32,)).cuda()
    models = {"transformer": (Transformer(), text), "convnet": (convnet(), pictures), "resnet": (resnet(), pictures)}
    for name, (model, data) in models.items():
        if only and name != only:
            continue
        losses, took = train(name, model, *data, steps)
        out[name] = {"losses": losses, "ms": took}
    return out


def compare(got, expected):
    """Whether all losses are those of the file."""
    right = True
    for name in got:
        wanted = expected[name]
        pairs = list(zip(got[name]["losses"], wanted["losses"], strict=True))
        worst = max(abs(a - b) / max(abs(b), 1e-3) for a, b in pairs)
        same = all(a == b for a, b in pairs)
        print(f"{name}: the losses are {'equal, bit for bit' if same else f'apart by {worst:.2e} at most'} "
              f"(allowed: {TOLERANCE}); a step takes {got[name]['ms'] / wanted['ms']:.2f} times as long")
        right &= worst <= TOLERANCE
    return right


def memory():
    free, total = torch.cuda.mem_get_info()
    return {
        "peak allocated": torch.cuda.max_memory_allocated(),
        "peak reserved": torch.cuda.max_memory_reserved(),
        "free": free,
        "total": total,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=["transformer", "convnet", "resnet"])
    parser.add_argument("--write")
    parser.add_argument("--expect")
    parser.add_argument("--allocator", action="store_true")
    parser.add_argument("--budget", type=int)
    options = parser.parse_args()
    if options.allocator:
        import uvmrust.torch

        uvmrust.torch.install()
    gpu_checks.compute_the_same()
    if options.budget:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction((options.budget << 20) / total)
    out = both(options.steps, options.only)
    try:
        print("memory:", {k: f"{v / 2**20:.1f} MiB" for k, v in memory().items()})
    except RuntimeError as error:
        print("memory: not told:", str(error).splitlines()[0])
    right = True
    if options.allocator:
        import uvmrust

        print("backend:", uvmrust.backend(), "stats:", uvmrust.torch.stats(), uvmrust.torch.stats(0))
        uvmrust.check()
        if options.budget and not uvmrust.torch.stats()["discarded_bytes"]:
            print("not so: memory was short, and something was discarded")
            right = False
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            json.dump(out, file)
    if options.expect:
        with open(options.expect, encoding="utf-8") as file:
            right &= compare(out, json.load(file))
    return not right


if __name__ == "__main__":
    sys.exit(main())
