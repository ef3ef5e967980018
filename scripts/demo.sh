#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# A managed-memory program at 0.5 to 2 times the GPU's memory, on the unmodified
# driver and on ours: a table, and out/demo.json. Fails unless every byte was
# right and the two agree.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out
drivers=(upstream rust)
vidmem=${VIDMEM:-64M}
# As among the tests: the modules report what they leave behind.
export VM_UNLOAD=1

# demo DRIVER: a VM keeps about one core busy, so the two run side by side. What either says has its
# name in front, but for the lines of TAP on what is left when it unloads.
demo() {
	DRIVER=$1 VIDMEM=$vidmem VM_TIMEOUT=${VM_TIMEOUT:-1200} scripts/vm.sh "target/release/demo --variant $1" \
		2>&1 >"out/demo.$1.jsonl" | sed -u -E "/^(ok |not ok |1\.\.)/! s|^|$1: |" | tee "out/demo.$1.log" >&2
}

cargo build --release --quiet -p uvm-suite
# Both VMs want the same modules, and neither should wait for the other to look for them. Whoever has
# built them already says where they are.
alone=
if ! just_built; then
	alone=1
	export UVM_BUILT=$TOP/out/demo.built
	list_built "${drivers[@]}" vgpu
fi
say "both drivers in a VM each, at 0.5, 1, 1.5 and 2 times the $vidmem of a GPU's memory"
declare -A vm
for driver in "${drivers[@]}"; do
	demo "$driver" &
	vm[$driver]=$!
done
trap 'for driver in "${drivers[@]}"; do kill_tree "${vm[$driver]}"; done; exit 130' INT TERM
failed=()
for driver in "${drivers[@]}"; do wait "${vm[$driver]}" || failed+=("$driver"); done
[ ${#failed[@]} = 0 ] || die "the demo failed on the driver: ${failed[*]} (out/demo.DRIVER.jsonl has what it said)"
target/release/demo --compare out/demo.upstream.jsonl out/demo.rust.jsonl --out out/demo.json
say "written to out/demo.json"
# Among the tests it need not run again, if nothing changes. As one of the tests it is remembered by who runs these,
# who knows whether something changed meanwhile.
if [ -n "$alone" ] && [ -z "${UVM_RUST_XTASK:-}" ]; then
	cat out/demo.{upstream,rust}.log >out/demo.tap
	scripts/test.sh demo-ran out/demo.tap >/dev/null || :
fi
