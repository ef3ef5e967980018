// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Somebody who looks whether all go on: no deed of any process may take longer than the run's patience.

use std::fs;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use uvm_suite::{say, stacks, who_waits, Failure, Forked};

use crate::board::{Board, Record};
use crate::deeds::name;

/// What the driver says of who waits for what, as far as it does.
const TOLD: [&str; 2] = [
    "/sys/kernel/debug/nvidia-uvm/stuck",
    "/sys/kernel/debug/nvidia-uvm/processes",
];

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(500);

/// How often it says how far the run is.
const TELLING: Duration = Duration::from_secs(60);

/// How long what is killed may take to end.
const GRACE: Duration = Duration::from_secs(30);

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

/// Looks at the `records` of the board until the crew has ended, and gives how. If a record does not change while its process does
/// something, this says all that can be said of that process, and ends the crew, and the workers with it.
pub(crate) fn watch(
    board: &Board,
    records: usize,
    patience: Duration,
    mut crew: Forked,
) -> Result<ExitStatus, Failure> {
    let mut seen: Vec<Seen> = Vec::new();
    let (begun, mut told) = (Instant::now(), Instant::now());
    loop {
        if let Some(status) = crew.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(PERIOD);
        if told.elapsed() >= TELLING {
            told = Instant::now();
            let done = board.operations(records)?;
            println!("# {done} operations after {:.0?}", begun.elapsed());
        }
        for n in 0..records {
            let record = board.read(n)?;
            let now = Seen::of(&record);
            match seen.get_mut(n) {
                None => seen.push(now),
                Some(before) if before.what != now.what || record.deed.is_none() => *before = now,
                Some(before) if before.since.elapsed() > patience => {
                    tell(n, &record, before.since.elapsed());
                    give_up(crew)?;
                    return Err("a process does not go on; above is which, and where it is".into());
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

/// Ends the crew, which itself may be what is stuck.
fn give_up(mut crew: Forked) -> Result<(), Failure> {
    crew.kill();
    let told = Instant::now();
    while crew.try_wait()?.is_none() {
        if told.elapsed() > GRACE {
            println!("Bail out! a process does not go on, and who starts the workers does not end");
            std::process::exit(1);
        }
        std::thread::sleep(PERIOD);
    }
    Ok(())
}
