// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Lists whose links lie in the records that are in them, wherever those are: adding and taking out
//! allocates nothing and takes the same time however long the list is, so both may be done under a
//! spinlock.
//!
//! A record is named by a handle, behind which whoever has the records finds its links.

/// Where a record stands in a list; by default in none.
#[derive(Clone, Copy, Debug)]
pub struct Links<H> {
    next: Option<H>,
    before: Option<H>,
    is_linked: bool,
}

impl<H> Default for Links<H> {
    fn default() -> Self {
        Self {
            next: None,
            before: None,
            is_linked: false,
        }
    }
}

impl<H: Copy> Links<H> {
    /// Whether the record is in a list.
    pub fn is_linked(&self) -> bool {
        self.is_linked
    }

    /// The record behind this one.
    pub fn next(&self) -> Option<H> {
        self.next
    }
}

/// Finds the links that a record has for one list. A record is in one list at a time by them.
pub type Finds<R, H> = for<'a> fn(&'a mut R, H) -> &'a mut Links<H>;

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub struct List<H> {
    first: Option<H>,
    last: Option<H>,
}

impl<H> Default for List<H> {
    fn default() -> Self {
        Self {
            first: None,
            last: None,
        }
    }
}

impl<H: Copy> List<H> {
    /// The record that has been in the list longest.
    pub fn first(&self) -> Option<H> {
        self.first
    }

    /// Adds `of` at the end, unless it is in a list.
    pub fn push<R>(&mut self, of: H, records: &mut R, links: Finds<R, H>) {
        if links(records, of).is_linked {
            return;
        }
        *links(records, of) = Links {
            next: None,
            before: self.last,
            is_linked: true,
        };
        match self.last.replace(of) {
            Some(last) => links(records, last).next = Some(of),
            None => self.first = Some(of),
        }
    }

    /// Adds `of` in front of all others, unless it is in a list.
    pub fn push_first<R>(&mut self, of: H, records: &mut R, links: Finds<R, H>) {
        if links(records, of).is_linked {
            return;
        }
        *links(records, of) = Links {
            next: self.first,
            before: None,
            is_linked: true,
        };
        match self.first.replace(of) {
            Some(first) => links(records, first).before = Some(of),
            None => self.last = Some(of),
        }
    }

    /// Takes `of` out, which is in this list or in none. Returns whether it was in it.
    pub fn remove<R>(&mut self, of: H, records: &mut R, links: Finds<R, H>) -> bool {
        let was = core::mem::take(links(records, of));
        if !was.is_linked {
            return false;
        }
        match was.before {
            Some(before) => links(records, before).next = was.next,
            None => self.first = was.next,
        }
        match was.next {
            Some(next) => links(records, next).before = was.before,
            None => self.last = was.before,
        }
        true
    }
}
