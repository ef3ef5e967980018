// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a machine runs: kernels, tensors, and where the tensors lie.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ops::Range;

use uvm_policy::mask::PageMask;
use uvm_policy::mask::Region;
use uvmsim_machine::BLOCK;
use uvmsim_machine::MIB;
use uvmsim_machine::PAGE;
use uvmsim_trace::Kind;
use uvmsim_trace::Phase;
use uvmsim_trace::Trace;

/// A tensor, and which kernels use it.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name in the trace.
    pub name: String,
    /// Its size in bytes, at least 1.
    pub bytes: u64,
    /// What it is for.
    pub kind: Kind,
    /// Whether it outlives the step, or comes from outside it.
    pub lasting: bool,
    /// The kernels that use it, in order, and whether each writes it.
    pub uses: Vec<(u32, bool)>,
}

impl Tensor {
    /// First kernel that uses it.
    pub fn first(&self) -> u32 {
        self.uses.first().map_or(0, |u| u.0)
    }

    /// Last kernel that uses it.
    pub fn last(&self) -> u32 {
        self.uses.last().map_or(0, |u| u.0)
    }
}

/// How a kernel uses a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The number of the tensor.
    pub tensor: u32,
    /// Whether its old contents are read.
    pub read: bool,
    /// Whether it is written, wholly.
    pub write: bool,
}

impl Use {
    fn new(tensor: u32, read: bool, write: bool) -> Self {
        Self {
            tensor,
            read,
            write,
        }
    }

    /// Its old contents are read.
    pub fn read(tensor: u32) -> Self {
        Self::new(tensor, true, false)
    }

    /// It is written, wholly.
    pub fn write(tensor: u32) -> Self {
        Self::new(tensor, false, true)
    }

    /// The kernel reads the tensor and writes it.
    pub fn both(tensor: u32) -> Self {
        Self::new(tensor, true, true)
    }
}

/// A kernel, and what it uses.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name in the trace.
    pub name: String,
    /// Duration in nanoseconds with everything in GPU memory.
    pub ns: u64,
    /// Each tensor it uses, once.
    pub uses: Vec<Use>,
}

impl Kernel {
    /// One of `ns` nanoseconds.
    pub fn new(name: impl Into<String>, ns: u64, uses: impl IntoIterator<Item = Use>) -> Self {
        Self {
            name: name.into(),
            ns,
            uses: uses.into_iter().collect(),
        }
    }
}

/// A training step to run on the machine.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name of the network.
    pub name: String,
    /// All tensors, by their numbers.
    pub tensors: Vec<Tensor>,
    /// All kernels, in their order.
    pub kernels: Vec<Kernel>,
    /// The first kernel of the backward pass: the trace says so; one that says nothing
    /// of phases begins it with the first kernel that writes a gradient.
    pub backward: Option<u32>,
    /// What kernels take of the step that run a second time, in nanoseconds.
    pub again_ns: u64,
    /// The part of the forward pass that each kernel is in, and that checkpointing runs again
    /// as a whole, where the trace says so; empty if it does not.
    pub parts: Vec<Option<u32>>,
}

impl Workload {
    /// A step of `kernels` over tensors given by name, size and kind.
    ///
    /// A use by several roles of one kernel is one use. A tensor lasts if its
    /// kind says so, or if the step reads it before anything wrote it. Tensors
    /// that nothing uses are kept but take no part.
    ///
    /// # Panics
    /// A use names a tensor that is not there.
    pub fn new(name: &str, tensors: Vec<(String, u64, Kind)>, kernels: Vec<Kernel>) -> Self {
        let tensor = |(name, bytes, kind): (String, u64, Kind)| Tensor {
            name,
            bytes: bytes.max(1),
            kind,
            lasting: kind.exists_at_start(),
            uses: Vec::new(),
        };
        let mut tensors: Vec<_> = tensors.into_iter().map(tensor).collect();
        let mut kernels = kernels;
        for (k, kernel) in kernels.iter_mut().enumerate() {
            merge_uses(&mut kernel.uses);
            for u in &kernel.uses {
                let t = &mut tensors[u.tensor as usize];
                t.lasting |= t.uses.is_empty() && u.read;
                t.uses.push((k as u32, u.write));
            }
        }
        let is_gradient = |u: &Use| tensors[u.tensor as usize].kind == Kind::Gradient;
        let grows = |k: &Kernel| k.uses.iter().any(|u| u.write && is_gradient(u));
        let backward = kernels.iter().position(grows).map(|k| k as u32);
        Self {
            name: name.into(),
            tensors,
            kernels,
            backward,
            again_ns: 0,
            parts: Vec::new(),
        }
    }

    /// The step of a trace.
    pub fn from_trace(trace: &Trace) -> Self {
        let tensors = trace.tensors.iter();
        let tensors = tensors.map(|t| (t.name.clone(), t.bytes, t.kind)).collect();
        let kernel = |k: &uvmsim_trace::Kernel| {
            let reads = k.reads.iter().map(|t| Use::read(t.0));
            let written = k.writes.iter().chain(&k.workspace);
            let writes = written.map(|t| Use::write(t.0));
            Kernel::new(&k.name, k.duration_ns, reads.chain(writes))
        };
        let kernels = trace.kernels.iter().map(kernel).collect();
        let mut workload = Self::new(trace.meta("name"), tensors, kernels);
        if trace.kernels.iter().any(|k| k.checkpoint.is_some()) {
            workload.parts = trace.kernels.iter().map(|k| k.checkpoint).collect();
        }
        if trace.kernels.iter().any(|k| k.phase.is_some()) {
            let is_backward = |k: &uvmsim_trace::Kernel| k.phase == Some(Phase::Backward);
            let first = trace.kernels.iter().position(is_backward);
            workload.backward = first.map(|k| k as u32);
        }
        workload
    }

    /// Scales each kernel's duration by a factor from 1 - `share` to 1 + `share`,
    /// at random; the same for the same `seed`.
    pub fn add_noise(&mut self, share: f64, seed: u64) {
        let mut random = Random(seed);
        for k in &mut self.kernels {
            let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
            k.ns = (k.ns as f64 * (1.0 + share * (2.0 * unit - 1.0))) as u64;
        }
    }

    /// Whether kernel `k` uses tensor `t`.
    pub fn uses(&self, k: usize, t: u32) -> bool {
        self.kernels[k].uses.iter().any(|u| u.tensor == t)
    }

    /// The kernel before kernel `k`; before the first, the last of the step before.
    pub fn before(&self, k: usize) -> usize {
        k.checked_sub(1).unwrap_or(self.kernels.len() - 1)
    }

    /// Sum of the kernels' durations, in nanoseconds.
    pub fn ideal_ns(&self) -> u64 {
        self.kernels.iter().map(|k| k.ns).sum()
    }

    /// Bytes that a kernel uses, rounded to pages.
    pub fn working_set(&self, k: usize) -> u64 {
        let uses = self.kernels[k].uses.iter();
        let sizes = uses.map(|u| self.tensors[u.tensor as usize].bytes);
        sizes.map(|bytes| bytes.next_multiple_of(PAGE)).sum()
    }

    /// The most bytes that are alive at once.
    pub fn peak_bytes(&self) -> u64 {
        self.live_bytes().into_iter().max().unwrap_or(0)
    }

    /// Bytes alive while each kernel runs, rounded to pages.
    pub fn live_bytes(&self) -> Vec<u64> {
        self.alive(|t| t.bytes.next_multiple_of(PAGE)).collect()
    }

    /// The sum of the sizes of what is alive while each kernel runs.
    pub(crate) fn alive(&self, size: impl Fn(&Tensor) -> u64) -> impl Iterator<Item = u64> {
        let mut change = vec![0i64; self.kernels.len() + 1];
        for t in self.tensors.iter().filter(|t| !t.uses.is_empty()) {
            let (first, end) = match t.lasting {
                true => (0, self.kernels.len()),
                false => (t.first() as usize, t.last() as usize + 1),
            };
            change[first] += size(t) as i64;
            change[end] -= size(t) as i64;
        }
        change.pop();
        change.into_iter().scan(0, |alive, change| {
            *alive += change;
            Some(*alive as u64)
        })
    }
}

/// Numbers at random, the same for the same seed (SplitMix64: any seed will do, and no crate is needed for it).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The parts of va_blocks that `range` covers, which is of whole pages.
pub(crate) fn blocks_of(range: Range<u64>) -> impl Iterator<Item = (u32, Region)> {
    let Range { start, end } = range;
    (start / BLOCK..end.div_ceil(BLOCK)).map(move |b| {
        let page = |at: u64| (at.saturating_sub(b * BLOCK).min(BLOCK) / PAGE) as u16;
        (b as u32, Region::new(page(start), page(end)))
    })
}

/// The sums of the first, the first two and so on of `changes`.
pub fn running_sums(changes: &[i64]) -> impl Iterator<Item = i64> + '_ {
    changes.iter().scan(0, |sum, change| {
        *sum += change;
        Some(*sum)
    })
}

fn merge_uses(uses: &mut Vec<Use>) {
    let mut merged: Vec<Use> = Vec::with_capacity(uses.len());
    for u in uses.iter() {
        match merged.iter_mut().find(|m| m.tensor == u.tensor) {
            Some(m) => {
                m.read |= u.read;
                m.write |= u.write;
            }
            None => merged.push(*u),
        }
    }
    *uses = merged;
}

/// A kernel's use of some pages of one va_block.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The number of the va_block.
    pub block: u32,
    /// Which of its pages.
    pub region: Region,
    /// Whether old contents are read.
    pub read: bool,
    /// Whether the pages are written.
    pub write: bool,
}

impl Touch {
    /// The pages that are touched.
    pub fn pages(&self) -> PageMask {
        self.region.into()
    }
}

/// Where each tensor lies, and what each kernel touches there.
///
/// Addresses come from an allocator like PyTorch's: best fit with splitting and
/// merging, tensors under 1 MiB in a pool of their own, space taken back when a
/// tensor dies. Without that reuse, pages of the dead would count as footprint
/// that no framework has. Unlike PyTorch's, sizes are rounded to pages, so that
/// no page holds two tensors.
#[derive(Clone, Debug)]
pub struct Layout {
    /// First byte of each tensor.
    pub addresses: Vec<u64>,
    /// Bytes of address space from 0.
    pub span: u64,
    /// For each kernel, its touches in the order in which a streaming kernel
    /// makes them: all tensors at once, each from its first page to its last.
    pub touches: Vec<Vec<Touch>>,
    /// Tensors whose life begins with each kernel.
    pub births: Vec<Vec<u32>>,
    /// Tensors whose life ends with each kernel.
    pub deaths: Vec<Vec<u32>>,
    /// Inputs that each kernel is the last to use: from then on, host memory has
    /// the next step's.
    pub refreshed: Vec<Vec<u32>>,
}

impl Layout {
    /// Lays out the tensors of `w`.
    pub fn new(w: &Workload) -> Self {
        let mut layout = Self::lives(w);
        (layout.addresses, layout.span) = place(w, &layout.births, &layout.deaths);
        layout.touch_all(w);
        layout
    }

    /// The layout of somebody else's allocator: where each tensor begins, in whole pages.
    ///
    /// # Panics
    /// There is not an address for each tensor.
    pub fn at(w: &Workload, addresses: Vec<u64>) -> Self {
        assert_eq!(w.tensors.len(), addresses.len());
        let mut layout = Self::lives(w);
        let ends = addresses.iter().zip(&w.tensors).map(|(a, t)| a + t.bytes);
        layout.span = ends.max().unwrap_or(0).next_multiple_of(BLOCK);
        layout.addresses = addresses;
        layout.touch_all(w);
        layout
    }

    /// When what lives, and nothing of where.
    fn lives(w: &Workload) -> Self {
        let mut births = vec![Vec::new(); w.kernels.len()];
        let mut deaths = vec![Vec::new(); w.kernels.len()];
        let mut refreshed = vec![Vec::new(); w.kernels.len()];
        for (i, t) in w.tensors.iter().enumerate() {
            if !t.lasting && !t.uses.is_empty() {
                births[t.first() as usize].push(i as u32);
                deaths[t.last() as usize].push(i as u32);
            } else if t.kind == Kind::Input && !t.uses.is_empty() {
                refreshed[t.last() as usize].push(i as u32);
            }
        }
        Self {
            addresses: Vec::new(),
            span: 0,
            touches: Vec::new(),
            births,
            deaths,
            refreshed,
        }
    }

    fn touch_all(&mut self, w: &Workload) {
        self.touches = w.kernels.iter().map(|k| self.touches_of(w, k)).collect();
    }

    /// The layout of a step whose tensors are pieces of this one's, each from such an address on.
    pub(crate) fn of_pieces(&self, pieces: &Workload, addresses: Vec<u64>) -> Self {
        Self {
            addresses,
            span: self.span,
            touches: self.touches.clone(),
            ..Self::lives(pieces)
        }
    }

    /// va_blocks in the span.
    pub fn blocks(&self) -> usize {
        self.span.div_ceil(BLOCK) as usize
    }

    /// The parts of va_blocks that tensor `t` covers.
    pub fn parts(&self, w: &Workload, t: u32) -> impl Iterator<Item = (u32, Region)> {
        blocks_of(self.range(w, t))
    }

    /// The bytes of tensor `t`, in whole pages.
    pub fn range(&self, w: &Workload, t: u32) -> Range<u64> {
        let start = self.addresses[t as usize];
        start..start + w.tensors[t as usize].bytes.next_multiple_of(PAGE)
    }

    /// How many va_blocks tensor `t` covers wholly.
    pub fn whole_blocks(&self, w: &Workload, t: u32) -> u64 {
        let whole = |(_, region): &(u32, Region)| *region == Region::WHOLE;
        self.parts(w, t).filter(whole).count() as u64
    }

    fn touches_of(&self, w: &Workload, kernel: &Kernel) -> Vec<Touch> {
        let mut keyed = Vec::new();
        for u in &kernel.uses {
            let parts: Vec<_> = self.parts(w, u.tensor).collect();
            let n = parts.len() as f64;
            for (i, (block, region)) in parts.into_iter().enumerate() {
                let touch = Touch {
                    block,
                    region,
                    read: u.read,
                    write: u.write,
                };
                keyed.push(((i as f64 + 0.5) / n, touch));
            }
        }
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        keyed.into_iter().map(|(_, t)| t).collect()
    }
}

/// Addresses of all tensors, and the span.
fn place(w: &Workload, births: &[Vec<u32>], deaths: &[Vec<u32>]) -> (Vec<u64>, u64) {
    let mut pools = [Pool::default(), Pool::default()];
    let pool = |t: usize| usize::from(w.tensors[t].bytes >= MIB);
    let size = |t: usize| w.tensors[t].bytes.next_multiple_of(PAGE);
    let mut at = vec![0; w.tensors.len()];
    for (i, t) in w.tensors.iter().enumerate() {
        if t.lasting && !t.uses.is_empty() {
            at[i] = pools[pool(i)].take(size(i));
        }
    }
    for (born, dead) in births.iter().zip(deaths) {
        for &t in born {
            at[t as usize] = pools[pool(t as usize)].take(size(t as usize));
        }
        for &t in dead {
            pools[pool(t as usize)].give(at[t as usize], size(t as usize));
        }
    }
    let small = pools[0].end.next_multiple_of(BLOCK);
    for (i, t) in w.tensors.iter().enumerate() {
        if pool(i) == 1 && !t.uses.is_empty() {
            at[i] += small;
        }
    }
    (at, small + pools[1].end.next_multiple_of(BLOCK))
}

/// Free space of an allocator that grows at its end.
#[derive(Default)]
struct Pool {
    end: u64,
    by_size: BTreeSet<(u64, u64)>,
    by_address: BTreeMap<u64, u64>,
}

impl Pool {
    fn take(&mut self, size: u64) -> u64 {
        let fit = self.by_size.range((size, 0)..).next().copied();
        if let Some((room, at)) = fit {
            self.remove(at, room);
            if room > size {
                self.insert(at + size, room - size);
            }
            return at;
        }
        // Grow, from the last free range if it reaches the end.
        let mut at = self.end;
        if let Some((&a, &s)) = self.by_address.last_key_value() {
            if a + s == self.end {
                self.remove(a, s);
                at = a;
            }
        }
        self.end = at + size;
        at
    }

    fn give(&mut self, mut at: u64, mut size: u64) {
        if let Some((&a, &s)) = self.by_address.range(..at).next_back() {
            if a + s == at {
                self.remove(a, s);
                at = a;
                size += s;
            }
        }
        if let Some(&s) = self.by_address.get(&(at + size)) {
            self.remove(at + size, s);
            size += s;
        }
        self.insert(at, size);
    }

    fn insert(&mut self, at: u64, size: u64) {
        self.by_size.insert((size, at));
        self.by_address.insert(at, size);
    }

    fn remove(&mut self, at: u64, size: u64) {
        self.by_size.remove(&(size, at));
        self.by_address.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Workload {
        let tensor = |i: u32| (format!("t{i}"), 3 * MIB, Kind::Activation);
        let kernel = |k: u32| {
            let before = k.checked_sub(1).map(Use::read).into_iter();
            Kernel::new(format!("k{k}"), 1000, before.chain([Use::write(k)]))
        };
        let kernels = (0..6).map(kernel).collect();
        Workload::new("chain", (0..6).map(tensor).collect(), kernels)
    }

    #[test]
    fn addresses_are_reused_and_never_shared() {
        let w = chain();
        let l = Layout::new(&w);
        assert_eq!(l.span, 6 * MIB, "two live tensors at a time");
        for a in 0..6 {
            for b in a + 1..6 {
                let (x, y) = (&w.tensors[a], &w.tensors[b]);
                let together = x.first() <= y.last() && y.first() <= x.last();
                let apart = l.addresses[a] + x.bytes <= l.addresses[b]
                    || l.addresses[b] + y.bytes <= l.addresses[a];
                assert!(!together || apart, "{a} {b}");
            }
        }
        assert_eq!(w.peak_bytes(), 6 * MIB);
    }

    #[test]
    fn touches_cover_each_tensor_once() {
        let w = chain();
        let l = Layout::new(&w);
        for (k, touches) in l.touches.iter().enumerate() {
            let pages: u64 = touches.iter().map(|t| u64::from(t.region.pages())).sum();
            assert_eq!(pages * PAGE, w.working_set(k));
        }
    }

    #[test]
    fn what_is_read_first_lasts() {
        let kernels = vec![Kernel::new("k", 1, [Use::read(0)])];
        let w = Workload::new("w", vec![("mask".into(), 10, Kind::Activation)], kernels);
        assert!(w.tensors[0].lasting);
    }
}
