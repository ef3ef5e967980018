# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Tests of `uvmrust.torch` and `uvmrust.rmm` on the stub of CUDA. RMM is the real one where it
is installed (pip install rmm-cu13), which needs no GPU for this; else, and for PyTorch, what
stands in for them in `fake/`. A real PyTorch: userlib/torch/tests/pytorch.rs.
"""

import ctypes
import gc
import os
import subprocess
import sys
import unittest

import stub

INSTALLED = "--installed" in sys.argv
if not INSTALLED and "UVMRUST_PACKAGE" in os.environ:
    sys.path.insert(0, os.environ["UVMRUST_PACKAGE"])
EXPECT = os.environ.get("UVMRUST_EXPECT")

try:
    import rmm
    import rmm.mr
except ImportError:
    rmm = None

FAKE = os.path.join(stub.HERE, "fake")
LENGTH = 4 << 20


class OnStub(unittest.TestCase):
    def setUp(self):
        self.cuda = stub.cuda()
        self.stream, self.other = stub.stream(self.cuda), stub.stream(self.cuda)
        self.violations = self.cuda.stub_violations()

    def tearDown(self):
        gc.collect()
        stub.must(self.cuda.cuCtxSynchronize())
        self.assertEqual(self.cuda.stub_violations(), self.violations)

    def memory(self, address):
        """What stands at an address, for the stub's kernels."""
        buffer = stub.Buffer.__new__(stub.Buffer)
        buffer.library, buffer.base, buffer.length = self.cuda, address, LENGTH
        return buffer

    def wait(self, handle):
        stub.must(self.cuda.cuStreamSynchronize(ctypes.c_void_p(handle)))


class PyTorch(OnStub):
    def setUp(self):
        super().setUp()
        uvmrust.torch.install()
        torch._streams[0] = self.stream

    def tearDown(self):
        super().tearDown()
        torch._streams[0] = 0

    def test_installed_twice_is_once(self):
        current = torch._current
        uvmrust.torch.install()
        self.assertIs(torch._current, current)

    def test_what_is_freed_is_used_again(self):
        tensor = torch.Tensor((LENGTH,))
        address, before = tensor.data_ptr(), uvmrust.torch.stats()
        self.memory(address).put(self.stream, 1)
        del tensor
        again = torch.Tensor((LENGTH,))
        self.assertEqual(again.data_ptr(), address)
        self.memory(address).put(self.stream, 2)
        self.wait(self.stream)
        self.assertEqual(set(self.memory(address).words(LENGTH // 8)), {2})
        self.assertEqual(uvmrust.torch.stats()["reused"], before["reused"] + 1)
        self.assertEqual(uvmrust.stats()["allocator"], uvmrust.torch.stats())

    def test_a_recorded_stream_is_waited_for(self):
        tensor, seen = torch.Tensor((LENGTH,)), (ctypes.c_uint64 * 17)()
        memory = self.memory(tensor.data_ptr())
        memory.put(self.stream, 1)
        self.wait(self.stream)
        memory.get(self.other, seen)
        tensor.record_stream(torch.types.SimpleNamespace(cuda_stream=self.other))
        del tensor
        again = torch.Tensor((LENGTH,))
        self.assertEqual(again.data_ptr(), memory.base)
        memory.put(self.stream, 2)
        self.wait(self.stream)
        self.wait(self.other)
        self.assertEqual(seen[1], 1)

    def test_the_cache_is_emptied(self):
        tensor = torch.Tensor((LENGTH,))
        del tensor
        self.assertGreater(uvmrust.torch.stats()["held_bytes"], 0)
        torch.cuda.empty_cache()
        self.assertEqual(uvmrust.torch.stats()["held_bytes"], 0)

    def test_the_cache_is_emptied_behind_work_of_its_own(self):
        """The program's wait for a stream need not be one for what the stream only waits for."""
        torch.cuda.empty_cache()
        tensor = torch.Tensor((LENGTH,))
        del tensor
        self.cuda.stub_fail(b"cuLaunchHostFunc", 1)
        torch.cuda.empty_cache()
        self.assertGreater(uvmrust.torch.stats()["held_bytes"], 0)
        torch.cuda.empty_cache()
        self.assertEqual(uvmrust.torch.stats()["held_bytes"], 0)

    def test_memory_stats_ask_this_allocator(self):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        tensor = torch.Tensor((LENGTH,))
        self.assertEqual(torch.cuda.memory_allocated(), before + LENGTH)
        self.assertEqual(torch.cuda.memory_allocated(1), 0)
        del tensor
        stats = torch.cuda.memory_stats_as_nested_dict()
        allocated = stats["allocated_bytes"]["all"]
        self.assertEqual((allocated["current"], allocated["peak"]), (before, before + LENGTH))
        self.assertEqual(stats["num_device_alloc"], stats["segment"]["all"]["allocated"])
        torch.cuda.reset_peak_memory_stats(0)
        stats = torch.cuda.memory_stats_as_nested_dict()
        self.assertEqual(stats["allocated_bytes"]["all"]["peak"], before)
        # Names that torch.cuda.memory_summary() asks for.
        for name in ("active", "inactive_split_bytes", "requested_bytes", "reserved_bytes"):
            for pool in ("all", "small_pool", "large_pool"):
                names = ["allocated", "current", "freed", "peak"]
                self.assertEqual(sorted(stats[name][pool]), names)

    def test_what_was_counted_begins_anew(self):
        tensors = [torch.Tensor((LENGTH,)) for _ in range(2)]
        before = torch.cuda.memory_stats_as_nested_dict()
        torch.cuda.reset_accumulated_memory_stats()
        del tensors[0]
        after = torch.cuda.memory_stats_as_nested_dict()
        allocated = after["allocated_bytes"]["all"]
        self.assertEqual((allocated["allocated"], allocated["freed"]), (0, LENGTH))
        self.assertEqual(allocated["current"], before["allocated_bytes"]["all"]["current"] - LENGTH)
        self.assertEqual(after["allocation"]["all"]["freed"], 1)
        self.assertEqual(after["num_device_alloc"], before["num_device_alloc"])
        self.assertIsNone(torch._current.malloc(1 << 62, 0, 0))
        self.assertEqual(torch.cuda.memory_stats_as_nested_dict()["num_ooms"], 1)
        torch.cuda.reset_accumulated_memory_stats(0)
        self.assertEqual(torch.cuda.memory_stats_as_nested_dict()["num_ooms"], 0)

    def test_the_search_for_algorithms_stays_off(self):
        # It was on when the allocator was installed.
        self.assertIs(torch.backends.cudnn.benchmark, False)
        for turn_on in (
            lambda: setattr(torch.backends.cudnn, "benchmark", True),
            lambda: torch._C._set_cudnn_benchmark(True),
        ):
            with self.assertWarnsRegex(UserWarning, "stays False"):
                turn_on()
            self.assertIs(torch.backends.cudnn.benchmark, False)
        torch.backends.cudnn.benchmark = False

    def test_the_cache_is_trimmed(self):
        torch.cuda.empty_cache()
        tensors = [torch.Tensor((16 << 20,)) for _ in range(2)]
        del tensors
        uvmrust.torch.trim(16 << 20)
        held = uvmrust.torch.stats(0)["reserved_bytes"]["current"]
        self.assertEqual(held, 16 << 20)
        uvmrust.torch.trim()
        self.assertEqual(uvmrust.torch.stats(0)["reserved_bytes"]["current"], 0)

    def test_a_graphs_pool_is_used_again_and_given_back(self):
        torch.cuda.empty_cache()
        begin, end = self.cuda.cuStreamBeginCapture_v2, self.cuda.cuStreamEndCapture
        addresses, graph = [], ctypes.c_void_p()
        for _ in range(2):
            torch._current.begin(0, 0, 5, None)
            stub.must(begin(ctypes.c_void_p(self.stream), 2))
            tensor = torch.Tensor((LENGTH,))
            addresses.append(tensor.data_ptr())
            del tensor
            stub.must(end(ctypes.c_void_p(self.stream), ctypes.byref(graph)))
            torch._current.end(0, 0, 5)
            stub.must(self.cuda.cuGraphDestroy(graph))
        self.assertEqual(addresses[0], addresses[1])
        torch.cuda.empty_cache()
        self.assertGreater(uvmrust.torch.stats()["held_bytes"], 0)
        torch._current.release(0, 0, 5)
        torch._current.release(0, 0, 5)
        torch.cuda.empty_cache()
        self.assertEqual(uvmrust.torch.stats()["held_bytes"], 0)

    def test_a_tensor_is_discarded_in_its_current_stream(self):
        tensor = torch.Tensor((2, LENGTH // 2))
        self.memory(tensor.data_ptr()).put(self.stream, 1)
        stub.log()
        self.assertIs(uvmrust.discard(tensor), EXPECT != "none")
        self.assertEqual(tensor.version, int(EXPECT != "none"))
        self.wait(self.other)
        self.assertFalse([line for line in stub.log() if line.startswith("discard")])
        self.wait(self.stream)
        eager = [line for line in stub.log() if line.startswith("discard")]
        calls = {"none": 0, "native": 2}.get(EXPECT, 1)
        self.assertEqual(eager, [f"discard eager {LENGTH}"] * calls)
        uvmrust.prefetch(tensor)
        self.wait(self.stream)
        self.assertIn(f"prefetch {LENGTH}", stub.log())

    # Elsewhere the discard becomes a node of the graph.
    @stub.only_on("cuda")
    def test_autograd_knows_what_was_done_before_the_rest_was_refused(self):
        gpu = torch.types.SimpleNamespace(type="cuda", index=1)
        for both in uvmrust.discard, uvmrust.discard_and_prefetch:
            whole = torch.Tensor((2 * LENGTH,))
            first, second = torch.Tensor((LENGTH,), base=whole), torch.Tensor((LENGTH,), base=whole, device=gpu)
            torch._streams[1], graph = self.other, ctypes.c_void_p()
            stub.must(self.cuda.cuStreamBeginCapture_v2(ctypes.c_void_p(self.other), 2))
            with self.assertRaisesRegex(uvmrust.Error, "captured"):
                both(first, second)
            stub.must(self.cuda.cuStreamEndCapture(ctypes.c_void_p(self.other), ctypes.byref(graph)))
            stub.must(self.cuda.cuGraphDestroy(graph))
            torch._streams[1] = 0
            self.assertEqual((first.version, second.version), (1, 0))

    def test_views_and_tensors_elsewhere_are_refused(self):
        tensor = torch.Tensor((2, LENGTH // 2))
        columns = torch.Tensor((2, 10), (LENGTH // 2, 1), base=tensor)
        with self.assertRaisesRegex(ValueError, "between others'"):
            uvmrust.discard(columns)
        cpu = torch.types.SimpleNamespace(type="cpu", index=None)
        with self.assertRaisesRegex(TypeError, "on a GPU"):
            uvmrust.discard(torch.Tensor((1,), base=tensor, device=cpu))
        self.assertEqual(tensor.version, 0)


class PyTorchThatFits(unittest.TestCase):
    """In processes of their own, on a GPU of 1 GiB."""

    PROGRAM = """
import sys, fake_torch as torch
sys.modules['torch'] = torch
import uvmrust.torch
uvmrust.torch.install()
import stub
stub.cuda()
torch._current.fraction(FRACTION, 0)
for size in 64, 128, 256:
    del [torch.Tensor((size << 20,))][0]
stats = uvmrust.torch.stats(0)
print(stats['short'], stats['discards'], stats['budget_bytes'] >> 20)
"""

    def said(self, fraction):
        program = self.PROGRAM.replace("FRACTION", str(fraction))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STUB_MEMORY": "1024"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, cwd=FAKE, stdout=subprocess.PIPE, check=True
        )
        return done.stdout.decode().split()

    def test_nothing_is_discarded(self):
        self.assertEqual(self.said(1.0), ["False", "0", "960"])

    def test_with_a_small_part_of_the_gpu_it_is(self):
        # Each is discarded when the next one, which is too large for it, is allocated.
        self.assertEqual(self.said(0.05), ["True", "2" if EXPECT != "none" else "0", "51"])


class PyTorchWithLazyDiscards(unittest.TestCase):
    """What the program discards lazily and then frees, on a GPU where all fits, so that the
    allocator has no reason of its own to prefetch."""

    PROGRAM = """
import ctypes, sys, fake_torch as torch
sys.modules['torch'] = torch
import uvmrust, uvmrust.torch
uvmrust.torch.install()
import stub
cuda = stub.cuda()
stream = torch._streams[0] = stub.stream(cuda)
buffer = stub.Buffer.__new__(stub.Buffer)
buffer.library, buffer.length = cuda, LENGTH
tensor = torch.Tensor((LENGTH,))
buffer.base = tensor.data_ptr()
buffer.put(stream, 1)
DISCARD
del tensor
again = torch.Tensor((LENGTH,))
assert (again.data_ptr() == buffer.base) == REUSED
buffer.base = again.data_ptr()
buffer.put(stream, 2)
stub.must(cuda.cuStreamSynchronize(ctypes.c_void_p(stream)))
assert set(buffer.words(LENGTH // 8)) == {2}
print(cuda.stub_violations(), uvmrust.torch.stats(0)['short'], uvmrust.stats()['allocator']['prefetched_bytes'])
"""

    def said(self, discard, length, reused=True):
        program = self.PROGRAM.replace("DISCARD", discard).replace("LENGTH", str(length))
        program = program.replace("REUSED", str(reused))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STUB_MEMORY": "1024"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, cwd=FAKE, stdout=subprocess.PIPE, check=True
        )
        return done.stdout.decode().split()

    def test_what_is_discarded_lazily_and_freed_is_prefetched(self):
        # The second has bytes of a block that others may have parts of.
        for length in LENGTH, 3 << 20:
            prefetched = str(length) if EXPECT != "none" else "0"
            said = self.said("uvmrust.discard(tensor, lazy=True)", length)
            self.assertEqual(said, ["0", "False", prefetched])

    # Once a prefetch has failed, the allocator gives out nothing that may be discarded. CUDA 13 does both by
    # one call, and tells nothing later.
    @stub.only_on("uvm-rust", "native")
    def test_what_may_be_discarded_is_not_given_out_after_a_failure(self):
        said = self.said(self.HALF, LENGTH, reused=False)
        self.assertEqual(said, ["0", "False", "0"])

    # CUDA may find later that it cannot prefetch, and tells nobody. Its own discard is no lazy one.
    @stub.only_on("uvm-rust", "native", "cuda")
    def test_what_a_success_may_leave_discarded_is_prefetched_too(self):
        said = self.said("uvmrust.discard_and_prefetch(tensor)", LENGTH)
        prefetched = "0" if EXPECT == "cuda" else str(LENGTH)
        self.assertEqual(said, ["0", "False", prefetched])

    # The others have no nodes of graphs that do both.
    @stub.only_on("uvm-rust", "native")
    def test_what_a_launch_may_leave_discarded_is_not_given_out_after_a_failure(self):
        said = self.said(self.LAUNCH, LENGTH, reused=False)
        self.assertEqual(said, ["0", "False", "0"])

    # The program goes on without a look at what check() says.
    LAUNCH = """
graph, launched = ctypes.c_void_p(), ctypes.c_void_p()
stub.must(cuda.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 0))
uvmrust.discard_and_prefetch(tensor)
stub.must(cuda.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)))
stub.must(cuda.cuGraphInstantiateWithFlags(ctypes.byref(launched), graph, ctypes.c_uint64(0)))
stub.must(cuda.cuGraphDestroy(graph))
cuda.stub_fail(b'UVM_MIGRATE', 1)
stub.must(cuda.cuGraphLaunch(launched, ctypes.c_void_p(stream)))
stub.must(cuda.cuStreamSynchronize(ctypes.c_void_p(stream)))
stub.must(cuda.cuGraphExecDestroy(launched))
"""

    # A call whose discard is done, and its prefetch is not, as the stream comes there.
    HALF = """
cuda.stub_fail(b'UVM_MIGRATE', 1)
uvmrust.discard_and_prefetch(tensor)
stub.must(cuda.cuStreamSynchronize(ctypes.c_void_p(stream)))
try:
    uvmrust.check()
    raise SystemExit('no error')
except uvmrust.Error:
    assert tensor.version == 1, 'autograd does not know'
"""


class PyTorchThatCanNot(unittest.TestCase):
    """What install() says; in a process of its own each, since it is done once in one."""

    def installed(self, prepare):
        program = "import sys, fake_torch as torch\nsys.modules['torch'] = torch\n"
        program += f"{prepare}\nimport uvmrust.torch\nuvmrust.torch.install()"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        # -c looks in the current folder first: not in the checkout's.
        return subprocess.run(
            [sys.executable, "-c", program], env=env, cwd=FAKE, stderr=subprocess.PIPE, text=True
        )

    def refused(self, prepare, text):
        done = self.installed(prepare)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"(?s)RuntimeError: .*{text}")

    def warns(self, prepare, text):
        done = self.installed(prepare)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, f"(?s)RuntimeWarning: .*{text}")

    def test_built_without_cuda(self):
        self.refused("torch.version.cuda = None", "built without CUDA")

    def test_in_use_already(self):
        self.refused("torch.used = True", "before\\s+anything that uses one")

    def test_too_old(self):
        self.refused("del torch._Allocator.set_record_stream_fn", "too old")

    def test_without_pools(self):
        without = "have no set_release_pool: memory of CUDA graphs stays"
        self.warns("del torch._Allocator.set_release_pool", without)

    def test_without_a_fraction(self):
        without = "no set_memory_fraction_fn: .*memory_fraction\\(\\) does nothing"
        self.warns("del torch._Allocator.set_memory_fraction_fn", without)

    def test_with_all_setters_nothing_is_missed(self):
        self.assertNotIn("RuntimeWarning", self.installed("").stderr)


def with_a_real_rmm(test):
    """Without RMM there is no test of this name, and package.rs says so."""
    return None if rmm is None else test


def rmm_stream(handle):
    """RMM's stream of a handle."""
    return rmm_stream_type(type("", (), {"__cuda_stream__": lambda self: (0, handle)})())


class Rmm(OnStub):
    def test_freed_in_another_stream(self):
        resource = uvmrust.rmm.resource()
        first, other = rmm_stream(self.stream), rmm_stream(self.other)
        address, seen = resource.allocate(LENGTH, first), (ctypes.c_uint64 * 17)()
        memory = self.memory(address)
        memory.put(self.stream, 1)
        self.wait(self.stream)
        memory.get(self.other, seen)
        resource.deallocate(address, LENGTH, other)
        self.assertEqual(resource.allocate(LENGTH, first), address)
        memory.put(self.stream, 2)
        self.wait(self.stream)
        self.wait(self.other)
        self.assertEqual(seen[1], 1)
        self.assertEqual(set(memory.words()), {2})
        resource.deallocate(address, LENGTH, first)

    def test_for_a_gpu_that_is_not_current(self):
        resource = uvmrust.rmm.resource(1)
        address = resource.allocate(LENGTH, rmm_stream(0))
        stub.use_device(self.cuda, 1)
        self.memory(address).put(0, 3)
        stub.must(self.cuda.cuCtxSynchronize())
        stub.use_device(self.cuda, 0)
        self.assertEqual(set(self.memory(address).words()), {3})
        resource.deallocate(address, LENGTH, rmm_stream(0))

    def test_no_memory(self):
        with self.assertRaisesRegex(MemoryError, "managed memory"):
            uvmrust.rmm.resource().allocate(1 << 60, rmm_stream(0))
        uvmrust.rmm.resource().deallocate(0, 10, rmm_stream(0))

    @with_a_real_rmm
    def test_a_real_rmms_own_resources_stand_on_it(self):
        """Those that need no CUDA runtime: RMM's own asks the driver for what no documentation names."""
        stream, held = rmm_stream(self.stream), uvmrust.torch.stats()["held_bytes"]
        counting = rmm.mr.StatisticsResourceAdaptor(uvmrust.rmm.resource())
        pool = rmm.mr.PoolMemoryResource(counting, initial_pool_size=16 << 20)
        address = pool.allocate(LENGTH, stream)
        self.memory(address).put(self.stream, 5)
        self.wait(self.stream)
        self.assertEqual(set(self.memory(address).words(LENGTH // 8)), {5})
        self.assertEqual(counting.allocation_counts.current_bytes, 16 << 20)
        pool.deallocate(address, LENGTH, stream)
        del pool
        gc.collect()
        counts = counting.allocation_counts
        self.assertEqual((counts.current_bytes, counts.total_count), (0, 1))
        limited = rmm.mr.LimitingResourceAdaptor(counting, LENGTH)
        with self.assertRaises(MemoryError):
            limited.allocate(LENGTH + 1, stream)
        uvmrust.torch.trim(0)
        self.assertLessEqual(uvmrust.torch.stats()["held_bytes"], held)

    @with_a_real_rmm
    def test_a_real_buffer_of_rmms(self):
        """It is in managed memory of ours, by its `__cuda_array_interface__` too."""
        stream, before = rmm_stream(self.stream), uvmrust.torch.stats()
        buffer = rmm.DeviceBuffer(size=LENGTH, stream=stream, mr=uvmrust.rmm.resource())
        memory = self.memory(buffer.ptr)
        memory.put(self.stream, 6)
        done = uvmrust.discard_and_prefetch(buffer, to=0, stream=stream)
        self.assertIs(done, EXPECT != "none")
        self.wait(self.stream)
        kept = {"none": {6}, "uvm-rust": {0, 6}}.get(EXPECT)
        if kept is not None:
            self.assertLessEqual(set(memory.words(LENGTH // 8)), kept)
        memory.put(self.stream, 7)
        self.wait(self.stream)
        self.assertEqual(set(memory.words(LENGTH // 8)), {7})
        address = buffer.ptr
        del buffer
        gc.collect()
        again = rmm.DeviceBuffer(size=LENGTH, stream=stream, mr=uvmrust.rmm.resource())
        self.assertEqual(again.ptr, address)
        after = uvmrust.torch.stats()
        counted = [after[name] - before[name] for name in ("mallocs", "reused")]
        self.assertEqual(counted[0], 2)
        self.assertGreaterEqual(counted[1], 1)

    def test_the_header_is_there(self):
        header = os.path.join(uvmrust.rmm.include(), "uvmrust_rmm.hpp")
        self.assertTrue(os.path.isfile(header), header)
        library = ctypes.CDLL(uvmrust.rmm.library())
        self.assertTrue(library.uvmrust_torch_try_malloc)


if __name__ == "__main__":
    if EXPECT is None:
        sys.exit(stub.run_each(os.path.abspath(__file__), sys.argv[1:]))
    # Last, so that a real RMM is found before; PyTorch's has another name there.
    sys.path.append(FAKE)
    import fake_torch as torch

    sys.modules["torch"] = torch
    if rmm is not None:
        from rmm.pylibrmm.stream import Stream as rmm_stream_type
    else:
        import fake_rmm

        sys.modules["rmm"] = fake_rmm
        rmm_stream_type = fake_rmm.Stream

    import uvmrust.rmm
    import uvmrust.torch

    stub.main(sys.argv[1:])
