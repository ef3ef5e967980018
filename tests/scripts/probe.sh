#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Which `kernel` crate the probe picks for a kernel, and what it refuses; how the target
# and the layout of a kernel are told to Rust. The kernels are folders with a few files.
# Functions are called by others that take them as arguments, and what the compilers
# write has dollars in it.
# shellcheck disable=SC2016,SC2317
set -u
build=$(cd "$(dirname "$0")/../../src/uvm_rust/kernel/build" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset UVM_RUST_KERNEL
printf '#!/bin/sh\necho "rustc 1.90.0 (test)"\n' >"$work/rustc"
chmod +x "$work/rustc"

# kernel RELEASE [OPTION...]: a folder with what a kernel's headers have.
kernel() {
	rm -rf "$work/k"
	mkdir -p "$work/k/include/config" "$work/k/rust"
	echo "$1" >"$work/k/include/config/kernel.release"
	shift
	printf 'CONFIG_%s\n' X86_64=y "$@" >"$work/k/include/config/auto.conf"
}

# probe: its answer, its exit status and what it said.
probe() {
	answer=$(sh "$build/probe.sh" "$work/k" "$work/rustc" 2>"$work/said")
	status=$?
}

n=0 failed=0
# expect NAME ANSWER WHY: what the probe answers ('' if it refuses), and a part of its reason.
expect() {
	n=$((n + 1))
	local bad=
	[ "$answer" = "$2" ] || bad="it answered '$answer'"
	if [ -z "$2" ]; then [ "$status" != 0 ] || bad="it did not fail"; else [ "$status" = 0 ] || bad="it failed"; fi
	[ "$(wc -l <"$work/said")" = 1 ] || bad="it said other than one line"
	grep -q -e "$3" "$work/said" || bad="it said: $(cat "$work/said")"
	if [ -z "$bad" ]; then echo "ok $n - $1"; else
		echo "not ok $n - $1"
		echo "# $bad"
		failed=1
	fi
}

kernel 6.12.0-stock
probe; expect "a kernel without Rust gets ours" own "without CONFIG_RUST"
UVM_RUST_KERNEL=linux probe; expect "and cannot be made to lend its own" "" "without CONFIG_RUST"
kernel 6.12.0-stock RUST=y 'RUSTC_VERSION_TEXT="rustc 1.90.0 (test)"'
probe; expect "one whose headers have no metadata gets ours" own "without Rust's metadata"
touch "$work/k/rust/libkernel.rmeta"
probe; expect "one that has it lends its own" linux "built with Rust"
UVM_RUST_KERNEL=own probe; expect "but ours can be forced" own "UVM_RUST_KERNEL=own"
for release in 6.1.0 6.6.30-x 6.13.0 7.2.0-stock 7.12.1 16.12.0; do
	kernel $release RUST=y 'RUSTC_VERSION_TEXT="rustc 1.90.0 (test)"'
	touch "$work/k/rust/libkernel.rmeta"
	probe; expect "what $release would lend does not fit our code" own "not 6.12's"
	UVM_RUST_KERNEL=linux probe; expect "even if $release is asked for it" "" "not 6.12's"
done
for release in 6.12 6.12-rc3 6.12.117+deb13; do
	kernel $release RUST=y 'RUSTC_VERSION_TEXT="rustc 1.90.0 (test)"'
	touch "$work/k/rust/libkernel.rmeta"
	probe; expect "what $release lends does" linux "built with Rust"
done
kernel 6.12.0-stock RUST=y 'RUSTC_VERSION_TEXT=""'
touch "$work/k/rust/libkernel.rmeta"
probe; expect "a kernel that does not say by which compiler is taken at its word" linux "built with Rust"
kernel 6.12.0-stock RUST=y
touch "$work/k/rust/libkernel.rmeta"
probe; expect "and so is one that says nothing of it" linux "built with Rust"
kernel 6.12.0-stock RUST=y 'RUSTC_VERSION_TEXT="rustc 1.89.0 (test)"'
touch "$work/k/rust/libkernel.rmeta"
probe; expect "metadata of another compiler is of no use" own "1.89.0"
UVM_RUST_KERNEL=linux probe; expect "even if it is asked for" "" "1.89.0"
UVM_RUST_KERNEL=mine probe; expect "there are two crates" "" "own or linux"

for option in CFI_CLANG CFI LTO_CLANG KMSAN KASAN; do
	kernel 6.12.0-x "$option=y"
	probe; expect "a kernel with $option is refused" "" "$option"
done
kernel 6.12.0-x LTO_CLANG=y
probe; expect "nobody has tried LTO" "" "not been tried"
kernel 6.12.0-x KASAN=y CC_IS_GCC=y
probe; expect "KASAN of gcc's is none of Rust's" "" "KASAN.*of gcc's"
kernel 6.12.0-x KASAN=y CC_IS_CLANG=y
probe; expect "clang's is" own "without CONFIG_RUST"
kernel 6.0.19; probe; expect "one before 6.1 is refused" "" "older than 6.1"
kernel 5.14.0-570.el9.x86_64; probe; expect "and one of another distribution" "" "older than 6.1"
kernel 6.1.0-47-amd64; probe; expect "6.1 is not" own "without CONFIG_RUST"
kernel 10.0.0; probe; expect "nor is 10.0" own "without CONFIG_RUST"
kernel 6.12.0; sed -i 's/X86_64=y/ARM64=y/' "$work/k/include/config/auto.conf"
probe; expect "another machine is refused" "" "x86-64"
kernel 6.12.0; rm "$work/k/include/config/kernel.release"
probe; expect "so is a tree that is not prepared" "" "not prepared"
kernel ''
probe; expect "or whose release is not known" "" "not prepared"
rm -r "$work/k"; probe; expect "so is what is no kernel" "" "has no .config"

# is NAME COMMAND...: does it succeed?
is() {
	n=$((n + 1))
	local name=$1
	shift
	if "$@" >"$work/said" 2>&1; then echo "ok $n - $name"; else
		echo "not ok $n - $name"
		sed 's/^/# /' "$work/said"
		failed=1
	fi
}

target() { sh "$build/target.sh" rustc "$1" >"$work/target.json" && python3 -m json.tool "$work/target.json" >"$work/target"; }
has() { grep -q -e "$1" "$work/target"; }
is "the target of a kernel without mitigations is valid" target "-O2 -m64"
is "it has no retpolines" eval '! has retpoline'
is "the target of one with them is valid" target "-m64 -mindirect-branch=thunk-extern -mharden-sls=all"
is "it has retpolines" has '"features": ".*soft-float.*+retpoline-external-thunk'
is "it hardens straight lines" has '"features": ".*+harden-sls-ret'
is "clang's flag is as good" eval 'target "-mretpoline-external-thunk" && has retpoline'
is "it is not one that the compiler has built in" eval '! has is-builtin'

# As make sets it for a command that it does not take for a make: the server's files are not there.
# rustc looks in each of these, as long as it has not found any.
silent() { env "$1= -j2 --jobserver-auth=3,4" sh "$build/target.sh" rustc "" 3<&- 4<&- 2>&1 >/dev/null | cmp -s - /dev/null; }
for variable in MAKEFLAGS MFLAGS CARGO_MAKEFLAGS; do
	is "under make with several jobs, by $variable, the compiler has nothing to say" silent $variable
done
is "its calls go straight to what they call" eval '! has plt-by-default'

printf '#!/bin/sh\necho "rustc 1.84.1 (test)"\n' >"$work/old"
printf '#!/bin/sh\n[ "$1" = --version ] && echo "rustc 1.90.0 (test)" || echo %s\n' "$work" >"$work/bare"
chmod +x "$work/old" "$work/bare"
refused() { ! sh "$build/target.sh" "$1" "" >/dev/null 2>"$work/why" && [ "$(wc -l <"$work/why")" = 1 ] && grep -q -e "$2" "$work/why"; }
is "a compiler that is too old is refused" refused "$work/old" "1.84.1, and 1.85"
is "one without its library's source is" refused "$work/bare" "no library source"
is "and one that is not there" refused "$work/none" "install Rust 1.85"

# flags MINOR VARIABLE...: with rustc 1.MINOR, and make's variables as kbuild sets them, Rust is compiled so.
flags() {
	printf '#!/bin/sh\n[ "$1" != --version ] || echo "rustc 1.%s.0 (test)"\n' "$1" >"$work/flagged"
	shift
	chmod +x "$work/flagged"
	printf '%s\n' "src := $build/../.." "obj := $work/flags" 'uvm_rust_kernel := kernel' 'uvm_rust_out := own' \
		"include $build/rust.mk" 'print: ; @printf "%s\n" $(uvm_rust_flags)' >"$work/flags.mk"
	env -u MAKEFLAGS make -s -f "$work/flags.mk" RUSTC="$work/flagged" "$@" print >"$work/flags.said"
}
# gives FLAG MINOR VARIABLE...: is that flag among them?
gives() {
	local flag=$1
	shift
	flags "$@" || return
	cat "$work/flags.said"
	grep -qx -e "$flag" "$work/flags.said"
}
# lacks FLAG MINOR VARIABLE...: or is it not, though there are others?
lacks() { ! gives "$@" && grep -q . "$work/flags.said"; }
is "returns go by the kernel's thunk where C's do" gives -Zfunction-return=thunk-extern 85 KBUILD_CFLAGS=-mfunction-return=thunk-extern
is "functions that are called by address are marked" gives -Zcf-protection=branch 85 KBUILD_CFLAGS="-m64 -fcf-protection=branch"
is "there are no tables of jumps" gives -Zno-jump-tables 92 KBUILD_CFLAGS=-fno-jump-tables
is "by their name of later" gives -Cjump-tables=n 93 KBUILD_CFLAGS=-fno-jump-tables
is "functions have room in front" gives -Zpatchable-function-entry=16,16 85 KBUILD_CFLAGS="-fpatchable-function-entry=16,16 -O2"
is "and none of that where C has none" lacks '-Z\(function-return\|cf-protection\|patchable\|no-jump\).*' 85 KBUILD_CFLAGS=-O2
is "there are frame pointers" gives -Cforce-frame-pointers=y 85 CONFIG_FRAME_POINTER=y
is "or none" gives -Cforce-frame-pointers=n 85
module_flag=-Zllvm_module_flag=frame-pointer:u32:2:max
is "LLVM's own functions have them, too" gives $module_flag 97 CONFIG_FRAME_POINTER=y
is "which 1.98 sees to by itself" lacks $module_flag 98 CONFIG_FRAME_POINTER=y
is "or have none" lacks $module_flag 97
is "KASAN looks at Rust" gives -Zsanitizer=kernel-address 85 CONFIG_KASAN_GENERIC=y
is "and does not" lacks '.*sanitizer.*' 85

layout() { printf '%s\n' "$@" | awk -f "$build/layout.awk" >"$work/layout.rs"; }
wrote() { grep -qx -e "$1" "$work/layout.rs"; }
# As gcc writes them, and as clang does.
is "the C compiler's answers are read" layout '	.ascii "->usize.PAGE_SIZE $4096 PAGE_SIZE"' \
	'.ascii "->sizeof.CMutex $32 sizeof(struct mutex)"' '.ascii "->alignof.CMutex $8 __alignof__(struct mutex)"'
is "a constant is one" wrote 'pub(crate) const PAGE_SIZE: usize = 4096;'
is "a type has size and alignment" wrote 'opaque!(CMutex, 32, 8);'
is "no answers are an error" eval '! layout "nothing"'

echo "1..$n"
exit $failed
