# SPDX-License-Identifier: GPL-2.0 OR MIT
# Sourced by upstream-bugs.sh and test-parts.sh: the bugs of docs/fixes.md that a test shows.
# shellcheck shell=bash disable=SC2034

# Each bug, by the name of its switch (uvm_rust_fix_NAME), how long its test may take, in seconds
# (on two idle cores it takes a tenth), and the test of hazards that shows it.
bugs=(
	"strays|60|mremap() moved is evicted"
	"nobody|60|where managed memory is now"
	"held|300|reads while it is evicted"
	"pfns|300|reads while it is evicted"
	"copies|60|held: a copy to the host that fails"
	"in_vain|60|held: what an eviction got in vain"
	"notifier|60|notifier"
	"cpu_fault|60|while its GPU goes"
	"duplicates|60|two copies"
	"context|60|somebody holds"
	"lazy|60|freed before its GPU goes"
)
