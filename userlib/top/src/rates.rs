// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What happened between two samples, a second.

use uvmrust_system::{ByCause, ByQueue, Counts, ToolCounts};

use crate::sample::{GpuSample, ProcessSample, SsdAll};

/// How much a counter has grown. The driver's wrap at 2^64, and begin anew when the last
/// process that used the GPU is gone: what is smaller than before is one of these two, and
/// no counter grows by half of 2^64 between samples.
pub(crate) fn grown(before: u64, now: u64) -> u64 {
    let by = now.wrapping_sub(before);
    match now >= before || by < 1 << 63 {
        true => by,
        // Anew: it has grown by what it is, at least.
        false => now,
    }
}

/// Counts of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moves {
    pub(crate) fault: f64,
    pub(crate) prefetch: f64,
    pub(crate) eviction: f64,
    pub(crate) api: f64,
    pub(crate) access_counter: f64,
}

impl Moves {
    fn between(before: &ByCause, now: &ByCause, seconds: f64) -> Self {
        let rate = |before, now| grown(before, now) as f64 / seconds;
        Self {
            fault: rate(before.fault, now.fault),
            prefetch: rate(before.prefetch, now.prefetch),
            eviction: rate(before.eviction, now.eviction),
            api: rate(before.api, now.api),
            access_counter: rate(before.access_counter, now.access_counter),
        }
    }

    pub(crate) fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("fault", self.fault),
            ("prefetch", self.prefetch),
            ("eviction", self.eviction),
            ("api", self.api),
            ("access", self.access_counter),
        ]
    }

    pub(crate) fn total(&self) -> f64 {
        self.named().iter().map(|(_, rate)| rate).sum()
    }

    fn add(&mut self, other: &Self) {
        self.fault += other.fault;
        self.prefetch += other.prefetch;
        self.eviction += other.eviction;
        self.api += other.api;
        self.access_counter += other.access_counter;
    }
}

/// What a GPU did in a second, for a process or for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) to_gpu: Moves,
    pub(crate) to_host: Moves,
    pub(crate) from_gpus: Moves,
    pub(crate) faults: f64,
    pub(crate) duplicates: f64,
    pub(crate) batches: f64,
    /// Chunks of 2 MiB that somebody had.
    pub(crate) evicted: f64,
    /// Of these, those with nothing but what was discarded.
    pub(crate) evicted_discarded: f64,
    pub(crate) evicted_unused: f64,
    /// Blocks of 2 MiB that came back soon after their eviction.
    pub(crate) thrashed: f64,
    /// Blocks that were evicted before the kernel for which a prediction had brought them.
    pub(crate) prefetch_wasted: f64,
}

impl Rates {
    fn between(before: &Counts, now: &Counts, seconds: f64) -> Self {
        let rate = |before, now| grown(before, now) as f64 / seconds;
        let moves = |get: fn(&Counts) -> &ByCause| Moves::between(get(before), get(now), seconds);
        let queue = |get: fn(&ByQueue) -> u64| rate(get(&before.evictions), get(&now.evictions));
        let unused = queue(|chunks| chunks.unused);
        let discarded = queue(|chunks| chunks.discarded);
        Self {
            to_gpu: moves(|counts| &counts.host_to_gpu),
            to_host: moves(|counts| &counts.gpu_to_host),
            from_gpus: moves(|counts| &counts.gpu_to_gpu),
            faults: rate(before.faults, now.faults),
            duplicates: rate(before.duplicates, now.duplicates),
            batches: rate(before.batches, now.batches),
            evicted: unused
                + discarded
                + queue(|chunks| chunks.used)
                + queue(|chunks| chunks.address),
            evicted_discarded: discarded,
            evicted_unused: unused,
            thrashed: rate(before.thrashed, now.thrashed),
            prefetch_wasted: rate(before.prefetch_wasted, now.prefetch_wasted),
        }
    }

    /// Bytes in both directions.
    pub(crate) fn moved(&self) -> f64 {
        self.to_gpu.total() + self.from_gpus.total() + self.to_host.total()
    }

    fn add(&mut self, other: &Self) {
        self.to_gpu.add(&other.to_gpu);
        self.to_host.add(&other.to_host);
        self.from_gpus.add(&other.from_gpus);
        self.faults += other.faults;
        self.duplicates += other.duplicates;
        self.batches += other.batches;
        self.evicted += other.evicted;
        self.evicted_discarded += other.evicted_discarded;
        self.evicted_unused += other.evicted_unused;
        self.thrashed += other.thrashed;
        self.prefetch_wasted += other.prefetch_wasted;
    }
}

/// Of a GPU; NVIDIA's own counts serve where ours are not.
pub(crate) fn of_gpu(before: &GpuSample, now: &GpuSample, seconds: f64) -> Option<Rates> {
    if let (Some(before), Some(now)) = (&before.counts, &now.counts) {
        return Some(Rates::between(before, now, seconds));
    }
    let (before, now) = (before.gpu.debug.as_ref()?, now.gpu.debug.as_ref()?);
    let rate = |before, now| grown(before, now) as f64 / seconds;
    let mut rates = Rates {
        faults: rate(before.faults, now.faults),
        ..Rates::default()
    };
    // They do not say why.
    rates.to_gpu.fault = rate(before.bytes_in, now.bytes_in);
    rates.to_host.fault = rate(before.bytes_out, now.bytes_out);
    Some(rates)
}

/// Of a process, on all GPUs. One that is new on a GPU did there all that it has done. `None`: not
/// known, as where one of its VA spaces came or went, with what it had done before. Its counts and its VA
/// spaces are not read at the same time, so that counts which shrink say so too: those of a VA space never do.
pub(crate) fn of_process(
    before: &ProcessSample,
    now: &ProcessSample,
    seconds: f64,
) -> Option<Rates> {
    if let (Some(tools), None) = (&now.tools, &now.gpus) {
        return of_tools(tools);
    }
    if before.clients != now.clients {
        return None;
    }
    let (before, now) = (before.gpus.as_ref()?, now.gpus.as_ref()?);
    let shrank = |(gpu, before)| now.get(gpu).is_none_or(|now: &Counts| now.shrank(before));
    if before.iter().any(shrank) {
        return None;
    }
    let mut sum = Rates::default();
    for (gpu, now) in now {
        let none = Counts::default();
        let before = before.get(gpu).unwrap_or(&none);
        sum.add(&Rates::between(before, now, seconds));
    }
    Some(sum)
}

/// What UVM's tools interface has counted, which does not say why something moved.
fn of_tools(tools: &ToolCounts) -> Option<Rates> {
    let rate = |n| n as f64 / tools.seconds;
    let mut rates = Rates {
        faults: rate(tools.faults),
        ..Rates::default()
    };
    rates.to_gpu.fault = rate(tools.bytes_in);
    rates.to_host.fault = rate(tools.bytes_out);
    (tools.seconds > 0.0).then_some(rates)
}

/// What went through the SSD in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SsdRates {
    pub(crate) written: f64,
    pub(crate) spilled: f64,
    pub(crate) fetched: f64,
    pub(crate) dropped: f64,
}

pub(crate) fn of_ssd(before: &SsdAll, now: &SsdAll, seconds: f64) -> SsdRates {
    let rate = |before, now| grown(before, now) as f64 / seconds;
    SsdRates {
        written: rate(before.written, now.written),
        spilled: rate(before.spilled, now.spilled),
        fetched: rate(before.fetched, now.fetched),
        dropped: rate(before.dropped, now.dropped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_module_of_ours_counts_the_tools_do() {
        let of = |bytes_in, bytes_out, faults| ProcessSample {
            tools: Some(ToolCounts {
                seconds: 2.0,
                bytes_in,
                bytes_out,
                faults,
                cpu_faults: 1,
            }),
            ..ProcessSample::default()
        };
        // Each interval has counts of its own, whatever the one before had.
        for before in [of(1 << 40, 7, 7), ProcessSample::default()] {
            let rates = of_process(&before, &of(4096, 200, 20), 9.0).unwrap();
            let told = (rates.to_gpu.total(), rates.to_host.total(), rates.faults);
            assert_eq!(told, (2048.0, 100.0, 10.0));
        }
        assert_eq!(
            of_process(&of(1, 1, 1), &ProcessSample::default(), 2.0),
            None
        );
        let ours = ProcessSample {
            gpus: Some([(1, Counts::default())].into()),
            ..of(9, 9, 9)
        };
        assert_eq!(of_process(&ours, &ours, 2.0), Some(Rates::default()));
    }

    #[test]
    fn counters_grow_wrap_and_begin_anew() {
        assert_eq!(grown(5, 5), 0);
        assert_eq!(grown(5, 12), 7);
        assert_eq!(grown(0, u64::MAX), u64::MAX);
        assert_eq!(grown(u64::MAX - 2, 4), 7, "past 2^64");
        assert_eq!(grown(1_000_000, 40), 40, "begun anew");
        assert_eq!(grown(1_000_000, 0), 0);
        assert_eq!(grown(1 << 62, 3), 3);
    }

    /// A VA space that has made 1000 faults before it is seen did not make them in this second, nor
    /// did one that stays make all of its own anew when another goes.
    #[test]
    fn a_process_has_no_rate_where_its_va_spaces_are_others() {
        let of = |clients: &[u64], faults| ProcessSample {
            gpus: Some(
                [(
                    1,
                    Counts {
                        faults,
                        ..Counts::default()
                    },
                )]
                .into(),
            ),
            clients: clients.iter().copied().collect(),
            ..ProcessSample::default()
        };
        let faults = |before, now| of_process(&before, &now, 2.0).map(|rates| rates.faults);
        assert_eq!(faults(of(&[3], 10), of(&[3], 30)), Some(10.0));
        assert_eq!(faults(of(&[3], 10), of(&[3, 4], 1030)), None);
        assert_eq!(faults(of(&[3, 4], 1030), of(&[3], 40)), None);
        assert_eq!(faults(of(&[3], 40), of(&[4], 50)), None);
        // One that went after its counts were read, and before it was itself.
        assert_eq!(faults(of(&[3], 1030), of(&[3], 40)), None);
        let moved = |bytes| {
            let mut process = of(&[3], 10);
            process
                .gpus
                .as_mut()
                .unwrap()
                .get_mut(&1)
                .unwrap()
                .gpu_to_host
                .api = bytes;
            process
        };
        assert_eq!(faults(moved(4096), moved(0)), None);
        assert_eq!(faults(moved(0), moved(4096)), Some(0.0));
        let elsewhere = ProcessSample {
            gpus: Some([(2, Counts::default())].into()),
            ..of(&[3], 0)
        };
        assert_eq!(
            faults(of(&[3], 10), elsewhere),
            None,
            "with all that it did on a GPU"
        );
        // Of those that are not told.
        assert_eq!(faults(of(&[], 10), of(&[], 30)), Some(10.0));
    }
}
