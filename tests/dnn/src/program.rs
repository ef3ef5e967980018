// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A training step as a list of launches on one buffer.
//!
//! The zoo gives kernels and tensors; sizes are scaled so that the step needs a stated
//! number of bytes at its peak. Tensors get places as a caching allocator gives them:
//! what lives through the step first, the rest first-fit from first to last use, so that
//! each iteration has the same addresses.

use anyhow::{ensure, Context, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use uvmsim_trace::{Kind, Trace};
use vgpu_client::PAGE;

/// Pages of a block of 2 MiB.
pub const BLOCK_PAGES: u64 = vgpu_client::BLOCK / PAGE;

/// A tensor: pages of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The first page of the buffer that is the tensor's.
    pub first: u64,
    /// How many pages, from there on.
    pub pages: u64,
}

/// A launch of a kernel: which tensors it uses.
#[derive(Debug)]
pub struct Launch {
    /// The same for the same kernel with the same arguments.
    pub id: u64,
    /// Tensors read, by number.
    pub reads: Vec<usize>,
    /// Tensors written, scratch among them.
    pub writes: Vec<usize>,
    /// How long it computes, scaled as the bytes are.
    pub nanoseconds: u64,
    /// Blocks of 2 MiB in which nothing lived before it.
    pub wakes: Vec<u64>,
    /// Blocks in which nothing lives after it.
    pub dies: Vec<u64>,
}

/// A step of training, which repeats.
#[derive(Debug)]
pub struct Program {
    /// Where each tensor lies, by its number.
    pub places: Vec<Place>,
    /// Tensors that the host fills before each step.
    pub inputs: Vec<usize>,
    /// Tensors that live from one step to the next.
    pub persistent: Vec<usize>,
    /// The launches of a step, in order.
    pub launches: Vec<Launch>,
    /// Pages of the buffer.
    pub pages: u64,
}

impl Program {
    /// The step that `trace` says, scaled so that it takes about `bytes`.
    pub fn new(trace: &Trace, bytes: u64) -> Result<Self> {
        let total: u64 = trace.tensors.iter().map(|t| t.bytes).sum();
        ensure!(total > 0, "the step has no tensors");
        // Small tensors take a page, however small the scale.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if place(trace, middle).1 * PAGE > bytes {
                high = middle;
            } else {
                low = middle;
            }
        }
        let (places, pages) = place(trace, low);
        ensure!(
            pages * PAGE > bytes / 2,
            "its tensors are too many for {bytes} bytes"
        );
        let of = |kinds: &[Kind]| {
            let is = |i: &usize| kinds.contains(&trace.tensors[*i].kind);
            (0..trace.tensors.len()).filter(is).collect::<Vec<_>>()
        };
        let launches = trace
            .kernels
            .iter()
            .map(|k| {
                let numbers = |ids: &[uvmsim_trace::TensorId]| -> Vec<usize> {
                    ids.iter().map(|t| t.index()).collect()
                };
                let mut hash = DefaultHasher::new();
                k.name.hash(&mut hash);
                k.uses()
                    .for_each(|t| places[t.index()].first.hash(&mut hash));
                Launch {
                    id: hash.finish() | 1,
                    reads: numbers(&k.reads),
                    writes: [numbers(&k.writes), numbers(&k.workspace)].concat(),
                    nanoseconds: (k.duration_ns as f64 * low) as u64,
                    wakes: Vec::new(),
                    dies: Vec::new(),
                }
            })
            .collect();
        let mut program = Self {
            places,
            inputs: of(&[Kind::Input]),
            persistent: of(&[Kind::Weight, Kind::Optimizer]),
            launches,
            pages,
        };
        program.find_dead_blocks();
        Ok(program)
    }

    /// Fills in what wakes and dies with each kernel.
    fn find_dead_blocks(&mut self) {
        let blocks = self.pages.div_ceil(BLOCK_PAGES) as usize;
        let span = |p: Place| {
            let end = (p.first + p.pages).div_ceil(BLOCK_PAGES);
            (p.first / BLOCK_PAGES) as usize..end as usize
        };
        let mut uses = vec![Option::<(usize, usize)>::None; self.places.len()];
        for (n, l) in self.launches.iter().enumerate() {
            for &t in l.reads.iter().chain(&l.writes) {
                let first = uses[t].map_or(n, |(first, _)| first);
                uses[t] = Some((first, n));
            }
        }
        // Tensors that live in each block, before and after each kernel.
        let mut living = vec![0u32; blocks];
        for &t in self.inputs.iter().chain(&self.persistent) {
            uses[t] = None;
            span(self.places[t]).for_each(|b| living[b] += 1);
        }
        let mut begins = vec![Vec::new(); self.launches.len()];
        let mut ends = begins.clone();
        for (t, use_) in uses.iter().enumerate() {
            if let Some((first, last)) = *use_ {
                begins[first].push(t);
                ends[last].push(t);
            }
        }
        for (n, launch) in self.launches.iter_mut().enumerate() {
            for b in begins[n].iter().flat_map(|&t| span(self.places[t])) {
                if living[b] == 0 {
                    launch.wakes.push(b as u64);
                }
                living[b] += 1;
            }
            for b in ends[n].iter().flat_map(|&t| span(self.places[t])) {
                living[b] -= 1;
                if living[b] == 0 {
                    launch.dies.push(b as u64);
                }
            }
        }
    }

    /// Kernels in an order that no one can predict, of which each uses two blocks of its own:
    /// as many launches as there are blocks, so that a step uses nearly all of them.
    pub fn adversary(pages: u64) -> Result<Self> {
        let blocks = pages / BLOCK_PAGES;
        ensure!(blocks >= 4, "too small");
        let pairs = blocks / 2;
        let places = (0..2 * pairs)
            .map(|b| Place {
                first: b * BLOCK_PAGES,
                pages: BLOCK_PAGES,
            })
            .collect();
        let launches = (0..2 * pairs)
            .map(|i| Launch {
                id: 1 + i % pairs,
                reads: vec![(2 * (i % pairs)) as usize],
                writes: vec![(2 * (i % pairs) + 1) as usize],
                nanoseconds: 0,
                wakes: Vec::new(),
                dies: Vec::new(),
            })
            .collect();
        Ok(Self {
            places,
            inputs: Vec::new(),
            persistent: (0..2 * pairs as usize).collect(),
            launches,
            pages: 2 * pairs * BLOCK_PAGES,
        })
    }

    /// The number of pages that the largest kernel needs at once.
    pub fn widest(&self) -> u64 {
        let of = |l: &Launch| {
            let mut used: Vec<usize> = l.reads.iter().chain(&l.writes).copied().collect();
            used.sort_unstable();
            used.dedup();
            used.iter().map(|&t| self.places[t].pages).sum()
        };
        self.launches.iter().map(of).max().unwrap_or(0)
    }
}

/// Gives every tensor its pages, and says how many there are.
fn place(trace: &Trace, scale: f64) -> (Vec<Place>, u64) {
    let size = |bytes: u64| ((bytes as f64 * scale) as u64).div_ceil(PAGE).max(1);
    let mut places: Vec<Option<Place>> = vec![None; trace.tensors.len()];
    let mut end = 0;
    for (place, tensor) in places.iter_mut().zip(&trace.tensors) {
        if tensor.kind.is_persistent() || tensor.kind == Kind::Input {
            let pages = size(tensor.bytes);
            *place = Some(Place { first: end, pages });
            end += pages;
        }
    }
    let mut last = vec![None; trace.tensors.len()];
    for (n, kernel) in trace.kernels.iter().enumerate() {
        kernel.uses().for_each(|t| last[t.index()] = Some(n));
    }
    let fixed = end;
    let mut live: Vec<(Place, usize)> = Vec::new();
    for (n, kernel) in trace.kernels.iter().enumerate() {
        for t in kernel.uses() {
            if places[t.index()].is_some() {
                continue;
            }
            let pages = size(trace.tensors[t.index()].bytes);
            // The first gap that is long enough.
            let mut first = fixed;
            for (place, _) in &live {
                if place.first >= first + pages {
                    break;
                }
                first = first.max(place.first + place.pages);
            }
            let place = Place { first, pages };
            end = end.max(first + pages);
            let at = live.partition_point(|(p, _)| p.first < first);
            live.insert(at, (place, t.index()));
            places[t.index()] = Some(place);
        }
        live.retain(|(_, t)| last[*t].is_some_and(|l| l > n));
    }
    let unused = Place { first: 0, pages: 0 };
    (
        places.into_iter().map(|p| p.unwrap_or(unused)).collect(),
        end,
    )
}

/// A network of the zoo, by its name there.
pub fn trace(name: &str, batch: u64) -> Result<Trace> {
    let entry = uvmsim_zoo::find(name).with_context(|| format!("the zoo has no '{name}'"))?;
    let machine = uvmsim_machine::presets::find("v100-32").context("no machine v100-32")?;
    let options = uvmsim_zoo::Options::new(batch, uvmsim_zoo::Precision::Fp32);
    Ok(entry.trace(&options, &machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lives_together_lies_apart() -> Result<()> {
        let trace = trace("bert-base", 16)?;
        let program = Program::new(&trace, 128 << 20)?;
        assert!(program.pages * PAGE <= 128 << 20);
        let mut last = vec![0; program.places.len()];
        let mut first = vec![usize::MAX; program.places.len()];
        for (n, l) in program.launches.iter().enumerate() {
            for &t in l.reads.iter().chain(&l.writes) {
                last[t] = n;
                first[t] = first[t].min(n);
            }
        }
        for &t in program.inputs.iter().chain(&program.persistent) {
            (first[t], last[t]) = (0, usize::MAX);
        }
        for a in 0..program.places.len() {
            for b in 0..a {
                let (p, q) = (program.places[a], program.places[b]);
                let apart = p.first + p.pages <= q.first || q.first + q.pages <= p.first;
                let at_once = first[a] <= last[b] && first[b] <= last[a];
                assert!(apart || !at_once, "{a} and {b}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_block_is_dead_where_no_tensor_lives() -> Result<()> {
        let program = Program::new(&trace("bert-base", 16)?, 128 << 20)?;
        let always = |t: &usize| program.inputs.contains(t) || program.persistent.contains(t);
        let mut dead = std::collections::BTreeSet::new();
        for l in program.launches.iter().chain(&program.launches) {
            l.wakes.iter().for_each(|b| {
                dead.remove(b);
            });
            for t in l.reads.iter().chain(&l.writes) {
                let p = program.places[*t];
                for b in p.first / BLOCK_PAGES..(p.first + p.pages).div_ceil(BLOCK_PAGES) {
                    assert!(!dead.contains(&b), "block {b} is used by tensor {t}");
                }
            }
            dead.extend(l.dies.iter().copied());
        }
        assert!(dead.len() > 4);
        for t in (0..program.places.len()).filter(|t| always(t)) {
            let p = program.places[t];
            assert!(!dead.contains(&(p.first / BLOCK_PAGES)), "tensor {t}");
        }
        Ok(())
    }

    #[test]
    fn ids_tell_arguments_apart() -> Result<()> {
        let program = Program::new(&trace("resnet152", 32)?, 128 << 20)?;
        let mut ids: Vec<_> = program.launches.iter().map(|l| l.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), program.launches.len());
        Ok(())
    }

    #[test]
    fn every_workload_fits() -> Result<()> {
        for (name, batch) in crate::run::WORKLOADS {
            let program = Program::new(&trace(name, batch)?, 96 << 20)?;
            println!(
                "{name}: {} kernels, {} pages, widest {}",
                program.launches.len(),
                program.pages,
                program.widest()
            );
            assert!(program.widest() * PAGE < 48 << 20, "{name}");
        }
        Ok(())
    }
}
