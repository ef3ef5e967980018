// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Working on many ranges without memory for them.

use crate::backend::Outcome;
use crate::{Range, Result};

/// Ranges that do not fit pages, and those for CUDA, are worked on in groups of so
/// many, on the stack.
pub(crate) const GROUP: usize = 64;

/// Makes ranges fit pages by `fit`, leaves out what then is empty, and does the rest in
/// groups. `work` gives how many of its group are done.
pub(crate) fn in_groups(
    ranges: &[Range],
    fit: fn(Range) -> Result<Range>,
    outcome: &mut Outcome,
    mut work: impl FnMut(&[Range], &mut Outcome) -> (usize, Result<()>),
) -> Result<()> {
    let mut group = [Range::default(); GROUP];
    // Where each of the group stands in `ranges`.
    let mut index = [0; GROUP];
    let mut filled = 0;
    let mut bad = Ok(());
    let mut flush = |group: &[Range], index: &[usize], outcome: &mut Outcome| -> Result<()> {
        if group.is_empty() {
            return Ok(());
        }
        let (done, result) = work(group, outcome);
        if let (Err(_), Some(&at)) = (&result, index.get(done)) {
            outcome.done = at;
        }
        result
    };
    let mut seen = ranges.len();
    for (i, range) in ranges.iter().enumerate() {
        match fit(*range) {
            Ok(range) if range.length == 0 => continue,
            Ok(range) => {
                group[filled] = range;
                index[filled] = i;
                filled += 1;
            }
            Err(error) => {
                bad = Err(error);
                seen = i;
                break;
            }
        }
        if filled == GROUP {
            flush(&group, &index, outcome)?;
            filled = 0;
        }
    }
    flush(&group[..filled], &index[..filled], outcome)?;
    outcome.done = seen;
    bad
}
