#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# scripts/gpu-check.sh runs the parts of a kit with what its caller has set, on no GPU: the kit is
# empty, and its Python says with which path it was started.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$TOP/tests/scripts/tap.sh"
kit=$work/kit
mkdir -p "$kit/source/userlib/tests"
cat >"$work/python" <<'EOF'
#!/bin/sh
[ "$1" = -c ] || echo "$(basename "$1"): $PYTHONPATH"
EOF
chmod +x "$work/python"

# run [VARIABLE=VALUE]...: the parts of Python packages.
run() {
	rm -rf "$work/out"
	env -u PYTHONPATH "$@" OUT="$work/out" PYTHON="$work/python" "$TOP/scripts/gpu-check.sh" --kit "$kit" \
		--only '^(arrays|torch-package|torch-wheel|torch-offload)$' >"$work/said" 2>&1
}

# paths FILE: with which path a part's program was started.
paths() { sed -n "s|^$1: ||p" "$work"/out/*.log | sort -u; }

run PYTHONPATH=/of/the/caller
check "the parts of a kit run"
[ "$(paths gpu_torch.py) $(paths gpu_arrays.py) $(paths gpu_offload.py)" = \
	"$kit/python:/of/the/caller $kit/python:/of/the/caller $kit/python:/of/the/caller" ]
check "each finds what its caller's Python finds, behind the package"

touch "$kit/uvmrust-1-any.whl"
run PYTHONPATH=/of/the/caller
site=$(paths gpu_arrays.py)
[[ $site = */site:/of/the/caller ]] && [ "$(paths gpu_offload.py)" = "$site" ] && paths gpu_torch.py | grep -qx "$site"
check "and behind what pip has installed of a wheel"

run
[ "$(paths gpu_offload.py | grep -c :)" = 0 ] && [ -n "$(paths gpu_offload.py)" ]
check "without one, no folder more is looked at"
done_testing
