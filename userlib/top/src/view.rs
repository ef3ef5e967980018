// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is shown: the last sample, what happened since the one before, and for how long that
//! has been so.

use std::collections::{BTreeMap, VecDeque};

use crate::rates::{of_gpu, of_process, of_ssd, Rates, SsdRates};
use crate::sample::Sample;

/// Values of a sparkline that are kept.
const KEPT: usize = 128;

/// The values of a sparkline, the oldest first; `None` where nothing was measured.
pub(crate) type Line = VecDeque<Option<f64>>;

/// The last rates of a GPU.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) to_gpu: Line,
    pub(crate) to_host: Line,
    pub(crate) faults: Line,
    pub(crate) evicted: Line,
    pub(crate) thrashed: Line,
}

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) sample: Sample,
    /// The rates of each GPU, by the GPU's key.
    pub(crate) rates: BTreeMap<String, Rates>,
    pub(crate) history: BTreeMap<String, History>,
    /// The rates of each process, by process ID.
    pub(crate) processes: BTreeMap<u32, Rates>,
    /// What each of them moved in a second, in both directions, by process ID.
    pub(crate) moved: BTreeMap<u32, Line>,
    pub(crate) ssd: Option<SsdRates>,
}

impl View {
    pub(crate) fn new(sample: Sample) -> Self {
        Self {
            sample,
            rates: BTreeMap::new(),
            history: BTreeMap::new(),
            processes: BTreeMap::new(),
            moved: BTreeMap::new(),
            ssd: None,
        }
    }

    /// Takes a later sample. One of the same moment tells nothing of a second.
    pub(crate) fn update(&mut self, now: Sample) {
        let before = std::mem::replace(&mut self.sample, now);
        let now = &self.sample;
        let seconds = now.at.saturating_sub(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        self.rates.clear();
        for gpu in &now.gpus {
            let key = gpu.key();
            let earlier = before.gpus.iter().find(|other| other.key() == key);
            let rates = earlier.and_then(|earlier| of_gpu(earlier, gpu, seconds));
            self.history.entry(key.clone()).or_default().push(rates);
            if let Some(rates) = rates {
                self.rates.insert(key, rates);
            }
        }
        // Of a GPU that is gone nothing is kept.
        self.history
            .retain(|key, _| now.gpus.iter().any(|gpu| gpu.key() == *key));
        self.processes.clear();
        for process in &now.processes {
            let mut earlier = before.processes.iter();
            let earlier = earlier.find(|other| other.pid == process.pid);
            let rates = earlier.and_then(|earlier| of_process(earlier, process, seconds));
            push(
                self.moved.entry(process.pid).or_default(),
                rates.map(|r| r.moved()),
            );
            if let Some(rates) = rates {
                self.processes.insert(process.pid, rates);
            }
        }
        self.moved
            .retain(|pid, _| now.processes.iter().any(|process| process.pid == *pid));
        let all = |sample: &Sample| sample.ssd.and_then(|ssd| ssd.all);
        let pair = all(&before).zip(all(now));
        self.ssd = pair.map(|(before, now)| of_ssd(&before, &now, seconds));
    }
}

/// Adds the newest value, and forgets the oldest beyond those that are kept.
fn push(line: &mut Line, value: Option<f64>) {
    line.push_back(value);
    if line.len() > KEPT {
        line.pop_front();
    }
}

impl History {
    fn push(&mut self, rates: Option<Rates>) {
        let mut of = |line: fn(&mut Self) -> &mut Line, value: fn(&Rates) -> f64| {
            push(line(self), rates.as_ref().map(value));
        };
        of(
            |h| &mut h.to_gpu,
            |r| r.to_gpu.total() + r.from_gpus.total(),
        );
        of(|h| &mut h.to_host, |r| r.to_host.total());
        of(|h| &mut h.faults, |r| r.faults);
        of(|h| &mut h.evicted, |r| r.evicted);
        of(|h| &mut h.thrashed, |r| r.thrashed);
    }
}
