#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What three quiet processes keep beside a loud one, under NVIDIA's driver, under its order in ours, and under `fair`.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
DRIVER=rust NOLOAD=1 VIDMEM=64M VM_TIMEOUT=1500 scripts/vm.sh "
	shares() {
		UVM_ARGS=\"\$UVM_ARGS \$2\" bash scripts/vm-load.sh \$1 && target/release/policy --shares && bash scripts/vm-load.sh unload
	}
	shares upstream '' && shares rust uvm_rust_evict_policy=lru && shares rust uvm_rust_evict_policy=fair"
