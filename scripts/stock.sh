#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Provide the kernel of a distribution as it is: Debian's packaged Linux and its headers,
# unpacked into the cache, not installed. Prints the folder that modules are built with;
# `vmlinuz` there leads to the image, beside which its modules lie.
#
#   stock.sh              provides it
#   stock.sh --default    says "stock" where this machine's distribution has a kernel that is
#                         known here, and nobody has asked for another (KERNEL, KDIR)
#
# Pinned by version and sha256 for each release of Debian, as the compiler of the machine
# must be the one of the kernel. Where the archive has dropped that version, what it has
# now is taken, and said.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

# shellcheck source=/dev/null
release=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}")
# The packages, and the sha256 of each.
case ${STOCK_RELEASE:-$release} in
bookworm)
	version=6.12.117-1~deb12u1 abi=6.12.117+deb12 meta=linux-image-6.12-amd64
	pool=pool/updates/main/l/linux-6.12 signed=pool/updates/main/l/linux-signed-6.12-amd64
	sums=(
		803d36a7cda13355ae8152122470288b2636f19f1cb58162dd9d8b408af9b1b4
		8ee4c67f8399bc6f9aa1c5256d9d1b1b7eace76c7acca519e63f1b7df5fc4bd0
		0c70107dda266a9d26dc119d80a71589202b17fbf4d4ddf544681c89e2002742
		69761d1daf39e43485d278cc7066f77c15edc3b881d6e47afd61cf0da0985677
	)
	;;
trixie)
	version=6.12.107-1 abi=6.12.107+deb13 meta=linux-image-amd64
	pool=pool/main/l/linux signed=pool/main/l/linux-signed-amd64
	sums=(
		7794643cf4560de2a7e3b069e8ca8511ad2a568d652ea285f0fe051f79bc9e99
		0ab746a3d854ad0e666923147842d1e629cdb3e29a97b76ae25b4911285174e4
		12dc292d7c238928fbcb7eebbe79208758fe263a4e2ea0e9b6734e6df12020a5
		0a88527eb05bca1ce75e7d39ec27539d385a24cf90b2b28917cc4903a4f710d3
	)
	;;
*)
	[ "${1:-}" != --default ] || exit 0
	die "KERNEL=stock needs Debian 12 or 13, and this is ${release:-another system}: use KERNEL=release, or KDIR=/path to a kernel's headers"
	;;
esac
if [ "${1:-}" = --default ]; then
	[ -n "${KERNEL:-}${KDIR:-}" ] || echo stock
	exit
fi

# names: the packages of a version, in the order of the sums.
names() {
	echo "linux-image-$abi-amd64 amd64 $signed"
	echo "linux-headers-$abi-amd64 amd64 $pool"
	echo "linux-headers-$abi-common all $pool"
	echo "linux-kbuild-$abi amd64 $pool"
}

# debian_mirrors: the archives this machine's apt already uses.
debian_mirrors() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | sort -u
}

# is_pinned FILE SHA256
is_pinned() { [ -r "$1" ] && echo "$2  $1" | sha256sum -c --quiet 2>/dev/null; }

# fetch NAME ARCH POOL SHA256: prints the file; fails if no archive has it.
fetch() {
	local deb="$1_${version}_$2.deb" sum=$4 to m
	to=$CACHE/dl/$deb
	if is_pinned "$to" "$sum"; then echo "$to"; return; fi
	have curl || die "curl is missing: run 'make deps'"
	for m in $(debian_mirrors); do
		if curl -fsL --retry 3 -o "$to.part" "${m%/}/$3/$deb" && is_pinned "$to.part" "$sum"; then
			mv "$to.part" "$to"
			echo "$to"
			return
		fi
	done
	rm -f "$to.part"
	return 1
}

# fetch_pinned: prints the packages' files.
fetch_pinned() {
	local name arch folder i=0
	while read -r name arch folder; do
		fetch "$name" "$arch" "$folder" "${sums[i++]}" || return 1
	done < <(names)
}

# current: what the archive's package of packages leads to now; sets version and abi.
current() {
	local image
	image=$(apt-cache depends "$meta" 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2 }' | head -n 1)
	[ -n "$image" ] || die "no archive of this machine's apt has Linux $version, nor $meta: run apt-get update"
	abi=${image#linux-image-} abi=${abi%-amd64}
	version=$(apt-cache policy "$image" | awk '/Candidate:/ { print $2 }')
}

# fetch_current: by apt, which checks what it gets against the archive's signature.
fetch_current() {
	local name _ files=()
	mkdir -p "$CACHE/dl/apt"
	while read -r name _; do files+=("$name=$version"); done < <(names)
	(cd "$CACHE/dl/apt" && apt-get -q -o APT::Sandbox::User=root download "${files[@]}" >&2) || return 1
	while read -r name _; do
		find "$CACHE/dl/apt" -name "${name}_*.deb" -print -quit
	done < <(names)
}

# unpack DIR FILE...: with what a package's installation would do.
unpack() {
	local dir=$1 deb headers
	shift
	rm -rf "$dir" && mkdir -p "$dir"
	for deb; do dpkg-deb -x "$deb" "$dir"; done
	headers=$dir/usr/src/linux-headers-$abi-amd64
	# It is not where it thinks it is.
	sed -i "s|/usr/src/|$dir/usr/src/|" "$headers/Makefile"
	ln -s "$dir/boot/vmlinuz-$abi-amd64" "$headers/vmlinuz"
	[ -e "$dir/lib" ] || ln -s usr/lib "$dir/lib"
	depmod -b "$dir" "$abi-amd64"
}

locked stock
# What was taken in place of the pinned version, if that was gone.
instead=$CACHE/stock-$version.instead
if [ -e "$instead" ]; then read -r version abi <"$instead"; fi
dir=$CACHE/stock-$version
if [ ! -e "$dir/.unpacked" ]; then
	say "fetching Debian's Linux $version (124 MB)"
	if ! fetched=$(fetch_pinned); then
		pinned=$version
		current
		say "the archive has dropped Linux $pinned; taking $version, as it has now"
		dir=$CACHE/stock-$version
		fetched=$(fetch_current) || die "apt could not fetch Linux $version"
		echo "$version $abi" >"$instead"
	fi
	mapfile -t debs <<<"$fetched"
	progress "unpacking Linux $version" "$dir.log" unpack "$dir" "${debs[@]}"
	touch "$dir/.unpacked"
fi
echo "$dir/usr/src/linux-headers-$abi-amd64"
