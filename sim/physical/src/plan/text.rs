// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Plans to and from text (`uvmsim_plan` has the format), held to the step that they are for.

use std::ops::Range;

use uvmsim_machine::PAGE;
use uvmsim_plan as text;
use uvmsim_plan::Error;
use uvmsim_plan::What;

use crate::plan::recompute::Made;
use crate::plan::Op;
use crate::plan::Part;
use crate::plan::Plan;
use crate::rerun::Rerun;
use crate::rerun::SAME;
use crate::workload::Layout;
use crate::workload::Workload;

impl Plan {
    /// The same plan with each allocation and release as a request of its own.
    pub fn explicit(&self, layout: &Layout) -> Self {
        let kernels = self.before.len();
        let mut plan = Self::asking_nothing(kernels);
        plan.again.clone_from(&self.again);
        plan.behind.clone_from(&self.behind);
        plan.parts.clone_from(&self.parts);
        for (k, ops) in self.before.iter().enumerate() {
            let dead = (k + kernels - 1) % kernels;
            if self.releases {
                plan.before[k].extend(layout.deaths[dead].iter().map(|&t| (What::Free, t)));
            }
            plan.before[k].extend(ops);
            if let Some(ahead) = self.allocate_ahead {
                let from = if k == 0 { 0 } else { k + ahead as usize };
                for births in layout.births.iter().take(k + ahead as usize + 1).skip(from) {
                    plan.before[k].extend(births.iter().map(|&t| (What::Allocate, t)));
                }
            }
        }
        plan
    }

    /// A plan for so many kernels under which all that is done is asked for.
    fn asking_nothing(kernels: usize) -> Self {
        Self {
            allocate_ahead: None,
            releases: false,
            ..Self::new(kernels, 0)
        }
    }

    /// The plan as text; the step is that with what runs again.
    pub fn text(&self, workload: &Workload, layout: &Layout) -> String {
        self.records(workload, layout).to_string()
    }

    /// What is written of the plan, which says nothing of a program.
    pub fn records(&self, workload: &Workload, layout: &Layout) -> text::Plan {
        let number = |value| text::Number { value, line: 0 };
        let explicit = self.explicit(layout);
        let kernels = workload.kernels.len();
        let whole = workload.tensors.len();
        let request = |k: usize, (what, t): Op, behind: bool| {
            let part = (t as usize).checked_sub(whole).map(|i| self.parts[i]);
            let tensor = part.map_or(t, |p| p.tensor);
            let Range { start, end } = layout.range(workload, tensor);
            let (offset, bytes) = part.map_or((0, end - start), |p| (p.offset, p.bytes));
            text::Request {
                kernel: k as u64,
                what,
                tensor: tensor.into(),
                offset: start + offset,
                bytes,
                behind,
                line: 0,
            }
        };
        let requests = (0..kernels).flat_map(|k| {
            // What is made behind a kernel is so before the next at the latest.
            let last = explicit.behind[workload.before(k)].iter();
            let behind = last.map(move |&op| request(k, op, true));
            behind.chain(
                explicit.before[k]
                    .iter()
                    .map(move |&op| request(k, op, false)),
            )
        });
        let again = self.again.iter().map(|a| text::Again {
            before: a.before,
            kernel: a.kernel,
            line: 0,
        });
        text::Plan {
            trace: workload.name.clone(),
            kernels: number(workload.kernels.len() as u64),
            span: number(layout.span),
            again: again.collect(),
            requests: requests.collect(),
            program: None,
        }
    }

    /// Reads a plan for `workload`, and the step as the plan has it.
    ///
    /// # Errors
    /// It is no plan, or not one for this workload:
    ///
    /// - a kernel cannot run again as the plan says;
    /// - the plan has another number of kernels, or a kernel or tensor by another name;
    /// - a request names an unknown tensor, one that is not alive then, or a range that
    ///   is not the tensor's.
    pub fn read(text: &str, workload: &Workload) -> Result<Made, Error> {
        let read: text::Plan = text.parse()?;
        let rerun = |a: &text::Again| Rerun {
            before: a.before,
            kernel: a.kernel,
        };
        let again: Vec<Rerun> = read.again.iter().map(rerun).collect();
        let refused = |e: crate::rerun::Refused| Error {
            line: read.again.get(e.rerun).map_or(1, |a| a.line),
            what: e.what,
        };
        let workload = workload.with_reruns(&again, SAME).map_err(refused)?;
        let layout = Layout::new(&workload);
        let mut plan = Self::of(&read, &workload, &layout)?;
        plan.again = again;
        Ok(Made {
            workload,
            layout,
            plan,
        })
    }

    /// Reads a plan for `workload` as it is, laid out as `layout` has it: nothing runs again.
    ///
    /// # Errors
    /// See [`Self::read`].
    pub fn parse(text: &str, workload: &Workload, layout: &Layout) -> Result<Self, Error> {
        let read: text::Plan = text.parse()?;
        match read.again.first() {
            Some(again) => Err(Error {
                line: again.line,
                what: "kernels run again in this plan".to_owned(),
            }),
            None => Self::of(&read, workload, layout),
        }
    }

    fn of(read: &text::Plan, workload: &Workload, layout: &Layout) -> Result<Self, Error> {
        let counts = [
            (read.kernels, "kernels", workload.kernels.len() as u64),
            (read.span, "bytes of span", layout.span),
        ];
        for (want, what, have) in counts {
            let text::Number { value, line } = want;
            if value != have {
                let what = format!("the plan is for {value} {what}, the trace has {have}");
                return Err(Error { line, what });
            }
        }
        let mut plan = Self::asking_nothing(workload.kernels.len());
        for r in &read.requests {
            let op = plan.op(r, workload, layout);
            let op = op.map_err(|what| Error { line: r.line, what })?;
            if r.behind {
                plan.behind[workload.before(r.kernel as usize)].push(op);
            } else {
                plan.before[r.kernel as usize].push(op);
            }
        }
        if let Some(program) = &read.program {
            let kernels = |k: usize| workload.kernels.get(k).map(|k| k.name.as_str());
            let tensors = |t: usize| workload.tensors.get(t).map(|t| t.name.as_str());
            same_names("kernel", &program.launches, kernels)?;
            same_names("tensor", &program.tensors, tensors)?;
        }
        Ok(plan)
    }
}

impl Plan {
    /// The request, if it is of a tensor of the step, for its range or a part of it, while it lives.
    fn op(&mut self, r: &text::Request, w: &Workload, layout: &Layout) -> Result<Op, String> {
        let tensor = usize::try_from(r.tensor).ok();
        let tensor = tensor.and_then(|t| w.tensors.get(t));
        let tensor = tensor
            .filter(|t| !t.uses.is_empty())
            .ok_or(format!("no kernel uses tensor {}", r.tensor))?;
        let t = r.tensor as u32;
        let (whole, wanted) = (layout.range(w, t), r.offset..r.offset + r.bytes);
        if !is_part(&wanted, &whole) {
            return Err(format!(
                "tensor {t} ({}) is at {} and has {} bytes: no pages of it are at {} with {}",
                tensor.name,
                whole.start,
                whole.end - whole.start,
                r.offset,
                r.bytes
            ));
        }
        if !r.behind {
            check_alive(w, r.kernel as u32, t, r.what)?;
        } else if !w.uses(w.before(r.kernel as usize), t) {
            let (name, kernel) = (&tensor.name, r.kernel);
            return Err(format!(
                "tensor {t} ({name}) is not used right before kernel {kernel}"
            ));
        }
        if wanted == whole {
            return Ok((r.what, t));
        }
        let part = Part {
            tensor: t,
            offset: wanted.start - whole.start,
            bytes: r.bytes,
        };
        self.parts.push(part);
        Ok((r.what, (w.tensors.len() + self.parts.len() - 1) as u32))
    }
}

/// Refuses other names than the trace's.
fn same_names<'a>(
    what: &str,
    names: &[text::Name],
    have: impl Fn(usize) -> Option<&'a str>,
) -> Result<(), Error> {
    for text::Name { of, name, line } in names {
        let what = match usize::try_from(*of).ok().and_then(&have) {
            Some(have) if *have == **name => continue,
            Some(have) => format!("the plan's {what} {of} is {name}, the trace's {have}"),
            None => format!("there is no {what} {of}"),
        };
        return Err(Error { line: *line, what });
    }
    Ok(())
}

/// Whether a range is of whole pages of another.
fn is_part(range: &Range<u64>, of: &Range<u64>) -> bool {
    let pages = range.start % PAGE == 0 && range.end % PAGE == 0;
    pages && of.start <= range.start && range.end <= of.end
}

/// Refuses a request that would harm: dropping what is needed, or touching memory
/// that is another tensor's then.
fn check_alive(workload: &Workload, kernel: u32, t: u32, what: What) -> Result<(), String> {
    let tensor = &workload.tensors[t as usize];
    let (first, last) = (tensor.first(), tensor.last());
    let after = (last + 1) % workload.kernels.len() as u32;
    let fine = match what {
        What::Free | What::Discard => !tensor.lasting && kernel == after,
        What::Allocate => kernel <= first && !tensor.lasting,
        What::Prefetch | What::Evict(_) | What::Copy(_) => {
            tensor.lasting || (first..=last).contains(&kernel)
        }
    };
    fine.then_some(()).ok_or_else(|| {
        format!(
            "tensor {t} ({}) lives in kernels {first} to {last}: no such request before {kernel}",
            tensor.name
        )
    })
}
