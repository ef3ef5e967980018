// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What moves bytes: the link's two directions and the SSD's two.

use uvmsim_machine::Machine;

/// A direction, seen from the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From elsewhere to the GPU.
    In = 0,
    /// From the GPU to elsewhere.
    Out = 1,
}

/// When each direction of the link and of the SSD is free again.
///
/// Each is used by one copy at a time, in the order of the calls.
pub struct Links {
    link: [u64; 2],
    ssd: [u64; 2],
    link_rate: [f64; 2],
    ssd_rate: [f64; 2],
    ssd_latency: [u64; 2],
    setup: u64,
    request: u64,
    parallelism: u64,
    /// One copy engine: the two directions of the link take turns.
    half_duplex: bool,
}

fn ns(bytes: u64, rate: f64) -> u64 {
    (bytes as f64 / rate * 1e9).ceil() as u64
}

impl Links {
    /// The links of `m`, free from time 0.
    pub fn new(m: &Machine) -> Self {
        Self {
            link: [0; 2],
            ssd: [0; 2],
            link_rate: [m.pcie_h2d, m.pcie_d2h],
            ssd_rate: [m.ssd_read, m.ssd_write],
            ssd_latency: [m.ssd_read_latency, m.ssd_write_latency],
            setup: m.copy_setup,
            request: m.ssd_request.max(1),
            parallelism: m.ssd_parallelism.max(1),
            half_duplex: m.copy_engines < 2,
        }
    }

    /// When a copy between GPU and host could start.
    pub fn free(&self, d: Direction) -> u64 {
        if self.half_duplex {
            self.link[0].max(self.link[1])
        } else {
            self.link[d as usize]
        }
    }

    /// When a copy between GPU and SSD could start.
    pub fn ssd_free(&self, d: Direction) -> u64 {
        self.ssd[d as usize].max(self.free(d))
    }

    /// Copies `bytes` between GPU and host from time `t` on. Returns start and
    /// end.
    pub fn copy(&mut self, d: Direction, bytes: u64, t: u64) -> (u64, u64) {
        let start = t.max(self.free(d));
        let end = start + self.setup + ns(bytes, self.link_rate[d as usize]);
        self.link[d as usize] = end;
        (start, end)
    }

    /// Copies `bytes` between GPU and SSD from time `t` on. Returns start and end.
    ///
    /// The SSD takes requests of a bounded size, a bounded number at once: small
    /// copies are bound by its latency, large ones by its rate. The link is
    /// occupied only for as long as it needs itself.
    pub fn copy_ssd(&mut self, d: Direction, bytes: u64, t: u64) -> (u64, u64) {
        let i = d as usize;
        let start = t.max(self.ssd_free(d));
        let requests = bytes.div_ceil(self.request);
        let by_latency = requests * self.ssd_latency[i] / self.parallelism;
        self.ssd[i] = start + ns(bytes, self.ssd_rate[i]).max(by_latency);
        self.link[i] = start + self.setup + ns(bytes, self.link_rate[i]);
        (start, self.ssd[i].max(self.link[i]) + self.ssd_latency[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvmsim_machine::presets;
    use uvmsim_machine::MIB;

    #[test]
    fn directions_do_not_share_time_unless_one_engine_serves_both() {
        let mut m = presets::find("a100").unwrap();
        m.copy_setup = 0;
        let mut l = Links::new(&m);
        let (_, end) = l.copy(Direction::In, 15_754_000, 0);
        assert_eq!(end, 1_000_000);
        assert_eq!(l.copy(Direction::Out, 15_754_000, 0), (0, 1_000_000));
        m.copy_engines = 1;
        let mut l = Links::new(&m);
        l.copy(Direction::In, 15_754_000, 0);
        let out = l.copy(Direction::Out, 15_754_000, 0);
        assert_eq!(out, (1_000_000, 2_000_000));
    }

    #[test]
    fn ssd_is_bound_by_rate_when_large_and_by_latency_when_small() {
        let m = presets::find("a100").unwrap();
        let mut l = Links::new(&m);
        let mut end = 0;
        for _ in 0..100 {
            end = l.copy_ssd(Direction::In, 2 * MIB, 0).1;
        }
        let rate = 200.0 * MIB as f64 / (end as f64 / 1e9);
        assert!((rate / 3.2e9 - 1.0).abs() < 0.01, "{rate}");
        let mut l = Links::new(&m);
        let (start, end) = l.copy_ssd(Direction::In, 4096, 0);
        assert!(end - start > 20_000);
        // The link itself is soon free for the host's copies.
        assert!(l.free(Direction::In) < 3_000);
    }
}
