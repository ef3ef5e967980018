// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The module's parameters that change what a program meets.

use uvmrust_system::Module;

use super::{Line, State};

/// A parameter, and what it means to have it otherwise.
struct Parameter {
    name: &'static str,
    default: i64,
    otherwise: &'static str,
    /// Nobody wants that outside tests.
    bad: bool,
}

const fn parameter(
    name: &'static str,
    default: i64,
    otherwise: &'static str,
    bad: bool,
) -> Parameter {
    Parameter {
        name,
        default,
        otherwise,
        bad,
    }
}

/// Those of ours (docs/uapi.md, fault.md, prefetch.md, ssd.md), then NVIDIA's.
const PARAMETERS: &[Parameter] = &[
    parameter(
        "uvm_rust_stats",
        1,
        "nothing is counted, and uvmtop shows nothing",
        true,
    ),
    parameter(
        "uvm_rust_stats_public",
        0,
        "everybody sees what all processes do",
        false,
    ),
    parameter(
        "uvm_rust_fault",
        1,
        "faults are serviced by the loop in C",
        false,
    ),
    parameter(
        "uvm_rust_fault_turn_us",
        4000,
        "processes have other turns in the fault service",
        false,
    ),
    parameter(
        "uvm_rust_link_quantum",
        16,
        "another amount of a process's copies may be before those of others",
        false,
    ),
    parameter(
        "uvm_rust_evict",
        1,
        "NVIDIA's lists say what is evicted",
        false,
    ),
    parameter("uvm_rust_discard", 1, "the driver offers no discard", true),
    parameter(
        "uvm_rust_discard_granule",
        64,
        "parts of a block are discarded by other pieces",
        false,
    ),
    parameter(
        "uvm_rust_announce",
        1,
        "announced kernels are not taken",
        true,
    ),
    parameter(
        "uvm_rust_prefetch",
        0,
        "what announced kernels will access is prefetched",
        false,
    ),
    parameter(
        "uvm_rust_flash",
        0,
        "an SSD may stand behind the host's memory",
        false,
    ),
    parameter(
        "uvm_rust_test_unprepared",
        0,
        "for tests: programs get other programs' data",
        true,
    ),
    parameter(
        "uvm_rust_test_held",
        0,
        "for tests: memory cannot be evicted",
        true,
    ),
    parameter(
        "uvm_enable_builtin_tests",
        0,
        "for tests: any program may break the driver's invariants",
        true,
    ),
    parameter(
        "uvm_global_oversubscription",
        1,
        "managed memory cannot be larger than the GPU's",
        true,
    ),
    parameter(
        "uvm_fault_force_sysmem",
        0,
        "pages that fault stay in host memory",
        true,
    ),
    parameter(
        "uvm_disable_hmm",
        0,
        "memory of malloc is not on the GPU",
        false,
    ),
    parameter(
        "uvm_perf_prefetch_enable",
        1,
        "neighbours of a faulted page are not brought along",
        true,
    ),
];

/// What is not as it is by default.
pub(super) fn lines(module: &Module) -> Vec<Line> {
    let mut lines: Vec<_> = PARAMETERS
        .iter()
        .filter_map(|parameter| {
            let value = module.number(parameter.name)?;
            if value == parameter.default {
                return None;
            }
            let fix = parameter.bad.then(|| {
                format!(
                    "remove {}={value} from /etc/modprobe.d, and load the module again: {}",
                    parameter.name,
                    super::topics::RELOAD
                )
            });
            Some(Line {
                topic: "parameter",
                state: match parameter.bad {
                    true => State::Problem,
                    false => State::Note,
                },
                says: format!("{}={value}: {}", parameter.name, parameter.otherwise),
                fix,
            })
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line {
            topic: "parameters",
            state: State::Works,
            says: "all that matter are as they are by default".into(),
            fix: None,
        });
    }
    lines
}
