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

/* In front of the first slot. */
#define RESERVED_SIZE	((loff_t)UVM_RUST_FLASH_RESERVED_SLOTS * FLASH_SLOT_SIZE)
/* What must be empty, or begin with our mark. */
#define PROBE_PAGES	32u

static const char mark[] = "uvm-rust flash 1: what follows is encrypted with a key that is gone\n";

/* --- raw I/O ------------------------------------------------------------------------ */

static loff_t position(u32 slot, u16 offset)
{
	return RESERVED_SIZE + (loff_t)slot * FLASH_SLOT_SIZE + (loff_t)offset * PAGE_SIZE;
}

/*
 * The arbiter between those who share the device is the kernel's I/O scheduler, to which we
 * say who comes first: whoever waits in a fault, then who asked in time, then spills. All
 * are best effort: a process is not to keep others from a disk of which we have a part, and
 * where the host is full, faults wait for spills.
 */
enum urgency {
	FAULT = 0,
	REQUEST = IOPRIO_BE_NORM,
	BACKGROUND = IOPRIO_NR_LEVELS - 1,
};

/* Whole pages, or an error. The array is used up. */
static int transfer(struct file *file, bool write, enum urgency urgency, struct bio_vec *bvec, u32 pages, loff_t pos)
{
	size_t length = (size_t)pages * PAGE_SIZE;
	struct iov_iter iter;
	struct kiocb kiocb;
	ssize_t ret;

	init_sync_kiocb(&kiocb, file);
	kiocb.ki_pos = pos;
	kiocb.ki_ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, urgency);
	iov_iter_bvec(&iter, write ? ITER_SOURCE : ITER_DEST, bvec, pages, length);
	if (write) {
		kiocb_start_write(&kiocb);
		ret = vfs_iocb_iter_write(file, &kiocb, &iter);
		kiocb_end_write(&kiocb);
	}
	else {
		ret = vfs_iocb_iter_read(file, &kiocb, &iter);
	}
	if (ret < 0)
		return ret;
	return (size_t)ret == length ? 0 : -EIO;
}

/* --- buffers -------------------------------------------------------------------------- */

void uvm_seam_flash_release(struct uvm_seam_flash_io *io)
{
	u32 i;

	for (i = 0; i < FLASH_SLOT_PAGES; i++) {
		if (io->pages[i])
			put_page(io->pages[i]);
		io->pages[i] = NULL;
	}
}

void uvm_rust_flash_io_free(struct uvm_seam_flash_io *io)
{
	u32 i;

	if (!io)
		return;
	uvm_seam_flash_release(io);
	for (i = 0; i < FLASH_SLOT_PAGES; i++) {
		if (io->bounce[i])
			__free_page(io->bounce[i]);
	}
	kvfree(io);
}

struct uvm_seam_flash_io *uvm_rust_flash_io_alloc(bool bounce, bool account)
{
	gfp_t gfp = account ? GFP_KERNEL_ACCOUNT : GFP_KERNEL;
	struct uvm_seam_flash_io *io = kvzalloc(sizeof(*io), gfp);
	u32 i;

	for (i = 0; io && bounce && i < FLASH_SLOT_PAGES; i++) {
		io->bounce[i] = alloc_page(gfp);
		if (!io->bounce[i]) {
			uvm_rust_flash_io_free(io);
			return NULL;
		}
	}
	return io;
}

bool uvm_seam_flash_is_there(struct uvm_seam_flash_dev *dev)
{
	struct inode *inode = dev->file->f_mapping->host;

	return !S_ISBLK(inode->i_mode) || !test_bit(GD_DEAD, &I_BDEV(inode)->bd_disk->state);
}

/* --- encryption ------------------------------------------------------------------------ */

/* What encrypts page after page, and waits for those implementations that answer later. */
struct crypt
{
	struct skcipher_request *req;
	struct crypto_wait wait;
};

/* Sleeps if the cipher does. */
static int crypt_page(struct crypt *crypt, bool encrypt, struct page *from, struct page *to, u64 stamp)
{
	struct skcipher_request *req = crypt->req;
	struct scatterlist src, dst;
	__le64 tweak[2] = { cpu_to_le64(stamp), 0 };

	sg_init_table(&src, 1);
	sg_set_page(&src, from, PAGE_SIZE, 0);
	sg_init_table(&dst, 1);
	sg_set_page(&dst, to, PAGE_SIZE, 0);
	skcipher_request_set_crypt(req, &src, &dst, PAGE_SIZE, tweak);
	return crypto_wait_req(encrypt ? crypto_skcipher_encrypt(req) : crypto_skcipher_decrypt(req), &crypt->wait);
}

static u32 page_sum(struct page *page, u64 stamp)
{
	void *data = kmap_local_page(page);
	u32 sum = crc32c(crc32c(~0u, &stamp, sizeof(stamp)), data, PAGE_SIZE);

	kunmap_local(data);
	return sum;
}

static bool crypt_begin(struct crypt *crypt, struct uvm_seam_flash_dev *dev)
{
	crypt->req = skcipher_request_alloc(dev->tfm, GFP_KERNEL);
	if (!crypt->req)
		return false;
	crypto_init_wait(&crypt->wait);
	skcipher_request_set_callback(crypt->req, CRYPTO_TFM_REQ_MAY_BACKLOG | CRYPTO_TFM_REQ_MAY_SLEEP,
				      crypto_req_done, &crypt->wait);
	return true;
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

/* --- pages of a va_block ------------------------------------------------------------------ */

int uvm_seam_flash_read(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			const struct uvm_rust_flash_piece *piece, bool fault)
{
	u32 k;

	for (k = 0; k < piece->pages; k++)
		bvec_set_page(&io->bvec[k], io->pages[piece->first + k], PAGE_SIZE, 0);
	return transfer(dev->file, false, fault ? FAULT : REQUEST, io->bvec, piece->pages,
			position(piece->slot, piece->offset));
}

void uvm_seam_flash_decrypt(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			    const struct uvm_rust_flash_piece *piece, struct uvm_rust_mask *right,
			    struct uvm_rust_mask *wrong)
{
	bool checked = uvm_rust_flash_sums(dev->table, piece, io->sums);
	struct crypt crypt;
	u32 k;

	if (!crypt_begin(&crypt, dev))
		return;
	for (k = 0; k < piece->pages; k++) {
		struct page *page = io->pages[piece->first + k];
		u64 stamp = piece->stamp + k;

		if (checked && page_sum(page, stamp) != io->sums[k])
			uvm_page_mask_set((uvm_page_mask_t *)wrong, piece->first + k);
		else if (crypt_page(&crypt, false, page, page, stamp) == 0)
			uvm_page_mask_set((uvm_page_mask_t *)right, piece->first + k);
	}
	skcipher_request_free(crypt.req);
}

static bool seal_pages(struct uvm_seam_flash_io *io, struct crypt *crypt,
		       const struct uvm_rust_flash_piece *piece)
{
	u32 k;

	for (k = 0; k < piece->pages; k++) {
		u32 page = piece->first + k;

		if (crypt_page(crypt, true, io->pages[page], io->bounce[page], piece->stamp + k))
			return false;
		io->sums[k] = page_sum(io->bounce[page], piece->stamp + k);
		bvec_set_page(&io->bvec[k], io->bounce[page], PAGE_SIZE, 0);
		cond_resched();
	}
	return true;
}

int uvm_seam_flash_write(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			 const struct uvm_rust_flash_piece *piece)
{
	struct crypt crypt;
	bool sealed;
	int ret;

	if (!crypt_begin(&crypt, dev))
		return UVM_RUST_FLASH_NOT_WRITTEN;
	sealed = seal_pages(io, &crypt, piece);
	skcipher_request_free(crypt.req);
	if (!sealed)
		return UVM_RUST_FLASH_NOT_WRITTEN;
	ret = transfer(dev->file, true, BACKGROUND, io->bvec, piece->pages, position(piece->slot, piece->offset));
	if (ret == 0)
		uvm_rust_flash_set_sums(dev->table, piece, io->sums);
	return ret;
}

int uvm_seam_flash_copy(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io, u32 slot, u16 offset, u16 pages,
			bool write)
{
	u32 k;

	for (k = 0; k < pages; k++)
		bvec_set_page(&io->bvec[k], io->bounce[k], PAGE_SIZE, 0);
	return transfer(dev->file, write, BACKGROUND, io->bvec, pages, position(slot, offset));
}

/* --- opening --------------------------------------------------------------------------------- */

/* 0 if the device begins with zeros or our mark; then, and by force, puts the mark there. */
static int probe(struct file *file, struct uvm_seam_flash_io *io, bool force)
{
	u32 k;
	int ret;

	for (k = 0; k < PROBE_PAGES; k++)
		bvec_set_page(&io->bvec[k], io->bounce[k], PAGE_SIZE, 0);
	ret = transfer(file, false, REQUEST, io->bvec, PROBE_PAGES, 0);
	if (ret)
		return ret;
	for (k = 0; !force && k < PROBE_PAGES; k++) {
		char *data = kmap_local_page(io->bounce[k]);
		bool ours = k == 0 && !memcmp(data, mark, sizeof(mark));

		if (!ours && memchr_inv(data, 0, PAGE_SIZE))
			ret = -ENOTEMPTY;
		kunmap_local(data);
		if (ret)
			return ret;
	}
	clear_highpage(io->bounce[0]);
	memcpy_to_page(io->bounce[0], 0, mark, sizeof(mark));
	bvec_set_page(&io->bvec[0], io->bounce[0], PAGE_SIZE, 0);
	return transfer(file, true, REQUEST, io->bvec, 1, 0);
}

int uvm_seam_flash_probe(struct uvm_seam_flash_dev *dev, bool force)
{
	struct uvm_seam_flash_io *io = uvm_rust_flash_io_alloc(true, false);
	int ret = io ? probe(dev->file, io, force) : -ENOMEM;

	uvm_rust_flash_io_free(io);
	return ret;
}

u64 uvm_seam_flash_bytes(struct uvm_seam_flash_dev *dev)
{
	return i_size_read(dev->file->f_mapping->host);
}

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

static void release_dev(struct kref *ref)
{
	struct uvm_seam_flash_dev *dev = container_of(ref, struct uvm_seam_flash_dev, ref);

	if (dev->table)
		uvm_rust_flash_destroy(dev->table);
	if (dev->tfm)
		crypto_free_skcipher(dev->tfm);
	uvm_seam_flash_close(dev);
	kfree(dev);
}

void uvm_seam_flash_dev_get(struct uvm_seam_flash_dev *dev)
{
	kref_get(&dev->ref);
}

void uvm_seam_flash_dev_put(struct uvm_seam_flash_dev *dev)
{
	kref_put(&dev->ref, release_dev);
}

int uvm_seam_flash_open(u64 path, struct uvm_seam_flash_dev **out)
{
	struct uvm_seam_flash_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int ret;

	if (!dev)
		return -ENOMEM;
	kref_init(&dev->ref);
	init_waitqueue_head(&dev->wait);
	ret = make_key(dev);
	if (ret == 0)
		ret = open_file(dev, path);
	if (ret)
		uvm_seam_flash_dev_put(dev);
	else
		*out = dev;
	return ret;
}

struct uvm_rust_flash_table **uvm_seam_flash_table(struct uvm_seam_flash_dev *dev)
{
	return &dev->table;
}
