// SPDX-License-Identifier: GPL-2.0 OR MIT

use std::collections::HashSet;

use uvmsim_trace::Kind;

use super::*;

const MIB: f64 = (1 << 20) as f64;

fn step(name: &str, batch: u64) -> Step {
    let options = Options {
        batch,
        tokens: None,
        precision: Precision::Fp32,
        optimizer: None,
    };
    find(name).unwrap().build(&options)
}

fn short(name: &str) -> Step {
    let tokens = (name == "rnn").then_some(4);
    let options = Options {
        batch: 2,
        tokens,
        precision: Precision::Fp32,
        optimizer: None,
    };
    find(name).unwrap().build(&options)
}

#[test]
fn parameters_are_the_published_ones() {
    for e in NETS {
        assert_eq!(short(e.name).parameters, e.parameters, "{}", e.name);
    }
}

/// MiB of all layers' outputs, for one sample, forward; in-place layers count.
fn outputs(name: &str) -> f64 {
    let s = step(name, 1);
    let forward = &s.kernels[..s.phases[0]];
    let written = forward.iter().flat_map(|k| &k.writes);
    let bytes: u64 = written
        .map(|&t| &s.tensors[t])
        .filter(|t| {
            t.name.ends_with(".out") && !t.name.contains("softmax") && !t.name.contains("loss")
        })
        .map(|t| t.bytes)
        .sum();
    bytes as f64 / MIB
}

/// Twice the outputs, as torchsummary prints as "Forward/backward pass size
/// (MB)" of these networks, its dropout and adaptive pooling layers aside.
#[test]
fn activations_are_the_published_ones() {
    for (name, mib) in [
        ("alexnet", 8.31),
        ("vgg16", 218.59),
        ("resnet50", 286.56),
        ("resnet152", 606.59),
        ("mobilenet", 115.43),
    ] {
        assert!(
            (2.0 * outputs(name) - mib).abs() < 0.005,
            "{name}: {}",
            2.0 * outputs(name)
        );
    }
}

/// Forward multiply-adds of one sample, in 1e9: torchvision's for the CNNs; half
/// the operations that the YOLO papers give for Darknet.
#[test]
fn arithmetic_is_the_published() {
    for (name, giga) in [
        ("alexnet", 0.714),
        ("vgg16", 15.47),
        ("vgg19", 19.63),
        ("resnet50", 4.09),
        ("resnet152", 11.51),
        ("inceptionv3", 5.71),
        ("darknet19", 5.58 / 2.0),
        ("darknet53", 18.7 / 2.0),
        ("vit-base", 17.56),
    ] {
        let s = step(name, 1);
        let forward = &s.kernels[..s.phases[0]];
        let flops: u64 = forward
            .iter()
            .filter(|k| k.cost.class == roofline::Class::Product)
            .map(|k| k.cost.flops)
            .sum();
        let got = flops as f64 / 2e9;
        assert!((got / giga - 1.0).abs() < 0.01, "{name}: {got} {giga}");
    }
}

/// Nothing is read before it is written, names are unique, every activation is
/// written, and every parameter is updated once, after its gradient is there.
#[test]
fn steps_are_well_formed() {
    for e in NETS {
        let s = short(e.name);
        let names: HashSet<_> = s.tensors.iter().map(|t| &t.name).collect();
        assert_eq!(names.len(), s.tensors.len(), "{}", e.name);
        let lasting = |t: usize| {
            matches!(
                s.tensors[t].kind,
                Kind::Weight | Kind::Optimizer | Kind::Input
            )
        };
        let mut there: HashSet<usize> = (0..s.tensors.len()).filter(|&t| lasting(t)).collect();
        for k in &s.kernels {
            for t in &k.reads {
                assert!(
                    there.contains(t),
                    "{}: {} reads {}",
                    e.name,
                    k.name,
                    s.tensors[*t].name
                );
            }
            there.extend(&k.writes);
            there.extend(k.workspace);
            assert!(!k.writes.is_empty(), "{}", k.name);
        }
        assert_eq!(there.len(), s.tensors.len(), "{}", e.name);
        let updates = s.kernels.iter().filter(|k| k.name.ends_with(".update"));
        let updated: HashSet<_> = updates.map(|k| k.writes[0]).collect();
        let bytes: u64 = updated.iter().map(|&t| s.tensors[t].bytes).sum();
        assert_eq!(bytes, 4 * s.parameters, "{}", e.name);
        let gradients = s.tensors.iter().filter(|t| t.kind == Kind::Gradient);
        let sum: u64 = gradients.map(|t| t.bytes).sum();
        // DCGAN's second step leaves the discriminator gradients that none uses.
        assert!(
            if e.name == "dcgan" {
                sum >= bytes
            } else {
                sum == bytes
            },
            "{}",
            e.name
        );
    }
}

/// Backward of a chain of linear layers reads each layer's input, in reverse.
#[test]
fn activations_live_until_their_backward() {
    let s = short("vgg16");
    let forward = s
        .kernels
        .iter()
        .find(|k| k.name == "conv1_2.forward")
        .unwrap();
    let input = forward.reads[0];
    let last = s
        .kernels
        .iter()
        .rposition(|k| k.reads.contains(&input))
        .unwrap();
    assert!(
        s.kernels[last].name.starts_with("relu1_1"),
        "{}",
        s.kernels[last].name
    );
    assert!(last > s.phases[0]);
}

#[test]
fn half_precision_keeps_master_weights() {
    let options = Options {
        batch: 1,
        tokens: None,
        precision: Precision::Fp16,
        optimizer: None,
    };
    let s = find("bert-base").unwrap().build(&options);
    let sum = |kind| {
        s.tensors
            .iter()
            .filter(|t| t.kind == kind)
            .map(|t| t.bytes)
            .sum::<u64>()
    };
    assert_eq!(sum(Kind::Weight), 2 * s.parameters);
    assert_eq!(sum(Kind::Optimizer), 12 * s.parameters);
}

#[test]
fn durations_follow_the_roofline() {
    let m = uvmsim_machine::presets::find("a100").unwrap();
    let s = step("vgg16", 64);
    let conv = s
        .kernels
        .iter()
        .find(|k| k.name == "conv3_2.forward")
        .unwrap()
        .cost;
    let relu = s
        .kernels
        .iter()
        .find(|k| k.name == "relu1_1.forward")
        .unwrap()
        .cost;
    let ns = |c: roofline::Cost, p| c.nanoseconds(&m, p) as f64;
    assert!((ns(conv, Precision::Fp32) / (conv.flops as f64 / 19.5e3 / 0.7) - 1.0).abs() < 0.01);
    assert!(ns(conv, Precision::Tf32) < 0.2 * ns(conv, Precision::Fp32));
    assert!((ns(relu, Precision::Fp32) / (relu.bytes as f64 / 1555.0 / 0.8) - 1.0).abs() < 0.01);
}

#[test]
fn traces_are_valid() {
    let m = uvmsim_machine::presets::find("a100").unwrap();
    for e in NETS {
        let t = short(e.name).trace(&m, Precision::Fp32);
        assert_eq!(t.validate(), Ok(()), "{}", e.name);
        let again: uvmsim_trace::Trace = t.to_string().parse().unwrap();
        assert_eq!(again.kernels.len(), t.kernels.len());
    }
}
