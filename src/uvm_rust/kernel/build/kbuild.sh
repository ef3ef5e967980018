# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by what builds modules (scripts/driver.sh, scripts/modules.sh and the package for
# DKMS): what a kernel's headers and a driver's source say of themselves.
# shellcheck shell=bash

# driver_version TREE: the version of a tree of NVIDIA's kernel-open, such as 550.163.01.
driver_version() { sed -n 's/.*NV_VERSION_STRING=\\"\([0-9.]*\)\\".*/\1/p' "$1/Kbuild" 2>/dev/null | head -n 1; }

# kernel_has KDIR OPTION: is the option on, built in or as a module?
kernel_has() { grep -qs "^CONFIG_$2=[ym]" "$1/include/config/auto.conf" "$1/.config"; }

# kernel_sources KDIR: where the source is that KDIR was built from, or is the headers of.
kernel_sources() {
	local sources
	sources=$(sed -n 's/^srctree *:*= *//p;s/^include \(\/.*\)\/Makefile$/\1/p' "$1/Makefile" | head -n 1)
	[ -d "${sources:-/nowhere}" ] || sources=$1
	echo "$sources"
}

# kernel_compiler KDIR: what make is to be told of the compiler, which must be the one that
# the kernel was built by: LLVM=1, or CC=gcc-14, or nothing where the headers name it
# themselves (Debian's) or this machine has none of that version.
kernel_compiler() {
	local config=$1/include/config/auto.conf text major cc
	[ -r "$config" ] || config=$1/.config
	if kernel_has "$1" CC_IS_CLANG; then
		echo LLVM=1
	elif [ ! -e "$1/.kernelvariables" ]; then
		text=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\{0,1\}\([^" ]*\).*/\1/p' "$config" 2>/dev/null)
		major=$(sed -n 's/^CONFIG_GCC_VERSION=\([0-9]*\)[0-9]\{4\}$/\1/p' "$config" 2>/dev/null)
		for cc in "$text" "gcc-$major"; do
			if [ -n "$major" ] && [ "$("${cc:-false}" -dumpversion 2>/dev/null | cut -d. -f1)" = "$major" ]; then
				echo "CC=$cc"
				return
			fi
		done
	fi
}

# dropped SOURCES TREE DIR: flags for what a kernel has dropped and a driver of NVIDIA's from before still asks for, in
# whatever is built for it, NVIDIA's own modules too. DIR has a copy of src/nvidia-uvm-c/fixes/dropped.
dropped() {
	[ -e "$1/include/linux/of_gpio.h" ] || echo "-I$3"
	grep -qsE '^extern.*[ *]strncpy\(' "$1/include/linux/string.h" || echo "-include $3/uvm_rust_strncpy.h"
	# Of a driver that asks by the newer name where there is one, nothing is to be said.
	if grep -qsw PageSwapCache "$2/nvidia-uvm/uvm_hmm.c" && ! grep -qsw folio_test_swapcache "$2/nvidia-uvm/uvm_hmm.c" &&
		! grep -qsw PageSwapCache "$1/include/linux/page-flags.h"; then
		echo "-include $3/uvm_rust_swap_cache.h"
	fi
}
