// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which launches are announced, and which go with the one before.
//!
//! An announcement is a host function. It costs a stream about 20 µs on an H200, as much as
//! several short kernels (`userlib/tests/launch_program.c`). So a kernel that has turned out to be
//! short is part of what was announced last in its stream: the driver has that ID for the faults of both.
//! How long a kernel takes is known by the announcements: from one to the next in its stream. It is
//! known by kind, which is a kernel's name and shape: an optimizer's arguments are others at each step.
//! The same kernel may take longer with other arguments, so that is learned anew now and then.
//!
//! All of it is atomic. What a race makes of it costs time, or an announcement.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Times of a kind that are looked at before one counts, the shortest of them.
const TIMES: u32 = 8;
/// Launches that follow an announcement at most, however short they are.
const LAUNCHES: u32 = 64;
/// Launches of a kind that have joined when how long it takes is learned anew. That costs it no more
/// than two announcements for each of [`TIMES`], which is 0.04 µs a launch on an H200.
const ANEW: u32 = 1 << 13;
const KINDS: usize = 1 << 13;
const STREAMS: usize = 1 << 6;
/// Announcements that may wait in all streams together; CUDA lets fewer wait in one.
const WAITING: usize = 1 << 14;
/// Places that are looked at for a kind or stream.
const PROBES: usize = 8;
const NONE: u32 = u32::MAX;

/// What becomes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is part of what was announced before.
    Joins,
    /// It is announced, and timed by this token.
    Timed(u64),
    /// It is announced. There is no room to know more of it.
    Untimed,
}

/// A kind of kernels by its key, which is not 0, with the shortest time from an announcement to the next.
struct Kind {
    key: AtomicU64,
    least_ns: AtomicU32,
    times: AtomicU32,
    /// Launches that have joined since it was learned.
    joined: AtomicU32,
}

impl Kind {
    /// Has its next times learned as if it were new.
    fn forget(&self) {
        self.joined.store(0, Relaxed);
        self.times.store(0, Relaxed);
        self.least_ns.store(u32::MAX, Relaxed);
    }
}

/// A stream by its key, which is not 0.
struct Stream {
    key: AtomicU64,
    /// What was launched since the last announcement, with its own kernel: time and number.
    since_ns: AtomicU32,
    since: AtomicU32,
    /// The kind that was announced last when the stream got there, or [`NONE`]; and when that was done.
    last: AtomicU32,
    done_ns: AtomicU64,
}

/// An announcement that waits in a stream.
struct Waiting {
    /// The token; the others are of this one.
    token: AtomicU64,
    id: AtomicU64,
    kind: AtomicU32,
    stream: AtomicU32,
    /// Whether nothing has joined the one before, so that the time since that is its own: 1, else 0.
    alone: AtomicU32,
}

pub(crate) struct Groups {
    /// GPU time from one announcement to the next, at least; with 0 all launches are announced.
    every_ns: u32,
    kinds: Box<[Kind]>,
    streams: Box<[Stream]>,
    waiting: Box<[Waiting]>,
    tokens: AtomicU64,
    /// The shortest time of all, which has little else in it than the announcement.
    overhead_ns: AtomicU32,
}

impl Groups {
    pub(crate) fn new(every_ns: u32) -> Self {
        let kind = || Kind {
            key: AtomicU64::new(0),
            least_ns: AtomicU32::new(u32::MAX),
            times: AtomicU32::new(0),
            joined: AtomicU32::new(0),
        };
        let stream = || Stream {
            key: AtomicU64::new(0),
            since_ns: AtomicU32::new(0),
            since: AtomicU32::new(0),
            last: AtomicU32::new(NONE),
            done_ns: AtomicU64::new(0),
        };
        let waiting = || Waiting {
            token: AtomicU64::new(0),
            id: AtomicU64::new(0),
            kind: AtomicU32::new(0),
            stream: AtomicU32::new(0),
            alone: AtomicU32::new(0),
        };
        Self {
            every_ns,
            kinds: std::iter::repeat_with(kind).take(KINDS).collect(),
            streams: std::iter::repeat_with(stream).take(STREAMS).collect(),
            waiting: std::iter::repeat_with(waiting).take(WAITING).collect(),
            tokens: AtomicU64::new(0),
            overhead_ns: AtomicU32::new(u32::MAX),
        }
    }

    /// Asked for each launch, in the order of its stream, with its execution ID. The keys of a stream
    /// and of a kind are not 0.
    pub(crate) fn launch(&self, stream: u64, kind: u64, id: u64) -> Next {
        if self.every_ns == 0 {
            return Next::Untimed;
        }
        let kind = place(&self.kinds, |kind| &kind.key, kind);
        let stream = place(&self.streams, |stream| &stream.key, stream);
        let (Some(kind), Some(at)) = (kind, stream) else {
            return Next::Untimed;
        };
        let (stream, its) = (&self.streams[at], &self.kinds[kind]);
        let took = self.took(its);
        let (since_ns, since) = (stream.since_ns.load(Relaxed), stream.since.load(Relaxed));
        let recent = since > 0 && since <= LAUNCHES && since_ns < self.every_ns;
        if let (true, Some(took)) = (recent, took.filter(|&took| took < self.every_ns)) {
            let sum_ns = since_ns.saturating_add(took);
            stream.since_ns.store(sum_ns, Relaxed);
            stream.since.store(since + 1, Relaxed);
            if its.joined.fetch_add(1, Relaxed) + 1 >= ANEW {
                its.forget();
            }
            return Next::Joins;
        }
        // Of a kind that is not known yet nothing follows that would hide how long it takes.
        let until = took.unwrap_or(self.every_ns);
        stream.since_ns.store(until, Relaxed);
        stream.since.store(1, Relaxed);
        Next::Timed(self.wait(at as u32, kind as u32, id, since <= 1))
    }

    fn wait(&self, stream: u32, kind: u32, id: u64, alone: bool) -> u64 {
        let token = self.tokens.fetch_add(1, Relaxed) + 1;
        let place = &self.waiting[token as usize % WAITING];
        place.id.store(id, Relaxed);
        place.kind.store(kind, Relaxed);
        place.stream.store(stream, Relaxed);
        place.alone.store(alone.into(), Relaxed);
        place.token.store(token, Release);
        token
    }

    /// A stream has come to an announcement: its execution ID, or `None` if too many have waited for
    /// that to be known.
    pub(crate) fn begins(&self, token: u64, now_ns: u64) -> Option<u64> {
        let place = self.place(token)?;
        let stream = &self.streams[place.stream.load(Relaxed) as usize % STREAMS];
        let last = stream.last.load(Relaxed);
        let took = now_ns.saturating_sub(stream.done_ns.load(Relaxed));
        let alone = place.alone.load(Relaxed) == 1;
        if let (true, Some(last)) = (alone, self.kinds.get(last as usize)) {
            let took = u32::try_from(took).unwrap_or(u32::MAX);
            last.least_ns.fetch_min(took, Relaxed);
            last.times.fetch_add(1, Relaxed);
            self.overhead_ns.fetch_min(took, Relaxed);
        }
        Some(place.id.load(Relaxed))
    }

    /// What was announced has become known to the driver.
    pub(crate) fn done(&self, token: u64, now_ns: u64) {
        let Some(place) = self.place(token) else {
            return;
        };
        let stream = &self.streams[place.stream.load(Relaxed) as usize % STREAMS];
        stream.last.store(place.kind.load(Relaxed), Relaxed);
        stream.done_ns.store(now_ns, Relaxed);
    }

    fn place(&self, token: u64) -> Option<&Waiting> {
        let place = &self.waiting[token as usize % WAITING];
        (place.token.load(Acquire) == token).then_some(place)
    }

    /// How long a kernel of a kind takes, if that is known.
    fn took(&self, kind: &Kind) -> Option<u32> {
        let known = kind.times.load(Relaxed) >= TIMES;
        let overhead = self.overhead_ns.load(Relaxed);
        known.then(|| kind.least_ns.load(Relaxed).saturating_sub(overhead))
    }
}

/// Where a key is, or has its place from now on; `None` for 0, and where all places are taken.
fn place<T>(all: &[T], key_of: fn(&T) -> &AtomicU64, key: u64) -> Option<usize> {
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let mut places = (first..first + PROBES).map(|at| at % all.len());
    places.find(|&at| {
        let there = key_of(&all[at]);
        let mut found = there.load(Relaxed);
        if found == 0 {
            found = match there.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => key,
                Err(other) => other,
            };
        }
        found == key && key != 0
    })
}

#[cfg(test)]
mod predicted;

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: u32 = 400_000;
    const OVERHEAD: u64 = 20_000;

    /// A stream of a GPU, which does what was launched when it is asked to.
    struct Gpu {
        groups: Groups,
        now: u64,
        announced: Vec<u64>,
    }

    impl Gpu {
        fn new(every_ns: u32) -> Self {
            Self {
                groups: Groups::new(every_ns),
                now: 1,
                announced: Vec::new(),
            }
        }

        /// Launches kernels by their IDs, all of them before the stream begins; each takes as many
        /// microseconds as `took` says. Gives the IDs that are announced.
        fn step(&mut self, kernels: &[u64], took: impl Fn(u64) -> u64) -> Vec<u64> {
            let next: Vec<_> = kernels
                .iter()
                .map(|&id| self.groups.launch(7, id, 1000 + id))
                .collect();
            self.announced.clear();
            for (&id, next) in kernels.iter().zip(next) {
                if let Next::Timed(token) = next {
                    self.now += OVERHEAD;
                    let id = self.groups.begins(token, self.now).unwrap();
                    self.announced.push(id - 1000);
                    self.groups.done(token, self.now);
                } else if next == Next::Untimed {
                    self.announced.push(id);
                }
                self.now += 1000 * took(id);
            }
            self.announced.clone()
        }
    }

    #[test]
    fn what_is_not_known_is_announced_and_so_is_what_is_behind_it() {
        let mut gpu = Gpu::new(EVERY);
        let kernels: Vec<u64> = (1..=20).collect();
        for _ in 0..TIMES {
            assert_eq!(gpu.step(&kernels, |_| 5), kernels);
        }
        // The last one of a step is timed by the first of the next.
        assert_eq!(gpu.step(&kernels, |_| 5), [1, 20]);
        assert_eq!(gpu.step(&kernels, |_| 5), [1]);
        // One that is new, in their midst, is announced, and the next one with it.
        let mut with_new = kernels.clone();
        with_new.insert(10, 99);
        gpu.step(&[50], |_| 5000);
        assert_eq!(gpu.step(&with_new, |_| 5), [1, 99, 11]);
    }

    #[test]
    fn long_kernels_are_announced_and_what_is_behind_them() {
        let mut gpu = Gpu::new(EVERY);
        let took = |id| if id % 10 == 0 { 1000 } else { 90 };
        let kernels: Vec<u64> = (1..=29).collect();
        for _ in 0..TIMES + 2 {
            gpu.step(&kernels, took);
        }
        // The shortest time of all, 90 and the announcement, counts as none.
        assert_eq!(gpu.step(&kernels, took), [10, 11, 20, 21]);
        assert_eq!(gpu.step(&kernels, took), [10, 11, 20, 21]);
    }

    #[test]
    fn an_announcement_has_so_much_behind_it_and_no_more() {
        let mut gpu = Gpu::new(EVERY);
        // One that takes nothing shows what an announcement takes.
        let took = |id| if id == 1 { 0 } else { 100 };
        let kernels: Vec<u64> = (1..=21).collect();
        for _ in 0..=TIMES {
            gpu.step(&kernels, took);
        }
        gpu.step(&[50], |_| 5000);
        assert_eq!(gpu.step(&kernels, took), [1, 6, 10, 14, 18]);
        // Nor is it of more launches than so many, however short they are.
        let many = vec![1; 3 * (LAUNCHES as usize + 1)];
        gpu.step(&[50], |_| 5000);
        assert_eq!(gpu.step(&many, took), [1, 1, 1]);
    }

    #[test]
    fn a_time_with_others_in_it_is_none_of_the_first() {
        let mut gpu = Gpu::new(EVERY);
        for _ in 0..=TIMES {
            gpu.step(&[1, 2, 3], |id| if id == 3 { 1000 } else { 50 });
        }
        let at = place(&gpu.groups.kinds, |kind| &kind.key, 1).unwrap();
        let times = gpu.groups.kinds[at].times.load(Relaxed);
        gpu.step(&[1, 2, 3], |_| 1);
        assert_eq!(gpu.groups.kinds[at].times.load(Relaxed), times);
        assert_eq!(gpu.groups.kinds[at].least_ns.load(Relaxed), 70_000);
    }

    #[test]
    fn the_shortest_time_of_a_kind_counts() {
        let mut gpu = Gpu::new(EVERY);
        for took in [300, 50, 300] {
            gpu.step(&[1], |_| took);
        }
        gpu.step(&[2], |_| 1);
        let at = place(&gpu.groups.kinds, |kind| &kind.key, 1).unwrap();
        assert_eq!(gpu.groups.kinds[at].least_ns.load(Relaxed), 70_000);
    }

    /// With other arguments, which are not part of a kind.
    #[test]
    fn a_kind_that_has_become_long_is_announced_again() {
        let mut gpu = Gpu::new(EVERY);
        let kernels = [1; 64];
        for _ in 0..3 {
            gpu.step(&kernels, |_| 5);
        }
        assert_eq!(gpu.step(&kernels, |_| 5), [1]);
        let (mut steps, mut announced) = (0, 0);
        while gpu.step(&kernels, |_| 1000) != kernels {
            steps += 1;
            announced += gpu.announced.len();
            assert!(
                steps < 2 * ANEW as usize / 64,
                "it counts as short for ever"
            );
        }
        assert!(announced < steps + 4 * TIMES as usize, "{announced}");
        // Once it is known to be long it stays so, as each tells its time.
        assert_eq!(gpu.step(&kernels, |_| 1000), kernels);
    }

    #[test]
    fn nothing_joins_before_its_stream_has_an_announcement() {
        let mut gpu = Gpu::new(EVERY);
        for _ in 0..TIMES + 2 {
            gpu.step(&[1], |_| 5);
        }
        assert_eq!(gpu.groups.launch(7, 1, 1), Next::Joins);
        assert!(matches!(gpu.groups.launch(8, 1, 1), Next::Timed(_)));
        assert_eq!(gpu.groups.launch(8, 1, 1), Next::Joins);
    }

    #[test]
    fn streams_are_apart() {
        let groups = Groups::new(EVERY);
        for n in 0..u64::from(2 * TIMES) {
            for stream in [1, 2] {
                let Next::Timed(token) = groups.launch(stream, 5, n) else {
                    continue;
                };
                let now = 1_000_000 * n + stream * if stream == 1 { 1000 } else { 200_000 };
                assert_eq!(groups.begins(token, now), Some(n));
                groups.done(token, now);
            }
        }
        let at = place(&groups.kinds, |kind| &kind.key, 5).unwrap();
        assert_eq!(groups.kinds[at].least_ns.load(Relaxed), 1_000_000);
    }

    #[test]
    fn an_announcement_that_is_too_old_to_be_known_is_none() {
        let groups = Groups::new(EVERY);
        let mut tokens = Vec::new();
        for n in 0..=WAITING as u64 {
            let Next::Timed(token) = groups.launch(1, 5, n) else {
                panic!("nothing has been timed");
            };
            tokens.push(token);
        }
        assert_eq!(groups.begins(tokens[0], 1), None);
        groups.done(tokens[0], 1);
        assert_eq!(
            groups
                .streams
                .iter()
                .filter(|s| s.last.load(Relaxed) != NONE)
                .count(),
            0
        );
        assert_eq!(groups.begins(tokens[1], 1), Some(1));
        assert_eq!(groups.begins(tokens[WAITING], 1), Some(WAITING as u64));
    }

    #[test]
    fn none_joins_where_that_is_off_or_where_there_is_no_room() {
        let mut gpu = Gpu::new(0);
        for _ in 0..20 {
            assert_eq!(gpu.step(&[3, 4], |_| 1), [3, 4]);
        }
        assert_eq!(gpu.groups.launch(7, 3, 3), Next::Untimed);
        let groups = Groups::new(EVERY);
        assert_eq!(groups.launch(1, 0, 1), Next::Untimed);
        let streams = 1..=10 * STREAMS as u64;
        let known = streams.filter(|&stream| groups.launch(stream, 1, 1) != Next::Untimed);
        assert!((PROBES..=STREAMS).contains(&known.count()));
    }
}
