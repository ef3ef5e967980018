#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# How much of the driver is C, and how much Rust: lines of code, without blanks, comments and
# tests, by kind and by subject; tables, and out/lines.json. Then what they are held against: the seam
# has at most 2,500 lines, which are less than those of driver/, and in no subject is there more C than Rust.
#
#   lines.sh [--check] [DIR]    of the checkout DIR instead of this one; with --check it fails if a bar is missed
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

check=
if [ "${1:-}" = --check ]; then
	check=y
	shift
fi
top=${1:-$TOP}
cd "$top" || die "no folder $top"
c=src/nvidia-uvm-c rust=src/uvm_rust

# files PART: what belongs to a part, one file a line.
files() {
	case $1 in
	c_seam) find $c -name '*.[ch]' -not -path "$c/fixes/*" -not -path "$c/bases/*" -o -path "$c/bases/550/*.h" ;;
	c_bases) find $c/bases -name '*.h' -not -path "$c/bases/550/*" 2>/dev/null || : ;;
	c_fixes) find $c/fixes -name '*.[ch]' 2>/dev/null || : ;;
	rust_ffi) find $rust/ffi $rust/ffi.rs -name '*.rs' -not -name bindings.rs ;;
	rust_driver) find $rust/driver $rust/driver.rs $rust/uvm_rust.rs -name '*.rs' ;;
	rust_policy) find $rust/policy -name '*.rs' -not -name 'tests.rs' -not -path '*/tests/*' -not -path '*/benches/*' -not -path '*/fuzz/*' ;;
	esac
}

# subject NAME: of the files on standard input those that are about it; `rest`: those that are about none.
subject() {
	local fault='(fault|tree)' evict=evict discard=discard prefetch=prefetch flash='(flash|moves)' all
	all="$fault|$evict|$discard|$prefetch|$flash"
	case $1 in
	rest) grep -vE "^$c/($all)/|^$rust/(ffi|driver|policy)/($all)(\.rs\$|/)" ;;
	*) grep -E "^$c/${!1}/|^$rust/(ffi|driver|policy)/${!1}(\.rs\$|/)" ;;
	esac || :
}

# code FILE...: lines on which something is left without comments. Rust's unit tests, from
# #[cfg(test)] to the end of its item, do not count.
code() {
	cat "$@" /dev/null | awk '
		function braces(text) { return gsub(/\{/, "", text) - gsub(/\}/, "", text) }
		{
			line = $0
			if (in_comment) {
				if (!match(line, /\*\//)) next
				line = substr(line, RSTART + 2)
				in_comment = 0
			}
			while (match(line, /\/\*/) && !match(line, /^[^"]*"[^"]*\/\*/)) {
				match(line, /\/\*/)
				before = substr(line, 1, RSTART - 1)
				line = substr(line, RSTART + 2)
				if (match(line, /\*\//)) line = before substr(line, RSTART + 2)
				else { line = before; in_comment = 1 }
			}
			sub(/\/\/.*/, "", line)
			if (line !~ /[^ \t\r]/) next
		}
		line ~ /^[ \t]*#\[cfg\(test\)\]/ { test = 1; depth = 0; next }
		test {
			depth += braces(line)
			if (depth <= 0 && line ~ /[;}][ \t]*$/) test = 0
			next
		}
		{ n++ }
		END { print n + 0 }'
}

declare -A lines
for part in c_seam c_fixes c_bases rust_ffi rust_driver rust_policy; do
	mapfile -t of < <(files $part)
	lines[$part]=$(code "${of[@]}")
done

# share A B: of A and B, how many of a hundred are B.
share() { echo $((100 * $2 / ($1 + $2 > 0 ? $1 + $2 : 1))); }
row() { printf '%-12s %6s  %s\n' "$@"; }
row kind lines "what it is"
row c_seam "${lines[c_seam]}" "C of ours in the driver ($c)"
row c_fixes "${lines[c_fixes]}" "C that mends or speeds up upstream ($c/fixes)"
row c_bases "${lines[c_bases]}" "C for versions other than 550, each for some ($c/bases)"
row rust_ffi "${lines[rust_ffi]}" "Rust that calls C and is called by it ($rust/ffi)"
row rust_driver "${lines[rust_driver]}" "Rust of the driver alone ($rust/driver)"
row rust_policy "${lines[rust_policy]}" "Rust that also runs on the host ($rust/policy)"
echo

missed=0
# bar WHAT MEASURED MOST: keeps a line that says whether the number is as it must be.
bar() {
	local met=yes
	[ "$2" -le "$3" ] || met=NO missed=1
	bars+=("$(printf '%-52s %6s %6s  %s' "$1" "$2" "$3" "$met")")
}
bars=()
bar "C of the seam, at most" "${lines[c_seam]}" 2500
bar "C of the seam, less than the Rust of driver/" "${lines[c_seam]}" $((lines[rust_driver] - 1))

printf '%-12s %6s %6s  %s\n' subject C Rust "Rust of a hundred lines"
for name in fault evict discard prefetch flash rest; do
	mapfile -t of < <(files c_seam | subject $name)
	of_c=$(code "${of[@]}")
	mapfile -t of < <(for part in rust_ffi rust_driver rust_policy; do files $part; done | subject $name)
	of_rust=$(code "${of[@]}")
	printf '%-12s %6s %6s  %s\n' $name "$of_c" "$of_rust" "$(share "$of_c" "$of_rust")"
	bar "C of $name, at most as much as its Rust" "$of_c" "$of_rust"
done
echo
printf '%-52s %6s %6s  %s\n' bar is most met
printf '%s\n' "${bars[@]}" ""
echo "For versions other than 550 there are ${lines[c_bases]} lines of C more, $((lines[c_seam] + lines[c_bases])) together; no driver has all of them."
rust_total=$((lines[rust_ffi] + lines[rust_driver] + lines[rust_policy]))
echo "Rust is $(share "${lines[c_seam]}" $rust_total) of a hundred lines, fixes and other versions apart."

mkdir -p out
printf '{"c_seam": %d, "c_fixes": %d, "c_bases": %d, "rust_ffi": %d, "rust_driver": %d, "rust_policy": %d}\n' \
	"${lines[c_seam]}" "${lines[c_fixes]}" "${lines[c_bases]}" "${lines[rust_ffi]}" "${lines[rust_driver]}" "${lines[rust_policy]}" >out/lines.json
[ -z "$check" ] || [ "$missed" = 0 ] || die "a bar is missed"
