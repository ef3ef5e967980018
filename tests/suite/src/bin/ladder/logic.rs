// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Step 1: loading, and the tests that need no GPU.

use uvm_suite::modules::Module;
use uvm_suite::{ensure, skip, Failure, Pass, Suite};
use vgpu_client::uvm::{self, BareTest, Params};
use vgpu_client::{Buffer, Process};

use crate::{LOCKS, NONE, PAGE_TREE};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("step 1: unload and load nvidia-uvm.ko", NONE, || {
        let Some(uvm) = Module::uvm() else {
            skip!("not under `make vm`, which says where the module is");
        };
        uvm.unload()?;
        ensure!(!uvm.is_loaded(), "still loaded");
        uvm.load()?;
        Process::new()?;
        Ok(Pass::Ok)
    });

    use BareTest as T;
    for test in [
        T::RNG_SANITY,
        T::RANGE_TREE_DIRECTED,
        T::PERF_UTILS_SANITY,
        T::KVMALLOC,
        T::PERF_EVENTS_SANITY,
        T::NV_KTHREAD_Q,
        T::RB_TREE_DIRECTED,
    ] {
        bare(suite, 1, test, NONE);
    }
    bare(suite, 1, T::LOCK_SANITY, LOCKS);
    bare(suite, 1, T::PAGE_TREE, PAGE_TREE);

    one(
        suite,
        uvm::RangeTreeRandom {
            seed: 7,
            main_iterations: 500,
            high_probability: 90,
            add_remove_shrink_group_probability: 50,
            shrink_probability: 25,
            collision_checks: 3,
            iterator_checks: 3,
            max_end: 511,
            max_ranges: 127,
            max_batch_count: 31,
            max_attempts: 3,
            ..Default::default()
        },
    );
    one(
        suite,
        uvm::RangeAllocatorSanity {
            seed: 7,
            iters: 1000,
            ..Default::default()
        },
    );
    one(
        suite,
        uvm::ThreadContextSanity {
            iterations: 8,
            rm_status: 0,
        },
    );
    one(
        suite,
        uvm::RbTreeRandom {
            iterations: 2000,
            range_max: 1 << 32,
            node_limit: 512,
            seed: 7,
            rm_status: 0,
        },
    );
    one(suite, uvm::GetUserSpaceEndAddress::default());
    one(suite, uvm::GetCpuChunkAllocSizes::default());
    one(suite, uvm::GetPageableMemAccessType::default());

    suite.test("step 1: UVM_TEST_RANGE_GROUP_TREE", NONE, || {
        let process = Process::new()?;
        let mut ids = [0; 4];
        for id in &mut ids {
            *id = process.create_range_group()?;
        }
        process.call(&mut uvm::RangeGroupTree { ids, rm_status: 0 })?;
        Ok(Pass::Ok)
    });
    suite.test("step 1: UVM_TEST_PERF_MODULE_SANITY", NONE, || {
        let process = Process::new()?;
        let range = Buffer::<u64>::managed(&process, 4 << 20)?;
        range.fill(|_| 1);
        process.call(&mut uvm::PerfModuleSanity {
            range_address: range.address(),
            range_size: range.bytes() as u32,
            rm_status: 0,
        })?;
        Ok(Pass::Ok)
    });
}

/// A test that takes nothing, on an address space without a GPU.
fn bare(suite: &mut Suite, step: u32, test: BareTest, allowed: &[uvm_suite::Allowed]) {
    suite.test(&format!("step {step}: {}", test.name), allowed, || {
        Process::new()?.run(test)?;
        Ok(Pass::Ok)
    });
}

/// A test with parameters, on an address space without a GPU.
fn one<P: Params>(suite: &mut Suite, mut params: P) {
    suite.test(&format!("step 1: {}", P::NAME), NONE, || {
        Process::new()?.call(&mut params).map_err(Failure::from)?;
        Ok(Pass::Ok)
    });
}
