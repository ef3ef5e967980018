#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Is an object of Rust's hardened as the kernel's C is? Called by driver.sh, where Rust is compiled
# by flags that we make of C's (src/uvm_rust/kernel/build/rust.mk): one that goes missing makes no
# error anywhere else.
#
#   rust-object.sh OBJECT COMMAND [FRAME]
#
# COMMAND is a file with the command by which a file of C was compiled for the same module, as kbuild
# keeps it (.NAME.o.cmd): its flags say what is asked. FRAME is how large a function's stack frame
# may be (CONFIG_FRAME_WARN; 0, and nothing: as large as it likes).
#
# Prints a line for each function in which something is missing. Exit status: 1 if there is one.
set -eu
object=$1 flags=" $(head -n 1 "$2") " frame=${3:-0}

# has FLAG...: 1, if C was compiled with one of these.
has() {
	for flag; do case $flags in *" $flag "*) echo 1; return ;; esac; done
	echo 0
}
padding=$(printf '%s\n' "$flags" | sed -n 's/.* -fpatchable-function-entry=[0-9]*,\([0-9]*\) .*/\1/p')

{
	readelf -sW "$object" | awk '$4 == "FUNC" && $7 != "UND" { print "function", $5, $8 }'
	objdump -d --no-show-raw-insn "$object"
} | awk -v object="$(basename "$object")" -v frame="${frame:-0}" -v padding="${padding:-0}" \
	-v branch_tracking="$(has -fcf-protection=branch -fcf-protection=full -fcf-protection)" \
	-v no_return="$(has -mfunction-return=thunk-extern)" \
	-v no_indirect="$(has -mindirect-branch=thunk-extern -mretpoline-external-thunk)" '
	function number(hex,    i, n) {
		n = 0
		for (i = 1; i <= length(hex); i++)
			n = 16 * n + index("0123456789abcdef", substr(hex, i, 1)) - 1
		return n
	}
	function say(what) {
		if (!((name, what) in said))
			print object ": " name ": " what
		said[name, what] = bad = 1
	}
	$1 == "function" { binding[$3] = $2; next }
	/^Disassembly of section/ { split("", starts); nops = -1; next }
	# A function begins; or what is none, as the room in front of one.
	/^[0-9a-f]+ <.*>:$/ {
		label = substr($2, 2, length($2) - 3)
		if (!(label in binding) || label ~ /^__(pfx|cfi)_/)
			next
		name = label
		at = number($1)
		functions++
		if (padding && (nops < 0 || !(at - padding in starts) || at - padding < nops))
			say("there is no room of " padding " bytes in front of it (-fpatchable-function-entry)")
		first = branch_tracking && binding[name] != "LOCAL"
		next
	}
	!/^ *[0-9a-f]+:\t/ { next }
	{
		at = $1
		sub(/:$/, "", at)
		at = number(at)
		instruction = $0
		sub(/^[^\t]*\t/, "", instruction)
		starts[at] = 1
		if (instruction !~ /^((data16|cs|rex\.W) )*(nop[wlq]?|xchg +%ax,%ax)( |$)/)
			nops = -1
		else if (nops < 0)
			nops = at
		if (first && instruction !~ /^endbr64/)
			say("it does not begin with endbr64 (-fcf-protection=branch)")
		first = 0
		if (instruction ~ /%([xyz]mm|mm|st)/)
			say("it uses registers of floating point")
		if (no_return && instruction ~ /^([a-z]+ )*l?ret[lq]?( |$)/)
			say("it returns other than by the thunk (-mfunction-return=thunk-extern)")
		if (no_indirect && instruction ~ /^([a-z]+ )*(jmp|call)q? +\*/)
			say("it jumps other than by a thunk (-mindirect-branch=thunk-extern)")
		if (branch_tracking && instruction ~ /notrack/)
			say("it jumps to where no endbr64 is (-fno-jump-tables)")
		if (frame > 0 && match(instruction, /^(subq? +\$0x[0-9a-f]+,%rsp|leaq? +-0x[0-9a-f]+\(%rsp\),)/)) {
			size = instruction
			sub(/^[^x]*x/, "", size)
			sub(/[^0-9a-f].*/, "", size)
			if (number(size) > frame)
				say("its stack frame has " number(size) " bytes, and may have " frame " (CONFIG_FRAME_WARN)")
		}
	}
	END {
		if (!functions) {
			print object ": there is no function in it"
			bad = 1
		}
		exit bad
	}'
