// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Every number, size and offset of the generated module is what a C compiler makes of the headers. It needs no
//! bindgen, which `scripts/bindings.sh --check` does to compare more than the headers' sum.

#![allow(clippy::unwrap_used)]

#[path = "../../../tests/skipped.rs"]
mod skip;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use skip::skipped;

const BINDINGS: &str = include_str!("../src/bindings.rs");

/// What stands between `before` and `after` in a text, if both are there.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?
        .1
        .split_once(after)
        .map(|cut| cut.0)
}

/// What C has to say of the module: an assertion for each constant, structure and field. And how many of each.
fn asserted(bindings: &str) -> (String, [usize; 3]) {
    let (mut c, mut counts) = (String::new(), [0; 3]);
    for line in bindings.lines() {
        if let Some((name, rest)) =
            (line.strip_prefix("pub const ")).and_then(|rest| rest.split_once(": "))
        {
            let value = between(rest, " = ", ";").unwrap();
            let value = value.strip_suffix("u8").unwrap_or(value);
            let _ = writeln!(c, "_Static_assert(({name}) == {value}, \"{name}\");");
            counts[0] += 1;
        }
    }
    // An assertion of bindgen's may take several lines.
    let joined: String = bindings.split_whitespace().collect();
    for part in joined.split("[\"").skip(1) {
        let Some(value) = between(part, "-", "usize]") else {
            continue;
        };
        if let Some(name) = between(part, "Sizeof", "\"]") {
            let _ = writeln!(
                c,
                "_Static_assert(sizeof(struct {name}) == {value}, \"{name}\");"
            );
            counts[1] += 1;
        } else if let Some((of, field)) =
            between(part, "Offsetoffield:", "\"]").and_then(|name| name.split_once("::"))
        {
            let _ = writeln!(
                c,
                "_Static_assert(offsetof(struct {of}, {field}) == {value}, \"{of}.{field}\");"
            );
            counts[2] += 1;
        }
    }
    (c, counts)
}

/// What a C compiler says against these assertions, or nothing without a compiler.
fn compiled(name: &str, text: &str) -> Option<String> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let headers = "#include <stddef.h>\n#include \"uvm_rust_ioctl.h\"\n#include \"vgpu.h\"\n";
    std::fs::write(&source, headers.to_owned() + text).unwrap();
    let built = Command::new("cc")
        .args(["-fsyntax-only", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../uapi"))
        .arg(source)
        .output();
    let Ok(built) = built else {
        skipped("no C compiler");
        return None;
    };
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert_eq!(built.status.success(), !said.contains("error"), "{said}");
    Some(said)
}

#[test]
fn the_module_is_the_headers() {
    let (c, [constants, structures, fields]) = asserted(BINDINGS);
    assert!(
        constants >= 137 && structures >= 24 && fields >= 200,
        "{constants} {structures} {fields}"
    );
    assert_eq!(structures, BINDINGS.matches("pub struct ").count());
    if let Some(said) = compiled("module.c", &c) {
        assert!(!said.contains("error"), "{said}");
    }
}

/// A number, a size and an offset that are not the headers' are found.
#[test]
fn what_is_not_the_headers_is_found() {
    let wrong = [
        (
            "UVM_RUST_FLASH_REAP: u32 = 4117",
            "UVM_RUST_FLASH_REAP: u32 = 4118",
        ),
        (
            "size_of::<uvm_rust_version>() - 16usize",
            "size_of::<uvm_rust_version>() - 24usize",
        ),
        (
            "uvm_rust_version, features) - 8usize",
            "uvm_rust_version, features) - 4usize",
        ),
    ];
    for (n, (right, other)) in wrong.into_iter().enumerate() {
        let changed = BINDINGS.replace(right, other);
        assert_ne!(changed, BINDINGS, "{right} is no longer in the module");
        if let Some(said) = compiled(&format!("wrong-{n}.c"), &asserted(&changed).0) {
            assert!(said.contains("static assertion failed"), "{other}: {said}");
        }
    }
}
