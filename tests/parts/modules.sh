#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Builds the modules of the given kinds, and writes where they are into the file $UVM_BUILT, so that vm.sh need
# not have them looked up (list_built in scripts/lib.sh).
#
#   modules.sh upstream|rust|vgpu...
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
list_built "$@"
