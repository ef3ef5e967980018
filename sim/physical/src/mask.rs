// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What comes along with faulted pages of a va_block.

use uvm_policy::mask::PageMask;
use uvm_policy::mask::Region;
use uvm_policy::mask::PAGES;

/// The tree prefetcher: what to bring in with `faulted`, given what is
/// `resident`.
///
/// As upstream's `uvm_perf_prefetch`: faulted pages grow to 64 KiB regions; then
/// each takes in the largest power-of-two region around it in which more than
/// `threshold` percent of the pages are resident, or faulted, or grown.
pub fn tree_prefetch(resident: PageMask, faulted: PageMask, threshold: u64) -> PageMask {
    const REGION: u16 = 16;
    let region = |first, size| PageMask::from(Region::new(first, first + size));
    let mut wanted = faulted;
    for first in (0..PAGES).step_by(REGION.into()) {
        let region = region(first, REGION);
        if region.intersects(&faulted) {
            wanted |= region;
        }
    }
    let occupied = wanted | resident;
    let mut out = wanted;
    let mut size = PAGES;
    while size > REGION {
        for first in (0..PAGES).step_by(size.into()) {
            let region = region(first, size);
            if !region.intersects(&faulted) || region.is_subset(&out) {
                continue;
            }
            if u64::from((occupied & region).count()) * 100 > u64::from(size) * threshold {
                out |= region;
            }
        }
        size /= 2;
    }
    out - resident
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(first: u16, outer: u16) -> PageMask {
        Region::new(first, outer).into()
    }

    #[test]
    fn a_single_fault_brings_64_kib() {
        let got = tree_prefetch(PageMask::EMPTY, pages(20, 21), 51);
        assert_eq!(got, pages(16, 32));
    }

    #[test]
    fn a_half_full_block_fills_up() {
        let got = tree_prefetch(pages(0, 256), pages(300, 316), 51);
        assert_eq!(got, pages(256, 512));
        // At exactly half, with nothing more, only the fault's half grows.
        let got = tree_prefetch(PageMask::EMPTY, pages(0, 256), 51);
        assert_eq!(got, pages(0, 256));
    }
}
