#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# A program whose kernel reaches memory by a pointer that lies in memory, in the VM: uvmrun records it
# with the driver's own knowledge of faults and without, and uvmsim plans both. Fails unless the
# record with faults alone has that memory, for the kernel that reaches it alone, and its plan too.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
out=out/record-faults
rm -rf "$out"
mkdir -p "$out"

cargo build --release --quiet -p uvm-dnn -p uvmrun -p uvmrust-preload -p uvmsim
UVM_PARAMS="uvm_perf_prefetch_enable=0 ${UVM_PARAMS:-}" DRIVER=rust VIDMEM=${VIDMEM:-64M} VM_TIMEOUT=${VM_TIMEOUT:-900} \
	scripts/vm.sh "
	set -e
	bin=target/release
	for faults in 0 1; do
		UVMRUST_RECORD_FAULTS=\$faults \$bin/uvmrun --record $out/\$faults.uvmtrace -- \$bin/uvm-dnn reaches >/dev/null
		\$bin/uvmsim plan --trace $out/\$faults.uvmtrace --gpu-mem 32MiB -o $out/\$faults.uvmplan
	done"
for file in "$out/0.uvmtrace" "$out/0.uvmplan"; do
	grep -q ' alloc1$' "$file" && die "$file: without faults there is memory that is no argument's"
done
for line in "$out/1.uvmtrace:^tensor 1 weight 14680064 alloc1$" "$out/1.uvmtrace:^kernel 0 [0-9]* gather 0,1 0,1 -$" \
	"$out/1.uvmtrace:^kernel 1 [0-9]* scale 2 2 -$" "$out/1.uvmplan:^tensor 1 alloc1$"; do
	grep -q "${line#*:}" "${line%%:*}" || die "${line%%:*}: there is no line ${line#*:}"
done
say "what a kernel faults on is recorded and planned"
