#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The C types that Rust shares, as Rust: src/uvm_rust/ffi/bindings.rs, which is kept in
# the repository, so that a build needs no bindgen and no libclang.
#
#   bindings.sh            write it anew, with bindgen
#   bindings.sh --check    is it of the headers that are here, and what bindgen would write?
#   bindings.sh --print    print it: the kept one if it is of these headers, else a new one
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

kept=$TOP/src/uvm_rust/ffi/bindings.rs
seam=$TOP/src/nvidia-uvm-c
headers=("$TOP"/include/uapi/uvm_rust_ioctl.h "$seam"/base/uvm_rust_types.h "$seam"/*/uvm_rust*_ffi.h)
# What they say, and how bindgen is asked.
options=(--use-core --no-layout-tests --no-prepend-enum-name --with-derive-default
	--allowlist-item '(uvm|UVM)_.*|down_read_trylock|(down|up)_(read|write)|capable|destroy_workqueue|seq_write|get_random_u64|ktime_get|msleep_interruptible' --opaque-type '(file|seq_file)' --rust-target 1.82)
key=$( { cat "${headers[@]}"; echo "${options[*]}"; } | sha256sum | cut -c1-16)
mark="// Of headers and options $key."
by="// By $(bindgen --version 2>/dev/null || echo "no bindgen")."

current() { [ -r "$kept" ] && grep -qxF "$mark" "$kept"; }

generate() {
	have bindgen || die "the C headers have changed since $kept was made, and bindgen, which makes it anew, is missing: run 'make deps'"
	local dir folders=("$seam"/*/ "$seam"/bases/550/)
	dir=$(mktemp -d)
	printf '#include "%s"\n' uvm_rust_ioctl.h uvm_rust_ffi.h >"$dir/all.h"
	bindgen "$dir/all.h" "${options[@]}" --disable-header-comment --formatter none --output "$dir/out.rs" -- \
		-I"$TOP/include/uapi" "${folders[@]/#/-I}" 2>"$dir/log" || { cat "$dir/log" >&2; die "bindgen failed"; }
	{
		printf '// SPDX-License-Identifier: GPL-2.0-only OR MIT\n// Written by scripts/bindings.sh.\n%s\n%s\n\n' "$mark" "$by"
		cat "$dir/out.rs"
	} | rustfmt --edition 2021 --config-path "$TOP/rustfmt.toml"
	rm -rf "$dir"
}

case ${1:-} in
'')
	new=$(generate)
	printf '%s\n' "$new" >"$kept"
	;;
--print) if current; then cat "$kept"; else generate; fi ;;
--check)
	current || die "$kept is not of these headers: run scripts/bindings.sh"
	have bindgen || { say "no bindgen: only the headers' sum was looked at"; exit 0; }
	grep -qxF "$by" "$kept" || { say "another bindgen wrote it: only the headers' sum was looked at"; exit 0; }
	diff <(generate) "$kept" >&2 || die "$kept is not what bindgen writes: run scripts/bindings.sh"
	;;
*) die "bindings.sh [--check|--print]" ;;
esac
