// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Carrying out a plan of uvmsim's (docs/simulator-formats.md): before each
//! kernel of a step, what is to come to the GPU, what is to leave it, and what nobody will
//! read (G10 §4.4).
//!
//! Offsets of a plan are in one range, in which the program has each tensor where the plan
//! says. What moves is queued and not waited for, as advice (see [`Moves`]);
//! what is freed is discarded at once, before the kernel may write there again.
//!
//! The plan of a program that was recorded says besides by which allocations and which
//! launches to know its tensors and kernels ([`Program`]); [`crate::follow`] does.

use uvmsim_plan::What;
pub use uvmsim_plan::{Key, Program};

use crate::{Backend, Error, Mode, Move, Moves, Range, Result, Sys, Tier, Uvm};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `prefetch` and `allocate`: GPU memory, with the contents if there are any.
    Bring,
    /// `evict`: out of the GPU, to the SSD or only to the host.
    Evict {
        /// Whether to the SSD.
        ssd: bool,
    },
    /// `free` and `discard`: the contents are not needed.
    Drop,
    /// `copy`: written out, and kept. The driver keeps no second copy, so that nothing is done.
    Copy,
}

impl From<What> for Ask {
    fn from(what: What) -> Self {
        match what {
            What::Prefetch | What::Allocate => Self::Bring,
            What::Evict(to) => Self::Evict {
                ssd: to == uvmsim_plan::Tier::Ssd,
            },
            What::Copy(_) => Self::Copy,
            What::Free | What::Discard => Self::Drop,
        }
    }
}

/// A request of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is done with this part of the tensor.
    pub ask: Ask,
    /// The tensor's number in the plan.
    pub tensor: u64,
    /// First byte, from the start of the plan's range.
    pub offset: u64,
    /// How many bytes, from `offset` on.
    pub length: u64,
}

/// A plan for a step that repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    span: u64,
    /// By kernel; those of one in the order to make them in.
    requests: Vec<Request>,
    /// Where each kernel's begin, and the end.
    begins: Vec<usize>,
    program: Option<Program>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// It is none, or kernels run again in it: the line and what is wrong.
    pub fn parse(text: &str) -> std::result::Result<Self, uvmsim_plan::Error> {
        let read: uvmsim_plan::Plan = text.parse()?;
        if let Some(again) = read.again.first() {
            let what = "kernels run again in this plan, which only the program itself can do";
            return Err(uvmsim_plan::Error {
                line: again.line,
                what: what.to_owned(),
            });
        }
        let mut asked = read.requests;
        // Stable: those of one kernel stay in order.
        asked.sort_by_key(|r| r.kernel);
        let begins = (0..=read.kernels.value)
            .map(|k| asked.partition_point(|r| r.kernel < k))
            .collect();
        let request = |r: uvmsim_plan::Request| Request {
            ask: Ask::from(r.what),
            tensor: r.tensor,
            offset: r.offset,
            length: r.bytes,
        };
        Ok(Self {
            span: read.span.value,
            requests: asked.into_iter().map(request).collect(),
            begins,
            program: read.program,
        })
    }

    /// How to know the program that this plan was made for; `None`: it was not made of a record.
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// Kernels of the step; at least 1.
    pub fn kernels(&self) -> u64 {
        self.begins.len() as u64 - 1
    }

    /// Kernels of the step before which something is moved.
    pub fn moving(&self) -> u64 {
        let moves = |ask| matches!(ask, Ask::Bring | Ask::Evict { .. });
        let before = (0..self.kernels()).map(|kernel| self.before(kernel));
        let moving = before.filter(|asked| asked.iter().any(|request| moves(request.ask)));
        moving.count() as u64
    }

    /// Bytes of the range that the offsets are in.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// What to ask for before the `n`th kernel that the program starts, from 0: the step
    /// repeats.
    pub fn before(&self, n: u64) -> &[Request] {
        let kernel = (n % self.kernels()) as usize;
        &self.requests[self.begins[kernel]..self.begins[kernel + 1]]
    }
}

impl<S: Sys> Uvm<S> {
    /// Makes the requests before a kernel, in order: moves are queued, and what is dropped
    /// is discarded before this returns, eagerly, so that it needs no prefetch. Calls
    /// nothing of CUDA.
    ///
    /// # Errors
    /// The first error of a discard, after which the rest was done all the same.
    ///
    /// # Safety
    /// `base` is where the plan's range begins, in managed memory that stays. All that the
    /// plan drops before this kernel is not read any more, by nobody, until it is written
    /// again, and no reference to it is live.
    pub unsafe fn carry_out(
        &self,
        requests: &[Request],
        base: u64,
        gpu: [u8; 16],
        moves: &Moves,
    ) -> Result<()> {
        let mut queue = Vec::new();
        let mut result = Ok(());
        for request in requests {
            let range = Range {
                base: base.checked_add(request.offset).ok_or(Error::Invalid)?,
                length: request.length,
            };
            let to = match request.ask {
                Ask::Bring => Tier::Gpu(gpu),
                Ask::Evict { ssd: true } => Tier::Ssd,
                Ask::Evict { ssd: false } => Tier::Host,
                Ask::Copy => continue,
                Ask::Drop => {
                    if matches!(self.backend(), Backend::UvmRust | Backend::Native) {
                        // SAFETY: by our contract; an eager discard needs no prefetch.
                        let done = unsafe { self.discard(range, Mode::Eager) };
                        result = result.and(done);
                    }
                    continue;
                }
            };
            queue.push(Move { range, to });
        }
        if !queue.is_empty() {
            moves.submit(&queue);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const GOOD: &str = "uvmplan 1\n# a comment\nmeta trace a b\nkernels 3\nspan 16384\n\
        at 2 prefetch 7 4096 4096\nat 0 evict 1 0 4096 host\nat 2 evict 1 0 4096 ssd\n\
        at 2 discard 3 8192 8192\nat 0 copy 2 4096 4096 ssd\n";

    #[test]
    fn requests_are_found_by_kernel_in_their_order() {
        let plan = Plan::parse(GOOD).unwrap();
        assert_eq!((plan.kernels(), plan.span()), (3, 16384));
        let asks = |n| plan.before(n).iter().map(|r| r.ask).collect::<Vec<_>>();
        let (host, ssd) = (Ask::Evict { ssd: false }, Ask::Evict { ssd: true });
        assert_eq!(asks(0), [host, Ask::Copy]);
        assert_eq!(asks(1), []);
        assert_eq!(plan.moving(), 2);
        let copies = GOOD.replace("at 0 evict 1 0 4096 host\n", "");
        assert_eq!(Plan::parse(&copies).unwrap().moving(), 1);
        assert_eq!(asks(2), [Ask::Bring, ssd, Ask::Drop]);
        // The step repeats.
        assert_eq!(plan.before(5), plan.before(2));
        assert_eq!(plan.before(u64::MAX), plan.before(0));
        let drop = plan.before(2)[2];
        assert_eq!((drop.offset, drop.length), (8192, 8192));
    }

    #[test]
    fn the_plan_of_a_record_says_how_to_know_the_program() {
        assert_eq!(Plan::parse(GOOD).unwrap().program(), None);
        let text = format!(
            "{GOOD}start 4\nlaunch 0 a\nlaunch 1 b\nlaunch 2 a\n\
             tensor 1 alloc12\ntensor 3 kernel2.1\ntensor 7 other.0\n"
        );
        let plan = Plan::parse(&text).unwrap();
        let program = plan.program().unwrap();
        assert_eq!(program.start, 4);
        assert_eq!(program.names().collect::<Vec<_>>(), ["a", "b", "a"]);
        let keys: Vec<_> = program.keys().collect();
        // The last is of no allocation that could be known again.
        let step = Key::Step { kernel: 2, nth: 1 };
        assert_eq!(keys, [(1, Key::Program(12)), (3, step)]);
        assert_eq!(plan.before(0)[0].tensor, 1);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let said = |text: &str| Plan::parse(text).unwrap_err().to_string();
        assert!(said("uvmplan 1\nkernels 3\nkernels 3\n").starts_with("line 3: a second time"));
        let named = format!("{GOOD}start 4\nlaunch 1 a\n");
        assert!(said(&named).starts_with("line 12: kernel 1 is named where 0 is next"));
        let again = GOOD
            .replace("uvmplan 1", "uvmplan 2")
            .replace("span 16384", "span 16384\nagain 1 0");
        assert!(said(&again).starts_with("line 6: kernels run again"));
    }
}
