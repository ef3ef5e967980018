#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Stands for `sparse` in a kernel's build (make C=1 CHECK=scripts/sparse.sh; driver.sh does so
# with UVM_RUST_SPARSE=1), and reads what is ours: our files of C, and NVIDIA's that have a header
# of ours in front. Of what it says, the lines on our files are printed, each behind "sparse: ".
#
#   sparse.sh FLAGS... FILE
#
# Its status is that of a step of the build, always 0. A file that sparse gives up on, as it does
# not understand the kernel's headers, is named: nothing is known of it then.
# Environment: SPARSE=/path (sparse).

# is_ours FILE: kernels differ in the folder that a module's files are named from.
is_ours() {
	case $(realpath -m "$1") in
	*/uvm-rust/* | */uvm_rust_kernel/* | */vgpu/kernel/* | */vgpu/include/*) ;;
	*) return 1 ;;
	esac
}

for file; do :; done
if ! is_ours "$file"; then
	# uvm_rust_masks.h stands in front of every file, and so of ours: it has been read there.
	case " $* " in
	*/uvm_rust_[!m]*.h\ * | */uvm_rust_migrate.h\ *) ;;
	*) exit 0 ;;
	esac
fi
# Headers from 7.2 on use a keyword that sparse 0.6.4 does not have, whose only difference is that it
# drops const and volatile; and compare the length of a module's description with its size where
# only a constant may stand, which strlen of a string is not to sparse.
said=$("${SPARSE:-sparse}" -D__typeof_unqual__=__typeof__ '-D__builtin_strlen(s)=(sizeof(s)-1)' "$@" 2>&1)
case $said in
*'error: too many errors'* | *': not found'*)
	echo "sparse: not read: $(basename "$file"): $(printf '%s\n' "$said" | grep -m 1 -e 'error: ' -e 'not found')" >&2
	;;
esac
printf '%s\n' "$said" | while IFS= read -r line; do
	case $line in
	*:[0-9]*) if is_ours "${line%%:*}"; then echo "sparse: $line" >&2; fi ;;
	esac
done
exit 0
