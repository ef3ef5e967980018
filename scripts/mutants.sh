#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Does a test notice when the driver lacks one thing? One module holds all mutants of tests/mutants/table, each
# behind a number, and a VM is booted for each with the tests that the table names, until one of them fails.
#
#   mutants.sh [NAME...]     these mutants, or all
#   mutants.sh list          their names
#   mutants.sh report        what came out so far
#   mutants.sh apply DIR     puts all of them into the sources in DIR (for driver.sh)
#
# Each runs in ORDERS ("kind adversarial"; docs/vgpu.md). "none" is the module with no mutant, in which no test may
# fail. Results are kept in out/mutants.json, those of earlier runs too, until FRESH=1. Fails if fewer
# than 95 of 100 are noticed in adversarial order. LANES of VMs run beside each other (2). VGPU_SEED is the order's (1).
#
# A mutant is noticed where a test fails, where the guest dies, or where it does not end; its log is in out/mutants.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
table=$TOP/tests/mutants/table
out=$TOP/out/mutants

# What the table names: a program, how long it may take, and what else the VM is to be.
declare -A program=(
	[contend]="target/release/contend --rounds 2"
	[random]="target/release/random --ops 800 --seed 7 --no-read-duplication"
	[ladder]="target/release/ladder"
	[fatal]="target/release/hazards --only fatal"
	[hmm]="target/release/hazards --only 'migrate:'"
	[loops]="target/release/loops --storms 30 --seed 7"
	[storms]="target/release/storms --times 3"
	[discard]="target/release/discard"
)
declare -A limit=([contend]=600 [random]=500 [ladder]=1200 [fatal]=300 [hmm]=500 [loops]=400 [storms]=600 [discard]=600)

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

# tests_of NAME: of the first line of the table with that name.
tests_of() {
	if [ "$1" = none ]; then echo "${!program[@]}"; return; fi
	sed -n "s/^$1 *|.*| *//p" "$table" | head -n 1
}

# outcome RC LOG: of one program; "passed", or how it was noticed.
outcome() {
	if ! grep -q '^TAP version' "$2"; then echo "did not begin"
	elif [ "$1" = 124 ]; then echo "no end"
	elif [ "$1" = 255 ]; then echo "the guest died"
	elif grep -q '^not ok' "$2"; then grep -m 1 '^not ok' "$2" | sed 's/^not ok [0-9]* - //; s/ # .*//' | cut -c1-70
	elif [ "$1" != 0 ]; then echo "exit status $1"
	else echo passed
	fi
}

# try NAME ORDER: its tests, until one notices; a line of what came out, in a file.
try() {
	local name=$1 order=$2 test n log rc seen=passed by=
	n=$(number "$name")
	for test in $(tests_of "$name"); do
		log=$out/$name.$order.$test.log
		rc=0
		DRIVER=rust VIDMEM=64M VM_MEM=3G VM_UNLOAD="" VGPU_ORDER=$order VGPU_SEED=${VGPU_SEED:-1} UVM_BUILT=$out/built \
			VM_TIMEOUT=${limit[$test]} UVM_PARAMS="uvm_rust_mutant=$n" scripts/vm.sh "${program[$test]}" >"$log" 2>&1 </dev/null || rc=$?
		seen=$(outcome "$rc" "$log")
		by=$test
		[ "$seen" = passed ] || break
	done
	[ "$seen" != passed ] || by=-
	printf '%s\t%s\t%s\t%s\n' "$name" "$order" "$by" "$seen" >"$out/$name.$order.result"
	say "$(printf '%-17s %-12s %s' "$name" "$order" "${by/#-/nobody}: $seen")"
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
	echo "noticed in adversarial order: $noticed of $of"
	[ $((noticed * 100)) -ge $((of * 95)) ]
}

case ${1:-} in
list) names; exit ;;
apply) apply "${2:?a folder}"; exit ;;
report) report; exit ;;
esac
wanted=("$@")
[ $# -gt 0 ] || mapfile -t wanted < <(echo none; names)
for name in "${wanted[@]}"; do
	[ "$name" = none ] || names | grep -qx "$name" || die "no mutant is called $name: see 'mutants.sh list'"
done
[ -z "${FRESH:-}" ] || rm -rf "$out"
mkdir -p "$out"
UVM_BUILT=$out/built list_built mutants vgpu
sed -i 's/^mutants /rust /' "$out/built"
touch "$out/built"
cargo build --release --quiet -p uvm-suite
# A VM that is ended from outside has noticed nothing.
trap 'trap - TERM; kill 0' INT TERM
running=0
for name in "${wanted[@]}"; do
	for order in ${ORDERS:-kind adversarial}; do
		[ ! -e "$out/$name.$order.result" ] || continue
		try "$name" "$order" &
		running=$((running + 1))
		if [ $running -ge "${LANES:-2}" ]; then
			wait -n || :
			running=$((running - 1))
		fi
	done
done
wait
for order in kind adversarial; do
	case $(result none $order) in '' | *passed) ;; *) die "a test fails in $order order with no mutant: $(result none $order)" ;; esac
done
report
