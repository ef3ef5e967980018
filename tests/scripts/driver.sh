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
done_testing
