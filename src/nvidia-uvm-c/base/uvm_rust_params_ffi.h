/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Module parameters: X(type, name, default, mode, description) for each. Those that root may not write are fixed
 * once the module is loaded. Rust reads them by their names.
 */
#ifndef UVM_RUST_PARAMS_H
#define UVM_RUST_PARAMS_H

#define UVM_RUST_PARAMS_ALWAYS(X) \
	X(bool, uvm_rust_stats, true, 0444, "Count traffic, faults and evictions per GPU and per process (default 1)") \
	X(bool, uvm_rust_test_starve, false, 0644, "For tests, with uvm_enable_builtin_tests=1: Rust's tables and buffers get no memory (default 0)") \
	X(bool, uvm_rust_stats_public, false, 0444, \
	  "Show what all processes together did to every process; 0: to CAP_SYS_ADMIN only (default 0)")

/* Of what needs all of our hooks. */
#define UVM_RUST_PARAMS_HOOKED(X) \
	X(bool, uvm_rust_discard, true, 0444, "Offer UvmDiscard and UvmDiscardLazy (default 1)") \
	/* 64 KiB is the largest GPU page below 2 MiB, so discarding such a part splits none. */ \
	X(uint, uvm_rust_discard_granule, 64, 0444, \
	  "Where a range covers a 2 MiB block in part, discard whole aligned pieces of this many KiB: a power of " \
	  "two from 4 to 2048; 2048 leaves such blocks alone (default 64)") \
	X(bool, uvm_rust_test_unprepared, false, 0444, \
	  "For tests only: hand out pages that were never zeroed after a discard. Leaks memory of other processes " \
	  "(default 0; needs uvm_enable_builtin_tests=1)") \
	X(bool, uvm_rust_evict, true, 0444, "Reclaim GPU memory in the order of Rust's queues; 0: of upstream's lists (default 1)") \
	X(charp, uvm_rust_evict_policy, "lru", 0444, \
	  "With uvm_rust_evict: which used chunk is reclaimed first, fair, lru, mru or turns (default lru)") \
	X(uint, uvm_rust_gpu_max, 0, 0444, "MiB of a GPU beyond which a process evicts its own memory first; 0: none (default 0)") \
	X(uint, uvm_rust_gpu_low, 0, 0444, "MiB of a GPU that a process keeps as long as others have more; 0: none (default 0)") \
	X(bool, uvm_rust_fault, true, 0444, "Service replayable faults by the loop in Rust; 0: by upstream's in C (default 1)") \
	X(bool, uvm_rust_choose, false, 0444, "Pick for each process what comes along with faults, and whether to prefetch (default 0)") \
	X(uint, uvm_rust_fault_turn_us, 4000, 0444, \
	  "With uvm_rust_fault: microseconds after which the faults of other processes have their turn; 0: no turns (default 4000)") \
	X(uint, uvm_rust_link_quantum, 16, 0444, \
	  "MiB that UVM_MIGRATE has on its way for a process while others copy on the same GPU; 0: any (default 16)") \
	X(bool, uvm_rust_announce, true, 0444, "Take announcements of kernels, and learn from them (default 1)") \
	X(bool, uvm_rust_prefetch, false, 0444, "Prefetch what announced kernels are expected to access (default 0)") \
	X(uint, uvm_rust_preevict, 0, 0444, \
	  "With uvm_rust_prefetch: keep so many 2 MiB chunks of a GPU ready by moving out what is not expected; 0: none (default 0)") \
	X(uint, uvm_rust_prefetch_ahead, 32, 0444, "Kernels to look ahead, 0 to 4096 (default 32)") \
	X(uint, uvm_rust_prefetch_rows, 2048, 0444, "Rows of a kernel's block table, 1 to 65536 (default 2048)") \
	X(uint, uvm_rust_prefetch_assoc, 2, 0444, "Blocks in a row, 1 to 16 (default 2)") \
	X(uint, uvm_rust_prefetch_succs, 4, 0444, "Successors of a block, 1 to 16 (default 4)") \
	X(uint, uvm_rust_prefetch_memory, 64, 0444, \
	  "MiB that the tables of a user in a memory cgroup may take for each GPU, in all VA spaces (default 64)") \
	X(bool, uvm_rust_flash, false, 0444, "Offer an SSD tier behind host memory; a device is attached by ioctl (default 0)") \
	X(uint, uvm_rust_flash_depth, 4, 0444, "How many va_blocks are written at the same time, 1 to 64 (default 4)") \
	X(uint, uvm_rust_flash_sets, 64, 0444, "How many va_blocks are read at the same time, 2 to 1024 (default 64)") \
	X(uint, uvm_rust_flash_share, 100, 0644, \
	  "Percent of the time that each worker writes, 1 to 100, to leave the device to others (default 100)") \
	X(uint, uvm_rust_flash_move_mib, 512, 0644, \
	  "MiB a second that a tenant may write by UVM_RUST_FLASH_MOVE, which wears the device; 0 for any (default 512)") \
	X(bool, uvm_rust_flash_park, true, 0644, \
	  "Put off GPU faults that wait for the SSD tier, instead of letting all others wait as well (default 1)") \
	X(bool, uvm_rust_flash_trim, true, 0644, "Tell the SSD what it need not keep any more (default 1)") \
	X(bool, uvm_rust_flash_copies, true, 0444, \
	  "Keep what is fetched from flash there as well while it is only read, in read-mostly memory (default 1)")

#define UVM_RUST_TYPE_bool	_Bool
#define UVM_RUST_TYPE_uint	unsigned int
#define UVM_RUST_TYPE_charp	char *
#define UVM_RUST_PARAM_DECLARE(type, name, ...)	extern UVM_RUST_TYPE_##type name;
UVM_RUST_PARAMS_ALWAYS(UVM_RUST_PARAM_DECLARE)
UVM_RUST_PARAMS_HOOKED(UVM_RUST_PARAM_DECLARE)

#endif
