#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Boot the project's kernel in QEMU with vgpu.ko and nvidia-uvm.ko loaded, on the
# host's own file system, and run a command there, or give a shell.
#
#   vm.sh                 a shell
#   vm.sh 'COMMAND'       runs COMMAND; its output and exit status are ours
#
# virtme-ng does the work; this adds our modules, a time limit, the kernel's log,
# and a check that KVM really runs a kernel before it is trusted.
#
# Environment: DRIVER=rust|upstream, VIDMEM=256M, GPUS=1 to 8, GPU=turing|volta|ampere|hopper|blackwell,
# RELEASE=0|1, KERNEL=release|debug|stock, KDIR=/path (a kernel's headers, where `vmlinuz`
# leads to its image, beside which its modules lie), VGPU_ORDER=kind|adversarial,
# VGPU_SEED (of the adversarial order; drawn, and in the kernel's log, without), VM_TIMEOUT (seconds, 600), VM_MEM (3G),
# VM_CPUS (2), VM_CPU (QEMU's -cpu, under TCG), VM_ACCEL=auto|kvm|tcg, ICOUNT=1 (count guest
# instructions, one CPU), UVM_PARAMS / VGPU_PARAMS (more module parameters), NOLOAD=1 (load
# nothing), VM_UNLOAD=1 (unload at the end, and fail if the modules report that something is
# left), VM_LOG=FILE (keep the kernel's log), VM_KOPTS (more for the kernel's command line),
# QEMU_OPTS, UVM_BUILT=FILE (where the modules of a kernel are, as list_built writes it),
# UVM_TIMES=FILE (a line is added that says how many seconds went where).
# Exit status: the command's; 124 after VM_TIMEOUT; 255 if the guest died.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

began=$EPOCHREALTIME
command=${1-}
driver=${DRIVER:-rust}
gpu=${GPU:-turing} gpus=${GPUS:-1} limit=${VM_TIMEOUT:-600}
case $driver in rust|upstream) ;; *) die "DRIVER=$driver: use rust or upstream" ;; esac
case $gpu in turing|volta|ampere|hopper|blackwell) ;; *) die "GPU=$gpu: use turing, volta, ampere, hopper or blackwell" ;; esac
case $gpus in [1-8]) ;; *) die "GPUS=$gpus: use 1 to 8" ;; esac
order=${VGPU_ORDER:-kind}
case $order in kind|adversarial) ;; *) die "VGPU_ORDER=$order: use kind or adversarial" ;; esac
case ${VGPU_SEED:-} in 0|*[!0-9]*) die "VGPU_SEED=$VGPU_SEED: use a number above 0" ;; esac

# megabytes SIZE: of 256M, 1G or a plain number of MiB.
megabytes() {
	case $1 in
	*[!0-9MG]*|''|[MG]*) die "VIDMEM=$1: use a size such as 256M or 1G" ;;
	*G) echo $((${1%G} * 1024)) ;;
	*) echo "${1%M}" ;;
	esac
}
vidmem=$(megabytes "${VIDMEM:-256M}")

virtme=$CACHE/tools/virtme/bin/virtme-run
[ -x "$virtme" ] || die "virtme-ng is not installed: run 'make deps'"
have qemu-system-x86_64 || die "qemu-system-x86_64 is missing: run 'make deps'"

kernel=${KDIR:-$("$TOP/scripts/kernel.sh" "${KERNEL:-release}")}
# A command that loads nothing yet, and a shell, may want both.
variants=("$driver")
if [ -z "$command" ] || [ -n "${NOLOAD:-}" ]; then variants=(upstream rust); fi
declare -A built
if just_built; then
	for v in "${variants[@]}" vgpu; do built[$v]=$(sed -n "s|^$v ||p" "$UVM_BUILT"); done
else
	{ for v in "${variants[@]}" vgpu; do read -r "built[$v]"; done; } < <("$TOP/scripts/driver.sh" "${variants[@]}" vgpu)
fi
upstream=${built[upstream]:+${built[upstream]}/nvidia-uvm.ko}
rust=${built[rust]:+${built[rust]}/nvidia-uvm.ko}
vgpu=${built[vgpu]:?the drivers were not built}/vgpu.ko

# --- how to run it -------------------------------------------------------------
run_dir=$(mktemp -d "${TMPDIR:-/tmp}/uvm-rust-vm.XXXXXX")
trap 'rm -rf "$run_dir"' EXIT
log=$run_dir/console
: >"$log"

# Of udev's rules the guest needs two: under TCG the host's take longer than the rest
# of the boot, and on a busy host too long for udev.
mkdir "$run_dir/udev"
# shellcheck disable=SC2016
echo 'SUBSYSTEM=="virtio-ports", KERNEL=="vport*", ATTR{name}=="?*", SYMLINK+="virtio-ports/$attr{name}"' \
	>"$run_dir/udev/50-ports.rules"
cp -t "$run_dir/udev" /usr/lib/udev/rules.d/*-dm{,-notify}.rules 2>/dev/null || :

# A packaged kernel has its drivers in modules, which lie beside its image.
if [ -e "$kernel/vmlinuz" ]; then
	image=(--kimg "$(readlink -f "$kernel/vmlinuz")" --mods=auto)
	have busybox || die "busybox-static is missing, which loads a packaged kernel's first modules: run 'make deps'"
else
	image=(--kimg "$kernel/arch/x86/boot/bzImage" --mods=none)
fi
args=(--rodir "/usr/lib/udev/rules.d=$run_dir/udev" "${image[@]}" --disable-microvm --force-9p --rw)

# KVM that exists may still not run an ordinary kernel: boot one to see, once
# per kernel and boot of this machine.
kvm_works() {
	local mark
	mark=$CACHE/kvm-$(basename "$kernel")-$(tr -d - </proc/sys/kernel/random/boot_id)
	if [ ! -e "$mark" ]; then
		if [ -w /dev/kvm ] && timeout -k 5 30 "$virtme" "${args[@]}" --memory 512M --cpus 1 \
			--script-sh true </dev/null >/dev/null 2>&1; then
			echo yes >"$mark"
		else
			echo no >"$mark"
		fi
	fi
	[ "$(cat "$mark")" = yes ]
}

cpus=${VM_CPUS:-2}
# What an emulated CPU is better without: a fifth level of page tables, which QEMU walks for
# each entry of its TLB, and a `rep movsb` that is said to be fast, which QEMU does byte by
# byte. They are a quarter of the time of storms of faults.
cpu=${VM_CPU:-max,-la57,-erms,-fsrm}
# The kernel's log goes to a serial port of its own, from the first line to the last
# words of a panic: a boot console that is kept (virtme has the proper one).
qemu_args=(-chardev "file,id=klog,path=$log" -serial chardev:klog)
# Or each of virtme's six ports brings 64 more files for QEMU to poll, whenever a timer
# ends: a sixth of the time of the random program.
qemu_args+=(-global virtio-serial-pci.ioeventfd=off)
for ((i = 0; i < gpus; i++)); do qemu_args+=(-device edu); done
# QEMU's monitor, for the question what a guest does that does not finish (see run).
mkfifo "$run_dir/monitor.in" "$run_dir/monitor.out"
qemu_args+=(-chardev "pipe,id=ask,path=$run_dir/monitor" -mon "chardev=ask,mode=readline")
emulated=1
if [ -n "${ICOUNT:-}" ]; then
	# Counting needs a single thread and no KVM.
	args+=(--disable-kvm)
	cpus=1 cpu=
	qemu_args+=(-icount "shift=0,sleep=off")
else
	case ${VM_ACCEL:-auto} in
	kvm) cpu='' emulated='' ;;
	tcg) args+=(--disable-kvm) ;;
	auto) if kvm_works; then cpu='' emulated=''; else args+=(--disable-kvm); fi ;;
	*) die "VM_ACCEL=$VM_ACCEL: use auto, kvm or tcg" ;;
	esac
fi
kopts=()
# How many turns of a loop, or ticks of the TSC, make 4 ms: an emulated machine that is short
# of the host's time while it finds out takes a fraction, and udelay() then waits for as little.
[ -z "$cpu" ] || kopts+=(lpj=10000000)
# Such a machine is also late with the timer by which the kernel watches the TSC. It then takes the HPET for its
# clock, which QEMU reads under its big lock, and all that looks at the time is slower by far.
[ -z "$cpu" ] || kopts+=(tsc=reliable)
# No cmpxchg16b, by which the kernel's slab allocator takes each object: QEMU 7.2 computes its flags from those
# of an instruction long past, so that EFLAGS holds bits of an address, and an interrupt just then ends the guest.
# The last one counts; virtme has said "max".
[ -z "$emulated" ] || qemu_args+=(-cpu "${cpu:-max},-cx16")
read -ra more <<<"${QEMU_OPTS:-}"
qemu_args+=("${more[@]}")

# NVIDIA's driver from 570 on writes beyond an array on its stack when it makes the debug files of two GPUs that reach each
# other (docs/upstream-bugs.md).
procfs=
[ "$gpus" = 1 ] || procfs=uvm_enable_debug_procfs=0

# What the guest needs to know, quoted for its shell.
{
	printf 'UVM_KO_UPSTREAM=%q\nUVM_KO_RUST=%q\nVGPU_KO=%q\n' "$upstream" "$rust" "$vgpu"
	printf 'VGPU_ARGS=%q\n' "vidmem_mb=$vidmem gpus=$gpus personality=$gpu order=$order ${VGPU_SEED:+seed=$VGPU_SEED} ${VGPU_PARAMS:-}"
	printf 'UVM_ARGS=%q\n' "uvm_enable_builtin_tests=1 $procfs ${UVM_PARAMS:-}"
	printf 'VM_UNLOAD=%q\n' "${VM_UNLOAD:-}"
	printf 'NOLOAD=%q\nDRIVER=%q\nTOP=%q\nGPU=%q\nGPUS=%q\n' "${NOLOAD:-}" "$driver" "$TOP" "$gpu" "$gpus"
	printf 'EMULATED=%q\n' "$emulated"
	printf 'VIDMEM_MB=%q\nKERNEL=%q\nPATH=%q\nHOME=%q\n' "$vidmem" "${KERNEL:-release}" "$PATH" "$HOME"
	echo 'export UVM_KO_UPSTREAM UVM_KO_RUST VGPU_KO VGPU_ARGS UVM_ARGS DRIVER TOP GPU GPUS VIDMEM_MB KERNEL PATH HOME'
} >"$run_dir/env"

args+=(--memory "${VM_MEM:-3G}" --cpus "$cpus")
# no_timer_check: on a busy host an emulated timer may miss its test, which is fatal.
# An NMI ends the kernel with the stack of every task (1) in its log: see run.
kopts+=("earlycon=uart8250,io,0x2f8" keep_bootcon ignore_loglevel printk.devkmsg=on no_timer_check
	pty.legacy_count=0 unknown_nmi_panic panic_print=1)
read -ra more <<<"${VM_KOPTS:-}"
for k in "${kopts[@]}" "${more[@]}"; do args+=(--kopt "$k"); done
cd "$TOP"

if [ -z "$command" ]; then
	[ -t 0 ] || die "no terminal for a shell; give a command: make vm CMD='…'"
	say "the VM's shell (the kernel's log: dmesg; leave with exit)"
	printf '#!/bin/sh\nexec bash %q %q\n' "$TOP/scripts/vm-guest.sh" "$run_dir/env" >"$run_dir/shell"
	chmod +x "$run_dir/shell"
	"$virtme" "${args[@]}" --shell "$run_dir/shell" --qemu-opts "${qemu_args[@]}"
	exit
fi

printf '%s\n' "$command" >"$run_dir/command"
guest="bash $(printf '%q %q %q' "$TOP/scripts/vm-guest.sh" "$run_dir/env" "$run_dir/command")"
# Through pipes, as QEMU would cut a file that is our output down to nothing. When the time
# is over, an NMI has the guest say what each of its tasks waits for.
run() {
	local asker status=0
	(
		sleep "$limit" &
		trap 'kill $!' TERM
		wait $! && touch "$run_dir/asked" && echo nmi
	) 1<>"$run_dir/monitor.in" 2>/dev/null 3>&- &
	asker=$!
	timeout -k 5 $((limit + 30)) "$virtme" "${args[@]}" --script-sh "$guest" \
		--qemu-opts "${qemu_args[@]}" </dev/null 2>&3 3>&- | cat || status=$?
	kill "$asker" 2>/dev/null || :
	return "$status"
}

# The log as it was before the kernel said what its tasks do, if it did.
before_tasks() { sed -e '/NMI received for unknown/,$d' -e '/Kernel Offset:/,$d' "$log"; }

# The tasks of that list that are a program's, and the kernel's threads that do not just wait
# for work; without their registers.
tasks() {
	awk '/ task:/ { shown = !/ ppid:[02] / || / state:[DR] / }
		/Sched Debug|Showing busy/ { exit }
		shown && !/ [RCE][A-Z0-9]+: |Call Trace:|TASK>|Code:/' "$log"
}
booted=$EPOCHREALTIME
for try in 1 2 3; do
	rc=0
	rm -f "$run_dir"/{up,ready,over}
	{ run; } 3> >(cat >&2) || rc=$?
	if grep -qs 'cannot find script I/O ports' "$log"; then rc=251; fi
	if [ "$rc" != 251 ] || [ "$try" = 3 ]; then break; fi
	say "booting again"
done
if [ -n "${VM_LOG:-}" ]; then cp "$log" "$VM_LOG"; fi
if [ -e "$run_dir/asked" ]; then rc=124; fi

# say_times: where the seconds went: kernel and modules were looked for or built; the guest booted, until it ran
# vm-guest.sh; modules were loaded; the command ran; and the guest ended. The guest touches a file as it comes to
# each. All that is left is counted for the last one that it came to.
say_times() {
	local file at stamps=("$began" "$booted")
	for file in up ready over; do
		at=$(stat -c %.6Y "$run_dir/$file" 2>/dev/null) || break
		stamps+=("$at")
	done
	printf '%s\n' "${stamps[@]}" "$EPOCHREALTIME" | LC_ALL=C awk 'BEGIN { split("build boot load tests down", name) }
		{ sub(/,/, "."); if (NR > 1) printf "%s %.1f ", name[NR - 1], $1 - last; last = $1 }
		END { print "" }'
}
if [ -n "${UVM_TIMES:-}" ]; then say_times >>"$UVM_TIMES"; fi
case $rc in
124 | 137)
	before_tasks | tail -n 20 >&2
	tasks >&2
	echo "error: the VM did not finish in $limit s (VM_TIMEOUT); above, the end of its kernel's log, and what its tasks did" >&2
	rc=124
	;;
255)
	before_tasks | tail -n 60 >&2
	echo "error: the guest died; its kernel's log ends as above" >&2
	;;
esac
exit "$rc"
