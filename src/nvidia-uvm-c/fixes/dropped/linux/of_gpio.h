/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Linux 7.3 has no such header; NVIDIA's 595.45 includes it, and uses nothing of it in nvidia-uvm.ko. */
