#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The C types that Rust shares, as Rust. They are kept in the repository, so that a build needs no bindgen
# and no libclang:
#
#   src/uvm_rust/ffi/bindings.rs            what the driver's Rust shares with its C seam
#   include/uvm-uapi/src/bindings.rs        the headers of include/uapi, for programs
#
#   bindings.sh            write them anew, with bindgen
#   bindings.sh --check    are they of the headers that are here, and what bindgen would write?
#   bindings.sh --print    print the driver's: the kept one if it is of these headers, else a new one
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

seam=$TOP/src/nvidia-uvm-c
by="// By $(bindgen --version 2>/dev/null || echo "no bindgen")."

# take driver|uapi: sets what the file is made of: headers and how bindgen is asked.
take() {
	case $1 in
	driver)
		kept=$TOP/src/uvm_rust/ffi/bindings.rs
		headers=("$TOP"/include/uapi/uvm_rust_ioctl.h "$seam"/base/uvm_rust_types.h "$seam"/*/uvm_rust*_ffi.h)
		included=(uvm_rust_ioctl.h uvm_rust_ffi.h)
		folders=("$TOP/include/uapi" "$seam"/*/ "$seam"/bases/550/)
		options=(--use-core --no-layout-tests --no-prepend-enum-name --with-derive-default
			--allowlist-item '(uvm|UVM)_.*|down_read_(trylock|interruptible)|up_read|(down|up)_write|capable|destroy_workqueue|seq_write|get_random_u64|ktime_get|msleep_interruptible|send_sig' --opaque-type '(file|seq_file)' --rust-target 1.82)
		;;
	uapi)
		kept=$TOP/include/uvm-uapi/src/bindings.rs
		headers=("$TOP"/include/uapi/uvm_rust_ioctl.h "$TOP"/include/uapi/vgpu.h)
		included=(uvm_rust_ioctl.h vgpu.h)
		folders=("$TOP/include/uapi")
		# vgpu.h makes its numbers by a macro of Linux', which clang computes.
		options=(--use-core --clang-macro-fallback --with-derive-default --with-derive-partialeq --with-derive-eq
			--with-attribute-custom-struct '.*=#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]'
			--allowlist-item '(uvm_rust|UVM_RUST|vgpu|VGPU)_.*' --rust-target 1.82)
		;;
	esac
	mark="// Of headers and options $( { cat "${headers[@]}"; echo "${options[*]}"; } | sha256sum | cut -c1-16)."
}

current() { [ -r "$kept" ] && grep -qxF "$mark" "$kept"; }

generate() {
	have bindgen || die "the C headers have changed since $kept was made, and bindgen, which makes it anew, is missing: run 'make deps'"
	local dir
	dir=$(mktemp -d)
	printf '#include "%s"\n' "${included[@]}" >"$dir/all.h"
	(cd "$dir" && bindgen all.h "${options[@]}" --disable-header-comment --formatter none --output out.rs -- \
		"${folders[@]/#/-I}") 2>"$dir/log" || { cat "$dir/log" >&2; die "bindgen failed"; }
	{
		printf '// %s: GPL-2.0-only OR MIT\n// Written by scripts/bindings.sh.\n%s\n%s\n\n' SPDX-License-Identifier "$mark" "$by"
		cat "$dir/out.rs"
	} | rustfmt --edition 2021 --config-path "$TOP/rustfmt.toml"
	rm -rf "$dir"
}

check() {
	current || die "$kept is not of these headers: run scripts/bindings.sh"
	have bindgen || { say "no bindgen: only the headers' sum was looked at"; return; }
	grep -qxF "$by" "$kept" || { say "another bindgen wrote it: only the headers' sum was looked at"; return; }
	diff <(generate) "$kept" >&2 || die "$kept is not what bindgen writes: run scripts/bindings.sh"
}

case ${1:-} in
'')
	for of in driver uapi; do
		take $of
		new=$(generate)
		printf '%s\n' "$new" >"$kept"
	done
	;;
--print)
	take driver
	if current; then cat "$kept"; else generate; fi
	;;
--check)
	for of in driver uapi; do
		take $of
		check
	done
	;;
*) die "bindings.sh [--check|--print]" ;;
esac
