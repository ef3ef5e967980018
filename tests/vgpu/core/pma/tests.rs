// SPDX-License-Identifier: GPL-2.0-only OR MIT

use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

use super::*;

const BYTES: u64 = 32 << 20;
const RESERVED: u64 = 2 << 20;

fn pma() -> Pma {
    Pma::new(BYTES, RESERVED).unwrap()
}

fn ask(count: u64, page_bytes: u64) -> AllocRequest {
    AllocRequest {
        count,
        page_bytes,
        contiguous: false,
        partial: false,
        pinned: false,
        begin: 0,
        end: BYTES,
    }
}

#[test]
fn takes_all_or_nothing_unless_told() {
    let mut p = pma();
    let mut pages = [0; 32];
    assert_eq!(p.alloc(&ask(16, CHUNK), &mut pages), Err(Error::NoVidmem));
    assert_eq!(p.allocated(), 0);
    let partial = AllocRequest {
        partial: true,
        ..ask(16, CHUNK)
    };
    assert_eq!(p.alloc(&partial, &mut pages), Ok(15));
    assert_eq!(
        p.counts(),
        Counts {
            total_2m: 16,
            free_64k: 0,
            free_2m: 0
        }
    );
    assert_eq!(p.alloc(&partial, &mut pages), Err(Error::NoVidmem));
    assert_eq!(pages[0], RESERVED);
}

#[test]
fn refuses_nonsense() {
    let mut p = pma();
    let mut pages = [0; 4];
    for (count, bytes) in [(0, CHUNK), (1, 4096), (1, 3 << 16), (5, CHUNK), (1, 0)] {
        assert_eq!(
            p.alloc(&ask(count, bytes), &mut pages),
            Err(Error::Invalid),
            "{count} {bytes}"
        );
    }
    let run = AllocRequest {
        contiguous: true,
        ..ask(u64::MAX / 2, CHUNK)
    };
    assert_eq!(p.alloc(&run, &mut pages), Err(Error::Invalid));
    assert_eq!(p.alloc(&ask(1, 1 << 63), &mut pages), Err(Error::NoVidmem));
    assert_eq!(p.free(0, CHUNK), Err(Error::Invalid), "RM's own");
    assert_eq!(
        p.free(RESERVED, CHUNK),
        Err(Error::Invalid),
        "not allocated"
    );
    assert_eq!(p.free(u64::MAX - 4095, CHUNK), Err(Error::Invalid));
    assert_eq!(p.pin(BYTES, CHUNK), Err(Error::Invalid));
}

#[test]
fn evictions_hold_memory_back_and_spare_the_pinned() {
    let mut p = pma();
    let mut pages = [0; 16];
    assert_eq!(p.alloc(&ask(2, CHUNK), &mut pages), Ok(2));
    p.pin(pages[0], CHUNK).unwrap();
    assert!(p.any_pinned(0, BYTES));
    assert!(!p.any_pinned(pages[1], BYTES));
    p.free(pages[0], CHUNK).unwrap();
    assert!(!p.any_pinned(0, BYTES), "freed memory is not pinned");

    p.begin_eviction(0, 8 << 20).unwrap();
    assert_eq!(p.alloc(&ask(1, CHUNK), &mut pages), Ok(1));
    assert!(pages[0] >= 8 << 20);
    p.end_eviction(0, 8 << 20);
    let mut mine = [0; 16];
    assert_eq!(p.claim(0, 8 << 20, &mut mine), 2);
    assert!(p.is_allocated(mine[0], CHUNK));
}

/// One operation of the model test.
#[derive(Clone, Debug)]
enum Step {
    Alloc {
        count: u64,
        shift: u32,
        contiguous: bool,
        partial: bool,
        begin: u64,
    },
    Free(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (
            1u64..40,
            16u32..22,
            any::<bool>(),
            any::<bool>(),
            0u64..BYTES
        )
            .prop_map(|(count, shift, contiguous, partial, begin)| Step::Alloc {
                count,
                shift,
                contiguous,
                partial,
                begin
            }),
        (0usize..100).prop_map(Step::Free),
    ]
}

/// Plain: a bool per 64 KiB.
struct Model {
    used: Vec<bool>,
    held: Vec<(u64, u64)>,
}

impl Model {
    fn mark(&mut self, at: u64, size: u64, used: bool) {
        for g in at / GRANULE..(at + size) / GRANULE {
            assert_ne!(self.used[g as usize], used, "given out or taken back twice");
            self.used[g as usize] = used;
        }
    }

    fn has_room(&self, size: u64, align: u64, begin: u64) -> bool {
        (begin.next_multiple_of(align)..BYTES.saturating_sub(size - 1))
            .step_by(align as usize)
            .any(|at| {
                !self.used[(at / GRANULE) as usize..][..(size / GRANULE) as usize].contains(&true)
            })
    }
}

proptest! {
    #[test]
    fn agrees_with_a_bitmap(steps in proptest::collection::vec(step(), 1..60)) {
        let mut p = pma();
        let mut m = Model { used: vec![false; (BYTES / GRANULE) as usize], held: Vec::new() };
        m.used[..(RESERVED / GRANULE) as usize].fill(true);
        for s in steps {
            match s {
                Step::Alloc { count, shift, contiguous, partial, begin } => {
                    let size = 1 << shift;
                    let mut pages = vec![0; 64];
                    let request = AllocRequest { contiguous, partial, begin, ..ask(count, size) };
                    match p.alloc(&request, &mut pages) {
                        Ok(n) if contiguous => {
                            prop_assert_eq!(n, count);
                            prop_assert!(pages[0] % size == 0 && pages[0] >= begin);
                            m.mark(pages[0], count * size, true);
                            m.held.push((pages[0], count * size));
                        }
                        Ok(n) => {
                            prop_assert!(n == count || partial && n > 0);
                            for &at in &pages[..n as usize] {
                                prop_assert!(at % size == 0 && at >= begin);
                                m.mark(at, size, true);
                                m.held.push((at, size));
                            }
                            if n < count {
                                prop_assert!(!m.has_room(size, size, begin));
                            }
                        }
                        Err(_) if contiguous => {
                            prop_assert!(!m.has_room(count * size, size, begin));
                        }
                        Err(_) => {}
                    }
                }
                Step::Free(i) if !m.held.is_empty() => {
                    let (at, size) = m.held.swap_remove(i % m.held.len());
                    prop_assert_eq!(p.free(at, size), Ok(()));
                    m.mark(at, size, false);
                    prop_assert_eq!(p.free(at, size), Err(Error::Invalid));
                }
                Step::Free(_) => {}
            }
            let free = m.used.iter().filter(|u| !**u).count() as u64;
            let free_2m = m.used.chunks(32).filter(|c| !c.contains(&true)).count() as u64;
            prop_assert_eq!(p.counts(), Counts { total_2m: BYTES / CHUNK, free_64k: free, free_2m });
            prop_assert_eq!(p.allocated(), m.held.iter().map(|h| h.1).sum::<u64>());
        }
    }
}
