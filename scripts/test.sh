#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Run test parts and add them up. The last line is
#
#   N passed, N failed, N skipped
#
# and the exit status is 0 only if nothing failed and every part ran to its end.
#
#   test.sh host|vm|kselftest|flash|extra|debug|versions|all
#                     ONLY=REGEX: only parts of that name; LANES=N: so many VMs at a time
#                     FRESH=1: run in the VM what has passed before, too
#   test.sh list [host|vm|...|all]
#                     names their parts, those that ONLY wants, and runs nothing
#   test.sh demo-ran LOG
#                     what `make demo` printed as it passed, for the lane of that name
#
# What passed in a VM is remembered in the cache by all that went into it (test-inputs.sh),
# as Go's tests are: unchanged, it is not booted again, its log is shown, and the output
# says so. Parts on the host always run.
#
# Each part writes out/test/PART.log. A part in TAP counts its test lines and
# must keep to its plan; cargo's counts are taken from its own summaries. What is
# skipped must be on the list tests/skips.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/scripts/test-count.sh"
. "$TOP/scripts/test-inputs.sh"
cd "$TOP"
what=${1:-all}
out=$TOP/out/test
mkdir -p "$out" "$CACHE/passed"
find "$CACHE/passed" -type f -mtime +30 -delete

passed=0 failed=0 skipped=0
failures=()
digest='' # what failed, in its own words; printed again at the end
declare -A running=()
# Every VM ends by unloading the modules, which report what is left.
export VM_UNLOAD=1
# Where this run has built the modules (test-parts.sh): vm.sh need not have it looked up.
export UVM_BUILT=$out/built
case $what in demo-ran | list) ;; *) rm -f "$UVM_BUILT" ;; esac
LANES=${LANES:-$((JOBS > 1 ? 2 : 1))}

# count PART STATUS: add up what the log of a part says.
count() {
	local part=$1 log=$out/$1.log p f s said
	said=$out/$1.said
	tally "$part" "$2" "$log" >"$said"
	cat "$said"
	# What the list of skips says against it belongs to its log.
	grep "^not ok $part: " "$said" >>"$log" || :
	rm -f "$said"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	if [ "$f" -gt 0 ]; then
		failures+=("$part")
		digest+=$(says_why "$part" "$log")$'\n'"again: $(again "$part" "$log")"$'\n'
		echo "--- the end of out/test/$part.log:"
		tail -n 30 "$log"
		echo "--- again: $(again "$part" "$log")"
		keep_log "$part" "$log"
	fi
	printf '%-34s %5d passed %3d failed %3d skipped\n' "$part" "$p" "$f" "$s"
}

# again PART LOG: the command that runs a part once more, with the options of this run and with the seed that
# the log names, if it names one. hazards prints the seed of its fuzzing, and takes none.
again() {
	local target=test seed
	case $what in host | extra | debug | versions) target=test-$what ;; esac
	printf "make %s ONLY='^%s$' FRESH=1%s" "$target" "$1" "$given"
	seed=$(sed -nE 's/^# seed ([0-9]+).*/\1/p' "$2" | sort -u)
	if [ -z "${SEED:-}" ] && [[ $1 != *hazards* && $seed =~ ^[0-9]+$ ]]; then printf ' SEED=%s' "$seed"; fi
	echo
}

# options: those of make that somebody has set.
options() {
	local option
	for option in $(make_options | grep -vxE 'ONLY|FRESH|LANES|JOBS|DEPS_REMOVE'); do
		[ -z "${!option:-}" ] || printf ' %s=%q' "${option/#UVM_VERSION/BASE}" "${!option}"
	done
}
# says_why PART LOG: the tests that failed, each with the first lines it said, or else
# the last lines of the log. Whoever sees only the end of a long run should see these.
says_why() {
	if grep -qE '^not ok ' "$2"; then
		awk -v part="$1" '/^not ok / { print part ": " $0; n = 12; next }
			/^ *#/ && n > 0 { print; n--; next } { n = 0 }' "$2" | head -n 40
	else
		printf '%s: the end of its log:\n' "$1"
		tail -n 12 "$2"
	fi | cut -c1-300
}

# keep_log PART LOG: in the cache too, as a checkout that only tests may be gone by the
# time somebody asks. The last twenty.
keep_log() {
	local old
	mkdir -p "$CACHE/failed"
	cp "$2" "$CACHE/failed/$(date +%Y%m%d-%H%M%S)-${1//\//-}.log"
	find "$CACHE/failed" -type f | sort -r | tail -n +21 | while read -r old; do rm -f "$old"; done
}

# part NAME COMMAND...: run it, showing the names of its tests as they pass by.
part() {
	local name=$1 status=0 t0=$SECONDS before=$failed
	shift
	wanted "$name" || return 0
	say "$name"
	"$@" >"$out/$name.log" 2>&1 &
	local pid=$!
	follow "$name" "$pid"
	wait "$pid" || status=$?
	count "$name" "$status"
	if [ "$name" = build/programs ]; then
		programs_are=broken
		[ "$failed" != "$before" ] || programs_are=built
	fi
	echo "  ($((SECONDS - t0)) s)"
}

# lane NAME COMMAND...: the same beside others, up to LANES at a time: a VM keeps
# about one core busy. What comes after must not need its outcome; `lanes_end`
# waits for all.
lane() {
	local name=$1
	shift
	wanted "$name" || return 0
	[ "${#running[@]}" -lt "$LANES" ] || lane_end
	local key memory
	key=$(key_of "$name" "$@")
	memory=$CACHE/passed/$key
	if [ -z "${FRESH:-}" ] && [ -e "$memory" ]; then
		say "$name"
		cp "$memory" "$out/$name.log"
		grep -E '^ *ok [0-9]' "$memory" | sed "s|^|  $name: |" || :
		count "$name" 0
		echo "  ($name: passed on $(date -r "$memory" '+%F %R'), nothing changed since; FRESH=1 runs it)"
		return 0
	fi
	# Not in a condition, in which bash would go on after a command of the build that fails.
	[ -n "$programs_are" ] || ONLY='' part build/programs build_programs
	if [ "$programs_are" = built ]; then start "$name" "$key" "$@"
	else echo "$name: not run, as its programs could not be built"
	fi
}

# What became of the programs that lanes run, which are built once in a run, also where ONLY leaves build/programs
# out: built, broken, or not known yet. A lane's passing is remembered by its sources, so the programs must be
# what these make.
programs_are=''

# key_of NAME COMMAND...: under which a lane's passing is remembered: for all that goes into it.
key_of() {
	printf '%s\n' "$(inputs "${@:2}")" "$(known_skips "$1")" "$@" | sha256sum | cut -c1-32
}

# remember NAME LOG COMMAND...: a lane's command ran elsewhere, with success, and printed LOG.
remember() {
	mkdir -p "$out/$(dirname "$1")"
	cp "$2" "$out/$1.log"
	count "$1" 0
	if [ "$failed" = 0 ] && grep -q '^ok ' "$2"; then cp "$2" "$CACHE/passed/$(key_of "$1" "${@:3}")"; fi
}

# beside NAME COMMAND...: a part that needs not both cores all the time, beside what follows.
# Nobody remembers that it passed.
beside() {
	wanted "$1" || return 0
	[ "${#running[@]}" -lt "$LANES" ] || lane_end
	start "$1" - "${@:2}"
}

# start NAME KEY COMMAND...: in the background; lane_end counts it.
start() {
	local name=$1 key=$2
	shift 2
	say "$name"
	"$@" >"$out/$name.log" 2>&1 &
	local pid=$!
	follow "$name" "$pid" "$name: " &
	running[$pid]="$SECONDS $! $key $name"
}

# lane_end: wait for one of the lanes, and count it.
lane_end() {
	local pid status=0 t0 follower key name before=$failed
	# Whoever ended while another was counted is not told of by `wait -n` any more (bash before 5.3).
	until ended_lane; do wait -n || :; done
	wait "$pid" || status=$?
	read -r t0 follower key name <<<"${running[$pid]}"
	unset "running[$pid]"
	wait "$follower" 2>/dev/null || :
	count "$name" "$status"
	echo "  ($name: $((SECONDS - t0)) s)"
	if [ "$failed" = "$before" ] && [ "$key" != - ]; then
		cp "$out/$name.log" "$CACHE/passed/$key"
	fi
}

# ended_lane: sets pid to one of the lanes that have ended, or fails.
ended_lane() {
	local alive
	alive=" $(jobs -pr | tr '\n' ' ')"
	for pid in "${!running[@]}"; do [[ $alive == *" $pid "* ]] || return 0; done
	return 1
}

lanes_end() { while [ ${#running[@]} -gt 0 ]; do lane_end; done; }

interrupted() {
	local job
	for job in $(jobs -p); do kill_tree "$job"; done
	exit 130
}
trap interrupted INT TERM

wanted() { is_named "$1" && mkdir -p "$(dirname "$out/$1.log")"; }

is_named() { [[ -z "${ONLY:-}" || $1 =~ $ONLY ]]; }

# follow NAME PID [PREFIX]: print the tests in a part's log until PID ends.
follow() {
	tail -n +1 -f --pid="$2" "$out/$1.log" 2>/dev/null |
		grep --line-buffered -E '^ *(not ok|ok) [0-9]' | sed -u "s|^|  ${3:-}|" || :
}

# skip NAME REASON: a part that cannot run here.
skip() {
	if ! grep -qxF 'MAY 0 (the part)' <(known_skips "$1"); then
		failed=$((failed + 1)) failures+=("$1")
		digest+="$1: skipped, but not on the list tests/skips: $2"$'\n'
	fi
	skipped=$((skipped + 1))
	printf '%-34s skipped: %s\n' "$1" "$2"
}

# only_list: from here on parts are named, and nothing runs. What cannot run here is a part, too.
only_list() {
	part() { ! is_named "$1" || echo "$1"; }
	lane() { part "$1"; }
	beside() { part "$1"; }
	skip() { part "$1"; }
}

# vm SETTINGS... -- COMMAND: in the VM, with settings such as DRIVER=upstream.
vm() {
	local settings=()
	while [ "$1" != -- ]; do settings+=("$1"); shift; done
	shift
	env "${settings[@]}" "$TOP/scripts/vm.sh" "$*"
}

. "$TOP/scripts/test-parts.sh"
# From before a part sets some for itself.
given=$(options)
listing=''
if [ "$what" = list ]; then
	listing=1 what=${2:-all}
	only_list
fi

case $what in
host) host_parts ;;
vm) vm_parts ;;
extra) extra_parts ;;
debug) debug_parts ;;
kselftest) part build/programs build_programs; selftest_parts ;;
flash) part build/programs build_programs; flash_parts ;;
versions) versions_parts; tags_parts ;;
all) host_parts; vm_parts ;;
demo-ran) demo_ran "${2:?the log}" ;;
*) die "test.sh: use host, vm, kselftest, flash, extra, debug, versions or all, or list" ;;
esac
[ -z "$listing" ] || exit 0
lanes_end
[ "$what" != versions ] || scripts/versions.sh table

if [ ${#failures[@]} -gt 0 ]; then
	printf '%s' "$digest"
	printf 'failed: %s\n' "${failures[*]}"
	echo "their logs are in out/test, and in $CACHE/failed"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
