# SPDX-License-Identifier: GPL-2.0-only OR MIT
# awk -f hooks.awk HOOKS FILE: FILE with the lines that HOOKS adds and without those
# that it drops. HOOKS is what `diff -n` wrote, so it has no line of FILE's:
#   dLINE N   N lines from LINE on are left out
#   aLINE N   the N lines that follow here come after LINE
NR == FNR {
	if (more > 0) {
		added[at] = added[at] $0 "\n"
		more--
		next
	}
	split(substr($0, 2), word, " ")
	at = word[1]
	if (substr($0, 1, 1) == "a")
		more = word[2]
	else
		for (i = 0; i < word[2]; i++)
			dropped[at + i] = 1
	next
}
FNR == 1 && (0 in added) { printf "%s", added[0] }
!(FNR in dropped) { print }
FNR in added { printf "%s", added[FNR] }
