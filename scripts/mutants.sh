#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Does a test notice when the driver lacks one thing? One module holds all mutants of tests/mutants/table, each
# behind a number. A VM runs the tests that the table names for each, until one of them fails (mutants-guest.sh).
#
#   mutants.sh [NAME...]     these mutants, or all
#   mutants.sh list          their names
#   mutants.sh report        what came out so far
#   mutants.sh apply DIR     puts all of them into the sources in DIR (for driver.sh)
#
# Each runs in ORDERS ("adversarial kind"; docs/vgpu.md). "none" is the module with no mutant, in which no test may
# fail. Results are kept in out/mutants.json, those of earlier runs too, until FRESH=1. Fails if fewer
# than 95 of 100 are noticed in adversarial order. LANES of VMs run beside each other (2). VGPU_SEED is the order's (1).
#
# A mutant is noticed where a test fails, where the guest dies, or where it does not end; its log is in out/mutants.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
table=$TOP/tests/mutants/table
out=$TOP/out/mutants

# What the table names: a program, and for how many seconds it may say nothing.
declare -A program=(
	[contend]="target/release/contend --rounds 2"
	[random]="target/release/random --ops 300 --seed 7 --no-read-duplication"
	[ladder]="target/release/ladder"
	[drain]="target/release/ladder --only DRAIN"
	[fatal]="target/release/hazards --only fatal"
	[hmm]="target/release/hazards --only 'migrate:'"
	[loops]="target/release/loops --storms 30 --seed 7 --record /dev/null"
	[storms]="target/release/storms --times 3"
	[discard]="target/release/discard"
)
declare -A limit=([contend]=400 [random]=60 [ladder]=300 [drain]=150 [fatal]=150 [hmm]=200 [loops]=200 [storms]=300 [discard]=200)

names() { sed -n 's/^\([a-z_0-9]\+\) *|.*/\1/p' "$table" | awk '!seen[$0]++'; }
# number NAME: by which the module knows it; 0 is none.
number() { names | grep -nx "$1" | cut -d: -f1 | grep . || echo 0; }
# result NAME ORDER: who noticed ("-": nobody) and how, with a tab between; nothing if it has not run.
result() { if [ -e "$out/$1.$2.result" ]; then cut -f3- "$out/$1.$2.result"; fi; }
# What is between blanks ends a field: "||" and "|=" do not.
fields() { sed 's/ \+| \+/\t/g; s/\bM\b/@M@/g'; }

# apply DIR: the table's lines, one after the other. Each must find its place.
apply() {
	local dir=$1 work n line name file function from to metas
	have spatch || die "spatch is missing (Debian package coccinelle): run 'make deps'"
	work=$(mktemp -d)
	# spatch cannot read these, which only spare the clearing of a variable.
	find "$dir/uvm-rust/nvidia-uvm-c" -name '*.[ch]' -exec sed -i 's/ __uninitialized//g' {} +
	while IFS= read -r line; do
		[[ $line =~ ^[a-z] ]] || continue
		IFS=$'\t' read -r name file function from to _ < <(fields <<<"$line")
		n=$(number "$name")
		metas=$(grep -oE '\b[A-G]\b' <<<"$from" | sort -u | paste -sd, || :)
		{
			printf '@@\n%s%s@@\n%s(...)\n{\n<...\n' "${metas:+expression $metas;
}" "$(! grep -qw L <<<"$from" || printf 'expression list L;\n ')" "$function"
			printf -- '- %s\n+ %s\n...>\n}\n' "$from" "${to//@M@/uvm_mutant_is($n)}"
		} >"$work/$name.cocci"
		spatch --max-width 160 --no-includes --very-quiet --sp-file "$work/$name.cocci" "$dir/$file" -o "$work/out" \
			>"$work/log" 2>&1 || { cat "$work/log" >&2; die "spatch failed on mutant $name"; }
		! cmp -s "$work/out" "$dir/$file" || { cat "$work/$name.cocci" >&2; die "mutant $name finds no place in $function of $file"; }
		cp "$work/out" "$dir/$file"
	done <"$table"
	# Not by a flag, with which NVIDIA's conftests come to nothing.
	sed -n 's/^[a-z][^|]*| *\([^ ]*\) *|.*/\1/p' "$table" | sort -u | while read -r file; do
		sed -i '1i extern unsigned int uvm_rust_mutant;\n#define uvm_mutant_is(n) (uvm_rust_mutant == (n))' "$dir/$file"
	done
	printf '%s\n' 'unsigned int uvm_rust_mutant;' 'module_param(uvm_rust_mutant, uint, 0444);' \
		>>"$dir/uvm-rust/nvidia-uvm-c/base/uvm_rust_params.c"
	rm -rf "$work"
}

# tests_of NAME: of the first line of the table with that name; "none" has all.
tests_of() {
	if [ "$1" = none ]; then sed -n 's/^[a-z].*| *//p' "$table" | tr ' ' '\n' | awk '!seen[$0]++' | paste -sd' '; return; fi
	sed -n "s/^$1 *|.*| *//p" "$table" | head -n 1
}

# to_do ORDER LANE: lines of the plan (mutants-guest.sh) for each mutant that has no result yet, but for tests that passed. First
# come the first tests of all.
to_do() {
	local name n order=$1 turn test left
	for ((turn = 0; turn < ${#program[@]}; turn++)); do
		for name in "${wanted[@]}"; do
			n=${numbers[$name]}
			if [ $((n % ${LANES:-2})) != "$2" ] || [ -e "$out/$name.$order.result" ]; then continue; fi
			left=()
			for test in ${tests[$name]}; do [ -e "$out/$name.$order.$test.passed" ] || left+=("$test"); done
			test=${left[turn]:-}
			[ -n "$test" ] || continue
			printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$n" "$order" "$test" "${limit[$test]}" "${program[$test]}"
		done
	done
}

# notice NAME ORDER TEST HOW: what came of a mutant.
notice() {
	printf '%s\t%s\t%s\t%s\n' "$@" >"$out/$1.$2.result"
	say "$(printf '%-17s %-12s %s' "$1" "$2" "${3/#-/nobody}: $4")"
}

# survivors: those whose tests have all passed.
survivors() {
	local name order test
	for order in ${ORDERS:-adversarial kind}; do
		for name in "${wanted[@]}"; do
			[ ! -e "$out/$name.$order.result" ] || continue
			for test in ${tests[$name]}; do [ -e "$out/$name.$order.$test.passed" ] || continue 2; done
			notice "$name" "$order" - passed
		done
	done
}

# boot PLAN ORDER: a VM for a plan, until the guest ends it, or nothing has been heard of it for too long.
boot() {
	local plan=$1 order=$2 vm name test limit used rest since=$SECONDS before=
	rm -f "$plan.none"
	: >"$plan.now"
	DRIVER=rust NOLOAD=1 VIDMEM=64M VM_MEM=3G VM_CPUS=${VM_CPUS:-1} VM_UNLOAD="" VGPU_ORDER=$order VGPU_SEED=${VGPU_SEED:-1} UVM_BUILT=$out/built \
		VM_TIMEOUT=36000 scripts/vm.sh "bash scripts/mutants-guest.sh $plan" >>"$plan.log" 2>&1 </dev/null &
	vm=$!
	while kill -0 "$vm" 2>/dev/null; do
		sleep 1
		rest=$(cat "$plan.now" 2>/dev/null) || break
		IFS=$'\t' read -r name order test limit used <<<"$rest" || :
		rest+=$(stat -c %s "$out/$name.$order.$test.log" 2>/dev/null || :)
		[ "$rest" = "$before" ] || since=$SECONDS
		before=$rest
		# Loading, and a short program before, may take two minutes more.
		if [ $((SECONDS - since)) -gt $((${limit:-120} + 240)) ]; then
			kill_tree "$vm"
			break
		fi
	done
	wait "$vm" || :
	[ ! -e "$plan.none" ] || { tail -n 3 "$plan.log" >&2; die "a program of the table runs no test"; }
	# Then the guest says itself what came of it.
	[ -s "$plan.now" ] || return 0
	IFS=$'\t' read -r name order test limit used <"$plan.now"
	# Another's damage, perhaps: a fresh VM tries it again.
	[ "$used" = 0 ] || return 0
	notice "$name" "$order" "$test" "$([ $((SECONDS - since)) -gt "$limit" ] && echo "no end" || echo "the guest died")"
}

# lane N: of the wanted mutants, each LANES'th, in one VM after the other.
lane() {
	local n=$1 plan=$out/lane.$1 order before tries
	for order in ${ORDERS:-adversarial kind}; do
		before=
		while :; do
			to_do "$order" "$n" >"$plan"
			[ -s "$plan" ] || break
			[ "$(cat "$plan")" = "$before" ] || tries=0
			before=$(cat "$plan")
			[ $((tries++)) -lt 3 ] || { tail -n 30 "$plan.log" >&2; die "VMs come to nothing; see $plan.log"; }
			boot "$plan" "$order"
			survivors
		done
	done
}

# where NAME: the functions that it is in.
where() { sed -n "s/^$1 *| *\([^ ]*\) *| *\([^ ]*\) *|.*/\1: \2/p" "$table" | paste -sd' '; }

# report: the table, and out/mutants.json.
report() {
	local name order by seen of=0 noticed=0 field
	printf '\n%-17s %-44s %s\n' mutant kind adversarial
	{
		printf '{"mutants": ['
		for name in $(names); do
			printf '%s\n{"name": "%s", "where": "%s"' "${field:+,}" "$name" "$(where "$name")"
			field=1
			for order in kind adversarial; do
				if IFS=$'\t' read -r by seen < <(result "$name" $order); then
					printf ', "%s": %s, "%s_by": "%s"' "$order" "$([ "$by" != - ] && echo true || echo false)" "$order" \
						"$(sed "s/[^-a-zA-Z0-9 :;,.()_/]//g" <<<"$by: $seen")"
				else
					printf ', "%s": null' "$order"
				fi
			done
			printf '}'
		done
		printf '\n]}\n'
	} >out/mutants.json
	for name in $(names); do
		local cells=()
		for order in kind adversarial; do
			IFS=$'\t' read -r by seen < <(result "$name" $order) || by=
			case $by in
			'') cells+=("not run") ;;
			-) cells+=("NOT NOTICED") ;;
			*) cells+=("$(cut -c1-43 <<<"$by: $seen")") ;;
			esac
		done
		# Of the last order.
		[ -z "$by" ] || of=$((of + 1))
		case $by in '' | -) ;; *) noticed=$((noticed + 1)) ;; esac
		[ "${cells[*]}" = 'not run not run' ] || printf '%-17s %-44s %s\n' "$name" "${cells[0]}" "${cells[1]}"
	done
	# Who is noticed ends earlier than who survives: while some are open, the others are no sample.
	echo "noticed in adversarial order: $noticed of $of; not run to their end: $(($(names | wc -l) - of))"
	[ $((noticed * 100)) -ge $((of * 95)) ]
}

case ${1:-} in
list) names; exit ;;
apply) apply "${2:?a folder}"; exit ;;
report) report; exit ;;
esac
wanted=("$@")
[ $# -gt 0 ] || mapfile -t wanted < <(names; echo none)
for name in "${wanted[@]}"; do
	[ "$name" = none ] || names | grep -qx "$name" || die "no mutant is called $name: see 'mutants.sh list'"
done
[ -z "${FRESH:-}" ] || rm -rf "$out"
mkdir -p "$out"
# What is done to the sources, without which tests are to notice.
done_to=$(sed 's/|[^|]*$//' "$table" | sha256sum)
if ! UVM_BUILT=$out/built just_built || [ "$(cat "$out/built.table" 2>/dev/null)" != "$done_to" ]; then
	UVM_BUILT=$out/built list_built mutants vgpu
	sed -i 's/^mutants /rust /' "$out/built"
	touch "$out/built"
	echo "$done_to" >"$out/built.table"
fi
cargo build --release --quiet -p uvm-suite
# A VM that is ended from outside has noticed nothing.
declare -A numbers tests
for name in "${wanted[@]}"; do
	numbers[$name]=$(number "$name")
	tests[$name]=$(tests_of "$name")
done
lanes=()
end_lanes() {
	local l
	for l in "${lanes[@]}"; do kill_tree "$l"; done
	exit 1
}
trap end_lanes INT TERM
for ((i = 0; i < ${LANES:-2}; i++)); do
	: >"$out/lane.$i.log"
	lane "$i" &
	lanes+=($!)
done
for l in "${lanes[@]}"; do
	wait "$l" || end_lanes
done
for order in kind adversarial; do
	case $(result none $order) in '' | *passed) ;; *) die "a test fails in $order order with no mutant: $(result none $order)" ;; esac
done
report
