// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What each process does right now, in memory that all of them share: its heartbeat, which stays when it is killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use uvm_suite::file_in_memory;

use crate::deeds::{CHECKING, COUNT};

/// Words of a record in front of its counts.
const HEAD: usize = 4;
/// Words of a record.
const WORDS: usize = HEAD + 3 * COUNT;

/// What one process does, and has done in all its lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Which process it is to Linux.
    pub(crate) pid: u32,
    /// Which of those that follow each other under this number.
    pub(crate) life: u64,
    /// How many deeds it had begun in this life.
    pub(crate) index: u64,
    /// What it does, by its number among all deeds; nothing, while it does none.
    pub(crate) deed: Option<usize>,
    /// How often each was done.
    pub(crate) done: [u64; COUNT],
    /// The longest that each has taken, in milliseconds.
    pub(crate) longest_ms: [u64; COUNT],
    /// The time that each has taken, of all the times it was done together, in microseconds.
    pub(crate) all_us: [u64; COUNT],
}

impl Default for Record {
    fn default() -> Self {
        Self {
            pid: 0,
            life: 0,
            index: 0,
            deed: None,
            done: [0; COUNT],
            longest_ms: [0; COUNT],
            all_us: [0; COUNT],
        }
    }
}

impl Record {
    fn head(&self) -> [u64; HEAD] {
        let deed = self.deed.map_or(0, |deed| deed as u64 + 1);
        [u64::from(self.pid), self.life, self.index, deed]
    }

    /// Counts a deed that is done, and how long it took.
    pub(crate) fn did(&mut self, deed: usize, took: Duration) {
        self.done[deed] += 1;
        self.longest_ms[deed] = self.longest_ms[deed].max(took.as_millis() as u64);
        self.all_us[deed] += took.as_micros() as u64;
    }
}

/// A record for each process: the workers, and behind them their parent.
#[derive(Debug)]
pub(crate) struct Board(File);

impl Board {
    /// An empty one with so many records.
    pub(crate) fn new(records: usize) -> io::Result<Self> {
        let board = Self(file_in_memory(c"board")?);
        (0..records).try_for_each(|n| board.write(n, &Record::default()))?;
        Ok(board)
    }

    /// The one that lies in this file.
    pub(crate) fn of(file: File) -> Self {
        Self(file)
    }

    /// For another process, which opens it by [`Board::of`].
    pub(crate) fn file(&self) -> io::Result<File> {
        self.0.try_clone()
    }

    /// How often each deed was done by the first so many processes, all together.
    pub(crate) fn sums(&self, processes: usize) -> io::Result<[u64; COUNT]> {
        let mut sums = [0; COUNT];
        for n in 0..processes {
            let done = self.read(n)?.done;
            sums.iter_mut().zip(done).for_each(|(sum, n)| *sum += n);
        }
        Ok(sums)
    }

    /// How many operations the first so many workers have done, all together.
    pub(crate) fn operations(&self, workers: usize) -> io::Result<u64> {
        Ok(self.sums(workers)?[..CHECKING].iter().sum())
    }

    /// Writes record `n`, in one piece to who is killed meanwhile.
    pub(crate) fn write(&self, n: usize, record: &Record) -> io::Result<()> {
        let counts = [&record.done, &record.longest_ms, &record.all_us];
        let words = record.head().into_iter();
        let words = words.chain(counts.into_iter().flatten().copied());
        self.write_words(n, words)
    }

    /// The same without its counts, which stay as they are.
    pub(crate) fn write_head(&self, n: usize, record: &Record) -> io::Result<()> {
        self.write_words(n, record.head().into_iter())
    }

    fn write_words(&self, n: usize, words: impl Iterator<Item = u64>) -> io::Result<()> {
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        self.0.write_all_at(&bytes, Self::place(n))
    }

    /// Reads record `n`. Its owner may be in the middle of writing it, so that a part of it may be older.
    pub(crate) fn read(&self, n: usize) -> io::Result<Record> {
        let mut bytes = [0; WORDS * 8];
        self.0.read_exact_at(&mut bytes, Self::place(n))?;
        let mut words = bytes.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_ne_bytes(bytes)
        });
        let mut next = || words.next().unwrap_or_default();
        Ok(Record {
            pid: next() as u32,
            life: next(),
            index: next(),
            deed: (next() as usize).checked_sub(1),
            done: std::array::from_fn(|_| next()),
            longest_ms: std::array::from_fn(|_| next()),
            all_us: std::array::from_fn(|_| next()),
        })
    }

    fn place(n: usize) -> u64 {
        (n * WORDS * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_by_another() -> io::Result<()> {
        let board = Board::new(3)?;
        let mut record = Record {
            pid: 4,
            life: 5,
            index: 6,
            deed: Some(0),
            ..Record::default()
        };
        record.done[COUNT - 1] = 7;
        record.longest_ms[0] = 8;
        record.all_us[COUNT - 1] = 9;
        board.write(1, &record)?;
        let other = Board::of(board.file()?);
        assert_eq!(other.read(1)?, record);
        for n in [0, 2] {
            assert_eq!(other.read(n)?, Record::default());
        }
        Ok(())
    }

    #[test]
    fn counts_stay_when_the_head_is_written() -> io::Result<()> {
        let board = Board::new(1)?;
        let mut record = Record::default();
        record.done[0] = 7;
        board.write(0, &record)?;
        let head = Record {
            pid: 4,
            life: 5,
            index: 6,
            deed: Some(8),
            ..Record::default()
        };
        board.write_head(0, &head)?;
        let both = Record {
            done: record.done,
            ..head
        };
        assert_eq!(board.read(0)?, both);
        Ok(())
    }

    #[test]
    fn operations_are_those_of_workers() -> io::Result<()> {
        let board = Board::new(3)?;
        for n in 0..3 {
            let mut record = Record::default();
            record.done[0] = 1 << n;
            record.done[CHECKING - 1] = 10;
            record.done[CHECKING] = 100;
            record.done[CHECKING + 1] = 1000;
            board.write(n, &record)?;
        }
        assert_eq!((board.operations(1)?, board.operations(2)?), (11, 23));
        Ok(())
    }
}
