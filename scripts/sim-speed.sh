#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# CPU time and memory of `uvmsim run --model g10` on the G10 artifact's own points.
#
#   sim-speed.sh [DIR]      DIR: the artifact's data (Nets/, results/); by default
#                           g10/traces in $UVM_SHARED or ../shared
#
# CPU time is user and system time of one process of one thread, reading the trace
# included, the mean of RUNS (5) runs; so a busy machine changes it little. Memory
# is the largest resident size; what starts the program takes about 14 MiB, below which
# it cannot be seen.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

dir=${1:-${UVM_SHARED:-$TOP/../shared}/g10/traces}
[ -d "$dir/Nets" ] || die "no traces in $dir; give their folder, or set UVM_SHARED"
runs=${RUNS:-5}
(cd "$TOP" && cargo build --quiet --release -p uvmsim)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 - "$TOP/target/release/uvmsim" "$dir" "$tmp" "$runs" <<'PY'
import json, os, subprocess, sys

uvmsim, traces, tmp, runs = sys.argv[1:4] + [int(sys.argv[4])]
# Network, batch, and per policy: CPU seconds and GiB of the artifact's simulator where
# somebody measured them.
points = [
    ("BERT", 256, {"base-uvm": (101, 3.52), "deepum": (104, 3.81), "flashneuron": (8.4, 0.12),
                   "g10-gds": (6.2, 0.15), "g10-host": (3.4, 0.15), "g10": (65, 3.57)}),
    ("Inceptionv3", 1536, {"base-uvm": None, "deepum": None, "g10-gds": (35.3, 0.14),
                           "g10-host": (13.3, 0.14), "g10": (544, 13.41)}),
    ("ResNet152", 1280, {"base-uvm": None, "deepum": None, "flashneuron": (13.0, 0.24),
                         "g10-gds": (71.0, 0.27), "g10-host": (63.7, 0.27), "g10": None}),
    ("ResNet152", 256, {"deepum": (166, 5.26), "g10": (84.2, 4.88)}),
]
print(f"{'':20} {'policy':12} {'CPU s':>8} {'MiB':>6} {'artifact s':>11} {'GiB':>6} {'CPU':>8} {'memory':>8}")
for net, batch, policies in points:
    trace = os.path.join(tmp, f"{net}-{batch}")
    subprocess.run([uvmsim, "import", "g10", "--traces", traces, "--net", net, "--batch", str(batch), "-o", trace],
                   check=True, stderr=subprocess.DEVNULL)
    for policy, theirs in policies.items():
        cpu, rss = 0.0, 0
        for _ in range(runs):
            p = subprocess.Popen([uvmsim, "run", "--trace", trace, "--policy", policy, "--model", "g10", "--json"],
                                 stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            if p.returncode:
                sys.exit(f"uvmsim failed on {net} {batch} {policy}")
            cpu += usage.ru_utime + usage.ru_stime
            rss = max(rss, usage.ru_maxrss)
        cpu /= runs
        mib = rss / 1024
        line = f"{net} {batch:<{19 - len(net)}} {policy:12} {cpu:8.3f} {mib:6.1f}"
        if theirs:
            s, gib = theirs
            line += f" {s:11} {gib:6.2f} {'1/' + format(s / cpu, '.0f'):>8} {'1/' + format(gib * 1024 / mib, '.0f'):>8}"
        print(line, flush=True)
PY
