#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Build the VM's kernel: Linux from Debian's linux-source package, tinyconfig
# plus our fragment(s), Rust on. Prints the build folder on standard output.
#
#   kernel.sh [release|debug|stock]     debug adds KASAN, lockdep and kmemleak; stock is
#                                       Debian's own, unpacked instead of built (stock.sh)
#
# gcc compiles release, in three quarters of clang's time, and clang debug: so there is a
# kernel of either.
#   kernel.sh source                    only unpacks the source, and prints its folder
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

flavour=${1:-release}
series=${KERNEL_SERIES:-6.12}
fragments=("$TOP/scripts/kernel/uvm.fragment")
compiler=() cc=gcc
case $flavour in
source) ;;
release) fragments+=("$TOP/scripts/kernel/release.fragment") ;;
debug) fragments+=("$TOP/scripts/kernel/debug.fragment") compiler=(LLVM=1) cc=clang ;;
stock) exec "$TOP/scripts/stock.sh" ;;
*) die "kernel flavour '$flavour': use release, debug, stock or source" ;;
esac

tarball=/usr/src/linux-source-$series.tar.xz
[ -r "$tarball" ] || die "no $tarball: run 'make deps' (Debian package linux-source-$series)"
pkg_version=$(dpkg-query -W -f '${Version}' "linux-source-$series" 2>/dev/null || stat -c %Y "$tarball")
key=$(printf '%s' "$pkg_version" | tr -c 'A-Za-z0-9.\n' _)
src=$CACHE/linux-$key
config_key=$( { short_hash "${fragments[@]}"; rustc --version; "$cc" --version | head -n 1; } | sha256sum | cut -c1-12)
build=$CACHE/kernel-$key-$flavour-$config_key

# unpack: the source, once for all flavours.
unpack() (
	locked kernel-source
	[ ! -e "$src/.extracted" ] || exit 0
	say "unpacking Linux $pkg_version"
	rm -rf "$src" && mkdir -p "$src"
	tar -C "$src" --strip-components=1 -xf "$tarball"
	touch "$src/.extracted"
)

if [ "$flavour" = source ]; then unpack; echo "$src"; exit 0; fi
# Nobody waits for the build of another kernel to learn where this one is.
if [ -e "$build/.built" ]; then echo "$build"; exit 0; fi
locked "kernel-$flavour"
if [ -e "$build/.built" ]; then echo "$build"; exit 0; fi
unpack

mk() { make -C "$src" O="$build" "${compiler[@]}" "$@"; }
if [ ! -e "$build/.configured" ]; then
	mkdir -p "$build"
	mk tinyconfig >"$build.log" 2>&1
	KCONFIG_CONFIG=$build/.config "$src/scripts/kconfig/merge_config.sh" -m -O "$build" \
		"$build/.config" "${fragments[@]}" >>"$build.log" 2>&1
	mk olddefconfig >>"$build.log" 2>&1
	mk rustavailable >>"$build.log" 2>&1 || { tail -n 15 "$build.log" >&2; die "this machine cannot build Rust for Linux: run 'make deps'"; }
	# Kconfig drops what it cannot have without a word.
	# shellcheck disable=SC2013
	for want in $(sed -n "s/^\(CONFIG_[A-Z0-9_]*=[ym]\)$/\1/p" "${fragments[@]}"); do
		# The second fragment may have had its way.
		! grep -qx "# ${want%=*} is not set" "${fragments[@]}" || continue
		grep -qx "${want%=*}=[ym]" "$build/.config" || die "Kconfig refused $want; see $build.log"
	done
	touch "$build/.configured"
fi
case $flavour in release) TOTAL=2100 ;; *) TOTAL=2900 ;; esac
progress "kernel $pkg_version ($flavour)" "$build.log" mk -j"$JOBS" bzImage modules
touch "$build/.built"
echo "$build"
