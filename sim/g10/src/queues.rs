// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The artifact's tensor simulator: FlashNeuron, G10-GDS and G10-Host.
//!
//! Whole tensors wait in a FIFO for each direction and device and move one at a
//! time, without latency. One step, weights on the GPU at its start. For the two
//! designs of G10 the GPU is four times as large as said, as in the artifact:
//! their capacity is kept by the plan alone.

mod offload;
mod space;

use std::collections::HashSet;
use std::collections::VecDeque;

use super::plan;
use super::plan::Design;
use super::plan::Hint;
use super::plan::Target;
use super::view::View;
use super::Machine;
use super::Outcome;
use super::RunError;
use super::Traffic;
use space::Range;
use space::Space;

/// A direction and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToSsd,
    FromSsd,
    ToHost,
    FromHost,
}

/// What happens next on its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The transfer at the head of a queue ends.
    Moved(Way),
    /// The kernel that runs ends.
    Kernel,
}

struct Sim<'a> {
    view: &'a View,
    machine: &'a Machine,
    /// The time in the step, in milliseconds.
    time: f64,
    /// What is to come, with its time, in the order in which it was scheduled.
    pending: Vec<(f64, Event)>,
    /// Tensors on their way, the first of each moving.
    queues: [VecDeque<u32>; 4],
    space: Space,
    /// Where a tensor is on the GPU.
    place: Vec<Option<Range>>,
    fetching: Vec<bool>,
    in_host: Vec<bool>,
    /// Prefetches that wait for room.
    waiting: VecDeque<u32>,
    waits: HashSet<u32>,
    traffic: Traffic,
    kernel_ms: Vec<f64>,
}

impl<'a> Sim<'a> {
    fn new(view: &'a View, machine: &'a Machine, pages: u64) -> Self {
        let n = view.tensors.len();
        Self {
            view,
            machine,
            time: 0.0,
            pending: Vec::new(),
            queues: Default::default(),
            space: Space::new(pages),
            place: vec![None; n],
            fetching: vec![false; n],
            in_host: vec![false; n],
            waiting: VecDeque::new(),
            waits: HashSet::new(),
            traffic: Traffic::default(),
            kernel_ms: Vec::new(),
        }
    }

    /// What a tensor takes on a way, in ms; GB are GiB here.
    fn transfer_ms(&self, t: u32, way: Way) -> f64 {
        let (ssd, pcie) = (self.machine.ssd_gbps, self.machine.pcie_gbps);
        let gbps = match way {
            Way::ToSsd | Way::FromSsd => ssd,
            Way::ToHost | Way::FromHost => pcie - ssd,
        };
        self.view.tensors[t as usize].bytes() as f64 / (gbps * 1024.0 * 1024.0 * 1024.0 / 1000.0)
    }

    /// Puts a tensor on its way.
    fn send(&mut self, t: u32, way: Way) {
        let bytes = self.view.tensors[t as usize].bytes();
        let total = match way {
            Way::ToSsd => &mut self.traffic.gpu_to_ssd,
            Way::FromSsd => &mut self.traffic.ssd_to_gpu,
            Way::ToHost => &mut self.traffic.gpu_to_host,
            Way::FromHost => &mut self.traffic.host_to_gpu,
        };
        *total += bytes;
        if matches!(way, Way::FromSsd | Way::FromHost) {
            self.fetching[t as usize] = true;
        }
        self.queues[way as usize].push_back(t);
        if self.queues[way as usize].len() == 1 {
            self.start(t, way);
        }
    }

    fn start(&mut self, t: u32, way: Way) {
        let end = self.time + self.transfer_ms(t, way);
        self.pending.push((end, Event::Moved(way)));
    }

    /// Lets the next event happen.
    fn serve(&mut self) -> Option<Event> {
        let first = (0..self.pending.len())
            .min_by(|&a, &b| self.pending[a].0.total_cmp(&self.pending[b].0))?;
        let (time, event) = self.pending.remove(first);
        self.time = time;
        if let Event::Moved(way) = event {
            if let Some(t) = self.queues[way as usize].pop_front() {
                match way {
                    Way::ToSsd | Way::ToHost => self.release(t),
                    Way::FromSsd | Way::FromHost => self.fetching[t as usize] = false,
                }
                if matches!(way, Way::ToHost | Way::FromHost) {
                    self.in_host[t as usize] = way == Way::ToHost;
                }
            }
            if let Some(&t) = self.queues[way as usize].front() {
                self.start(t, way);
            }
        }
        Some(event)
    }

    fn release(&mut self, t: u32) {
        if let Some(range) = self.place[t as usize].take() {
            self.space.free(range);
        }
    }

    fn on_gpu(&self, t: u32) -> bool {
        self.place[t as usize].is_some()
    }

    fn take(&mut self, t: u32, right: bool) -> bool {
        let range = self.space.take(self.view.tensors[t as usize].pages, right);
        if range.is_some() {
            // A copy still on its way out is forgotten, space and all, as there.
            self.place[t as usize] = range;
        }
        range.is_some()
    }

    /// Makes room for `t`, waiting for what is pending if need be.
    fn make_room(&mut self, t: u32, right: bool) -> Result<(), RunError> {
        if self.take(t, right) {
            return Ok(());
        }
        while !self.pending.is_empty() {
            self.serve();
            if self.take(t, right) {
                self.admit();
                return Ok(());
            }
        }
        Err(RunError::Unsupported(format!(
            "not enough contiguous GPU memory for tensor {t} ({:.2} GiB)",
            self.view.tensors[t as usize].bytes() as f64 / (1u64 << 30) as f64
        )))
    }

    /// Waits until `t` is on the GPU and complete.
    fn await_fetch(&mut self, t: u32) {
        while self.fetching[t as usize] || !self.on_gpu(t) {
            if self.serve().is_none() {
                break;
            }
            self.admit();
        }
    }

    /// Starts the first prefetch that waits for room, if there is room.
    fn admit(&mut self) {
        let Some(&t) = self.waiting.front() else {
            return;
        };
        if self.space.largest() >= self.view.tensors[t as usize].pages && self.take(t, true) {
            let way = [Way::FromSsd, Way::FromHost][usize::from(self.in_host[t as usize])];
            self.send(t, way);
            self.waits.remove(&t);
            self.waiting.pop_front();
        }
    }

    fn run_kernel(&mut self, k: usize) {
        let ms = self.view.kernels[k].cycles as f64 / 1.2e9 * 1000.0;
        self.pending.push((self.time + ms, Event::Kernel));
        loop {
            let event = self.serve();
            self.admit();
            if event.is_none_or(|e| e == Event::Kernel) {
                break;
            }
        }
    }

    fn outcome(self) -> Outcome {
        // The artifact prints six digits.
        let ms: f64 = format!("{:.5e}", self.time).parse().unwrap_or(self.time);
        let cycles = |ms: f64| (ms * 1.2e6).round() as u64;
        Outcome {
            ideal_cycles: self.view.ideal_cycles(),
            step_cycles: cycles(ms),
            traffic: self.traffic,
            kernel_cycles: self.kernel_ms.iter().map(|&ms| cycles(ms)).collect(),
            ..Outcome::default()
        }
    }
}

/// Runs a step under FlashNeuron.
pub(super) fn flashneuron(view: &View, machine: &Machine) -> Result<Outcome, RunError> {
    let offloads = offload::plan(view, machine)?;
    let mut offloaded = vec![false; view.tensors.len()];
    for o in &offloads {
        offloaded[o.tensor as usize] = true;
    }
    let pages = (machine.gpu_gib * 1024.0 * 1024.0 / 4.0) as u64;
    let mut s = Sim::new(view, machine, pages);
    let weights = (0..view.tensors.len() as u32).filter(|&t| view.tensors[t as usize].is_weight);
    for t in weights {
        s.make_room(t, false)?;
    }
    // Scratch shares the room of the largest; the first of equals.
    let scratch = (0..view.tensors.len()).rev().filter(|&t| {
        let t = &view.tensors[t];
        !t.is_weight && t.death.is_none()
    });
    if let Some(t) = scratch.max_by_key(|&t| view.tensors[t].pages) {
        s.make_room(t as u32, false)?;
    }
    let working_set = offload::largest_set(view, |t| !view.tensors[t as usize].is_weight);
    let mut next = offloads.iter().peekable();
    let mut backward = false;
    for (i, k) in view.kernels.iter().enumerate() {
        let start = s.time;
        backward |= k.is_loss;
        if backward {
            while !s.queues[Way::ToSsd as usize].is_empty() {
                s.serve();
            }
        } else {
            while let Some(o) = next.next_if(|o| o.kernel == i) {
                s.send(o.tensor, Way::ToSsd);
            }
        }
        for &t in &k.required {
            let tensor = &view.tensors[t as usize];
            if tensor.is_weight || tensor.death.is_none() {
                continue;
            }
            if s.on_gpu(t) {
                if s.fetching[t as usize] {
                    s.await_fetch(t);
                }
                continue;
            }
            s.make_room(t, offloaded[t as usize])?;
            if offloaded[t as usize] && tensor.birth != i {
                s.send(t, Way::FromSsd);
                s.await_fetch(t);
            }
        }
        s.run_kernel(i);
        for &t in &k.required {
            if !view.tensors[t as usize].is_weight && view.tensors[t as usize].death == Some(i + 1)
            {
                s.release(t);
            }
        }
        if backward {
            fetch_ahead(&mut s, i, &offloaded, working_set);
        }
        s.kernel_ms.push(s.time - start);
    }
    Ok(s.outcome())
}

/// FlashNeuron's prefetch: what later kernels use, as long as the largest hole
/// leaves room for the largest working set.
fn fetch_ahead(s: &mut Sim<'_>, done: usize, offloaded: &[bool], working_set: u64) {
    let mut rest = s.space.largest() as i64 - working_set as i64;
    let view = s.view;
    for k in &view.kernels[done + 1..] {
        for &t in &k.required {
            if !offloaded[t as usize] || s.on_gpu(t) {
                continue;
            }
            let pages = view.tensors[t as usize].pages as i64;
            if rest <= pages || !s.take(t, true) {
                return;
            }
            s.send(t, Way::FromSsd);
            rest -= pages;
        }
    }
}

/// G10's plan on FlashNeuron's engine.
pub(super) fn g10(view: &View, machine: &Machine, design: Design) -> Result<Outcome, RunError> {
    let plan = plan::g10(view, machine, design);
    if design == Design::Host && machine.pcie_gbps <= machine.ssd_gbps {
        return Err(RunError::Unsupported(
            "g10-host leaves the host what the SSD does not take of the link, which is nothing \
             here: raise --pcie"
                .into(),
        ));
    }
    let pages = (machine.gpu_gib * 4.0 * 1024.0 * 1024.0 / 4.0) as u64;
    let mut s = Sim::new(view, machine, pages);
    for t in 0..view.tensors.len() as u32 {
        if view.tensors[t as usize].is_weight {
            s.make_room(t, plan.evicted[t as usize])?;
        }
    }
    let mut hints = plan.hints.iter().peekable();
    for (i, k) in view.kernels.iter().enumerate() {
        let start = s.time;
        while let Some(hint) = hints.next_if(|h| h.kernel == i) {
            issue(&mut s, hint);
        }
        for &t in &k.required {
            require(&mut s, t, i, &plan.evicted)?;
        }
        s.run_kernel(i);
        for &t in &k.required {
            let tensor = &view.tensors[t as usize];
            if !tensor.is_weight && tensor.death.is_none_or(|d| d == i + 1) {
                s.release(t);
            }
        }
        s.admit();
        s.kernel_ms.push(s.time - start);
    }
    Ok(s.outcome())
}

fn issue(s: &mut Sim<'_>, hint: &Hint) {
    let t = hint.tensor;
    match hint.to {
        Target::Ssd => s.send(t, Way::ToSsd),
        Target::Host => {
            s.in_host[t as usize] = true;
            s.send(t, Way::ToHost);
        }
        Target::Gpu if !(s.on_gpu(t) && s.view.tensors[t as usize].is_weight) => {
            s.waiting.push_back(t);
            s.waits.insert(t);
            s.admit();
        }
        Target::Gpu | Target::Free => {}
    }
}

/// Gets `t` onto the GPU for kernel `k`. One that waits for room is not waited for
/// any longer than that, though its contents are still to come; and a weight that
/// is not back is given room only: both as there.
fn require(s: &mut Sim<'_>, t: u32, k: usize, evicted: &[bool]) -> Result<(), RunError> {
    if s.on_gpu(t) {
        if s.fetching[t as usize] {
            s.await_fetch(t);
        }
        return Ok(());
    }
    if s.waits.contains(&t) {
        s.admit();
        while !s.on_gpu(t) && s.serve().is_some() {
            s.admit();
        }
        if s.on_gpu(t) {
            return Ok(());
        }
    }
    s.make_room(t, evicted[t as usize])?;
    let tensor = &s.view.tensors[t as usize];
    if evicted[t as usize] && tensor.birth != k && !tensor.is_weight {
        s.send(t, Way::FromSsd);
        s.await_fetch(t);
    }
    Ok(())
}
