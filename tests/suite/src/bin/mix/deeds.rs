// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is done, by whom, and how likely: the names that `--without` and the report use.

use uvm_suite::random::Kind;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// What the random program of one process does as well.
    Base(Kind),
    /// mremap() of ordinary memory.
    Remap,
    /// fork(): the child looks at ordinary memory, and writes its copy; its parent goes on by the CPU.
    Fork,
    /// The same, and the parent goes on by the GPU.
    ForkGpu,
    /// A maximum or a low of its own, set or lifted.
    Quota,
    /// Kernels that are announced.
    Announce,
    /// To the SSD, to the host or to the GPU, at once.
    Tier,
    /// The same, while it does other things.
    Queue,
    /// A channel of its own fails.
    Channel,
    /// UVM's allocations for a block fail, or an eviction of it.
    Block,
}

/// What the parent does to its children, or to all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// SIGKILL, and a new process in its place.
    Kill,
    /// memory.max, for a while.
    Max,
    /// memory.high, for a while.
    High,
    /// The fault buffer is found full.
    Buffer,
    /// RM refuses some allocations of memory.
    Refuse,
    /// RM takes memory, and keeps it for a while.
    Keep,
    /// Evictions find all ordinary memory held, for a while.
    Held,
    /// The system sleeps, and wakes up.
    Sleep,
}

/// What all of them need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Ordinary memory that a GPU reaches.
    Ordinary,
    /// An SSD tier with a device.
    Device,
    /// Memory cgroups of the second kind.
    Group,
}

/// What there is on this machine, and was not left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Has {
    pub(crate) ordinary: bool,
    pub(crate) device: bool,
    pub(crate) groups: bool,
}

impl Has {
    fn offers(self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing => true,
            Needs::Ordinary => self.ordinary,
            Needs::Device => self.device,
            Needs::Group => self.groups,
        }
    }

    /// The numbers of those deeds that can be done, with their weights.
    pub(crate) fn possible<T>(
        self,
        first: usize,
        all: &[(T, &str, u64, Needs)],
        without: &Without,
    ) -> Vec<(usize, u64)> {
        let all = all.iter().enumerate();
        let kept = all.filter(|(_, (_, name, _, needs))| self.offers(*needs) && !without.has(name));
        kept.map(|(n, (_, _, weight, _))| (first + n, *weight))
            .collect()
    }
}

/// The acts of workers: name, weight, and what each needs.
pub(crate) const ACTS: [(Act, &str, u64, Needs); 23] = [
    (Act::Base(Kind::CpuRead), "cpu-read", 28, Needs::Nothing),
    (Act::Base(Kind::CpuWrite), "cpu-write", 24, Needs::Nothing),
    (Act::Base(Kind::CpuAtomic), "cpu-atomic", 12, Needs::Nothing),
    (Act::Base(Kind::GpuRead), "gpu-read", 32, Needs::Nothing),
    (Act::Base(Kind::GpuWrite), "gpu-write", 32, Needs::Nothing),
    (Act::Base(Kind::GpuAtomic), "gpu-atomic", 16, Needs::Nothing),
    (Act::Base(Kind::GpuMany), "gpu-many", 12, Needs::Nothing),
    (Act::Base(Kind::Migrate), "migrate", 16, Needs::Nothing),
    (
        Act::Base(Kind::PreferredLocation),
        "preferred-location",
        8,
        Needs::Nothing,
    ),
    (
        Act::Base(Kind::AccessedBy),
        "accessed-by",
        6,
        Needs::Nothing,
    ),
    (
        Act::Base(Kind::ReadDuplication),
        "read-duplication",
        6,
        Needs::Nothing,
    ),
    (Act::Base(Kind::Evict), "evict", 6, Needs::Nothing),
    (Act::Base(Kind::Discard), "discard", 12, Needs::Nothing),
    (Act::Base(Kind::Free), "free", 2, Needs::Nothing),
    (Act::Remap, "mremap", 6, Needs::Ordinary),
    (Act::Fork, "fork", 3, Needs::Ordinary),
    (Act::ForkGpu, "fork-gpu", 2, Needs::Ordinary),
    (Act::Quota, "quota", 4, Needs::Nothing),
    (Act::Announce, "announce", 6, Needs::Nothing),
    (Act::Tier, "tier", 10, Needs::Device),
    (Act::Queue, "queue", 8, Needs::Device),
    (Act::Channel, "channel-error", 1, Needs::Nothing),
    (Act::Block, "block-error", 3, Needs::Nothing),
];

/// What the parent does: name, weight, and what each needs.
pub(crate) const EVENTS: [(Event, &str, u64, Needs); 8] = [
    (Event::Kill, "kill", 6, Needs::Nothing),
    (Event::Max, "memory-max", 2, Needs::Group),
    (Event::High, "memory-high", 2, Needs::Group),
    (Event::Buffer, "buffer-full", 3, Needs::Nothing),
    (Event::Refuse, "refuse", 3, Needs::Nothing),
    (Event::Keep, "keep", 3, Needs::Nothing),
    (Event::Held, "held", 2, Needs::Ordinary),
    (Event::Sleep, "sleep", 1, Needs::Nothing),
];

/// The name that stands for a kind of memory.
pub(crate) const ORDINARY: &str = "ordinary";
/// A worker registers its GPU; and at the end it looks at all that it has. Both are always done.
const CHECK: &str = "start-and-end";

/// How many deeds there are: acts, what is always done, events.
pub(crate) const COUNT: usize = ACTS.len() + 1 + EVENTS.len();
/// The number of what is always done.
pub(crate) const CHECKING: usize = ACTS.len();
/// The number of the first event.
pub(crate) const FIRST_EVENT: usize = CHECKING + 1;

/// The name of a deed.
pub(crate) fn name(deed: usize) -> &'static str {
    match deed {
        n if n < CHECKING => ACTS[n].1,
        CHECKING => CHECK,
        n => EVENTS[n - FIRST_EVENT].1,
    }
}

/// What a run is to leave out, by names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Without(Vec<&'static str>);

impl Without {
    /// Adds what a list with commas between names.
    pub(crate) fn add(&mut self, list: &str) -> Result<(), String> {
        for wanted in list.split(',').filter(|wanted| !wanted.is_empty()) {
            let mut names = (0..COUNT).filter(|&n| n != CHECKING).map(name);
            let known = names.find(|name| *name == wanted);
            let known = known.or((wanted == ORDINARY).then_some(ORDINARY));
            self.0
                .push(known.ok_or_else(|| format!("--without {wanted}: no such kind"))?);
        }
        Ok(())
    }

    /// Is that name left out?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = (0..COUNT).map(name).collect();
        assert_eq!(names.len(), COUNT);
        assert_eq!(name(CHECKING), CHECK);
        assert_eq!(name(FIRST_EVENT), "kill");
        assert!(!names.contains(ORDINARY));
    }

    #[test]
    fn what_is_left_out_is_known() {
        let mut without = Without::default();
        without.add("kill,ordinary").unwrap();
        without.add("tier").unwrap();
        assert!(["kill", "ordinary", "tier"]
            .iter()
            .all(|name| without.has(name)));
        assert!(!without.has("queue"));
        for unknown in ["fly", "kill,fly", CHECK] {
            assert!(Without::default().add(unknown).is_err(), "{unknown}");
        }
        assert_eq!(Without::default().add(""), Ok(()));
    }
}
