// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Somebody who looks whether all go on: no deed of any process may take longer than the run's patience.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvm_suite::{say, stacks, who_waits};

use crate::board::{Board, Record};
use crate::deeds::name;

/// What the driver says of who waits for what, as far as it does.
const TOLD: [&str; 2] = [
    "/sys/kernel/debug/nvidia-uvm/stuck",
    "/sys/kernel/debug/nvidia-uvm/processes",
];

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(500);

/// What a record must change in, and since when it has not.
struct Seen {
    what: (u64, u64, Option<usize>),
    since: Instant,
}

impl Seen {
    fn of(record: &Record) -> Self {
        Self {
            what: (record.life, record.index, record.deed),
            since: Instant::now(),
        }
    }
}

/// Looks at the `records` of the board until `over`. If one does not change while it does something, it says all that can be said
/// of that process, and `stuck` becomes true; and if nobody has drawn the consequence after a while, this program ends.
pub(crate) fn watch(
    board: &Board,
    records: usize,
    patience: Duration,
    over: &AtomicBool,
    stuck: &AtomicBool,
) {
    let mut seen: Vec<Seen> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(PERIOD);
        for n in 0..records {
            let Ok(record) = board.read(n) else {
                continue;
            };
            let now = Seen::of(&record);
            match seen.get_mut(n) {
                None => seen.push(now),
                Some(before) if before.what != now.what || record.deed.is_none() => *before = now,
                Some(before) if before.since.elapsed() > patience => {
                    tell(n, &record, before.since.elapsed());
                    stuck.store(true, Ordering::Relaxed);
                    give_up(over);
                    return;
                }
                Some(_) => {}
            }
        }
    }
}

fn tell(n: usize, record: &Record, since: Duration) {
    let deed = record.deed.map_or("nothing", name);
    let Record {
        pid, life, index, ..
    } = record;
    println!("# process {n} (PID {pid}, life {life}) has done {deed}, its number {index}, for {since:.0?}");
    println!("# where it is in the kernel:");
    say(&stacks(*pid));
    println!("# who waits, of all processes:");
    say(&who_waits());
    for path in TOLD {
        if let Ok(text) = fs::read_to_string(path) {
            println!("# {path}:");
            say(&text);
        }
    }
}

/// The parent itself may be the one that is stuck.
fn give_up(over: &AtomicBool) {
    let told = Instant::now();
    while told.elapsed() < Duration::from_secs(30) {
        if over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(PERIOD);
    }
    println!("Bail out! a process does not go on, and neither does its parent");
    std::process::exit(1);
}
