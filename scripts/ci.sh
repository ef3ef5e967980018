#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The jobs of CI, as .github/workflows/ci.yml describes them for GitHub Actions, on this machine.
#
#   ci.sh            their names and commands
#   ci.sh NAME...    runs these, one after the other
#
# Environment: CI_FILE, another description.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
file=${CI_FILE:-$TOP/.github/workflows/ci.yml}

# jobs: NAME, a tab, COMMAND: the entries of the matrix.
jobs() {
	awk '$1 == "include:" { inside = 1; next }
		inside && $1 == "-" && $2 == "name:" { name = $3; next }
		inside && $1 == "run:" { sub(/^ *run: */, ""); print name "\t" $0; next }
		inside { exit }' "$file"
}

# command_of NAME: what the job runs.
command_of() {
	local command
	command=$(jobs | awk -F '\t' -v name="$1" '$1 == name { print $2 }')
	[ -n "$command" ] || die "no job $1 in $file; there are: $(jobs | cut -f1 | paste -sd' ')"
	echo "$command"
}

[ $# -gt 0 ] || { jobs | awk -F '\t' '{ printf "%-10s %s\n", $1, $2 }'; exit 0; }
for name; do command_of "$name" >/dev/null; done
cd "$TOP"
for name; do
	command=$(command_of "$name")
	say "CI, $name: $command"
	bash -euo pipefail -c "$command" || die "CI, $name failed; again with: $command"
done
