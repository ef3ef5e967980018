#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM: a panic in the Rust of a module, and what becomes of the rest. Prints TAP.
#   panic.sh MODULE      the path of uvm_rust_panic.ko
set -u
module=$1 file=/sys/kernel/debug/uvm_rust_panic
n=0 bad=0
# The guest has the host's /tmp, where anything may lie.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME COMMAND...
check() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$work/said" 2>&1; then echo "ok $n - $name"; else
		echo "not ok $n - $name"
		sed 's/^/# /' "$work/said" | tail -n 20
		bad=1
	fi
}
since() { dmesg | sed -n '/uvm_rust_panic: looking up the square of 7$/,$p' >"$work/log"; }
says() { grep -E "$1" "$work/log" || { cat "$work/log"; false; }; }
square_of_two() { echo 2 >$file && [ "$(cat $file)" = 4 ]; }
# A shell of its own, as it does not come back.
writer_dies() { ! bash -c "echo 7 >$file"; }

# Without this the project's own kernel stops at the first oops, so that no test misses it.
echo 0 >/proc/sys/kernel/panic_on_oops
check "the module loads" insmod "$module"
check "Rust answers what it can" square_of_two
check "whoever makes it panic dies" writer_dies
since
check "the log has the place and the reason" says 'panicked at .*panic\.rs:[0-9]+|index out of bounds: the len is 3 but the index is 7'
check "the reason is whole" says 'index out of bounds: the len is 3 but the index is 7'
check "the kernel calls it a bug" says 'kernel BUG at |invalid opcode'
check "the trace names function and module" says '(set_number|uvm_rust_panic_square)\+0x[0-9a-f]+/0x[0-9a-f]+ \[uvm_rust_panic\]'
check "and so does the list of modules" says 'Modules linked in: .*uvm_rust_panic'
check "others go on: a kselftest on the driver" out/kselftest/uvm_basic
check "others go on: the module still answers" square_of_two
echo "1..$n"
exit $bad
