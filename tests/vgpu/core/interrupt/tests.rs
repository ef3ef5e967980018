// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A driver's top and bottom half, with what they must not forget.

use std::vec::Vec;

use crate::bench::access;
use crate::bench::Bench;
use crate::bench::VA;
use crate::emu::channel::ChannelId;
use crate::emu::reg;
use crate::emu::Loc;
use crate::emu::Machine;
use crate::emu::Op;
use crate::emu::Order;
use crate::emu::Personality;
use crate::fake::Size;
use crate::fake::SYSMEM;

const OVERFLOW: u32 = 1 << 31;
const PULSES: [&Personality; 4] = [
    &Personality::TURING,
    &Personality::AMPERE,
    &Personality::HOPPER,
    &Personality::BLACKWELL,
];

/// A buffer's registers: of words from SINK on, and GET and PUT.
#[derive(Clone, Copy)]
struct Source {
    clear: u64,
    enable: u64,
    disable: u64,
    get: u64,
    put: u64,
    /// What is written to GET beside the index.
    bits: u32,
    pending: u32,
}

const FAULTS: Source = Source {
    clear: 0,
    enable: 1,
    disable: 2,
    get: reg::FAULT_GET,
    put: reg::FAULT_PUT,
    bits: OVERFLOW,
    pending: 1,
};
const COUNTERS: Source = Source {
    clear: 5,
    enable: 6,
    disable: 7,
    get: reg::COUNTER_GET,
    put: reg::COUNTER_PUT,
    bits: 0,
    pending: 2,
};

fn bench(chip: &'static Personality) -> Bench {
    let mut b = Bench::new(Order::Adversarial { seed: 1 }, chip);
    b.gpu.reset_faults().unwrap();
    b.gpu.reset_counters().unwrap();
    b.gpu.enable_counters(1, 1);
    b
}

impl Source {
    fn write(self, b: &Bench, offset: u64, value: u32) {
        let at = Loc::buffer(b.gpu.registers(), offset);
        b.gpu.machine().store32(at, value).unwrap();
    }

    fn set(self, b: &Bench, word: u64) {
        self.write(b, reg::SINK + 4 * word, 1);
    }

    fn read(b: &Bench, offset: u64) -> u32 {
        let at = Loc::buffer(b.gpu.registers(), offset);
        b.gpu.machine().load32(at).unwrap()
    }

    /// Whether the interrupt is pending after a turn.
    fn is_pending(self, b: &mut Bench) -> bool {
        b.gpu.run();
        Self::read(b, reg::PENDING) & self.pending != 0
    }

    /// One more entry: a fault, or a notification.
    fn happen(self, b: &mut Bench) {
        let n = u64::from(Self::read(b, self.put));
        let va = VA + (n << 16);
        if self.bits == 0 {
            let to = Loc::sysmem(SYSMEM + (n << 16));
            b.user.map(b.gpu.machine(), va, Size::Small, to, 0);
        }
        // A prefetch waits for nothing; what is counted is a read.
        let kind = if self.bits == 0 { 0 } else { 4 };
        b.launch_all(&[Op {
            lanes: 1,
            ..access(kind, va, 0)
        }]);
        b.run();
        assert_eq!(u64::from(Self::read(b, self.put)), n + 1);
    }

    fn disable(self, b: &Bench) {
        self.set(b, self.disable);
        self.set(b, self.clear);
    }

    fn write_get(self, b: &Bench, get: u32) {
        self.write(b, self.get, get | self.bits);
    }
}

#[test]
fn what_is_there_is_pending_until_disabled() {
    for (chip, source) in PULSES
        .into_iter()
        .chain([&Personality::VOLTA])
        .flat_map(|c| [(c, FAULTS), (c, COUNTERS)])
    {
        let mut b = bench(chip);
        assert!(!source.is_pending(&mut b));
        source.happen(&mut b);
        // Until something is done about it.
        assert!((0..3).all(|_| source.is_pending(&mut b)));
        source.set(&b, source.disable);
        assert!(!source.is_pending(&mut b));
        source.set(&b, source.enable);
        assert!(source.is_pending(&mut b), "{}", chip.name);
    }
}

/// An entry came before the interrupt was disabled and cleared, and nobody took it.
#[test]
fn a_pulse_that_was_cleared_wants_get() {
    for (chip, source) in PULSES
        .into_iter()
        .flat_map(|c| [(c, FAULTS), (c, COUNTERS)])
    {
        let mut b = bench(chip);
        source.happen(&mut b);
        source.disable(&b);
        assert!(!source.is_pending(&mut b));
        source.set(&b, source.enable);
        assert!(!(0..3).any(|_| source.is_pending(&mut b)), "lost");
        // Both in one look, and in two.
        source.set(&b, source.clear);
        source.write_get(&b, 0);
        assert!(source.is_pending(&mut b), "{}", chip.name);
        source.disable(&b);
        assert!(!source.is_pending(&mut b));
        source.set(&b, source.enable);
        assert!(!source.is_pending(&mut b));
        source.set(&b, source.clear);
        b.gpu.run();
        source.write_get(&b, 0);
        assert!(source.is_pending(&mut b));
        // With nothing left there is none.
        source.disable(&b);
        source.write_get(&b, 1);
        b.gpu.run();
        source.set(&b, source.enable);
        source.set(&b, source.clear);
        source.write_get(&b, 1);
        assert!(!source.is_pending(&mut b));
    }
    // Volta's needs none of this.
    for source in [FAULTS, COUNTERS] {
        let mut b = bench(&Personality::VOLTA);
        source.happen(&mut b);
        source.disable(&b);
        assert!(!source.is_pending(&mut b));
        source.set(&b, source.enable);
        assert!(source.is_pending(&mut b));
    }
}

/// What comes while the interrupt is disabled is told once it is enabled.
#[test]
fn an_entry_that_comes_meanwhile_is_a_pulse() {
    for source in [FAULTS, COUNTERS] {
        let mut b = bench(&Personality::TURING);
        source.happen(&mut b);
        source.disable(&b);
        assert!(!source.is_pending(&mut b));
        source.happen(&mut b);
        assert!(!source.is_pending(&mut b));
        source.set(&b, source.enable);
        assert!(source.is_pending(&mut b));
        let others = [FAULTS, COUNTERS].map(|s| s.pending);
        let only: Vec<u32> = others
            .into_iter()
            .filter(|p| *p == source.pending)
            .collect();
        assert_eq!(Source::read(&b, reg::PENDING), only[0]);
    }
}

/// RM hands both over with their interrupts enabled, whatever was written before.
#[test]
fn a_buffer_is_handed_over_with_its_interrupt() {
    for source in [FAULTS, COUNTERS] {
        let mut b = bench(&Personality::TURING);
        source.happen(&mut b);
        source.disable(&b);
        assert!(!source.is_pending(&mut b));
        b.gpu.reset_faults().unwrap();
        b.gpu.reset_counters().unwrap();
        b.gpu.enable_counters(1, 1);
        assert!(!source.is_pending(&mut b));
        source.happen(&mut b);
        assert!(source.is_pending(&mut b));
    }
}

/// A number of the C side's, which no compiler compares with those here.
fn in_c(name: &str) -> u64 {
    let header = include_str!("../../kernel/vgpu_rs.h");
    let value = header.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some("#define") && words.next() == Some(name);
        words.next().filter(|_| is_it)
    });
    let value = value.unwrap_or_else(|| panic!("no {name}"));
    let digits = value.trim_end_matches('U');
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    number.unwrap()
}

#[test]
fn c_knows_the_same_registers() {
    let words = |of: super::Words| [of.clear, of.enable, of.disable].map(|word| word as u64);
    let sink = [words(super::FAULTS), words(super::COUNTERS)];
    let in_sink = ["FAULT", "COUNTER"].map(|of| {
        ["INTR", "EN_SET", "EN_CLEAR"].map(|what| in_c(&std::format!("VGPU_SINK_{of}_{what}")))
    });
    assert_eq!(sink, in_sink);
    for (name, here) in [
        ("REG_TIME_LOW", reg::TIME_LOW),
        ("REG_TIME_HIGH", reg::TIME_HIGH),
        ("REG_FAULT_GET", reg::FAULT_GET),
        ("REG_FAULT_PUT", reg::FAULT_PUT),
        ("REG_COUNTER_GET", reg::COUNTER_GET),
        ("REG_COUNTER_PUT", reg::COUNTER_PUT),
        ("REG_COPY_FAULT_GET", reg::COPY_FAULT_GET),
        ("REG_COPY_FAULT_PUT", reg::COPY_FAULT_PUT),
        ("REG_PENDING", reg::PENDING),
        ("REG_SINK", reg::SINK),
        ("REG_COPY_FAULTS", reg::COPY_FAULTS),
        ("CHANNEL_PUT", reg::CHANNEL_PUT),
        ("CHANNEL_GET", reg::CHANNEL_GET),
        ("CHANNEL_DOORBELL", reg::CHANNEL_DOORBELL),
        ("CHANNEL_NOTIFIER", reg::CHANNEL_NOTIFIER),
        ("CHANNEL_TOKEN", ChannelId(0).token().into()),
    ] {
        assert_eq!(in_c(&std::format!("VGPU_{name}")), here, "{name}");
    }
}
