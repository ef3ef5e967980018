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
		UVMRUST_RECORD_FAULTS=\$faults \$bin/uvmrun --record $out/\$faults.uvmtrace -- \$bin/uvm-dnn reaches
		\$bin/uvmsim plan --trace $out/\$faults.uvmtrace --gpu-mem 32MiB -o $out/\$faults.uvmplan
	done"
for want in "0.uvmtrace:^tensor 0 weight 2097152 alloc0$" "0.uvmtrace:^kernel 0 [0-9]* gather 0 0 -$" \
	"0.uvmtrace:^meta faults tools, of 0 of 2 kernels$" "0.uvmplan:^tensor 0 alloc0$" \
	"1.uvmtrace:^tensor 1 weight 4194304 alloc1$" "1.uvmtrace:^kernel 0 [0-9]* gather 0,1 0,1 -$" \
	"1.uvmtrace:^kernel 1 [0-9]* scale 2 2 -$" "1.uvmtrace:^meta faults tools, of 2 of 2 kernels$" \
	"1.uvmplan:^tensor 1 alloc1$"; do
	grep -q "${want#*:}" "$out/${want%%:*}" || die "${want%%:*}: there is no line ${want#*:}"
done
for file in 0.uvmtrace 0.uvmplan; do
	if grep ' alloc1$' "$out/$file"; then die "$file: without faults there is memory that is no argument's"; fi
done
say "what a kernel faults on is recorded and planned"
