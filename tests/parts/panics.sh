#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Rust in a module panics, and the driver beside it goes on.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
dir=$(scripts/driver.sh panic)
DRIVER=rust VIDMEM=64M VM_TIMEOUT=300 scripts/vm.sh "tests/panic/panic.sh $dir/uvm_rust_panic.ko"
