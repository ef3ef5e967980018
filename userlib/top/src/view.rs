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
    pub(crate) ssd: Option<SsdRates>,
}

impl View {
    pub(crate) fn new(sample: Sample) -> Self {
        Self {
            sample,
            rates: BTreeMap::new(),
            history: BTreeMap::new(),
            processes: BTreeMap::new(),
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
            if let Some(rates) = earlier.and_then(|earlier| of_process(earlier, process, seconds)) {
                self.processes.insert(process.pid, rates);
            }
        }
        let all = |sample: &Sample| sample.ssd.and_then(|ssd| ssd.all);
        let pair = all(&before).zip(all(now));
        self.ssd = pair.map(|(before, now)| of_ssd(&before, &now, seconds));
    }
}

impl History {
    fn push(&mut self, rates: Option<Rates>) {
        let mut push = |line: fn(&mut Self) -> &mut Line, value: fn(&Rates) -> f64| {
            let line = line(self);
            line.push_back(rates.as_ref().map(value));
            if line.len() > KEPT {
                line.pop_front();
            }
        };
        push(
            |h| &mut h.to_gpu,
            |r| r.to_gpu.total() + r.from_gpus.total(),
        );
        push(|h| &mut h.to_host, |r| r.to_host.total());
        push(|h| &mut h.faults, |r| r.faults);
        push(|h| &mut h.evicted, |r| r.evicted);
        push(|h| &mut h.thrashed, |r| r.thrashed);
    }
}
