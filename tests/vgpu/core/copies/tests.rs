// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Users' copies: what they add to, the entries of their faults, and who has them tried again.

use super::*;
use crate::emu::gpu::tests::ask;
use crate::emu::gpu::tests::config;
use crate::emu::gpu::tests::Bench;
use crate::emu::gpu::tests::VA;
use crate::emu::gpu::HANDLE_MASK;
use crate::emu::pma::CHUNK;
use crate::emu::Injection;
use crate::emu::Personality;
use crate::fake::READ_ONLY;
use crate::fake::SYSMEM;

const PAGE: Loc = Loc::sysmem(SYSMEM);

/// RM's part: takes the entries off the ring.
fn taken(bench: &Bench) -> std::vec::Vec<[u32; 8]> {
    let m = bench.gpu.machine();
    let register = |offset| Loc::buffer(bench.gpu.registers(), offset);
    let get = m.load32(register(reg::COPY_FAULT_GET)).unwrap();
    let put = m.load32(register(reg::COPY_FAULT_PUT)).unwrap();
    m.store32(register(reg::COPY_FAULT_GET), put).unwrap();
    let entry = |i: u32| {
        let at = register(reg::COPY_FAULTS + u64::from(i % ENTRIES) * ENTRY_BYTES);
        core::array::from_fn(|word| m.load32(at.plus(4 * word as u64)).unwrap())
    };
    (0..put.wrapping_sub(get))
        .map(|i| entry(get.wrapping_add(i)))
        .collect()
}

fn clear(bench: &mut Bench, of_engine: bool) {
    let token = bench.h_channel & HANDLE_MASK;
    bench.clear_faulted(token | u32::from(of_engine) << 31);
    bench.run();
}

#[test]
fn a_copy_adds_to_a_word_that_is_mapped() {
    let mut b = Bench::new(config());
    b.map(VA, PAGE, 0);
    b.gpu.machine().store32(PAGE.plus(8), 41).unwrap();
    b.gpu.copy(b.h_channel, VA + 8).unwrap();
    assert_eq!(b.gpu.copy(b.h_channel, VA), Err(Error::Busy));
    b.run();
    assert_eq!(b.gpu.machine().load32(PAGE.plus(8)), Ok(42));
    assert_eq!(b.gpu.copies(b.h_channel), Ok((1, 0)));
    assert!(taken(&b).is_empty());
}

#[test]
fn a_copy_that_faults_goes_on_when_its_faulted_bit_is_cleared() {
    let mut b = Bench::new(config());
    b.gpu.copy(b.h_channel, VA + 4096).unwrap();
    b.run();
    let instance = b.h_channel << 12;
    let [entry] = taken(&b)[..] else {
        panic!("not one entry")
    };
    assert_eq!(entry[0], instance);
    assert_eq!(u64::from(entry[2]) | u64::from(entry[3]) << 32, VA + 4096);
    // A copy engine; valid, a write of the hub's, of a GPU that can replay, and yet not to be replayed.
    assert_eq!((entry[6], entry[7] >> 16), (15, 0xc011));
    assert_eq!(entry[7] & 1 << 7, 0);
    // The client is CE0: UVM from 560 on goes by that, and before by the engine.
    assert_eq!(entry[7] >> 8 & 0x7f, 1);
    b.map(VA + 4096, PAGE, 0);
    b.run();
    // The other faulted bit, and the bit of nobody.
    clear(&mut b, false);
    b.clear_faulted(1 << 31 | 0x77);
    b.run();
    assert_eq!(b.gpu.copies(b.h_channel), Ok((0, 1)));
    clear(&mut b, true);
    assert_eq!(b.gpu.copies(b.h_channel), Ok((1, 1)));
    assert_eq!(b.gpu.machine().load32(PAGE), Ok(1));
    assert!(taken(&b).is_empty());
}

#[test]
fn a_copy_that_is_not_served_faults_again() {
    let mut b = Bench::new(config());
    b.map(VA, PAGE, READ_ONLY);
    b.gpu.copy(b.h_channel, VA).unwrap();
    b.run();
    clear(&mut b, true);
    assert_eq!(b.gpu.copies(b.h_channel), Ok((0, 2)));
    let kinds: std::vec::Vec<_> = taken(&b).iter().map(|entry| entry[7] & 0x1f).collect();
    assert_eq!(kinds, [6, 6]);
}

#[test]
fn a_full_ring_holds_copies_back_and_uvm_finds_it_empty() {
    let mut b = Bench::new(config());
    for _ in 0..ENTRIES + 3 {
        b.gpu.copy(b.h_channel, VA).ok();
        b.run();
        clear(&mut b, true);
    }
    assert_eq!(b.gpu.copies(b.h_channel), Ok((0, ENTRIES.into())));
    b.gpu.reset_faults().unwrap();
    assert!(taken(&b).is_empty());
    b.run();
    assert_eq!(taken(&b).len(), 1);
}

#[test]
fn a_channel_that_stops_copies_no_more() {
    let mut b = Bench::new(config());
    b.gpu.copy(b.h_channel, VA).unwrap();
    b.gpu.stop_channel(b.h_channel).unwrap();
    b.map(VA, PAGE, 0);
    b.run();
    assert_eq!(b.gpu.copies(b.h_channel), Ok((0, 0)));
    assert_eq!(b.gpu.copy(b.h_channel, VA), Err(Error::Stopped));
}

#[test]
fn a_preempted_user_copies_nothing() {
    let mut b = Bench::new(config());
    b.map(VA, PAGE, 0);
    b.gpu.inject(Injection::Preempt(true)).unwrap();
    b.gpu.copy(b.h_channel, VA).unwrap();
    b.run();
    assert_eq!(b.gpu.copies(b.h_channel), Ok((0, 0)));
    b.gpu.inject(Injection::Preempt(false)).unwrap();
    b.run();
    assert_eq!(b.gpu.copies(b.h_channel), Ok((1, 0)));
}

/// It is an error of whoever mapped it, and no fault.
#[test]
fn a_copy_to_nowhere_is_dropped() {
    let mut b = Bench::new(config());
    b.map(VA, Loc::vidmem(1 << 33), 0);
    b.gpu.copy(b.h_channel, VA).unwrap();
    b.run();
    assert_eq!(b.gpu.stats().bad_addresses, 1);
    assert_eq!(b.gpu.copies(b.h_channel), Ok((0, 0)));
    b.map(VA + 4096, PAGE, 0);
    b.gpu.copy(b.h_channel, VA + 4096).unwrap();
    b.run();
    assert_eq!(b.gpu.copies(b.h_channel), Ok((1, 0)));
}

/// Freed memory is poisoned where it was written to.
#[test]
fn what_a_copy_has_written_is_poisoned_when_it_is_freed() {
    let mut b = Bench::new(config());
    let mut pages = [0];
    b.gpu.pma_alloc(&ask(1), false, &mut pages).unwrap();
    let at = Loc::vidmem(pages[0] + (1 << 20));
    let poison = b.gpu.machine().load32(at).unwrap();
    b.map(VA, at, 0);
    b.gpu.copy(b.h_channel, VA).unwrap();
    b.run();
    assert_eq!(b.gpu.machine().load32(at), Ok(poison.wrapping_add(1)));
    b.gpu.pma_free(&pages, 1, CHUNK, false).unwrap();
    assert_eq!(b.gpu.machine().load32(at), Ok(poison));
}

#[test]
fn what_cannot_be_is_refused() {
    let mut b = Bench::new(config());
    for va in [VA + 2, 1 << 49] {
        assert_eq!(b.gpu.copy(b.h_channel, va), Err(Error::Invalid));
    }
    assert_eq!(b.gpu.copy(1, VA), Err(Error::NotFound));
    let mut volta = Bench::new(crate::emu::Config {
        chip: &Personality::VOLTA,
        ..config()
    });
    assert_eq!(volta.gpu.copy(volta.h_channel, VA), Err(Error::Invalid));
    b.gpu.release_channel(b.h_channel).unwrap();
    assert_eq!(b.gpu.copy(b.h_channel, VA), Err(Error::Stopped));
}
