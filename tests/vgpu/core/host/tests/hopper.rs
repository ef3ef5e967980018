// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What Hopper has and others have not: segments, wide addresses, scrubbing, and cancels that
//! name an engine by nine bits.

use super::*;

const SCRUB: u32 = 1 << 23;
/// No compression after the L2: drivers set it in each launch.
const DISABLE_PLC: u32 = 1 << 26;
/// A page of vidmem that nobody has.
const PAGE: u64 = 8 << 20;

fn hopper() -> Bench {
    Bench::new(&Personality::HOPPER)
}

impl Bench {
    /// Puts an entry on the ring that is not a segment.
    pub(super) fn entry(&mut self, entry: u64) {
        let m = self.gpu.machine();
        m.set(Loc::buffer(self.place.ring, u64::from(self.put) * 8), entry);
        self.put = (self.put + 1) % ENTRIES;
        m.submit(self.place, self.put);
        self.gpu.run();
    }

    /// The methods of a scrub of so many bytes.
    fn scrub(&mut self, to: u64, bytes: u32, launch: u32) {
        self.ce(&[
            (0x700, 0x1234_5678),
            (0x704, 0x9abc_def0),
            (0x6fc, 0),
            (0x264, 0),
            (0x408, high(to)),
            (0x40c, to as u32),
            (0x418, bytes),
            (0x300, launch),
        ]);
    }

    fn vidmem(&self, at: u64) -> u64 {
        self.gpu.machine().get(Loc::vidmem(at))
    }
}

#[test]
fn segments_have_upper_bits_that_stay() {
    let mut b = hopper();
    let va = b.data();
    // So far the channel has been told where its segments are; now it is somewhere else.
    let release = |value| increasing(0, 0x5c, &[va as u32, high(va), value, 0, 1]);
    for value in [1, 2] {
        b.run(&release(value));
        assert_eq!(b.word(0), value);
    }
    b.expect_done();
    b.entry(4 << 32);
    b.run(&release(3));
    assert!(b.error().1.contains("pushbuffer at"), "{:?}", b.error());
    assert_eq!(b.word(0), 2);
    // As wide as an address is.
    let mut b = hopper();
    b.entry(4 << 32 | 0x1ffff << 8);
    b.run(&release(4));
    let log = b.error().1;
    assert!(log.contains("pushbuffer at 0x1ffff"), "{log}");
}

#[test]
fn a_new_channel_knows_no_segments() {
    let mut b = hopper();
    b.gpu.destroy_channel(b.channel).unwrap();
    (b.channel, b.place) = b.gpu.create_channel(b.space, 0, ENTRIES).unwrap();
    b.put = 0;
    b.run(&increasing(0, 0x78, &[0]));
    assert!(b.error().1.contains("pushbuffer at"), "{:?}", b.error());
}

#[test]
fn entries_without_a_segment_are_the_chips() {
    for (chip, entry, what) in [
        (&Personality::TURING, 4 << 32, "control entry"),
        (&Personality::AMPERE, 4 << 32 | 3 << 8, "control entry"),
        (&Personality::HOPPER, 3 << 32, "control entry"),
        (&Personality::HOPPER, 1, "control entry"),
        (&Personality::HOPPER, 5 << 32 | 1 << 8, "control entry"),
        (&Personality::HOPPER, 4 << 32 | 1, "are not known"),
        (&Personality::HOPPER, 4 << 32 | 1 << 7, "are not known"),
        (&Personality::HOPPER, 4 << 32 | 1 << 25, "are not known"),
    ] {
        let mut b = Bench::new(chip);
        b.entry(entry);
        let (status, log) = b.error();
        assert_eq!(status, 0xffff, "{entry:#x} of {}", chip.name);
        assert!(log.contains(what), "{entry:#x} of {}: {log}", chip.name);
    }
}

#[test]
fn addresses_have_57_bits() {
    // A semaphore of the host's and one of a copy engine's that lie at no other address cut short.
    for methods in [
        increasing(0, 0x5c, &[0x1000, 0x1ff_ffff, 7, 0, 1]),
        [
            increasing(CE, 0x240, &[0x1ff_ffff, 0x1000]),
            increasing(CE, 0x300, &[1 << 3]),
        ]
        .concat(),
    ] {
        let mut b = hopper();
        b.run(&methods);
        let log = b.error().1;
        assert!(log.contains("semaphore at 0x1ffffff00001000"), "{log}");
    }
}

#[test]
fn a_scrub_is_a_fill_by_the_constants() {
    let mut b = hopper();
    let m = b.gpu.machine();
    // The source and the components are of an earlier launch: neither counts.
    m.set(Loc::sysmem(SYSMEM), 0x5555_5555_5555_5555);
    b.ce(&[
        (0x260, 1),
        (0x400, high(SYSMEM)),
        (0x404, 0),
        (0x708, 4 | 2 << 16),
    ]);
    let before = b.vidmem(PAGE + 0x2000);
    b.scrub(PAGE, 0x2000, COPY | TO_PHYSICAL | SCRUB | DISABLE_PLC);
    b.expect_done();
    for offset in (0..0x2000).step_by(8) {
        let word = b.vidmem(PAGE + offset);
        assert_eq!(word, 0x9abc_def0_1234_5678, "{offset:#x}");
    }
    assert_eq!(b.vidmem(PAGE + 0x2000), before, "not one byte more");
    let stats = b.gpu.stats();
    assert_eq!((stats.ce_memsets, stats.memset_bytes), (1, 0x2000));
    assert_eq!((stats.ce_copies, stats.h2d_bytes), (0, 0));
}

#[test]
fn scrubs_of_what_can_not_be_scrubbed_are_refused() {
    const LAUNCH: u32 = COPY | TO_PHYSICAL | SCRUB;
    for (to, bytes, launch, what) in [
        (PAGE, 0x1000, LAUNCH & !TO_PHYSICAL, "not physical vidmem"),
        (PAGE + 0x800, 0x1000, LAUNCH, "a part of a page"),
        (PAGE, 0x1800, LAUNCH, "a part of a page"),
        (PAGE, 0x1000, LAUNCH | REMAP, "with remapping"),
        (PAGE, 0x1000, LAUNCH & !3, "without a transfer"),
        // Copies of other types, and protected memory.
        (PAGE, 0x1000, LAUNCH | 1 << 20, "are not known"),
        (PAGE, 0x1000, LAUNCH | 2 << 20, "are not known"),
        (PAGE, 0x1000, LAUNCH | 1 << 22, "are not known"),
        (PAGE, 0x1000, LAUNCH | 1 << 27, "are not known"),
    ] {
        let mut b = hopper();
        let before = b.vidmem(PAGE);
        b.scrub(to, bytes, launch);
        let (status, log) = b.error();
        assert_eq!(status, 0xffff, "{to:#x} {bytes:#x} {launch:#x}");
        assert!(log.contains(what), "{what}: {log}");
        assert_eq!(b.vidmem(PAGE), before);
    }
    // System memory, and what may be discarded.
    let mut b = hopper();
    b.ce(&[(0x264, 1), (0x40c, 0), (0x418, 0x1000), (0x300, LAUNCH)]);
    assert!(b.error().1.contains("vidmem"), "{:?}", b.error());
    let mut b = hopper();
    b.ce(&[(0x6fc, 1)]);
    assert!(b.error().1.contains("are not known"), "{:?}", b.error());
    // Others than Hopper have no scrubber.
    let mut b = bench();
    b.ce(&[(0x6fc, 0)]);
    assert!(b.error().1.contains("unknown method"), "{:?}", b.error());
    let mut b = bench();
    b.ce(&[(0x300, LAUNCH)]);
    assert!(b.error().1.contains("are not known"), "{:?}", b.error());
}

#[test]
fn encryption_is_not_emulated() {
    for method in (0x500..0x540).step_by(4) {
        let mut b = hopper();
        b.ce(&[(method, 0)]);
        assert!(b.error().1.contains("unknown method"), "{method:#x}");
    }
}

/// UVM names user addresses as the CPU has them.
#[test]
fn addresses_are_sign_extended() {
    use super::super::gpu_address;
    for (chip, va, is) in [
        (
            &Personality::HOPPER,
            0xff00_0000_0000_1000,
            Some(0x100_0000_0000_1000),
        ),
        (
            &Personality::HOPPER,
            0x00ff_ffff_ffff_f000,
            Some(0xff_ffff_ffff_f000),
        ),
        (&Personality::HOPPER, 0x0200_0000_0000_0000, None),
        (&Personality::HOPPER, 0x7f00_0000_0000_0000, None),
        (
            &Personality::TURING,
            0xffff_8000_0000_0000,
            Some(0x1_8000_0000_0000),
        ),
        (&Personality::TURING, 0x0002_0000_0000_0000, None),
    ] {
        assert_eq!(gpu_address(chip, va).ok(), is, "{va:#x} of {}", chip.name);
    }
    // So does a cancel, and a targeted invalidate.
    for (upper, fits) in [(0xff00_0000, true), (0x7f00_0000, false)] {
        for (engine, replay) in [(384, 5 << 2), (0, 0)] {
            let mut b = hopper();
            b.run(&increasing(0, 0x28, &[engine, upper, replay, 0xa << 27]));
            if fits {
                b.expect_done();
            } else {
                assert!(b.error().1.contains("sign-extended"), "{:?}", b.error());
            }
        }
    }
}

/// A cancel names the engine whose accesses it is for, in as many bits as the chip has.
#[test]
fn a_cancel_is_for_the_graphics_engine() {
    for (chip, engine, wrong) in [
        (&Personality::TURING, 64, [0, 65]),
        (&Personality::HOPPER, 384, [64, 385]),
    ] {
        let cancel = |engine| increasing(0, 0x28, &[engine, 0, 5 << 2, 0xa << 27]);
        let mut b = Bench::new(chip);
        b.run(&cancel(engine));
        b.expect_done();
        assert_eq!(b.gpu.stats().cancels_va, 1);
        for engine in wrong {
            let mut b = Bench::new(chip);
            b.run(&cancel(engine));
            let (status, log) = b.error();
            assert_eq!((status, b.gpu.stats().cancels_va), (0xffff, 0));
            assert!(log.contains("another engine"), "{log}");
        }
    }
}
