// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! From what a process did to a trace of one step of it: what it repeats, or all of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use uvmrust::plan::Key;
use uvmsim_trace::{Kernel, Kind, Tensor, TensorId, Trace};

use super::recording::{Allocation, Recording};

/// Launches that repeat: each of them is as the one a period before it, from the second
/// period on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    pub(super) from: usize,
    pub(super) period: usize,
    pub(super) length: usize,
}

/// Periods that are tried: the most frequent distances at which a few names recur.
const MOST_PERIODS: usize = 256;

/// How many names recur together, to find periods by.
const TOGETHER: [usize; 3] = [1, 4, 16];

/// The longest part of a process that repeats, with the shortest period; `None`: it is not
/// even half of it.
pub(super) fn repeats(names: &[usize]) -> Option<Repeats> {
    let mut frequency: HashMap<usize, usize> = HashMap::new();
    for together in TOGETHER {
        let mut last = HashMap::new();
        for (at, names) in names.windows(together).enumerate() {
            if let Some(before) = last.insert(names, at) {
                *frequency.entry(at - before).or_default() += 1;
            }
        }
    }
    let mut periods: Vec<_> = frequency.into_iter().collect();
    periods.sort_unstable_by_key(|&(period, times)| (usize::MAX - times, period));
    let periods = periods.into_iter().take(MOST_PERIODS);
    let found = periods.filter_map(|(period, _)| with_period(names, period));
    let best = found.max_by_key(|r| (r.length, usize::MAX - r.period));
    best.filter(|r| 2 * r.length >= names.len())
}

/// The longest part that has this period, at least twice.
fn with_period(names: &[usize], period: usize) -> Option<Repeats> {
    let (mut from, mut best) = (
        0,
        Repeats {
            from: 0,
            period,
            length: 0,
        },
    );
    for at in 0..=names.len() - period {
        if names.get(at + period) == names.get(at) {
            continue;
        }
        let length = at + period - from;
        if length > best.length {
            best = Repeats {
                from,
                period,
                length,
            };
        }
        from = at + 1;
    }
    (best.length >= 2 * period).then_some(best)
}

/// The launches of the step: `period` of them, from `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: usize,
    period: usize,
    /// Launches before the first step.
    start: usize,
    steps: usize,
    /// Where the first and behind the last launch of the part that repeats.
    repeats: (usize, usize),
}

impl Step {
    /// Of what repeats, the last whole period that begins where least memory lives on that the
    /// step frees: where the program itself begins its step, as a rule.
    fn of(recording: &Recording) -> Self {
        let names: Vec<_> = recording.launches.iter().map(|l| l.name).collect();
        let Some(r) = repeats(&names) else {
            let (from, period) = (0, names.len());
            let (start, steps, repeats) = (0, 1, (0, period));
            return Self {
                from,
                period,
                start,
                steps,
                repeats,
            };
        };
        let (end, steps) = (r.from + r.length, r.length / r.period);
        // Not the last if there are enough: behind that a program may free what all steps use.
        let last = match steps {
            3.. => end - 2 * r.period,
            _ => end - r.period,
        };
        let candidates = last + 1 - r.period..=last;
        let least = candidates.min_by_key(|&from| {
            let end = from + r.period + behind(steps);
            let bytes = carried(&recording.allocations, from, end);
            (bytes, (from - r.from) % r.period)
        });
        let from = least.unwrap_or(r.from);
        Self {
            from,
            period: r.period,
            start: r.from + (from - r.from) % r.period,
            steps,
            repeats: (r.from, end),
        }
    }

    fn end(&self) -> usize {
        self.from + self.period
    }

    /// Whether an allocation was there before the step. What a program makes before its first
    /// launch was, also where the step is all of it.
    fn before(&self, allocation: &Allocation) -> bool {
        allocation.made < self.from || (self.from, allocation.made) == (0, 0)
    }

    /// Whether the step frees it, before its last launch, or behind that if another step
    /// follows.
    fn frees(&self, allocation: &Allocation) -> bool {
        let end = self.end() + behind(self.steps);
        allocation.freed.is_some_and(|at| at < end)
    }
}

/// 1 if what is freed between the last launch of the step and the next one is the step's:
/// another step follows then.
fn behind(steps: usize) -> usize {
    usize::from(steps >= 3)
}

/// Bytes that were there when a step began and that it frees.
fn carried(allocations: &[Allocation], from: usize, end: usize) -> u64 {
    let lives_on =
        |a: &&Allocation| a.made < from && a.freed.is_some_and(|at| from < at && at < end);
    allocations.iter().filter(lives_on).map(|a| a.bytes).sum()
}

/// A kernel uses what outlives steps if it faults on it in at least one of so many of the repetitions in
/// which the kernel does that faults on it most. Which launch a fault is of is known by its time, which is not
/// exact: of many repetitions, some have a fault of a neighbour's.
const SELDOM: usize = 8;

/// What each kernel of the step uses: what its arguments point into, and what it faulted on; on what
/// outlives steps, in any of them, but not [`SELDOM`]. Memory that is on the GPU already does not fault.
fn uses(recording: &Recording, step: &Step) -> Vec<Vec<usize>> {
    let often = often(recording, step);
    let of_kernel = |at: usize| {
        let launch = &recording.launches[at];
        let own = launch.uses.iter().flatten().copied();
        let once = launch.faulted.iter().copied();
        let once = once.filter(|&allocation| !outlives(recording, step, allocation));
        let mut uses: Vec<usize> = Vec::new();
        let often = &often[at - step.from];
        for allocation in own.chain(once).chain(often.iter().copied()) {
            if !uses.contains(&allocation) {
                uses.push(allocation);
            }
        }
        uses
    };
    (step.from..step.end()).map(of_kernel).collect()
}

/// Whether an allocation is there in all of what repeats.
fn outlives(recording: &Recording, step: &Step, allocation: usize) -> bool {
    let (from, end) = step.repeats;
    let allocation = &recording.allocations[allocation];
    allocation.made <= from && allocation.freed.is_none_or(|freed| freed >= end)
}

/// What outlives steps and each kernel of the step faults on often enough, in all repetitions together.
fn often(recording: &Recording, step: &Step) -> Vec<Vec<usize>> {
    let mut times: Vec<BTreeMap<usize, usize>> = vec![BTreeMap::new(); step.period];
    let mut most: HashMap<usize, usize> = HashMap::new();
    for (times, kernel) in times.iter_mut().zip(step.from..) {
        let all = repetitions(step, kernel).flat_map(|at| &recording.launches[at].faulted);
        for &allocation in all.filter(|&&a| outlives(recording, step, a)) {
            *times.entry(allocation).or_default() += 1;
        }
        for (&allocation, &times) in &*times {
            let most = most.entry(allocation).or_default();
            *most = times.max(*most);
        }
    }
    let enough = |(&allocation, &times): (&usize, &usize)| {
        (times * SELDOM >= most[&allocation]).then_some(allocation)
    };
    let of_kernel = |times: &BTreeMap<usize, usize>| times.iter().filter_map(enough).collect();
    times.iter().map(of_kernel).collect()
}

/// What a trace calls each of the recording's allocations that the step uses.
fn tensors(
    recording: &Recording,
    step: &Step,
    uses: &[Vec<usize>],
) -> HashMap<usize, (Kind, String)> {
    let used: HashSet<usize> = uses.iter().flatten().copied().collect();
    let mut nth: HashMap<usize, u32> = HashMap::new();
    let mut tensors = HashMap::new();
    for (number, allocation) in recording.allocations.iter().enumerate() {
        let before = step.before(allocation);
        let next = nth.entry(allocation.made).or_default();
        let own = *next;
        *next += u32::from(!before);
        if !used.contains(&number) {
            continue;
        }
        let program = Key::Program(number as u64).to_string();
        let named = match (before, step.frees(allocation)) {
            (true, false) => (Kind::Weight, program),
            (true, true) if step.steps == 1 => (Kind::Input, program),
            // The step before made it: which it will be in the next run is not known.
            (true, true) => (Kind::Input, format!("other.{number}")),
            (false, _) => {
                let kernel = (allocation.made - step.from) as u32;
                (Kind::Activation, Key::Step { kernel, nth: own }.to_string())
            }
        };
        tensors.insert(number, named);
    }
    tensors
}

/// How long each kernel of the step takes, and whether that was measured: the least of all
/// steps, in which least was not there; else what others of its name take on average.
fn times(recording: &Recording, step: &Step) -> Vec<(u64, bool)> {
    let mut of_name: HashMap<usize, (u64, u64)> = HashMap::new();
    for launch in &recording.launches {
        if let Some(ns) = launch.ns {
            let (sum, count) = of_name.entry(launch.name).or_default();
            (*sum, *count) = (sum.saturating_add(ns), *count + 1);
        }
    }
    let time = |kernel: usize| {
        let all = repetitions(step, step.from + kernel);
        let least = all.filter_map(|at| recording.launches[at].ns).min();
        let others = of_name.get(&recording.launches[step.from + kernel].name);
        match (least, others) {
            (Some(ns), _) => (ns, true),
            (None, Some((sum, count))) => (sum / count, false),
            (None, None) => (0, false),
        }
    };
    (0..step.period).map(time).collect()
}

/// The trace, and what is to be said of it.
///
/// # Errors
/// It would be none that uvmsim reads.
pub(super) fn text(recording: &Recording, name: &str) -> Result<(String, String), String> {
    let step = Step::of(recording);
    let times = times(recording, &step);
    let (mut trace, comments) = trace(recording, &step, &times, name);
    let measured = times.iter().filter(|(_, measured)| *measured).count();
    let streams: HashSet<_> = recording.launches.iter().map(|l| l.stream).collect();
    let facts = [
        ("source", "uvmrun".to_owned()),
        ("start", step.start.to_string()),
        ("steps", step.steps.to_string()),
        ("streams", streams.len().to_string()),
        ("accesses", accesses(recording).to_owned()),
        (
            "times",
            format!("events, of {measured} of {} kernels", step.period),
        ),
        ("faults", faults(recording, &step)),
    ];
    for (key, value) in facts {
        trace.set_meta(key, &value);
    }
    trace.validate().map_err(|e| e.to_string())?;
    let repeated = match step.steps {
        1 => "which repeat nothing: the step is all of them".to_owned(),
        steps => format!("a step of {} {steps} times", step.period),
    };
    let bytes: u64 = trace.tensors.iter().map(|t| t.bytes).sum();
    let mut said = format!(
        "{} launches, {repeated}; {} tensors of {} MiB, times of {measured} of {} kernels",
        recording.launches.len(),
        trace.tensors.len(),
        bytes >> 20,
        step.period,
    );
    if recording.lost > 0 {
        said += &format!(
            "; {} faults are not known, for want of room",
            recording.lost
        );
    }
    let unknown = unknown(recording);
    if unknown > 0 {
        said += &format!("; faults of {unknown} launches are not known");
    }
    if recording.cut {
        said += "; the record is cut where the program ended, or a signal came, in the midst of a call that \
                 was recorded";
    }
    if trace.tensors.is_empty() {
        said += ". No kernel is given managed memory: arguments are known from CUDA 12.4 on, and \
                 memory from --managed-min on";
    }
    Ok((format!("{trace}{comments}"), said))
}

/// By what it is known what kernels use.
fn accesses(recording: &Recording) -> &'static str {
    match recording.faults {
        true => "arguments and faults, as read and written",
        false => "arguments, as read and written",
    }
}

/// Of which kernels of the step faults are known, in any repetition, and how many were lost in all.
fn faults(recording: &Recording, step: &Step) -> String {
    let known = |&kernel: &usize| faults_are_known(recording, step, step.from + kernel);
    let known = (0..step.period).filter(known).count();
    let of = format!("tools, of {known} of {} kernels", step.period);
    match recording.lost {
        0 => of,
        lost => format!("{of}, {lost} lost"),
    }
}

/// The launches that repeat the one at a place, with it.
fn repetitions(step: &Step, at: usize) -> impl Iterator<Item = usize> {
    let (from, end) = step.repeats;
    (from + (at - from) % step.period..end).step_by(step.period)
}

/// Whether it is known of any repetition of a launch what it faulted on.
fn faults_are_known(recording: &Recording, step: &Step, at: usize) -> bool {
    repetitions(step, at).any(|at| recording.launches[at].knows_its_faults())
}

/// Launches whose faults are not known; 0 where nobody looked for any.
fn unknown(recording: &Recording) -> usize {
    let unknown = (recording.launches.iter()).filter(|launch| !launch.knows_its_faults());
    match recording.faults {
        true => unknown.count(),
        false => 0,
    }
}

/// The step as a trace, and comments on its kernels.
fn trace(recording: &Recording, step: &Step, times: &[(u64, bool)], name: &str) -> (Trace, String) {
    let uses = uses(recording, step);
    let named = tensors(recording, step, &uses);
    let mut trace = Trace::new(name, 1);
    let mut comments = String::new();
    let mut numbers: HashMap<usize, TensorId> = HashMap::new();
    for (at, launch) in recording.launches[step.from..step.end()].iter().enumerate() {
        let (ns, measured) = times[at];
        let mut kernel = Kernel::new(&recording.names[launch.name], ns);
        for &number in &uses[at] {
            let (kind, name) = &named[&number];
            let known = numbers.get(&number).copied();
            let id = known.unwrap_or_else(|| {
                let bytes = recording.allocations[number].bytes;
                trace.add_tensor(Tensor::new(*kind, bytes, name))
            });
            numbers.insert(number, id);
            // What the step made has nothing to read before it is written.
            if known.is_some() || kind.exists_at_start() {
                kernel.reads.push(id);
            }
            if *kind != Kind::Input {
                kernel.writes.push(id);
            }
        }
        let about = format!("# kernel {at} ({})", kernel.name);
        if !measured {
            let time = match ns {
                0 => "0 stands for it",
                _ => "that of others of its name stands for it",
            };
            let _ = writeln!(comments, "{about}: its time was not measured; {time}");
        }
        if launch.uses.is_none() {
            let known = match uses[at].is_empty() {
                true => "what it uses is not known",
                false => "what it uses is known by its faults alone",
            };
            let _ = writeln!(comments, "{about}: {known}");
        }
        if recording.faults && !faults_are_known(recording, step, step.from + at) {
            let _ = writeln!(comments, "{about}: what it faults on is not known");
        }
        trace.kernels.push(kernel);
    }
    (trace, comments)
}
