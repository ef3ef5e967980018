#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The user library's own tests, and its random programs of two threads, under ThreadSanitizer, which watches the
# standard library too. It needs a nightly toolchain with rust-src. A race fails the test program in which it is.
#
#   tsan.sh [absent]     absent: says what it lacks, and succeeds if it lacks something
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

root=$(rustc +nightly --print sysroot 2>/dev/null) || root=
[ -d "$root/lib/rustlib/src/rust/library" ] || lacks="no nightly toolchain with rust-src (rustup +nightly component add rust-src)"
if [ "${1:-}" = absent ]; then
	[ -n "${lacks:-}" ] || exit 1
	echo "$lacks"
	exit 0
fi
[ -z "${lacks:-}" ] || die "$lacks"
cd "$TOP"
target=$(rustc +nightly -vV | sed -n 's/^host: //p')
export RUSTFLAGS=-Zsanitizer=thread
cargo +nightly test -Zbuild-std --target "$target" -p uvmrust --lib "$@"
cargo +nightly test -Zbuild-std --target "$target" -p uvmrust-random --test random two_threads
