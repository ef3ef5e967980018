// SPDX-License-Identifier: GPL-2.0-only OR MIT

#![allow(clippy::unwrap_used)]

use super::*;

/// A ring's memory, of so many entries.
struct Memory {
    entries: Vec<AtomicU64>,
    control: Vec<AtomicU32>,
}

impl Memory {
    fn new(room: usize) -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            entries: zeros(room * ENTRY_WORDS),
            control: (0..CONTROL_HALVES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::over(&self.entries, &self.control).unwrap()
    }

    /// Writes an entry as UVM does, and moves the ends on.
    fn put(&self, entry: [u64; ENTRY_WORDS]) {
        let room = self.entries.len() / ENTRY_WORDS;
        let put = self.control[PUT_BEHIND].load(Relaxed) as usize % room;
        for (word, value) in self.entries[put * ENTRY_WORDS..].iter().zip(entry) {
            word.store(value, Relaxed);
        }
        self.control[PUT_BEHIND].store(((put + 1) % room) as u32, Release);
    }

    fn taken(&self) -> Vec<Fault> {
        let mut taken = Vec::new();
        self.ring().take(|fault| taken.push(fault));
        taken
    }
}

fn entry(kind: u8, access: u8, client: u8, address: u64) -> [u64; ENTRY_WORDS] {
    let first = u64::from_ne_bytes([kind, 1, access, 0, 0, 0, 0, 0]);
    let fourth = u64::from_ne_bytes([7, 0, 0, 0, client, 0, 0, 0]);
    [first, address, 10 * address, 0, fourth, 0, 0, 0]
}

#[test]
fn faults_of_kernels_are_taken_in_their_order() {
    let memory = Memory::new(4);
    let mut expected = Vec::new();
    // More than there is room for, so that the ends wrap around; at most three at once.
    for address in 1..=9 {
        memory.put(entry(GPU_FAULT, 1, 1, address));
        expected.push(Fault {
            page: address,
            time: 10 * address,
        });
        if address % 3 == 0 {
            assert_eq!(memory.taken(), expected.split_off(0));
            assert_eq!(memory.taken(), []);
        }
    }
    let ends = [GET_AHEAD, GET_BEHIND, PUT_BEHIND].map(|end| memory.control[end].load(Relaxed));
    assert_eq!(ends, [1; 3]);
}

#[test]
fn what_is_no_access_of_a_kernel_is_left_out() {
    let memory = Memory::new(16);
    memory.put(entry(2, 1, 1, 1));
    memory.put(entry(GPU_FAULT, ACCESS_PREFETCH, 1, 2));
    memory.put(entry(GPU_FAULT, 1, CLIENT_HUB, 3));
    memory.put(entry(0xff, 0xff, 0xff, 4));
    memory.put(entry(GPU_FAULT, 3, 1, 5));
    let addresses: Vec<_> = memory.taken().iter().map(|fault| fault.page).collect();
    assert_eq!(addresses, [5]);
}

#[test]
fn what_was_dropped_is_of_faults() {
    let memory = Memory::new(2);
    // The counter of type 3 of 64, of 8 bytes each, behind four words of 4.
    memory.control[10].store(5, Relaxed);
    assert_eq!(memory.ring().dropped(), 5);
}

#[test]
fn memory_of_another_size_is_no_ring() {
    let memory = Memory::new(64);
    let (entries, control) = (&memory.entries[..], &memory.control[..]);
    for words in 0..entries.len() {
        let room = words / ENTRY_WORDS;
        let whole = words % ENTRY_WORDS == 0 && [2, 4, 8, 16, 32].contains(&room);
        assert_eq!(Ring::over(&entries[..words], control).is_some(), whole);
    }
    for halves in 0..CONTROL_HALVES {
        assert!(Ring::over(entries, &control[..halves]).is_none());
    }
}

#[test]
fn a_ring_of_anything_gives_no_more_than_it_has() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let mut seed = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(1, |t| t.as_nanos() as u64)
        | 1;
    println!("seed {seed:#x}");
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..rounds {
        let room = 2 << (random() % 6);
        let memory = Memory::new(room);
        memory.entries.iter().for_each(|word| {
            let value = random();
            // Half of them are of the type that is read.
            let of_type = value & !0xff | u64::from(GPU_FAULT);
            word.store(if value & 256 == 0 { value } else { of_type }, Relaxed);
        });
        memory
            .control
            .iter()
            .for_each(|half| half.store(random() as u32, Relaxed));
        assert!(memory.taken().len() < room);
        assert_eq!(memory.taken(), []);
        memory.put(entry(GPU_FAULT, 2, 1, 0x1234));
        assert_eq!(memory.taken().last().map(|f| f.page), Some(0x1234));
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the system")]
fn a_process_without_uvm_has_no_tracker() {
    static NOBODY: Uvm = Uvm::new(crate::Linux::new());
    if NOBODY.sys.uvm_major().is_none() {
        assert!(Tracker::new(&NOBODY).is_err());
    }
    let (first, second) = (now(), now());
    assert!(0 < first && first <= second);
}
