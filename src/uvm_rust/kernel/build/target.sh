#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Print the description of the target that Rust is compiled for: the compiler's own for
# bare x86-64, in the words of its version, with the mitigations of the kernel's C.
#   target.sh RUSTC "FLAGS OF THE KERNEL'S C"
# Everything else is compiled after this, so it is here that a compiler that cannot do
# it is refused.
set -eu
rustc=$1 cflags=" $2 "
# make's jobs are not this script's to hand out, and rustc warns of a server that it does not reach.
unset MAKEFLAGS MFLAGS CARGO_MAKEFLAGS
refuse() { printf 'error: %s\n' "$*" >&2; exit 1; }
version=$("$rustc" --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
[ -n "$version" ] || refuse "there is no $rustc: install Rust 1.85 or newer, with its library's source (Debian: rustc, rust-src)"
minor=${version#1.}
[ "${minor%%.*}" -ge 85 ] || refuse "$rustc is $version, and 1.85 or newer is needed"
library=$("$rustc" --print sysroot)/lib/rustlib/src/rust/library
[ -r "$library/core/src/lib.rs" ] ||
	refuse "rustc $version has no library source in $library: install it (Debian: rust-src; rustup component add rust-src)"
features=
case $cflags in *" -mindirect-branch=thunk-extern "* | *" -mretpoline-external-thunk "*)
	features=$features,+retpoline-external-thunk,+retpoline-indirect-branches,+retpoline-indirect-calls
esac
case $cflags in *" -mharden-sls=all "*)
	features=$features,+harden-sls-ijmp,+harden-sls-ret
esac
# Not built in, as it is another one; and with calls that go straight to what is called:
# the kernel has no table of addresses that they could go through.
RUSTC_BOOTSTRAP=1 "$rustc" -Zunstable-options --print target-spec-json --target x86_64-unknown-none |
	sed -e '/"is-builtin"/d' -e '/"plt-by-default"/d' -e "s/^\( *\"features\": \".*\)\"\(,\{0,1\}\)\$/\1$features\"\2/"
