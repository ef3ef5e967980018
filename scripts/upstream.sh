#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Provide NVIDIA's open driver source and print the folder that holds it.
#
# The source is a pinned Debian package nvidia-open-kernel-source (UVM_VERSION=535,
# 550 or 555; 550 if unset), a pinned release of NVIDIA's repository (560 to 595, by
# git), or any tree the user names in UVM_SRC: an unpacked open-gpu-kernel-modules
# release, its kernel-open folder, or the folder of a Debian package. Nothing is
# edited there. UVM_VERSION=580.142 is 580, as long as that is the release pinned for it.
#
# Environment: UVM_GIT, the repository that git fetches from (NVIDIA's).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"

# Debian's package of each version that the seam in src/nvidia-uvm-c/ knows, and the
# release that carries it.
asked=${UVM_VERSION:-550}
case ${asked%%.*} in
535) version=535.261.03-1 release=bookworm
	sha256=ee35aa18179ff6406186b3b0744138f5d66084dbca61170599d911a5d8a0c117 ;;
550) version=550.163.01-2 release=trixie
	sha256=8726fc25ee050f530e569b32cb4634d1f75585a11b5481de3dfd82b72abb0505 ;;
555) version=555.58.02-2 release=experimental
	sha256=9b1ce5c3aaa65935019b04f8fc53712da20dff55739de2b1f6a7227914a4d5c9 ;;
# Newer ones, which no release of Debian's carries: the tag, and git's sum of its folder kernel-open.
560) tag=560.35.03 sum=26d3ec39e869b0f89af86433a65cecc69eae86bf ;;
565) tag=565.77 sum=aa81f57625aceb3b1e3045cead4ad2c3d1a774f0 ;;
570) tag=570.211.01 sum=399d372207be45bf578ce03c7075274bd4adad7b ;;
575) tag=575.64.05 sum=0f3e26deec1914b64bf8fa0c00f4707f5de23d69 ;;
580) tag=580.142 sum=b0a18c2599830144b020509b80192f842c4726b8 ;;
590) tag=590.48.01 sum=f407a53bf8fdf91fe602180f3730184221cc791c ;;
595) tag=595.45.04 sum=a9e7f3882a25ec25a17da079d8443557fd37c7ab ;;
*) die "UVM_VERSION=$asked: use 535, 550, 555, 560, 565, 570, 575, 580, 590 or 595, or point UVM_SRC to a tree" ;;
esac
# A whole number is of the release that is pinned, and of no other.
pinned=${tag:-${version%-*}}
case $asked in
*.*) [ "$asked" = "$pinned" ] || die "UVM_VERSION=$asked: of ${asked%%.*}, $pinned is pinned; point UVM_SRC to a tree of another" ;;
esac
repository=${UVM_GIT:-https://github.com/NVIDIA/open-gpu-kernel-modules}
package=nvidia-open-kernel-source_${version:-}_amd64.deb
pool=pool/contrib/n/nvidia-open-gpu-kernel-modules

# driver_folder DIR: the folder below DIR with Kbuild and nvidia-uvm/, if any.
driver_folder() {
	local d
	for d in "$1" "$1/kernel-open" "$1/modules/nvidia-open-kernel"; do
		if [ -r "$d/Kbuild" ] && [ -r "$d/nvidia-uvm/uvm.c" ]; then echo "$d"; return; fi
	done
	return 1
}

# check_version DIR: prints it; fails if nothing here is for it. Which of what is built there is
# for it, driver.sh and seam.sh know.
check_version() {
	local v
	v=$(driver_version "$1")
	[ -n "$v" ] || die "$1/Kbuild names no driver version; UVM_SRC must be an open-gpu-kernel-modules tree"
	case ${v%%.*} in
	535 | 545 | 550 | 555 | 560 | 565 | 570 | 575 | 5[89]?) ;;
	*) die "UVM_SRC is driver $v; what is known are 535, 545 to 575, and 580 to 595" ;;
	esac
	echo "$v"
}

# debian_mirrors: the archives this machine's apt already uses.
debian_mirrors() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 2>/dev/null |
		awk '$2 !~ /security/ { print $1 }' | sort -u
}

fetch_package() {
	local deb=$CACHE/dl/$package m
	if [ -r "$deb" ] && echo "$sha256  $deb" | sha256sum -c --quiet 2>/dev/null; then echo "$deb"; return; fi
	have curl || die "curl is missing: run 'make deps'"
	for m in $(debian_mirrors); do
		say "fetching $package (about 35 MB)"
		if curl -fsSL --retry 3 -o "$deb.part" "${m%/}/$pool/$package"; then
			if echo "$sha256  $deb.part" | sha256sum -c --quiet 2>/dev/null; then
				mv "$deb.part" "$deb"
				echo "$deb"
				return
			fi
			say "what ${m%/} gave has another sha256 than the pinned one; trying the next archive"
		fi
	done
	die "no archive of this machine's apt sources has $package; download it from Debian (contrib of $release), check that its sha256 is $sha256, and put it into $CACHE/dl"
}

# fetch_tag DIR: what the tag has in kernel-open, into DIR.
fetch_tag() {
	local git=$1/git
	have git || die "git is missing: run 'make deps'"
	say "fetching NVIDIA's release $tag (about 15 MB)"
	git init -q --bare "$git"
	git --git-dir="$git" fetch -q --depth 1 "$repository" "refs/tags/$tag" ||
		die "$repository gives no release $tag: where it cannot be reached, unpack open-gpu-kernel-modules-$tag.tar.gz and point UVM_SRC to it"
	[ "$(git --git-dir="$git" rev-parse FETCH_HEAD:kernel-open)" = "$sum" ] ||
		die "$repository has another release $tag than the pinned one"
	git --git-dir="$git" archive FETCH_HEAD kernel-open | tar -C "$1" -x
	rm -rf "$git"
}

if [ -n "${UVM_SRC:-}" ]; then
	tree=$(driver_folder "$UVM_SRC") || die "UVM_SRC=$UVM_SRC holds no nvidia-uvm/uvm.c: point it to an unpacked open-gpu-kernel-modules tree"
	check_version "$tree" >/dev/null
	realpath "$tree"
	exit 0
fi

locked upstream
if [ -n "${tag:-}" ]; then dir=$CACHE/upstream-$tag-${sum:0:8}; else dir=$CACHE/upstream-${version%-*}-${sha256:0:8}; fi
if [ ! -e "$dir/.unpacked" ] && [ -n "${tag:-}" ]; then
	rm -rf "$dir" && mkdir -p "$dir"
	fetch_tag "$dir"
	touch "$dir/.unpacked"
elif [ ! -e "$dir/.unpacked" ]; then
	deb=$(fetch_package)
	rm -rf "$dir" && mkdir -p "$dir/deb"
	dpkg-deb -x "$deb" "$dir/deb"
	tar -C "$dir" --exclude='*.o_binary' -xf "$dir"/deb/usr/src/nvidia-open-kernel.tar.*
	rm -rf "$dir/deb"
	touch "$dir/.unpacked"
fi
tree=$(driver_folder "$dir") || die "$dir is incomplete; remove it and try again"
check_version "$tree" >/dev/null
echo "$tree"
