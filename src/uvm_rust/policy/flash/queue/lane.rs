// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The lanes of a VA space, and the threads that a tenant has for those of all of its VA spaces.

/// How many of a tenant's workers are at work at the same time on each [`Way`], whichever their VA spaces and lanes.
/// A lane has no thread of its own, so more GPUs do not give a tenant more kernel threads.
pub const AT_WORK: u32 = 4;

/// The direction in which a lane moves bytes. The workers of all lanes of a way share the tenant's threads for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the device, and away from GPUs.
    Out,
    /// From the device, and to GPUs.
    In,
}

impl Way {
    /// Both ways, each at the index of its number.
    pub const ALL: [Self; 2] = [Self::Out, Self::In];
}

/// The queue that a request waits in, by its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// To the device, of which there is one, and away from GPUs.
    Out,
    /// From the device to host memory.
    Host,
    /// To GPUs without a lane of their own, because other GPUs have all of them.
    Rest,
    /// To one GPU, while requests to it wait: the first of eight such lanes.
    Gpu0,
    /// The second lane of this kind.
    Gpu1,
    /// The third lane of this kind.
    Gpu2,
    /// The fourth lane of this kind.
    Gpu3,
    /// The fifth lane of this kind.
    Gpu4,
    /// The sixth lane of this kind.
    Gpu5,
    /// The seventh lane of this kind.
    Gpu6,
    /// The eighth lane of this kind.
    Gpu7,
}

impl Lane {
    /// The number of lanes of a VA space.
    pub const COUNT: usize = 11;

    /// All lanes, each at the index of its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Out,
        Self::Host,
        Self::Rest,
        Self::Gpu0,
        Self::Gpu1,
        Self::Gpu2,
        Self::Gpu3,
        Self::Gpu4,
        Self::Gpu5,
        Self::Gpu6,
        Self::Gpu7,
    ];

    /// How many GPUs can have a lane of their own at the same time: as many as most machines with several have at
    /// most.
    pub(super) const OWN: usize = 8;

    /// The first `own` of the lanes that a GPU can have to itself.
    pub(super) fn of_gpus(own: usize) -> impl Iterator<Item = Self> {
        let of_all = Self::ALL.len() - Self::OWN;
        Self::ALL.into_iter().skip(of_all).take(own)
    }

    /// The direction in which it moves bytes.
    pub fn way(self) -> Way {
        match self {
            Self::Out => Way::Out,
            _ => Way::In,
        }
    }
}

/// A set of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes(u16);

const _: () = assert!(Lane::COUNT <= u16::BITS as usize);

impl Lanes {
    /// The set of the lanes for which `is_in` is true.
    pub(super) fn of(is_in: impl Fn(Lane) -> bool) -> Self {
        let bits = Lane::ALL.into_iter().filter(|lane| is_in(*lane));
        Self(bits.fold(0, |set, lane| set | (1 << lane as u16)))
    }

    /// Each lane of the set, once.
    pub fn iter(self) -> impl Iterator<Item = Lane> {
        let is_in = move |lane: &Lane| self.0 & (1 << *lane as u16) != 0;
        Lane::ALL.into_iter().filter(is_in)
    }
}
