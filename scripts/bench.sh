#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Guest instructions per serviced fault, evicted chunk, discard and queue operation,
# the unmodified driver against ours (from 580 on also its own discard against ours), in one VM under -icount. Prints a table, and another
# of the bars that the rows are held against, and writes out/bench.json.
#
#   bench.sh [TEXT]    only rows whose name holds TEXT
#   BARS=1 bench.sh    fails if a bar is missed, or its row was not measured
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out

cargo build --release --quiet -p uvm-bench
tree=$(scripts/upstream.sh)
facts=$(scripts/base.sh "$tree")
native=()
if grep -qx native_discard <<<"$facts"; then native=(--native); fi
bench=$TOP/target/release/uvm-bench
# For the SSD tier's rows.
image=$(mktemp "${TMPDIR:-/tmp}/uvm-rust-bench.XXXXXX")
trap 'rm -f "$image"' EXIT
truncate -s 128M "$image"
say "measuring in the VM, both drivers in turn (about 10 minutes)"
# Replays are sent after each batch and not waited for (policy 1): what the bottom half
# spins until the software GPU has gone on says nothing of the driver, and is more than
# half of what it spends under the default policy. Turn by turn, so that none has the
# warmer machine.
QEMU_OPTS="-drive file=$image,if=none,id=ssd,format=raw,cache=unsafe -device nvme,serial=ssd,drive=ssd" \
	RELEASE=1 ICOUNT=1 NOLOAD=1 VIDMEM=${VIDMEM:-256M} VM_TIMEOUT=${VM_TIMEOUT:-3000} scripts/vm.sh "
	set -e
	UVM_ARGS=\"\$UVM_ARGS uvm_perf_fault_replay_policy=1\"
	export BENCH_DEVICE=/dev/nvme0n1
	for driver in upstream rust rust-c-loop rust-flash rust-flash rust-c-loop rust upstream; do
		args=\$UVM_ARGS
		case \$driver in
		rust-c-loop) args=\"\$args uvm_rust_fault=0 uvm_rust_stats=0\" ;;
		rust-flash) args=\"\$args uvm_rust_flash=1\" ;;
		esac
		UVM_ARGS=\$args bash scripts/vm-load.sh \${driver%%-*}
		$bench measure \$driver ${1:-}
		bash scripts/vm-load.sh unload >&2
	done
	case fault/ in *${1:-fault}*) ;; *) exit ;; esac
	for batch in 1 16 256; do
		for driver in upstream rust; do
			UVM_ARGS=\"\$UVM_ARGS uvm_perf_prefetch_enable=0 uvm_perf_fault_batch_count=\$batch\" bash scripts/vm-load.sh \$driver
			$bench faults \$driver \$batch
			bash scripts/vm-load.sh unload >&2
		done
	done" >out/bench.tsv
strict=()
[ -z "${BARS:-}" ] || strict=(--bars)
"$bench" report out/bench.tsv --json out/bench.json "${strict[@]}" "${native[@]}"
say "written to out/bench.json"

# What the software GPU itself costs, which is in none of these rows.
if [ -z "${1:-}" ] && have valgrind; then scripts/vgpu-cost.sh | tee out/vgpu-cost.txt; fi
