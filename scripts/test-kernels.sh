#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# For which kernels, C compilers and rustcs do the modules build, and with which warnings?
#
#   test-kernels.sh [DISTRIBUTION...]    debian-12 debian-13 debian-13-backports debian-sid
#                                        ubuntu-24.04 ubuntu-24.04-hwe          (all of Debian's)
#
# Each distribution is made in a folder of the cache, with its kernel's headers, its compilers and
# sparse. There NVIDIA's nvidia-uvm.ko, ours and vgpu.ko are built, once for each pair of a C
# compiler and a rustc; what compiler, objtool, modpost and sparse say is counted, and driver.sh
# looks at the names of what is global. Then that kernel is booted in the VM, and runs the demo.
# Rows of earlier runs are kept: out/test-kernels/rows.tsv, and of it table.md and rows.json.
#
# gcc's rows are for the distribution's kernel. clang does not take the flags of a kernel that gcc
# has built: its rows are for a tree of the same source and configuration that is prepared for
# modules by clang, and not built; what was built for it is not loaded.
#
# C is compiled once for each kernel and C compiler: with the next rustc, Rust is, and all is
# linked and looked at again.
#
# Environment: COMPILERS="gcc clang", RUSTCS="theirs newest" (the distribution's, if it is 1.85 or
# later, and this machine's), VARIANTS="upstream rust vgpu" (what is built), BOOT=0 (boot nothing),
# UPDATE=1 (take what the archive has now), KEEP=1 (go on with what an interrupted run has built;
# counted is only what is said now), DEBIAN_MIRROR=URL (else the archive of this machine's apt),
# DEBIAN_SECURITY=URL, UBUNTU_MIRROR=URL (which Ubuntu's need, and Debian 13's package
# ubuntu-archive-keyring), UVM_VERSION, UVM_SRC (see upstream.sh), JOBS.
# Needs root and debootstrap, and 2 GB in the cache for each. Exit status: 1 if a warning of ours
# was seen, or something was not built that NVIDIA's own module is built for.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/scripts/chroot.sh"
. "$TOP/scripts/test-kernels-rows.sh"
. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"

[ "$(id -u)" = 0 ] || die "needs root, to make a distribution in a folder"
# What is mounted goes when this ends.
if [ -z "${UVM_RUST_UNSHARED:-}" ]; then
	UVM_RUST_UNSHARED=1 exec unshare --mount --propagation private "$0" "$@"
fi
have debootstrap || die "debootstrap is missing: apt install debootstrap"
distributions=("$@")
[ $# -gt 0 ] || distributions=(debian-12 debian-13 debian-13-backports debian-sid)

ubuntu_keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
here=$CACHE/kernels out=$TOP/out/test-kernels
rows=$out/rows.tsv
mkdir -p "$here/debs/partial" "$out"
locked test-kernels

# --- the distributions ------------------------------------------------------------

# distribution NAME: sets base (whose folder it is in), suite, meta (of the package of its
# kernel's headers) and from (the suites that this package may be of).
distribution() {
	base=${1%-backports} base=${base%-hwe} meta=amd64
	case $1 in
	debian-12) suite=bookworm ;;
	debian-13*) suite=trixie ;;
	debian-sid) suite=sid ;;
	ubuntu-24.04) suite=noble meta=generic ;;
	ubuntu-24.04-hwe) suite=noble meta=generic-hwe-24.04 ;;
	*) die "no distribution '$1': use debian-12, debian-13, debian-13-backports, debian-sid, ubuntu-24.04 or ubuntu-24.04-hwe" ;;
	esac
	from="$suite(-updates|-security)?"
	case $1 in *-backports) from=$suite-backports ;; esac
	dir=$here/$base root=$here/$base/root
}

# sources: the lines of apt's list.
sources() {
	local m s
	case $base in
	ubuntu-*)
		for s in "" -updates -security; do echo "deb $UBUNTU_MIRROR $suite$s main universe"; done
		;;
	debian-sid) echo "deb $(debian_mirror) sid main" ;;
	*)
		m=$(debian_mirror)
		for s in "" -updates -backports; do echo "deb $m $suite$s main"; done
		echo "deb $(debian_security) $suite-security main"
		;;
	esac
}

bootstrap() {
	rm -rf "$root" && mkdir -p "$root"
	case $base in
	ubuntu-*)
		debootstrap --cache-dir="$here/debs" --variant=minbase --components=main,universe \
			--keyring="$ubuntu_keys" "$suite" "$root" "$UBUNTU_MIRROR" \
			/usr/share/debootstrap/scripts/gutsy
		;;
	*) debootstrap --cache-dir="$here/debs" --variant=minbase --include=ca-certificates "$suite" "$root" "$(debian_mirror)" ;;
	esac
	no_services "$root"
	# It can be made again, so nobody waits until the disk has it.
	echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/uvm-rust"
}

# mount_inside: what commands in there need; and our source, NVIDIA's, and this machine's Rust.
mount_inside() {
	mkdir -p "$root"/mnt/{uvm-rust,nvidia,rust}
	mount -t proc proc "$root/proc"
	mount -t devtmpfs devtmpfs "$root/dev"
	mount --bind "$here/debs" "$root/var/cache/apt/archives"
	mount --bind "$TOP" "$root/mnt/uvm-rust"
	mount --bind "$nvidia" "$root/mnt/nvidia"
	mount --bind "$(rustc --print sysroot)" "$root/mnt/rust"
}
umount_inside() { umount "$root"/{proc,dev,var/cache/apt/archives,mnt/uvm-rust,mnt/nvidia,mnt/rust}; }

# headers_package: the name of the newest one that `from` has.
headers_package() {
	local version
	version=$(inside apt-cache madison "linux-headers-$meta" |
		awk -F ' *[|] *' -v from=" $from/" '$3 ~ from { print $2; exit }')
	inside apt-cache show "linux-headers-$meta=$version" |
		sed -n 's/^Depends:.*\(linux-headers-[0-9][^ ,]*\).*/\1/p' | grep . || die "no linux-headers-$meta of $from"
}

# install PACKAGE...: what builds modules, and those. A kernel of these needs no initrd.
install() {
	inside env INITRD=No apt-get -y -q --no-install-recommends install make gcc libc6-dev kmod rsync xz-utils coccinelle sparse pahole "$@"
}

# their_rust: the distribution's packages of a Rust that is recent enough; nothing if it has none.
their_rust() {
	local p v
	for p in rustc:rust-src rustc-web:rust-web-src; do
		v=$(inside apt-cache policy "${p%:*}" | awk '/Candidate:/ { print $2 }')
		if [[ $v == [0-9]* ]] && at_least 1.85 "$v"; then echo "${p%:*}" "${p#*:}"; return; fi
	done
}

# may_check: lets kbuild run a checker. From 7.2 on it asks a script of its own first whether the
# checker is one that understands the kernel, and Debian's headers come without that script. What
# ours cannot read, it says by itself.
may_check() {
	local sources
	# shellcheck disable=SC2016
	sources=$root$(inside bash -c '. /mnt/uvm-rust/src/uvm_rust/kernel/build/kbuild.sh; kernel_sources "$1"' - "/usr/src/linux-headers-$release")
	if grep -qs 'scripts/checker-valid\.sh' "$sources/Makefile" && [ ! -e "$sources/scripts/checker-valid.sh" ]; then
		printf '#!/bin/sh\necho 1\n' >"$sources/scripts/checker-valid.sh"
		chmod +x "$sources/scripts/checker-valid.sh"
	fi
}

# make_distribution NAME: as it is from an earlier run, unless UPDATE is set; and sets release, of
# its kernel.
make_distribution() {
	local packages
	if [ ! -e "$dir/.made" ]; then
		TOTAL=300 progress "$base" "$out/$base.debootstrap.log" bootstrap
		touch "$dir/.made"
	fi
	mount_inside
	if [ -z "${UPDATE:-}" ] && [ -s "$dir/$1.release" ]; then
		release=$(cat "$dir/$1.release")
		return
	fi
	sources >"$root/etc/apt/sources.list"
	rm -f "$root"/etc/apt/sources.list.d/*
	progress "$1: what its archive has" "$out/$1.update.log" inside apt-get -q update
	packages=$(headers_package)
	release=${packages#linux-headers-}
	read -ra packages <<<"$packages $(their_rust)"
	TOTAL=400 progress "$1: Linux $release and compilers" "$out/$1.install.log" install "${packages[@]}"
	echo "$release" >"$dir/$1.release"
}

# --- kernels that clang has prepared ------------------------------------------------

# prepare_by_clang HEADERS TREE SERIES: the source of that kernel, without what no module's build
# reads, configured like HEADERS; what clang or this folder cannot have is off.
prepare_by_clang() {
	local tree=$root$2 mk=(inside make -C "$2" LLVM=1 -j"$JOBS")
	# Within $(...), as clang_tree is called, the shell goes on after an error.
	set -e
	get clang lld llvm flex bison bc libelf-dev libssl-dev "linux-source-$3"
	rm -rf "$tree" && mkdir -p "$tree"
	inside tar -C "$2" --strip-components=1 -xf "/usr/src/linux-source-$3.tar.xz" --exclude='*/Documentation/*/*' \
		--exclude='*/tools/testing' --exclude='*/drivers/*.c' --exclude='*/sound/*.c' --exclude='*/net/*.c' --exclude='*/fs/*.c'
	sed -E '/^CONFIG_(DEBUG_INFO_BTF|MODULE_SIG|SYSTEM_TRUSTED_KEYS|RUST|GCC_PLUGINS|CFI|CFI_CLANG|LTO_CLANG_.*)=/d' \
		"$root$1/.config" >"$tree/.config"
	"${mk[@]}" olddefconfig
	"${mk[@]}" modules_prepare
	# Which symbols there are depends on the source.
	cp "$root$1/Module.symvers" "$tree/Module.symvers"
	touch "$tree/.prepared"
}

# clang_tree HEADERS: prints its folder, in the distribution; nothing if there is no source.
clang_tree() {
	local series tree=/usr/src/clang-$release
	series=$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$release")
	if [ ! -e "$root$tree/.prepared" ]; then
		if ! inside apt-cache show "linux-source-$series" >/dev/null 2>&1; then
			say "$release: no package linux-source-$series, so nothing by clang"
			return
		fi
		TOTAL=400 progress "Linux $release, prepared by clang" "$out/$release.clang.log" prepare_by_clang "$1" "$tree" "$series"
	fi
	echo "$tree"
}

# --- a row --------------------------------------------------------------------------

# with_rust theirs|newest COMMAND...: inside, with that rustc ahead of others.
with_rust() {
	local path=/usr/local/bin:/usr/bin:/usr/sbin
	[ "$1" = theirs ] || path=/mnt/rust/bin:$path
	inside env PATH="$path" "${@:2}"
}

# rust_version theirs|newest: nothing if there is none.
rust_version() { with_rust "$1" rustc --version 2>/dev/null | awk '{ print $2 }' || :; }

# compiler_of KDIR: its name and version, as the kernel is configured for it.
compiler_of() {
	local v
	v=$(sed -n 's/^CONFIG_\(GCC\|CLANG\)_VERSION=\([1-9][0-9]*\)[0-9]\{4\}$/\1 \2/p' "$root$1/include/config/auto.conf")
	echo "${v,,}"
}

# driver KDIR RUST VARIANT...: prints where the modules are.
driver() {
	with_rust "$2" UVM_RUST_CACHE=/var/cache/uvm-rust UVM_SRC=/mnt/nvidia KDIR="$1" JOBS="$JOBS" UVM_RUST_SPARSE=1 UVM_RUST_LEAN=1 \
		/mnt/uvm-rust/scripts/driver.sh "${@:3}" 2>"$log.said"
}

# build KDIR RUST: sets built[] for what was built, and keeps the logs. A kernel that is too new for
# NVIDIA's module may still get vgpu.
build() {
	local v
	built=()
	if driver "$1" "$2" "${variants[@]}" >"$log.dirs"; then
		{ for v in "${variants[@]}"; do read -r "built[$v]"; done; } <"$log.dirs"
	else
		why=$(grep -m 1 '^error: ' "$log.said" || tail -n 1 "$log.said")
		if [ "${variants[0]}" = upstream ] && [ -s "$log.dirs" ]; then read -r "built[upstream]" <"$log.dirs"; fi
		if driver "$1" "$2" vgpu >"$log.dirs"; then read -r "built[vgpu]" <"$log.dirs"; fi
	fi
	for v in "${!built[@]}"; do cp "$root${built[$v]}.log" "$log.$v"; done
}

# said TOOL: how many lines of it ours have beyond NVIDIA's.
said() {
	local v
	for v in rust vgpu; do
		[ ! -e "$log.$v" ] || said_newly "$1" "$log.$v" "$baseline"
	done | tee -a "$log.warnings" | how_many
}

# became VARIANT: what became of it.
became() {
	if [ -n "${built[$1]:-}" ]; then echo built
	elif [[ " ${variants[*]} " == *" $1 "* ]]; then echo no
	else echo "not tried"
	fi
}

# row NAME KDIR RUST: builds, and writes it down.
row() {
	local version tool counts=() loaded=no
	version=$(rust_version "$3")
	if [ -z "$version" ] || ! at_least 1.85 "$version"; then return 0; fi
	log=$out/$1-$release-$(compiler_of "$2" | tr ' ' -)-rustc-$version
	rm -f "$log".*
	say "$1: Linux $release, $(compiler_of "$2"), rustc $version"
	build "$2" "$3"
	baseline=${baseline:-$log.upstream}
	for tool in compiler objtool modpost sparse; do counts+=("$(said $tool)"); done
	if [ "$(said unread)" != 0 ]; then counts[3]="has not read all"; fi
	if [[ $(compiler_of "$2") == gcc* ]] && [ "${#built[@]}" = 3 ]; then loaded=$(demo); fi
	[ "$loaded" != "the demo fails" ] || bad=1
	put_row "$rows" "$1" "$release" "$(compiler_of "$2")" "$version" "$(crate "$2" "$3")" \
		"$(became upstream)" "$(became rust)" "$(became vgpu)" "${counts[@]}" \
		"$(said_by compiler "$baseline" 2>/dev/null | nameless | how_many)" "$loaded" "$(driver_version "$nvidia")"
	judge "${counts[@]}"
}

# crate KDIR RUST: which `kernel` crate it was.
crate() { with_rust "$2" sh /mnt/uvm-rust/src/uvm_rust/kernel/build/probe.sh "$1" 2>/dev/null || echo none; }

# judge COUNT...: what is counted, and what was to be built, fail the run. What has a baseline that
# does not build either is NVIDIA's matter.
judge() {
	if [ "$*" != "0 0 0 0" ]; then
		say "there are warnings:"
		cat "$log.warnings" >&2
		bad=1
	fi
	if [ "$(became vgpu)" = no ] || { [ "$(became rust)" = no ] && [ "$(became upstream)" != no ]; }; then
		say "not all is built: $why (see $log.said)"
		bad=1
	fi
}

# --- the VM ---------------------------------------------------------------------------

# image: the kernel's, with its modules, whether or not its headers have brought it along.
image() {
	local of=()
	# One of the backports may need others from there.
	case $from in *-backports) of=(-t "$from") ;; esac
	[ -e "$root/boot/vmlinuz-$release" ] || install "${of[@]}" "linux-image-$release"
}

# demo: prints what became of it.
demo() {
	local kernel=$dir/boot/$release v
	if [ "${BOOT:-1}" = 0 ]; then echo no; return; fi
	progress "the image of Linux $release" "$log.image" image
	mkdir -p "$kernel"
	ln -sfn "$root/boot/vmlinuz-$release" "$kernel/vmlinuz"
	{
		echo "kernel $kernel"
		for v in upstream rust vgpu; do echo "$v $root${built[$v]}"; done
	} >"$log.built"
	if env -u UVM_SRC -u UVM_VERSION -u UVM_RUST_MASKS -u UVM_RUST_KERNEL -u RELEASE -u KERNEL \
		KDIR="$kernel" UVM_BUILT="$log.built" "$TOP/scripts/demo.sh" >"$log.demo" 2>&1; then
		echo "the demo passes"
	else
		say "the demo fails on Linux $release: see $log.demo"
		echo "the demo fails"
	fi
}

# --- all ------------------------------------------------------------------------------

# rows_of NAME: of a distribution, whose folder is mounted.
rows_of() {
	local c r headers=/usr/src/linux-headers-$release kdir
	for c in ${COMPILERS:-gcc clang}; do
		kdir=$headers
		if [ "$c" = clang ]; then kdir=$(clang_tree "$headers"); fi
		[ -n "$kdir" ] || continue
		# So that all of C is compiled with the first rustc, and what is said of it seen.
		[ -n "${KEEP:-}" ] || rm -rf "$root"/var/cache/uvm-rust/driver-*
		baseline=
		for r in ${RUSTCS:-theirs newest}; do row "$1" "$kdir" "$r"; done
	done
}

nvidia=$("$TOP/scripts/upstream.sh")
read -ra variants <<<"${VARIANTS:-upstream rust vgpu}"
declare -A built=()
bad=0 why=
for name in "${distributions[@]}"; do
	distribution "$name"
	if [[ $base == ubuntu-* ]]; then
		[ -n "${UBUNTU_MIRROR:-}" ] || die "$name needs UBUNTU_MIRROR=URL"
		[ -r "$ubuntu_keys" ] || die "$name needs $ubuntu_keys: Debian 13's package ubuntu-archive-keyring has it"
	fi
	make_distribution "$name"
	may_check
	rows_of "$name"
	umount_inside
done
as_table "$rows" | tee "$out/table.md"
as_json "$rows" >"$out/rows.json"
[ "$bad" = 0 ]
