// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A va_block is split, and memory has to be evicted for its page tables: the lock of the va_block is let go in between, while the
//! new one's is held.

use uvm_suite::{ensure, Outcome, Pass, Suite};
use vgpu_client::uvm::VaBlockInjectError;
use vgpu_client::{Buffer, BLOCK};

use crate::{start, NONE, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "split: a va_block is split, and evicts for its page tables",
        NONE,
        evicts_for_page_tables,
    );
}

/// In the debug kernel lockdep looks on. One entry maps the va_block, so that the split needs page tables, of which the first is said
/// to need an eviction.
fn evicts_for_page_tables() -> Outcome {
    let (process, gpu) = start()?;
    let data = Buffer::<u64>::managed(&process, WORDS)?;
    data.fill(|i| 3 + i as u64);
    process.migrate(data.address(), data.bytes(), gpu.uuid())?;
    process.call(&mut VaBlockInjectError {
        lookup_address: data.address(),
        page_table_retries: 1,
        ..Default::default()
    })?;
    process.set_accessed_by(data.address(), BLOCK / 2, gpu.uuid())?;
    let wrong = (0..WORDS).find(|&i| data.get(i) != 3 + i as u64);
    ensure!(wrong.is_none(), "word {wrong:?} is not what was written");
    Ok(Pass::Ok)
}
