#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Do the packages do on a real Debian 13 what docs/install.md says? A Debian 13 in a
# folder, with a kernel, its headers and nvidia-open-kernel-dkms of the archive's, gets
# them by apt; then that kernel is booted on that folder, another is installed, the
# compiler breaks, and everything is purged.
#
#   test-install.sh [STEP...]    of: install vm nvidia broken upgrade purge    (all, in that order)
#
# Each step needs those before it; KEEP=1 goes on with the Debian as the last run left it,
# so that a step can be done again. Prints TAP. Needs root, debootstrap, and the archive that
# this machine's apt uses; or DEBIAN_MIRROR=URL, and DEBIAN_SECURITY=URL for the updates.
# Takes an hour, on two cores, the first time; the Debian without our packages is kept in the
# cache (5 GB).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/scripts/chroot.sh"

[ "$(id -u)" = 0 ] || die "needs root, to make a Debian in a folder: sudo make test-install"
# What is mounted goes when this ends.
if [ -z "${UVM_RUST_UNSHARED:-}" ]; then
	UVM_RUST_UNSHARED=1 exec unshare --mount --propagation private "$0" "$@"
fi
for tool in debootstrap qemu-system-x86_64 busybox rsync; do
	have "$tool" || die "$tool is missing: apt install debootstrap qemu-system-x86 busybox-static rsync"
done
virtme=$CACHE/tools/virtme/bin/virtme-run
[ -x "$virtme" ] || die "virtme-ng is not installed: run 'make deps'"
steps=("$@")
[ $# -gt 0 ] || steps=(install vm nvidia broken upgrade purge)

driver=550.163.01
dir=$CACHE/install-trixie
base=$dir/base root=$dir/root out=$TOP/out/test-install
mkdir -p "$dir/debs/partial" "$root" "$out"
locked test-install

mount_devices() {
	mount -t proc proc "$root/proc"
	mount -t devtmpfs devtmpfs "$root/dev"
	mount --bind "$dir/debs" "$root/var/cache/apt/archives"
}
umount_devices() { umount "$root/proc" "$root/dev" "$root/var/cache/apt/archives"; }

# --- the Debian without our packages --------------------------------------------

bootstrap() {
	rm -rf "$base" && mkdir -p "$base"
	debootstrap --cache-dir="$dir/debs" --variant=minbase --include=ca-certificates trixie "$base" "$(debian_mirror)"
	printf 'deb %s trixie main contrib non-free non-free-firmware\ndeb %s trixie-security main\n' "$(debian_mirror)" "$(debian_security)" \
		>"$base/etc/apt/sources.list"
	no_services "$base"
}

# kernel_versions: of the series that Debian 13 has, oldest first. The archive drops the headers
# of a version before its image.
kernel_versions() {
	comm -12 <(packages_of linux-image) <(packages_of linux-headers) | sort -V
}
packages_of() {
	inside apt-cache search --names-only "^$1-6\\.12\\.[0-9]+\\+deb13(\\.[0-9]+)?-amd64\$" |
		sed "s/^$1-\([^ ]*\) .*/\1/" | sort
}

# Since 6.12.107 pci_resize_resource() has one argument more, for which Debian 13 has not mended
# its driver: without this, nvidia.ko compiles on no kernel whose headers the archive has. DKMS
# reads an administrator's file after the package's; no file of the package is changed.
mend_nvidia() {
	local call='pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size'
	cat >"$root/etc/dkms/nvidia-current-open.conf" <<-EOF
		MAKE[0]="! grep -qs exclude_bars /lib/modules/\${kernelver}/source/include/linux/pci.h || sed -i 's/$call)/$call, 0)/' nvidia/nv-pci.c; \${MAKE[0]}"
	EOF
}

# what a machine with a GPU has: the driver, built by DKMS, and CUDA's library, which
# makes Debian choose the driver.
install_nvidia() {
	inside apt-get -q update
	get "linux-image-$(kernel_versions | head -n 1)" "linux-headers-$(kernel_versions | head -n 1)" \
		dkms gcc rustc rust-src kmod udev zstd xz-utils openssl rsync ovmf python3-virt-firmware
	mend_nvidia
	get libcuda1 nvidia-open-kernel-dkms
	[ -e "$root$(their_file "$(kernel_versions | head -n 1)")" ]
}

make_base() {
	[ ! -e "$base/.complete-4" ] || return 0
	TOTAL=300 progress "Debian 13" "$out/debootstrap.log" bootstrap
	mount --bind "$base" "$root"
	mount_devices
	TOTAL=900 progress "its kernel, compiler and NVIDIA's driver" "$out/base.log" install_nvidia
	umount_devices
	umount "$root"
	touch "$base/.complete-4"
}

# fresh: what is changed is not changed in the base.
fresh() {
	[ -n "${KEEP:-}" ] || rm -rf "$dir/upper" "$dir/work"
	mkdir -p "$dir/upper" "$dir/work" "$root"
	mount -t overlay overlay -o "lowerdir=$base,upperdir=$dir/upper,workdir=$dir/work" "$root" ||
		die "this kernel has no overlay file system, which keeps the Debian in the cache as it is"
	mount_devices
}

# --- TAP ---------------------------------------------------------------------------

n=0 failures=0
# check NAME COMMAND...
check() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$out/check.log" 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' "$out/check.log" | tail -n 15
		failures=$((failures + 1))
	fi
}

# --- what is looked at --------------------------------------------------------------

filename() { inside modinfo -k "$1" -F filename nvidia-current-open-uvm; }
their_file() { echo "/lib/modules/$1/updates/dkms/nvidia-current-open-uvm.ko.xz"; }
our_link() { echo "/lib/modules/$1/updates/uvm-rust/nvidia-current-open-uvm.ko.xz"; }
ours_wins() { filename "$1"; [ "$(filename "$1")" = "$(our_link "$1")" ] && inside modinfo -k "$1" -p nvidia-current-open-uvm | grep uvm_rust_stats; }
theirs_wins() { filename "$1"; [ "$(filename "$1")" = "$(their_file "$1")" ]; }
# What nvidia-modprobe asks for leads through Debian's install line to the same file.
modprobe_takes() { inside modprobe -S "$1" --show-depends -i nvidia-current-open-uvm | tail -n 1 | grep -F "$2"; }
installed() { inside dkms status -m uvm-rust -k "$1" | grep 'installed'; }
not_installed() { ! installed "$1"; }
is_signed() { inside modinfo -k "$1" -F signer nvidia-current-open-uvm | grep 'DKMS'; }
their_sum() { sha256sum <"$root$(their_file "$1")"; }
no_new_problem() { [ "$(inside dpkg --audit)" = "" ]; }

# snapshot FILE: every file with its sum, but for what every use of apt changes, and what
# belongs to the kernel that was installed meanwhile.
snapshot() {
	(cd "$root" && find boot etc lib/modules opt usr var -xdev \( -path var/cache -o -path var/log -o -path var/lib/apt -o \
		-path var/lib/dpkg -o -path var/tmp \) -prune -o -printf '%p %y %m %l\n' -type f -exec sha256sum {} +) |
		if [ "$first" = "$second" ]; then cat; else grep -vF -e "$second" -e "$second_common"; fi |
		grep -v -e ' boot/initrd' -e '^boot/initrd' -e ' etc/ld.so.cache' -e '^usr/src d' -e __pycache__ | sort >"$1"
}
# What the kernel that came meanwhile has of ours, which the snapshots leave out.
nothing_of_ours() {
	! find "$root"/lib/modules/ "$root"/var/lib/dkms/ -name '*uvm-rust*' | grep . &&
		! grep -l uvm-rust "$root"/lib/modules/*/modules.dep && [ ! -e "$root/var/lib/uvm-rust" ]
}
same_as_before() { snapshot "$out/after"; diff "$out/before" "$out/after"; }

# What a user is told who asks on a machine without a GPU: what is missing, what to do about it, and that the preload is
# there. NVIDIA's driver is installed and not loaded.
user_is_told() {
	local status=0
	inside runuser -u nobody -- uvmrun --check >"$out/uvmrun.log" 2>&1 || status=$?
	cat "$out/uvmrun.log"
	[ "$status" = 2 ] && grep -qE '^! driver: +none of NVIDIA' "$out/uvmrun.log" && grep -q -- '-> install NVIDIA' "$out/uvmrun.log" &&
		grep -qE '^  preload: +/usr/[^ ]*/libuvmrust_preload\.so$' "$out/uvmrun.log" && grep -q '^No program has unified memory' "$out/uvmrun.log"
}

# --- the steps ------------------------------------------------------------------------

step_install() {
	snapshot "$out/before"
	their_sum "$first" >"$out/theirs"
	mkdir -p "$root/root/debs"
	cp "$debs"/*.deb "$root/root/debs/"
	local packages=("$root"/root/debs/*.deb)
	check "apt installs the four packages beside nvidia-open-kernel-dkms" get "${packages[@]#"$root"}"
	[ "$failures" = 0 ] || die "without the packages there is nothing to look at"
	check "DKMS has built ours for $first" installed "$first"
	check "the override makes it win" ours_wins "$first"
	check "modprobe takes it" modprobe_takes "$first" updates/uvm-rust
	check "NVIDIA's module is beside it, and the same" [ "$(their_sum "$first")" = "$(cat "$out/theirs")" ]
	check "it is signed by DKMS' own key" is_signed "$first"
	check "dpkg has nothing to complain of" no_new_problem
	inside uvm-rust doctor "$first" >"$out/doctor.log" 2>&1 || :
	sed 's/^/# doctor: /' "$out/doctor.log"
	check "uvmrun --check, by a user, names what is missing without a GPU" user_is_told
	check "disable" inside uvm-rust disable
	check "NVIDIA's is in force" theirs_wins "$first"
	check "enable" inside uvm-rust enable
	check "ours is in force" ours_wins "$first"
}

# build_vgpu: the software GPU for the Debian's kernel, by the Debian's compilers.
build_vgpu() {
	mkdir -p "$root/mnt/uvm-rust"
	mount --bind "$TOP" "$root/mnt/uvm-rust"
	inside env UVM_RUST_CACHE=/var/tmp/uvm-rust UVM_SRC=/usr/src/nvidia-current-open-$driver KDIR="/lib/modules/$first/build" \
		JOBS="$JOBS" /mnt/uvm-rust/scripts/driver.sh vgpu >"$out/vgpu.dir"
	umount "$root/mnt/uvm-rust"
	cp "$root$(cat "$out/vgpu.dir")/vgpu.ko" "$root/root/vgpu.ko"
}

build_kselftests() {
	local t
	for t in uvm_basic uvm_fault uvm_stats; do
		make --silent -C "$TOP/tests/kselftest" "O=$root/root/kselftest" "$root/root/kselftest/$t" || return
	done
}

# in_vm SCRIPT LOG KOPTS QEMU...: boots the kernel on the folder, and runs SCRIPT there.
in_vm() {
	local script=$1 log=$2 kopts=() k
	for k in no_timer_check ignore_loglevel $3; do kopts+=(--kopt "$k"); done
	shift 3
	cp "$script" "$root/root/script"
	umount_devices
	say "booting Debian's Linux $first on it"
	# Why without cmpxchg16b: see scripts/vm.sh.
	timeout -k 5 1800 "$virtme" --kimg "$root/boot/vmlinuz-$first" --root "$root" --mods=auto --rw --force-9p --disable-kvm \
		--disable-microvm --memory 2G --cpus 2 "${kopts[@]}" --script-sh "bash /root/script" --qemu-opts "$@" -cpu max,-cx16 \
		-chardev "file,id=klog,path=$log.console" -serial chardev:klog </dev/null >"$log" 2>&1 || :
	mount_devices
	# virtme-ng mounts its own over it, for which it makes one where there is none.
	[ -s "$root/etc/sudoers" ] || rm -f "$root/etc/sudoers"
	judge_vm "$log"
}

# judge_vm LOG: what the guest's script said, as checks of ours.
judge_vm() {
	local line
	while read -r line; do
		case $line in
		'vm ok '*) check "in the VM: ${line#vm ok }" true ;;
		'vm not ok '*) check "in the VM: ${line#vm not ok }" false ;;
		'vm # '*) echo "${line#vm }" ;;
		esac
	done < <(tr -d '\r' <"$1")
	check "the VM came to its end" grep -q '^vm end' "$1"
}

# enrolled: firmware that knows DKMS' key, as that of a machine on which it was enrolled.
enrolled() {
	local guid=605dab50-e046-4300-abb6-3dd810dd8b23
	inside openssl x509 -inform der -in /var/lib/dkms/mok.pub -out /root/mok.pem
	inside virt-fw-vars --input /usr/share/OVMF/OVMF_VARS_4M.fd --output /root/vars.fd --add-db $guid /root/mok.pem
	cp "$root/usr/share/OVMF/OVMF_CODE_4M.fd" "$root/root/vars.fd" "$out/"
}

step_vm() {
	TOTAL=20 progress "vgpu.ko for $first" "$out/vgpu.log" build_vgpu
	build_kselftests >"$out/kselftest.log" 2>&1 || die "no selftests: see $out/kselftest.log"
	in_vm "$TOP/packaging/test/guest.sh" "$out/vm.log" '' -device edu
	enrolled >"$out/enrolled.log" 2>&1 || die "no firmware with DKMS' key: see $out/enrolled.log"
	in_vm "$TOP/packaging/test/guest-signed.sh" "$out/vm-signed.log" module.sig_enforce=1 \
		-drive "if=pflash,format=raw,unit=0,readonly=on,file=$out/OVMF_CODE_4M.fd" \
		-drive "if=pflash,format=raw,unit=1,file=$out/vars.fd"
}

build_fake_gpu() {
	rm -rf "$root/root/fake-gpu"
	cp -r "$TOP/tests/fake-gpu" "$root/root/fake-gpu"
	inside make -C "/lib/modules/$first/build" M=/root/fake-gpu modules
	cp "$root/root/fake-gpu/uvm_rust_fake_gpu.ko" "$root/root/"
	rm -rf "$root/root/fake-gpu"
}

# Beside NVIDIA's own nvidia.ko, which stays only where it finds a GPU: one that is not there.
step_nvidia() {
	TOTAL=10 progress "the GPU that is not there" "$out/fake-gpu.log" build_fake_gpu
	[ -e "$root/root/kselftest/uvm_basic" ] || build_kselftests >"$out/kselftest.log" 2>&1 || die "no selftests: see $out/kselftest.log"
	# shellcheck disable=SC2016
	in_vm "$TOP/packaging/test/guest-nvidia.sh" "$out/vm-nvidia.log" 'memmap=129M$0x60000000'
}

step_upgrade() {
	check "another kernel, $second, and its headers are installed" get "linux-image-$second" "linux-headers-$second"
	check "DKMS has built ours for it" installed "$second"
	check "the override makes it win there" ours_wins "$second"
	check "and on $first still" ours_wins "$first"
	check "NVIDIA's is there too" test -f "$root$(their_file "$second")"
}

# A compiler that starts, and fails on what it is given.
break_compiler() {
	mv "$root/usr/bin/rustc" "$root/usr/bin/rustc.whole"
	# shellcheck disable=SC2016
	printf '#!/bin/sh\ncase " $* " in *" --crate-name core "*) echo "error: this compiler is broken" >&2; exit 1 ;; esac\nexec /usr/bin/rustc.whole "$@"\n' \
		>"$root/usr/bin/rustc"
	chmod +x "$root/usr/bin/rustc"
}
enable_fails() { ! inside uvm-rust enable --later; }
mend_compiler() { mv "$root/usr/bin/rustc.whole" "$root/usr/bin/rustc"; }

step_broken() {
	break_compiler
	check "with a broken compiler, apt reinstalls our package without an error" \
		inside apt-get -y -q --reinstall install "/root/debs/uvm-rust-dkms_$("$TOP/scripts/package.sh" version)_amd64.deb"
	check "our module is not there" not_installed "$first"
	check "NVIDIA's is in force" theirs_wins "$first"
	check "and the same" [ "$(their_sum "$first")" = "$(cat "$out/theirs")" ]
	check "the reason is in one place" grep -q 'this compiler is broken' "$root/var/lib/uvm-rust/failed/$first"
	inside uvm-rust log "$first" 2>&1 | head -n 1 | sed 's/^/# reason: /'
	check "dpkg has nothing to complain of" no_new_problem
	check "a kernel's installation does not fail over it: DKMS leaves ours out" inside dkms autoinstall -k "$first"
	mend_compiler
	# What has failed is tried again by itself only with another compiler, and this one's version is the same.
	check "with the compiler mended, refresh builds it" inside uvm-rust refresh
	check "and it wins" ours_wins "$first"
	check "an upgrade takes it away" inside /var/lib/dpkg/info/uvm-rust-dkms.prerm upgrade 0.1.0
	check "with NVIDIA's in force" theirs_wins "$first"
	check "what dpkg does on an aborted upgrade builds it" inside /var/lib/dpkg/info/uvm-rust-dkms.postinst abort-upgrade 0.1.0
	check "and it wins again" ours_wins "$first"
	break_compiler
	inside uvm-rust rollback --later >/dev/null 2>&1
	check "enable fails if nothing can be built" enable_fails
	mend_compiler
	check "what was enabled with a broken compiler is built by refresh" inside uvm-rust refresh
	check "and wins" ours_wins "$first"
}

step_purge() {
	rm -f "$root"/root/{vgpu,uvm_rust_fake_gpu}.ko
	check "apt purges the packages" inside apt-get -y -q purge uvm-rust-dkms uvm-rust-tools libuvmrust libuvmrust-dev
	check "NVIDIA's is in force on $first" theirs_wins "$first"
	[ ! -e "$root$(their_file "$second")" ] || check "and on $second" theirs_wins "$second"
	check "nothing of ours is left on any kernel" nothing_of_ours
	check "every file is as before, byte for byte" same_as_before
	check "dpkg finds the files of its packages whole" inside dpkg --verify
}

make_base
debs=$TOP/out/deb
[ -n "${KEEP:-}" ] || "$TOP/scripts/package.sh" deb >/dev/null
fresh
mapfile -t versions < <(kernel_versions)
first=${versions[0]} second=${SECOND:-${versions[-1]}}
second_common=${second%-amd64}
for step in "${steps[@]}"; do
	if [ "$step" = upgrade ] && [ "$first" = "$second" ]; then
		echo "# upgrade: the archive has one kernel only, $first"
		continue
	fi
	say "$step"
	"step_$step"
done
echo "1..$n"
[ "$failures" = 0 ]
