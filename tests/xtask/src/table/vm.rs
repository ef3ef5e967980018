// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The parts that run in the VM, and what is built for them.

use std::path::Path;

use super::{programs, seed, versions, Amount, SHORT, SUITE};
use crate::part::Part;
use crate::setting::Setting;

/// The top half in interrupt context, a fault buffer of 16 entries that is nearly always full, memory that
/// RM has zeroed; see the parameters of vgpu.ko in docs/vgpu.md.
const ODD_GPU: &str = "VGPU_PARAMS=irq=hard fault_entries=16 pma_zero=1";
/// Half of the memory on a second NUMA node.
pub const TWO_NODES: &str = "QEMU_OPTS=-object memory-backend-ram,id=n0,size=1536M \
     -object memory-backend-ram,id=n1,size=1536M -numa node,nodeid=0,cpus=0,memdev=n0 \
     -numa node,nodeid=1,cpus=1,memdev=n1";
/// The VM is slower than any GPU: thrashing is only seen over a longer time. UVM throttles a processor for as long each time, so that
/// most of the tests' time is waiting for that.
const SLOW: &str = "UVM_PARAMS=uvm_perf_thrashing_lapse_usec=250000";
/// The modules anew, with a second for that: a page has to thrash still when it has been dropped, or evicted, and is next faulted on.
/// At 250 ms on a busy machine the test misses that the driver lacks its mend.
const SLOWER: &str = " && bash scripts/vm-load.sh unload && \
     UVM_ARGS=\"$UVM_ARGS uvm_perf_thrashing_lapse_usec=1000000\" bash scripts/vm-load.sh rust";
/// What a process may announce, and what moves in an order that no one can predict.
pub const PREFETCH: &str = "UVM_PARAMS=uvm_rust_prefetch=1 uvm_rust_preevict=4";
/// The programs for that.
pub const PREFETCH_SUITE: &str =
    "out/kselftest/uvm_announce && target/release/discard --only 'ahead of need' && target/release/uvm-dnn run deepum random-order";

/// All that is built for the VM and runs there.
pub fn parts(setting: &Setting, amount: Amount) -> Vec<Part> {
    let kernel = setting.or("KERNEL", "release");
    let mut parts = vec![
        Part::alone("build/kernel", &["scripts/kernel.sh", kernel]),
        modules("build/modules"),
        Part::beside("build/clippy", &["scripts/driver.sh", "clippy"]).judging(),
        programs(),
    ];
    parts.extend(shipped(setting));
    parts.extend(flash(setting, amount));
    parts.push(demo(setting));
    let release = source(setting);
    parts.extend(ladder("rust", release.as_deref()));
    parts.extend(ladder("upstream", release.as_deref()));
    parts.extend(suite("rust", setting, amount));
    parts.push(odd_gpu(setting, amount));
    parts.extend([
        Part::vm(
            "rust/ladder-ampere",
            &["DRIVER=rust", "GPU=ampere", "VM_TIMEOUT=900"],
            &format!("{SUITE}/ladder --only 'step 7' && {SUITE}/ladder --only 'step 14'"),
        ),
        Part::vm(
            "rust/workloads",
            &["DRIVER=rust", "VIDMEM=200M", "VM_TIMEOUT=900"],
            &format!("{SUITE}/workloads --only fir --times 2"),
        ),
        loops(setting, amount),
        Part::lane("rust/policies", &["tests/parts/policies.sh"]),
        shares(amount),
        Part::lane("rust/panic", &["tests/parts/panics.sh"]),
    ]);
    parts.extend(selftests(setting));
    parts.extend([
        Part::vm(
            "rust/prefetch",
            &["DRIVER=rust", "VIDMEM=64M", "VM_TIMEOUT=900", PREFETCH],
            PREFETCH_SUITE,
        ),
        // Without pre-eviction, so that sooner or later all that is there is expected.
        Part::vm(
            "rust/together",
            &[
                "DRIVER=rust",
                "VIDMEM=64M",
                "VM_TIMEOUT=600",
                "UVM_PARAMS=uvm_rust_prefetch=1",
            ],
            &format!("{SUITE}/policy --together"),
        ),
        Part::vm(
            "rust/choose",
            &[
                "DRIVER=rust",
                "VIDMEM=64M",
                "VM_TIMEOUT=600",
                "UVM_PARAMS=uvm_rust_choose=1 uvm_rust_prefetch=1",
            ],
            &format!("{SUITE}/policy --choose"),
        ),
        // A block of 2 MiB is copied for longer than the worker takes to begin the next.
        Part::vm(
            "rust/prefetch-overlap",
            &[
                "DRIVER=rust",
                "VIDMEM=64M",
                "VM_TIMEOUT=600",
                "VGPU_PARAMS=copy_mib_s=16",
                "UVM_PARAMS=uvm_rust_prefetch=1",
            ],
            &format!("{SUITE}/policy --overlap"),
        ),
    ]);
    parts
}

/// The modules that lanes load; vm.sh finds them in `UVM_BUILT`.
pub fn modules(name: &str) -> Part {
    Part::alone(
        name,
        &["tests/parts/modules.sh", "upstream", "rust", "vgpu"],
    )
}

/// The release that distributions ship now.
const SHIPPED: (&str, &str) = ("UVM_VERSION", "580");

/// Two lanes of that release, with all of ours, where its source is there. Whoever asks for a release has all lanes
/// on that one instead.
fn shipped(setting: &Setting) -> Vec<Part> {
    let asked = setting.get("UVM_VERSION").or(setting.get("UVM_SRC"));
    if asked.is_some() {
        return Vec::new();
    }
    let (name, version) = SHIPPED;
    let release = format!("{name}={version}");
    let parts = [
        Part::alone(
            &format!("{version}/modules"),
            &["scripts/driver.sh", "rust", "vgpu"],
        ),
        Part::vm(
            &format!("{version}/discard"),
            &["DRIVER=rust", "VIDMEM=128M", "VM_TIMEOUT=1500"],
            &format!("{SUITE}/discard"),
        ),
        Part::vm(
            &format!("{version}/kselftest"),
            &["DRIVER=rust", "VIDMEM=64M", "VM_TIMEOUT=900"],
            "make --silent -C tests/kselftest run",
        ),
    ];
    let part = |part: Part| part.with(&[&release]).unless(shipped_lacks);
    parts.into_iter().map(part).collect()
}

/// Says why that release's source is not here.
fn shipped_lacks(setting: &Setting) -> Option<String> {
    let (name, version) = SHIPPED;
    let setting = setting.with(&[(name.to_owned(), version.to_owned())]);
    versions::refusal(&setting, &["scripts/upstream.sh"])
}

/// The demo, on the kernel of the distribution: Rust without CONFIG_RUST, and modules loaded as they are
/// on a machine with a GPU.
pub fn demo(setting: &Setting) -> Part {
    Part::lane("demo", &["scripts/demo.sh"]).with(&[&packaged(setting)])
}

/// KERNEL= of the distribution's, unless another is asked for.
fn packaged(setting: &Setting) -> String {
    let stock = || {
        setting
            .said(&["scripts/stock.sh", "--default"])
            .unwrap_or_default()
    };
    let kernel = setting.get("KERNEL").map_or_else(stock, str::to_owned);
    format!("KERNEL={}", kernel.trim())
}

/// The same fault storms under both loops and each replay policy; `STORMS` of them.
fn loops(setting: &Setting, amount: Amount) -> Part {
    let loops = amount.loops.to_string();
    let mut command = vec![
        "tests/parts/loops.sh",
        "--storms",
        setting.or("STORMS", &loops),
    ];
    if let Some(seed) = setting.get("SEED") {
        command.extend(["--seed", seed]);
    }
    Part::lane("rust/loops", &command)
}

/// How processes share a GPU: less of each than at length, under the same bars.
pub fn shares(amount: Amount) -> Part {
    let all = ["tests/parts/shares.sh", "--short"];
    Part::lane("rust/shares", &all[..1 + usize::from(amount == SHORT)])
}

/// The odd GPU; and, at length, NVIDIA's long forms of the tests of memory.
pub fn odd_gpu(setting: &Setting, amount: Amount) -> Part {
    let Amount { odd_rounds, .. } = amount;
    let long = if amount == SHORT {
        String::new()
    } else {
        format!(" && {SUITE}/ladder --full --only 'step 10'")
    };
    let seed = seed(setting);
    Part::vm(
        "rust/odd-gpu",
        &[
            "DRIVER=rust",
            "VIDMEM=128M",
            ODD_GPU,
            "VM_CPU=max",
            "VM_TIMEOUT=1500",
        ],
        &format!(
            "{SUITE}/contend --rounds {odd_rounds}{seed} && {SUITE}/ladder --only 'step 14' && \
             {SUITE}/hazards --only injected && {SUITE}/discard --only 5.7{long}"
        ),
    )
}

/// The rows of the ladder for GPUs that reach each other's memory.
const PEERS: &str = "target/release/ladder --only 'step 19: peers'";

/// Eight GPUs that reach each other's memory over PCIe; four of another kind do so over NVLink.
fn peers(driver: &str) -> Vec<Part> {
    let of = &format!("DRIVER={driver}");
    let eight = Part::vm(
        &format!("{driver}/ladder-eight-gpus"),
        &[of, "GPUS=8", "VIDMEM=32M", "VM_TIMEOUT=900"],
        PEERS,
    );
    let nvlink = Part::vm(
        &format!("{driver}/ladder-nvlink"),
        &[
            of,
            "GPUS=4",
            "GPU=ampere",
            "VIDMEM=32M",
            "VGPU_PARAMS=link=nvlink",
            "VM_TIMEOUT=900",
        ],
        PEERS,
    );
    vec![eight, nvlink]
}

/// NVIDIA's tests on a driver, in the steps that each kind of machine is for. `release`: the folder of its source, if one is named.
fn ladder(driver: &str, release: Option<&str>) -> Vec<Part> {
    let of = &format!("DRIVER={driver}");
    let mut parts = vec![
        Part::vm(
            &format!("{driver}/ladder"),
            &[of, "VM_TIMEOUT=1500"],
            &format!("{SUITE}/ladder"),
        ),
        Part::vm(
            &format!("{driver}/ladder-volta"),
            &[
                of,
                "GPU=volta",
                "VM_TIMEOUT=900",
                "UVM_PARAMS=uvm_perf_access_counter_mimc_migration_enable=1",
            ],
            &volta_ladder(release),
        )
        .unless(lacks_volta),
        Part::vm(
            &format!("{driver}/ladder-two-gpus"),
            &two_gpus(of),
            &two_gpus_ladder(),
        ),
        Part::vm(
            &format!("{driver}/ladder-hopper"),
            &[
                of,
                "GPU=hopper",
                "VGPU_ORDER=adversarial",
                "VGPU_SEED=1",
                "VM_TIMEOUT=1500",
            ],
            &hopper_ladder(),
        ),
    ];
    parts.extend(peers(driver));
    parts
}

/// The steps in which Hopper's own methods, page tables and faults are at work.
pub fn hopper_ladder() -> String {
    let steps = [6, 7, 8, 9, 13, 14, 17].map(|n| format!("{SUITE}/ladder --only 'step {n}'"));
    steps.join(" && ")
}

/// The source of the release whose tests are asked for, if one is named.
fn source(setting: &Setting) -> Option<String> {
    setting.get("UVM_VERSION").or(setting.get("UVM_SRC"))?;
    Some(setting.said(&["scripts/upstream.sh"])?.trim().to_owned())
}

/// The steps that are for Volta, of the release in a folder. One test is gone from 570 on, and a run of nothing but
/// skipped tests fails.
pub fn volta_ladder(folder: Option<&str>) -> String {
    let steps = format!("{SUITE}/ladder --only 'step 14' && {SUITE}/ladder --only 'step 18'");
    let tests = folder.map(|folder| Path::new(folder).join("nvidia-uvm/uvm_test_ioctl.h"));
    let tests = tests.and_then(|header| std::fs::read_to_string(header).ok());
    match tests {
        Some(tests) if !tests.contains("UVM_TEST_PMM_SYSMEM") => steps,
        _ => format!("{steps} && {SUITE}/ladder --only PMM_SYSMEM"),
    }
}

/// Says that the release whose tests are asked for drives no Volta.
fn lacks_volta(setting: &Setting) -> Option<String> {
    without_volta(Path::new(&source(setting)?))
}

/// The same of the release in a folder, by the source of its `nvidia-uvm`.
pub fn without_volta(folder: &Path) -> Option<String> {
    let uvm = folder.join("nvidia-uvm");
    let lacks = uvm.is_dir() && !uvm.join("uvm_volta.c").exists();
    lacks.then(|| "this release of NVIDIA's drives no Volta".to_owned())
}

/// A machine with two GPUs and two NUMA nodes.
pub fn two_gpus(driver: &str) -> [&str; 6] {
    [
        driver,
        "GPUS=2",
        "VM_MEM=3G",
        "VM_CPUS=2",
        TWO_NODES,
        "VM_TIMEOUT=900",
    ]
}

/// The steps of the ladder that want that machine.
pub fn two_gpus_ladder() -> String {
    format!("{SUITE}/ladder --only 'step 19' && {SUITE}/ladder --only 'step 20'")
}

/// Our own tests of faults and of what goes wrong. The baseline passes them too: they ask for what NVIDIA's
/// driver does. Its storms are NVIDIA's to pass; there a look will do.
pub fn suite(driver: &str, setting: &Setting, amount: Amount) -> Vec<Part> {
    let of = &format!("DRIVER={driver}");
    let ours = driver == "rust";
    let Amount {
        times,
        rounds,
        fuzz,
        ..
    } = amount;
    let storms = if ours { times } else { times / 5 };
    let vidmem = if ours { "VIDMEM=128M" } else { "VIDMEM=256M" };
    let of_discard = |name: &str| format!(" && {SUITE}/discard --only '{name}'");
    let pinned = match ours {
        true => {
            let pinned = of_discard("by thrashing") + &of_discard("where it was pinned");
            pinned + SLOWER + &of_discard("resident nowhere")
        }
        false => String::new(),
    };
    let seed = seed(setting);
    let vm = |name: &str, settings: &[&str], command: String| {
        Part::vm(
            &format!("{driver}/{name}"),
            settings,
            &format!("{SUITE}/{command}"),
        )
    };
    let mut parts = vec![vm(
        "contend",
        &[of, "VIDMEM=64M", "VM_TIMEOUT=1200"],
        format!("contend --rounds {rounds}{seed}"),
    )];
    parts.extend(random(driver, setting, amount));
    parts.extend([
        vm(
            "storms",
            &[of, "VIDMEM=64M", "VM_TIMEOUT=1800"],
            format!("storms --times {storms}"),
        ),
        vm(
            "hazards",
            &[of, "VIDMEM=64M", "VM_TIMEOUT=900"],
            format!("hazards --fuzz {fuzz}"),
        ),
        vm(
            "thrashing",
            &[of, vidmem, SLOW, "VM_TIMEOUT=600"],
            format!("ladder --only 'step 16'{pinned}"),
        ),
    ]);
    parts
}

/// The random program. The unmodified driver oopses when it evicts part of a block of ordinary memory, so
/// there managed memory is oversubscribed, and ordinary memory is not; and it loses writes to
/// read-duplicated pages (docs/fixes.md).
fn random(driver: &str, setting: &Setting, amount: Amount) -> Vec<Part> {
    let of = format!("DRIVER={driver}");
    let ops: u32 = setting
        .get("OPS")
        .and_then(|n| n.parse().ok())
        .unwrap_or(amount.ops);
    let seed = seed(setting);
    let vm = |name: &str, command: String| {
        let settings = [of.as_str(), "VIDMEM=64M", "VM_TIMEOUT=1800"];
        Part::vm(
            &format!("{driver}/{name}"),
            &settings,
            &format!("{SUITE}/random {command}"),
        )
    };
    if driver == "rust" {
        return vec![vm("random", format!("--ops {ops}{seed}"))];
    }
    let tenth = ops / 10;
    vec![
        vm(
            "random-managed",
            format!("--ops {ops}{seed} --no-read-duplication --memory managed"),
        ),
        vm(
            "random-no-eviction",
            format!("--ops {tenth}{seed} --no-read-duplication --no-eviction"),
        ),
    ]
}

/// Several random programs beside each other, with the SSD tier and the correlation prefetcher on; `ops` operations of all.
pub fn mix(name: &str, settings: &[&str], ops: u32, setting: &Setting) -> Part {
    let settings = [&["VIDMEM=64M", "VM_TIMEOUT=1200", PREFETCH][..], settings].concat();
    let seed = seed(setting);
    let command = format!("{SUITE}/mix --device $SSD --ops {ops}{seed}");
    ssd(name, &settings, &command)
}

/// `make kselftest`: the selftests in C, and a test for each sentence on discard (docs/testing.md says
/// which), with one GPU and with two.
pub fn selftests(setting: &Setting) -> Vec<Part> {
    let discard = format!("{SUITE}/discard");
    let library = format!("{SUITE}/library");
    let limits = "UVM_PARAMS=uvm_rust_prefetch_memory=1 uvm_rust_stats_public=1 uvm_rust_flash=1";
    let rust = "DRIVER=rust";
    vec![
        Part::vm(
            "rust/kselftest",
            &[rust, "VIDMEM=64M", "VM_TIMEOUT=900"],
            "make --silent -C tests/kselftest run",
        ),
        Part::vm(
            "rust/limits",
            &[rust, "VIDMEM=64M", limits, "VM_TIMEOUT=900"],
            "out/kselftest/uvm_announce && out/kselftest/uvm_privacy && out/kselftest/uvm_calls",
        ),
        // The driver does nothing afterwards, but goes.
        Part::vm(
            "rust/fatal",
            &[rust, "VIDMEM=64M"],
            "out/kselftest/uvm_fatal",
        ),
        // The project's own kernel has no tracefs.
        Part::vm(
            "rust/trace",
            &[
                rust,
                &packaged(setting),
                "VIDMEM=64M",
                "UVM_PARAMS=uvm_rust_flash=1",
            ],
            "out/kselftest/uvm_trace",
        ),
        Part::vm(
            "rust/discard",
            &[rust, "VIDMEM=128M", "VM_TIMEOUT=1500"],
            &discard,
        ),
        Part::vm(
            "rust/discard-two-gpus",
            &[rust, "GPUS=2", "VIDMEM=128M", "VM_TIMEOUT=1800"],
            &format!("out/kselftest/uvm_fdinfo && {discard}"),
        ),
        Part::vm(
            "rust/discard-c-lists",
            &[
                rust,
                "VIDMEM=128M",
                "UVM_PARAMS=uvm_rust_evict=0",
                "VM_TIMEOUT=900",
            ],
            &format!("{discard} --only 5.3 && {discard} --only 5.7"),
        ),
        Part::vm(
            "rust/discard-leaks",
            &[rust, "UVM_PARAMS=uvm_rust_test_unprepared=1"],
            &format!("{discard} --leaks"),
        ),
        Part::vm("rust/library", &[rust, "VIDMEM=64M"], &library),
        // There it says that it cannot, in C as in Rust.
        Part::vm(
            "upstream/library",
            &["DRIVER=upstream", "VIDMEM=64M"],
            &format!("{library} && out/kselftest/uvm_library"),
        ),
    ]
}

/// A command in the VM with the devices of ssd.sh.
pub fn ssd(name: &str, settings: &[&str], command: &str) -> Part {
    Part::lane(name, &["scripts/ssd.sh", command]).with(settings)
}

/// The suite of the SSD tier.
pub fn flash_suite(setting: &Setting, amount: Amount) -> String {
    let (fuzz, seed) = (amount.fuzz, seed(setting));
    format!("{SUITE}/flash --bad-device $BAD_SSD --ops 500 --fuzz {fuzz}{seed}")
}

/// The suite of the SSD tier in `make test`.
pub fn flash_lane(setting: &Setting, amount: Amount) -> Part {
    ssd(
        "rust/flash",
        &["VM_TIMEOUT=1500"],
        &flash_suite(setting, amount),
    )
}

/// Plans of the simulator's for a step of BERT, carried out by the driver.
pub const PLANS: [&str; 3] = [
    "bash",
    "-c",
    "rm -f out/plans.json && scripts/plans.sh out/plans.json bert-base",
];

/// The SSD tier: the suite, and the programs of `make ssd-demo`.
pub fn flash(setting: &Setting, amount: Amount) -> Vec<Part> {
    let demo = format!(
        "{SUITE}/flash --demo out/ssd-short.json --ops 300{}",
        seed(setting)
    );
    vec![
        flash_lane(setting, amount),
        ssd(
            "rust/flash-two-gpus",
            &["GPUS=2", "VM_TIMEOUT=900"],
            &format!("{SUITE}/flash --only 'two GPUs' && {SUITE}/hazards --only 'two GPUs'"),
        ),
        ssd("rust/flash-demo", &["VM_TIMEOUT=1500"], &demo),
        overlap("rust/overlap", "nvme"),
        Part::lane("rust/plans", &PLANS).with(&["VM_TIMEOUT=1500"]),
    ]
}

/// How reads and copies overlap, on one device of `scripts/overlap.sh`. It waits for a slow device most of the time.
pub fn overlap(name: &str, device: &str) -> Part {
    let report = format!("out/overlap-{device}.json");
    Part::lane(name, &["scripts/overlap.sh", &report]).with(&[
        &format!("DEVICE={device}"),
        "MIB=64",
        "VM_TIMEOUT=600",
    ])
}
