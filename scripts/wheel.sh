#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Build a Python package as a wheel, install it into a fresh environment, and test it there.
#
#   wheel.sh            uvmsim, the examples of docs/simulator-python.md included
#   wheel.sh uvmrust    uvmrust, on a stub of CUDA (cc builds it)
#
# Prints the wheel's path. Needs cargo, and Python 3.9 or later with venv; maturin comes
# from PyPI. PYTHON names another Python.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

name=${1:-uvmsim}
out=$TOP/out/wheel
python=${PYTHON:-python3}
case $name in
uvmsim) source=$TOP/sim/python ;;
uvmrust) source=$TOP/userlib/python ;;
*) die "there is no package $name: uvmsim or uvmrust" ;;
esac
have cargo || die "cargo is not installed; 'make deps' or rustup.rs installs it"
"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' ||
	die "$python is older than 3.9 or has no venv: install python3-venv, or name another with PYTHON"
mkdir -p "$out"
rm -f "$out/$name"-*.whl

# venv brings a pip of its own, which Debian's Python is without.
rm -rf "$out/venv-build"
"$python" -m venv "$out/venv-build"
progress "building the wheel" "$out/$name-build.log" \
	"$out/venv-build/bin/python" -m pip wheel --no-deps --disable-pip-version-check --wheel-dir "$out" "$source"
wheel=$(echo "$out/$name"-*.whl)
[ -f "$wheel" ] || die "pip made no wheel; see $out/$name-build.log"
# One wheel for every Python from 3.9 on. Without PyO3's feature abi3-py39 it is of the one that built it.
case $name:${wheel##*/} in
uvmsim:* | uvmrust:*-cp39-abi3-*) ;;
*) die "${wheel##*/} is of one version of Python, and has to be of the stable ABI (cp39-abi3)" ;;
esac

rm -rf "$out/venv-$name"
"$python" -m venv "$out/venv-$name"
progress "installing it" "$out/$name-install.log" \
	"$out/venv-$name/bin/python" -m pip install --no-index --disable-pip-version-check "$wheel"

# Outside the checkout's folder of the package, so that only what is installed is found.
test_uvmsim() {
	cp "$source/tests/test_uvmsim.py" "$out/"
	env -u UVMSIM UVMSIM_DOCS="$TOP/docs/simulator-python.md" PYTHONSAFEPATH=1 \
		"$out/venv-$name/bin/python" "$out/test_uvmsim.py" --installed
}

test_uvmrust() {
	local test
	for test in "$source"/tests/test_*.py; do
		env -u UVMRUST_PACKAGE "$out/venv-$name/bin/python" "$test" --installed || return
	done
}

progress "testing it" "$out/$name-test.log" "test_$name"
tail -n 1 "$out/$name-test.log" >&2
# Those of a test part, which looks for them in tests/skips.
grep '^skipped: ' "$out/$name-test.log" | sort -u || :
echo "$wheel"
