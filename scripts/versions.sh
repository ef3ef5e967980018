#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The releases of tests/release-tags: whether the hooks fit each, and what became of the builds; for make test-versions.
#
#   versions.sh source          fetches what is missing, and prints the git directory that has the tags
#   versions.sh tree TAG        unpacks a tag's kernel-open, and prints the folder
#   versions.sh hooks           TAP: do the hooks fit each tag? Equal sources are asked once, and what was found
#                               stays in the cache while the hooks stay as they are
#   versions.sh flips           the tags that ours is built from
#   versions.sh note TAG LOG [NVIDIA'S]
#                               a build of a tag has ended well, or LOG is - and it has not; fails for a warning in LOG
#                               that the log of the unmodified driver's build, if it is named, has not
#   versions.sh table [FILE]    a line for each tag, and out/versions.json (or FILE)
#
# Environment: UVM_GIT, the repository that git fetches from (NVIDIA's), or a copy of it on this machine; RELEASE_TAGS and
# HOOKS_SH, the list and the test of hooks, for a test of this.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=test-kernels-rows.sh
. "$TOP/scripts/test-kernels-rows.sh"
set +e

list=${RELEASE_TAGS:-$TOP/tests/release-tags}
hooks_sh=${HOOKS_SH:-$TOP/tests/scripts/hooks.sh}
repository=${UVM_GIT:-https://github.com/NVIDIA/open-gpu-kernel-modules}
results=$CACHE/versions
mkdir -p "$results"

flips() { sed -n 's/^\([0-9][0-9.]*\) build$/\1/p' "$list"; }
tags() { sed -n 's/^\([0-9][0-9.]*\).*/\1/p' "$list"; }

# What the answer about hooks depends on, apart from the tree.
ours() {
	(cd "$TOP" && cat scripts/{base,seam,upstream,bindings}.sh tests/scripts/hooks.sh tests/parts/trees.sh \
		src/uvm_rust/kernel/build/kbuild.sh && { spatch --version 2>&1 || :; } &&
		find src/nvidia-uvm-c/hooks src/nvidia-uvm-c/bases include/uapi -type f | sort | xargs cat) | sha256sum | cut -c1-12
}

# git of the tags: a copy on this machine as it is, and another repository's in the cache.
fetched() {
	local copy=${repository#file://} git=$CACHE/release-tags.git tag there missing=()
	if [ -d "$copy" ]; then
		git -C "$copy" rev-parse --absolute-git-dir
		return
	fi
	have git || die "git is missing: run 'make deps'"
	[ -d "$git" ] || git init -q --bare "$git"
	for tag in $(tags); do
		git --git-dir="$git" rev-parse -q --verify "refs/tags/$tag" >/dev/null || missing+=("refs/tags/$tag")
	done
	if [ ${#missing[@]} -gt 0 ]; then
		there=$(git ls-remote --tags "$repository") ||
			die "$repository gives no releases: where it cannot be reached, name a copy of it in UVM_GIT"
		# One that is not there would have git fetch none; hooks_of says so of it alone.
		mapfile -t missing < <(printf '%s\n' "${missing[@]}" | grep -Fxf <(cut -f2 <<<"$there") | sed 's/.*/&:&/')
	fi
	if [ ${#missing[@]} -gt 0 ]; then
		say "fetching ${#missing[@]} releases of NVIDIA's"
		git --git-dir="$git" fetch -q --depth 1 "$repository" "${missing[@]}" || die "git fetch $repository failed"
	fi
	echo "$git"
}

# unpacked GIT TAG DIR: what nvidia-uvm is built from, into DIR.
unpacked() { git --git-dir="$1" archive "$2" kernel-open | tar -C "$3" -x; }

# sum_of GIT TAG: git's sum of what the hooks look at; nothing if there is no such tag.
sum_of() { git --git-dir="$1" rev-parse -q --verify "$2:kernel-open/nvidia-uvm" 2>/dev/null; }

# hooks_of GIT TAG: "fits", "unknown WHY" or "misses WHY".
hooks_of() {
	local sum known dir said
	sum=$(sum_of "$1" "$2") || { echo "misses: no such tag in $repository"; return; }
	known=$results/hooks-$(ours)-$sum
	if [ ! -e "$known" ]; then
		dir=$(mktemp -d)
		unpacked "$1" "$2" "$dir"
		said=$(UVM_SRC=$dir "$hooks_sh" 2>&1)
		case $said in
		*'# SKIP '*) sed -n 's/^ok .*# SKIP /unknown: /p' <<<"$said" ;;
		*$'\nnot ok'* | 'not ok'*) sed -n 's/^# \(error: \)*/misses: /p' <<<"$said" | tail -n 1 ;;
		'ok 1 - '*) echo fits ;;
		*) echo "misses: $(tail -n 1 <<<"$said")" ;;
		esac >"$known.new"
		rm -rf "$dir"
		# A miss may be this machine's, such as a tool that is not installed.
		if grep -q '^misses' "$known.new"; then
			cat "$known.new"
			rm "$known.new"
			return
		fi
		mv "$known.new" "$known"
	fi
	cat "$known"
}

hooks() {
	local git tag said n=0 bad=0
	git=$(fetched) || exit
	rm -f "$results/hooks.new"
	for tag in $(tags); do
		n=$((n + 1))
		said=$(hooks_of "$git" "$tag")
		echo "$tag $said" >>"$results/hooks.new"
		case $said in
		fits) echo "ok $n - the hooks fit $tag" ;;
		unknown:*) echo "ok $n - the hooks fit $tag # SKIP ${said#unknown: }" ;;
		*) echo "not ok $n - the hooks fit $tag" && echo "# ${said#misses: }" && bad=1 ;;
		esac
	done
	mv "$results/hooks.new" "$results/hooks"
	echo "1..$n"
	[ "$bad" = 0 ]
}

# warnings LOG: of compiler, objtool and modpost, without what differs between builds that say the same: a va_block of ours
# is 16 bytes longer, and a test of NVIDIA's has one in its frame, which is too large. modpost names ten missing symbols
# and counts the rest; tests/parts/tag.sh looks for all.
warnings() {
	local tool
	for tool in compiler objtool modpost; do said_by "$tool" "$1"; done | nameless |
		sed -E 's/(frame size of) [0-9]+ /\1 /; /modpost: suppressed [0-9]+ unresolved symbol warnings/d' | sort -u
}

# note TAG LOG [NVIDIA'S]: see above.
note() {
	local newly
	if [ "$2" = - ]; then
		echo false - >"$results/built-$1"
		return
	fi
	newly=$(comm -13 <(warnings "${3:-/dev/null}") <(warnings "$2"))
	echo "true $(grep -c . <<<"$newly")" >"$results/built-$1"
	[ -n "$newly" ] || return 0
	head -n 8 <<<"$newly"
	# The compiler looks at a file once: another build would not say it again.
	rm -rf "${2%.log}"
	return 1
}

# table FILE: of what is noted; of what is not, nothing is said.
table() {
	local tag said fits built warnings rows=''
	printf '%-14s %-8s %-8s %s\n' release hooks built warnings
	for tag in $(tags); do
		said=$(sed -n "s/^$tag //p" "$results/hooks" 2>/dev/null)
		case $said in fits) fits=true ;; '') fits=null ;; *) fits=false ;; esac
		built=null warnings=null
		[ ! -e "$results/built-$tag" ] || read -r built warnings <"$results/built-$tag"
		[ "$warnings" != - ] || warnings=null
		printf '%-14s %-8s %-8s %s\n' "$tag" "$(word "$fits" "$said")" "$(word "$built")" "${warnings/null/-}"
		rows+="${rows:+, }{\"tag\": \"$tag\", \"hooks\": $fits, \"built\": $built, \"warnings\": $warnings}"
	done
	mkdir -p "$(dirname "$1")"
	printf '{"tags": [%s]}\n' "$rows" >"$1"
}

# word TRUE|FALSE|NULL [SAID]: for the table.
word() {
	case $1:${2:-} in
	true:*) echo yes ;;
	false:unknown*) echo unknown ;;
	false:*) echo NO ;;
	*) echo - ;;
	esac
}

case ${1:-} in
source) fetched ;;
tree)
	git=$(fetched) || exit
	dir=$CACHE/release-$2-$(sum_of "$git" "$2" | cut -c1-8)
	if [ ! -e "$dir/.unpacked" ]; then
		rm -rf "$dir"
		mkdir -p "$dir"
		unpacked "$git" "$2" "$dir" || die "$repository has no release $2"
		touch "$dir/.unpacked"
	fi
	echo "$dir/kernel-open"
	;;
hooks) hooks ;;
flips) flips ;;
note) note "$2" "$3" "${4:-}" ;;
table) table "${2:-$TOP/out/versions.json}" ;;
*) die "versions.sh: use source, tree, hooks, flips, note or table" ;;
esac
