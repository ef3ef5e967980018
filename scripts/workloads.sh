#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The UvmDiscard paper's applications in the VM: UVM-opt, UvmDiscard and
# UvmDiscardLazy at every degree of oversubscription. Where the driver that ours is built
# from has a discard of its own (580 and later), it runs unmodified, too: plain UVM, and
# NVIDIA's discard in both of its ways. A table, and out/workloads.json; fails unless all
# data are right, what must be exact is, and ours moves no more than NVIDIA's.
# A VM for each application and driver; what is in out/workloads already, from this
# very program and driver, is not run again (AGAIN=1: all is).
#
# Environment: ONLY=TEXT (only applications of that name), AGAIN=1.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"
cd "$TOP"

cargo build --release --quiet -p uvm-workloads
program=target/release/workloads
tree=$(scripts/upstream.sh)
base=$(driver_version "$tree")
facts=$(scripts/base.sh "$tree")
drivers=(rust) native=()
if grep -qx native_discard <<<"$facts"; then drivers=(upstream rust) native=(--native); fi
out=out/workloads/$base
mkdir -p "$out"

# key DRIVER: what a result depends on: the program, the driver's source, and the software GPU's.
key() {
	local sources=(tests/vgpu)
	[ "$1" = upstream ] || sources+=(src)
	{
		echo "$tree"
		cat "$program"
		find "${sources[@]}" -type f -print0 | sort -z | xargs -0 cat
	} | sha256sum | cut -c1-16
}

# measure APPLICATION DRIVER: its cells, in the file that is named for both; it is added to "files".
measure() {
	local app=$1 file=$out/$1-$2.jsonl vidmem=420M key
	key=$(key "$2")
	files+=("$file")
	if [ -z "${AGAIN:-}" ] && [ "$(tail -n 1 "$file" 2>/dev/null)" = "# done $key" ]; then
		say "$app, $2: done before, in $file"
		return
	fi
	say "$app: in the VM, with the driver '$2' of $base"
	# Rounding to blocks makes Darknet-53, with many small layers, larger than it is.
	[ "$app" != darknet53 ] || vidmem=620M
	if DRIVER=$2 VIDMEM=${VIDMEM:-$vidmem} VM_MEM=${VM_MEM:-4G} VM_TIMEOUT=${VM_TIMEOUT:-3600} \
		scripts/vm.sh "$program --only $app" | tee "$file.new" | { grep --line-buffered '^# ' >&2 || :; }; then
		echo "# done $key" >>"$file.new"
	else
		failed=1
	fi
	mv "$file.new" "$file"
	grep '^not ok' -A 4 "$file" || :
}

files=() failed=0
for app in fir hash-join radix-sort vgg16 darknet19 darknet53 rnn; do
	[[ $app == *"${ONLY:-}"* ]] || continue
	for driver in "${drivers[@]}"; do measure "$app" "$driver"; done
done
[ ${#files[@]} != 0 ] || die "ONLY=$ONLY: no such application"
"$program" --report "${files[@]}" --out out/workloads.json --base "$base" "${native[@]}" || failed=1
say "written to out/workloads.json"
exit "$failed"
