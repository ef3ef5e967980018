/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of upstream's uvm_push.c: each push notes the name of the file that begins it,
 * without folders. The Kbuild has those left out when it is compiled, so there is
 * nothing to look for, 160 instructions long, with each push.
 */
#ifndef UVM_RUST_PUSH_H
#define UVM_RUST_PUSH_H

#include <linux/string.h>

#define kbasename(path) (path)

#endif
