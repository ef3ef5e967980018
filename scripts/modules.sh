#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Build all of NVIDIA's open modules, with our nvidia-uvm.ko in place of theirs, and print the
# folder that holds them on standard output.
#
#   KERNEL_OPEN=/path modules.sh
#
# KERNEL_OPEN is what NVIDIA calls kernel-open: that folder of a tree of
# open-gpu-kernel-modules, of an unpacked .run, or /usr/src/nvidia-* of a package of the open modules for DKMS.
# nvidia.ko and nvidia-modeset.ko have a part that is no kernel code: a binary that lies there
# (nvidia/nv-kernel.o_binary), or, in a tree, is made from its src/, in half an hour.
#
# All are linked in one go: what ours needs of nvidia.ko must be there, or the build fails.
#
# Environment: KDIR=/path (a kernel's headers, or its build folder; that of the running kernel),
# RELEASE=0 (NVIDIA's build with asserts; default 1), UVM_RUST_KERNEL=own|linux, UVM_RUST_ROOT=/path
# (where /sys is looked for: the tests' root).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"

open=${KERNEL_OPEN:-}
[ -n "$open" ] || die "KERNEL_OPEN=/path is missing: the folder kernel-open of NVIDIA's tree, or /usr/src/nvidia-* of a package of the open modules"
[ ! -d "$open/kernel-open" ] || open=$open/kernel-open
for f in Kbuild Makefile conftest.sh nvidia/nvidia.Kbuild nvidia-uvm/uvm.c; do
	[ -r "$open/$f" ] || die "KERNEL_OPEN=$open has no $f: it is not NVIDIA's kernel-open"
done
! grep -qs 'MODULE_LICENSE("NVIDIA")' "$open"/nvidia/*.c ||
	die "KERNEL_OPEN=$open is of the proprietary modules, beside which the kernel takes no module of ours: take kernel-open, or a package of the open ones"
open=$(realpath "$open")
kernel=${KDIR:-/lib/modules/$(uname -r)/build}
[ -r "$kernel/Module.symvers" ] ||
	die "$kernel has no Module.symvers: KDIR=/path to the headers of the kernel that the modules are for"
kernel=$(realpath "$kernel")
version=$(driver_version "$open")
# CUDA's library has the version of the driver that is loaded, and refuses another's.
loaded=$(nvidia_loaded)
[ "${loaded:-$version}" = "$version" ] ||
	say "these modules are of NVIDIA's $version, and the nvidia.ko that is loaded here is $loaded: with the libraries of $loaded they do not work"
crate=$("$TOP/src/uvm_rust/kernel/build/probe.sh" "$kernel")
type=release
[ "${RELEASE:-1}" != 0 ] || type=develop

compiler=()
read -ra compiler <<<"$(kernel_compiler "$kernel")"
sources=$(kernel_sources "$kernel")

# What the kernel has is asked once for a folder.
dir=$TOP/out/modules-$version-$(printf '%s %s %s' "$open" "$kernel" "$type $crate" | sha256sum | cut -c1-8)
mkdir -p "$dir"

# binary NAME MODULE SOURCE: the part of a module that is no kernel code.
binary() {
	local file=$2/$1.o_binary made
	[ ! -e "$open/$file" ] || return 0
	made=$open/../src/$3
	[ -e "$made/Makefile" ] ||
		die "$open has no $file, and beside it there is no src/$3 to make it from: take NVIDIA's whole tree, or a package's"
	[ -w "$made" ] ||
		die "$1.o would be made in $made, which you may not write to: copy the folder that src/ and kernel-open/ are in (cp -r), and name the copy"
	TOTAL=1800 progress "$1 from src/$3" "$dir.$1.log" make -C "$made" -j"$JOBS"
	made=$(find "$made/_out" -name "$1.o" | head -n 1)
	[ -n "$made" ] || die "src/$3 was built, and there is no $1.o: see $dir.$1.log"
	cp "$made" "$dir/$file"
}

names=()
for f in "$open"/nvidia*/; do
	f=$(basename "$f")
	if [ -e "$open/$f/$f.Kbuild" ]; then names+=("$f"); fi
done
rsync -a --exclude='*.o' --exclude='.*' --exclude='*.mod*' --exclude='*.ko*' --exclude-from=<("$TOP/scripts/seam.sh" --patched) "$open/" "$dir/"
# Newer kernels, of 6.12 those from 6.12.107 on, give pci_resize_resource() one argument more, which older releases lack.
if grep -qs exclude_bars "$sources/include/linux/pci.h"; then
	sed -i 's/NV_GPU_BAR1, requested_size)/NV_GPU_BAR1, requested_size, 0)/' "$dir/nvidia/nv-pci.c"
fi
binary nv-kernel nvidia nvidia
[ ! -d "$open/nvidia-modeset" ] || binary nv-modeset-kernel nvidia-modeset nvidia-modeset
"$TOP/scripts/seam.sh" "$open" "$dir"
flags=$({ echo "-fmacro-prefix-map=$dir/=" && dropped "$sources" "$open" "$dir/uvm-rust/nvidia-uvm-c/fixes/dropped"; } | paste -sd' ')

mk_all() {
	make -C "$kernel" M="$dir" "${compiler[@]}" ARCH=x86_64 -j"$JOBS" --no-print-directory UVM_RUST_KERNEL="$crate" \
		NV_KERNEL_SOURCES="$sources" NV_KERNEL_OUTPUT="$kernel" NV_KERNEL_MODULES="${names[*]} uvm-rust" \
		NV_SPECTRE_V2=0 UVM_BUILD_TYPE="$type" KCFLAGS="$flags" modules
}
TOTAL=1200 progress "${#names[@]} modules of NVIDIA's $version, nvidia-uvm with Rust, $type" "$dir.log" mk_all
modinfo -F parm "$dir/nvidia-uvm.ko" | grep -q '^uvm_rust_' || die "$dir/nvidia-uvm.ko is not ours: see $dir.log"
for f in "${names[@]}"; do
	[ -e "$dir/$f.ko" ] || die "$f.ko was not made: see $dir.log"
	say "$f.ko  $(modinfo -F version "$dir/$f.ko")"
done
echo "$dir"
