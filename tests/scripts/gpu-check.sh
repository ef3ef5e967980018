#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# scripts/gpu-check.sh makes a kit that has what its parts want, by stand-ins of compilers. And it runs the parts
# of a kit with what its caller has set, on no GPU: that kit is empty, and its Python says with which path it was
# started.
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

# A kit, where each compiler makes a file that says which, and fails on what FAILS names.
mkdir -p "$work/bin"
for tool in cargo cc make strip; do printf '#!/bin/bash\n' >"$work/bin/$tool"; done
cat >>"$work/bin/cargo" <<'SH'
[[ "$*" != *"${FAILS:-none}"* ]] || exit 1
mkdir -p "$CARGO_TARGET_DIR/release" && cd "$CARGO_TARGET_DIR/release" || exit 1
[ "$1" != test ] || echo "{\"name\":\"gpu\",\"executable\":\"$PWD/gpu\"}"
for file in uvmrun uvmtop uvmsim uvmrust-random libuvmrust_{preload,torch,python}.so gpu; do
	{ echo '#!/bin/sh'; echo 'echo it was started'; } >"$file" && chmod +x "$file"
done
SH
cat >>"$work/bin/cc" <<'SH'
[[ "$*" != *"${FAILS:-none}"* ]] || exit 1
while [ "$1" != -o ]; do shift; done
echo "cc" >"$2"
SH
# The library that the kit wants is a target of the user library's Makefile.
# shellcheck disable=SC2016
echo 'touch "${@: -1}"' >>"$work/bin/make"
chmod +x "$work"/bin/*
built=$work/built
build() {
	env "$@" PATH="$work/bin:$PATH" CARGO=cargo CARGO_TARGET_DIR="$work/target" "$TOP/scripts/gpu-check.sh" --build "$built" \
		>"$work/said" 2>&1
}
mkdir -p "$built/tests" && touch "$built/uvmrust-0-old.whl" "$built/tests/old_program"
build && [ -x "$built/gpu-check.sh" ]
check "a kit is built"
[ ! -e "$built/uvmrust-0-old.whl" ] && [ ! -e "$built/tests/old_program" ]
check "nothing of an older kit is left"
# uvm_library is there where it was built, and the last where it was asked for.
# shellcheck disable=SC2016
grep -oE '\$KIT/[a-z]+/[A-Za-z0-9_./-]+' "$TOP/scripts/gpu-check.sh" | sort -u | sed 's,^\$KIT/,,' |
	grep -vE '^tests/uvm_library$|-broken-' >"$work/wanted"
[ "$(wc -l <"$work/wanted")" -ge 15 ] && while read -r file; do [ -e "$built/$file" ] || echo "$file"; done <"$work/wanted" >"$work/said"
[ ! -s "$work/said" ]
check "it has each file that a part of it names"
OUT=$work/out PYTHON=$work/python "$built/gpu-check.sh" --kit "$built" --only '^check$' >"$work/said" 2>&1 &&
	grep -q '^ok 1 - check' "$work/said" && grep -q 'it was started' "$work/out/check.log"
check "and runs from there"
# What it was asked is what the stand-in says.
printf '#!/bin/sh\necho "asked: $*"\n' >"$built/bin/uvmtop"
OUT=$work/out PYTHON=$work/python "$built/gpu-check.sh" --kit "$built" --only '^top-tools$' >"$work/said" 2>&1 &&
	grep -q '^ok 1 - top-tools' "$work/said" && grep -q '^asked: --tools --once --interval' "$work/out/top-tools.log"
check "uvmtop is asked for UVM's tools, too"
OUT=$work/nopython PYTHON=$work/nopython3 "$built/gpu-check.sh" --kit "$built" --only '^(check-json|top-json|top-listen)$' >"$work/said" 2>&1 &&
	[ "$(grep -cE '^ok [0-9] - (check-json|top-json|top-listen) # SKIP there is no /' "$work/said")" = 3 ]
check "without Python the parts that ask it are skipped"
mkdir -p "$work/json"
printf '#!/bin/sh\necho "{}"\n' | tee "$built/bin/uvmrun" >"$built/bin/uvmtop"
OUT=$work/json PYTHON=python3 "$built/gpu-check.sh" --kit "$built" --only '^(check-json|top-json)$' >"$work/said" 2>&1 &&
	[ "$(grep -cE '^ok [0-9] - (check-json|top-json) # [0-9]' "$work/said")" = 2 ]
check "with it they are not"
for failing in launch_program uvmsim uvmrust-preload libuvmrust.so.0; do
	[ "$failing" != libuvmrust.so.0 ] || printf '#!/bin/sh\nexit 1\n' >"$work/bin/make"
	! build FAILS="$failing" && grep -q '^error: ' "$work/said"
	check "what fails is no kit: $failing"
done
done_testing
