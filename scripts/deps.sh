#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Install what the build and the VM need. Safe to run again: what is there is
# left alone, and nothing is asked of the network then.
#
#   deps.sh          what no test can do without
#   deps.sh --all    also what tests skip without: PyTorch (10 GB of disk meanwhile), cuda.core, RMM, Miri (or NO_SKIPS=1)
#
# Debian (12 and later) gets packages from its own archive. What is not in it is
# pinned: bindgen, where Debian's is too old, by version and its lock file, virtme-ng and, where
# Debian's is too old, reuse by version and sha256, NVIDIA's source by version and sha256 (upstream.sh).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

bindgen_version=0.72.1
bindgen_min=0.71.1
virtme_version=1.42
virtme_sha256=99589f1f5d74249038fe3c52aad9d3c33cb82a2d9617997511d4489fc709a707
rustc_min=1.85
# From here on it knows REUSE.toml.
reuse_min=4.0.0

packages=(
	# the driver
	make gcc libc6-dev kmod rsync xz-utils zstd coccinelle curl ca-certificates
	# the VM; udev names the ports through which a command's output comes back
	qemu-system-x86 python3-venv udev file dmsetup
)
# What modules for a packaged kernel want, and its first ones in the VM: of the demo, which is one
# of the tests. busybox-static takes the place of busybox, so only where it is needed.
for_stock=${KERNEL:-}
if [ "${DEPS_FOR:-}" = test ]; then for_stock=${KERNEL:-$("$TOP/scripts/stock.sh" --default)}; fi
if [ "$for_stock" = stock ]; then packages+=(pahole busybox-static); fi
if [ "${KERNEL:-}" != stock ]; then
	packages+=(
		# the kernel, with Rust, whose bindings to it clang's library makes
		libclang1-19 flex bison bc libelf-dev libssl-dev cpio
	)
	# All of LLVM builds the debug kernel alone.
	case ${DEPS_FOR:-} in test) ;; *) packages+=(clang-19 lld-19 llvm-19) ;; esac
fi
# Tests, which the demo is without. The source of Linux has its selftests' harness, which no other
# package has; e2fsprogs makes the file system of a device that is mounted.
if [ "${DEPS_FOR:-}" != demo ]; then packages+=(linux-source-6.12 shellcheck codespell e2fsprogs); fi
# Packages, and a Debian in a folder to try them in, whose own kernel is booted.
if [ "${DEPS_FOR:-}" = install ]; then packages+=(debootstrap busybox-static dpkg-dev debhelper); fi
# The commands that make it so, where packages have other names or none.
tools=(make gcc spatch curl rsync rustc cargo qemu-system-x86_64 flex bison bc clang ld.lld)
# Modules for a kernel whose headers are there, which any system builds: no VM, and no kernel's source.
# What of them is no kernel code is made from NVIDIA's src/, some of it in C++ and packed by xz.
if [ "${DEPS_FOR:-}" = modules ]; then
	packages=(make gcc g++ libc6-dev kmod rsync xz-utils coccinelle)
	tools=(make gcc g++ modinfo rsync xz spatch)
fi
# Debian's packages of this checkout. The Rust for them is later than Debian's: package.sh looks at it.
if [ "${DEPS_FOR:-}" = deb ]; then
	packages=(make gcc libc6-dev rsync xz-utils coccinelle curl ca-certificates dpkg-dev debhelper)
	tools=(make gcc rsync xz spatch curl dpkg-buildpackage dh)
fi

# What tests skip without, and none of the build needs. Of Debian's PyTorch it is the one for the CPU. The one
# of PyPI is built for CUDA 12, with NVIDIA's libraries, whose versions it pins: the allocator's test loads it.
optional=(python3-torch python3-yaml g++ pkg-config binutils)
pytorch=torch==2.9.1
modules=(cuda-core==1.2.2 cuda-bindings==12.9.10 rmm-cu12==26.10.0 librmm-cu12==26.10.0 nvidia-cuda-runtime-cu12==12.9.79)

# Seconds to wait for another program that installs packages, such as a machine's
# own updates after it was started.
lock_wait=${DEPS_LOCK_WAIT:-600}

missing_packages() {
	local p
	for p in "${packages[@]}"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
	done
}

missing_tools() {
	local t
	for t in "${tools[@]}"; do have "$t" || echo "$t"; done
}

# no_debian: what is not installed here must be there, whoever brought it.
no_debian() {
	local missing
	mapfile -t missing < <(missing_tools)
	[ "${#missing[@]}" = 0 ] || lacking "This system has not Debian's packages, so nothing was installed" "${missing[@]}"
}

# lacking WHY TOOL...: the end, and what is needed.
lacking() {
	echo "$1. Needed are:" >&2
	shift
	if [ "${DEPS_FOR:-}" = modules ]; then
		cat >&2 <<-EOF
		  - the headers of the kernel, and the compiler that it was built by
		  - make, gcc, g++, kmod (modinfo), rsync, xz, coccinelle (spatch)
		  - rustc $rustc_min or later with the rust-src component
		EOF
	elif [ "${DEPS_FOR:-}" = deb ]; then
		echo "  - make, gcc, rsync, xz, coccinelle (spatch), curl, and Debian's dpkg-dev and debhelper" >&2
	else
		cat >&2 <<-EOF
		  - Linux 6.12 as Debian's linux-source-6.12 has it (/usr/src/linux-source-6.12.tar.xz),
		    or a kernel tree of your own with CONFIG_RUST=y (KDIR=/path)
		  - clang, lld, llvm and libclang 19 under $LLVM_DIR
		  - make flex bison bc libelf openssl kmod cpio rsync xz zstd (with headers)
		  - coccinelle (spatch), curl, qemu-system-x86_64, udev, python3 with venv
		  - rustc $rustc_min or later with the rust-src component, and cargo
		EOF
	fi
	printf '  missing now: %s\n' "$@" >&2
	exit 1
}

# unknown_packages PACKAGE...: those that this Debian, or what is made of it, has not.
unknown_packages() {
	local p
	for p; do apt-cache show "$p" >/dev/null 2>&1 || echo "$p"; done
}

# tool_of PACKAGE: the command by which it is known where it has another name.
tool_of() {
	case $1 in
	kmod) echo modinfo ;;
	xz-utils) echo xz ;;
	coccinelle) echo spatch ;;
	dpkg-dev) echo dpkg-buildpackage ;;
	debhelper) echo dh ;;
	qemu-system-x86) echo qemu-system-x86_64 ;;
	clang-*) echo clang ;;
	lld-*) echo ld.lld ;;
	*) echo "$1" ;;
	esac
}

# missing_of PACKAGE...: the needed commands of these that are not there.
missing_of() {
	local p t
	for p; do
		t=$(tool_of "$p")
		[[ " ${tools[*]} " != *" $t "* ]] || have "$t" || echo "$t"
	done
}

install_packages() {
	local missing unknown known tool
	mapfile -t missing < <(missing_packages)
	[ "${#missing[@]}" -gt 0 ] || return 0
	# What modules and packages want may have come by another way than Debian's packages.
	case ${DEPS_FOR:-} in modules | deb) [ -n "$(missing_tools)" ] || return 0 ;; esac
	say "installing Debian packages: ${missing[*]}"
	apt update
	mapfile -t unknown < <(unknown_packages "${missing[@]}")
	[ "${#unknown[@]}" = 0 ] || say "this system has no package ${unknown[*]}"
	mapfile -t known < <(printf '%s\n' "${missing[@]}" | sort | comm -23 - <(printf '%s\n' "${unknown[@]}" | sort))
	[ "${#known[@]}" = 0 ] || apt install "${known[@]}"
	mapfile -t tool < <(missing_of "${unknown[@]}")
	[ "${#tool[@]}" = 0 ] || lacking "This system has not all of Debian's packages" "${tool[@]}"
}

# apt update | apt install PACKAGE...
apt() {
	local command=$1
	shift
	if [ "$command" = install ]; then say_what_goes "$@"; fi
	progress "packages ($command)" "$CACHE/deps.log" apt_waiting "$command" "$@"
}

apt_get() {
	as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
		apt-get -o "DPkg::Lock::Timeout=$lock_wait" -y -q --no-install-recommends "$@"
}

# apt_waiting COMMAND...: apt-get, when nobody else holds a lock of apt's or dpkg's.
# DPkg::Lock::Timeout covers dpkg's lock alone: for those of the package lists and of
# the downloads, apt-get gives up at once, so it is started again.
apt_waiting() {
	local said until=$((SECONDS + lock_wait)) rc
	said=$(mktemp)
	while :; do
		rc=0
		apt_get "$@" 2>&1 | tee "$said" || rc=$?
		if [ "$rc" = 0 ] || ! grep -q 'Could not get lock\|Unable to lock' "$said"; then break; fi
		if [ "$SECONDS" -ge "$until" ]; then
			echo "error: another program has held apt's lock for $lock_wait s: see who runs apt or dpkg, then try again"
			break
		fi
		echo "waiting for the program that holds the lock"
		sleep "${DEPS_LOCK_PAUSE:-5}"
	done
	rm -f "$said"
	return "$rc"
}

# what_goes: of what apt-get -s prints, the packages that it would remove, and those
# that it would replace by an older version.
what_goes() {
	awk '$1 == "Remv" { print "remove " $2 " " $3 }
		$1 == "Inst" && $3 ~ /^\[/ { print $2, substr($3, 2, length($3) - 2), substr($4, 2) }' |
		while read -r name from to; do
			if [ "$name" = remove ]; then
				echo "removes $from $to"
			elif dpkg --compare-versions "$to" lt "$from"; then
				echo "replaces $name $from by the older $to"
			fi
		done
}

# say_what_goes PACKAGE...: before any of it happens, and so that it can be stopped.
say_what_goes() {
	local goes answer
	goes=$(apt_get -s install "$@" 2>/dev/null | what_goes)
	[ -n "$goes" ] || return 0
	say "to install these, Debian's apt takes away what they conflict with:"
	printf '%s\n' "$goes" | sed 's/^/    it /' >&2
	case ${DEPS_REMOVE:-ask} in
	yes) return 0 ;;
	no) die "nothing was changed, as DEPS_REMOVE=no; DEPS_REMOVE=yes installs all the same" ;;
	esac
	# Where nobody can answer, such as in CI, what was just said has to do.
	[ -t 0 ] && [ -t 2 ] || return 0
	read -r -p "    Go on? [y/N] " answer
	[[ $answer = [yY]* ]] || die "nothing was changed (DEPS_REMOVE=yes does not ask)"
}

# rustup has many versions: the one of rust-toolchain.toml is added. A Rust without rustup is taken as it is.
install_toolchain() {
	if ! have rustup || rustup run "$RUSTUP_TOOLCHAIN" rustc --version >/dev/null 2>&1; then return 0; fi
	say "adding Rust $RUSTUP_TOOLCHAIN, of rust-toolchain.toml"
	rustup toolchain install "$RUSTUP_TOOLCHAIN" --profile minimal -c rust-src -c clippy -c rustfmt >"$CACHE/deps.log" 2>&1 || {
		tail "$CACHE/deps.log" >&2
		die "rustup could not add Rust $RUSTUP_TOOLCHAIN; RUSTUP_TOOLCHAIN=stable takes another that is installed"
	}
}

# A Rust that can build the kernel, which wants its library's source, and check itself.
install_rust() {
	install_toolchain
	if ! have rustc || { [ "${DEPS_FOR:-}" != modules ] && ! have cargo; }; then debian_rust; fi
	local version sysroot src
	version=$(rustc --version | awk '{ print $2 }')
	at_least "$rustc_min" "$version" || die "rustc is $version, and $rustc_min or later is needed (rustup update stable)"
	sysroot=$(rustc --print sysroot)
	src=$sysroot/lib/rustlib/src/rust/library/core/src/lib.rs
	if [ -r "$src" ] && [ "${DEPS_FOR:-}" = modules ]; then return 0; fi
	if [ -r "$src" ] && { cargo clippy --version && rustfmt --version; } >/dev/null 2>&1; then return 0; fi
	if have rustup; then
		say "adding Rust's library source, clippy and rustfmt"
		rustup component add rust-src clippy rustfmt >"$CACHE/deps.log" 2>&1 ||
			{ tail "$CACHE/deps.log" >&2; die "rustup could not add rust-src, clippy and rustfmt"; }
	elif have apt-cache; then
		debian_rust
	fi
	[ -r "$src" ] || die "rustc $version has no library source ($src): install it, or use rustup"
}

# Debian's: trixie's `rustc`, or `rustc-web`, which bookworm keeps recent for browsers.
debian_rust() {
	local family candidate packages
	for family in "rustc cargo rust-src rust-clippy rustfmt" "rustc-web cargo-web rust-web-src rust-web-clippy rustfmt-web"; do
		read -ra packages <<<"$family"
		candidate=$(apt-cache policy "${packages[0]}" 2>/dev/null | awk '/Candidate:/ { print $2 }' || :)
		if [[ $candidate == [0-9]* ]] && at_least "$rustc_min" "$candidate"; then
			say "installing Debian's Rust: ${packages[*]}"
			apt install "${packages[@]}"
			return 0
		fi
	done
	die "no Rust $rustc_min or later with its library's source, and Debian has none here: install it from rustup.rs, not by Debian's package rustup, then try again"
}

# Debian's where it is recent enough (trixie's), or else compiled.
install_bindgen() {
	local there candidate
	there=$(bindgen --version 2>/dev/null | awk '{ print $2 }' || :)
	if [ -n "$there" ] && at_least "$bindgen_min" "$there"; then return 0; fi
	candidate=$(apt-cache policy bindgen 2>/dev/null | awk '/Candidate:/ { print $2 }' || :)
	if [[ $candidate == [0-9]* ]] && at_least "$bindgen_min" "$candidate"; then
		apt install bindgen
		return 0
	fi
	TOTAL=130 progress "bindgen $bindgen_version" "$CACHE/bindgen.log" \
		cargo install --locked --force --root "$CACHE/tools" bindgen-cli --version "$bindgen_version"
}

# reuse checks the licences. Debian's does where it knows REUSE.toml (trixie's); for bookworm's Python there
# is a pinned wheel. Where there is neither, host/reuse skips.
install_reuse() {
	local candidate py=/usr/bin/python3 log=$CACHE/reuse.log
	if at_least "$reuse_min" "$(reuse_version)"; then return 0; fi
	candidate=$(apt-cache policy reuse 2>/dev/null | awk '/Candidate:/ { print $2 }' || :)
	if [[ $candidate == [0-9]* ]] && at_least "$reuse_min" "$candidate"; then
		apt install reuse
		return 0
	fi
	rm -rf "$CACHE/tools/reuse"
	if "$py" -m venv "$CACHE/tools/reuse" >"$log" 2>&1 && "$CACHE/tools/reuse/bin/pip" install --quiet --no-deps \
		--only-binary :all: --require-hashes -r "$TOP/scripts/reuse.txt" >>"$log" 2>&1; then
		mkdir -p "$CACHE/tools/bin"
		ln -sf ../reuse/bin/reuse "$CACHE/tools/bin/reuse"
	else
		say "reuse was not installed, and the licences are not checked (log: $log)"
	fi
}

# reuse_version: of the one that is there, or 0.
reuse_version() { reuse --version 2>/dev/null | awk 'NR == 1 { v = $NF } END { print v ? v : 0 }' || :; }

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

# Python's modules, in an environment that has Debian's PyTorch, too. `python3` of all scripts is its Python then:
# lib.sh has the folder on the path.
install_modules() {
	local env=$CACHE/tools/python log=$CACHE/modules.log want
	want=$(printf '%s\n' "${modules[@]}")
	[ "$(cat "$env/modules" 2>/dev/null)" = "$want" ] && return 0
	rm -rf "$env"
	/usr/bin/python3 -m venv --system-site-packages "$env" || die "python3 has no venv: install python3-venv"
	progress "${modules[*]}" "$log" \
		"$env/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "${modules[@]}"
	mkdir -p "$CACHE/tools/bin"
	# A link would be a Python without the environment, which is known by the folder of the program.
	printf '#!/bin/sh\nexec %q "$@"\n' "$env/bin/python3" >"$CACHE/tools/bin/python3"
	chmod +x "$CACHE/tools/bin/python3"
	echo "$want" >"$env/modules"
}

# PyTorch for CUDA 12, which needs no GPU to be loaded. No other environment has it, as NVIDIA's libraries in it
# are not those that the modules above want. Whether all of it came is known by the file `version`.
install_pytorch() {
	local env=$CACHE/torch/venv log=$CACHE/pytorch.log
	[ "$(cat "$env/version" 2>/dev/null)" = "$pytorch" ] && return 0
	rm -rf "$env"
	mkdir -p "$CACHE/torch"
	/usr/bin/python3 -m venv "$env" || die "python3 has no venv: install python3-venv"
	progress "$pytorch for CUDA 12 (3 GB to fetch, 7 GB in $env)" "$log" pip_pytorch "$env"
	echo "$pytorch" >"$env/version"
}

# pip_pytorch VENV: without pip's cache, which would take another 3 GB. What did not come whole is of no use. Who
# shows the progress ends this shell alone, which ends pip then, and takes away what that has fetched.
pip_pytorch() {
	local env=$1 pip rc=0
	mkdir -p "$env/tmp"
	trap 'kill "$pip" 2>/dev/null || :; wait "$pip" || :; rm -rf "$env"; exit 1' TERM
	TMPDIR=$env/tmp "$env/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --only-binary :all: "$pytorch" &
	pip=$!
	wait "$pip" || rc=$?
	trap - TERM
	rm -rf "$env/tmp"
	[ "$rc" != 0 ] || return 0
	rm -rf "$env"
	echo "error: $pytorch did not come: it takes 3 GB from PyPI and 7 GB of disk; the same command again begins anew," \
		"or UVMRUST_TORCH_PYTHON names a Python that has it"
	return 1
}

# Miri, which is in nightly toolchains alone.
install_miri() {
	if cargo +nightly miri --version >/dev/null 2>&1; then return 0; fi
	have rustup || die "Miri needs rustup: install it, then try again"
	# A nightly that is there stays the one that it is.
	if rustup run nightly rustc --version >/dev/null 2>&1; then
		rustup component add --toolchain nightly miri rust-src >"$CACHE/deps.log" 2>&1 ||
			{ tail "$CACHE/deps.log" >&2; die "this nightly Rust has no Miri: rustup update nightly"; }
	else
		progress "nightly Rust with Miri" "$CACHE/deps.log" \
			rustup toolchain install nightly --profile minimal -c miri -c rust-src
	fi
}

# The crates of the workspace, so that what is built later asks nothing of the network: tests/xtask first of all.
fetch_crates() {
	local fetch=(cargo fetch --locked --quiet --manifest-path "$TOP/Cargo.toml" --target "$(rustc -vV | sed -n 's/^host: //p')")
	"${fetch[@]}" --offline 2>/dev/null || progress "crates" "$CACHE/deps.log" "${fetch[@]}"
}

# Its functions are tested without installing anything (tests/scripts).
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0

case ${1:-} in
--all) NO_SKIPS=1 ;;
'') ;;
*) die "deps.sh: use --all, or nothing" ;;
esac
if [ "${NO_SKIPS:-}" = 1 ]; then packages+=("${optional[@]}"); fi
locked deps
if have apt-get && have dpkg-query; then install_packages; else no_debian; fi
if [ "${DEPS_FOR:-}" = deb ]; then
	install_toolchain
	exit 0
fi
install_rust
[ "${DEPS_FOR:-}" != modules ] || exit 0
# A packaged kernel is not built, and our own bindings are kept (bindings.sh).
[ "${KERNEL:-}" = stock ] || install_bindgen
install_virtme
[ "${DEPS_FOR:-}" = demo ] || install_reuse
# The demo builds a few of them, and gets those itself.
[ "${DEPS_FOR:-}" = demo ] || fetch_crates
if [ "${NO_SKIPS:-}" = 1 ]; then
	install_modules
	install_pytorch
	install_miri
fi
