# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by driver.sh: what a module must be, beyond that it could be built. Of driver.sh's they
# use $kernel and $crate, $tree, and $base, in which the unmodified module is.
# shellcheck shell=bash disable=SC2154

# check_symbols MODULE: nothing may be missing but RM's interface.
check_symbols() {
	local missing
	missing=$(nm -u "$1" | awk '{ print $2 }' | sort -u |
		comm -23 - <(awk '{ print $2 }' "$kernel/Module.symvers" | sort -u) |
		grep -v '^nvUvmInterface' || :)
	[ -z "$missing" ] || die "$1 needs symbols that nothing provides: $missing"
	! readelf -rW "$1" | grep -q GOTPCREL || die "$1 has calls through a table of addresses, which the kernel does not load"
}

# globals MODULE: the names by which other modules, and a stack trace, know what is in it; without
# what each module has. KASAN marks a variable of Rust's by a symbol of its own (__odr_asan_gen_).
globals() {
	nm -g --defined-only "$1" | awk '{ print $3 }' | sed -E 's/^__(pfx|ksymtab|crc|kstrtab|kstrtabns)_//' |
		grep -vE '^(init_module|cleanup_module|__(this_module|mod_|start_|stop_|odr_asan_gen_).*)$' | sort -u
}

# check_names MODULE OURS [BASELINE]: is what is global in it, and not in the baseline, called ours?
check_names() {
	local foreign
	foreign=$(comm -13 <([ -z "${3:-}" ] || globals "$3") <(globals "$1") | grep -vE "$2" || :)
	[ -z "$foreign" ] || die "$1 has global symbols whose names are not ours: $foreign"
}

# objtool_said LOG...: what objtool says there, whatever the folder.
objtool_said() { sed -n 's/^.*objtool: //p' "$@" 2>/dev/null | sort -u; }

# Rust of the kernel's own crate calls functions of core's that are in the kernel, and objtool has a
# list of those that do not return. One that is not in it (6.12's lacks what a sort ends in, whose order
# is none) makes its caller seem to go on where the next function begins.
not_in_its_list='^_R[A-Za-z0-9_]*\(\) falls through to next function '

# check_objtool DIR [BASELINE]: has objtool nothing to say of what is built in DIR, but what it says of the
# baseline?
check_objtool() {
	local said
	said=$(comm -13 <([ -z "${2:-}" ] || objtool_said "$2.log" "$2.objtool") <(objtool_said "$1.log"))
	[ "$crate" = own ] || said=$(grep -vE "$not_in_its_list" <<<"$said" || :)
	# NVIDIA's own faults are not ours, where they are not known.
	if [ -z "${2:-}" ] && [ -e "$1/nvidia-uvm" ]; then said=$(grep -E '^(uvm_rust|uvm_seam|_R|[a-z0-9_]*__c\>)' <<<"$said" || :); fi
	[ -n "$said" ] || return 0
	# It looks at an object once, when that is made: the next build makes these anew.
	(cd "$1" && sed -n 's/: [a-z]*: objtool: .*//p' "$1.log" | sort -u | tr '\n' '\0' | xargs -0 rm -f --)
	printf '%s\n' "$said" >&2
	die "objtool has something to say of $1; the whole log is $1.log"
}

# check_object OBJECT FILE: is what was made of Rust hardened as FILE is, of the same module's C? With the
# kernel's own crate, it is the kernel that has the flags for Rust. There only the stack frames are looked
# at, by what Debian's kernels allow: what is too large for those is to be found where most is built.
check_object() {
	local said frame
	if [ "$crate" != own ]; then
		said=$("$TOP/scripts/rust-object.sh" "$1" /dev/null 2048) || {
			printf '%s\n' "$said" >&2
			die "$1 is not what the kernels of distributions allow"
		}
		return 0
	fi
	frame=$(sed -n 's/^CONFIG_FRAME_WARN=//p' "$kernel/include/config/auto.conf" "$kernel/.config" 2>/dev/null | head -n 1 || :)
	said=$("$TOP/scripts/rust-object.sh" "$1" "$(dirname "$2")/.$(basename "$2").cmd" "$frame") || {
		printf '%s\n' "$said" >&2
		die "$1 is not what the kernel's C would be"
	}
}

# tree_key: what a module of NVIDIA's is built from.
tree_key() {
	(cd "$tree" && find nvidia-uvm common Kbuild conftest.sh -type f -print0 2>/dev/null | sort -z | xargs -0 cat) |
		cat - "$kernel/include/config/auto.conf" "$kernel/Module.symvers" 2>/dev/null | sha256sum || :
}

# baseline: the folder of the unmodified module, if it is built, and of the same.
baseline() {
	local dir
	for dir in "$base"/upstream*/; do
		dir=${dir%/}
		if [ ! -e "$dir/nvidia-uvm.ko" ] || [ ! -e "$dir/.complete" ]; then continue; fi
		# As for driver.sh, what is pinned does not change.
		if [ -z "${UVM_SRC:-}${KDIR:-}" ] || [ "$(cat "$dir/.complete")" = "$(tree_key)" ]; then
			echo "$dir"
			return
		fi
	done
}
