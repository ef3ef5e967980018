#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Builds all of ours from one of NVIDIA's releases, without a warning, and notes that for the table of make test-versions.
#
#   tag.sh TAG
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
tag=${1:?a tag}
scripts/versions.sh note "$tag" -
tree=$(scripts/versions.sh tree "$tag")
# All of ours, whatever is set outside.
dir=$(UVM_SRC=$tree UVM_RUST_WHOLE=1 scripts/driver.sh rust)
scripts/versions.sh note "$tag" "$dir.log"
