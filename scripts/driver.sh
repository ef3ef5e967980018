#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Build kernel modules for the VM, or for KDIR=/path, and print the folder of
# each on standard output, one a line.
#
#   driver.sh [upstream] [rust] [vgpu]      default: all three
#   driver.sh clippy                        lint the Rust of both; fails on a warning, and if clippy did not look
#   driver.sh --clean                       forget what this checkout built
#
#   upstream   NVIDIA's nvidia-uvm.ko, unmodified: every measurement's baseline
#   rust       the same source with our seam and Rust linked in
#   vgpu       the software GPU that stands where nvidia.ko stands
#   panic      a module whose Rust panics when it is told to (tests/panic); only if named
#   mutants    as rust, with the mutants of tests/mutants in it, which uvm_rust_mutant=N picks; only if named
#
# Environment: RELEASE=1 (NVIDIA's release build; else develop, asserts live),
# KDIR=/path (the headers, or the tree, of another kernel), KERNEL=release|debug|stock
# (which of the project's kernels), UVM_SRC=/path (see upstream.sh),
# UVM_RUST_KERNEL=own|linux (which `kernel` crate; see src/uvm_rust/kernel/build/probe.sh),
# UVM_RUST_SPARSE=1 (sparse reads our C as it is compiled; see sparse.sh), UVM_RUST_LEAN=1
# (nothing for debuggers and BPF in the modules: less to compile and to link), UVM_RUST_ROOT=/path
# (where /sys is looked for: the tests' root).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"

# What is built from this checkout is kept apart from what another builds.
checkout=checkout-$(printf '%s' "$TOP" | sha256sum | cut -c1-8)
if [ "${1:-}" = --clean ]; then rm -rf "$CACHE"/driver-*/"$checkout"; exit; fi

variants=("$@")
# Without a wish: all that there is for this version.
all=$([ $# -gt 0 ] || echo 1)
[ $# -gt 0 ] || variants=(upstream rust vgpu)
type=develop
[ "${RELEASE:-0}" = 0 ] || type=release

# --- the kernel -----------------------------------------------------------
check_kdir() {
	local k=$1
	[ -d "$k" ] || die "KDIR=$k does not exist"
	[ -r "$k/Module.symvers" ] || die "KDIR=$k has no Module.symvers: build that kernel first, or point to its headers"
}

# config OPTION: is it on in the kernel that is built for?
config() { kernel_has "$kernel" "$1"; }

if [ -n "${KDIR:-}" ]; then
	kernel=$(realpath "$KDIR")
else
	kernel=$("$TOP/scripts/kernel.sh" "${KERNEL:-release}")
fi
check_kdir "$kernel"
crate=$("$TOP/src/uvm_rust/kernel/build/probe.sh" "$kernel" 2>"$CACHE/probe.log") || { cat "$CACHE/probe.log" >&2; exit 1; }
say "$(cat "$CACHE/probe.log")"
compiler=()
read -ra compiler <<<"$(kernel_compiler "$kernel")"
sources=$(kernel_sources "$kernel")

tree=$("$TOP/scripts/upstream.sh")
version=$(driver_version "$tree")
# beside: the version of the nvidia.ko that modules for this kernel may be loaded beside, here; of another they must not be.
# Where symbols have no versions the kernel takes them, and that nvidia.ko writes past what they have of a GPU.
beside=
if [ -n "${KDIR:-}" ] && [ "$(cat "$kernel/include/config/kernel.release" 2>/dev/null)" = "$(uname -r)" ]; then
	beside=$(nvidia_loaded)
fi
case " ${variants[*]} " in
*" upstream "* | *" rust "*)
	[ "${beside:-$version}" = "$version" ] ||
		die "KDIR=$KDIR is of the kernel that runs here, whose nvidia.ko is $beside, and these modules would be of NVIDIA's $version: UVM_SRC=/path to the source of $beside, or make modules"
	;;
esac
# __FILE__ without the folder: upstream looks for the last slash whenever it pushes work
# to a GPU, so a module from a deep folder would be slower than one from a shallow one.
flags=-fmacro-prefix-map

# What kbuild runs on each file beside the compiler, and what it leaves out.
more=() lean=
[ -z "${UVM_RUST_SPARSE:-}" ] || more=(C=1 CHECK="$TOP/scripts/sparse.sh")
if [ -n "${UVM_RUST_LEAN:-}" ]; then
	lean=-g0
	more+=(CONFIG_DEBUG_INFO_BTF_MODULES= KCFLAGS="$lean")
fi

case $crate in own) crate_key=' own' ;; *) crate_key= ;; esac
key=$(printf '%s %s %s' "$tree" "$kernel" "$flags$crate_key${lean:+ lean}" | sha256sum | cut -c1-8)
base=$CACHE/driver-$version-$type-$key
own=$base/$checkout
mkdir -p "$own"

# shellcheck source=driver-checks.sh
. "$TOP/scripts/driver-checks.sh"

mk() {
	make -C "$kernel" M="$1" "${compiler[@]}" ARCH=x86_64 -j"$JOBS" --no-print-directory \
		IGNORE_CC_MISMATCH=1 KBUILD_MODPOST_WARN=1 UVM_RUST_KERNEL="$crate" "${more[@]}" "${@:2}"
}

# interface: the functions of RM's that nvidia-uvm.ko calls, as vgpu.ko exports them. Where
# symbols have versions, a module that does not know them is not loaded.
interface=()
versions_of_vgpu() {
	config MODVERSIONS && vgpu_fits || return 0
	[ -n "${built_vgpu:-}" ] || built_vgpu=$(build_vgpu)
	interface=(KBUILD_EXTRA_SYMBOLS="$built_vgpu/Module.symvers")
}

# nvidia's Kbuild: see its Makefile for the variables it expects.
mk_nvidia() {
	local dropped
	dropped=$(dropped "$sources" "$tree" "$1/dropped" | paste -sd' ')
	mk "$1" NV_KERNEL_SOURCES="$sources" NV_KERNEL_OUTPUT="$kernel" NV_SPECTRE_V2=0 \
		NV_KERNEL_MODULES="$2" UVM_BUILD_TYPE=$type KCFLAGS="$flags=$1/=${lean:+ $lean}${dropped:+ $dropped}" "${interface[@]}" "${@:3}"
}

# strip_module FILE: of what debuggers want, as a package's modules are: it is many times
# what the kernel reads.
strip_module() {
	if config DEBUG_INFO && [ "$1" -nt "$1.stripped" ]; then
		strip --strip-debug "$1"
		touch "$1.stripped"
	fi
}

# stage DIR: a copy of what upstream builds nvidia-uvm.ko from. Common headers
# need conftests that only nvidia.ko registers: list those too, without
# building nvidia.ko.
stage() {
	local dir=$1
	mkdir -p "$dir/conftests"
	rsync -a --delete --exclude='*.o' --exclude='.*' --exclude='*.mod*' --exclude='*.ko*' --exclude=uvm-rust \
		"${@:2}" "$tree/nvidia-uvm" "$tree/common" "$dir/"
	rsync -a "$tree/conftest.sh" "$tree/Kbuild" "$dir/"
	rsync -a "$TOP/src/nvidia-uvm-c/fixes/dropped" "$dir/"
	# Not in 535.
	if [ -e "$tree/header-presence-tests.mk" ]; then rsync -a "$tree/header-presence-tests.mk" "$dir/"; fi
	grep '^NV_CONFTEST_[A-Z]*_COMPILE_TESTS' "$tree/nvidia/nvidia.Kbuild" >"$dir/conftests/conftests.Kbuild.new"
	if ! cmp -s "$dir/conftests/conftests.Kbuild.new" "$dir/conftests/conftests.Kbuild"; then
		mv "$dir/conftests/conftests.Kbuild.new" "$dir/conftests/conftests.Kbuild"
	fi
}

# The baseline is all checkouts'; what else there is is this one's.
build_upstream() (
	local dir=$base/upstream
	if [ -n "${interface[*]}" ]; then
		dir=$dir-$(grep nvUvmInterface "$built_vgpu/Module.symvers" | sha256sum | cut -c1-8)
	fi
	# A pinned package and a kernel of ours do not change under their names.
	if [ -z "${UVM_SRC:-}${KDIR:-}" ] && [ -e "$dir/.complete" ]; then echo "$dir"; exit; fi
	locked "driver-$(basename "$base")"
	rm -f "$dir/.complete"
	stage "$dir"
	TOTAL=1000 progress "nvidia-uvm.ko $version, unmodified, $type" "$dir.log" mk_nvidia "$dir" "conftests nvidia-uvm" modules
	check_symbols "$dir/nvidia-uvm.ko"
	strip_module "$dir/nvidia-uvm.ko"
	# Of this time, and of those before: it looks at an object once.
	grep 'objtool: ' "$dir.log" >>"$dir.objtool" || :
	tree_key >"$dir/.complete"
	echo "$dir"
)

# build_rust [FOLDER]: as it is, or with what another has changed in the folder.
build_rust() {
	local dir=$own/${1:-rust} donor before
	donor=$(find "$base" -maxdepth 1 -name 'upstream*' -type d | head -n 1)
	stage "$dir" --exclude-from=<("$TOP/scripts/seam.sh" --patched)
	# The conftests' answers are the same for both: take the baseline's, if it is built.
	if [ ! -d "$dir/conftest" ] && [ -n "$donor" ] && [ -e "$donor/nvidia-uvm.ko" ]; then cp -a "$donor/conftest" "$dir/"; fi
	"$TOP/scripts/seam.sh" "$tree" "$dir"
	[ "${1:-}" != mutants ] || "$TOP/scripts/mutants.sh" apply "$dir"
	TOTAL=400 progress "nvidia-uvm.ko $version with Rust, $type" "$dir.log" mk_nvidia "$dir" "conftests nvidia-uvm uvm-rust" modules
	before=$(baseline)
	check_objtool "$dir" "$before"
	check_symbols "$dir/nvidia-uvm.ko"
	# What the kernel's macros make of each event.
	local tracepoints='^__(tracepoint|traceiter|probestub|SC[KT]__tp_func)_(fault_batch|evict|discard|spill)$'
	if [ -n "$before" ]; then
		check_names "$dir/nvidia-uvm.ko" '^(uvm_rust_|uvm_seam_)|^(uvm|nv)[A-Za-z0-9_]*__c$|^_R[A-Za-z0-9_]*8uvm_rust|'"$tracepoints" "$before/nvidia-uvm.ko"
	fi
	check_object "$dir/uvm-rust/uvm_rust/uvm_rust.o" "$dir/uvm-rust/nvidia-uvm-c/base/uvm_rust_seam.o"
	strip_module "$dir/nvidia-uvm.ko"
	echo "$dir"
}

# vgpu_fits: has the software GPU RM's interface to UVM of this version? It goes by facts of the
# driver's headers (tests/vgpu/facts.sh); these it has been built for.
vgpu_fits() { case ${version%%.*} in 550 | 555 | 565 | 570 | 575 | 5[89]?) ;; *) false ;; esac; }
no_vgpu="the software GPU has the interface of NVIDIA's 550 to 595, and nvidia-uvm.ko $version asks for another: no vgpu.ko for it"

# seam_fits: can our Rust be built into this version?
seam_fits() { no_seam=$("$TOP/scripts/seam.sh" --knows "$tree" 2>&1) || { no_seam=${no_seam#error: }; false; }; }

# stage_crate DIR: our `kernel` crate, beside a module's sources.
stage_crate() {
	rsync -a --delete --exclude='*.[os]' --exclude='.*' "$TOP/src/uvm_rust/kernel/" "$1/uvm_rust_kernel/"
}

build_vgpu() {
	local dir=$own/vgpu
	if [ -n "${built_vgpu:-}" ]; then echo "$built_vgpu"; return; fi
	mkdir -p "$dir/include/uapi"
	rsync -a --delete --exclude='*.o' --exclude='.*' --exclude='*.mod*' --exclude='*.ko*' --exclude='*.symvers' \
		--exclude='modules.order' --exclude=target --exclude=client --exclude=include --exclude=/own \
		--exclude=/uvm_rust_kernel "$TOP/tests/vgpu/" "$dir/"
	stage_crate "$dir"
	rsync -a "$TOP/include/uapi/" "$dir/include/uapi/"
	TOTAL=20 progress "vgpu.ko" "$dir.log" mk "$dir" UPSTREAM="$tree" modules
	check_objtool "$dir"
	check_symbols "$dir/vgpu.ko"
	check_names "$dir/vgpu.ko" '^(vgpu_|nvUvmInterface|uvm_rust_k_)|^_R[A-Za-z0-9_]*7vgpu_rs'
	check_object "$dir/kernel/vgpu_rs.o" "$dir/kernel/main.o"
	strip_module "$dir/vgpu.ko"
	echo "$dir"
}

build_panic() {
	local dir=$own/panic
	mkdir -p "$dir"
	cp -pt "$dir" "$TOP"/tests/panic/{Kbuild,main.c,panic.rs}
	stage_crate "$dir"
	TOTAL=20 progress "uvm_rust_panic.ko" "$dir.log" mk "$dir" modules
	check_objtool "$dir"
	check_symbols "$dir/uvm_rust_panic.ko"
	check_object "$dir/panic.o" "$dir/main.o"
	echo "$dir"
}

# lint DIR OBJECT MAKE...: have clippy look at the crate of one Rust object, of a module that is
# built. It must have looked, and no warning may come.
lint() {
	local dir=$1 object=$2 log=$1.clippy.log what
	what=$(basename "$object" .o)
	shift 2
	# The kernel's own rules look as they compile, and not at what is compiled already.
	rm -f "$dir/$object"
	progress "clippy on $what" "$log" "$@" CLIPPY=1 "$object"
	if grep -q '^warning' "$log"; then
		grep -A 12 '^warning' "$log" >&2
		die "clippy has something to say about $what; the whole log is $log"
	fi
	grep -q "^ *CLIPPY .*\<$what\>" "$log" || die "clippy has not looked at $what; the whole log is $log"
}

build_clippy() {
	local as
	if vgpu_fits; then
		build_vgpu >/dev/null
		lint "$own/vgpu" kernel/vgpu_rs.o mk "$own/vgpu" UPSTREAM="$tree"
	fi
	seam_fits || return 0
	build_rust >/dev/null
	lint "$own/rust" uvm-rust/uvm_rust/uvm_rust.o mk_nvidia "$own/rust" "conftests nvidia-uvm uvm-rust"
	# And at what it is in a driver that discards by itself, all of it and what counts alone; no such source is needed.
	for as in "" UVM_RUST_NATIVE=1; do
		lint "$own/rust" uvm-rust/uvm_rust/uvm_rust.o mk_nvidia "$own/rust" "conftests nvidia-uvm uvm-rust" uvm_rust_discards=1 $as
	done
	rm -f "$own/rust/uvm-rust/uvm_rust/uvm_rust.o"
}

locked "driver-$(basename "$base")-$checkout"
# What cannot be built is said before anything is.
if [[ " ${variants[*]} " == *" rust "* ]] && [ -z "$all" ] && ! seam_fits; then die "$no_seam"; fi
# The module that panics needs nothing of RM.
[ "${variants[*]}" = panic ] || versions_of_vgpu
for v in "${variants[@]}"; do
	case $v in
	upstream) build_upstream ;;
	rust)
		if seam_fits; then build_rust; else say "$no_seam"; fi
		;;
	clippy) build_clippy ;;
	panic) build_panic ;;
	mutants) build_rust mutants ;;
	vgpu)
		if vgpu_fits; then build_vgpu
		elif [ -n "$all" ]; then say "$no_vgpu"
		else die "$no_vgpu"
		fi
		;;
	*) die "driver.sh: no variant '$v'; there are upstream, rust, vgpu, panic and mutants" ;;
	esac
done
