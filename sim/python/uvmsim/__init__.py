# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""uvmsim in Python: traces, runs, comparisons, plans and reports.

    import uvmsim
    trace = uvmsim.zoo("bert-large", batch=16, machine="rtx4090-host")
    for r in uvmsim.compare(trace, machine="rtx4090-host")["policies"]:
        print(r["policy"], r.get("step_s"))

In a notebook, the last line of a cell shows what it gives:

    uvmsim.report(trace, machine="rtx4090-host")                    # the page with all plots
    uvmsim.plots(trace, policies="best,deepum")["best-memory"]      # one of them

Options of the program are keyword arguments with `_` for `-`:
`gpu_mem="24GB"`, `fault_latency="30us"`. Errors are `uvmsim.Error` with the
program's message. A trace is text in uvmsim's format.
"""

import html
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
    """The machines that uvmsim knows: of each its name, what it is, and the source of its constants."""
    return json.loads(_call(["machine", "--json"], {}))


def machine(name):
    """The constants of a machine, in base units."""
    return json.loads(_call(["machine", name, "--json"], {}))


def zoo(net=None, **options):
    """A training step as a trace: of a network of the zoo, or of `config="config.json"`, as Hugging Face's models have it."""
    return _call(["zoo", *([net] if net else [])], options)


def advise(model, **options):
    """What of a model's step fits, which batch fits whole, and what each policy makes of it."""
    return json.loads(_call(["advise", model, "--json"], options))


def run(trace, policy, **options):
    """The outcome of a trace under one policy, as a dictionary."""
    return json.loads(_call(["run", "--trace", "-", "--policy", policy, "--json"], options, trace))


def compare(trace, **options):
    """Many policies' outcomes; `report="r.html"` writes a report with plots."""
    return json.loads(_call(["compare", "--trace", "-", "--json"], options, trace))


class Report:
    """A report as one HTML page, which a notebook shows."""

    def __init__(self, page):
        self.page = page

    def save(self, path):
        """Writes the page to `path`."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page)

    def _repr_html_(self):
        # A frame: the page's style must not reach the notebook's.
        return f'<iframe srcdoc="{html.escape(self.page)}" style="width:100%;height:900px;border:0"></iframe>'


class Plot:
    """A plot as SVG, which a notebook shows."""

    def __init__(self, svg):
        self.svg = svg

    def _repr_svg_(self):
        return self.svg


def report(trace, **options):
    """Many policies' outcomes as a page with plots."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.html")
        compare(trace, report=path, **options)
        with open(path, encoding="utf-8") as file:
            return Report(file.read())


def plots(trace, **options):
    """The report's plots by name: times, traffic, lifetimes, and POLICY-memory, -links, -stalls."""
    with tempfile.TemporaryDirectory() as folder:
        compare(trace, svg=folder, **options)
        out = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                out[name.removesuffix(".svg")] = Plot(file.read())
        return out


def import_g10(traces, net, batch):
    """A network of the G10 artifact, whose files are in the folder `traces`."""
    return _call(["import", "g10"], {"traces": traces, "net": net, "batch": batch})


def info(trace):
    """What is in a trace: kernels, tensors, bytes by kind, peak."""
    return json.loads(_call(["trace", "-", "--json"], {}, trace))


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
