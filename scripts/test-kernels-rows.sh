# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by test-kernels.sh and by its own test: what the log of a build says against the
# build, and the table of what was built.
# shellcheck shell=bash

# said_by TOOL LOG: the lines of a log that are warnings or errors of compiler (C's, Rust's and
# the linker), objtool, modpost or sparse; or of "unread", the files that sparse gave up on.
said_by() {
	case $1 in
	# The first that is left out tells of the machine's compiler, not of the code: it is another
	# build of the version that built the kernel. The second is no line of a log's own: kbuild
	# prints such flags.
	compiler) grep -E '(^|: )(warning|error)(\[[A-Z0-9]+\])?: ' "$2" |
		grep -vE '^sparse: |objtool: |modpost: |^warning: the compiler differs' ;;
	objtool) grep 'objtool: ' "$2" ;;
	# NVIDIA's interface is looked for by driver.sh. Kernels from 7.2 on name a symbol behind its module.
	modpost) grep -E '^(WARNING|ERROR): modpost: ' "$2" | grep -vE '("nvUvmInterface[A-Za-z0-9_]*" .*|symbol .nvUvmInterface[A-Za-z0-9_]*.) undefined!' ;;
	sparse) grep '^sparse: ' "$2" | grep -v '^sparse: not read: ' ;;
	# Debian's headers of 7.3 come without the script that kbuild asks about sparse.
	unread) grep -E '^sparse: not read: |: C=1 specified, but ' "$2" ;;
	esac || :
}

# nameless: without folders, lines and columns, which differ where the same is said of the same
# file in another build.
nameless() { sed -E 's|[^ ]*/||g; s/(\.[a-z]+):[0-9]+(:[0-9]+)?:/\1:/' | sort -u; }

# said_newly TOOL LOG [BASELINE]: what the tool says there, and did not in the baseline's log.
said_newly() {
	local before=/dev/null
	if [ -e "${3:-}" ]; then before=$3; fi
	comm -13 <(said_by "$1" "$before" | nameless) <(said_by "$1" "$2" | nameless)
}

# how_many: lines there are.
how_many() { wc -l | tr -d ' '; }

# put_row FILE FIELD...: a line of FIELDs with tabs between them, in place of the one with the same
# first four, if there is one. They are: distribution, kernel, C compiler, rustc, then which
# `kernel` crate, then what became of the baseline, of the driver with Rust and of vgpu ("built",
# or why not), then how much was said by compiler, objtool, modpost and sparse of ours, by the
# compiler of NVIDIA's, what was loaded, and the version of NVIDIA's driver.
put_row() {
	local file=$1 row
	shift
	row=$(printf '%s\t' "$@")
	touch "$file"
	{
		awk -F '\t' -v key="$1\t$2\t$3\t$4\t" 'index($0, key) != 1' "$file"
		printf '%s\n' "${row%$'\t'}"
	} >"$file.new"
	sort -V "$file.new" >"$file"
	rm -f "$file.new"
}

row_names=(distribution kernel compiler rustc crate baseline driver vgpu said_compiler said_objtool said_modpost said_sparse
	baseline_said loaded nvidia)

# as_json FILE: the rows as a list of objects.
as_json() {
	awk -F '\t' -v names="${row_names[*]}" '
		BEGIN { split(names, name, " "); print "[" }
		{
			line = ""
			for (i = 1; i <= NF; i++) {
				value = $i
				gsub(/\\/, "\\\\", value)
				gsub(/"/, "\\\"", value)
				line = line (i > 1 ? ", " : "") "\"" name[i] "\": " (value ~ /^[0-9]+$/ ? value : "\"" value "\"")
			}
			printf "%s  {%s}", (NR > 1 ? ",\n" : ""), line
		}
		END { print "\n]" }' "$1"
}

# as_table FILE: in Markdown. Where nothing is said, "none".
as_table() {
	# shellcheck disable=SC2016
	echo '| kernel | NVIDIA | C compiler | rustc | `kernel` crate | unmodified | with Rust | vgpu | warnings | loaded |'
	echo '|---|---|---|---|---|---|---|---|---|---|'
	awk -F '\t' '
		function said(n, tool) { if (n != "0") line = line (line ? ", " : "") tool " " n }
		{
			line = ""
			said($9, "compiler"); said($10, "objtool"); said($11, "modpost"); said($12, "sparse")
			printf "| %s (%s) | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", $2, $1, $15, $3, $4, $5, $6, $7, $8, line ? line : "none", $14
		}' "$1"
}
