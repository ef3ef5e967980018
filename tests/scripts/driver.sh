#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/driver.sh does with a driver that it has no software GPU for: it says so, where a
# compiler's first error used to be all there was; which trees `make test-versions` builds; and
# that its clippy has looked. Kernel, driver and compilers are made up, but where clippy is to find
# something: that wants Debian's kernel.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of Debian's kernels, if one is in this machine's cache, the last (scripts/stock.sh).
stock=$(find "${UVM_RUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/uvm-rust}" -mindepth 4 -maxdepth 4 -type d \
	-path '*/stock-*/usr/src/linux-headers-*-amd64' 2>/dev/null | sort -V | tail -n 1)
# What lists parts is built while there are compilers.
"$top/scripts/test.sh" --help >/dev/null
export UVM_RUST_XTASK=${UVM_RUST_XTASK:-$(cd "$top" && realpath "${CARGO_TARGET_DIR:-target}/debug/xtask")}
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

# refuses REASON: one line, an error, that begins like this; nothing was called.
refuses() {
	[ "$(grep -c '^error: ' "$work/said")" = 1 ] && [ "$(wc -l <"$work/said")" -le 2 ] &&
		grep -q "^error: $1" "$work/said" && [ ! -e "$work/calls" ]
}

tree 535.261.03
kernel
! driver vgpu && refuses "the software GPU has the interface of NVIDIA's 550 to 595, and nvidia-uvm.ko 535.261.03"
check "no software GPU for 535: one line, and no compiler"
kernel MODVERSIONS
! driver vgpu && refuses "the software GPU has the interface of NVIDIA's 550 to 595, and nvidia-uvm.ko 535.261.03"
check "nor where symbols have versions"

tree 530.41.03
for of in '' MODVERSIONS; do
	kernel $of
	! driver rust && refuses "UVM_SRC is driver 530.41.03; what is known are 535, 545 to 575, and 580 to 595"
	check "a version that nothing here is for: one line, and no compiler${of:+, where symbols have versions}"
done
! "$top/scripts/seam.sh" --knows "$UVM_SRC" 2>"$work/said" && refuses "no Rust for nvidia-uvm.ko 530.41.03: the seam knows 535, 545 to 575"
check "nor does the seam know it"
tree 545.29.06
"$top/scripts/seam.sh" --knows "$UVM_SRC" 2>"$work/said" && [ "$("$top/scripts/upstream.sh" 2>"$work/said")" = "$UVM_SRC" ]
check "545 is known"

# modules.sh, for a kernel that is refused before anything is made.
# modules LOADED: with this version of nvidia.ko on the machine.
modules() {
	mkdir -p "$UVM_SRC/nvidia" "$work/root/sys/module/nvidia"
	touch "$UVM_SRC/Makefile" "$UVM_SRC/conftest.sh" "$UVM_SRC/nvidia/nvidia.Kbuild"
	echo "$1" >"$work/root/sys/module/nvidia/version"
	UVM_RUST_ROOT=$work/root KERNEL_OPEN=$UVM_SRC "$top/scripts/modules.sh" >"$work/said" 2>&1
}
tree 550.163.01
kernel CFI_CLANG
! modules 580.95.05 && grep -q "modules are of NVIDIA's 550.163.01, and the nvidia.ko that is loaded here is 580.95.05" "$work/said"
check "modules of another version than the one that is loaded are said to be that, before they are built"
! modules 550.163.01 && ! grep -q 'is loaded here' "$work/said"
check "and those of the same are not"
echo 'MODULE_LICENSE("NVIDIA");' >"$UVM_SRC/nvidia/nv.c"
! modules 550.163.01 && grep -q "^error: KERNEL_OPEN=$UVM_SRC is of the proprietary modules" "$work/said"
check "the proprietary modules are refused, beside which ours is"

# here VERSION VARIANT...: driver.sh for the kernel that runs here, with this nvidia.ko.
here() {
	echo "$1" >"$work/root/sys/module/nvidia/version"
	uname -r >"$KDIR/include/config/kernel.release"
	UVM_RUST_ROOT=$work/root driver "${@:2}"
}
kernel
for variant in upstream rust; do
	! here 580.95.05 $variant && refuses "KDIR=$KDIR is of the kernel that runs here, whose nvidia.ko is 580.95.05, and these modules would be of NVIDIA's 550.163.01"
	check "nvidia-uvm.ko is not built for the kernel that runs here and another nvidia.ko: $variant"
done
! here 550.163.01 upstream && ! grep -q 'that runs here' "$work/said" && ! here 580.95.05 vgpu && ! grep -q 'that runs here' "$work/said" &&
	kernel && ! UVM_RUST_ROOT=$work/root driver upstream && ! grep -q 'that runs here' "$work/said"
check "it is for the same nvidia.ko, and for another kernel; and the software GPU is"

# All of modules.sh, from a checkout of this test's own, where the seam does nothing, up to make, which says what it was
# given and fails. The copy of the tree is made by the machine's rsync.
mkdir -p "$work/top/scripts" "$work/bin.modules/tools/bin"
ln -s "$top/src" "$top/rust-toolchain.toml" "$work/top/"
ln -s "$top/scripts/lib.sh" "$top/scripts/modules.sh" "$work/top/scripts/"
printf '#!/bin/sh\n' >"$work/top/scripts/seam.sh" && chmod +x "$work/top/scripts/seam.sh"
cp "$work/cache/tools/bin/make" "$work/bin.modules/tools/bin/"
# whole [COMMAND...]: by this command.
# shellcheck disable=SC2120
whole() {
	rm -rf "$work/calls" "$work/top/out"
	UVM_RUST_ROOT=$work/root UVM_RUST_CACHE=$work/bin.modules KERNEL_OPEN=$UVM_SRC "$@" "$work/top/scripts/modules.sh" >"$work/said" 2>&1
}
# open_tree VERSION: a kernel-open that is whole, as far as modules.sh looks.
open_tree() {
	tree "$1"
	modules "$1"
	mkdir -p "$UVM_SRC/nvidia-uvm" "$KDIR/include/linux"
	touch "$UVM_SRC/nvidia/nv-kernel.o_binary"
	echo 'r = pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size);' >"$UVM_SRC/nvidia/nv-pci.c"
	echo 'MODULE_LICENSE("Dual MIT/GPL");' >"$UVM_SRC/nvidia/nv.c"
}
# resizes: how the copy of the tree calls it.
resizes() { sed -n 's/.*requested_size\(.*\);/\1/p' "$work"/top/out/modules-*/nvidia/nv-pci.c; }
kernel
open_tree 550.163.01
echo 'int pci_resize_resource(struct pci_dev *dev, int i, int size);' >"$KDIR/include/linux/pci.h"
! whole && grep -q '^make .* modules$' "$work/calls" && [ "$(resizes)" = ')' ]
check "modules.sh gives make NVIDIA's nv-pci.c as it is"
echo 'int pci_resize_resource(struct pci_dev *dev, int i, int size, int exclude_bars);' >"$KDIR/include/linux/pci.h"
! whole && [ "$(resizes)" = ', 0)' ] && grep -q 'requested_size);' "$UVM_SRC/nvidia/nv-pci.c"
check "with an argument more for a kernel that wants it, in the copy alone"
dropped=/uvm-rust/nvidia-uvm-c/fixes/dropped
grep -qE " KCFLAGS=-fmacro-prefix-map=[^ ]*=? -I[^ ]*$dropped -include [^ ]*$dropped/uvm_rust_strncpy.h modules\$" "$work/calls"
check "and with what this kernel has dropped"
touch "$KDIR/include/linux/of_gpio.h"
echo 'extern char * strncpy(char *,const char *, __kernel_size_t);' >"$KDIR/include/linux/string.h"
! whole && grep -qE ' KCFLAGS=-fmacro-prefix-map=[^ ]* modules$' "$work/calls"
check "of which a kernel that has it is given nothing"
echo 'return PageSwapCache(page);' >"$UVM_SRC/nvidia-uvm/uvm_hmm.c"
touch "$KDIR/include/linux/page-flags.h"
! whole && grep -qE " -include [^ ]*$dropped/uvm_rust_swap_cache.h modules\$" "$work/calls"
check "but what the tree asks for"
rm "$UVM_SRC/nvidia/nv-kernel.o_binary"
mkdir -p "$work/src/nvidia"
touch "$work/src/nvidia/Makefile"
! whole && grep -q "^make -C $UVM_SRC/../src/nvidia " "$work/calls"
check "what is no kernel code is made in NVIDIA's src/"
chmod a-w "$work/src/nvidia"
# Root may write everywhere, until this takes that away.
owner=(env)
[ "$(id -u)" != 0 ] || owner=(setpriv --bounding-set=-dac_override)
! whole "${owner[@]}" && [ ! -e "$work/calls" ] && grep -q "^error: nv-kernel.o would be made in $UVM_SRC/../src/nvidia, which you may not" "$work/said"
check "which must be one that may be written to"
chmod u+w "$work/src/nvidia"

for version in 550.163.01 570.211.01 580.142 590.48.01 595.45.04; do
	tree $version
	kernel
	! driver vgpu && ! grep -q 'software GPU' "$work/said" && grep -q '^make .*modules' "$work/calls"
	check "for $version there is a software GPU: make is called (which fails here)"
done

tree 550.163.01
kernel

real_cc=$(command -v gcc || command -v cc)
# shellcheck source-path=SCRIPTDIR source=driver-checks.sh
. "$(dirname "$0")/driver-checks.sh"

# module NAME...: make gives a vgpu.ko that has these global symbols.
cp "$work/cache/tools/bin/make" "$work/make.fails"
module() {
	printf '.globl %s\n' "$@" >"$work/module.s"
	printf '.text\n' >>"$work/module.s"
	printf '%s: .byte 0\n' "$@" >>"$work/module.s"
	"$real_cc" -c "$work/module.s" -o "$work/module.o"
	assemble "$room" "$good"
	hardened "$all_flags"
	: >"$work/objtool"
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/sh' 'for a; do case $a in M=*) m=${a#M=} ;; esac; done' 'mkdir -p "$m/kernel"' 'cp "$FAKE/module.o" "$m/vgpu.ko"' \
		'cp "$FAKE/object.o" "$m/kernel/vgpu_rs.o"' 'cp "$FAKE/.main.o.cmd" "$m/kernel/"' 'cat "$FAKE/objtool"' >"$work/cache/tools/bin/make"
}
module vgpu_count nvUvmInterfaceRegisterGpu uvm_rust_k_kfree _RNvXs2_NtCshjr8n2IPHLo_7vgpu_rs7machine init_module __this_module __mod_pci__ids
driver vgpu && grep -q '/vgpu$' "$work/said"
check "a module whose global symbols are called ours is taken"
module vgpu_count to_nv __pfx_to_nv _RNvNtCshjr8n2IPHLo_4core3fmt
! driver vgpu && [ "$(grep -A 1 '^error: .*vgpu.ko has global symbols whose names are not ours: ' "$work/said" | sed 's/.*: //' | paste -sd' ')" = \
	"_RNvNtCshjr8n2IPHLo_4core3fmt to_nv" ]
check "one that has others is refused, and they are named, each once"

module vgpu_count && assemble "$room" 'nop; jmp __x86_return_thunk'
! driver vgpu && grep -q '^vgpu_rs.o: outer: it does not begin' "$work/said" && grep -q '^error: .*/vgpu_rs.o is not what' "$work/said"
check "one whose Rust is not hardened as its C is refused"
module vgpu_count && echo 'vgpu.o: warning: objtool: vgpu_x+0x1: unreachable instruction' >"$work/objtool"
! driver vgpu && grep -q '^vgpu_x+0x1: unreachable' "$work/said" && grep -q '^error: objtool has something to say' "$work/said"
check "and one of which objtool has something to say"

# clippy_of LINE...: what `driver.sh clippy` says when that is what make prints, once the module is
# built. The driver itself, which comes after the software GPU, has no sources here.
module vgpu_count
cp "$work/cache/tools/bin/make" "$work/make.builds"
clippy_of() {
	# shellcheck disable=SC2016
	{
		cat "$work/make.builds"
		printf 'case "$*" in *CLIPPY=1*) ;; *) exit ;; esac\necho "make $*" >>"$FAKE/calls"\n'
		printf "echo '%s'\n" "$@"
	} >"$work/cache/tools/bin/make"
	! driver clippy && grep -q '^make .* CLIPPY=1 kernel/vgpu_rs.o$' "$work/calls"
}
clippy_of '' && grep -q '^error: clippy has not looked at vgpu_rs' "$work/said"
check "a run of clippy in which it is not called is none"
clippy_of '  CLIPPY [M] /elsewhere/kernel/other.o' && grep -q '^error: clippy has not looked at vgpu_rs' "$work/said"
check "nor is one in which it looks at something else"
looked='  CLIPPY [M] /somewhere/kernel/vgpu_rs.o'
clippy_of "$looked" 'warning: unneeded something' && grep -q '^error: clippy has something to say about vgpu_rs' "$work/said"
check "a warning of clippy's is an error"
clippy_of "$looked" && ! grep -q 'vgpu_rs;' "$work/said"
check "where it has looked and said nothing, the next is looked at"
cp "$work/make.fails" "$work/cache/tools/bin/make"

tree 530.41.03
! driver vgpu && refuses 'UVM_SRC is driver 530.41.03; what is known are 535, 545 to 575'
check "a version that nothing here is for is refused before that"

# pinned VERSION SAYS: so ends upstream.sh, where git has nothing.
pinned() { ! env -u UVM_SRC UVM_VERSION="$1" UVM_GIT="$work/nowhere" "$top/scripts/upstream.sh" >"$work/said" 2>&1 && grep -qE "^error: $2" "$work/said"; }
release=$(sed -n 's/^580) tag=\([0-9.]*\) .*/\1/p' "$top/scripts/upstream.sh")
pinned 580 ".*gives no release $release:" && pinned "$release" ".*gives no release $release:"
check "a release may be named whole"
pinned "${release}9" "UVM_VERSION=${release}9: of 580, $release is pinned" && pinned 585.1 'UVM_VERSION=585.1: use 535, '
check "another than the pinned one is refused, and so is one of no branch that is known"

# versions UVM_SRC: the parts of ours that `make test-versions` would have for it, and their trees.
versions() {
	env -u ONLY -u FAILED UVM_SRC="$1" "$top/scripts/test.sh" list versions --commands 2>&1 | grep -v '^versions/tags' |
		sed -E 's/^([^ ]*) skipped: .*/skip \1/; s/^([^ ]*) UVM_SRC=(([^ \\]|\\.)*) .*/\1 \2/; t; s/^([^ ]*) .*/\1/' |
		sed 's/\\\(.\)/\1/g' >"$work/said"
	sed -n '/^versions\/555/,/^versions\/calls/p' "$work/said" | tail -n +2 | sed '/^versions\/calls/d'
}
# bases: and of the unmodified driver.
bases() { sed -n '/^build\/programs/,$p' "$work/said" | tail -n +2; }

tree 580.142
mv "$UVM_SRC" "$work/one"
tree 595.45.04
mkdir "$work/two"
mv "$UVM_SRC" "$work/two/kernel-open"
two="versions/580.142 $work/one
versions/595.45.04 $work/two"
[ "$(versions "$work/one $work/two")" = "$two" ]
check "make test-versions builds each tree of several, under its version"

[ "$(bases)" = "versions/580.142/modules $work/one
versions/580.142/ladder $work/one
versions/580.142/ladder-two-gpus $work/one
versions/595.45.04/modules $work/two
versions/595.45.04/ladder $work/two
versions/595.45.04/ladder-two-gpus $work/two" ]
check "and runs NVIDIA's own on the software GPU"

[ "$(versions "$work/one:$work/two")" = "$two" ]
check "with colons, too"

tree 570.211.01
for file in uvm_va_block.c uvm_va_space.h uvm_pmm_gpu.h uvm_pmm_gpu.c uvm_va_range.h uvm_perf_events.h uvm_hmm.c uvm_gpu.h \
	uvm_forward_decl.h uvm_processors.h uvm_gpu_replayable_faults.h; do : >"$UVM_SRC/nvidia-uvm/$file"; done
versions "$UVM_SRC" >/dev/null
bases | grep -q '^versions/570.211.01/ours/ladder '
check "and ours, where all of it is built"
echo 'NV_STATUS uvm_va_range_discard(void);' >"$UVM_SRC/nvidia-uvm/uvm_va_range.h"
versions "$UVM_SRC" >/dev/null
[ "$(bases | sed -n 's,^versions/570.211.01/ours/\([^ ]*\) .*,\1,p' | paste -sd' ')" = 'ladder discard discard-native' ]
check "NVIDIA's discard as well, where there is one behind ours"
echo 'enum { UVM_PMM_ALLOC_LIST_USED };' >"$UVM_SRC/nvidia-uvm/uvm_pmm_gpu.h"
versions "$UVM_SRC" >/dev/null
[ "$(bases | sed -n 's,^versions/570.211.01/ours/\([^ ]*\) .*,\1,p' | paste -sd' ')" = 'ladder discard discard-native' ]
check "with the lists of 590, too"

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

# lints TEXT: what clippy says of the module that panics, with TEXT at its end, in a kernel that
# comes without Rust.
lints() {
	cp -t "$work/lint" "$top"/tests/panic/{Kbuild,main.c,panic.rs}
	printf '%s\n' "$1" >>"$work/lint/panic.rs"
	env -u MAKEFLAGS make -C "$stock" M="$work/lint" UVM_RUST_KERNEL=own CLIPPY=1 panic.o >"$work/said" 2>&1 &&
		grep -q '^ *CLIPPY .*panic' "$work/said"
}
# The second time, nothing is to be compiled.
twice() { "$@" && "$@"; }
if [ -n "$stock" ] && clippy-driver --version >/dev/null 2>&1; then
	mkdir "$work/lint"
	cp -r "$top/src/uvm_rust/kernel" "$work/lint/uvm_rust_kernel"
	none() { lints '' && ! grep -q '^warning' "$work/said"; }
	# shellcheck disable=SC2317
	planted() {
		lints '/// Planted.
pub fn planted(n: u32) -> u32 { return n; }' && grep -q '^warning: unneeded .return' "$work/said"
	}
	twice none
	check "clippy finds nothing in a module for Debian's kernel, as it comes"
	twice planted
	check "and finds what is planted in it, whenever it is asked"
else
	skipped 2 "no kernel of Debian's in the cache"
fi
done_testing
