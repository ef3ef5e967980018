// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What every trace must obey, whether read from a file or built in memory.

use std::fmt;

use crate::Error;
use crate::Kind;
use crate::TensorId;
use crate::Trace;

/// Sizes and times are kept below this, so that their sums fit in 64 bits.
const LIMIT: u64 = 1 << 53;

impl Trace {
    /// Checks the rules of the format.
    ///
    /// # Errors
    /// The first of the things wrong for which `docs/simulator-formats.md` says that a trace is refused,
    /// or a kernel without a name.
    pub fn validate(&self) -> Result<(), Error> {
        let mut total = 0u64;
        for (i, t) in self.tensors.iter().enumerate() {
            let object = || self.tensor_object(TensorId(i as u32));
            let fail = |what: &str| Err(Error::new(t.line, object(), what));
            if t.bytes == 0 {
                return fail("its size is 0");
            }
            total = total.saturating_add(t.bytes);
            if total > LIMIT {
                return fail("sizes up to here add up to more than 2^53 bytes");
            }
        }
        if self.kernels.is_empty() {
            return Err(Error::new(0, "", "the trace has no kernels"));
        }
        self.validate_lists()?;
        self.validate_order()
    }

    fn validate_lists(&self) -> Result<(), Error> {
        // The kernel and list in which a tensor was seen last.
        let mut seen = vec![(usize::MAX, 0u8); self.tensors.len()];
        let mut time = 0u64;
        for (i, k) in self.kernels.iter().enumerate() {
            let object = || format!("kernel {i} ({})", k.name);
            let fail = |what: String| Err(Error::new(k.line, object(), what));
            time = time.saturating_add(k.duration_ns);
            if time > LIMIT {
                return fail("durations up to here add up to more than 2^53 ns".into());
            }
            if k.name.is_empty() {
                return fail("it has no name".into());
            }
            for (n, ids, what) in [
                (0, &k.reads, "read"),
                (1, &k.writes, "written"),
                (2, &k.workspace, "scratch"),
            ] {
                for &id in ids {
                    let Some(slot) = seen.get_mut(id.index()) else {
                        return fail(format!("tensor {} ({what}) does not exist", id.0));
                    };
                    if *slot == (i, n) {
                        return fail(format!("tensor {} is {what} twice", id.0));
                    }
                    if n == 2 && slot.0 == i {
                        return fail(format!(
                            "tensor {} is scratch and also read or written",
                            id.0
                        ));
                    }
                    *slot = (i, n);
                }
            }
        }
        Ok(())
    }

    fn validate_order(&self) -> Result<(), Error> {
        let there = self.tensors.iter().map(|t| t.kind.exists_at_start());
        let mut written: Vec<bool> = there.collect();
        for (i, k) in self.kernels.iter().enumerate() {
            for &id in &k.reads {
                if written[id.index()] {
                    continue;
                }
                let mut later = self.kernels.iter().enumerate().skip(i);
                let writer = later.find(|(_, l)| l.writes.contains(&id));
                let object = self.tensor_object(id);
                let what = match writer {
                    Some((w, l)) => format!(
                        "it reads {object}, which is first written by kernel {w} ({}){}: the order has a cycle",
                        l.name,
                        at_line(l.line)
                    ),
                    None => format!(
                        "it reads {object}, which no kernel writes; a tensor that exists before the step is a weight, optimizer state or input"
                    ),
                };
                let kernel = format!("kernel {i} ({})", k.name);
                return Err(Error::new(k.line, kernel, what));
            }
            for &id in &k.writes {
                written[id.index()] = true;
            }
        }
        Ok(())
    }

    /// Checks that each kernel's working set fits in `gpu_bytes`.
    ///
    /// # Errors
    /// The first kernel that does not, with its line and sizes.
    pub fn check_fits(&self, gpu_bytes: u64) -> Result<(), KernelTooLarge> {
        for (i, k) in self.kernels.iter().enumerate() {
            let needs = self.working_set(k);
            if needs > gpu_bytes {
                let largest = k.uses().max_by_key(|&id| self.tensor(id).bytes);
                return Err(KernelTooLarge {
                    line: k.line,
                    kernel: format!("kernel {i} ({})", k.name),
                    largest: largest.map_or_else(String::new, |id| self.tensor_object(id)),
                    needs,
                    gpu_bytes,
                });
            }
        }
        Ok(())
    }

    /// The tensor in messages: `tensor 7 (conv1.weight)`.
    pub fn tensor_object(&self, id: TensorId) -> String {
        match self.tensors.get(id.index()) {
            Some(t) if !t.name.is_empty() => format!("tensor {} ({})", id.0, t.name),
            _ => format!("tensor {}", id.0),
        }
    }

    /// The first and the last kernel that uses each tensor; `None` for a tensor
    /// that none uses.
    pub fn lifetimes(&self) -> Vec<Option<(usize, usize)>> {
        let mut lives = vec![None; self.tensors.len()];
        for (i, k) in self.kernels.iter().enumerate() {
            for id in k.uses() {
                let life = &mut lives[id.index()];
                *life = Some(life.map_or((i, i), |(first, _)| (first, i)));
            }
        }
        lives
    }

    /// Bytes of all tensors of `kind`.
    pub fn bytes_of(&self, kind: Kind) -> u64 {
        let tensors = self.tensors.iter().filter(|t| t.kind == kind);
        tensors.map(|t| t.bytes).sum()
    }
}

fn at_line(line: u32) -> String {
    if line > 0 {
        format!(" in line {line}")
    } else {
        String::new()
    }
}

/// A kernel whose tensors do not fit in the GPU together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTooLarge {
    /// The kernel's line; 0 if the trace was not read from a file.
    pub line: u32,
    /// The kernel in messages: `kernel 12 (conv1)`.
    pub kernel: String,
    /// The largest tensor it uses.
    pub largest: String,
    /// Bytes it needs at once.
    pub needs: u64,
    /// Bytes the GPU has.
    pub gpu_bytes: u64,
}

impl fmt::Display for KernelTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |b: u64| b as f64 / (1u64 << 30) as f64;
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(
            f,
            "{} needs {:.2} GiB at once and the GPU has {:.2} GiB; its largest is {}",
            self.kernel,
            gib(self.needs),
            gib(self.gpu_bytes),
            self.largest
        )
    }
}

impl std::error::Error for KernelTooLarge {}
