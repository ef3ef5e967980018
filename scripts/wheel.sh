#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Build the Python package as a wheel, install it into a fresh environment, and
# test it there, the examples of docs/simulator-python.md included.
#
#   wheel.sh            prints the wheel's path
#
# Needs cargo, and Python 3.9 or later with venv; maturin comes from PyPI.
# PYTHON names another Python.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

out=$TOP/out/wheel
python=${PYTHON:-python3}
have cargo || die "cargo is not installed; 'make deps' or rustup.rs installs it"
"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' ||
	die "$python is older than 3.9 or has no venv: install python3-venv, or name another with PYTHON"
mkdir -p "$out"
rm -f "$out"/*.whl

progress "building the wheel" "$out/build.log" \
	"$python" -m pip wheel --no-deps --disable-pip-version-check --wheel-dir "$out" "$TOP/sim/python"
wheel=$(echo "$out"/uvmsim-*.whl)
[ -f "$wheel" ] || die "pip made no wheel; see $out/build.log"

rm -rf "$out/venv"
"$python" -m venv "$out/venv"
progress "installing it" "$out/install.log" \
	"$out/venv/bin/python" -m pip install --no-index --disable-pip-version-check "$wheel"
cp "$TOP/sim/python/tests/test_uvmsim.py" "$out/"
progress "testing it" "$out/test.log" env -u UVMSIM UVMSIM_DOCS="$TOP/docs/simulator-python.md" PYTHONSAFEPATH=1 \
	"$out/venv/bin/python" "$out/test_uvmsim.py" --installed
tail -n 1 "$out/test.log" >&2
echo "$wheel"
