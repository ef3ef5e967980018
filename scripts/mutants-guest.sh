#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM that mutants.sh boots: programs with mutants, one after the other, until the plan is done or the
# machine is no longer to be trusted.
#   mutants-guest.sh PLAN      lines "NAME<tab>NUMBER<tab>ORDER<tab>TEST<tab>LIMIT<tab>COMMAND"
#
# A mutant's tests end with the first that fails. The log of each goes beside the plan, as do NAME.ORDER.result of a mutant
# that was noticed, and NAME.ORDER.TEST.passed. PLAN.now names the test that runs, if one does. It is gone once the plan is
# done, or the VM is to be booted anew. A kernel of the GPU's may take 20 s, so that a GPU that waits for ever fails a test.
#
# After a mutant that was noticed, the modules are loaded anew, and a short program has to pass with no mutant. What might
# come of damage that the mutant before has done to the kernel is not counted; a fresh VM tries it.
set -u
plan=$1
out=$(dirname "$plan")
now=$plan.now
with=$UVM_ARGS
# Has a mutant been noticed since this VM booted?
used=

# anew: nothing more is done here.
anew() {
	echo "boot anew: $*"
	rm -f "$now"
	# Whatever still runs or spins need not end.
	sync
	echo b >/proc/sysrq-trigger
	sleep 60
}

# for_seconds N COMMAND...: its exit status, or 124 if it does not end in time. It may be one that no signal ends.
for_seconds() {
	local pid end=$((SECONDS + $1))
	shift
	"$@" &
	pid=$!
	while [ -e "/proc/$pid" ] && [ $SECONDS -lt $end ]; do sleep 0.3; done
	[ ! -e "/proc/$pid" ] || return 124
	wait "$pid"
}

# load NUMBER: the modules, with that mutant; 0 is none.
load() {
	UVM_ARGS="$with uvm_rust_mutant=$1" for_seconds 120 bash "$TOP/scripts/vm-load.sh" || anew "the modules do not load"
}
unload() { for_seconds 120 bash "$TOP/scripts/vm-load.sh" unload; }

# outcome STATUS LOG: "passed", or how it was noticed.
outcome() {
	if grep -q '^not ok' "$2"; then grep -m 1 '^not ok' "$2" | sed 's/^not ok [0-9]* - //; s/ # .*//' | cut -c1-70
	elif [ "$1" = 124 ]; then echo "no end"
	elif [ "$1" != 0 ]; then echo "exit status $1"
	else echo passed
	fi
}

# run LIMIT LOG COMMAND: until it ends, says that a test failed, or says nothing for so many seconds (124). What has failed
# needs no end.
run() {
	local pid end status=124 sure='' said=-1 text
	: >"$2"
	VGPU_PATIENCE=20 setsid bash -c "exec $3" >"$2" 2>&1 </dev/null &
	pid=$!
	while :; do
		if [ ! -e "/proc/$pid" ]; then
			status=0
			wait "$pid" || status=$?
			return $status
		fi
		# Why it failed is printed after that it did.
		[ -z "$sure" ] || break
		text=$(<"$2")
		[ ${#text} = "$said" ] || end=$((SECONDS + $1)) said=${#text}
		[ $SECONDS -lt $end ] || break
		[[ $'\n'$text != *$'\nnot ok '* ]] || sure=1
		sleep 1
	done
	kill -KILL -- "-$pid"
	for_seconds 60 bash -c "while [ -e /proc/$pid ]; do sleep 0.3; done" || stuck=1
	return $status
}

# in_doubt LOG: could the last mutant have left what is seen here?
in_doubt() {
	case $2 in "exit status"*) return 0 ;; esac
	grep -qE '^#.*(BUG[ :]|Oops|general protection|WARNING:|page fault|soft lockup|stall)' "$1"
}

last=
while IFS=$'\t' read -r name number order test limit command; do
	[ ! -e "$out/$name.$order.result" ] || continue
	: >"$now"
	if [ "$name.$order" != "$last" ]; then
		[ ! -e /sys/module/nvidia_uvm ] || unload || anew "the modules do not go"
		if [ -n "$used" ]; then
			load 0
			run 120 "$plan.sound" "target/release/random --ops 40 --seed 7" || anew "a test fails with no mutant"
			unload || anew "the modules do not go"
		fi
		load "$number"
		last=$name.$order
	fi
	log=$out/$name.$order.$test.log status=0 stuck=
	began=$SECONDS
	printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$order" "$test" "$limit" "${used:-0}" >"$now"
	run "$limit" "$log" "$command" || status=$?
	if ! grep -q '^TAP version' "$log"; then
		# Not a test that failed, but none.
		touch "$plan.none"
		anew "$name $order $test: no test begins"
	fi
	seen=$(outcome $status "$log")
	if [ "$seen" = passed ]; then
		touch "$out/$name.$order.$test.passed"
		echo "$name $order $test: passed, $((SECONDS - began)) s"
		continue
	fi
	doubt=
	! in_doubt "$log" "$seen" || doubt=1
	[ -z "$doubt" ] || [ -z "$used" ] || anew "$name $order $test: $seen; not sure whose that is"
	echo "$name $order $test: $seen, $((SECONDS - began)) s"
	printf '%s\t%s\t%s\t%s\n' "$name" "$order" "$test" "$seen" >"$out/$name.$order.result"
	used=1
	[ "$seen" != "no end" ] || stuck=1
	[ -z "$doubt$stuck" ] || anew "after $name"
done <"$plan"
rm -f "$now"
