#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Install what the build and the VM need. Safe to run again: what is there is
# left alone, and nothing is asked of the network then.
#
# Debian (12 and later) gets packages from its own archive. What is not in it is
# pinned: bindgen by version and its lock file, virtme-ng by version and sha256,
# NVIDIA's source by version and sha256 (upstream.sh).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

bindgen_version=0.72.1
virtme_version=1.42
virtme_sha256=99589f1f5d74249038fe3c52aad9d3c33cb82a2d9617997511d4489fc709a707
rustc_min=1.85

packages=(
	# the kernel, with LLVM and Rust
	linux-source-6.12 clang-19 lld-19 llvm-19 libclang1-19 make flex bison bc
	libelf-dev libssl-dev kmod cpio rsync xz-utils zstd
	# the driver
	coccinelle curl ca-certificates
	# the VM; udev names the ports through which a command's output comes back
	qemu-system-x86 python3-venv udev file
	# tests
	gcc libc6-dev dmsetup
)

missing_packages() {
	local p
	for p in "${packages[@]}"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
	done
}

no_debian() {
	cat >&2 <<-EOF
	This is not Debian, so nothing was installed. Needed are:
	  - Linux 6.12 as Debian's linux-source-6.12 has it (/usr/src/linux-source-6.12.tar.xz),
	    or a kernel tree of your own with CONFIG_RUST=y (KDIR=/path)
	  - clang, lld, llvm and libclang 19 under $LLVM_DIR
	  - make flex bison bc libelf openssl kmod cpio rsync xz zstd (with headers)
	  - coccinelle (spatch), curl, qemu-system-x86_64, udev, python3 with venv
	  - rustc $rustc_min or later with the rust-src component, and cargo
	EOF
	local t
	for t in clang ld.lld spatch curl qemu-system-x86_64 rustc cargo flex bison bc rsync; do
		have "$t" || echo "  missing now: $t" >&2
	done
	exit 1
}

install_packages() {
	local missing
	mapfile -t missing < <(missing_packages)
	[ "${#missing[@]}" -gt 0 ] || return 0
	say "installing Debian packages: ${missing[*]}"
	apt update
	apt install "${missing[@]}"
}

# apt update | apt install PACKAGE...
apt() {
	local command=$1
	shift
	progress "packages ($command)" "$CACHE/deps.log" as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get "$command" -y -q --no-install-recommends "$@"
}

# A Rust that can build the kernel, which wants its library's source, and check itself.
install_rust() {
	if ! have rustc || ! have cargo; then debian_rust; fi
	local version sysroot src
	version=$(rustc --version | awk '{ print $2 }')
	at_least "$rustc_min" "$version" || die "rustc is $version, and $rustc_min or later is needed (rustup update stable)"
	sysroot=$(rustc --print sysroot)
	src=$sysroot/lib/rustlib/src/rust/library/core/src/lib.rs
	if [ -r "$src" ] && { cargo clippy --version && rustfmt --version; } >/dev/null 2>&1; then return 0; fi
	if have rustup; then
		say "adding Rust's library source, clippy and rustfmt"
		rustup component add rust-src clippy rustfmt >"$CACHE/deps.log" 2>&1 ||
			{ tail "$CACHE/deps.log" >&2; die "rustup could not add rust-src, clippy and rustfmt"; }
	else
		debian_rust
	fi
	[ -r "$src" ] || die "rustc $version has no library source ($src): install it, or use rustup"
}

# Debian's: trixie's `rustc`, or `rustc-web`, which bookworm keeps recent for browsers.
debian_rust() {
	local family candidate packages
	for family in "rustc cargo rust-src rust-clippy rustfmt" "rustc-web cargo-web rust-web-src rust-web-clippy rustfmt-web"; do
		read -ra packages <<<"$family"
		candidate=$(apt-cache policy "${packages[0]}" | awk '/Candidate:/ { print $2 }')
		if [[ $candidate == [0-9]* ]] && at_least "$rustc_min" "$candidate"; then
			say "installing Debian's Rust: ${packages[*]}"
			apt install "${packages[@]}"
			return 0
		fi
	done
	die "no Rust $rustc_min or later, and Debian has none here: install rustup (its site says how), then try again"
}

install_bindgen() {
	[ "$("$CACHE/tools/bin/bindgen" --version 2>/dev/null)" = "bindgen $bindgen_version" ] && return 0
	TOTAL=130 progress "bindgen $bindgen_version" "$CACHE/bindgen.log" \
		cargo install --locked --force --root "$CACHE/tools" bindgen-cli --version "$bindgen_version"
}

install_virtme() {
	[ "$("$CACHE/tools/virtme/bin/python" -c "import importlib.metadata as m; print(m.version('virtme-ng'))" 2>/dev/null)" = "$virtme_version" ] && return 0
	rm -rf "$CACHE/tools/virtme"
	local py=/usr/bin/python3
	[ -x "$py" ] || py=python3
	"$py" -m venv "$CACHE/tools/virtme" || die "python3 has no venv: install python3-venv"
	echo "virtme-ng==$virtme_version --hash=sha256:$virtme_sha256" >"$CACHE/virtme.txt"
	progress "virtme-ng $virtme_version" "$CACHE/virtme.log" \
		"$CACHE/tools/virtme/bin/pip" install --quiet --no-deps --require-hashes -r "$CACHE/virtme.txt"
}

locked deps
if have apt-get && have dpkg-query; then install_packages; else no_debian; fi
install_rust
install_bindgen
install_virtme
