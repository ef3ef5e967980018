# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What PyTorch does only with its own allocator, and would raise for in the middle of a
training: it is left out, with a warning.
"""

import importlib.abc
import importlib.util
import sys
import warnings

_TREES = "torch._inductor.cudagraph_trees"


def leave_out(torch):
    """Called once, by `uvmrust.torch.install()`."""
    _benchmark(torch)
    if _TREES in sys.modules:
        _trees(sys.modules[_TREES])
    else:
        sys.meta_path.insert(0, _WhenImported())


def _benchmark(torch):
    """cuDNN's search for the fastest algorithm asks how large the largest free block is, which a
    pluggable allocator cannot say (`get_available_workspace` of
    aten/src/ATen/native/cudnn/Conv_v8.cpp). So that is never on."""
    own = getattr(torch._C, "_set_cudnn_benchmark", None)
    if own is None:
        return

    def set_benchmark(value, depth=3):
        if value is True:
            warnings.warn(
                "uvmrust: torch.backends.cudnn.benchmark stays False: with it, convolutions ask "
                "of the allocator what only PyTorch's own can say",
                stacklevel=depth,
            )
            value = False
        own(value)

    # The flag has the function, and torch.backends.cudnn.flags() looks it up by name.
    torch._C._set_cudnn_benchmark = set_benchmark
    flag = vars(type(torch.backends.cudnn)).get("benchmark")
    if hasattr(flag, "setter"):
        flag.setter = set_benchmark
    if torch._C._get_cudnn_benchmark():
        # In the line that calls install().
        set_benchmark(True, depth=5)


class _WhenImported(importlib.abc.MetaPathFinder):
    """Waits for the import of torch.compile's graphs, which takes seconds."""

    def find_spec(self, name, path, target=None):
        if name != _TREES:
            return None
        # Out of its own way only while it asks the others: this may be a question, and no import.
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None:
            return None
        own = spec.loader.exec_module

        def exec_module(module):
            own(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _trees(module)

        spec.loader.exec_module = exec_module
        return spec


class _Nobody:
    """Takes the place of who has all the graphs of a GPU: there is none."""

    def __bool__(self):
        return False

    def set_to_running_backward(self):
        pass


def _trees(trees):
    """The graphs of torch.compile set the allocator back to what it was before
    (`setCheckpointPoolState`), which no pluggable one can do. So what was compiled runs without
    them. The older ones, without such trees, overwrite what a backward pass still needs."""
    warned = []
    own = trees.get_manager

    def cudagraphify_impl(model, inputs, static_input_idxs, *args, **kwargs):
        if not warned:
            warned.append(True)
            warnings.warn(
                "uvmrust: torch.compile goes on without CUDA graphs, which need PyTorch's own "
                "allocator",
                stacklevel=2,
            )
        return _aligned(trees, model, static_input_idxs, set(kwargs.get("mutated_input_idxs", ())))

    def get_manager(device_index, create_if_none_exists=True):
        return own(device_index, create_if_none_exists) or _Nobody()

    trees.cudagraphify_impl, trees.get_manager = cudagraphify_impl, get_manager


def _aligned(trees, model, static, mutated):
    """Lets a compiled model have misaligned inputs as aligned copies, which its kernels count on.
    Inductor leaves that to its graphs where it has them (`maybe_realign_inputs` of
    torch/_inductor/output_code.py). What the model writes gets to the `mutated` inputs."""
    check = None

    def run(inputs):
        nonlocal check
        if check is None:
            # Real tensors come only now, and their alignment is known.
            check = trees.get_input_idxs_to_check(inputs, static)
        written = [(at, inputs[at]) for at in check if at in mutated]
        trees.copy_misaligned_inputs(inputs, check)
        copies = [(own, inputs[at]) for at, own in written if inputs[at] is not own]
        # The model gives up inputs as early as it can.
        del written
        made = model(inputs)
        for own, copy in copies:
            own.copy_(copy)
        return made

    return run
