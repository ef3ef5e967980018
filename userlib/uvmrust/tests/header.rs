// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The numbers and layouts of `uapi.rs` are those of the kernel's header.

#![allow(clippy::unwrap_used)]

#[path = "../../../tests/skipped.rs"]
mod skip;

use std::path::Path;
use std::process::Command;

use skip::skipped;
use uvmrust::uapi;

#[test]
fn uapi_is_the_kernels() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header.c");
    let sizes = format!(
        "#include <stddef.h>\n#include \"uvm_rust_ioctl.h\"\n#define IS(a, b) _Static_assert((a) == (b), #a)\n\
         IS(UVM_RUST_GET_VERSION, {}); IS(UVM_RUST_DISCARD_BATCH, {}); IS(UVM_RUST_ANNOUNCE, {});\n\
         IS(UVM_RUST_FEATURE_DISCARD, {}); IS(UVM_RUST_FEATURE_EXEC_ID, {});\n\
         IS(UVM_RUST_DISCARD_EAGER, {}); IS(UVM_RUST_DISCARD_MAX_RANGES, {});\n\
         IS(sizeof(struct uvm_rust_version), {}); IS(sizeof(struct uvm_rust_discard_batch), {});\n\
         IS(sizeof(struct uvm_rust_discard_range), {}); IS(sizeof(struct uvm_rust_announce), {});\n\
         IS(offsetof(struct uvm_rust_discard_batch, first_failed), {});\n\
         IS(offsetof(struct uvm_rust_discard_batch, blocks_skipped), {});\n\
         IS(offsetof(struct uvm_rust_announce, exec_id), {});\n\
         IS(UVM_RUST_FLASH_MOVE, {}); IS(sizeof(struct uvm_rust_flash_move_range), {});\n\
         IS(offsetof(struct uvm_rust_flash_move_range, length), {});\n",
        uapi::GET_VERSION,
        uapi::DISCARD_BATCH,
        uapi::ANNOUNCE,
        uapi::FEATURE_DISCARD,
        uapi::FEATURE_EXEC_ID,
        uapi::DISCARD_EAGER,
        uapi::DISCARD_MAX_RANGES,
        size_of::<uapi::Version>(),
        size_of::<uapi::DiscardBatch>(),
        size_of::<uvmrust::Range>(),
        size_of::<uapi::Announce>(),
        std::mem::offset_of!(uapi::DiscardBatch, first_failed),
        std::mem::offset_of!(uapi::DiscardBatch, blocks_skipped),
        std::mem::offset_of!(uapi::Announce, exec_id),
        uapi::FLASH_MOVE,
        size_of::<uapi::FlashMove>(),
        std::mem::offset_of!(uapi::FlashMove, length),
    );
    is_c(&source, &sizes);
}

/// The same for the queue of moves.
#[test]
fn queue_is_the_kernels() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("queue.c");
    let mut text = String::from(
        "#include <stddef.h>\n#include \"uvm_rust_ioctl.h\"\n\
         #define IS(a, b) _Static_assert((a) == (b), #a)\n",
    );
    let mut is = |name: &str, value: u64| text.push_str(&format!("IS({name}, {value}ULL);\n"));
    is("UVM_RUST_FLASH_SUBMIT", uapi::FLASH_SUBMIT.into());
    is("UVM_RUST_FLASH_REAP", uapi::FLASH_REAP.into());
    is("UVM_RUST_FEATURE_FLASH_QUEUE", uapi::FEATURE_FLASH_QUEUE);
    is("UVM_RUST_FLASH_TO_HOST", uapi::FLASH_TO_HOST.into());
    is("UVM_RUST_FLASH_TO_GPU", uapi::FLASH_TO_GPU.into());
    is("UVM_RUST_FLASH_FROM_GPUS", uapi::FLASH_FROM_GPUS.into());
    macro_rules! layout {
        ($c:literal, $t:ty, $($field:ident),*) => {
            is(concat!("sizeof(struct ", $c, ")"), size_of::<$t>() as u64);
            $(is(
                concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
                std::mem::offset_of!($t, $field) as u64,
            );)*
        };
    }
    layout!(
        "uvm_rust_flash_request",
        uapi::FlashRequest,
        user_data,
        flags,
        gpu_uuid
    );
    layout!(
        "uvm_rust_flash_submit",
        uapi::FlashSubmit,
        requests,
        request_size,
        taken,
        queue
    );
    layout!(
        "uvm_rust_flash_completion",
        uapi::FlashCompletion,
        order,
        status
    );
    layout!(
        "uvm_rust_flash_reap",
        uapi::FlashReap,
        completions,
        wait_for,
        reaped,
        queue
    );
    is_c(&source, &text);
}

/// The same for the statistics, each field of which counts.
#[test]
fn statistics_are_the_kernels() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("statistics.c");
    let mut text = String::from(
        "#include <stddef.h>\n#include \"uvm_rust_ioctl.h\"\n\
         #define IS(a, b) _Static_assert((a) == (b), #a)\n",
    );
    let mut is = |name: &str, value: u64| text.push_str(&format!("IS({name}, {value}ULL);\n"));
    is("UVM_RUST_GET_STATS", uapi::GET_STATS.into());
    is("UVM_RUST_FLASH_GET_STATS", uapi::FLASH_GET_STATS.into());
    is("UVM_RUST_FEATURE_STATS", uapi::FEATURE_STATS);
    is("UVM_RUST_FEATURE_FLASH", uapi::FEATURE_FLASH);
    is("UVM_RUST_STATS_WHOLE_GPU", uapi::STATS_WHOLE_GPU.into());
    is("UVM_RUST_CAUSE_MAX", uapi::CAUSES as u64);
    is("UVM_RUST_QUEUE_MAX", uapi::QUEUES as u64);
    for (name, value) in [
        ("UVM_RUST_QUEUE_FREE", uapi::queue::FREE),
        ("UVM_RUST_QUEUE_UNUSED", uapi::queue::UNUSED),
        ("UVM_RUST_QUEUE_DISCARDED", uapi::queue::DISCARDED),
        ("UVM_RUST_QUEUE_USED", uapi::queue::USED),
        ("UVM_RUST_QUEUE_ADDRESS", uapi::queue::ADDRESS),
        ("UVM_RUST_CAUSE_FAULT", uapi::cause::FAULT),
        ("UVM_RUST_CAUSE_PREFETCH", uapi::cause::PREFETCH),
        ("UVM_RUST_CAUSE_EVICTION", uapi::cause::EVICTION),
        ("UVM_RUST_CAUSE_API", uapi::cause::API),
        ("UVM_RUST_CAUSE_ACCESS_COUNTER", uapi::cause::ACCESS_COUNTER),
    ] {
        is(name, value as u64);
    }
    macro_rules! layout {
        ($c:literal, $rust:ident: $($field:ident)*) => {
            is(concat!("sizeof(struct ", $c, ")"), size_of::<uapi::$rust>() as u64);
            $(is(
                concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
                std::mem::offset_of!(uapi::$rust, $field) as u64,
            );)*
        };
    }
    layout!("uvm_rust_traffic", Traffic: bytes pages);
    layout!("uvm_rust_stats", Stats: size flags gpu_uuid host_to_gpu gpu_to_host gpu_to_gpu
        faults duplicates batches replays evictions queued);
    layout!("uvm_rust_flash_stats", FlashStats: size flags attached slots free_slots extents pages
        pages_mine host_pages host_peak written spilled fetched relocated dropped write_errors
        read_errors lost_pages refused unwritten parked throttled rested_us
        fault_waits_most trimmed);
    is_c(&source, &text);
}

/// Whether a C compiler takes this text, with the kernel's header.
fn is_c(source: &Path, text: &str) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::write(source, text).unwrap();
    let built = Command::new("cc")
        .args(["-fsyntax-only", "-Wall", "-Werror", "-I"])
        .arg(top.join("include/uapi"))
        .arg(source)
        .output();
    let Ok(built) = built else {
        return skipped("no C compiler");
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
}

/// NVIDIA's structures have this size and these places for the status, by the
/// rules of C: checked by hand against drivers 550 and 595.
#[test]
fn nvidias_structures_keep_their_layout() {
    assert_eq!(size_of::<uapi::NativeDiscard>(), 32);
    assert_eq!(std::mem::offset_of!(uapi::NativeDiscard, status), 24);
    assert_eq!(size_of::<uapi::Migrate>(), 80);
    assert_eq!(std::mem::offset_of!(uapi::Migrate, semaphore), 40);
    assert_eq!(std::mem::offset_of!(uapi::Migrate, status), 72);
    assert_eq!(std::mem::offset_of!(uapi::Initialize, status), 8);
    assert_eq!(size_of::<uapi::RegisterGpu>(), 40);
    assert_eq!(std::mem::offset_of!(uapi::RegisterGpu, rm_ctrl_fd), 24);
    assert_eq!(std::mem::offset_of!(uapi::RegisterGpu, status), 36);
    assert_eq!(size_of::<uapi::UnregisterGpu>(), 20);
}
