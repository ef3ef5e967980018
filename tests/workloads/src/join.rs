// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Hash-join (paper §7.4): two tables are preprocessed, then joined; twice.
//!
//! The paper gives no sizes but that of the tables: 2.98 GB, all that moves when
//! everything fits. Those below were fitted to table 8 with the oracle's model of
//! the driver: they explain UVM-opt and UvmDiscard at 200 % and 300 % within a
//! sixth, and keep below the memory of the paper's GPU.
//!
//! After each table's kernel its intermediate buffer is discarded; after the join
//! the preprocessed tables and the result are. The tables stay: the second join
//! reads them again.

use crate::program::{Program, Step};
use crate::scale::blocks_of_gb;

/// Sizes in the paper, in GB.
const TABLE: f64 = 1.49;
const INTERMEDIATE: [f64; 2] = [2.28, 3.36];
const PREPROCESSED: f64 = 0.27;
const RESULT: f64 = 3.36;

/// How often the join is made.
const JOINS: usize = 2;

/// The hash-join, made `JOINS` times.
pub fn program() -> Program {
    let mut p = Program::default();
    let mut of = |name: &str, gb: f64| p.buffer(name, blocks_of_gb(gb));
    let tables = ["left", "right"].map(|name| of(name, TABLE));
    let scratch = [
        of("left scratch", INTERMEDIATE[0]),
        of("right scratch", INTERMEDIATE[1]),
    ];
    let ready = ["left ready", "right ready"].map(|name| of(name, PREPROCESSED));
    let result = of("result", RESULT);
    for table in tables {
        p.host_write(p.all(table));
    }
    p.push(Step::Start);
    for join in 0..JOINS {
        for i in 0..2 {
            p.launch(&[
                p.all(tables[i]).read(),
                p.all(scratch[i]).write(),
                p.all(ready[i]).write(),
            ]);
            p.discard(p.all(scratch[i]));
        }
        let [left, right] = ready.map(|r| p.all(r));
        p.launch(&[left.read(), right.read(), p.all(result).write()]);
        if join + 1 == JOINS {
            p.push(Step::Stop);
            // The database keeps its tables.
            for buffer in [result, tables[0], tables[1]] {
                p.host_read(p.all(buffer));
            }
        }
        [left, right, p.all(result)]
            .into_iter()
            .for_each(|span| p.discard(span));
    }
    p
}
