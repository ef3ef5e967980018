#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/base.sh finds in a tree of NVIDIA's driver, and whether the seam goes by that alone: each folder
# of headers and of hooks is one of its facts, each header has one for 550, and no file asks for a version. And
# whether the seam's headers include each other in one direction alone.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
seam=$top/src/nvidia-uvm-c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

mapfile -t facts < <(sed -nE 's/^fact ([a-z_]+) .*/\1/p' "$top/scripts/base.sh")
known() { [ "$1" = 550 ] || printf '%s\n' "${facts[@]}" | grep -qx "${1#no_}"; }

: >"$work/said"
[ ${#facts[@]} -gt 5 ] || echo "only ${#facts[@]} facts" >>"$work/said"
for folder in "$seam"/bases/*/ "$seam"/hooks/*/; do
	name=$(basename "$folder")
	[[ $name == native || $name == both ]] || known "$name" || echo "$folder: base.sh knows no such fact" >>"$work/said"
done
[ ! -s "$work/said" ]
check "each folder of headers and hooks is a fact"

for fact in "${facts[@]}"; do
	[ -d "$seam/bases/$fact" ] || [ -d "$seam/hooks/$fact" ] || [ -d "$seam/hooks/no_$fact" ] || echo "nothing goes by $fact"
done >"$work/said"
[ ! -s "$work/said" ]
check "each fact has a folder"

for header in "$seam"/bases/*/*.h; do
	[ -e "$seam/bases/550/$(basename "$header")" ] || echo "$header: 550 has none"
done >"$work/said"
[ ! -s "$work/said" ]
check "each header has one for 550"

grep -nE 'UVM_RUST_UPSTREAM|NVRM|(DRIVER|UVM)_VERSION' -r "$seam" "$top/src/uvm_rust" --include='*.[chr]*' >"$work/said"
[ ! -s "$work/said" ]
check "no file asks for a version"

# tree FILE LINE...: a made-up tree whose file has these lines; the others are empty.
tree() {
	rm -rf "$work/tree"
	mkdir -p "$work/tree/nvidia-uvm"
	local f
	for f in uvm_va_block.c uvm_va_block.h uvm_va_space.c uvm_va_space.h uvm_pmm_gpu.h uvm_pmm_gpu.c uvm_va_range.h uvm_perf_events.h uvm_hmm.c \
		uvm_gpu.h uvm_forward_decl.h uvm_processors.h uvm_gpu_replayable_faults.h uvm_global.h uvm_perf_prefetch.h; do : >"$work/tree/nvidia-uvm/$f"; done
	printf '%s\n' "${@:2}" >"$work/tree/nvidia-uvm/$1"
}
said() { sh "$top/scripts/base.sh" "$work/tree" 2>"$work/said" | grep -qx "$1"; }

tree uvm_va_block.c 'static NV_STATUS block_populate_pages_cpu(uvm_va_block_t *block,' '    const uvm_page_mask_t *mask,'
said populate_const
check "a fact is found"
tree uvm_va_block.c 'static NV_STATUS block_populate_pages_cpu(uvm_va_block_t *block,' '    uvm_page_mask_t *mask,' '    const uvm_page_mask_t *other)'
! said populate_const
check "and not in the next argument"
populate='static NV_STATUS block_populate_pages_cpu(uvm_va_block_t *block,'
tree uvm_va_block.c "$populate" '    const uvm_page_mask_t *mask,' '    bool staged)' '{' '}'
said populate_staged && said populate_const
check "one may come with another"
tree uvm_va_block.c "$populate" '    const uvm_page_mask_t *mask)' '{' '}' 'static void other(bool staged)' '{' '}'
! said populate_staged && said populate_const
check "or not"
tree uvm_va_range.h 'void uvm_va_range_discard_all(void);'
! said native_discard
check "nor in a longer name"
lite='    uvm_processor_mask_t uvm_lite_gpus;'
tree uvm_va_range.h 'struct uvm_va_range_managed_struct' '{' "$lite" '};'
said lite_of_managed
check "a structure's member is found"
tree uvm_va_range.h 'struct uvm_va_range_managed_struct' '{' '};' 'struct uvm_va_range_struct' '{' "$lite" '};'
! said lite_of_managed
check "and not in the next structure"
free='static void devmem_page_free(struct page *page)'
tree uvm_pmm_gpu.c "$free;" "$free" '{' '    chunk_pin(pmm, chunk);' '}'
said lazy_pins
check "a word is found in the function that has it"
tree uvm_pmm_gpu.c "$free;" "$free" '{' '}' 'static void other(void)' '{' '    chunk_pin(pmm, chunk);' '}'
! said lazy_pins
check "and not in the next one"
clean_up='static void clean_up_non_migrating_pages(uvm_va_block_t *va_block,'
tree uvm_hmm.c "$clean_up" '    unsigned long *dst_pfns)' '{' '}'
said clean_up_by_dst
check "nor is one missed that is not there"
tree uvm_hmm.c "$clean_up" '    const unsigned long *src_pfns,' '    unsigned long *dst_pfns)' '{' '}'
! said clean_up_by_dst && tree uvm_hmm.c '' && ! said clean_up_by_dst
check "nor in a function that is not there"
split='static void block_copy_split_gpu_chunks(uvm_va_block_t *existing)'
tree uvm_va_block.c "$split" '{' '    new->chunks[i]->va_block = new;' '}' 'static void alloc(void)' '{' '    chunk->va_block_page_index = 0;' '}'
said stale_index
check "a chunk that a split does not tell its place is not asked"
tree uvm_va_block.c "$split" '{' '    new->chunks[i]->va_block_page_index -= at;' '}'
! said stale_index
check "one that it tells is"
tree uvm_global.h 'static uvm_gpu_t *uvm_gpu_get(uvm_global_gpu_id_t global_gpu_id)'
said global_ids && tree uvm_global.h 'static uvm_gpu_t *uvm_gpu_get(uvm_gpu_id_t gpu_id)' && ! said global_ids
check "a GPU's number in a VA space is told from the one outside"
read='NV_STATUS uvm_va_block_read_to_cpu(uvm_va_block_t *va_block,'
tree uvm_va_block.h "$read uvm_mem_t *dst, NvU64 src, size_t size);"
said plain_block && tree uvm_va_block.h "$read" '    uvm_va_block_context_t *context,' '    uvm_mem_t *dst);' && ! said plain_block
check "and a function without a context from one with it"
# Headers of what is so until a release: the oldest counts.
order=$(sh "$top/scripts/base.sh" "$work/tree" 2>"$work/said" | grep -xE 'one_hint|one_node|write_batch|gpu_faults|plain_moves|550' | xargs)
[ "$order" = "one_hint one_node write_batch gpu_faults plain_moves 550" ]
check "of what is so until a release, the oldest comes first"
rm "$work/tree/nvidia-uvm/uvm_va_block.c"
! said 550 && grep -q 'no tree' "$work/said"
check "what is no tree is told so"

# It compiles everywhere, and is stale where that fact is so.
! grep -rn va_block_page_index "$seam" | grep -v "^$seam/bases/550/uvm_rust_on_place.h:" >"$work/said"
check "no code asks a chunk for its place in a va_block but where the chunk knows it"

# includes SEAM: each file of the seam with each of the seam's headers that it includes. A header that several versions
# have is all of them.
includes() {
	(cd "$1" && { find . -name '*.h'; grep -rE '^#include "' --include='*.[ch]' .; }) | awk -F'[:"]' '
		!/#include/ { n = split($0, part, "/"); at[part[n]] = at[part[n]] " " $0; next }
		{ n = split(at[$3], header, " "); for (i = 1; i <= n; i++) print $1, header[i] }'
}
# folders: the same by folder, of headers alone: nobody includes a source. What is declared for Rust (*_ffi.h) is a
# folder of its own. A header of a version is in the folder that includes it, and so leads on to what it includes itself.
folders() {
	awk 'function of(f, part) { split(f, part, "/"); return f ~ /(_ffi|_types)\.h$/ ? "ffi" : part[2] }
		function edge(a, b) { if (a !~ /\.c$/ && of(a) != "bases" && of(a) != of(b)) print of(a), of(b) }
		{ from[NR] = $1; to[NR] = $2 }
		END { for (i in from) if (of(to[i]) != "bases") edge(from[i], to[i])
			else for (j in from) if (from[j] == to[i]) edge(from[i], to[j]) }' | sort -u
}
# circle: what is included is told, if that goes round.
circle() { ! tsort 2>"$work/said" >"$work/order"; }

includes "$seam" >"$work/includes"
[ "$(wc -l <"$work/includes")" -gt 100 ] && ! circle <"$work/includes"
check "no header of the seam includes itself, by way of others"
folders <"$work/includes" >"$work/folders"
[ "$(wc -l <"$work/folders")" -gt 5 ] && ! circle <"$work/folders"
check "and no folder's headers include those that include them"
cp -r "$seam" "$work/seam"
echo '#include "uvm_rust_fixes.h"' >>"$work/seam/flash/uvm_rust_flash.h"
includes "$work/seam" >"$work/includes"
! circle <"$work/includes" && folders <"$work/includes" >"$work/folders" && circle <"$work/folders"
check "a circle of two folders is found"
echo '#include "uvm_rust_flash.h"' >>"$work/seam/base/uvm_rust_compat.h"
echo '#include "uvm_rust_compat.h"' >>"$work/seam/bases/plain_moves/uvm_rust_on_moves.h"
includes "$work/seam" >"$work/includes"
circle <"$work/includes"
check "so is one of two headers, one of which is a version's"
done_testing
