#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Tests which changes make test.sh run a lane again (scripts/test-inputs.sh), in a small tree
# that is made up. Prints TAP.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../../scripts/lib.sh"
. "$TOP/scripts/test-inputs.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/uvm-rust-inputs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
n=0 bad=0

files=(
	Kbuild Cargo.toml Cargo.lock include/uapi/vgpu.h scripts/vm.sh scripts/test.sh scripts/modules.sh scripts/new.sh
	src/nvidia-uvm-c/base/uvm_rust_seam.c src/uvm_rust/policy/evict.rs src/uvm_rust/policy/evict/tests.rs
	tests/vgpu/core/gpu.rs tests/vgpu/core/host/tests.rs tests/vgpu/core/examples/cost.rs tests/kselftest/uvm_basic.c
	tests/suite/src/rig.rs tests/suite/src/bin/ladder/main.rs tests/suite/src/bin/loops.rs tests/suite/tests/this.rs
	tests/dnn/src/main.rs tests/workloads/src/main.rs userlib/uvmrust/src/lib.rs sim/zoo/src/lib.rs sim/plan/src/lib.rs
	userlib/uvmrust/tests/fork.rs userlib/uvmrust/src/backend/tests.rs sim/cli/tests/cli.rs
)
for f in "${files[@]}"; do
	mkdir -p "$(dirname "$f")"
	echo "$f" >"$f"
done
# shellcheck disable=SC2317
loops() { echo "suite/loops"; }
printf '[workspace]\nmembers = [\n\t"tests/suite",\n]\n[profile.release]\ndebug = 1\n' >Cargo.toml

# again YES|NO FILE COMMAND...: does another FILE run the lane COMMAND again?
again() {
	local want=$1 file=$2 before after got=NO
	shift 2
	before=$(inputs "$@")
	echo changed >>"$file"
	after=$(inputs "$@")
	[ "$before" = "$after" ] || got=YES
	n=$((n + 1))
	if [ "$got" = "$want" ]; then
		echo "ok $n - $file, $*: $want"
	else
		echo "not ok $n - $file, $*: $got"
		bad=1
	fi
}

for f in Kbuild Cargo.lock include/uapi/vgpu.h scripts/vm.sh scripts/new.sh src/nvidia-uvm-c/base/uvm_rust_seam.c \
	src/uvm_rust/policy/evict.rs tests/vgpu/core/gpu.rs tests/suite/src/rig.rs; do
	again YES $f vm -- target/release/ladder
done
again YES tests/suite/src/bin/ladder/main.rs vm -- target/release/ladder
again NO tests/suite/src/bin/ladder/main.rs vm -- target/release/random
again YES tests/suite/src/bin/loops.rs loops
for f in scripts/test.sh scripts/modules.sh src/uvm_rust/policy/evict/tests.rs tests/vgpu/core/host/tests.rs tests/vgpu/core/examples/cost.rs \
	tests/dnn/src/main.rs tests/suite/tests/this.rs tests/workloads/src/main.rs userlib/uvmrust/src/lib.rs sim/zoo/src/lib.rs; do
	again NO $f vm -- target/release/ladder
done
again YES userlib/uvmrust/src/lib.rs vm -- target/release/library
again YES sim/plan/src/lib.rs vm -- target/release/library
for f in userlib/uvmrust/tests/fork.rs userlib/uvmrust/src/backend/tests.rs; do again NO $f vm -- target/release/library; done
again NO sim/cli/tests/cli.rs vm -- target/release/uvm-dnn run deepum
again YES userlib/uvmrust/src/lib.rs vm -- make -C tests/kselftest run
again YES sim/zoo/src/lib.rs vm -- target/release/uvm-dnn run deepum
for f in tests/dnn/src/main.rs userlib/uvmrust/src/lib.rs sim/zoo/src/lib.rs; do again YES $f scripts/record-demo.sh; done
again YES tests/workloads/src/main.rs vm -- target/release/workloads
# differs WHAT KEY: from the one before.
differs() {
	n=$((n + 1))
	if [ "$before" != "$2" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; bad=1; fi
}
again YES Cargo.toml vm -- target/release/ladder
before=$(inputs loops)
sed -i 's|^members = .*|&\n\t"userlib/new",|' Cargo.toml
n=$((n + 1))
if [ "$before" = "$(inputs loops)" ]; then echo "ok $n - a new member of the workspace"
else echo "not ok $n - a new member of the workspace"; bad=1; fi
before=$(inputs loops)
# shellcheck disable=SC2317
loops() { echo "suite/loops --otherwise"; }
differs "a lane that is a function, and does something else" "$(inputs loops)"
before=$(inputs loops)
differs "another setting" "$(UVM_PARAMS='uvm_rust_evict=0' inputs loops)"
for order in VGPU_ORDER=kind VGPU_ORDER=adversarial VGPU_SEED=2; do
	# shellcheck disable=SC2163
	differs "the software GPU's $order" "$(export "$order" && inputs loops)"
done
before=$(VGPU_ORDER=adversarial inputs loops)
differs "a seed that is drawn" "$(VGPU_ORDER=adversarial inputs loops)"
# The source of the project's own kernel, which not every lane runs on.
# shellcheck disable=SC2317
dpkg-query() { echo "$source"; }
source=none
before=$(inputs loops) stock=$(KERNEL=stock inputs loops)
source=6.12.117
differs "another kernel's source" "$(inputs loops)"
n=$((n + 1))
if [ "$stock" = "$(KERNEL=stock inputs loops)" ]; then echo "ok $n - but not on the kernel of a distribution"
else echo "not ok $n - but not on the kernel of a distribution"; bad=1; fi
echo "1..$n"
exit $bad
