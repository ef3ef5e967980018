// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is so in the driver that runs, and not in all of NVIDIA's: facts that the build of
//! vgpu.ko found in the driver's headers (`tests/vgpu/facts.sh`). By them a program knows which
//! form a call has, as no call says so itself.

use std::sync::OnceLock;
use std::{fs, io};

/// Something in which NVIDIA's drivers differ, and on which the form of a call hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Event queues of the second version are a call of their own.
    ToolsV2,
    /// Sizes of pages and chunks have 64 bits.
    WideSizes,
    /// UVM_TEST_VA_RESIDENCY_INFO says whether a mapping is of another node's memory (EGM).
    ResidencyEgm,
    /// There is one kind of access counters, in any number of buffers.
    OneCounterKind,
    /// A channel is unregistered without naming its GPU.
    UnregisterWithoutGpu,
    /// The list of a chunk is what UVM_TEST_VA_BLOCK_DISCARD_CHECK_PMM_STATE says, which counts from 1.
    PmmState,
    /// There is no UVM_TEST_PMM_SYSMEM.
    NoPmmSysmem,
    /// There is no UVM_TEST_PMM_REVERSE_MAP.
    NoPmmReverseMap,
    /// There is no UVM_TEST_PMM_INDIRECT_PEERS.
    NoPmmIndirectPeers,
    /// A test of NVIDIA's that destroys channels waits for the GPU's trackers first.
    SyncsTrackers,
}

impl Fact {
    /// All of them, by the words of `facts.sh`.
    const WORDS: [(&'static str, Self); 10] = [
        ("tools_v2", Self::ToolsV2),
        ("wide_sizes", Self::WideSizes),
        ("residency_egm", Self::ResidencyEgm),
        ("one_counter_kind", Self::OneCounterKind),
        ("unregister_without_gpu", Self::UnregisterWithoutGpu),
        ("pmm_state", Self::PmmState),
        ("no_pmm_sysmem", Self::NoPmmSysmem),
        ("no_pmm_reverse_map", Self::NoPmmReverseMap),
        ("no_pmm_indirect_peers", Self::NoPmmIndirectPeers),
        ("syncs_trackers", Self::SyncsTrackers),
    ];
}

/// The facts of one driver. Without any it is as 550.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts(u32);

impl Facts {
    /// From the words of `facts.sh`, with anything between them. Others are vgpu.ko's own.
    pub fn from_words(words: &str) -> Self {
        let bits = words
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter_map(|word| Fact::WORDS.iter().find(|(name, _)| *name == word))
            .map(|(_, fact)| 1 << *fact as u32);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Of the driver that is loaded. A vgpu.ko that does not say is one of 550.
    pub fn loaded() -> Self {
        static LOADED: OnceLock<Facts> = OnceLock::new();
        *LOADED.get_or_init(
            || match fs::read_to_string("/sys/module/vgpu/parameters/facts") {
                Ok(words) => Self::from_words(&words),
                Err(e) => {
                    assert_eq!(e.kind(), io::ErrorKind::NotFound, "vgpu's facts: {e}");
                    Self::default()
                }
            },
        )
    }

    /// Does the driver have all of `facts`?
    pub(crate) fn have(self, facts: &[Fact]) -> bool {
        facts.iter().all(|fact| self.has(*fact))
    }

    /// Does the driver have `fact`?
    pub fn has(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u32) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_facts() {
        let facts = Facts::from_words("runlist_base,tools_v2,no_pmm_sysmem\n");
        assert!(facts.has(Fact::ToolsV2) && facts.has(Fact::NoPmmSysmem));
        assert!(!facts.has(Fact::WideSizes) && !facts.has(Fact::NoPmmReverseMap));
        assert_eq!(Facts::from_words(""), Facts::default());
        for (word, fact) in Fact::WORDS {
            assert_eq!(Facts::from_words(word), Facts(1 << fact as u32));
        }
    }
}
