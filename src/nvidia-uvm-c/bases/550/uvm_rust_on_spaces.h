/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A page of a GPU's that two VA spaces of a process use: the page says whose it is. */
#include "uvm_rust_spaces_by_page.h"
