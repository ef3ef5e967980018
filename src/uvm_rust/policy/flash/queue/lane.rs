// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The lanes of a VA space, and the threads that a tenant has for those of all of its VA spaces.

/// So many workers of a tenant's are at work at the same time on each [`Way`], whichever their VA spaces and lanes. A
/// lane has no thread of its own: more GPUs do not give a tenant more threads of the kernel's.
pub const AT_WORK: u32 = 4;

/// In which direction a lane's bytes go. The workers of all lanes of a way share a tenant's threads for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the device, and away from GPUs.
    Out,
    /// From the device, and to GPUs.
    In,
}

impl Way {
    /// Both, each at the place of its number.
    pub const ALL: [Self; 2] = [Self::Out, Self::In];
}

/// What a request waits in, by where its bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// To the device, of which there is one, and away from GPUs.
    Out,
    /// From the device to host memory.
    Host,
    /// To GPUs that have no lane of their own, as all of those are other GPUs'.
    Rest,
    /// To a GPU, as long as something waits to go there: the first lane of this kind, of eight.
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
    /// How many there are.
    pub const COUNT: usize = 11;

    /// All of them, each at the place of its number.
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

    /// How many GPUs can have a lane of their own at the same time: as many as are in most machines that have several.
    pub(super) const OWN: usize = 8;

    /// The lanes that are GPUs' own, as many as `own` allows.
    pub(super) fn of_gpus(own: usize) -> impl Iterator<Item = Self> {
        let of_all = Self::ALL.len() - Self::OWN;
        Self::ALL.into_iter().skip(of_all).take(own)
    }

    /// In which direction its bytes go.
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
    /// Those of which `is_in` says so.
    pub(super) fn of(is_in: impl Fn(Lane) -> bool) -> Self {
        let bits = Lane::ALL.into_iter().filter(|lane| is_in(*lane));
        Self(bits.fold(0, |set, lane| set | (1 << lane as u16)))
    }

    /// Each of them, once.
    pub fn iter(self) -> impl Iterator<Item = Lane> {
        let is_in = move |lane: &Lane| self.0 & (1 << *lane as u16) != 0;
        Lane::ALL.into_iter().filter(is_in)
    }
}
