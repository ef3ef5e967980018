# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by driver.sh, the test: what scripts/driver-checks.sh and scripts/rust-object.sh say of a
# module that could be built. Functions are called by others that take them as arguments.
# Registers and numbers of assembly have dollars in front.
# shellcheck disable=SC2016,SC2154,SC2317

# --- how an object of Rust's is hardened -----------------------------------
all_flags='-fcf-protection=branch -fpatchable-function-entry=16,16 -mfunction-return=thunk-extern -mindirect-branch=thunk-extern'
room='.fill 16, 1, 0x90'
good='endbr64; call __x86_indirect_thunk_rax; jmp __x86_return_thunk; int3'

# assemble ROOM LINE: an object with a function for C that consists of that, and one that C does not see.
assemble() {
	printf '%s\n' .text '.type inner, @function' '.p2align 4' '.fill 16, 1, 0x90' 'inner: nop' 'jmp __x86_return_thunk' 'int3' \
		.globl\ outer '.type outer, @function' '.p2align 4' ".Ltmp0: $1" "outer: $2" >"$work/object.s"
	"$real_cc" -c "$work/object.s" -o "$work/object.o"
}

# each FUNCTION ARGUMENT...: does it succeed for each?
each() {
	local function=$1 argument
	shift
	for argument; do "$function" "$argument" || return; done
}

# hardened FLAGS [FRAME]: what is said of it, beside C that was compiled with these.
hardened() {
	printf 'savedcmd_main.o := gcc-12 %s -c -o main.o main.c\n\nsource_main.o := main.c\n' "$1" >"$work/.main.o.cmd"
	"$top/scripts/rust-object.sh" "$work/object.o" "$work/.main.o.cmd" "${2:-}" >"$work/said" 2>&1
}

# refused WHAT FLAG LINE [ROOM]: with all flags there is one complaint, of outer, and without that FLAG none.
refused() {
	assemble "${4-$room}" "$3"
	! hardened "$all_flags" 2048 && [ "$(cat "$work/said")" = "object.o: outer: $1" ] && hardened "${all_flags//$2/-O2}" 2048
}

assemble "$room" "$good" && hardened "$all_flags" 2048
check "an object that is hardened as C is taken"
refused "it does not begin with endbr64 (-fcf-protection=branch)" -fcf-protection=branch 'nop; jmp __x86_return_thunk'
check "a function that C may call by its address is marked so"
assemble "$room" 'endbr64; notrack jmp *foo(,%rax,8)' && hardened -fno-jump-tables &&
	! hardened -fcf-protection=branch && [ "$(cat "$work/said")" = "object.o: outer: it jumps to where no endbr64 is (-fno-jump-tables)" ]
check "and so is whatever else is jumped to"
no_room() { refused "there is no room of 16 bytes in front of it (-fpatchable-function-entry)" -fpatchable-function-entry=16,16 "$good" "$1"; }
each no_room '' '.fill 15, 1, 0x90' '.fill 16, 1, 0xcc' '.fill 15, 1, 0x90; int3'
check "there is room in front of each"
assemble '.p2align 5; .nops 16' "$good" && hardened "$all_flags"
check "of whatever nothing"
returns() { refused "it returns other than by the thunk (-mfunction-return=thunk-extern)" -mfunction-return=thunk-extern "endbr64; $1; int3; $1"; }
each returns ret 'rep ret' 'ret $8'
check "each returns by the thunk"
jumps() { refused "it jumps other than by a thunk (-mindirect-branch=thunk-extern)" -mindirect-branch=thunk-extern "endbr64; $1; $1"; }
each jumps 'jmp *%rax' 'call *8(%rax)' 'bnd call *%r11' 'jmp *foo(,%rax,8)'
check "and jumps by one"
assemble "$room" 'endbr64; call *%rax' && ! hardened -mretpoline-external-thunk && hardened -O2
check "as clang calls it"
computes() {
	assemble "$room" "endbr64; $1; $1; jmp __x86_return_thunk"
	! hardened -O2 && [ "$(cat "$work/said")" = "object.o: outer: it uses registers of floating point" ]
}
each computes 'movaps %xmm0, (%rsp)' 'vaddps %ymm1, %ymm2, %ymm3' 'movq %mm0, %rax' 'fadd %st(1), %st'
check "the kernel's registers are all that there are"
large() {
	assemble "$room" "endbr64; $1; jmp __x86_return_thunk"
	! hardened "$all_flags" 2048 &&
		[ "$(cat "$work/said")" = "object.o: outer: its stack frame has 2056 bytes, and may have 2048 (CONFIG_FRAME_WARN)" ] &&
		hardened "$all_flags" 2056 && hardened "$all_flags" 0 && hardened "$all_flags"
}
each large 'subq $2056, %rsp' 'leaq -2056(%rsp), %r11'
check "no frame is larger than the kernel likes"
assemble "$room" "ret; sub \$2056, %rsp" && ! hardened "$all_flags" 2048 && [ "$(wc -l <"$work/said")" = 3 ]
check "all that is wrong is said"
echo '.data' >"$work/object.s" && "$real_cc" -c "$work/object.s" -o "$work/object.o" && ! hardened '' && grep -q 'no function' "$work/said"
check "an object without a function is none"

# --- what objtool says, and what is the baseline ---------------------------
# in_driver CRATE COMMAND...: one of the functions, as driver.sh has them.
in_driver() {
	# shellcheck disable=SC2016
	crate=$1 base=$work/base kernel=$work/kernel tree=$work/tree bash -c '. "$0/scripts/lib.sh"
		. "$0/scripts/driver-checks.sh"
		"$@"' "$top" "${@:2}" >"$work/said" 2>&1
}

# logged DIR LINE...: the log of what is built in DIR, where the lines are objtool's of two objects.
logged() {
	local dir=$1 line
	shift
	mkdir -p "$dir/sub"
	touch "$dir/all.o" "$dir/sub/one.o" "$dir/other.o"
	{
		echo "  LD [M]  $dir/all.o"
		for line; do printf '%s: warning: objtool: %s\n' "$dir/all.o" "$line" sub/one.o "$line"; done
		echo "  MODPOST $dir/Module.symvers"
	} >"$dir.log"
}
mkdir -p "$work/base"
m=$work/base/mine u=$work/base/upstream
logged "$m" && in_driver own check_objtool "$m" && [ -e "$m/all.o" ]
check "where objtool is silent, so are we"
logged "$m" 'vgpu_x() falls through to next function vgpu_y()'
! in_driver own check_objtool "$m" && grep -q '^vgpu_x() falls' "$work/said" && grep -q '^error: objtool has something to say' "$work/said"
check "where it is not, that is an error"
[ ! -e "$m/all.o" ] && [ ! -e "$m/sub/one.o" ] && [ -e "$m/other.o" ]
check "and it is to look at these objects again"
logged "$u" 'uvm_a+0x10: unreachable instruction'
logged "$m" 'uvm_a+0x10: unreachable instruction' && in_driver own check_objtool "$m" "$u"
check "what it says of the baseline does not count"
logged "$m" 'uvm_a+0x10: unreachable instruction' 'uvm_b+0x20: return with modified stack frame'
! in_driver own check_objtool "$m" "$u" && ! grep -q uvm_a "$work/said" && grep -q '^uvm_b' "$work/said"
check "but what else it says"
grep objtool: "$u.log" >"$u.objtool"
logged "$u" && logged "$m" 'uvm_a+0x10: unreachable instruction' && in_driver own check_objtool "$m" "$u"
check "even if it has said so at an earlier build"
mkdir -p "$m/nvidia-uvm" && in_driver own check_objtool "$m" && logged "$m" 'uvm_rust_a+0x10: unreachable instruction' &&
	! in_driver own check_objtool "$m" && logged "$m" 'uvm_a__c+0x10: unreachable instruction' && ! in_driver own check_objtool "$m"
check "without a baseline, what is ours counts"
logged "$m" '_RINvNtCs1_4core5slice4sort8unstable9quicksort9quicksortE() falls through to next function _RINv2()'
in_driver linux check_objtool "$m" && ! in_driver own check_objtool "$m" &&
	logged "$m" '_RINv1()+0x10: return with modified stack frame' && ! in_driver linux check_objtool "$m"
check "with the kernel's own core, objtool does not know what of it returns"
assemble "$room" ret && hardened "$all_flags"
! in_driver own check_object "$work/object.o" "$work/main.o" && grep -q '^object.o: outer: it returns' "$work/said" &&
	in_driver linux check_object "$work/object.o" "$work/main.o"
check "and how it is hardened is the kernel's to see to"
echo CONFIG_FRAME_WARN=2048 >>"$KDIR/include/config/auto.conf"
assemble "$room" 'endbr64; subq $2056, %rsp; jmp __x86_return_thunk'
! in_driver own check_object "$work/object.o" "$work/main.o" && grep -q '^object.o: outer: its stack frame has 2056' "$work/said"
check "how large a frame may be, it says"
! in_driver linux check_object "$work/object.o" "$work/main.o" && grep -q '^object.o: outer: its stack frame has 2056' "$work/said" &&
	assemble "$room" 'endbr64; subq $2048, %rsp; ret' && in_driver linux check_object "$work/object.o" "$work/main.o"
check "with the kernel's own crate, too: as large as distributions allow"

touch "$u/nvidia-uvm.ko"
none() { in_driver own baseline && [ ! -s "$work/said" ]; }
some() { in_driver own baseline && [ "$(cat "$work/said")" = "$u" ]; }
tree 550.163.01
none
check "what is not complete is no baseline"
in_driver own tree_key && cp "$work/said" "$u/.complete" && some
check "what was built of this source is"
echo 'int x;' >>"$UVM_SRC/nvidia-uvm/uvm.c" && none
check "and not once that has changed"
some_pinned() { (unset KDIR UVM_SRC && some); }
some_pinned
check "what is pinned does not change"
tree 550.163.01
