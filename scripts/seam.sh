#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Put our sources, bindings and hooks into a build folder that holds a copy of
# upstream (see driver.sh).
#
#   seam.sh TREE DIR     TREE: upstream's source; DIR: the build folder
#   seam.sh --knows TREE does the seam know that version of upstream? Says so if not
#   seam.sh --patched    list the files that hooks change, relative to DIR
#
# Environment: UVM_RUST_WHOLE=0 or 1 (in an upstream that discards by itself, 580 and later: only what counts, and
# the batch call, or all of ours; all, if unset).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"

hooks=$TOP/src/nvidia-uvm-c/hooks
patched() { for h in "$TOP"/src/nvidia-uvm-c/hooks/{,*/}*.cocci; do echo "nvidia-uvm/$(basename "$h" .cocci)"; done | sort -u; }

# knows TREE: has the seam hooks and headers for it?
knows() {
	local v
	v=$(driver_version "$1")
	case ${v%%.*} in
	535 | 545 | 550 | 555 | 560 | 565 | 570 | 575) ;;
	5[89]?) ;; # native discard: see Kbuild
	*) die "no Rust for nvidia-uvm.ko $v: the seam knows 535, 545 to 575, and 580 to 595" ;;
	esac
}

case ${1:-} in
--patched) patched; exit ;;
--knows) knows "$2"; exit ;;
esac
tree=$1 dir=$2
knows "$tree"

# install_new FROM TO: only if it differs, so that make sees no change.
install_new() { cmp -s "$1" "$2" || { mkdir -p "$(dirname "$2")" && cp "$1" "$2"; }; }

dest=$dir/uvm-rust
mkdir -p "$dest"
install_new "$TOP/Kbuild" "$dest/uvm-rust.Kbuild"
rsync -rlc --delete --exclude='*.o' --exclude='.*' --exclude=bindings.rs --exclude=Cargo.toml \
	--exclude=benches --exclude=fuzz --exclude=target --exclude=uvm_rust_version.h --exclude=/uvm_rust/kernel \
	"$TOP/src/uvm_rust" "$TOP/src/nvidia-uvm-c" "$dest/"
rsync -rlc --delete --exclude='*.[os]' --exclude='.*' "$TOP/src/uvm_rust/kernel/" "$dest/kernel/"
mkdir -p "$dest/include"
rsync -rlc --delete "$TOP/include/uapi" "$dest/include/"

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

# What is so in this upstream: where the headers and the hooks for it are. From 580 on it discards by itself:
# there counting and the batch call can be built alone, which need few hooks.
facts=$("$TOP/scripts/base.sh" "$tree" | paste -sd' ')
is() { [[ " $facts " == *" $1 "* ]]; }
native='' both=$hooks/both mends=$hooks/native_discard/mends
if is native_discard && [ "${UVM_RUST_WHOLE:-1}" = 0 ]; then
	native=1
	hooks=$hooks/native
fi
printf '/* Written by seam.sh. */\n%s' "${native:+#define UVM_RUST_NATIVE 1
}" >"$new/version.h"
install_new "$new/version.h" "$dest/nvidia-uvm-c/uvm_rust_version.h"
printf '# Written by seam.sh.\nUVM_RUST_FACTS := %s\n%s\n' "$facts" "${native:+UVM_RUST_NATIVE := 1}" >"$new/upstream.Kbuild"
install_new "$new/upstream.Kbuild" "$dest/upstream.Kbuild"

# The few C types that Rust shares, from our own headers.
"$TOP/scripts/bindings.sh" --print >"$new/bindings.rs"
install_new "$new/bindings.rs" "$dest/uvm_rust/ffi/bindings.rs"

# Hooks: each must find its place, or it is not the upstream it was written for.
have spatch || die "spatch is missing (Debian package coccinelle): run 'make deps'"
for file in $(patched); do
	h=$new/hooks.cocci name=$(basename "$file").cocci
	# Those of all, and of the facts that are: without one, what is so has the prefix no_. Those of both builds, native or whole, are
	# in a folder of their own. Mends of upstream's discard are in each build where it discards.
	: >"$h"
	for folder in "$hooks" "$both" "$hooks"/*/ "$mends"; do
		fact=$(basename "$folder")
		case $fact in
		hooks | native) ;;
		both) [ "$folder" = "$both" ] || continue ;;
		mends) is native_discard || continue ;;
		no_*) ! is "${fact#no_}" || continue ;;
		*) is "$fact" || continue ;;
		esac
		if [ -e "$folder/$name" ] && { [ "$fact" != native ] || [ -n "$native" ]; }; then cat "$folder/$name" >>"$h"; fi
	done
	if [ ! -s "$h" ]; then
		install_new "$tree/$file" "$dir/$file"
		continue
	fi
	spatch --max-width 160 --no-includes --very-quiet --sp-file "$h" "$tree/$file" -o "$new/out" >"$new/log" 2>&1 ||
		{ cat "$new/log" >&2; die "spatch failed on $file"; }
	want=$(grep -c '^+' "$h")
	got=$(diff "$tree/$file" "$new/out" | grep -c '^>' || :)
	[ "$got" = "$want" ] ||
		die "hook $name matched $got of $want places in upstream's $file: this upstream version needs a variant of it"
	install_new "$new/out" "$dir/$file"
done
