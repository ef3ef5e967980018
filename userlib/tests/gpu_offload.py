# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""`uvmrust.offload` on a real GPU: a transformer and a ResNet by a plan that leaves about half of
what autograd saves there. Gradients have to be equal, bit for bit, and the peak of the GPU's memory less.

    UVMSIM=program gpu_offload.py [--batch N]      with gpu_train.py's settings
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

import gpu_checks
import train
from gpu_checks import expect
from uvmrust import offload

STEPS = 8


def backward(model, data, labels):
    """Loss and gradients of a step."""
    model.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(data), labels)
    loss.backward()
    return [loss.detach()] + [p.grad for p in model.parameters()]


def measured(step):
    """What a step gives, the most bytes that it takes beside what is there, and its milliseconds: the
    median of the later ones."""
    took = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        got = step()
        torch.cuda.synchronize()
        took.append(1e3 * (time.perf_counter() - began))
        peak = torch.cuda.max_memory_allocated() - before
        got = [one.cpu() for one in got]
    return got, peak, sorted(took[STEPS // 2 :])[STEPS // 4]


def saved_most(trace):
    """The bytes of the tensors of a trace, which are all saved at the end of the forward pass, about."""
    with open(trace, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return sum(int(fields[3]) for fields in lines if fields[0] == "tensor")


def plan(trace, path, most):
    """A plan for half of what is saved, or as little more as goes."""
    mib = most >> 21
    while mib < most >> 19:
        options = ["--gpu-mem", f"{mib}MiB", "--keep-clean", "0", "--budget", "5", "-o", path]
        done = subprocess.run([os.environ["UVMSIM"], "plan", "--trace", trace, *options],
                              capture_output=True, text=True)
        if done.returncode == 0:
            return mib
        print(done.stderr.strip().splitlines()[-1:])
        mib = mib * 5 // 4
    raise RuntimeError("uvmsim makes no plan")


def follow(name, batch, folder):
    model, data, labels = train.network(name, batch)
    keep = [model.cuda(), data.cuda(), labels.cuda()]
    wanted, whole, plain = measured(lambda: backward(*keep))
    trace, path = (os.path.join(folder, name + end) for end in (".uvmtrace", ".uvmplan"))
    with offload.record(trace, keep=keep, name=name):
        backward(*keep)
    most = saved_most(trace)
    mib = plan(trace, path, most)
    executor = offload.Executor(path, keep=keep, in_flight=32 << 20)

    def step():
        with executor.step():
            return backward(*keep)

    got, part, planned = measured(step)
    same = all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    stats = executor.stats()

    def all_to_the_host():
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return backward(*keep)

    _, least, slow = measured(all_to_the_host)
    expect(same, f"{name}: loss and gradients are equal, bit for bit")
    expect(part < whole, f"{name}: a step takes {part / 2**20:.0f} MiB at most, {whole / 2**20:.0f} without a plan")
    expect(stats["left"] == 0 and stats["steps"] == STEPS, f"{name}: no step leaves the plan")
    print(f"fact - {name}, batch {batch}: {most / 2**20:.0f} MiB saved, planned for {mib} MiB: a step takes "
          f"{planned:.1f} ms, {plain:.1f} without; save_on_cpu() takes {slow:.1f} ms and {least / 2**20:.0f} MiB")
    print(f"fact - {name}: {stats}; a step moves {stats['out_bytes'] / STEPS / 2**20:.0f} MiB out and "
          f"{stats['in_bytes'] / STEPS / 2**20:.0f} in")


SIZE = 64 << 20
# Of two tensors that are saved, the first leaves behind the second, and comes before it is used.
PLAN = f"""uvmplan 1
kernels 5
span {SIZE}
start 0
at 2 evict 0 0 {SIZE} host
at 3 prefetch 0 0 {SIZE}
launch 0 begin
launch 1 save:{SIZE}
launch 2 save:{SIZE}
launch 3 use:{SIZE}
launch 4 use:{SIZE}
tensor 0 saved0
"""


def two_streams_step(x, y, side):
    """The first is made, saved and used in a stream that is late, and its memory is that stream's."""
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        torch.cuda._sleep(40_000_000)
        first = torch.sigmoid(x)
    second = torch.tanh(y)
    with torch.cuda.stream(side):
        total = first.sum()
        del first
        # It may have the memory that the first has given up.
        rubbish = torch.full_like(x, 9.0)
        torch.cuda._sleep(40_000_000)
    main.wait_stream(side)
    (total + second.sum()).backward()
    main.wait_stream(side)
    torch.cuda.synchronize()
    return x.grad, y.grad, rubbish


def two_streams(folder):
    path = os.path.join(folder, "two.uvmplan")
    with open(path, "w", encoding="utf-8") as file:
        file.write(PLAN)
    torch.manual_seed(11)
    values = torch.randn(2, SIZE // 4, device="cuda")
    side, right, moved = torch.cuda.Stream(), 0, 0
    wanted = None
    for n in range(6):
        x, y = (one.clone().requires_grad_() for one in values)
        executor = offload.Executor(path, in_flight=0)
        with executor.step() if n else torch.enable_grad():
            got = two_streams_step(x, y, side)
        if n:
            right += all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
            moved += executor.stats()["in_bytes"]
        else:
            wanted = got
    expect(right == 5, f"two streams: gradients are equal in {right} of 5 steps")
    expect(moved == 5 * SIZE, f"two streams: {moved >> 20} MiB have come back")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1024)
    batch = parser.parse_args().batch
    gpu_checks.compute_the_same()
    with tempfile.TemporaryDirectory() as folder:
        for name in "transformer", "resnet":
            follow(name, batch, folder)
        two_streams(folder)
    return gpu_checks.bad > 0


if __name__ == "__main__":
    sys.exit(main())
