#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Tests the Python package or the PyTorch importer, on uvmsim as users build it.
#
#   python.sh package
#   python.sh torch
#   python.sh has-torch    prints a Python that has PyTorch, or fails
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"

# python_with MODULE: prints a Python that has it; Debian's packages are for its own.
python_with() {
	local p
	for p in python3 /usr/bin/python3; do
		if "$p" -c "import $1" 2>/dev/null; then echo "$p"; return 0; fi
	done
	return 1
}

case ${1:-} in
package) python=python3 tests=sim/python/tests/test_uvmsim.py ;;
torch) python=$(python_with torch) tests=sim/python/tests/test_uvmsim_torch.py ;;
has-torch) python_with torch; exit ;;
*) die "python.sh: use package or torch" ;;
esac
cargo build --quiet --release -p uvmsim
"$python" "$tests"
