#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
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

# A module is a file that holds its version, and its source's. dkms puts ours where DKMS does,
# or takes it away, and runs the hook; a tree without its source is broken, as DKMS says.
cat >"$work/bin/modinfo" <<'END'
#!/bin/bash
case "$1 $2" in
"-F version") cut -d' ' -f1 "$3" ;;
"-F srcversion") cut -d' ' -f2 -s "$3" ;;
"-F sig_key") if [[ $3 = *uvm-rust* ]]; then cat "$FAKE/our_key"; else cat "$FAKE/their_key"; fi ;;
esac
END
cat >"$work/bin/dkms" <<'END'
#!/bin/bash
echo "dkms $*" >>"$FAKE/calls"
do=$1 k=
while [ $# -gt 0 ]; do
	case $1 in -v) v=$2 ;; -k) k=$2 ;; esac
	shift
done
tree=$UVM_RUST_ROOT/var/lib/dkms/uvm-rust
if [ "$do" = add ]; then
	mkdir -p "$tree/$v" && ln -s "$UVM_RUST_ROOT/usr/src/uvm-rust-$v" "$tree/$v/source"
	exit
fi
[ -e "$tree/$v/source" ] || exit 4
if [ "$do" = remove ]; then
	for d in "$tree/$v"/*/module; do
		[ ! -e "$d" ] || dkms unbuild -v "$v" -k "$(basename "$(dirname "$d")")"
	done
	rm -rf "${tree:?}/$v"
	exit
fi
built=$tree/$v/$k link=$tree/kernel-$k-x86_64 file=$UVM_RUST_ROOT/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz
if [ "$do" = install ]; then
	[ ! -e "$FAKE/refused" ] || exit 13
	[ ! -e "$FAKE/broken" ] || { mkdir -p "$UVM_RUST_ROOT/var/lib/uvm-rust/failed"; cat "$FAKE/broken" >"$UVM_RUST_ROOT/var/lib/uvm-rust/failed/$k"; exit 77; }
	mkdir -p "$built/module" && cp "$FAKE/driver" "$file" && ln -sfn "$v/$k" "$link"
	mkdir -p "$UVM_RUST_ROOT/var/lib/uvm-rust/built" && sha256sum "$FAKE/symvers" >"$UVM_RUST_ROOT/var/lib/uvm-rust/built/$k"
else
	rm -rf "$built" "$file" "$link"
fi
"$UVM_RUST" sync "$k"
END
# depmod's index is a list of files; modprobe reads nothing else, and loads what it finds there
# unless it is told to fail. The configuration in $FAKE/install is that of Debian's package.
cat >"$work/bin/depmod" <<'END'
#!/bin/bash
echo "depmod $*" >>"$FAKE/calls"
[ ! -e "$FAKE/no-depmod" ] && [ ! -e "$FAKE/no-depmod-for-$1" ] || exit 1
[[ $1 =~ ^[0-9]+\.[0-9]+ ]] || { echo "depmod: ERROR: Bad version passed $1" >&2; exit 1; }
cd "$UVM_RUST_ROOT/lib/modules/$1" && find . -name '*.ko*' | sed 's|^./||; s|$|:|' | sort >modules.dep.new
mv modules.dep.new modules.dep
touch modules.dep.bin
END
cat >"$work/bin/modprobe" <<'END'
#!/bin/bash
line="modprobe $*" root=$UVM_RUST_ROOT k=$(uname -r)
[ "$1" != -d ] || { root=$2; shift 2; }
[ "$1" != -S ] || { k=$2; shift 2; }
[ "$1" = --show-depends ] && { show=1; shift; } || echo "$line" >>"$FAKE/calls"
if [ "$1" = nvidia-uvm ] && [ -e "$FAKE/install" ]; then
	[ -z "$show" ] || { cat "$FAKE/install"; exit; }
	set -- -i "$(sed 's/.*-i \([^ ]*\).*/\1/' "$FAKE/install")"
fi
name=${!#}
cd "$root/lib/modules/$k" || exit
file=$({ grep "^updates/uvm-rust/$name\.ko" modules.dep; grep "/$name\.ko" modules.dep; } | head -n 1 | sed 's/:$//')
[ -n "$file" ] || exit
[ -z "$show" ] || { echo "insmod $root/lib/modules/$k/$file "; exit; }
case $file in updates/uvm-rust/*) who=ours ;; *) who=theirs ;; esac
[ ! -e "$FAKE/no-modprobe" ] && [ ! -e "$FAKE/no-$who" ] && [ -e "$file" ] || exit
"$FAKE/load" $who
END
printf '#!/bin/bash\necho "rmmod $*" >>"$FAKE/calls"\n[ ! -e "$FAKE/no-rmmod" ] && rm -rf "$UVM_RUST_ROOT/sys/module/$1"\n' >"$work/bin/rmmod"
printf '#!/bin/bash\necho "insmod $*" >>"$FAKE/calls"\n[ -e "$1" ] && [ ! -e "$FAKE/no-insmod" ] && "$FAKE/load" ours\n' >"$work/bin/insmod"
printf '#!/bin/bash\necho %s\n' $k >"$work/bin/uname"
printf '#!/bin/bash\necho "rustc 1.85.1 (test)"\n' >"$work/bin/rustc"
printf '#!/bin/bash\ncat "$FAKE/mok"\nexit 1\n' >"$work/bin/mokutil"
chmod +x "$work/bin/"*
export PATH=$work/bin:$PATH UVM_RUST=$top/packaging/uvm-rust

# machine: a kernel with NVIDIA's module, as Debian names it, and ours, installed.
machine() {
	rm -rf "$root" "$FAKE" && mkdir -p "$FAKE"
	echo 550.163.01 >"$FAKE/driver"
	echo "symbols of nvidia.ko" >"$FAKE/symvers"
	echo 'install modprobe nvidia ; modprobe -i nvidia-current-open-uvm $CMDLINE_OPTS ' >"$FAKE/install"
	printf '#!/bin/bash\n%s\nloaded "$1"\n' "$(declare -f loaded)" >"$FAKE/load" && chmod +x "$FAKE/load"
	: >"$FAKE/mok"
	mkdir -p "$root/lib/modules/$k/updates/dkms" "$root/var/lib/dkms/uvm-rust/0.1.0/source" "$root/proc/1/fd" "$root/sys/module"
	echo 550.163.01 >"$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
	printf '#!/bin/bash\nexec "$FAKE/build" "$@"\n' >"$root/var/lib/dkms/uvm-rust/0.1.0/source/build.sh"
	# --check: could be built; --tried: not yet.
	printf '#!/bin/bash\n[ "$1" = --check ] && echo "a module"\n' >"$FAKE/build"
	chmod +x "$root/var/lib/dkms/uvm-rust/0.1.0/source/build.sh" "$FAKE/build"
	echo "550.163.01 AAAA" >"$root/lib/modules/$k/updates/dkms/nvidia-current-open.ko.xz"
	depmod $k
	installed
	: >"$FAKE/calls"
}
installed() { dkms install -m uvm-rust -v 0.1.0 -k $k; }
# loaded ours|theirs
loaded() {
	local m=$UVM_RUST_ROOT/sys/module
	mkdir -p "$m/nvidia_uvm/parameters" "$m/nvidia"
	echo 0 >"$m/nvidia_uvm/refcnt"
	[ -e "$m/nvidia/version" ] || echo 550.163.01 >"$m/nvidia/version"
	[ -e "$m/nvidia/srcversion" ] || echo AAAA >"$m/nvidia/srcversion"
	if [ "$1" = ours ]; then echo 1 >"$m/nvidia_uvm/parameters/uvm_rust_stats"; fi
}
is_loaded() {
	local m=$root/sys/module/nvidia_uvm
	case $1 in
	none) [ ! -e "$m" ] ;;
	theirs) [ -d "$m" ] && [ ! -e "$m/parameters/uvm_rust_stats" ] ;;
	ours) [ -e "$m/parameters/uvm_rust_stats" ] ;;
	esac
}
uvm() { "$UVM_RUST" "$@" >"$work/said" 2>&1; }
link=lib/modules/$k/updates/uvm-rust/nvidia-current-open-uvm.ko.xz
our_ko=$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz
ours_wins() { [ "$(readlink -f "$root/$link")" = "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz" ]; }
theirs_wins() { [ ! -e "$root/lib/modules/$k/updates/uvm-rust" ]; }
enabled() { [ ! -e "$root/var/lib/uvm-rust/disabled" ]; }
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

# 550.163.01-2 to -3: the version is the same, and its symbols may have others.
machine
echo "symbols of another build" >"$FAKE/symvers"
uvm sync && theirs_wins
check "a module for another build of the same driver is not linked"
! uvm doctor && said '-> .*another build of NVIDIA.s driver.*: uvm-rust refresh'
check "and doctor says so"
uvm refresh --new && ours_wins
check "refresh builds it for that"
# A kernel that somebody built anew has the name of the one before, and may refuse what was built for that.
machine
mkdir -p "$root/lib/modules/$k/build/include/config"
for f in Module.symvers include/config/auto.conf; do
	echo "of the first build" >"$root/lib/modules/$k/build/$f"
	sha256sum "$root/lib/modules/$k/build/$f" >"$root/var/lib/uvm-rust/built/$k.headers"
	uvm sync && ours_wins && echo "of another" >"$root/lib/modules/$k/build/$f" && uvm sync && theirs_wins && ! uvm doctor && said '-> .*build .*of the kernel'
	check "a module for another build of the kernel, by its $f, is not linked"
	rm "$root/lib/modules/$k/build/$f"
	uvm sync && ours_wins
	check "without the headers it is"
done
machine
: >"$root/var/lib/uvm-rust/built/$k"
uvm sync && theirs_wins
check "a power cut that emptied the sums leaves NVIDIA's"

machine
rm "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz"
uvm sync && theirs_wins
check "with our module gone the link goes"

machine
: >"$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz"
: >"$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
uvm sync && theirs_wins
check "two modules of no version are not of the same"

# takes ours|theirs: by the index, which is what modprobe reads.
takes() {
	case $(modprobe -S $k --show-depends -i nvidia-current-open-uvm) in
	*/updates/uvm-rust/*) [ "$1" = ours ] ;;
	*) [ "$1" = theirs ] ;;
	esac
}
ours_gone() { theirs_wins && takes theirs && theirs_untouched && [ ! -e "$our_ko" ]; }
machine
sed -i /uvm-rust.nvidia/d "$root/lib/modules/$k/modules.dep"
takes theirs && uvm sync && takes ours && called "depmod $k"
check "a link without its line in the index (a power cut before depmod) gets it"
machine
rm -r "$root/lib/modules/$k/updates/uvm-rust"
mkdir -p "$root/var/lib/uvm-rust" && touch "$root/var/lib/uvm-rust/disabled"
uvm sync && takes theirs && called "depmod $k"
check "and a line without its link goes"
machine
touch -d '1 hour ago' "$root/lib/modules/$k/modules.dep.bin"
uvm sync && called "depmod $k" && : >"$FAKE/calls" && uvm sync && ! called "depmod.*"
check "so it is if depmod came to write one of its two files only"
machine
touch "$FAKE/no-depmod"
! uvm disable && said "depmod failed for $k" && takes ours && ours_wins
check "if depmod fails, what the old index names is there, or nothing could be loaded"
rm "$FAKE/no-depmod"
uvm sync && takes theirs && theirs_wins
check "and the next sync does what was to be done"

# Somebody's copy of a kernel's modules: depmod takes no name that is not a version.
machine
loaded ours
cp -a "$root/lib/modules/$k" "$root/lib/modules/old-$k"
(cd "$root/lib/modules/old-$k" && find . -type f -exec sha256sum {} +) >"$work/copied"
uvm disable && is_loaded theirs && uvm remove && ours_gone
check "a copy of a kernel's modules does not keep ours from being disabled and removed"
(cd "$root/lib/modules/old-$k" && sha256sum --check --status "$work/copied") && [ -L "$root/lib/modules/old-$k/${link##*"$k"/}" ]
check "and the copy stays as it is"

# kernel NAME: one more that has NVIDIA's module and ours.
kernel() {
	mkdir -p "$root/lib/modules/$1/updates/dkms"
	cp "$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz" "$root/lib/modules/$1/updates/dkms/"
	depmod "$1"
	dkms install -m uvm-rust -v 0.1.0 -k "$1"
}
machine
kernel 6.1.0-old
loaded theirs
uvm disable
touch "$FAKE/no-depmod-for-6.1.0-old"
! uvm enable && ours_wins && takes ours && is_loaded ours && called "depmod 6.1.0-old"
check "if depmod fails for one kernel, the next is done all the same and the module swapped, and the command fails"
rm "$FAKE/no-depmod-for-6.1.0-old"
uvm sync
touch "$FAKE/no-depmod-for-6.1.0-old"
! uvm disable && theirs_wins && takes theirs && is_loaded theirs && said "loaded now: NVIDIA's"
check "by disable too"
! uvm rollback && ours_gone && said 'ours stays on 6.1.0-old' && [ -e "$root/lib/modules/6.1.0-old/updates/uvm-rust/${link##*/}" ]
check "rollback takes ours away but from where the index names it, and says so"
machine
loaded ours
touch "$FAKE/no-depmod-for-$k"
! uvm disable && is_loaded ours && said "depmod failed for $k" && ! called 'rmmod.*'
check "if it fails for the running kernel, nothing is swapped"
rm -r "$root/sys/module/nvidia_uvm"
loaded theirs
! uvm disable && is_loaded theirs
check "nor is ours loaded, which the old index still names"
loaded ours
! uvm rollback && is_loaded ours && ! uvm rollback --later && ours_wins && takes ours
check "nor taken away, later or not"

machine
kernel 6.13.0-headers
rm "$root/lib/modules/6.13.0-headers"/modules.dep*
: >"$FAKE/calls"
uvm disable && ! called "depmod 6.13.0-headers" && called "depmod $k" && [ ! -e "$root/lib/modules/6.13.0-headers/modules.dep" ]
check "a kernel without an index gets none"

machine
rm -rf "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz" "$root/var/lib/dkms/uvm-rust/0.1.0/$k"
echo "error: the compiler is broken" >"$FAKE/broken"
uvm refresh && theirs_wins && theirs_untouched && said "not built for $k: error: the compiler is broken"
check "a build that fails leaves NVIDIA's, and its reason is said"
! uvm enable && said "loaded next.*NVIDIA's" && ! uvm enable --later
check "enable fails if ours is not what is loaded next"
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
touch "$FAKE/refused"
uvm refresh && said "not built for $k: DKMS said no" && ! said 'compiler'
check "of what DKMS itself refuses no older reason is told"
# As in a chroot, where an image is made.
machine
kernel 6.1.0-old
rm -r "$root/lib/modules/$k"
uvm enable && uvm disable && rm -r "$root/lib/modules/6.1.0-old" && ! uvm enable
check "where the running kernel is not installed, ours on another is enough"

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
# A package with a mend was installed while ours is in force: its module has another build ID.
machine
loaded ours
mkdir -p "$root/sys/module/nvidia_uvm/notes"
printf 'four more words:\1\2\3\4\5\6\7\10' >"$root/sys/module/nvidia_uvm/notes/.note.gnu.build-id"
pack() { { echo "550.163.01 it is"; printf '%b' "$1"; } | xz -c >"$our_ko"; }
pack 'has \1\2\3\4\5\6\7\10 in it'
cat >"$work/bin/modinfo.xz" <<'END'
#!/bin/bash
f=$3
case $f in *.xz) f=$(mktemp) && { xz -dc "$3" 2>/dev/null || cat "$3"; } | head -n 1 >"$f" ;; esac
exec "$(dirname "$0")/modinfo.plain" "$1" "$2" "$f"
END
mv "$work/bin/modinfo" "$work/bin/modinfo.plain" && mv "$work/bin/modinfo.xz" "$work/bin/modinfo" && chmod +x "$work/bin/modinfo"
uvm enable && ! called 'rmmod.*'
check "the build that is loaded already stays"
pack 'has \1\2\3\4\5\6\7\11 in it'
! uvm doctor && said '-> another build of ours is installed'
check "doctor knows another build of ours"
uvm enable && called 'rmmod nvidia_uvm' && called 'modprobe nvidia-uvm'
check "and enable loads it"
mv "$work/bin/modinfo.plain" "$work/bin/modinfo"

machine
uvm disable --later
loaded theirs
touch "$FAKE/no-ours"
! uvm enable && theirs_wins && said "NVIDIA's is in force again" && is_loaded theirs
check "if ours does not load, NVIDIA's is in force again"
machine
loaded theirs
touch "$FAKE/no-modprobe"
! uvm enable && theirs_wins && ! said "in force again" && said 'NO nvidia-uvm IS LOADED' && said 'loaded now: none'
check "if NVIDIA's does not load either, that is said"
machine
loaded ours
touch "$FAKE/no-theirs"
! uvm disable && theirs_wins && said "NVIDIA's module could not be loaded" && is_loaded ours
check "if NVIDIA's does not load, ours stays until the next boot"
machine
loaded ours
touch "$FAKE/no-theirs" "$FAKE/no-insmod"
! uvm disable && said 'NO nvidia-uvm IS LOADED' && is_loaded none
check "and if ours does not come back, that is said"
machine
loaded ours
touch "$FAKE/no-theirs"
! uvm rollback && theirs_wins && is_loaded ours && [ -e "$our_ko" ] && ! called 'dkms .*' && said 'still on its kernels.*: uvm-rust rollback'
check "rollback takes nothing away if NVIDIA's does not load, and ours is loaded again"
rm "$FAKE/no-theirs"
uvm rollback && is_loaded theirs && ours_gone
check "and does once NVIDIA's loads"
machine
loaded ours
uvm rollback --later && is_loaded ours && ours_gone
check "rollback --later takes ours away while it is loaded"
machine
loaded theirs
touch "$FAKE/no-rmmod"
! uvm enable && ours_wins && is_loaded theirs && said 'could not be unloaded' && ! called 'modprobe.*'
check "what cannot be unloaded stays, and ours is taken at the next boot"

# NVIDIA's packages were upgraded, and the machine was not rebooted.
machine
loaded theirs
echo 535.1 >"$root/sys/module/nvidia/version"
! uvm enable && ours_wins && enabled && is_loaded theirs && ! called 'rmmod.*' && said 'nvidia.ko that is loaded is 535.1' && said 'Reboot'
check "beside an older nvidia.ko nothing is swapped, and ours stays enabled"
machine
loaded ours
echo BBBB >"$root/sys/module/nvidia/srcversion"
! uvm disable && theirs_wins && is_loaded ours && ! called 'rmmod.*' && said 'not the build of it that is installed'
check "nor beside another build of it"
machine
loaded ours
rm "$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
! uvm disable && is_loaded ours && ! called 'rmmod.*' && said 'no nvidia-uvm for'
check "nor if NVIDIA's was not built for this kernel"
machine
loaded ours
echo 'install /bin/true ' >"$FAKE/install"
! uvm disable && is_loaded ours && ! called 'rmmod.*'
check "nor if the administrator has modprobe load none"

# Debian's proprietary driver beside the open one: the former has the higher priority.
machine
echo 550.163.01 >"$root/lib/modules/$k/updates/dkms/nvidia-current-uvm.ko.xz"
depmod $k
echo 'install modprobe nvidia ; modprobe -i nvidia-current-uvm $CMDLINE_OPTS ' >"$FAKE/install"
loaded theirs
! uvm enable && said "loaded next.*NVIDIA's (nvidia-current-uvm.ko.xz)" && ! called 'rmmod.*'
check "what is loaded next is what modprobe takes, whatever it is called"
! uvm doctor && said "next time: *NVIDIA's (nvidia-current-uvm.ko.xz)" && said '-> .*Turing.*update-glx --config nvidia.*update-glx --auto nvidia' && ! said 'swap now'
check "and doctor says for which GPUs the open driver is, how to choose it, and the way back"

machine
uvm rollback && theirs_wins && theirs_untouched && [ ! -e "$root/lib/modules/$k/updates/dkms/uvm-rust-nvidia-uvm.ko.xz" ] &&
	called "dkms unbuild -m uvm-rust -v 0.1.0 -k $k"
check "rollback takes ours off the kernels"
uvm enable && ours_wins
check "and enable builds it again"
machine
rm -r "$root/var/lib/dkms/uvm-rust/0.1.0/source"
uvm rollback && ours_gone
check "rollback does so though DKMS' tree is broken"

# A power cut in the middle of `dkms install`, when the module is there and DKMS does not call it installed.
machine
rm "$root/var/lib/dkms/uvm-rust/kernel-$k-x86_64"
uvm sync && theirs_wins && takes theirs
check "a module that DKMS does not call installed is not taken"
uvm refresh && ours_wins && called "dkms install .*"
check "and is built anew"
printf '#!/bin/bash\n[ "$1 $2" != "install -m" ] || [ ! -e "%s" ] || touch "$FAKE/archived"\nexec "%s" "$@"\n' "$our_ko" "$work/bin/dkms.whole" >"$work/bin/dkms.one"
mv "$work/bin/dkms" "$work/bin/dkms.whole" && cp "$work/bin/dkms.one" "$work/bin/dkms" && chmod +x "$work/bin/dkms"
rm "$root/var/lib/dkms/uvm-rust/kernel-$k-x86_64"
uvm refresh && ours_wins && [ ! -e "$FAKE/archived" ]
check "DKMS finds no module that it could take for the original one"
mv "$work/bin/dkms.whole" "$work/bin/dkms"

machine
uvm remove && ours_gone && [ ! -e "$root/var/lib/dkms/uvm-rust" ] && called "dkms remove -m uvm-rust -v 0.1.0 --all"
check "remove leaves nothing of ours"
machine
rm "$root/var/lib/dkms/uvm-rust/kernel-$k-x86_64"
uvm remove && ours_gone && [ ! -e "$root/var/lib/dkms/uvm-rust" ]
check "nor does it after that power cut"
machine
rm -r "$root/var/lib/dkms/uvm-rust/0.1.0/source"
uvm remove && ours_gone && [ ! -e "$root/var/lib/dkms/uvm-rust" ]
check "nor with a broken tree, which apt would stumble over for good"
machine
touch "$FAKE/no-depmod"
! uvm remove && takes ours && ours_wins
check "if depmod fails, what the index names stays, and remove fails"
for place in updates extra; do
	machine
	mkdir -p "$root/lib/modules/$k/$place"
	mv "$our_ko" "$root/lib/modules/$k/$place/"
	uvm sync && [ "$(readlink "$root/$link")" = "../../$place/uvm-rust-nvidia-uvm.ko.xz" ] && uvm rollback && [ ! -e "$root/lib/modules/$k/$place/uvm-rust-nvidia-uvm.ko.xz" ]
	check "distributions that keep it in $place"
done

# What DKMS was not told of: dpkg's abort-upgrade, an administrator's no-autoinstall.
machine
rm -rf "$our_ko" "$root/var/lib/dkms/uvm-rust" && mkdir -p "$root/usr/src/uvm-rust-0.1.0" "$root/etc/dkms"
cp "$FAKE/build" "$root/usr/src/uvm-rust-0.1.0/build.sh"
touch "$root/etc/dkms/no-autoinstall"
uvm refresh --new && theirs_wins && ! called "dkms.*" && said 'no-autoinstall'
check "nothing is built by itself where the administrator wants nothing built"
uvm refresh && ours_wins && called "dkms add -m uvm-rust -v 0.1.0"
check "but it is by hand, and DKMS is told of us"
mv "$root/var/lib/dkms/uvm-rust/0.1.0/source" "$root/gone" && rm "$root/etc/dkms/no-autoinstall" && ln -s /nowhere "$root/var/lib/dkms/uvm-rust/0.1.0/source"
echo 560.1 | tee "$FAKE/driver" >"$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
uvm refresh --new && ours_wins
check "and so it is if its tree is broken"
machine
rm -rf "$root/var/lib/dkms/uvm-rust"
uvm refresh && said 'nothing is built: uvm-rust-dkms is not installed'
check "without the package that is said"
machine
uvm disable && rm "$our_ko" && : >"$FAKE/calls"
uvm refresh && ! called "dkms.*" && said 'nothing is built, as ours is disabled'
check "and so it is if ours is disabled"
mkdir -p "$root/var/lib/uvm-rust/failed" && touch "$root/var/lib/uvm-rust/failed/$k"
uvm rollback && [ ! -e "$root/var/lib/uvm-rust/failed" ] && [ ! -e "$root/var/lib/uvm-rust/built" ]
check "rollback forgets what has failed"

# The packages' scripts, by what they call. Debian's: DKMS' own script, which knows no made-up root,
# has found nothing to do.
ln -s "$UVM_RUST" "$work/bin/uvm-rust"
debian() {
	sed 's|/usr/lib/dkms/common.postinst|false|; s|#VERSION#|0.1.0|; /^#DEBHELPER#/d; s|/var/lib/uvm-rust|$UVM_RUST_ROOT&|' "$top/packaging/debian/uvm-rust-dkms.$1" >"$work/script"
	sh "$work/script" "${@:2}" >"$work/said" 2>&1
}
packaged() {
	machine
	mkdir -p "$root/usr/src/uvm-rust-0.1.0" && cp "$FAKE/build" "$root/usr/src/uvm-rust-0.1.0/build.sh"
}
for what in remove upgrade deconfigure; do
	packaged
	debian prerm $what 0.1.0 && ours_gone && debian postinst configure 0.1.0 && ours_wins
	check "prerm $what takes ours away, and postinst configure builds it"
done
for what in upgrade remove deconfigure; do
	packaged
	debian prerm $what 0.1.0 && debian postinst abort-$what && ours_wins
	check "and so does postinst abort-$what"
done
packaged
debian prerm failed-upgrade 0.0.9 && ours_wins && [ ! -s "$FAKE/calls" ] && debian postrm remove
check "prerm failed-upgrade and postrm remove do nothing"
echo "symbols of another build" >"$FAKE/symvers"
debian postinst triggered /usr/src && ours_wins && called 'dkms install .*'
check "after another driver the trigger builds ours anew"
packaged
touch "$FAKE/no-depmod"
! debian prerm remove && ours_wins && takes ours
check "prerm fails if ours cannot go, and it is all there"
packaged
touch "$FAKE/broken"
debian prerm upgrade 0.1.0 && debian postinst configure 0.1.0 && ours_gone
check "a build that fails does not stop apt"

# RPM's order: the new package's files and %post, the old one's %preun, its files go, %posttrans.
rpm_script() {
	sed -n "/^%$1 -n dkms-uvm-rust/,/^\(%\|\$\)/p" "$top/packaging/rpm/uvm-rust.spec" | grep -v '^%' | sed 's/%{version}/0.1.0/' >"$work/script"
	sh "$work/script" "$2" >"$work/said" 2>&1
}
packaged
rpm_script post 2 && rpm_script preun 1 && ours_wins && rpm_script posttrans 2 && ours_wins && called 'dkms install .*'
check "an upgrade of the RPM ends with ours"
packaged
mv "$root/var/lib/dkms/uvm-rust/0.1.0" "$root/var/lib/dkms/uvm-rust/0.0.9" && rm -r "$root/var/lib/dkms/uvm-rust/0.0.9/source"
rpm_script posttrans 2 && ours_wins && [ ! -e "$root/var/lib/dkms/uvm-rust/0.0.9" ]
check "from another version too, whose source is gone"
rpm_script preun 0 && ours_gone
check "and the last one takes ours away"

# Two at a time: the second waits, and has its turn.
machine
exec 8>"$root/run/uvm-rust.lock"
flock 8
("$UVM_RUST" disable --later >"$work/said" 2>&1; touch "$work/ended") 8>&- &
for ((i = 0; i < 200; i++)); do said waiting && break; sleep 0.3; done
said 'waiting for another uvm-rust' && [ ! -e "$work/ended" ] && ours_wins
check "while one is at work, another waits"
exec 8>&-
wait
[ -e "$work/ended" ] && theirs_wins
check "and then does what it was to do"

# An initramfs that was made with nvidia-uvm in it.
printf '#!/bin/bash\n[ "$1" != "%s" ] || cat "$FAKE/initramfs"\n' "$root/boot/initrd.img-$k" >"$work/bin/lsinitramfs" && chmod +x "$work/bin/lsinitramfs"
machine
mkdir -p "$root/boot" && touch "$root/boot/initrd.img-$k"
echo "usr/lib/modules/$k/kernel/fs/ext4/ext4.ko.xz" >"$FAKE/initramfs"
uvm disable && ! said initramfs
check "an initramfs without nvidia-uvm is no concern"
echo "usr/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz" >>"$FAKE/initramfs"
uvm enable && said "holds NVIDIA's nvidia-uvm.*update-initramfs -u -k $k" && [ "$(grep -c initramfs "$work/said")" = 1 ]
check "of one that holds it, how it is made anew"
loaded theirs
! uvm doctor && said "-> the initramfs.*update-initramfs -u -k $k" && said '-> to swap now: uvm-rust enable$'
check "doctor says so, and does not send anybody to a reboot, which changes nothing"
uvm enable && is_loaded ours && uvm enable && said "update-initramfs -u -k $k"
check "enable says it where nothing else is to be done too"
printf "usr/lib/modules/$k/updates/%s\n" uvm-rust/nvidia-current-open-uvm.ko.xz dkms/uvm-rust-nvidia-uvm.ko.xz >"$FAKE/initramfs"
uvm doctor && ! said initramfs && uvm enable && ! said initramfs
check "made anew with ours it is no concern"
touch -d '1 hour ago' "$root/boot/initrd.img-$k"
mv "$our_ko" "$work/kept" && uvm sync && said "update-initramfs -u -k $k"
check "but once ours is gone, as by DKMS"
mv "$work/kept" "$our_ko" && uvm sync
! uvm doctor && said "-> the initramfs of $k holds ours"
check "and so is one with an older build of ours"
uvm disable --later && : >"$work/said" && uvm remove && said "initramfs of $k holds ours.*update-initramfs"
check "when the package goes, one that holds ours is named"

# The name that NVIDIA's own packages use.
machine
mv "$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz" "$root/lib/modules/$k/updates/dkms/nvidia-uvm.ko.xz"
rm "$FAKE/install"
uvm sync && [ ! -e "$root/$link" ] && [ -e "$root/lib/modules/$k/updates/uvm-rust/nvidia-uvm.ko.xz" ]
check "NVIDIA's own packages call it nvidia-uvm"

machine
loaded ours
uvm doctor && said 'loaded: *ours' && said 'parameters: *stats=1' && said "driver: *NVIDIA's 550.163.01" && said 'next time: *ours' && said 'Secure Boot: *off'
check "doctor has nothing to say about a machine that is well"
rm -r "$root/sys/module/nvidia_uvm"
! uvm doctor && said '-> no nvidia-uvm is loaded beside nvidia.ko: modprobe nvidia-uvm'
check "it says that there is no UVM beside a driver that is loaded"
echo 535.1 >"$root/sys/module/nvidia/version"
! uvm doctor && said '-> the nvidia.ko that is loaded is 535.1.*: reboot'
check "and if that is an older one, why"
machine
kernel 6.1.0-old
loaded theirs
! uvm doctor && said '-> to swap now: uvm-rust enable; or reboot$' && uvm doctor 6.1.0-old && said 'next time: *ours' && ! said loaded
check "of another kernel than the running one it says nothing of what is loaded"
uvm disable --later
! uvm doctor && said '-> to use ours: uvm-rust enable$' && ! said 'swap now'
check "and of one that is disabled only how to enable it"
# DKMS' key has changed since it signed one of the two.
machine
mkdir -p "$root/sys/firmware/efi/efivars"
printf '\6\0\0\0\0' >"$root/sys/firmware/efi/efivars/SecureBoot-8be4df61"
echo AA:01 >"$FAKE/their_key"
echo BB:02 >"$FAKE/our_key"
uvm sync && ours_wins
check "without Secure Boot the key of a module is no matter"
printf '\6\0\0\0\1' >"$root/sys/firmware/efi/efivars/SecureBoot-8be4df61"
uvm sync && theirs_wins
check "with Secure Boot a module that another key has signed than NVIDIA's is not linked"
touch "$root/var/lib/dkms/mok.pub"
echo "mok.pub is not enrolled" >"$FAKE/mok"
! uvm doctor && said '-> another key signed it.*first enrol DKMS. key' && ! said anew && ! said --force
check "and doctor says so, and not to build NVIDIA's with a key that is not enrolled"
echo "mok.pub is already enrolled" >"$FAKE/mok"
mkdir -p "$root/var/lib/dkms/nvidia-current-open/550.163.01"
of="--force -m nvidia-current-open -v 550.163.01 -k $k"
! uvm doctor && said "-> another key signed it.*uvm-rust refresh.*anew.*dkms build $of && dkms install $of"
check "with one that is, how to build it anew"
! uvm enable --later && said 'another key signed ours.*uvm-rust doctor'
check "and enable says why NVIDIA's is next"
rm -r "$root/sys/firmware"
mkdir -p "$root/sys/module/module/parameters"
echo Y >"$root/sys/module/module/parameters/sig_enforce"
uvm sync; theirs_wins
check "so it is where the kernel's command line asks for signatures"
echo N >"$root/sys/module/module/parameters/sig_enforce"
uvm sync && ours_wins
check "and not where it does not"
mkdir -p "$root/sys/firmware/efi/efivars"
printf '\6\0\0\0\1' >"$root/sys/firmware/efi/efivars/SecureBoot-8be4df61"
uvm sync
: >"$FAKE/calls"
uvm refresh --new && ! called 'dkms.*'
check "it is not built anew by itself, which may give the same"
uvm refresh && called "dkms install .*"
check "but by hand"
echo AA:01 >"$FAKE/our_key"
uvm sync && ours_wins
check "of the same key it is linked"
machine
loaded ours
mkdir -p "$root/sys/firmware/efi/efivars"
printf '\6\0\0\0\1' >"$root/sys/firmware/efi/efivars/SecureBoot-8be4df61"
touch "$root/var/lib/dkms/mok.pub"
! uvm doctor && said 'Secure Boot: *on' && said '-> DKMS. key is not enrolled: mokutil --import /var/lib/dkms/mok.pub'
check "with Secure Boot, and DKMS' key unknown to it, mokutil's line"
echo "mok.pub is already enrolled" >"$FAKE/mok"
uvm doctor
check "and none once it is enrolled"
echo "mok.pub is already in the enrollment request" >"$FAKE/mok"
! uvm doctor && said "-> DKMS. key waits to be enrolled: reboot" && ! said import
check "a key that waits to be enrolled is not imported again"
mkdir -p "$root/etc/dkms/framework.conf.d" "$root/etc/keys"
echo 'mok_certificate="/etc/keys/our.der"' >"$root/etc/dkms/framework.conf.d/keys.conf"
touch "$root/etc/keys/our.der"
echo "is not enrolled" >"$FAKE/mok"
! uvm doctor && said 'mokutil --import /etc/keys/our.der'
check "an administrator's key is the one that is asked about"
mv "$work/bin/mokutil" "$work/mokutil"
if command -v mokutil >/dev/null; then
	skipped 1 "this machine has mokutil"
else
	! uvm doctor && said 'apt install mokutil'
	check "without mokutil that is what to install"
fi
mv "$work/mokutil" "$work/bin/"
rm -r "$root/etc/dkms"
echo "mok.pub is already enrolled" >"$FAKE/mok"
rm "$work/bin/rustc"
printf '#!/bin/bash\nexit 1\n' >"$work/bin/rustc" && chmod +x "$work/bin/rustc"
! uvm doctor && said 'apt install rustc rust-src'
check "no compiler: what to install"
mkdir -p "$root/usr/bin" && printf '#!/bin/bash\necho "rustc 1.85.0 (packaged)"\n' >"$root/usr/bin/rustc" && chmod +x "$root/usr/bin/rustc"
uvm doctor
said 'Rust: *rustc 1.85.0 (packaged)'
check "the compiler is that of the distribution, which builds the module, and not a user's"
rm "$root/lib/modules/$k/updates/dkms/nvidia-current-open-uvm.ko.xz"
! uvm doctor && said "Turing.*apt install nvidia-open-kernel-dkms linux-headers-$k"
check "no driver of NVIDIA's: what to install"

# A Ctrl-C between rmmod and modprobe goes to the whole group; here rmmod sends it.
machine
loaded theirs
cp "$work/bin/rmmod" "$work/rmmod"
echo 'kill -INT $PPID; kill -TERM $PPID; kill -HUP $PPID' >>"$work/bin/rmmod"
uvm enable && is_loaded ours
check "a Ctrl-C between rmmod and modprobe leaves an nvidia-uvm"
cp "$work/rmmod" "$work/bin/rmmod"
machine
loaded ours
rm "$root/lib/modules/$k/updates/dkms"/nvidia-current-open*
! uvm rollback && is_loaded ours && said 'uvm-rust rollback --later'
check "with NVIDIA's packages gone, rollback says how ours goes all the same"
uvm rollback --later && [ ! -e "$our_ko" ]
check "and so it does"

! uvm nonsense && said "no command 'nonsense'" && ! uvm enable --soon && said 'no option --soon'
check "what it does not know it refuses"
done_testing
