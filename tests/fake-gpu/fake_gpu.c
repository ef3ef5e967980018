// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A PCI device that is not there, with the IDs of an NVIDIA GPU, on a root bus of its own:
 * nvidia.ko finds it, asks it what it is, and stays loaded, without which nvidia-uvm.ko cannot
 * be loaded beside it. There is nothing behind it: who opens it gets an error of nvidia.ko's.
 *
 * Its BARs lie in memory that the kernel was told to leave alone, and does not touch:
 *
 *   memmap=129M$0x60000000     on the kernel's command line
 *   insmod uvm_rust_fake_gpu.ko window=0x60000000
 *
 * (One MiB more than the BARs need: else the kernel takes the reserved range for a part of ours,
 * in the way of the BARs, and not ours for a part of it.)
 *
 * What nvidia.ko reads while it probes are the registers with its name: they are set to those
 * of a TU102, from NVIDIA's open register manuals (dev_boot.h: NV_PMC_BOOT_0, NV_PMC_BOOT_42).
 */
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/module.h>
#include <linux/pci.h>

#define WINDOW_SIZE SZ_128M
#define BUS 0x60

static ulong window;
module_param(window, ulong, 0444);
MODULE_PARM_DESC(window, "Physical address of 128 MiB, aligned to it, that memmap=129M$ADDRESS has reserved");

/* The registers, the framebuffer and the third window of a GPU. */
static const struct {
	u32 at, size, offset, flags;
} bars[] = {
	{ PCI_BASE_ADDRESS_0, SZ_16M, 0, 0 },
	{ PCI_BASE_ADDRESS_1, SZ_64M, SZ_64M, PCI_BASE_ADDRESS_MEM_PREFETCH },
	{ PCI_BASE_ADDRESS_3, SZ_32M, SZ_32M, PCI_BASE_ADDRESS_MEM_PREFETCH },
};

enum { BOOT_0 = 0x000, BOOT_42 = 0xa00 };
enum { BOOT_0_TU102 = 0x162000a1, BOOT_42_TU102 = 0x162a1000 };

/* Of device 0, in the CPU's order; under the kernel's lock of configuration accesses. */
static u8 config[PCI_CFG_SPACE_SIZE] __aligned(4);
static struct pci_sysdata sysdata = { .node = NUMA_NO_NODE };
static struct resource memory = { .name = "fake GPU", .flags = IORESOURCE_MEM };
static struct resource busses = { .name = "fake GPU bus", .start = BUS, .end = BUS, .flags = IORESOURCE_BUS };
static struct pci_bus *bus;

static bool nobody(struct pci_bus *on, unsigned int devfn, int where, int size)
{
	return on->number != BUS || devfn || where < 0 || where + size > sizeof(config);
}

static int fake_read(struct pci_bus *on, unsigned int devfn, int where, int size, u32 *value)
{
	*value = ~0U >> (32 - 8 * size);
	if (nobody(on, devfn, where, size))
		return PCIBIOS_DEVICE_NOT_FOUND;
	*value = 0;
	memcpy(value, config + where, size);
	return PCIBIOS_SUCCESSFUL;
}

/* A BAR keeps the bits above its size, by which the kernel finds out how large it is. */
static u32 kept(int where, u32 value)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(bars); i++)
		if (bars[i].at == where)
			return (value & ~(bars[i].size - 1)) | bars[i].flags;
	return 0;
}

static int fake_write(struct pci_bus *on, unsigned int devfn, int where, int size, u32 value)
{
	if (nobody(on, devfn, where, size))
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where >= PCI_BASE_ADDRESS_0 && where < PCI_CARDBUS_CIS && size == 4)
		value = kept(where, value);
	else if (where != PCI_COMMAND && where != PCI_INTERRUPT_LINE)
		return PCIBIOS_SUCCESSFUL;
	memcpy(config + where, &value, size);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops ops = { .read = fake_read, .write = fake_write };

static void put(int where, int size, u32 value)
{
	memcpy(config + where, &value, size);
}

static void set_config(void)
{
	int i;

	put(PCI_VENDOR_ID, 2, PCI_VENDOR_ID_NVIDIA);
	put(PCI_DEVICE_ID, 2, 0x1e07);
	put(PCI_REVISION_ID, 1, 0xa1);
	put(PCI_CLASS_DEVICE, 2, PCI_CLASS_DISPLAY_3D);
	put(PCI_SUBSYSTEM_VENDOR_ID, 2, PCI_VENDOR_ID_NVIDIA);
	put(PCI_SUBSYSTEM_ID, 2, 0x1e07);
	for (i = 0; i < ARRAY_SIZE(bars); i++)
		put(bars[i].at, 4, (window + bars[i].offset) | bars[i].flags);
	/* nvidia.ko wants an interrupt; none ever comes. */
	put(PCI_INTERRUPT_PIN, 1, 1);
	put(PCI_INTERRUPT_LINE, 1, 10);
}

static int set_registers(void)
{
	void __iomem *registers = ioremap(window, PAGE_SIZE);

	if (!registers)
		return -ENOMEM;
	memset_io(registers, 0, PAGE_SIZE);
	writel(BOOT_0_TU102, registers + BOOT_0);
	writel(BOOT_42_TU102, registers + BOOT_42);
	iounmap(registers);
	return 0;
}

/* No page of the window may be the kernel's memory; each is asked, as one alone would be overwritten. */
static bool is_reserved(void)
{
	ulong at;

	if (!window || !IS_ALIGNED(window, WINDOW_SIZE))
		return false;
	for (at = window; at < window + WINDOW_SIZE; at += PAGE_SIZE)
		if (page_is_ram(PHYS_PFN(at)))
			return false;
	return true;
}

static int __init fake_init(void)
{
	LIST_HEAD(resources);
	int err;

	if (!is_reserved()) {
		pr_err("window=%#lx: boot with memmap=129M$ADDRESS, and give that address\n", window);
		return -EINVAL;
	}
	memory.start = window;
	memory.end = window + WINDOW_SIZE - 1;
	err = insert_resource(&iomem_resource, &memory);
	if (err)
		return err;
	err = set_registers();
	if (err)
		goto no_bus;
	set_config();
	pci_add_resource(&resources, &memory);
	pci_add_resource(&resources, &busses);
	/* A domain of its own: the bus's number may be taken in the first. */
	sysdata.domain = 1;
	pci_lock_rescan_remove();
	bus = pci_create_root_bus(NULL, BUS, &ops, &sysdata, &resources);
	if (bus) {
		pci_scan_child_bus(bus);
		pci_bus_claim_resources(bus);
		pci_bus_add_devices(bus);
	}
	pci_unlock_rescan_remove();
	if (bus)
		return 0;
	pci_free_resource_list(&resources);
	err = -ENOMEM;
no_bus:
	remove_resource(&memory);
	return err;
}
module_init(fake_init);

static void __exit fake_exit(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(bus);
	pci_remove_root_bus(bus);
	pci_unlock_rescan_remove();
	remove_resource(&memory);
}
module_exit(fake_exit);

MODULE_DESCRIPTION("A PCI device with an NVIDIA GPU's IDs, and nothing behind it");
MODULE_LICENSE("Dual MIT/GPL");
