# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by test.sh and by its own test: what the log of a part says.
# shellcheck shell=bash

# The skips that are known, and what each waits for. A skip that is not listed fails its
# part, and so does a line whose test no longer skips: the list can only shrink unseen.
SKIPS=${SKIPS:-$TOP/tests/skips}

# tally PART STATUS LOG: sets p, f and s to how many tests of the log passed, failed and
# were skipped, and prints what is wrong with the log beyond tests that failed.
tally() {
	local part=$1 status=$2 log=$3 plan said
	p=0 f=0 s=0
	if grep -q '^test result: ' "$log"; then
		read -r p f s < <(awk '/^test result: / {
			for (i = 1; i < NF; i++) {
				if ($(i + 1) ~ /^passed/) p += $i
				if ($(i + 1) ~ /^failed/) f += $i
				if ($(i + 1) ~ /^ignored/) s += $i
			} } END { print p + 0, f + 0, s + 0 }' "$log")
		# What tests/skipped.rs says: cargo takes such a test for one that passed.
		said=$(grep -cE '^skipped: .* # ' "$log" || :)
		p=$((p - said)) s=$((s + said))
	elif grep -qE '^((not )?ok |1\.\.[0-9])' "$log"; then
		s=$(grep -cE '^ok .*# SKIP' "$log" || :)
		p=$(($(grep -cE '^ok ' "$log" || :) - s))
		f=$(grep -cE '^not ok ' "$log" || :)
		said=$((p + f + s))
		plan=$(awk -F'\\.\\.' '/^1\.\.[0-9]+/ { split($2, n, " "); sum += n[1] } END { print sum + 0 }' "$log")
		if [ "$plan" != "$said" ]; then
			f=$((f + 1))
			echo "not ok $part: $said tests reported, but $plan planned"
		fi
		# A program that planned nothing ran nothing.
		s=$((s + $(grep -cE '^1\.\.0( |$)' "$log" || :)))
		grep -E '^not ok ' "$log" | sed "s|^|$part: |" || :
	elif [ "$status" = 0 ]; then
		p=1
	fi
	if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
	judge_skips "$part" "$log"
}

# skips_in LOG: "NAME # REASON" of what was skipped, one a line: of tests in TAP as they
# are, of cargo's that are ignored or say so themselves (tests/skipped.rs), and "(a whole program)" for a plan of no tests.
skips_in() {
	sed -nE -e 's/^ok [0-9]+ (- )?(.*[^ ])? *# SKIP *(.*)$/\2 # \3/p' \
		-e 's/^1\.\.0( # SKIP *)?(.*)$/(a whole program) # \2/p' \
		-e 's/^test (.*) \.\.\. ignored(, *)?(.*)$/\1 # \3/p' -e 's/^skipped: (.* # .*)$/\1/p' "$1"
}

# holds CONDITIONS: does the list's "VAR=VALUE,VAR!=VALUE" hold, of the options of make test and of
# LENGTH, which how_much sets? An option that is not set is as make help says.
holds() {
	# BASE is asked for by name, as the others are.
	# shellcheck disable=SC2034
	local condition value GPU=${GPU:-turing} GPUS=${GPUS:-1} KERNEL=${KERNEL:-release} BASE=${UVM_VERSION:-550}
	local IFS=,
	for condition in $1; do
		value=${condition%%=*} value=${value%!}
		value=${!value:-}
		case $condition in
		*!=*) [ "$value" != "${condition#*=}" ] || return 1 ;;
		*) [ "$value" = "${condition#*=}" ] || return 1 ;;
		esac
	done
}

# is_known SKIP PATTERN: the list's pattern is of the name, or with "# " before it of the
# reason.
is_known() {
	local text=${1% # *}
	case $2 in '# '*) text="# ${1##* # }" ;; esac
	# shellcheck disable=SC2053
	[[ $text == $2 ]]
}

# known_skips PART: lines "MUST TIMES NAME" or "MAY 0 NAME" of the list that are about a
# part, and whose condition holds.
known_skips() {
	local must pattern name times
	while read -r pattern name; do
		case $pattern in '' | '#'*) continue ;; esac
		must=MUST times=1
		case $pattern in '?'*) must=MAY times=0 pattern=${pattern#?} ;; esac
		case $pattern in *:*)
			holds "${pattern%%:*}" || continue
			pattern=${pattern#*:}
			;;
		esac
		if [[ $name =~ ^([0-9]+)x\ (.*)$ ]]; then
			times=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
		fi
		# shellcheck disable=SC2053
		if [[ $1 == $pattern ]]; then printf '%s %s %s\n' "$must" "$times" "$name"; fi
	done <"$SKIPS"
}

# judge_skips PART LOG: adds to f what is skipped and not known, and what is known and was
# not skipped (unless the part failed anyhow, and may not have come so far).
judge_skips() {
	local part=$1 log=$2 name must times known=() i found seen=()
	mapfile -t known < <(known_skips "$part")
	while IFS= read -r name; do
		found=''
		for i in "${!known[@]}"; do
			if is_known "$name" "${known[i]#* * }"; then found=1 seen[i]=$((${seen[i]:-0} + 1)); fi
		done
		name=${name% # *}
		if [ -z "$found" ]; then
			f=$((f + 1))
			echo "not ok $part: skipped, but not on the list tests/skips: $name"
		fi
	done < <(skips_in "$log")
	[ "$f" = 0 ] || return 0
	for i in "${!known[@]}"; do
		read -r must times name <<<"${known[i]}"
		if [ "$must" = MUST ] && [ "${seen[i]:-0}" != "$times" ]; then
			f=$((f + 1))
			echo "not ok $part: on the list tests/skips, but not skipped any more (${seen[i]:-0} of $times): $name"
		fi
	done
}

# channel_sanity_died LOG: does the kernel's log LOG end in upstream's use after free around
# UVM_TEST_CHANNEL_SANITY (docs/vgpu.md)? That is an oops, or a report of KASAN, whose
# instruction or one of whose callers is a tracker's. What NVIDIA's test itself prints, asserts
# with a stack among it, is neither; nor is a tracker that waits for ever, as it may when the
# freed memory is another channel's by now: a GPU that does nothing more looks alike. Under
# KASAN such memory is not given out again, so that there is a report.
channel_sanity_died() {
	awk '
		# The place and the callers of an oops, to its end or the head of another report.
		/WARNING: |INFO: |Assert failed|======/ { crash = 0 }
		/BUG: |Oops: |general protection fault/ { crash = 1 }
		/---\[ end trace/ { crash = 0 }
		crash && /(RIP: [0-9]+:|BUG: KASAN: .* in |^[^?]*\] +)(uvm_tracker_|uvm_gpu_tracking_semaphore_)/ { found = 1 }
		END { exit !found }' "$1"
}
