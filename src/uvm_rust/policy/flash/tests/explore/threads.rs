// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the C does, step by step: each `await` is a point where it drops a lock, waits for
//! one, or does I/O. Each function names the one that it stands for.

use super::super::super::pool::Who;
use super::super::super::wants::Asks;
use super::super::super::{Error, Piece, Place, Read, ReadError, Table};
use super::parked::{ask, drop_discarded};
use super::world::{Block, Bytes, To, World};
use super::Lack;
use crate::policy::mask::{PageMask, Region};
use std::format;
use std::rc::Rc;
use std::vec::Vec;

const NONE: PageMask = PageMask::EMPTY;

#[derive(PartialEq, Eq)]
enum Outcome {
    Moved,
    Nothing,
    Later,
    NoRoom,
    NoQuota,
}

/// spill_work(), for `times` blocks (ffi/flash/spill.rs).
pub(super) async fn worker(w: &World, times: u32) {
    for _ in 0..times {
        w.until(|_| Some(())).await;
        // next_block()
        let b = {
            let blocks = w.now().blocks.len();
            w.dice.borrow_mut().below(blocks)
        };
        let wanted = w.some_pages(b);
        spill(w, b, wanted, false).await;
        relocate(w).await;
    }
    w.now().workers -= 1;
}

/// Spills a block's pages, again where the lock was let go.
async fn spill(w: &World, b: usize, wanted: PageMask, locked: bool) {
    loop {
        let of = match spill_once(w, b, wanted, locked).await {
            Outcome::NoRoom => None,
            Outcome::NoQuota => Some(w.of(b, |block| block.space)),
            _ => return,
        };
        if !give_up_copies(w, of).await {
            return;
        }
    }
}

/// spill_once(): begins under the locks, writes without any, and ends under the block's.
async fn spill_once(w: &World, b: usize, wanted: PageMask, locked: bool) -> Outcome {
    w.lock_block(b).await;
    let (known, space) = w.of(b, |block| (block.known && !block.dead, block.space));
    if !known {
        w.unlock_block(b);
        return Outcome::Nothing;
    }
    if !locked && w.lacks(Lack::SpillOnlyTries) {
        w.read_lock(space).await;
    } else if !locked && !w.try_read_lock(space) {
        w.unlock_block(b);
        return Outcome::Later;
    }
    let begun = spill_begin(w, b, wanted).await;
    if !locked {
        w.end_try(space).await;
    }
    w.unlock_block(b);
    let spill = match begun {
        Ok(spill) => spill,
        Err(outcome) => return outcome,
    };

    let written = write_pages(w, b, spill.pieces()).await;

    w.lock_block(b).await;
    let moved = spill_end(w, b, spill, &written);
    w.unlock_block(b);
    w.now().progress += 1;
    if moved.is_empty() {
        Outcome::Later
    } else {
        Outcome::Moved
    }
}

/// spill_begin(), with both locks held.
async fn spill_begin(
    w: &World,
    b: usize,
    wanted: PageMask,
) -> Result<super::super::super::Spill, Outcome> {
    if !w.of(b, |block| block.resident.intersects(&wanted)) {
        return Err(Outcome::Nothing);
    }
    let dropped = drop_discarded(w, b, &wanted).await;
    let spill = {
        let s = &mut *w.now();
        let block = &mut s.blocks[b];
        let mut pages = (block.resident & wanted) - dropped;
        if pages.is_empty() {
            return Err(Outcome::Moved);
        }
        // uvm_rust_flash_drop_copied()
        let clean = block.state.copies() & pages;
        if !clean.is_empty() {
            block.unmap(&clean);
            let clean = block.state.drop_clean(&clean);
            block.left_host(&clean);
            pages -= clean;
        }
        if pages.is_empty() {
            return Err(Outcome::Moved);
        }
        let tenant = s.table.tenant(block.space as u64).unwrap();
        match block.state.begin_spill(&mut s.table, tenant, &pages) {
            Ok(spill) if spill.pages.is_empty() => {
                let _ = block.state.end_spill(&mut s.table, spill, &NONE);
                return Err(Outcome::Nothing);
            }
            Ok(spill) => {
                block.used = true;
                spill
            }
            Err(Error::Full | Error::Fragmented) => return Err(Outcome::NoRoom),
            Err(Error::Quota) => return Err(Outcome::NoQuota),
            Err(_) => return Err(Outcome::Later),
        }
    };
    // Page tables may have to be allocated, for which uvm_rust_flash_unmap() drops the lock.
    if w.chance(3) {
        w.unlock_block(b);
        w.lock_block(b).await;
    }
    w.now().blocks[b].unmap(&spill.pages);
    Ok(spill)
}

/// write(): encrypts what the pages hold by then, and notes the checksums; then writes piece by piece.
async fn write_pages(w: &World, b: usize, pieces: &[Piece]) -> PageMask {
    let mut sealed = Vec::new();
    for piece in pieces {
        w.until(|_| Some(())).await;
        if w.chance(64) {
            continue;
        }
        let data = w.encrypt(b, piece);
        w.now().note_sums(piece.place, &data);
        sealed.push((piece, data));
    }
    let mut good = NONE;
    w.take_turn(w.spill_cause()).await;
    for (piece, data) in sealed {
        w.write(piece.place, data).await;
        // Some fail, whatever of it has arrived.
        if !w.chance(w.fails.get()) {
            good |= PageMask::from(piece.pages);
        }
    }
    w.end_turn();
    good
}

/// spill_end(), with the block's lock held.
fn spill_end(
    w: &World,
    b: usize,
    spill: super::super::super::Spill,
    written: &PageMask,
) -> PageMask {
    let s = &mut *w.now();
    let block = &mut s.blocks[b];
    if block.dead {
        spill.abandon(&mut s.table);
        return NONE;
    }
    let mut written = *written;
    if !w.lacks(Lack::SpillSeesMappings) {
        written -= block.mapped;
    }
    written &= block.resident;
    block.wait_gpus();
    let moved = block.state.end_spill(&mut s.table, spill, &written);
    let is_mapped = block.mapped.intersects(&moved);
    block.left_host(&moved);
    if is_mapped {
        s.blame("what is mapped leaves the host".into());
    }
    moved
}

/// uvm_rust_flash_relocate(): copies as it is, without any lock but the table's.
pub(super) async fn relocate(w: &World) {
    for _ in 0..3 {
        w.until(|_| Some(())).await;
        let begun = w.now().table.relocate_begin();
        let Some(m) = begun else { return };
        w.take_turn(w.spill_cause()).await;
        let mut data = w.read(m.from, m.pages, To::Bounce).await;
        w.garble(m.from, &mut data);
        let is_right = w.lacks(Lack::MoveChecksSums) || w.may_be_copied(m.from, &data);
        if is_right {
            w.write(m.to, data).await;
        }
        w.end_turn();
        let copied = is_right && !w.chance(w.fails.get()) && !w.is_bad(m.from, m.pages);
        w.until(|_| Some(())).await;
        let _ = w.now().table.relocate_end(m, copied);
        if !copied {
            return;
        }
    }
}

/// uvm_rust_flash_give_up_copies(), of anybody or of one owner.
async fn give_up_copies(w: &World, of: Option<usize>) -> bool {
    let blocks = w.now().blocks.len();
    for b in 0..blocks {
        if of.is_some_and(|of| w.of(b, |block| block.space) != of) {
            continue;
        }
        w.lock_block(b).await;
        let any = give_up_block(w, b);
        w.unlock_block(b);
        if any {
            return true;
        }
    }
    false
}

/// uvm_rust_flash_give_up_block(), with the block's lock held.
pub(super) fn give_up_block(w: &World, b: usize) -> bool {
    let s = &mut *w.now();
    let block = &mut s.blocks[b];
    let copies = block.state.copies();
    block.state.may_write(&mut s.table, &copies);
    !copies.is_empty() && block.state.copies().is_empty()
}

/// What a fetch came to.
#[derive(PartialEq, Eq)]
pub(super) enum Fetched {
    /// NV_OK: none is on flash.
    All,
    /// NV_ERR_MORE_PROCESSING_REQUIRED: the lock was dropped.
    Again,
    /// NV_ERR_INVALID_OPERATION: something cannot be read any more.
    Lost,
    /// NV_ERR_NO_MEMORY: nothing has come, and all is where it was.
    NoMemory,
}

/// fetch(), with both locks held (policy/flash/fetch.rs).
pub(super) async fn fetch(w: &World, b: usize, wanted: PageMask, asks: Asks) -> Fetched {
    let now = w.now_us();
    w.now().blocks[b].state.read_again_at(now, &wanted);
    if !has_to_read(w, b, wanted) {
        return begin(w, b, wanted, false).await;
    }
    let (turn, who) = match asks {
        Asks::Fault => (false, Who::Fault),
        Asks::Call | Asks::Prefetch => (true, Who::Others),
    };
    let fetched = if !turn && w.now().pool.try_take(who).is_some() {
        begin(w, b, wanted, false).await
    } else {
        let locked = !turn && w.lacks(Lack::SetWaitsUnlocked);
        if !locked {
            w.unlock_block(b);
        }
        if turn {
            w.take_turn(asks.cause()).await;
        }
        w.take_set(who).await;
        if !locked {
            w.lock_block(b).await;
        }
        if has_to_read(w, b, wanted) {
            begin(w, b, wanted, turn).await
        } else {
            if turn {
                w.end_turn();
            }
            Fetched::Again
        }
    };
    w.give_set(who);
    fetched
}

/// begin(): the read begins, if there is something to read.
async fn begin(w: &World, b: usize, wanted: PageMask, turn: bool) -> Fetched {
    let (begun, seen) = {
        let s = &mut *w.now();
        let block = &mut s.blocks[b];
        let begun = block.state.begin_read(&mut s.table, &wanted);
        (begun, s.progress)
    };
    // Some of what is wanted may be lost by now.
    if turn && !matches!(begun, Ok(Some(_))) {
        w.end_turn();
    }
    match begun {
        Ok(None) => Fetched::All,
        Ok(Some(read)) => {
            w.fault_begins(b);
            fetch_begun(w, b, read, turn).await
        }
        Err(ReadError::Wait) => {
            w.fault_begins(b);
            w.unlock_block(b);
            w.until(|s| (s.progress != seen).then_some(())).await;
            w.lock_block(b).await;
            Fetched::Again
        }
        // It is for now, or World::check() says so.
        Err(_) => Fetched::Lost,
    }
}

/// Whether `wanted` has pages that nobody reads.
fn has_to_read(w: &World, b: usize, wanted: PageMask) -> bool {
    let of = |block: &Block| (block.state.on_flash() & wanted) - block.state.in_flight();
    !w.of(b, of).is_empty()
}

/// begun(): the host's memory is written to while the
/// block's lock is not held. `turn`: who reads has a turn with the device.
async fn fetch_begun(w: &World, b: usize, read: Read, turn: bool) -> Fetched {
    w.unlock_block(b);
    let mut good = NONE;
    let (mut failed, mut wrong) = (NONE, NONE);
    for piece in read.pieces.iter() {
        if w.lapses() {
            failed |= PageMask::from(piece.pages);
            continue;
        }
        let to = To::Memory(b, piece.pages.first());
        let mut bytes = w.read(piece.place, piece.pages.pages(), to).await;
        w.garble(piece.place, &mut bytes);
        // open_pages(): the checksums, then decrypts in place.
        w.until(|_| Some(())).await;
        if w.chance(w.unsure.get()) {
            continue;
        }
        if !w.sums_match(piece, &bytes) {
            wrong |= PageMask::from(piece.pages);
            continue;
        }
        let s = &mut *w.now();
        for (k, bytes) in bytes.iter().enumerate() {
            s.blocks[b].memory[usize::from(piece.pages.first()) + k] = bytes.value;
        }
        good |= PageMask::from(piece.pages);
    }
    if turn {
        w.end_turn();
    }
    w.lock_block(b).await;
    let s = &mut *w.now();
    let block = &mut s.blocks[b];
    // flash_keeps_copies()
    let keep = block.read_mostly && s.attached;
    let state = &mut block.state;
    state.put_off(&read, (&failed, &wrong), w.now_us());
    let arrived = state.end_read(&mut s.table, read, &good, &NONE, keep);
    // flash_arrived()
    block.resident |= arrived;
    block.wants.arrived(&arrived);
    s.progress += 1;
    if good.is_empty() && (failed | wrong).is_empty() {
        Fetched::NoMemory
    } else {
        Fetched::Again
    }
}

/// A fault of a CPU or a GPU, or a migration: uvm_va_block_service_locked() and the hook
/// flash_before_populate(); then the program uses the pages.
pub(super) async fn fault(w: &World, b: usize, write: bool) {
    let space = w.now().blocks[b].space;
    w.read_lock(space).await;
    let pages = w.some_pages(b);
    w.lock_block(b).await;
    if w.now().blocks[b].dead || pages.is_empty() {
        w.unlock_block(b);
        w.read_unlock(space);
        return;
    }
    if fetch_all(w, b, pages).await {
        use_pages(w, b, &pages, write);
    }
    w.unlock_block(b);
    w.read_unlock(space);
}

/// flash_before_populate(), again until nothing of it is on flash; false if that fails, and
/// what wants the pages with it.
pub(super) async fn fetch_all(w: &World, b: usize, pages: PageMask) -> bool {
    loop {
        w.touch(b, &pages);
        match fetch(w, b, pages, Asks::Fault).await {
            Fetched::Again => {}
            Fetched::All => return true,
            Fetched::Lost | Fetched::NoMemory => return false,
        }
    }
}

/// block_populate_pages(), made resident, mapped, and used.
pub(super) fn use_pages(w: &World, b: usize, pages: &PageMask, write: bool) {
    let s = &mut *w.now();
    let block = &mut s.blocks[b];
    block.leave_gpu(pages);
    block.wait_gpus();
    // What is resident nowhere is handed out zeroed.
    for p in (*pages - block.resident).pages() {
        block.memory[usize::from(p)] = 0;
    }
    block.resident |= *pages;
    block.mapped |= *pages;
    // uvm_rust_block_accessed(): what was discarded lazily is in use again.
    block.stale -= *pages;
    // uvm_va_block_map(); elsewhere than in read-mostly memory who reads may write as well.
    if write || !block.read_mostly {
        block.writable |= *pages;
        maps(w, block, &mut s.table, pages, true);
    } else {
        maps(w, block, &mut s.table, pages, false);
    }
    s.look(b, pages);
    if write {
        s.store(b, pages);
    }
}

/// The hook of uvm_va_block_map().
fn maps(w: &World, block: &mut Block, table: &mut Table, pages: &PageMask, writes: bool) {
    if !w.lacks(Lack::MapEndsSpill) {
        block.state.touched(pages);
    }
    if writes && !w.lacks(Lack::MapGivesCopiesUp) {
        block.state.may_write(table, pages);
    }
}

/// A GPU's fault, and later an eviction: the pages come back with other bytes and no mapping.
/// The hook flash_before_populate() sees both, the second without a fetch.
pub(super) async fn gpu(w: &World, b: usize) {
    let space = w.of(b, |block| block.space);
    w.read_lock(space).await;
    let pages = w.some_pages(b);
    w.lock_block(b).await;
    let dead = w.of(b, |block| block.dead);
    if !dead && fetch_all(w, b, pages).await {
        use_on_gpu(w, b, &pages);
    }
    w.unlock_block(b);
    w.read_unlock(space);
    evict(w, b, &pages).await;
}

/// The pages go to the GPU, and the program writes to them there.
pub(super) fn use_on_gpu(w: &World, b: usize, pages: &PageMask) {
    use_pages(w, b, pages, true);
    let s = &mut *w.now();
    let block = &mut s.blocks[b];
    block.unmap(pages);
    block.left_host(pages);
    block.on_gpu |= *pages;
    block.gpu_works = true;
    for p in pages.pages().map(usize::from) {
        block.gpu[p] = block.memory[p];
    }
}

/// uvm_va_block_evict_chunks(), which has the block's lock only.
pub(super) async fn evict(w: &World, b: usize, pages: &PageMask) {
    w.lock_block(b).await;
    w.touch(b, pages);
    w.now().blocks[b].leave_gpu(pages);
    w.unlock_block(b);
}

/// Maps for writing all that the host has of a block, whose lock is held.
fn map_all(w: &World, b: usize) {
    let s = &mut *w.now();
    let block = &mut s.blocks[b];
    let pages = block.resident;
    block.wait_gpus();
    block.mapped |= pages;
    block.writable |= pages;
    maps(w, block, &mut s.table, &pages, true);
}

/// uvm_va_range_set_accessed_by(): maps what is in the host, and migrates nothing.
pub(super) async fn accessed_by(w: &World, b: usize) {
    let space = w.of(b, |block| block.space);
    w.write_lock(space).await;
    w.lock_block(b).await;
    map_all(w, b);
    w.unlock_block(b);
    // It comes to other blocks next.
    for _ in 0..w.below(16) {
        w.until(|_| Some(())).await;
    }
    w.write_unlock(space);
}

/// block_add_eviction_mappings(), some time after an eviction, with the VA space's lock to read: maps
/// all that the host has for who is set as AccessedBy. The program writes there.
pub(super) async fn eviction_mappings(w: &World, b: usize) {
    let space = w.now().blocks[b].space;
    w.read_lock(space).await;
    w.lock_block(b).await;
    let dead = w.of(b, |block| block.dead);
    if !dead {
        map_all(w, b);
    }
    w.unlock_block(b);
    w.read_unlock(space);
    if !dead {
        stores(w, b).await;
        unmaps(w, b).await;
    }
}

/// Mappings end without a migration, and without a word: preferred_location_unmap_remote_pages(), or
/// block_make_resident_copy() of who then waits for room, and gives up.
pub(super) async fn unmaps(w: &World, b: usize) {
    let space = w.now().blocks[b].space;
    w.read_lock(space).await;
    w.lock_block(b).await;
    let pages = w.some_pages(b);
    w.now().blocks[b].unmap(&pages);
    w.unlock_block(b);
    w.read_unlock(space);
}

/// The program writes to what is mapped, and nobody is told.
pub(super) async fn stores(w: &World, b: usize) {
    for _ in 0..4 {
        w.until(|_| Some(())).await;
        let s = &mut *w.now();
        let writable = s.blocks[b].writable;
        let page = w.dice.borrow_mut().below(512) as u16;
        if let Some(p) = writable.next(page, true) {
            let page = Region::new(p, p + 1).into();
            s.look(b, &page);
            s.store(b, &page);
        }
    }
}

/// A block of a discard (policy/discard/walk.rs), with what it drops left out at once.
pub(super) async fn discard(w: &World, b: usize) {
    let space = w.now().blocks[b].space;
    w.read_lock(space).await;
    let pages = w.some_pages(b);
    w.lock_block(b).await;
    if !w.now().blocks[b].dead {
        let s = &mut *w.now();
        let block = &mut s.blocks[b];
        block.unmap(&pages);
        block.left_host(&pages);
        block.on_gpu -= pages;
        block.stale -= pages;
        block.state.forget(&mut s.table, &pages);
        for p in pages.pages() {
            block.value[usize::from(p)] = 0;
        }
    }
    w.unlock_block(b);
    w.read_unlock(space);
}

/// UVM_RUST_FLASH_MOVE (policy/flash/moves.rs). It keeps the device attached.
pub(super) async fn move_range(w: &World, b: usize, to_host: bool) {
    let space = w.now().blocks[b].space;
    w.read_lock(space).await;
    let pages = w.some_pages(b);
    let dead = w.now().blocks[b].dead;
    if !dead && to_host {
        ask_ahead(w, space).await;
        w.lock_block(b).await;
        while fetch(w, b, pages, Asks::Call).await == Fetched::Again {}
        w.unlock_block(b);
    } else if !dead {
        spill(w, b, pages, true).await;
    }
    w.read_unlock(space);
    w.now().workers -= 1;
}

/// What a call will need soon is asked for. Who reads it is there as long as there are such calls.
async fn ask_ahead(w: &World, space: usize) {
    w.now().askers += 1;
    for _ in 0..w.below(3) {
        let b = w.below(w.now().blocks.len());
        if w.of(b, |block| block.space != space) {
            continue;
        }
        w.lock_block(b).await;
        let pages = w.some_pages(b) & w.of(b, |block| block.state.on_flash());
        if !w.of(b, |block| block.dead) && !pages.is_empty() {
            ask(w, b, &pages, Asks::Call);
        }
        w.unlock_block(b);
    }
    w.now().askers -= 1;
}

/// uvm_va_block_split() (uvm_rust_discard.c), with uvm_rust_flash_before_split() and
/// uvm_rust_flash_after_split().
pub(super) async fn split(w: &World, b: usize) {
    let space = w.now().blocks[b].space;
    w.write_lock(space).await;
    let (dead, length) = w.of(b, |block| (block.dead, block.length));
    if dead || length < 2 {
        w.write_unlock(space);
        return;
    }
    let at = 1 + w.dice.borrow_mut().below(usize::from(length) - 1) as u16;
    w.lock_block(b).await;
    let cut = {
        let s = &mut *w.now();
        let cut = s.blocks[b].state.cut(&mut s.table, at).is_ok();
        if !cut {
            // uvm_vm_open_failure() destroys the range, and all that it holds.
            s.blame(format!("block {b} cannot be split, and is destroyed"));
        }
        cut
    };
    w.unlock_block(b);
    if cut {
        // uvm_va_block_split__c(): the upper half is nobody's yet, and is found by nobody.
        w.lock_block(b).await;
        let upper = w.now().blocks[b].upper_half(at);
        w.unlock_block(b);
        w.lock_block(b).await;
        let mut upper = upper;
        {
            let s = &mut *w.now();
            upper.state = s.blocks[b].state.split(&mut s.table, at);
            upper.used = s.blocks[b].used;
        }
        w.unlock_block(b);
        w.until(|_| Some(())).await;
        w.now().add_block(upper);
    }
    w.write_unlock(space);
}

impl Block {
    /// Takes the pages from `at` on.
    pub(super) fn upper_half(&mut self, at: u16) -> Self {
        let mut upper = Self::new(self.space, self.length - at, self.read_mostly);
        upper.folio = Rc::clone(&self.folio);
        upper.resident = self.resident.shifted_down(at);
        upper.mapped = self.mapped.shifted_down(at);
        upper.writable = self.writable.shifted_down(at);
        upper.on_gpu = self.on_gpu.shifted_down(at);
        upper.stale = self.stale.shifted_down(at);
        for p in usize::from(at)..512 {
            upper.memory[p - usize::from(at)] = self.memory[p];
            upper.value[p - usize::from(at)] = self.value[p];
            upper.gpu[p - usize::from(at)] = self.gpu[p];
        }
        upper.gpu_works = self.gpu_works;
        upper.takes_coming(self, at);
        let low = PageMask::from(Region::new(0, at));
        self.resident &= low;
        self.mapped &= low;
        self.writable &= low;
        self.on_gpu &= low;
        self.stale &= low;
        self.length = at;
        upper
    }
}

/// uvm_va_space_destroy(): the process dies. uvm_rust_flash_block_gone() for each block.
pub(super) async fn death(w: &World, space: usize) {
    w.write_lock(space).await;
    w.now().spaces[space].gone = true;
    let blocks = w.now().blocks.len();
    for b in 0..blocks {
        if w.now().blocks[b].space != space {
            continue;
        }
        w.lock_block(b).await;
        w.fault_gives_up(b);
        let s = &mut *w.now();
        let block = &mut s.blocks[b];
        block.dead = true;
        block.state.release(&mut s.table);
        block.resident = NONE;
        block.mapped = NONE;
        block.writable = NONE;
        block.on_gpu = NONE;
        block.stale = NONE;
        block.locked = false;
        s.forget(b);
    }
    w.write_unlock(space);
    w.now().spaces[space].freed = true;
}

/// detach_locked(): the workers have ended; all is brought back, and the file is closed.
pub(super) async fn detach(w: &World) {
    w.now().attached = false;
    w.until(|s| (s.workers == 0).then_some(())).await;
    let mut b = 0;
    while b < w.now().blocks.len() {
        drain_block(w, b).await;
        b += 1;
    }
    // wait_for_reads() and is_drained()
    let wait = !w.lacks(Lack::DetachWaits);
    w.until(|s| {
        let done = s.table.usage().pages > 0 || !(wait && s.table.is_busy());
        done.then_some(())
    })
    .await;
    let s = &mut *w.now();
    if s.table.usage().pages == 0 {
        s.closed = true;
    }
}

/// Brings back what one block has on the device, as `drain.rs` does.
async fn drain_block(w: &World, b: usize) {
    loop {
        w.lock_block(b).await;
        let (dead, space) = w.of(b, |block| (block.dead, block.space));
        if dead {
            w.unlock_block(b);
            return;
        }
        if w.try_read_lock(space) {
            w.now().blocks[b].state.read_again();
            loop {
                let pages = w.of(b, |block| block.state.on_flash());
                if fetch(w, b, pages, Asks::Call).await != Fetched::Again {
                    break;
                }
            }
            give_up_block(w, b);
            w.end_try(space).await;
            w.unlock_block(b);
            return;
        }
        w.unlock_block(b);
    }
}

impl World {
    /// What the pages of a piece of the block hold, as it is written.
    pub(super) fn encrypt(&self, b: usize, piece: &Piece) -> Vec<Bytes> {
        let memory = &self.now().blocks[b].memory;
        (0..piece.pages.pages())
            .map(|k| Bytes {
                stamp: piece.stamp + u64::from(k),
                value: memory[usize::from(piece.pages.first() + k)],
            })
            .collect()
    }

    /// Whether the page is there that no move can read.
    pub(super) fn is_bad(&self, at: Place, pages: u16) -> bool {
        self.bad.get().is_some_and(|bad| {
            bad.slot == at.slot && (at.offset..at.offset + pages).contains(&bad.offset)
        })
    }

    /// Says that pages are used, which keeps them from leaving.
    pub(super) fn touch(&self, b: usize, pages: &PageMask) {
        if !self.lacks(Lack::FaultTouches) {
            self.now().blocks[b].state.touched(pages);
        }
    }

    pub(super) fn of<T>(&self, b: usize, get: impl FnOnce(&Block) -> T) -> T {
        get(&self.now().blocks[b])
    }

    /// All of the block, a part of some size, or a few pages; none behind its end.
    pub(super) fn some_pages(&self, b: usize) -> PageMask {
        let length = usize::from(self.now().blocks[b].length);
        let dice = &mut *self.dice.borrow_mut();
        let pages = match dice.below(8) {
            0 => length,
            1 => 1 + dice.below(8),
            _ => 64 * (1 + dice.below(5)),
        };
        let first = dice.below(length.max(1)) / 32 * 32;
        let first = first.min(length.saturating_sub(pages));
        Region::new(first as u16, (first + pages).min(length) as u16).into()
    }
}
