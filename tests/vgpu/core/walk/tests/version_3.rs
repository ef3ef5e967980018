// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Version 3. The entries with many nines and Bs are those that NVIDIA's driver has to make in
//! its own test of page tables (UVM_TEST_PAGE_TREE): what it writes is read as it was meant.

use super::super::v3::V3;
use super::*;

fn table(entry: u64) -> Result<Loc, Miss> {
    V3::small(entry)
}

fn page(entry: u64) -> Result<Page, Miss> {
    assert_eq!(entry & 1, 1, "{entry:#x} is not valid");
    V3::page(entry, 4096)
}

#[test]
fn nvidias_directories() {
    let (sys, vid) = (0x9_9999_9999_9000, 0xbb_bbbb_b000);
    for (entry, to) in [
        (0x9_9999_9999_900c, Loc::sysmem(sys)),
        (0xbb_bbbb_b00a, Loc::vidmem(vid)),
        // Where the CPU's tables are not to be asked.
        (0x9_9999_9999_901c, Loc::sysmem(sys)),
        (0xbb_bbbb_b01a, Loc::vidmem(vid)),
    ] {
        assert_eq!(table(entry), Ok(to), "{entry:#x}");
        for level in 1..=4 {
            let way = V3::follow(level, entry);
            assert!(matches!(way, Ok(Way::Table(at)) if at == to), "{entry:#x}");
        }
    }
    for (entry, to) in [
        (0x9_9999_9999_990c, Loc::sysmem(0x9_9999_9999_9900)),
        (0xbb_bbbb_bb0a, Loc::vidmem(0xbb_bbbb_bb00)),
        (0x9_9999_9999_991c, Loc::sysmem(0x9_9999_9999_9900)),
        (0xbb_bbbb_bb1a, Loc::vidmem(0xbb_bbbb_bb00)),
    ] {
        assert_eq!(V3::big(entry), Ok(Some(to)), "{entry:#x}");
    }
    // Cleared ones, whatever they say of the CPU's tables.
    for entry in [0, 0x10] {
        assert_eq!(table(entry), Err(PDE_FAULT));
        assert_eq!(V3::big(entry), Ok(None));
    }
}

#[test]
fn nvidias_pages() {
    let (sys, vid) = (Loc::sysmem(0x9_9999_9999_9000), Loc::vidmem(0xbb_bbbb_b000));
    let peer = Loc::peer(PeerId::of(1), 0xbb_bbbb_b000);
    let (all, no_atomics, read_only) = ((true, true), (true, false), (false, false));
    for (entry, base, (writable, atomic)) in [
        // Not cached, and not counted; counted as well; and vidmem, cached too.
        (0x9_9999_9999_968d, sys, all),
        (0x9_9999_9999_960d, sys, all),
        (0x9_9999_9999_964d, sys, no_atomics),
        (0x9_9999_9999_966d, sys, read_only),
        (0xbb_bbbb_b661, vid, read_only),
        (0xbb_bbbb_b669, vid, read_only),
        (0x2000_00bb_bbbb_b66b, peer, read_only),
    ] {
        let want = Page {
            base,
            bytes: 4096,
            writable,
            atomic,
        };
        assert_eq!(page(entry), Ok(want), "{entry:#x}");
    }
    // Of what is not the GPU's own, what would be cached: that test makes some. What is not coherent, and what users have no right to.
    for entry in [
        0x9_9999_9999_9685,
        0x9_9999_9999_9605,
        0x2000_00bb_bbbb_b663,
        0x9_9999_9999_960f,
        0x9_9999_9999_961d,
        0xbb_bbbb_b671,
    ] {
        assert_eq!(page(entry), Err(Miss::NotEmulated(entry)), "{entry:#x}");
    }
    // A peer behind a switch; the page by which SMs send messages; and a kind for textures.
    for entry in [0x2000_0100_bbbb_b66b, 0xf09, 0x9_9999_9999_920d] {
        assert_eq!(page(entry), Err(Miss::NotEmulated(entry)));
    }
    // Vidmem has 40 bits of addresses, and system memory 52.
    for entry in [0x100_0000_0601, 0x10_0000_0000_060d, 0x2000_0000_0000_060d] {
        assert_eq!(page(entry), Err(Miss::NotEmulated(entry)));
    }
    // Unmapped pages: sparse, nowhere, one of 64 KiB, and one of another size.
    for (entry, says) in [
        (0x8, Invalid::Other),
        (0x10, Invalid::Other),
        (0x18, Invalid::NoSmallPages),
        (0, Invalid::Nothing),
        // No number of an invalid entry, but the valid bit is missing of a page that may not be written.
        (0x664, Invalid::Other),
    ] {
        assert_eq!(V3::invalid(entry), says, "{entry:#x}");
    }
}

/// What NVIDIA's driver poisons freed tables with leads to no memory: the page is not for users.
#[test]
fn nvidias_poison() {
    let poisoned = 0x2b_ad00_0000 | 0x1f << 3 | 6 << 8 | 1;
    assert_eq!(page(poisoned), Err(Miss::NotEmulated(poisoned)));
}

#[test]
fn sparse_and_unknown_directories_are_not_emulated() {
    let unknown = [0x8, 0x18, 4 << 3, 6 << 3, 4 << 3 | 1 << 1, 5 << 3 | 2 << 1];
    // Cached tables, and those in memory that is not coherent.
    let others = [1 << 1, 2 << 1, 2 << 3 | 1 << 1, 2 << 3 | 2 << 1, 0xe, 0x1e];
    for entry in unknown.into_iter().chain(others) {
        assert_eq!(table(entry), Err(Miss::NotEmulated(entry)), "{entry:#x}");
        assert_eq!(V3::big(entry), Err(Miss::NotEmulated(entry)), "{entry:#x}");
    }
}

#[test]
fn pages_of_512_mib() {
    let va = (1 << 56) | 0x7fff_e000_0000;
    let to = Loc::sysmem(0x12_4000_0000);
    let (m, mut t, pdb) = tables(Mmu::V3, false);
    t.map(&m, va, Size::Giant, to, READ_ONLY);
    let want = Page {
        base: to,
        bytes: 512 << 20,
        writable: false,
        atomic: true,
    };
    for at in [va, va + (512 << 20) - 1] {
        assert_eq!(walk(&m, Mmu::V3, pdb, at), Ok(want));
    }
    assert_eq!(walk(&m, Mmu::V3, pdb, va - 1), Err(PDE_FAULT));
    // An address within the page is the page's.
    t.map(&m, va, Size::Giant, to.plus(0x123_4000), READ_ONLY);
    assert_eq!(walk(&m, Mmu::V3, pdb, va), Ok(want));
    // A page further up is not Hopper's.
    let (m, _, pdb) = tables(Mmu::V3, false);
    let entry = 6 << 8 | 1;
    m.set(pdb.loc(), entry);
    assert_eq!(walk(&m, Mmu::V3, pdb, 0), Err(Miss::NotEmulated(entry)));
}

/// Two addresses that differ by one bit of each level have tables and pages of their own.
#[test]
fn each_bit_of_an_address_counts() {
    let (m, mut t, pdb) = tables(Mmu::V3, true);
    let page = |i: u32| Loc::vidmem(u64::from(i) << 12);
    for bit in 12..57 {
        t.map(&m, 1 << bit, Size::Small, page(bit), 0);
    }
    for bit in 12..57 {
        let found = walk(&m, Mmu::V3, pdb, 1 << bit).map(|p| p.base);
        assert_eq!(found, Ok(page(bit)), "bit {bit}");
    }
}
