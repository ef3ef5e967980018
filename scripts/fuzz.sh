#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Fuzz every parser of uvmsim and every policy of the driver, one after the other.
#
#   fuzz.sh [TARGET...]     all targets without a name; FUZZ_TIME seconds each (120)
#
# cargo-fuzz is pinned and kept in the cache; it needs rustup's nightly. Inputs
# found are kept in the cache too, so that a later run begins where this one
# ended. An input that breaks something is left in out/fuzz/TARGET, and how to run
# it again is printed.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

fuzz_version=0.13.1
time=${FUZZ_TIME:-120}

declare -A folder=(
	[trace]=sim/fuzz [g10_graph]=sim/fuzz [g10_times]=sim/fuzz [plan]=sim/fuzz [run]=sim/fuzz [units]=sim/fuzz
	[discard]=src/uvm_rust/policy/fuzz [evict]=src/uvm_rust/policy/fuzz
	[fault]=src/uvm_rust/policy/fuzz [flash]=src/uvm_rust/policy/fuzz [prefetch]=src/uvm_rust/policy/fuzz
)
order=(trace g10_graph g10_times plan run units discard evict fault flash prefetch)
targets=("$@")
[ $# -gt 0 ] || targets=("${order[@]}")
for t in "${targets[@]}"; do
	[ -n "${folder[$t]:-}" ] || die "no fuzz target is called $t; there are ${order[*]}"
done

have rustup || die "fuzzing needs rustup, for a nightly compiler"
if ! rustup run nightly rustc --version >/dev/null 2>&1; then
	progress "nightly Rust" "$CACHE/fuzz.log" rustup toolchain install nightly --profile minimal
fi
if [ "$("$CACHE/tools/bin/cargo-fuzz" --version 2>/dev/null)" != "cargo-fuzz $fuzz_version" ]; then
	progress "cargo-fuzz $fuzz_version" "$CACHE/fuzz.log" \
		cargo install --locked --force --root "$CACHE/tools" cargo-fuzz --version "$fuzz_version"
fi

bad=0
for t in "${targets[@]}"; do
	dir=$TOP/${folder[$t]}
	corpus=$CACHE/fuzz/$t
	artifacts=$TOP/out/fuzz/$t
	log=$TOP/out/fuzz/$t.log
	mkdir -p "$corpus" "$artifacts"
	seeds=()
	[ ! -d "$dir/seeds/$t" ] || seeds=("$dir/seeds/$t")
	(cd "$dir" && RUSTUP_TOOLCHAIN=nightly progress "building $t" "$log" cargo fuzz build --fuzz-dir . "$t")
	say "$t: fuzzing for $time s"
	if (cd "$dir" && RUSTUP_TOOLCHAIN=nightly cargo fuzz run --fuzz-dir . "$t" "$corpus" "${seeds[@]}" -- \
		-max_total_time="$time" -artifact_prefix="$artifacts/" -print_final_stats=1 -rss_limit_mb=4096 -timeout=300) >"$log" 2>&1; then
		awk '/number_of_executed_units/ { n = $2 } /cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") c = $(i + 1) }
			END { printf "    %d inputs, %d edges covered, nothing found\n", n, c }' "$log" >&2
	else
		bad=1
		grep -m 3 -E 'panicked|ERROR|SUMMARY' "$log" >&2 || tail -n 5 "$log" >&2
		echo "    found in $t: $(find "$artifacts" -type f -printf '%f ' | head -c 200)" >&2
		echo "    again: cd ${folder[$t]} && cargo +nightly fuzz run --fuzz-dir . $t $artifacts/INPUT (log: $log)" >&2
	fi
done
exit "$bad"
