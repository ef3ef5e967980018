// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A piece of memory and what should be in it.

use vgpu_client::{Buffer, Error, NvStatus, Outcome, Process, Result, PAGE};

use super::ever::Ever;

/// Words of a page.
pub const PAGE_WORDS: usize = (PAGE / 8) as usize;

/// A buffer with its model.
#[derive(Debug)]
pub struct Area {
    /// The memory that has this model.
    pub buffer: Buffer<u64>,
    /// What each word should be.
    pub model: Vec<u64>,
    /// What each word ever held, but for 0.
    pub(super) ever: Ever,
    /// Tells areas apart that followed each other in the same place of the list.
    pub id: usize,
}

/// Words that an operation touches: `count` of them, `step` words apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first of them, by its number in the area.
    pub first: usize,
    /// How many, at least one.
    pub count: usize,
    /// How far from one to the next, in words.
    pub step: usize,
}

impl Span {
    /// Their numbers in the area.
    pub fn words(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |k| self.first + k * self.step)
    }

    /// One past the last word.
    pub fn end(self) -> usize {
        self.first + (self.count - 1) * self.step + 1
    }

    /// Does it touch a page?
    pub(super) fn touches(self, page: usize) -> bool {
        let (from, to) = (page * PAGE_WORDS, (page + 1) * PAGE_WORDS);
        self.first < to && self.end() > from
    }
}

/// A word that is not what it should be, or a call that failed.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The area's id, and the page in it, where they are known.
    pub place: Option<(usize, usize)>,
    /// The wrong word, where there is one.
    pub seen: Option<u64>,
    /// It may be nothing but a lack of memory: UVM had none for a call, or for the fault of a kernel, which is fatal then.
    pub for_lack_of_memory: bool,
    /// What is wrong, for people to read.
    pub what: String,
}

impl Wrong {
    /// One of which no more is known.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            place: None,
            seen: None,
            for_lack_of_memory: false,
            what: what.into(),
        }
    }
}

impl From<vgpu_client::Error> for Wrong {
    fn from(error: vgpu_client::Error) -> Self {
        let kernel_faulted =
            matches!(&error, Error::Kernel(report) if report.outcome == Outcome::Faulted);
        Self {
            for_lack_of_memory: kernel_faulted
                || error.status() == Some(NvStatus::NO_MEMORY)
                || error.errno() == Some(libc::ENOMEM),
            ..Self::new(error.to_string())
        }
    }
}

impl Area {
    pub(super) fn new(process: &Process, words: usize, managed: bool, id: usize) -> Result<Self> {
        let buffer = match managed {
            true => Buffer::managed(process, words)?,
            false => Buffer::ordinary(words)?,
        };
        Ok(Self {
            buffer,
            model: vec![0; words],
            // Ordinary memory is never discarded.
            ever: Ever::new(if managed { words } else { 1 }),
            id,
        })
    }

    /// Compares with the model.
    ///
    /// # Errors
    ///
    /// The first word that differs.
    pub fn check(&self, span: Span) -> std::result::Result<(), Wrong> {
        for i in span.words() {
            let (seen, expected) = (self.buffer.get(i), self.model[i]);
            if seen != expected {
                let what = format!("the CPU saw {seen:#x} in word {i}, not {expected:#x}");
                return Err(self.wrong(i, Some(seen), what));
            }
        }
        Ok(())
    }

    /// What is wrong with a word, which was `seen` there.
    pub fn wrong(&self, word: usize, seen: Option<u64>, what: String) -> Wrong {
        Wrong {
            place: Some((self.id, word / PAGE_WORDS)),
            seen,
            ..Wrong::new(what)
        }
    }

    /// What the pattern makes of the model.
    pub fn apply(&mut self, span: Span, change: impl Fn(usize, u64) -> u64) {
        for (k, i) in span.words().enumerate() {
            self.model[i] = change(k, self.model[i]);
            if self.buffer.is_managed() {
                self.ever.add(i, self.model[i]);
            }
        }
    }

    /// All elements of the area, in their order.
    pub fn all(&self) -> Span {
        Span {
            first: 0,
            count: self.model.len(),
            step: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_knows_its_words_and_pages() {
        let span = Span {
            first: 510,
            count: 3,
            step: 4,
        };
        assert_eq!(span.words().collect::<Vec<_>>(), [510, 514, 518]);
        assert_eq!(span.end(), 519);
        assert_eq!(
            [0, 1, 2].map(|page| span.touches(page)),
            [true, true, false]
        );
    }

    #[test]
    fn a_wrong_word_is_found() -> Result<()> {
        let mut area = Area {
            buffer: Buffer::ordinary(1024)?,
            model: vec![0; 1024],
            ever: Ever::new(1),
            id: 3,
        };
        let span = Span {
            first: 600,
            count: 4,
            step: 2,
        };
        area.apply(span, |k, old| old + k as u64 + 1);
        let wrong = area.check(area.all()).unwrap_err();
        assert_eq!(wrong.place, Some((3, 1)));
        span.words()
            .enumerate()
            .for_each(|(k, i)| area.buffer.set(i, k as u64 + 1));
        assert!(area.check(area.all()).is_ok());
        Ok(())
    }
}
