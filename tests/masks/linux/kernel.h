/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#define min(a, b) ((a) < (b) ? (a) : (b))
