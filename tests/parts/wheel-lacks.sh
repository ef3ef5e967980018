#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Prints what the wheel of the user library's package needs and is not here, in words.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
	echo "no Python 3.9 or later with venv"
	exit
fi
# pip builds in an environment of its own, for which it gets this from PyPI.
maturin=$(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' userlib/python/pyproject.toml)
venv=out/test/host/maturin-venv
[ -x $venv/bin/pip ] || python3 -m venv $venv
timeout 60 $venv/bin/python -m pip download --quiet --disable-pip-version-check --retries 0 --no-deps \
	--dest out/test/host/maturin "$maturin" >/dev/null 2>&1 || echo "pip finds no $maturin"
