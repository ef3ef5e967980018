#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# What scripts/driver.sh does with a driver that it has no software GPU for: it says so, where a
# compiler's first error used to be all there was; and which trees `make test-versions` builds.
# Kernel, driver and compilers are made up.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset UVM_RUST_KERNEL UVM_VERSION KERNEL RELEASE
export UVM_RUST_CACHE=$work/cache KDIR=$work/kernel UVM_SRC=$work/tree FAKE=$work JOBS=1
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# Ahead of the machine's own in the PATH that scripts/lib.sh makes.
mkdir -p "$work/cache/tools/bin"
for tool in make gcc cc c++ ld rustc bindgen spatch; do
	# shellcheck disable=SC2016
	printf '#!/bin/sh\necho "%s $*" >>"$FAKE/calls"\nexit 1\n' $tool >"$work/cache/tools/bin/$tool"
done
# It copies nothing, so that there is nothing to build either.
printf '#!/bin/sh\n' >"$work/cache/tools/bin/rsync"
chmod +x "$work/cache/tools/bin/"*

# kernel [OPTION...]: the headers of one.
kernel() {
	rm -rf "$KDIR"
	mkdir -p "$KDIR/include/config"
	echo 6.12.0-test >"$KDIR/include/config/kernel.release"
	printf 'CONFIG_%s=y\n' X86_64 "$@" >"$KDIR/include/config/auto.conf"
	: >"$KDIR/Module.symvers"
	: >"$KDIR/Makefile"
	# As Debian's headers have it: which compiler is meant is theirs to say.
	: >"$KDIR/.kernelvariables"
}

# tree VERSION: a driver.
tree() {
	rm -rf "$UVM_SRC"
	mkdir -p "$UVM_SRC/nvidia-uvm"
	printf 'ccflags-y += -DNV_VERSION_STRING=\\"%s\\"\n' "$1" >"$UVM_SRC/Kbuild"
	: >"$UVM_SRC/nvidia-uvm/uvm.c"
}

# driver VARIANT...: what driver.sh says of it.
driver() {
	rm -f "$work/calls"
	"$top/scripts/driver.sh" "$@" >"$work/said" 2>&1
}

# says_550: one line, an error, names the version that the software GPU is for; nothing was called.
says_550() {
	[ "$(grep -c '\<550\>' "$work/said")" = 1 ] && [ "$(grep -c '^error: ' "$work/said")" = 1 ] &&
		grep -q "^error: the software GPU has the interface of NVIDIA's 550, and nvidia-uvm.ko $1" "$work/said" &&
		[ ! -e "$work/calls" ]
}

for version in 580.142 590.48.01 595.45.04; do
	tree $version
	kernel
	! driver vgpu && says_550 $version
	check "no software GPU for $version: one line, and no compiler"
	kernel MODVERSIONS
	! driver vgpu && says_550 $version
	check "nor where symbols have versions"
done

tree 550.163.01
kernel
! driver vgpu && ! grep -q 'software GPU' "$work/said" && grep -q '^make .*modules' "$work/calls"
check "for 550 there is one: make is called (which fails here)"

tree 560.35.03
! driver vgpu && [ "$(grep -c '^error: UVM_SRC is driver 560.35.03; the seam knows 535, 550, 555' "$work/said")" = 1 ] &&
	[ ! -e "$work/calls" ]
check "a version that the seam does not know is refused before that"

# versions UVM_SRC: the parts that `make test-versions` would have for it, and their trees.
versions() {
	# shellcheck disable=SC2016
	UVM_SRC=$1 bash -c '
		cd "$0"
		. scripts/test-parts.sh
		part() { printf "%s %s\n" "$1" "$(sed -n "s/^.* UVM_SRC=\(.*\) scripts.*/\1/p" <<<"$*")"; }
		skip() { echo "skip $1"; }
		versions_parts' "$top" >"$work/said" 2>&1
	sed -n '/^versions\/555/,$p' "$work/said" | tail -n +2
}

tree 580.142
mv "$UVM_SRC" "$work/one"
tree 595.45.04
mkdir "$work/two"
mv "$UVM_SRC" "$work/two/kernel-open"
two="versions/580.142 $work/one
versions/595.45.04 $work/two"
[ "$(versions "$work/one $work/two")" = "$two" ]
check "make test-versions builds each tree of several, under its version"

[ "$(versions "$work/one:$work/two")" = "$two" ]
check "with colons, too"

mv "$work/one" "$work/on e"
[ "$(versions "$work/on e")" = "versions/580.142 $work/on e" ]
check "one is one, whatever it is called"

[ "$(versions "$work/nowhere")" = "versions/given $work/nowhere" ] && [ "$(versions '')" = 'skip versions/given' ]
check "none is skipped, and one that is not there is not"

# Which compiler make is told of.
# shellcheck source-path=SCRIPTDIR source=../../src/uvm_rust/kernel/build/kbuild.sh
. "$top/src/uvm_rust/kernel/build/kbuild.sh"
mkdir "$work/bin"
for cc in gcc:12 gcc-14:14 cc-of-theirs:13; do
	printf '#!/bin/sh\necho %s.2.0\n' "${cc#*:}" >"$work/bin/${cc%:*}"
done
chmod +x "$work/bin/"*
# compiler TEXT VERSION: for a kernel that was built by that.
compiler() {
	kernel
	rm "$KDIR/.kernelvariables"
	printf 'CONFIG_CC_IS_GCC=y\nCONFIG_GCC_VERSION=%s\nCONFIG_CC_VERSION_TEXT="%s"\n' "$2" "$1" >>"$KDIR/include/config/auto.conf"
	(PATH=$work/bin:$PATH kernel_compiler "$KDIR") >"$work/said"
	cat "$work/said"
}
[ "$(compiler 'gcc (Debian 12.2.0-14) 12.2.0' 120200)" = CC=gcc ]
check "the compiler of the kernel: as it was called, if it is of that version"
[ "$(compiler 'gcc (GCC) 14.2.1 20250110' 140201)" = CC=gcc-14 ]
check "or as distributions call that version"
[ "$(compiler 'cc-of-theirs (Ubuntu 13.3.0) 13.3.0' 130300)" = CC=cc-of-theirs ] && [ -z "$(compiler 'gcc-99 (x) 99.1.0' 990100)" ]
check "by any name; and none, where there is none of that version"
kernel GCC_VERSION && [ -z "$(PATH=$work/bin:$PATH kernel_compiler "$KDIR")" ] &&
	kernel CC_IS_CLANG && [ "$(kernel_compiler "$KDIR")" = LLVM=1 ]
check "headers that name it themselves are left to; clang's go with all of LLVM"

# Whether vm.sh may take what test.sh has built.
# built: the list, newer than all that the modules are made of.
built() { printf 'kernel release\nrust /a\n' >"$work/built" && touch -d '+1 hour' "$work/built"; }
just() {
	# shellcheck disable=SC2016
	env -u KDIR -u UVM_SRC UVM_BUILT="$work/built" "$@" bash -c '. "$0/scripts/lib.sh" && just_built' "$top" >"$work/said" 2>&1
}
built && just
check "what this run has built need not be looked up again"
! just KERNEL=debug && ! just RELEASE=1 && ! just KDIR=/x && ! just UVM_SRC=/x && ! just UVM_VERSION=535 &&
	! just UVM_RUST_MASKS=c && ! just UVM_RUST_KERNEL=own && ! just UVM_BUILT= && just KERNEL=release
check "for another kernel, or of another kind, it is"
touch -d 2001-01-01 "$work/built" && ! just
check "and when something has changed since"
done_testing
