#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Captures a PyTorch model's training step as a trace of uvmsim.

The step is run once on the "meta" device, where tensors have shapes but no
data: forward, backward and optimizer. A dispatch mode, the layer on which
PyTorch's own tracers (make_fx, AOTAutograd) are built, sees every ATen operator
that would launch a kernel, with the storages that it reads and writes. So the
trace has the real graph, autograd's saved tensors and gradient accumulation
included, and needs neither a GPU nor the memory of one.

Durations are a roofline's, of a machine of `uvmsim machine`, or a profile's.

    uvmsim_torch.py MODULE:FUNCTION --batch 32 --machine a100 -o step.uvmtrace

FUNCTION(batch) returns (model, inputs, loss): a module on the CPU, a tuple of
tensors, and a function from the module's output to a scalar. Works with PyTorch
1.13 and later, CPU only.
"""

import argparse
import importlib
import json
import math
import os
import shutil
import subprocess
import sys

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten
except ImportError as error:  # pragma: no cover
    MISSING = f"uvmsim_torch: PyTorch is missing ({error}); install python3-torch or torch"
    # A program ends here; a notebook that imports this goes on.
    if __name__ == "__main__":
        sys.exit(MISSING)
    raise ImportError(MISSING) from error

aten = torch.ops.aten

# Operators that change their first argument and do not read it.
OVERWRITING = ("zero_", "fill_", "copy_", "bernoulli_", "uniform_", "normal_", "random_")


class Kernel:
    """An operator that would launch a kernel."""

    def __init__(self, name, phase, part, reads, writes, flops, moved, product):
        self.name = name
        self.phase = phase
        self.part = part
        self.reads = reads
        self.writes = writes
        self.flops = flops
        self.moved = moved
        self.product = product


class Capture(TorchDispatchMode):
    """Notes every operator on meta tensors while `recording`."""

    def __init__(self):
        super().__init__()
        self.recording = False
        self.phase = "forward"
        # The part of the forward pass that is being run, and how many have begun.
        self.part = None
        self.parts = 0
        self.depth = 0
        self.kernels = []
        # Storages by identity; kept alive so that no identity is used twice.
        self.kept = {}
        self.bytes = {}
        self.names = {}

    def storage(self, tensor):
        """The number of a tensor's storage, and its size."""
        untyped = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()._storage
        key = untyped._cdata
        if key not in self.kept:
            self.kept[key] = untyped
        self.bytes[key] = max(self.bytes.get(key, 0), untyped.nbytes())
        return key

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = call(func, args, kwargs)
        if self.recording:
            self.note(func, args, kwargs, result)
        return result

    def note(self, func, args, kwargs, result):
        given = [t for t in tree_flatten((args, kwargs))[0] if on_meta(t)]
        made = [t for t in tree_flatten(result)[0] if on_meta(t)]
        if not made:
            return
        reads = [self.storage(t) for t in given]
        writes = [self.storage(t) for t in made]
        mutated = [self.storage(t) for t in mutated_arguments(func, args, kwargs)]
        if not mutated and all(w in reads for w in writes):
            return  # a view
        if func is getattr(aten.empty, "memory_format", None) or func.__name__.startswith("empty"):
            return  # an allocation
        writes = unique([w for w in writes if w not in reads] + mutated)
        overwritten = func.__name__.split(".")[0] in OVERWRITING
        if overwritten and given:
            reads = reads[1:]
        reads = unique(reads)
        sizes = sum(t.numel() * t.element_size() for t in given + made)
        name = func.__name__.split(".")[0]
        flops, product = operations(name, args, result)
        part = self.part if self.phase == "forward" else None
        self.kernels.append(Kernel(name, self.phase, part, reads, writes, flops, sizes, product))

    def follow(self, model):
        """Counts as parts what checkpointing would run again as a whole: the blocks of a list."""
        blocks = [b for m in model.modules() if isinstance(m, torch.nn.ModuleList) for b in m]
        for block in blocks:
            block.register_forward_pre_hook(self.begin)
            block.register_forward_hook(self.end)

    def begin(self, *_):
        if self.part is None:
            self.part = self.parts
            self.parts += 1
        self.depth += 1

    def end(self, *_):
        self.depth -= 1
        if self.depth == 0:
            self.part = None


def on_meta(value):
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def unique(values):
    return list(dict.fromkeys(values))


def call(func, args, kwargs):
    """The operator's result; in PyTorch 1.13 some have no meta kernel."""
    if func is aten.convolution_backward.default and on_meta(args[0]):
        grad, x, weight, bias_sizes, *_, mask = args
        bias = grad.new_empty(bias_sizes if bias_sizes is not None else grad.shape[1:2])
        outs = (torch.empty_like(x), torch.empty_like(weight), bias)
        return tuple(o if wanted else None for o, wanted in zip(outs, mask))
    try:
        return func(*args, **kwargs)
    except NotImplementedError as error:
        like = gradient_of(func, args, kwargs)
        if like is not None:
            return torch.empty_like(like)
        what = f"PyTorch {torch.__version__} cannot run {func} on shapes alone (the meta device); a later one may"
        raise NotImplementedError(what) from error


def gradient_of(func, args, kwargs):
    """The argument whose gradient `func` returns, if its name and schema say so."""
    schema = func._schema
    if "_backward" not in schema.name or len(schema.returns) != 1:
        return None
    for i, a in enumerate(schema.arguments):
        if a.name in ("self", "input"):
            value = kwargs.get(a.name) if i >= len(args) else args[i]
            return value if on_meta(value) else None
    return None


def mutated_arguments(func, args, kwargs):
    """Tensors among the arguments that the operator writes, by its schema."""
    out = []
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is None or not a.alias_info.is_write:
            continue
        value = kwargs.get(a.name) if a.name in kwargs or i >= len(args) else args[i]
        out += [t for t in tree_flatten(value)[0] if on_meta(t)]
    return out


def operations(name, args, result):
    """Floating-point operations, and whether it is a matrix product."""
    made = [t for t in tree_flatten(result)[0] if on_meta(t)]
    if name in ("mm", "bmm"):
        return 2 * args[0].numel() * args[1].shape[-1], True
    if name in ("addmm", "baddbmm"):
        return 2 * args[1].numel() * args[2].shape[-1], True
    if name == "convolution":
        x, weight, transposed = args[0], args[1], args[6]
        positions = x if transposed else made[0]
        return 2 * positions.shape[0] * math.prod(positions.shape[2:]) * weight.numel(), True
    if name == "convolution_backward":
        grad, x, weight, transposed, mask = args[0], args[1], args[2], args[7], args[-1]
        positions = x if transposed else grad
        once = 2 * positions.shape[0] * math.prod(positions.shape[2:]) * weight.numel()
        return once * sum(bool(m) for m in mask[:2]), True
    return sum(t.numel() for t in made), False


def to_meta(model):
    """`model` on the meta device, with what it shares still shared."""
    first = {}
    shared = []
    for path, module in model.named_modules():
        for name, p in module._parameters.items():
            if p is not None:
                if id(p) in first:
                    shared.append((path, name, first[id(p)]))
                else:
                    first[id(p)] = (path, name)
    model = model.to("meta")
    modules = dict(model.named_modules())
    for path, name, (from_path, from_name) in shared:
        modules[path]._parameters[name] = modules[from_path]._parameters[from_name]
    return model


def make_optimizer(name, parameters):
    if name == "adam":
        return torch.optim.Adam(parameters, lr=1e-3, foreach=False)
    if name == "momentum":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)
    return torch.optim.SGD(parameters, lr=0.1, foreach=False)


def capture(model, inputs, loss, optimizer="adam"):
    """Runs a step to make the optimizer's state, then records one.

    Returns the kernels and the tensors as (storage, kind, bytes, name).
    """
    model = to_meta(model).train()
    inputs = tuple(t.to("meta") if isinstance(t, torch.Tensor) else t for t in inputs)
    opt = make_optimizer(optimizer, [p for p in model.parameters() if p.requires_grad])
    mode = Capture()
    mode.follow(model)
    with mode:
        for recording in (False, True):
            mode.parts = 0
            opt.zero_grad(set_to_none=True)
            mode.recording = recording
            mode.phase = "forward"
            value = loss(model(*inputs))
            mode.phase = "backward"
            value.backward()
            mode.phase = "optimizer"
            opt.step()
    return mode.kernels, tensors(mode, model, inputs, opt)


def tensors(mode, model, inputs, opt):
    kinds = {}
    for name, p in model.named_parameters():
        kinds[mode.storage(p)] = ("weight", name)
        if p.grad is not None:
            kinds[mode.storage(p.grad)] = ("gradient", name + ".grad")
        for key, value in opt.state.get(p, {}).items():
            if on_meta(value):
                kinds[mode.storage(value)] = ("optimizer", f"{name}.{key}")
    for name, b in model.named_buffers():
        kinds[mode.storage(b)] = ("weight", name)
    for i, t in enumerate(inputs):
        if on_meta(t):
            kinds[mode.storage(t)] = ("input", f"input{i}")
    written = set()
    out = {}
    for k in mode.kernels:
        for s in k.reads + k.writes:
            if s in out:
                continue
            # What comes from outside the step: a constant.
            fallback = "activation" if s in written or s in k.writes and s not in k.reads else "input"
            kind, name = kinds.get(s, (fallback, f"{k.name}.{len(out)}"))
            out[s] = (s, kind, mode.bytes[s], name)
        written.update(k.writes)
    return list(out.values())


def duration_ns(kernel, machine, precision):
    """What the kernel takes by the roofline of `machine`."""
    peak = machine[precision] * machine["gemm-efficiency"] if kernel.product else machine["fp32"]
    compute = kernel.flops / peak
    memory = kernel.moved / (machine["gpu-bw"] * machine["mem-efficiency"])
    return max(math.ceil(max(compute, memory) * 1e9), int(machine["launch"]))


def trace_text(kernels, tensor_list, name, batch, times):
    """The trace in uvmsim's text format, version 1."""
    number = {t[0]: i for i, t in enumerate(tensor_list)}
    lines = ["uvmtrace 1", f"meta name {name}", f"meta batch {batch}", f"meta source PyTorch {torch.__version__}"]
    for i, (_, kind, size, tensor_name) in enumerate(tensor_list):
        lines.append(f"tensor {i} {kind} {max(size, 1)} {tensor_name.replace(' ', '_')}")
    listed = lambda storages: ",".join(str(number[s]) for s in storages) or "-"
    for i, (k, ns) in enumerate(zip(kernels, times)):
        lines.append(
            f"kernel {i} {ns} {k.name} {listed(k.reads)} {listed(k.writes)} - "
            f"flops={k.flops} bytes={k.moved} phase={k.phase}"
            + ("" if k.part is None else f" checkpoint={k.part}")
        )
    return "\n".join(lines) + "\n"


def step(model, inputs, loss, batch, machine="a100", optimizer="adam", precision="tf32", name=None):
    """The training step of a model at hand as a trace, for a notebook.

    `inputs` is a tuple of tensors, `loss` a function from the model's output to a
    scalar. The model is moved to the "meta" device: its weights are lost.
    """
    kernels, tensor_list = capture(model, inputs, loss, optimizer)
    constants = read_machine(machine, None)
    times = [duration_ns(k, constants, precision) for k in kernels]
    return trace_text(kernels, tensor_list, name or type(model).__name__, batch, times)


def read_machine(name, program):
    """The constants of a machine, from `uvmsim machine NAME --json`."""
    beside = os.path.join(os.path.dirname(sys.executable), "uvmsim")
    program = program or os.environ.get("UVMSIM") or (beside if os.path.exists(beside) else shutil.which("uvmsim"))
    if not program:
        here = os.path.dirname(os.path.abspath(__file__))
        program = os.path.join(here, "..", "..", "target", "release", "uvmsim")
    try:
        done = subprocess.run([program, "machine", name, "--json"], capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"uvmsim_torch: cannot run {program}: {error}; build it with `cargo build --release -p uvmsim` or give --uvmsim")
    if done.returncode:
        sys.exit(f"uvmsim_torch: {done.stderr.strip()}")
    return json.loads(done.stdout)


def read_profile(path, count):
    """Durations in ns, a line a kernel: its number and its time."""
    times = {}
    with open(path, encoding="utf-8") as file:
        for line_number, line in enumerate(file, 1):
            fields = line.split()
            if not fields or fields[0].startswith("#"):
                continue
            try:
                times[int(fields[0])] = int(fields[1])
            except (ValueError, IndexError):
                sys.exit(f"uvmsim_torch: {path}:{line_number}: want a kernel's number and its time in ns")
    missing = [k for k in range(count) if k not in times]
    if missing:
        sys.exit(f"uvmsim_torch: {path} has no time for kernel {missing[0]} of {count}")
    return [times[k] for k in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODULE:FUNCTION")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--optimizer", choices=("adam", "momentum", "sgd"), default="adam")
    parser.add_argument("--precision", choices=("fp32", "tf32", "fp16"), default="tf32", help="rate of products")
    parser.add_argument("--machine", default="a100", help="roofline to use, a name of `uvmsim machine`")
    parser.add_argument("--profile", help="durations instead: lines of kernel number and ns")
    parser.add_argument("--constants", type=json.loads, metavar="JSON", help="the machine's constants instead of a name")
    parser.add_argument("--uvmsim", help="the uvmsim program")
    parser.add_argument("-o", "--output", default="-")
    options = parser.parse_args()
    module, _, function = options.model.partition(":")
    if not function:
        parser.error("the model is given as MODULE:FUNCTION")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        sys.exit(f"uvmsim_torch: {options.model}: {error}")
    kernels, tensor_list = capture(*make(options.batch), options.optimizer)
    if options.profile:
        times = read_profile(options.profile, len(kernels))
    else:
        machine = options.constants or read_machine(options.machine, options.uvmsim)
        times = [duration_ns(k, machine, options.precision) for k in kernels]
    text = trace_text(kernels, tensor_list, function, options.batch, times)
    if options.output == "-":
        sys.stdout.write(text)
    else:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
