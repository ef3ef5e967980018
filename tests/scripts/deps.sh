#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/deps.sh does with apt-get: it waits for locks, and says what would be
# removed or downgraded before that happens. An apt-get of the test's own stands in,
# so nothing is installed.
# shellcheck source-path=SCRIPTDIR/../../scripts
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export UVM_RUST_CACHE=$work/cache DEPS_LOCK_PAUSE=0 DEPS_LOCK_WAIT=2
mkdir "$work/bin"
cat >"$work/bin/apt-get" <<'FAKE'
#!/bin/bash
echo "$*" >>"$FAKE_DIR/calls"
if [[ " $* " = *" -s "* ]]; then cat "$FAKE_DIR/simulated" 2>/dev/null; exit 0; fi
if [ -e "$FAKE_DIR/locked" ]; then
	left=$(<"$FAKE_DIR/locked")
	if [ "$left" -gt 0 ]; then
		echo $((left - 1)) >"$FAKE_DIR/locked"
		echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
		exit 100
	fi
fi
[ ! -e "$FAKE_DIR/broken" ] || { echo "E: Unable to locate package nonsense" >&2; exit 100; }
FAKE
printf '#!/bin/bash\nexec "$@"\n' >"$work/bin/sudo"
chmod +x "$work/bin/"*
export FAKE_DIR=$work PATH=$work/bin:$PATH

# deps COMMAND...: in a shell that has the functions of deps.sh. One that waits for ever has failed.
deps() {
	rm -f "$work/calls"
	# shellcheck disable=SC2016
	timeout 60 bash -c '. "$0"/scripts/deps.sh; PATH=$FAKE_DIR/bin:$PATH; "$@"' \
		"$(dirname "$0")/../.." "$@" </dev/null >"$work/said" 2>&1
}

# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# As long as it takes: a busy machine may need seconds for four calls.
echo 3 >"$work/locked"
DEPS_LOCK_WAIT=50 deps apt update && [ "$(wc -l <"$work/calls")" = 4 ]
check "apt-get update is tried again while another program holds the lock"

echo 1000000 >"$work/locked"
! deps apt update && grep -q 'held apt.s lock for 2 s' "$work/said"
check "and not for ever: the error says how long and what to look for"
rm "$work/locked"

deps apt install flex && grep -q -- '-o DPkg::Lock::Timeout=2 .*install flex' "$work/calls"
check "dpkg's own lock is waited for by apt-get"

: >"$work/broken"
! deps apt install nonsense && [ "$(grep -vc -- ' -s ' "$work/calls")" = 1 ]
check "another error is not tried again"
rm "$work/broken"

cat >"$work/simulated" <<'SAID'
Remv qemu-utils [1:10.0.2+ds-2]
Inst libaio1 (0.3.113-4 Debian:12.5/stable [amd64])
Inst udev [252.38-1] (252.39-1 Debian:12.5/stable [amd64])
Inst libfdt1 [1.7.0-2] (1.6.1-4 Debian:12.5/stable [amd64])
Conf libaio1 (0.3.113-4 Debian:12.5/stable [amd64])
SAID
deps apt install qemu-system-x86 && grep -q 'it removes qemu-utils \[1:10.0.2+ds-2\]' "$work/said" &&
	grep -q 'it replaces libfdt1 1.7.0-2 by the older 1.6.1-4' "$work/said" && ! grep -q 'udev\|libaio1' "$work/said"
check "what is removed or downgraded is said, and nothing else"

! DEPS_REMOVE=no deps apt install qemu-system-x86 && grep -q "DEPS_REMOVE=no" "$work/said" &&
	[ "$(grep -vc -- " -s " "$work/calls")" = 0 ]
check "DEPS_REMOVE=no installs nothing then"

# The stand-ins of a machine's own tools: which bindgen there is, and which Debian has.
tool() { printf '#!/bin/bash\necho "%s"\n' "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"; }
# shellcheck disable=SC2016
printf '#!/bin/bash\necho "cargo $*" >>"$FAKE_DIR/calls"\n' >"$work/bin/cargo" && chmod +x "$work/bin/cargo"
rm -f "$work/simulated"
tool apt-cache "  Candidate: 0.71.1-6"
tool bindgen "bindgen 0.71.1"
deps install_bindgen && [ ! -e "$work/calls" ]
check "a bindgen that is recent enough is left alone"

tool bindgen "bindgen 0.60.1"
deps install_bindgen && grep -q 'install bindgen' "$work/calls" && ! grep -q cargo "$work/calls"
check "Debian's is installed where it is recent enough"

tool apt-cache "  Candidate: 0.60.1-2+b2"
deps install_bindgen && grep -q 'cargo install --locked .* --version 0.72.1' "$work/calls"
check "and compiled where it is not"

# As the shell says it of a program that is not there, with or without output.
printf '#!/bin/bash\nexit 127\n' >"$work/bin/bindgen"
deps install_bindgen && grep -q 'cargo install --locked .* --version 0.72.1' "$work/calls"
check "and where there is none"

deps fetch_crates && [ "$(wc -l <"$work/calls")" = 1 ] && grep -q 'cargo fetch --locked .* --offline$' "$work/calls"
check "crates that are here are not asked for"
# shellcheck disable=SC2016
printf '#!/bin/bash\necho "cargo $*" >>"$FAKE_DIR/calls"\n[[ $* != *--offline ]]\n' >"$work/bin/cargo"
deps fetch_crates && [ "$(wc -l <"$work/calls")" = 2 ] && tail -n 1 "$work/calls" | grep -q 'cargo fetch --locked .*-linux-gnu$'
check "others are, by the lock file"
rm "$work/bin/bindgen" "$work/bin/apt-cache" "$work/bin/cargo"

tool apt-cache "  Candidate: 1.1.2-1"
tool reuse "reuse 4.0.3"
deps install_reuse && [ ! -e "$work/calls" ] && [ ! -e "$work/cache/tools/reuse" ]
check "a reuse that is recent enough is left alone"
tool reuse "reuse, version 6.2.0"
deps install_reuse && [ ! -e "$work/calls" ] && [ ! -e "$work/cache/tools/reuse" ]
check "also one that says its version as the later ones do"
tool reuse "reuse 1.1.2"
tool apt-cache "  Candidate: 5.0.2-1"
deps install_reuse && grep -q 'install reuse' "$work/calls"
check "Debian's is installed where it knows REUSE.toml"
rm "$work/bin/reuse" "$work/bin/apt-cache"

# An environment of Python's that is there already, of other modules and of the right ones.
mkdir -p "$work/cache/tools/python"
# shellcheck disable=SC2016
deps bash -c '. "$0"/scripts/deps.sh; printf "%s\n" "${modules[@]}"' "$(dirname "$0")/../.." && cp "$work/said" "$work/cache/tools/python/modules"
deps install_modules && [ -e "$work/cache/tools/python/modules" ]
check "Python's modules that are there are left alone"
tool cargo "miri 0.1"
deps install_miri && [ ! -e "$work/calls" ]
check "and so is Miri"
rm -rf "$work/bin/cargo" "$work/cache/tools/python"

# A PyTorch of one file, which pip finds in a folder; without the folder it finds none. Neither asks the network.
# wheel VERSION: a package of that name and version.
wheel() {
	/usr/bin/python3 - "$work/wheels/torch-$1-py3-none-any.whl" "$1" <<-'PY'
	import sys, zipfile
	with zipfile.ZipFile(sys.argv[1], "w") as z:
	    info = f"torch-{sys.argv[2]}.dist-info/"
	    z.writestr("torch.py", "")
	    z.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {sys.argv[2]}\n")
	    z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	    z.writestr(info + "RECORD", "")
	PY
}
mkdir "$work/wheels"
torch=$work/cache/torch/venv
# pytorch DIR: install_pytorch, where pip has no packages but those of the folder.
pytorch() { PIP_NO_INDEX=1 PIP_FIND_LINKS=$1 PIP_CONFIG_FILE=/dev/null deps install_pytorch; }
! pytorch "$work/bin" && grep -q 'torch==[0-9.]* did not come: it takes 3 GB .* the same command again begins anew' "$work/said" &&
	[ ! -e "$torch" ]
check "a PyTorch that does not come leaves nothing, and the error says how to go on"
wanted=$(sed -n 's/^pytorch=torch==//p' "$(dirname "$0")/../../scripts/deps.sh")
[ -n "$wanted" ] && wheel "$wanted" && wheel 99.0 && pytorch "$work/wheels" && "$torch/bin/python" -c \
	"import importlib.metadata as m, sys; sys.exit(m.version('torch') != '$wanted')"
check "the pinned PyTorch is installed, in an environment of its own"
[ ! -e "$torch/tmp" ]
check "with nothing left of what pip has unpacked"
# A pip that goes on for as long as nobody ends it.
mkdir -p "$work/slow/bin"
# shellcheck disable=SC2016
printf '#!/bin/bash\necho "$TMPDIR" >"%s/where"\necho $$ >"%s/pip"\nexec sleep 600\n' "$work" "$work" >"$work/slow/bin/pip"
chmod +x "$work/slow/bin/pip"
# shellcheck disable=SC2016
bash -c '. "$0"/scripts/deps.sh; progress pip "$FAKE_DIR/pip.log" pip_pytorch "$FAKE_DIR/slow"' "$(dirname "$0")/../.." >"$work/said" 2>&1 &
shows=$!
for ((i = 0; i < 600; i++)); do [ ! -s "$work/pip" ] || break; sleep 0.1; done
kill -TERM "$shows"
! wait "$shows" && ! kill -0 "$(cat "$work/pip")" 2>/dev/null && [ "$(cat "$work/where")" = "$work/slow/tmp" ] && [ ! -e "$work/slow" ]
check "a pip that is stopped with what shows its progress is over, and leaves nothing"
touch "$torch/kept"
pytorch "$work/bin" && [ -e "$torch/kept" ]
check "and left alone once it is whole"
echo torch==1.0 >"$torch/version"
pytorch "$work/wheels" && [ ! -e "$torch/kept" ] && [ "$(cat "$torch/version")" = "torch==$wanted" ]
check "another version is replaced"
rm -rf "$work/cache/torch"
! deps "$(dirname "$0")/../../scripts/deps.sh" --nonsense && grep -q 'use --all' "$work/said"
check "an option that there is not is refused"

# A rustup that has one version.
# shellcheck disable=SC2016
printf '#!/bin/bash\ncase $1 in run) [ "$2" = "$HAS" ] ;; *) echo "rustup $*" >>"$FAKE_DIR/calls"; [ -n "${ONLINE:-}" ] ;; esac\n' \
	>"$work/bin/rustup" && chmod +x "$work/bin/rustup"
pinned=$(sed -n 's/^channel = "\(.*\)"$/\1/p' "$(dirname "$0")/../../rust-toolchain.toml")
[ -n "$pinned" ] && HAS=$pinned RUSTUP_TOOLCHAIN='' deps install_toolchain && [ ! -e "$work/calls" ]
check "the Rust of rust-toolchain.toml is left alone"
HAS=stable ONLINE=y RUSTUP_TOOLCHAIN='' deps install_toolchain && grep -q "rustup toolchain install $pinned .*-c rust-src" "$work/calls"
check "and added where rustup has it not"
! HAS=stable RUSTUP_TOOLCHAIN='' deps install_toolchain && grep -q 'RUSTUP_TOOLCHAIN=stable takes another' "$work/said"
check "where it cannot be had, the error says how to go on"
HAS=stable RUSTUP_TOOLCHAIN=stable deps install_toolchain && [ ! -e "$work/calls" ]
check "whoever names a Rust has that one"
rm "$work/bin/rustup"

cat >"$work/simulated" <<'SAID'
Remv qemu-utils [1:10.0.2+ds-2]
SAID
# script(1) gives the program a terminal, as a person has.
! script -qec "bash -c '. \"$(dirname "$0")/../../scripts/deps.sh\"; PATH=$work/bin:\$PATH; apt install qemu-system-x86'" /dev/null \
	<<<n >"$work/said" 2>&1 && grep -q 'nothing was changed' "$work/said"
check "a person is asked, and no means no"

# packages_of SETTING...: what is installed with these.
packages_of() {
	# shellcheck disable=SC2016
	env KERNEL='' DEPS_FOR='' "$@" bash -c '. "$0"/../../scripts/deps.sh; echo " ${packages[*]} "' "$(dirname "$0")"
}
own=$(packages_of) demo=$(packages_of KERNEL=stock DEPS_FOR=demo) stock=$(packages_of KERNEL=stock)
[[ $own = *" clang-19 "* && $own = *" linux-source-6.12 "* && $own != *" busybox-static "* ]] &&
	[[ $demo != *linux-source* && $demo != *clang* && $demo = *" busybox-static "* ]]
check "a packaged kernel needs no compiler of kernels"
[[ $stock = *" linux-source-6.12 "* && $stock = *" shellcheck "* && $stock != *clang* ]]
check "tests on a packaged kernel need the selftests' harness, and no more"
tests=$(packages_of DEPS_FOR=test)
[[ $tests = *" libclang1-19 "* && $tests = *" linux-source-6.12 "* && $tests != *" clang-19 "* && $tests != *llvm* ]]
check "the tests' kernel is gcc's, and only the debug kernel needs LLVM"
known=$(packages_of DEPS_FOR=test STOCK_RELEASE=trixie) unknown=$(packages_of DEPS_FOR=test STOCK_RELEASE=sid)
[[ $known = *" pahole busybox-static "* && $unknown != *busybox* && $(packages_of DEPS_FOR=test STOCK_RELEASE=trixie KERNEL=debug) != *busybox* ]]
check "the demo among the tests gets what boots the distribution's kernel, where that is known"
modules=$(packages_of DEPS_FOR=modules)
[[ $modules = *" coccinelle "* && $modules = *" g++ "* && $modules = *" xz-utils "* && $modules != *linux-source* && $modules != *qemu* && $modules != *clang* ]]
check "modules for a kernel that is there need neither a VM nor a kernel's source"
make -C "$(dirname "$0")/../.." -pn modules 2>/dev/null | grep -q 'DEPS_FOR := modules$'
check "and make modules asks for no more"
deb=$(packages_of DEPS_FOR=deb)
[[ $deb = *" coccinelle "* && $deb = *" dpkg-dev debhelper "* && $deb != *linux-source* && $deb != *qemu* && $deb != *clang* ]]
check "nor do Debian's packages of this"
make -C "$(dirname "$0")/../.." -pn deb 2>/dev/null | grep -q 'DEPS_FOR := deb$' &&
	make -C "$(dirname "$0")/../.." -n deb 2>/dev/null | grep -q 'scripts/deps.sh$'
check "and make deb asks for that"

# Systems that are not Debian: all of the script runs, with a PATH of the commands that it calls, and no others.
mkdir -p "$work/few" "$work/sysroot/lib/rustlib/src/rust/library/core/src"
touch "$work/sysroot/lib/rustlib/src/rust/library/core/src/lib.rs"
for t in env bash nproc cat sed awk head sort mkdir dirname flock grep tail sleep mktemp rm tee wc id timeout comm; do ln -s "$(command -v $t)" "$work/few/$t"; done
for t in make gcc modinfo rsync spatch g++ xz; do printf '#!/bin/bash\n' >"$work/few/$t" && chmod +x "$work/few/$t"; done
# shellcheck disable=SC2016
printf '#!/bin/bash\ncase $1 in --print) echo "%s" ;; *) echo "rustc 1.88.0 (test)" ;; esac\n' "$work/sysroot" >"$work/few/rustc" && chmod +x "$work/few/rustc"
# /usr/sbin is a folder of this test's, as it is another name of /usr/bin on some systems.
mkdir -p "$work/top/scripts" "$work/sbin"
cp "$(dirname "$0")/../../scripts/deps.sh" "$work/top/scripts/"
sed "s|:/usr/sbin:/sbin|:$work/sbin|" "$(dirname "$0")/../../scripts/lib.sh" >"$work/top/scripts/lib.sh"
elsewhere() { env PATH="$work/few" HOME="$work" KDIR='' DEPS_FOR=modules "$@" bash "$work/top/scripts/deps.sh" </dev/null >"$work/said" 2>&1; }
elsewhere && [ ! -s "$work/said" ]
check "without apt, what make modules needs is taken as it is"
mv "$work/few/modinfo" "$work/sbin/"
elsewhere && [ ! -s "$work/said" ]
check "also what is in /usr/sbin, where a user's shell does not look"
for t in g++ xz; do
	mv "$work/few/$t" "$work/"
	! elsewhere && grep -qx "  missing now: $t" "$work/said"
	check "NVIDIA's src/ needs $t"
	mv "$work/$t" "$work/few/"
done
mv "$work/sysroot" "$work/nosrc"
! elsewhere && grep -q 'rustc 1.88.0 has no library source' "$work/said" && ! grep -q 'no Rust' "$work/said"
check "a Rust without its library's source is said to be that"
mv "$work/nosrc" "$work/sysroot"
rm "$work/few/spatch"
! elsewhere && grep -q 'missing now: spatch$' "$work/said" && [ "$(grep -c 'missing now' "$work/said")" = 1 ] && ! grep -q qemu "$work/said"
check "and what is missing of it is named, alone"
! elsewhere DEPS_FOR= && grep -q 'missing now: qemu-system-x86_64' "$work/said" && grep -q 'Linux 6.12' "$work/said"
check "all else needs more"
! elsewhere DEPS_FOR=deb && grep -q 'missing now: dh$' "$work/said" && grep -q 'dpkg-dev and debhelper$' "$work/said" && ! grep -q qemu "$work/said"
check "for packages, what makes them is named"
for t in spatch curl dpkg-buildpackage dh; do printf '#!/bin/bash\n' >"$work/few/$t" && chmod +x "$work/few/$t"; done
mv "$work/few/rustc" "$work/"
elsewhere DEPS_FOR=deb && [ ! -s "$work/said" ]
check "and a Rust for them is looked for by who makes them"
mv "$work/rustc" "$work/few/"
rm "$work/few/"{spatch,curl,dpkg-buildpackage,dh}
# A Debian derivative: no package is known, or none is needed.
printf '#!/bin/bash\nexit 1\n' | tee "$work/few/dpkg-query" "$work/few/apt-cache" >"$work/few/apt-get"
printf '#!/bin/bash\nexec "$@"\n' >"$work/few/sudo"
chmod +x "$work/few/dpkg-query" "$work/few/apt-cache" "$work/few/sudo"
printf '#!/bin/bash\necho "$*" >>"%s/calls"\n' "$work" >"$work/few/apt-get" && chmod +x "$work/few/apt-get"
! elsewhere && grep -q 'no package .*coccinelle' "$work/said" && grep -q 'missing now: spatch$' "$work/said"
check "a system with apt that has no such package is told what is missing"
# knows_all_but PACKAGE: from now on apt has one unknown package, whose command is or is not there.
# shellcheck disable=SC2016
knows_all_but() { printf '#!/bin/bash\n[ "$2" != %s ]\n' "$1" >"$work/few/apt-cache"; }
knows_all_but xz-utils
rm -f "$work/calls"
elsewhere && grep -q 'install .*g++ .*make' "$work/calls" && ! grep -q xz-utils "$work/calls" && ! grep -q missing "$work/said"
check "where one package has another name, the others are installed"
knows_all_but coccinelle
rm -f "$work/calls"
! elsewhere && grep -q 'install .*make' "$work/calls" && grep -q 'missing now: spatch$' "$work/said" && ! grep -q 'nothing was' "$work/said"
check "and what is missing after that is named"
printf '#!/bin/bash\n' >"$work/few/spatch" && chmod +x "$work/few/spatch"
rm -f "$work/calls"
elsewhere && [ ! -e "$work/calls" ]
check "and with all of it there, apt is not asked"
[[ $(packages_of DEPS_FOR=install) = *" debootstrap busybox-static dpkg-dev debhelper "* ]]
check "the test of the packages gets what makes them, a Debian, and what boots it"
done_testing
