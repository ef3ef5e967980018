#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Which `kernel` crate can be linked into modules of this kernel? Prints
#
#   linux    the kernel's own: 6.12's, built with Rust, by this rustc, and its metadata is there
#   own      ours (src/uvm_rust/kernel): no Rust is needed of the kernel
#
# and on standard error why. Fails, with one line, for a kernel that neither fits.
#
#   probe.sh KDIR [RUSTC]     KDIR: the folder that modules are built with
#
# Environment: UVM_RUST_KERNEL=own|linux takes that one, or fails if it does not fit.
set -eu
kdir=$1 rustc=${2:-${RUSTC:-rustc}}
forced=${UVM_RUST_KERNEL:-}
refuse() { printf 'error: %s\n' "$*" >&2; exit 1; }
found() { printf 'kernel crate: %s (%s)\n' "$1" "$2" >&2; echo "$1"; exit 0; }

case $forced in '' | own | linux) ;; *) refuse "UVM_RUST_KERNEL=$forced: use own or linux" ;; esac
config=$kdir/include/config/auto.conf
[ -r "$config" ] || config=$kdir/.config
[ -r "$config" ] || refuse "$kdir has no .config: point KDIR to the headers, or the output folder, of a kernel"
is() { grep -q "^CONFIG_$1=[ym]" "$config"; }

release=$(cat "$kdir/include/config/kernel.release" 2>/dev/null || :)
[ -n "$release" ] || refuse "$kdir is not prepared: it has no include/config/kernel.release"
is X86_64 || refuse "Linux $release is not for x86-64, and nothing here has been built for another machine"

version=${release%%[!0-9.]*}
major=${version%%.*}
minor=${version#*.}
minor=${minor%%.*}

# The kernel's own crate, or why not. Its interface is another in each version, and our code is
# written for one.
why=
if ! is RUST; then
	why='built without CONFIG_RUST'
elif [ "$major.$minor" != 6.12 ]; then
	why="its crate is not 6.12's"
elif [ ! -r "$kdir/rust/libkernel.rmeta" ]; then
	why="its headers come without Rust's metadata"
else
	want=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"/\1/p' "$config")
	now=$("$rustc" --version)
	if [ -n "$want" ] && [ "$want" != "$now" ]; then
		why="built with '$want', and this is '$now'"
	fi
fi
if [ -z "$why" ] && [ "$forced" != own ]; then found linux "Linux $release was built with Rust"; fi
[ "$forced" != linux ] || refuse "Linux $release cannot lend its kernel crate: $why (UVM_RUST_KERNEL=linux)"

# Ours: what no one has tried, or what cannot work.
for option in CFI_CLANG CFI; do
	! is $option || refuse "Linux $release checks the types of indirect calls (CONFIG_$option, kCFI), which Rust of another compiler than its C's does not pass"
done
! is LTO_CLANG || refuse "Linux $release links with clang's LTO (CONFIG_LTO_CLANG), so that its modules are bitcode until then: to link an object of Rust's into them has not been tried"
! is KMSAN || refuse "Linux $release has KMSAN, which takes all that Rust writes for uninitialised"
# As the kernel itself does for Rust.
if is KASAN && ! is CC_IS_CLANG; then
	refuse "Linux $release has KASAN (CONFIG_KASAN) of gcc's, and Rust would bring LLVM's: build that kernel with clang"
fi
[ "$major" -gt 6 ] || { [ "$major" = 6 ] && [ "$minor" -ge 1 ]; } ||
	refuse "Linux $release is older than 6.1, the oldest that our kernel crate has been built for"
found own "${why:-UVM_RUST_KERNEL=own}"
