#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# All of ours is built from one of NVIDIA's releases, without a warning.
#
#   build-tag.sh TAG
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
scripts/versions.sh note "$1" -
tree=$(scripts/versions.sh tree "$1")
dir=$(UVM_SRC=$tree UVM_RUST_WHOLE=1 scripts/driver.sh rust)
scripts/versions.sh note "$1" "$dir.log"
