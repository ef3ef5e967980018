// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The policies, each from its paper.

mod chosen;
mod deepum;
mod driver;
mod planned;
mod uvm;

pub use chosen::Chosen;
pub use deepum::DeepUm;
pub use deepum::Parts;
pub use driver::Driver;
pub use planned::Planned;
pub use uvm::prefetch_ahead;
pub use uvm::BaseUvm;
pub use uvm::Discard;
pub use uvm::Ideal;

use std::collections::hash_map::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;

use uvm_policy::prefetch::Config;
use uvmsim_g10::Design;
use uvmsim_machine::Machine;

use crate::plan::autovm;
use crate::plan::best;
use crate::plan::best::Until;
use crate::plan::flashneuron;
use crate::plan::g10;
use crate::plan::most;
use crate::plan::recompute;
use crate::plan::recompute::Made;
use crate::plan::teraio;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policy::Tier;
use crate::workload::Kernel;
use crate::Layout;
use crate::Policy;
use crate::RunError;
use crate::Workload;

/// Every policy under which each kernel runs once.
pub const NAMES: &[&str] = &[
    "base-uvm",
    "uvm-opt",
    "uvm-discard",
    "uvm-discard-lazy",
    "autovm",
    "autovm-late",
    "flashneuron",
    "deepum",
    "g10-gds",
    "g10-host",
    "g10",
    "most",
    "teraio",
    "best",
    "ideal",
];

/// Policies that are a plan, by others: `best` tries them all.
pub const PLANNERS: &[&str] = &[
    "most",
    "g10",
    "g10-gds",
    "g10-host",
    "teraio",
    "autovm",
    "autovm-late",
    "flashneuron",
];

/// Policies that make no plan but decide as the step runs: `best` is behind none of these either.
pub const REACTIVE: &[&str] = &[
    "deepum",
    "uvm-discard-lazy",
    "uvm-discard",
    "uvm-opt",
    "base-uvm",
];

/// Those of [`REACTIVE`] that get faster from step to step.
pub const LEARNING: &[&str] = &["deepum"];

/// Those of [`PLANNERS`] whose runtime copies without UVM: free of faults, so that the same plan may
/// come to less under them than it does under UVM, where `best` is behind none of these plans.
pub const FAULTLESS: &[&str] = &["g10-gds", "g10-host", "teraio", "flashneuron"];

/// Policies under which kernels run again; nobody's unless asked for.
pub const RECOMPUTING: &[&str] = &["checkpoint", "best-recompute"];

/// The policy that picks among others by what the driver sees; nobody's unless asked for. Its kernels are announced.
pub const CHOOSER: &str = "chooser";

/// Share of GPU memory that the papers' planners fill.
const FILL: f64 = 0.97;

/// That of G10's planner, as in its artifact, which allocates at the first use.
const G10_FILL: f64 = 0.99;

/// The plan that policy `name` makes, if it is one that plans; of `best`, one of whole tensors that move between
/// kernels ([`Until::coarse`]).
///
/// # Errors
/// It makes no plans, or cannot run this workload.
pub fn plan(
    name: &str,
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
) -> Result<Plan, RunError> {
    let profile = || Profile::new(machine, workload, layout, FILL, 1);
    let g10 = |host, design| {
        let profile = Profile::new(machine, workload, layout, G10_FILL, 0);
        g10::plan(&profile, host, design)
    };
    let host = machine.host_mem > 0;
    Ok(match name {
        "autovm" => autovm::plan(&profile(), autovm::Options::default()),
        "autovm-late" => {
            let options = autovm::Options {
                known_times: true,
                ..autovm::Options::default()
            };
            autovm::plan(&profile(), options)
        }
        "flashneuron" => flashneuron::plan(&profile())?,
        "g10-gds" if machine.ssd_write <= 0.0 => {
            return Err(RunError::Infeasible("g10-gds needs an SSD".into()));
        }
        "g10-gds" => g10(false, Design::Gds)?,
        "g10-host" => g10(host, Design::Host)?,
        "g10" => g10(host, Design::G10)?,
        "most" => most::plan(&profile(), host),
        "teraio" => teraio::plan(&Profile::new(machine, workload, layout, FILL, 0)),
        "best" => best::find(machine, workload, layout, Until::NEVER.coarse())?.plan,
        _ => return Err(RunError::Infeasible(format!("{name} makes no plan"))),
    })
}

/// The step and the plan that policy `name` makes of `workload`, where kernels may run again.
///
/// # Errors
/// There is no such policy, or it cannot run this workload.
pub fn recompute(
    name: &str,
    machine: &Machine,
    workload: &Workload,
    until: Until<'_>,
) -> Result<Made, RunError> {
    match name {
        "checkpoint" => recompute::checkpoint(machine, workload, until),
        "best-recompute" => recompute::plan(machine, workload, until),
        _ => Err(RunError::Infeasible(format!("{name} recomputes nothing"))),
    }
}

/// What `best` has found, as a policy: its plan, or a policy without one that is faster.
///
/// # Errors
/// The faster one could not be made a second time.
pub fn of_best(
    found: best::Found,
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
) -> Result<Box<dyn Policy>, RunError> {
    match found.faster {
        Some((name, _)) => make(name, machine, workload, layout),
        None => Ok(Box::new(Planned::new("best", found.plan, Tier::Host))),
    }
}

/// The policy called `name`, with its plan for `workload` if it is one that
/// plans.
///
/// # Errors
/// There is no such policy, or it cannot run this workload.
pub fn make(
    name: &str,
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
) -> Result<Box<dyn Policy>, RunError> {
    let plan = || plan(name, machine, workload, layout);
    Ok(match name {
        "base-uvm" => Box::new(BaseUvm),
        "uvm-opt" => Box::new(Discard::OPT),
        "uvm-discard" => Box::new(Discard::EAGER),
        "uvm-discard-lazy" => Box::new(Discard::LAZY),
        "ideal" => Box::new(Ideal),
        "best" => {
            let found = best::find(machine, workload, layout, Until::NEVER)?;
            of_best(found, machine, workload, layout)?
        }
        CHOOSER => {
            let (ids, chunks) = (execution_ids(workload, layout), machine.chunks());
            Box::new(Chosen::new(ids, true, chunks, deepum_config())?)
        }
        "deepum" => {
            let ids = execution_ids(workload, layout);
            Box::new(DeepUm::new(ids, deepum_config())?)
        }
        _ => match NAMES.iter().find(|n| **n == name) {
            Some(name) if FAULTLESS.contains(name) => {
                let to = [Tier::Ssd, Tier::Host][usize::from(*name == "g10-host")];
                Box::new(Planned::faultless(name, plan()?, to))
            }
            Some(name) => Box::new(Planned::new(name, plan()?, Tier::Host)),
            None => {
                let names = NAMES.join(", ");
                let what = format!("no policy is called `{name}`; there are {names}");
                return Err(RunError::Infeasible(what));
            }
        },
    })
}

/// Execution IDs as DeepUM's runtime makes them (section 3.1): a hash of the
/// kernel's name and arguments. Layers of the same shape launch the same kernel;
/// their arguments differ in the addresses of their tensors. The layer's name is
/// ours and no argument.
pub fn execution_ids(workload: &Workload, layout: &Layout) -> Vec<u64> {
    let id = |kernel: &Kernel| {
        let mut hash = DefaultHasher::new();
        kernel.name.rsplit('.').next().hash(&mut hash);
        for u in &kernel.uses {
            layout.addresses[u.tensor as usize].hash(&mut hash);
            workload.tensors[u.tensor as usize].bytes.hash(&mut hash);
        }
        hash.finish()
    };
    workload.kernels.iter().map(id).collect()
}

/// The paper's tables (2048 rows, two ways, four successors, N = 32), for a GPU of
/// any size: what the policy `deepum` has.
pub fn deepum_config() -> Config {
    Config {
        memory_limit: 1 << 30,
        ..Config::default()
    }
}
