# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Tests of `uvmrust.offload` with a real PyTorch on the CPU. A fake GPU copies when it is waited
for, or when a random number says so, and not before: what is used too early is rubbish.

    UVMRUST_PACKAGE=folder UVMSIM=program torch_offload.py     SEED=n for the random numbers
"""

import contextlib
import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import unittest

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
if "UVMRUST_PACKAGE" in os.environ:
    sys.path.insert(0, os.environ["UVMRUST_PACKAGE"])
sys.path[:0] = [os.path.join(HERE, "../../tests"), os.path.join(HERE, "fake")]

import fake_streams
import train
from uvmrust import offload

SEED = int(os.environ.get("SEED") or random.randrange(1 << 32))
GPU_MEMORY = 32 << 20
RUBBISH = 0xDB


class FakeGpu:
    """The CPU as a GPU whose copies take their time, each way in the order they were asked for. What
    the program has in a stream of `late` is done when a copy behind that stream begins."""

    kind = "cpu"

    def __init__(self, chance=0.5):
        self.random, self.chance = random.Random(SEED), chance
        self.queues = {"out": [], "back": []}
        self.begun = {"out": [], "back": []}
        self.clock = 0
        # The program's stream, what is late in each, which have waited, and which were told of.
        self.stream, self.late = "main", {}
        self.waits, self.uses = [], []
        # What others do while the program waits.
        self.meanwhile = lambda: None

    def current(self, device):
        return self.stream

    def _queue(self, way, to, source, behind, after):
        to.fill_(RUBBISH)
        event = [False]
        self.queues[way].append((event, to, source, behind, after))
        self.begun[way].append(source.numel())
        return event

    def out(self, data, behind, ready):
        host = torch.empty_like(data)
        return host, self._queue("out", host, data, list(behind), ready)

    def back(self, host, device, after):
        data = torch.empty_like(host)
        return data, self._queue("back", data, host, [self.stream], after)

    def is_over(self, event):
        if not event[0] and self.random.random() < self.chance:
            self._do(event)
        return event[0]

    def wait(self, event, stream):
        self.waits.append(stream)
        self._do(event)

    def finish(self, event):
        self.waits.append("program")
        self.meanwhile()
        self._do(event)

    def use(self, data, stream):
        self.uses.append(stream)

    def _do(self, event):
        for queue in self.queues.values():
            while not event[0] and any(item[0] is event for item in queue):
                done, to, source, behind, after = queue.pop(0)
                if after is not None:
                    self._do(after)
                for stream in behind:
                    self.late.pop(stream, lambda: None)()
                to.copy_(source)
                done[0] = True

    def mark(self):
        self.clock += 1
        return self.clock

    def nanoseconds(self, before, after):
        return 100_000 * (after - before)


class QuickGpu(FakeGpu):
    """Copies at once, and does not say so before it is told that all copies are over."""

    over = False

    def _queue(self, way, to, source, behind, after):
        to.copy_(source)
        self.begun[way].append(source.numel())
        return [True]

    def is_over(self, event):
        return self.over


def backward(model, data, labels):
    """Loss and gradients of a step."""
    model.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(data), labels)
    loss.backward()
    return [loss.detach()] + [p.grad.clone() for p in model.parameters()]


def equal(some, others):
    return len(some) == len(others) and all(torch.equal(a, b) for a, b in zip(some, others))


def asked(plan):
    """Bytes that a plan moves out and in. It may prefetch what is there already."""
    moved, away = {"evict": 0, "prefetch": 0}, set()
    for fields in map(str.split, plan.splitlines()):
        if fields[0] == "at" and fields[2] in moved:
            _, _, what, tensor, _, size = fields[:6]
            if (what == "evict") != (tensor in away):
                away ^= {tensor}
                moved[what] += int(size)
    return moved["evict"], moved["prefetch"]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def true(self, executor):
        """What is known by its address is there."""
        for (at, _), entry in executor._known.items():
            self.assertTrue(entry.data is not None and entry.data.data_ptr() == at)

    def planned(self, name, keep):
        """The plan that uvmsim makes of what record() writes, and its text."""
        model, data, labels = keep
        trace, plan = self.file(name + ".uvmtrace"), self.file(name + ".uvmplan")
        with offload.record(trace, keep=list(keep), name=name, gpu=FakeGpu()):
            backward(model, data, labels)
        options = ["--gpu-mem", str(GPU_MEMORY), "--keep-clean", "0", "-o", plan]
        program = os.environ["UVMSIM"]
        subprocess.run([program, "plan", "--trace", trace, *options], check=True, capture_output=True)
        with open(plan, encoding="utf-8") as file:
            return plan, file.read()


class Networks(Case):
    def follow(self, name, chance, in_flight):
        keep = train.network(name)
        plan, text = self.planned(name, keep)
        wanted = backward(*keep)
        gpu = FakeGpu(chance)
        executor = offload.Executor(plan, keep=list(keep), in_flight=in_flight, gpu=gpu)
        most, happened = [0, 0], executor._happened

        def watched(*event):
            happened(*event)
            entries = list(executor._numbered.values())
            held = sum(e.size for e in entries if e.data is not None)
            # What was given up is on the host, and its address is another's from then on.
            self.assertTrue(all(e.out[0] for e in entries if e.data is None))
            self.true(executor)
            most[:] = max(most[0], held), max(most[1], sum(e.size for e in entries))

        executor._happened = watched
        steps = 3
        for _ in range(steps):
            with executor.step():
                self.assertTrue(equal(backward(*keep), wanted), f"SEED={SEED}")
        out, back = asked(text)
        stats = executor.stats()
        self.assertGreater(out, GPU_MEMORY // 4)
        self.assertEqual(stats, {
            "steps": steps, "left": 0, "out_bytes": steps * out, "in_bytes": steps * back, "late": 0,
        })
        self.assertEqual(sum(gpu.begun["out"]), steps * out)
        self.assertEqual(sum(gpu.begun["back"]), steps * back)
        self.assertGreater(most[1], GPU_MEMORY)
        self.assertLessEqual(most[0], GPU_MEMORY + in_flight)
        self.assertEqual(len(executor._numbered), 0)
        print(f"{name}: in each step {out >> 10} KiB out, {back >> 10} KiB in, as the plan says; "
              f"saved {most[1] >> 10} KiB at most, of these on the GPU {most[0] >> 10}")

    def test_a_transformer_has_its_gradients_and_its_plan_is_followed(self):
        self.follow("transformer", 0.5, 4 << 20)

    def test_a_resnet_has_its_gradients_and_its_plan_is_followed(self):
        self.follow("resnet", 0.5, 8 << 20)

    def test_copies_that_are_never_over_by_themselves(self):
        self.follow("transformer", 0, 0)

    def test_a_step_of_another_size_leaves_the_plan_and_is_right(self):
        keep = train.network("resnet")
        plan, _ = self.planned("resnet", keep)
        executor = offload.Executor(plan, keep=list(keep), gpu=FakeGpu())
        model, _, _ = keep
        other = train.network("resnet", 80)[1:]
        wanted = [backward(*keep), backward(model, *other)]
        for which, left in (0, 0), (1, 1), (0, 1):
            with executor.step():
                got = backward(model, *(other if which else keep[1:]))
            self.assertTrue(equal(got, wanted[which]), f"SEED={SEED}")
            self.assertEqual(executor.stats()["left"], left)


# A step that saves two tensors of 1 MiB, of which the first goes and comes.
SIZE = 1 << 20
PLAN = f"""uvmplan 1
meta trace small
kernels 5
span {2 * SIZE}
at 2 evict 0 0 {SIZE} host
at 4 prefetch 0 0 {SIZE}
start 0
launch 0 begin
launch 1 save:{SIZE}
launch 2 save:{SIZE}
launch 3 use:{SIZE}
launch 4 use:{SIZE}
tensor 0 saved0
tensor 1 saved1
"""

# A step in which a tensor is saved until the event before `last`, at which another is, and it goes.
LAST = f"""uvmplan 1
meta trace last
kernels 5
span {2 * SIZE}
at last evict 0 0 {SIZE} host
start 0
launch 0 begin
launch 1 save:{SIZE}
launch 2 save:{SIZE}
launch 3 save:{SIZE}
launch 4 save:{SIZE}
tensor 0 saved0
tensor 1 saved1
"""


class Small(Case):
    def executor(self, plan=PLAN, chance=1.0, **options):
        self.gpu = FakeGpu(chance)
        return offload.Executor(self.file("plan", plan), gpu=self.gpu, **options)

    def forward(self, x):
        """Each of the two saves its own result."""
        first = torch.sigmoid(x)
        return first, torch.tanh(first.neg())

    def input(self):
        torch.manual_seed(SEED % 1000)
        return torch.randn(SIZE // 4, requires_grad=True)

    def test_what_is_saved_as_a_view_is_the_same_view(self):
        def step(x):
            y = (x * 2).view(512, 512)
            z = y.t()[3:, 5:]
            (z.exp() * z).sum().backward()
            return x.grad

        wanted = step(self.input())
        with offload.record(self.file("trace"), gpu=FakeGpu()):
            step(self.input())
        with open(self.file("trace"), encoding="utf-8") as file:
            lines = [line.split() for line in file]
        kernels = [fields[3] for fields in lines if fields[0] == "kernel"]
        tensors = [fields[4] for fields in lines if fields[0] == "tensor"]
        # All goes as soon as it is saved, and nothing is asked to come.
        plan = ["uvmplan 1", f"kernels {len(kernels)}", f"span {SIZE}", "start 0"]
        for n, name in enumerate(tensors):
            plan += [f"at {before} evict {n} 0 {SIZE} host" for before in range(1, len(kernels))]
        plan += [f"launch {n} {name}" for n, name in enumerate(kernels)]
        plan += [f"tensor {n} {name}" for n, name in enumerate(tensors)]
        executor = self.executor("\n".join(plan))
        x = self.input()
        with executor.step():
            got = step(x)
        self.assertTrue(torch.equal(got, wanted))
        stats = executor.stats()
        self.assertTrue(stats["late"] > 0 and stats["left"] == 0 and stats["out_bytes"] > 0, stats)

    def changed(self, chance, which, later=None):
        """A tensor is changed in place after it was saved, as no program may."""
        executor = self.executor(chance=chance)
        with executor.step():
            saved = self.forward(self.input())
            with torch.no_grad():
                saved[which].mul_(2)
            self.gpu.chance = chance if later is None else later
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                saved[1].sum().backward()

    def test_what_is_changed_in_place_is_an_error(self):
        # On the GPU; and on its way to the host, where the copy may have either value.
        self.changed(1.0, 1)
        self.changed(0.0, 0)
        self.changed(0.0, 0, 1.0)
        # As it is for PyTorch itself, and for what is too small to move.
        for executor in None, self.executor(least=2 * SIZE):
            with executor.step() if executor else torch.enable_grad():
                first, second = self.forward(self.input())
                with torch.no_grad():
                    second.mul_(2)
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    second.sum().backward()
                # Of these nothing moves.
                self.assertFalse(executor and executor._numbered)

    def test_what_is_called_back_on_its_way_has_stayed(self):
        def step(x):
            first, second = self.forward(x)
            third = second.neg().exp()
            # Behind the use of the third, and before that of the second.
            second.register_hook(lambda _: setattr(self.gpu, "chance", 1.0))
            return third.sum().backward()

        names = ["begin", *(f"{what}:{SIZE}" for what in 3 * ["save"] + 3 * ["use"])]
        plan = ["uvmplan 1", "kernels 7", f"span {SIZE}", "start 0", f"at 2 evict 0 0 {SIZE} host", f"at 4 prefetch 0 0 {SIZE}"]
        plan += [f"launch {n} {name}" for n, name in enumerate(names)] + ["tensor 0 saved0"]
        executor = self.executor("\n".join(plan), chance=0.0)
        x, again = self.input(), self.input()
        step(again)
        self.gpu.chance = 0.0
        with executor.step():
            step(x)
        self.assertTrue(torch.equal(x.grad, again.grad))
        self.assertEqual(executor.stats(), {
            "steps": 1, "left": 0, "out_bytes": SIZE, "in_bytes": 0, "late": 0,
        })

    def test_what_has_left_is_no_longer_the_programs(self):
        """What a program makes of its tensor later does not reach the copy."""
        x = self.input()
        self.forward(x)[1].sum().backward()
        wanted, x = x.grad, self.input()
        executor = self.executor()
        with executor.step():
            first, second = self.forward(x)
            self.assertEqual(len(self.gpu.begun["out"]), 1)
            self.assertEqual(len(executor._known), 1)
            self.true(executor)
            with torch.no_grad():
                first.zero_()
            second.sum().backward()
        self.assertTrue(torch.equal(x.grad, wanted))

    def resize(self, tensor, size):
        """Takes the memory of a tensor away, or gives it new memory, which no version tells."""
        whole = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()._storage
        whole.resize_(size)

    def test_a_storage_without_memory_does_not_leave(self):
        x = self.input()
        self.forward(x)[1].sum().backward()
        wanted, x = x.grad, self.input()
        executor = self.executor()
        with executor.step():
            first = torch.sigmoid(x)
            held = first.detach().clone()
            third = first.neg()
            self.resize(first, 0)
            second = torch.tanh(third)
            # Nor when it has come again: whether what stands there is there, nobody knows.
            self.resize(first, SIZE)
            first.data.copy_(held)
            executor._numbered[0].place = offload._storage(first)
            executor._requests(2)
            second.sum().backward()
        self.assertTrue(torch.equal(x.grad, wanted))
        self.assertEqual(executor.stats()["out_bytes"], 0)

    def test_a_storage_that_loses_its_memory_on_its_way_is_known_no_more(self):
        x = self.input()
        self.forward(x)[1].sum().backward()
        wanted, x = x.grad, self.input()
        executor = self.executor()
        self.gpu = executor._gpu = QuickGpu()
        with executor.step():
            first, second = self.forward(x)
            entry = executor._numbered[0]
            self.resize(first, 0)
            self.gpu.over = True
            executor._give_up()
            self.assertIsNone(entry.data)
            self.assertNotIn(entry, list(executor._known.values()))
            second.sum().backward()
        self.assertTrue(torch.equal(x.grad, wanted))

    def test_an_address_that_is_anothers_by_now_is_another_entry(self):
        executor = self.executor()
        factor = torch.ones(SIZE // 4, requires_grad=True)
        old, new = torch.ones(SIZE // 4), torch.ones(SIZE // 4)
        with executor.step():
            product = old * factor
            # As if it had moved away from there.
            executor._known[offload._storage(new)] = executor._numbered[0]
            other = new * factor
            self.assertEqual(sorted(executor._numbered), [0, 1])
            del product, other

    # A step in which the first of two is saved again while it leaves.
    AGAIN = PLAN.replace(f"launch 3 use:{SIZE}", f"launch 3 save:{SIZE}").replace("at 4", "at 3")

    def saved_again(self, plan, change):
        """Of a tensor that is saved, leaves, is changed or not, and is saved again: whether the
        second time is right, and the executor."""
        executor = self.executor(plan)
        self.gpu = executor._gpu = QuickGpu()
        p, q, r = (torch.ones(SIZE // 4, requires_grad=True) for _ in range(3))
        torch.manual_seed(SEED % 1000)
        y, z = torch.randn(SIZE // 4), torch.randn(SIZE // 4)
        with executor.step():
            kept = [y * p, z * r]
            if change:
                y.mul_(2)
            out = y * q
            self.gpu.over = True
            executor._give_up()
            out.sum().backward()
        del kept
        return torch.equal(q.grad, y), executor

    def test_what_is_saved_again_behind_a_change_is_not_in_the_copy(self):
        for plan in self.AGAIN, self.AGAIN.replace(f"at 3 prefetch 0 0 {SIZE}\n", ""):
            right, executor = self.saved_again(plan, True)
            self.assertTrue(right)
            self.assertEqual(executor.stats()["left"], 0)

    def test_what_is_called_back_on_its_way_is_known_again(self):
        plan = self.AGAIN.replace(f"at 3 prefetch 0 0 {SIZE}", f"at 2 prefetch 0 0 {SIZE}")
        known = []
        executor = self.executor(plan)
        self.gpu = executor._gpu = QuickGpu()
        factor = torch.ones(SIZE // 4, requires_grad=True)
        y, z = torch.randn(SIZE // 4), torch.randn(SIZE // 4)
        with executor.step():
            kept = [y * factor, z * factor]
            known.append(sorted(entry.number for entry in executor._known.values()))
            kept.append(y * factor)
            self.assertEqual(sorted(executor._numbered), [0, 1])
        self.assertEqual(known, [[0, 1]])
        self.assertEqual(self.gpu.begun["out"], [SIZE])

    def test_a_graph_that_is_kept_is_used_twice(self):
        x = self.input()
        self.forward(x)[1].sum().backward()
        wanted, x = x.grad, self.input()
        executor = self.executor()
        with executor.step():
            loss = self.forward(x)[1].sum()
            loss.backward(retain_graph=True)
        # Outside of a step as well.
        loss.backward()
        self.assertTrue(torch.equal(x.grad, 2 * wanted))
        self.assertEqual(executor.stats()["left"], 0)

    def late(self, tensor, stream):
        """Has what is in a tensor come there only when that is asked for in a stream's order."""
        values = tensor.detach().clone()
        tensor.data.fill_(float("nan"))
        self.gpu.late[stream] = lambda: tensor.data.copy_(values)

    def test_each_stream_waits_for_what_it_uses(self):
        x = self.input()
        self.forward(x)[1].sum().backward()
        wanted, x = x.grad, self.input()
        # Nothing is over by itself, and nothing may be on its way: the program waits.
        executor = self.executor(chance=0.0, in_flight=0)
        with executor.step():
            self.gpu.stream = "side"
            first = torch.sigmoid(x)
            negative = first.neg()
            self.late(first, "side")
            self.gpu.stream = "main"
            loss = torch.tanh(negative).sum()
            self.assertEqual(self.gpu.waits, ["program"])
            # It comes back in the main stream's order, and is used in two others.
            self.gpu.stream = "one"
            del first
            loss.backward(retain_graph=True)
            self.assertEqual(self.gpu.waits, ["program", "one"])
            self.gpu.stream = "two"
            loss.backward(retain_graph=True)
            self.gpu.stream = "one"
            loss.backward()
        self.assertTrue(torch.equal(x.grad, 3 * wanted), f"SEED={SEED}")
        self.assertEqual(self.gpu.waits, ["program", "one", "two", "one"])
        self.assertEqual(self.gpu.uses, ["side", "main", "two"])

    def test_less_than_nothing_in_flight_is_nothing(self):
        x = self.input()
        self.forward(x)[1].sum().backward()
        wanted, x = x.grad, self.input()
        executor = self.executor(chance=0.0, in_flight=-1)
        with executor.step():
            self.forward(x)[1].sum().backward()
        self.assertTrue(torch.equal(x.grad, wanted), f"SEED={SEED}")
        self.assertEqual(self.gpu.waits, ["program", "main"])

    def test_a_stream_that_saves_what_is_anothers_is_told_of(self):
        executor = self.executor(plan=PLAN.replace("evict", "copy"))
        with executor.step():
            first = torch.sigmoid(self.input())
            self.gpu.stream = "side"
            first.exp().mul(first)
        self.assertEqual(self.gpu.uses, ["main", "side", "side"])

    def saved_in(self, *streams):
        """A tensor that streams write, one after the other, behind autograd's back, and save. It leaves
        when the last has. Returns whether each has the gradient of what it is then."""
        executor = self.executor(LAST.replace("last", str(len(streams) + 1)), chance=0.0, in_flight=0)
        factor = torch.ones(SIZE // 4, requires_grad=True)
        saved, other = torch.zeros(SIZE // 4), torch.ones(SIZE // 4)
        with executor.step():
            for self.gpu.stream in streams:
                saved.data.add_(1)
                product = saved * factor
            self.late(saved, streams[-1])
            self.gpu.stream = streams[0]
            kept = other * factor
            self.assertEqual(self.gpu.waits, ["program"])
            product.sum().backward()
        del kept
        return factor.grad.eq(len(streams)).all()

    def test_a_copy_is_behind_each_stream_that_saves(self):
        self.assertTrue(self.saved_in("main", "side"), f"SEED={SEED}")
        self.assertTrue(self.saved_in("side", "main", "third"), f"SEED={SEED}")

    def test_others_go_on_while_the_program_waits(self):
        executor = self.executor(chance=0.0, in_flight=0)
        went_on = []

        def meanwhile():
            other = threading.Thread(target=lambda: went_on.append(executor.stats()), daemon=True)
            other.start()
            other.join(10)

        self.gpu.meanwhile = meanwhile
        with executor.step():
            kept = self.forward(self.input())
            self.assertEqual(self.gpu.waits, ["program"])
            self.assertEqual(len(went_on), 1, "the lock is held")
            self.assertIsNone(executor._numbered[0].data)
            del kept

    def test_what_is_on_its_way_leaves_again_behind_its_arrival(self):
        plan = PLAN.replace("at 4 prefetch", "at 3 prefetch").replace("start", f"at 3 evict 0 0 {SIZE} host\nstart")
        x = self.input()
        self.forward(x)[1].sum().backward()
        wanted, x = x.grad, self.input()
        executor = self.executor(plan, chance=0.0, in_flight=0)
        with executor.step():
            self.forward(x)[1].sum().backward()
        self.assertTrue(torch.equal(x.grad, wanted))
        self.assertEqual([len(begun) for begun in self.gpu.begun.values()], [2, 2])
        self.assertEqual(executor.stats()["late"], 1)

    def test_a_graph_that_is_dropped_leaves_nothing(self):
        for chance in 0.0, 1.0:
            executor = self.executor(chance=chance)
            with executor.step():
                kept = self.forward(self.input())
                del kept
                gc.collect()
                self.assertEqual(len(executor._numbered), 0)
                # An event, at which what is gone is noticed.
                kept = torch.sigmoid(self.input())
            self.assertEqual(executor._leaving, [])

    def test_weights_and_what_is_kept_stay(self):
        layer, x = torch.nn.Linear(1024, 1024), torch.randn(256, 1024, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "saved nothing"):
            with offload.record(self.file("trace"), keep=[layer, x], gpu=FakeGpu()):
                layer(x).sum().backward()

    def sparse(self, csr):
        """A sparse matrix of some MiB, and one whose shape is dense's, to multiply with."""
        at = torch.arange(512)
        some = torch.sparse_coo_tensor(torch.stack([at, at.flip(0)]), torch.ones(512), (512, 512))
        return some.to_sparse_csr() if csr else some

    def test_sparse_and_nested_tensors_stay(self):
        for csr in False, True:
            matrix, grads = self.sparse(csr), []
            for step in contextlib.nullcontext, self.executor().step:
                x = torch.ones(512, 512, requires_grad=True)
                with step():
                    torch.sparse.mm(matrix, torch.sigmoid(x)).sum().backward()
                grads.append(x.grad)
            self.assertTrue(torch.equal(*grads))
        if not hasattr(torch, "nested"):
            return
        make = getattr(torch.nested, "nested_tensor", None) or torch.nested_tensor
        nested = make([torch.ones(300, 1000), torch.ones(400, 1000)])
        executor = self.executor()
        saved = executor._pack(nested)
        self.assertIsNone(saved.entry)
        self.assertTrue(executor._unpack(saved).is_nested)
        saved.changed = True
        with self.assertRaisesRegex(RuntimeError, "a tensor, which was saved"):
            saved.get()

    def test_a_sparse_buffer_may_be_kept(self):
        layer, x = torch.nn.Linear(512, 512), torch.randn(512, 512, requires_grad=True)
        layer.register_buffer("links", self.sparse(csr=True))
        executor = self.executor(keep=[layer, x])
        with executor.step():
            layer(x).sum().backward()
        self.assertEqual(len(executor._kept), 3)

    def test_other_files_are_refused(self):
        others = (("begin", "embed"), ("saved", "alloc"), ("evict", "other"), (f"span {2 * SIZE}", "span 1"),
                  ("saved0", "saved-1"), ("saved0", "saved1_0"), ("tensor 0 saved0\n", ""), ("saved1", "saved0"))
        for text in "", "uvmplan 2\n", *(PLAN.replace(*other) for other in others):
            with self.assertRaises(offload.PlanError):
                self.executor(text)


class Streams(Case):
    """The copies of a GPU, as they are ordered with the streams of the program."""

    def setUp(self):
        super().setUp()
        self.cuda = self.enter(fake_streams.on(offload))
        self.gpu = offload._Cuda()
        self.gpu.kind = "cpu"
        self.side = self.cuda.Stream()
        torch.manual_seed(SEED % 1000)
        self.x = torch.randn(SIZE // 4, requires_grad=True)

    def enter(self, context):
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def executor(self, **options):
        return offload.Executor(self.file("plan", PLAN), gpu=self.gpu, **options)

    def forward(self):
        """The first is saved in the side stream, the second, behind which it leaves, is not."""
        with self.cuda.stream(self.side):
            self.side.work("first")
            first = torch.sigmoid(self.x)
        return first, torch.tanh(self.x.neg())

    def test_a_copy_to_the_host_is_behind_all_streams_that_saved(self):
        executor = self.executor()
        with executor.step():
            first, second = self.forward()
            [(stream, had)] = self.cuda.copies
            self.assertIn("first", had)
            self.assertNotIn(stream, (self.side, self.cuda.current))
            # Nor is the memory another's before the copy is over.
            self.assertTrue(self.cuda.was_recorded(first, stream))
            # Nor before what the side stream does, whichever stream the memory is of.
            self.assertTrue(self.cuda.was_recorded(first, self.side))

    def test_the_program_waits_for_what_is_too_much(self):
        executor = self.executor(in_flight=0)
        with executor.step():
            kept = self.forward()
            self.assertIsNone(executor._numbered[0].data)
            [event] = self.cuda.waited
            self.assertEqual(event.has, self.cuda.copies[0][1] | {"copy1"})
            self.assertFalse(self.cuda.current.has & event.has)
            del kept

    def test_pinned_memory_is_the_hosts_whatever_the_default_device(self):
        """Without a device, torch.empty() takes torch.set_default_device()'s."""
        executor = self.executor()
        with executor.step():
            kept = self.forward()
            self.assertEqual(self.cuda.asked, [(True, "cpu")])
            del kept

    def test_each_stream_that_uses_it_waits_for_the_copy(self):
        executor = self.executor(in_flight=0)
        with executor.step():
            first, second = self.forward()
            loss = first.sum() + second.sum()
            loss.backward(retain_graph=True)
            wanted = self.x.grad.clone()
            self.assertIn("copy2", self.cuda.current.has)
            self.assertNotIn("copy2", self.side.has)
            with self.cuda.stream(self.side):
                loss.backward(retain_graph=True)
            self.assertIn("copy2", self.side.has)
            self.assertEqual(len(self.cuda.copies), 2)
        self.assertTrue(torch.equal(self.x.grad, 2 * wanted))
        back = executor._numbered[0].data
        self.assertTrue(self.cuda.was_recorded(back, self.side))

    def test_what_came_back_leaves_behind_its_copy(self):
        executor = self.executor(in_flight=0)
        with executor.step():
            first, second = self.forward()
            entry = executor._numbered[0]
            entry.come(self.gpu)
            self.assertTrue(entry.leave(self.gpu))
            self.assertIn("copy2", self.cuda.copies[2][1])
            # And stays, if it is called back at once.
            self.assertFalse(entry.come(self.gpu))
            self.assertIsNone(entry.host)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, SEED={SEED}")
    torch.set_num_threads(1)
    unittest.main()
