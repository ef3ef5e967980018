#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The UvmDiscard paper's applications in the VM: UVM-opt, UvmDiscard and
# UvmDiscardLazy at every degree of oversubscription. A table, and
# out/workloads.json; fails unless all data are right and what must be exact is.
# A VM for each application; those that are in out/workloads already, from this
# very program, are not run again (AGAIN=1: all are).
#
# Environment: ONLY=TEXT (only applications of that name), AGAIN=1.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
out=out/workloads
mkdir -p "$out"

cargo build --release --quiet -p uvm-workloads
program=target/release/workloads
# What a result depends on: the program and both modules' sources.
key=$({ cat "$program"; find src tests/vgpu -type f -print0 | sort -z | xargs -0 cat; } | sha256sum | cut -c1-16)

files=() failed=0
for app in fir hash-join radix-sort vgg16 darknet19 darknet53 rnn; do
	[[ $app == *"${ONLY:-}"* ]] || continue
	file=$out/$app.jsonl
	files+=("$file")
	if [ -z "${AGAIN:-}" ] && [ "$(tail -n 1 "$file" 2>/dev/null)" = "# done $key" ]; then
		say "$app: done before, in $file"
		continue
	fi
	say "$app: in the VM"
	# Rounding to blocks makes Darknet-53, with many small layers, larger than it is.
	vidmem=420M
	[ $app != darknet53 ] || vidmem=620M
	if VIDMEM=${VIDMEM:-$vidmem} VM_MEM=${VM_MEM:-4G} VM_TIMEOUT=${VM_TIMEOUT:-3600} \
		scripts/vm.sh "$program --only $app" | tee "$file.new" | { grep --line-buffered '^# ' >&2 || :; }; then
		echo "# done $key" >>"$file.new"
	else
		failed=1
	fi
	mv "$file.new" "$file"
	grep '^not ok' -A 4 "$file" || :
done
[ ${#files[@]} != 0 ] || die "ONLY=$ONLY: no such application"
"$program" --report "${files[@]}" --out out/workloads.json || failed=1
say "written to out/workloads.json"
exit "$failed"
