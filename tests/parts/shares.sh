#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What three quiet processes keep beside a loud one, under NVIDIA's driver, under its order in ours, and under `fair`;
# and in ours, what a process with a maximum holds, and what it leaves to others.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
DRIVER=rust NOLOAD=1 GPUS=2 VIDMEM=64M VM_TIMEOUT=2400 scripts/vm.sh "
	shares() {
		UVM_ARGS=\"\$UVM_ARGS \$2\" bash scripts/vm-load.sh \$1 && target/release/policy --shares &&
			{ [ \$1 = upstream ] || target/release/policy --quota; } && bash scripts/vm-load.sh unload
	}
	shares upstream '' && shares rust uvm_rust_evict_policy=lru && shares rust 'uvm_rust_evict_policy=fair uvm_rust_gpu_max=1024' &&
		UVM_ARGS=\"\$UVM_ARGS uvm_rust_fault=0\" bash scripts/vm-load.sh rust && target/release/policy --quota && bash scripts/vm-load.sh unload"
