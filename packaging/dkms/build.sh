#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Build nvidia-uvm.ko with Rust, from the NVIDIA source that is installed for DKMS, for a
# kernel whose headers are installed.
#
#   build.sh KERNEL           in DKMS' build folder, a copy of this one: makes ./nvidia-uvm.ko
#   build.sh --check KERNEL   could it be built? Says what would be, or why not
#   build.sh --tried KERNEL   has it failed already, with the same compiler and driver?
#   build.sh --conf KERNEL    what dkms.conf takes from that of NVIDIA's driver
#   build.sh --sync KERNEL    make what is loaded there follow from what is built
#
# Exit status of a build: 0, and /var/lib/uvm-rust/built/KERNEL says against what of NVIDIA's, KERNEL.headers there against
# what of the kernel; or 77 if there is none, which DKMS takes for "leave it out". Why is then in
# /var/lib/uvm-rust/failed/KERNEL, and nowhere else; NVIDIA's module stays.
#
# UVM_RUST_ROOT is put in front of every path outside this folder (the tests' root);
# UVM_RUST_SYMVERS names another Module.symvers than that of NVIDIA's, for a module that is
# to be loaded beside another RM.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=${UVM_RUST_ROOT:-}
state=$root/var/lib/uvm-rust
dkms=$root/var/lib/dkms
# The distribution's, on which the package depends, and not one that a user has by rustup: a build at boot has only the former.
if [ -z "${RUSTC:-}" ]; then
	RUSTC=$root/usr/bin/rustc
	[ -x "$RUSTC" ] || RUSTC=rustc
fi
export RUSTC

# shellcheck source-path=SCRIPTDIR source=../../src/uvm_rust/kernel/build/kbuild.sh
. "$here/uvm-rust/kernel/build/kbuild.sh"

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# find_nvidia: sets name (DKMS'), source and version of the driver, the newest that has UVM.
# Debian calls it nvidia-current-open, NVIDIA's packages nvidia or nvidia-open.
find_nvidia() {
	local n d v
	name='' source='' version=''
	for n in nvidia-current-open nvidia-open nvidia; do
		for d in "$dkms/$n"/*/source; do
			[ -r "$d/nvidia-uvm/uvm.c" ] || continue
			v=$(driver_version "$d")
			if [ -z "$version" ] || [ "$(printf '%s\n%s\n' "$version" "$v" | sort -V | tail -n 1)" = "$v" ]; then
				name=$n source=$d version=$v
			fi
		done
		[ -z "$name" ] || return 0
	done
	die "no source of NVIDIA's open driver is known to DKMS as this package knows it (Debian: apt install nvidia-open-kernel-dkms)"
}

# conf KERNEL: NVIDIA's modules come first, as ours needs the versions of their symbols; and for a
# kernel that NVIDIA's are not built for, ours are left out as well, or DKMS would fail for
# want of them, and with it the installation of that kernel. Where ours is disabled, none is
# built by itself: `uvm-rust enable` builds what is missing. Nor is one that has failed, while nothing that it
# depends on is another: DKMS would try it again at each boot. Lines for a shell.
conf() {
	local file var by_itself=1
	find_nvidia
	if [ -e "$state/disabled" ] || { (find_symvers "$1") 2>/dev/null && tried "$1"; }; then by_itself=; fi
	printf 'BUILD_DEPENDS[0]=%q\n' "$name"
	(
		set +eu
		# What a dkms.conf may use.
		export kernelver=$1 arch=x86_64
		for file in "$source/dkms.conf" "$root/etc/dkms/$name"{.conf,"-$version.conf","-$version-$1.conf","-$version-$1-$arch.conf","--$1.conf","--$1-$arch.conf"}; do
			# shellcheck source=/dev/null
			if [ -e "$file" ]; then . "$file" >/dev/null; fi
		done
		BUILD_EXCLUSIVE_KERNEL_MAX=${BUILD_EXCLUSIVE_KERNEL_MAX:-$OBSOLETE_BY}
		# shellcheck disable=SC2034
		[ -n "$by_itself" ] || AUTOINSTALL=
		for var in AUTOINSTALL BUILD_EXCLUSIVE_{KERNEL,KERNEL_MIN,KERNEL_MAX,CONFIG}; do printf '%s=%q\n' "$var" "${!var}"; done
	)
}

# find_symvers KERNEL: the versions of what NVIDIA's modules export, as built for it.
find_symvers() {
	symvers=${UVM_RUST_SYMVERS:-$dkms/$name/$(basename "$(dirname "$source")")/$1/x86_64/module/Module.symvers}
	[ -r "$symvers" ] ||
		die "NVIDIA's driver $version is not built for $1: dkms install $name/$version -k $1 says why"
	grep -q 'nvUvmInterface' "$symvers" || die "$symvers lists no nvUvmInterface: it is not of NVIDIA's driver"
}

# applies SUM FILE: is that the file that the hooks were made for?
applies() { [ "$(sha256sum <"$2" | cut -d' ' -f1)" = "$1" ]; }

check_hooks() {
	local before after file
	hooks=$here/hooks/$version
	[ -d "$hooks" ] ||
		die "the installed driver is NVIDIA's $version, and this package has hooks for $(cd "$here/hooks" && echo *): install uvm-rust-dkms of that version, or build one (make deb UVM_SRC=$source)"
	while read -r before after file; do
		applies "$before" "$source/$file" ||
			die "$file of the installed driver is not that of NVIDIA's $version as this package knows it (another patch of the distribution?): build uvm-rust-dkms from source against it (make deb UVM_SRC=$source)"
	done <"$hooks/SHA256"
}

# check KERNEL: all that can be known before anything is compiled.
check() {
	find_nvidia
	headers=$root/lib/modules/$1/build
	[ -e "$headers/Makefile" ] || die "the headers of $1 are not installed: apt install linux-headers-$1"
	crate=$(UVM_RUST_KERNEL=own sh "$here/uvm-rust/kernel/build/probe.sh" "$headers" "$RUSTC" 2>&1 >/dev/null) || die "${crate#error: }"
	target=$(sh "$here/uvm-rust/kernel/build/target.sh" "$RUSTC" "" 2>&1 >/dev/null) || die "${target#error: }"
	check_hooks
	find_symvers "$1"
	say="nvidia-uvm.ko of NVIDIA's $version with Rust, by $("$RUSTC" --version | cut -d' ' -f1,2), for Linux $1"
}

# against KERNEL: what of NVIDIA's a module is built against, as sha256sum checks it: a driver
# that is built anew may have the same version, and other symbols or sources.
against() {
	find_nvidia
	find_symvers "$1"
	find "$source/nvidia-uvm" "$source/common" -type f -exec sha256sum {} +
	sha256sum "$symvers"
}

# against_headers KERNEL: the same of the kernel. One that is built anew may have the same name, and other symbols or
# another configuration, without which it refuses a module.
against_headers() { sha256sum "$root/lib/modules/$1/build"/{Module.symvers,include/config/auto.conf} 2>/dev/null || :; }

# attempt KERNEL: what a build depends on.
attempt() {
	(find_nvidia && echo "NVIDIA's $version") 2>/dev/null || echo "no NVIDIA driver"
	"$RUSTC" --version 2>&1 | head -n 1
	grep '^PACKAGE_VERSION' "$here/dkms.conf"
	cat "$here/package.sum" 2>/dev/null || echo "a package without its sum"
	({ against "$1"; against_headers "$1"; } | sha256sum) 2>/dev/null || :
}

# tried KERNEL: has it failed already, with the same of all that a build depends on?
tried() { [ -e "$state/failed/$1" ] && [ "$(attempt "$1" | sed 's/^/tried: /')" = "$(grep '^tried: ' "$state/failed/$1")" ]; }

# stage: what upstream builds nvidia-uvm.ko from, here beside our sources. Common headers
# need conftests that only nvidia.ko registers: list those too, without building it.
stage() {
	local before after file
	cp -a "$source/nvidia-uvm" "$source/common" "$source/conftest.sh" "$source/Kbuild" .
	if [ -e "$source/header-presence-tests.mk" ]; then cp -a "$source/header-presence-tests.mk" .; fi
	mkdir -p conftests
	grep '^NV_CONFTEST_[A-Z]*_COMPILE_TESTS' "$source/nvidia/nvidia.Kbuild" >conftests/conftests.Kbuild
	while read -r before after file; do
		awk -f hooks.awk "$hooks/${file##*/}.hooks" "$source/$file" >"$file"
		applies "$after" "$file" || die "the hooks of $file did not come out as they should: a defect of this package"
	done <"$hooks/SHA256"
	cp "$hooks/uvm_rust_version.h" uvm-rust/nvidia-uvm-c/
	cp "$hooks/upstream.Kbuild" uvm-rust/
}

compile() {
	local sources=$headers compiler=()
	if [ -e "$root/lib/modules/$1/source" ]; then sources=$root/lib/modules/$1/source; fi
	read -ra compiler <<<"$(kernel_compiler "$headers")"
	# What DKMS sets for modules of its own making would reach the kernel's makefiles.
	env -u MAKEFLAGS -u KERNELRELEASE make -C "$headers" M="$PWD" "${compiler[@]}" ARCH=x86_64 -j"$(nproc)" --no-print-directory \
		NV_KERNEL_SOURCES="$sources" NV_KERNEL_OUTPUT="$headers" NV_SPECTRE_V2=0 \
		NV_KERNEL_MODULES="conftests nvidia-uvm uvm-rust" KBUILD_EXTRA_SYMBOLS="$symvers" \
		UVM_RUST_KERNEL=own KCFLAGS="-fmacro-prefix-map=$PWD/=" modules
}

# build KERNEL: in a folder that may be written to.
build() {
	check "$1"
	echo "$say"
	stage
	compile "$1"
	[ -e nvidia-uvm.ko ] || die "make ended well, and there is no nvidia-uvm.ko"
	# What DKMS would keep in place of NVIDIA's.
	rm -f Module.symvers
}

# why: the first error in what is read, in one line.
why() {
	grep -E '(^|[ :])(fatal )?error(\[[^]]*\])?:|^ERROR: modpost|No space left|Killed' | sed -n '1{s/^error: //;p}' | cut -c1-400 |
		grep . || echo "the build failed; this file has all that it said"
}

# one_at_a_time: DKMS has no lock, and two of its builds share a folder. Under uvm-rust, which holds the lock, this is part of its work.
one_at_a_time() {
	[ -z "${UVM_RUST_LOCKED:-}" ] || return 0
	mkdir -p "$root/run"
	exec 9>"$root/run/uvm-rust.lock"
	flock -n 9 || { echo "uvm-rust: waiting for another build, or a uvm-rust that is at work"; flock 9; }
}

# keep FILE TEXT: whole, or as it was.
keep() {
	if printf '%s\n' "$2" >"$1.$$" && mv "$1.$$" "$1"; then return 0; fi
	rm -f "$1.$$"
	return 1
}

# try KERNEL: build, and keep the reason if it fails. However it ends, as by a full disk, DKMS is told to leave the module
# out: any other status would stop apt. For the same reason all that was said is in memory.
try() {
	local failed=$state/failed/$1 built=$state/built/$1 sums headers said why
	trap '[ $? = 0 ] || exit 77' EXIT
	one_at_a_time
	mkdir -p "$state/failed" "$state/built" || :
	rm -f "$failed" "$built" "$built.headers"
	# From before the build: if it changes meanwhile, the module is not of it.
	sums=$(against "$1" 2>/dev/null) || :
	headers=$(against_headers "$1")
	# In a shell of its own, as errexit does not reach a function that is a condition.
	if said=$(bash "$here/build.sh" --build "$1" 2>&1); then
		if keep "$built.headers" "$headers" && keep "$built" "$sums"; then
			printf '%s\n' "$said" || :
			return 0
		fi
		said="error: $state/built cannot be written to, and what the module was built against must be kept there"
	fi
	why=$(printf '%s\n' "$said" | why)
	printf '%s\n' "$said" "uvm-rust: not built: $why" || :
	if keep "$failed" "$why"$'\n'"$(attempt "$1" | sed 's/^/tried: /')"$'\n'"$said" && chmod 644 "$failed"; then
		echo "uvm-rust: NVIDIA's module stays in force. The reason is kept in ${failed#"$root"}" || :
	else
		echo "uvm-rust: NVIDIA's module stays in force. The reason cannot be kept in ${failed#"$root"}" || :
	fi
	exit 77
}

case ${1:-} in
--conf) conf "$2" ;;
--check) check "$2" && echo "$say" ;;
--tried) tried "$2" ;;
--sync)
	command -v uvm-rust >/dev/null || exit 0
	uvm-rust sync "$2"
	;;
--build) build "$2" ;;
'' | -*) die "build.sh [--check|--tried|--sync] KERNEL" ;;
*) try "$1" ;;
esac
