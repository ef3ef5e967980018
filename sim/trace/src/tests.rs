// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use proptest::prelude::*;

const SMALL: &str = "uvmtrace 1
# a comment
meta name tiny net
meta batch 4
tensor 0 weight 4096 w
tensor 1 input 8192
tensor 2 activation 8192 a
tensor 3 workspace 100
kernel 0 1500 mul 0,1 2 3 flops=8 phase=forward
kernel 1 20 update 0,2 0 - out_fault_ns=30 all_fault_ns=40
";

#[test]
fn reads_and_writes_the_documented_format() {
    let t: Trace = SMALL.parse().unwrap();
    assert_eq!(t.meta("name"), "tiny net");
    assert_eq!(t.tensors[2].kind, Kind::Activation);
    assert_eq!(t.kernels[0].workspace, [TensorId(3)]);
    assert_eq!(t.kernels[0].phase, Some(Phase::Forward));
    assert_eq!(t.kernels[1].all_fault_ns, Some(40));
    assert_eq!(t.ideal_ns(), 1520);
    assert_eq!(t.working_set(&t.kernels[1]), 4096 + 8192);
    let sorted = SMALL.replace("# a comment\n", "").replace(
        "meta name tiny net\nmeta batch 4",
        "meta batch 4\nmeta name tiny net",
    );
    assert_eq!(t.to_string(), sorted);
}

/// Each broken line names itself and its object.
#[test]
fn errors_name_line_and_object() {
    // What is replaced, by what, and what is said.
    let cases = "
        uvmtrace 1 | uvmtrace 9 | line 1: format version 9
        tensor 2 a | tensor 5 a | line 7: tensor 5: tensor numbers run from 0
        activation 8192 a | activation 0 a | line 7: tensor 2 (a): its size is 0
        activation 8192 a | activations 8192 a | line 7: tensor 2: kind 'activations'
        activation 8192 a | activation -8 a | line 7: tensor 2: size -8 is negative
        kernel 0 1500 | kernel 0 -1500 | line 9: kernel 0: duration -1500 is negative
        0,1 2 3 | 0,1 2 9 | line 9: kernel 0 (mul): tensor 9 (scratch) does not exist
        0,1 2 3 | 0,1,1 2 3 | line 9: kernel 0 (mul): tensor 1 is read twice
        0,1 2 3 | 0,1 2 2 | line 9: kernel 0 (mul): tensor 2 is scratch and also
        0,1 2 3 | 0,2 1 3 | it reads tensor 2 (a), which no kernel writes
        update 0,2 0 - out_fault_ns=30 all_fault_ns=40 | update 0,2 0 | line 10: kernel 1: a kernel needs
        flops=8 | flop=8 | option 'flop' is unknown
        meta batch | meta name | line 4: meta name is given twice";
    for case in cases.trim().lines() {
        let fields: Vec<&str> = case.trim().split(" | ").collect();
        let [from, to, expected] = fields[..] else {
            panic!("{case}")
        };
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from}");
        let e = text.parse::<Trace>().unwrap_err().to_string();
        assert!(e.contains(expected), "{e}\nexpected {expected}");
    }
}

#[test]
fn a_cycle_names_both_kernels() {
    let text =
        SMALL
            .replacen("mul 0,1 2 3", "mul 0,2 1 3", 1)
            .replacen("update 0,2 0", "update 0 2", 1);
    let e = text.parse::<Trace>().unwrap_err().to_string();
    let expected = "line 9: kernel 0 (mul): it reads tensor 2 (a), \
                    which is first written by kernel 1 (update) in line 10: the order has a cycle";
    assert_eq!(e, expected);
}

#[test]
fn a_kernel_larger_than_the_gpu_is_named() {
    let t: Trace = SMALL.parse().unwrap();
    assert!(t.check_fits(4096 + 2 * 8192 + 100).is_ok());
    let e = t.check_fits(16384).unwrap_err().to_string();
    assert!(e.starts_with("line 9: kernel 0 (mul) needs"), "{e}");
}

proptest! {
    /// Whatever the parser takes, it writes in a form that means the same.
    #[test]
    fn no_text_makes_the_parser_panic(s in "(uvmtrace 1\n)?[ a-z0-9,=\n#-]{0,200}") {
        if let Ok(t) = s.parse::<Trace>() {
            let again: Trace = t.to_string().parse().unwrap();
            prop_assert_eq!(again.to_string(), t.to_string());
        }
    }
}

/// The example of the documentation is a trace.
#[test]
fn the_documented_trace_is_read() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/simulator-formats.md"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once("```uvmtrace\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let trace: Trace = example.parse().unwrap();
    assert_eq!((trace.tensors.len(), trace.kernels.len()), (4, 1));
}
