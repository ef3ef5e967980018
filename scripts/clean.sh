#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Does a clean clone work on a clean machine? Makes a minimal Debian in a folder, with
# nothing but git, make and a user's archives, clones what is committed here into it, and
# runs make there. Says how long each target took, and what it left on the disk.
#
#   clean.sh bookworm|trixie TARGET...        such as: clean.sh trixie demo test
#
# Environment: CLEAN_DIR (a folder under $TMPDIR): where that Debian is; it is kept, so
# that it can be looked at, and begun anew each time. Needs root and debootstrap.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

suite=${1:-} targets=("${@:2}")
case $suite in bookworm | trixie) ;; *) die "clean.sh bookworm|trixie TARGET..." ;; esac
[ ${#targets[@]} -gt 0 ] || targets=(demo test)
[ "$(id -u)" = 0 ] || die "needs root"
have debootstrap || die "needs debootstrap: apt-get install debootstrap"
dir=${CLEAN_DIR:-${TMPDIR:-/tmp}/uvm-rust-clean-$suite}
archive=${DEBIAN_MIRROR:-http://deb.debian.org}

rm -rf "$dir"
TOTAL=300 progress "Debian $suite" "$dir.log" \
	debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$dir" "$archive/debian"
echo "deb $archive/debian-security $suite-security main" >"$dir/etc/apt/sources.list.d/security.list"
echo "deb $archive/debian $suite-updates main" >"$dir/etc/apt/sources.list.d/updates.list"
cp /etc/resolv.conf "$dir/etc/resolv.conf"
# Whom this machine trusts: a company's network may look into TLS.
cp /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/ca-certificates.crt"
git clone --quiet --no-hardlinks "$TOP" "$dir/root/uvm-rust"

# Mounts of its own, and processes, which end with it.
cat >"$dir/root/run" <<-'EOF'
	mount -t proc proc /proc && mount -t sysfs sysfs /sys
	mount -t devtmpfs devtmpfs /dev && mkdir -p /dev/pts /dev/shm
	mount -t devpts devpts /dev/pts && mount -t tmpfs tmpfs /dev/shm
	cd /root/uvm-rust
	for target; do
	    t0=$SECONDS
	    make "$target" || { echo "clean: make $target failed"; exit 1; }
	    echo "clean: make $target: $((SECONDS - t0)) s; cache $(du -sm /root/.cache/uvm-rust | cut -f1) MB, checkout $(du -sm . | cut -f1) MB"
	done
EOF
exec unshare --mount --pid --fork --kill-child chroot "$dir" /usr/bin/env -i \
	HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM="${TERM:-dumb}" LANG=C.UTF-8 bash /root/run "${targets[@]}"
