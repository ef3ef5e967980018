// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! TERAIO's planner ("Cost-Efficient LLM Training with Lifetime-Aware Tensor Offloading
//! via GPUDirect Storage", NeurIPS 2025, section 3.2 and algorithm 1), by authors of G10.
//!
//! As long as a kernel needs more memory than the GPU has, one more tensor leaves in one of
//! its inactive periods. Of each period the planner knows when the tensor has left at the
//! earliest, and when it must start back at the latest, in the time that the moves chosen so
//! far have left of the links. The kernels between these two that are over capacity make its
//! benefit, size times their durations; the period with the highest benefit for a byte is next.
//! A tensor leaves right after its use, comes back no earlier than it must, and moves between
//! GPU and SSD directly. Host memory takes what the SSD has no bandwidth for, up to a limit.
//!
//! The loop is that of [`greedy`]. The paper leaves open what follows; where G10's
//! algorithm answers, its answer is taken:
//!
//! * The text's benefit is "the reduction in critical memory pressure", which is at most what is
//!   over capacity; the algorithm's is the whole size, as G10's. The latter is taken.
//! * When the SSD's bandwidth is saturated: as with G10, if its writes are booked out for as long as the
//!   tensor by itself would take. What the host has no room or time for then waits for the SSD.
//! * Which of two periods with the same benefit for a byte is chosen: that of the larger
//!   tensor, as the text says that TERAIO prefers these.
//! * Whether weights that have not changed since they were last on the SSD are written again: the
//!   algorithm books a move either way for each period, and so does this.
//! * What share of memory is left free: the papers' planners fill the same here.

use crate::plan::greedy;
use crate::plan::Plan;
use crate::plan::Profile;

/// The plan for a step.
pub fn plan(profile: &Profile<'_>) -> Plan {
    let options = greedy::Options {
        eager: false,
        excess_only: false,
        drops: false,
        ssd_first: true,
        exact: true,
    };
    greedy::plan(profile, options)
}

#[cfg(test)]
mod tests {
    use uvmsim_machine::Machine;
    use uvmsim_machine::MIB;
    use uvmsim_trace::Kind;

    use super::*;
    use crate::plan::Op;
    use crate::plan::What;
    use crate::policy::Tier;
    use crate::tests::byte_a_ns;
    use crate::workload::Kernel;
    use crate::workload::Layout;
    use crate::workload::Use;
    use crate::workload::Workload;

    /// Nanoseconds of a kernel: what 64 MiB take at a byte a nanosecond.
    const KERNEL: u64 = 64 * MIB;
    const TO_SSD: What = What::Evict(Tier::Ssd);
    const TO_HOST: What = What::Evict(Tier::Host);

    /// A GPU of 128 MiB.
    fn machine(link: f64, ssd: f64, host_mem: u64) -> Machine {
        Machine {
            pcie_h2d: link,
            pcie_d2h: link,
            ssd_read: ssd,
            ssd_write: ssd,
            host_mem,
            ..byte_a_ns(128 * MIB)
        }
    }

    /// Two tensors of these MiB are idle while eight kernels use a third. The first is written a kernel
    /// before the second and read a kernel after it if it is `around`. The requests, with the
    /// kernels before which they are made.
    fn requests(mib: [u64; 3], around: bool, machine: &Machine) -> Vec<(usize, Op)> {
        let both = |of: fn(u32) -> Use| match around {
            true => vec![vec![of(0)], vec![of(1)]],
            false => vec![vec![of(0), of(1)]],
        };
        let mut uses = both(Use::write);
        uses.push(vec![Use::write(2)]);
        uses.extend(vec![vec![Use::read(2)]; 7]);
        uses.extend(both(Use::read).into_iter().rev());
        let kernels = uses.into_iter().map(|u| Kernel::new("k", KERNEL, u));
        let tensors = mib.map(|mib| ("t".into(), mib * MIB, Kind::Activation));
        let w = Workload::new("step", tensors.into(), kernels.collect());
        let l = Layout::new(&w);
        plan(&Profile::new(machine, &w, &l, 1.0, 0))
            .requests()
            .collect()
    }

    /// The small one is away for two more of the kernels that are over capacity, so it is worth more a byte. Without
    /// it memory suffices, and the large one stays.
    #[test]
    fn the_longest_pressure_a_byte_goes_first() {
        let made = requests([32, 64, 64], true, &machine(2e9, 1e9, 1 << 40));
        assert_eq!(made, [(1, (TO_SSD, 0)), (10, (What::Prefetch, 0))]);
    }

    /// Nothing is left to relieve that the small one could, as it would leave after the large one.
    #[test]
    fn of_two_as_good_the_larger_goes() {
        let made = requests([32, 64, 64], false, &machine(2e9, 1e9, 1 << 40));
        assert_eq!(made, [(1, (TO_SSD, 1)), (8, (What::Prefetch, 1))]);
    }

    #[test]
    fn nothing_leaves_where_memory_suffices() {
        assert_eq!(
            requests([32, 32, 64], false, &machine(2e9, 1e9, 1 << 40)),
            []
        );
    }

    /// The SSD takes two kernels to write one and two to read it, so there is no time for the other: that goes to the
    /// host, within its limit.
    #[test]
    fn the_host_takes_what_the_ssd_has_no_bandwidth_for() {
        let one = [(1, (TO_SSD, 0)), (7, (What::Prefetch, 0))];
        let two = [
            (1, (TO_SSD, 0)),
            (1, (TO_HOST, 1)),
            (7, (What::Prefetch, 0)),
            (8, (What::Prefetch, 1)),
        ];
        let made = |host| requests([64, 64, 128], false, &machine(2e9, 5e8, host));
        assert_eq!(made(64 * MIB), two);
        assert_eq!(made(62 * MIB), one);
        assert_eq!(made(0), one);
    }

    /// It does so too where the SSD has time later. What it has no room for waits for that.
    #[test]
    fn the_host_takes_what_would_wait_for_the_ssd() {
        let made = |host| requests([64, 64, 128], false, &machine(2e9, 1e9, host));
        let [first, last] = [(1, (TO_SSD, 0)), (8, (What::Prefetch, 0))];
        let by_host = [first, (1, (TO_HOST, 1)), last, (8, (What::Prefetch, 1))];
        let by_ssd = [first, (1, (TO_SSD, 1)), (7, (What::Prefetch, 1)), last];
        assert_eq!(made(64 * MIB), by_host);
        assert_eq!(made(0), by_ssd);
    }

    /// The large one would take two kernels to leave, in the second of which the SSD has nothing else to write.
    #[test]
    fn an_ssd_that_is_soon_free_is_not_saturated() {
        let made = requests([32, 64, 128], false, &machine(2e9, 5e8, 1 << 40));
        let [first, last] = [(1, (TO_SSD, 0)), (8, (What::Prefetch, 0))];
        assert_eq!(
            made,
            [first, (1, (TO_SSD, 1)), (6, (What::Prefetch, 1)), last]
        );
    }

    /// What has not changed since it was on the SSD is copied there again: a move out costs as much as one in.
    #[test]
    fn every_move_is_a_copy() {
        let mut m = machine(2e9, 1e9, 0);
        m.keep_clean = 1;
        let weights = ["w", "x"].map(|name| (name.into(), 64 * MIB, Kind::Weight));
        let kernel = |t| Kernel::new("k", KERNEL / 2, [Use::read(t)]);
        let kernels = [0, 0, 0, 0, 1, 1, 1, 1].map(kernel);
        let w = Workload::new("step", weights.into(), kernels.into());
        let l = Layout::new(&w);
        m.gpu_mem = 64 * MIB;
        // A weight is idle for four kernels; to leave and to come back take two each.
        let none = plan(&Profile::new(&m, &w, &l, 1.0, 0));
        assert_eq!(none.evictions(), 0);
    }
}
