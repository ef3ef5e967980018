# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Tests of the package on the stub of CUDA, once for each driver that it can stand for.

With --installed, of the package that is installed, not of the folder UVMRUST_PACKAGE.
"""

import ctypes
import os
import sys
import types
import unittest

import stub

INSTALLED = "--installed" in sys.argv
if not INSTALLED and "UVMRUST_PACKAGE" in os.environ:
    sys.path.insert(0, os.environ["UVMRUST_PACKAGE"])
EXPECT = os.environ.get("UVMRUST_EXPECT")

try:
    import cuda.core as CUDA_CORE
except ImportError:
    CUDA_CORE = None

BLOCK = 2 << 20
PAGE = 4096

# What the stub is to let fail, which it keeps a pointer to.
FAILING = ctypes.c_char_p(b"UVM_MIGRATE")


class OnStub(unittest.TestCase):
    """What each test has: the stub, two streams of its first GPU, and some memory."""

    def setUp(self):
        self.cuda = stub.cuda()
        self.stream, self.other = stub.stream(self.cuda), stub.stream(self.cuda)
        self.buffer = stub.Buffer(self.cuda, 2 * BLOCK)
        self.violations = self.cuda.stub_violations()
        stub.log()

    def tearDown(self):
        stub.must(self.cuda.cuCtxSynchronize())
        stub.must(self.cuda.cuMemFree_v2(ctypes.c_uint64(self.buffer.base)))
        self.assertEqual(self.cuda.stub_violations(), self.violations)

    def log(self):
        """The log, in which an eager discard by NVIDIA's driver is one: it is made as two calls."""
        lines = stub.log()
        if EXPECT != "native":
            return lines
        once = []
        eager = [n for n, line in enumerate(lines) if line.startswith("discard eager ")]
        for n, line in enumerate(lines):
            if n not in eager or eager.index(n) % 2 == 0:
                once.append(line)
            else:
                self.assertEqual(line, lines[eager[eager.index(n) - 1]])
        return once

    def discards(self):
        """The discards of the log, as ("lazy" or "eager", bytes)."""
        lines = [line.split() for line in self.log() if line.startswith("discard ")]
        return [(kind, int(length)) for _, kind, length in lines]

    def wait(self, handle):
        stub.must(self.cuda.cuStreamSynchronize(ctypes.c_void_p(handle)))


class Discard(OnStub):
    def test_who_discards(self):
        self.assertEqual(uvmrust.backend(), EXPECT)
        self.assertEqual(uvmrust.stats()["backend"], EXPECT)

    def test_it_takes_its_turn_in_the_stream(self):
        self.buffer.put(self.stream, 7)
        before = uvmrust.stats()["discard"]
        done = uvmrust.discard(self.buffer.view(stream=self.stream))
        self.assertIs(done, EXPECT != "none")
        self.buffer.put(self.stream, 8)
        self.wait(self.stream)
        lines = [line for line in self.log() if line.startswith(("discard ", "kernel "))]
        eager = [f"discard eager {2 * BLOCK}"] if done else []
        self.assertEqual([lines[0][:10], *lines[1:-1], lines[-1][:10]], ["kernel put", *eager, "kernel put"])
        self.assertEqual(set(self.buffer.words()), {8})
        after = uvmrust.stats()["discard"]
        counted = (after["calls"] - before["calls"], after["bytes"] - before["bytes"])
        self.assertEqual(counted, (1, 2 * BLOCK) if done else (0, 0))

    def test_what_was_there_is_gone(self):
        self.buffer.put(self.stream, 7)
        uvmrust.discard(self.buffer.view(stream=self.stream))
        self.wait(self.stream)
        kept = {"none": {7}, "uvm-rust": {0, 7}}.get(EXPECT, {0xDBDBDBDBDBDBDBDB})
        self.assertLessEqual(set(self.buffer.words(2 * BLOCK // 8)), kept)

    def test_lazily_and_prefetched(self):
        uvmrust.discard(self.buffer.view(), lazy=True, stream=self.stream)
        uvmrust.prefetch(self.buffer.view(), to=0, stream=self.stream)
        self.buffer.put(self.stream, 9)
        self.wait(self.stream)
        self.assertEqual(set(self.buffer.words()), {9})
        lines = stub.log()
        lazy = f"discard lazy {2 * BLOCK}" in lines
        self.assertIs(lazy, EXPECT in ("uvm-rust", "native"))
        self.assertIn(f"prefetch {2 * BLOCK}", lines)

    def test_both_at_once(self):
        done = uvmrust.discard_and_prefetch(self.buffer.view(), to="cuda:0", stream=self.stream)
        self.assertIs(done, EXPECT != "none")
        self.wait(self.stream)
        lines = stub.log()
        self.assertIs(f"discard lazy {2 * BLOCK}" in lines, EXPECT in ("uvm-rust", "native"))
        self.assertIn(f"prefetch {2 * BLOCK}", lines)
        self.buffer.put(self.stream, 9)
        self.wait(self.stream)
        self.assertEqual(set(self.buffer.words()), {9})

    def test_both_or_neither(self):
        """A lazy discard without its prefetch would lose what is written next."""
        refused = [(uvmrust.Error, "no such GPU", 7), (ValueError, "no place", "gpu0")]
        for kind, text, place in refused:
            with self.assertRaisesRegex(kind, text):
                uvmrust.discard_and_prefetch(self.buffer.view(), to=place, stream=self.stream)
            self.buffer.put(self.stream, 9)
            self.wait(self.stream)
            self.assertEqual(set(self.buffer.words()), {9})
            self.assertEqual(self.discards(), [])

    @stub.only_on("uvm-rust", "native")
    def test_what_is_written_behind_a_prefetch_that_fails_is_kept(self):
        """The discard comes all the same, and tearDown() sees that no kernel writes behind a lazy one."""
        self.cuda.stub_fail(FAILING, 1)
        uvmrust.discard_and_prefetch(self.buffer.view(), to=0, stream=self.stream)
        self.buffer.put(self.stream, 9)
        self.wait(self.stream)
        with self.assertRaisesRegex(uvmrust.Error, "out of memory"):
            uvmrust.check()
        self.assertEqual([kind for kind, _ in self.discards()], ["lazy", "eager"])
        self.cuda.stub_evict(ctypes.c_void_p(self.buffer.base), ctypes.c_size_t(2 * BLOCK))
        self.assertEqual(set(self.buffer.words()), {9})

    def test_both_are_counted(self):
        before = uvmrust.stats()
        uvmrust.discard_and_prefetch(self.buffer.view(), to=0, stream=self.stream)
        after = uvmrust.stats()
        for what, calls in ("discard", int(EXPECT != "none")), ("prefetch", 1):
            self.assertEqual(after[what]["calls"] - before[what]["calls"], calls)

    def test_several_are_done_in_their_streams(self):
        half = {"shape": (BLOCK,)}
        first = self.buffer.view(stream=self.stream, **half)
        second = self.buffer.view(stream=self.other, offset=BLOCK, **half)
        uvmrust.discard(first, second)
        self.wait(self.stream)
        once = [("eager", BLOCK)] if EXPECT != "none" else []
        self.assertEqual(self.discards(), once)
        self.wait(self.other)
        self.assertEqual(self.discards(), once)

    def test_only_whole_pages(self):
        uvmrust.discard(self.buffer.view(shape=(3 * PAGE,), offset=PAGE // 2, stream=self.stream))
        uvmrust.discard(self.buffer.view(shape=(PAGE // 2,), stream=self.stream))
        uvmrust.discard(self.buffer.view(shape=(0, 5), stream=self.stream))
        self.wait(self.stream)
        self.assertEqual(self.discards(), [("eager", 2 * PAGE)] if EXPECT != "none" else [])

    # Elsewhere nobody looks at the memory.
    @stub.only_on("uvm-rust", "native", "cuda")
    def test_ordinary_memory_is_refused_by_name(self):
        memory = ctypes.create_string_buffer(BLOCK)
        array = self.buffer.view(offset=ctypes.addressof(memory) - self.buffer.base, shape=(BLOCK,))
        with self.assertRaisesRegex(uvmrust.Error, "cudaMallocManaged") as raised:
            uvmrust.discard(array, stream=self.stream)
            self.wait(self.stream)
            uvmrust.check()
        self.assertEqual(raised.exception.code, -3)
        uvmrust.check()

    def test_a_default_stream_is_that_of_the_memorys_gpu(self):
        stub.use_device(self.cuda, 1)
        array = self.buffer.view()
        array.device_id = 1
        stub.use_device(self.cuda, 0)
        uvmrust.discard(array, stream=0)
        # Nothing is in the first GPU's default stream.
        self.wait(0)
        self.assertEqual(self.discards(), [])
        stub.use_device(self.cuda, 1)
        self.wait(0)
        self.assertEqual(self.discards(), [("eager", 2 * BLOCK)] if EXPECT != "none" else [])
        stub.use_device(self.cuda, 0)

    def test_a_default_stream_is_that_of_the_gpu_its_object_names(self):
        own = self.buffer.view()
        own.device_id = 0
        torchs = types.SimpleNamespace(cuda_stream=0, device=types.SimpleNamespace(index=1))
        cupys = types.SimpleNamespace(ptr=1, device_id=1)
        threads = types.SimpleNamespace(__cuda_stream__=(0, 2), device_id=1)
        for given in (torchs, cupys, threads):
            stub.use_device(self.cuda, 0)
            uvmrust.discard(own, stream=given)
            # Nothing is in the default streams of the memory's GPU.
            self.wait(0)
            self.wait(2)
            self.assertEqual(self.discards(), [])
            stub.use_device(self.cuda, 1)
            self.wait(0)
            self.wait(2)
            self.assertEqual(self.discards(), [("eager", 2 * BLOCK)] if EXPECT != "none" else [])
        stub.use_device(self.cuda, 0)

    def test_a_stream_that_names_no_gpu_is_of_the_memorys(self):
        class Broken:
            cuda_stream = 1

            @property
            def device(self):
                return 1 // 0

        span = _memory.Span(self.buffer.base, BLOCK, 1)
        everywhere = types.SimpleNamespace(ptr=0, device_id=-1)
        for given, number in ((everywhere, 0), (Broken(), 1), (2, 2)):
            self.assertEqual(list(_memory.by_stream([span], given)), [(number, 1)])
        # A handle that says all itself needs nothing of the object.
        own = types.SimpleNamespace(ptr=self.stream, device_id=0)
        self.assertEqual(list(_memory.by_stream([span], own)), [(self.stream, 1)])

    # With the others it becomes a node of the graph.
    @stub.only_on("cuda")
    def test_a_capture_goes_on(self):
        begin, end = self.cuda.cuStreamBeginCapture_v2, self.cuda.cuStreamEndCapture
        stub.must(begin(ctypes.c_void_p(self.stream), 0))
        with self.assertRaisesRegex(uvmrust.Error, "captured") as raised:
            uvmrust.discard(self.buffer.view(stream=self.stream))
        self.assertEqual(raised.exception.code, -9)
        graph = ctypes.c_void_p()
        stub.must(end(ctypes.c_void_p(self.stream), ctypes.byref(graph)))
        stub.must(self.cuda.cuGraphDestroy(graph))


class Prefetch(OnStub):
    def test_all_pages_that_are_touched(self):
        array = self.buffer.view(shape=(PAGE,), offset=PAGE // 2)
        before = uvmrust.stats()["prefetch"]["bytes"]
        uvmrust.prefetch(array, stream=self.stream)
        uvmrust.prefetch(array, to="cpu", stream=self.stream)
        self.wait(self.stream)
        self.assertEqual([line for line in stub.log() if "prefetch" in line], [f"prefetch {2 * PAGE}"] * 2)
        self.assertEqual(uvmrust.stats()["prefetch"]["bytes"] - before, 2 * PAGE)

    def test_a_view_with_what_lies_between(self):
        rows = self.buffer.view(shape=(4, 100), strides=(PAGE, 1))
        uvmrust.prefetch(rows, stream=self.stream)
        self.wait(self.stream)
        self.assertIn(f"prefetch {4 * PAGE}", stub.log())

    def test_places(self):
        view = self.buffer.view(stream=self.stream)
        for place in ("disk", "cuda:x", "cpu:1", 0.5, True):
            with self.assertRaisesRegex(ValueError, "no place"):
                uvmrust.prefetch(view, to=place)
        with self.assertRaisesRegex(uvmrust.Error, "no such GPU"):
            uvmrust.prefetch(view, to=7)


class Memory(OnStub):
    """What is taken for memory, and for a stream."""

    def span(self, obj):
        span = _memory.to_discard(obj)
        return span.base - self.buffer.base, span.length

    def test_layouts(self):
        view = self.buffer.view
        self.assertEqual(self.span(view(shape=(3, 5), typestr="<f4")), (0, 60))
        self.assertEqual(self.span(view(shape=(3, 5), typestr="<f4", strides=(4, 12))), (0, 60))
        self.assertEqual(self.span(view(shape=(3, 1, 5), typestr="<c16", strides=(80, 999, 16))), (0, 240))
        self.assertEqual(self.span(view(shape=(), typestr="<f8")), (0, 8))
        self.assertEqual(self.span(view(shape=(4,), typestr="<i8", strides=(-8,), offset=24)), (0, 32))
        self.assertEqual(self.span(view(shape=(2,), typestr="<U3")), (0, 24))

    def test_views_with_gaps_are_refused(self):
        for shape, strides in [((3, 5), (24, 4)), ((5,), (8,)), ((5,), (0,)), ((3, 5), (4, 4))]:
            with self.assertRaisesRegex(ValueError, "between others'"):
                uvmrust.discard(self.buffer.view(shape, "<f4", strides=strides), stream=0)

    def test_what_can_not_be_told_is_refused(self):
        view = self.buffer.view
        refused = [
            (ValueError, "owns it", view(data=(self.buffer.base, True))),
            (TypeError, "mask", view(mask=view())),
            (TypeError, "size", view(typestr="|t4")),
            (TypeError, "no memory of a GPU", [1, 2]),
            (TypeError, "no memory of a GPU", b"bytes"),
        ]
        for kind, text, obj in refused:
            with self.assertRaisesRegex(kind, text):
                uvmrust.discard(obj, stream=0)
        with self.assertRaisesRegex(TypeError, "in which stream"):
            uvmrust.discard(view())
        self.assertEqual(stub.log(), [])

    def test_streams(self):
        def thing(**names):
            return type("Stream", (), names)()

        self.assertEqual(_memory.handle(5), 5)
        self.assertEqual(_memory.handle(thing(__cuda_stream__=lambda self: (0, 6))), 6)
        self.assertEqual(_memory.handle(thing(__cuda_stream__=(0, 7), cuda_stream=8)), 7)
        self.assertEqual(_memory.handle(thing(cuda_stream=8)), 8)
        self.assertEqual(_memory.handle(thing(ptr=9)), 9)
        for bad in ("0", True, thing(), thing(__cuda_stream__=(1, 7))):
            with self.assertRaises(TypeError):
                _memory.handle(bad)

    def test_a_buffer_of_cuda_core(self):
        """By its documented attributes: handle, size, device_id."""
        buffer = type("Buffer", (), {})()
        buffer.handle, buffer.size, buffer.device_id = self.buffer.base, BLOCK, 1
        span = _memory.to_discard(buffer)
        self.assertEqual((span.base, span.length, span.device), (self.buffer.base, BLOCK, 1))
        buffer.handle = None
        with self.assertRaisesRegex(TypeError, "open Buffer"):
            uvmrust.discard(buffer, stream=0)

    @unittest.skipIf(CUDA_CORE is None, "no cuda.core (pip install cuda-core cuda-bindings)")
    def test_a_real_buffer_of_cuda_core(self):
        buffer = CUDA_CORE.Buffer.from_handle(self.buffer.base, self.buffer.length)
        stream = CUDA_CORE.Stream.from_handle(self.stream)
        self.assertIs(uvmrust.discard(buffer, stream=stream), EXPECT != "none")
        uvmrust.prefetch(buffer, to=1, stream=stream)
        self.wait(self.stream)
        lines = [line for line in self.log() if line.startswith(("discard ", "prefetch"))]
        eager = [f"discard eager {2 * BLOCK}"] if EXPECT != "none" else []
        # CUDA's discard has a prefetch with it.
        own = [f"prefetch {2 * BLOCK}"] if EXPECT == "cuda" else []
        self.assertEqual(lines, [*eager, *own, f"prefetch {2 * BLOCK}"])

    def test_the_gpu_that_dlpack_names(self):
        array = self.buffer.view()
        type(array).__dlpack_device__ = lambda self: (13, 1)
        self.assertEqual(_memory.to_prefetch(array).device, 1)
        type(array).__dlpack_device__ = lambda self: (1, 0)
        self.assertIsNone(_memory.to_prefetch(array).device)
        type(array).__dlpack_device__ = lambda self: 1 // 0
        self.assertIsNone(_memory.to_prefetch(array).device)


if __name__ == "__main__":
    if EXPECT is None:
        sys.exit(stub.run_each(os.path.abspath(__file__), sys.argv[1:]))
    import uvmrust
    from uvmrust import _memory

    stub.main(sys.argv[1:])
