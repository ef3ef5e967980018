// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The SSD tier's device: a block device or a file, opened exclusively, written to
 * around the page cache, and encrypted.
 *
 * Each page is encrypted on its own with AES-256-XTS. Its tweak is the stamp that it got
 * when it was written, which no other write ever gets, so equal pages look different and
 * an old page does not decrypt in the place of a new one. The key is made when the device
 * is attached and is nowhere but in memory. XTS does not notice a change; a checksum of
 * the ciphertext and the stamp, kept in memory, does.
 */
#include <crypto/skcipher.h>
#include <linux/blkdev.h>
#include <linux/bvec.h>
#include <linux/crc32c.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/string.h>
#include <linux/uio.h>

#include "uvm_common.h"
#include "uvm_va_block.h"
#include "uvm_rust_flash.h"

/* --- raw I/O ------------------------------------------------------------------------ */

int uvm_seam_flash_transfer(struct uvm_seam_flash_dev *dev, struct page **of, struct uvm_rust_bvec *room, u16 pages,
			    u64 position, bool write, u8 level)
{
	struct bio_vec *bvec = (struct bio_vec *)room;
	size_t length = (size_t)pages * PAGE_SIZE;
	struct iov_iter iter;
	struct kiocb kiocb;
	ssize_t ret;
	u32 k, runs = 0;

	BUILD_BUG_ON(sizeof(*room) != sizeof(*bvec));
	for (k = 0; k < pages; k++)
		if (k && page_to_pfn(of[k]) == page_to_pfn(of[k - 1]) + 1)
			bvec[runs - 1].bv_len += PAGE_SIZE;
		else
			bvec_set_page(&bvec[runs++], of[k], PAGE_SIZE, 0);
	init_sync_kiocb(&kiocb, dev->file);
	kiocb.ki_pos = position;
	kiocb.ki_ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, level);
	iov_iter_bvec(&iter, write ? ITER_SOURCE : ITER_DEST, bvec, runs, length);
	if (write) {
		kiocb_start_write(&kiocb);
		ret = vfs_iocb_iter_write(dev->file, &kiocb, &iter);
		kiocb_end_write(&kiocb);
	} else
		ret = vfs_iocb_iter_read(dev->file, &kiocb, &iter);
	return ret < 0 ? ret : (size_t)ret == length ? 0 : -EIO;
}

/*
 * A block device gets a discard, which NVMe calls deallocating. fallocate() makes write-zeroes of a hole in it: an NVMe may
 * carry them out by writing, and only some deallocate then. A discard leaves the page cache alone, and takes no lock of the
 * inode's; our I/O goes around that cache. The kernel says nothing of a discard that the device cannot do, so the device is
 * asked before. A file gets none: others would take the room that it has in its file system, and writes fail.
 */
int uvm_seam_flash_discard(struct uvm_seam_flash_dev *dev, u64 position, u64 bytes)
{
	struct inode *inode = dev->file->f_mapping->host;

	if (!S_ISBLK(inode->i_mode) || !bdev_max_discard_sectors(I_BDEV(inode)))
		return -EOPNOTSUPP;
	return blkdev_issue_discard(I_BDEV(inode), position >> SECTOR_SHIFT, bytes >> SECTOR_SHIFT, GFP_KERNEL);
}

/* --- pages ---------------------------------------------------------------------------- */

bool uvm_seam_pages_new(struct page **of, u32 order, bool account, bool waits)
{
	gfp_t flags = (account ? GFP_KERNEL_ACCOUNT : GFP_KERNEL) | __GFP_COMP | (waits ? 0 : __GFP_NORETRY | __GFP_NOWARN);
	struct page *page = alloc_pages(flags, order);

	/* One folio, so that the last reference gives it back as a whole. */
	if (page)
		page_ref_add(page, (1 << order) - 1);
	for (u32 k = 0; page && k < 1u << order; k++)
		of[k] = nth_page(page, k);
	return page;
}

u8 *uvm_seam_page_bytes(struct page *page)
{
	return page_address(page);
}

void uvm_seam_pages_put(struct page **of, u32 pages)
{
	for (; pages--; *of++ = NULL)
		if (*of)
			put_page(*of);
}

bool uvm_seam_flash_is_there(struct uvm_seam_flash_dev *dev)
{
	struct inode *inode = dev->file->f_mapping->host;

	return !S_ISBLK(inode->i_mode) || !test_bit(GD_DEAD, &I_BDEV(inode)->bd_disk->state);
}

/* --- encryption ------------------------------------------------------------------------ */

u32 uvm_seam_flash_crypt(struct uvm_seam_flash_dev *dev, struct skcipher_request *req, struct page **from,
			 struct page **to, u32 pages, u64 stamp, bool encrypt)
{
	struct scatterlist src, dst;
	/* Some implementations answer later. */
	DECLARE_CRYPTO_WAIT(wait);
	u32 k;

	sg_init_table(&src, 1);
	sg_init_table(&dst, 1);
	skcipher_request_set_tfm(req, dev->tfm);
	skcipher_request_set_callback(req, CRYPTO_TFM_REQ_MAY_BACKLOG | CRYPTO_TFM_REQ_MAY_SLEEP, crypto_req_done, &wait);
	for (k = 0; k < pages; k++) {
		/* The cipher copies a misaligned tweak into memory that it allocates. */
		__le64 tweak[2] __aligned(16) = { cpu_to_le64(stamp + k), 0 };

		sg_set_page(&src, from[k], PAGE_SIZE, 0);
		sg_set_page(&dst, to[k], PAGE_SIZE, 0);
		skcipher_request_set_crypt(req, &src, &dst, PAGE_SIZE, tweak);
		if (crypto_wait_req(encrypt ? crypto_skcipher_encrypt(req) : crypto_skcipher_decrypt(req), &wait))
			break;
	}
	return k;
}

void uvm_seam_flash_sums(struct page **of, u32 pages, u64 stamp, u32 *sums)
{
	/* Two stamps less than 2^32 apart never begin alike. */
	for (; pages--; stamp++)
		*sums++ = crc32c(~(u32)stamp, page_address(*of++), PAGE_SIZE);
}

static int make_key(struct uvm_seam_flash_dev *dev, u32 *request)
{
	u8 key[64];
	int ret;

	/*
	 * Asynchronous ciphers are allowed, because the CPU's fast AES is one. Ciphers that allocate are not: memory may be
	 * short.
	 */
	dev->tfm = crypto_alloc_skcipher("xts(aes)", 0, CRYPTO_ALG_ALLOCATES_MEMORY);
	if (IS_ERR(dev->tfm))
		return PTR_ERR(dev->tfm) == -ENOENT ? -EOPNOTSUPP : PTR_ERR(dev->tfm);
	*request = sizeof(struct skcipher_request) + crypto_skcipher_reqsize(dev->tfm);
	get_random_bytes(key, sizeof(key));
	ret = crypto_skcipher_setkey(dev->tfm, key, sizeof(key));
	memzero_explicit(key, sizeof(key));
	return ret;
}

/* --- opening --------------------------------------------------------------------------------- */

/* A block device or a file. */
static int open_file(struct uvm_seam_flash_dev *dev, const char *path)
{
	/* O_EXCL on a block device: nobody else has it mounted or open in this way. */
	struct file *file = filp_open(path, O_RDWR | O_DIRECT | O_EXCL | O_LARGEFILE, 0);

	if (IS_ERR(file))
		return PTR_ERR(file) == -EINVAL ? -EOPNOTSUPP : PTR_ERR(file);
	pr_info("nvidia-uvm: flash: opened %s\n", path);
	dev->file = file;
	return S_ISBLK(file_inode(file)->i_mode) || S_ISREG(file_inode(file)->i_mode) ? 0 : -ENOTBLK;
}

void uvm_seam_flash_close(struct uvm_seam_flash_dev *dev)
{
	if (dev->file)
		filp_close(dev->file, NULL);
	dev->file = NULL;
}

void uvm_seam_flash_free(struct uvm_seam_flash_dev *dev)
{
	/* It may be none, or what its making failed with. */
	crypto_free_skcipher(dev->tfm);
	uvm_seam_flash_close(dev);
	kfree(dev);
}

int uvm_seam_flash_open(const char *path, struct uvm_seam_flash_dev **out, u64 *bytes, u32 *request)
{
	struct uvm_seam_flash_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int ret;

	if (!dev)
		return -ENOMEM;
	init_waitqueue_head(&dev->wait);
	*out = dev;
	ret = make_key(dev, request) ?: open_file(dev, path);
	if (ret == 0)
		*bytes = i_size_read(dev->file->f_mapping->host);
	return ret;
}

/* --- who waits for it -------------------------------------------------------------------------- */

void uvm_seam_flash_tell(struct uvm_seam_flash_dev *dev)
{
	wake_up_all(&dev->wait);
}

void uvm_seam_flash_wait(struct uvm_seam_flash_dev *dev, const u32 *progress, u32 was, u32 ms)
{
	wait_event_timeout(dev->wait, READ_ONCE(*progress) != was, msecs_to_jiffies(ms));
}
