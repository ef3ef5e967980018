// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whether a device may be overwritten: it begins with zeros, or with our mark.

/// How many pages at the beginning of the device are checked; nothing else is stored there.
pub const PROBED: u16 = 32;

/// The mark at the beginning of the first page; the rest of the page is zeros.
pub const MARK: &[u8] = b"uvm-rust flash 1: what follows is encrypted with a key that is gone\n\0";

/// Whether a page of the beginning allows attaching; `first`: it is the first one, which may have the mark.
pub fn is_ours(page: &[u8], first: bool) -> bool {
    first && page.starts_with(MARK) || page.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn what_is_not_empty_and_not_marked_is_somebody_elses() {
        let mut page = vec![0; 4096];
        assert!(is_ours(&page, true) && is_ours(&page, false));
        page[4095] = 1;
        assert!(!is_ours(&page, true) && !is_ours(&page, false));
        page[..MARK.len()].copy_from_slice(MARK);
        assert!(is_ours(&page, true) && !is_ours(&page, false));
        page[10] ^= 1;
        assert!(!is_ours(&page, true));
        // The mark ends with a zero, as it was written by the first versions.
        assert_eq!(MARK.len(), 69);
    }
}
