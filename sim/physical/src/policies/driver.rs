// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver's prefetcher itself, which has DeepUM's method: its worker, on its own tables.
//!
//! [`super::DeepUm`] is the paper's: it queues all that it expects, and links take their time. Here
//! the worker gets done what it can before each access, as if links took no time.

use std::collections::BTreeSet;
use uvm_policy::prefetch::worker::Params;
use uvm_policy::prefetch::worker::Worker;
use uvm_policy::prefetch::Config;
use uvm_policy::prefetch::Correlator;
use uvm_policy::prefetch::ExecId;
use uvm_policy::prefetch::Feed;
use uvm_policy::prefetch::Share;

use super::deepum::um_block;
use crate::policy::Policy;
use crate::system::Tables;
use crate::RunError;
use crate::System;
use uvmsim_machine::BLOCK;

/// Announcements and faults that may wait for the worker: the driver's.
const KERNELS_WAITING: u32 = 256;
const FAULTS_WAITING: u32 = 4096;

/// What the program does with memory that its kernels need no more.
enum Done {
    /// It frees that memory. What is known of memory is forgotten when it is freed.
    Frees,
    /// It allocates once, and frees nothing while it runs.
    Keeps,
    /// It discards that memory lazily, and has it moved to the GPU before it uses it again. Here is what it
    /// discarded last, by address.
    Discards(BTreeSet<u64>),
}

/// The driver's prefetcher, under a program that frees what its kernels need no more, or does otherwise.
pub struct Driver {
    worker: Worker,
    tables: Tables,
    /// Execution ID of each kernel: name and arguments, hashed.
    ids: Vec<ExecId>,
    done: Done,
}

impl Driver {
    /// For a step whose kernels have these execution IDs, with what `uvm_rust_prefetch` and
    /// `uvm_rust_preevict` say.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub fn new(ids: Vec<u64>, config: Config, params: Params) -> Result<Self, RunError> {
        let share = Share::new(config.memory_limit);
        let tables = Correlator::new(config).and_then(|correlator| {
            Ok(Tables {
                correlator,
                feed: Feed::new(KERNELS_WAITING, FAULTS_WAITING)?,
                share,
            })
        });
        let none = |_| RunError::Infeasible("no memory for DeepUM's tables".into());
        Ok(Self {
            worker: Worker::new(params),
            tables: tables.map_err(none)?,
            ids: ids.into_iter().map(ExecId).collect(),
            done: Done::Frees,
        })
    }

    /// The same, under a program that allocates once, and frees nothing while it runs.
    pub fn keeping(self) -> Self {
        Self {
            done: Done::Keeps,
            ..self
        }
    }

    /// The same, under a program whose allocator keeps what is freed. It says so by a lazy discard, and moves
    /// that memory to the GPU before it hands it out again.
    pub fn discarding(self) -> Self {
        Self {
            done: Done::Discards(BTreeSet::new()),
            ..self
        }
    }
}

impl Policy for Driver {
    fn name(&self) -> &str {
        "driver"
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        let layout = s.layout;
        if let Done::Discards(discarded) = &mut self.done {
            for &t in &layout.births[k] {
                if discarded.remove(&layout.addresses[t as usize]) {
                    s.migrate(t);
                }
            }
        }
        s.begins(&self.worker);
        self.tables.feed.announce(self.ids[k]);
        s.work(&self.worker, &mut self.tables);
    }

    fn fault(&mut self, block: u32, s: &mut System<'_>) {
        if um_block(block).is_some_and(|b| self.tables.feed.fault(b)) {
            s.work(&self.worker, &mut self.tables);
        }
    }

    fn kernel_end(&mut self, k: usize, s: &mut System<'_>) {
        let layout = s.layout;
        for &t in &layout.deaths[k] {
            let at = layout.addresses[t as usize];
            match &mut self.done {
                Done::Keeps => continue,
                Done::Discards(discarded) => {
                    s.discard(t, false);
                    discarded.insert(at);
                    continue;
                }
                Done::Frees => s.free(t),
            }
            let last = at + s.workload.tensors[t as usize].bytes - 1;
            let of = |at| um_block((at / BLOCK) as u32);
            if let (Some(first), Some(last)) = (of(at), of(last)) {
                self.tables.correlator.forget(first, last);
            }
        }
    }

    fn block_by_block(&self) -> bool {
        true
    }
}
