// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Faults, what the artifact thinks they cost, and the error of profiles.

use super::super::pages::Loc;
use super::super::pages::Queue;
use super::super::pages::NIL;
use super::super::view::PAGE;
use super::Sim;

/// Bandwidth where no fault cost was measured, in bytes per ms.
const UNMEASURED_BYTES_PER_MS: f64 = 1_063_004_400.0;

/// The seed of a Mersenne twister that was given none.
const DEFAULT_SEED: u32 = 5489;

/// Pages of a kernel's inputs, or outputs, and where the missing ones are.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    total: u64,
    there: u64,
    host: u64,
    ssd: u64,
    new: u64,
}

impl Side {
    fn faulted(self) -> u64 {
        self.host + self.ssd + self.new
    }

    /// Faulted pages of all, and of those the ones on the SSD.
    fn ratios(self) -> (f64, f64) {
        let of = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        (of(self.faulted(), self.total), of(self.ssd, self.faulted()))
    }
}

impl Sim<'_> {
    /// Queues every missing page of the current kernel as a fault; returns the
    /// duration that the artifact predicts for the kernel, faults included.
    pub(super) fn fault_in(&mut self) -> u64 {
        let k = &self.view.kernels[self.kernel];
        let (mut inputs, mut outputs) = (Side::default(), Side::default());
        for &t in &k.inputs {
            self.fault_tensor(t, &mut inputs);
        }
        for &t in &k.outputs {
            self.fault_tensor(t, &mut outputs);
        }
        self.record.host_faults += inputs.host + outputs.host;
        self.record.ssd_faults += inputs.ssd + outputs.ssd;
        self.record.alloc_faults += inputs.new + outputs.new;
        self.fault_cycles(inputs, outputs) + self.cycles[self.kernel]
    }

    fn fault_tensor(&mut self, t: u32, side: &mut Side) {
        let mut r = self.pages.tensors[t as usize].runs.first;
        while r != NIL {
            let run = self.pages.run(r);
            let (next, len, loc) = (run.next(), run.len, run.loc);
            side.total += len;
            let (part, queue) = match loc {
                _ if run.queue != Queue::Idle => (&mut self.record.in_transfer, None),
                Loc::None => (&mut side.new, Some(Queue::FaultAlloc)),
                Loc::Ssd => (&mut side.ssd, Some(Queue::FaultSsd)),
                Loc::Host => (&mut side.host, Some(Queue::FaultHost)),
                Loc::Gpu => (&mut side.there, None),
            };
            *part += len;
            if let Some(queue) = queue {
                self.pages.enqueue(r, queue);
            }
            r = next;
        }
    }

    /// The artifact's fault model. Measured times count in whole seconds only:
    /// they are divided as integers before they become milliseconds.
    fn fault_cycles(&self, inputs: Side, outputs: Side) -> u64 {
        let whole = |cycles: u64| (cycles / super::super::CYCLES_PER_SECOND * 1000) as f64;
        let (all, out) = self.fault_times();
        let t11 = whole(self.cycles[self.kernel]);
        let t00 = whole(all).max(t11);
        let t10 = whole(out).max(t11).min(t00);
        let (bytes_in, bytes_out) = ((inputs.total * PAGE) as f64, (outputs.total * PAGE) as f64);
        let measured = |bytes: f64, ms: f64| match ms {
            0.0 => UNMEASURED_BYTES_PER_MS,
            ms => bytes / ms,
        };
        let mut host_in = measured(bytes_in, t00 - t10);
        let mut host_out = measured(bytes_out, t10 - t11);

        let per_ms = |gbps: f64| gbps * 1e9 / 1.2e9 * 1.2e9 / 1000.0;
        let [link, ssd] = [self.machine.pcie_gbps, self.machine.ssd_gbps].map(per_ms);
        // Latencies are integers there; they enter as a ratio only.
        let (fault, drive) = (self.machine.fault_us.trunc(), self.machine.ssd_us.trunc());
        let (in_ratio, in_ssd) = inputs.ratios();
        let (out_ratio, out_ssd) = outputs.ratios();
        let from_ssd = |host: f64, ratio: f64| match ratio {
            0.0 => 0.0,
            _ => (host * fault / (fault + drive)).min(ssd),
        };
        let (ssd_in, ssd_out) = (from_ssd(host_in, in_ssd), from_ssd(host_out, out_ssd));
        let left = link - ssd_in.max(ssd_out);
        host_in = host_in.min(left);
        host_out = host_out.min(left);

        let ssd_time = |ratio: f64, part: f64, bytes: f64, bw: f64| match part {
            0.0 => 0.0,
            _ => ratio * part * bytes / bw,
        };
        let ssd_ms = ssd_time(in_ratio, in_ssd, bytes_in, ssd_in)
            + ssd_time(out_ratio, out_ssd, bytes_out, ssd_out);
        let host_ms = in_ratio * (1.0 - in_ssd) * bytes_in / host_in
            + out_ratio * (1.0 - out_ssd) * bytes_out / host_out;
        let ms = if host_ms > ssd_ms { host_ms } else { ssd_ms };
        let cycles = ms / 1e3 * 1.2e9;
        if cycles.is_finite() {
            cycles as u64
        } else {
            // An SSD as fast as the link leaves no bandwidth to host faults; the
            // artifact's conversion of infinity to an integer gives 0 on x86.
            0
        }
    }

    /// The measured durations with everything, and with outputs, page-faulting.
    fn fault_times(&self) -> (u64, u64) {
        let k = &self.view.kernels[self.kernel];
        match self.time_ratio.get(self.kernel) {
            None => (k.all_fault_cycles, k.out_fault_cycles),
            Some(&r) => (
                (k.all_fault_cycles as f64 * r) as u64,
                (k.out_fault_cycles as f64 * r) as u64,
            ),
        }
    }
}

/// Multiplies every kernel's time by a random number, as figure 19 does.
pub(super) fn perturb(sim: &mut Sim<'_>) {
    let d = sim.machine.time_error;
    if d == 0.0 {
        return;
    }
    // The artifact seeds its engine only where the seed is not 1.
    let seed = if sim.machine.seed == 1 {
        DEFAULT_SEED
    } else {
        sim.machine.seed
    };
    let mut random = rand_mt::Mt::new(seed);
    let (low, high) = (1.0 - d, 1.0 + d);
    for c in &mut sim.cycles {
        let ratio = (canonical(&mut random) * (high - low) + low).clamp(0.1, 1.9);
        *c = (*c as f64 * ratio) as u64;
        sim.time_ratio.push(ratio);
    }
}

/// A number in [0, 1) from two draws, low half first, as the GNU C++ library's
/// uniform distribution makes it.
fn canonical(random: &mut rand_mt::Mt) -> f64 {
    let two32 = f64::from(u32::MAX) + 1.0;
    let low = f64::from(random.next_u32());
    let x = (low + f64::from(random.next_u32()) * two32) / (two32 * two32);
    if x >= 1.0 {
        1.0 - f64::EPSILON / 2.0
    } else {
        x
    }
}
