#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Make Debian's packages of this checkout, and print the folder they are in.
#
#   package.sh deb            uvm-rust-dkms, uvm-rust-tools, libuvmrust, libuvmrust-dev
#   package.sh rpm            the same for systems with RPM
#   package.sh dkms DIR       only what uvm-rust-dkms has in /usr/src, into DIR
#   package.sh version        what the packages are called
#
# uvm-rust-dkms builds against one or more drivers of NVIDIA's, each by its exact version:
# UVM_VERSIONS="550", or UVM_VERSION (see upstream.sh), or the tree in UVM_SRC. Of NVIDIA's source the
# package holds nothing: the hooks are kept as the lines they add, with the sums of the
# files before and after.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"

version=$(sed -n '/workspace.package/,/^\[workspace.l/s/^version = "\(.*\)"/\1/p' "$TOP/Cargo.toml")

# Debian's tools build elsewhere.
[ -z "${UVM_SRC:-}" ] || UVM_SRC=$(realpath "$UVM_SRC")

# hooks_of TREE BUILT DIR: what seam.sh changed in upstream's files, and wrote for it.
hooks_of() {
	local tree=$1 built=$2 dir=$3 file name
	mkdir -p "$dir"
	: >"$dir/SHA256"
	for file in $("$TOP/scripts/seam.sh" --patched); do
		if cmp -s "$tree/$file" "$built/$file"; then continue; fi
		name=$(basename "$file")
		diff -n "$tree/$file" "$built/$file" >"$dir/$name.hooks" || :
		awk -f "$TOP/packaging/dkms/hooks.awk" "$dir/$name.hooks" "$tree/$file" | cmp -s - "$built/$file" ||
			die "the hooks of $file do not survive being kept as lines"
		printf '%s %s %s\n' "$(sha256sum <"$tree/$file" | cut -d' ' -f1)" \
			"$(sha256sum <"$built/$file" | cut -d' ' -f1)" "$file" >>"$dir/SHA256"
	done
	mv "$built/uvm-rust/nvidia-uvm-c/uvm_rust_version.h" "$built/uvm-rust/upstream.Kbuild" "$dir/"
}

# dkms DIR: what DKMS builds from.
dkms() {
	local dir=$1 work tree v of sum
	work=$(mktemp -d)
	rm -rf "$dir" && mkdir -p "$dir"
	# A tree that is given is the only one.
	for v in $([ -n "${UVM_SRC:-}" ] && echo 550 || echo "${UVM_VERSIONS:-${UVM_VERSION:-550}}"); do
		tree=$(UVM_VERSION=$v "$TOP/scripts/upstream.sh")
		of=$(driver_version "$tree")
		say "hooks for NVIDIA's $of"
		rm -rf "$work/built" && mkdir -p "$work/built/nvidia-uvm"
		"$TOP/scripts/seam.sh" "$tree" "$work/built"
		hooks_of "$tree" "$work/built" "$dir/hooks/$of"
	done
	# A driver that knows nothing of bindgen and spatch builds from these.
	rsync -a --exclude=/uvm-rust/nvidia-uvm-c/hooks --exclude=/uvm-rust/kernel/tests "$work/built/uvm-rust" "$dir/"
	install -m 755 "$TOP/packaging/dkms/build.sh" "$dir/"
	install -m 644 "$TOP/packaging/dkms/hooks.awk" "$dir/"
	sed "s/@VERSION@/$version/g" "$TOP/packaging/dkms/dkms.conf.in" >"$dir/dkms.conf"
	# Two packages of one version may differ, and what has failed with the one may work with the other.
	sum=$(cd "$dir" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
	echo "${sum%% *}" >"$dir/package.sum"
	rm -rf "$work"
}

# source_tree DIR: what is in the repository, as it is now.
source_tree() {
	local dir=$1
	rm -rf "$dir" && mkdir -p "$dir"
	{ git -C "$TOP" ls-files -co --exclude-standard 2>/dev/null ||
		(cd "$TOP" && find . -type f -not -path './target/*' -not -path './out/*'); } |
		rsync -a --files-from=- --ignore-missing-args "$TOP/" "$dir/"
}

# debianise DIR: debian/ of a source tree, where Debian's tools look for it.
debianise() {
	local dir=$1 date
	rsync -a "$TOP/packaging/debian/" "$dir/debian/"
	date=$(git -C "$TOP" log -1 --format=%cD 2>/dev/null || date -R)
	cat >"$dir/debian/changelog" <<-END
	uvm-rust ($version) unstable; urgency=medium

	  * Of commit $(git -C "$TOP" rev-parse --short HEAD 2>/dev/null || echo unknown).

	 -- uvm-rust <uvm-rust@invalid>  $date
	END
}

# make hands its variables on by MAKEFLAGS, too, where UVM_SRC is still as it was given.
build_deb() {
	cd "$1" && env -u MAKEFLAGS -u MFLAGS CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$TOP/target}" DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-nocheck noautodbgsym}" \
		dpkg-buildpackage --build=binary --no-sign -d
}

# need_rust: the preload's; who installs the packages needs Debian's 1.85 only.
need_rust() {
	local now
	now=$(rustc --version 2>/dev/null || :)
	{ have cargo && at_least 1.88 "$(awk '{ print $2 }' <<<"${now:-rustc 0}")"; } ||
		die "making the packages needs Rust 1.88 or later with cargo, and here is ${now:-none}: install it from rustup.rs, not by Debian's package rustup, which conflicts with uvm-rust-dkms"
}

rpm() {
	local out=$TOP/out/rpm
	have rpmbuild || die "making RPMs needs rpmbuild (Debian: apt install rpm; Fedora: dnf install rpm-build)"
	need_rust
	mkdir -p "$out/SOURCES"
	rm -rf "$out/RPMS"
	source_tree "$out/uvm-rust-$version"
	tar -C "$out" -cf "$out/SOURCES/uvm-rust-$version.tar" "uvm-rust-$version"
	progress "RPMs" "$out/build.log" env -u MAKEFLAGS -u MFLAGS CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$TOP/target}" \
		rpmbuild -bb --nodeps --define "_topdir $out" --define "uvm_rust_version $version" "$TOP/packaging/rpm/uvm-rust.spec"
	echo "$out/RPMS"
}

deb() {
	local out=$TOP/out/deb
	if ! have dpkg-buildpackage || ! have dh; then die "making packages needs Debian's tools: apt install dpkg-dev debhelper"; fi
	need_rust
	mkdir -p "$out"
	rm -f "$out"/*.deb
	source_tree "$out/uvm-rust-$version"
	debianise "$out/uvm-rust-$version"
	progress "packages" "$out/build.log" build_deb "$out/uvm-rust-$version"
	echo "$out"
}

case ${1:-} in
deb) deb ;;
rpm) rpm ;;
dkms) dkms "${2:?a folder}" ;;
version) echo "$version" ;;
*) die "package.sh deb|rpm|dkms DIR|version" ;;
esac
