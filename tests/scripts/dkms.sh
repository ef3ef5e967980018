#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# packaging/dkms: the hooks as they are kept in the package, and what build.sh does with a
# machine that it can or cannot build on. The kernel, NVIDIA's driver and the compilers are
# made up, in a root that is a folder.
#   dkms.sh [SEED]    the seed of the random files
# shellcheck disable=SC2016,SC2317
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seed=${1:-$RANDOM}
RANDOM=$seed
echo "# seed $seed"

# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# --- hooks.awk undoes what diff -n did ---------------------------------------------

# random_pair: two files that differ in some lines, the first and the last among them.
random_pair() {
	local i lines=$((RANDOM % 40))
	: >"$work/a"
	: >"$work/b"
	for ((i = 0; i < lines; i++)); do
		case $((RANDOM % 5)) in
		0) echo "only a $((RANDOM % 3))" >>"$work/a" ;;
		1) printf "only b \\\\n %%%%s %d\\n" $((RANDOM % 3)) >>"$work/b" ;;
		*) echo "line $((RANDOM % 4))" | tee -a "$work/a" >>"$work/b" ;;
		esac
	done
	[ -s "$work/a" ] || echo one >>"$work/a"
}
same=0
for ((i = 0; i < 200; i++)); do
	random_pair
	diff -n "$work/a" "$work/b" >"$work/hooks"
	if [ -s "$work/hooks" ]; then awk -f "$top/packaging/dkms/hooks.awk" "$work/hooks" "$work/a" >"$work/c"; else cp "$work/b" "$work/c"; fi
	if cmp -s "$work/b" "$work/c"; then same=$((same + 1)); else diff "$work/b" "$work/c" >"$work/said"; break; fi
done
[ $same = 200 ]
check "hooks kept as lines give back the file, for 200 random ones"

# --- build.sh ------------------------------------------------------------------------

export UVM_RUST_ROOT=$work/root
k=6.12.94-test root=$work/root pkg=$work/root/usr/src/uvm-rust-0.1.0
failed_file=$root/var/lib/uvm-rust/failed/$k
mkdir -p "$work/bin"
sum() { sha256sum <"$1" | cut -d' ' -f1; }

# machine: on which all is there, and make makes a module.
machine() {
	local nv=$root/usr/src/nvidia-current-open-550.163.01 d
	rm -rf "$root"
	mkdir -p "$nv/nvidia-uvm" "$nv/common" "$nv/nvidia" "$root/lib/modules/$k/build/include/config" "$work/sysroot/lib/rustlib/src/rust/library/core/src"
	echo 'ccflags-y += -DNV_VERSION_STRING=\"550.163.01\"' >"$nv/Kbuild"
	echo 'NV_CONFTEST_TYPE_COMPILE_TESTS += a_type' >"$nv/nvidia/nvidia.Kbuild"
	touch "$nv/conftest.sh" "$nv/nvidia-uvm/uvm.c"
	printf 'one\ntwo\nthree\n' >"$nv/nvidia-uvm/uvm_hooked.c"
	cat >"$nv/dkms.conf" <<-'END'
		PACKAGE_NAME="nvidia-current-open"
		BUILD_EXCLUSIVE_KERNEL="^(3\.[1-9][0-9]|[4-9]\.)"
		BUILD_EXCLUSIVE_CONFIG="!CONFIG_PREEMPT_RT !CONFIG_PREEMPT_RT_FULL"
		AUTOINSTALL=yes
		MAKE[0]="make ${parallel_jobs+-j$parallel_jobs} modules"
		DEST_MODULE_NAME[0]="$PACKAGE_NAME"
	END
	d=$root/var/lib/dkms/nvidia-current-open/550.163.01
	mkdir -p "$d/$k/x86_64/module"
	ln -s "$nv" "$d/source"
	printf '0x1\tnvUvmInterfaceRegisterGpu\tnvidia\tEXPORT_SYMBOL\t\n' >"$d/$k/x86_64/module/Module.symvers"
	echo $k >"$root/lib/modules/$k/build/include/config/kernel.release"
	printf 'CONFIG_X86_64=y\n' >"$root/lib/modules/$k/build/include/config/auto.conf"
	printf '0x3\t_printk\tvmlinux\tEXPORT_SYMBOL\t\n' >"$root/lib/modules/$k/build/Module.symvers"
	touch "$root/lib/modules/$k/build/Makefile" "$work/sysroot/lib/rustlib/src/rust/library/core/src/lib.rs"

	mkdir -p "$pkg/uvm-rust/kernel" "$pkg/uvm-rust/nvidia-uvm-c" "$pkg/hooks/550.163.01"
	cp -r "$top/src/uvm_rust/kernel/build" "$pkg/uvm-rust/kernel/"
	cp "$top/packaging/dkms/build.sh" "$top/packaging/dkms/hooks.awk" "$pkg/"
	sed "s|@VERSION@|0.1.0|; s|/usr/src|$root&|" "$top/packaging/dkms/dkms.conf.in" >"$pkg/dkms.conf"
	printf 'one\nours\nthree\n' >"$work/after"
	diff -n "$nv/nvidia-uvm/uvm_hooked.c" "$work/after" >"$pkg/hooks/550.163.01/uvm_hooked.c.hooks"
	echo "$(sum "$nv/nvidia-uvm/uvm_hooked.c") $(sum "$work/after") nvidia-uvm/uvm_hooked.c" >"$pkg/hooks/550.163.01/SHA256"
	touch "$pkg/hooks/550.163.01/uvm_rust_version.h" "$pkg/hooks/550.163.01/upstream.Kbuild"

	rustc_is 1.85.1
	printf '#!/bin/bash\necho "make $*"\ntouch nvidia-uvm.ko\n' >"$work/bin/make"
	chmod +x "$work/bin/make"
}
rustc_is() {
	printf '#!/bin/bash\ncase "$*" in *sysroot*) echo %s/sysroot ;; *--version*) echo "rustc %s (test)" ;; *) echo "{ }" ;; esac\n' "$work" "$1" >"$work/bin/rustc"
	chmod +x "$work/bin/rustc"
}
export PATH=$work/bin:$PATH

# build: as DKMS does it, in a copy of the package's folder.
build() {
	rm -rf "$work/build" && cp -a "$pkg" "$work/build"
	(cd "$work/build" && ./build.sh $k) >"$work/said" 2>&1
}
# fails WHY: the build ends as one that DKMS leaves out, and why is in its one place.
fails() {
	local rc=0
	build || rc=$?
	[ $rc = 77 ] && head -n 1 "$failed_file" | grep -q -e "$1" && grep -q 'stays in force' "$work/said"
}
could() { "$pkg/build.sh" --check $k >"$work/said" 2>&1; }

machine
build && [ -e "$work/build/nvidia-uvm.ko" ] && [ ! -e "$failed_file" ]
check "where all is there it builds"
built_against() { sha256sum --check --status "$root/var/lib/uvm-rust/built/$k" 2>/dev/null; }
built_against && ls "$root/var/lib/uvm-rust/built" >"$work/said" && [ "$(paste -sd' ' "$work/said")" = "$k $k.headers" ]
check "and keeps the sums of what of NVIDIA's it was built against"
built_with() { sha256sum --check --status "$root/var/lib/uvm-rust/built/$k.headers" 2>/dev/null; }
for f in Module.symvers include/config/auto.conf; do
	machine
	build && built_with && echo "of another build" >>"$root/lib/modules/$k/build/$f" && ! built_with
	check "and that of the kernel's $f, of which another build of the kernel has another"
done
machine
build
echo "0x2	nvUvmInterfaceOther	nvidia	EXPORT_SYMBOL	" >>"$root/var/lib/dkms/nvidia-current-open/550.163.01/$k/x86_64/module/Module.symvers"
! built_against
check "which other symbols of a driver of the same version are not"
machine
build && echo "a patch" >>"$root/usr/src/nvidia-current-open-550.163.01/nvidia-uvm/uvm.c"
! built_against
check "nor are other sources of it"
machine
build
cmp "$work/build/nvidia-uvm/uvm_hooked.c" "$work/after" >"$work/said"
check "NVIDIA's source has our hooks"
grep -q "^one$" "$root/usr/src/nvidia-current-open-550.163.01/nvidia-uvm/uvm_hooked.c" &&
	! grep -q ours "$root/usr/src/nvidia-current-open-550.163.01/nvidia-uvm/uvm_hooked.c"
check "in a copy: what is installed is as it was"
build
grep -q "KBUILD_EXTRA_SYMBOLS=$root/var/lib/dkms/nvidia-current-open/550.163.01/$k/x86_64/module/Module.symvers" "$work/said"
check "it is linked against the symbols of NVIDIA's module for that kernel"
# conf: our dkms.conf, as DKMS reads it.
conf() { bash -c 'kernelver=$1; . "$2"; for v in BUILD_DEPENDS AUTOINSTALL ${!BUILD_EXCLUSIVE*}; do echo "$v=${!v}"; done' - $k "$pkg/dkms.conf" >"$work/said" 2>&1; }
conf_has() { grep -qxF -e "$1" "$work/said"; }
conf && conf_has BUILD_DEPENDS=nvidia-current-open && conf_has AUTOINSTALL=yes && conf_has 'BUILD_EXCLUSIVE_ARCH=^x86_64$'
check "DKMS is told to build NVIDIA's first"
conf_has 'BUILD_EXCLUSIVE_CONFIG=!CONFIG_PREEMPT_RT !CONFIG_PREEMPT_RT_FULL' && conf_has 'BUILD_EXCLUSIVE_KERNEL=^(3\.[1-9][0-9]|[4-9]\.)'
check "and to leave ours out where NVIDIA's is: otherwise such a kernel's installation would fail"
mkdir -p "$root/etc/dkms"
echo 'BUILD_EXCLUSIVE_KERNEL="^$kernelver$"; AUTOINSTALL=; OBSOLETE_BY=7.0' >"$root/etc/dkms/nvidia-current-open.conf"
conf && conf_has "BUILD_EXCLUSIVE_KERNEL=^$k\$" && conf_has AUTOINSTALL= && conf_has BUILD_EXCLUSIVE_KERNEL_MAX=7.0
check "as the administrator says too"
rm -r "$root/etc/dkms"
mkdir -p "$root/var/lib/uvm-rust" && touch "$root/var/lib/uvm-rust/disabled"
conf && conf_has AUTOINSTALL= && conf_has BUILD_DEPENDS=nvidia-current-open
check "where ours is disabled DKMS builds none for the next kernel"
rm "$root/var/lib/uvm-rust/disabled"
could && grep -q "nvidia-uvm.ko of NVIDIA's 550.163.01 with Rust, by rustc 1.85.1, for Linux $k" "$work/said"
check "--check says what would be built"

machine
echo four >>"$root/usr/src/nvidia-current-open-550.163.01/nvidia-uvm/uvm_hooked.c"
fails 'uvm_hooked.c of the installed driver is not that of'
check "a source with another patch is refused"

machine
sed -i 's/^ours/theirs/' "$pkg/hooks/550.163.01/uvm_hooked.c.hooks"
fails 'the hooks of nvidia-uvm/uvm_hooked.c did not come out as they should'
check "and so are hooks that give another file than when the package was made"

machine
sed -i 's/550.163.01/560.28.03/' "$root/usr/src/nvidia-current-open-550.163.01/Kbuild"
fails "is NVIDIA's 560.28.03, and this package has hooks for 550.163.01.*make deb UVM_SRC=$root/var/lib/dkms/nvidia-current-open/"
check "and so is another version"

machine
rm "$root/var/lib/dkms/nvidia-current-open/550.163.01/$k/x86_64/module/Module.symvers"
fails "NVIDIA's driver 550.163.01 is not built for $k"
check "NVIDIA's module was not built for that kernel"

machine
rm -r "$root/var/lib/dkms/nvidia-current-open"
fails 'apt install nvidia-open-kernel-dkms'
check "no driver: what to install"
! grep -q nvidia-kernel-open-dkms "$top/packaging/debian/control"
check "and the package does not take NVIDIA's own package for one that it finds"
conf && conf_has BUILD_DEPENDS= && conf_has AUTOINSTALL=yes && conf_has 'BUILD_EXCLUSIVE_ARCH=^x86_64$' && ! grep -q error "$work/said"
check "and dkms.conf is whole without one"

machine
rm -r "$root/lib/modules/$k/build"
fails "apt install linux-headers-$k"
check "no headers: what to install"

machine
rustc_is 1.63.0
fails 'is 1.63.0, and 1.85 or newer is needed'
check "an old compiler is refused"

machine
rm -r "$work/sysroot"
fails 'has no library source'
check "and one without its library's source"

machine
mkdir -p "$root/usr/bin" && mv "$work/bin/rustc" "$root/usr/bin/" && rustc_is 1.63.0
build && could && grep -q 'by rustc 1.85.1' "$work/said"
check "the distribution's compiler is taken before a user's own"

machine
echo CONFIG_CFI_CLANG=y >>"$root/lib/modules/$k/build/include/config/auto.conf"
fails 'kCFI'
check "a kernel that cannot work is refused with the probe's line"

machine
build
printf '#!/bin/bash\necho "  RUSTLIB"\necho "error[E0308]: mismatched types"\necho "make: *** [x] Error 1"\nexit 2\n' >"$work/bin/make"
fails 'error\[E0308\]: mismatched types' && grep -q 'make: \*\*\*' "$failed_file"
check "of a build that fails, the first error is the reason, and the rest is kept"
"$pkg/build.sh" --tried $k
check "it counts as tried"
conf && conf_has AUTOINSTALL= && conf_has BUILD_DEPENDS=nvidia-current-open
check "and DKMS does not build it by itself, as it would at each boot"
mv "$root/var/lib/dkms/nvidia-current-open/550.163.01/$k" "$work/kept"
conf && conf_has AUTOINSTALL=yes
check "but once NVIDIA's is built anew"
mv "$work/kept" "$root/var/lib/dkms/nvidia-current-open/550.163.01/$k"
rustc_is 1.90.0
! "$pkg/build.sh" --tried $k && conf && conf_has AUTOINSTALL=yes
check "but not with another compiler"
rustc_is 1.85.1
"$pkg/build.sh" --tried $k && echo "the sum of another" >"$pkg/package.sum" && ! "$pkg/build.sh" --tried $k
check "nor with another package of the same version"
rm "$pkg/package.sum"
"$pkg/build.sh" --tried $k && echo "a patch" >>"$root/usr/src/nvidia-current-open-550.163.01/nvidia-uvm/uvm.c" && ! "$pkg/build.sh" --tried $k
check "nor with another source of NVIDIA's"
build
"$pkg/build.sh" --tried $k && echo "0x4	kfree	vmlinux	EXPORT_SYMBOL	" >>"$root/lib/modules/$k/build/Module.symvers" && ! "$pkg/build.sh" --tried $k
check "nor for another build of the kernel"
[ -z "$(ls "$root/var/lib/uvm-rust/built")" ] && [ "$(ls "$root/var/lib/uvm-rust/failed")" = $k ]
check "and no sums are kept of a build that failed"
machine
mkdir -p "${failed_file%/*}" && echo "an older reason" >"$failed_file"
build && [ ! -e "$failed_file" ]
check "a build that ends well takes the reason away"

machine
printf '#!/bin/bash\nexit 0\n' >"$work/bin/make"
fails 'there is no nvidia-uvm.ko'
check "make that makes nothing is a failure"

# On a full disk no file can be written; here no write to one succeeds.
machine
rm -rf "$work/build" && cp -a "$pkg" "$work/build"
(trap '' XFSZ; ulimit -f 0; cd "$work/build" && ./build.sh $k) 2>&1 | cat >"$work/said"
[ "${PIPESTATUS[0]}" = 77 ] && grep -q 'reason cannot be kept' "$work/said" && [ -z "$(find "$root/var/lib/uvm-rust" -type f)" ]
check "on a full disk ours is left out, with no half of a file"
machine
mkdir -p "$root/var/lib/uvm-rust" && touch "$root/var/lib/uvm-rust/built"
fails 'built cannot be written to'
check "so is a module of which nobody would know what it was built against"
machine
touch "$root/run"
rc=0
build || rc=$?
[ $rc = 77 ]
check "and whatever else fails, DKMS is told the same"

# DKMS at boot beside an administrator's: both wait for a third, and then make fails if another make is at work.
machine
mkdir -p "$root/run"
printf '#!/bin/bash\nmkdir "%s/making" && sleep 1 && rmdir "%s/making" && touch nvidia-uvm.ko\n' "$work" "$work" >"$work/bin/make"
exec 8>"$root/run/uvm-rust.lock"
flock 8
pids=()
for f in one other; do
	cp -a "$pkg" "$work/$f"
	(cd "$work/$f" && exec ./build.sh $k) >"$work/$f.said" 2>&1 8>&- &
	pids+=($!)
done
waiting() { grep -q 'waiting for another build' "$work/one.said" && grep -q 'waiting for another build' "$work/other.said"; }
for ((i = 0; i < 200; i++)); do waiting && break; sleep 0.3; done
waiting
check "while one builds, another waits"
(rm -rf "$work/build" && cp -a "$pkg" "$work/build" && cd "$work/build" && UVM_RUST_LOCKED=1 timeout 60 ./build.sh $k) >"$work/said" 2>&1
check "but not one that the one at work has begun"
exec 8>&-
wait "${pids[0]}" && wait "${pids[1]}" && built_against
check "one after the other both succeed"

# --- package.sh ----------------------------------------------------------------------

# A checkout whose seam.sh changes nothing, and whose upstream.sh gives a tree of the version that it is asked for.
co=$work/checkout
mkdir -p "$co/scripts" "$co/src/uvm_rust/kernel/build" "$co/packaging" "$work/given"
cp "$top/scripts/package.sh" "$top/scripts/lib.sh" "$co/scripts/"
cp "$top/src/uvm_rust/kernel/build/kbuild.sh" "$co/src/uvm_rust/kernel/build/"
cp -r "$top/packaging/dkms" "$top/packaging/debian" "$co/packaging/"
cp "$top/Cargo.toml" "$co/"
cat >"$co/scripts/upstream.sh" <<'END'
#!/bin/bash
dir=$TREES/$UVM_VERSION
mkdir -p "$dir" && printf 'ccflags-y += -DNV_VERSION_STRING=\\"%s.1\\"\n' "$UVM_VERSION" >"$dir/Kbuild"
echo "$dir"
END
cat >"$co/scripts/seam.sh" <<'END'
#!/bin/bash
[ "$1" != --patched ] || exit 0
mkdir -p "$2/uvm-rust/nvidia-uvm-c" && touch "$2/uvm-rust/nvidia-uvm-c/uvm_rust_version.h" "$2/uvm-rust/upstream.Kbuild"
END
printf '#!/bin/bash\necho "$UVM_SRC" >"$TREES/said"\n' >"$work/bin/dpkg-buildpackage"
printf '#!/bin/bash\n' | tee "$work/bin/dh" >"$work/bin/cargo"
chmod +x "$co/scripts/"*.sh "$work/bin/"*
package() { env TREES="$work/trees" UVM_RUST_CACHE="$work/cache" UVM_SRC= UVM_VERSION= UVM_VERSIONS= "$@" >"$work/said" 2>&1; }
hooks_for() { package "$@" "$co/scripts/package.sh" dkms "$work/pack" && (cd "$work/pack/hooks" && echo *); }
[ "$(hooks_for)" = 550.1 ] && [ "$(hooks_for UVM_VERSION=580)" = 580.1 ] && [ "$(hooks_for UVM_VERSION=580 UVM_VERSIONS='535 550')" = "535.1 550.1" ]
check "a package is for the base that is asked for, or for several"
rustc_is 1.85.1
! package HOME="$work" "$co/scripts/package.sh" deb && grep -q '^error: making the packages needs Rust 1.88 .* and here is rustc 1.85.1' "$work/said"
check "a Rust that is too old for the preload is refused"
rustc_is 1.88.0
(cd "$co/scripts" && package UVM_SRC=../../given ./package.sh deb) && [ "$(cat "$work/trees/said")" = "$work/given" ]
check "UVM_SRC may be a path from here"
# make hands it to debian/rules as it was given, unless that is kept from it.
rm "$work/bin/make" "$work/trees/said"
printf '%%:\n\t@echo "$(UVM_SRC)"\n' >"$co/rules"
printf '#!/bin/bash\nmake --no-print-directory -f "%s/rules" build >"$TREES/said"\n' "$co" >"$work/bin/dpkg-buildpackage"
printf 'deb:\n\t@scripts/package.sh deb\n' >"$co/Makefile"
package make -C "$co" deb UVM_SRC=../given && [ "$(cat "$work/trees/said")" = "$work/given" ]
check "and so it may for make deb"

done_testing
