// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What `make test` leaves out: `make test-extra` and `make test-debug`.

use super::{at_least, programs, rustc, seed, versions, vm, Amount, SUITE};
use crate::part::Part;
use crate::setting::Setting;

/// Our own tests at length, and on the unmodified driver; NVIDIA's long forms of its tests; `make record-demo`;
/// the versions besides ours.
///
/// Fixes are taken out, too, and have to be missed: each mend of NVIDIA's driver, and seven of the user
/// library. Upstream's use after free is here because it ends differently from run to run.
///
/// # Errors
///
/// Fails with a sentence if nobody can say which bugs the base has.
pub fn extra(setting: &Setting, amount: Amount) -> Result<Vec<Part>, String> {
    let mut parts = versions::parts(setting);
    // A release build of its own.
    parts.push(Part::alone("host/wheel", &["scripts/wheel.sh", "uvmrust"]).unless(wheel_lacks));
    let fixes = "cargo test -p uvmrust-random --release --test random -- \
         --ignored --exact each_fix_taken_out_is_found --nocapture";
    let fixes: Vec<&str> = fixes.split_whitespace().collect();
    let debug = "KERNEL=debug";
    parts.extend([
        Part::alone("extra/fixes-taken-out", &fixes),
        Part::alone("extra/explore", &["scripts/explore.sh"]).with(&["UVM_TEST_SEED=new"]),
        Part::alone("build/modules", &["scripts/driver.sh"]),
        Part::alone("build/debug-kernel", &["scripts/kernel.sh", "debug"]),
        Part::alone(
            "build/debug-modules",
            &["scripts/driver.sh", "upstream", "vgpu"],
        )
        .with(&[debug]),
        programs(),
        Part::lane("vm/stuck", &["tests/parts/stuck.sh"]),
    ]);
    parts.extend(fixes_taken_out(setting)?);
    parts.push(Part::alone(
        "upstream/channel-sanity",
        &["tests/parts/channel-sanity.sh"],
    ));
    parts.extend(vm::suite("rust", setting, amount));
    parts.extend(vm::suite("upstream", setting, amount));
    parts.push(vm::flash_lane(setting, amount));
    parts.push(vm::overlap("rust/overlap-delay", "delay"));
    parts.push(vm::mix("rust/mix", &["VM_TIMEOUT=6000"], 20_000, setting));
    parts.push(vm::odd_gpu(setting, amount));
    parts.push(vm::shares(amount));
    parts.push(record("rust/record", "scripts/record-demo.sh", setting));
    parts.push(record(
        "rust/record-faults",
        "tests/parts/record-faults.sh",
        setting,
    ));
    parts.push(Part::vm(
        "rust/ladder-full",
        &["DRIVER=rust", "VM_TIMEOUT=6000"],
        &format!("{SUITE}/ladder --full"),
    ));
    for driver in ["rust", "upstream"] {
        parts.push(adversarial(driver, setting));
        parts.push(hopper(driver, setting));
    }
    Ok(parts)
}

/// The ladder where a seed says in which order channels and kernels run.
fn adversarial(driver: &str, setting: &Setting) -> Part {
    let seed = format!("VGPU_SEED={}", setting.or("VGPU_SEED", "1"));
    let of = format!("DRIVER={driver}");
    Part::vm(
        &format!("{driver}/ladder-adversarial"),
        &[&of, "VGPU_ORDER=adversarial", &seed, "VM_TIMEOUT=3000"],
        &format!("{SUITE}/ladder"),
    )
}

/// The same on Hopper, whose page tables and methods are others.
fn hopper(driver: &str, setting: &Setting) -> Part {
    let part = adversarial(driver, setting).with(&["GPU=hopper"]);
    Part {
        name: format!("{driver}/ladder-hopper-adversarial"),
        ..part
    }
}

/// A program that uvmrun records, and runs with its plan.
fn record(name: &str, script: &str, setting: &Setting) -> Part {
    let version = rustc(setting);
    if at_least("1.88.0", &version) {
        return Part::lane(name, &[script]);
    }
    let why =
        format!("rustc {version} has no naked functions yet, of which the preload is made: 1.88");
    Part::skipped(name, why)
}

fn wheel_lacks(setting: &Setting) -> Option<String> {
    let lacks = setting
        .said(&["tests/parts/wheel-lacks.sh"])
        .unwrap_or_default();
    let lacks = lacks.trim();
    (!lacks.is_empty()).then(|| lacks.to_owned())
}

/// The mends of NVIDIA's driver are lost one by one: those whose bug is there on the base that is built for.
fn fixes_taken_out(setting: &Setting) -> Result<Vec<Part>, String> {
    let bugs = setting.said(&["tests/parts/without.sh", "--list"]);
    let bugs = bugs.ok_or("test.sh: tests/parts/without.sh cannot tell which bugs the base has")?;
    Ok(bugs.lines().filter_map(fix_taken_out).collect())
}

/// The lane for a line "NAME|SWITCH|WANT|TEST".
fn fix_taken_out(line: &str) -> Option<Part> {
    let fields: Vec<&str> = line.splitn(4, '|').collect();
    let [name, switch, want, test] = fields[..] else {
        return None;
    };
    let lane = Part::lane(
        &format!("fixes/{name}"),
        &["tests/parts/without.sh", name, switch, test],
    );
    // What does not show each time in the release kernel does so in the debug kernel.
    Some(if want == "sometimes" {
        lane.with(&["KERNEL=debug"])
    } else {
        lane
    })
}

/// The same under a kernel that looks for what goes wrong; slower by several times.
pub fn debug(setting: &Setting, amount: Amount) -> Vec<Part> {
    let seed = seed(setting);
    let ops = setting.or("OPS", "100000");
    let flash = vm::flash_suite(setting, amount);
    // The longest first. What is left when the modules are gone, kmemleak finds.
    let scan = "bash scripts/vm-kmemleak.sh";
    let then = format!("bash scripts/vm-load.sh unload && {scan}");
    // kmemleak takes most of the time, and finds nothing unless it is asked to scan: the long runs are
    // without it, short ones with it.
    let without = "VM_KOPTS=kmemleak=off";
    let lane = |name: &str, settings: &[&str], command: String| {
        let settings = [&["KERNEL=debug", "VM_MEM=4G"][..], settings].concat();
        Part::vm(&format!("debug/{name}"), &settings, &command)
    };
    let small = "VIDMEM=64M";
    let on_ssd = |name: &str, settings: &[&str], command: String| {
        let settings = [&["KERNEL=debug", "VM_MEM=4G"][..], settings].concat();
        vm::ssd(&format!("debug/{name}"), &settings, &command)
    };
    vec![
        Part::alone("build/debug-kernel", &["scripts/kernel.sh", "debug"]),
        vm::modules("build/debug-modules").with(&["KERNEL=debug"]),
        programs(),
        lane(
            "storms",
            &[small, "VM_TIMEOUT=6000"],
            format!("{SUITE}/storms --times 30 && {scan}"),
        ),
        lane(
            "random",
            &[without, small, "VM_TIMEOUT=14000"],
            format!("{SUITE}/random --ops {ops}{seed}"),
        ),
        lane(
            "random-kmemleak",
            &[small, "VM_TIMEOUT=3000"],
            format!("{SUITE}/random --ops 2000{seed} && {then}"),
        ),
        lane(
            "hazards",
            &[without, small, "VM_TIMEOUT=6000"],
            format!("{SUITE}/hazards"),
        ),
        // What stops half-way; the other tests of what is held are about time, which kmemleak takes.
        lane(
            "hazards-kmemleak",
            &[small, "VM_TIMEOUT=3000"],
            format!(
                "{SUITE}/hazards --only 'in vain' && {SUITE}/hazards --only fails && \
                 {SUITE}/hazards --only stray && {then}"
            ),
        ),
        lane(
            "contend",
            &[without, small, "VM_TIMEOUT=6000"],
            format!("{SUITE}/contend --rounds 10{seed}"),
        ),
        lane(
            "ladder",
            &[without, small, "VM_TIMEOUT=4000"],
            format!("{SUITE}/ladder"),
        ),
        lane(
            "discard",
            &[without, "VIDMEM=128M", "VM_TIMEOUT=4000"],
            format!("{SUITE}/discard"),
        ),
        lane(
            "prefetch",
            &[small, "VM_TIMEOUT=3000", vm::PREFETCH],
            vm::PREFETCH_SUITE.to_owned(),
        ),
        lane(
            "kselftest",
            &[without, small, "VM_TIMEOUT=6000"],
            "make --silent -C tests/kselftest run".to_owned(),
        ),
        lane(
            "library",
            &[without, small, "VM_TIMEOUT=4000"],
            format!("{SUITE}/library"),
        ),
        Part::lane("debug/loops", &["tests/parts/loops.sh", "--storms", "10"]).with(&[
            "KERNEL=debug",
            "VM_MEM=4G",
            without,
            "VM_TIMEOUT=6000",
        ]),
        Part::lane("debug/plans", &vm::PLANS).with(&[
            "KERNEL=debug",
            "VM_MEM=4G",
            without,
            "VM_TIMEOUT=6000",
        ]),
        vm::mix(
            "debug/mix",
            &["KERNEL=debug", "VM_MEM=4G", without, "VM_TIMEOUT=14000"],
            ops.parse().unwrap_or(100_000),
            setting,
        ),
        on_ssd("flash", &[without, "VM_TIMEOUT=4000"], flash),
        on_ssd(
            "flash-kmemleak",
            &["VM_TIMEOUT=3000"],
            format!("{SUITE}/flash --only 'random program' --ops 300{seed} && {then}"),
        ),
    ]
}
