# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Where the compiled library and the C++ header are."""

import os

from . import _native


def path():
    """The library, which exports the C functions of the allocator (`uvmrust_torch_*`)."""
    return _native.__file__


def include():
    """The folder of `uvmrust_rmm.hpp`."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")
