#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Builds all of ours from one of NVIDIA's releases, without a warning that the release has not by itself, and notes that
# for the table of make test-versions.
#
#   tag.sh TAG
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
tag=${1:?a tag}
scripts/versions.sh note "$tag" -
UVM_SRC=$(scripts/versions.sh tree "$tag")
# All of ours, whatever is set outside, and nothing for debuggers, which nobody reads.
export UVM_SRC UVM_RUST_WHOLE=1 UVM_RUST_LEAN=1

# built VARIANT: sets dir, and log to that of a build from nothing; one of a part does not say again what the compiler had
# said of the rest.
built() {
	dir=$(scripts/driver.sh "$1")
	if [ "$(grep -c '^  CC ' "$dir.log")" -lt "$(find "$dir/nvidia-uvm" -name '*.c' | wc -l)" ]; then
		rm -rf "$dir"
		dir=$(scripts/driver.sh "$1")
	fi
	log=$dir.log
}

built rust
ours=$log baseline=
# modpost names ten symbols that are missing, and RM's alone are more.
missing=$(nm -u "$dir/nvidia-uvm.ko" | awk '{ print $NF }' | grep -v '^nvUvmInterface' |
	grep -vxFf <(cut -f 2 "$(scripts/kernel.sh)/Module.symvers")) || :
[ -z "$missing" ] || die "no module and no kernel has $(xargs <<<"$missing")"
# Old releases warn by themselves on a kernel that is younger.
if grep -q 'warning: ' "$ours"; then
	built upstream
	baseline=$log
fi
scripts/versions.sh note "$tag" "$ours" "$baseline"
