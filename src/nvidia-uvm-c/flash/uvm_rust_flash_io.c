// SPDX-License-Identifier: GPL-2.0 OR MIT
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
#include <linux/highmem.h>
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
	u32 k;

	BUILD_BUG_ON(sizeof(*room) != sizeof(*bvec));
	for (k = 0; k < pages; k++)
		bvec_set_page(&bvec[k], of[k], PAGE_SIZE, 0);
	init_sync_kiocb(&kiocb, dev->file);
	kiocb.ki_pos = position;
	kiocb.ki_ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, level);
	iov_iter_bvec(&iter, write ? ITER_SOURCE : ITER_DEST, bvec, pages, length);
	if (write) {
		kiocb_start_write(&kiocb);
		ret = vfs_iocb_iter_write(dev->file, &kiocb, &iter);
		kiocb_end_write(&kiocb);
	}
	else {
		ret = vfs_iocb_iter_read(dev->file, &kiocb, &iter);
	}
	if (ret < 0)
		return ret;
	return (size_t)ret == length ? 0 : -EIO;
}

/* --- pages ---------------------------------------------------------------------------- */

struct page *uvm_seam_page_new(bool account)
{
	return alloc_page(account ? GFP_KERNEL_ACCOUNT : GFP_KERNEL);
}

u8 *uvm_seam_page_bytes(struct page *page)
{
	return page_address(page);
}

void uvm_seam_page_put(struct page *page)
{
	put_page(page);
}

bool uvm_seam_flash_is_there(struct uvm_seam_flash_dev *dev)
{
	struct inode *inode = dev->file->f_mapping->host;

	return !S_ISBLK(inode->i_mode) || !test_bit(GD_DEAD, &I_BDEV(inode)->bd_disk->state);
}

/* --- encryption ------------------------------------------------------------------------ */

struct skcipher_request *uvm_seam_flash_request_new(struct uvm_seam_flash_dev *dev)
{
	return skcipher_request_alloc(dev->tfm, GFP_KERNEL);
}

void uvm_seam_flash_request_free(struct skcipher_request *req)
{
	skcipher_request_free(req);
}

bool uvm_seam_flash_crypt(struct skcipher_request *req, struct page *from, struct page *to, u64 stamp, bool encrypt)
{
	__le64 tweak[2] = { cpu_to_le64(stamp), 0 };
	struct scatterlist src, dst;
	/* Some implementations answer later. */
	DECLARE_CRYPTO_WAIT(wait);

	sg_init_table(&src, 1);
	sg_set_page(&src, from, PAGE_SIZE, 0);
	sg_init_table(&dst, 1);
	sg_set_page(&dst, to, PAGE_SIZE, 0);
	skcipher_request_set_callback(req, CRYPTO_TFM_REQ_MAY_BACKLOG | CRYPTO_TFM_REQ_MAY_SLEEP, crypto_req_done, &wait);
	skcipher_request_set_crypt(req, &src, &dst, PAGE_SIZE, tweak);
	return crypto_wait_req(encrypt ? crypto_skcipher_encrypt(req) : crypto_skcipher_decrypt(req), &wait) == 0;
}

u32 uvm_seam_flash_sum(struct page *page, u64 stamp)
{
	void *data = kmap_local_page(page);
	u32 sum = crc32c(crc32c(~0u, &stamp, sizeof(stamp)), data, PAGE_SIZE);

	kunmap_local(data);
	return sum;
}

static int make_key(struct uvm_seam_flash_dev *dev)
{
	u8 key[64];
	int ret;

	/*
	 * The CPU's own AES calls itself asynchronous, so it is not to be ruled out: what is
	 * left then goes block by block. None that allocates, as memory may be short here.
	 */
	dev->tfm = crypto_alloc_skcipher("xts(aes)", 0, CRYPTO_ALG_ALLOCATES_MEMORY);
	if (IS_ERR(dev->tfm)) {
		ret = PTR_ERR(dev->tfm);
		dev->tfm = NULL;
		return ret == -ENOENT ? -EOPNOTSUPP : ret;
	}
	get_random_bytes(key, sizeof(key));
	ret = crypto_skcipher_setkey(dev->tfm, key, sizeof(key));
	memzero_explicit(key, sizeof(key));
	return ret;
}

/* --- opening --------------------------------------------------------------------------------- */

/* A block device or a file, by its path in user space. */
static int open_file(struct uvm_seam_flash_dev *dev, u64 user_path)
{
	char *path = strndup_user((const char __user *)(uintptr_t)user_path, PATH_MAX);
	struct file *file;

	if (IS_ERR(path))
		return PTR_ERR(path);
	/* O_EXCL on a block device: nobody else has it mounted or open in this way. */
	file = filp_open(path, O_RDWR | O_DIRECT | O_EXCL | O_LARGEFILE, 0);
	if (!IS_ERR(file))
		pr_info("nvidia-uvm: flash: opened %s\n", path);
	kfree(path);
	if (IS_ERR(file))
		return PTR_ERR(file) == -EINVAL ? -EOPNOTSUPP : PTR_ERR(file);
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
	if (dev->tfm)
		crypto_free_skcipher(dev->tfm);
	uvm_seam_flash_close(dev);
	kfree(dev);
}

int uvm_seam_flash_open(u64 path, struct uvm_seam_flash_dev **out, u64 *bytes)
{
	struct uvm_seam_flash_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int ret;

	if (!dev)
		return -ENOMEM;
	init_waitqueue_head(&dev->wait);
	ret = make_key(dev);
	if (ret == 0)
		ret = open_file(dev, path);
	if (ret) {
		uvm_seam_flash_free(dev);
		return ret;
	}
	*out = dev;
	*bytes = i_size_read(dev->file->f_mapping->host);
	return 0;
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
