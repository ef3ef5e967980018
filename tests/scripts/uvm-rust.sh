#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# packaging/uvm-rust, in a root that is a folder: which module is chosen, what it refuses,
# and what its doctor says. dkms, depmod and the like are programs of this test's.
# shellcheck disable=SC2016,SC2317
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export UVM_RUST_ROOT=$work/root FAKE=$work/fake
root=$UVM_RUST_ROOT k=6.12.94-test
mkdir -p "$work/bin" "$FAKE"

# A module is a file that holds its version. dkms puts ours where DKMS does, or takes it
# away, and runs the hook.
cat >"$work/bin/modinfo" <<'END'
#!/bin/bash
[ "$1 $2" = "-F version" ] && cat "$3"
END
cat >"$work/bin/dkms" <<'END'
#!/bin/bash
echo "dkms $*" >>"$FAKE/calls"
while [ $# -gt 0 ]; do
	case $1 in install | unbuild) do=$1 ;; -v) v=$2 ;; -k) k=$2 ;; esac
	shift
done
built=$UVM_RUST_ROOT/var/lib/dkms/uvm-rust/$v/$k file=$UVM_RUST_ROOT/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz
if [ "$do" = install ]; then
	[ ! -e "$FAKE/broken" ] || exit 77
	mkdir -p "$built" && cp "$FAKE/driver" "$file"
else
	rm -rf "$built" "$file"
fi
"$UVM_RUST" sync "$k"
END
for name in depmod modprobe; do
	printf '#!/bin/bash\necho "%s $*" >>"$FAKE/calls"\n[ ! -e "$FAKE/no-%s" ]\n' $name $name >"$work/bin/$name"
done
printf '#!/bin/bash\necho "rmmod $*" >>"$FAKE/calls"\nrm -rf "$UVM_RUST_ROOT/sys/module/$1"\n' >"$work/bin/rmmod"
printf '#!/bin/bash\necho %s\n' $k >"$work/bin/uname"
printf '#!/bin/bash\necho "rustc 1.85.1 (test)"\n' >"$work/bin/rustc"
printf '#!/bin/bash\ncat "$FAKE/mok"\nexit 1\n' >"$work/bin/mokutil"
chmod +x "$work/bin/"*
export PATH=$work/bin:$PATH UVM_RUST=$top/packaging/uvm-rust

# machine: a kernel with NVIDIA's module, as Debian names it, and ours, installed.
machine() {
	rm -rf "$root" "$FAKE" && mkdir -p "$FAKE"
	echo 550.163.01 >"$FAKE/driver"
	: >"$FAKE/mok"
	mkdir -p "$root/lib/modules/$k/updates/dkms" "$root/var/lib/dkms/uvm-rust/0.1.0/source" "$root/proc/1/fd" "$root/sys/module"
	echo 550.163.01 >"$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
	printf '#!/bin/bash\nexec "$FAKE/build" "$@"\n' >"$root/var/lib/dkms/uvm-rust/0.1.0/source/build.sh"
	# --check: could be built; --tried: not yet.
	printf '#!/bin/bash\n[ "$1" = --check ] && echo "a module"\n' >"$FAKE/build"
	chmod +x "$root/var/lib/dkms/uvm-rust/0.1.0/source/build.sh" "$FAKE/build"
	installed
	: >"$FAKE/calls"
}
installed() { dkms install -m uvm-rust -v 0.1.0 -k $k; }
# loaded ours|theirs
loaded() {
	mkdir -p "$root/sys/module/nvidia_uvm/parameters"
	echo 0 >"$root/sys/module/nvidia_uvm/refcnt"
	if [ "$1" = ours ]; then echo 1 >"$root/sys/module/nvidia_uvm/parameters/uvm_rust_stats"; fi
}
uvm() { "$UVM_RUST" "$@" >"$work/said" 2>&1; }
link=lib/modules/$k/updates/uvm-rust/nvidia-current-open-uvm.ko.xz
ours_wins() { [ "$(readlink -f "$root/$link")" = "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz" ]; }
theirs_wins() { [ ! -e "$root/lib/modules/$k/updates/uvm-rust" ]; }
theirs_untouched() { [ -f "$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz" ]; }
called() { grep -qx -e "$1" "$FAKE/calls"; }
said() { grep -q -e "$1" "$work/said"; }

# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

machine
ours_wins && theirs_untouched
check "what DKMS has installed is linked under the name of NVIDIA's module, which stays"

uvm sync && [ ! -s "$FAKE/calls" ]
check "a second time nothing changes, and depmod is not run"

uvm disable && theirs_wins && called "depmod $k" && said 'loaded next.*NVIDIA'
check "disabled: NVIDIA's, after depmod"
uvm sync && theirs_wins && installed && theirs_wins
check "and it stays so, even if DKMS builds anew"
uvm enable && ours_wins && called "depmod $k"
check "enabled: ours again"

machine
echo 560.1 >"$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
uvm sync && theirs_wins
check "a module for another driver than the one there is not linked"
echo 560.1 >"$FAKE/driver"
uvm refresh && ours_wins && called "dkms unbuild .*" && called "dkms install .*-k $k"
check "refresh builds it for the driver there is"

machine
rm "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz"
uvm sync && theirs_wins
check "with our module gone the link goes"

machine
rm -rf "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz" "$root/var/lib/dkms/uvm-rust/0.1.0/$k"
touch "$FAKE/broken"
mkdir -p "$root/var/lib/uvm-rust/failed"
echo "error: the compiler is broken" >"$root/var/lib/uvm-rust/failed/$k"
uvm refresh && theirs_wins && theirs_untouched && said "not built for $k: error: the compiler is broken"
check "a build that fails leaves NVIDIA's, and its reason is said"
printf '#!/bin/bash\n[ "$1" = --tried ]\n' >"$FAKE/build"
: >"$FAKE/calls"
uvm refresh --new && ! called "dkms.*"
check "and is not tried again by itself if nothing has changed"
uvm refresh && called "dkms install .*"
check "but by hand: a compiler may be mended without another version"
! uvm doctor && said 'last try: *error: the compiler is broken'
check "doctor knows the reason"
uvm log && said 'the compiler is broken'
check "and log has all of it"

machine
loaded theirs
mkdir -p "$root/proc/4242/fd"
ln -s /dev/nvidia-uvm "$root/proc/4242/fd/7"
echo trainer >"$root/proc/4242/comm"
refuses() { ! uvm "$1" && said '4242 trainer' && said "uvm-rust $1 --later" && ours_wins && [ ! -s "$FAKE/calls" ]; }
refuses enable && refuses disable && refuses rollback
check "with a process on UVM nothing is changed, and it is named"
uvm disable --later && theirs_wins && ! called 'rmmod.*'
check "--later changes what the next boot loads"
rm "$root/proc/4242/fd/7"
echo "7f00-7f01 rw-s 00000000 00:05 5 /dev/nvidia-uvm" >"$root/proc/4242/maps"
! uvm enable && said '4242 trainer' && theirs_wins
check "a mapping is a use, with its file closed"
echo "7f00-7f01 rw-s 00000000 00:05 5 /dev/nvidia-uvm-tools" >"$root/proc/4242/maps"
echo 3 >"$root/sys/module/nvidia_uvm/refcnt"
! uvm enable && said 'in use 3 times' && theirs_wins
check "so is a use that nobody here can see"
echo 0 >"$root/sys/module/nvidia_uvm/refcnt"
uvm enable && ours_wins && called 'rmmod nvidia_uvm' && called 'modprobe nvidia-uvm'
check "with nobody on it the module is swapped"

machine
loaded ours
uvm enable && ! called 'rmmod.*'
check "the one that is loaded already stays"
uvm disable --later && theirs_wins && ! called 'rmmod.*'
check "disable --later leaves it loaded"
uvm enable --later
uvm disable && called 'rmmod nvidia_uvm' && called 'modprobe nvidia-uvm'
check "disable swaps it for NVIDIA's"

machine
uvm disable --later
loaded theirs
touch "$FAKE/no-modprobe"
! uvm enable && theirs_wins && said "NVIDIA's is in force again"
check "if ours does not load, NVIDIA's is in force again"

machine
uvm rollback && theirs_wins && theirs_untouched && [ ! -e "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz" ] &&
	called "dkms unbuild -m uvm-rust -v 0.1.0 -k $k"
check "rollback takes ours off the kernels"
uvm enable && ours_wins
check "and enable builds it again"

# The name that NVIDIA's own packages use.
machine
mv "$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz" "$root/lib/modules/$k/updates/dkms/nvidia-uvm.ko.xz"
uvm sync && [ ! -e "$root/$link" ] && [ -e "$root/lib/modules/$k/updates/uvm-rust/nvidia-uvm.ko.xz" ]
check "NVIDIA's own packages call it nvidia-uvm"

machine
loaded ours
uvm doctor && said 'loaded: *ours' && said 'parameters: *stats=1' && said "driver: *NVIDIA's 550.163.01" && said 'next time: *ours' && said 'Secure Boot: *off'
check "doctor has nothing to say about a machine that is well"
mkdir -p "$root/sys/firmware/efi/efivars"
printf '\6\0\0\0\1' >"$root/sys/firmware/efi/efivars/SecureBoot-8be4df61"
touch "$root/var/lib/dkms/mok.pub"
! uvm doctor && said 'Secure Boot: *on' && said -- '-> DKMS. key is not enrolled: mokutil --import /var/lib/dkms/mok.pub'
check "with Secure Boot, and DKMS' key unknown to it, mokutil's line"
echo "mok.pub is already enrolled" >"$FAKE/mok"
uvm doctor
check "and none once it is enrolled"
rm "$work/bin/rustc"
printf '#!/bin/bash\nexit 1\n' >"$work/bin/rustc" && chmod +x "$work/bin/rustc"
! uvm doctor && said 'apt install rustc rust-src'
check "no compiler: what to install"
rm "$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
! uvm doctor && said "apt install nvidia-open-kernel-dkms linux-headers-$k"
check "no driver of NVIDIA's: what to install"

! uvm nonsense && said "no command 'nonsense'" && ! uvm enable --soon && said 'no option --soon'
check "what it does not know it refuses"
done_testing
