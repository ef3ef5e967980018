// SPDX-License-Identifier: GPL-2.0-only OR MIT

use std::collections::HashSet;

use uvmsim_trace::Kernel;
use uvmsim_trace::Kind;
use uvmsim_trace::Tensor;
use uvmsim_trace::TensorId;

use super::*;

const MIB: f64 = (1 << 20) as f64;

fn step(name: &str, batch: u64) -> Step {
    let options = Options::new(batch, Precision::Fp32);
    find(name).unwrap().build(&options)
}

fn short(name: &str) -> Step {
    let options = Options {
        tokens: (name == "rnn").then_some(4),
        ..Options::new(2, Precision::Fp32)
    };
    find(name).unwrap().build(&options)
}

/// The kernel of this name, and its number.
fn kernel<'a>(s: &'a Step, name: &str) -> (usize, &'a Kernel) {
    let mut kernels = s.trace.kernels.iter().enumerate();
    kernels.find(|(_, k)| k.name == name).unwrap()
}

/// Bytes of the tensors that are `of`.
fn bytes(s: &Step, of: impl Fn(&Tensor) -> bool) -> u64 {
    let tensors = s.trace.tensors.iter().filter(|t| of(t));
    tensors.map(|t| t.bytes).sum()
}

#[test]
fn the_data_can_be_read() {
    assert!(
        read().is_ok_and(|all| all.len() == 23),
        "{:?}",
        read().err()
    );
}

#[test]
fn parameters_are_the_published_ones() {
    for e in NETS.iter() {
        assert_eq!(short(&e.name).parameters, e.parameters, "{}", e.name);
    }
}

/// MiB of all layers' outputs, for one sample, forward; in-place layers count.
fn outputs(name: &str) -> f64 {
    let s = step(name, 1);
    let forward = &s.trace.kernels[..s.phases[0]];
    let written = forward.iter().flat_map(|k| &k.writes);
    let outputs = written.map(|&t| s.trace.tensor(t)).filter(|t| {
        t.name.ends_with(".out") && !t.name.contains("softmax") && !t.name.contains("loss")
    });
    outputs.map(|t| t.bytes).sum::<u64>() as f64 / MIB
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
        let ours = 2.0 * outputs(name);
        assert!((ours - mib).abs() < 0.005, "{name}: {ours}");
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
        let forward = s.costs[..s.phases[0]].iter();
        let products = forward.filter(|c| c.class == roofline::Class::Product);
        let got = products.map(|c| c.flops).sum::<u64>() as f64 / 2e9;
        assert!((got / giga - 1.0).abs() < 0.01, "{name}: {got} {giga}");
    }
}

/// Nothing is read before it is written, names are unique, every activation is
/// written, and every parameter is updated once, after its gradient is there.
#[test]
fn steps_are_well_formed() {
    for e in NETS.iter() {
        let s = short(&e.name);
        let Trace {
            tensors, kernels, ..
        } = &s.trace;
        let names: HashSet<_> = tensors.iter().map(|t| &t.name).collect();
        assert_eq!(names.len(), tensors.len(), "{}", e.name);
        let all = (0..tensors.len()).map(|t| TensorId(t as u32));
        let lasting = all.filter(|t| tensors[t.index()].kind.exists_at_start());
        let mut there: HashSet<TensorId> = lasting.collect();
        for k in kernels {
            for t in &k.reads {
                let tensor = &tensors[t.index()].name;
                assert!(there.contains(t), "{}: {} reads {tensor}", e.name, k.name);
            }
            there.extend(&k.writes);
            assert!(!k.writes.is_empty(), "{}", k.name);
        }
        assert_eq!(there.len(), tensors.len(), "{}", e.name);
        let updates = kernels.iter().filter(|k| k.name.ends_with(".update"));
        let updated: HashSet<_> = updates.map(|k| k.writes[0]).collect();
        let learned: u64 = updated.iter().map(|&t| s.trace.tensor(t).bytes).sum();
        assert_eq!(learned, 4 * s.parameters, "{}", e.name);
        let sum = bytes(&s, |t| t.kind == Kind::Gradient);
        // DCGAN's second step leaves the discriminator gradients that none uses.
        let more = e.name == "dcgan" && sum > learned;
        assert!(more || sum == learned, "{}", e.name);
    }
}

/// Backward of a chain of linear layers reads each layer's input, in reverse.
#[test]
fn activations_live_until_their_backward() {
    let s = short("vgg16");
    let input = kernel(&s, "conv1_2.forward").1.reads[0];
    let reads = |k: &Kernel| k.reads.contains(&input);
    let last = s.trace.kernels.iter().rposition(reads).unwrap();
    let name = &s.trace.kernels[last].name;
    assert!(name.starts_with("relu1_1"), "{name}");
    assert!(last > s.phases[0]);
}

#[test]
fn half_precision_keeps_master_weights() {
    let m = uvmsim_machine::presets::find("a100").unwrap();
    let times = [Precision::Fp16, Precision::Bf16].map(|precision| {
        let s = find("bert-base")
            .unwrap()
            .build(&Options::new(1, precision));
        let sum = |kind| bytes(&s, |t| t.kind == kind);
        assert_eq!(sum(Kind::Weight), 2 * s.parameters);
        assert_eq!(sum(Kind::Optimizer), 12 * s.parameters);
        s.timed(&m, precision).ideal_ns()
    });
    assert_eq!(times[0], times[1]);
}

/// Of what a sample of twice the tokens makes, nothing is more than twice as large: no scores are
/// kept. GPT-2's are four times as large.
#[test]
fn flash_attention_keeps_no_scores() {
    let made = |name: &str, tokens: u64| {
        let options = Options {
            tokens: Some(tokens),
            ..Options::new(1, Precision::Bf16)
        };
        let s = find(name).unwrap().build(&options);
        bytes(&s, |t| t.kind == Kind::Activation) as f64
    };
    let growth = |name| {
        let [short, middle, long] = [1024, 2048, 4096].map(|tokens| made(name, tokens));
        (long - middle) / (middle - short)
    };
    let (llama, gpt2) = (growth("tinyllama"), growth("gpt2-l"));
    assert!((llama - 2.0).abs() < 0.001 && gpt2 > 2.5, "{llama} {gpt2}");
}

/// The operations that FlashAttention-2's benchmarks count (Dao, 2023, section 4.1): four times
/// heads, their width and the square of the tokens, half of that where it is causal, and two and
/// a half times as many backward.
#[test]
fn flash_attention_s_arithmetic_is_the_published() {
    let s = step("tinyllama", 3);
    let [forward, backward] = ["forward", "backward"].map(|pass| {
        let (k, _) = kernel(&s, &format!("layer0.attn.flash.{pass}"));
        s.costs[k].flops
    });
    assert_eq!(forward, 3 * 4 * 2048 * 2048 * 64 * 32 / 2);
    assert_eq!(backward, forward * 5 / 2);
}

/// An eighth of TinyLlama's heads have keys and values (GQA), and its block keeps what PyTorch's
/// would: of the gate, its input, its output, the other half and the product.
#[test]
fn a_llama_block_keeps_what_it_is_made_of() {
    let s = step("tinyllama", 1);
    let size = |name: &str| bytes(&s, |t| t.name == format!("layer3.{name}.out"));
    assert_eq!(size("attn.query"), 8 * size("attn.key"));
    assert_eq!(size("attn.value"), size("attn.key_rotary"));
    assert_eq!(size("attn.key"), 2048 * 4 * 64 * 4);
    let back = ["mlp.product", "mlp.silu"].map(|name| {
        let (_, k) = kernel(&s, &format!("layer3.{name}.backward"));
        let kept = k.reads.iter().map(|&t| &*s.trace.tensor(t).name);
        kept.filter(|name| name.ends_with(".out"))
            .collect::<Vec<_>>()
    });
    let kept = [
        "layer3.mlp.up.out",
        "layer3.mlp.silu.out",
        "layer3.mlp.gate.out",
    ];
    assert_eq!(back.concat(), kept);
}

#[test]
fn durations_follow_the_roofline() {
    let m = uvmsim_machine::presets::find("a100").unwrap();
    let s = step("vgg16", 64);
    let [conv, relu] =
        ["conv3_2.forward", "relu1_1.forward"].map(|name| s.costs[kernel(&s, name).0]);
    let ns = |c: roofline::Cost, p| c.nanoseconds(&m, p) as f64;
    assert!((ns(conv, Precision::Fp32) / (conv.flops as f64 / 19.5e3 / 0.7) - 1.0).abs() < 0.01);
    assert!(ns(conv, Precision::Tf32) < 0.2 * ns(conv, Precision::Fp32));
    assert!((ns(relu, Precision::Fp32) / (relu.bytes as f64 / 1555.0 / 0.8) - 1.0).abs() < 0.01);
}

#[test]
fn traces_are_valid() {
    let m = uvmsim_machine::presets::find("a100").unwrap();
    for e in NETS.iter() {
        let t = short(&e.name).timed(&m, Precision::Fp32);
        assert_eq!(t.validate(), Ok(()), "{}", e.name);
        let again: uvmsim_trace::Trace = t.to_string().parse().unwrap();
        assert_eq!(again.kernels.len(), t.kernels.len());
    }
}

/// The first of two GPUs has half of the layers, and the parts of a step follow each other there: one more goes forward
/// before each comes back, gradients are added up, and parameters are updated once.
#[test]
fn a_stage_has_two_parts_under_way() {
    let options = Options {
        tokens: Some(16),
        ..Options::new(2, Precision::Fp32)
    };
    let net = find("tinyllama").unwrap();
    let stage = net.first_stage(&options, 3).unwrap();
    assert!(stage.trace.validate().is_ok());
    let kernels = |name: &str| {
        let all = stage.trace.kernels.iter().enumerate();
        let named = all.filter(|(_, k)| k.name == name);
        named.map(|(i, _)| i).collect::<Vec<_>>()
    };
    let (forward, back) = (kernels("layer10.add_2.forward"), kernels("receive"));
    assert_eq!((forward.len(), back.len()), (3, 3));
    assert!(kernels("layer11.add_2.forward").is_empty() && kernels("lm_head.forward").is_empty());
    // Forward, forward, back, forward, back, back.
    assert!(forward[1] < back[0] && back[0] < forward[2] && forward[2] < back[1]);
    let sums = kernels("layer0.mlp.down.accumulate");
    assert_eq!(sums.len(), 2);
    let updates = stage
        .trace
        .kernels
        .iter()
        .filter(|k| k.name.ends_with(".update"));
    let whole = net.build(&options);
    let all = whole
        .trace
        .kernels
        .iter()
        .filter(|k| k.name.ends_with(".update"));
    // The norm at the end and the head are the other's, and half of the layers.
    assert_eq!(2 * (updates.count() - 1), all.count() - 3);
    assert!(find("resnet50").unwrap().first_stage(&options, 2).is_none());
}
