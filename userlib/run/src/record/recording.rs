// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a process wrote of itself ([`uvmrust::record`] has the lines).

use std::collections::HashMap;

/// An allocation, in time by the launches around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) bytes: u64,
    /// Launches before it was made.
    pub(super) made: usize,
    /// Launches before it was freed.
    pub(super) freed: Option<usize>,
}

/// A launch of a kernel, in the order of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// Its kernel's name, by its place among the names.
    pub(super) name: usize,
    pub(super) stream: u64,
    /// The allocations that it is given; `None`: that is not known.
    pub(super) uses: Option<Vec<usize>>,
    /// The allocations that it faulted on, which were there when it was made.
    pub(super) faulted: Vec<usize>,
    /// Whether faults were looked for.
    pub(super) watched: bool,
    /// How long the kernel took, in nanoseconds; `None`: that was not measured.
    pub(super) ns: Option<u64>,
}

impl Launch {
    /// Whether faults were looked for, and it is known when the launch ran: a fault is a launch's by its time.
    pub(super) fn knows_its_faults(&self) -> bool {
        self.watched && self.ns.is_some()
    }
}

/// What one process recorded, from its first launch to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recording {
    pub(super) names: Vec<String>,
    pub(super) allocations: Vec<Allocation>,
    pub(super) launches: Vec<Launch>,
    /// Whether faults were looked for at any time.
    pub(super) faults: bool,
    /// Whether they are by now.
    pub(super) watching: bool,
    /// Faults that are not known, for want of room.
    pub(super) lost: u64,
    /// Whether it ends where the process ended in the midst of a call.
    pub(super) cut: bool,
}

impl Recording {
    /// Reads it. A process that was killed may have left half of a last line, which is left out;
    /// zeros are behind what it wrote.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.split('\0').next().unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut recording = Self::default();
        let mut numbers = HashMap::new();
        for (i, line) in whole.lines().enumerate() {
            let fields: Vec<_> = line.split(' ').collect();
            let done = recording.add(&fields, &mut numbers);
            done.ok_or_else(|| {
                format!(
                    "line {}: `{line}` is not of a record; are uvmrun and its preload of one \
                     version?",
                    i + 1
                )
            })?;
        }
        Ok(recording)
    }

    fn add(&mut self, fields: &[&str], numbers: &mut HashMap<String, usize>) -> Option<()> {
        let now = self.launches.len();
        match fields {
            ["a", bytes] => self.allocations.push(Allocation {
                bytes: bytes.parse().ok()?,
                made: now,
                freed: None,
            }),
            ["f", number] => {
                let number: usize = number.parse().ok()?;
                self.allocations.get_mut(number)?.freed = Some(now);
            }
            ["k", stream, name, uses] => {
                let next = self.names.len();
                let name_number = *numbers.entry((*name).to_owned()).or_insert(next);
                if name_number == next {
                    self.names.push((*name).to_owned());
                }
                self.launches.push(Launch {
                    name: name_number,
                    stream: stream.parse().ok()?,
                    uses: self.uses(uses)?,
                    faulted: Vec::new(),
                    watched: self.watching,
                    ns: None,
                });
            }
            ["t", launch, ns] => {
                let launch: usize = launch.parse().ok()?;
                self.launches.get_mut(launch)?.ns = Some(ns.parse().ok()?);
            }
            ["u", launch, uses] => self.faulted(launch.parse().ok()?, uses)?,
            ["w"] => (self.faults, self.watching) = (true, true),
            ["n", launch] => {
                let launch: usize = launch.parse().ok()?;
                let unwatched = self.launches.get_mut(launch..)?;
                unwatched.iter_mut().for_each(|l| l.watched = false);
                self.watching = false;
            }
            ["l", faults] => {
                let faults: u64 = faults.parse().ok()?;
                self.lost = self.lost.saturating_add(faults);
            }
            ["x"] => self.cut = true,
            _ => return None,
        }
        Some(())
    }

    /// Which launch a fault is of is known by its time. What was made behind a launch, or freed before
    /// it, is none of the launch's: the time was not as exact.
    fn faulted(&mut self, number: usize, uses: &str) -> Option<()> {
        let uses = self.uses(uses)?.unwrap_or_default();
        let there = |&allocation: &usize| {
            let allocation = &self.allocations[allocation];
            allocation.made <= number && allocation.freed.is_none_or(|freed| number < freed)
        };
        let uses = uses.into_iter().filter(there).collect();
        self.launches.get_mut(number)?.faulted = uses;
        Some(())
    }

    /// `None` is no list.
    fn uses(&self, text: &str) -> Option<Option<Vec<usize>>> {
        match text {
            "?" => return Some(None),
            "-" => return Some(Some(Vec::new())),
            _ => {}
        }
        let list = text.split(',').map(|number| {
            let number = number.parse().ok();
            number.filter(|&number| number < self.allocations.len())
        });
        list.collect::<Option<Vec<_>>>().map(Some)
    }
}
