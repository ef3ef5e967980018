#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The names of tests, and whether one has gone.
#
#   test-names.sh FOLDER     prints the tests that ran, by the logs below FOLDER (out/test): a line with the
#                            part and the test for each
#   test-names.sh OLD NEW    prints what OLD names and NEW does not, and fails if there is any. Each is
#                            such a folder, or a file with names: of tests, or of parts (test.sh list)
#
# A test that two programs of a part have in common stands there twice, and one of the two may not go either.
# What differs from run to run is left out of a name: a seed, a line in a file, how cargo calls a program.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

# names_in PART LOG: of one log. A part that names no test is a test itself.
names_in() {
	awk -v part="$1" '
		function name(text) {
			gsub(/seed [0-9]+/, "seed N", text)
			gsub(/\(line [0-9]+\)/, "(line N)", text)
			print part " " text
			named = 1
		}
		/^ +Running .*\(.*\)$/ { program = $NF; gsub(/.*\/|-[0-9a-f]+\)$/, "", program); program = program "::" }
		/^ +Doc-tests / { program = $2 " (documentation)::" }
		/^test .* \.\.\. ?/ { sub(/^test /, ""); sub(/ \.\.\. ?.*$/, ""); name(program $0) }
		/^(not )?ok [0-9]+/ { sub(/^(not )?ok [0-9]+ *(- )?/, ""); sub(/ *# .*$/, ""); name($0) }
		END { if (!named) print part " (the part)" }' "$2"
}

# names WHERE: those of a folder of logs, or of a file that has them already.
names() {
	local log part
	if [ -f "$1" ]; then cat "$1"; return; fi
	[ -d "$1" ] || die "test-names.sh: there is no $1"
	find "$1" -name '*.log' | sort | while IFS= read -r log; do
		part=${log#"${1%/}"/}
		names_in "${part%.log}" "$log"
	done
}

case $# in
1) names "$1" ;;
2)
	old=$(names "$1" | LC_ALL=C sort)
	new=$(names "$2" | LC_ALL=C sort)
	gone=$(LC_ALL=C comm -23 <(echo "$old") <(echo "$new"))
	if [ -n "$gone" ]; then printf 'gone: %s\n' "${gone//$'\n'/$'\n'gone: }"; fi
	echo "$(grep -c . <<<"$old") names before, $(grep -c . <<<"$new") now, $(grep -c . <<<"$gone" || :) gone"
	[ -z "$gone" ]
	;;
*) die "test-names.sh: use FOLDER, or OLD and NEW; see its head" ;;
esac
