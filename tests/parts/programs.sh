#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Builds the programs that run in the VM, and the selftests.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
cargo build --release --quiet -p uvm-suite -p uvm-workloads -p uvm-dnn -p uvmtop
# The selftests' harness is the kernel's, and not in the package of its headers.
scripts/kernel.sh source >/dev/null
make --silent -C tests/kselftest
