// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Writing a number N to /sys/kernel/debug/uvm_rust_panic has Rust look up N squared, in a
 * table of three. More than two is a panic in Rust. Reading gives the last square.
 */
#include <linux/debugfs.h>
#include <linux/module.h>

extern u64 uvm_rust_panic_square(size_t index);

static u64 last;
static struct dentry *file;

static int set_number(void *data, u64 number)
{
	last = uvm_rust_panic_square(number);
	return 0;
}

static int get_square(void *data, u64 *square)
{
	*square = last;
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(number_fops, get_square, set_number, "%llu\n");

static int __init uvm_rust_panic_init(void)
{
	file = debugfs_create_file("uvm_rust_panic", 0600, NULL, NULL, &number_fops);
	return PTR_ERR_OR_ZERO(file);
}
module_init(uvm_rust_panic_init);

static void __exit uvm_rust_panic_exit(void)
{
	debugfs_remove(file);
}
module_exit(uvm_rust_panic_exit);

MODULE_DESCRIPTION("What a panic in Rust does to a kernel");
MODULE_LICENSE("Dual MIT/GPL");
