#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What test-kernels.sh takes for a warning, and whose; its table; and what sparse.sh reads. The
# logs are made up of lines as the tools write them.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source-path=SCRIPTDIR source=../../scripts/test-kernels-rows.sh
. "$top/scripts/test-kernels-rows.sh"

cat >"$work/log" <<'LOG'
  CC [M]  /b/rust/nvidia-uvm/uvm_va_block.o
KBUILD_LDFLAGS=-m elf_x86_64 --no-warn-rwx-segments
warning: the compiler differs from the one used to build the kernel
/b/rust/nvidia-uvm/uvm_va_block.c:10:3: warning: unused variable 'x' [-Wunused-variable]
/b/rust/nvidia-uvm/uvm_hmm.c:7: warning: "X" redefined
/b/rust/uvm-rust/nvidia-uvm-c/uvm_rust_gpu.c:44:9: warning: unused variable 'y' [-Wunused-variable]
warning: unused import: `core::fmt`
error[E0425]: cannot find value `q` in this scope
ld: warning: x.o: missing .note.GNU-stack section implies executable stack
/b/rust/nvidia-uvm.o: warning: objtool: rust_begin_unwind+0x42: unreachable instruction
WARNING: modpost: missing MODULE_DESCRIPTION() in /b/rust/vgpu.o
WARNING: modpost: "nvUvmInterfaceRegisterGpu" [/b/rust/nvidia-uvm.ko] undefined!
WARNING: modpost: nvidia-uvm.ko: symbol 'nvUvmInterfaceQueryCaps' undefined!
ERROR: modpost: "bcmp" [/b/rust/nvidia-uvm.ko] undefined!
sparse: /b/rust/uvm-rust/nvidia-uvm-c/uvm_rust_seam.c:21:6: warning: symbol 'z' was not declared. Should it be static?
sparse: not read: main.c: /k/include/linux/x.h:3:1: error: Expected ; at end of declaration
/k/Makefile:1311: C=1 specified, but /scripts/sparse.sh is not available or not up to date
Skipping BTF generation for /b/rust/nvidia-uvm.ko due to unavailability of vmlinux
LOG
# count TOOL: the lines of its.
count() { said_by "$1" "$work/log" | tee "$work/said" | how_many; }
[ "$(count compiler)" = 6 ] && ! grep -qE 'differs|sparse|objtool|modpost' "$work/said"
check "compilers' and the linker's warnings are found, and no other tool's"
[ "$(count objtool)" = 1 ] && [ "$(count sparse)" = 1 ] && [ "$(count unread)" = 2 ]
check "objtool's, sparse's, and what sparse did not read"
[ "$(count modpost)" = 2 ] && ! grep -q nvUvmInterface "$work/said"
check "modpost's, but for the interface that another module has"
: >"$work/empty"
[ "$(for t in compiler objtool modpost sparse unread; do said_by $t "$work/empty"; done | how_many)" = 0 ]
check "an empty log says nothing"

cat >"$work/baseline" <<'LOG'
/b/upstream/nvidia-uvm/uvm_va_block.c:8:3: warning: unused variable 'x' [-Wunused-variable]
/b/upstream/nvidia-uvm/uvm_hmm.c:6: warning: "X" redefined
LOG
said_newly compiler "$work/log" "$work/baseline" >"$work/said"
[ "$(how_many <"$work/said")" = 4 ] && ! grep -qE 'uvm_va_block|uvm_hmm' "$work/said" && grep -q '^uvm_rust_gpu.c: warning' "$work/said"
check "what NVIDIA's own build says too, in other places of the same file, is not ours"
[ "$(said_newly compiler "$work/log" "$work/none" | how_many)" = 6 ]
check "without a baseline all is"

put_row "$work/rows" debian-13 6.12.1 'gcc 14' 1.85.1 own built built built 0 0 0 0 3 no 550.1
put_row "$work/rows" debian-12 6.1.5 'gcc 12' 1.95.0 own no no built 1 0 2 0 0 no 595.2
put_row "$work/rows" debian-13 6.12.1 'gcc 14' 1.95.0 own built built built 0 0 0 'has not read all' 3 'the "demo" passes' 550.1
cp "$work/rows" "$work/said"
[ "$(cut -f1-4 "$work/rows" | paste -sd'|' | tr '\t' ,)" = \
	'debian-12,6.1.5,gcc 12,1.95.0|debian-13,6.12.1,gcc 14,1.85.1|debian-13,6.12.1,gcc 14,1.95.0' ]
check "rows are in order"
put_row "$work/rows" debian-13 6.12.1 'gcc 14' 1.85.1 own built no built 5 0 0 0 3 no 550.1
cp "$work/rows" "$work/said"
[ "$(wc -l <"$work/rows")" = 3 ] && grep -qP '^debian-13\t6.12.1\tgcc 14\t1.85.1\town\tbuilt\tno\tbuilt\t5\t' "$work/rows"
check "a row that is made again takes the place of the old one"
as_json "$work/rows" >"$work/said"
python3 - "$work/said" <<'PY'
import json, sys
rows = json.load(open(sys.argv[1]))
assert len(rows) == 3 and rows[0]["said_modpost"] == 2 and rows[2]["said_sparse"] == "has not read all"
assert rows[2]["loaded"] == 'the "demo" passes' and rows[1]["driver"] == "no" and len(rows[1]) == 15 and rows[0]["nvidia"] == "595.2"
assert rows[0]["rustc"] == "1.95.0" and rows[0]["kernel"] == "6.1.5"
PY
check "they are JSON"
as_table "$work/rows" >"$work/said"
[ "$(wc -l <"$work/said")" = 5 ] &&
	grep -qxF '| 6.1.5 (debian-12) | 595.2 | gcc 12 | 1.95.0 | own | no | no | built | compiler 1, modpost 2 | no |' "$work/said" &&
	grep -qxF '| 6.12.1 (debian-13) | 550.1 | gcc 14 | 1.95.0 | own | built | built | built | sparse has not read all | the "demo" passes |' "$work/said"
check "and a table"

# A sparse that says the same of each file: a line on it, and one on a header of the kernel's.
mkdir -p "$work/rust/uvm-rust/nvidia-uvm-c" "$work/rust/nvidia-uvm" "$work/vgpu/kernel"
# shellcheck disable=SC2016
printf '#!/bin/sh\nfor f; do :; done\necho "$f:1:2: warning: odd"\necho "/k/include/linux/mm.h:3:4: warning: odd"\n' >"$work/sparse"
chmod +x "$work/sparse"
# sparse FOLDER ARGUMENT...: what is printed, where kbuild runs it in that folder.
sparse() { (cd "$1" && SPARSE=${SPARSE:-$work/sparse} "$top/scripts/sparse.sh" -D__CHECKER__ "${@:2}" >"$work/said" 2>&1); }
ours=$work/rust/uvm-rust/nvidia-uvm-c/uvm_rust_gpu.c
sparse / "$ours" && [ "$(cat "$work/said")" = "sparse: $ours:1:2: warning: odd" ]
check "sparse reads ours, and only what it says of ours is shown"
sparse "$work/rust" uvm-rust/nvidia-uvm-c/uvm_rust_gpu.c && grep -q '^sparse: uvm-rust/' "$work/said" &&
	sparse "$work/vgpu" kernel/main.c && grep -q '^sparse: kernel/main.c' "$work/said"
check "where a kernel names files from the module's folder, too"
sparse / -include "$work/rust/uvm-rust/nvidia-uvm-c/uvm_rust_masks.h" "$work/rust/nvidia-uvm/uvm_gpu.c" && [ ! -s "$work/said" ]
check "it does not read NVIDIA's"
printf '#!/bin/sh\necho "%s:5:6: warning: odd"\n' "$work/rust/uvm-rust/nvidia-uvm-c/uvm_rust_migrate.h" >"$work/hooks"
chmod +x "$work/hooks"
SPARSE=$work/hooks sparse / -include "$work/rust/uvm-rust/nvidia-uvm-c/uvm_rust_masks.h" \
	-include "$work/rust/uvm-rust/nvidia-uvm-c/uvm_rust_migrate.h" "$work/rust/nvidia-uvm/uvm_migrate.c" &&
	grep -q '^sparse: .*uvm_rust_migrate.h:5:6' "$work/said"
check "but those with a header of ours in front"
printf '#!/bin/sh\necho "/k/x.h:1:2: error: too many errors"\nexit 1\n' >"$work/gives-up"
chmod +x "$work/gives-up"
SPARSE=$work/gives-up sparse / "$ours" && grep -q '^sparse: not read: uvm_rust_gpu.c: ' "$work/said" &&
	SPARSE=$work/nowhere sparse / "$ours" && grep -q '^sparse: not read: uvm_rust_gpu.c: .*not found' "$work/said"
check "a file that it gives up on is named; so is each, where there is no sparse; the build goes on"
done_testing
