// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A measurement for criterion: the CPU time of the thread that runs the benchmark.
//!
//! Benchmarks of policies and simulators run on one thread and wait for nothing, so
//! on an idle machine this is the wall time. On a busy one it still is what they
//! cost, but for what other programs do to caches and clocks.

use std::time::Duration;

use cpu_time::ThreadTime;
use criterion::measurement::Measurement;
use criterion::measurement::ValueFormatter;
use criterion::measurement::WallTime;
use criterion::Criterion;

/// The thread's CPU time.
#[derive(Debug, Default)]
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = ThreadTime;
    type Value = Duration;

    fn start(&self) -> ThreadTime {
        ThreadTime::now()
    }

    fn end(&self, start: ThreadTime) -> Duration {
        start.elapsed()
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Criterion with this measurement.
pub fn criterion() -> Criterion<CpuTime> {
    Criterion::default().with_measurement(CpuTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_costs_nothing() {
        let start = CpuTime.start();
        std::thread::sleep(Duration::from_millis(30));
        assert!(CpuTime.end(start) < Duration::from_millis(15));
    }
}
