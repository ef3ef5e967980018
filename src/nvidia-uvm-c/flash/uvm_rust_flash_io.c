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
#include <linux/uio.h>

#include "uvm_common.h"
#include "uvm_va_block.h"
#include "uvm_rust_flash.h"

/* In front of the first slot. */
#define RESERVED_SIZE	FLASH_SLOT_SIZE
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

void uvm_rust_flash_io_free(struct uvm_seam_flash_io *io)
{
	u32 i;

	if (!io)
		return;
	for (i = 0; i < FLASH_SLOT_PAGES; i++) {
		if (io->bounce[i])
			__free_page(io->bounce[i]);
	}
	kvfree(io);
}

struct uvm_seam_flash_io *uvm_rust_flash_io_alloc(bool bounce, gfp_t gfp)
{
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

bool uvm_seam_flash_is_sound(struct uvm_seam_flash_dev *dev)
{
	struct inode *inode = dev->file->f_mapping->host;

	if (uvm_rust_flash_has_failed(dev->table))
		return false;
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

static bool read_pages(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
		       const struct uvm_rust_flash_piece *piece, int *error)
{
	u32 k;

	for (k = 0; k < piece->pages; k++)
		bvec_set_page(&io->bvec[k], io->pages[piece->first + k], PAGE_SIZE, 0);
	*error = transfer(dev->file, false, io->fault ? FAULT : REQUEST, io->bvec, piece->pages,
			  position(piece->slot, piece->offset));
	return *error == 0;
}

/* Whether it is worth asking again for what gave @error. */
static bool is_passing(int error)
{
	return error == -ENOMEM || error == -EINTR || error == -EAGAIN || error == -ERESTARTSYS;
}

static void open_pages(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
		       struct crypt *crypt, const struct uvm_rust_flash_piece *piece,
		       uvm_page_mask_t *good, uvm_page_mask_t *failed)
{
	bool checked = uvm_rust_flash_sums(dev->table, piece, io->sums);
	u32 k;

	for (k = 0; k < piece->pages; k++) {
		struct page *page = io->pages[piece->first + k];
		u64 stamp = piece->stamp + k;

		if (checked && page_sum(page, stamp) != io->sums[k]) {
			uvm_rust_flash_count(dev->table, UVM_RUST_FLASH_READ_ERRORS, 1);
			uvm_page_mask_set(failed, piece->first + k);
		}
		else if (crypt_page(crypt, false, page, page, stamp) == 0) {
			uvm_page_mask_set(good, piece->first + k);
		}
	}
}

void uvm_rust_flash_read(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			 uvm_page_mask_t *good, uvm_page_mask_t *failed)
{
	struct crypt crypt;
	u32 i, k;
	int error;

	uvm_page_mask_zero(good);
	uvm_page_mask_zero(failed);
	if (!crypt_begin(&crypt, dev))
		return;
	for (i = 0; i < io->pieces.count; i++) {
		const struct uvm_rust_flash_piece *piece = &io->pieces.piece[i];

		if (read_pages(dev, io, piece, &error)) {
			open_pages(dev, io, &crypt, piece, good, failed);
			continue;
		}
		uvm_rust_flash_count(dev->table, UVM_RUST_FLASH_READ_ERRORS, 1);
		/* One bad sector is not to cost 2 MiB: page by page, then. */
		for (k = 0; k < piece->pages; k++) {
			struct uvm_rust_flash_piece one = *piece;

			one.first += k;
			one.offset += k;
			one.stamp += k;
			one.pages = 1;
			if (read_pages(dev, io, &one, &error))
				open_pages(dev, io, &crypt, &one, good, failed);
			else if (!is_passing(error))
				uvm_page_mask_set(failed, one.first);
		}
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

static void write_pages(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io, uvm_page_mask_t *good)
{
	struct crypt crypt;
	u32 i;

	uvm_page_mask_zero(good);
	if (!crypt_begin(&crypt, dev))
		return;
	for (i = 0; i < io->pieces.count; i++) {
		const struct uvm_rust_flash_piece *piece = &io->pieces.piece[i];

		if (!seal_pages(io, &crypt, piece))
			continue;
		/* What fails half-way has worn the device as well. */
		io->wrote += (u64)piece->pages * PAGE_SIZE;
		if (transfer(dev->file, true, BACKGROUND, io->bvec, piece->pages,
			     position(piece->slot, piece->offset))) {
			if (uvm_rust_flash_count(dev->table, UVM_RUST_FLASH_WRITE_ERRORS, 1) == 1)
				pr_warn("nvidia-uvm: flash: a write failed; the pages stay in host memory\n");
			continue;
		}
		uvm_rust_flash_set_sums(dev->table, piece, io->sums);
		uvm_page_mask_region_fill(good, uvm_va_block_region(piece->first, piece->first + piece->pages));
		uvm_rust_flash_count(dev->table, UVM_RUST_FLASH_WRITTEN, (u64)piece->pages * PAGE_SIZE);
	}
	skcipher_request_free(crypt.req);
}

void uvm_rust_flash_release_pages(struct uvm_seam_flash_io *io)
{
	u32 i;

	for (i = 0; i < FLASH_SLOT_PAGES; i++) {
		if (io->pages[i])
			put_page(io->pages[i]);
		io->pages[i] = NULL;
	}
}

struct uvm_rust_flash_pieces *uvm_seam_flash_pieces(struct uvm_seam_flash_io *io)
{
	return &io->pieces;
}

void uvm_seam_flash_write(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io, struct uvm_rust_mask *good)
{
	write_pages(dev, io, (uvm_page_mask_t *)good);
	uvm_rust_flash_release_pages(io);
}

bool uvm_seam_flash_copy(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			 const struct uvm_rust_flash_move *move)
{
	u32 pass, k;

	for (pass = 0; pass < 2; pass++) {
		loff_t pos = pass ? position(move->to_slot, move->to_offset) :
				    position(move->from_slot, move->from_offset);

		for (k = 0; k < move->pages; k++)
			bvec_set_page(&io->bvec[k], io->bounce[k], PAGE_SIZE, 0);
		if (pass)
			io->wrote += (u64)move->pages * PAGE_SIZE;
		if (transfer(dev->file, pass, BACKGROUND, io->bvec, move->pages, pos)) {
			uvm_rust_flash_count(dev->table, pass ? UVM_RUST_FLASH_WRITE_ERRORS : UVM_RUST_FLASH_READ_ERRORS, 1);
			return false;
		}
	}
	return true;
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

static int open_device(struct uvm_seam_flash_dev *dev, const char *path, bool force)
{
	struct uvm_seam_flash_io *io;
	struct inode *inode;
	struct file *file;
	int ret = -ENOMEM;

	/* O_EXCL on a block device: nobody else has it mounted or open in this way. */
	file = filp_open(path, O_RDWR | O_DIRECT | O_EXCL | O_LARGEFILE, 0);
	if (IS_ERR(file))
		return PTR_ERR(file) == -EINVAL ? -EOPNOTSUPP : PTR_ERR(file);
	dev->file = file;
	inode = file_inode(file);
	if (!S_ISBLK(inode->i_mode) && !S_ISREG(inode->i_mode))
		return -ENOTBLK;
	if (i_size_read(file->f_mapping->host) < RESERVED_SIZE + 3 * (loff_t)FLASH_SLOT_SIZE)
		return -ENOSPC;
	io = uvm_rust_flash_io_alloc(true, GFP_KERNEL);
	if (io)
		ret = probe(file, io, force);
	uvm_rust_flash_io_free(io);
	return ret;
}

void uvm_rust_flash_close(struct uvm_seam_flash_dev *dev)
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
	uvm_rust_flash_close(dev);
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

struct uvm_seam_flash_dev *uvm_rust_flash_open(const char *path, bool force, bool checksums, u64 quota)
{
	struct uvm_seam_flash_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	u64 slots;
	int ret;

	if (!dev)
		return ERR_PTR(-ENOMEM);
	kref_init(&dev->ref);
	init_waitqueue_head(&dev->wait);
	dev->checksums = checksums;
	ret = make_key(dev);
	if (ret == 0)
		ret = open_device(dev, path, force);
	if (ret == 0) {
		slots = (i_size_read(dev->file->f_mapping->host) - RESERVED_SIZE) / FLASH_SLOT_SIZE;
		dev->table = uvm_rust_flash_create(min_t(u64, slots, U32_MAX - 1), checksums,
						   quota ? quota / PAGE_SIZE : U64_MAX);
		if (!dev->table)
			ret = -ENOMEM;
	}
	if (ret) {
		uvm_seam_flash_dev_put(dev);
		return ERR_PTR(ret);
	}
	return dev;
}
