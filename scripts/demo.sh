#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# A managed-memory program at 0.5 to 2 times the GPU's memory, on the unmodified
# driver and on ours: a table, and out/demo.json. Fails unless every byte was
# right and the two agree.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out

cargo build --release --quiet -p uvm-suite
for driver in upstream rust; do
	say "the $driver driver in the VM, at 0.5, 1, 1.5 and 2 times the GPU's memory"
	DRIVER=$driver VIDMEM=${VIDMEM:-128M} VM_TIMEOUT=${VM_TIMEOUT:-1200} \
		scripts/vm.sh "target/release/demo --variant $driver" >"out/demo.$driver.jsonl"
done
target/release/demo --compare out/demo.upstream.jsonl out/demo.rust.jsonl --out out/demo.json
say "written to out/demo.json"
