# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Follows a plan of uvmsim's inside PyTorch, on any driver: what autograd saves for the backward
pass leaves the GPU and comes back when the plan says so, by copies to pinned memory of the host
in CUDA streams of their own. Nothing is managed memory, and no module of uvm-rust is needed.

    from uvmrust import offload

    with offload.record("step.uvmtrace", keep=model):       # one step, not the first
        train_step()

    # uvmsim plan --trace step.uvmtrace --gpu-mem 20GiB -o step.uvmplan

    executor = offload.Executor("step.uvmplan", keep=model)
    for batch in batches:
        with executor.step():
            train_step()

`--gpu-mem` is what the saved tensors may take of the GPU: its memory without weights, gradients,
the optimizer's state and whatever else a step has. `keep` has the modules and tensors that stay
on the GPU anyhow; to move what the program holds itself would free nothing.

The plan knows a step by the order in which autograd saves and uses tensors, not by addresses. In
a step that is another one, nothing moves from there on, and what is away comes when it is used.
So a plan that does not fit costs time or memory, and no byte. What a program must not do with
saved tensors meanwhile, userlib/README.md says: use them in streams that autograd does not know
of, and change them unseen by autograd.
"""

import contextlib
import re
import threading
import time
import weakref

import torch

from . import _native

# What moves is at least so large; smaller storages stay.
LEAST = 1 << 20
# Bytes that may be on their way to the host before the program waits for them.
IN_FLIGHT = 256 << 20
# What the traces say that they are from; uvmsim has their names in its plans.
SOURCE = "uvmrust.offload"


class PlanError(ValueError):
    """A plan that is none of a trace that this module has recorded."""


class _Cuda:
    """Copies between a GPU and pinned memory, each way in a stream of its own."""

    kind = "cuda"

    def __init__(self):
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch finds no GPU here (torch.cuda.is_available() is false)")
        self._streams = {}

    def _stream(self, device, way):
        key = (device, way)
        if key not in self._streams:
            self._streams[key] = torch.cuda.Stream(device)
        return self._streams[key]

    def current(self, device):
        """The program's stream, in whose order it uses memory of the GPU now."""
        return torch.cuda.current_stream(device)

    def _copy(self, to, source, device, way, behind, after=None):
        """Copies behind what is in streams of the program's now; gives the event of its end."""
        stream = self._stream(device, way)
        for one in behind:
            stream.wait_stream(one)
        if after is not None:
            stream.wait_event(after)
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)
            return stream.record_event()

    def out(self, data, behind, ready):
        """Begins to copy to the host, behind streams and `ready`: the copy, and what tells that it is there."""
        host = torch.empty(data.shape, dtype=data.dtype, device="cpu", pin_memory=True)
        # Whoever gives it up, and whichever stream it is of: nobody else has it during the copy.
        self.use(data, self._stream(data.device, "out"))
        return host, self._copy(host, data, data.device, "out", behind, ready)

    def back(self, host, device, after):
        """Begins to copy to the GPU, behind `after`. The memory is of the current stream."""
        data = torch.empty(host.shape, dtype=host.dtype, device=device)
        # It may be given up before the copy is over, with the graph that it is of.
        self.use(data, self._stream(device, "in"))
        return data, self._copy(data, host, device, "in", [self.current(device)], after)

    def is_over(self, event):
        return event.query()

    def wait(self, event, stream):
        """Has what comes next in a stream wait, and not the program."""
        stream.wait_event(event)

    def finish(self, event):
        """Has the program wait. PyTorch's allocator asks whether the copy is over before it gives
        the memory to anybody, so that a stream's wait would give nothing back."""
        event.synchronize()

    def use(self, data, stream):
        """Tells that a stream uses memory which is of another."""
        data.record_stream(stream)

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def nanoseconds(self, before, after):
        after.synchronize()
        return int(before.elapsed_time(after) * 1e6)


def _storage(tensor):
    """Address and bytes of the storage that a tensor is of."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
    else:
        storage = tensor.storage()._storage
    return storage.data_ptr(), storage.nbytes()


def _addresses(keep):
    """The storages of modules and tensors."""
    found = set()
    for one in keep if isinstance(keep, (list, tuple, set)) else [keep]:
        whole = isinstance(one, torch.nn.Module)
        for tensor in [*one.parameters(), *one.buffers()] if whole else [one]:
            # Others, such as sparse ones, have no storage, and do not move.
            if tensor.layout == torch.strided:
                found.add(_storage(tensor)[0])
    return found


class _Saved:
    """What autograd keeps in the place of a tensor."""

    def __init__(self, tensor, entry=None):
        # It shares the counter of changes with all views of the storage. With its graph, a result
        # that an operator saves would keep that operator for ever, and so itself.
        self.tensor, self.version = tensor.detach(), tensor._version
        self.entry, self.changed = entry, False
        # What stays may have no strides (sparse in CSR), and no shape (nested).
        if entry is not None:
            self.shape = tensor.shape, tensor.stride(), tensor.storage_offset()
            self.dtype = tensor.dtype

    def look(self):
        """Notes whether the tensor was changed since it was saved, for which PyTorch itself does not
        look where there are hooks."""
        self.changed |= self.tensor is not None and self.tensor._version != self.version

    def get(self):
        self.look()
        if self.changed:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a tensor{self._of_shape()}, which was saved at version "
                f"{self.version}"
            )
        if self.tensor is not None:
            return self.tensor
        return self.entry.data.view(self.dtype).as_strided(*self.shape)

    def _of_shape(self):
        if self.entry is not None:
            return f" of shape {tuple(self.shape[0])}"
        return "" if self.tensor.is_nested else f" of shape {tuple(self.tensor.shape)}"


class _Entry:
    """A storage of which tensors are saved: on the GPU, on its way, or on the host."""

    def __init__(self, tensor, number, size, gpu):
        with torch.no_grad():
            flat = tensor.as_strided((size // tensor.element_size(),), (1,), 0)
            self.data = flat.view(torch.uint8)
        self.number, self.size, self.device = number, size, tensor.device
        # Where the storage is; and whether it has been seen elsewhere, or without its memory. Programs
        # such as FSDP take that away and give it anew, at whatever time.
        self.place, self.moved = _storage(tensor), False
        self.saved = weakref.WeakSet()
        # A copy on the host, when it is there, and when the one on the GPU is.
        self.host = self.out = self.ready = None
        # The program's streams in which it was saved, or the one in which it came back. Behind all of
        # them its contents can be read: each may have written a part of it, or written it anew.
        # Whose memory it is, is not known: a program may save what is of another stream.
        self.homes = [gpu.current(self.device)]
        gpu.use(self.data, self.homes[0])

    def save_again(self, tensor, gpu):
        """Its memory may be given up before the program's own rules for streams would have it."""
        stream = gpu.current(self.device)
        if stream not in self.homes:
            self.homes.append(stream)
            gpu.use(tensor, stream)

    def is_at(self, place):
        """Whether the data is on the GPU, and there."""
        return self.data is not None and _storage(self.data) == place

    def leave(self, gpu):
        """Begins to leave; whether it does."""
        if self.host is not None or self.data is None:
            return False
        self.moved |= not self.is_at(self.place)
        if self.moved:
            return False
        self.host, self.out = gpu.out(self.data, self.homes, self.ready)
        return True

    def left(self):
        """Gives up the memory of the GPU, once the copy is over or waited for."""
        for saved in self.saved:
            saved.look()
            saved.tensor = None
        self.data = None

    def come(self, gpu):
        """Begins to come back; whether there is something to copy."""
        if self.data is not None:
            # It has not left yet, and stays.
            self.host = self.out = None
            return False
        self.homes = [gpu.current(self.device)]
        self.data, self.ready = gpu.back(self.host, self.device, self.out)
        self.place = _storage(self.data)
        self.host = self.out = None
        return True

    def use(self, gpu):
        """Each stream that uses it waits until it is there."""
        if self.ready is None:
            return
        stream = gpu.current(self.device)
        gpu.wait(self.ready, stream)
        if stream not in self.homes:
            gpu.use(self.data, stream)


class _Hooks:
    """Numbers what autograd saves and uses in a step, and hands it to who records or follows."""

    def __init__(self, keep, least, gpu):
        self._keep, self._least = keep, least
        self._gpu = gpu if gpu is not None else _Cuda()
        # Autograd runs a GPU's backward pass in a thread of its own.
        self._lock = threading.RLock()
        self._begin()

    def _begin(self):
        self._kept = _addresses(self._keep)
        self._events = 0
        # By storage, while it is where it was saved; and by the number of the event.
        self._known = weakref.WeakValueDictionary()
        self._numbered = weakref.WeakValueDictionary()

    def _moves(self, tensor):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_quantized:
            return False
        if tensor.layout != torch.strided or tensor.is_nested:
            return False
        if tensor.device.type != self._gpu.kind:
            return False
        if tensor.is_conj() or tensor.is_neg():
            return False
        at, size = _storage(tensor)
        return size >= self._least and at not in self._kept and not size % tensor.element_size()

    def _pack(self, tensor):
        if not self._moves(tensor):
            return _Saved(tensor)
        with self._lock:
            key = _storage(tensor)
            entry = self._known.get(key)
            # An address may be another storage's by now.
            if entry is None or not entry.is_at(key):
                entry = _Entry(tensor, self._events, key[1], self._gpu)
                self._known[key] = self._numbered[self._events] = entry
            else:
                entry.save_again(tensor, self._gpu)
            saved = _Saved(tensor, entry)
            entry.saved.add(saved)
            self._event("save", entry)
        self._settle()
        return saved

    def _unpack(self, saved):
        if saved.entry is None:
            return saved.get()
        with self._lock:
            self._used(saved.entry)
            # The moves behind this event must not take what it is for.
            tensor = saved.get()
            self._event("use", saved.entry)
        self._settle()
        return tensor

    def _settle(self):
        """What may have the program wait, behind an event. The lock is not held: what is waited for
        may need what another thread has yet to do here."""

    def _event(self, what, entry):
        number = self._events
        self._events += 1
        self._happened(number, what, entry)

    def _hooks(self):
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)


class _Recorder(_Hooks):
    def __init__(self, keep, least, gpu):
        super().__init__(keep, least, gpu)
        # Of each event what it is, the storage's number and bytes, and when.
        self.events = []
        self.begin = self._gpu.mark()

    def _used(self, entry):
        pass

    def _happened(self, number, what, entry):
        self.events.append((what, entry.number, entry.size, self._gpu.mark()))

    def trace(self, name):
        """Kernel n is the GPU's work before event n; the last one is what comes behind all."""
        marks = [self.begin, *(event[3] for event in self.events), self._gpu.mark()]
        times = [self._gpu.nanoseconds(*pair) for pair in zip(marks, marks[1:])]
        reads = [[] for _ in times]
        writes = [[] for _ in times]
        tensors = {}
        for n, (what, number, size, _) in enumerate(self.events):
            tensor, new = tensors.setdefault(number, (len(tensors), size)), number == n
            where = writes[n] if new else reads[n + 1 if what == "use" else n]
            if tensor[0] not in where and not (tensor[0] in writes[n] and where is reads[n]):
                where.append(tensor[0])
        lines = ["uvmtrace 1", "meta batch 1", f"meta name {name}", f"meta source {SOURCE}", "meta start 0"]
        lines += [f"tensor {n} activation {size} saved{number}" for number, (n, size) in tensors.items()]
        names = ["begin", *(_label(what, size) for what, _, size, _ in self.events)]
        for n, took in enumerate(times):
            lists = [",".join(map(str, some)) or "-" for some in (reads[n], writes[n])]
            lines.append(f"kernel {n} {max(took, 1)} {names[n]} {lists[0]} {lists[1]} -")
        return "\n".join(lines) + "\n"


def _label(what, size):
    """The name of the work behind an event, by which a step is known again."""
    return f"{what}:{size}"


@contextlib.contextmanager
def record(path, keep=(), least=LEAST, name="step", gpu=None):
    """Records the step that is run inside as a trace for uvmsim, and writes it to a file.

    The step has to be one like those that follow: the first, in which an optimizer makes its
    state and libraries choose their kernels, is not. Raises RuntimeError if nothing of `least`
    bytes was saved in it.
    """
    recorder = _Recorder(keep, least, gpu)
    with recorder._hooks():
        yield
    if not recorder.events:
        raise RuntimeError(f"autograd has saved nothing of {least} bytes or more in this step")
    with open(path, "w", encoding="utf-8") as file:
        file.write(recorder.trace(name))


class _Plan:
    """The part of a plan that moves saved tensors."""

    def __init__(self, path):
        self.moves = {}
        with open(path, encoding="utf-8") as file:
            text = file.read()
        try:
            self.labels, names, requests = _native.plan(text)
        except ValueError as error:
            raise PlanError(f"{path}: {error}") from None
        saved = {tensor: re.fullmatch("saved([0-9]+)", name) for tensor, name in names.items()}
        if self.labels[:1] != ["begin"] or not names or not all(saved.values()):
            raise PlanError(f"{path} is a plan of another trace than record() writes")
        numbers = {tensor: int(found[1]) for tensor, found in saved.items()}
        if len(set(numbers.values())) < len(numbers):
            raise PlanError(f"{path} has two tensors of one number")
        for before, what, tensor in requests:
            if what not in ("prefetch", "evict"):
                continue
            if tensor not in numbers:
                raise PlanError(f"{path} moves tensor {tensor}, which it does not name")
            self.moves.setdefault(before, []).append((what, numbers[tensor]))


class Executor(_Hooks):
    """Moves what autograd saves as a plan says.

    `in_flight` is how many bytes may be on their way to the host, and still on the GPU, before the
    program waits for them. All calls are for one thread and the threads of its backward passes.
    """

    def __init__(self, plan, keep=(), least=LEAST, in_flight=IN_FLIGHT, gpu=None):
        self._plan, self._in_flight = _Plan(plan), in_flight
        self._leaving = []
        self._follows = False
        self._counts = {"steps": 0, "left": 0, "out_bytes": 0, "in_bytes": 0, "late": 0}
        super().__init__(keep, least, gpu)

    @contextlib.contextmanager
    def step(self):
        """The program's next step, forward and backward, is what is run inside."""
        with self._lock:
            self._begin()
            self._follows = True
            self._counts["steps"] += 1
            self._requests(0)
        self._settle()
        with self._hooks():
            yield
        with self._lock:
            self._follows = False

    def stats(self):
        """`steps`, and how many have `left` the plan; bytes moved out and in; and `late`, how often
        what was used had not been asked for before."""
        with self._lock:
            return dict(self._counts)

    def _used(self, entry):
        if entry.data is None:
            self._counts["late"] += 1
        self._come(entry)
        entry.use(self._gpu)

    def _come(self, entry):
        stays = entry.out is not None and entry.data is not None
        if entry.come(self._gpu):
            self._counts["in_bytes"] += entry.size
        elif stays:
            self._known.setdefault(entry.place, entry)

    def _happened(self, number, what, entry):
        self._give_up()
        if not self._follows:
            return
        labels = self._plan.labels
        if number + 1 < len(labels) and labels[number + 1] == _label(what, entry.size):
            self._requests(number + 1)
        else:
            self._follows = False
            self._counts["left"] += 1

    def _requests(self, before):
        for what, number in self._plan.moves.get(before, ()):
            entry = self._numbered.get(number)
            if entry is None:
                continue
            if what == "prefetch":
                self._come(entry)
            elif entry.leave(self._gpu):
                # What is saved from now on, perhaps after a change, is not in the copy.
                self._forget(entry)
                self._counts["out_bytes"] += entry.size
                self._leaving.append((weakref.ref(entry), entry.out, entry.size))

    def _give_up(self, waited_for=None):
        """Gives up what has been copied, and what was waited for."""
        still = []
        for reference, event, size in self._leaving:
            entry = reference()
            # It is gone with its graph, or was called back.
            if entry is None or entry.out is not event or entry.data is None:
                continue
            if event is waited_for or self._gpu.is_over(event):
                entry.left()
            else:
                still.append((reference, event, size))
        self._leaving = still

    def _settle(self):
        """Waits while too much is on its way, for what has been on its way longest."""
        event = None
        while True:
            with self._lock:
                self._give_up(event)
                waiting = sum(size for _, _, size in self._leaving)
                if not self._leaving or waiting <= self._in_flight:
                    return
                event = self._leaving[0][1]
            self._gpu.finish(event)

    def _forget(self, entry):
        """What is saved from now on is another entry's."""
        if self._known.get(entry.place) is entry:
            del self._known[entry.place]
