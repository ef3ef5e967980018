#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# The demo: boot the VM once per variant, run managed memory of half to twice the
# GPU's on it, and put the counts side by side, in out/demo.json too.
#
#   demo.sh [VARIANT]...       default: upstream rust
#
# Environment: as for scripts/vm.sh; VIDMEM is 128M unless set. SIZES: times of
# the GPU's memory ("0.5 1 1.5 2").
set -euo pipefail
TOP=$(cd "$(dirname "$0")/../.." && pwd)
cd "$TOP"
[ $# -gt 0 ] || set -- upstream rust
export VIDMEM=${VIDMEM:-128M} VM_TIMEOUT=${VM_TIMEOUT:-1800}

cargo build --quiet --release -p uvm-suite --bin demo
bin=${CARGO_TARGET_DIR:-target}/release/demo
mkdir -p out
sizes=()
for size in ${SIZES:-0.5 1 1.5 2}; do sizes+=(--size "$size"); done

files=()
for variant in "$@"; do
	echo "==> $variant, a GPU of $VIDMEM" >&2
	file=out/demo-$variant.jsonl
	rm -f "$file"
	# The guest writes through to our files; its output shows the progress.
	DRIVER=$variant scripts/vm.sh "$bin --variant $variant ${sizes[*]} >$file" >&2
	files+=("$file")
done
exec "$bin" --compare "${files[@]}" --out out/demo.json
