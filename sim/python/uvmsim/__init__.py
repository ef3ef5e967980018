# SPDX-License-Identifier: GPL-2.0 OR MIT
"""uvmsim in Python: traces, runs, comparisons, plans and reports.

    import uvmsim
    trace = uvmsim.zoo("bert-large", batch=16, machine="rtx4090-host")
    for r in uvmsim.compare(trace, machine="rtx4090-host")["policies"]:
        print(r["policy"], r.get("step_s"))

Options of the program are keyword arguments with `_` for `-`:
`gpu_mem="24GB"`, `fault_latency="30us"`. Errors are `uvmsim.Error` with the
program's message. A trace is text in uvmsim's format.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile


class Error(Exception):
    """What the program said when it failed."""


def program():
    """Where the uvmsim program is."""
    beside = os.path.join(os.path.dirname(sys.executable), "uvmsim")
    found = os.environ.get("UVMSIM") or (beside if os.path.exists(beside) else shutil.which("uvmsim"))
    if not found:
        raise Error("the uvmsim program is not installed; pip install uvmsim, or set UVMSIM")
    return found


def _call(command, options, text=None):
    arguments = [program(), *command]
    for key, value in options.items():
        if value is True:
            arguments.append("--" + key.replace("_", "-"))
        elif value is not None and value is not False:
            value = ",".join(value) if isinstance(value, (list, tuple)) else str(value)
            arguments += ["--" + key.replace("_", "-"), value]
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error(done.stderr.strip())
    return done.stdout


def networks():
    """The networks of the zoo."""
    return json.loads(_call(["zoo", "--json"], {}))


def machines():
    """The machines."""
    return json.loads(_call(["machine", "--json"], {}))


def machine(name):
    """The constants of a machine, in base units."""
    return json.loads(_call(["machine", name, "--json"], {}))


def zoo(net, **options):
    """A training step of a network of the zoo, as a trace."""
    return _call(["zoo", net], options)


def run(trace, policy, **options):
    """One policy's outcome."""
    return json.loads(_call(["run", "--trace", "-", "--policy", policy, "--json"], options, trace))


def compare(trace, **options):
    """Many policies' outcomes; `report="r.html"` writes a report with plots."""
    return json.loads(_call(["compare", "--trace", "-", "--json"], options, trace))


def plan(trace, policy="best", **options):
    """The plan that a policy makes, as text."""
    return _call(["plan", "--trace", "-", "--policy", policy], options, trace)


def figures(*only, **options):
    """The papers' tables and figures beside ours: all, or those named."""
    return json.loads(_call(["figures", "--json"], {"only": only or None, **options}))["figures"]


def replay(trace, text, **options):
    """The outcome of a plan."""
    with tempfile.NamedTemporaryFile("w", suffix=".uvmplan") as file:
        file.write(text)
        file.flush()
        return json.loads(_call(["run", "--trace", "-", "--plan", file.name, "--json"], options, trace))
