// SPDX-License-Identifier: GPL-2.0 OR MIT

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
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
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
    std::fs::write(&source, sizes).unwrap();
    let built = Command::new("cc")
        .args(["-fsyntax-only", "-Wall", "-Werror", "-I"])
        .arg(top.join("include/uapi"))
        .arg(&source)
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
}
