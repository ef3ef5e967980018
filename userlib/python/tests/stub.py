# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The stub of CUDA and of the UVM driver (userlib/tests/stub) for tests in Python.

`run_each(file, arguments)` runs a test file again for each driver, with the stub
preloaded; in there, `cuda()` is the stub, and `Buffer` managed memory of it.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..", "..")

# (what uvmrust.backend() is to be, the UVM driver, flags of the stub: CUDA 13 or before)
DRIVERS = [
    ("uvm-rust", "ours", "-DSTUB_NO_DISCARD"),
    ("native", "native", "-DSTUB_NO_DISCARD"),
    ("cuda", "old", "-DSTUB"),
    ("none", "old", "-DSTUB_NO_DISCARD"),
]


def only_on(*backends):
    """A test of these drivers; on the others there is none of its name."""
    return lambda test: test if os.environ.get("UVMRUST_EXPECT") in backends else None


class _Result(unittest.TextTestResult):
    """Says of each test that is skipped why, in a line that is counted (tests/skipped.rs)."""

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"\nskipped: {test.id()} # {reason}", flush=True)


def main(arguments):
    """Runs the tests of the file that was started, or those that the arguments name."""
    runner = unittest.TextTestRunner(resultclass=_Result)
    names = [a for a in arguments if a != "--installed"]
    unittest.main("__main__", argv=[sys.argv[0], *names], testRunner=runner)


def build(folder, flag):
    """libcuda.so.1 in a folder."""
    library = os.path.join(folder, "libcuda.so.1")
    sources = ["batches", "device", "events", "graphs", "green", "mappings", "memory", "streams", "tools"]
    subprocess.run(
        ["cc", "-O1", "-g", "-shared", "-fPIC", "-fvisibility=hidden", flag]
        + ["-Wl,-Bsymbolic,-soname,libcuda.so.1", "-I", os.path.join(TOP, "include/uapi")]
        + [os.path.join(TOP, "userlib/tests/stub", name + ".c") for name in sources]
        + ["-o", library],
        check=True,
    )
    return library


def environment(folder, driver, library, **more):
    """The environment of a process on the stub."""
    log = os.path.join(folder, "log")
    open(log, "w", encoding="utf-8").close()
    return {
        **os.environ,
        "LD_PRELOAD": library,
        "STUB_UVM": driver,
        "STUB_LOG": log,
        "UVMRUST_FD": "900",
        **more,
    }


def run_each(file, arguments):
    """Runs `file` on each driver; the exit status, or a reason printed if that cannot be."""
    if not shutil.which("cc"):
        print(f"skipped: {os.path.basename(file)} # no C compiler for the stub")
        return 0
    failed = []
    for backend, driver, flag in DRIVERS:
        with tempfile.TemporaryDirectory() as folder:
            env = environment(folder, driver, build(folder, flag), UVMRUST_EXPECT=backend)
            print(f"on {backend}:", flush=True)
            if subprocess.run([sys.executable, file, *arguments], env=env).returncode:
                failed.append(backend)
    if failed:
        print("failed on", ", ".join(failed))
    return bool(failed)


def log():
    """What the stub has done since this was last asked, a list of lines."""
    with open(os.environ["STUB_LOG"], "r+", encoding="utf-8") as file:
        lines = file.read().splitlines()
        file.truncate(0)
    return lines


def cuda():
    """The stub, initialised, with the first GPU current."""
    library = ctypes.CDLL("libcuda.so.1")
    must(library.cuInit(0))
    use_device(library, 0)
    return library


def must(code):
    """Raises for what is no success."""
    if code:
        raise AssertionError(f"the stub gives {code}")


def use_device(library, device):
    """Makes a GPU current."""
    context = ctypes.c_void_p()
    must(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    must(library.cuCtxSetCurrent(context))


def stream(library):
    """A new stream of the current GPU that does not wait for the default stream: its handle."""
    made = ctypes.c_void_p()
    must(library.cuStreamCreate(ctypes.byref(made), 1))
    return made.value


# The stub's kernels, by name: kept, since they run later.
_PUT = ctypes.pointer(ctypes.c_char_p(b"put"))
_GET = ctypes.pointer(ctypes.c_char_p(b"get"))


class Buffer:
    """Managed memory. `view(...)` gives an array in it."""

    def __init__(self, library, length):
        base = ctypes.c_uint64()
        must(library.cuMemAllocManaged(ctypes.byref(base), ctypes.c_size_t(length), 1))
        self.library, self.base, self.length = library, base.value, length

    def put(self, handle, value):
        """A kernel that writes a word everywhere, in a stream."""
        self._launch(_PUT, handle, value)

    def get(self, handle, seen):
        """A kernel that reads, in a stream: `seen`, 17 words, will have how often it has run
        in its first 32 bits, and what it saw in the words behind."""
        self._launch(_GET, handle, ctypes.addressof(seen))

    def _launch(self, kernel, handle, number):
        words = [ctypes.c_uint64(v) for v in (self.base, self.length, number)]
        params = (ctypes.c_void_p * 3)(*(ctypes.addressof(w) for w in words))
        must(
            self.library.cuLaunchKernel(
                kernel, 1, 1, 1, 1, 1, 1, 0, ctypes.c_void_p(handle), params, None
            )
        )

    def words(self, count=512):
        """The first words, as they are now."""
        return list((ctypes.c_uint64 * count).from_address(self.base))

    def view(self, shape=None, typestr="|u1", offset=0, **more):
        """An object with `__cuda_array_interface__`."""
        interface = {
            "shape": (self.length,) if shape is None else shape,
            "typestr": typestr,
            "data": (self.base + offset, False),
            "version": 3,
            **more,
        }
        return type("Array", (), {"__cuda_array_interface__": interface})()
