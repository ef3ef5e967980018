// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Transformers: a list of operators.
//!
//! A record is `id type n input_1 .. input_n`, then for each input its rank and
//! dimensions; records end with a line of dashes. Dimension 99 is the batch.

use std::collections::HashMap;

use super::build::kernel;
use super::build::mark_inputs;
use super::build::tensor;
use uvmsim_trace::Error;
use uvmsim_trace::Kind;
use uvmsim_trace::TensorId;
use uvmsim_trace::Trace;

/// The dimension that stands for the batch.
const BATCH_DIM: u64 = 99;

struct Op {
    kind: String,
    inputs: Vec<Input>,
    output: TensorId,
    /// Gradients of the output, one for each use.
    grads: Vec<TensorId>,
}

struct Input {
    id: u32,
    tensor: TensorId,
    grad: Option<TensorId>,
    is_weight: bool,
}

/// Operators, and the elements of each tensor as last mentioned.
struct Records {
    /// Number, type and inputs of each operator.
    ops: Vec<(u32, String, Vec<u32>)>,
    elements: HashMap<u32, u64>,
}

pub(super) fn build(text: &str, border: u32, batch: u64) -> Result<Trace, Error> {
    let records = parse(text, batch)?;
    let mut t = Trace::default();
    let ops = tensors(&mut t, &records, border);
    forward(&mut t, &ops);
    for op in ops.iter().rev() {
        backward(&mut t, op);
    }
    mark_inputs(&mut t);
    Ok(t)
}

fn parse(text: &str, batch: u64) -> Result<Records, Error> {
    let mut r = Records {
        ops: Vec::new(),
        elements: HashMap::new(),
    };
    let mut tokens: Vec<(u32, &str)> = Vec::new();
    // Records of a softmax still to come: four of them are one operator.
    let mut softmax_left = 0;
    let lines = text.lines().enumerate();
    for (line, token) in lines.flat_map(|(i, l)| l.split_whitespace().map(move |w| (i, w))) {
        if !token.starts_with("---") {
            tokens.push((u32::try_from(line + 1).unwrap_or(u32::MAX), token));
            continue;
        }
        if tokens.is_empty() {
            continue;
        }
        let (id, kind, inputs) = record(&tokens, batch, &mut r.elements)?;
        tokens.clear();
        if softmax_left > 0 {
            softmax_left -= 1;
            if softmax_left == 0 {
                if let Some(op) = r.ops.last_mut() {
                    op.0 = id;
                }
            }
            continue;
        }
        if kind == "SoftmaxBasic" {
            softmax_left = 3;
        }
        r.ops.push((id, kind, inputs));
    }
    if r.ops.is_empty() {
        return Err(Error::new(1, "", "no operators"));
    }
    Ok(r)
}

/// One record; notes the sizes of its inputs.
fn record(
    tokens: &[(u32, &str)],
    batch: u64,
    elements: &mut HashMap<u32, u64>,
) -> Result<(u32, String, Vec<u32>), Error> {
    let mut rest = tokens.iter();
    let first_line = tokens.first().map_or(1, |t| t.0);
    let object = || {
        let first = tokens.first();
        first.map_or(String::new(), |t| format!("operator {}", t.1))
    };
    let mut word = |what: &str| {
        let word = rest.next().map(|&(l, w)| (l, w.to_string()));
        let what = format!("the record ends before its {what}");
        word.ok_or_else(|| Error::new(first_line, object(), what))
    };
    let number = |(line, w): (u32, String), what: &str| {
        let wrong = |_| Error::new(line, object(), format!("{what} '{w}' is no number"));
        w.parse::<u32>().map_err(wrong)
    };
    let id = number(word("number")?, "number")?;
    let (_, kind) = word("type")?;
    let n = number(word("inputs")?, "count of inputs")?;
    let mut inputs = Vec::new();
    for _ in 0..n {
        inputs.push(number(word("inputs")?, "input")?);
    }
    if inputs.is_empty() {
        return Err(Error::new(first_line, object(), "it has no inputs"));
    }
    for &input in &inputs {
        let rank = number(word("shapes")?, "rank")?;
        let mut size = 1u64;
        for _ in 0..rank {
            let d = u64::from(number(word("shapes")?, "dimension")?);
            size = size.saturating_mul(if d == BATCH_DIM { batch } else { d });
        }
        elements.insert(input, size);
    }
    Ok((id, kind, inputs))
}

/// Creates tensors in the artifact's order: per operator its output, its inputs,
/// then a gradient for each use that needs one.
fn tensors(t: &mut Trace, records: &Records, border: u32) -> Vec<Op> {
    let numbered = records.ops.iter().enumerate();
    let position: HashMap<u32, usize> = numbered.map(|(i, op)| (op.0, i)).collect();
    let mut made: HashMap<u32, TensorId> = HashMap::new();
    let mut grads: Vec<Vec<TensorId>> = vec![Vec::new(); records.ops.len()];
    let mut ops = Vec::new();
    let kind_of = |id: u32| {
        if id < border {
            Kind::Weight
        } else {
            Kind::Activation
        }
    };
    for (i, (id, kind, inputs)) in records.ops.iter().enumerate() {
        // An output that nothing uses has the shape of the first input.
        let size = |id: &u32| records.elements.get(id).copied();
        let output = *made.entry(*id).or_insert_with(|| {
            let kind = size(id).map_or(Kind::Activation, |_| kind_of(*id));
            let elements = size(id).or_else(|| size(&inputs[0])).unwrap_or(1);
            tensor(t, kind, elements, &format!("{id}"))
        });
        let mut uses = Vec::new();
        for &input in inputs {
            let id = *made.entry(input).or_insert_with(|| {
                let elements = size(&input).unwrap_or(1);
                tensor(t, kind_of(input), elements, &input.to_string())
            });
            let is_weight = t.tensor(id).kind == Kind::Weight;
            uses.push(Input {
                id: input,
                tensor: id,
                grad: None,
                is_weight,
            });
        }
        for u in &mut uses {
            let producer = position.get(&u.id);
            let wanted = if u.is_weight {
                kind != "Power"
            } else {
                producer.is_some()
            };
            if wanted {
                let elements = t.tensor(u.tensor).bytes / 4;
                let g = tensor(t, Kind::Gradient, elements, &format!("d{}@{id}", u.id));
                u.grad = Some(g);
                if let Some(&p) = producer {
                    grads[p].push(g);
                }
            }
        }
        if i + 1 == records.ops.len() {
            let elements = t.tensor(output).bytes / 4;
            grads[i].push(tensor(t, Kind::Gradient, elements, "dloss"));
        }
        ops.push(Op {
            kind: kind.clone(),
            inputs: uses,
            output,
            grads: Vec::new(),
        });
    }
    for (op, g) in ops.iter_mut().zip(grads) {
        op.grads = g;
    }
    ops
}

/// What the artifact calls kernels of this kind.
fn name(op: &Op) -> &str {
    match op.kind.as_str() {
        "Dot" => "Linear",
        "Convolution" => "Conv2d",
        "Relu" => "ReLU",
        other => other,
    }
}

fn forward(t: &mut Trace, ops: &[Op]) {
    for op in ops {
        let reads: Vec<_> = op.inputs.iter().map(|i| i.tensor).collect();
        kernel(t, &format!("{}_Forward", name(op)), &reads, &[op.output]);
    }
    if let Some(last) = ops.last() {
        kernel(t, "makeLoss", &[last.output], &last.grads[..1]);
    }
}

fn backward(t: &mut Trace, op: &Op) {
    let Some(&g) = op.grads.first() else {
        // Nothing uses the output: the artifact has no such network.
        return;
    };
    if op.grads.len() > 1 {
        kernel(t, "Add_MultiGredient", &op.grads, &[g]);
    }
    let weight = op.inputs.iter().rev().find(|i| i.is_weight);
    let data = op.inputs.iter().rev().find(|i| !i.is_weight);
    let update = |t: &mut Trace, name: &str, w: &Input| {
        let reads: Vec<_> = w.grad.into_iter().chain([w.tensor]).collect();
        kernel(t, name, &reads, &[w.tensor]);
    };
    match (op.kind.as_str(), weight, data) {
        ("GatherV2", Some(w), Some(x)) => {
            let writes: Vec<_> = w.grad.into_iter().chain(x.grad).collect();
            kernel(t, "GatherV2_Backward", &[g, x.tensor], &writes);
            update(t, "Apply_Grad", w);
        }
        ("Dot" | "Convolution", Some(w), Some(x)) => {
            let (reads, applied) = match op.kind.as_str() {
                "Dot" => ([w.tensor, g], "Linear_Apply_Grad_Weight"),
                _ => ([g, w.tensor], "Apply_Grad"),
            };
            let layer = name(op);
            let dw: Vec<_> = w.grad.into_iter().collect();
            kernel(t, &format!("{layer}_Backward_Weight"), &[g, x.tensor], &dw);
            if let Some(dx) = x.grad {
                kernel(t, &format!("{layer}_Backward_Input"), &reads, &[dx]);
            }
            update(t, applied, w);
        }
        ("Add" | "Subtract", ..) => {
            let writes: Vec<_> = op.inputs.iter().filter_map(|i| i.grad).collect();
            kernel(t, &format!("{}_Backward", op.kind), &[g], &writes);
            apply(t, weight);
        }
        ("BatchMatMul" | "Multiply", ..) => {
            for (i, other) in [(0, 1), (1, 0)] {
                let (Some(x), Some(y)) = (op.inputs.get(i), op.inputs.get(other)) else {
                    continue;
                };
                if let Some(dx) = x.grad {
                    kernel(t, &format!("{}_Backward", op.kind), &[g, y.tensor], &[dx]);
                }
            }
            apply(t, weight);
        }
        ("Divide", ..) => {
            if let [a, b, ..] = &op.inputs[..] {
                if let Some(da) = a.grad {
                    kernel(t, "Divide_Backward_A", &[b.tensor, g], &[da]);
                }
                if let Some(db) = b.grad {
                    kernel(t, "Divide_Backward_B", &[b.tensor, op.output, g], &[db]);
                }
            }
            apply(t, weight);
        }
        _ => element_wise(t, op, g),
    }
}

/// `Relu`, `SoftmaxBasic`, `Sqrt`, `Sum`, `Tanh`, `Erf` and `Power`: the input is
/// kept for the backward pass, not the output.
fn element_wise(t: &mut Trace, op: &Op, g: TensorId) {
    let x = &op.inputs[0];
    let writes: Vec<_> = x.grad.into_iter().collect();
    let inputs = if op.kind == "Power" { 2 } else { 1 };
    let inputs = op.inputs.iter().take(inputs).map(|i| i.tensor);
    let mut reads: Vec<_> = [g].into_iter().chain(inputs).collect();
    if matches!(op.kind.as_str(), "Relu" | "SoftmaxBasic") {
        reads.reverse();
    }
    kernel(t, &format!("{}_Backward", name(op)), &reads, &writes);
}

/// The update of an element-wise operator's weight reads the weight first.
fn apply(t: &mut Trace, weight: Option<&Input>) {
    if let Some(w) = weight {
        let reads: Vec<_> = [w.tensor].into_iter().chain(w.grad).collect();
        kernel(t, "Apply_Grad", &reads, &[w.tensor]);
    }
}
