# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Stands in for `torch.cuda` where there is a real PyTorch and no GPU: streams and events that
know what each comes behind, by their names, while tensors are the CPU's and all is done at once.

What a stream `has` is the set of all that its next work comes behind. Tensor.record_stream() and
copies are noted, and torch.empty() is asked where its memory is to be.
"""

import contextlib
from unittest import mock

import torch


class Event:
    def __init__(self, fake, has):
        self.fake, self.has, self.over = fake, frozenset(has), False

    def query(self):
        return self.over

    def synchronize(self):
        self.fake.waited.append(self)
        self.over = True


class Stream:
    def __init__(self, fake, name):
        self.fake, self.name, self.has = fake, name, set()

    def record_event(self):
        return Event(self.fake, self.has)

    def wait_event(self, event):
        self.has |= event.has

    def wait_stream(self, stream):
        self.has |= stream.has

    def work(self, name):
        self.has.add(name)


class Cuda:
    """`torch.cuda`, and in `copies` (stream, what it had), in `recorded` (storage, stream)."""

    def __init__(self):
        self.made, self.copies, self.recorded, self.waited = [], [], [], []
        self.asked = []
        self.current = Stream(self, "main")

    def is_available(self):
        return True

    def Stream(self, device=None):
        self.made.append(Stream(self, f"stream{len(self.made)}"))
        return self.made[-1]

    def current_stream(self, device=None):
        return self.current

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def was_recorded(self, tensor, stream):
        return (tensor.storage().data_ptr(), stream) in self.recorded


class _Torch:
    """PyTorch, but for what a GPU is needed for."""

    def __init__(self, fake):
        self._fake, self.cuda = fake, fake

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *shape, pin_memory=False, device=None, **more):
        self._fake.asked.append((pin_memory, str(device)))
        return torch.empty(*shape, **more)


@contextlib.contextmanager
def on(module):
    """Within, this is what `module` has for PyTorch's GPU; gives the Cuda."""
    fake, copy = Cuda(), torch.Tensor.copy_

    def copy_(to, source, non_blocking=False):
        fake.copies.append((fake.current, frozenset(fake.current.has)))
        fake.current.work(f"copy{len(fake.copies)}")
        return copy(to, source)

    def record_stream(tensor, stream):
        fake.recorded.append((tensor.storage().data_ptr(), stream))

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(module, "torch", _Torch(fake)))
        stack.enter_context(mock.patch.object(torch.Tensor, "copy_", copy_))
        stack.enter_context(mock.patch.object(torch.Tensor, "record_stream", record_stream))
        yield fake
